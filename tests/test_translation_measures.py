"""Measures of translations: BLEU is sacrebleu's, shares are counted by hand, what is empty has an answer."""

import jax
import numpy as np
import pytest
import sacrebleu
from drawn import model_like
from flax import nnx

from whyattention.decoding import beam_search, greedy_decode
from whyattention.measure.translation import (
    alignment_error_rate,
    attention_entropy,
    bleu,
    exact_match,
    hard_alignment,
    quality_by_length,
    tokens_right,
    translate,
)
from whyattention.seq2seq import Seq2Seq
from whyattention.tasks.vocabulary import END, Words, pad

SAID = ["the cat sat on the mat .", "le chat est noir", ""]
MEANT = ["the cat sat on a mat .", "le chat est noir", "deux mots"]

WORDS = Words(("a", "b", "c", "d", "e"))
TARGETS = pad([WORDS.encode(text.split()) for text in ("a b c d", "a b", "e d c b a", "c")])
SPOKEN = pad([WORDS.encode(text.split()) for text in ("a b c d", "a c b", "e d c a a", "")])


@pytest.fixture(scope="module")
def model():
    return model_like(lambda rngs: Seq2Seq(9, 9, 6, embed_features=6, attention=True, rngs=rngs))


def test_bleu_is_sacrebleu_s():
    ours = bleu(SAID, MEANT)
    assert ours.score == sacrebleu.corpus_bleu(SAID, [MEANT]).score > 10
    assert ours.signature.startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")


def test_bleu_of_nothing():
    assert bleu(["", ""], ["one word", "two"]).score == 0
    assert np.isnan(bleu([], []).score)
    assert bleu(["Il dort."], ["Il dort."]).score == 0  # three tokens, and no 4-gram


def test_bleu_of_arrays():
    assert bleu(np.array(SAID), np.array(MEANT)) == bleu(SAID, MEANT)
    assert np.isnan(bleu(np.array([]), np.array([])).score)


def test_the_same_is_a_match_and_only_the_same():
    np.testing.assert_array_equal(exact_match(SPOKEN, TARGETS), [True, False, False, False])
    cut = TARGETS[:, :4]  # without their ends, two are not what was asked for
    np.testing.assert_array_equal(exact_match(cut, TARGETS), [False, True, False, True])


def test_tokens_are_right_where_the_target_has_them():
    right, wanted = tokens_right(SPOKEN, TARGETS)
    np.testing.assert_array_equal(right, [5, 1, 5, 0])
    np.testing.assert_array_equal(wanted, [5, 3, 6, 2])


def test_a_report_by_length():
    report = quality_by_length(
        SPOKEN, TARGETS, [4, 2, 5, 1], [1, 4, 6, 9], lambda tokens: " ".join(WORDS.decode(tokens))
    )
    np.testing.assert_array_equal(report["shortest"], [1, 4, 6])
    np.testing.assert_array_equal(report["longest"], [3, 5, 8])
    np.testing.assert_array_equal(report["sentences"], [2, 2, 0])
    np.testing.assert_allclose(report["exact_match"], [0, 1 / 2, np.nan])
    np.testing.assert_allclose(report["token_accuracy"], [1 / 5, 10 / 11, np.nan])
    expected = [sacrebleu.corpus_bleu(said, [meant]).score for said, meant in (
        (["a c b", ""], ["a b", "c"]), (["a b c d", "e d c a a"], ["a b c d", "e d c b a"]))]  # fmt: skip
    np.testing.assert_allclose(report["bleu"], [*expected, np.nan])


@pytest.mark.parametrize(
    ("beam_size", "decode"), [(1, greedy_decode), (2, lambda *arguments: beam_search(*arguments, 2)[0])]
)
def test_translations_are_the_decoder_s_in_the_order_of_the_sources(model, beam_size, decode):
    sources = pad([[5, 6, 7, 8], [4], [8, 7], [], [5, 5, 5]])
    found = translate(model, sources, 6, beam_size=beam_size, at_once=2)
    expected = jax.jit(jax.vmap(lambda source: decode(model, source, 6)))(sources)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(translate(model, sources[::-1], 6, beam_size=beam_size, at_once=2), found[::-1])


