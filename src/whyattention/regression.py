"""Models that read a whole sequence of numbers and answer once: `model(xs [time, features]) -> [outputs]`."""

from flax import nnx
from jaxtyping import Array, Float

from whyattention.recurrent import Cell, unroll


class RecurrentRegressor(nnx.Module):
    """One recurrent layer, and a linear read-out of its last output."""

    def __init__(self, cell: Cell, outputs: int = 1, *, rngs: nnx.Rngs):
        self.cell = cell
        self.readout = nnx.Linear(cell.hidden_size, outputs, rngs=rngs)

    def __call__(self, xs: Float[Array, "time features"]) -> Float[Array, " outputs"]:
        _, hidden = unroll(self.cell, xs)
        return self.readout(hidden[-1])
