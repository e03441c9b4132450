"""What the gates of an LSTM do while it reads, and what it does without them."""

from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from whyattention.recurrent import LSTMCell


def gate_values(cell: LSTMCell, xs: Float[Array, "time features"]) -> dict[str, Float[Array, "time hidden"]]:
    """Each gate's value at every step, in (0, 1), and the cell state: "input", "forget", "output" and "memory".

    Raises ValueError if `xs` is not `[time, cell.in_features]`.
    """
    if xs.ndim != 2:
        raise ValueError(f"expected one sequence of shape [time, features], got shape {xs.shape}")

    def step(state, projected):
        input_gate, forget_gate, _, output_gate = cell.gates(state, projected)
        state, _ = cell.step(state, projected)
        return state, {"input": input_gate, "forget": forget_gate, "output": output_gate, "memory": state[1]}

    return jax.lax.scan(step, cell.initial_state(), cell.project(xs))[1]


def outputs_with_a_cut(
    cell: LSTMCell, xs: Float[Array, "time features"], cut: Literal["input gate", "h"], start: int, stop: int
) -> Float[Array, "time hidden"]:
    """The outputs of `unroll(cell, xs)` if from step `start` up to `stop` one of two ways into the cell state is shut.

    Without the "input gate" nothing more is written: it is zero. Without "h" the gates and the candidate see the inputs
    alone, as if the last output had been zero: what the state holds can no longer bring about what is written. Steps
    are counted from 0, and `stop` itself is whole again. Raises ValueError for another `cut`, or if `xs` is not
    `[time, cell.in_features]`.
    """
    if cut not in ("input gate", "h"):
        raise ValueError(f"cut must be 'input gate' or 'h', got {cut!r}")
    if xs.ndim != 2:
        raise ValueError(f"expected one sequence of shape [time, features], got shape {xs.shape}")

    def step(state, inputs):
        projected, is_cut = inputs
        hidden, memory = state
        heard = jnp.where(is_cut, 0, hidden) if cut == "h" else hidden
        input_gate, forget_gate, candidate, output_gate = cell.gates((heard, memory), projected)
        written = jnp.where(is_cut, 0, input_gate) if cut == "input gate" else input_gate
        memory = forget_gate * memory + written * candidate
        hidden = output_gate * jnp.tanh(memory)
        return (hidden, memory), hidden

    time = jnp.arange(xs.shape[0])
    return jax.lax.scan(step, cell.initial_state(), (cell.project(xs), (start <= time) & (time < stop)))[1]
