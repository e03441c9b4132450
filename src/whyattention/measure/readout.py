"""What a state still tells: how well a linear read-out names what went in."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


def linear_readout_accuracy(
    states: Float[Array, "samples hidden"],
    labels: Int[Array, " samples"],
    fresh_states: Float[Array, "fresh hidden"],
    fresh_labels: Int[Array, " fresh"],
    classes: int,
) -> Float[Array, ""]:
    """Share of `fresh_labels`, numbers below `classes`, that a read-out fitted on `states` and `labels` gets right.

    The read-out is affine, fitted by least squares to the one-hot labels, and answers with its largest output: what a
    recurrent network can do whose recurrent weights are never trained. Raises ValueError if states and labels do not
    pair up.
    """
    for found, known in ((states, labels), (fresh_states, fresh_labels)):
        if found.ndim != 2 or known.shape != found.shape[:1]:
            raise ValueError(f"expected [samples, hidden] and one label each, got {found.shape} and {known.shape}")

    def with_ones(states):
        return jnp.pad(states, ((0, 0), (0, 1)), constant_values=1.0)

    weights = jnp.linalg.lstsq(with_ones(states), jax.nn.one_hot(labels, classes))[0]
    return jnp.mean(jnp.argmax(with_ones(fresh_states) @ weights, axis=-1) == fresh_labels)
