"""Checks for the exercises of chapter 3."""

import itertools
from collections.abc import Callable
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from whyattention.exercises.answers import given
from whyattention.measure.gradients import (
    decay_rate,
    jacobian_log_norms,
    largest_singular_value,
    rms_singular_value,
    spectral_radius,
    tanh_slope,
)
from whyattention.recurrent import TanhCell, unroll


def _close(answer, expected, tolerance=1e-3) -> bool:
    return np.shape(answer) == np.shape(expected) and bool(np.allclose(answer, expected, atol=tolerance))


def check_log_norm(log_norm: Callable) -> None:
    """`log_norm(factors [time, n, n])` is log of the spectral norm of factors[-1] @ ... @ factors[0].

    Tried on products far outside float32 and float64. Raises AssertionError with a hint if it is wrong.
    """
    small = jax.random.normal(jax.random.key(0), (4, 3, 3))
    product = small[3] @ small[2] @ small[1] @ small[0]
    expected = jnp.log(largest_singular_value(product))
    answer = given(log_norm(small))
    assert np.ndim(answer) == 0, f"expected one number for the whole product, got shape {np.shape(answer)}"
    assert not _close(answer, largest_singular_value(product)), "that is the norm; its logarithm was asked for"
    each = sum(jnp.log(largest_singular_value(factor)) for factor in small)
    assert not _close(answer, each), (
        "the norms of the factors multiply to an upper bound, not to the norm of the product"
    )
    assert not _close(answer, jnp.log(largest_singular_value(product / jnp.linalg.norm(product)))), (
        "the scale that was divided out is lost: add up its logarithm"
    )
    reverse = jnp.log(largest_singular_value(small[0] @ small[1] @ small[2] @ small[3]))
    assert not _close(answer, reverse), (
        "the factors are in the wrong order: the first acts first, so it stands rightmost"
    )
    assert _close(answer, expected), f"for four factors {float(expected):.4f} was expected, got {answer}"
    rotations, _ = np.linalg.qr(np.random.default_rng(1).normal(size=(400, 3, 3)))
    for scale in (10.0, 0.1):
        answer, expected = given(log_norm(jnp.asarray(scale * rotations, dtype=jnp.float32))), 400 * np.log(scale)
        assert np.isfinite(answer), (
            f"400 factors of norm {scale:g} gave {answer}: the product is no number that floats can hold. "
            "Scale it back after every factor"
        )
        assert _close(answer, expected, 0.1), f"400 factors of norm {scale:g}: expected {expected:.2f}, got {answer}"
    print("Correct: only the scale was ever too large, and its logarithm is not.")


def check_forecast(forecast: Callable) -> None:
    """`forecast(kernel [n, n], states [time, n])` estimates the rate per step at which a tanh cell's gradient decays.

    `states` are the h_t that the cell went through. The forecast has to come within 0.08 of the measured rate for
    orthogonal and Gaussian matrices. Raises AssertionError with a hint if it does not.
    """
    for place, kernel, states, measured in _decays():
        slopes, answer = tanh_slope(states), given(forecast(kernel, states))
        assert np.ndim(answer) == 0, f"expected one number, got shape {np.shape(answer)}"
        if abs(float(answer) - measured) <= 0.08:
            continue
        largest, radius = jnp.log(largest_singular_value(kernel)), np.log(spectral_radius(kernel))
        assert not _close(answer, rms_singular_value(kernel) * jnp.sqrt(jnp.mean(slopes**2))), (
            "that is the factor per step; the rate is its logarithm"
        )
        assert not (_close(answer, largest) or _close(answer, radius)), (
            f"{place}: a number of the matrix alone; what do the states say about tanh'?"
        )
        assert not _close(answer, largest + jnp.log(jnp.mean(slopes))), (
            f"{place}: the largest singular value bounds one direction; a random one gets their root mean square"
        )
        assert not _close(answer, jnp.log(rms_singular_value(kernel)) + jnp.log(jnp.mean(slopes))), (
            f"{place}: lengths add in squares, so the slopes need a root mean square as well"
        )
        raise AssertionError(
            f"{place}: the measured rate is {measured:.3f} per step, your forecast {float(answer):.3f}"
        )
    print("Correct: two root mean squares, and no Jacobian was multiplied.")


@cache
def _decays() -> list[tuple]:
    """(what it is, W_h, states, measured rate per step) of tanh cells whose gradients decay or grow."""

    @nnx.jit
    def measure(cell, xs):
        return unroll(cell, xs)[1], decay_rate(jacobian_log_norms(cell, xs))

    decays = []
    for name, init, scale, strength in (
        ("orthogonal", nnx.initializers.orthogonal(), 0.9, 0.0),
        ("Gaussian", nnx.initializers.normal(48**-0.5), 1.0, 1.0),
        ("orthogonal", nnx.initializers.orthogonal(), 1.0, 1.0),
        ("orthogonal", nnx.initializers.orthogonal(), 1.5, 0.3),
    ):
        cell = TanhCell(48, 48, rngs=nnx.Rngs(3), recurrent_init=init)
        cell.recurrent_kernel[...] *= scale
        states, rate = measure(cell, strength * jax.random.normal(jax.random.key(4), (80, 48)))
        place = f"{name} x {scale:g}, inputs x {strength:g}"
        decays.append((place, cell.recurrent_kernel[...], states, float(rate)))
    return decays


