"""Translators: `model(source [S], target_in [T]) -> logits [T, target vocabulary]`, and one step at a time to decode.

`memory = model.encode(source)` reads a sentence once; from `state = model.start(memory)` on, `state, logits =
model.step(memory, state, token)` takes the last word said and gives the logits of the next. Everything is written for
one pair of sentences; `jax.vmap` makes a batch of it. Tokens are those of `tasks.vocabulary`: a sentence ends with END,
and all that follows is padding, however much there is.
"""

from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int

from whyattention.attention import AdditiveAttention, padding_mask
from whyattention.recurrent import GRUCell, unroll
from whyattention.tasks.vocabulary import check_sentence, check_tokens
from whyattention.training import closest_width, parameter_count

Direction = Literal["forward", "reversed", "bidirectional"]
READS = {"forward": ("forward",), "reversed": ("backward",), "bidirectional": ("forward", "backward")}


def reverse_within(xs: Float[Array, "time features"], length: int | Int[Array, ""]) -> Float[Array, "time features"]:
    """The first `length` rows in reverse order; the padding after them stays where it is.

    >>> reverse_within(jnp.array([[1], [2], [3], [0], [0]]), 3)[:, 0].tolist()
    [3, 2, 1, 0, 0]
    """
    position = jnp.arange(xs.shape[0])
    return xs[jnp.where(position < length, length - 1 - position, position)]


class Encoder(nnx.Module):
    """GRUs over one embedded sentence: (an annotation of every word, a summary of the sentence).

    With "bidirectional" one GRU reads forward and one backward (Bahdanau et al. 2014, section 3.2): the annotation of a
    word is the states of both after reading it, side by side, and the summary is the last state of each. "forward" has
    the first of them only (Cho et al. 2014) and "reversed" the second, which is Sutskever et al.'s (2014, section 3.3)
    reading of the source from its end. A last state is the one at the last real token, and backward reading begins
    there, not in the padding; annotations of padding are zero.
    """

    def __init__(self, in_features: int, hidden_size: int, direction: Direction, *, rngs: nnx.Rngs):
        if direction not in READS:
            raise ValueError(f"direction must be one of {', '.join(READS)}; got {direction!r}")
        self.reads = READS[direction]
        self.features = len(self.reads) * hidden_size
        for way in self.reads:
            setattr(self, way, GRUCell(in_features, hidden_size, rngs=rngs))

    def __call__(
        self, xs: Float[Array, "time features"], length: int | Int[Array, ""]
    ) -> tuple[Float[Array, "time annotation"], Float[Array, " annotation"]]:
        annotations, last = [], []
        for way in self.reads:
            turn = partial(reverse_within, length=length) if way == "backward" else lambda xs: xs
            state, states = unroll(getattr(self, way), turn(xs), length=length)
            annotations.append(turn(states))
            last.append(state)
        return jnp.concatenate(annotations, axis=-1), jnp.concatenate(last)


class Memory(NamedTuple):
    """What a decoder may look at: `positions` annotations of one sentence, which is a single one without attention."""

    summary: Float[Array, " annotation"]
    annotations: Float[Array, "positions annotation"]
    mask: Bool[Array, " positions"]
    keys: Float[Array, "positions attention"] | None
    gates: Float[Array, "positions gates"]


