"""Recurrences computed in parallel over time: linear ones by an associative scan, any other by Newton's method.

h_t = a_t * h_{t-1} + b_t is an affine map of the state, and two affine maps in a row are one affine map again. That
is an associative operation, so T of them can be put together as a tree, in about log2(T) rounds instead of T steps
(Blelloch 1990, section 1.4; Martin & Cundy 2018). What is in the way of a GRU or an LSTM is that their steps are not
linear in the state; `newton_unroll` solves them as a series of recurrences that are. Everything here is written for
one sequence; `jax.vmap` makes a batch of it.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Inexact, Int

from whyattention.recurrent import Cell, State, _require_features, _require_sizes, lecun_normal, unroll

Affine = tuple[Inexact[Array, "*axes"], Inexact[Array, "*axes"]]  # (a, b): the map h -> a * h + b


# --- Linear recurrences -------------------------------------------------------------------------


def combine(first: Affine, second: Affine) -> Affine:
    """The map that applies `first` and then `second`: (a2 * a1, a2 * b1 + b2), number by number. Associative."""
    first_decay, first_drive = first
    second_decay, second_drive = second
    return second_decay * first_decay, second_decay * first_drive + second_drive


def combine_logs(first: Affine, second: Affine) -> Affine:
    """`combine` on the logarithms of positive a and b, which never leave the range of a float."""
    first_decay, first_drive = first
    second_decay, second_drive = second
    return second_decay + first_decay, jnp.logaddexp(second_decay + first_drive, second_drive)


def combine_matrices(first: Affine, second: Affine) -> Affine:
    """`combine` for h -> A h + b: (A2 A1, A2 b1 + b2), with A `[..., n, n]` and b `[..., n]`. 2 n^3 operations."""
    first_matrix, first_drive = first
    second_matrix, second_drive = second
    return second_matrix @ first_matrix, jnp.einsum("...ij,...j->...i", second_matrix, first_drive) + second_drive


def linear_recurrence(
    decay: Inexact[Array, "time *features"],
    drive: Inexact[Array, "time *features"],
    initial: Inexact[Array, "*features"] | None = None,
) -> Inexact[Array, "time *features"]:
    """h_t = decay_t * h_{t-1} + drive_t at every step, by an associative scan. `initial`, h before the first, is 0.

    The span grows with log2(T), the work is some 3.5 times that of `sequential_recurrence`. Decays whose products
    underflow are harmless: what they forget is forgotten. Products that overflow are not: see `log_recurrence`.

    Raises ValueError if `decay` and `drive` differ in shape or have no time step, or if `initial` is not shaped as one
    step.
    """
    decay, drive = _checked(decay, drive, initial)
    if initial is not None:
        drive = drive.at[0].add(decay[0] * initial)
    return jax.lax.associative_scan(combine, (decay, drive))[1]


def sequential_recurrence(
    decay: Inexact[Array, "time *features"],
    drive: Inexact[Array, "time *features"],
    initial: Inexact[Array, "*features"] | None = None,
) -> Inexact[Array, "time *features"]:
    """What `linear_recurrence` gives, step after step with `jax.lax.scan`: the reference. Raises the same errors."""
    decay, drive = _checked(decay, drive, initial)

    def step(state, inputs):
        decay, drive = inputs
        state = decay * state + drive
        return state, state

    start = jnp.zeros_like(drive[0]) if initial is None else jnp.asarray(initial, drive.dtype)
    return jax.lax.scan(step, start, (decay, drive))[1]


def log_recurrence(
    log_decay: Float[Array, "time *features"],
    log_drive: Float[Array, "time *features"],
    log_initial: Float[Array, "*features"] | None = None,
) -> Float[Array, "time *features"]:
    """log h_t of a recurrence of positive numbers, from log decay and log drive; log 0 is minus infinity.

    States and products of decays may be far outside the range of a float. Same recurrence as the log-cumsum-exp of
    Heinsen 2023 and appendix B of Feng et al. 2024, but pair by pair: their sum of all log decays from the beginning
    loses digits as it grows, and here no number is larger than the logarithms that are asked for.

    Raises the errors of `linear_recurrence`.
    """
    log_decay, log_drive = _checked(log_decay, log_drive, log_initial)
    if log_initial is not None:
        log_drive = log_drive.at[0].set(jnp.logaddexp(log_decay[0] + log_initial, log_drive[0]))
    return jax.lax.associative_scan(combine_logs, (log_decay, log_drive))[1]


def _checked(decay, drive, initial):
    """`decay` and `drive` as arrays of one type."""
    dtype = jnp.result_type(decay, drive, float if initial is None else initial, jnp.float32)
    decay, drive = jnp.asarray(decay, dtype), jnp.asarray(drive, dtype)
    if decay.shape != drive.shape or decay.ndim == 0:
        raise ValueError(f"decay and drive must both be [time, features], got shapes {decay.shape} and {drive.shape}")
    if decay.shape[0] == 0:
        raise ValueError(f"a recurrence needs at least one time step, got shape {decay.shape}")
    if initial is not None and jnp.shape(initial) != drive.shape[1:]:
        raise ValueError(f"initial must have the shape of one step, {drive.shape[1:]}, got {jnp.shape(initial)}")
    return decay, drive


# --- Cells whose step is linear in the state --------------------------------------------------------


class LinearCell(nnx.Module):
    """A cell whose state is one array h with h_t = decay_t * h_{t-1} + drive_t, neither of which depends on h.

    A subclass gives `inputs`, all that a step needs of its input, `coefficients`, (decay, drive), and `readout`, the
    output, each with any leading axes. It is a `Cell` for `unroll`, and `parallel_unroll` gives the same with a span of
    log T.
    """

    in_features: int
    hidden_size: int

    def __init__(self, in_features: int, hidden_size: int):
        _require_sizes(in_features, hidden_size)
        self.in_features = in_features
        self.hidden_size = hidden_size

    def project(self, x: Float[Array, "*axes features"]) -> Float[Array, "*axes gates"]:
        """What a step needs of its input. Raises ValueError where the last axis is not `in_features` long."""
        _require_features(type(self).__name__, x, self.in_features)
        return self.inputs(x)

    def step(self, state, projected):
        decay, drive = self.coefficients(projected)
        state = decay * state + drive
        return state, self.readout(state, projected)

    def states(self, projected, state):
        """The states after every step, by an associative scan; from `state` before the first, or the cell's own."""
        return linear_recurrence(*self.coefficients(projected), state)

    def __call__(self, state, x):
        return self.step(state, self.project(x))


