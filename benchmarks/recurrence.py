"""`unroll(TanhCell)` against `flax.nnx.RNN(nnx.SimpleCell)`: forward and backward, same weights, side by side.

Run it on a machine that does nothing else: `python benchmarks/recurrence.py`. It prints a Markdown table.
"""

from flax import nnx
from side_by_side import report

from whyattention.recurrent import TanhCell


def peer_with_the_weights_of(cell: TanhCell) -> nnx.RNN:
    """Flax's recurrence, computing what `cell` computes."""
    peer = nnx.SimpleCell(cell.in_features, cell.hidden_size, rngs=nnx.Rngs(0))
    peer.dense_i.kernel[...] = cell.kernel[...]
    peer.dense_i.bias[...] = cell.bias[...]
    peer.dense_h.kernel[...] = cell.recurrent_kernel[...]
    return nnx.RNN(peer)


if __name__ == "__main__":
    report(TanhCell, peer_with_the_weights_of)
