"""Checks for the exercises of chapter 9."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from whyattention.exercises.answers import given
from whyattention.measure.attention_cost import cache_bytes, layer_flops, needed_parallelism
from whyattention.measure.cost import WorkSpan


def _near(answer, expected) -> bool:
    return bool(np.allclose(np.asarray(answer, float), expected, rtol=1e-3))


def check_doubling(doubling: Callable) -> None:
    """`doubling(length, width)`: how much dearer a Transformer layer gets, forward, when its length is doubled.

    Raises AssertionError with a hint if it is not.
    """
    for length, width in ((512, 512), (4096, 64), (128, 4096)):
        answer = float(given(doubling(length, width)))
        once, twice = layer_flops(width, length), layer_flops(width, 2 * length)
        expected = sum(twice.values()) / sum(once.values())
        pairs = 4 * once["pairs"] / sum(once.values())
        projections = (twice["projections"] + twice["pairs"]) / (once["projections"] + once["pairs"])
        assert not _near(answer, 4), (
            "4 is the ratio of the pairs alone; the products that are linear in length count too"
        )
        assert not _near(answer, expected / 2), "that is the ratio per token; twice as many tokens pay it"
        assert not _near(answer, projections), "that leaves out the feed-forward network, 16 n d^2"
        assert not _near(answer, pairs), "the linear part grows as well: it is twice as large at 2 n"
        assert _near(answer, expected), (
            f"at n = {length}, d = {width} it is {expected:.3f}, not {answer:.3f}: write 24 n d^2 + 4 n^2 d at 2 n and "
            "at n, and divide"
        )
    print("Correct: from 2 where the sequence is short for its width, towards 4 where it is long.")


def check_merge(merge: Callable) -> None:
    """`merge(left, right)`: what was seen of two sets of keys, from what was seen of each.

    Each is (largest score, sum of exp(score - largest), sum of exp(score - largest) * value), for one query.
    Raises AssertionError with a hint if it is not.
    """

    def seen(scores, values):
        largest = scores.max()
        weights = jnp.exp(scores - largest)
        return largest, weights.sum(), weights @ values

    keys = jax.random.split(jax.random.key(0), 2)
    scores, values = 3 * jax.random.normal(keys[0], (12,)), jax.random.normal(keys[1], (12, 2))
    cases = [(scores, 0.0), (jnp.sort(scores), 0.0), (jnp.sort(scores)[::-1], 0.0), (scores, 300.0)]
    for scores, shift in cases:
        scores = scores + shift
        answer = given(merge(seen(scores[:5], values[:5]), seen(scores[5:], values[5:])))
        assert isinstance(answer, tuple | list) and len(answer) == 3, "hand back three things: largest, total, mixed"
        expected = seen(scores, values)
        assert np.all(np.isfinite(np.concatenate([np.ravel(part) for part in answer]))), (
            f"with scores around {shift:g} the result is not finite: scale by exp(largest - new largest), never above "
            "1, instead of by exp(largest)"
        )
        assert _near(answer[0], expected[0]), "the first is the largest score of both, so the larger of the two"
        plain = sum(seen(scores[part], values[part])[1] for part in (slice(5), slice(5, None)))
        assert not _near(answer[1], plain) or _near(plain, expected[1]), (
            "the two sums are relative to different largest scores; bring both to the new one before adding"
        )
        assert _near(answer[1], expected[1]), (
            f"the total is {float(expected[1]):.4f} here, not {float(answer[1]):.4f}: multiply each side by "
            "exp(its largest - the new largest)"
        )
        assert np.allclose(answer[2], expected[2], rtol=1e-3, atol=1e-5), (
            "largest and total are right; the mixed values must be scaled by the same factors, and not be divided yet"
        )
    print("Correct: and because merging is associative, the keys can be read in any grouping, even on several devices.")


def check_cache(bytes_needed: Callable) -> None:
    """`bytes_needed(tokens, layers, heads, kv_heads, head_features)`: bytes of a cache of 16-bit numbers, one sequence.

    Raises AssertionError with a hint if it is not.
    """
    for tokens, layers, heads, kv_heads, head_features in ((4096, 32, 32, 32, 128), (1000, 32, 32, 8, 128)):
        answer = float(given(bytes_needed(tokens, layers, heads, kv_heads, head_features)))
        expected = cache_bytes(tokens, layers=layers, kv_heads=kv_heads, head_features=head_features)
        assert answer != expected / 2, "keys and values are both kept; or is a number of 16 bits counted as one byte?"
        assert answer != expected / 4, "keys and values are both kept, and a number of 16 bits is two bytes"
        assert answer != expected * 2, "a number of 16 bits is two bytes, not four"
        assert answer != expected / layers, "every layer has its own keys and values"
        assert answer != expected / tokens, "that is the cache of one token"
        assert kv_heads == heads or answer != expected * heads / kv_heads, (
            "only kv_heads heads keep keys and values; the queries that share them are not kept"
        )
        assert answer == expected, (
            f"{tokens} tokens, {layers} layers, {kv_heads} heads of {head_features} that keep keys and values, 2 bytes "
            f"each: {expected} bytes, not {answer:.0f}"
        )
    print("Correct: for the first of these models 2 GiB, for one sequence of 4096 tokens.")


def check_machine(machine: Callable) -> None:
    """`machine(recurrence, attention, factor)`: the alpha * beta at which the recurrence takes `factor` times as long.

    Both programs are given as (work, span). Raises AssertionError with a hint if it is not.
    """
    for recurrence, attention, factor in (
        (WorkSpan(10**9, 2000), WorkSpan(2 * 10**9, 100), 5),
        (WorkSpan(10**9, 2000), WorkSpan(2 * 10**9, 100), 10),
        (WorkSpan(10**8, 5000), WorkSpan(3 * 10**8, 50), 7),
    ):
        pairs = ((cost.work, cost.span) for cost in (recurrence, attention))
        answer = float(given(machine(*pairs, factor)))
        expected = needed_parallelism(recurrence, attention, factor)
        at_once = (factor * attention.work - recurrence.work) / recurrence.span
        assert not _near(answer, -expected), "the right number with the wrong sign: which side did the spans go to?"
        assert not _near(answer, 1 / expected), "upside down: work over span"
        assert not _near(answer, at_once), "attention has a span too, and it counts `factor` times"
        assert not _near(answer, needed_parallelism(recurrence, attention, 1)), "that is where the two are equally fast"
        assert _near(answer, expected), (
            f"expected {expected:,.0f}, got {answer:,.0f}: write work + alpha beta * span for both, set the first to "
            f"{factor} times the second, and solve for alpha beta"
        )
    print("Correct: a device must be that wide before the sentence is true, and at this batch.")
