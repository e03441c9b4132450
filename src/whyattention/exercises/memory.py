"""Checks for the exercises of chapter 4."""

from collections.abc import Callable
from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from whyattention.exercises.answers import given
from whyattention.measure.gradients import jacobian_log_norms
from whyattention.recurrent import LSTMCell

GATES = ("input", "forget", "output")
HIGHWAY_LAG = 50
LOG_MILLIONTH = np.log(1e-6)

# What was said about a memory, and which of the three questions it answers.
QUOTATIONS = {
    "A": "use",
    "B": "trainability",
    "C": "capacity",
    "D": "trainability",
    "E": "use",
}


def check_forget_bias(forget_bias: Callable) -> None:
    """`forget_bias(lag, kept)` is the bias whose forget gate alone, with nothing else, keeps `kept` over `lag` steps.

    Raises AssertionError with a hint if it is not.
    """
    cases = [(1, 0.5), (10, 0.5), (100, 0.9), (500, 0.1)]
    answers = [np.asarray(given(forget_bias(lag, kept)), dtype=float) for lag, kept in cases]
    assert all(answer.size == 1 for answer in answers), f"one number is asked for; got shape {answers[0].shape}"
    answers = np.array([answer.item() for answer in answers])
    lags, kept = np.array(cases, dtype=float).T
    gates = kept ** (1 / lags)

    def same_as(other):
        return bool(np.allclose(answers, other, atol=1e-3))

    assert not same_as(gates), "that is the value of the gate; the bias is what the sigmoid turns into it"
    assert not same_as(np.log(gates)), "that is the logarithm of the gate; its inverse is wanted: log(f / (1 - f))"
    assert not same_as(-np.log(gates / (1 - gates))), (
        "the sign is turned round: a large bias keeps, a negative one forgets"
    )
    assert not same_as(np.log(kept / (1 - kept))), "the gate acts at every step: after `lag` of them, f ** lag is left"
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
        names = [answer] if isinstance(answer, str) else answer
        readable = isinstance(names, list | tuple | set | frozenset) and all(isinstance(name, str) for name in names)
        assert readable, f"two names are asked for, as a tuple of texts; got {answer!r}"
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
    """`break_highway(cell, xs)` gives the `LSTMCell` back with its forget gates biased just low enough.

    One bias for all units, the largest, to a tenth, at which less than a millionth of the gradient is left after the
    `HIGHWAY_LAG` inputs `xs`; all else as it was. Raises AssertionError with a hint if it is not so.
    """
    biases = []
    for seed in range(2):
        xs = jax.random.normal(jax.random.key(seed), (HIGHWAY_LAG, 4))
        broken = given(break_highway(_open_cell(seed), xs))
        assert isinstance(broken, LSTMCell), f"give back the cell, changed or not; got {type(broken).__name__}"
        biases.append(_changed_bias(_open_cell(seed), broken))
        left = _log_left(broken, xs)
        assert left < LOG_MILLIONTH, (
            f"{np.exp(left):.1e} of the gradient is left after {HIGHWAY_LAG} steps, which is more than a millionth; "
            "the gate alone would give a bias of 1.14, but the detours through h keep some: measure it"
        )
        size = broken.hidden_size
        broken.bias[...] = broken.bias[...].at[size : 2 * size].add(0.1)
        assert _log_left(broken, xs) >= LOG_MILLIONTH, (
            f"less than a millionth is left, but so it is with a bias that is larger by a tenth than {biases[-1]:.2f}"
        )
    print(f"Correct: a bias of {biases[0]:.2f} does for one cell, and of {biases[1]:.2f} for another.")


def _open_cell(seed):
    return LSTMCell(4, 16, rngs=nnx.Rngs(seed), forget_bias=5.0)


@nnx.jit
def _log_left(cell, xs):
    return jacobian_log_norms(cell, xs, part=lambda state: state[1])[-1]


