"""Blockwise attention is full attention, at any size and under any mask, and its memory grows with length alone."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from drawn import normal

from whyattention.attention import blockwise_attention, causal_mask, dot_product_attention
from whyattention.measure.memory import peak_memory


def inputs(queries, keys=None):
    keys = queries if keys is None else keys
    return normal(queries, 4, seed=0), normal(keys, 4, seed=1), normal(keys, 3, seed=2)


def key_mask(keys, kind):
    """None, a random mask, or one that forbids the first keys or all of them."""
    drawn = np.random.default_rng(3).random(keys) < 0.5
    return {"none": None, "random": drawn, "late": np.arange(keys) >= 2, "nothing": np.zeros(keys, bool)}[kind]


def values_and_gradients(attend):
    def loss(*arrays):
        attended = attend(*arrays)
        return jnp.sum(jnp.sin(attended)), attended

    return jax.jit(jax.grad(loss, argnums=(0, 1, 2), has_aux=True))


@pytest.mark.parametrize(
    ("length", "kind", "causal"),
    [
        *((11, kind, causal) for kind, causal in (("none", False), ("none", True), ("random", False), ("late", True))),
        *((1, kind, True) for kind in ("none", "nothing")),
        (11, "nothing", False),
        (4, "random", True),
    ],
)
def test_equals_full_attention_values_and_gradients(length, kind, causal):
    allowed = key_mask(length, kind)
    mask = jnp.ones((length, length), bool) if allowed is None else jnp.broadcast_to(allowed, (length, length))
    mask = mask & causal_mask(length) if causal else mask
    blockwise = partial(blockwise_attention, key_mask=allowed, causal=causal, block_size=4)
    gradients, attended = values_and_gradients(blockwise)(*inputs(length))
    expected_gradients, expected = values_and_gradients(lambda *arrays: dot_product_attention(*arrays, mask))(
        *inputs(length)
    )
    np.testing.assert_allclose(attended, expected, atol=1e-6)
    for left, right in zip(gradients, expected_gradients, strict=True):
        np.testing.assert_allclose(left, right, atol=1e-5)
    assert jnp.all(attended[~mask.any(axis=1)] == 0)


@pytest.mark.parametrize(("queries", "keys", "block_size"), [(3, 10, 4), (10, 3, 4), (5, 5, 1), (5, 5, 100)])
def test_any_sizes_do(queries, keys, block_size):
    arrays = inputs(queries, keys)
    np.testing.assert_allclose(
        blockwise_attention(*arrays, block_size=block_size), dot_product_attention(*arrays), atol=1e-6
    )


def test_large_scores_do_not_overflow():
    query, key, value = inputs(9)
    attended = blockwise_attention(1e3 * query, 1e3 * key, value, block_size=2)
    np.testing.assert_allclose(attended, dot_product_attention(1e3 * query, 1e3 * key, value), atol=1e-6)


def test_a_future_token_changes_nothing_before_it():
    attend = jax.jit(partial(blockwise_attention, causal=True, block_size=3))
    arrays = inputs(8)
    changed = attend(*(array.at[5].add(10.0) for array in arrays))
    before = attend(*arrays)
    np.testing.assert_array_equal(before[:5], changed[:5])
    assert not jnp.array_equal(before[5], changed[5])


def test_masked_keys_change_nothing():
    query, key, value = inputs(8)
    mask = jnp.arange(8) < 6
    attend = jax.jit(partial(blockwise_attention, key_mask=mask, block_size=3))
    changed = attend(query, key.at[6:].set(1e6), value.at[6:].set(-1e6))
    np.testing.assert_array_equal(changed, attend(query, key, value))


def test_heads_and_batches_by_vmap():
    arrays = [jnp.stack([array, 2 * array]) for array in inputs(6)]
    attended = jax.vmap(partial(blockwise_attention, block_size=4))(*arrays)
    np.testing.assert_allclose(attended, jax.vmap(dot_product_attention)(*arrays), atol=1e-6)


def test_half_precision_stays_half_precision_and_does_not_get_worse_with_the_number_of_blocks():
    exact = [jnp.abs(array).astype(jnp.bfloat16) for array in inputs(512)]
    expected = dot_product_attention(*(array.astype(jnp.float32) for array in exact))
    attended = blockwise_attention(*exact, block_size=4)
    assert attended.dtype == dot_product_attention(*exact).dtype == jnp.bfloat16
    # Rounded once, at the end: by half of the last of 8 binary digits, and what the scores were rounded by.
    np.testing.assert_allclose(attended.astype(jnp.float32), expected, rtol=0.01)


def test_values_without_features_are_mixed_to_none():
    query, key, value = inputs(5)
    assert blockwise_attention(query, key, value[:, :0], block_size=2).shape == (5, 0)


@pytest.mark.parametrize("backward", [False, True])
def test_memory_is_linear_in_length(backward):
    def memory(attend, length):
        def loss(*arrays):
            return jnp.sum(attend(*arrays) ** 2)

        shapes = [jax.ShapeDtypeStruct((length, 16), jnp.float32)] * 3
        return peak_memory(jax.grad(loss, argnums=(0, 1, 2)) if backward else loss, *shapes)

    blockwise = partial(blockwise_attention, block_size=64)
    small, large = memory(blockwise, 1024), memory(blockwise, 4096)
    assert large < 4.2 * small
    assert memory(dot_product_attention, 1024) > 4 * small


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda q, k, v: blockwise_attention(q[:, :2], k, v), r"\(5, 2\) and \(6, 4\)"),
        (lambda q, k, v: blockwise_attention(q, k, v[:3]), r"\(3, 3\) values for \(6, 4\) keys"),
        (lambda q, k, v: blockwise_attention(q, k[:0], v[:0]), r"a key.*\(0, 4\)"),
        (lambda q, k, v: blockwise_attention(q, k, v, jnp.ones((5, 6), bool)), r"\(6,\), got bool \(5, 6\)"),
        (lambda q, k, v: blockwise_attention(q, k, v, jnp.ones(6)), r"boolean.*got float32"),
        (lambda q, k, v: blockwise_attention(q, k, v, causal=True), "5 queries for 6 keys"),
        (lambda q, k, v: blockwise_attention(q, k, v, block_size=0), "at least 1, got 0"),
    ],
)
def test_wrong_arguments_are_named(call, words):
    with pytest.raises(ValueError, match=words):
        call(*inputs(5, 6))
