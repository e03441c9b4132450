"""Checks for the exercises of chapter 10."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import jax
import jax.numpy as jnp
import numpy as np

from whyattention.exercises.answers import given, judged
from whyattention.parallel import combine, sequential_recurrence

PARALLEL_TRUTHS: Mapping[str, bool] = MappingProxyType({"A": False, "B": True, "C": False, "D": False})


def _near(answer, expected) -> bool:
    return np.shape(answer) == np.shape(expected) and bool(np.allclose(answer, expected, rtol=1e-4, atol=1e-5))


def check_combine(join: Callable) -> None:
    """`join(first, second)`: two maps h -> a h + b, each a pair (a, b), one after the other as one such pair.

    Raises AssertionError with a hint if it is not.
    """
    keys = jax.random.split(jax.random.key(0), 4)
    first, second = ((0.5 + jax.random.uniform(keys[i], (3,)), jax.random.normal(keys[i + 1], (3,))) for i in (0, 2))
    answer = given(join(first, second))
    assert isinstance(answer, tuple | list) and len(answer) == 2, "hand back a pair: the new a and the new b"
    decay, drive = answer
    expected_decay, expected_drive = combine(first, second)
    assert not _near(decay, first[0] + second[0]), "a h + b twice multiplies h by a1 and then by a2: no sum of the two"
    assert _near(decay, expected_decay), "the new a is what h is multiplied by in the end: a2 a1"
    assert not _near(drive, combine(second, first)[1]), "that applies the second map before the first"
    assert not _near(drive, first[1] + second[1]), "the second map also multiplies what the first has added"
    assert _near(drive, expected_drive), "put the first into the second: a2 (a1 h + b1) + b2, and collect what has no h"
    print("Correct: and it is associative, so any grouping of the steps gives the same states.")


def check_parity(parity: Callable) -> None:
    """`parity(bits) -> (decay, drive)`, `[time]` each: h_t = decay_t h_{t-1} + drive_t from 0 is the parity so far.

    Raises AssertionError with a hint if it is not.
    """
    bits = jnp.asarray(np.random.default_rng(0).integers(0, 2, 12), dtype=jnp.float32)
    answer = given(parity(bits))
    assert isinstance(answer, tuple | list) and len(answer) == 2, "hand back a pair: decays and drives"
    decay, drive = (np.asarray(part, float) for part in answer)
    assert decay.shape == drive.shape == bits.shape, f"one decay and one drive per bit, {bits.shape}, are asked for"
    states = sequential_recurrence(decay, drive)
    parities = np.cumsum(bits) % 2
    assert not (np.allclose(decay, 0) and _near(drive, parities)), (
        "that recurrence does nothing: the drive already is the answer, and was not computed by it"
    )
    assert not _near(states, np.cumsum(bits)), "that counts the ones; parity needs the state to come back"
    assert not np.allclose(decay, -1), "a decay of -1 at every step turns the state over at zeros as well"
    later = np.asarray(given(parity(bits.at[-1].set(1 - bits[-1])))[0], float)
    assert np.allclose(decay[:-1], later[:-1]), "a decay may depend on its own bit alone"
    assert np.any(decay < 0), "with decays from 0 up two ones can never cancel: a one must turn h over"
    assert _near(states, parities), "a zero must leave h alone, h -> h; a one must exchange 0 and 1, h -> 1 - h"
    assert np.abs(drive).max() <= 1 and len(np.unique(np.stack([decay, drive]), axis=1).T) == 2, (
        "the states are right, but decay and drive should be functions of the step's own bit alone"
    )
    print("Correct: one number of state, computed by a scan, for any length. A decay below 0 is all it takes.")


def check_most_pairs(most_pairs: Callable) -> None:
    """`most_pairs(numbers, bits, values)`: for how many keys a state can hold any one of `values` values each.

    The state has `numbers` numbers of `bits` bits. Raises AssertionError with a hint if it is not.
    """
    for numbers, bits, values in ((16, 32, 16), (8, 16, 100), (256, 8, 2)):
        answer = float(given(most_pairs(numbers, bits, values)))
        expected = numbers * bits // np.log2(values)
        assert answer != numbers, "a number of many bits can hold more than one value"
        assert values == 2 or answer != numbers * bits, "a value out of several takes more than one bit: log2 of them"
        assert values == 2 or answer != numbers * bits // np.log(values), (
            "bits are counted with the logarithm to base 2"
        )
        assert answer == int(answer), "a pair is held or not: round down"
        assert answer == expected, (
            f"{numbers} numbers of {bits} bits have 2^{numbers * bits} states, and {values}^pairs dictionaries must "
            f"all have their own: {expected:.0f} pairs, not {answer:.0f}"
        )
    print("Correct: a bound that no training passes. The networks of this chapter stay far below it.")


def check_parallel(answers: dict[str, bool]) -> None:
    """The four statements of exercise 4; raises AssertionError with a hint at the first that is judged wrongly."""
    hints = {
        "A": "what has to be given up is that the step depends on the state in a way that is not linear, and even then "
        "Newton's method remains",
        "B": "count both: the tree joins twice as many pairs, and each joining multiplies decays as well",
        "C": "look at the iterations beyond growth 0: about as many as there are steps, each dearer than the scan",
        "D": "their span is what they share; the recall of a fixed state and of one that grows with the text differ",
    }
    judged(answers, PARALLEL_TRUTHS, hints)
    print("Correct: linear steps are what a tree needs, and what it costs is work, state and what can be tracked.")
