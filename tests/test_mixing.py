"""What is counted of a mixer, and what is asked of trained ones."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from drawn import model_like
from flax import nnx

from whyattention.measure.mixing import (
    CELLS,
    PARALLEL,
    accuracy_by_pairs,
    answers_by_step,
    kept_numbers,
    make_mixer,
    training_cost,
)
from whyattention.mixers import MixerLanguageModel
from whyattention.tasks.recall import AssociativeRecall
from whyattention.tasks.state_tracking import PermutationWords

EVERY = ["attention", *CELLS]


def mixer(name, **options):
    return make_mixer(name, 4, 64, nnx.Rngs(0), **options)


@pytest.mark.parametrize("name", EVERY)
def test_a_recurrence_keeps_its_state_and_attention_everything(name):
    expected = {2: 2 * 2 * 4, 100: 2 * 100 * 4} if name == "attention" else {2: 64, 100: 64}
    assert {tokens: kept_numbers(mixer(name), tokens) for tokens in expected} == expected


@pytest.mark.parametrize("name", EVERY)
def test_the_span_grows_with_length_where_steps_wait(name):
    short, long = (training_cost(mixer(name, parallel=True), 4, length).span for length in (64, 256))
    if name == "attention" or name in PARALLEL:
        assert long - short < 50
    else:
        assert 3.8 < long / short < 4.2


@pytest.mark.parametrize("name", sorted(PARALLEL))
def test_in_parallel_a_mixer_gives_the_same(name):
    x = jnp.asarray(np.random.default_rng(0).standard_normal((5, 4)), jnp.float32)
    outputs = [nnx.jit(lambda mixer, x: mixer(x))(mixer(name, parallel=parallel), x) for parallel in (False, True)]
    np.testing.assert_allclose(*outputs, atol=1e-5)


def test_an_unknown_mixer_is_named():
    with pytest.raises(ValueError, match="got 'transformer'"):
        mixer("transformer")


def two_models(task):
    """As `fit_seeds` gives them: each, and the two in one."""

    def make(rngs):
        return MixerLanguageModel(task.vocabulary_size, 4, lambda rngs: mixer("minGRU"), rngs=rngs)

    models = [model_like(make, seed=seed) for seed in (0, 100)]
    (graph, first), (_, second) = map(nnx.split, models)
    return *models, nnx.merge(graph, jax.tree.map(lambda *leaves: jnp.stack(leaves), first, second))


def test_accuracy_by_pairs_is_that_of_the_task():
    task = AssociativeRecall(3, 4, queries=3, batch_size=8)
    (first, _, models), key = two_models(task), jax.random.key(1)
    found = accuracy_by_pairs(models, (1, 3), 4, key, batch_size=8)
    assert found.shape == (2, 2)
    np.testing.assert_allclose(found[0, 1], jax.jit(lambda key: task.loss(first, task.sample(key)))(key)[1]["accuracy"])


def test_answers_by_step_are_those_of_each_model():
    task = PermutationWords(2, length=6, batch_size=8)
    (_, second, models), key = two_models(task), jax.random.key(1)
    given, right = answers_by_step(models, task, key)
    moves, answers = task.sample(key)
    np.testing.assert_array_equal(right, answers)
    assert given.shape == (2, 8, 6)
    np.testing.assert_array_equal(given[1], jnp.argmax(jax.jit(jax.vmap(second))(moves), axis=-1))
