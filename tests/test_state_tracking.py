"""Permutation words: answers that a loop over moves gives, and a loss that a perfect model brings to zero."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from whyattention.tasks.state_tracking import PermutationWords, parities, product_table


@pytest.mark.parametrize("objects", [2, 3, 5])
def test_the_table_is_that_of_a_group(objects):
    table = product_table(objects)
    count = len(table)
    np.testing.assert_array_equal(table[0], np.arange(count))
    np.testing.assert_array_equal(table[:, 0], np.arange(count))
    for lines in (table, table.T):
        np.testing.assert_array_equal(np.sort(lines, axis=1), np.tile(np.arange(count), (count, 1)))
    np.testing.assert_array_equal(table[table[:, 1]], table[:, table[1]])  # (i 1) j = i (1 j)
    assert np.array_equal(table, table.T) == (objects == 2)


@pytest.mark.parametrize("objects", [2, 3, 5])
def test_parities_add_up(objects):
    parity = parities(objects)
    assert parity[0] == 0 and 2 * parity.sum() == len(parity)
    np.testing.assert_array_equal(parity[product_table(objects)], (parity[:, None] + parity) % 2)


@pytest.mark.parametrize("objects", [2, 3])
def test_answers_are_those_of_a_loop(objects):
    moves, answers = PermutationWords(objects, length=7, batch_size=4).sample(jax.random.key(0))
    assert moves.shape == answers.shape == (4, 7)
    table = product_table(objects)
    for word, answer in zip(np.asarray(moves), np.asarray(answers), strict=True):
        state = 0
        for move, right in zip(word, answer, strict=True):
            state = table[state, move]
            assert state == right


def test_two_objects_are_parity():
    moves, answers = PermutationWords(2, length=9).sample(jax.random.key(1))
    np.testing.assert_array_equal(answers, np.cumsum(moves, axis=1) % 2)


def test_the_loss_is_zero_for_who_knows_and_chance_for_who_guesses():
    task = PermutationWords(3, length=6, batch_size=64)
    batch = task.sample(jax.random.key(2))
    table = jnp.asarray(product_table(3))

    def knows(tokens):
        return 50.0 * jax.nn.one_hot(jax.lax.associative_scan(lambda a, b: table[a, b], tokens), 6)

    loss, metrics = task.loss(knows, batch)
    assert loss < 1e-6 and metrics["accuracy"] == metrics["last"] == 1
    loss, metrics = task.loss(lambda tokens: jnp.zeros((len(tokens), 6)), batch)
    np.testing.assert_allclose(loss, np.log(6), rtol=1e-6)
    assert abs(metrics["accuracy"] - task.chance) < 0.1


@pytest.mark.parametrize("sizes", [{"objects": 1}, {"objects": 6}, {"length": 0}, {"batch_size": 0}])
def test_sizes_that_are_none_are_named(sizes):
    with pytest.raises(ValueError, match="objects must be from 2 to 5"):
        PermutationWords(**{"objects": 3, "length": 4} | sizes)
