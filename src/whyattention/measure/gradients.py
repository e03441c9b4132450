"""How far back a gradient reaches: products of Jacobians through time, in log space.

A gradient that goes back k steps is multiplied by k Jacobians. Their product leaves the range of float32 within a few
hundred steps, upwards or downwards, so it is never formed: after each factor it is scaled back to norm 1, and the
logarithm of the scale is what is kept. All logarithms are natural.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from whyattention.recurrent import Cell, State


def largest_singular_value(matrix: Float[Array, "rows columns"]) -> Float[Array, ""]:
    """The largest factor by which `matrix` can lengthen a vector: its spectral norm."""
    return jnp.linalg.norm(matrix, ord=2)


def spectral_radius(matrix: Float[np.ndarray, "n n"]) -> float:
    """The largest modulus of an eigenvalue: lim |W^k|^(1/k), the growth per step of a long product of one `matrix`.

    In NumPy, because JAX has eigenvalues of general matrices on CPU only; leading axes are allowed and kept.
    """
    return np.abs(np.linalg.eigvals(np.asarray(matrix))).max(axis=-1)


def rms_singular_value(matrix: Float[Array, "*axes n n"]) -> Float[Array, "*axes"]:
    """The factor by which a square `matrix` lengthens a vector of random direction, in root mean square.

    sqrt(mean of the squared singular values) = Frobenius norm / sqrt(n). Leading axes are allowed and kept. Raises
    ValueError if the matrix is not square.
    """
    if matrix.ndim < 2 or matrix.shape[-2] != matrix.shape[-1]:
        raise ValueError(f"expected a square matrix, got shape {matrix.shape}")
    return jnp.linalg.norm(matrix, axis=(-2, -1)) / jnp.sqrt(matrix.shape[-1])


def tanh_slope(states: Float[Array, "*axes"]) -> Float[Array, "*axes"]:
    """tanh'(a) = 1 - tanh(a)^2, from the states h = tanh(a) of a `TanhCell`."""
    return 1 - states**2


def jacobian_log_norms(
    cell: Cell,
    xs: Float[Array, "time features"],
    state: State | None = None,
    part: Callable[[State], State] = lambda state: state,
) -> Float[Array, " time"]:
    """log |d s_T / d s_{T-k}|_2 for k = 1 ... T, the spectral norm of the product of the last k Jacobians.

    s_t is the state after step t of `unroll(cell, xs, state)`. `part` picks from a state what is differentiated and
    what it is differentiated by: `lambda state: state[1]` gives |d c_T / d c_{T-k}| of an LSTM, with h_{T-k} held fixed
    and every way through a later h included. Entry k - 1 belongs to lag k. A gradient that is exactly zero gives -inf;
    so does one that only saturated units pass on, since tanh' of a state that float32 rounds to 1 or -1 counts as zero.

    The product is formed row by row with the vector-Jacobian product of `cell.step` (Pascanu et al. 2013, equation 5),
    is divided by its Frobenius norm after each factor, and gives its spectral norm as the root of the largest
    eigenvalue of its Gram matrix. Raises ValueError if `xs` is not `[time >= 1, cell.in_features]`.
    """
    step, states, projected = _trajectory(cell, xs, state)
    start, restore = ravel_pytree(jax.tree.map(lambda array: array[0], states))
    chosen = ravel_pytree(part(restore(jnp.arange(start.size, dtype=start.dtype))))[0].astype(int)

    def back(carry, before):
        product, log_scale = carry
        _, pull_back = jax.vjp(lambda flat: ravel_pytree(step(restore(flat), before[1]))[0], before[0])
        (product,) = jax.vmap(pull_back)(product)
        product, log_norm = _normalised(product)
        log_scale = log_scale + log_norm
        block, log_block = _normalised(product[:, chosen])
        largest = jnp.linalg.eigvalsh(block @ block.T)[-1]
        return (product, log_scale), log_scale + log_block + jnp.log(jnp.maximum(largest, 0)) / 2

    rows = jnp.eye(start.size)[chosen]
    flat_states = jax.vmap(lambda state: ravel_pytree(state)[0])(states)
    _, log_norms = jax.lax.scan(back, (rows, jnp.zeros(())), (flat_states, projected), reverse=True)
    return log_norms[::-1]