class MinGRU(LinearCell):
    """The GRU without its state in gate and candidate (Feng et al. 2024, section 3.1, the vanilla version).

        z_t = sigmoid(x_t W_z + b_z)    c_t = x_t W_c + b_c    h_t = (1 - z_t) * h_{t-1} + z_t * c_t

    That is h_t = decay_t * h_{t-1} + drive_t with decays in (0, 1). With `signed` the decay is 1 - 2 z_t, in (-1, 1):
    an input may turn a unit over (Grazzi et al. 2025). Parameters: `kernel` `[in_features, 2 * hidden_size]` with the
    slices z, c, and `bias` `[2 * hidden_size]`, zero but for -`forget_bias` in the slice of z: 1 - z_t is the part of a
    forget gate. The state is h `[hidden_size]`, zero at the start, and the output is the new state.
    """

    def __init__(
        self, in_features: int, hidden_size: int, *, rngs: nnx.Rngs, forget_bias: float = 0.0, signed: bool = False
    ):
        super().__init__(in_features, hidden_size)
        self.signed = signed
        self.kernel = nnx.Param(lecun_normal(rngs.params(), (in_features, 2 * hidden_size)))
        self.bias = nnx.Param(jnp.zeros(2 * hidden_size).at[:hidden_size].set(-forget_bias))

    def initial_state(self) -> Float[Array, " hidden"]:
        return jnp.zeros(self.hidden_size)

    def inputs(self, x):
        return x @ self.kernel[...] + self.bias[...]

    def coefficients(self, projected):
        gate, candidate = jnp.split(projected, 2, axis=-1)
        update = jax.nn.sigmoid(gate)
        return 1 - (2 if self.signed else 1) * update, update * candidate

    def readout(self, state, projected):
        return state


