"""How good translations are: BLEU, exact match and token accuracy by length; and how good alignments are."""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import jax
import numpy as np
from flax import nnx
from jaxtyping import Float, Int
from sacrebleu.metrics import BLEU
from scipy.special import entr

from whyattention.decoding import beam_search, greedy_decode
from whyattention.tasks.vocabulary import PADDING


def translate(
    model: nnx.Module,
    sources: Int[np.ndarray, "sentences source"],
    max_length: int,
    *,
    beam_size: int = 1,
    length_penalty: float = 0.0,
    at_once: int = 64,
) -> Int[np.ndarray, "sentences max_length"]:
    """The model's own translations, each word given only those it has said itself: END and padding after the last.

    A beam of 1 is greedy. `at_once` sentences are translated side by side, those of a length together, in one program
    for all of the same shape. No sentences have no translations. Raises ValueError if `sources` does not have two axes,
    or holds a token that is not below `model.source_vocabulary`, if `at_once` is below 1, or if a parameter of the
    model is not a finite number: such a model may say END at once, which looks like a translation of no words.
    """
    if at_once < 1:
        raise ValueError(f"at_once must be at least 1, got {at_once}")
    sources = np.asarray(sources)
    if sources.ndim != 2:
        raise ValueError(f"sources must be [sentences, time], got shape {sources.shape}")
    if sources.size and not 0 <= sources.min() <= sources.max() < model.source_vocabulary:
        raise ValueError(
            f"sources must hold tokens from 0 to {model.source_vocabulary - 1}, got {sources.min()} to {sources.max()}"
        )
    graphdef, state = nnx.split(model)
    for path, parameter in jax.tree.leaves_with_path(nnx.state(model, nnx.Param)):
        if not np.isfinite(parameter).all():
            raise ValueError(f"the model's parameter {jax.tree_util.keystr(path)} has numbers that are not finite")
    translations = np.full((len(sources), max_length), PADDING, dtype=np.int32)
    by_length = np.argsort((sources != PADDING).sum(axis=1), kind="stable")  # a batch takes as long as its longest
    for start in range(0, len(sources), at_once):
        chosen = by_length[start : start + at_once]
        full = np.resize(chosen, at_once)  # the last sentences are repeated: one shape, one program
        found = _translate(graphdef, max_length, beam_size, length_penalty, state, sources[full])
        translations[chosen] = np.asarray(found)[: len(chosen)]
    return translations


@partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _translate(graphdef, max_length, beam_size, length_penalty, state, sources):
    model = nnx.merge(graphdef, state)

    def one(source):
        if beam_size == 1:
            return greedy_decode(model, source, max_length)
        return beam_search(model, source, max_length, beam_size, length_penalty)[0]

    return jax.vmap(one)(sources)


class Bleu(NamedTuple):
    """Corpus BLEU from 0 to 100, and sacrebleu's signature, which says how it was computed."""

    score: float
    signature: str


def bleu(hypotheses: Sequence[str], references: Sequence[str]) -> Bleu:
    """sacrebleu's corpus BLEU of detokenised texts, one reference each, with its defaults: 13a, cased (Post 2018).

    An empty hypothesis counts as a translation of no words. Without any sentence the score is NaN, and hypotheses none
    of which has four tokens score 0, right or wrong: they have no 4-gram. Raises ValueError if there is not one
    reference per hypothesis.
    """
    hypotheses, references = list(hypotheses), list(references)  # of NumPy arrays as well
    if len(hypotheses) != len(references):
        raise ValueError(f"expected one reference per hypothesis, got {len(references)} for {len(hypotheses)}")
    metric = BLEU()
    score = metric.corpus_score(hypotheses, [references]).score if hypotheses else float("nan")
    # Before a score the number of references is unknown to sacrebleu.
    return Bleu(score, metric.get_signature().format() if hypotheses else "")


def exact_match(
    translations: Int[np.ndarray, "sentences length"], targets: Int[np.ndarray, "sentences target"]
) -> np.ndarray:
    """True for each sentence that is its target, END included: `[sentences]`."""
    translations, targets = _same_width(translations, targets)
    return np.all(translations == targets, axis=1)


def tokens_right(
    translations: Int[np.ndarray, "sentences length"], targets: Int[np.ndarray, "sentences target"]
) -> tuple[np.ndarray, np.ndarray]:
    """(how many tokens of each target, END included, the translation has in the same place, how many there are).

    The share of them is the free-running token accuracy: stricter than BLEU, since what follows a word too many or too
    few is all in the wrong place.
    """
    translations, targets = _same_width(translations, targets)
    real = targets != PADDING
    return np.sum((translations == targets) & real, axis=1), np.sum(real, axis=1)


def in_buckets(lengths: Sequence[int], edges: Sequence[int]) -> list[np.ndarray]:
    """For each i, the places of those `lengths` that are from `edges[i]` up to but not with `edges[i + 1]`."""
    lengths = np.asarray(lengths)
    return [np.flatnonzero((shortest <= lengths) & (lengths < end)) for shortest, end in pairwise(edges)]


