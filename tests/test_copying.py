"""Copying: what is asked for, and how many bits a model is credited with."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from whyattention.tasks.copying import PADDING, Copying

TASK = Copying(longest=5, symbols=4, batch_size=400)


def perfect(tokens):
    """Names every symbol for certain."""
    length = jnp.sum(tokens == TASK.query)
    wanted = tokens[(jnp.arange(10) - length) % 10]
    return 100.0 * jax.nn.one_hot(wanted, TASK.vocabulary_size)


def guess(tokens):
    """Knows that the answer is a symbol and no more."""
    return jnp.zeros((10, TASK.vocabulary_size)).at[:, [PADDING, TASK.query]].set(-100.0)


def test_a_sequence_is_symbols_queries_padding():
    batch = np.asarray(TASK.sample(jax.random.key(0)))
    lengths = (batch == TASK.query).sum(1)
    assert set(lengths) == {1, 2, 3, 4, 5}
    for tokens, n in zip(batch, lengths, strict=True):
        assert np.all((tokens[:n] >= 1) & (tokens[:n] <= 4))
        assert np.all(tokens[n : 2 * n] == TASK.query) and np.all(tokens[2 * n :] == PADDING)
    assert set(batch[:, 0]) == {1, 2, 3, 4}


def test_a_batch_of_one_length():
    batch = jax.jit(TASK.sample_of_length)(jax.random.key(0), 3)
    np.testing.assert_array_equal((batch == TASK.query).sum(1), 3)


def test_a_perfect_model_gets_every_bit_back():
    batch = TASK.sample(jax.random.key(1))
    loss, metrics = TASK.loss(perfect, batch)
    assert loss < 1e-6 and metrics["accuracy"] == 1
    np.testing.assert_allclose(TASK.bits_recovered(perfect, batch), 2 * (batch == TASK.query).sum(1), rtol=1e-5)


def test_guessing_gets_none_back():
    batch = TASK.sample(jax.random.key(1))
    loss, metrics = TASK.loss(guess, batch)
    np.testing.assert_allclose(loss, np.log(4), rtol=1e-5)
    np.testing.assert_allclose(metrics["accuracy"], TASK.chance, atol=0.06)
    np.testing.assert_allclose(TASK.bits_recovered(guess, batch), 0, atol=1e-4)


def test_being_sure_of_a_wrong_symbol_costs_bits():
    batch = TASK.sample_of_length(jax.random.key(1), 1)
    assert jnp.all(TASK.bits_recovered(lambda tokens: -perfect(tokens), batch) < -10)


def test_sizes_that_make_no_task_are_named():
    with pytest.raises(ValueError, match="longest=0"):
        Copying(0)


@pytest.mark.parametrize("length", [0, 6])
def test_a_length_that_does_not_fit_is_named(length):
    with pytest.raises(ValueError, match=f"from 1 to 5, got {length}"):
        TASK.sample_of_length(jax.random.key(0), length)
