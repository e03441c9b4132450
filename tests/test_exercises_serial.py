"""The checks of chapter 2 accept what is right and send back what is wrong with a hint that fits."""

import time

import jax
import jax.numpy as jnp
import numpy as np
from exercise_cases import accepts, refuses

from whyattention.exercises.serial import (
    check_crossover,
    check_gated_step,
    check_log_span,
    check_stopwatch,
    check_utilisation,
)
from whyattention.measure.cost import work_and_span
from whyattention.measure.timing import time_call


def combine(earlier, later):
    return later[0] * earlier[0], later[0] * earlier[1] + later[1]


def running(decay, xs, combine=combine):
    return jax.lax.associative_scan(combine, (jnp.full_like(xs, decay), xs))


def sequential(decay, xs):
    def step(state, x):
        state = decay * state + x
        return state, state

    return jax.lax.scan(step, 0.0, xs)[1]


def by_division(decay, xs):
    powers = decay ** jnp.arange(len(xs))
    return powers * jnp.cumsum(xs / powers)


def sorting(decay, xs):
    return running(decay, xs)[1] + 0 * jnp.sort(xs)


def by_matrix(decay, xs):
    lag = jnp.arange(len(xs))[:, None] - jnp.arange(len(xs))
    return jnp.where(lag >= 0, decay ** jnp.maximum(lag, 0), 0.0) @ xs


def share(fn, args, seconds, peak):
    return work_and_span(fn, *args).work / seconds / peak


def stopwatch(fn, x, warm=True, wait=jax.block_until_ready):
    if warm:
        jax.block_until_ready(fn(x))
    begin = time.perf_counter()
    wait(fn(x))
    return time.perf_counter() - begin


RIGHT = [
    (check_gated_step, 4000, 202),
    (check_crossover, lambda w, a, b: 2 * w + 2.5 * a * b / w),
    (check_crossover, lambda w, a, b: round(2 * w + 2.5 * a * b / w)),
    (check_crossover, lambda w, a, b: int(2 * w + 2.5 * a * b / w)),
    (check_log_span, lambda *a: running(*a)[1]),
    (check_utilisation, share),
    (check_stopwatch, stopwatch),
    (check_stopwatch, lambda fn, x: np.float64(stopwatch(fn, x))),
    (check_stopwatch, lambda fn, x: time_call(fn, x, repeats=3).median_s),
]

WRONG = [
    (check_gated_step, 40, 202, "there are 100"),
    (check_gated_step, 500, 202, "one of the 8 numbers"),
    (check_gated_step, 3200, 202, "not 3200"),
    (check_gated_step, 4000, 500, "only what stands between"),
    (check_gated_step, 4000, 200, "before the first h"),
    (check_gated_step, 4000, 7, "not 7"),
    (check_crossover, lambda w, a, b: 2 * w, "work"),
    (check_crossover, lambda w, a, b: 2 * w - 2.5 * a * b / w, "sign"),
    (check_crossover, lambda w, a, b: 4 * w + 2.5 * a * b / w, "projections"),
    (check_crossover, lambda w, a, b: w, "set them equal"),
    (check_crossover, lambda w, a, b: 256 + 1953.125, "for width 512"),
    (check_crossover, lambda w, a, b: None, "is the return missing"),
    (check_gated_step, None, 202, "is the return missing"),
    (check_gated_step, 4000, None, "is the return missing"),
    (check_log_span, lambda *a: None, "is the return missing"),
    (check_log_span, lambda decay, xs: running(0.9, xs)[1], "where decay should stand"),
    (check_log_span, by_division, "wrong ones for 2000"),
    (check_log_span, sorting, "'sort'.*use jax.lax.associative_scan"),
    (check_utilisation, lambda *a: None, "is the return missing"),
    (check_stopwatch, lambda fn, x: None, "is the return missing"),
    (check_stopwatch, lambda fn, x: 0.45 + 0 * stopwatch(fn, x), "divide by the calls"),
    (check_stopwatch, lambda fn, x: min(100 * stopwatch(fn, x), 0.49), "divide by the calls"),
    (check_log_span, running, "second of them"),
    (check_log_span, lambda decay, xs: jnp.cumsum(xs), "decay is lost"),
    (check_log_span, lambda *a: running(*a, combine=lambda a, b: combine(b, a))[1], "a later"),
    (check_log_span, sequential, "one step after another"),
    (check_log_span, by_matrix, "grows with T"),
    (check_utilisation, lambda fn, args, s, p: share(fn, args, s, p) / 10, "one step"),
    (check_utilisation, lambda fn, args, s, p: share(fn, args, s, 1), "their share of the peak"),
    (check_utilisation, lambda *a: 1 / share(*a), "upside down"),
    (check_utilisation, lambda fn, args, s, p: work_and_span(fn, *args).span / s / p, "what was done is the work"),
    (check_utilisation, lambda *a: 0.5, "expected work / seconds / peak"),
    (check_stopwatch, lambda fn, x: stopwatch(fn, x, warm=False), "first call compiles"),
    (check_stopwatch, lambda fn, x: stopwatch(fn, x, wait=lambda result: None), "before the result was there"),
    (check_stopwatch, lambda fn, x: 1e-6 + 0 * stopwatch(fn, x), "before the result was there"),
    (check_stopwatch, lambda fn, x: "0.1", "as a float"),
]


test_right_answers_pass = accepts(RIGHT)
test_wrong_answers_get_a_hint = refuses(WRONG)