def quality_by_length(
    translations: Int[np.ndarray, "sentences length"],
    targets: Int[np.ndarray, "sentences target"],
    lengths: Sequence[int],
    edges: Sequence[int],
    detokenise: Callable[[np.ndarray], str],
) -> dict[str, np.ndarray]:
    """Quality in buckets of `lengths`, those of the sources in words: one entry per bucket in every column.

    Bucket i holds the lengths from `edges[i]` up to but not with `edges[i + 1]`. Columns: "shortest" and "longest", the
    least and greatest length that belongs to it; "sentences"; "exact_match", a share of sentences; "token_accuracy", a
    share of all target tokens in the bucket (see `tokens_right`); "bleu". The last three are NaN in an empty bucket.
    Raises ValueError if the edges do not rise, if sizes differ, or if a length is in no bucket.
    """
    lengths, edges = np.asarray(lengths), np.asarray(edges)
    if edges.ndim != 1 or len(edges) < 2 or np.any(np.diff(edges) <= 0):
        raise ValueError(f"edges must rise, and be two or more, got {edges.tolist()}")
    if not len(translations) == len(targets) == len(lengths):
        raise ValueError(
            f"expected one target and one length per translation, "
            f"got {len(targets)} and {len(lengths)} for {len(translations)}"
        )
    if outside := [int(length) for length in lengths if not edges[0] <= length < edges[-1]]:
        raise ValueError(f"lengths must be from {edges[0]} to {edges[-1] - 1}, got {outside[0]}")
    matched = exact_match(translations, targets)
    right, wanted = tokens_right(translations, targets)
    said, meant = (np.array([detokenise(row) for row in rows], dtype=object) for rows in (translations, targets))
    rows = [
        {
            "sentences": len(here),
            "exact_match": _share(np.sum(matched[here]), len(here)),
            "token_accuracy": _share(np.sum(right[here]), np.sum(wanted[here])),
            "bleu": bleu(said[here].tolist(), meant[here].tolist()).score,
        }
        for here in in_buckets(lengths, edges)
    ]
    columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    return {"shortest": edges[:-1], "longest": edges[1:] - 1, **columns}


def hard_alignment(weights: Float[np.ndarray, "target source"]) -> set[tuple[int, int]]:
    """(target, source) for each target word and the one source word it looks at most (Luong et al. 2015, section 5.4).

    Of several that it looks at alike, the first; a word that looks nowhere (a row of zeros) is linked to nothing.
    Raises ValueError if a weight is NaN.
    """
    weights = np.asarray(weights)
    if np.isnan(weights).any():
        raise ValueError("a word whose weights are NaN looks at no word in particular")
    return {(row, int(np.argmax(line))) for row, line in enumerate(weights) if np.any(line > 0)}


def alignment_error_rate(
    weights: Sequence[Float[np.ndarray, "target source"]], alignments: Sequence[Collection[tuple[int, int]]]
) -> float:
    """1 - 2 |A and S| / (|A| + |S|) over all sentences: 0 if every link is right, 1 if none is (Och & Ney 2003).

    For each sentence, `weights` has one row per target word, END and padding cut off, and one column per source token;
    A are the links of `hard_alignment`, S those of `alignments`, (target, source), all of them sure. A target word gets
    one link in A: where it has several in S the rate cannot be 0, and where it has none its link is an error, as is a
    link to END. Raises ValueError if sizes differ, if a link lies outside the weights, if a weight is NaN, or if there
    is no link at all.
    """
    if len(weights) != len(alignments):
        raise ValueError(f"expected one alignment per sentence, got {len(alignments)} for {len(weights)}")
    common = total = 0
    for rows, known in zip(weights, alignments, strict=True):
        size = np.shape(rows)
        if len(size) != 2 or any(not (0 <= target < size[0] and 0 <= source < size[1]) for target, source in known):
            raise ValueError(f"links {sorted(known)} do not all lie within weights of shape {size}")
        found = hard_alignment(rows)
        common += len(found & set(known))
        total += len(found) + len(set(known))
    if total == 0:
        raise ValueError("without a link there is no error rate")
    return 1 - 2 * common / total


def attention_entropy(weights: Float[np.ndarray, "*axes source"]) -> Float[np.ndarray, "*axes"]:
    """-sum_j alpha_j log2 alpha_j in bits: 0 for a look at one word, log2 n for an even look at n, 0 for no look."""
    return np.sum(entr(weights), axis=-1) / np.log(2)


def _same_width(translations, targets):
    translations, targets = np.asarray(translations), np.asarray(targets)
    if translations.ndim != 2 or targets.ndim != 2 or len(translations) != len(targets):
        raise ValueError(
            f"expected [sentences, length] and as many targets, got {translations.shape} and {targets.shape}"
        )
    width = max(translations.shape[1], targets.shape[1])
    return tuple(
        np.pad(side, ((0, 0), (0, width - side.shape[1])), constant_values=PADDING) for side in (translations, targets)
    )


def _share(part, whole):
    return part / whole if whole else float("nan")
