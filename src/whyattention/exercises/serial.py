"""Checks for the exercises of chapter 2."""

import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from whyattention.exercises.answers import given
from whyattention.measure.cost import work_and_span
from whyattention.measure.timing import time_call


def _same(answer, expected) -> bool:
    answer = np.asarray(answer)
    return answer.shape == np.shape(expected) and bool(np.allclose(answer, expected, rtol=1e-4, atol=1e-5))


def check_gated_step(work: int, span: int) -> None:
    """Work and span of 100 steps of h = z * h + (1 - z) * x with z = sigmoid(x), all in the scan; h and x: 8 numbers.

    Raises AssertionError with a hint if they are not.
    """

    def scan(xs):
        def step(h, x):
            z = jax.nn.sigmoid(x)
            return z * h + (1 - z) * x, None

        return jax.lax.scan(step, jnp.zeros(8), xs)[0]

    work, span = given(work), given(span)
    cost = work_and_span(scan, jnp.ones((100, 8)))
    assert work != cost.work / 100, "that is the work of one step; there are 100"
    assert work != cost.work / 8, "that is the work for one of the 8 numbers"
    assert work == cost.work, (
        "list the operations of one step (sigmoid counts as one): each is done for 8 numbers, 100 times; "
        f"the work is not {work}"
    )
    assert span != 500 and span != 400, (
        "that chain goes through z in every step; but z does not wait for h, so only what stands between h and the "
        "next h is repeated"
    )
    assert span != 200, "so long is the chain through h; but what has to be done before the first h can be updated?"
    assert span == cost.span, (
        "two operations lie between h and the next h; add what has to be done before the first of them can begin; "
        f"the span is not {span}"
    )
    print("Correct: only what lies between one state and the next is paid once per step.")


def check_crossover(crossover: Callable) -> None:
    """`crossover(width, alpha, beta)`: the length T from which attention takes longer than the recurrence.

    Per sequence and forward pass, with T steps: the recurrence has work 16 T width^2 and span 10 T; attention has work
    8 T width^2 + 4 T^2 width and a span that may be neglected. Raises AssertionError with a hint if it is not.
    """
    for width, alpha, beta in ((128, 1e-6, 1e11), (512, 5e-7, 4e11)):
        answer = float(given(crossover(width, alpha, beta)))
        by_work, waiting = 2 * width, 10 * alpha * beta / (4 * width)
        expected = by_work + waiting

        def near(number, answer=answer):
            return abs(answer - number) <= 1  # a length may be rounded to a whole number

        assert not near(by_work), "that is where the *work* is equal; the recurrence also pays alpha for its span"
        assert not near(by_work - waiting), (
            "the price of the span is the recurrence's, so it keeps attention ahead for longer, not shorter: check "
            "the sign"
        )
        assert not near(expected + 2 * width), "attention has projections as well: 8 T width^2"
        assert near(expected), (
            f"for width {width}, alpha {alpha}, beta {beta:g} the times are equal at T = {expected:.0f}, not "
            f"{answer:.0f}; write down alpha * span + work / beta for both, set them equal and divide by T"
        )
    print("Correct: twice the width, and further the dearer a dependent step is.")


