"""What a state still tells: how well a linear read-out names what went in."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int


def linear_readout_accuracy(
    states: Float[Array, "samples hidden"],
    labels: Int[Array, " samples"],
    fresh_states: Float[Array, "fresh hidden"],
    fresh_labels: Int[Array, " fresh"],
    classes: int,
) -> Float[Array, ""]:
    """Share of `fresh_labels`, numbers below `classes`, that a read-out fitted on `states` and `labels` gets right.

    The read-out is affine, fitted by least squares to the one-hot labels, and answers with its largest output. So the
    score is the least that the states tell: another way of fitting, or one that is not linear, may read more from them.

    Raises ValueError if states and labels do not pair up, there are none, or the two sets of states differ in width;
    and, where the numbers are known and not traced, if a state is not finite or a label not from 0 to `classes` - 1.
    """
    for found, known in ((states, labels), (fresh_states, fresh_labels)):
        if found.ndim != 2 or known.shape != found.shape[:1] or found.size == 0:
            raise ValueError(f"expected [samples, hidden] and one label each, got {found.shape} and {known.shape}")
        if not isinstance(found, jax.core.Tracer) and not np.isfinite(found).all():
            raise ValueError("expected finite states")
        if not isinstance(known, jax.core.Tracer):
            lowest, highest = np.asarray(known).min(), np.asarray(known).max()
            if lowest < 0 or highest >= classes:
                raise ValueError(f"expected labels from 0 to {classes - 1}, got {lowest} to {highest}")
    if states.shape[1] != fresh_states.shape[1]:
        raise ValueError(f"states are {states.shape[1]} wide and fresh ones {fresh_states.shape[1]}")

    def with_ones(states):
        return jnp.pad(states, ((0, 0), (0, 1)), constant_values=1.0)

    weights = jnp.linalg.lstsq(with_ones(states), jax.nn.one_hot(labels, classes))[0]
    return jnp.mean(jnp.argmax(with_ones(fresh_states) @ weights, axis=-1) == fresh_labels)