def _changed_bias(whole, broken):
    """The bias of the forget gates, after seeing to it that nothing else was changed."""
    for name in ("kernel", "recurrent_kernel"):
        same = np.array_equal(getattr(broken, name)[...], getattr(whole, name)[...])
        assert same, f"{name} was changed; one slice of the bias is enough"
    size = whole.hidden_size
    changed = np.flatnonzero(np.asarray(broken.bias[...] != whole.bias[...])) // size
    assert changed.size, "nothing was changed: cell.bias[...] = cell.bias[...].at[a:b].set(value) does"
    others = sorted({"input forget candidate output".split()[block] for block in changed} - {"forget"})
    assert not others, f"the bias of {', '.join(others)} was changed; the slices lie in the order i, f, g, o"
    forget = np.asarray(broken.bias[...])[size : 2 * size]
    assert np.ptp(forget) < 1e-6, f"one bias for all units is asked for; got {forget.min():.2f} to {forget.max():.2f}"
    return float(forget[0])


def check_bits_recovered(bits: Callable) -> None:
    """`bits(logits [n, K], symbols [n])` is n log2(K) minus the total cross-entropy of the symbols in bits.

    The symbols are numbered 0 ... K - 1. Raises AssertionError with a hint if it is not.
    """
    # Ten kinds, of which some never occur: log2(10), ln(10), 10 / 2 and the number of kinds seen are all different.
    count, kinds, symbols = 6, 10, jnp.array([0, 7, 1, 1, 4, 0])
    logits = 2 * jax.random.normal(jax.random.key(0), (count, kinds))
    nats = -jax.nn.log_softmax(logits)[jnp.arange(count), symbols]
    offered, lost = count * np.log2(kinds), jnp.sum(nats) / jnp.log(2)
    answer = np.asarray(given(bits(logits, symbols)))

    def same_as(other):
        return answer.shape == () and bool(np.isclose(answer, other, atol=1e-4))

    assert not same_as(lost), "those are the bits that were lost; take them from the bits that were offered"
    assert not same_as(offered - jnp.sum(nats)), "the cross-entropy is in nats; one bit is ln 2 nats"
    assert not same_as(np.log2(kinds) - lost / count), "that is the mean per symbol; all of them together are asked for"
    assert not same_as(np.log2(kinds) * jnp.sum(jnp.argmax(logits, axis=1) == symbols)), (
        "counting right answers gives no credit for knowing how sure the model is; use the cross-entropy"
    )
    assert not same_as(count * np.log2(len(np.unique(symbols))) - lost), (
        "K is the number of kinds there are, the last axis of `logits`, whether or not all of them occur"
    )
    assert same_as(offered - lost), (
        f"for the test case {float(offered - lost):.4f} bits were expected, one number; got {answer}"
    )
    print("Correct: guessing earns nothing, certainty earns log2(K) a symbol, and a confident error costs.")


def check_kinds_of_memory(kinds: dict[str, str]) -> None:
    """`kinds` says of each of the quotations A to E whether it is about "capacity", "trainability" or "use".

    Raises AssertionError with a hint if one is missing or wrong.
    """
    assert isinstance(kinds, dict), f"a dict from letters to words is asked for, got {type(kinds).__name__}"
    missing = sorted(set(QUOTATIONS) - set(kinds))
    assert not missing, f"quotation {', '.join(missing)} is not sorted yet"
    unknown = sorted({str(kind) for kind in kinds.values()} - set(QUOTATIONS.values()))
    assert not unknown, f"the three words are capacity, trainability and use; got {', '.join(unknown)}"
    hints = {
        "capacity": "asks how much fits into a state, however it was come by: a number of bits or of real numbers",
        "trainability": "asks whether training finds the way: success, or a gradient, against a lag",
        "use": "takes a model that is trained already, and asks what it makes of the context it is given",
    }
    for letter, kind in QUOTATIONS.items():
        assert kinds[letter] == kind, f"quotation {letter}: not {kinds[letter]}; it {hints[kind]}"
    print("Correct: a bound on a state, a success of training and a habit of a trained model are three things.")
