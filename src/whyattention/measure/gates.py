"""What the gates of an LSTM do while it reads."""

import jax
from jaxtyping import Array, Float

from whyattention.recurrent import LSTMCell


def gate_values(cell: LSTMCell, xs: Float[Array, "time features"]) -> dict[str, Float[Array, "time hidden"]]:
    """Each gate's value at every step, in (0, 1), and the cell state: "input", "forget", "output" and "memory".

    Raises ValueError where the last axis of `xs` is not `cell.in_features` long.
    """

    def step(state, projected):
        input_gate, forget_gate, _, output_gate = cell.gates(state, projected)
        state, _ = cell.step(state, projected)
        return state, {"input": input_gate, "forget": forget_gate, "output": output_gate, "memory": state[1]}

    return jax.lax.scan(step, cell.initial_state(), cell.project(xs))[1]
