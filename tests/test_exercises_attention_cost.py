"""The checks of chapter 9 accept what is right and send back what is wrong with a hint that fits."""

import jax.numpy as jnp
from exercise_cases import accepts, refuses

from whyattention.exercises.attention_cost import check_cache, check_doubling, check_machine, check_merge


def doubling(n, d, linear=24):
    return (2 * linear * n * d**2 + 16 * n**2 * d) / (linear * n * d**2 + 4 * n**2 * d)


def merge(left, right, scale=True, mix=True):
    largest = jnp.maximum(left[0], right[0])
    factors = [jnp.exp(side[0] - largest) if scale else 1.0 for side in (left, right)]
    total, mixed = (sum(factor * side[i] for factor, side in zip(factors, (left, right), strict=True)) for i in (1, 2))
    return largest, total, mixed if mix else mixed / total


def merge_from_zero(left, right):
    largest = jnp.maximum(left[0], right[0])
    total, mixed = (sum(jnp.exp(side[0]) * side[i] for side in (left, right)) / jnp.exp(largest) for i in (1, 2))
    return largest, total, mixed


def cache(tokens, layers, heads, kv_heads, head_features):
    return 2 * tokens * layers * kv_heads * head_features * 2


def machine(recurrence, attention, factor):
    return (factor * attention[0] - recurrence[0]) / (recurrence[1] - factor * attention[1])


RIGHT = [
    (check_doubling, doubling),
    (check_merge, merge),
    (check_merge, lambda left, right: merge(right, left)),
    (check_cache, cache),
    (check_machine, machine),
]

WRONG = [
    (check_doubling, lambda n, d: 4, "pairs alone"),
    (check_doubling, lambda n, d: doubling(n, d) / 2, "per token"),
    (check_doubling, lambda n, d: doubling(n, d, linear=8), "feed-forward"),
    (check_doubling, lambda n, d: 16 * n / (24 * d + 4 * n), "linear part"),
    (check_doubling, lambda n, d: 3.0, "and divide"),
    (check_doubling, lambda n, d: None, "is the return missing"),
    (check_merge, lambda left, right: None, "is the return missing"),
    (check_merge, lambda left, right: left[1:], "three things"),
    (check_merge, lambda left, right: (left[0], *merge(left, right)[1:]), "larger of the two"),
    (check_merge, lambda *sides: merge(*sides, scale=False), "bring both to the new one"),
    (check_merge, lambda left, right: (merge(left, right)[0], left[1], left[2]), "multiply each side"),
    (check_merge, lambda *sides: merge(*sides, mix=False), "not be divided yet"),
    (check_merge, merge_from_zero, "not finite"),
    (check_cache, lambda *a: cache(*a) / 2, "keys and values are both kept"),
    (check_cache, lambda *a: cache(*a) / 4, "two bytes"),
    (check_cache, lambda *a: cache(*a) * 2, "not four"),
    (check_cache, lambda t, layers, *a: cache(t, 1, *a), "every layer"),
    (check_cache, lambda t, *a: cache(1, *a), "one token"),
    (check_cache, lambda t, layers, h, kv, f: cache(t, layers, h, h, f), "only kv_heads"),
    (check_cache, lambda *a: 7, "not 7"),
    (check_cache, lambda *a: None, "is the return missing"),
    (check_machine, lambda *a: -machine(*a), "wrong sign"),
    (check_machine, lambda *a: 1 / machine(*a), "upside down"),
    (check_machine, lambda r, a, f: (f * a[0] - r[0]) / r[1], "a span too"),
    (check_machine, lambda r, a, f: machine(r, a, 1), "equally fast"),
    (check_machine, lambda *a: 12345.0, "solve for alpha beta"),
    (check_machine, lambda *a: None, "is the return missing"),
]


test_right_answers_pass = accepts(RIGHT)
test_wrong_answers_get_a_hint = refuses(WRONG)
