"""Checks for the exercises of chapter 5."""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np

from whyattention.exercises.answers import given
from whyattention.tasks.translation import shift_right as told
from whyattention.tasks.vocabulary import BEGIN, END, PADDING, pad

# The last sentence fills its row, the one before it is empty.
SENTENCES = pad([[7, 8, 9], [5], [], [4, 6, 5, 9, 8]])
ENDS = np.argmax(SENTENCES == END, axis=1)


def _rows(answer, expected) -> np.ndarray:
    answer = np.asarray(given(answer))
    assert answer.shape == expected.shape, f"expected an array of shape {expected.shape}, got {answer.shape}"
    return answer


def _require_same_rows(answer, expected) -> None:
    wrong = np.flatnonzero(np.any(answer != expected, axis=1))
    assert not wrong.size, (
        f"for {SENTENCES[wrong[0]].tolist()} {expected[wrong[0]].tolist()} was expected, "
        f"got {answer[wrong[0]].tolist()}"
    )


def check_shift_right(shift_right: Callable) -> None:
    """`shift_right(target [pairs, T])` is what a decoder reads while it says `target`: BEGIN, and all but the last.

    Raises AssertionError with a hint if it is not.
    """
    target, expected = jnp.asarray(SENTENCES), np.asarray(told(SENTENCES))
    answer = given(shift_right(target))
    assert np.shape(answer) != (target.shape[0], target.shape[1] + 1), (
        "one token too many: the last of each row is never read, since nothing is said after it"
    )
    answer = _rows(answer, expected)
    assert not np.array_equal(answer, target), (
        "the target itself: a decoder that reads the word it is to say learns to copy it, and nothing else"
    )
    assert not np.array_equal(answer[:, :-1], target[:, 1:]), (
        "shifted the wrong way: the decoder would read the word after the one it is to say"
    )
    assert not np.array_equal(answer[1:], target[:-1]), "the sentences were shifted, not their words: time is axis 1"
    assert np.all(answer[:, 0] == BEGIN), f"every row begins with BEGIN ({BEGIN}); got {answer[:, 0].tolist()}"
    kept = expected == END
    assert np.all(answer[kept] == END), (
        "an END is lost: it moves one place to the right as every token does, where padding follows it"
    )
    _require_same_rows(answer, expected)
    print("Correct: at every position the decoder knows all words before the one it is to say, and not that one.")


def check_last_state(last_state: Callable) -> None:
    """`last_state(states [pairs, time, hidden], tokens [pairs, time])` is each row's state after its END.

    Raises AssertionError with a hint if it is not.
    """
    pairs, time = SENTENCES.shape
    states = np.random.default_rng(0).normal(size=(pairs, time, 3)).astype(np.float32)
    rows = np.arange(pairs)
    expected = states[rows, ENDS]
    answer = _rows(last_state(jnp.asarray(states), jnp.asarray(SENTENCES)), expected)

    def same_as(other):
        return bool(np.allclose(answer, other, atol=1e-5))

    assert not same_as(states[:, -1]), (
        "that is the state at the end of the row: for all but the longest sentence it has read padding"
    )
    assert not same_as(states[rows, ENDS - 1]), "one too early: END is a real token, and an empty sentence has no other"
    assert not same_as(states[rows, np.minimum(ENDS + 1, time - 1)]), (
        "one too late: with n real tokens, counted from 0, the last is at n - 1"
    )
    real = (SENTENCES != PADDING)[..., None]
    assert not same_as(np.sum(states * real, axis=1) / np.sum(real, axis=1)), (
        "that is the mean over all real tokens; one state is asked for, the last"
    )
    wrong = np.flatnonzero(~np.all(np.isclose(answer, expected, atol=1e-5), axis=1))
    assert not wrong.size, (
        f"for {SENTENCES[wrong[0]].tolist()} the state after token {ENDS[wrong[0]]}, counted from 0, was expected"
    )
    print("Correct: the summary is the same however long the longest sentence of the batch is.")


def check_reverse_words(reverse_words: Callable) -> None:
    """`reverse_words(source [pairs, S])` has the words of each row from last to first, END and padding in place.

    Raises AssertionError with a hint if it is not so.
    """
    expected = SENTENCES.copy()
    for row, end in zip(expected, ENDS, strict=True):
        row[:end] = row[:end][::-1]
    answer = _rows(reverse_words(jnp.asarray(SENTENCES)), expected)
    assert not np.array_equal(answer, SENTENCES), "that is the source as it was"
    assert not np.array_equal(answer, SENTENCES[:, ::-1]), (
        "the padding was reversed along with the words: a short sentence would begin with a row of it"
    )
    assert not np.array_equal(answer, SENTENCES[::-1]), "the sentences were reversed, not their words: time is axis 1"
    with_end = SENTENCES.copy()
    for row, end in zip(with_end, ENDS, strict=True):
        row[: end + 1] = row[: end + 1][::-1]
    assert not np.array_equal(answer, with_end), "END was reversed along with the words; it stays behind the last one"
    _require_same_rows(answer, expected)
    print("Correct: the first word is now the last one read, whatever the padding.")


