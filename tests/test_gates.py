"""The gates that are shown are the gates that act."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from whyattention.measure.gates import gate_values
from whyattention.recurrent import LSTMCell, unroll


def test_gates_explain_the_memory_and_the_output():
    cell, xs = LSTMCell(3, 4, rngs=nnx.Rngs(0), forget_bias=2.0), jax.random.normal(jax.random.key(0), (6, 3))
    gates = gate_values(cell, xs)
    (_, memory), outputs = unroll(cell, xs)
    assert {values.shape for values in gates.values()} == {(6, 4)}
    np.testing.assert_allclose(gates["memory"][-1], memory, atol=1e-6)
    np.testing.assert_allclose(gates["output"] * jnp.tanh(gates["memory"]), outputs, atol=1e-6)
    written = gates["memory"][1:] - gates["forget"][1:] * gates["memory"][:-1]
    assert jnp.all(jnp.abs(written) <= gates["input"][1:])


def test_the_forget_bias_opens_the_forget_gate_alone():
    xs = jnp.zeros((1, 3))
    gates = gate_values(LSTMCell(3, 4, rngs=nnx.Rngs(0), forget_bias=3.0), xs)
    np.testing.assert_allclose(gates["forget"], jax.nn.sigmoid(3.0), rtol=1e-6)
    np.testing.assert_allclose([gates["input"], gates["output"]], 0.5)
