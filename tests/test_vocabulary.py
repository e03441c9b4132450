"""Vocabularies: what is encoded comes back, what is unknown is said so, and padding is no word."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whyattention.tasks.vocabulary import BEGIN, END, PADDING, RESERVED, UNKNOWN, Subwords, Words, pad

SENTENCES = [["the", "cat", "sees", "the", "dog"], ["the", "dog", "sleeps"]]
TEXTS = ["Le chat dort.", "Le chien dort, et l'eau dort aussi.", "Où est l'été ?"] * 5


def test_the_most_frequent_words_come_first_and_equals_by_alphabet():
    words = Words.of(SENTENCES)
    assert words.words == ("the", "dog", "cat", "sees", "sleeps") and words.size == 9
    assert Words.of(reversed(SENTENCES)) == words
    assert Words.of(SENTENCES, size=6).words == ("the", "dog") and Words.of(SENTENCES, size=6).size == 6


def test_words_come_back_and_an_unknown_one_is_marked():
    words = Words.of(SENTENCES, size=7)
    tokens = words.encode(["the", "cat", "barks"])
    assert tokens == [4, 6, UNKNOWN]
    assert words.decode(tokens) == ["the", "cat", "<unknown>"]
    assert words.encode([]) == [] == words.decode([])


@pytest.mark.parametrize("kind", ["words", "subwords"])
def test_decoding_stops_at_the_end_and_skips_what_is_no_word(kind):
    if kind == "words":
        vocabulary, said = Words.of(SENTENCES), ["the", "dog"]
    else:
        vocabulary, said = Subwords.of(TEXTS, 300), "Le chat"
    tokens = vocabulary.encode(said)
    row = np.array([BEGIN, PADDING, *tokens, END, *tokens, PADDING], dtype=np.int32)
    assert vocabulary.decode(row) == said


def test_words_that_cannot_be_are_named():
    with pytest.raises(ValueError, match="'a'"):
        Words(("a", "b", "a"))
    with pytest.raises(ValueError, match="above 4"):
        Words.of(SENTENCES, size=4)
    with pytest.raises(TypeError, match="'the cat'"):
        Words.of(SENTENCES).encode("the cat")
    with pytest.raises(TypeError, match="'the cat'"):
        Words.of([["the", "dog"], "the cat"])


@pytest.mark.parametrize("token", [-1, 9])
def test_a_token_that_has_no_word_is_named(token):
    words = Words.of(SENTENCES)
    with pytest.raises(ValueError, match=f"from 0 to 8, got {token}"):
        words.decode([4, token])
    assert words.decode([4, END, token]) == ["the"]  # nothing is read after the end


SUBWORDS = Subwords.of(TEXTS, 300)


@given(st.text(max_size=30) | st.sampled_from(["<end>", "x<padding> y", " two  spaces ", "l'été\n", "注意"]))
def test_any_text_comes_back_from_its_subwords(text):
    tokens = SUBWORDS.encode(text)
    assert SUBWORDS.decode(tokens) == text
    assert all(len(RESERVED) <= token < SUBWORDS.size for token in tokens)


def test_a_frequent_word_is_one_subword():
    assert SUBWORDS.size <= 300
    assert len(SUBWORDS.encode("Le chat dort.")) < 6 < len(SUBWORDS.encode("Xyzzyxyzzy"))


def test_subwords_are_the_same_in_another_process():
    code = "from test_vocabulary import SUBWORDS, TEXTS; print([SUBWORDS.encode(text) for text in TEXTS])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=__file__.rpartition("/")[0])
    assert done.stdout.strip() == str([SUBWORDS.encode(text) for text in TEXTS]), done.stderr


def test_too_few_subwords_are_refused():
    with pytest.raises(ValueError, match="at least 260, got 259"):
        Subwords.of(TEXTS, 259)


def test_padding_follows_the_end():
    rows = pad([[5, 6], [], [7]])
    np.testing.assert_array_equal(rows, [[5, 6, END], [END, 0, 0], [7, END, 0]])
    assert rows.dtype == np.int32
    np.testing.assert_array_equal(pad([[5]], length=4), [[5, END, 0, 0]])
    assert pad([]).shape == (0, 1)


def test_a_sequence_that_does_not_fit_is_named():
    assert pad([[5, 6]], length=3).shape == (1, 3)
    with pytest.raises(ValueError, match="sequence 1 has 3 tokens and END, which is more than 3"):
        pad([[5, 6], [5, 6, 7]], length=3)
