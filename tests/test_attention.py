"""Attention: equal to JAX's and Flax's, blind where the mask says so, strict about shapes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from drawn import model_like, normal
from flax import nnx

from whyattention.attention import (
    AdditiveAttention,
    MultiHeadAttention,
    causal_mask,
    dot_product_attention,
    rotate,
    sinusoidal_positions,
    sliding_window_mask,
)

attend = jax.jit(dot_product_attention)


def inputs(queries=5, keys=6, features=4, values=4):
    return normal(queries, features, seed=0), normal(keys, features, seed=1), normal(keys, values, seed=2)


def random_mask():
    return jnp.asarray(np.random.default_rng(3).random((5, 6)) < 0.6).at[:, 0].set(True)


def heads(**options):
    return model_like(lambda rngs: MultiHeadAttention(8, 2, rngs=rngs, **options))


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
        (lambda q, k, v: MultiHeadAttention(6, 2, rngs=nnx.Rngs(0), rotary=True), "3 features cannot be turned"),
        (lambda q, k, v: rotate(q[:, :3]), r"even number\], got shape \(5, 3\)"),
        (lambda q, k, v: rotate(q, jnp.arange(4)), r"each of 5 rows, got shape \(4,\)"),
        (lambda q, k, v: sliding_window_mask(4, 0), "a window of 0"),
        (lambda q, k, v: AdditiveAttention(4, 4, 3, rngs=nnx.Rngs(0))(q[0], k[None]), r"keys must be.*\(1, 6, 4\)"),
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


def test_a_rotated_product_depends_on_the_difference_of_positions_and_lengths_do_not_change():
    query, key, places = normal(8), normal(8, seed=1), np.array([0, 3, 30, 500])
    for distance in (0, 2, 7):
        turned = (
            rotate(jnp.tile(query, (4, 1)), jnp.array(places + distance)),
            rotate(jnp.tile(key, (4, 1)), jnp.array(places)),
        )
        products = jnp.sum(turned[0] * turned[1], axis=1)
        np.testing.assert_allclose(products, products[0], rtol=1e-3)
        np.testing.assert_allclose(jnp.linalg.norm(turned[0], axis=1), jnp.linalg.norm(query), rtol=1e-5)
    # The pairs are those of the sinusoids: (1, 0) in each becomes (cos, sin) of the same angle.
    unit = rotate(jnp.tile(jnp.array([1.0, 0.0] * 4), (6, 1)))
    np.testing.assert_allclose(unit[:, 1::2], sinusoidal_positions(6, 8)[:, 0::2], atol=1e-6)
    np.testing.assert_allclose(unit[:, 0::2], sinusoidal_positions(6, 8)[:, 1::2], atol=1e-6)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16, jnp.float32])
def test_rotation_keeps_the_type_of_what_it_turns(dtype):
    x = normal(40, 8).astype(dtype)
    turned = rotate(x)
    assert turned.dtype == dtype
    expected = rotate(x.astype(jnp.float32))
    np.testing.assert_allclose(turned.astype(jnp.float32), expected, atol=float(4 * jnp.finfo(dtype).eps))


def test_without_positions_a_permutation_of_the_input_permutes_the_output_and_rotary_ends_that():
    x, order = normal(6, 8), jnp.array([3, 0, 5, 1, 4, 2])
    plain, rotary = heads(), heads(rotary=True)
    np.testing.assert_allclose(apply(plain, x[order]), apply(plain, x)[order], atol=1e-5)
    assert not jnp.allclose(apply(rotary, x[order]), apply(rotary, x)[order], atol=1e-2)


@pytest.mark.parametrize("rotary", [False, True])
def test_weights_are_the_rows_that_values_are_averaged_with(rotary):
    layer, x = heads(rotary=rotary), normal(6, 8)
    mask = causal_mask(6).at[2].set(False)
    weights = nnx.jit(lambda layer, x: layer.weights(x, mask))(layer, x)
    assert weights.shape == (2, 6, 6)
    values = (x @ layer.value[...]).reshape(6, 2, 4)
    mixed = jnp.einsum("hqk,khd->qhd", weights, values).reshape(6, 8) @ layer.output[...]
    np.testing.assert_allclose(mixed, apply(layer, x, mask), atol=1e-5)
    np.testing.assert_allclose(weights.sum(axis=-1), jnp.tile(jnp.array([1, 1, 0, 1, 1, 1.0]), (2, 1)), atol=1e-6)


def test_a_window_as_long_as_the_sequence_is_the_causal_mask():
    np.testing.assert_array_equal(sliding_window_mask(5, 5), causal_mask(5))
    np.testing.assert_array_equal(sliding_window_mask(5, 1), np.eye(5, dtype=bool))
