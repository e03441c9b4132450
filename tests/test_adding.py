"""The adding problem: its sums, its marks, its baseline, and a model that can do it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from whyattention.tasks.adding import AddingProblem

TASK = AddingProblem(9, batch_size=2000)


def adder(xs):
    return jnp.sum(xs[:, 0] * xs[:, 1], keepdims=True)


def test_one_mark_in_each_half_and_their_sum():
    xs, sums = TASK.sample(jax.random.key(0))
    assert xs.shape == (2000, 9, 2) and sums.shape == (2000,)
    marks = np.asarray(xs[:, :, 1])
    np.testing.assert_array_equal(marks[:, :4].sum(1), 1)
    np.testing.assert_array_equal(marks[:, 4:].sum(1), 1)
    assert np.all(marks.sum(0) > 0)
    assert np.all((xs[:, :, 0] >= 0) & (xs[:, :, 0] < 1))
    np.testing.assert_allclose(sums, jnp.sum(xs[:, :, 0] * marks, axis=1), rtol=1e-6)


def test_a_model_that_adds_has_no_loss():
    loss, metrics = TASK.loss(adder, TASK.sample(jax.random.key(0)))
    assert loss < 1e-10 and metrics["accuracy"] == 1


def test_always_answering_one_gives_the_baseline():
    loss, metrics = TASK.loss(lambda xs: jnp.ones(1), TASK.sample(jax.random.key(0)))
    np.testing.assert_allclose(loss, TASK.baseline, rtol=0.1)
    np.testing.assert_allclose(metrics["accuracy"], 0.08, atol=0.02)


def test_sizes_that_make_no_problem_are_named():
    with pytest.raises(ValueError, match="length=1"):
        AddingProblem(1)
