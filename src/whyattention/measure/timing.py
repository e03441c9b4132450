"""Wall time of JAX programs. The only place in the course that holds a stopwatch.

JAX returns before the device has finished: a stopwatch stopped then has measured how fast work
can be *ordered*, not done (https://docs.jax.dev/en/latest/async_dispatch.html). Here every sample
is taken from a device at rest to a result that is there, and nothing else can be asked for. What
compiling costs is paid before the first sample and reported apart.
"""

import itertools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import jax
import numpy as np

_runs = itertools.count()


@dataclass(frozen=True)
class Timing:
    """Wall times of one compiled function, in seconds.

    Attributes:
        compile_s: tracing, lowering and compiling, once.
        samples_s: one wall time per call, in the order taken, after one call to warm up.
        run: which measurement the samples belong to; only samples of one run can be compared.
    """

    compile_s: float
    samples_s: tuple[float, ...]
    run: int

    @property
    def median_s(self) -> float:
        return float(np.median(self.samples_s))

    @property
    def quartiles_s(self) -> tuple[float, float]:
        """The first and third quartile: half of the samples lie between them."""
        return _quartiles(self.samples_s)

    def __str__(self) -> str:
        low, high = self.quartiles_s
        return (
            f"{self.median_s * 1e3:.3g} ms (half within {low * 1e3:.3g}-{high * 1e3:.3g}, "
            f"{len(self.samples_s)} calls; compiled in {self.compile_s:.2f} s)"
        )


@dataclass(frozen=True)
class Ratio:
    """How many times longer one function took than another, call by call in one run.

    Attributes:
        median: of the paired ratios.
        quartiles: first and third.
    """

    median: float
    quartiles: tuple[float, float]

    def __str__(self) -> str:
        return f"{self.median:.2f} (half within {self.quartiles[0]:.2f}-{self.quartiles[1]:.2f})"


def time_call(fn: Callable, *args, repeats: int = 10, min_seconds: float = 0.0) -> Timing:
    """Compile `fn` for `args` and time it.

    Args:
        fn: a function of arrays that returns arrays; it is compiled here, whether or not it
            already was. Pass what it computes on through `args`: the compiler may evaluate beforehand
            what it finds inside the function.
        args: arrays or pytrees of them, moved to the device before the stopwatch starts.
        repeats: at least so many samples,
        min_seconds: and as many more as fit into so much time.

    Raises:
        ValueError: if `fn` takes or returns no array, or `repeats` is below 1.
    """
    return time_side_by_side({"fn": (fn, args)}, repeats=repeats, min_seconds=min_seconds)["fn"]


def time_side_by_side(
    contestants: Mapping[str, tuple[Callable, tuple]], *, repeats: int = 10, min_seconds: float = 0.0
) -> dict[str, Timing]:
    """Time several functions in turns, so that what else the machine does falls on all of them.

    Every round calls each function once, beginning with another one each time.

    Args:
        contestants: name -> (function, arguments), as for `time_call`.
        repeats, min_seconds: rounds, as the samples of `time_call`.

    Returns:
        name -> Timing. Two of them can be given to `ratio`.
    """
    if repeats < 1:
        raise ValueError(f"repeats must be at least 1, got {repeats}")
    ready = {name: _prepare(name, fn, args) for name, (fn, args) in contestants.items()}
    names, samples = list(ready), {name: [] for name in ready}
    begin = time.perf_counter()
    rounds = 0
    while rounds < repeats or time.perf_counter() - begin < min_seconds:
        shift = rounds % max(len(names), 1)
        for name in names[shift:] + names[:shift]:
            samples[name].append(_sample(*ready[name][:2]))
        rounds += 1
    run = next(_runs)
    return {name: Timing(ready[name][2], tuple(samples[name]), run) for name in names}


def ratio(slow: Timing, fast: Timing) -> Ratio:
    """The time of one over the time of the other, paired round by round.

    Raises:
        ValueError: if they are not from one run of `time_side_by_side`.
    """
    if slow.run != fast.run:
        raise ValueError(
            "a ratio of times needs both from one call of time_side_by_side: "
            f"these are from run {slow.run} and run {fast.run}, and the machine may have changed between"
        )
    paired = np.divide(slow.samples_s, fast.samples_s)
    return Ratio(float(np.median(paired)), _quartiles(paired))


def _prepare(name: str, fn: Callable, args: tuple) -> tuple[Callable, tuple, float]:
    """Move the arguments, compile, call once. Returns the compiled function, arguments, seconds to compile."""
    args = jax.block_until_ready(jax.device_put(args))
    if not jax.tree.leaves(args):
        raise ValueError(f"{name}: pass at least one array; without any, the compiler may compute the result itself")
    begin = time.perf_counter()
    # A new function each time, so that no trace of an earlier measurement is found in JAX's caches.
    lowered = jax.jit(lambda *arguments: fn(*arguments)).lower(*args)
    if not jax.tree.leaves(lowered.out_info):
        raise ValueError(f"{name}: returns no array, so there is nothing to wait for")
    compiled = lowered.compile()
    seconds = time.perf_counter() - begin
    jax.block_until_ready(compiled(*args))
    return compiled, args, seconds


def _sample(compiled: Callable, args: tuple) -> float:
    begin = time.perf_counter()
    jax.block_until_ready(compiled(*args))
    return time.perf_counter() - begin


def _quartiles(values) -> tuple[float, float]:
    low, high = np.quantile(values, [0.25, 0.75])
    return float(low), float(high)
