"""Copying random symbols: how much of what a model was shown can it still say?"""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

PADDING = 0

LanguageModel = Callable[[Int[Array, " time"]], Float[Array, "time vocabulary"]]


@dataclass(frozen=True)
class Copying:
    """Up to `longest` random symbols are shown, then as many queries; at the i-th query the i-th symbol is wanted.

    A sequence is [symbol x n, query x n, padding], `2 * longest` tokens, with n drawn evenly from 1 ... `longest` for
    each sequence, so that every length that is tested was trained on. Token 0 is padding, 1 ... symbols are the
    symbols, drawn evenly and independently, and the last one is the query. A model of the language-model family answers
    with its logits. All symbols are shown before the first one is asked for, and none is shown again: a recurrent
    model's state between the two must hold all n log2(symbols) bits, and no statistics of the symbols can help.

    Raises ValueError if `longest`, `symbols` or `batch_size` is below 1.
    """

    longest: int
    symbols: int = 8
    batch_size: int = 32

    def __post_init__(self):
        if min(self.longest, self.symbols, self.batch_size) < 1:
            raise ValueError(f"longest, symbols and batch_size must be at least 1, got {self}")

    @property
    def vocabulary_size(self) -> int:
        return self.symbols + 2

    @property
    def query(self) -> int:
        return self.symbols + 1

    @property
    def chance(self) -> float:
        return 1 / self.symbols

    @property
    def bits_per_symbol(self) -> float:
        return float(np.log2(self.symbols))

    def sample(self, key: Array) -> Int[Array, "batch time"]:
        length_key, key = jax.random.split(key)
        return self._sequences(key, jax.random.randint(length_key, (self.batch_size,), 1, self.longest + 1))

    def sample_of_length(self, key: Array, length: int | Int[Array, ""]) -> Int[Array, "batch time"]:
        """A batch in which every sequence shows `length` symbols.

        Raises ValueError if `length` is not from 1 to `longest`, where it is known and not traced.
        """
        if not isinstance(length, jax.core.Tracer) and not 1 <= int(length) <= self.longest:
            raise ValueError(f"length must be from 1 to {self.longest}, got {length}")
        return self._sequences(key, jnp.full(self.batch_size, length))

    def _sequences(self, key, lengths):
        symbols = jax.random.randint(key, (self.batch_size, 2 * self.longest), 1, self.symbols + 1)
        position, length = jnp.arange(2 * self.longest), lengths[:, None]
        return jnp.where(position < length, symbols, jnp.where(position < 2 * length, self.query, PADDING))

    def loss(self, model: LanguageModel, batch: Int[Array, "batch time"]):
        """Cross-entropy in nats per symbol asked for, and the share of those symbols named rightly."""
        wanted, asked = self._wanted(batch)
        logits = jax.vmap(model)(batch)
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, wanted)
        right = jnp.argmax(logits, axis=-1) == wanted
        return _mean(losses, asked), {"accuracy": _mean(right, asked)}

    def bits_recovered(self, model: LanguageModel, batch: Int[Array, "batch time"]) -> Float[Array, " batch"]:
        """How many of the bits shown the model gives back: n log2(symbols) minus its cross-entropy at the n queries.

        A cross-entropy is never below the conditional entropy, so the mean over sequences is a lower bound on the
        mutual information between the symbols and what the model kept of them: it can exceed neither n log2(symbols)
        nor what fits into the state. Guessing gives 0, and a wrong answer given with confidence less than that.
        """
        wanted, asked = self._wanted(batch)
        losses = optax.softmax_cross_entropy_with_integer_labels(jax.vmap(model)(batch), wanted)
        return jnp.sum(jnp.where(asked, self.bits_per_symbol - losses / jnp.log(2), 0), axis=1)

    def _wanted(self, batch):
        """(the symbol to name at each position, where one is asked for)."""
        asked = batch == self.query
        length = jnp.sum(asked, axis=1, keepdims=True)
        return jnp.take_along_axis(batch, (jnp.arange(batch.shape[1]) - length) % batch.shape[1], axis=1), asked


def _mean(values, where):
    return jnp.sum(jnp.where(where, values, 0)) / jnp.sum(where)
