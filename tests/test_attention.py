"""Attention: equal to JAX's and Flax's, blind where the mask says so, strict about shapes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from drawn import model_like, normal
from flax import nnx

from whyattention.attention import MultiHeadAttention, causal_mask, dot_product_attention, sinusoidal_positions

attend = jax.jit(dot_product_attention)


def inputs(queries=5, keys=6, features=4, values=4):
    return normal(queries, features, seed=0), normal(keys, features, seed=1), normal(keys, values, seed=2)


def random_mask():
    return jnp.asarray(np.random.default_rng(3).random((5, 6)) < 0.6).at[:, 0].set(True)


def heads():
    return model_like(lambda rngs: MultiHeadAttention(8, 2, rngs=rngs))


@nnx.jit
def apply(layer, *inputs, **masks):
    return layer(*inputs, **masks)


def sum_of_squares(attend):
    """A function of (query, key, value, mask) that gives what `attend` gives, and the gradients of its squares."""

    def loss(*arrays):
        attended = attend(*arrays)
        return jnp.sum(attended**2), attended

    return jax.jit(jax.grad(loss, argnums=(0, 1, 2), has_aux=True))


def test_equals_jax_values_and_gradients():
    def theirs(query, key, value, mask):
        heads = [array[:, None] for array in (query, key, value)]
        return jax.nn.dot_product_attention(*heads, mask=mask[None])[:, 0]

    gradients, attended = sum_of_squares(dot_product_attention)(*inputs(), random_mask())
    expected_gradients, expected = sum_of_squares(theirs)(*inputs(), random_mask())
    np.testing.assert_allclose(attended, expected, atol=1e-6)
    for left, right in zip(gradients, expected_gradients, strict=True):
        np.testing.assert_allclose(left, right, atol=1e-5)


def test_heads_equal_flax():
    ours = heads()
    theirs = model_like(lambda rngs: nnx.MultiHeadAttention(2, 8, use_bias=False, decode=False, rngs=rngs))
    for name in ("query", "key", "value"):
        getattr(theirs, name).kernel[...] = getattr(ours, name)[...].reshape(8, 2, 4)
    theirs.out.kernel[...] = ours.output[...].reshape(2, 4, 8)
    x, mask = normal(6, 8), causal_mask(6)
    np.testing.assert_allclose(apply(ours, x, mask), apply(theirs, x, mask=mask[None]), atol=1e-6)


def test_a_query_that_may_look_nowhere_gets_zeros_and_a_finite_gradient():
    gradients, attended = sum_of_squares(dot_product_attention)(*inputs(), random_mask().at[2].set(False))
    assert jnp.all(attended[2] == 0)
    assert all(jnp.all(jnp.isfinite(gradient)) for gradient in gradients)


def test_masked_keys_change_nothing():
    query, key, value = inputs(values=3)
    mask = random_mask().at[:, 4].set(False)
    changed = attend(query, key.at[4].set(1e6), value.at[4].set(-1e6), mask)
    np.testing.assert_array_equal(changed, attend(query, key, value, mask))


def test_a_future_token_changes_nothing_before_it():
    layer, x = heads(), normal(6, 8)
    before, after = (apply(layer, x, causal_mask(6)) for x in (x, x.at[4].add(1.0)))
    np.testing.assert_array_equal(before[:4], after[:4])
    assert not jnp.array_equal(before[4], after[4])


def test_gradient_reaches_every_parameter():
    gradients = nnx.jit(nnx.grad(lambda layer, x: jnp.sum(layer(x) ** 2)))(heads(), normal(6, 8))
    for gradient in jax.tree.leaves(gradients):
        assert jnp.all(jnp.any(gradient != 0, axis=0))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda q, k, v: dot_product_attention(q[:, :2], k, v), r"\(5, 2\) and \(6, 4\)"),
        (lambda q, k, v: dot_product_attention(q, k, v[:3]), r"\(3, 4\) values for \(6, 4\) keys"),
        (lambda q, k, v: dot_product_attention(q, k, v, causal_mask(5)), r"\(5, 6\), got \(5, 5\)"),
        (lambda q, k, v: dot_product_attention(q, k, v, jnp.zeros((5, 6))), "boolean.*float32"),
        (lambda q, k, v: dot_product_attention(q, k[:0], v[:0]), r"a key.*\(0, 4\)"),
        (lambda q, k, v: heads()(jnp.zeros((0, 8))), r"got shape \(0, 8\)"),
        (lambda q, k, v: MultiHeadAttention(8, 3, rngs=nnx.Rngs(0)), "3 heads for 8 features"),
        (
            lambda q, k, v: heads()(q),
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
