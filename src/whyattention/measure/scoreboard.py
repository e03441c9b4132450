"""Every language model of the book on equal terms: what chapter 12 counts, and what `record.scoreboard` trains."""

import math
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jaxtyping import Array, Float, Int

from whyattention.language_model import RecurrentLanguageModel
from whyattention.measure.cost import WorkSpan, work_and_span
from whyattention.measure.trainability import ADAM, JUDGED, MakeModel, beside
from whyattention.parallel import DiagonalLinearRecurrence, LinearCell, MinGRU, parallel_unroll
from whyattention.recurrent import Cell, GRUCell, LSTMCell, TanhCell
from whyattention.tasks.text import NextCharacter, bits_per_character
from whyattention.training import Task, fit_seeds, over_seeds
from whyattention.transformer import TransformerLM

# The cells of the book by name, as functions of (input features, width, rngs).
CELLS: dict[str, Callable[..., Cell]] = {
    "tanh": TanhCell,
    "GRU": GRUCell,
    "LSTM, bias 1": partial(LSTMCell, forget_bias=1.0),
    "LSTM, bias 3": partial(LSTMCell, forget_bias=3.0),
    "minGRU": MinGRU,
    "diagonal": DiagonalLinearRecurrence,
}


class ParallelLanguageModel(RecurrentLanguageModel):
    """A `RecurrentLanguageModel` of a `LinearCell`: the same logits, by an associative scan over time."""

    def __call__(self, tokens: Int[Array, " time"]) -> Float[Array, "time vocabulary"]:
        _, hidden = parallel_unroll(self.cell, self.embedding(tokens))
        return self.readout(hidden)


def contestants(vocabulary_size: int, features: int) -> dict[str, MakeModel]:
    """Language models with as good as the same number of parameters: one for each of `CELLS`, and a Transformer.

    The Transformer, two layers with two heads and rotary positions, `features` wide, sets the number; the cells, one
    layer on an embedding of half as many dimensions, are as wide as brings them closest.
    """

    def transformer(rngs):
        options = {"num_heads": 2, "num_layers": 2, "positions": "rotary"}
        return TransformerLM(vocabulary_size, features, **options, rngs=rngs)

    def recurrent(vocabulary_size, cell, rngs):
        model = ParallelLanguageModel if isinstance(cell, LinearCell) else RecurrentLanguageModel
        return model(vocabulary_size, cell, rngs=rngs)

    return beside(transformer, vocabulary_size, features, CELLS, recurrent) | {"Transformer": transformer}


# --- Counted ---------------------------------------------------------------------------------------


def reading_cost(model: nnx.Module, tokens: int) -> WorkSpan:
    """Work and span of reading a text of so many tokens, forward."""
    graph, weights = nnx.split(model)
    text = jax.ShapeDtypeStruct((tokens,), jnp.int32)
    return work_and_span(lambda weights, text: nnx.merge(graph, weights)(text), weights, text)


def training_cost(model: nnx.Module, tokens: int) -> WorkSpan:
    """Work and span of the gradient of the loss on one text, of which so many tokens are read."""
    graph, weights = nnx.split(model)
    task = NextCharacter(np.zeros(tokens + 1, np.int32), length=tokens, batch_size=1)

    def loss(weights, batch):
        return task.loss(nnx.merge(graph, weights), batch)[0]

    return work_and_span(jax.grad(loss), weights, jax.ShapeDtypeStruct((1, tokens + 1), jnp.int32))


def decode_state(model: nnx.Module, tokens: int):
    """What `model` has to keep of so many tokens to go on: the state of its cell, or keys and values."""
    if isinstance(model, RecurrentLanguageModel):
        return model.cell.initial_state()
    return model.start(tokens).layers


def decode_bytes(model: nnx.Module, tokens: int) -> int:
    """The bytes of `decode_state`."""
    leaves = jax.tree.leaves(jax.eval_shape(lambda: decode_state(model, tokens)))
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in leaves)


def decode_cost(model: nnx.Module, tokens: int) -> WorkSpan:
    """Work and span of one more token when so many are there, that one included."""
    graph, weights = nnx.split(model)

    def step(weights, token):
        model = nnx.merge(graph, weights)
        if isinstance(model, RecurrentLanguageModel):
            return model.readout(model.cell(model.cell.initial_state(), model.embedding(token))[1])
        return model.step(model.start(tokens), token)[1]

    return work_and_span(step, weights, jax.ShapeDtypeStruct((), jnp.int32))


# --- Trained ---------------------------------------------------------------------------------------


def accuracy_after(
    make_model: MakeModel, task: Task, *, seeds: int, updates: int, key: Array, chunk: int = 100
) -> Float[np.ndarray, " seeds"]:
    """The share of fresh questions answered rightly, over the last `JUDGED` batches, after so many updates.

    It ends early when no seed makes a mistake in those of a chunk.
    """

    def latest(history):
        return history.metrics["accuracy"][:, -JUDGED:].mean(axis=1)

    _, history = fit_seeds(
        make_model,
        task,
        seeds=seeds,
        steps=updates,
        optimizer=ADAM,
        key=key,
        chunk=chunk,
        stop_when=lambda history: bool(latest(history).min() == 1),
    )
    return latest(history)


def bits_after(
    make_model: MakeModel,
    task: NextCharacter,
    held_out: Int[Array, " characters"],
    *,
    seeds: int,
    updates: int,
    key: Array,
    learning_rate: float = 5e-3,
) -> Float[np.ndarray, " seeds"]:
    """Bits per character on `held_out` after so many updates, the learning rate falling to 0 as a cosine.

    The text is read in pieces as long as those in training, and each begins without memory.
    """
    adam = optax.adam(optax.cosine_decay_schedule(learning_rate, updates))
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), adam)
    models, _ = fit_seeds(make_model, task, seeds=seeds, steps=updates, optimizer=optimizer, key=key)
    pieces = len(held_out) // (task.length + 1)
    return np.asarray(over_seeds(lambda model: bits_per_character(model, held_out, segments=pieces), models))


def ranks(values: Float[np.ndarray, " models"], better: int) -> Float[np.ndarray, " models"]:
    """Each value's place among the different ones, from 0 for the worst to 1 for the best; equals share a place.

    `better` is 1 where more is better, -1 where less is, and 0 where neither is, which puts all at 0.
    """
    levels, places = np.unique(better * np.asarray(values), return_inverse=True)
    return places / max(len(levels) - 1, 1)
