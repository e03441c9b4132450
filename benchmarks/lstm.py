"""`unroll(LSTMCell)` against `flax.nnx.RNN(OptimizedLSTMCell)`, and `torch.nn.LSTM` where torch is installed.

Forward and backward, gradients for the weights and the input, same weights, same machine. Run it on a machine that does
nothing else: `python benchmarks/lstm.py`. It prints a Markdown table.
"""

import importlib.util
import time

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Float

from whyattention.measure.timing import ratio, time_side_by_side
from whyattention.record import device_name
from whyattention.recurrent import LSTMCell, unroll

BATCH = 32
LENGTHS = (64, 256)
WIDTHS = (128, 512)


def peer_with_the_weights_of(cell: LSTMCell) -> nnx.RNN:
    """Flax's recurrence, computing what `cell` computes."""
    peer = nnx.OptimizedLSTMCell(cell.in_features, cell.hidden_size, rngs=nnx.Rngs(0))
    peer.dense_i.kernel[...] = cell.kernel[...]
    peer.dense_h.kernel[...] = cell.recurrent_kernel[...]
    peer.dense_h.bias[...] = cell.bias[...]
    return nnx.RNN(peer)


def torch_with_the_weights_of(cell: LSTMCell):
    """torch's layer, computing what `cell` computes; its gates lie in the same order, i, f, g, o."""
    import torch

    peer = torch.nn.LSTM(cell.in_features, cell.hidden_size, batch_first=True)
    with torch.no_grad():
        peer.weight_ih_l0.copy_(torch.tensor(np.array(cell.kernel[...].T)))
        peer.weight_hh_l0.copy_(torch.tensor(np.array(cell.recurrent_kernel[...].T)))
        peer.bias_ih_l0.copy_(torch.tensor(np.array(cell.bias[...])))
        peer.bias_hh_l0.zero_()
    return peer


def gradient_of(apply, model: nnx.Module) -> tuple:
    """A function of (weights, batch) that runs forward and backward, and the weights."""
    graph, weights, rest = nnx.split(model, nnx.Param, ...)

    def loss(weights, batch: Float[Array, "batch time features"]) -> Float[Array, ""]:
        return jnp.sum(apply(nnx.merge(graph, weights, rest), batch) ** 2)

    return jax.value_and_grad(loss, argnums=(0, 1)), weights


def compare(length: int, width: int, *, repeats: int = 15) -> dict:
    """Times of both JAX programs at one size. Raises AssertionError if they do not compute the same."""
    cell = LSTMCell(width, width, rngs=nnx.Rngs(0))
    batch = jax.random.normal(jax.random.key(1), (BATCH, length, width))
    start = jnp.zeros((BATCH, width))  # given, since Flax would draw it from a random key
    course, weights = gradient_of(lambda cell, xs: jax.vmap(lambda x: unroll(cell, x)[1])(xs), cell)
    peer, peer_weights = gradient_of(
        lambda rnn, xs: rnn(xs, initial_carry=(start, start)), peer_with_the_weights_of(cell)
    )
    (loss, (_, from_course)), (peer_loss, (_, from_peer)) = course(weights, batch), peer(peer_weights, batch)
    np.testing.assert_allclose(loss, peer_loss, rtol=1e-4)
    np.testing.assert_allclose(from_course, from_peer, rtol=1e-2, atol=1e-4)
    return time_side_by_side(
        {"unroll": (course, (weights, batch)), "flax": (peer, (peer_weights, batch))}, repeats=repeats
    )


def torch_median_s(length: int, width: int, *, repeats: int = 15) -> float:
    """Median seconds of torch's forward and backward. Raises AssertionError if it does not compute the same.

    Not in turns with JAX: both keep a pool of threads, and the one that rests would still take part of the cores.
    """
    import torch

    cell = LSTMCell(width, width, rngs=nnx.Rngs(0))
    batch = jax.random.normal(jax.random.key(1), (BATCH, length, width))
    peer, inputs = torch_with_the_weights_of(cell), torch.tensor(np.array(batch), requires_grad=True)

    def run():
        peer.zero_grad()
        inputs.grad = None
        outputs, _ = peer(inputs)
        (outputs**2).sum().backward()
        return outputs

    ours = jax.vmap(lambda xs: unroll(cell, xs)[1])(batch)
    np.testing.assert_allclose(run().detach().numpy(), ours, rtol=1e-2, atol=1e-4)
    samples = []
    for _ in range(repeats):
        begin = time.perf_counter()
        run()
        samples.append(time.perf_counter() - begin)
    return float(np.median(samples))


def main() -> None:
    has_torch = importlib.util.find_spec("torch") is not None
    print(f"{device_name()}, jax {jax.__version__}, batch {BATCH}, forward and backward\n")
    print("| T | hidden | unroll, ms | flax.nnx.RNN, ms | unroll / flax | torch, ms | compile, s: unroll | flax |")
    print("|---|---|---|---|---|---|---|---|")
    for length in LENGTHS:
        for width in WIDTHS:
            repeats = 15 if length * width < 100_000 else 7
            times = compare(length, width, repeats=repeats)
            ours, theirs = times["unroll"], times["flax"]
            torch_ms = f"{torch_median_s(length, width, repeats=repeats) * 1e3:.1f}" if has_torch else "not installed"
            print(
                f"| {length} | {width} | {ours.median_s * 1e3:.1f} | {theirs.median_s * 1e3:.1f} "
                f"| {ratio(ours, theirs)} | {torch_ms} | {ours.compile_s:.2f} | {theirs.compile_s:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
