"""The attention language model: sees the past and nothing else, every parameter alive, sized at will."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from drawn import model_like
from flax import nnx

from whyattention.language_model import AttentionLanguageModel, RecurrentLanguageModel
from whyattention.recurrent import LSTMCell
from whyattention.training import closest_width, parameter_count

TOKENS = jnp.array([1, 2, 3, 4, 5, 6, 7])


def model(**sizes):
    sizes = {"features": 8, "num_heads": 2, "num_layers": 2} | sizes
    return model_like(lambda rngs: AttentionLanguageModel(9, **sizes, rngs=rngs))


@nnx.jit
def logits_of(model, tokens):
    return model(tokens)


def test_logits_depend_on_the_past_and_on_nothing_later():
    before, after = logits_of(model(), TOKENS), logits_of(model(), TOKENS.at[3].set(8))
    assert before.shape == (7, 9)
    np.testing.assert_allclose(before[:3], after[:3], atol=1e-6)
    assert jnp.all(jnp.any(jnp.abs(before[3:] - after[3:]) > 1e-6, axis=1))


@pytest.mark.parametrize(("positions", "matters"), [("sinusoidal", True), ("rotary", True), ("none", False)])
def test_the_order_of_the_past_matters_to_one_layer_if_it_has_positions(positions, matters):
    swapped = TOKENS[jnp.array([1, 0, 2, 3, 4, 5, 6])]
    one = model(num_layers=1, positions=positions)
    assert jnp.allclose(logits_of(one, TOKENS)[-1], logits_of(one, swapped)[-1], atol=1e-5) != matters


def test_two_layers_tell_orders_apart_by_the_causal_mask_alone():
    swapped = TOKENS[jnp.array([1, 0, 2, 3, 4, 5, 6])]
    two = model(positions="none")
    assert not jnp.allclose(logits_of(two, TOKENS)[-1], logits_of(two, swapped)[-1], atol=1e-5)


def test_attention_weights_are_rows_over_the_past_for_every_layer_and_head():
    weights = nnx.jit(lambda model: model.attention_weights(TOKENS))(model())
    assert weights.shape == (2, 2, 7, 7)
    np.testing.assert_allclose(weights.sum(axis=-1), 1, rtol=1e-5)
    assert not jnp.triu(weights, 1).any()
    assert not jnp.allclose(weights[0], weights[1])


def test_gradient_reaches_every_parameter():
    gradients = nnx.jit(nnx.grad(lambda model: jnp.sum(model(TOKENS)[-1] ** 2)))(model())
    assert all(jnp.any(gradient != 0) for gradient in jax.tree.leaves(gradients))


def test_an_lstm_can_match_its_parameters():
    parameters = parameter_count(model(features=32, num_heads=4))

    def recurrent(width):
        return RecurrentLanguageModel(9, LSTMCell(16, width, rngs=nnx.Rngs(0)), rngs=nnx.Rngs(0))

    width = closest_width(recurrent, parameters, range(16, 128))
    assert abs(parameter_count(nnx.eval_shape(lambda: recurrent(width))) / parameters - 1) < 0.02


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"features": 7, "num_heads": 1}, "even; got 7"),
        ({"num_heads": 3}, "3 heads"),
        ({"num_layers": 0}, "got 0"),
        ({"positions": "learnt"}, "sinusoidal, rotary, none; got 'learnt'"),
        ({"features": 6, "positions": "rotary"}, "3 features cannot be turned"),
    ],
)
def test_sizes_that_make_no_model_are_named(sizes, words):
    with pytest.raises(ValueError, match=words):
        model(**sizes)(TOKENS)
