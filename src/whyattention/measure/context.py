"""How much of its context a language model uses."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


def first_token_influence(
    model: Callable[[Int[Array, " time"]], Float[Array, "time vocabulary"]],
    tokens: Int[Array, "texts time"],
    replacements: Int[Array, " texts"],
) -> Float[Array, " time"]:
    """How far the prediction at each position moves when the first token is another one, averaged over texts.

    The distance is the total variation between the two distributions of the next token, half the sum of absolute
    differences of probabilities: 0 if the first token no longer matters, 1 if it decides everything.

    Raises ValueError if there is not one replacement per text.
    """
    if replacements.shape != tokens.shape[:1]:
        raise ValueError(f"expected {tokens.shape[0]} replacements, one per text, got shape {replacements.shape}")
    changed = tokens.at[:, 0].set(replacements)
    before, after = (jax.nn.softmax(jax.vmap(model)(texts)) for texts in (tokens, changed))
    return jnp.mean(jnp.abs(before - after).sum(-1) / 2, axis=0)
