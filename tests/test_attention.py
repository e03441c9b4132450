"""Attention: equal to JAX's and Flax's, blind where the mask says so, strict about shapes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from whyattention.attention import MultiHeadAttention, causal_mask, dot_product_attention, sinusoidal_positions


def inputs(queries=5, keys=6, features=4, values=3):
    key = jax.random.split(jax.random.key(0), 3)
    shapes = (queries, features), (keys, features), (keys, values)
    return tuple(jax.random.normal(key, shape) for key, shape in zip(key, shapes, strict=True))


def random_mask():
    return jax.random.bernoulli(jax.random.key(3), 0.6, (5, 6)).at[:, 0].set(True)


def test_equals_jax_values_and_gradients():
    query, key, value = inputs(values=4)
    mask = random_mask()

    def theirs(query, key, value):
        heads = [array[:, None] for array in (query, key, value)]
        return jax.nn.dot_product_attention(*heads, mask=mask[None])[:, 0]

    def ours(*arrays):
        return dot_product_attention(*arrays, mask)

    np.testing.assert_allclose(ours(query, key, value), theirs(query, key, value), atol=1e-6)
    for left, right in zip(
        *(
            jax.grad(lambda *arrays, attend=attend: jnp.sum(attend(*arrays) ** 2), argnums=(0, 1, 2))(query, key, value)
            for attend in (ours, theirs)
        ),
        strict=True,
    ):
        np.testing.assert_allclose(left, right, atol=1e-5)


def test_heads_equal_flax():
    ours = MultiHeadAttention(8, 2, rngs=nnx.Rngs(0))
    theirs = nnx.MultiHeadAttention(2, 8, use_bias=False, decode=False, rngs=nnx.Rngs(1))
    for name in ("query", "key", "value"):
        getattr(theirs, name).kernel[...] = getattr(ours, name)[...].reshape(8, 2, 4)
    theirs.out.kernel[...] = ours.output[...].reshape(2, 4, 8)
    x = jax.random.normal(jax.random.key(0), (5, 8))
    mask = causal_mask(5)
    np.testing.assert_allclose(ours(x, mask), theirs(x, mask=mask[None]), atol=1e-6)


def test_a_query_that_may_look_nowhere_gets_zeros_and_a_finite_gradient():
    query, key, value = inputs()
    mask = random_mask().at[2].set(False)
    assert jnp.all(dot_product_attention(query, key, value, mask)[2] == 0)
    gradients = jax.grad(lambda *arrays: jnp.sum(dot_product_attention(*arrays, mask)), argnums=(0, 1, 2))(
        query, key, value
    )
    assert all(jnp.all(jnp.isfinite(gradient)) for gradient in gradients)


def test_masked_keys_change_nothing():
    query, key, value = inputs()
    mask = random_mask().at[:, 4].set(False)
    changed = dot_product_attention(query, key.at[4].set(1e6), value.at[4].set(-1e6), mask)
    np.testing.assert_array_equal(changed, dot_product_attention(query, key, value, mask))


def test_a_future_token_changes_nothing_before_it():
    layer = MultiHeadAttention(8, 2, rngs=nnx.Rngs(0))
    x = jax.random.normal(jax.random.key(0), (6, 8))
    before, after = (layer(x, causal_mask(6)) for x in (x, x.at[4].add(1.0)))
    np.testing.assert_array_equal(before[:4], after[:4])
    assert not jnp.array_equal(before[4], after[4])


def test_gradient_reaches_every_parameter():
    layer = MultiHeadAttention(8, 2, rngs=nnx.Rngs(0))
    x = jax.random.normal(jax.random.key(0), (6, 8))
    for gradient in jax.tree.leaves(nnx.grad(lambda layer: jnp.sum(layer(x) ** 2))(layer)):
        assert jnp.all(jnp.any(gradient != 0, axis=0))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda q, k, v: dot_product_attention(q[:, :2], k, v), r"\(5, 2\) and \(6, 4\)"),
        (lambda q, k, v: dot_product_attention(q, k, v[:3]), r"\(3, 3\) values for \(6, 4\) keys"),
        (lambda q, k, v: dot_product_attention(q, k, v, causal_mask(5)), r"\(5, 6\), got \(5, 5\)"),
        (lambda q, k, v: dot_product_attention(q, k, v, jnp.zeros((5, 6))), "boolean.*float32"),
        (lambda q, k, v: dot_product_attention(q, k[:0], v[:0]), r"a key.*\(0, 4\)"),
        (lambda q, k, v: MultiHeadAttention(8, 2, rngs=nnx.Rngs(0))(jnp.zeros((0, 8))), r"got shape \(0, 8\)"),
        (lambda q, k, v: MultiHeadAttention(8, 3, rngs=nnx.Rngs(0)), "3 heads for 8 features"),
        (
            lambda q, k, v: MultiHeadAttention(8, 2, rngs=nnx.Rngs(0))(q),
            r"\[time, 8\] with a time step, got shape \(5, 4\)",
        ),
    ],
)
def test_wrong_shapes_are_named(call, words):
    with pytest.raises(ValueError, match=words):
        call(*inputs())


def test_positions_turn_by_the_same_angle_at_every_step():
    positions = sinusoidal_positions(50, 8)
    assert positions.shape == (50, 8)
    np.testing.assert_allclose(positions[1, :2], [np.sin(1), np.cos(1)], rtol=1e-6)
    np.testing.assert_allclose(positions[7, -2:], np.array([np.sin(0.007), np.cos(0.007)]), rtol=1e-5)
    # So the product of two of them depends on their distance alone.
    products = positions @ positions.T
    np.testing.assert_allclose(products[3, 10], products[30, 37], rtol=1e-5)


def test_an_odd_number_of_position_features_is_named():
    with pytest.raises(ValueError, match="even; got 5"):
        sinusoidal_positions(3, 5)