class DiagonalLinearRecurrence(LinearCell):
    """A linear recurrence with a fixed complex decay per unit (the LRU of Orvieto et al. 2023, section 3, simplified).

        h_t = lambda * h_{t-1} + sqrt(1 - |lambda|^2) * x_t B    y_t = Re(h_t C)    lambda = exp(-exp(nu) + i theta)

    so that |lambda| < 1 whatever training does. Decays of one sign or in pairs of opposite angle come for free, since
    the output is a real part. At first |lambda|^2 is uniform between the squares of `smallest` and `largest`, and theta
    from 0 to pi. The factor that keeps the size of h is computed, where the paper learns it from that start, and there
    is no skip from x to y: in a network the residual connection is one. Parameters: `log_rate` nu and `angle` theta,
    `[hidden_size]`; `kernel` `[in_features, 2 * hidden_size]` and `output` `[2 * hidden_size, hidden_size]`, real and
    imaginary parts side by side. The state is h, complex, `[hidden_size]`, zero at the start.

    Raises ValueError unless 0 <= smallest < largest < 1.
    """

    def __init__(
        self,
        in_features: int,
        hidden_size: int,
        *,
        rngs: nnx.Rngs,
        smallest: float = 0.5,
        largest: float = 0.99,
    ):
        super().__init__(in_features, hidden_size)
        if not 0 <= smallest < largest < 1:
            raise ValueError(f"decays need 0 <= smallest < largest < 1, got {smallest} and {largest}")
        size = (hidden_size,)
        squares = jax.random.uniform(rngs.params(), size, minval=max(smallest**2, 1e-6), maxval=largest**2)
        self.log_rate = nnx.Param(jnp.log(-jnp.log(squares) / 2))
        self.angle = nnx.Param(jax.random.uniform(rngs.params(), size, maxval=jnp.pi))
        self.kernel = nnx.Param(lecun_normal(rngs.params(), (in_features, 2 * hidden_size)))
        self.output = nnx.Param(lecun_normal(rngs.params(), (2 * hidden_size, hidden_size)))

    def initial_state(self):
        return jnp.zeros(self.hidden_size, jnp.complex64)

    def decay(self):
        """lambda, complex, `[hidden_size]`."""
        return jnp.exp(jax.lax.complex(-jnp.exp(self.log_rate[...]), self.angle[...]))

    def inputs(self, x):
        return x @ self.kernel[...]

    def coefficients(self, projected):
        decay = self.decay()
        keeps_size = jnp.sqrt(-jnp.expm1(-2 * jnp.exp(self.log_rate[...])))
        drive = keeps_size * jax.lax.complex(*jnp.split(projected, 2, axis=-1))
        return jnp.broadcast_to(decay, drive.shape), drive

    def readout(self, state, projected):
        return jnp.concatenate([state.real, state.imag], axis=-1) @ self.output[...]


class LinearAttention(LinearCell):
    """Attention with the product of positive features for exp(q k) (Katharopoulos et al. 2020, equations 9, 18-20).

        S_t = S_{t-1} + f(k_t) v_t^T    n_t = n_{t-1} + f(k_t)    y_t = f(q_t) S_t / (f(q_t) n_t)    f(u) = elu(u) + 1

    The weights over positions 0 ... t sum to 1, as in softmax attention, but all that is kept of the positions is S and
    n, as one array `[key_features, hidden_size + 1]`: a recurrence with a decay of 1. Parameter: `kernel`
    `[in_features, 2 * key_features + hidden_size]`, q, k and v side by side; no bias.
    """

    def __init__(self, in_features: int, hidden_size: int, *, key_features: int, rngs: nnx.Rngs):
        super().__init__(in_features, hidden_size)
        if key_features < 1:
            raise ValueError(f"key_features must be at least 1, got {key_features}")
        self.key_features = key_features
        self.kernel = nnx.Param(lecun_normal(rngs.params(), (in_features, 2 * key_features + hidden_size)))

    def initial_state(self) -> Float[Array, "keys values"]:
        return jnp.zeros((self.key_features, self.hidden_size + 1))

    def inputs(self, x):
        return x @ self.kernel[...]

    def coefficients(self, projected):
        _, key, value = jnp.split(projected, [self.key_features, 2 * self.key_features], axis=-1)
        counted = jnp.concatenate([value, jnp.ones_like(value[..., :1])], axis=-1)
        drive = (jax.nn.elu(key) + 1)[..., :, None] * counted[..., None, :]
        return jnp.ones_like(drive), drive

    def readout(self, state, projected):
        query = jax.nn.elu(projected[..., : self.key_features]) + 1
        mixed = jnp.einsum("...k,...kv->...v", query, state)
        return mixed[..., :-1] / (mixed[..., -1:] + 1e-6)


