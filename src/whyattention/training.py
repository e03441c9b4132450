"""Training of any model on any task, one seed or many at once.

A task has `sample(key) -> batch`, pure JAX, and `loss(model, batch) -> (loss, metrics)`, metrics being a dict of
scalars. Whole chunks of updates, the drawing of their batches included, are one jitted `jax.lax.scan`.
"""

import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import jax
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
    task: Task,
    *,
    steps: int,
    optimizer: optax.GradientTransformation,
    key: jax.Array,
    chunk: int = 100,
    evaluate: Evaluate | None = None,
    stop_when: Callable[[History], bool] | None = None,
) -> tuple[nnx.Module, History]:
    """Trains a copy of `model` for `steps` updates: (trained model, History).

    `key` decides every batch. After each `chunk` of updates `evaluate(model)`, jitted, is recorded, and training ends
    early once `stop_when(history)` is true. Only parameters change: a model that counts or draws while it runs
    (`nnx.BatchNorm`, `nnx.Dropout`) is refused by Flax. Raises ValueError if `steps` or `chunk` is not a positive
    whole number, or if a metric is not a scalar.
    """
    graphdef, params, rest = nnx.split(model, nnx.Param, ...)
    run = partial(_run_chunk, graphdef, task, optimizer)
    watch = partial(_evaluate, graphdef, evaluate)
    state = (params, rest, optimizer.init(params), key)
    state, history = _train(run, watch, state, steps, chunk, evaluate, stop_when)
    return nnx.merge(graphdef, state[0], state[1]), history


def fit_seeds(
    make_model: Callable[[nnx.Rngs], nnx.Module],
    task: Task,
    *,
    seeds: int,
    steps: int,
    optimizer: optax.GradientTransformation,
    key: jax.Array,
    chunk: int = 100,
    evaluate: Evaluate | None = None,
    stop_when: Callable[[History], bool] | None = None,
) -> tuple[nnx.Module, History]:
    """`fit` for `seeds` models at once under `jax.vmap`, each with its own parameters and its own batches.

    Gives one model whose parameters have `seeds` as an extra first axis (see `over_seeds` and `one_seed`), and a
    History with the same first axis. The other arguments, and the errors, are those of `fit`.
    """
    if seeds < 1:
        raise ValueError(f"seeds must be at least 1, got {seeds}")
    model_key, data_key = jax.random.split(key)

    @jax.jit  # one program instead of dozens, one for each kind of array that a model begins with
    @jax.vmap
    def initialise(key):
        _, params, rest = nnx.split(make_model(nnx.Rngs(key)), nnx.Param, ...)
        return params, rest, optimizer.init(params)

    graphdef = nnx.graphdef(nnx.eval_shape(lambda: make_model(nnx.Rngs(0))))
    params, rest, opt_state = initialise(jax.random.split(model_key, seeds))
    run = partial(_run_chunk_of_seeds, graphdef, task, optimizer)
    watch = partial(_evaluate_seeds, graphdef, evaluate)
    state = (params, rest, opt_state, jax.random.split(data_key, seeds))
    state, history = _train(run, watch, state, steps, chunk, evaluate, stop_when)
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


def _updates(graphdef, task, optimizer, length, state):
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
def _run_chunk(graphdef, task, optimizer, length, state):
    return _updates(graphdef, task, optimizer, length, state)


@partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _run_chunk_of_seeds(graphdef, task, optimizer, length, state):
    return jax.vmap(partial(_updates, graphdef, task, optimizer, length))(state)


@partial(jax.jit, static_argnums=(0, 1))
def _evaluate(graphdef, evaluate, state):
    return evaluate(nnx.merge(graphdef, state[0], state[1]))


@partial(jax.jit, static_argnums=(0, 1))
def _evaluate_seeds(graphdef, evaluate, state):
    return jax.vmap(lambda params, rest: evaluate(nnx.merge(graphdef, params, rest)))(state[0], state[1])


def _train(run, watch, state, steps, chunk, evaluate, stop_when):
    if not all(isinstance(number, int) and number >= 1 for number in (steps, chunk)):
        raise ValueError(f"steps and chunk must be whole numbers from 1, got steps={steps} and chunk={chunk}")
    curves, evaluations, evaluated_at = [], [], []
    done = 0
    with progress.bar(steps, "training") as bar:
        while done < steps:
            length = min(chunk, steps - done)
            state, curve = run(length, state)
            done += length
            curves.append(jax.device_get(curve))
            _require_scalars(*curves[-1])
            if evaluate is not None:
                evaluations.append(jax.device_get(watch(state)))
                evaluated_at.append(done)
            bar.update(length)
            bar.set_postfix_str(f"loss {np.mean(curves[-1][0]):.3f}")
            if stop_when is not None and stop_when(_history(curves, evaluations, evaluated_at)):
                break
    return state, _history(curves, evaluations, evaluated_at)


def _require_scalars(loss, metrics):
    for name, values in metrics.items():
        if np.shape(values) != loss.shape:
            raise ValueError(f"metric {name!r} must be a scalar, got shape {np.shape(values)[loss.ndim :]} per update")


def _history(curves, evaluations, evaluated_at) -> History:
    loss, metrics = jax.tree.map(lambda *parts: np.concatenate(parts, axis=-1), *curves)
    stacked = jax.tree.map(lambda *parts: np.stack(parts, axis=-1), *evaluations) if evaluations else {}
    return History(loss, metrics, np.array(evaluated_at, dtype=int), stacked)
