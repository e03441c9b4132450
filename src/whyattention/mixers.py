"""Language models that differ in one layer only: what mixes the tokens of a sequence.

A mixer is `mixer(x [time, features]) -> [time, features]`, and the output at t depends on inputs 0 ... t. Everything
around it is the same for all: embedding, a look at the token before, residual blocks, read-out.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int

from whyattention.attention import MultiHeadAttention, causal_mask
from whyattention.recurrent import Cell, unroll

Mixer = Callable[[Float[Array, "time features"]], Float[Array, "time features"]]


class AttentionMixer(nnx.Module):
    """Causal multi-head attention without positions: the token before is all the order that the block is told."""

    def __init__(self, features: int, num_heads: int, *, rngs: nnx.Rngs):
        self.attention = MultiHeadAttention(features, num_heads, rngs=rngs)

    def __call__(self, x: Float[Array, "time features"]) -> Float[Array, "time features"]:
        return self.attention(x, causal_mask(len(x)))


class RecurrentMixer(nnx.Module):
    """A recurrence whose outputs y are gated by the input: (silu(x V) * y) W, `[time, cell.in_features]`.

    The gate lets an input choose what to read of the state, in cells that have no gate for it (as in Griffin, De et al.
    2024, and in Mamba, Gu & Dao 2023). `run(cell, x) -> (state, outputs)` is `unroll` or anything that gives the same.
    """

    def __init__(self, cell: Cell, *, rngs: nnx.Rngs, run: Callable = unroll):
        self.cell = cell
        self.run = run
        self.gate = nnx.Linear(cell.in_features, cell.hidden_size, rngs=rngs)
        self.output = nnx.Linear(cell.hidden_size, cell.in_features, use_bias=False, rngs=rngs)

    def __call__(self, x: Float[Array, "time features"]) -> Float[Array, "time features"]:
        _, outputs = self.run(self.cell, x)
        return self.output(jax.nn.silu(self.gate(x)) * outputs)


class MixerBlock(nnx.Module):
    """x + mixer(norm(x)), then x + feed_forward(norm(x)); the feed-forward part is twice as wide as `features`."""

    def __init__(self, features: int, mixer: Mixer, *, rngs: nnx.Rngs):
        self.mixer_norm = nnx.LayerNorm(features, rngs=rngs)
        self.mixer = mixer
        self.feed_forward_norm = nnx.LayerNorm(features, rngs=rngs)
        self.wide = nnx.Linear(features, 2 * features, rngs=rngs)
        self.narrow = nnx.Linear(2 * features, features, rngs=rngs)

    def __call__(self, x: Float[Array, "time features"]) -> Float[Array, "time features"]:
        x = x + self.mixer(self.mixer_norm(x))
        return x + self.narrow(jax.nn.gelu(self.wide(self.feed_forward_norm(x))))


class MixerLanguageModel(nnx.Module):
    """`model(tokens [time]) -> logits [time, vocabulary]`, with `num_layers` mixers made by `make_mixer(rngs)`.

    Each token's vector is the sum of its own embedding and another of the token before it (of none at the start): a
    convolution over two tokens, such as Based (Arora et al. 2024) and Mamba put before their mixers. It spares a layer
    whose only work would be to look one place back. Raises ValueError if there is no layer.
    """

    def __init__(
        self,
        vocabulary_size: int,
        features: int,
        make_mixer: Callable[[nnx.Rngs], Mixer],
        *,
        num_layers: int = 1,
        rngs: nnx.Rngs,
    ):
        if num_layers < 1:
            raise ValueError(f"num_layers must be at least 1, got {num_layers}")
        self.num_layers = num_layers
        unit = nnx.initializers.normal(1.0)
        self.token = nnx.Embed(vocabulary_size, features, embedding_init=unit, rngs=rngs)
        self.token_before = nnx.Embed(vocabulary_size, features, embedding_init=unit, rngs=rngs)
        for layer in range(num_layers):
            setattr(self, f"block{layer}", MixerBlock(features, make_mixer(rngs), rngs=rngs))
        self.norm = nnx.LayerNorm(features, rngs=rngs)
        self.readout = nnx.Linear(features, vocabulary_size, rngs=rngs)

    def __call__(self, tokens: Int[Array, " time"]) -> Float[Array, "time vocabulary"]:
        before = jnp.pad(self.token_before(tokens[:-1]), ((1, 0), (0, 0)))
        x = self.token(tokens) + before
        for layer in range(self.num_layers):
            x = getattr(self, f"block{layer}")(x)
        return self.readout(self.norm(x))
