"""Updates until a task is solved, on a task that a bias alone solves."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from whyattention.measure.trainability import updates_to_solve


class Number(nnx.Module):
    def __init__(self, rngs):
        self.value = nnx.Param(jnp.round(jax.random.uniform(rngs.params(), ())) * 100)


@dataclass(frozen=True)
class NearTen:
    """Be within one of ten."""

    batch_size: int = 1

    def sample(self, key):
        return jnp.zeros(self.batch_size)

    def loss(self, model, batch):
        distance = jnp.abs(model.value[...] - 10)
        return distance, {"accuracy": jnp.where(distance < 1, 1.0, 0.0)}


def solve(updates):
    return updates_to_solve(
        Number, NearTen(), seeds=5, updates=updates, optimizer=optax.sgd(0.5), key=jax.random.key(3), chunk=5
    )


def test_seeds_that_do_not_get_there_have_infinity():
    found = solve(40)
    near, far = found[np.isfinite(found)], found[np.isinf(found)]
    assert len(near) and len(far) and len(near) + len(far) == 5
    np.testing.assert_array_equal(near, 20)


def test_training_ends_when_all_seeds_are_there():
    found = solve(10_000)
    assert set(found) == {20, 180}
