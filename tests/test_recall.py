"""Delayed and associative recall: what a batch holds, what counts as right, and that bad sizes are refused by name."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from drawn import model_like

from whyattention.language_model import RecurrentLanguageModel
from whyattention.recurrent import TanhCell
from whyattention.tasks.recall import PADDING, AssociativeRecall, DelayedRecall
from whyattention.training import fit_seeds


@pytest.fixture
def task():
    return DelayedRecall(lag=6, symbols=4, distractors=3, batch_size=1000)


def test_a_sequence_is_symbol_distractors_query(task):
    batch = np.asarray(task.sample(jax.random.key(0)))
    assert batch.shape == (1000, task.lag + 1)
    assert set(batch[:, 0]) == {1, 2, 3, 4}
    assert set(batch[:, 1:-1].ravel()) == {5, 6, 7}
    assert set(batch[:, -1]) == {task.query} == {8}
    assert task.vocabulary_size == task.query + 1


def test_lag_one_has_no_distractor():
    batch = DelayedRecall(lag=1, batch_size=5).sample(jax.random.key(0))
    assert batch.shape == (5, 2)


def test_distractors_say_nothing_about_the_symbol(task):
    batch = np.concatenate([task.sample(jax.random.key(seed)) for seed in range(20)])
    for symbol in range(1, 5):
        share = np.mean(batch[batch[:, 0] == symbol, 1:-1] == 5)
        assert abs(share - 1 / 3) < 0.02


def test_the_answer_is_read_at_the_query_and_padding_changes_nothing(task):
    model = model_like(lambda rngs: RecurrentLanguageModel(task.vocabulary_size, TanhCell(4, 8, rngs=rngs), rngs=rngs))
    batch = task.sample(jax.random.key(0))
    padded = jnp.pad(batch, ((0, 0), (0, 5)), constant_values=PADDING)
    loss_of = jax.jit(lambda batch: task.loss(model, batch))
    (loss, metrics), (padded_loss, padded_metrics) = loss_of(batch), loss_of(padded)
    np.testing.assert_allclose(loss, padded_loss, rtol=1e-6)
    assert metrics["accuracy"] == padded_metrics["accuracy"]


def test_a_model_that_remembers_is_right_and_one_that_guesses_is_right_by_chance(task):
    batch = task.sample(jax.random.key(0))

    def remembers(tokens):
        return 50.0 * jnp.tile(jax.nn.one_hot(tokens[0], task.vocabulary_size), (len(tokens), 1))

    def guesses(tokens):
        return 50.0 * jnp.tile(jax.nn.one_hot(1, task.vocabulary_size), (len(tokens), 1))

    loss, metrics = task.loss(remembers, batch)
    assert loss < 1e-6 and metrics["accuracy"] == 1
    assert abs(task.loss(guesses, batch)[1]["accuracy"] - task.chance) < 0.1


def test_a_tanh_cell_learns_a_short_lag():
    task = DelayedRecall(lag=3, symbols=4)
    _, history = fit_seeds(
        lambda rngs: RecurrentLanguageModel(
            task.vocabulary_size, TanhCell(8, 16, rngs=rngs), rngs=rngs
        ),
        task, seeds=2, steps=150, optimizer=optax.adam(1e-2), key=jax.random.key(0),
    )  # fmt: skip
    assert (history.metrics["accuracy"][:, -10:] == 1).all()


@pytest.mark.parametrize("sizes", [{"lag": 0}, {"symbols": 0}, {"distractors": 0}, {"batch_size": -1}])
def test_bad_sizes_are_named(sizes):
    with pytest.raises(ValueError, match="at least 1.*" + f"{next(iter(sizes))}={next(iter(sizes.values()))}"):
        DelayedRecall(**{"lag": 5, **sizes})


@pytest.fixture
def pairs_task():
    return AssociativeRecall(pairs=3, symbols=5, queries=2, batch_size=500)


def test_a_sequence_is_pairs_and_then_keys_whose_values_are_asked_for(pairs_task):
    tokens, answers = map(np.asarray, pairs_task.sample(jax.random.key(0)))
    assert tokens.shape == (500, 8) and answers.shape == (500, 2) and pairs_task.vocabulary_size == 11
    keys, values, asked = tokens[:, 0:6:2], tokens[:, 1:6:2], tokens[:, 6:]
    assert set(keys.ravel()) == set(range(1, 6)) and set(values.ravel()) == set(range(6, 11))
    for row in range(500):
        assert len(set(keys[row])) == len(set(values[row])) == 3 and len(set(asked[row])) == 2
        partner = dict(zip(keys[row], values[row], strict=True))
        assert [partner[key] for key in asked[row]] == list(answers[row])


def test_key_value_and_place_of_the_answer_are_independent(pairs_task):
    tokens, answers = map(np.asarray, pairs_task.sample(jax.random.key(1)))
    for query in (0, 1):
        place = np.argmax(tokens[:, 0:6:2] == tokens[:, 6 + query, None], axis=1)
        assert np.all(np.abs(np.bincount(place, minlength=3) / 500 - 1 / 3) < 0.08)
        assert abs(np.corrcoef(tokens[:, 6 + query], answers[:, query])[0, 1]) < 0.15


def test_one_who_looks_the_key_up_is_right_and_one_who_knows_the_values_is_right_by_chance(pairs_task):
    def looks_up(tokens):
        after = jnp.stack([tokens[1 + jnp.argmax(tokens[:6:2] == token) * 2] for token in tokens])
        return 50.0 * jax.nn.one_hot(after, pairs_task.vocabulary_size)

    def first_value(tokens):
        return 50.0 * jnp.tile(jax.nn.one_hot(tokens[1], pairs_task.vocabulary_size), (len(tokens), 1))

    batch = pairs_task.sample(jax.random.key(2))
    loss, metrics = pairs_task.loss(looks_up, batch)
    assert loss < 1e-6 and metrics["accuracy"] == 1
    assert abs(pairs_task.loss(first_value, batch)[1]["accuracy"] - pairs_task.chance) < 0.07


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"pairs": 0}, "at least 1.*pairs=0"),
        ({"queries": 0}, "at least 1.*queries=0"),
        ({"batch_size": 0}, "at least 1.*batch_size=0"),
        ({"pairs": 6}, "queries <= pairs <= symbols.*pairs=6"),
        ({"queries": 4}, "queries <= pairs <= symbols.*queries=4"),
    ],
)
def test_pairs_that_cannot_differ_are_named(sizes, words):
    with pytest.raises(ValueError, match=words):
        AssociativeRecall(**{"pairs": 3, "symbols": 5, **sizes})
