"""Quality against the length of the source, on the small language: the experiment of Bahdanau et al. (2014, figure 2).

Sentences for training are of up to a chosen length; those for testing are unseen, as many of every length, and go far
beyond. Translators are compared on the same of both.
"""

from functools import partial
from itertools import pairwise
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jaxtyping import Float, Int

from whyattention.measure.translation import (
    alignment_error_rate,
    attention_entropy,
    in_buckets,
    quality_by_length,
    translate,
)
from whyattention.seq2seq import Seq2Seq
from whyattention.tasks.english_french import SOURCE_WORDS, TARGET_WORDS, Pair, detokenise, sentence_pairs
from whyattention.tasks.translation import Translation, shift_right
from whyattention.tasks.vocabulary import Words, pad

SOURCE, TARGET = Words(tuple(SOURCE_WORDS)), Words(tuple(TARGET_WORDS))
SHORTEST = 4  # words, the full stop counted
EDGES = (4, 11, 21, 31, 41, 51, 61, 81)  # of the buckets of test sentences, in words of the source
LONGEST_TRANSLATION = 110  # tokens; the longest right one, of 80 words, has fewer


class Sentences(NamedTuple):
    """Pairs as tokens, END and padding included, with the pairs that they are of."""

    source: Int[np.ndarray, "pairs source"]
    target: Int[np.ndarray, "pairs target"]
    pairs: list[Pair]

    @property
    def lengths(self) -> list[int]:
        """Words of each source, the full stop counted and END not."""
        return [len(pair.source) for pair in self.pairs]


def encode(pairs: list[Pair]) -> Sentences:
    """The pairs as tokens of `SOURCE` and `TARGET`, each side padded to its longest."""
    sides = pad([SOURCE.encode(pair.source) for pair in pairs]), pad([TARGET.encode(pair.target) for pair in pairs])
    return Sentences(*sides, pairs)


def training_task(longest: int, *, pairs: int, batch_size: int, seed: int) -> Translation:
    """`pairs` training pairs of `SHORTEST` to `longest` words, every length as often."""
    source, target, _ = encode(sentence_pairs(seed, pairs, shortest=SHORTEST, longest=longest))
    sides = jnp.asarray(source, dtype=jnp.uint16), jnp.asarray(target, dtype=jnp.uint16)
    return Translation(*sides, batch_size=batch_size)


def unseen_sentences(per_bucket: int, *, seed: int, edges: tuple[int, ...] = EDGES) -> Sentences:
    """`per_bucket` test pairs for each bucket of lengths, from `edges[i]` up to but not with `edges[i + 1]`."""
    pairs = []
    for shortest, end in pairwise(edges):
        pairs += sentence_pairs(seed, per_bucket, shortest=shortest, longest=end - 1, split="test")
    return encode(pairs)


def schedule(updates: int, peak: float = 3e-3) -> optax.GradientTransformation:
    """The optimizer of recurrent translators of the small language: Adam, gradients clipped at norm 1.

    Its rate falls from `peak` to zero by half a cosine.
    """
    return optax.chain(optax.clip_by_global_norm(1.0), optax.adam(optax.cosine_decay_schedule(peak, updates)))


def quality(model: nnx.Module, sentences: Sentences, edges: tuple[int, ...] = EDGES) -> dict[str, np.ndarray]:
    """`quality_by_length` of the model's own, greedy translations: one entry per bucket in every column."""
    found = translate(model, sentences.source, LONGEST_TRANSLATION)
    return quality_by_length(
        found, sentences.target, sentences.lengths, edges, lambda tokens: detokenise(TARGET.decode(tokens))
    )


@partial(jax.jit, static_argnums=0)  # one program for all models of the same sizes
def _weights(graphdef, state, sources, targets):
    attention = nnx.merge(graphdef, state).attention
    return jax.lax.map(lambda pair: attention(*pair), (sources, shift_right(targets)), batch_size=32)


def looks(model: Seq2Seq, sentences: Sentences) -> list[Float[np.ndarray, "target source"]]:
    """alpha of each pair, the right words before each word being given.

    The rows are those of the target's words, the columns those of the source's words and of END.
    """
    weights = _weights(*nnx.split(model), *sentences[:2])
    return [
        rows[: len(pair.target), : len(pair.source) + 1]
        for rows, pair in zip(np.asarray(weights), sentences.pairs, strict=True)
    ]


def alignment_by_length(
    model: Seq2Seq, sentences: Sentences, edges: tuple[int, ...] = EDGES
) -> dict[str, Float[np.ndarray, " buckets"]]:
    """By bucket: "error_rate" (see `alignment_error_rate`), and "entropy", the mean over target words, in bits.

    Both are NaN in an empty bucket.
    """
    weights = looks(model, sentences)
    width = sentences.source.shape[1]
    rows = []
    for here in in_buckets(sentences.lengths, edges):
        if not len(here):
            rows.append({"error_rate": np.nan, "entropy": np.nan})
            continue
        chosen = [weights[number] for number in here]
        words = np.concatenate([np.pad(rows, ((0, 0), (0, width - rows.shape[1]))) for rows in chosen])
        error_rate = alignment_error_rate(chosen, [sentences.pairs[number].alignment for number in here])
        rows.append({"error_rate": error_rate, "entropy": float(np.mean(attention_entropy(words)))})
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}
