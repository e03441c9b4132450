"""The checks of chapter 10 accept what is right and send back what is wrong with a hint that fits."""

import jax.numpy as jnp
import numpy as np
from exercise_cases import accepts, refuses

from whyattention.exercises.parallel import (
    PARALLEL_TRUTHS,
    check_combine,
    check_most_pairs,
    check_parallel,
    check_parity,
)


def join(first, second):
    return second[0] * first[0], second[0] * first[1] + second[1]


def most_pairs(numbers, bits, values):
    return int(numbers * bits / np.log2(values))


def judge(letter):
    return {**PARALLEL_TRUTHS, letter: not PARALLEL_TRUTHS[letter]}


RIGHT = [
    (check_combine, join),
    (check_parity, lambda bits: (1 - 2 * bits, bits)),
    (check_most_pairs, most_pairs),
    (check_parallel, dict(PARALLEL_TRUTHS)),
]

WRONG = [
    (check_combine, lambda f, s: (f[0] + s[0], join(f, s)[1]), "no sum of the two"),
    (check_combine, lambda f, s: join(s, f), "second map before the first"),
    (check_combine, lambda f, s: (f[0] * s[0], f[1] + s[1]), "also multiplies"),
    (check_combine, lambda f, s: (f[0] * s[0], s[0] * (f[1] + s[1])), "collect what has no h"),
    (check_combine, lambda f, s: (f[0], s[1]), "a2 a1"),
    (check_combine, lambda f, s: join(f, s)[0], "hand back a pair"),
    (check_combine, lambda f, s: None, "is the return missing"),
    (check_parity, lambda bits: (jnp.ones_like(bits), bits), "counts the ones"),
    (check_parity, lambda bits: (-jnp.ones_like(bits), bits), "at zeros as well"),
    (check_parity, lambda bits: (1 - bits, bits), "turn h over"),
    (check_parity, lambda bits: (1 - 2 * bits, 0 * bits), "exchange 0 and 1"),
    (check_parity, lambda bits: (0 * bits, jnp.cumsum(bits) % 2), "does nothing"),
    (check_parity, lambda bits: (1 - 2 * bits * bits[-1], bits), "its own bit alone"),
    (check_parity, lambda bits: (jnp.array(-1.0), bits), "one decay and one drive per bit"),
    (check_parity, lambda bits: 1 - 2 * bits, "hand back a pair"),
    (check_parity, lambda bits: None, "is the return missing"),
    (check_most_pairs, lambda numbers, bits, values: numbers, "more than one value"),
    (check_most_pairs, lambda numbers, bits, values: numbers * bits, "more than one bit"),
    (check_most_pairs, lambda numbers, bits, values: int(numbers * bits / np.log(values)), "base 2"),
    (check_most_pairs, lambda numbers, bits, values: numbers * bits / np.log2(values) + 0.5, "round down"),
    (check_most_pairs, lambda numbers, bits, values: 7, "dictionaries"),
    (check_most_pairs, lambda numbers, bits, values: None, "is the return missing"),
    (check_parallel, judge("A"), "A: .* Newton's method"),
    (check_parallel, judge("B"), "B: count both"),
    (check_parallel, judge("C"), "C: .* beyond growth 0"),
    (check_parallel, judge("D"), "D: their span"),
    (check_parallel, {"A": False}, "B, C, D is not judged"),
]

test_right_answers_pass = accepts(RIGHT)
test_wrong_answers_get_a_hint = refuses(WRONG)
