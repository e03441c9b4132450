"""The checks of chapter 4 accept what is right and send back what is wrong with a hint that fits."""

from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
from exercise_cases import accepts, refuses

from whyattention.exercises.memory import (
    GATES,
    check_bits_recovered,
    check_broken_highway,
    check_forget_bias,
    check_swapped,
)


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


def in_place(cell):
    biased(-5.0)(cell)


def other_kernel(cell):
    cell.recurrent_kernel[...] = 0 * cell.recurrent_kernel[...]
    return cell


def nats(logits, symbols):
    return -jax.nn.log_softmax(logits)[jnp.arange(len(symbols)), symbols]


RIGHT = [
    (check_forget_bias, lambda lag, kept: logit(kept ** (1 / lag))),
    (check_swapped, swapped),
    (check_swapped, lambda *a: set(swapped(*a))),
    (check_broken_highway, biased(-5.0)),
    (check_bits_recovered, lambda x, s: 12 - jnp.sum(nats(x, s)) / jnp.log(2)),
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
    (check_broken_highway, in_place, "got NoneType"),
    (check_broken_highway, lambda cell: cell, "nothing was changed"),
    (check_broken_highway, biased(-5.0, 2, 3), "the bias of candidate was changed"),
    (check_broken_highway, biased(-5.0, 0, 4), "the bias of candidate, input, output was changed"),
    (check_broken_highway, other_kernel, "recurrent_kernel was changed"),
    (check_broken_highway, biased(2.0), "shut further"),
    (check_bits_recovered, lambda x, s: jnp.sum(nats(x, s)) / jnp.log(2), "that were lost"),
    (check_bits_recovered, lambda x, s: 12 - jnp.sum(nats(x, s)), "in nats"),
    (check_bits_recovered, lambda x, s: 2 - jnp.mean(nats(x, s)) / jnp.log(2), "mean per symbol"),
    (check_bits_recovered, lambda x, s: 2.0 * jnp.sum(jnp.argmax(x, 1) == s), "counting right answers"),
    (check_bits_recovered, lambda x, s: 2 - nats(x, s) / jnp.log(2), "one number"),
]


test_right_answers_pass = accepts(RIGHT)
test_wrong_answers_get_a_hint = refuses(WRONG)