class MatrixRecurrence(LinearCell):
    """A linear recurrence whose decay is a whole matrix that depends on the input: H_t = A_t H_{t-1}, from H_0 = I.

        A_t = sqrt(n) M_t / |M_t|    M_t = I + x_t W + b, as an n by n matrix; |M| is the Frobenius norm

    It can permute what it keeps, where a diagonal decay can only shrink it or change its sign: with such matrices a
    linear recurrence solves word problems that no diagonal one of fixed depth can, unless TC0 = NC1 (IDS4 of Merrill et
    al. 2024, there unscaled and with a drive). The norm is that of an orthogonal matrix. The state is H
    `[size, size]`, and the output its `hidden_size` = n^2 numbers. Parameters: `kernel` `[in_features, n^2]`, `bias`
    `[n^2]`. To join two steps is a product of matrices: 2 n^3 operations, where a diagonal recurrence takes 3 n^2.

    Raises ValueError unless `size`, which is n, and `in_features` are at least 1.
    """

    def __init__(self, in_features: int, size: int, *, rngs: nnx.Rngs):
        _require_sizes(in_features, size)
        super().__init__(in_features, size * size)
        self.size = size
        self.kernel = nnx.Param(lecun_normal(rngs.params(), (in_features, size * size)))
        self.bias = nnx.Param(jnp.zeros(size * size))

    def initial_state(self) -> Float[Array, "size size"]:
        return jnp.eye(self.size)

    def inputs(self, x):
        return x @ self.kernel[...] + self.bias[...]

    def transition(self, projected: Float[Array, "*axes gates"]) -> Float[Array, "*axes size size"]:
        """A_t."""
        matrix = jnp.eye(self.size) + projected.reshape(*projected.shape[:-1], self.size, self.size)
        return jnp.sqrt(self.size) * matrix / jnp.linalg.norm(matrix, axis=(-2, -1), keepdims=True)

    def step(self, state, projected):
        state = self.transition(projected) @ state
        return state, self.readout(state, projected)

    def states(self, projected, state):
        products = jax.lax.associative_scan(lambda first, second: second @ first, self.transition(projected))
        return products if state is None else products @ state

    def readout(self, state, projected):
        return state.reshape(*state.shape[:-2], self.hidden_size)


def parallel_unroll(
    cell: LinearCell, xs: Float[Array, "time features"], state: State | None = None
) -> tuple[State, Float[Array, "time hidden"]]:
    """What `unroll(cell, xs, state)` gives, (final state, outputs at every step), by an associative scan over time.

    All states are in memory at once. Raises ValueError where `unroll` does, and if the cell's step is not linear in its
    state.
    """
    if not isinstance(cell, LinearCell):
        raise ValueError(
            f"parallel_unroll needs a cell whose step is linear in the state, a LinearCell; got {type(cell).__name__}; "
            "for any other there is newton_unroll"
        )
    jax.eval_shape(lambda xs: unroll(cell, xs, state), xs)  # the same requirements, and the same errors
    projected = cell.project(xs)
    states = cell.states(projected, state)
    return states[-1], cell.readout(states, projected)


# --- Any recurrence, by Newton's method ---------------------------------------------------------------


class NewtonRun(NamedTuple):
    """What `newton_unroll` found.

    `states` are the cell's states after every step, with time as the first axis, and `outputs` its outputs. `residuals`
    `[max_iterations + 1]` hold the largest violation of h_t = step(h_{t-1}, x_t) after 0, 1, 2, ... iterations, and NaN
    where there was no iteration any more; `iterations` is how many there were. It has converged if
    `residuals[iterations]` is within the tolerance.
    """

    states: State
    outputs: Float[Array, "time hidden"]
    iterations: Int[Array, ""]
    residuals: Float[Array, " iterations"]


