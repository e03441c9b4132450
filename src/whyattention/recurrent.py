"""Recurrent cells, and the scan that unrolls them over one sequence.

A cell is one time step: `cell(state, x) -> (state, y)`, with `cell.initial_state()` to begin from. Its input
projection does not depend on the state, so every cell splits its step in two: `project`, which may be applied
to all time steps at once, and `step`, which has to wait for the state before it. `unroll` uses that split.
Everything here is written for one sequence; `jax.vmap` makes a batch of it.
"""

from typing import Any, Protocol

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

State = Any  # a pytree of arrays: the hidden vector of a tanh cell, the pair (hidden, memory) of an LSTM

lecun_normal = nnx.initializers.lecun_normal()
orthogonal = nnx.initializers.orthogonal()


class Cell(Protocol):
    """What `unroll` and the models ask of a cell."""

    in_features: int
    hidden_size: int

    def initial_state(self) -> State: ...

    def project(self, x: Float[Array, "*axes features"]) -> Float[Array, "*axes gates"]: ...

    def step(self, state: State, projected: Float[Array, " gates"]) -> tuple[State, Float[Array, " hidden"]]: ...

    def __call__(self, state: State, x: Float[Array, " features"]) -> tuple[State, Float[Array, " hidden"]]: ...


def _require_features(name: str, x: Array, expected: int) -> None:
    if x.ndim == 0 or x.shape[-1] != expected:
        raise ValueError(f"{name} expects {expected} features on the last axis, got an array of shape {x.shape}")


class TanhCell(nnx.Module):
    """The plain recurrent cell: h_t = tanh(x_t W_x + h_{t-1} W_h + b) (Elman 1990, with tanh for the sigmoid).

    Parameters: `kernel` W_x `[in_features, hidden_size]`, `recurrent_kernel` W_h `[hidden_size, hidden_size]`,
    `bias` `[hidden_size]`. The state is h `[hidden_size]`, zero at the start, and the output is the new state.
    W_h is orthogonal at first unless `recurrent_init` says otherwise.
    """

    def __init__(
        self,
        in_features: int,
        hidden_size: int,
        *,
        rngs: nnx.Rngs,
        recurrent_init: nnx.Initializer = orthogonal,
    ):
        self.in_features = in_features
        self.hidden_size = hidden_size
        self.kernel = nnx.Param(lecun_normal(rngs.params(), (in_features, hidden_size)))
        self.recurrent_kernel = nnx.Param(recurrent_init(rngs.params(), (hidden_size, hidden_size)))
        self.bias = nnx.Param(jnp.zeros(hidden_size))

    def initial_state(self) -> Float[Array, " hidden"]:
        return jnp.zeros(self.hidden_size)

    def project(self, x: Float[Array, "*axes features"]) -> Float[Array, "*axes hidden"]:
        """x W_x + b. Raises ValueError where the last axis is not `in_features` long."""
        _require_features("TanhCell", x, self.in_features)
        return x @ self.kernel[...] + self.bias[...]

    def step(self, state, projected):
        state = jnp.tanh(projected + state @ self.recurrent_kernel[...])
        return state, state

    def __call__(self, state, x):
        return self.step(state, self.project(x))


class LSTMCell(nnx.Module):
    """The LSTM cell with forget gates (Hochreiter & Schmidhuber 1997; Gers, Schmidhuber & Cummins 2000).

        i, f, o = sigmoid(...)    g = tanh(...)    c_t = f * c_{t-1} + i * g    h_t = o * tanh(c_t)

    where (...) is that gate's slice of x_t W_x + h_{t-1} W_h + b. The four gates lie side by side in one matrix, in
    the order i, f, g, o: `kernel` `[in_features, 4 * hidden_size]`, `recurrent_kernel` `[hidden_size, 4 * hidden_size]`
    (one orthogonal block per gate), `bias` `[4 * hidden_size]`, zero but for `forget_bias` in the slice of f.
    The state is the pair (h, c), both `[hidden_size]` and zero at the start; the output is h.
    """

    def __init__(self, in_features: int, hidden_size: int, *, rngs: nnx.Rngs, forget_bias: float = 1.0):
        self.in_features = in_features
        self.hidden_size = hidden_size
        self.kernel = nnx.Param(lecun_normal(rngs.params(), (in_features, 4 * hidden_size)))
        blocks = [orthogonal(rngs.params(), (hidden_size, hidden_size)) for _ in range(4)]
        self.recurrent_kernel = nnx.Param(jnp.concatenate(blocks, axis=1))
        bias = jnp.zeros(4 * hidden_size).at[hidden_size : 2 * hidden_size].set(forget_bias)
        self.bias = nnx.Param(bias)

    def initial_state(self) -> tuple[Float[Array, " hidden"], Float[Array, " hidden"]]:
        return jnp.zeros(self.hidden_size), jnp.zeros(self.hidden_size)

    def project(self, x: Float[Array, "*axes features"]) -> Float[Array, "*axes gates"]:
        """x W_x + b for all four gates. Raises ValueError where the last axis is not `in_features` long."""
        _require_features("LSTMCell", x, self.in_features)
        return x @ self.kernel[...] + self.bias[...]

    def step(self, state, projected):
        hidden, memory = state
        gates = projected + hidden @ self.recurrent_kernel[...]
        input_gate, forget_gate, candidate, output_gate = jnp.split(gates, 4)
        memory = jax.nn.sigmoid(forget_gate) * memory + jax.nn.sigmoid(input_gate) * jnp.tanh(candidate)
        hidden = jax.nn.sigmoid(output_gate) * jnp.tanh(memory)
        return (hidden, memory), hidden

    def __call__(self, state, x):
        return self.step(state, self.project(x))


def unroll(
    cell: Cell, xs: Float[Array, "time features"], state: State | None = None
) -> tuple[State, Float[Array, "time hidden"]]:
    """Runs `cell` over one sequence with `jax.lax.scan`: (final state, outputs at every step).

    The input projections of all steps are one matrix product before the scan (Appleyard et al. 2016, section 3.2);
    only what depends on the state stays inside it. `state` defaults to `cell.initial_state()`.

    Raises ValueError if `xs` is not `[time, cell.in_features]` or has no time step.
    """
    if xs.ndim != 2:
        raise ValueError(
            f"unroll expects one sequence of shape [time, features], got shape {xs.shape}; "
            "for a batch use jax.vmap(lambda xs: unroll(cell, xs))"
        )
    if xs.shape[0] == 0:
        raise ValueError(f"unroll expects at least one time step, got an empty sequence of shape {xs.shape}")
    projected = cell.project(xs)
    return jax.lax.scan(cell.step, cell.initial_state() if state is None else state, projected)
