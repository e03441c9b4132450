"""What the benchmarks of recurrent layers share: sizes, forward and backward, and a table of the course beside Flax."""

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Float

from whyattention.measure.timing import Timing, ratio, time_side_by_side
from whyattention.record import device_name
from whyattention.recurrent import Cell, unroll

BATCH = 32
LENGTHS = (64, 256)
WIDTHS = (128, 512)

Batch = Float[Array, "batch time features"]


def inputs(length: int, width: int) -> Batch:
    return jax.random.normal(jax.random.key(1), (BATCH, length, width))


def unrolled(cell: Cell, xs: Batch) -> Batch:
    """The outputs of the course's recurrence."""
    return jax.vmap(lambda x: unroll(cell, x)[1])(xs)


def from_zero(rnn: nnx.RNN, xs: Batch) -> Batch:
    """The outputs of Flax's recurrence from a state of zeros, which it would otherwise draw from a random key."""
    drawn = jax.eval_shape(lambda: rnn.cell.initialize_carry(xs[:, 0].shape, rngs=nnx.Rngs(0)))
    return rnn(xs, initial_carry=jax.tree.map(jnp.zeros_like, drawn))


def gradient_of(apply: Callable, model: nnx.Module) -> tuple[Callable, nnx.State]:
    """A function of (weights, batch) that runs forward and backward, and the weights."""
    graph, weights, rest = nnx.split(model, nnx.Param, ...)

    def loss(weights, batch: Batch) -> Float[Array, ""]:
        return jnp.sum(apply(nnx.merge(graph, weights, rest), batch) ** 2)

    return jax.value_and_grad(loss, argnums=(0, 1)), weights


def compare(cell: Cell, peer: nnx.RNN, length: int, *, repeats: int) -> dict[str, Timing]:
    """Times of "unroll" and "flax" at one size. Raises AssertionError if they do not compute the same."""
    batch = inputs(length, cell.in_features)
    course, weights = gradient_of(unrolled, cell)
    flax, flax_weights = gradient_of(from_zero, peer)
    (loss, (_, to_inputs)), (flax_loss, (_, flax_to_inputs)) = course(weights, batch), flax(flax_weights, batch)
    np.testing.assert_allclose(loss, flax_loss, rtol=1e-4)
    np.testing.assert_allclose(to_inputs, flax_to_inputs, rtol=1e-2, atol=1e-4)
    return time_side_by_side(
        {"unroll": (course, (weights, batch)), "flax": (flax, (flax_weights, batch))}, repeats=repeats
    )


def report(
    make_cell: Callable[..., Cell],
    peer_with_the_weights_of: Callable[[Cell], nnx.RNN],
    more: Mapping[str, Callable[[Cell, Batch, int], str]] | None = None,
) -> None:
    """Prints a Markdown table with a row for every size.

    `more` adds columns: their titles, and what gives the text for (cell, batch, repeats).
    """
    more = more or {}
    print(f"{device_name()}, jax {jax.__version__}, batch {BATCH}, forward and backward\n")
    titles = ["T", "hidden", "unroll, ms", "flax.nnx.RNN, ms", "unroll / flax", *more, "compile, s: unroll", "flax"]
    print(f"| {' | '.join(titles)} |\n{'|---' * len(titles)}|")
    for length in LENGTHS:
        for width in WIDTHS:
            repeats = 15 if length * width < 100_000 else 7
            cell = make_cell(width, width, rngs=nnx.Rngs(0))
            times = compare(cell, peer_with_the_weights_of(cell), length, repeats=repeats)
            medians = [f"{times[name].median_s * 1e3:.1f}" for name in ("unroll", "flax")]
            compiling = [f"{times[name].compile_s:.2f}" for name in ("unroll", "flax")]
            others = [column(cell, inputs(length, width), repeats) for column in more.values()]
            cells = [length, width, *medians, ratio(times["unroll"], times["flax"]), *others, *compiling]
            print(f"| {' | '.join(map(str, cells))} |", flush=True)
