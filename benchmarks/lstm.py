"""`unroll(LSTMCell)` against `flax.nnx.RNN(OptimizedLSTMCell)`, and `torch.nn.LSTM` where torch is installed.

Forward and backward, gradients for the weights and the input, same weights, same machine. Run it on a machine that does
nothing else: `python benchmarks/lstm.py`. It prints a Markdown table.
"""

import importlib.util
import time

import numpy as np
from flax import nnx
from side_by_side import Batch, report, unrolled

from whyattention.recurrent import LSTMCell


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


def torch_ms(cell: LSTMCell, batch: Batch, repeats: int) -> str:
    """Median milliseconds of torch's forward and backward. Raises AssertionError if it does not compute the same.

    Not in turns with JAX: both keep a pool of threads, and the one that rests would still take part of the cores.
    """
    if importlib.util.find_spec("torch") is None:
        return "not installed"
    import torch

    peer, inputs = torch_with_the_weights_of(cell), torch.tensor(np.array(batch), requires_grad=True)

    def run():
        peer.zero_grad()
        inputs.grad = None
        outputs, _ = peer(inputs)
        (outputs**2).sum().backward()
        return outputs

    np.testing.assert_allclose(run().detach().numpy(), unrolled(cell, batch), rtol=1e-2, atol=1e-4)
    samples = []
    for _ in range(repeats):
        begin = time.perf_counter()
        run()
        samples.append(time.perf_counter() - begin)
    return f"{np.median(samples) * 1e3:.1f}"


if __name__ == "__main__":
    report(LSTMCell, peer_with_the_weights_of, {"torch, ms": torch_ms})
