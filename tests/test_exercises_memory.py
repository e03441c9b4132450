"""The checks of chapter 4 accept what is right and send back what is wrong with a hint that fits."""

from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
from exercise_cases import accepts, refuses
from flax import nnx

from whyattention.exercises.memory import (
    GATES,
    QUOTATIONS,
    check_bits_recovered,
    check_broken_highway,
    check_forget_bias,
    check_kinds_of_memory,
    check_swapped,
)
from whyattention.measure.gradients import jacobian_log_norms


def logit(p):
    return np.log(p / (1 - p))


def swapped(cell, mutant, *, memory=0.7, order=(0, 1, 2, 3), see=lambda state, y: (state[1], y)):
    """Tries every pair on one step from a state that is not zero."""
    state, x = (jnp.linspace(-1, 1, 4), jnp.full(4, memory)), jnp.array([1.0, -2.0, 0.5])
    parts = cell.gates(state, cell.project(x))
    i, f, g, o = (parts[index] for index in order)
    for a, b in combinations(GATES, 2):
        gates = {"input": i, "forget": f, "output": o}
        gates[a], gates[b] = gates[b], gates[a]
        c = gates["forget"] * state[1] + gates["input"] * g
        if all(map(jnp.allclose, see(*mutant(state, x)), (c, gates["output"] * jnp.tanh(c)))):
            return a, b
    return None


def biased(value, start=1, stop=2):
    def answer(cell):
        size = cell.hidden_size
        cell.bias[...] = cell.bias[...].at[start * size : stop * size].set(value)
        return cell

    return answer


def just_low_enough(cell, xs):
    @nnx.jit
    def log_left(cell):
        return jacobian_log_norms(cell, xs, part=lambda state: state[1])[-1]

    low, high = -5.0, 5.0
    while high - low > 0.05:
        middle = (low + high) / 2
        low, high = (middle, high) if log_left(biased(middle)(cell)) < np.log(1e-6) else (low, middle)
    return biased(low)(cell)


def to(value, start=1, stop=2):
    return lambda cell, xs: biased(value, start, stop)(cell)


def in_place(cell, xs):
    biased(-5.0)(cell)


def other_kernel(cell, xs):
    cell.recurrent_kernel[...] = 0 * cell.recurrent_kernel[...]
    return cell


def spread(cell, xs):
    size = cell.hidden_size
    cell.bias[...] = cell.bias[...].at[size : 2 * size].set(jnp.linspace(-5, 0, size))
    return cell


def kinds(**changed):
    return QUOTATIONS | changed


def nats(logits, symbols):
    return -jax.nn.log_softmax(logits)[jnp.arange(len(symbols)), symbols]


RIGHT = [
    (check_forget_bias, lambda lag, kept: logit(kept ** (1 / lag))),
    (check_swapped, swapped),
    (check_swapped, lambda *a: set(swapped(*a))),
    (check_forget_bias, lambda lag, kept: logit(jnp.array([kept ** (1 / lag)]))),
    (check_broken_highway, just_low_enough),
    (check_kinds_of_memory, kinds()),
    (check_bits_recovered, lambda x, s: 6 * np.log2(10) - jnp.sum(nats(x, s)) / jnp.log(2)),
]

WRONG = [
    (check_forget_bias, lambda lag, kept: kept ** (1 / lag), "value of the gate"),
    (check_forget_bias, lambda lag, kept: np.log(kept) / lag, "logarithm of the gate"),
    (check_forget_bias, lambda lag, kept: -logit(kept ** (1 / lag)), "sign is turned round"),
    (check_forget_bias, lambda lag, kept: logit(kept), "at every step"),
    (check_forget_bias, lambda lag, kept: np.log(lag), "over 10 steps, where 0.5 was wanted"),
    (check_swapped, lambda cell, mutant: ("input", "forget"), "the same for three"),
    (check_swapped, lambda cell, mutant: "forget", "two gates"),
    (check_swapped, lambda cell, mutant: ("i", "f"), "are called input, forget, output"),
    (check_swapped, lambda *a: swapped(*a, order=(0, 1, 3, 2)), "not zero"),
    (check_swapped, lambda *a: [g for g in GATES if g not in swapped(*a)] + ["input"], "two gates"),
    (check_swapped, lambda *a: swapped(*a) if "output" in swapped(*a) else ("input", "output"), "write out c and h"),
    (check_forget_bias, lambda lag, kept: None, "is the return missing"),
    (check_forget_bias, lambda lag, kept: np.zeros(2), "one number is asked for"),
    (check_swapped, lambda cell, mutant: 3, "two names are asked for"),
    (check_swapped, lambda cell, mutant: (0, 1), "two names are asked for"),
    (check_broken_highway, in_place, "is the return missing"),
    (check_broken_highway, lambda cell, xs: xs, "give back the cell"),
    (check_broken_highway, lambda cell, xs: cell, "nothing was changed"),
    (check_broken_highway, to(-5.0, 2, 3), "the bias of candidate was changed"),
    (check_broken_highway, to(-5.0, 0, 4), "the bias of candidate, input, output was changed"),
    (check_broken_highway, other_kernel, "recurrent_kernel was changed"),
    (check_broken_highway, spread, "one bias for all units"),
    (check_broken_highway, to(1.14), "more than a millionth"),
    (check_broken_highway, to(-3.0), "larger by a tenth than -3.00"),
    (check_kinds_of_memory, kinds(A="capacity"), "quotation A: not capacity"),
    (check_kinds_of_memory, kinds(B="use"), "quotation B: not use; it asks whether training"),
    (check_kinds_of_memory, kinds(C="memory"), "the three words"),
    (check_kinds_of_memory, {"A": "use"}, "quotation B, C, D, E is not sorted"),
    (check_kinds_of_memory, None, "a dict from letters"),
    (check_bits_recovered, lambda x, s: jnp.sum(nats(x, s)) / jnp.log(2), "that were lost"),
    (check_bits_recovered, lambda x, s: 6 * np.log2(10) - jnp.sum(nats(x, s)), "in nats"),
    (check_bits_recovered, lambda x, s: np.log2(10) - jnp.mean(nats(x, s)) / jnp.log(2), "mean per symbol"),
    (check_bits_recovered, lambda x, s: np.log2(10) * jnp.sum(jnp.argmax(x, 1) == s), "counting right answers"),
    (check_bits_recovered, lambda x, s: np.log2(10) - nats(x, s) / jnp.log(2), "one number"),
    (check_bits_recovered, lambda x, s: 12 - jnp.sum(nats(x, s)) / jnp.log(2), "whether or not all of them occur"),
    (check_bits_recovered, lambda x, s: 6 * 10 / 2 - jnp.sum(nats(x, s)) / jnp.log(2), "bits were expected"),
    (check_bits_recovered, lambda x, s: 6 * np.sqrt(10) - jnp.sum(nats(x, s)) / jnp.log(2), "bits were expected"),
    (check_bits_recovered, lambda x, s: None, "is the return missing"),
]


test_right_answers_pass = accepts(RIGHT)
test_wrong_answers_get_a_hint = refuses(WRONG)
