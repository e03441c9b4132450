"""Training of any model on any task, one seed or many at once.

A task has `sample(key) -> batch`, pure JAX, and `loss(model, batch) -> (loss, metrics)`, metrics being a dict of
scalars. Whole chunks of updates, the drawing of their batches included, are one jitted `jax.lax.scan`.
"""

import bisect
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from whyattention import progress

Metrics = dict[str, jax.Array]
Evaluate = Callable[[nnx.Module], Metrics]


class Task(Protocol):
    """What `fit` asks of a task. It must be hashable and never change: programs compiled for it are kept.

    A frozen dataclass is that; one that holds arrays needs `eq=False` besides.
    """

    def sample(self, key: jax.Array) -> Any: ...

    def loss(self, model: Any, batch: Any) -> tuple[jax.Array, Metrics]: ...


@dataclass(frozen=True)
class Mixture:
    """Several tasks in one training, as a rule one task in batches of several shapes: each chunk is of one of them.

    Which one is drawn for every chunk, with probabilities in proportion to `shares`; the first seed's key decides. All
    must have the same metrics. Short chunks mix well. Raises ValueError unless there is a positive share for each.
    """

    tasks: tuple[Task, ...]
    shares: tuple[float, ...]

    def __post_init__(self):
        if not self.tasks or len(self.tasks) != len(self.shares) or not all(share > 0 for share in self.shares):
            raise ValueError(f"a positive share is needed for each task, got {self.shares} for {len(self.tasks)} tasks")


@dataclass(frozen=True)
class History:
    """What training left behind, as NumPy arrays with `seeds` as the first axis when there are several.

    `loss` and each of `metrics` hold the value on the batch of every update, `[updates]` or `[seeds, updates]`.
    `evaluations` hold what `evaluate` gave after the numbers of updates in `evaluated_at`.
    """

    loss: np.ndarray
    metrics: dict[str, np.ndarray]
    evaluated_at: np.ndarray
    evaluations: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def updates(self) -> int:
        return self.loss.shape[-1]


def fit(
    model: nnx.Module,
    task: Task | Mixture,
    *,
    steps: int,
    optimizer: optax.GradientTransformation,
    key: jax.Array,
    chunk: int = 100,
    evaluate: Evaluate | None = None,
    stop_when: Callable[[History], bool] | None = None,
    checkpoint: Path | None = None,
    save_every: int = 1000,
) -> tuple[nnx.Module, History]:
    """Trains a copy of `model` for `steps` updates: (trained model, History).

    `key` decides every batch. After each `chunk` of updates `evaluate(model)`, jitted, is recorded, and training ends
    early once `stop_when(history)` is true. Only parameters change: a model that counts while it runs (`nnx.BatchNorm`,
    `nnx.Dropout` with a stream of its own) is refused by Flax. One that draws needs its keys from the batch.

    With `checkpoint`, the path of an .npz file, training is saved there at its end and every `save_every` updates, at
    the end of a chunk. If the file is there already, training goes on from it, and ends as it would have ended without
    the interruption. A file of a finished training gives its result at once; to train anew, delete it.

    Raises ValueError if `steps`, `chunk` or `save_every` is not a positive whole number, if a metric is not a scalar,
    or if the checkpoint is of a training with another key, model or optimizer.
    """
    graphdef, params, rest = nnx.split(model, nnx.Param, ...)
    run = partial(_run_chunk, graphdef, optimizer)
    watch = None if evaluate is None else partial(_evaluate, graphdef, evaluate)
    state = (params, rest, optimizer.init(params), key)
    state, history = _train(run, task, state, steps, chunk, watch, stop_when, checkpoint, save_every)
    return nnx.merge(graphdef, state[0], state[1]), history


