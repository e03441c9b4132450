"""Delayed recall: keep one symbol through distractors, and name it when asked."""

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