def gradient_by_position(
    cell: Cell,
    loss: Callable[[Float[Array, " hidden"]], Float[Array, ""]],
    xs: Float[Array, "time features"],
) -> Float[Array, " time"]:
    """log |d loss(y_T) / d x_t|_2 for t = 1 ... T, where y_T is the last output of `unroll(cell, xs)`.

    Backpropagation through time with the adjoint scaled back to norm 1 after each step, so that a gradient of e^-2000
    is a number like any other. Raises ValueError if `xs` is not `[time >= 1, cell.in_features]`.
    """
    _, states, _ = _trajectory(cell, xs, None)
    last = jax.tree.map(lambda array: array[-1], states)
    adjoint = jax.grad(lambda state: loss(cell(state, xs[-1])[1]))
    # The last step is the only one whose output counts: its adjoint starts the way back.
    at_last_input = jax.grad(lambda x: loss(cell(last, x)[1]))(xs[-1])
    flat, restore = ravel_pytree(adjoint(last))

    def back(carry, before):
        flat, log_scale = carry
        _, pull_back = jax.vjp(lambda state, x: cell(state, x)[0], *before)
        to_state, to_input = pull_back(restore(flat))
        flat, log_norm = _normalised(ravel_pytree(to_state)[0])
        return (flat, log_scale + log_norm), log_scale + _normalised(to_input)[1]

    flat, log_norm = _normalised(flat)
    earlier = jax.tree.map(lambda array: array[:-1], (states, xs))
    _, log_norms = jax.lax.scan(back, (flat, log_norm), earlier, reverse=True)
    return jnp.append(log_norms, _normalised(at_last_input)[1])


def decay_rate(log_norms: Float[Array, " time"], first: int | None = None) -> Float[Array, ""]:
    """Slope per step of the least-squares line through `log_norms` (as from `jacobian_log_norms`) over the lag.

    Negative where the gradient vanishes, positive where it explodes; exp(rate) is the factor per step. The line is
    fitted from lag `first` to the last one; by default the first fifth of the lags is left out, where the product has
    not yet turned towards the directions that dominate a long one. A log norm of -inf among them, a gradient of zero,
    makes the rate -inf. Leading axes are allowed and kept. Raises ValueError if fewer than two lags remain.
    """
    time = log_norms.shape[-1]
    first = time // 5 + 1 if first is None else first
    if not 1 <= first <= time - 1:
        raise ValueError(f"a line from lag {first} on needs two lags or more, got log norms of {time} lags")
    lags = jnp.arange(first, time + 1) - (first + time) / 2
    fitted = jnp.asarray(log_norms)[..., first - 1 :]
    zero = jnp.isneginf(fitted)
    slope = jnp.where(zero, 0, fitted) @ lags / jnp.sum(lags**2)
    return jnp.where(zero.any(axis=-1), -jnp.inf, slope)


def _normalised(array):
    """(array / its Frobenius norm, log of that norm); zeros stay zeros, with log norm -inf."""
    largest = jnp.max(jnp.abs(array))  # divided out first: the squares of 1e-20 and of 1e20 are outside float32
    array = array / jnp.where(largest > 0, largest, 1)
    norm = jnp.linalg.norm(array)
    return array / jnp.where(norm > 0, norm, 1), jnp.log(largest) + jnp.log(norm)


def _trajectory(cell, xs, state):
    """(the state's part of a step, the states before each step, the projected inputs)."""
    if xs.ndim != 2 or xs.shape[0] == 0:
        raise ValueError(f"expected one sequence of shape [time, features] with a time step, got shape {xs.shape}")

    def step(state, projected):
        return cell.step(state, projected)[0]

    projected = cell.project(xs)
    start = cell.initial_state() if state is None else state
    _, states = jax.lax.scan(lambda state, x: (step(state, x), state), start, projected)
    return step, states, projected
