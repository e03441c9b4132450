"""The stopwatch: it waits, it keeps compiling apart, and it refuses what it cannot time."""

import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from whyattention.measure import timing
from whyattention.measure.timing import Ratio, Timing, ratio, time_call, time_side_by_side

MATRIX = jnp.ones((64, 64))


def product(x):
    return x @ x


def slow(x):
    """Waits 20 ms on the device's side."""

    def wait(x):
        time.sleep(0.02)
        return x

    return jax.pure_callback(wait, x, x)


def test_the_result_is_waited_for():
    """A program of many steps, which JAX hands back long before it is done, on the CPU as well."""

    def steps(x):
        return jax.lax.scan(lambda h, _: (jnp.tanh(h @ x), None), x, None, length=100)[0]

    x = jnp.ones((256, 256)) / 256
    compiled = jax.jit(steps).lower(x).compile()
    compiled(x).block_until_ready()
    waited = []
    for _ in range(5):
        begin = time.perf_counter()
        np.asarray(compiled(x))  # numbers on the host: they cannot be had earlier
        waited.append(time.perf_counter() - begin)
    assert time_call(steps, x, repeats=5).median_s > 0.5 * min(waited)


def test_every_sample_ends_with_the_result_there(monkeypatch):
    waited = []
    block = jax.block_until_ready
    monkeypatch.setattr(jax, "block_until_ready", lambda tree: waited.append(tree) or block(tree))
    time_call(product, MATRIX, repeats=4)
    # the arguments, the warm-up, and each of the four samples
    assert len(waited) == 1 + 1 + 4


def test_compiling_is_reported_apart_and_paid_again_for_every_measurement():
    def deep(x):
        for _ in range(60):
            x = jnp.tanh(x @ x)
        return x

    first, second = time_call(deep, MATRIX, repeats=3), time_call(jax.jit(deep), MATRIX, repeats=3)
    assert first.compile_s > 2 * first.median_s
    assert second.compile_s > 2 * second.median_s


def test_nothing_offers_a_time_without_the_wait():
    offered = {name for name in vars(timing) if not name.startswith("_")}
    assert {name for name in offered if "time_" in name} == {"time_call", "time_side_by_side"}


def test_repeats_are_a_lower_bound_and_time_adds_to_them():
    assert len(time_call(product, MATRIX, repeats=5).samples_s) == 5
    assert len(time_call(product, MATRIX, repeats=1, min_seconds=0.05).samples_s) > 5


def test_median_and_quartiles():
    times = Timing(compile_s=1.0, samples_s=(0.4, 0.1, 0.2, 0.3, 0.9), run=0)
    assert times.median_s == 0.3
    assert times.quartiles_s == (0.2, 0.4)
    assert str(times) == "300 ms (half within 200-400, 5 calls; compiled in 1.00 s)"


def test_contestants_take_turns(monkeypatch):
    order = []
    sample = timing._sample
    monkeypatch.setattr(timing, "_sample", lambda fn, args: order.append(args[0].size) or sample(fn, args))
    time_side_by_side({"a": (product, (jnp.ones((1, 1)),)), "b": (product, (jnp.ones((2, 2)),))}, repeats=4)
    assert order == [1, 4, 4, 1, 1, 4, 4, 1]


def test_a_ratio_pairs_the_samples_of_one_run():
    slow_times = Timing(0.0, (2.0, 6.0, 8.0), run=7)
    fast_times = Timing(0.0, (1.0, 2.0, 4.0), run=7)
    assert ratio(slow_times, fast_times) == Ratio(median=2.0, quartiles=(2.0, 2.5))
    assert str(ratio(slow_times, fast_times)) == "2.00 (half within 2.00-2.50)"


def test_a_ratio_across_runs_is_refused():
    with pytest.raises(ValueError, match="both from one call of time_side_by_side"):
        ratio(time_call(product, MATRIX, repeats=2), time_call(product, MATRIX, repeats=2))


def test_a_ratio_of_side_by_side_times_is_near_what_it_should_be():
    times = time_side_by_side(
        {"one": (slow, (jnp.ones(3),)), "two": (lambda x: slow(slow(x)), (jnp.ones(3),))}, repeats=3
    )
    assert ratio(times["two"], times["one"]).median == pytest.approx(2, rel=0.3)


@pytest.mark.parametrize(
    ("fn", "args", "message"),
    [
        (lambda x: None, (MATRIX,), "returns no array, so there is nothing to wait for"),
        (lambda x: (), (MATRIX,), "returns no array"),
        (lambda: MATRIX @ MATRIX, (), "pass at least one array"),
        (lambda x: MATRIX, (None,), "pass at least one array"),
    ],
)
def test_what_cannot_be_timed_is_refused(fn, args, message):
    with pytest.raises(ValueError, match=message):
        time_call(fn, *args)


@pytest.mark.parametrize("repeats", [0, -1])
def test_no_repeats_are_refused(repeats):
    with pytest.raises(ValueError, match=f"repeats must be at least 1, got {repeats}"):
        time_call(product, MATRIX, repeats=repeats)


def test_arguments_may_be_trees_scalars_keys_and_numpy():
    def fn(tree, key, scale):
        return tree["a"] * scale + jax.random.normal(key, (3,))

    assert time_call(fn, {"a": np.ones(3)}, jax.random.key(0), 2.0, repeats=1).median_s > 0
