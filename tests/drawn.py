"""Arrays and models for tests, drawn by NumPy: JAX compiles a program for every shape that it draws."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx


def normal(*shape: int, seed: int = 0, scale: float = 1.0) -> jax.Array:
    """Normal numbers of mean 0 and standard deviation `scale`, float32."""
    return jnp.asarray(scale * np.random.default_rng(seed).standard_normal(shape), dtype=jnp.float32)


def model_like(make: Callable[[nnx.Rngs], nnx.Module], *, seed: int = 0, scale: float = 0.5) -> nnx.Module:
    """`make(rngs)`, with every parameter, biases as well, drawn by `normal` instead of its own initialiser."""
    graphdef, shapes = nnx.split(nnx.eval_shape(lambda: make(nnx.Rngs(0))))
    leaves, structure = jax.tree.flatten(shapes)
    arrays = [normal(*leaf.shape, seed=seed + index, scale=scale) for index, leaf in enumerate(leaves)]
    return nnx.merge(graphdef, jax.tree.unflatten(structure, arrays))