def fit_seeds(
    make_model: Callable[[nnx.Rngs], nnx.Module],
    task: Task | Mixture,
    *,
    seeds: int,
    steps: int,
    optimizer: optax.GradientTransformation,
    key: jax.Array,
    chunk: int = 100,
    evaluate: Evaluate | None = None,
    stop_when: Callable[[History], bool] | None = None,
    checkpoint: Path | None = None,
    save_every: int = 1000,
) -> tuple[nnx.Module, History]:
    """`fit` for `seeds` models at once under `jax.vmap`, each with its own parameters and its own batches.

    Gives one model whose parameters have `seeds` as an extra first axis (see `over_seeds` and `one_seed`), and a
    History with the same first axis. The other arguments, and the errors, are those of `fit`.
    """
    if seeds < 1:
        raise ValueError(f"seeds must be at least 1, got {seeds}")
    model_key, data_key = jax.random.split(key)

    # Not under jit: step by step, a second training of such models finds every small program compiled already.
    @jax.vmap
    def initialise(key):
        _, params, rest = nnx.split(make_model(nnx.Rngs(key)), nnx.Param, ...)
        return params, rest, optimizer.init(params)

    graphdef = nnx.graphdef(nnx.eval_shape(lambda: make_model(nnx.Rngs(0))))
    params, rest, opt_state = initialise(jax.random.split(model_key, seeds))
    run = partial(_run_chunk_of_seeds, graphdef, optimizer)
    watch = None if evaluate is None else partial(_evaluate_seeds, graphdef, evaluate)
    state = (params, rest, opt_state, jax.random.split(data_key, seeds))
    state, history = _train(run, task, state, steps, chunk, watch, stop_when, checkpoint, save_every)
    return nnx.merge(graphdef, state[0], state[1]), history


def over_seeds(function: Callable[[nnx.Module], Any], models: nnx.Module) -> Any:
    """`function(model)` for every seed of a model made by `fit_seeds`; results gain `seeds` as their first axis."""
    graphdef, state = nnx.split(models)
    return jax.vmap(lambda state: function(nnx.merge(graphdef, state)))(state)


def one_seed(models: nnx.Module, seed: int) -> nnx.Module:
    """The model of one seed out of those that `fit_seeds` trained."""
    graphdef, state = nnx.split(models)
    seeds = jax.tree.leaves(state)[0].shape[0]
    if not 0 <= seed < seeds:  # JAX would take the nearest one without a word
        raise ValueError(f"seed must be from 0 to {seeds - 1}, got {seed}")
    return nnx.merge(graphdef, jax.tree.map(lambda array: array[seed], state))


def parameter_count(model: nnx.Module) -> int:
    """How many numbers training may change."""
    return sum(array.size for array in jax.tree.leaves(nnx.state(model, nnx.Param)))


def closest_width(make_model: Callable[[int], nnx.Module], parameters: int, widths: Sequence[int]) -> int:
    """The one of `widths`, rising, with which `make_model(width)` comes closest to so many parameters.

    A wider model must have more of them. No array is made. Raises ValueError if there is no width.
    """
    if not widths:
        raise ValueError("there must be a width to choose")

    def count(width):
        return parameter_count(nnx.eval_shape(lambda: make_model(width)))

    above = bisect.bisect_left(widths, parameters, key=count)
    return min(widths[max(above - 1, 0) : above + 1], key=lambda width: abs(count(width) - parameters))


def _updates(graphdef, optimizer, task, length, state):
    def update(state, _):
        params, rest, opt_state, key = state
        key, batch_key = jax.random.split(key)
        batch = task.sample(batch_key)

        def loss_of(params):
            return task.loss(nnx.merge(graphdef, params, rest), batch)

        (loss, metrics), gradient = jax.value_and_grad(loss_of, has_aux=True)(params)
        change, opt_state = optimizer.update(gradient, opt_state, params)
        return (optax.apply_updates(params, change), rest, opt_state, key), (loss, metrics)

    return jax.lax.scan(update, state, length=length)


# All but the training state is static, so that a second `fit` of the same model on the same task compiles nothing.
@partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _run_chunk(graphdef, optimizer, task, length, state):
    return _updates(graphdef, optimizer, task, length, state)


@partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _run_chunk_of_seeds(graphdef, optimizer, task, length, state):
    return jax.vmap(partial(_updates, graphdef, optimizer, task, length))(state)


@partial(jax.jit, static_argnums=(0, 1))
def _evaluate(graphdef, evaluate, state):
    return evaluate(nnx.merge(graphdef, state[0], state[1]))


@partial(jax.jit, static_argnums=(0, 1))
def _evaluate_seeds(graphdef, evaluate, state):
    return jax.vmap(lambda params, rest: evaluate(nnx.merge(graphdef, params, rest)))(state[0], state[1])


