"""The gates that are shown are the gates that act."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from whyattention.measure.gates import gate_values, outputs_with_a_cut
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


def test_one_step_is_no_sequence():
    with pytest.raises(ValueError, match=r"one sequence of shape \[time, features\], got shape \(3,\)"):
        gate_values(LSTMCell(3, 4, rngs=nnx.Rngs(0)), jnp.zeros(3))


@pytest.mark.parametrize("cut", ["input gate", "h"])
def test_a_cut_that_never_begins_changes_nothing(cut):
    cell, xs = LSTMCell(3, 4, rngs=nnx.Rngs(0)), jax.random.normal(jax.random.key(0), (6, 3))
    np.testing.assert_allclose(outputs_with_a_cut(cell, xs, cut, 3, 3), unroll(cell, xs)[1], atol=1e-6)


def test_without_the_input_gate_the_forget_gate_alone_decides():
    cell, xs = LSTMCell(3, 4, rngs=nnx.Rngs(0), forget_bias=jnp.inf), jax.random.normal(jax.random.key(0), (6, 3))
    (_, first), _ = cell(cell.initial_state(), xs[0])
    outputs = outputs_with_a_cut(cell, xs, "input gate", 1, 6)
    assert jnp.all(jnp.abs(outputs) <= jnp.abs(jnp.tanh(first)) + 1e-6)
    np.testing.assert_array_equal(outputs_with_a_cut(cell, xs, "input gate", 0, 4)[:4], 0)


def test_without_h_every_step_sees_its_input_alone():
    cell, xs = LSTMCell(3, 4, rngs=nnx.Rngs(0)), jax.random.normal(jax.random.key(0), (6, 3))
    outputs = outputs_with_a_cut(cell, xs, "h", 1, 6)
    cell.recurrent_kernel[...] = 0 * cell.recurrent_kernel[...]
    np.testing.assert_allclose(outputs, unroll(cell, xs)[1], atol=1e-6)


def test_another_cut_is_named():
    with pytest.raises(ValueError, match="got 'o'"):
        outputs_with_a_cut(LSTMCell(3, 4, rngs=nnx.Rngs(0)), jnp.zeros((6, 3)), "o", 1, 6)
