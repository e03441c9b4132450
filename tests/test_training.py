"""Training: seeds under vmap are runs of their own, keys decide everything, clipping changes the update."""

import io
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from whyattention.training import (
    Mixture,
    closest_width,
    fit,
    fit_seeds,
    one_seed,
    over_seeds,
    parameter_count,
    untrained_seeds,
)


class Line(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.slope = nnx.Param(jax.random.normal(rngs.params(), ()))

    def __call__(self, x):
        return self.slope[...] * x


@dataclass(frozen=True)
class Double:
    """Learn y = 2 x."""

    batch_size: int = 4

    def sample(self, key):
        return jax.random.normal(key, (self.batch_size,))

    def loss(self, model, batch):
        error = jax.vmap(model)(batch) - 2 * batch
        return jnp.mean(error**2), {"largest": jnp.max(jnp.abs(error))}


SGD = optax.sgd(0.1)


def slope(model):
    return {"slope": model.slope[...]}


def test_learns_and_leaves_the_given_model_alone():
    model = Line(nnx.Rngs(0))
    before = float(model.slope[...])
    trained, history = fit(model, Double(), steps=60, optimizer=SGD, key=jax.random.key(0))
    assert abs(trained.slope[...] - 2) < 1e-2 and model.slope[...] == before
    assert history.loss.shape == history.metrics["largest"].shape == (60,) and history.updates == 60


@pytest.mark.parametrize("chunk", [7, 60, 100])
def test_the_chunk_changes_nothing(chunk):
    runs = [
        fit(Line(nnx.Rngs(0)), Double(), steps=20, optimizer=SGD, key=jax.random.key(0), chunk=size)[1]
        for size in (20, chunk)
    ]
    np.testing.assert_allclose(runs[0].loss, runs[1].loss, rtol=1e-6)


def test_evaluations_come_after_every_chunk():
    model, history = fit(
        Line(nnx.Rngs(0)), Double(), steps=25, optimizer=SGD, key=jax.random.key(0), chunk=10, evaluate=slope
    )
    assert history.evaluated_at.tolist() == [10, 20, 25]
    assert history.evaluations["slope"][-1] == model.slope[...]


def test_seeds_differ_and_each_equals_its_own_fit():
    models, history = fit_seeds(
        Line, Double(), seeds=3, steps=20, optimizer=SGD, key=jax.random.key(5), chunk=10, evaluate=slope
    )
    assert history.loss.shape == (3, 20) and history.evaluations["slope"].shape == (3, 2)
    assert len(np.unique(history.loss[:, 0])) == 3
    model_key, data_key = jax.random.split(jax.random.key(5))
    for seed in range(3):
        rngs, key = nnx.Rngs(jax.random.split(model_key, 3)[seed]), jax.random.split(data_key, 3)[seed]
        alone, curve = fit(Line(rngs), Double(), steps=20, optimizer=SGD, key=key, chunk=10)
        np.testing.assert_allclose(curve.loss, history.loss[seed], rtol=1e-5)
        np.testing.assert_allclose(one_seed(models, seed).slope[...], alone.slope[...], rtol=1e-5)
    np.testing.assert_allclose(over_seeds(lambda model: model(1.0), models), history.evaluations["slope"][:, -1])


def test_seeds_begin_as_the_untrained_models():
    options = {"seeds": 3, "key": jax.random.key(5)}
    still, _ = fit_seeds(Line, Double(), steps=1, optimizer=optax.sgd(0.0), **options)
    untrained = untrained_seeds(Line, **options)
    assert untrained.slope.shape == (3,) and len(np.unique(untrained.slope[...])) == 3
    np.testing.assert_array_equal(untrained.slope[...], still.slope[...])
    with pytest.raises(ValueError, match="seeds must be a whole number from 1, got 0"):
        untrained_seeds(Line, seeds=0, key=options["key"])


def test_the_same_key_gives_the_same_run_and_another_does_not():
    runs = [fit(Line(nnx.Rngs(0)), Double(), steps=5, optimizer=SGD, key=jax.random.key(k))[1].loss for k in (1, 1, 2)]
    np.testing.assert_array_equal(runs[0], runs[1])
    assert not np.array_equal(runs[0], runs[2])


def test_every_update_has_a_batch_of_its_own():
    still = optax.sgd(0.0)
    _, history = fit_seeds(Line, Double(), seeds=2, steps=6, optimizer=still, key=jax.random.key(0), chunk=3)
    assert len(np.unique(history.loss)) == 12


def test_a_seed_that_is_not_there_is_named():
    models, _ = fit_seeds(Line, Double(), seeds=2, steps=1, optimizer=SGD, key=jax.random.key(0))
    for seed in (2, -1):
        with pytest.raises(ValueError, match=f"from 0 to 1, got {seed}"):
            one_seed(models, seed)


def test_a_metric_that_is_no_scalar_is_named():
    class Wide(Double):
        def loss(self, model, batch):
            return super().loss(model, batch)[0], {"errors": batch}

    with pytest.raises(ValueError, match=r"'errors' must be a scalar, got shape \(4,\)"):
        fit(Line(nnx.Rngs(0)), Wide(), steps=2, optimizer=SGD, key=jax.random.key(0))


def test_stops_when_told():
    _, history = fit(
        Line(nnx.Rngs(0)),
        Double(),
        steps=500,
        optimizer=SGD,
        key=jax.random.key(0),
        chunk=10,
        stop_when=lambda history: history.loss[-1] < 1e-3,
    )
    assert history.updates < 500 and history.loss[-1] < 1e-3


def test_clipping_changes_the_update():
    clipped = optax.chain(optax.clip_by_global_norm(1e-3), SGD)
    start = Line(nnx.Rngs(0))
    ends = [
        fit(start, Double(), steps=1, optimizer=optimizer, key=jax.random.key(0))[0].slope[...]
        for optimizer in (SGD, clipped)
    ]
    assert abs(ends[1] - start.slope[...]) < 1e-3 < abs(ends[0] - start.slope[...])


def test_counts_parameters_of_one_model():
    assert parameter_count(nnx.Linear(3, 4, rngs=nnx.Rngs(0))) == 16


@pytest.mark.parametrize("number", [0, -1, 1.0, True, "1"])
@pytest.mark.parametrize("name", ["seeds", "steps", "chunk", "save_every"])
def test_what_is_no_whole_number_from_one_is_named(name, number):
    arguments = {"seeds": 1, "steps": 1, "chunk": 1, name: number}
    with pytest.raises(ValueError, match=f"{name} must be a whole number from 1, got {number!r}"):
        fit_seeds(Line, Double(), optimizer=SGD, key=jax.random.key(0), **arguments)


def test_any_integer_will_do():
    _, history = fit_seeds(
        Line, Double(), seeds=np.int64(2), steps=np.int64(4), optimizer=SGD, key=jax.random.key(0), chunk=np.uint8(3)
    )
    assert history.loss.shape == (2, 4)


def test_closest_width_counts_without_making_arrays():
    def make(width):
        return nnx.Linear(width, 10**6, rngs=nnx.Rngs(0))

    millions = {5.1: 4, 5.6: 5, 0.1: 1, 99: 8}  # with its bias, a layer of width w has w + 1 million parameters
    for wanted, width in millions.items():
        assert closest_width(make, int(wanted * 10**6), range(1, 9)) == width


def test_no_width_to_choose_is_named():
    with pytest.raises(ValueError, match="a width to choose"):
        closest_width(lambda width: nnx.Linear(width, 1, rngs=nnx.Rngs(0)), 10, range(0))


class Stretched(Double):
    """The same line from batches of another shape."""

    def loss(self, model, batch):
        loss, metrics = super().loss(model, batch)
        return loss, {"size": jnp.float32(len(batch)), **metrics}


MIXTURE = Mixture((Stretched(4), Stretched(7), Stretched(9)), (0.5, 0.4, 0.1))


def test_each_chunk_of_a_mixture_is_of_one_task_drawn_by_its_share():
    model, history = fit(Line(nnx.Rngs(0)), MIXTURE, steps=300, optimizer=SGD, key=jax.random.key(0), chunk=3)
    sizes = history.metrics["size"].reshape(100, 3)
    assert np.all(sizes == sizes[:, :1]) and abs(model.slope[...] - 2) < 1e-2
    np.testing.assert_allclose([np.mean(sizes[:, 0] == size) for size in (4, 7, 9)], MIXTURE.shares, atol=0.15)
    again = fit(Line(nnx.Rngs(0)), MIXTURE, steps=30, optimizer=SGD, key=jax.random.key(0), chunk=3)[1]
    np.testing.assert_array_equal(again.loss, history.loss[:30])


def test_all_seeds_are_given_the_same_task_of_a_mixture():
    _, history = fit_seeds(Line, MIXTURE, seeds=2, steps=12, optimizer=SGD, key=jax.random.key(0), chunk=2)
    sizes = history.metrics["size"]
    assert np.array_equal(sizes[0], sizes[1]) and len(np.unique(sizes)) > 1
    assert not np.array_equal(history.loss[0], history.loss[1])


@pytest.mark.parametrize("shares", [(0.5, 0.5), (1.0, 0.0, 1.0), ()])
def test_shares_that_fit_no_mixture_are_named(shares):
    with pytest.raises(ValueError, match=r"positive share.*for 3 tasks"):
        Mixture(MIXTURE.tasks, shares)


def test_a_mixture_of_mixtures_is_refused():
    with pytest.raises(ValueError, match="mixture of mixtures"):
        Mixture((Stretched(4), MIXTURE), (0.5, 0.5))


@pytest.mark.parametrize("task", [Double(), MIXTURE])
def test_a_key_of_the_old_style_gives_the_same_run(task):
    new, old = (
        fit(Line(nnx.Rngs(0)), task, steps=12, optimizer=SGD, key=key, chunk=2)[1].loss
        for key in (jax.random.key(0), jax.random.key_data(jax.random.key(0)))
    )
    np.testing.assert_array_equal(new, old)


def equal(left, right):
    return jax.tree.all(jax.tree.map(np.array_equal, left, right))


@pytest.mark.parametrize("train", [fit, fit_seeds])
def test_a_resumed_training_ends_as_one_without_interruption(tmp_path, train):
    arguments = {"optimizer": optax.adam(0.1), "key": jax.random.key(3), "chunk": 2, "evaluate": slope}
    start = (Line(nnx.Rngs(0)), MIXTURE) if train is fit else (Line, MIXTURE)
    arguments |= {} if train is fit else {"seeds": 2}
    path = tmp_path / "line.npz"
    whole, expected = train(*start, steps=12, **arguments)

    class Interrupted(Exception):
        pass

    def interrupt(history):
        if history.updates == 8:
            raise Interrupted

    with pytest.raises(Interrupted):  # after 8 updates, of which 6 are saved
        train(*start, steps=12, **arguments, checkpoint=path, save_every=3, stop_when=interrupt)
    with np.load(path) as saved:
        assert saved["loss"].shape[-1] == 6
    model, history = train(*start, steps=12, **arguments, checkpoint=path)
    assert equal(nnx.state(model), nnx.state(whole))
    assert equal(vars(history), vars(expected))
    assert [file.name for file in tmp_path.iterdir()] == ["line.npz"]
    again, same = train(*start, steps=12, **arguments, checkpoint=path)  # finished: nothing is left to do
    assert equal(nnx.state(again), nnx.state(whole)) and equal(vars(same), vars(expected))


def test_a_training_stopped_early_stays_stopped(tmp_path):
    arguments = {"optimizer": SGD, "key": jax.random.key(0), "chunk": 2, "checkpoint": tmp_path / "line.npz"}
    for _ in range(2):
        _, history = fit(
            Line(nnx.Rngs(0)), Double(), steps=20, **arguments, stop_when=lambda history: history.updates >= 6
        )
        assert history.updates == 6


def test_a_checkpoint_of_another_training_is_named(tmp_path):
    path = tmp_path / "line.npz"
    arguments = {"steps": 1, "key": jax.random.key(0), "optimizer": SGD}
    fit(Line(nnx.Rngs(0)), Double(), **arguments, checkpoint=path)
    with pytest.raises(ValueError, match=r"line\.npz.*another key"):
        fit(Line(nnx.Rngs(0)), Double(), **(arguments | {"key": jax.random.key(1)}), checkpoint=path)
    with pytest.raises(ValueError, match=r"line\.npz.*another model or optimizer"):
        fit(Line(nnx.Rngs(0)), Double(), **(arguments | {"optimizer": optax.adam(0.1)}), checkpoint=path)


def test_a_checkpoint_of_a_model_that_only_looks_alike_is_named(tmp_path):
    class Doubling(Line):
        def __init__(self, rngs):
            self.gradient = nnx.Param(jnp.ones(()))

    arguments = {"steps": 1, "key": jax.random.key(0), "optimizer": SGD, "checkpoint": tmp_path / "line.npz"}
    fit(Line(nnx.Rngs(0)), Double(), **arguments)
    with pytest.raises(ValueError, match=r"line\.npz.*another model or optimizer: see state.*gradient"):
        fit(Doubling(nnx.Rngs(0)), Double(), **arguments)


def test_what_a_checkpoint_cannot_be_resumed_with_is_named(tmp_path):
    arguments = {"key": jax.random.key(0), "optimizer": SGD, "checkpoint": tmp_path / "line.npz"}
    fit(Line(nnx.Rngs(0)), Double(), steps=4, **arguments)
    with pytest.raises(ValueError, match=r"line\.npz has 4 updates, which is more than steps=3"):
        fit(Line(nnx.Rngs(0)), Double(), steps=3, **arguments)
    with pytest.raises(ValueError, match=r"line\.npz has the evaluations \[\], and `evaluate` now \['slope'\]"):
        fit(Line(nnx.Rngs(0)), Double(), steps=8, evaluate=slope, **arguments)


def damaged(whole: bytes, how: str) -> bytes:
    arrays, content = dict(np.load(io.BytesIO(whole))), io.BytesIO()
    if how == "array":
        np.save(content, arrays["loss"])
        return content.getvalue()
    if how == "without keys":
        np.savez(content, **{name: array for name, array in arrays.items() if name != "first_keys"})
        return content.getvalue()
    place = whole.index(arrays["loss"].tobytes())
    changed = whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]
    return {"cut": whole[:-40], "empty": b"", "text": b"hello", "changed": changed}[how]


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("cut", "no whole .npz file"),
        ("empty", "no whole .npz file"),
        ("text", "no whole .npz file"),
        ("array", "no whole .npz file"),
        ("changed", "a broken .npz file: Bad CRC"),
        ("without keys", "no checkpoint: it has no first_keys"),
    ],
)
def test_a_file_that_is_no_whole_checkpoint_is_named(tmp_path, how, words):
    path = tmp_path / "line.npz"
    arguments = {"steps": 2, "key": jax.random.key(0), "optimizer": SGD, "checkpoint": path}
    fit(Line(nnx.Rngs(0)), Double(), **arguments)
    path.write_bytes(damaged(path.read_bytes(), how))
    with pytest.raises(ValueError, match=rf"line\.npz is {words}"):
        fit(Line(nnx.Rngs(0)), Double(), **arguments)