def test_a_model_that_has_diverged_is_named(model):
    graphdef, state = nnx.split(model)
    diverged = nnx.merge(graphdef, jax.tree.map(lambda array: array.at[..., 0].set(np.inf), state))
    for beam_size in (1, 2):
        with pytest.raises(ValueError, match=r"parameter \['cell'\].* not finite"):
            translate(diverged, np.array([[4, END]]), 6, beam_size=beam_size)


def test_nothing_to_translate(model):
    assert translate(model, np.zeros((0, 4), int), 6).shape == (0, 6)


def test_a_word_the_model_has_no_number_for_is_named(model):
    with pytest.raises(ValueError, match="from 0 to 8, got 2 to 9"):
        translate(model, np.array([[9, END]]), 6)
    with pytest.raises(ValueError, match=r"\[sentences, time\], got shape \(2,\)"):
        translate(model, np.array([5, END]), 6)
    with pytest.raises(ValueError, match="at_once must be at least 1, got 0"):
        translate(model, np.array([[4, END]]), 6, at_once=0)


WEIGHTS = np.array([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8], [0.4, 0.4, 0.2], [0.0, 0.0, 0.0]])


def test_a_word_is_linked_to_what_it_looks_at_most():
    assert hard_alignment(WEIGHTS) == {(0, 0), (1, 2), (2, 0)}


def test_the_error_rate_counts_links_of_all_sentences_together():
    assert alignment_error_rate([WEIGHTS], [{(0, 0), (1, 2), (2, 0)}]) == 0
    assert alignment_error_rate([WEIGHTS], [{(0, 1), (1, 1)}]) == 1
    # 3 links found and 4 known of the first, 2 of them the same; 1 and 1 of the second, not the same.
    known = [{(0, 0), (1, 2), (2, 1), (3, 1)}, {(0, 1)}]
    assert alignment_error_rate([WEIGHTS, WEIGHTS[:1]], known) == pytest.approx(1 - 2 * 2 / 9)


def test_entropy_in_bits():
    np.testing.assert_allclose(attention_entropy([[1.0, 0, 0, 0], [0.25] * 4, [0.0] * 4]), [0, 2, 0], atol=1e-6)
    np.testing.assert_allclose(attention_entropy(WEIGHTS[:1]), -np.sum(WEIGHTS[0] * np.log2(WEIGHTS[0])), rtol=1e-5)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: bleu(["a"], []), "got 0 for 1"),
        (lambda: exact_match(TARGETS, TARGETS[:2]), r"got \(4, 6\) and \(2, 6\)"),
        (lambda: quality_by_length(SPOKEN, TARGETS, [1, 2, 3, 9], [1, 9], str), "from 1 to 8, got 9"),
        (lambda: quality_by_length(SPOKEN, TARGETS, [1, 2, 3, 4], [1, 1], str), r"must rise.*\[1, 1\]"),
        (lambda: quality_by_length(SPOKEN, TARGETS, [1, 2], [1, 9], str), "got 4 and 2 for 4"),
        (lambda: alignment_error_rate([WEIGHTS], []), "got 0 for 1"),
        (lambda: alignment_error_rate([WEIGHTS], [{(4, 0)}]), r"\[\(4, 0\)\].*shape \(4, 3\)"),
        (lambda: alignment_error_rate([], []), "without a link"),
        (lambda: hard_alignment([[0.5, np.nan]]), "NaN"),
        (lambda: alignment_error_rate([WEIGHTS, WEIGHTS * np.nan], [{(0, 0)}, set()]), "NaN"),
    ],
)
def test_what_does_not_fit_is_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()
