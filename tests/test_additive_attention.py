"""Additive attention: equal to the paper's equations in a loop, blind to padding, alive in every parameter."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from drawn import model_like, normal
from flax import nnx

from whyattention.attention import AdditiveAttention, padding_mask

QUERY, KEY, HIDDEN = 3, 4, 5


@pytest.fixture(scope="module")
def layer():
    return model_like(lambda rngs: AdditiveAttention(QUERY, KEY, HIDDEN, rngs=rngs))


@pytest.fixture(scope="module")
def inputs():
    return normal(QUERY, seed=1), normal(6, KEY, seed=2), normal(6, 2, seed=3)


def by_the_equations(layer, query, keys, values, mask):
    """Bahdanau et al. 2014, equations 5 and 6 and appendix A.1.2, one number at a time."""
    w, u, v = (np.asarray(parameter[...]) for parameter in (layer.query_kernel, layer.key_kernel, layer.score))
    exponentials = np.zeros(len(keys))
    for j in range(len(keys)):
        if mask[j]:
            hidden = [
                np.tanh(sum(w[n, a] * query[n] for n in range(QUERY)) + sum(u[n, a] * keys[j, n] for n in range(KEY)))
                for a in range(HIDDEN)
            ]
            exponentials[j] = np.exp(sum(v[a] * hidden[a] for a in range(HIDDEN)))
    weights = exponentials / exponentials.sum()
    return weights, sum(weight * value for weight, value in zip(weights, np.asarray(values), strict=True))


@pytest.mark.parametrize("mask", [[True] * 6, [True, False, True, True, False, False]])
def test_equals_the_equations_in_a_loop(layer, inputs, mask):
    query, keys, values = inputs
    weights, context = by_the_equations(layer, *map(np.asarray, inputs), mask)
    np.testing.assert_allclose(layer.weights(query, layer.project(keys), jnp.array(mask)), weights, atol=1e-6)
    np.testing.assert_allclose(layer(query, keys, values, jnp.array(mask)), context, atol=1e-6)


def test_the_keys_are_their_own_values_and_no_mask_hides_nothing(layer, inputs):
    query, keys, _ = inputs
    expected = layer.weights(query, layer.project(keys), jnp.ones(6, dtype=bool)) @ keys
    np.testing.assert_allclose(layer(query, keys), expected, atol=1e-6)


def test_a_query_that_may_look_nowhere_gets_zeros_and_a_finite_gradient(layer, inputs):
    nowhere = jnp.zeros(6, dtype=bool)
    np.testing.assert_array_equal(layer(*inputs, nowhere), np.zeros(2))
    gradients = nnx.grad(lambda layer: jnp.sum(layer(*inputs, nowhere)))(layer)
    assert all(jnp.all(jnp.isfinite(gradient)) for gradient in jax.tree.leaves(gradients))


def test_masked_keys_change_nothing(layer, inputs):
    query, keys, values = inputs
    mask = jnp.array([True, True, True, True, False, False])
    changed = layer(query, keys.at[4:].set(1e6), values.at[4:].set(-1e6), mask)
    np.testing.assert_allclose(changed, layer(query, keys[:4], values[:4]), atol=1e-6)


def test_gradient_reaches_every_parameter(layer, inputs):
    gradients = nnx.grad(lambda layer: jnp.sum(layer(*inputs) ** 2))(layer)
    assert all(jnp.all(gradient != 0) for gradient in jax.tree.leaves(gradients))


def test_the_padding_mask_is_true_at_real_tokens():
    np.testing.assert_array_equal(padding_mask(jnp.array([[5, 2, 0], [0, 0, 0]])), [[True, True, False], [False] * 3])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda layer, q, k, v: layer(q[None], k), r"one query of shape \(3,\), got \(1, 3\)"),
        (lambda layer, q, k, v: layer(q, k[:, :2]), r"keys must be \[key, 4\], got shape \(6, 2\)"),
        (lambda layer, q, k, v: layer(q, k, v[:5]), r"\(5, 2\) values for \(6, 4\) keys"),
        (lambda layer, q, k, v: layer(q, k, v, jnp.ones(5, bool)), r"of shape \(6,\), got bool \(5,\)"),
        (lambda layer, q, k, v: layer(q, k, v, jnp.ones(6)), r"boolean.*got float32 \(6,\)"),
        (lambda layer, q, k, v: layer(q, k[:0]), r"projected keys must be \[key, 5\], got shape \(0, 5\)"),
        (lambda layer, q, k, v: AdditiveAttention(3, 0, 5, rngs=nnx.Rngs(0)), "at least 1, got 3, 0 and 5"),
    ],
)
def test_wrong_shapes_are_named(layer, inputs, call, words):
    with pytest.raises(ValueError, match=words):
        call(layer, *inputs)
