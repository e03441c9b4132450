"""MinGRU by associative scan against the scan of an LSTM, and against its own scan: forward and backward, side by side.

Run it on a machine that does nothing else: `python benchmarks/parallel.py`. It prints a Markdown table.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Float
from side_by_side import gradient_of, unrolled

from whyattention.measure.cost import work_and_span
from whyattention.measure.scaling import normal_inputs
from whyattention.measure.timing import ratio, time_side_by_side
from whyattention.parallel import MinGRU, parallel_unroll
from whyattention.record import device_name
from whyattention.recurrent import Cell, LSTMCell

BATCH, WIDTH = 16, 128
LENGTHS = (128, 512, 2048)

Batch = Float[Array, "batch time features"]


def scanned_in_parallel(cell: Cell, xs: Batch) -> Batch:
    return jax.vmap(lambda x: parallel_unroll(cell, x)[1])(xs)


def contestants(xs: Batch) -> dict[str, tuple[Callable, tuple]]:
    lstm, minimal = (make(WIDTH, WIDTH, rngs=nnx.Rngs(0)) for make in (LSTMCell, MinGRU))
    programs = {
        "LSTM, scan": gradient_of(unrolled, lstm),
        "MinGRU, scan": gradient_of(unrolled, minimal),
        "MinGRU, associative scan": gradient_of(scanned_in_parallel, minimal),
    }
    return {name: (gradient, (weights, xs)) for name, (gradient, weights) in programs.items()}


def check_equal(programs: dict[str, tuple[Callable, tuple]]) -> None:
    """Raises AssertionError if the two forms of MinGRU differ, in value or gradient."""
    pair = [jax.jit(programs[name][0])(*programs[name][1]) for name in ("MinGRU, scan", "MinGRU, associative scan")]
    for left, right in zip(*map(jax.tree.leaves, pair), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-4 * float(jnp.max(jnp.abs(left))))


if __name__ == "__main__":
    print(f"{device_name()}, jax {jax.__version__}, batch {BATCH}, width {WIDTH}, forward and backward\n")
    titles = ["T", "LSTM scan, ms", "MinGRU scan, ms", "MinGRU associative, ms", "LSTM / associative"]
    titles += ["MinGRU scan / associative", "work: LSTM / associative", "span: LSTM / associative"]
    print(f"| {' | '.join(titles)} |\n{'|---' * len(titles)}|")
    for length in LENGTHS:
        programs = contestants(normal_inputs(1, (BATCH, length, WIDTH)))
        check_equal(programs)
        lstm, scan, associative = time_side_by_side(programs, repeats=11).values()
        cost, _, parallel = (work_and_span(function, *arguments) for function, arguments in programs.values())
        medians = [f"{times.median_s * 1e3:.0f}" for times in (lstm, scan, associative)]
        counts = [f"{cost.work / parallel.work:.1f}", f"{cost.span / parallel.span:.0f}"]
        cells = [length, *medians, ratio(lstm, associative), ratio(scan, associative), *counts]
        print(f"| {' | '.join(map(str, cells))} |", flush=True)
