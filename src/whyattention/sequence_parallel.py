"""Sequences cut over devices along time: attention in a ring, and recurrences that can or cannot be cut.

Everything here is one device's part of a program that all devices run, for use inside `jax.shard_map`. It holds one
slice of the sequence, the devices being in the order of the slices, and speaks to the others by the name of the mesh's
axis. `jax.vmap(part, axis_name=...)` over the slices runs the same program on one device. Written for one sequence;
another `jax.vmap` makes a batch of it.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from whyattention.attention import add_keys, dot_product_attention, in_blocks

# --- Attention in a ring --------------------------------------------------------------------------


def pass_on(arrays: Any, axis_name: str) -> Any:
    """Every device's arrays to the next device, those of the last to the first."""
    devices = jax.lax.axis_size(axis_name)
    return jax.lax.ppermute(arrays, axis_name, [(device, (device + 1) % devices) for device in range(devices)])


def ring_attention(
    query: Float[Array, "slice features"],
    key: Float[Array, "slice features"],
    value: Float[Array, "slice values"],
    key_mask: Bool[Array, " slice"] | None = None,
    places: Int[Array, " slice"] | None = None,
    *,
    axis_name: str,
    causal: bool = False,
    block_size: int = 256,
) -> Float[Array, "slice values"]:
    """A device's slice of `dot_product_attention` over the whole sequence (Liu et al. 2023, algorithm 1).

    The queries stay. Keys and values visit every device in turn, and each device adds them to what its queries have
    seen, in blocks of `block_size`, with the online softmax of `blockwise_attention`. For the gradient they go round
    once more, and their own gradients travel with them. No device ever holds keys of more than one slice, or scores
    for more than one block: memory per device falls with the number of devices.

    `key_mask` is True at keys that may be looked at by any query, and with `causal` a query may look at keys whose
    place is not after its own. `places` are positions in the sequence, by default those of consecutive slices. A query
    that may look nowhere gets zeros. Raises ValueError where `dot_product_attention` does, if there is not one query
    for each key, if `key_mask` or `places` do not fit, or if `block_size` is below 1.
    """
    result = jax.eval_shape(dot_product_attention, query, key, value)  # the same requirements, and the same errors
    rows = len(query)
    if len(key) != rows:
        raise ValueError(f"each device needs one query per key, got {rows} queries for {len(key)} keys")
    key_mask = jnp.ones_like(key[:, 0], dtype=bool) if key_mask is None else key_mask
    if key_mask.shape != (rows,) or key_mask.dtype != bool:
        raise ValueError(f"key_mask must be boolean, of shape {(rows,)}, got {key_mask.dtype} {key_mask.shape}")
    places = jax.lax.axis_index(axis_name) * rows + jnp.arange(rows) if places is None else places
    if places.shape != (rows,):
        raise ValueError(f"there must be one place for each of {rows} positions, got shape {places.shape}")
    if block_size < 1:
        raise ValueError(f"block_size must be at least 1, got {block_size}")
    kept = jnp.promote_types(result.dtype, jnp.float32)  # sums over blocks need more than 16 bits
    scaled = query.astype(kept) / jnp.sqrt(query.shape[1])
    attended = _ring(axis_name, causal, block_size, scaled, key.astype(kept), value.astype(kept), key_mask, places)
    return attended.astype(result.dtype)


@partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _ring(axis_name, causal, block_size, query, key, value, key_mask, places):
    return _ring_forward(axis_name, causal, block_size, query, key, value, key_mask, places)[0]


def _ring_forward(axis_name, causal, block_size, query, key, value, key_mask, places):
    """(attended, what the gradient needs)."""

    def add_block(so_far, block):
        key, value, mask, key_places = block
        return add_keys(so_far, query, key, value, _allowed(mask, key_places, places, causal)), None

    def look(so_far, visitors):
        return jax.lax.scan(add_block, so_far, _blocks(visitors, block_size))[0]

    def turn(carry, _):
        so_far, visitors = carry
        # Neither needs the other's result, so a device can send the visitors on while it looks at them.
        return (look(so_far, visitors), pass_on(visitors, axis_name)), None

    nothing = jnp.full_like(query[:, 0], jnp.finfo(query.dtype).min)
    start = (nothing, jnp.zeros_like(query[:, 0]), jnp.zeros_like(value))
    visitors = (key, value, key_mask, places)
    (so_far, visitors), _ = jax.lax.scan(turn, (start, visitors), length=jax.lax.axis_size(axis_name) - 1)
    largest, total, mixed = look(so_far, visitors)
    total = jnp.where(total > 0, total, 1)
    attended = mixed / total[:, None]
    return attended, (query, key, value, key_mask, places, attended, largest, total)


