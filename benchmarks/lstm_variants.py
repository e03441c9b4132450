"""Ways to write the LSTM's scan, side by side: which of them would make `unroll(LSTMCell)` faster?

Forward and backward, as in `lstm.py`. `python benchmarks/lstm_variants.py [T hidden ...]` prints a Markdown table;
README.md says what came of it.
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from lstm import peer_with_the_weights_of
from side_by_side import BATCH, Batch, from_zero, gradient_of, inputs, unrolled

from whyattention.measure.timing import ratio, time_side_by_side
from whyattention.record import device_name
from whyattention.recurrent import LSTMCell


def four_steps_a_turn(cell: LSTMCell, xs: Batch):
    """`unroll=4`: fewer turns of the loop, a longer body to compile."""

    def one(x):
        return jax.lax.scan(cell.step, cell.initial_state(), cell.project(x), unroll=4)[1]

    return jax.vmap(one)(xs)


def project_inside(cell: LSTMCell, xs: Batch):
    """The input projection inside the scan, step by step, as Flax does it."""
    return jax.vmap(lambda x: jax.lax.scan(cell, cell.initial_state(), x)[1])(xs)


def projected_as_one_matrix(cell: LSTMCell, xs: Batch):
    """The projection of all steps as one product of two plain matrices, time first, and the bias added in the scan.

    The gradient of the kernel then sums over one axis and not over two, batch and time, for which XLA's CPU compiler
    first turns the array of all gates round. Under `vmap` there are always two.
    """
    rows = jnp.swapaxes(xs, 0, 1)  # [time, batch, features]
    projected = (rows.reshape(-1, rows.shape[-1]) @ cell.kernel[...]).reshape(*rows.shape[:2], -1)
    start = jax.tree.map(lambda state: jnp.zeros((len(xs), *state.shape)), cell.initial_state())
    _, outputs = jax.lax.scan(lambda state, now: jax.vmap(cell.step)(state, now + cell.bias[...]), start, projected)
    return jnp.swapaxes(outputs, 0, 1)


def tanh_for_sigmoid(cell: LSTMCell, xs: Batch):
    """sigmoid(a) = (1 + tanh(a / 2)) / 2: one kind of transcendental function instead of two."""

    def sigmoid(a):
        return 0.5 + 0.5 * jnp.tanh(0.5 * a)

    def step(state, projected):
        hidden, memory = state
        i, f, g, o = jnp.split(projected + hidden @ cell.recurrent_kernel[...], 4)
        memory = sigmoid(f) * memory + sigmoid(i) * jnp.tanh(g)
        hidden = sigmoid(o) * jnp.tanh(memory)
        return (hidden, memory), hidden

    return jax.vmap(lambda x: jax.lax.scan(step, cell.initial_state(), cell.project(x))[1])(xs)


def bfloat16_products(cell: LSTMCell, xs: Batch):
    """Matrix products in bfloat16, everything else in float32."""
    kernel = cell.recurrent_kernel[...].astype(jnp.bfloat16)

    def step(state, projected):
        hidden, memory = state
        product = jnp.matmul(hidden.astype(jnp.bfloat16), kernel, preferred_element_type=jnp.float32)
        i, f, g, o = jnp.split(projected + product, 4)
        memory = jax.nn.sigmoid(f) * memory + jax.nn.sigmoid(i) * jnp.tanh(g)
        hidden = jax.nn.sigmoid(o) * jnp.tanh(memory)
        return (hidden, memory), hidden

    return jax.vmap(lambda x: jax.lax.scan(step, cell.initial_state(), cell.project(x))[1])(xs)


def weight_gradient_after_the_loop(cell: LSTMCell, xs: Batch):
    """The weights' gradient as one matrix product after the backward scan, instead of a sum carried through it.

    Written for the whole batch, time first: under `vmap` the product would be made once per sequence.
    """
    projected = cell.project(jnp.swapaxes(xs, 0, 1))
    return jnp.swapaxes(_scan_with_own_gradient(cell.recurrent_kernel[...], projected), 0, 1)


def _forward(kernel, projected):
    def step(state, projected):
        hidden, memory = state
        i, f, g, o = jnp.split(projected + hidden @ kernel, 4, axis=-1)
        i, f, g, o = jax.nn.sigmoid(i), jax.nn.sigmoid(f), jnp.tanh(g), jax.nn.sigmoid(o)
        new = f * memory + i * g
        output = o * jnp.tanh(new)
        return (output, new), (output, hidden, memory, i, f, g, o, new)

    start = jnp.zeros((projected.shape[1], kernel.shape[0]))
    outputs, *kept = jax.lax.scan(step, (start, start), projected)[1]
    return outputs, (kernel, *kept)


def _backward(residuals, from_outputs):
    kernel, *kept = residuals

    def step(from_later, now):
        to_hidden, to_memory = from_later
        from_output, _, memory, i, f, g, o, new = now
        to_hidden, shown = to_hidden + from_output, jnp.tanh(new)
        to_memory = to_memory + to_hidden * o * (1 - shown**2)
        to_i, to_f = to_memory * g * i * (1 - i), to_memory * memory * f * (1 - f)
        to_g, to_o = to_memory * i * (1 - g**2), to_hidden * shown * o * (1 - o)
        to_gates = jnp.concatenate([to_i, to_f, to_g, to_o], axis=-1)
        return (to_gates @ kernel.T, to_memory * f), to_gates

    zeros = jnp.zeros_like(from_outputs[0])
    _, to_gates = jax.lax.scan(step, (zeros, zeros), (from_outputs, *kept), reverse=True)
    return jnp.einsum("tbh,tbg->hg", kept[0], to_gates), to_gates


@jax.custom_vjp
def _scan_with_own_gradient(kernel, projected):
    return _forward(kernel, projected)[0]


_scan_with_own_gradient.defvjp(_forward, _backward)

VARIANTS = (
    unrolled,
    project_inside,
    projected_as_one_matrix,
    four_steps_a_turn,
    tanh_for_sigmoid,
    bfloat16_products,
    weight_gradient_after_the_loop,
)


def compare(length: int, width: int) -> None:
    cell = LSTMCell(width, width, rngs=nnx.Rngs(0))
    batch = inputs(length, width)
    flax, flax_weights = gradient_of(from_zero, peer_with_the_weights_of(cell))
    contestants = {"flax": (flax, (flax_weights, batch))}
    expected = unrolled(cell, batch)
    for variant in VARIANTS:
        np.testing.assert_allclose(variant(cell, batch), expected, atol=0.05 if variant is bfloat16_products else 1e-4)
        function, weights = gradient_of(variant, cell)
        contestants[variant.__name__.replace("_", " ")] = (function, (weights, batch))
    times = time_side_by_side(contestants, repeats=11 if length * width < 100_000 else 5)
    for name, timing in times.items():
        print(
            f"| {length} | {width} | {name} | {timing.median_s * 1e3:.1f} | {ratio(timing, times['flax'])} "
            f"| {timing.compile_s:.2f} |",
            flush=True,
        )


def main(sizes: list[int]) -> None:
    print(f"{device_name()}, jax {jax.__version__}, batch {BATCH}, forward and backward\n")
    print("| T | hidden | variant | ms | over flax | compile, s |")
    print("|---|---|---|---|---|---|")
    for length, width in zip(sizes[::2], sizes[1::2], strict=True):
        compare(length, width)


if __name__ == "__main__":
    main([int(size) for size in sys.argv[1:]] or [64, 128, 64, 512, 256, 128, 256, 512])
