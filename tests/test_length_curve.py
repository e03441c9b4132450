"""The length curve's sentences are what they say, and its instruments read a model as it is."""

import numpy as np
import pytest
from flax import nnx

from whyattention.measure import length_curve as curve
from whyattention.seq2seq import Seq2Seq
from whyattention.tasks.vocabulary import END

EDGES = (4, 8, 11)


@pytest.fixture(scope="module")
def sentences():
    return curve.unseen_sentences(3, seed=0, edges=EDGES)


@pytest.fixture(scope="module")
def model():
    return Seq2Seq(curve.SOURCE.size, curve.TARGET.size, 6, embed_features=4, attention=True, rngs=nnx.Rngs(0))


def test_every_bucket_is_filled(sentences):
    lengths = np.array(sentences.lengths)
    assert np.histogram(lengths, EDGES)[0].tolist() == [3, 3]
    assert (sentences.source != 0).sum(axis=1).tolist() == (lengths + 1).tolist()  # and END


def test_tokens_are_the_words_of_the_pair(sentences):
    for source, target, pair in zip(*sentences, strict=True):
        assert curve.SOURCE.decode(source) == list(pair.source)
        assert curve.TARGET.decode(target) == list(pair.target)


def test_no_test_sentence_is_trained_on(sentences):
    task = curve.training_task(10, pairs=1000, batch_size=1, seed=0)
    trained = {tuple(curve.SOURCE.decode(row)) for row in np.asarray(task.source)}
    assert trained.isdisjoint(pair.source for pair in sentences.pairs)


def test_training_sentences_are_as_long_as_was_asked():
    task = curve.training_task(6, pairs=50, batch_size=1, seed=0)
    lengths = np.asarray(task.source != 0).sum(axis=1) - 1
    assert set(lengths) == {4, 5, 6}


def test_looks_have_a_row_for_each_word_and_add_up(sentences, model):
    for rows, pair in zip(curve.looks(model, sentences), sentences.pairs, strict=True):
        assert rows.shape == (len(pair.target), len(pair.source) + 1)
        np.testing.assert_allclose(rows.sum(axis=1), 1, atol=1e-5)


def test_looks_are_those_of_the_model_given_the_right_words(sentences, model):
    source, target, pair = sentences.source[0], sentences.target[0], sentences.pairs[0]
    read = np.concatenate([[1], target[:-1]])
    expected = model.attention(source, read)[: len(pair.target), : len(pair.source) + 1]
    np.testing.assert_allclose(curve.looks(model, sentences)[0], expected, atol=1e-5)


def test_alignment_by_length(sentences, model):
    found = curve.alignment_by_length(model, sentences, EDGES)
    words = np.array([7, 10])
    assert np.all((found["entropy"] > 0) & (found["entropy"] <= np.log2(words + 1) + 1e-5))
    assert np.all((found["error_rate"] >= 0) & (found["error_rate"] <= 1))


def test_alignment_in_an_empty_bucket_is_nan(sentences, model):
    found = curve.alignment_by_length(model, sentences, (*EDGES, 20))
    for column in found.values():
        np.testing.assert_array_equal(np.isnan(column), [False, False, True])


def test_quality_of_a_model_that_has_learnt_nothing(sentences, model):
    found = curve.quality(model, sentences, EDGES)
    assert found["sentences"].tolist() == [3, 3]
    assert np.all(found["exact_match"] == 0) and np.all(found["token_accuracy"] < 0.5)


def test_translations_have_room_for_the_longest():
    longest = curve.unseen_sentences(40, seed=1, edges=(75, 81))
    assert longest.target.shape[1] < curve.LONGEST_TRANSLATION
    assert np.all((longest.target == END).sum(axis=1) == 1)
