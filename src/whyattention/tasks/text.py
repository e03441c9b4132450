"""Text as sequences of characters: encoding, training windows, and the score of a model in bits per character."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

PADDING = 0

LanguageModel = Callable[[Int[Array, " time"]], Float[Array, "time vocabulary"]]


@dataclass(frozen=True)
class Characters:
    """A vocabulary of single characters. Token 0 is padding; the characters of `alphabet` follow from 1."""

    alphabet: str

    @property
    def size(self) -> int:
        return len(self.alphabet) + 1

    def encode(self, text: str) -> Int[np.ndarray, " time"]:
        """Raises ValueError naming the first character that is not in the alphabet."""
        numbers = {character: number for number, character in enumerate(self.alphabet, start=1)}
        try:
            return np.array([numbers[character] for character in text], dtype=np.int32)
        except KeyError as error:
            raise ValueError(f"character {error} is not in the alphabet {self.alphabet!r}") from None

    def decode(self, tokens: Int[Array, " time"]) -> str:
        """The text of `tokens`, padding left out."""
        return "".join(self.alphabet[token - 1] for token in np.asarray(tokens) if token != PADDING)


@dataclass(frozen=True, eq=False)
class NextCharacter:
    """Predict every next character in windows of `length` characters drawn anywhere in `text` `[characters]`.

    Raises ValueError if `text` does not hold one window.
    """

    text: Int[Array, " characters"]
    length: int = 64
    batch_size: int = 32

    def __post_init__(self):
        if self.length < 1 or self.batch_size < 1 or len(self.text) <= self.length:
            raise ValueError(
                f"windows of {self.length} characters and one more, {self.batch_size} at a time, "
                f"cannot be drawn from a text of {len(self.text)} characters"
            )

    def sample(self, key: Array) -> Int[Array, "batch time"]:
        """`length + 1` characters each: all but the last are read, all but the first predicted."""
        starts = jax.random.randint(key, (self.batch_size,), 0, len(self.text) - self.length)
        window = partial(jax.lax.dynamic_slice_in_dim, jnp.asarray(self.text), slice_size=self.length + 1)
        return jax.vmap(window)(starts).astype(jnp.int32)

    def loss(self, model: LanguageModel, batch: Int[Array, "batch time"]):
        """Mean cross-entropy in nats, and the same in bits per character."""
        loss = jnp.mean(jax.vmap(partial(negative_log_likelihood, model))(batch))
        return loss, {"bits_per_character": loss / jnp.log(2)}


def negative_log_likelihood(model: LanguageModel, tokens: Int[Array, " time"]) -> Float[Array, " time-1"]:
    """-ln p(token t | tokens before t) for every token but the first."""
    return optax.softmax_cross_entropy_with_integer_labels(model(tokens[:-1]), tokens[1:])


def bits_per_character(model: LanguageModel, text: Int[Array, " characters"], segments: int = 64) -> Float[Array, ""]:
    """Mean -log2 p(character | those before it) over `text`, read as `segments` consecutive pieces side by side.

    Each piece begins without memory, and its first character is not scored; the tail that does not fill a piece is left
    out. Raises ValueError if a piece would hold fewer than two characters.
    """
    length = len(text) // segments if segments > 0 else 0
    if length < 2:
        raise ValueError(f"a text of {len(text)} characters does not make {segments} pieces of 2 or more")
    pieces = jnp.asarray(text)[: segments * length].reshape(segments, length)
    return jnp.mean(jax.vmap(partial(negative_log_likelihood, model))(pieces)) / jnp.log(2)