def newton_update(
    step: Callable[[Float[Array, " state"], Array], Float[Array, " state"]],
    start: Float[Array, " state"],
    inputs: Array,
    guess: Float[Array, "time state"],
) -> tuple[Float[Array, "time state"], Float[Array, ""]]:
    """One iteration for h_t = step(h_{t-1}, inputs_t): (a better guess of all states, the residual of this one).

    With the guess g and the Jacobians J_t = d step / d h at (g_{t-1}, inputs_t), the error e = h - g obeys, to first
    order, the linear recurrence e_t = J_t e_{t-1} + (step(g_{t-1}, inputs_t) - g_t), which a scan of matrices solves
    (Lim et al. 2024, section 3.3). The first k states are right after k iterations, whatever the guess (Gonzalez et al.
    2024, proposition 1), so a state that is not finite may be put back to zero, and is. For n numbers of state and T
    steps it takes about 4 T n^3 operations, and a span of about log2(T) matrix products.
    """
    before = jnp.concatenate([start[None], guess[:-1]])
    violation = jax.vmap(step)(before, inputs) - guess
    jacobians = jax.vmap(jax.jacfwd(step))(before, inputs)
    _, error = jax.lax.associative_scan(combine_matrices, (jacobians, violation))
    better = guess + error
    return jnp.where(jnp.isfinite(better), better, 0), jnp.max(jnp.abs(violation))


def newton_unroll(
    cell: Cell,
    xs: Float[Array, "time features"],
    state: State | None = None,
    *,
    tolerance: float = 1e-5,
    max_iterations: int = 100,
) -> NewtonRun:
    """All states of any cell by Newton's method over the whole sequence (DEER, Lim et al. 2024), from a guess of zeros.

    It ends when every step holds to `tolerance`, or after `max_iterations`: look at `residuals`. Few iterations suffice
    where the cell forgets; a cell that does not may need as many as there are steps, and one whose Jacobians grow from
    step to step may, in floating point, not get there at all. One more update follows at the end, through which
    gradients flow: at the solution its derivative is that of the solution, so none need go through the iterations.

    Raises ValueError where `unroll` does, or unless `tolerance` is positive and `max_iterations` at least 1.
    """
    jax.eval_shape(lambda xs: unroll(cell, xs, state), xs)  # the same requirements, and the same errors
    if not tolerance > 0 or max_iterations < 1:
        raise ValueError(
            f"a positive tolerance and at least one iteration are needed, got {tolerance} and {max_iterations}"
        )
    start, unravel = ravel_pytree(cell.initial_state() if state is None else state)
    inputs = cell.project(xs)

    def update_by(cell):
        def step(state, projected):
            return ravel_pytree(cell.step(unravel(state), projected)[0])[0]

        return lambda start, inputs, guess: newton_update(step, start, inputs, guess)

    graphdef, weights = nnx.split(cell)
    still = jax.lax.stop_gradient((weights, start, inputs))
    update = update_by(nnx.merge(graphdef, still[0]))

    def goes_on(carry):
        _, _, iterations, residuals = carry
        within = residuals[iterations] <= tolerance  # False for NaN, which the next iteration puts back to zero
        return ~within & (iterations < max_iterations)

    def iterate(carry):
        _, better, iterations, residuals = carry
        after, residual = update(*still[1:], better)
        return better, after, iterations + 1, residuals.at[iterations + 1].set(residual)

    guess = jnp.zeros((len(xs), start.size), start.dtype)
    better, residual = update(*still[1:], guess)
    residuals = jnp.full(max_iterations + 1, jnp.nan, start.dtype).at[0].set(residual)
    found, _, iterations, residuals = jax.lax.while_loop(goes_on, iterate, (guess, better, jnp.array(0), residuals))
    states, _ = update_by(cell)(start, inputs, found)
    before = jax.vmap(unravel)(jnp.concatenate([start[None], states[:-1]]))
    outputs = jax.vmap(cell.step)(before, inputs)[1]
    return NewtonRun(jax.vmap(unravel)(states), outputs, iterations, residuals)