def _ring_backward(axis_name, causal, block_size, saved, gradient):
    """Gradients of query, key and value (Dao et al. 2022, algorithm 4, its loop over keys going round the ring)."""
    query, key, value, key_mask, places, attended, largest, total = saved
    shared = jnp.sum(gradient * attended, axis=1)  # what moves all scores of a query alike moves no weight

    def pull_block(query_gradient, block):
        key, value, mask, key_places, key_gradient, value_gradient = block
        allowed = _allowed(mask, key_places, places, causal)
        weights = jnp.where(allowed, jnp.exp(query @ key.T - largest[:, None]) / total[:, None], 0.0)
        scores_gradient = weights * (gradient @ value.T - shared[:, None])
        key_gradient = key_gradient + scores_gradient.T @ query
        value_gradient = value_gradient + weights.T @ gradient
        return query_gradient + scores_gradient @ key, (key_gradient, value_gradient)

    def turn(carry, _):
        query_gradient, visitors = carry
        query_gradient, gradients = jax.lax.scan(pull_block, query_gradient, _blocks(visitors, block_size))
        gradients = tuple(array.reshape(-1, array.shape[-1])[: len(key)] for array in gradients)
        return (query_gradient, pass_on((*visitors[:4], *gradients), axis_name)), None

    visitors = (key, value, key_mask, places, jnp.zeros_like(key), jnp.zeros_like(value))
    carry = (jnp.zeros_like(query), visitors)
    (query_gradient, visitors), _ = jax.lax.scan(turn, carry, length=jax.lax.axis_size(axis_name))
    return query_gradient, *visitors[4:], None, None  # after a whole round the gradients are home


_ring.defvjp(_ring_forward, _ring_backward)


def _allowed(mask, key_places, places, causal):
    return mask & (key_places <= places[:, None]) if causal else mask[None]


def _blocks(visitors, block_size):
    return tuple(in_blocks(array, block_size) for array in visitors)


# --- Recurrences ----------------------------------------------------------------------------------


def scan_over_devices(combine: Callable[[Any, Any], Any], elements: Any, *, axis_name: str) -> Any:
    """A device's slice of `jax.lax.associative_scan(combine, elements)` over the whole sequence.

    Each device scans its own slice and tells all others the total of it; what came before a slice is the combination
    of the totals before it. So every device waits for one exchange, and not for its neighbour (Blelloch 1990, section
    1.2, for more elements than processors; Martin & Cundy 2018).
    """
    local = jax.lax.associative_scan(combine, elements)
    totals = jax.lax.all_gather(jax.tree.map(lambda array: array[-1], local), axis_name)  # [devices, ...]
    upto = jax.lax.associative_scan(combine, totals)
    device = jax.lax.axis_index(axis_name)
    before = jax.tree.map(lambda array: array[device - 1][None], upto)
    return jax.tree.map(partial(jnp.where, device == 0), local, combine(before, local))


def relay(
    run: Callable[[Any, Any], tuple[Any, Any]],
    initial: Any,
    slices: Float[Array, "sequences slice features"],
    *,
    axis_name: str,
) -> Float[Array, "sequences slice hidden"]:
    """A device's slice of the outputs of any recurrence, for several sequences, each handed from device to device.

    `run(state, xs) -> (state, outputs)` is the recurrence over one slice, as `unroll` is. The device of slice k can
    begin a sequence when it is handed the state in which the device before has left it, so it begins sequence j in turn
    j + k, and all are done after sequences + devices - 1 turns (the pipeline of Huang et al. 2019, section 2.3, with
    slices of time for its layers). With one sequence no device ever works while another does.
    """
    device, devices, sequences = jax.lax.axis_index(axis_name), jax.lax.axis_size(axis_name), len(slices)

    def turn(handed, number):
        state = jax.tree.map(partial(jnp.where, device == 0), initial, handed)
        # Before its first sequence and after its last a device computes as well, and nobody uses what comes out.
        state, outputs = run(state, slices[jnp.clip(number - device, 0, sequences - 1)])
        return pass_on(state, axis_name), outputs

    start = pass_on(initial, axis_name)
    _, outputs = jax.lax.scan(turn, start, jnp.arange(sequences + devices - 1))
    return jax.lax.dynamic_slice_in_dim(outputs, device, sequences)
