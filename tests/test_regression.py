"""A recurrent regressor reads everything and answers once."""

import jax
import jax.numpy as jnp
from drawn import model_like
from flax import nnx

from whyattention.recurrent import LSTMCell
from whyattention.regression import RecurrentRegressor


def test_one_answer_that_every_input_and_parameter_moves():
    model = model_like(lambda rngs: RecurrentRegressor(LSTMCell(2, 4, rngs=rngs), rngs=rngs))

    def answer(model, xs):
        answers = model(xs)
        assert answers.shape == (1,)
        return answers[0]

    to_model, to_xs = nnx.jit(nnx.grad(answer, argnums=(0, 1)))(model, jnp.ones((5, 2)))
    assert jnp.all(to_xs != 0)
    assert all(jnp.any(gradient != 0) for gradient in jax.tree.leaves(to_model))
