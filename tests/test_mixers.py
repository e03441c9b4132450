"""Models that differ in their mixer alone: causal, batched by vmap, and every parameter alive."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from drawn import model_like
from flax import nnx

from whyattention.mixers import AttentionMixer, MixerLanguageModel, RecurrentMixer
from whyattention.parallel import LinearAttention, MinGRU, parallel_unroll
from whyattention.recurrent import GRUCell, unroll

MIXERS = {
    "attention": lambda rngs: AttentionMixer(4, 2, rngs=rngs),
    "linear attention": lambda rngs: RecurrentMixer(
        LinearAttention(4, 3, key_features=2, rngs=rngs), rngs=rngs, run=parallel_unroll
    ),
    "GRU": lambda rngs: RecurrentMixer(GRUCell(4, 3, rngs=rngs), rngs=rngs),
}
TOKENS = jnp.array([1, 3, 0, 2, 4])


def model_with(make_mixer, num_layers=1):
    return model_like(lambda rngs: MixerLanguageModel(5, 4, make_mixer, num_layers=num_layers, rngs=rngs))


@pytest.mark.parametrize("name", MIXERS)
def test_a_later_token_changes_nothing_before_it(name):
    model = model_with(MIXERS[name])
    run = nnx.jit(lambda model, tokens: model(tokens))
    before, after = run(model, TOKENS), run(model, TOKENS.at[3].set(1))
    assert before.shape == (5, 5)
    np.testing.assert_allclose(before[:3], after[:3], atol=1e-6)
    assert not jnp.allclose(before[3], after[3])


@pytest.mark.parametrize("name", MIXERS)
def test_gradient_reaches_every_parameter(name):
    model = model_with(MIXERS[name], num_layers=2)
    gradients = nnx.jit(nnx.grad(lambda model: jnp.sum(model(TOKENS)[:, :2] ** 2)))(model)
    assert all(jnp.any(gradient != 0) for gradient in jax.tree.leaves(gradients))


def test_the_token_before_is_seen_without_a_mixer():
    model = model_with(lambda rngs: jnp.zeros_like)
    run = jax.jit(model.__call__)
    one, other = run(TOKENS), run(TOKENS.at[0].set(2))
    assert not jnp.allclose(one[1], other[1])
    np.testing.assert_array_equal(one[2:], other[2:])


def test_the_way_of_running_a_cell_makes_no_difference():
    makers = [
        lambda rngs, run=run: RecurrentMixer(MinGRU(4, 3, rngs=rngs), rngs=rngs, run=run)
        for run in (unroll, parallel_unroll)
    ]
    step_by_step, in_parallel = (nnx.jit(lambda model: model(TOKENS))(model_with(make)) for make in makers)
    np.testing.assert_allclose(step_by_step, in_parallel, atol=1e-5)


def test_a_model_without_layers_is_refused():
    with pytest.raises(ValueError, match="num_layers must be at least 1, got 0"):
        model_with(MIXERS["GRU"], num_layers=0)
