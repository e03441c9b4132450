"""Where arrays lie: devices and meshes, and a batch or the heads of a model split over them.

A program is written once, for whole arrays. Its arrays are placed on a mesh of devices, and the compiler splits the
program accordingly and puts in the messages that the devices have to exchange. What it computes stays the same.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from whyattention.training import Metrics, Task

DEVICE_COUNT = "--xla_force_host_platform_device_count"

# Parameters by what they are called: those that make several heads or hidden units, and those that add them up.
SPLIT_BY_COLUMNS = frozenset({"query", "key", "value", "wide", "widen"})
SPLIT_BY_ROWS = frozenset({"output", "narrow"})


def rehearsal_devices(most: int = 8) -> list[jax.Device]:
    """Devices to split a program over: a power of two of them, `most` at the most.

    Accelerators, if there are two or more. Otherwise the CPU poses as `most` devices: `DEVICE_COUNT` is put into
    $XLA_FLAGS, unless it is there already, while JAX starts. It must not have started before, or the CPU stays the one
    device that it was. Raises ValueError if `most` is below 1.
    """
    if most < 1:
        raise ValueError(f"at least one device is needed, got {most}")
    before = os.environ.get("XLA_FLAGS", "")
    if DEVICE_COUNT not in before:
        os.environ["XLA_FLAGS"] = f"{before} {DEVICE_COUNT}={most}".strip()
    try:
        devices = jax.devices()
        devices = devices if len(devices) > 1 else jax.devices("cpu")
    finally:  # it is read once, when JAX starts; programs started from here shall not inherit it
        os.environ["XLA_FLAGS"] = before
        if not before:
            del os.environ["XLA_FLAGS"]
    return devices[: 2 ** (min(most, len(devices)).bit_length() - 1)]


def mesh_of(devices: Sequence[jax.Device], **axes: int) -> Mesh:
    """The first of `devices` as a grid: `mesh_of(devices, batch=4, heads=2)` takes eight.

    Raises ValueError if there are too few.
    """
    needed = int(np.prod(list(axes.values())))
    if needed > len(devices):
        raise ValueError(f"a mesh of {axes} needs {needed} devices, there are {len(devices)}")
    return Mesh(np.array(devices[:needed]).reshape(tuple(axes.values())), tuple(axes))


@dataclass(frozen=True)
class SplitBatches:
    """`task`, its batches split along their first axis over one axis of a mesh: for `fit`, data-parallel training.

    The same key draws the same batch. The first axis of every array of a batch must be a multiple of the devices.
    """

    task: Task
    mesh: Mesh
    axis: str = "batch"

    def sample(self, key: jax.Array) -> Any:
        sharding = NamedSharding(self.mesh, PartitionSpec(self.axis))
        return jax.lax.with_sharding_constraint(self.task.sample(key), sharding)

    def loss(self, model: Any, batch: Any) -> tuple[jax.Array, Metrics]:
        return self.task.loss(model, batch)


def split_heads(model: nnx.Module, mesh: Mesh, axis: str = "heads") -> nnx.Module:
    """A copy of `model` with attention heads and feed-forward units split over one axis of a mesh.

    Each device has the columns of the kernels that make its own heads and units, and the rows of those that add them
    up (Shoeybi et al. 2019, section 3), found by their names; it has all other parameters whole. Raises ValueError if
    a size that is split is not a multiple of the devices.
    """
    graphdef, state = nnx.split(model)

    def place(path, array):
        return jax.device_put(array, NamedSharding(mesh, _split(path, array.ndim, axis)))

    return nnx.merge(graphdef, jax.tree_util.tree_map_with_path(place, state))


def _split(path, ndim, axis) -> PartitionSpec:
    names = {entry.key for entry in path if isinstance(entry, jax.tree_util.DictKey)}
    if names & SPLIT_BY_COLUMNS:
        return PartitionSpec(*[None] * (ndim - 1), axis)
    if names & SPLIT_BY_ROWS and ndim > 1:  # a bias is added once, to the sum
        return PartitionSpec(axis)
    return PartitionSpec()
