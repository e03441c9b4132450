"""Decoding: greedy is the argmax of every step, a beam of 1 is greedy, a beam wide enough finds the best of all."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from drawn import model_like
from scipy.special import log_softmax

from whyattention import decoding
from whyattention.decoding import beam_search, greedy_decode
from whyattention.seq2seq import Seq2Seq
from whyattention.tasks import vocabulary
from whyattention.tasks.translation import shift_right

END, LENGTH = vocabulary.END, 4
SOURCES = jnp.array([[4, 5, 2, 0], [5, 4, 5, 2], [2, 0, 0, 0], [0, 0, 0, 0]])


@pytest.fixture(scope="module")
def model():
    return model_like(lambda rngs: Seq2Seq(6, 6, 8, embed_features=8, attention=True, rngs=rngs))


@pytest.fixture(scope="module")
def greedy(model):
    return np.asarray(jax.jit(jax.vmap(lambda source: greedy_decode(model, source, 8)))(SOURCES))


@pytest.fixture(scope="module")
def teacher_forced(model, greedy):
    return np.array(jax.jit(jax.vmap(model))(SOURCES, shift_right(jnp.asarray(greedy))))


class Scripted:
    """Says the words of its source, one a step: shows what decoding does without any weights."""

    def encode(self, source):
        return source

    def start(self, memory):
        return jnp.int32(0)

    def step(self, memory, state, token):
        return state + 1, jnp.log(0.1 + 100.0 * jax.nn.one_hot(memory[state], 9))


def test_the_reserved_tokens_are_the_tasks():
    assert (decoding.PADDING, decoding.BEGIN, decoding.END) == (vocabulary.PADDING, vocabulary.BEGIN, vocabulary.END)


def test_greedy_is_the_argmax_of_the_teacher_forced_logits_on_its_own_output(teacher_forced, greedy):
    assert len(np.unique(greedy, axis=0)) > 1
    logits = teacher_forced.copy()
    logits[..., [vocabulary.PADDING, vocabulary.BEGIN]] = -np.inf
    for wanted, tokens in zip(logits.argmax(axis=-1), greedy, strict=True):
        length = [*tokens, END].index(END) + 1
        np.testing.assert_array_equal(wanted[:length], tokens[:length])
        np.testing.assert_array_equal(tokens[length:], 0)


def test_a_sentence_alone_is_decoded_as_in_a_batch(model, greedy):
    alone = jax.jit(lambda source: greedy_decode(model, source, 8))
    np.testing.assert_array_equal(alone(SOURCES[0, :3]), greedy[0])


@pytest.mark.parametrize("decode", [greedy_decode, lambda *arguments: beam_search(*arguments, 2)[0]])
def test_after_the_end_there_is_padding_and_what_does_not_end_is_cut(decode):
    scripts = jnp.array([[5, 6, END, 7, 7, 7], [END, 5, 5, 5, 5, 5], [5, 6, 7, 8, 5, 6]])
    said = [[5, 6, END, 0, 0, 0], [END, 0, 0, 0, 0, 0], [5, 6, 7, 8, 5, 6]]
    np.testing.assert_array_equal(jax.vmap(lambda script: decode(Scripted(), script, 6))(scripts), said)


def test_padding_and_begin_are_never_said():
    class Mumbles(Scripted):
        def step(self, memory, state, token):
            return state, jnp.array([0.5, 0.3, -9.0, -9.0, 0.2])

    for tokens in (greedy_decode(Mumbles(), jnp.array([2]), 3), beam_search(Mumbles(), jnp.array([2]), 3, 2)[0]):
        np.testing.assert_array_equal(tokens, [4, 4, 4])


def test_decoding_ends_with_the_longest_sentence_of_a_batch():
    """And not after `max_length` steps: those would read past the end of the script, and say its last word again."""

    class Counting(Scripted):
        def step(self, memory, state, token):
            jax.debug.callback(lambda state: steps.append(int(state)), state)
            return super().step(memory, state, token)

    steps = []
    batch = jnp.array([[5, END, 0, 0], [5, 6, END, 0], [END, 0, 0, 0]])
    jax.block_until_ready(jax.jit(jax.vmap(lambda source: greedy_decode(Counting(), source, 100)))(batch))
    jax.effects_barrier()
    assert max(steps) == 2


def test_a_beam_of_one_is_greedy(model, greedy, teacher_forced):
    tokens, log_p = jax.jit(jax.vmap(lambda source: beam_search(model, source, 8, 1, 0.6)))(SOURCES)
    np.testing.assert_array_equal(tokens, greedy)
    steps = np.take_along_axis(log_softmax(teacher_forced, axis=-1), greedy[..., None], axis=-1)[..., 0]
    np.testing.assert_allclose(log_p, np.sum(steps, axis=1, where=greedy != 0), atol=1e-4)


def all_sentences():
    """Every row of up to LENGTH sayable words, ended or cut."""
    rows = {()}
    for _ in range(LENGTH):
        rows = {row if END in row else (*row, word) for row in rows for word in range(2, 6)}
    return np.array([row + (0,) * (LENGTH - len(row)) for row in sorted(rows)])


@pytest.fixture(scope="module")
def log_p_of_all(model):
    """ln p of all sentences, given each of the first two sources."""
    sentences = jnp.asarray(all_sentences())
    over_targets = jax.vmap(model, in_axes=(None, 0))
    logits = jax.jit(jax.vmap(over_targets, in_axes=(0, None)))(SOURCES[:2], shift_right(sentences))
    steps = np.take_along_axis(log_softmax(logits, axis=-1), np.asarray(sentences)[None, ..., None], axis=-1)[..., 0]
    return np.sum(steps, axis=-1, where=np.asarray(sentences) != 0)


@pytest.mark.parametrize("length_penalty", [0.0, 1.5])
def test_a_beam_wide_enough_finds_the_best_of_all_sentences(model, log_p_of_all, length_penalty):
    sentences = all_sentences()
    assert len(sentences) == 1 + 3 + 9 + 27 * 4
    best = np.argmax(log_p_of_all / ((5 + (sentences != 0).sum(axis=1)) / 6) ** length_penalty, axis=1)
    search = jax.vmap(lambda source: beam_search(model, source, LENGTH, len(sentences), length_penalty))
    tokens, log_p = jax.jit(search)(SOURCES[:2])
    np.testing.assert_array_equal(tokens, sentences[best])
    np.testing.assert_allclose(log_p, log_p_of_all[[0, 1], best], atol=1e-4)


def test_a_wider_beam_finds_what_greedy_misses():
    class Garden(Scripted):
        """The likelier first word, 4, leads to four words alike; after 5 the end is nearly certain."""

        def step(self, memory, state, token):
            first = jnp.array([0, 0, 0, 0, 0.6, 0.4, 0, 0])
            after_4, after_5 = (
                jnp.array([0, 0, 0, 0, 0.25, 0.25, 0.25, 0.25]),
                jnp.array([0, 0, 0.98, 0, 0.02, 0, 0, 0]),
            )
            probabilities = jnp.where(token == 1, first, jnp.where(token == 5, after_5, after_4))
            return state, jnp.log(probabilities + 1e-9)

    assert greedy_decode(Garden(), jnp.array([2]), 3)[0] == 4
    tokens, log_p = beam_search(Garden(), jnp.array([2]), 3, 2)
    np.testing.assert_array_equal(tokens, [5, END, 0])
    np.testing.assert_allclose(log_p, np.log(0.4 * 0.98), atol=1e-5)


def test_ln_p_of_logits_in_half_precision_is_a_sum_in_float32():
    class Half(Scripted):
        def step(self, memory, state, token):
            return state + 1, jnp.array([0.0, 0.0, -1.0, 0.5, 0.25], dtype=jnp.bfloat16)

    tokens, log_p = beam_search(Half(), jnp.array([2]), 40, 2, 1.0)
    np.testing.assert_array_equal(tokens, 3)
    assert log_p.dtype == jnp.float32
    np.testing.assert_allclose(log_p, 40 * log_softmax([0.0, 0.0, -1.0, 0.5, 0.25])[3], rtol=1e-5)


def test_a_beam_wider_than_all_sentences_finds_the_best_and_no_other():
    class Two(Scripted):
        """END and one word, as likely at every step."""

        def step(self, memory, state, token):
            return state + 1, jnp.array([-jnp.inf, -jnp.inf, 0.0, 0.0])

    for penalty, said in ((0.0, [END, 0, 0]), (9.0, [3, 3, END])):
        tokens, log_p = beam_search(Two(), jnp.array([2]), 3, 20, penalty)
        np.testing.assert_array_equal(tokens, said)
        np.testing.assert_allclose(log_p, np.sum(np.array(said) != 0) * np.log(0.5), rtol=1e-6)


def test_of_two_equals_the_one_that_has_ended_is_given_back():
    class Tie(Scripted):
        """4 and 5 are as likely; 5 is the whole sentence, and after 4 comes 6."""

        def step(self, memory, state, token):
            after = jnp.array([0, 5, END, END, 6, END, END])  # BEGIN apart
            certain = jax.nn.one_hot(after[token], 7)
            return state, jnp.log(jnp.where(token == 1, jnp.array([0, 0, 0, 0, 0.5, 0.5, 0]), certain))

    for length in (6, 2):  # over before `max_length`, and at it
        tokens, log_p = beam_search(Tie(), jnp.array([2]), length, 2)
        np.testing.assert_array_equal(tokens, [5, END] + [0] * (length - 2))
        np.testing.assert_allclose(log_p, np.log(0.5), atol=1e-6)


def test_with_the_largest_length_penalty_a_sentence_is_found_and_none_is_larger(model):
    largest = decoding.LARGEST_LOG_DIVISOR / np.log((5 + LENGTH) / 6)
    assert beam_search(model, SOURCES[0], LENGTH, 3, 0.99 * largest)[0][0] != 0
    for penalty in (1.01 * largest, np.inf):
        with pytest.raises(ValueError, match=rf"too large for max_length={LENGTH}: got {penalty}"):
            beam_search(model, SOURCES[0], LENGTH, 3, penalty)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda model, source: greedy_decode(model, source, 0), "max_length must be at least 1, got 0"),
        (lambda model, source: beam_search(model, source, 0, 1), "max_length must be at least 1, got 0"),
        (lambda model, source: beam_search(model, source, 3, 0), "beam_size must be at least 1, got 0"),
        (lambda model, source: beam_search(model, source, 3, 1, -0.5), "length_penalty must be at least 0, got -0.5"),
        (lambda model, source: greedy_decode(model, SOURCES, 3), r"one sentence.*got shape \(4, 4\)"),
    ],
)
def test_what_cannot_be_decoded_is_named(model, call, words):
    with pytest.raises(ValueError, match=words):
        call(model, SOURCES[0])
