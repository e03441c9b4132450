"""Recall: keep one symbol through distractors and name it when asked; or many pairs, and name the partner of one."""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

PADDING = 0

LanguageModel = Callable[[Int[Array, " time"]], Float[Array, "time vocabulary"]]


@dataclass(frozen=True)
class DelayedRecall:
    """The first token is one of `symbols`, the token `lag` steps later asks which; distractors lie between.

    A sequence is [symbol, distractor, ..., distractor, query], `lag + 1` tokens long. Token 0 is padding, 1 ... symbols
    are the symbols, the next `distractors` tokens are the distractors, drawn evenly, and the last one is the query. A
    model of the language-model family (`model(tokens) -> logits`) answers with its logits at the query. Guessing is
    right once in `symbols` times. In the spirit of the latching problem of Bengio et al. (1994).

    Raises ValueError if `lag`, `symbols`, `distractors` or `batch_size` is below 1.
    """

    lag: int
    symbols: int = 8
    distractors: int = 8
    batch_size: int = 32

    def __post_init__(self):
        if min(self.lag, self.symbols, self.distractors, self.batch_size) < 1:
            raise ValueError(f"lag, symbols, distractors and batch_size must be at least 1, got {self}")

    @property
    def vocabulary_size(self) -> int:
        return self.symbols + self.distractors + 2

    @property
    def query(self) -> int:
        return self.symbols + self.distractors + 1

    @property
    def chance(self) -> float:
        return 1 / self.symbols

    def sample(self, key: Array) -> Int[Array, "batch time"]:
        first = jnp.arange(self.lag) == 0
        lowest = jnp.where(first, 1, self.symbols + 1)
        end = jnp.where(first, self.symbols + 1, self.query)
        tokens = jax.random.randint(key, (self.batch_size, self.lag), lowest, end)
        return jnp.pad(tokens, ((0, 0), (0, 1)), constant_values=self.query)

    def loss(self, model: LanguageModel, batch: Int[Array, "batch time"]):
        """Mean cross-entropy of the symbol at the query in nats, and the share of the batch answered rightly."""
        logits = jax.vmap(model)(batch)[:, self.lag]
        loss = optax.softmax_cross_entropy_with_integer_labels(logits, batch[:, 0]).mean()
        return loss, {"accuracy": jnp.mean(jnp.argmax(logits, axis=-1) == batch[:, 0])}


@dataclass(frozen=True)
class AssociativeRecall:
    """`pairs` of a key and its value, then `queries` of those keys: which value stood after each?

    A sequence is [key, value, key, value, ..., key, key, ...], 2 `pairs` + `queries` tokens long. Token 0 is padding,
    1 ... `symbols` are the keys and the next `symbols` tokens the values. In one sequence all keys differ, and so do
    all values and all queries; each sequence is drawn anew, so that nothing can be learnt by heart. A model of the
    language-model family (`model(tokens) -> logits`) answers with its logits at each queried key. Whoever knows the
    values that occurred, and not which belongs to which key, is right once in `pairs` times.

    With one query it is the task of Ba et al. (2016), with several the one that Arora et al. (2024) call
    multi-query associative recall (MQAR), here with all pairs before all queries.

    Raises ValueError if a size is below 1, or unless `queries` <= `pairs` <= `symbols`.
    """

    pairs: int
    symbols: int
    queries: int = 1
    batch_size: int = 32

    def __post_init__(self):
        if min(self.pairs, self.symbols, self.queries, self.batch_size) < 1:
            raise ValueError(f"pairs, symbols, queries and batch_size must be at least 1, got {self}")
        if not self.queries <= self.pairs <= self.symbols:
            raise ValueError(f"keys differ, so queries <= pairs <= symbols is needed, got {self}")

    @property
    def vocabulary_size(self) -> int:
        return 2 * self.symbols + 1

    @property
    def chance(self) -> float:
        return 1 / self.pairs

    def sample(self, key: Array) -> tuple[Int[Array, "batch time"], Int[Array, "batch queries"]]:
        """(sequences, the value that is right at each query)."""

        # One draw and one sort for all three orders: the compiler takes half a second for each draw of its own.
        draws = jax.random.uniform(key, (self.batch_size, 3, self.symbols))
        orders = jnp.argsort(draws.at[:, 2, self.pairs :].set(1), axis=-1)  # no draw is 1, so of the third, pairs first
        keys, values = 1 + orders[:, 0, : self.pairs], 1 + self.symbols + orders[:, 1, : self.pairs]
        asked = orders[:, 2, : self.queries]
        pairs = jnp.stack([keys, values], axis=2).reshape(self.batch_size, -1)
        queries, answers = (jnp.take_along_axis(tokens, asked, axis=1) for tokens in (keys, values))
        return jnp.concatenate([pairs, queries], axis=1), answers

    def loss(self, model: LanguageModel, batch: tuple[Int[Array, "batch time"], Int[Array, "batch queries"]]):
        """Mean cross-entropy of the values at the queries in nats, and the share of queries answered rightly."""
        tokens, answers = batch
        asked = 2 * self.pairs
        logits = jax.vmap(model)(tokens)[:, asked : asked + self.queries]
        loss = optax.softmax_cross_entropy_with_integer_labels(logits, answers).mean()
        return loss, {"accuracy": jnp.mean(jnp.argmax(logits, axis=-1) == answers)}
