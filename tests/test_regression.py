"""A recurrent regressor reads everything and answers once."""

import jax
import jax.numpy as jnp
from flax import nnx

from whyattention.recurrent import LSTMCell
from whyattention.regression import RecurrentRegressor


def test_one_answer_that_every_input_and_parameter_moves():
    model, xs = RecurrentRegressor(LSTMCell(2, 4, rngs=nnx.Rngs(0)), rngs=nnx.Rngs(1)), jnp.ones((5, 2))
    assert model(xs).shape == (1,)
    assert jnp.all(jax.grad(lambda xs: model(xs)[0])(xs) != 0)
    gradients = jax.tree.leaves(nnx.grad(lambda model: model(xs)[0])(model))
    assert all(jnp.any(gradient != 0) for gradient in gradients)
