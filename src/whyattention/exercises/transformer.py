"""Checks for the exercises of chapter 8."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from whyattention.exercises.answers import given, judged

# Whether each statement of the last exercise is true of a Transformer that translates.
TRUTHS = {"A": True, "B": False, "C": False, "D": True}


def check_add_norm(add_norm: Callable) -> None:
    """`add_norm(x [T, D], sublayer, norm, place)`: a sublayer with its residual and norm, `place` "pre" or "post".

    Raises AssertionError with a hint if either is not what the name says.
    """
    x, matrix = jnp.asarray(np.random.default_rng(0).standard_normal((2, 4, 4)))

    def sublayer(x):  # and not 2 x + 1, say: its norm is that of x
        return jnp.tanh(x @ matrix)

    def norm(x):
        return (x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True)

    right = {"pre": x + sublayer(norm(x)), "post": norm(x + sublayer(x))}
    answer = {place: np.asarray(given(add_norm(x, sublayer, norm, place))) for place in right}

    def same(place, other):
        return answer[place].shape == other.shape and bool(np.allclose(answer[place], other, atol=1e-4))

    assert not (same("pre", right["post"]) and same("post", right["pre"])), "the two names are exchanged"
    assert not same("pre", norm(x) + sublayer(norm(x))), (
        "the residual carries x as it is; normed, it would be no free path from the last layer to the first"
    )
    assert not same("post", x + norm(sublayer(x))), "post-norm is the norm of the sum, and the sum includes x"
    assert not any(same(place, other) for place in answer for other in (sublayer(norm(x)), norm(sublayer(x)))), (
        "the residual is missing: x + ..."
    )
    assert not any(same(place, x + sublayer(x)) for place in answer), "the norm is missing"
    assert not same("pre", x + norm(sublayer(x))), "pre-norm is of what the sublayer gets, not of what it gives"
    assert answer["pre"].shape != answer["post"].shape or not np.allclose(*answer.values(), atol=1e-4), (
        "both places give the same: is `place` looked at?"
    )
    for place, wanted in right.items():
        assert same(place, wanted), f"{place}-norm is not yet right; at x = {np.round(x[0], 2)} expected {wanted[0]}"
    print("Correct: one sum, and two places for the norm.")


def check_rate(rate: Callable) -> None:
    """`rate(n, features, warmup)` at update n = 1, 2, ... is Vaswani et al. (2017), equation 3.

    Raises AssertionError with a hint if it is not.
    """
    updates, features, warmup = np.array([1, 10, 100, 400, 1600]), 64, 100
    answer = np.array([float(given(rate(int(n), features, warmup))) for n in updates])
    right = features**-0.5 * np.minimum(updates**-0.5, updates * warmup**-1.5)
    assert np.all(np.isfinite(answer)), f"at n = 1 the rate is {answer[0]}"
    assert not np.allclose(answer, features**-0.5 * np.maximum(updates**-0.5, updates * warmup**-1.5), rtol=1e-3), (
        "the smaller of the two holds: the line while it is below, and then the root"
    )
    assert not np.allclose(answer, right * features**0.5, rtol=1e-3), "a wider model learns more slowly: features^-0.5"
    assert not np.allclose(answer, features**-0.5 * updates**-0.5, rtol=1e-3), "the warm-up is missing: n warmup^-1.5"
    assert np.isclose(answer[2] / answer[1], 10, rtol=1e-3), "up to n = warmup the rate rises in a straight line"
    assert np.isclose(answer[3] / answer[4], 2, rtol=1e-3), "after it, four times the updates halve the rate"
    assert np.allclose(answer, right, rtol=1e-3), f"expected {right}, got {answer}"
    print(f"Correct: the greatest rate is (features x warmup)^-0.5, here {right[2]:.4f}, at n = warmup.")


def check_smoothed_loss(smoothed_loss: Callable) -> None:
    """`smoothed_loss(logits [V], target, share)`: cross-entropy with `share` of what is wanted spread over all V words.

    Raises AssertionError with a hint if it is not.
    """
    logits, target, share = jnp.array([2.0, -1.0, 0.5, 0.0]), 1, 0.2
    answer = np.asarray(given(smoothed_loss(logits, target, share)), dtype=float)
    log_p = np.asarray(jax.nn.log_softmax(logits), dtype=float)
    others = np.delete(log_p, target)

    def same(other):
        return answer.shape == () and bool(np.isclose(answer, other, atol=1e-4))

    right = -((1 - share) * log_p[target] + share * log_p.mean())
    assert answer.shape == (), f"the loss of one word is one number, got shape {answer.shape}"
    assert not same(-log_p[target]), "nothing is smoothed yet: that is the loss for share = 0"
    assert not same(-right), "a loss falls when the right word becomes more probable: the sign"
    assert not same(-((1 - share) * log_p[target] + share * log_p.sum())), (
        "each word gets share / V of the wish, not all of share: what is wanted must sum to 1"
    )
    assert not same(-((1 - share) * log_p[target] + share * others.mean())), (
        "that spreads the share over the *other* words; the paper's, and optax's, is spread over all, the right one too"
    )
    assert not same(-((1 - share) * log_p[target] + share * others.sum() / len(logits))), (
        "the right word gets its share / V as well, on top of 1 - share: what is wanted must sum to 1"
    )
    assert not same(-((1 - share) * logits[target] + share * logits.mean())), "logits are not yet ln p: log_softmax"
    assert same(right), f"expected {right:.4f}, got {answer}"
    least = float(smoothed_loss(jnp.array([0.0, 50.0, 0.0, 0.0]), 1, share))
    assert least > float(smoothed_loss(jnp.log(jnp.array([0.05, 0.85, 0.05, 0.05])), 1, share)), (
        "with smoothing, certainty must cost more than 0.85 for the right word and 0.05 for each other"
    )
    print("Correct: the best is no longer to be certain, but to leave each word its share.")


def check_cached(cached: Callable) -> None:
    """`cached(x [T, D], query, key, value)`: causal attention, row by row, from keys and values computed once each.

    The three are functions of one row `[D]`; how often they run is counted, also inside `scan`, `vmap` and `jit`.
    Raises AssertionError with a hint if the result is not that of causal attention, or if anything is computed again.
    """
    rng = np.random.default_rng(0)
    x, *matrices = (jnp.asarray(rng.standard_normal(shape)) for shape in ((5, 4), (4, 4), (4, 4), (4, 4)))
    names, runs = ("query", "key", "value"), []

    def counted(name, matrix):
        def project(row):
            assert np.shape(row) == (4,), f"{name} takes one row [D] at a time, got shape {np.shape(row)}"
            jax.debug.callback(lambda row: runs.append(name), row)  # for each row; a loop is traced once for all
            return row @ matrix

        return project

    answer = np.asarray(given(cached(x, *(counted(*pair) for pair in zip(names, matrices, strict=True)))))
    jax.effects_barrier()  # until all have been counted
    calls = {name: runs.count(name) for name in names}
    query, key, value = (x @ matrix for matrix in matrices)
    scores, past = query @ key.T / 2.0, np.tri(5, dtype=bool)
    right = jax.nn.softmax(jnp.where(past, scores, -jnp.inf)) @ value
    empty = jnp.where(past, jax.nn.softmax(jnp.where(past, scores, 0.0)), 0.0) @ value
    assert answer.shape == (5, 4), f"a row for each of 5 words, [5, 4]; got shape {answer.shape}"
    assert not np.allclose(answer, empty, atol=1e-4), (
        "the places of the cache that are still empty have scores of 0, and so take a share: mask them"
    )
    assert not np.allclose(answer, jax.nn.softmax(scores) @ value, atol=1e-4), "a word has looked at later ones"
    assert np.allclose(answer[0], value[0], atol=1e-4), (
        "the first word can only look at itself: its own key and value go into the cache before it looks"
    )
    assert not np.allclose(answer, jax.nn.softmax(jnp.where(past, 2 * scores, -jnp.inf)) @ value), (
        "the scores are not divided by the square root of D"
    )
    assert np.allclose(answer, right, atol=1e-4), f"not yet causal attention; expected, for the last row, {right[-1]}"
    assert set(calls.values()) == {5}, f"5 words need 5 queries, keys and values each; computed were {calls}"
    print("Correct: every key and value was computed once, and is kept for all words to come.")


def check_truths(truths: dict[str, bool]) -> None:
    """`truths` says of each of the statements A to D whether it is true. Raises AssertionError with a hint if not."""
    hints = {
        "A": "in training all words of the target are known; which array holds what is not yet allowed to be seen?",
        "B": "word i + 1 is looked up in the embedding; where does its number come from?",
        "C": "what else is in a layer? See the measured share of attention",
        "D": "no positions: swap two words of the source and follow keys, values and their weighted mean",
    }
    judged(truths, TRUTHS, hints)
    print("Correct: parallel in training, serial in speech, and not attention alone.")