def check_log_span(running: Callable) -> None:
    """`running(decay, xs [time])`: every h_t = decay * h_{t-1} + x_t from h_0 = 0, with a span of O(log time).

    Raises AssertionError with a hint if it is not.
    """

    @jax.jit
    def states(decay, xs):
        def step(state, x):
            state = decay * state + x
            return state, state

        return jax.lax.scan(step, 0.0, xs)[1]

    xs, decay = jax.random.normal(jax.random.key(0), (64,)), 0.9
    compiled = jax.jit(running)
    answer = given(compiled(decay, xs))
    assert not isinstance(answer, tuple), "associative_scan carries pairs; hand out the second of them alone"
    assert not _same(answer, jnp.cumsum(xs)), "that is the plain running sum: the decay is lost"
    assert _same(answer, states(decay, xs)), (
        "the states are not those of the recurrence; combining (a1, b1) with a later (a2, b2) must give "
        "(a2 * a1, a2 * b1 + b2)"
    )
    assert _same(compiled(0.5, xs), states(0.5, xs)), (
        "right states for a decay of 0.9, others for 0.5: is a number written where decay should stand?"
    )
    long = jax.random.normal(jax.random.key(1), (2000,))
    for decay in (0.9, 0.5):
        difference = np.max(np.abs(np.asarray(compiled(decay, long)) - np.asarray(states(decay, long))))
        assert difference < 1e-3, (
            f"right states for 64 inputs, wrong ones for 2000 with a decay of {decay}: does something divide by a "
            "power of decay, which is 0 in float32 by then?"
        )
    try:
        costs = [work_and_span(running, decay, jnp.ones(length)) for length in (256, 512)]
    except ValueError as error:
        raise AssertionError(
            f"right states, but their cost cannot be counted ({error}); use jax.lax.associative_scan"
        ) from None
    spans = [cost.span for cost in costs]
    assert spans[1] - spans[0] < 64, (
        f"right states, but doubling the length takes the span from {spans[0]} to {spans[1]}: that is still one step "
        "after another; use jax.lax.associative_scan"
    )
    work = costs[1].work
    assert work < 64 * 512, (
        f"right states and a short span, but {work} operations for 512 inputs: something grows with T^2"
    )
    print("Correct: the same states in a tree of pairs.")


def check_utilisation(utilisation: Callable) -> None:
    """`utilisation(fn, args, seconds, peak)`: the share of `peak` operations per second that a call of `fn` reached.

    Raises AssertionError with a hint if it is not.
    """

    def scan(w, xs):
        return jax.lax.scan(lambda h, x: (jnp.tanh(h @ w + x), None), xs[0], xs)[0]

    args = (jnp.ones((32, 32)), jnp.ones((10, 4, 32)))
    cost, seconds, peak = work_and_span(scan, *args), 2e-5, 1e11
    answer = float(given(utilisation(scan, args, seconds, peak)))
    expected = cost.work / seconds / peak
    assert not _same(answer, expected / 10), "that is the work of one step of the scan; there are ten"
    assert not _same(answer, cost.work / seconds), (
        "those are operations per second; utilisation is their share of the peak"
    )
    assert not _same(answer, 1 / expected), "upside down: achieved over peak"
    assert not _same(answer, cost.span / seconds / peak), (
        "the span says how long the chain is; what was done is the work"
    )
    assert abs(answer - expected) < 1e-6, f"expected work / seconds / peak = {expected:.4f} here, got {answer:.4f}"
    print("Correct: and without the peak's name beside it the number means nothing.")


def check_stopwatch(stopwatch: Callable) -> None:
    """`stopwatch(fn, x)`: the seconds that one call of a jitted `fn` takes, compiling left out.

    Raises AssertionError with a hint if it leaves something out or lets something in.
    """
    compiling = 0.5  # seconds

    @jax.jit
    def fn(x):
        time.sleep(compiling)  # runs while JAX traces, so only in the first call
        return jax.lax.scan(lambda h, _: (jnp.tanh(h @ x), None), x, None, length=20)[0]

    x = jax.random.normal(jax.random.key(0), (256, 256)) / 16
    results = []

    def watched(x):
        results.append(fn(x))
        return results[-1]

    first = given(stopwatch(watched, x))
    assert isinstance(first, float | np.floating), f"expected seconds as a float, got {type(first).__name__}"
    assert first < compiling, (
        f"{first:.2f} s: the first call compiles, and that is in this time; call it once before the clock starts"
    )
    seconds = min(first, stopwatch(watched, x), stopwatch(watched, x))  # a pause of the machine may lengthen one
    # The surest sign, and blind to what else the machine does; what was only traced, by a jit around it, cannot tell.
    there = all(result.is_ready() for result in results if hasattr(result, "is_ready"))
    true = time_call(lambda x: fn(x), x, repeats=5)
    assert there and seconds > 0.25 * min(true.samples_s), (
        f"{seconds:.4f} s for a call that takes {true.median_s:.4f} s: the clock was stopped before the result was "
        "there; call jax.block_until_ready on it"
    )
    assert seconds < 5 * true.median_s, (
        f"{seconds:.4f} s, but one call takes {true.median_s:.4f} s: if several calls were timed, divide by the calls"
    )
    print("Correct: compiled before, and waited for.")
