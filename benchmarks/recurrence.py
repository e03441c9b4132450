"""`unroll(TanhCell)` against `flax.nnx.RNN(nnx.SimpleCell)`: forward and backward, same weights, side by side.

Run it on a machine that does nothing else: `python benchmarks/recurrence.py`. It prints a Markdown table.
"""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Float

from whyattention.measure.timing import ratio, time_side_by_side
from whyattention.record import device_name
from whyattention.recurrent import TanhCell, unroll

BATCH = 32
LENGTHS = (64, 256)
WIDTHS = (128, 512)


def peer_with_the_weights_of(cell: TanhCell) -> nnx.RNN:
    """Flax's recurrence, computing what `cell` computes."""
    peer = nnx.SimpleCell(cell.in_features, cell.hidden_size, rngs=nnx.Rngs(0))
    peer.dense_i.kernel[...] = cell.kernel[...]
    peer.dense_i.bias[...] = cell.bias[...]
    peer.dense_h.kernel[...] = cell.recurrent_kernel[...]
    return nnx.RNN(peer)


def gradient_of(apply, model: nnx.Module) -> tuple:
    """A function of (weights, batch) that runs forward and backward, and the weights."""
    graph, weights, rest = nnx.split(model, nnx.Param, ...)

    def loss(weights, batch: Float[Array, "batch time features"]) -> Float[Array, ""]:
        return jnp.sum(apply(nnx.merge(graph, weights, rest), batch) ** 2)

    return jax.value_and_grad(loss, argnums=(0, 1)), weights


def compare(length: int, width: int, *, repeats: int = 15) -> dict:
    """Times of both at one size. Raises AssertionError if they do not compute the same."""
    cell = TanhCell(width, width, rngs=nnx.Rngs(0))
    batch = jax.random.normal(jax.random.key(1), (BATCH, length, width))
    start = jnp.zeros((BATCH, width))  # given, since Flax would draw it from a random key
    course, weights = gradient_of(lambda cell, xs: jax.vmap(lambda x: unroll(cell, x)[1])(xs), cell)
    peer, peer_weights = gradient_of(lambda rnn, xs: rnn(xs, initial_carry=start), peer_with_the_weights_of(cell))

    (loss, (_, from_course)), (peer_loss, (_, from_peer)) = course(weights, batch), peer(peer_weights, batch)
    np.testing.assert_allclose(loss, peer_loss, rtol=1e-4)
    np.testing.assert_allclose(from_course, from_peer, rtol=1e-2, atol=1e-4)
    return time_side_by_side(
        {"unroll": (course, (weights, batch)), "flax": (peer, (peer_weights, batch))}, repeats=repeats
    )


def main() -> None:
    print(f"{device_name()}, jax {jax.__version__}, batch {BATCH}, forward and backward\n")
    print("| T | hidden | unroll, ms | flax.nnx.RNN, ms | unroll / flax | compile, s: unroll | flax |")
    print("|---|---|---|---|---|---|---|")
    for length in LENGTHS:
        for width in WIDTHS:
            times = compare(length, width)
            ours, theirs = times["unroll"], times["flax"]
            print(
                f"| {length} | {width} | {ours.median_s * 1e3:.1f} | {theirs.median_s * 1e3:.1f} "
                f"| {ratio(ours, theirs)} | {ours.compile_s:.2f} | {theirs.compile_s:.2f} |"
            )


if __name__ == "__main__":
    main()
