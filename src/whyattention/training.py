"""Training of any model on any task, one seed or many at once.

A task has `sample(key) -> batch`, pure JAX, and `loss(model, batch) -> (loss, metrics)`, metrics being a dict of
scalars. Whole chunks of updates, the drawing of their batches included, are one jitted `jax.lax.scan`.
"""

import bisect
import operator
import tempfile
import zipfile
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
    must have the same metrics. Short chunks mix well. Raises ValueError unless there is a positive share for each, or
    if one of them is a mixture itself.
    """

    tasks: tuple[Task, ...]
    shares: tuple[float, ...]

    def __post_init__(self):
        if not self.tasks or len(self.tasks) != len(self.shares) or not all(share > 0 for share in self.shares):
            raise ValueError(f"a positive share is needed for each task, got {self.shares} for {len(self.tasks)} tasks")
        if any(isinstance(task, Mixture) for task in self.tasks):
            raise ValueError("a mixture of mixtures cannot be drawn: give the tasks of both, and a share for each")


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
    the interruption. A file of a finished training gives its result at once; to train anew, delete it. Its key is
    compared with this one's, and names, shapes and types of all parameters and of the optimizer's state are. What those
    do not show is for the caller to keep the same: the task, and numbers in the optimizer, like a learning rate.

    Raises ValueError if `steps`, `chunk` or `save_every` is not a positive whole number, if a metric is not a scalar,
    if the checkpoint is of a training with another key, model or optimizer, with other evaluations or of more than
    `steps` updates, or if it is no whole checkpoint; FileNotFoundError if the folder it belongs in is not there.
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
    graphdef, params, rest = nnx.split(untrained_seeds(make_model, seeds=seeds, key=key), nnx.Param, ...)
    _, data_key = jax.random.split(key)
    run = partial(_run_chunk_of_seeds, graphdef, optimizer)
    watch = None if evaluate is None else partial(_evaluate_seeds, graphdef, evaluate)
    state = (params, rest, jax.vmap(optimizer.init)(params), jax.random.split(data_key, seeds))
    state, history = _train(run, task, state, steps, chunk, watch, stop_when, checkpoint, save_every)
    return nnx.merge(graphdef, state[0], state[1]), history


def untrained_seeds(make_model: Callable[[nnx.Rngs], nnx.Module], *, seeds: int, key: jax.Array) -> nnx.Module:
    """The models that `fit_seeds` begins with, given the same arguments, in the form in which it gives them back."""
    model_key, _ = jax.random.split(key)

    # Not under jit: step by step, a second training of such models finds every small program compiled already.
    @jax.vmap
    def initialise(key):
        return nnx.state(make_model(nnx.Rngs(key)))

    graphdef = nnx.graphdef(nnx.eval_shape(lambda: make_model(nnx.Rngs(0))))
    return nnx.merge(graphdef, initialise(jax.random.split(model_key, _at_least_one("seeds", seeds))))


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
    steps, chunk = _at_least_one("steps", steps), _at_least_one("chunk", chunk)
    save_every = _at_least_one("save_every", save_every)
    pieces = []
    first_keys = state[3]
    if checkpoint is not None and not Path(checkpoint).parent.is_dir():  # better now than after the training
        raise FileNotFoundError(f"there is no folder {Path(checkpoint).parent} for the checkpoint {checkpoint}")
    if checkpoint is not None and Path(checkpoint).exists():
        state, history = _load(checkpoint, state)
        wanted = {} if watch is None else jax.eval_shape(watch, state)
        if sorted(history.evaluations) != sorted(wanted):
            raise ValueError(
                f"{checkpoint} has the evaluations {sorted(history.evaluations)}, and `evaluate` now {sorted(wanted)}"
            )
        if history.updates > steps:
            raise ValueError(f"{checkpoint} has {history.updates} updates, which is more than steps={steps}")
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


def _at_least_one(name, number):
    """`number` as Python's int, whichever library's integer it is."""
    try:
        whole = 0 if isinstance(number, bool) else operator.index(number)
    except TypeError:
        whole = 0
    if whole < 1:
        raise ValueError(f"{name} must be a whole number from 1, got {number!r}")
    return whole


def _drawn(task, keys):
    """The task of the next chunk."""
    if not isinstance(task, Mixture):
        return task
    keys = keys if _is_key(keys) else jax.random.wrap_key_data(keys)  # of the old style, numbers
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


def _is_key(leaf):
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _numbers(leaf):
    """A leaf of the training state as NumPy keeps it."""
    return np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)


def _by_name(state):
    """The leaves of the training state as NumPy keeps them, each under its place in the state."""
    leaves = jax.tree.leaves_with_path(state)
    return {f"state{jax.tree_util.keystr(path)}": _numbers(leaf) for path, leaf in leaves}


def _save(path, first_keys, state, history):
    """Either the old file stays or the new one is there, never half of one."""
    arrays = _by_name(state)
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
    arrays, begun = _read(path), _by_name(state)
    saved = {name: array for name, array in arrays.items() if name.startswith("state")}
    if differing := _kinds(saved) ^ _kinds(begun):
        raise ValueError(f"{path} is the checkpoint of another model or optimizer: see {min(differing)[0]}")
    if not np.array_equal(arrays["first_keys"], _numbers(state[3])):
        raise ValueError(f"{path} is the checkpoint of a training with another key")
    parts = {
        kind: {name.removeprefix(f"{kind}/"): arrays[name] for name in arrays if name.startswith(f"{kind}/")}
        for kind in ("metrics", "evaluations")
    }
    restored = [_restored(saved[name], leaf) for name, leaf in zip(begun, leaves, strict=True)]
    state = jax.tree.unflatten(treedef, restored)
    return state, History(arrays["loss"], parts["metrics"], arrays["evaluated_at"], parts["evaluations"])


def _read(path):
    """All arrays of a checkpoint by name. Raises ValueError for a file that is none, or not whole."""
    if not zipfile.is_zipfile(path):
        raise ValueError(f"{path} is no whole .npz file: it was cut short, or is something else")
    try:
        with np.load(path) as file:
            arrays = dict(file)
    except (ValueError, EOFError, RuntimeError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is a broken .npz file: {error}") from error
    if missing := {"first_keys", "loss", "evaluated_at"} - arrays.keys():
        raise ValueError(f"{path} is no checkpoint: it has no {min(missing)}")
    return arrays


def _kinds(arrays):
    return {(name, array.shape, array.dtype.str) for name, array in arrays.items()}


def _restored(numbers, like):
    if _is_key(like):
        return jax.random.wrap_key_data(numbers, impl=jax.random.key_impl(like))
    return jnp.asarray(numbers)
