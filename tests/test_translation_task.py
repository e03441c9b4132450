"""Translation as a task: what the decoder is told, what counts, and that padding does not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from whyattention.tasks.translation import RandomTokens, Translation, shift_right
from whyattention.tasks.vocabulary import BEGIN, END, PADDING, pad

SIZE = 9
SOURCE = jnp.asarray(pad([[4, 5], [6], []]))
TARGET = jnp.asarray(pad([[5, 4, 7], [8], []]))
TASK = Translation(SOURCE, TARGET, batch_size=200)


def copies(source, target_in):
    """Says the source again, for certain."""
    return 100.0 * jax.nn.one_hot(source[: len(target_in)], SIZE)


def knows_what_it_was_told(source, target_in):
    """Prefers, mildly, the token it was just told."""
    return jax.nn.one_hot(target_in, SIZE)


def test_the_decoder_is_told_the_target_shifted_by_one():
    np.testing.assert_array_equal(shift_right(jnp.array([7, 8, END, 0])), [BEGIN, 7, 8, END])
    shifted = shift_right(TARGET)
    np.testing.assert_array_equal(shifted[:, 0], BEGIN)
    np.testing.assert_array_equal(shifted[:, 1:], TARGET[:, :-1])
    assert shifted.dtype == TARGET.dtype


def test_a_batch_holds_pairs_of_the_corpus():
    source, target = jax.jit(TASK.sample)(jax.random.key(0))
    assert source.shape == (200, 3) and target.shape == (200, 4) and source.dtype == target.dtype == jnp.int32
    seen = {(tuple(s), tuple(t)) for s, t in zip(source.tolist(), target.tolist(), strict=True)}
    assert seen == {(tuple(s), tuple(t)) for s, t in zip(SOURCE.tolist(), TARGET.tolist(), strict=True)}


def test_small_integers_are_given_to_the_model_as_int32():
    source, _ = Translation(SOURCE.astype(jnp.uint8), TARGET.astype(jnp.uint8), 4).sample(jax.random.key(0))
    assert source.dtype == jnp.int32


def test_the_loss_is_the_mean_over_real_tokens_of_the_whole_batch():
    loss, metrics = TASK.loss(knows_what_it_was_told, (SOURCE, TARGET))
    losses = []
    for target in TARGET.tolist():
        told = BEGIN
        for token in target[: target.index(END) + 1]:
            losses.append(float(jax.nn.logsumexp(jax.nn.one_hot(told, SIZE))) - (told == token))
            told = token
    assert len(losses) == 7
    np.testing.assert_allclose(loss, np.mean(losses), rtol=1e-6)
    assert metrics["token_accuracy"] == 0


def test_padding_more_changes_nothing():
    padded = jnp.pad(SOURCE, ((0, 1), (0, 2))), jnp.pad(TARGET, ((0, 1), (0, 5)))
    loss, _ = TASK.loss(knows_what_it_was_told, (SOURCE, TARGET))
    np.testing.assert_allclose(TASK.loss(knows_what_it_was_told, padded)[0], loss, rtol=1e-6)


def test_smoothing_spreads_a_share_of_what_is_wanted_over_the_vocabulary():
    smooth = Translation(SOURCE, TARGET, label_smoothing=0.1)
    loss, metrics = smooth.loss(knows_what_it_was_told, (SOURCE, TARGET))
    hard, hard_metrics = TASK.loss(knows_what_it_was_told, (SOURCE, TARGET))
    # Here every logit is 0 but one, which is 1, is never wanted, and gets a ninth of the share.
    np.testing.assert_allclose(loss, hard - 0.1 / SIZE, rtol=1e-6)
    assert metrics == hard_metrics
    padded = tuple(jnp.pad(side, ((0, 0), (0, 3))) for side in (SOURCE, TARGET))
    np.testing.assert_allclose(smooth.loss(knows_what_it_was_told, padded)[0], loss, rtol=1e-6)
    for share in (-0.1, 1.0):
        with pytest.raises(ValueError, match=f"got {share}"):
            Translation(SOURCE, TARGET, label_smoothing=share)


def test_a_batch_of_nothing_but_padding_costs_nothing():
    nothing = jnp.zeros((2, 3), jnp.int32)
    loss, metrics = TASK.loss(knows_what_it_was_told, (nothing, nothing))
    assert loss == 0 and metrics["token_accuracy"] == 0


@pytest.mark.parametrize(
    ("source", "target", "batch_size"), [(SOURCE, TARGET[:2], 4), (SOURCE[:0], TARGET[:0], 4), (SOURCE, TARGET, 0)]
)
def test_a_corpus_that_makes_no_batch_is_refused(source, target, batch_size):
    with pytest.raises(ValueError, match=f"batch_size={batch_size}, {len(source)} sources and {len(target)} targets"):
        Translation(source, target, batch_size)


COPY = RandomTokens(symbols=5, longest=6, batch_size=600, shortest=2)


def test_random_sentences_have_every_length_and_every_symbol():
    source, target = COPY.sample(jax.random.key(0))
    np.testing.assert_array_equal(source, target)
    assert source.shape == (600, 7) and COPY.vocabulary_size == SIZE
    lengths = np.argmax(np.asarray(source) == END, axis=1)
    counts = np.bincount(lengths)
    assert set(lengths) == {2, 3, 4, 5, 6} and counts[2:].min() > 0.6 * counts[2:].max()
    for row, length in zip(np.asarray(source), lengths, strict=True):
        assert np.all((row[:length] >= 4) & (row[:length] < SIZE)) and np.all(row[length + 1 :] == PADDING)
    assert set(np.asarray(source)[:, 0]) == {4, 5, 6, 7, 8}


def test_random_sentences_of_one_length():
    source, _ = jax.jit(COPY.sample_of_length)(jax.random.key(0), 4)
    np.testing.assert_array_equal(np.asarray(source)[:, 4], END)


@pytest.mark.parametrize("length", [-1, 0, 7])
def test_a_length_that_random_sentences_do_not_have_is_named(length):
    with pytest.raises(ValueError, match=f"length must be from 1 to 6, got {length}"):
        COPY.sample_of_length(jax.random.key(0), length)


def test_saying_it_again_is_right_and_guessing_is_right_by_chance():
    batch = COPY.sample_of_length(jax.random.key(1), 6)
    loss, metrics = COPY.loss(copies, batch)
    assert loss < 1e-6 and metrics["token_accuracy"] == 1
    guess = COPY.loss(lambda source, target_in: jnp.zeros((7, SIZE)).at[:, 5].set(1.0), batch)[1]["token_accuracy"]
    np.testing.assert_allclose(guess, COPY.chance * 6 / 7, atol=0.02)
    np.testing.assert_allclose(COPY.bits_per_symbol, np.log2(5))


@pytest.mark.parametrize("sizes", [{"shortest": 0}, {"shortest": 7}, {"symbols": 0}, {"batch_size": 0}])
def test_sizes_that_make_no_sentences_are_named(sizes):
    with pytest.raises(ValueError, match=f"{next(iter(sizes))}={next(iter(sizes.values()))}"):
        RandomTokens(**{"symbols": 5, "longest": 6, **sizes})
