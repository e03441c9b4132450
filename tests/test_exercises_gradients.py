"""The checks of chapter 3 accept what is right and send back what is wrong with a hint that fits."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from exercise_cases import accepts, refuses

from whyattention.exercises.gradients import check_clip, check_forecast, check_keeper, check_log_norm, check_shear
from whyattention.measure.gradients import largest_singular_value, rms_singular_value, spectral_radius, tanh_slope


def product_log_norm(factors, keep_scale=True, normalise=True, reverse=False):
    product, log_scale = jnp.eye(factors.shape[-1]), 0.0
    for factor in factors[::-1] if reverse else factors:
        product = factor @ product
        scale = jnp.linalg.norm(product) if normalise else 1.0
        product, log_scale = product / scale, log_scale + jnp.log(scale)
    return jnp.log(largest_singular_value(product)) + (log_scale if keep_scale else 0.0)


def factors_one_by_one(factors):
    return sum(jnp.log(largest_singular_value(factor)) for factor in factors)


def forecast(kernel, states, size=rms_singular_value, mean=lambda slopes: jnp.sqrt(jnp.mean(slopes**2))):
    return jnp.log(size(kernel) * mean(tanh_slope(states)))


def norm(gradients):
    return jnp.sqrt(sum(jnp.sum(array**2) for array in jax.tree.leaves(gradients)))


def clip(gradients, threshold, factor=lambda length, threshold: threshold / jnp.maximum(length, threshold)):
    return jax.tree.map(lambda array: factor(norm(gradients), threshold) * array, gradients)


def in_float64(factors):
    product = np.eye(factors.shape[-1])
    with np.errstate(all="ignore"):
        for factor in np.asarray(factors, np.float64):
            product = factor @ product
        return np.log(np.linalg.norm(product, 2)) if np.isfinite(product).all() else np.inf


THREE = np.array([(1, -1, 1, -1), (1, 1, -1, -1), (-1, -1, -1, 1)])
KEEPS_THREE = 2 * THREE.T @ np.linalg.pinv(THREE.T)  # projects on these patterns, and so loses others
SHEAR = 0.5 * np.eye(16) + 1.6 * np.eye(16, k=1)

RIGHT = [
    (check_log_norm, product_log_norm),
    (check_forecast, forecast),
    (check_shear, SHEAR),
    (check_shear, [[0.0, 3.0], [0.0, 0.0]]),
    (check_keeper, 2 * np.eye(4)),
    (check_clip, clip),
]

WRONG = [
    (check_log_norm, lambda factors: jnp.exp(product_log_norm(factors)), "its logarithm"),
    (check_log_norm, factors_one_by_one, "upper bound"),
    (check_log_norm, partial(product_log_norm, keep_scale=False), "scale that was divided out"),
    (check_log_norm, partial(product_log_norm, reverse=True), "wrong order"),
    (check_log_norm, partial(product_log_norm, normalise=False), "no number that floats can hold"),
    (check_log_norm, in_float64, "no number that floats can hold"),
    (check_log_norm, lambda factors: None, "is the return missing"),
    (check_forecast, lambda kernel, states: None, "is the return missing"),
    (check_shear, None, "is the return missing"),
    (check_shear, np.full((3, 3), np.nan), "NaN or infinity"),
    (check_keeper, None, "is the return missing"),
    (check_keeper, np.full((4, 4), np.nan), "NaN or infinity"),
    (check_keeper, KEEPS_THREE, "of the signs are right"),
    (check_clip, lambda g, threshold: None, "is the return missing"),
    (check_log_norm, lambda factors: jnp.zeros(4), "one number"),
    (check_log_norm, lambda factors: 0.0, "was expected"),
    (check_forecast, lambda kernel, states: jnp.exp(forecast(kernel, states)), "the rate is its logarithm"),
    (check_forecast, lambda kernel, states: jnp.log(largest_singular_value(kernel)), "of the matrix alone"),
    (check_forecast, lambda kernel, states: np.log(spectral_radius(kernel)), "of the matrix alone"),
    (check_forecast, partial(forecast, size=largest_singular_value, mean=jnp.mean), "bounds one direction"),
    (check_forecast, partial(forecast, mean=jnp.mean), "the slopes need"),
    (check_forecast, lambda kernel, states: -0.1, "your forecast -0.100"),
    (check_forecast, lambda kernel, states: tanh_slope(states), "one number"),
    (check_shear, 2 * np.eye(3), "spectral radius is 2.000"),
    (check_shear, 0.5 * np.eye(3), "not 2 or more"),
    (check_shear, np.ones((2, 3)), "square"),
    (check_shear, 0.999 * np.eye(2) + 2 * np.eye(2, k=1), "further below 1"),
    (check_keeper, np.eye(4), "went back towards 0"),
    (check_keeper, 0.9 * np.eye(4), "went back towards 0"),
    (check_keeper, -2 * np.eye(4), "turned round"),
    (check_keeper, 2 * np.eye(4)[[1, 2, 3, 0]], "listens to itself"),
    (check_keeper, 1.2 * np.eye(4), "make that weight larger"),
    (check_keeper, 2.0, "shape"),
    (check_clip, partial(clip, factor=lambda length, threshold: threshold), "divide by the norm"),
    (check_clip, partial(clip, factor=lambda length, threshold: threshold / length), "stay as it is"),
    (check_clip, lambda g, threshold: jax.tree.map(lambda a: clip(a, threshold), g), "by itself, which turns"),
    (check_clip, lambda g, threshold: jax.tree.map(lambda a: jnp.clip(a, -threshold, threshold), g), "each number"),
    (check_clip, lambda g, threshold: list(g.values()), "pytree like"),
    (check_clip, lambda g, threshold: g, "should be halved"),
    (
        check_clip,
        partial(clip, factor=lambda length, threshold: jnp.where(length > threshold, threshold, length) / length),
        "not NaN",
    ),
]  # fmt: skip


test_right_answers_pass = accepts(RIGHT)
test_wrong_answers_get_a_hint = refuses(WRONG)
