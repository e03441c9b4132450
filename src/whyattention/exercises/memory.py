"""Checks for the exercises of chapter 4."""

from collections.abc import Callable
from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from whyattention.measure.gradients import jacobian_log_norms
from whyattention.recurrent import LSTMCell

GATES = ("input", "forget", "output")
HIGHWAY_LAG = 50


def check_forget_bias(forget_bias: Callable) -> None:
    """`forget_bias(lag, kept)` is the bias whose forget gate alone, with nothing else, keeps `kept` over `lag` steps.

    Raises AssertionError with a hint if it is not.
    """
    cases = [(1, 0.5), (10, 0.5), (100, 0.9), (500, 0.1)]
    answers = np.array([np.asarray(forget_bias(lag, kept), dtype=float) for lag, kept in cases])
    lags, kept = np.array(cases, dtype=float).T
    gates = kept ** (1 / lags)

    def given(other):
        return bool(np.allclose(answers, other, atol=1e-3))

    assert not given(gates), "that is the value of the gate; the bias is what the sigmoid turns into it"
    assert not given(np.log(gates)), "that is the logarithm of the gate; its inverse is wanted: log(f / (1 - f))"
    assert not given(-np.log(gates / (1 - gates))), (
        "the sign is turned round: a large bias keeps, a negative one forgets"
    )
    assert not given(np.log(kept / (1 - kept))), "the gate acts at every step: after `lag` of them, f ** lag is left"
    wrong = np.flatnonzero(~np.isclose(answers, np.log(gates / (1 - gates)), atol=1e-3))
    assert not wrong.size, _says(cases[wrong[0]], answers[wrong[0]])
    print("Correct: how long a cell is to remember is written in one number.")


def _says(case, answer):
    lag, kept = case
    left = (1 / (1 + np.exp(-answer))) ** lag
    return f"a bias of {answer:.3f} keeps {left:.3g} over {lag} steps, where {kept} was wanted: solve sigmoid(b) ** lag"


def check_swapped(swapped: Callable) -> None:
    """`swapped(cell, mutant)` names the two gates that `mutant(state, x) -> (state, y)` has exchanged.

    `mutant` computes with the weights of the `LSTMCell` `cell`; the names are two of "input", "forget" and "output".
    Raises AssertionError with a hint if it does not find them.
    """
    answers = []
    for seed, pair in enumerate(combinations(GATES, 2)):
        cell = LSTMCell(3, 4, rngs=nnx.Rngs(seed), forget_bias=1.0)
        answer = swapped(cell, _mutant(cell, *pair))
        assert answer is not None, (
            f"no pair was found where the {pair[0]} and {pair[1]} gates are exchanged; "
            "does your comparison start from a memory that is not zero?"
        )
        names = [answer] if isinstance(answer, str) else list(answer)
        assert set(names) <= set(GATES), f"the gates are called {', '.join(GATES)}; got {names}"
        assert len(set(names)) == 2, f"two gates have changed places; got {names}"
        answers.append((pair, set(names)))
    assert len({tuple(sorted(names)) for _, names in answers}) > 1, (
        "the answer was the same for three different mutants; it has to depend on what the mutant does"
    )
    for pair, names in answers:
        assert names == set(pair), (
            f"{' and '.join(sorted(names))} were named where {pair[0]} and {pair[1]} are exchanged; "
            "cell.gates gives input gate, forget gate, candidate, output gate: write out c and h with two exchanged"
        )
    print("Correct: three mutants, three faults found from the outside.")


def _mutant(cell, first, second):
    def step(state, x):
        values = dict(zip(("input", "forget", "candidate", "output"), cell.gates(state, cell.project(x)), strict=True))
        values[first], values[second] = values[second], values[first]
        memory = values["forget"] * state[1] + values["input"] * values["candidate"]
        hidden = values["output"] * jnp.tanh(memory)
        return (hidden, memory), hidden

    return step


def check_broken_highway(break_highway: Callable) -> None:
    """`break_highway(cell)` gives the `LSTMCell` back with its forget gates biased shut, all else as it was.

    At lag 50 less than a millionth of the gradient may be left. Raises AssertionError with a hint if it is not so.
    """
    size = 16
    whole = LSTMCell(4, size, rngs=nnx.Rngs(0), forget_bias=5.0)
    broken = break_highway(LSTMCell(4, size, rngs=nnx.Rngs(0), forget_bias=5.0))
    assert isinstance(broken, LSTMCell), f"give back the cell, changed or not; got {type(broken).__name__}"
    for name in ("kernel", "recurrent_kernel"):
        same = np.array_equal(getattr(broken, name)[...], getattr(whole, name)[...])
        assert same, f"{name} was changed; one slice of the bias is enough"
    changed = np.flatnonzero(np.asarray(broken.bias[...] != whole.bias[...])) // size
    assert changed.size, "nothing was changed: cell.bias[...] = cell.bias[...].at[a:b].set(value) does"
    others = sorted({"input forget candidate output".split()[block] for block in changed} - {"forget"})
    assert not others, f"the bias of {', '.join(others)} was changed; the slices lie in the order i, f, g, o"
    xs = jax.random.normal(jax.random.key(1), (HIGHWAY_LAG, 4))
    log_norm = float(jacobian_log_norms(broken, xs, part=lambda state: state[1])[-1])
    assert log_norm < np.log(1e-6), (
        f"{np.exp(log_norm):.1e} of the gradient is left after {HIGHWAY_LAG} steps, which is more than a millionth; "
        "the forget gate must be shut further"
    )
    print(f"Correct: 10^{log_norm / np.log(10):.0f} of the gradient is left after {HIGHWAY_LAG} steps.")


def check_bits_recovered(bits: Callable) -> None:
    """`bits(logits [n, K], symbols [n])` is n log2(K) minus the total cross-entropy of the symbols in bits.

    The symbols are numbered 0 ... K - 1. Raises AssertionError with a hint if it is not.
    """
    logits, symbols = 2 * jax.random.normal(jax.random.key(0), (6, 4)), jnp.array([0, 3, 1, 1, 2, 0])
    nats = -jax.nn.log_softmax(logits)[jnp.arange(6), symbols]
    offered, lost = 6 * 2.0, jnp.sum(nats) / jnp.log(2)
    answer = np.asarray(bits(logits, symbols))

    def given(other):
        return answer.shape == () and bool(np.isclose(answer, other, atol=1e-4))

    assert not given(lost), "those are the bits that were lost; take them from the bits that were offered"
    assert not given(offered - jnp.sum(nats)), "the cross-entropy is in nats; one bit is ln 2 nats"
    assert not given(2.0 - lost / 6), "that is the mean per symbol; all of them together are asked for"
    assert not given(2.0 * jnp.sum(jnp.argmax(logits, axis=1) == symbols)), (
        "counting right answers gives no credit for knowing how sure the model is; use the cross-entropy"
    )
    assert given(offered - lost), (
        f"for the test case {float(offered - lost):.4f} bits were expected, one number; got {answer}"
    )
    print("Correct: guessing earns nothing, certainty earns log2(K) a symbol, and a confident error costs.")
