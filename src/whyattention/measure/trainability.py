"""Whether training finds a solution, and how soon: probability of success at a fixed budget."""

from collections.abc import Callable, Sequence
from functools import partial

import jax
import numpy as np
import optax
from flax import nnx
from jaxtyping import Float

from whyattention.language_model import RecurrentLanguageModel
from whyattention.recurrent import Cell, GRUCell, LSTMCell, TanhCell
from whyattention.training import Task, closest_width, fit_seeds, parameter_count
from whyattention.transformer import TransformerLM

JUDGED = 10  # batches, the last before a model is judged

ADAM = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(3e-3))
WIDTHS = range(1, 1024)

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
    """Every `make(width, rngs)` with the width that brings the model's parameters closest to so many.

    Raises ValueError if that would take one of more than the widest of `WIDTHS`.
    """

    def fitted(name, make):
        width = closest_width(lambda width: make(width, nnx.Rngs(0)), parameters, WIDTHS)
        if width == WIDTHS[-1]:
            raise ValueError(f"{name} would have to be wider than {width} for {parameters:,} parameters")
        return partial(make, width)

    return {name: fitted(name, make) for name, make in makers.items()}


def contestants(vocabulary_size: int, features: int) -> dict[str, MakeModel]:
    """Token models with as good as the same number of parameters: one attention head, and one for each of `CELLS`.

    The attention model, one layer with one head and `features` wide, sets the number; the cells, on an embedding of
    half as many dimensions, are as wide as brings them closest.
    """

    def attention(rngs):
        return TransformerLM(vocabulary_size, features, num_heads=1, num_layers=1, rngs=rngs)

    return beside(attention, vocabulary_size, features, CELLS) | {"attention, one head": attention}


def matched_language_models(
    vocabulary_size: int, features: int, *, num_heads: int = 4, num_layers: int = 2
) -> dict[str, MakeModel]:
    """Two models with as good as the same number of parameters: "attention", `features` wide, and "LSTM".

    The LSTM has a forget bias of 1, and is made to fit as the cells of `contestants` are.
    """

    def attention(rngs):
        return TransformerLM(vocabulary_size, features, num_heads=num_heads, num_layers=num_layers, rngs=rngs)

    return {"attention": attention} | beside(attention, vocabulary_size, features, {"LSTM": LSTMCell})


def beside(
    make_model: MakeModel,
    vocabulary_size: int,
    features: int,
    cells: dict[str, Callable[..., Cell]],
    model_of: Callable[..., nnx.Module] = RecurrentLanguageModel,
) -> dict[str, MakeModel]:
    """`model_of(vocabulary_size, cell, rngs=rngs)` for each of `cells`, with the parameters of what `make_model` makes.

    Cells stand on an embedding of `features` // 2 dimensions and are as wide as brings the number closest.
    """

    def recurrent(cell, width, rngs):
        return model_of(vocabulary_size, cell(features // 2, width, rngs=rngs), rngs=rngs)

    parameters = parameter_count(nnx.eval_shape(lambda: make_model(nnx.Rngs(0))))
    return matched({name: partial(recurrent, cell) for name, cell in cells.items()}, parameters)


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
    """The number of updates after which each seed solves `task`, and infinity for those that never do.

    After every `chunk` of updates, and after the last one, it is seen whether the metric "accuracy" of the task's loss,
    averaged over the last `JUDGED` batches, has reached `accuracy`; each batch is new to the model when its accuracy is
    taken. Training ends when all seeds have got there, or after `updates`. Raises ValueError unless `JUDGED` <= `chunk`
    <= `updates`, and what `fit_seeds` raises.
    """
    if not JUDGED <= chunk <= updates:
        raise ValueError(f"expected {JUDGED} <= chunk <= updates, got chunk={chunk} and updates={updates}")

    def solved(history):  # [seeds, chunks]
        ends = np.append(np.arange(chunk, history.updates, chunk), history.updates)
        latest = np.stack([history.metrics["accuracy"][:, end - JUDGED : end].mean(axis=1) for end in ends], axis=1)
        return np.where(latest >= accuracy, ends, np.inf)

    _, history = fit_seeds(
        make_model,
        task,
        seeds=seeds,
        steps=updates,
        optimizer=optimizer,
        key=key,
        chunk=chunk,
        stop_when=lambda history: bool(np.isfinite(solved(history).min(axis=1)).all()),
    )
    return solved(history).min(axis=1)


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
