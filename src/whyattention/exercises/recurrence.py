"""Checks for the exercises of chapter 1."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from whyattention.exercises.answers import given
from whyattention.recurrent import TanhCell, unroll


def _same(answer, expected) -> bool:
    answer = np.asarray(answer)
    return answer.shape == np.shape(expected) and bool(np.allclose(answer, expected, atol=1e-5))


def check_leaky(leaky: Callable) -> None:
    """`leaky(xs [time, n], state [n], rate)` gives every state of h_t = (1 - rate) h_{t-1} + rate x_t, `[time, n]`.

    Raises AssertionError with a hint if it does not.
    """
    xs, state, rate = jax.random.normal(jax.random.key(0), (5, 3)), jnp.ones(3), 0.25
    states = [state]
    for x in xs:
        states.append((1 - rate) * states[-1] + rate * x)
    answer = given(leaky(xs, state, rate))
    assert not isinstance(answer, tuple), (
        "scan returns (last state, outputs of all steps); which of the two was asked for?"
    )
    assert not _same(answer, states[-1]), "that is the last state alone; the step must also hand it out as its output"
    assert not _same(answer, jnp.stack(states[:-1])), "every row is one step late: put out the state after the update"
    assert not _same(answer, _leaky_swapped(xs, state, rate)), "the rate belongs to the new input, 1 - rate to the past"
    assert _same(answer, jnp.stack(states[1:])), (
        f"expected every state, shape {xs.shape}, got shape {np.shape(answer)} or other numbers; "
        "write the step for one x first and compare it with the formula"
    )
    print("Correct: one line per step, and scan does the rest.")


def _leaky_swapped(xs, state, rate):
    def step(state, x):
        state = rate * state + (1 - rate) * x
        return state, state

    return jax.lax.scan(step, state, xs)[1]


def check_backwards(backwards: Callable) -> None:
    """`backwards(cell, xs [time, features])` reads from the last input to the first; row t is the state after x_t.

    Raises AssertionError with a hint if it does not.
    """
    cell, xs = TanhCell(3, 4, rngs=nnx.Rngs(0)), jax.random.normal(jax.random.key(1), (6, 3))
    cell.bias[...] = jax.random.normal(jax.random.key(3), (4,))
    read = unroll(cell, xs[::-1])[1]
    answer = given(backwards(cell, xs))
    assert not isinstance(answer, tuple), "hand out the outputs alone, without the final state"
    assert not _same(answer, read), "the reading is right, but row 0 belongs to the last input: turn the outputs round"
    assert not _same(answer, unroll(cell, xs)[1]), "that still reads from the first input to the last"
    assert not _same(answer, unroll(cell, xs)[1][::-1]), "only the outputs were turned round; the reading went forwards"
    assert _same(answer, read[::-1]), (
        f"expected the states of a reading from the end, shape (6, 4), got shape {np.shape(answer)}"
    )
    print("Correct: row t now knows x_t and all that follows it.")


def check_bits(bits: Callable) -> None:
    """`bits(logits [time, vocabulary], targets [time])` is the mean of -log2 p(target), p being softmax(logits).

    Raises AssertionError with a hint if it is not.
    """
    logits, targets = 2 * jax.random.normal(jax.random.key(2), (7, 5)), jnp.array([0, 3, 3, 1, 4, 2, 0])
    nats = -jax.nn.log_softmax(logits)[jnp.arange(7), targets]
    expected = jnp.mean(nats) / jnp.log(2)
    answer = given(bits(logits, targets))
    assert not _same(answer, jnp.mean(nats)), "that is in nats, the unit of the natural logarithm; one bit is ln 2 nats"
    assert not _same(answer, jnp.sum(nats) / jnp.log(2)), "that is the sum; per character means the mean"
    assert not _same(answer, jnp.exp(jnp.mean(nats))), "that is the perplexity, which is 2 to the power of the bits"
    assert not _same(answer, -jnp.mean(logits[jnp.arange(7), targets]) / jnp.log(2)), (
        "logits are no log-probabilities yet: subtract logsumexp, or use log_softmax"
    )
    assert _same(answer, expected), f"for the test case {float(expected):.4f} bits were expected, got {answer}"
    print("Correct: the same unit as the n-gram baselines.")


def check_lift(lift: Callable) -> None:
    """`lift(function)` turns `function(params, xs)` into one that takes `params` with a seed axis and a batch of `xs`.

    The result is `[seeds, batch, ...]`: every model on every sequence. Raises AssertionError with a hint if it is not.
    """
    params, batch = jnp.array([1.0, 10.0, 100.0]), jnp.arange(24.0).reshape(3, 4, 2)

    def function(scale, xs):
        if scale.ndim or xs.shape != (4, 2):
            raise AssertionError(
                f"function must see one model and one sequence: a scalar and (4, 2), not {scale.shape} and {xs.shape}"
            )
        return scale * jnp.cumsum(xs, axis=0)

    expected = params[:, None, None, None] * jnp.cumsum(batch, axis=1)
    answer = given(given(lift(function))(params, batch))
    assert np.ndim(answer) != 3, (
        "model i met sequence i only; the batch must not be mapped together with the seeds (in_axes)"
    )
    assert not _same(answer, jnp.swapaxes(expected, 0, 1)), "the batch came first; seeds are the outermost axis"
    assert _same(answer, expected), f"expected shape [seeds, batch, ...] = {expected.shape}, got {np.shape(answer)}"
    print("Correct: two vmaps, and the function in the middle never knew.")