def check_shear(kernel) -> None:
    """`kernel` [n, n] has a largest singular value of 2 or more, and its gradient vanishes in a network without input.

    Vanishes: below 1e-6 at lag 200. Raises AssertionError with a hint if it is not so.
    """
    kernel = jnp.asarray(given(kernel), dtype=jnp.float32)
    assert kernel.ndim == 2 and kernel.shape[0] == kernel.shape[1], (
        f"expected a square matrix, got shape {kernel.shape}"
    )
    assert jnp.all(jnp.isfinite(kernel)), "the matrix holds NaN or infinity; every entry must be a finite number"
    largest, radius = float(largest_singular_value(kernel)), float(spectral_radius(kernel))
    assert largest >= 2, f"the largest singular value is {largest:.3f}, not 2 or more"
    assert radius < 1, (
        f"the spectral radius is {radius:.3f}: along that eigenvector the product never decays. "
        "Eigenvalues of a triangular matrix stand on its diagonal; its singular values do not"
    )
    cell = TanhCell(1, len(kernel), rngs=nnx.Rngs(0))
    cell.recurrent_kernel[...] = kernel
    log_norms = np.asarray(nnx.jit(jacobian_log_norms)(cell, jnp.zeros((200, 1)))) / np.log(10)
    assert log_norms[-1] < -6, (
        f"at lag 200 the gradient is still 10^{log_norms[-1]:.1f}: bring the spectral radius further below 1"
    )
    print(f"Correct: one step can double a gradient (x {largest:.1f}), a long product of such steps cannot.")


def check_keeper(kernel) -> None:
    """`kernel` [4, 4] as the W_h of a tanh cell keeps four signs for 501 steps of noise.

    All 16 patterns of signs are tried. The first input drives each of the four units to its sign; then each gets noise
    of standard deviation 0.1 at every step. Raises AssertionError with a hint if a sign is lost.
    """
    kernel = jnp.asarray(given(kernel), dtype=jnp.float32)
    assert kernel.shape == (4, 4), f"expected W_h of shape (4, 4), got {kernel.shape}"
    assert jnp.all(jnp.isfinite(kernel)), "the matrix holds NaN or infinity; every entry must be a finite number"
    cell = TanhCell(4, 4, rngs=nnx.Rngs(0))
    cell.kernel[...], cell.recurrent_kernel[...] = jnp.eye(4), kernel
    signs = jnp.array(list(itertools.product((1.0, -1.0), repeat=4)))
    noise = 0.1 * jax.random.normal(jax.random.key(5), (len(signs), 501, 4))
    xs = jnp.concatenate([3 * signs[:, None], noise], axis=1)
    last = _last_states(cell, xs)
    if bool(jnp.all(jnp.sign(last) == signs)):
        return print("Correct: 501 steps of noise, and every sign is still there.")
    assert not jnp.all(jnp.sign(last) == -signs), (
        "every sign is turned round: what does a negative weight do at each step?"
    )
    assert jnp.median(jnp.abs(last)) >= 0.5, (
        "the states went back towards 0, and the noise decides. For which w has h = tanh(w h) a solution other than 0?"
    )
    kept = float(jnp.mean(jnp.sign(last) == signs))
    raise AssertionError(
        f"only {kept:.0%} of the signs are right; if each unit listens to itself alone, make that weight larger"
    )


@nnx.jit
def _last_states(cell, xs):
    return jax.vmap(lambda xs: unroll(cell, xs)[0])(xs)


def check_clip(clip: Callable) -> None:
    """`clip(gradients, threshold)` scales a pytree so that its global norm is at most `threshold`.

    Raises AssertionError with a hint if it does not.
    """
    gradients = {"kernel": jnp.array([[12.0, 0.0], [0.0, 16.0]]), "bias": jnp.array([15.0])}  # norm 25

    def same(answer, factor):
        return all(_close(answer[name], factor * gradients[name]) for name in gradients)

    answer = given(clip(gradients, 12.5))
    assert isinstance(answer, dict) and answer.keys() == gradients.keys(), (
        "give back a pytree like the one that came in"
    )
    each = {name: 12.5 / jnp.maximum(jnp.linalg.norm(gradients[name]), 12.5) * gradients[name] for name in gradients}
    assert not all(_close(answer[name], each[name]) for name in gradients), (
        "each array was clipped by itself, which turns the gradient; one norm over all of them leaves its direction"
    )
    assert not all(_close(answer[name], jnp.clip(gradients[name], -12.5, 12.5)) for name in gradients), (
        "each number was clipped by itself, which turns the gradient; scale them all by one factor"
    )
    assert not same(answer, 12.5), "divide by the norm as well: 12.5 is the length wanted, not the factor"
    assert same(answer, 0.5), "a gradient of norm 25, clipped at 12.5, should be halved"
    assert same(clip(gradients, 100.0), 1.0), "a gradient below the threshold should stay as it is"
    zero = clip(jax.tree.map(jnp.zeros_like, gradients), 1.0)
    assert all(_close(zero[name], 0 * gradients[name]) for name in gradients), (
        "a gradient of zero should stay zero, not NaN"
    )
    print("Correct: the direction stays, only the length is limited.")
