"""Translation: sentences in, sentences out, one token predicted at a time from the right ones before it."""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from whyattention.tasks.vocabulary import BEGIN, END, PADDING, RESERVED

Translator = Callable[[Int[Array, " source"], Int[Array, " target"]], Float[Array, "target vocabulary"]]
Batch = tuple[Int[Array, "batch source"], Int[Array, "batch target"]]


def shift_right(target: Int[Array, "*batch target"]) -> Int[Array, "*batch target"]:
    """What a decoder reads while it is to say `target`: BEGIN, then all but the last token.

    [7, 8, END, 0] becomes [BEGIN, 7, 8, END]: at every position the last token that is already known. The decoder is
    thus told the right beginning whatever it would have said itself, which is teacher forcing.
    """
    begin = jnp.full((*target.shape[:-1], 1), BEGIN, dtype=target.dtype)
    return jnp.concatenate([begin, target[..., :-1]], axis=-1)


def teacher_forced_loss(model: Translator, batch: Batch, label_smoothing: float = 0.0):
    """Cross-entropy in nats per token of the targets, END included and padding not, and the share named rightly.

    The sum over the whole batch is divided by the number of its real tokens: a long sentence counts for more than a
    short one, and how far either is padded counts for nothing. With `label_smoothing` that share of what is asked for
    is spread evenly over the vocabulary (Szegedy et al. 2016; Vaswani et al. 2017, section 5.4).
    """
    source, target = batch
    logits = jax.vmap(model)(source, shift_right(target))
    real = target != PADDING
    count = jnp.maximum(jnp.sum(real), 1)
    if label_smoothing:
        wanted = optax.smooth_labels(jax.nn.one_hot(target, logits.shape[-1]), label_smoothing)
        losses = optax.softmax_cross_entropy(logits, wanted)
    else:
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, target)
    right = jnp.argmax(logits, axis=-1) == target
    return jnp.sum(losses, where=real) / count, {"token_accuracy": jnp.sum(right, where=real) / count}


@dataclass(frozen=True, eq=False)
class Translation:
    """Pairs drawn evenly from `source` `[pairs, S]` and `target` `[pairs, T]`, made by `vocabulary.pad`.

    A model is a translator, `model(source [S], target_in [T]) -> logits [T, target vocabulary]`. Raises ValueError if
    the two sides are not as many, or none, if `batch_size` is below 1, or if `label_smoothing` (see
    `teacher_forced_loss`) is not from 0 to below 1.
    """

    source: Int[Array, "pairs source"]
    target: Int[Array, "pairs target"]
    batch_size: int = 64
    label_smoothing: float = 0.0

    def __post_init__(self):
        if len(self.source) != len(self.target) or len(self.source) == 0 or self.batch_size < 1:
            raise ValueError(
                f"batches of at least 1 are drawn from as many sources as targets, got batch_size={self.batch_size}, "
                f"{len(self.source)} sources and {len(self.target)} targets"
            )
        if not 0 <= self.label_smoothing < 1:
            raise ValueError(f"label_smoothing must be from 0 to below 1, got {self.label_smoothing}")

    def sample(self, key: Array) -> Batch:
        chosen = jax.random.randint(key, (self.batch_size,), 0, len(self.source))
        # Either side may be stored in smaller integers than those a model is given.
        return tuple(jnp.asarray(side)[chosen].astype(jnp.int32) for side in (self.source, self.target))

    def loss(self, model: Translator, batch: Batch):
        """See `teacher_forced_loss`."""
        return teacher_forced_loss(model, batch, self.label_smoothing)


@dataclass(frozen=True)
class RandomTokens:
    """Say again what was said: random symbols whose "translation" is the same symbols, for a translator's capacity.

    A sentence has `shortest` to `longest` symbols, every length as often, each symbol one of `symbols` drawn evenly
    and independently, then END and padding: `longest + 1` tokens, of which the symbols are those from 4 on. Nothing
    about a symbol follows from the others, so that what a model says rightly beyond `chance` it has kept.

    Raises ValueError unless 1 <= `shortest` <= `longest` and `symbols` and `batch_size` are at least 1.
    """

    symbols: int
    longest: int
    batch_size: int = 64
    shortest: int = 1

    def __post_init__(self):
        if not 1 <= self.shortest <= self.longest or min(self.symbols, self.batch_size) < 1:
            raise ValueError(f"1 <= shortest <= longest, symbols >= 1 and batch_size >= 1 are needed, got {self}")

    @property
    def vocabulary_size(self) -> int:
        return len(RESERVED) + self.symbols

    @property
    def chance(self) -> float:
        """The share of symbols, END aside, that guessing gets right."""
        return 1 / self.symbols

    @property
    def bits_per_symbol(self) -> float:
        return float(np.log2(self.symbols))

    def sample(self, key: Array) -> Batch:
        length_key, key = jax.random.split(key)
        return self._batch(key, jax.random.randint(length_key, (self.batch_size,), self.shortest, self.longest + 1))

    def sample_of_length(self, key: Array, length: int | Int[Array, ""]) -> Batch:
        """A batch in which every sentence has `length` symbols, padded as all are.

        Raises ValueError if `length` is not from 1 to `longest`, where it is known and not traced.
        """
        if not isinstance(length, jax.core.Tracer) and not 1 <= int(length) <= self.longest:
            raise ValueError(f"length must be from 1 to {self.longest}, got {length}")
        return self._batch(key, jnp.full(self.batch_size, length))

    def _batch(self, key, lengths):
        shape = (self.batch_size, self.longest + 1)
        symbols = jax.random.randint(key, shape, len(RESERVED), self.vocabulary_size)
        position, length = jnp.arange(self.longest + 1), lengths[:, None]
        tokens = jnp.where(position < length, symbols, jnp.where(position == length, END, PADDING))
        return tokens, tokens

    def loss(self, model: Translator, batch: Batch):
        """See `teacher_forced_loss`."""
        return teacher_forced_loss(model, batch)
