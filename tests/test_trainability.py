"""Updates until a task is solved, on a task that a bias alone solves."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from whyattention.measure.trainability import (
    contestants,
    matched,
    matched_language_models,
    updates_by_difficulty,
    updates_to_solve,
)
from whyattention.training import parameter_count


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
        Number, NearTen(), seeds=5, updates=updates, optimizer=optax.sgd(0.5), key=jax.random.key(3), chunk=10
    )


def test_seeds_that_do_not_get_there_have_infinity():
    found = solve(60)
    near, far = found[np.isfinite(found)], found[np.isinf(found)]
    assert len(near) and len(far) and len(near) + len(far) == 5
    np.testing.assert_array_equal(near, 30)  # there after 19 steps of one half, and for the ten batches after them


def test_training_ends_when_all_seeds_are_there():
    assert set(solve(10_000)) == {30, 190}


def test_a_model_that_solves_nothing_is_not_tried_on_harder_tasks():
    tried = []

    @dataclass(frozen=True)
    class Noted(NearTen):
        level: int = 0

        def sample(self, key):
            tried.append(self.level)
            return super().sample(key)

    levels = [Noted(level=level) for level in range(3)]
    found = updates_by_difficulty(
        Number, levels, seeds=5, updates=10, optimizer=optax.sgd(0.01), key=jax.random.key(3), chunk=10
    )
    assert found.shape == (3, 5) and np.isinf(found).all() and set(tried) == {0}


@pytest.mark.parametrize(("make_all", "features", "models"), [(contestants, 24, 6), (matched_language_models, 32, 2)])
def test_contestants_have_the_same_number_of_parameters(make_all, features, models):
    def size(make):
        return parameter_count(nnx.eval_shape(lambda: make(nnx.Rngs(0))))

    sizes = {name: size(make) for name, make in make_all(18, features).items()}
    assert len(sizes) == models and max(sizes.values()) < 1.02 * min(sizes.values())


def test_the_last_updates_are_judged_though_they_fill_no_chunk():
    found = updates_to_solve(
        Number, NearTen(), seeds=5, updates=35, optimizer=optax.sgd(0.5), key=jax.random.key(3), chunk=20
    )
    assert np.isfinite(found).any() and set(found[np.isfinite(found)]) == {35}


@pytest.mark.parametrize(("chunk", "updates"), [(5, 50), (100, 50)])
def test_chunks_that_cannot_be_judged_are_named(chunk, updates):
    with pytest.raises(ValueError, match=f"chunk={chunk} and updates={updates}"):
        updates_to_solve(
            Number, NearTen(), seeds=1, updates=updates, optimizer=optax.sgd(0.5), key=jax.random.key(0), chunk=chunk
        )


def test_a_width_that_is_not_tried_is_named():
    def flat(width, rngs):
        return nnx.Linear(1, width, rngs=rngs)

    with pytest.raises(ValueError, match="flat would have to be wider than 1023 for 1,000,000 parameters"):
        matched({"flat": flat}, 1_000_000)
