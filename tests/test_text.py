"""Characters, windows, bits per character, and the n-gram baselines."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from drawn import model_like
from hypothesis import given
from hypothesis import strategies as st

from whyattention.language_model import RecurrentLanguageModel, ngram_bits_per_character
from whyattention.recurrent import TanhCell
from whyattention.tasks.corpora import ALPHABET
from whyattention.tasks.text import Characters, NextCharacter, bits_per_character, negative_log_likelihood

VOCABULARY = Characters(ALPHABET)
TEXT = VOCABULARY.encode("To be, or not to be: that is the question.\n" * 20)


def model(hidden=6):
    return model_like(lambda rngs: RecurrentLanguageModel(VOCABULARY.size, TanhCell(4, hidden, rngs=rngs), rngs=rngs))


@given(st.text(ALPHABET, max_size=30))
def test_decoding_undoes_encoding(text):
    assert VOCABULARY.decode(VOCABULARY.encode(text)) == text


def test_padding_is_no_character():
    assert 0 not in VOCABULARY.encode(ALPHABET)
    assert VOCABULARY.decode(np.array([0, *VOCABULARY.encode("ab"), 0])) == "ab"


def test_an_unknown_character_is_named():
    with pytest.raises(ValueError, match="'é' is not in the alphabet"):
        VOCABULARY.encode("é")


def test_windows_come_from_the_text_and_the_target_is_the_input_shifted_by_one():
    batch = NextCharacter(jnp.arange(50), length=5, batch_size=1024).sample(jax.random.key(0))
    assert batch.shape == (1024, 6)
    assert jnp.all(batch[:, 1:] == batch[:, :-1] + 1)
    assert batch.min() == 0 and batch.max() == 49


def test_a_text_too_short_for_a_window_is_named():
    with pytest.raises(ValueError, match=r"64 characters.*text of 10"):
        NextCharacter(jnp.arange(10))


def test_the_loss_is_the_cross_entropy_of_the_next_character():
    tokens = jnp.asarray(TEXT[:5])
    ours = negative_log_likelihood(model(), tokens)
    probabilities = jax.nn.softmax(model()(tokens))
    by_hand = [-jnp.log(probabilities[t, tokens[t + 1]]) for t in range(4)]
    np.testing.assert_allclose(ours, by_hand, rtol=1e-5)


def test_uniform_logits_cost_the_logarithm_of_the_vocabulary():
    def uniform(tokens):
        return jnp.zeros((len(tokens), VOCABULARY.size))

    np.testing.assert_allclose(bits_per_character(uniform, TEXT, segments=4), np.log2(VOCABULARY.size), rtol=1e-5)
    _, metrics = NextCharacter(jnp.asarray(TEXT)).loss(uniform, jnp.asarray(TEXT[None, :9]))
    np.testing.assert_allclose(metrics["bits_per_character"], np.log2(VOCABULARY.size), rtol=1e-5)


@pytest.mark.parametrize("segments", [0, -1, len(TEXT)])
def test_pieces_too_short_to_score_are_named(segments):
    with pytest.raises(ValueError, match=f"{len(TEXT)} characters does not make {segments} pieces"):
        bits_per_character(model(), TEXT, segments=segments)


def test_a_later_character_changes_no_earlier_logits():
    tokens = jnp.asarray(TEXT[:9])
    before, after = model()(tokens), model()(tokens.at[5].set(1))
    np.testing.assert_array_equal(before[:5], after[:5])
    assert not jnp.array_equal(before[5], after[5])


def test_generation_follows_the_model():
    """At a low temperature each token is the most likely one after all before it."""
    network, prompt = model(), jnp.asarray(TEXT[:4])
    tokens = network.generate(prompt, 5, key=jax.random.key(0), temperature=1e-4)
    whole = jnp.concatenate([prompt, tokens])
    np.testing.assert_array_equal(jnp.argmax(network(whole[:-1]), axis=-1)[3:], tokens)


def test_generation_refuses_what_it_cannot_do():
    with pytest.raises(ValueError, match=r"temperature must be positive, got 0"):
        model().generate(jnp.asarray(TEXT[:2]), 3, key=jax.random.key(0), temperature=0)
    with pytest.raises(ValueError, match="empty sequence"):
        model().generate(jnp.asarray(TEXT[:0]), 3, key=jax.random.key(0))


def test_ngrams_against_a_count_by_hand():
    """Alphabet {0, 1}, train 0 0 1, test 0 1: p(0) = (2 + 2/2) / (3 + 2) and p(1) = (1 + 2/2) / (3 + 2) at order 1."""
    train, test = np.array([0, 0, 1]), np.array([0, 1])
    expected = -(np.log2(3 / 5) + np.log2(2 / 5)) / 2
    assert ngram_bits_per_character(train, test, 1, 2) == pytest.approx(expected)
    # After 0 came 0 once and 1 once: p(1 | 0) = (1 + 2 * 2/5) / (2 + 2).
    assert ngram_bits_per_character(train, test, 2, 2) == pytest.approx(-np.log2(1.8 / 4))


@pytest.mark.parametrize("order", [1, 2, 3])
def test_ngram_probabilities_sum_to_one(order):
    """Over all continuations of every context, seen in training or not."""
    train = np.array([0, 1, 1, 2, 0, 1, 0, 0])
    for context in np.ndindex(*(3,) * (order - 1)):
        bits = [ngram_bits_per_character(train, np.array([*context, c]), order, 3) for c in range(3)]
        assert np.sum(2.0 ** -np.array(bits)) == pytest.approx(1)


def test_longer_contexts_help_on_text():
    bits = [ngram_bits_per_character(TEXT[:400], TEXT[400:], order, VOCABULARY.size) for order in (1, 2, 3)]
    assert bits[0] > bits[1] > bits[2] > 0


def test_ngram_tokens_outside_the_vocabulary_are_named():
    with pytest.raises(ValueError, match="from 0 to 1, got 0 to 3"):
        ngram_bits_per_character(np.arange(4), np.zeros(4, int), 1, 2)


@pytest.mark.parametrize(("order", "length"), [(0, 5), (3, 2)])
def test_ngram_orders_that_do_not_fit_are_named(order, length):
    with pytest.raises(ValueError, match=f"order {order}"):
        ngram_bits_per_character(np.zeros(9, int), np.zeros(length, int), order, 3)
