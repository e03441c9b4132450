"""Translators of real text: the King James Bible into Louis Segond's French, verse by verse.

Chapters are held out whole (`split_by_chapter`), since neighbouring verses share names and phrases. Long sentences are
rare among verses, so neighbouring verses are joined as well, in training and in testing alike.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from whyattention.measure.translation import bleu, in_buckets, translate
from whyattention.tasks.parallel_text import Verse, join_neighbours, split_by_chapter
from whyattention.tasks.translation import Translation
from whyattention.tasks.vocabulary import Subwords, pad
from whyattention.training import Mixture

EDGES = (1, 11, 21, 31, 41, 51, 61)  # of the buckets of test sentences, in words of the English
LONGEST = EDGES[-1] - 1  # words of English, in training and in testing
WIDTHS = (24, 32, 40, 48, 64, 80, 96, 112)  # tokens with END that a batch's sentences are padded to, either side


class Corpus(NamedTuple):
    """What is trained on, what is tested on, and the subwords of either language, learnt from the former."""

    training: list[Verse]
    test: list[Verse]
    joined: list[Verse]
    source: Subwords
    target: Subwords


def prepare(verses: Sequence[Verse], *, vocabulary_size: int) -> Corpus:
    """Training verses, single and joined; test verses, single; and test verses joined for the longer buckets.

    Verses of more than `LONGEST` English words are left out.
    """
    parts = split_by_chapter(verses)
    joined = join_neighbours(parts.training, LONGEST)
    single = set(parts.training)
    training = _not_too_long(parts.training + [verse for verse in joined if verse not in single])
    return Corpus(
        training,
        _not_too_long(parts.test),
        _not_too_long(join_neighbours(parts.test, LONGEST)),
        Subwords.of([verse.english for verse in parts.training], vocabulary_size),
        Subwords.of([verse.french for verse in parts.training], vocabulary_size),
    )


def training_mixture(corpus: Corpus, *, tokens: int) -> Mixture:
    """The training verses in batches of about `tokens` tokens a side, each padded to one of `WIDTHS`.

    Every verse is drawn as often as any other: the share of a width is that of its batches in one pass through all.
    A verse that is too long for the last width is left out.
    """
    source = [corpus.source.encode(verse.english) for verse in corpus.training]
    target = [corpus.target.encode(verse.french) for verse in corpus.training]
    needed = np.array([max(len(left), len(right)) + 1 for left, right in zip(source, target, strict=True)])
    tasks, shares = [], []
    for shortest, width in pairwise((0, *WIDTHS)):
        chosen = np.flatnonzero((shortest < needed) & (needed <= width))
        if len(chosen):
            sides = (jnp.asarray(pad([side[i] for i in chosen], width), dtype=jnp.uint16) for side in (source, target))
            tasks.append(Translation(*sides, batch_size=tokens // width))
            shares.append(len(chosen) / tasks[-1].batch_size)
    return Mixture(tuple(tasks), tuple(shares))


def schedule(updates: int) -> optax.GradientTransformation:
    """The optimizer of all translators of real text: Adam with a warm-up and a cosine decay, clipped at norm 1."""
    rate = optax.warmup_cosine_decay_schedule(0.0, 2e-3, min(200, updates // 10), updates)
    return optax.chain(optax.clip_by_global_norm(1.0), optax.adam(rate))


def evaluate(model: nnx.Module, corpus: Corpus, *, samples: Sequence[int] = ()) -> dict:
    """Greedy translations of the test verses, scored by sacrebleu on plain text, cased.

    "bleu" and "signature" are of the single verses all together; "quality" is by bucket of English words, joined verses
    taking the place of single ones from 31 words up, where these are few; "samples" are (English, French, the model's)
    of the single verses with these numbers.
    """
    said = _translations(model, corpus, corpus.test)
    score = bleu(said, [verse.french for verse in corpus.test])
    by_length = [verse for verse in corpus.test if _words(verse) < 31]
    by_length += [verse for verse in corpus.joined if _words(verse) >= 31]
    return {
        "bleu": score.score,
        "signature": score.signature,
        "quality": _by_bucket(_translations(model, corpus, by_length), by_length),
        "samples": [(corpus.test[i].english, corpus.test[i].french, said[i]) for i in samples],
    }


def _translations(model, corpus, verses):
    sources = pad([corpus.source.encode(verse.english) for verse in verses])
    longest = 16 * -(-int(1.5 * sources.shape[1]) // 16)
    return [corpus.target.decode(row) for row in translate(model, sources, longest)]


def _by_bucket(said, verses):
    rows = []
    places = in_buckets([_words(verse) for verse in verses], EDGES)
    for (shortest, end), here in zip(pairwise(EDGES), places, strict=True):
        score = bleu([said[i] for i in here], [verses[i].french for i in here]).score
        rows.append({"shortest": shortest, "longest": end - 1, "sentences": len(here), "bleu": score})
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def _words(verse):
    return len(verse.english.split())


def _not_too_long(verses):
    return [verse for verse in verses if _words(verse) <= LONGEST]
