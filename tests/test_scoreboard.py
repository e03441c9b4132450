"""The models of chapter 12 are of one size, give one answer however they are run, and are counted as they run."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from drawn import model_like
from flax import nnx

from whyattention.measure import scoreboard as board
from whyattention.recurrent import unroll
from whyattention.tasks.recall import AssociativeRecall
from whyattention.tasks.text import NextCharacter
from whyattention.training import parameter_count

VOCABULARY, FEATURES = 12, 16
MAKERS = board.contestants(VOCABULARY, FEATURES)
SHAPES = {name: nnx.eval_shape(lambda make=make: make(nnx.Rngs(0))) for name, make in MAKERS.items()}


def test_all_have_about_as_many_parameters():
    counts = [parameter_count(model) for model in SHAPES.values()]
    assert list(SHAPES) == [*board.CELLS, "Transformer"]
    assert max(counts) / min(counts) < 1.05


@pytest.mark.parametrize("name", ["minGRU", "diagonal"])
def test_a_linear_cell_is_run_in_parallel_with_the_same_result(name):
    model = model_like(MAKERS[name], scale=0.3)
    tokens = jnp.arange(5) % VOCABULARY
    assert isinstance(model, board.ParallelLanguageModel)
    step_by_step = model.readout(unroll(model.cell, model.embedding(tokens))[1])
    np.testing.assert_allclose(model(tokens), step_by_step, rtol=1e-4, atol=1e-5)
    assert jnp.all(jnp.isfinite(model(tokens)))


def test_a_chain_grows_with_the_text_where_steps_wait_and_hardly_elsewhere():
    growth = {}
    for name in ("LSTM, bias 1", "minGRU", "Transformer"):
        short, long = (board.training_cost(SHAPES[name], tokens) for tokens in (16, 64))
        growth[name] = long.span / short.span
        assert long.work > 3.5 * short.work
        assert board.reading_cost(SHAPES[name], 64).work < long.work / 2
    assert growth["LSTM, bias 1"] > 3 and growth["minGRU"] < 1.6 and growth["Transformer"] < 1.3


def test_what_is_kept_to_go_on_is_the_state_or_all_keys_and_values():
    lstm = SHAPES["LSTM, bias 1"]
    assert [board.decode_bytes(lstm, tokens) for tokens in (1, 100)] == [2 * 4 * lstm.cell.hidden_size] * 2
    assert [board.decode_bytes(SHAPES["Transformer"], tokens) for tokens in (1, 100)] == [
        2 * 2 * 4 * FEATURES * tokens for tokens in (1, 100)
    ]


def test_one_more_token_costs_more_after_many_only_where_it_looks_at_them():
    for name, model in SHAPES.items():
        few, many = (board.decode_cost(model, tokens).work for tokens in (2, 200))
        assert (many > 1.5 * few) == (name == "Transformer")


def test_accuracy_is_that_of_the_last_batches_and_training_ends_when_nothing_is_wrong():
    task = AssociativeRecall(1, 2, batch_size=8)  # one pair: its value is the second token
    found = board.accuracy_after(MAKERS["tanh"], task, seeds=2, updates=300, key=jax.random.key(0), chunk=100)
    assert found.shape == (2,) and np.all(found == 1)


def test_bits_are_those_of_pieces_as_long_as_in_training():
    text = jnp.arange(200) % 2 + 1  # after one token it is known what follows
    task = NextCharacter(text, length=4, batch_size=4)
    found = board.bits_after(MAKERS["tanh"], task, text, seeds=2, updates=60, key=jax.random.key(0), learning_rate=0.02)
    assert found.shape == (2,) and np.all(found < 0.3)


@pytest.mark.parametrize(
    ("values", "better", "expected"),
    [
        ([3, 1, 2, 3], 1, [1, 0, 0.5, 1]),
        ([3, 1, 2, 3], -1, [0, 1, 0.5, 0]),
        ([3, 1, 2, 3], 0, [0, 0, 0, 0]),
        ([5, 5], 1, [0, 0]),
    ],
)
def test_a_rank_is_the_place_among_different_values(values, better, expected):
    np.testing.assert_array_equal(board.ranks(values, better), expected)
