"""Checks for the exercises of chapter 7."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from whyattention.attention import dot_product_attention
from whyattention.exercises.answers import given, judged

# Whether each statement of the last exercise is true.
TRUE = {"A": True, "B": False, "C": True, "D": False}


def check_attention(attention: Callable) -> None:
    """`attention(query [Q, d], key [K, d], value [K, v], mask [Q, K])` is softmax(Q K^T / sqrt(d)) V: `[Q, v]`.

    `mask` is True where a query may look; a query that may look nowhere gets zeros. Raises AssertionError with a hint
    if it is not so.
    """
    rng = np.random.default_rng(0)
    query, key, value = (jnp.asarray(rng.standard_normal(shape)) for shape in ((4, 9), (5, 9), (5, 3)))
    mask = jnp.asarray(rng.random((4, 5)) < 0.6).at[:, 0].set(True)
    answer = np.asarray(given(attention(query, key, value, mask)))
    scores = query @ key.T / 3

    def same_as(other):
        return answer.shape == other.shape and bool(np.allclose(answer, other, atol=1e-5))

    assert answer.shape == (4, 3), f"4 queries and values of 3 numbers give shape (4, 3), got {answer.shape}"
    assert not same_as(dot_product_attention(3 * query, key, value, mask)), (
        "the scores are not divided by sqrt(d), here by 3: see what that does to the softmax when d is large"
    )
    assert not same_as(dot_product_attention(query / 3, key, value, mask)), "divide by sqrt(d), not by d"
    assert not same_as(jax.nn.softmax(jnp.where(mask, scores, -1e9), axis=0) @ value), (
        "those weights sum to 1 over the queries; each query's weights must sum to 1 over the keys: the last axis"
    )
    assert not same_as(dot_product_attention(query, key, value)), "the mask is not used yet"
    weights_of_zero = jax.nn.softmax(jnp.where(mask, scores, 0.0), axis=1)
    assert not (same_as(weights_of_zero @ value) or same_as((mask * weights_of_zero) @ value)), (
        "a masked score of 0 still takes its share, exp(0) = 1; a very low score does not"
    )
    assert not same_as((mask * jax.nn.softmax(scores, axis=1)) @ value), (
        "masked after the softmax, the weights of what may be seen sum to less than 1: mask the scores, before it"
    )
    assert not same_as(dot_product_attention(query, key, value, ~mask)), "the mask is True where a query MAY look"
    right = dot_product_attention(query, key, value, mask)
    assert same_as(right), f"for the first query {np.round(right[0], 4)} was expected, got {np.round(answer[0], 4)}"
    empty = np.asarray(attention(query, key, value, mask.at[1].set(False)))[1]
    assert not np.any(np.isnan(empty)), (
        "a query that may look nowhere gets NaN, from -inf minus -inf or from 0 / 0; use a finite minimum"
    )
    assert np.allclose(empty, 0, atol=1e-6), (
        "a query that may look nowhere gets an average over all it was forbidden to see; it must get zeros"
    )
    print("Correct: scores, scaled and masked, softmax over the keys, mean of the values; and nothing from nowhere.")


def check_document_mask(document_mask: Callable) -> None:
    """`document_mask(documents [time])` is `[time, time]`, True where a query may look: own document, not the future.

    Raises AssertionError with a hint if it is not so.
    """
    documents = jnp.array([7, 7, 7, 2, 2, 5])
    answer = np.asarray(given(document_mask(documents)))
    assert answer.shape == (6, 6), f"6 tokens give a mask of shape (6, 6), got {answer.shape}"
    assert answer.dtype == bool, f"a mask is boolean, got {answer.dtype}"
    same, past = np.equal.outer(np.asarray(documents), np.asarray(documents)), np.tri(6, dtype=bool)
    assert not np.array_equal(answer, same), "within its document a query still sees the future"
    assert not np.array_equal(answer, past), "a query sees the document before its own"
    assert not np.array_equal(answer, same & past.T), "queries are the rows: this one looks at the future, not the past"
    assert not np.array_equal(answer, same & np.tri(6, k=-1, dtype=bool)), (
        "a query may see its own position too; here the first of each document may look nowhere"
    )
    assert np.array_equal(answer, same & past), "True is wanted where key and query share a document and key <= query"
    print("Correct: several texts in one row, and none knows of another or of its own future.")


def check_needed_gap(needed_gap: Callable) -> None:
    """`needed_gap(n, weight)`: how far one score must lie above n - 1 equal ones for the softmax to give it `weight`.

    Raises AssertionError with a hint if it is not so.
    """
    for n, weight in ((10, 0.9), (1000, 0.9), (1000, 0.3), (2, 0.5)):
        answer = float(given(needed_gap(n, weight)))
        right = np.log((n - 1) * weight / (1 - weight))
        if np.isclose(answer, right, atol=1e-6):
            continue
        assert not np.isclose(answer, np.exp(right)), "that is the ratio of the exponentials; the gap is its logarithm"
        assert not np.isclose(answer, -right), "the sign: the one score lies above the others"
        assert not np.isclose(answer, np.log(n * weight / (1 - weight))), (
            "one of the n is the score itself: there are n - 1 others"
        )
        assert not np.isclose(answer, right / np.log(2)), "the softmax is made with e: the natural logarithm"
        assert not np.isclose(answer, np.log(n - 1)), (
            "that gap gives a weight of one half, whatever weight is asked for"
        )
        raise AssertionError(f"for n = {n} and weight {weight} a gap of {right:.4f} was expected, got {answer:.4f}")
    print("Correct: it grows as the logarithm of n; a gap that is fixed is diluted.")


def check_look_up(look_up: Callable) -> None:
    """`look_up(x [time, vocabulary])`: what stood after the earlier occurrence of the last token, `[vocabulary]`.

    `x` holds one-hot rows: key, value, key, value, ..., key. Raises AssertionError with a hint if it is not so.
    """
    for seed in range(4):
        rng = np.random.default_rng(seed)
        keys, values = rng.permutation(6)[:4], 6 + rng.permutation(6)[:4]
        asked = rng.integers(1, 4)
        tokens = np.append(np.stack([keys, values], axis=1).ravel(), keys[asked])
        answer = np.asarray(given(look_up(jnp.eye(12)[tokens])))
        assert answer.shape == (12,), f"one row of weights over the 12 tokens is asked for, got shape {answer.shape}"
        assert np.all(np.isfinite(answer)), f"there are weights that are no numbers: {answer}"
        found = int(np.argmax(answer))
        assert found != keys[asked] or answer[found] < 0.5, (
            "that is the key itself: one layer finds where the key stands, and not what stands after it; "
            "compare the query with what stood BEFORE each position"
        )
        assert not (found == tokens[0] and np.isclose(answer[found], 0.5, atol=0.1)), (
            "position 0 has nothing before it, and was told that the last token stands there: no wrapping round"
        )
        before = {values[asked - 1], tokens[-2]} - {values[asked]}
        assert found not in before, "that is what stood before the key: the shift goes the wrong way"
        assert answer[found] > 0.9, (
            f"token {values[asked]} was expected with a weight above 0.9; the most there is is {answer[found]:.2f} "
            f"on token {found}: are the scores large enough for a sharp softmax?"
        )
        assert found == values[asked], f"after key {keys[asked]} stood token {values[asked]}; found was token {found}"
    print("Correct: the first layer says to each position what stood before it, the second looks for it.")


def check_promises(promises: dict[str, bool]) -> None:
    """`promises` says of each of the statements A to D whether it is true.

    Raises AssertionError with a hint if one is missing or wrong.
    """
    hints = {
        "A": "count the steps of full attention in the figure of paths",
        "B": "look at the height of full attention in the figure of gradients, and at dilution as n grows",
        "C": "without a mask, permute the input of the layer: what happened to its output?",
        "D": "what stands at the key's position in one layer: the value, or the key?",
    }
    judged(promises, TRUE, hints)
    print("Correct: the path is short; how much comes along it is another matter.")
