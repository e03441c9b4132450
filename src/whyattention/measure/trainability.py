"""Whether training finds a solution, and how soon: probability of success at a fixed budget."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import jax
import numpy as np
import optax
from flax import nnx
from jaxtyping import Float

from whyattention.language_model import AttentionLanguageModel, RecurrentLanguageModel
from whyattention.recurrent import Cell, GRUCell, LSTMCell, TanhCell
from whyattention.training import Task, closest_width, fit_seeds, parameter_count

FRESH = 256  # sequences that no update has seen, to judge by

ADAM = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(3e-3))
EVEN_WIDTHS = range(2, 1024, 2)  # the attention model's positions come in pairs

MakeModel = Callable[[nnx.Rngs], nnx.Module]

# The cells that chapter 4 compares, by name, as functions of (input features, width, rngs).
CELLS: dict[str, Callable[..., Cell]] = {
    "LSTM, forget bias 5": partial(LSTMCell, forget_bias=5.0),
    "LSTM, forget bias 1": partial(LSTMCell, forget_bias=1.0),
    "LSTM, forget bias 0": partial(LSTMCell, forget_bias=0.0),
    "GRU": GRUCell,
    "tanh": TanhCell,
}


def matched(makers: dict[str, Callable[..., nnx.Module]], parameters: int) -> dict[str, MakeModel]:
    """Every `make(width, rngs)` with the even width that brings the model's parameters closest to so many."""

    def fitted(make):
        return partial(make, closest_width(lambda width: make(width, nnx.Rngs(0)), parameters, EVEN_WIDTHS))

    return {name: fitted(make) for name, make in makers.items()}


def contestants(vocabulary_size: int, *, features: int, hidden_size: int) -> dict[str, MakeModel]:
    """Token models with as good as the same number of parameters: one for each of `CELLS`, and one attention head.

    An LSTM `hidden_size` wide on an embedding of `features` dimensions sets the number; the other cells, on the same
    embedding, and the attention model, of one layer with one head, are as wide as brings them closest.
    """

    def recurrent(cell, width, rngs):
        return RecurrentLanguageModel(vocabulary_size, cell(features, width, rngs=rngs), rngs=rngs)

    def attention(width, rngs):
        return AttentionLanguageModel(vocabulary_size, width, num_heads=1, num_layers=1, rngs=rngs)

    parameters = parameter_count(nnx.eval_shape(lambda: recurrent(LSTMCell, hidden_size, nnx.Rngs(0))))
    makers = {name: partial(recurrent, cell) for name, cell in CELLS.items()}
    return matched(makers | {"attention, one head": attention}, parameters)


def updates_to_solve(
    make_model: MakeModel,
    task: Task,
    *,
    seeds: int,
    updates: int,
    key: jax.Array,
    optimizer: optax.GradientTransformation = ADAM,
    accuracy: float = 0.95,
    chunk: int = 50,
) -> Float[np.ndarray, " seeds"]:
    """The number of updates after which each seed first solves `task`, and infinity for those that never do.

    A task is solved when the metric "accuracy" of its loss reaches `accuracy` on a fresh batch, which is tried after
    every `chunk` of updates. Training ends when all seeds have got there, or after `updates`. The task must be a
    dataclass with a `batch_size`. Raises what `fit_seeds` raises.
    """
    key, fresh_key = jax.random.split(key)
    fresh = replace(task, batch_size=FRESH).sample(fresh_key)

    def solved(history):
        return history.evaluations["accuracy"] >= accuracy

    _, history = fit_seeds(
        make_model,
        task,
        seeds=seeds,
        steps=updates,
        optimizer=optimizer,
        key=key,
        chunk=chunk,
        evaluate=lambda model: task.loss(model, fresh)[1],
        stop_when=lambda history: bool(solved(history).any(axis=1).all()),
    )
    first = np.where(solved(history), history.evaluated_at, np.inf)
    return first.min(axis=1)


def updates_by_difficulty(
    make_model: MakeModel, tasks: Sequence[Task], *, seeds: int, updates: int, key: jax.Array, **options
) -> Float[np.ndarray, "tasks seeds"]:
    """`updates_to_solve` for tasks of rising difficulty.

    A model none of whose seeds solves a task is not tried on the harder ones: those rows are infinity as well.
    `options` are those of `updates_to_solve`.
    """
    found = np.full((len(tasks), seeds), np.inf)
    for row, task in enumerate(tasks):
        found[row] = updates_to_solve(make_model, task, seeds=seeds, updates=updates, key=key, **options)
        if np.isinf(found[row]).all():
            break
    return found
