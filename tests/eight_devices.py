"""What `test_sharding.py` runs in a process of its own, in which the CPU poses as eight devices."""

import os
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from drawn import model_like, normal
from flax import nnx
from jax.sharding import NamedSharding, PartitionSpec

from whyattention.attention import causal_mask, dot_product_attention
from whyattention.language_model import RecurrentLanguageModel
from whyattention.measure.attention_cost import TransformerLayer
from whyattention.measure.communication import Collective, calls, collectives, sent_bytes
from whyattention.measure.memory import device_memory
from whyattention.recurrent import TanhCell, unroll
from whyattention.sequence_parallel import relay, ring_attention
from whyattention.sharding import SplitBatches, mesh_of, rehearsal_devices, split_heads
from whyattention.tasks.recall import DelayedRecall
from whyattention.training import fit

TIME = PartitionSpec("time")


def over_time(part, mesh, *, axes=TIME):
    return jax.shard_map(partial(part, axis_name="time"), mesh=mesh, in_specs=axes, out_specs=axes)


def check_ring(devices):
    mesh, arrays = mesh_of(devices, time=8), [normal(24, size, seed=size) for size in (4, 4, 3)]
    allowed = jnp.arange(24) % 3 < 2
    ring = over_time(partial(ring_attention, causal=True, block_size=2), mesh)

    def both(attend):
        attended, pull = jax.vjp(attend, *arrays)
        return attended, pull(jnp.sin(attended))

    found = jax.jit(lambda: both(lambda *arrays: ring(*arrays, allowed)))()
    expected = both(lambda *arrays: dot_product_attention(*arrays, allowed & causal_mask(24)))
    jax.tree.map(partial(np.testing.assert_allclose, atol=1e-5), found, expected)
    assert len(found[0].sharding.device_set) == 8


def check_memory_and_messages_of_a_ring(devices):
    def compiled(count, attend=ring_attention):
        mesh = mesh_of(devices, time=count)
        ring = over_time(partial(attend, block_size=64), mesh)
        shape = jax.ShapeDtypeStruct((2048, 16), jnp.float32, sharding=NamedSharding(mesh, TIME))
        gradient = jax.jit(jax.grad(lambda *arrays: jnp.sum(ring(*arrays) ** 2), argnums=(0, 1, 2)))
        return gradient.lower(shape, shape, shape).compile()

    two, eight = compiled(2), compiled(8)
    assert device_memory(eight) < 0.35 * device_memory(two)  # a quarter, and what does not shrink: one block
    counted = collectives(eight)
    block, mask, places = 2048 // 8 * 16 * 4, 2048 // 8, 2048 // 8 * 4
    assert counted[Collective("collective-permute", block)] == 7 * 2 + 8 * 4
    assert sent_bytes(counted, 8) <= (7 * 2 + 8 * 4) * block + 15 * (mask + places)


def check_relay(devices):
    cell, xs = model_like(lambda rngs: TanhCell(2, 3, rngs=rngs)), normal(3, 16, 2)

    def relayed(slices, axis_name):
        return relay(lambda state, xs: unroll(cell, xs, state), cell.initial_state(), slices, axis_name=axis_name)

    found = jax.jit(over_time(relayed, mesh_of(devices, time=8), axes=PartitionSpec(None, "time")))(xs)
    np.testing.assert_allclose(found, jax.vmap(lambda xs: unroll(cell, xs)[1])(xs), atol=1e-6)


def check_training(devices):
    task = DelayedRecall(lag=3, symbols=4, distractors=2, batch_size=16)
    model = model_like(lambda rngs: RecurrentLanguageModel(task.vocabulary_size, TanhCell(4, 8, rngs=rngs), rngs=rngs))
    options = {"steps": 10, "optimizer": optax.adam(0.01), "key": jax.random.key(0), "chunk": 5}
    alone, history = fit(model, task, **options)
    split = SplitBatches(task, mesh_of(devices, batch=8))
    together, split_history = fit(model, split, **options)
    np.testing.assert_allclose(split_history.loss, history.loss, atol=1e-5)
    jax.tree.map(partial(np.testing.assert_allclose, atol=1e-4), nnx.state(together), nnx.state(alone))
    assert len(together.cell.kernel[...].sharding.device_set) == 8


def check_heads(devices):
    """As many all-reduces as Shoeybi et al. (2019), section 3, count: two forward, and two backward."""
    mesh, layer = mesh_of(devices, heads=8), TransformerLayer(512, rngs=nnx.Rngs(0))
    xs = jax.device_put(normal(2, 4, 512), NamedSharding(mesh, PartitionSpec()))
    graphdef, weights = nnx.split(split_heads(layer, mesh))
    kernel = weights["attention"]["query"][...]
    assert kernel.sharding.shard_shape(kernel.shape) == (512, 64)
    assert weights["narrow"][...].sharding.spec == PartitionSpec("heads")

    def forward(weights, xs):
        return jax.vmap(nnx.merge(graphdef, weights))(xs)

    def gradient(weights, xs):
        return jax.grad(lambda *arguments: jnp.mean(forward(*arguments) ** 2), argnums=(0, 1))(weights, xs)

    compiled = {fn: jax.jit(fn).lower(weights, xs).compile() for fn in (forward, gradient)}
    assert calls(collectives(compiled[forward])) == {"all-reduce": 2}
    assert calls(collectives(compiled[gradient])) == {"all-reduce": 4}
    np.testing.assert_allclose(compiled[forward](weights, xs), jax.vmap(layer)(xs), atol=1e-5)


def main():
    devices = rehearsal_devices(8)
    assert len(devices) == len(jax.devices()) == 8 and "XLA_FLAGS" not in os.environ
    assert len(rehearsal_devices(3)) == 2 and len(rehearsal_devices(16)) == 8
    for check in (check_ring, check_memory_and_messages_of_a_ring, check_relay, check_training, check_heads):
        check(devices)
    print("all checks passed on eight devices")


if __name__ == "__main__":
    main()