def test_a_folder_that_is_not_there_is_named_before_training(tmp_path):
    def never(history):
        raise AssertionError("trained")

    with pytest.raises(FileNotFoundError, match=r"no folder .*nowhere for the checkpoint .*line\.npz"):
        fit(
            Line(nnx.Rngs(0)),
            Double(),
            steps=2,
            optimizer=SGD,
            key=jax.random.key(0),
            checkpoint=tmp_path / "nowhere" / "line.npz",
            stop_when=never,
        )


def test_a_second_training_compiles_nothing():
    traced = []

    class Counting(Double):
        def loss(self, model, batch):
            traced.append(len(batch))
            return super().loss(model, batch)

    mixture = Mixture((Counting(4), Counting(7)), (1.0, 1.0))
    for _ in range(2):
        fit(Line(nnx.Rngs(0)), mixture, steps=30, optimizer=SGD, key=jax.random.key(0), chunk=3)
        assert sorted(traced) == [4, 7]


def test_a_model_may_draw_with_keys_from_its_batch():
    """How dropout is trained with: a key for every example, since a mapped model must not count its draws itself."""

    class Noisy(Line):
        def __init__(self, rngs):
            super().__init__(rngs)
            self.dropout = nnx.Dropout(0.5)

        def __call__(self, x, key):
            return self.dropout(super().__call__(x), rngs=key)

    class NoisyDouble(Double):
        def sample(self, key):
            return super().sample(key), jax.random.split(key, self.batch_size)

        def loss(self, model, batch):
            said = jax.vmap(model)(*batch)
            return jnp.mean((said - 2 * batch[0]) ** 2), {"dropped": jnp.mean(said == 0)}

    _, history = fit(Noisy(nnx.Rngs(0)), NoisyDouble(8), steps=40, optimizer=SGD, key=jax.random.key(0))
    assert len(np.unique(history.metrics["dropped"])) > 3
    assert 0.4 < np.mean(history.metrics["dropped"]) < 0.6
