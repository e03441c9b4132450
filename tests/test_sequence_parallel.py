"""Sequences cut over devices: a ring is full attention, a scan is a scan, and a relay is no faster than one runner."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from drawn import model_like, normal

from whyattention.attention import causal_mask, dot_product_attention
from whyattention.measure.cost import work_and_span
from whyattention.parallel import combine, combine_matrices, linear_recurrence
from whyattention.recurrent import TanhCell, unroll
from whyattention.sequence_parallel import relay, ring_attention, scan_over_devices

DEVICES, ROWS = 4, 3
LENGTH = DEVICES * ROWS


def cut(array, devices=DEVICES):
    """[time, ...] as [devices, slice, ...]."""
    return array.reshape(devices, -1, *array.shape[1:])


def joined(array):
    return array.reshape(-1, *array.shape[2:])


def on_devices(part, *arrays, devices=DEVICES):
    """`part` run by every device with its slice of the arrays; what each gives, put together again."""
    run = jax.jit(jax.vmap(partial(part, axis_name="time"), axis_name="time"))
    return jax.tree.map(joined, run(*(cut(array, devices) for array in arrays)))


def heads(features=4):
    return normal(LENGTH, features, seed=0), normal(LENGTH, features, seed=1), normal(LENGTH, 3, seed=2)


def key_masks(kind):
    drawn = np.random.default_rng(3).random(LENGTH) < 0.5
    return jnp.asarray({"all": np.ones(LENGTH, bool), "random": drawn, "nothing": np.zeros(LENGTH, bool)}[kind])


@pytest.mark.parametrize(
    ("kind", "causal", "block_size"),
    [("all", False, 256), ("all", True, 1), ("random", False, 2), ("random", True, 2), ("nothing", True, 256)],
)
def test_a_ring_is_full_attention_values_and_gradients(kind, causal, block_size):
    allowed, pulled = key_masks(kind), normal(LENGTH, 3, seed=4)
    mask = jnp.broadcast_to(allowed, (LENGTH, LENGTH)) & (causal_mask(LENGTH) if causal else True)
    expected, pull = jax.vjp(lambda *arrays: dot_product_attention(*arrays, mask), *heads())

    def part(query, key, value, allowed, pulled, axis_name):
        attend = partial(ring_attention, key_mask=allowed, axis_name=axis_name, causal=causal, block_size=block_size)
        attended, pull = jax.vjp(attend, query, key, value)
        return attended, pull(pulled)

    attended, gradients = on_devices(part, *heads(), allowed, pulled)
    np.testing.assert_allclose(attended, expected, atol=1e-6)
    for found, wanted in zip(gradients, pull(pulled), strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_stripes_are_causal_by_their_places():
    order = np.arange(LENGTH).reshape(ROWS, DEVICES).T.ravel()  # position i on device i mod 4
    arrays = (*(array[order] for array in heads()), key_masks("all"), jnp.asarray(order))
    striped = on_devices(partial(ring_attention, causal=True), *arrays)
    expected = dot_product_attention(*heads(), causal_mask(LENGTH))
    np.testing.assert_allclose(striped, expected[order], atol=1e-6)


@pytest.mark.parametrize(
    "types", [("bfloat16",) * 3, ("bfloat16", "bfloat16", "float32"), ("float32", "bfloat16", "int32")]
)
def test_a_ring_takes_the_types_that_full_attention_takes(types):
    arrays = [(3 * array).astype(dtype) for array, dtype in zip(heads(), types, strict=True)]
    found = on_devices(partial(ring_attention, block_size=1), *arrays)
    expected = dot_product_attention(*arrays)
    assert found.dtype == expected.dtype
    exact = dot_product_attention(*(array.astype("float32") for array in arrays))
    np.testing.assert_allclose(found.astype("float32"), exact, rtol=1e-2, atol=1e-2)  # the last rounding of bfloat16


def test_large_scores_do_not_overflow_in_a_ring():
    query, key, value = heads()
    attended = on_devices(ring_attention, 1e3 * query, 1e3 * key, value)
    np.testing.assert_allclose(attended, dot_product_attention(1e3 * query, 1e3 * key, value), atol=1e-6)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda q, k, v: (q, k[:, :2], v), r"\(3, 4\) and \(3, 2\)"),
        (lambda q, k, v: (q[:2], k, v), "2 queries for 3 keys"),
        (lambda q, k, v: (q, k, v, jnp.ones(2, bool)), r"\(3,\), got bool \(2,\)"),
        (lambda q, k, v: (q, k, v, jnp.ones(3)), "got float32"),
        (lambda q, k, v: (q, k, v, None, jnp.arange(2)), r"one place for each of 3 positions, got shape \(2,\)"),
    ],
)
def test_wrong_slices_are_named(change, words):
    with pytest.raises(ValueError, match=words):
        jax.eval_shape(
            lambda *arrays: jax.vmap(
                lambda *slices: ring_attention(*change(*slices), axis_name="time"), axis_name="time"
            )(*map(cut, arrays)),
            *heads(),
        )


def test_a_block_has_a_row():
    with pytest.raises(ValueError, match="at least 1, got 0"):
        on_devices(partial(ring_attention, block_size=0), *heads())


@pytest.mark.parametrize("devices", [1, 2, 6])
def test_a_scan_over_devices_is_a_scan(devices):
    decay, drive = jax.nn.sigmoid(normal(LENGTH, 2, seed=5)), normal(LENGTH, 2, seed=6)

    def part(decay, drive, axis_name):
        return scan_over_devices(combine, (decay, drive), axis_name=axis_name)[1]

    found = on_devices(part, decay, drive, devices=devices)
    np.testing.assert_allclose(found, linear_recurrence(decay, drive), atol=1e-6)


def test_a_scan_over_devices_keeps_the_order():
    elements = normal(LENGTH, 2, 2, seed=7, scale=0.7), normal(LENGTH, 2, seed=8)  # matrices do not commute
    expected = jax.lax.associative_scan(combine_matrices, elements)
    found = on_devices(
        lambda *parts, axis_name: scan_over_devices(combine_matrices, parts, axis_name=axis_name), *elements
    )
    for left, right in zip(found, expected, strict=True):
        np.testing.assert_allclose(left, right, atol=1e-5)


def relayed(cell, xs, devices):
    """[sequences, time, hidden], each slice of time by another device."""

    def part(slices):
        run = lambda state, xs: unroll(cell, xs, state)  # noqa: E731
        return relay(run, cell.initial_state(), slices, axis_name="time")

    slices = xs.reshape(xs.shape[0], devices, -1, xs.shape[-1])
    return jax.vmap(part, in_axes=1, out_axes=1, axis_name="time")(slices).reshape(*xs.shape[:2], -1)


@pytest.mark.parametrize("sequences", [1, 5])
def test_a_relay_is_the_recurrence(sequences):
    cell, xs = model_like(lambda rngs: TanhCell(2, 3, rngs=rngs)), normal(sequences, LENGTH, 2)
    expected = jax.vmap(lambda xs: unroll(cell, xs)[1])(xs)
    np.testing.assert_allclose(jax.jit(partial(relayed, cell, devices=DEVICES))(xs), expected, atol=1e-6)


def test_a_relay_of_one_sequence_is_as_long_as_the_sequence():
    cell = model_like(lambda rngs: TanhCell(2, 3, rngs=rngs))
    spans = [work_and_span(partial(relayed, cell, devices=devices), normal(1, 64, 2)).span for devices in (1, 2, 8)]
    assert min(spans) == spans[0]
    per_sequence = work_and_span(partial(relayed, cell, devices=8), normal(8, 64, 2)).span / 8
    assert per_sequence < 0.3 * spans[0]


def test_a_scan_over_devices_is_short():
    def spans(length, devices):
        def scan(*elements):
            part = partial(scan_over_devices, combine, axis_name="time")
            return jax.vmap(lambda *parts: part(parts), axis_name="time")(*(cut(array, devices) for array in elements))

        return work_and_span(scan, jnp.ones((length, 1)), jnp.ones((length, 1))).span

    assert spans(1024, 8) < 3 * spans(32, 8)  # 32 times as long
