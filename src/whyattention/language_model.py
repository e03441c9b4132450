"""Language models: `model(tokens [time]) -> logits [time, vocabulary]`, and the n-gram counts they have to beat."""

import jax
import numpy as np
from flax import nnx
from jaxtyping import Array, Float, Int

from whyattention.recurrent import Cell, unroll


class RecurrentLanguageModel(nnx.Module):
    """Embedding, one recurrent layer, linear read-out: the logits at t predict token t + 1 from tokens 0 ... t.

    The embedding has `cell.in_features` dimensions, so the cell given is the whole difference between two models.
    """

    def __init__(self, vocabulary_size: int, cell: Cell, *, rngs: nnx.Rngs):
        self.embedding = nnx.Embed(vocabulary_size, cell.in_features, rngs=rngs)
        self.cell = cell
        self.readout = nnx.Linear(cell.hidden_size, vocabulary_size, rngs=rngs)

    def __call__(self, tokens: Int[Array, " time"]) -> Float[Array, "time vocabulary"]:
        _, hidden = unroll(self.cell, self.embedding(tokens))
        return self.readout(hidden)

    def generate(
        self, prompt: Int[Array, " prompt"], length: int, *, key: Array, temperature: float = 1.0
    ) -> Int[Array, " length"]:
        """`length` tokens drawn one after another after reading `prompt`, from softmax(logits / temperature).

        Raises ValueError if the prompt is empty or the temperature is not positive.
        """
        if not temperature > 0:
            raise ValueError(f"temperature must be positive, got {temperature}")
        state, hidden = unroll(self.cell, self.embedding(prompt))

        def step(carry, key):
            state, logits = carry
            token = jax.random.categorical(key, logits / temperature)
            state, hidden = self.cell(state, self.embedding(token))
            return (state, self.readout(hidden)), token

        _, tokens = jax.lax.scan(step, (state, self.readout(hidden[-1])), jax.random.split(key, length))
        return tokens


def ngram_bits_per_character(
    train: Int[np.ndarray, " train"], test: Int[np.ndarray, " test"], order: int, vocabulary_size: int
) -> float:
    """Bits per character on `test` of an interpolated n-gram model counted on `train`; order 1 is a unigram.

    Witten-Bell smoothing: p_n(c | context) = (count(context c) + types(context) p_{n-1}(c)) / (count(context) +
    types(context)), with types(context) the number of kinds of character seen after the context, down to the uniform
    distribution. All but the first `order - 1` characters are scored. Raises ValueError if `order` is below 1 or a
    text is shorter than that.
    """
    if order < 1 or min(len(train), len(test)) < order:
        raise ValueError(f"order {order} needs 1 or more, and texts of that length; got {len(train)} and {len(test)}")
    for text in (train, test):
        if np.min(text) < 0 or np.max(text) >= vocabulary_size:
            raise ValueError(f"tokens must be from 0 to {vocabulary_size - 1}, got {np.min(text)} to {np.max(text)}")
    scored = len(test) - order + 1
    probability = np.full(scored, 1.0 / vocabulary_size)
    for n in range(1, order + 1):
        counts = np.bincount(_rolling(train, n, vocabulary_size), minlength=vocabulary_size**n)
        counts = counts.reshape(-1, vocabulary_size)
        codes = _rolling(test, n, vocabulary_size)[-scored:]
        context, character = np.divmod(codes, vocabulary_size)
        types = np.count_nonzero(counts, axis=1)[context]
        total = counts.sum(axis=1)[context]
        # A context never seen in training says nothing: the shorter model's answer stands.
        seen = total > 0
        mixed = (counts[context, character] + types * probability) / np.where(seen, total + types, 1)
        probability = np.where(seen, mixed, probability)
    return float(-np.mean(np.log2(probability)))


def _rolling(text: np.ndarray, n: int, vocabulary_size: int) -> np.ndarray:
    """Every run of n characters as one number in base `vocabulary_size`."""
    code = np.zeros(len(text) - n + 1, dtype=np.int64)
    for offset in range(n):
        code = code * vocabulary_size + text[offset : len(text) - n + 1 + offset]
    return code