def check_symbols_that_fit(symbols_that_fit: Callable) -> None:
    """`symbols_that_fit(units, bits_per_unit, alphabet)` is how many symbols a state of so many units can hold at most.

    Raises AssertionError with a hint if it is not.
    """
    cases = [(16, 2.0, 8), (64, 1.5, 30_000), (1000, 0.3, 5), (3, 0.5, 2)]
    answers = [np.asarray(given(symbols_that_fit(*case)), dtype=float) for case in cases]
    assert all(answer.size == 1 for answer in answers), f"one number is asked for; got shape {answers[0].shape}"
    answers = np.array([answer.item() for answer in answers])
    units, bits, alphabet = np.array(cases).T
    held = units * bits

    def same_as(other):
        return bool(np.allclose(answers, other, atol=1e-3))

    assert not same_as(held / np.log2(alphabet)), "a part of a symbol is no symbol: round down"
    assert not (same_as(held / np.log(alphabet)) or same_as(held // np.log(alphabet))), (
        "a symbol costs log2(K) bits; with the natural logarithm it is nats"
    )
    assert not (same_as(held / alphabet) or same_as(held // alphabet)), (
        "a symbol out of K does not cost K bits: how many yes-or-no questions single it out?"
    )
    assert not (same_as(units / np.log2(alphabet)) or same_as(units // np.log2(alphabet))), (
        "that is one bit a unit; `bits_per_unit` is missing"
    )
    for case, answer, expected in zip(cases, answers, held // np.log2(alphabet), strict=True):
        assert answer == expected, f"for {case} {expected:.0f} symbols were expected, got {answer:g}"
    # Where they fit exactly one may be lost to rounding, if log2(K) comes out a little too large; but not in all cases.
    exact = {(4, 0.5, 2): 2, (6, 1.0, 8): 2, (16, 2.0, 16): 8}
    assert any(symbols_that_fit(*case) == fitting for case, fitting in exact.items()), (
        "where the symbols fit exactly, the last of them fits as well: round down, and take nothing off"
    )
    print("Correct: a ceiling that no training can lift, and that none comes near.")


def check_mean_loss(mean_loss: Callable) -> None:
    """`mean_loss(losses, masks)` is the loss per real token over several micro-batches, as if they were one batch.

    Both are lists of arrays `[pairs, T]`, with another shape for each micro-batch. Raises AssertionError with a hint
    if it is not.
    """
    rng = np.random.default_rng(0)
    lengths = [(2, 9, 4), (1, 3)]  # of the sentences of two micro-batches
    losses = [rng.uniform(1, 2, size=(len(batch), max(batch))) * len(batch) for batch in lengths]
    masks = [np.arange(max(batch)) < np.array(batch)[:, None] for batch in lengths]
    answer = np.asarray(given(mean_loss([jnp.asarray(loss) for loss in losses], [jnp.asarray(mask) for mask in masks])))
    assert answer.shape == (), f"one number is asked for; got shape {answer.shape}"
    sums = [np.sum(loss, where=mask) for loss, mask in zip(losses, masks, strict=True)]
    counts = [np.sum(mask) for mask in masks]

    def same_as(other):
        return bool(np.isclose(answer, other, atol=1e-4))

    assert not same_as(np.mean(np.divide(sums, counts))), (
        "the mean of two means: it lets a token of the small micro-batch count for more than one of the large"
    )
    assert not same_as(sum(sums)), "that is the sum; how many real tokens was it over?"
    assert not same_as(sum(sums) / sum(mask.size for mask in masks)), (
        "padding was counted: a batch with one long sentence would seem to have a small loss"
    )
    assert not same_as(np.sum(np.concatenate([loss.ravel() for loss in losses])) / sum(counts)), (
        "the losses at padding were added in: multiply by the mask, or sum with where=mask"
    )
    by_sentence = [
        np.sum(loss, where=mask, axis=1) / mask.sum(axis=1) for loss, mask in zip(losses, masks, strict=True)
    ]
    assert not same_as(np.mean(np.concatenate(by_sentence))), (
        "the mean over sentences: it lets a word of a short sentence count for more than one of a long one"
    )
    assert same_as(sum(sums) / sum(counts)), (
        f"for the test case {sum(sums) / sum(counts):.4f} was expected, got {float(answer):.4f}: "
        "all sums, then all counts, then one division"
    )
    print("Correct: it makes no difference how the sentences were dealt out.")