class Seq2Seq(nnx.Module):
    """An encoder, and a GRU that says the translation word by word (Cho et al. 2014; Bahdanau et al. 2014).

        s_0 = tanh(W_s summary + b)    s_i = GRU(s_{i-1}, [E y_{i-1}, c_i])    t_i = tanh(W_t [s_i, E y_{i-1}, c_i] + b)

    and the logits of word i are W_o t_i + b. With `attention`, the context c_i is the mean of the annotations weighted
    by how well each goes with s_{i-1}; without, it is the summary at every i, and nothing else differs. In the paper
    (appendix A.2.2) s_0 comes from the last backward state alone, and t_i is made of s_{i-1} with maxout for tanh.

    A word beyond the vocabulary embeds as NaN, and so shows; outside a jitted or mapped function it is a ValueError.
    So is a size below 1.
    """

    def __init__(
        self,
        source_vocabulary: int,
        target_vocabulary: int,
        hidden_size: int,
        *,
        embed_features: int,
        attention: bool,
        direction: Direction = "bidirectional",
        rngs: nnx.Rngs,
    ):
        if min(source_vocabulary, target_vocabulary, hidden_size, embed_features) < 1:
            raise ValueError(
                f"sizes must be at least 1, got source_vocabulary={source_vocabulary}, "
                f"target_vocabulary={target_vocabulary}, hidden_size={hidden_size} and embed_features={embed_features}"
            )
        self.source_vocabulary = source_vocabulary
        self.target_vocabulary = target_vocabulary
        self.source_embedding = nnx.Embed(source_vocabulary, embed_features, rngs=rngs)
        self.target_embedding = nnx.Embed(target_vocabulary, embed_features, rngs=rngs)
        self.encoder = Encoder(embed_features, hidden_size, direction, rngs=rngs)
        features = self.encoder.features
        self.first_state = nnx.Linear(features, hidden_size, rngs=rngs)
        self.cell = GRUCell(embed_features, hidden_size, rngs=rngs)
        self.context_gates = nnx.Linear(features, 3 * hidden_size, use_bias=False, rngs=rngs)
        self.scorer = AdditiveAttention(hidden_size, features, hidden_size, rngs=rngs) if attention else None
        self.deep_output = nnx.Linear(hidden_size + embed_features + features, embed_features, rngs=rngs)
        self.output = nnx.Linear(embed_features, target_vocabulary, rngs=rngs)

    def encode(self, source: Int[Array, " source"]) -> Memory:
        check_sentence("source", source, self.source_vocabulary)
        mask = padding_mask(source)
        annotations, summary = self.encoder(self.source_embedding(source), jnp.sum(mask))
        if self.scorer is None:
            annotations, mask, keys = summary[None], jnp.ones(1, dtype=bool), None
        else:
            keys = self.scorer.project(annotations)
        # The cell's product with the context is a mean of its products with the annotations: once for all words.
        return Memory(summary, annotations, mask, keys, self.context_gates(annotations))

    def start(self, memory: Memory) -> Float[Array, " hidden"]:
        return jnp.tanh(self.first_state(memory.summary))

    def weights(self, memory: Memory, state: Float[Array, " hidden"]) -> Float[Array, " positions"]:
        """How much of each annotation is in the context of the word after `state`."""
        if self.scorer is None:
            return jnp.ones(1)
        return self.scorer.weights(state, memory.keys, memory.mask)

    def advance(self, memory, state, word_gates):
        """(s_i, (s_i, alpha_i)) from s_{i-1} and what the cell's gates get from the last word."""
        weights = self.weights(memory, state)
        state, _ = self.cell.step(state, word_gates + weights @ memory.gates)
        return state, (state, weights)

    def readout(self, states, words, contexts):
        return self.output(jnp.tanh(self.deep_output(jnp.concatenate([states, words, contexts], axis=-1))))

    def step(self, memory: Memory, state: Float[Array, " hidden"], token: Int[Array, ""]):
        """(state after `token`, logits `[target vocabulary]` of the word that follows it)."""
        check_tokens("token", token, self.target_vocabulary)
        word = self.target_embedding(token)
        state, (_, weights) = self.advance(memory, state, self.cell.project(word))
        return state, self.readout(state, word, weights @ memory.annotations)

    def __call__(self, source: Int[Array, " source"], target_in: Int[Array, " target"]):
        """Logits `[target, target vocabulary]`: those at i follow from the source and target_in up to i."""
        memory, words, states, weights = self._run(source, target_in)
        return self.readout(states, words, weights @ memory.annotations)

    def attention(
        self, source: Int[Array, " source"], target_in: Int[Array, " target"]
    ) -> Float[Array, "target source"]:
        """alpha `[target, source]`: what each word was said while looking at. Raises ValueError without attention."""
        if self.scorer is None:
            raise ValueError("this translator has a fixed context vector and looks at no word in particular")
        return self._run(source, target_in)[3]

    def _run(self, source, target_in):
        check_sentence("target_in", target_in, self.target_vocabulary)
        memory, words = self.encode(source), self.target_embedding(target_in)
        gates = self.cell.project(words)
        _, (states, weights) = jax.lax.scan(partial(self.advance, memory), self.start(memory), gates)
        return memory, words, states, weights


def matched_translators(
    source_vocabulary: int,
    target_vocabulary: int,
    hidden_size: int,
    *,
    embed_features: int | None = None,
    direction: Direction = "bidirectional",
) -> dict[str, Callable[[nnx.Rngs], Seq2Seq]]:
    """{"fixed vector": make, "attention": make} with `make(rngs) -> model`, two models of as good as one size.

    The attention model's states have `hidden_size` numbers and so, unless given, its embeddings. The other one's states
    are as much wider as makes up for the parameters that attention has. Raises ValueError if a size is below 1.
    """
    embed_features = hidden_size if embed_features is None else embed_features

    def make(width, attention, rngs):
        sizes = source_vocabulary, target_vocabulary, width
        return Seq2Seq(*sizes, embed_features=embed_features, attention=attention, direction=direction, rngs=rngs)

    parameters = parameter_count(nnx.eval_shape(lambda: make(hidden_size, True, nnx.Rngs(0))))
    width = closest_width(lambda width: make(width, False, nnx.Rngs(0)), parameters, range(1, 2 * hidden_size + 1))
    return {"fixed vector": partial(make, width, False), "attention": partial(make, hidden_size, True)}
