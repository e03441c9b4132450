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
from jaxtyping import Array, Float, Int

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


def _require_sizes(in_features: int, hidden_size: int) -> None:
    if in_features < 1 or hidden_size < 1:
        raise ValueError(f"sizes must be at least 1, got in_features={in_features} and hidden_size={hidden_size}")


def _orthogonal_blocks(gates: int, hidden_size: int, rngs: nnx.Rngs) -> Float[Array, "hidden gates"]:
    """One orthogonal matrix per gate, side by side."""
    return jnp.concatenate([orthogonal(rngs.params(), (hidden_size, hidden_size)) for _ in range(gates)], axis=1)


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
        _require_sizes(in_features, hidden_size)
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
        _require_sizes(in_features, hidden_size)
        self.in_features = in_features
        self.hidden_size = hidden_size
        self.kernel = nnx.Param(lecun_normal(rngs.params(), (in_features, 4 * hidden_size)))
        self.recurrent_kernel = nnx.Param(_orthogonal_blocks(4, hidden_size, rngs))
        bias = jnp.zeros(4 * hidden_size).at[hidden_size : 2 * hidden_size].set(forget_bias)
        self.bias = nnx.Param(bias)

    def initial_state(self) -> tuple[Float[Array, " hidden"], Float[Array, " hidden"]]:
        return jnp.zeros(self.hidden_size), jnp.zeros(self.hidden_size)

    def project(self, x: Float[Array, "*axes features"]) -> Float[Array, "*axes gates"]:
        """x W_x + b for all four gates. Raises ValueError where the last axis is not `in_features` long."""
        _require_features("LSTMCell", x, self.in_features)
        return x @ self.kernel[...] + self.bias[...]

    def gates(self, state, projected):
        """(input gate, forget gate, candidate, output gate), each `[hidden_size]`, with their nonlinearities."""
        hidden, _ = state
        i, f, g, o = jnp.split(projected + hidden @ self.recurrent_kernel[...], 4, axis=-1)
        return jax.nn.sigmoid(i), jax.nn.sigmoid(f), jnp.tanh(g), jax.nn.sigmoid(o)

    def step(self, state, projected):
        _, memory = state
        input_gate, forget_gate, candidate, output_gate = self.gates(state, projected)
        memory = forget_gate * memory + input_gate * candidate
        hidden = output_gate * jnp.tanh(memory)
        return (hidden, memory), hidden

    def __call__(self, state, x):
        return self.step(state, self.project(x))


def chrono_bias(hidden_size: int, longest: float, key: Array) -> Float[Array, " gates"]:
    """A bias for `LSTMCell` that gives its units time constants of 2 to `longest` steps (Tallec & Ollivier 2018).

    b_f = log u with u uniform in [1, longest - 1], which gives each unit a forget gate of u / (1 + u) and so a time
    constant of 1 + u steps; b_i = -b_f, and the rest is zero. Raises ValueError if `longest` is not a finite number
    from 2.
    """
    if not 2 <= longest < float("inf"):
        raise ValueError(f"the longest lag must be at least 2 and finite, got {longest}")
    forget = jnp.log(jax.random.uniform(key, (hidden_size,), minval=1.0, maxval=longest - 1.0))
    return jnp.concatenate([-forget, forget, jnp.zeros(2 * hidden_size)])


