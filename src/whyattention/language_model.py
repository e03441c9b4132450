"""Language models: `model(tokens [time]) -> logits [time, vocabulary]`, and the n-gram counts they have to beat."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Bool, Float, Int

from whyattention.attention import MultiHeadAttention, causal_mask, sinusoidal_positions
from whyattention.recurrent import Cell, LSTMCell, unroll
from whyattention.training import closest_width, parameter_count

POSITIONS = ("sinusoidal", "rotary", "none")


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


class AttentionBlock(nnx.Module):
    """x + attention(norm(x)), then x + feed_forward(norm(x)): `[time, features]` to the same shape.

    Vaswani et al. (2017, section 3.1), but with the norm before each part (Xiong et al. 2020, figure 1b), which
    trains without a warm-up. The feed-forward part is four times as wide as `features`. `rotary` is that of
    `MultiHeadAttention`.
    """

    def __init__(self, features: int, num_heads: int, *, rngs: nnx.Rngs, rotary: bool = False):
        self.attention_norm = nnx.LayerNorm(features, rngs=rngs)
        self.attention = MultiHeadAttention(features, num_heads, rngs=rngs, rotary=rotary)
        self.feed_forward_norm = nnx.LayerNorm(features, rngs=rngs)
        self.wide = nnx.Linear(features, 4 * features, rngs=rngs)
        self.narrow = nnx.Linear(4 * features, features, rngs=rngs)

    def __call__(
        self, x: Float[Array, "time features"], mask: Bool[Array, "time time"]
    ) -> Float[Array, "time features"]:
        x = x + self.attention(self.attention_norm(x), mask)
        return x + self.narrow(jax.nn.gelu(self.wide(self.feed_forward_norm(x))))


class AttentionLanguageModel(nnx.Module):
    """Embedding and position, causal attention blocks, linear read-out: the logits at t see tokens 0 ... t.

    It carries no state from one text to the next: what it was never trained to look back over, it cannot use.
    `positions` are one of `POSITIONS`, none of which has parameters that depend on the length of a text: "sinusoidal"
    ones are added to the embedding, "rotary" ones turn queries and keys, and with "none" nothing but the causal mask
    tells one order of the tokens from another. Raises ValueError for other positions, if `features` is odd or not a
    multiple of `num_heads`, or if there is no layer.
    """

    def __init__(
        self,
        vocabulary_size: int,
        features: int,
        *,
        num_heads: int,
        num_layers: int,
        rngs: nnx.Rngs,
        positions: str = "sinusoidal",
    ):
        if num_layers < 1:
            raise ValueError(f"num_layers must be at least 1, got {num_layers}")
        if positions not in POSITIONS:
            raise ValueError(f"positions must be one of {', '.join(POSITIONS)}; got {positions!r}")
        self.features = features
        self.num_layers = num_layers
        self.positions = positions
        self.embedding = nnx.Embed(vocabulary_size, features, rngs=rngs)
        for layer in range(num_layers):
            block = AttentionBlock(features, num_heads, rngs=rngs, rotary=positions == "rotary")
            setattr(self, f"block{layer}", block)
        self.norm = nnx.LayerNorm(features, rngs=rngs)
        self.readout = nnx.Linear(features, vocabulary_size, rngs=rngs)

    def __call__(self, tokens: Int[Array, " time"]) -> Float[Array, "time vocabulary"]:
        *_, x = self._hidden(tokens)
        return self.readout(self.norm(x))

    def attention_weights(self, tokens: Int[Array, " time"]) -> Float[Array, "layers heads query key"]:
        """Where each head of each layer looks while it reads `tokens`."""
        mask = causal_mask(len(tokens))
        blocks = (getattr(self, f"block{layer}") for layer in range(self.num_layers))
        # The last hidden state has no layer above it.
        inputs = zip(blocks, self._hidden(tokens), strict=False)
        return jnp.stack([block.attention.weights(block.attention_norm(x), mask) for block, x in inputs])

    def _hidden(self, tokens):
        """`[time, features]` below the first layer, and after each."""
        x = jnp.sqrt(self.features) * self.embedding(tokens)
        if self.positions == "sinusoidal":
            x = x + sinusoidal_positions(len(tokens), self.features)
        hidden = [x]
        for layer in range(self.num_layers):
            hidden.append(getattr(self, f"block{layer}")(hidden[-1], causal_mask(len(tokens))))
        return hidden


def matched_language_models(
    vocabulary_size: int, features: int, *, num_heads: int = 4, num_layers: int = 2
) -> dict[str, Callable[[nnx.Rngs], nnx.Module]]:
    """{"attention": make, "LSTM": make} with `make(rngs) -> model`, two models with as good as the same parameters.

    The attention model is `features` wide. The LSTM embeds in half as many dimensions and is as wide as brings its
    parameters closest; its forget bias is 1.
    """

    def attention(rngs):
        return AttentionLanguageModel(vocabulary_size, features, num_heads=num_heads, num_layers=num_layers, rngs=rngs)

    def lstm(width, rngs):
        return RecurrentLanguageModel(vocabulary_size, LSTMCell(features // 2, width, rngs=rngs), rngs=rngs)

    parameters = parameter_count(nnx.eval_shape(lambda: attention(nnx.Rngs(0))))
    width = closest_width(lambda width: lstm(width, nnx.Rngs(0)), parameters, range(1, 8 * features))
    return {"attention": attention, "LSTM": partial(lstm, width)}


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
