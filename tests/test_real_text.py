"""Real text is cut into batches that draw every verse alike, and tested on chapters that were held out."""

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from whyattention.measure import real_text
from whyattention.seq2seq import Seq2Seq
from whyattention.tasks.parallel_text import Verse

WORDS = "and the king went out of his house in those days with all people that were there".split()


def verses():
    """A bible of 60 chapters of 10 verses, of 5 to 62 words each."""
    made = []
    for number in range(600):
        chapter, verse = divmod(number, 10)
        text = [WORDS[(number * 7 + i * i) % len(WORDS)] for i in range(5 + (number * 13) % 58)] + [f"x{number}"]
        made.append(Verse(1, chapter + 1, verse + 1, " ".join(text), " ".join(reversed(text))))
    return made


@pytest.fixture(scope="module")
def corpus():
    return real_text.prepare(verses(), vocabulary_size=300)


def test_test_chapters_are_not_trained_on(corpus):
    def chapters(part):
        return {verse.chapter for verse in part}

    assert chapters(corpus.training).isdisjoint(chapters(corpus.test) | chapters(corpus.joined))
    assert chapters(corpus.joined) <= chapters(corpus.test)


def test_no_sentence_is_longer_than_the_last_bucket(corpus):
    longest = max(len(verse.english.split()) for part in corpus[:3] for verse in part)
    assert longest <= real_text.LONGEST


def test_every_verse_is_drawn_alike(corpus):
    mixture = real_text.training_mixture(corpus, tokens=1024)
    per_verse = [
        share * task.batch_size / len(task.source) for share, task in zip(mixture.shares, mixture.tasks, strict=True)
    ]
    np.testing.assert_allclose(per_verse, 1)
    assert all(task.source.shape[1] * task.batch_size <= 1024 for task in mixture.tasks)
    texts = {corpus.target.decode(row) for task in mixture.tasks for row in np.asarray(task.target)}
    assert texts <= {verse.french for verse in corpus.training}


def test_an_evaluation_has_a_score_for_every_bucket_that_has_sentences(corpus):
    model = Seq2Seq(corpus.source.size, corpus.target.size, 4, embed_features=4, attention=True, rngs=nnx.Rngs(0))
    model.output.bias[...] = jnp.where(jnp.arange(corpus.target.size) == 2, 10.0, 0.0)  # says nothing but END
    small = corpus._replace(test=corpus.test[:6], joined=corpus.joined[:6])
    found = real_text.evaluate(model, small, samples=[0])
    assert found["bleu"] == 0 and "tok:13a" in found["signature"]
    assert found["samples"] == [(small.test[0].english, small.test[0].french, "")]
    filled = found["quality"]["sentences"] > 0
    assert filled.any() and np.all(found["quality"]["bleu"][filled] == 0)
    assert np.all(np.isnan(found["quality"]["bleu"][~filled]))