class GRUCell(nnx.Module):
    """The gated recurrent unit (Cho et al. 2014), in the form in which the reset gate acts after the matrix product.

        r, z = sigmoid(...)    n = tanh(a_n + r * u_n)    h_t = (1 - z) * n + z * h_{t-1}

    where (...) is that gate's slice of a + u, a = x_t W_x + b and u = h_{t-1} W_h. So the three gates share one matrix
    product with the state, as cuDNN and Flax compute it; in the paper the reset gate acts before it, on h_{t-1}. Order
    of the slices: r, z, n. `kernel` is `[in_features, 3 * hidden_size]`, `recurrent_kernel` `[hidden_size, 3 *
    hidden_size]` (one orthogonal block per gate), `bias` `[3 * hidden_size]`, zero. The state is h `[hidden_size]`,
    zero at the start, and the output is the new state.
    """

    def __init__(self, in_features: int, hidden_size: int, *, rngs: nnx.Rngs):
        _require_sizes(in_features, hidden_size)
        self.in_features = in_features
        self.hidden_size = hidden_size
        self.kernel = nnx.Param(lecun_normal(rngs.params(), (in_features, 3 * hidden_size)))
        self.recurrent_kernel = nnx.Param(_orthogonal_blocks(3, hidden_size, rngs))
        self.bias = nnx.Param(jnp.zeros(3 * hidden_size))

    def initial_state(self) -> Float[Array, " hidden"]:
        return jnp.zeros(self.hidden_size)

    def project(self, x: Float[Array, "*axes features"]) -> Float[Array, "*axes gates"]:
        """x W_x + b for all three gates. Raises ValueError where the last axis is not `in_features` long."""
        _require_features("GRUCell", x, self.in_features)
        return x @ self.kernel[...] + self.bias[...]

    def step(self, state, projected):
        from_input_r, from_input_z, from_input_n = jnp.split(projected, 3, axis=-1)
        from_state_r, from_state_z, from_state_n = jnp.split(state @ self.recurrent_kernel[...], 3, axis=-1)
        reset, keep = jax.nn.sigmoid(from_input_r + from_state_r), jax.nn.sigmoid(from_input_z + from_state_z)
        candidate = jnp.tanh(from_input_n + reset * from_state_n)
        state = (1 - keep) * candidate + keep * state
        return state, state

    def __call__(self, state, x):
        return self.step(state, self.project(x))


def unroll(
    cell: Cell,
    xs: Float[Array, "time features"],
    state: State | None = None,
    length: int | Int[Array, ""] | None = None,
) -> tuple[State, Float[Array, "time hidden"]]:
    """Runs `cell` over one sequence with `jax.lax.scan`: (final state, outputs at every step).

    The input projections of all steps are one matrix product before the scan (Appleyard et al. 2016, section 3.2);
    only what depends on the state stays inside it. `state` defaults to `cell.initial_state()`.

    With `length`, only the first `length` steps are real and the rest is padding, whatever it holds: it changes no
    state, its outputs are zero, and no gradient comes from it. A length of zero gives back the state at the start. For
    a batch, `jax.vmap(lambda xs, length: unroll(cell, xs, length=length))(batch, lengths)`. A traced length, whose
    value nobody can look at, acts as the nearest one from 0 to `time`.

    Raises ValueError if `xs` is not `[time, cell.in_features]` or has no time step, if `state` is not shaped as the
    cell's own, or if `length` is not one whole number, or is known and not from 0 to `time`.
    """
    xs = jnp.asarray(xs)
    if xs.ndim != 2:
        raise ValueError(
            f"unroll expects one sequence of shape [time, features], got shape {xs.shape}; "
            "for a batch use jax.vmap(lambda xs: unroll(cell, xs))"
        )
    if xs.shape[0] == 0:
        raise ValueError(f"unroll expects at least one time step, got an empty sequence of shape {xs.shape}")
    expected = jax.tree.map(jnp.shape, cell.initial_state())
    state = cell.initial_state() if state is None else state
    if jax.tree.map(jnp.shape, state) != expected:
        raise ValueError(f"the cell's state has shape {expected}, got {jax.tree.map(jnp.shape, state)}")
    if length is None:
        return jax.lax.scan(cell.step, state, cell.project(xs))
    if jnp.ndim(length) != 0:
        raise ValueError(
            f"length must be one number, got shape {jnp.shape(length)}; "
            "for a batch use jax.vmap(lambda xs, length: unroll(cell, xs, length=length))"
        )
    if not jnp.issubdtype(jnp.result_type(length), jnp.integer):
        raise ValueError(f"length must be a whole number, got one of type {jnp.result_type(length)}")
    if not isinstance(length, jax.core.Tracer) and not 0 <= int(length) <= xs.shape[0]:
        raise ValueError(f"length must be from 0 to the {xs.shape[0]} time steps, got {length}")
    real = jnp.arange(xs.shape[0]) < length
    # Before the projection, not after: a NaN in the padding would reach the weights' gradient as 0 * NaN.
    xs = jnp.where(real[:, None], xs, 0)

    def step_if_real(state, inputs):
        projected, is_real = inputs
        after, output = cell.step(state, projected)
        after = jax.tree.map(lambda new, old: jnp.where(is_real, new, old), after, state)
        return after, jnp.where(is_real, output, 0)

    return jax.lax.scan(step_if_real, state, (cell.project(xs), real))
