"""The instruments for the use of context, on models whose use is known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from whyattention.measure.context import first_token_influence


def sees_back(steps):
    """A model that predicts for certain the token that it read `steps` ago."""

    def model(tokens):
        return 100.0 * jax.nn.one_hot(jnp.concatenate([jnp.zeros(steps, int), tokens])[: len(tokens)], 5)

    return model


TEXTS = jnp.array([[1, 2, 3, 4], [2, 2, 2, 2]])


def test_influence_is_there_exactly_where_the_model_looks():
    influence = first_token_influence(sees_back(2), TEXTS, jnp.array([4, 3]))
    np.testing.assert_allclose(influence, [0, 0, 1, 0], atol=1e-6)


def test_influence_is_an_average_over_texts():
    influence = first_token_influence(sees_back(0), TEXTS, jnp.array([4, 2]))
    np.testing.assert_allclose(influence, [0.5, 0, 0, 0], atol=1e-6)


def test_a_missing_replacement_is_named():
    with pytest.raises(ValueError, match=r"2 replacements, one per text, got shape \(1,\)"):
        first_token_influence(sees_back(0), TEXTS, jnp.array([4]))