def _train(run, task, state, steps, chunk, watch, stop_when, checkpoint, save_every):
    if not all(isinstance(number, int) and number >= 1 for number in (steps, chunk, save_every)):
        raise ValueError(
            "steps, chunk and save_every must be whole numbers from 1, "
            f"got steps={steps}, chunk={chunk} and save_every={save_every}"
        )
    pieces = []
    first_keys = state[3]
    if checkpoint is not None and Path(checkpoint).exists():
        state, history = _load(checkpoint, state)
        pieces.append(history)
    with progress.bar(steps, "training") as bar:
        done = sum(piece.updates for piece in pieces)
        bar.update(done)
        while done < steps and not (pieces and stop_when is not None and stop_when(_joined(pieces))):
            length = min(chunk, steps - done)
            state, (loss, metrics) = run(_drawn(task, state[3]), length, state)
            done += length
            evaluations = {} if watch is None else watch(state)
            pieces.append(_piece(*jax.device_get((loss, metrics, evaluations)), done))
            if checkpoint is not None and done // save_every > (done - length) // save_every:
                _save(checkpoint, first_keys, state, _joined(pieces))
            bar.update(length)
            bar.set_postfix_str(f"loss {np.mean(pieces[-1].loss):.3f}")
    if checkpoint is not None:
        _save(checkpoint, first_keys, state, _joined(pieces))
    return state, _joined(pieces)


def _drawn(task, keys):
    """The task of the next chunk."""
    if not isinstance(task, Mixture):
        return task
    key = jax.random.fold_in(jnp.ravel(keys)[0], 2)  # with 0 or 1 it could be what `split` gives for the batches
    return task.tasks[int(jax.random.choice(key, len(task.tasks), p=jnp.array(task.shares)))]


def _piece(loss, metrics, evaluations, done) -> History:
    for name, values in metrics.items():
        if np.shape(values) != loss.shape:
            raise ValueError(f"metric {name!r} must be a scalar, got shape {np.shape(values)[loss.ndim :]} per update")
    at = [done] if evaluations else []
    evaluations = jax.tree.map(lambda value: np.expand_dims(value, -1), evaluations)
    return History(loss, metrics, np.array(at, dtype=int), evaluations)


def _joined(pieces) -> History:
    parts = ((piece.loss, piece.metrics, piece.evaluated_at, piece.evaluations) for piece in pieces)
    return History(*jax.tree.map(lambda *arrays: np.concatenate(arrays, axis=-1), *parts))


def _numbers(leaf):
    """A leaf of the training state as NumPy keeps it."""
    is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(leaf) if is_key else leaf)


def _save(path, first_keys, state, history):
    """Either the old file stays or the new one is there, never half of one."""
    arrays = {f"state/{number}": _numbers(leaf) for number, leaf in enumerate(jax.tree.leaves(state))}
    arrays |= {"first_keys": _numbers(first_keys), "loss": history.loss, "evaluated_at": history.evaluated_at}
    for kind in ("metrics", "evaluations"):
        arrays |= {f"{kind}/{name}": values for name, values in getattr(history, kind).items()}
    path = Path(path)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".") as folder:  # on the same disk: a move is whole
        part = Path(folder) / path.name
        with part.open("wb") as file:  # given a name, NumPy might add to it
            np.savez(file, **arrays)
        part.replace(path)


def _load(path, state):
    """(training state, History) as saved; `state` is that of a training about to begin."""
    leaves, treedef = jax.tree.flatten(state)
    with np.load(path) as saved:
        arrays = dict(saved)
    found = [arrays[f"state/{number}"] for number in range(sum(name.startswith("state/") for name in arrays))]
    if [(array.shape, array.dtype) for array in found] != [(_numbers(x).shape, _numbers(x).dtype) for x in leaves]:
        raise ValueError(f"{path} is the checkpoint of another model or optimizer")
    if not np.array_equal(arrays["first_keys"], _numbers(state[3])):
        raise ValueError(f"{path} is the checkpoint of a training with another key")
    parts = {
        kind: {name.removeprefix(f"{kind}/"): arrays[name] for name in arrays if name.startswith(f"{kind}/")}
        for kind in ("metrics", "evaluations")
    }
    state = jax.tree.unflatten(treedef, [_restored(*pair) for pair in zip(found, leaves, strict=True)])
    return state, History(arrays["loss"], parts["metrics"], arrays["evaluated_at"], parts["evaluations"])


def _restored(numbers, like):
    if jnp.issubdtype(like.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(numbers, impl=jax.random.key_impl(like))
    return jnp.asarray(numbers)
