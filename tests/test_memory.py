"""Bytes of a compiled program."""

import jax
import jax.numpy as jnp
import pytest

from whyattention.measure.memory import peak_memory

SIDE = 256
MATRIX = jax.ShapeDtypeStruct((SIDE, SIDE), jnp.float32)
BYTES = SIDE * SIDE * 4


def test_an_output_is_counted_and_an_argument_is_not():
    assert peak_memory(lambda x: x + 1, MATRIX) == BYTES
    assert peak_memory(lambda x: (x + 1, x * 2), MATRIX) >= 2 * BYTES


def test_a_temporary_is_counted():
    # The sum needs the sorted matrix, which is nobody's output.
    assert BYTES <= peak_memory(lambda x: jnp.sum(jnp.sort(x, axis=0) * x), MATRIX) < 3 * BYTES


@pytest.mark.parametrize("length", [32, 64])
def test_the_backward_pass_of_a_recurrence_keeps_every_state(length):
    def loss(weights, state, xs):
        def step(state, x):
            state = jnp.tanh(state @ weights + x)
            return state, None

        return jnp.sum(jax.lax.scan(step, state, xs)[0])

    batch, width = 8, 64
    shapes = [(width, width), (batch, width), (length, batch, width)]
    args = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    states = length * batch * width * 4
    assert peak_memory(loss, *args) < states
    assert peak_memory(jax.grad(loss), *args) >= states


def test_concrete_arrays_do_as_well_as_shapes():
    assert peak_memory(jnp.tanh, jnp.ones((SIDE, SIDE))) == BYTES


def test_a_backend_that_tells_nothing_is_an_error(monkeypatch):
    monkeypatch.setattr(jax.stages.Compiled, "memory_analysis", lambda self: None)
    with pytest.raises(RuntimeError, match="'cpu' devices reports no memory analysis"):
        peak_memory(jnp.tanh, MATRIX)
