"""Translators: padding changes nothing, the future changes nothing, one step at a time is all at once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from whyattention.recurrent import unroll
from whyattention.seq2seq import Encoder, Seq2Seq, matched_translators, reverse_within
from whyattention.tasks.translation import RandomTokens, shift_right
from whyattention.training import parameter_count

# Sources of 4, 1 (the empty sentence), 6 and no real tokens; targets of 5, 1, 3 and none.
SOURCES = jnp.array([[5, 4, 6, 2, 0, 0], [2, 0, 0, 0, 0, 0], [4, 4, 7, 8, 5, 2], [0] * 6])
TARGETS = jnp.array([[4, 5, 6, 7, 2], [2, 0, 0, 0, 0], [9, 8, 2, 0, 0], [0] * 5])


def translator(attention=True, direction="bidirectional"):
    return Seq2Seq(9, 10, 6, embed_features=5, attention=attention, direction=direction, rngs=nnx.Rngs(0))


@pytest.fixture(scope="module", params=[False, True], ids=["fixed vector", "attention"])
def model(request):
    return translator(request.param)


@pytest.fixture(scope="module")
def logits(model):
    return jax.jit(jax.vmap(model))(SOURCES, shift_right(TARGETS))


@pytest.fixture(scope="module")
def gradients(model):
    """Of every row of the batch by itself."""
    graphdef, params = nnx.split(model)

    def loss(params, source, target):
        return jnp.sum(nnx.merge(graphdef, params)(source, shift_right(target)) ** 2)

    return jax.jit(jax.vmap(jax.grad(loss), in_axes=(None, 0, 0)))(params, SOURCES, TARGETS)


def test_padding_and_company_change_no_logit(model, logits):
    wider = (jnp.pad(side, ((0, 0), (0, 4))) for side in (SOURCES, shift_right(TARGETS)))
    np.testing.assert_allclose(jax.jit(jax.vmap(model))(*wider)[:, :5], logits, atol=1e-5)
    batch_of_one = jax.jit(jax.vmap(model))(SOURCES[2:3], shift_right(TARGETS[2:3]))
    np.testing.assert_allclose(batch_of_one[0], logits[2], atol=1e-5)
    alone = jax.jit(model.__call__)(SOURCES[0, :4], shift_right(TARGETS[0]))  # one sentence, no padding
    np.testing.assert_allclose(alone, logits[0], atol=1e-5)


def test_nothing_to_read_gives_finite_logits_and_gradients(logits, gradients):
    assert jnp.all(jnp.isfinite(logits))
    assert all(jnp.all(jnp.isfinite(gradient)) for gradient in jax.tree.leaves(gradients))


def test_gradient_reaches_every_parameter(gradients):
    for path, gradient in jax.tree.leaves_with_path(gradients):
        assert jnp.any(gradient[0] != 0), path


def test_one_step_at_a_time_is_all_at_once(model, logits):
    memory = model.encode(SOURCES[0])
    state, step = model.start(memory), jax.jit(model.step)
    for position, token in enumerate(shift_right(TARGETS[0])):
        state, at_once = step(memory, state, token)
        np.testing.assert_allclose(at_once, logits[0, position], atol=1e-5)


def test_a_future_target_token_changes_nothing_before_it(model, logits):
    changed = jax.jit(jax.vmap(model))(SOURCES, shift_right(TARGETS).at[0, 3].set(8))[0]
    np.testing.assert_allclose(changed[:3], logits[0, :3], atol=1e-6)
    assert jnp.all(jnp.any(jnp.abs(changed[3:] - logits[0, 3:]) > 1e-6, axis=1))


def test_every_source_token_changes_the_first_word(model, logits):
    changed = jnp.tile(SOURCES[:1], (4, 1)).at[jnp.arange(3), jnp.arange(3)].set(8)
    first = jax.jit(jax.vmap(model))(changed, jnp.tile(shift_right(TARGETS[:1]), (4, 1)))[:, 0]
    np.testing.assert_array_equal(jnp.any(jnp.abs(first - logits[0, 0]) > 1e-6, axis=1), [True, True, True, False])


def test_the_loss_asks_for_each_word_given_those_before_it():
    """The decoder's input is the target shifted by one: a model that repeats its input is always one word late."""

    def repeats(source, target_in):
        return 100.0 * jax.nn.one_hot(target_in, 12)

    def foresees(source, target_in):  # what it reads at t + 1 is what is wanted at t; END alone it cannot see
        return 100.0 * jax.nn.one_hot(jnp.append(target_in[1:], 2), 12)

    task, batch = RandomTokens(8, 5), (SOURCES[:1], TARGETS[:1])
    assert task.loss(repeats, batch)[1]["token_accuracy"] == 0
    assert task.loss(foresees, batch)[1]["token_accuracy"] == 1


def test_attention_is_a_distribution_over_the_real_source():
    attention = jax.jit(jax.vmap(translator().attention))(SOURCES, shift_right(TARGETS))
    assert attention.shape == (4, 5, 6)
    np.testing.assert_allclose(attention[:3].sum(-1), 1, atol=1e-6)
    np.testing.assert_array_equal(jnp.where((SOURCES == 0)[:, None], attention, 0), 0)
    np.testing.assert_array_equal(attention[3], 0)


def test_attention_makes_the_context_of_the_same_step():
    """c_i is the mean of the annotations under the weights that s_{i-1} gives, and goes into s_i (A.1.2, A.2.2)."""
    model = translator()
    memory = model.encode(SOURCES[0])
    state = model.start(memory)
    for token, weights in zip(
        shift_right(TARGETS[0]), model.attention(SOURCES[0], shift_right(TARGETS[0])), strict=True
    ):
        np.testing.assert_allclose(weights, model.scorer.weights(state, memory.keys, memory.mask), atol=1e-6)
        context = weights @ memory.annotations
        gates = model.cell.project(model.target_embedding(token)) + model.context_gates(context)
        expected, _ = model.cell.step(state, gates)
        state, _ = model.step(memory, state, token)
        np.testing.assert_allclose(state, expected, atol=1e-6)


def test_a_fixed_vector_is_the_same_context_at_every_step():
    model = translator(attention=False)
    memory = model.encode(SOURCES[0])
    np.testing.assert_array_equal(memory.annotations, memory.summary[None])
    np.testing.assert_array_equal(model.weights(memory, jnp.ones(6)), [1])
    with pytest.raises(ValueError, match="fixed context vector"):
        model.attention(SOURCES[0], TARGETS[0])


def test_the_last_state_is_read_at_the_last_real_token_and_backward_begins_there():
    encoder = Encoder(3, 4, "bidirectional", rngs=nnx.Rngs(0))
    xs = jax.random.normal(jax.random.key(0), (5, 3))
    annotations, summary = encoder(jnp.concatenate([xs, jnp.full((2, 3), jnp.nan)]), 5)
    forward, states = unroll(encoder.forward, xs)
    backward, backward_states = unroll(encoder.backward, xs[::-1])
    np.testing.assert_allclose(summary, jnp.concatenate([forward, backward]), atol=1e-6)
    np.testing.assert_allclose(annotations[:5], jnp.hstack([states, backward_states[::-1]]), atol=1e-6)
    np.testing.assert_array_equal(annotations[5:], 0)


def test_a_reversed_source_is_the_forward_encoder_s_on_the_sentence_turned_round():
    turned, ahead = Encoder(3, 4, "reversed", rngs=nnx.Rngs(0)), Encoder(3, 4, "forward", rngs=nnx.Rngs(0))
    xs = jax.random.normal(jax.random.key(0), (5, 3))
    padded, round_about = (jnp.pad(side, ((0, 2), (0, 0))) for side in (xs, xs[::-1]))
    annotations, summary = turned(padded, 5)
    expected, expected_summary = ahead(round_about, 5)
    np.testing.assert_allclose(summary, expected_summary, atol=1e-6)
    np.testing.assert_allclose(annotations[:5], expected[:5][::-1], atol=1e-6)


def test_reversing_leaves_the_padding_where_it_is():
    rows = jnp.array([[1], [2], [3], [0], [0]])
    for length, expected in {0: [1, 2, 3, 0, 0], 1: [1, 2, 3, 0, 0], 3: [3, 2, 1, 0, 0], 5: [0, 0, 3, 2, 1]}.items():
        assert reverse_within(rows, length)[:, 0].tolist() == expected


@pytest.mark.parametrize("sizes", [(300, 400, 128), (40, 40, 32), (4000, 4000, 256)])
@pytest.mark.parametrize("direction", ["bidirectional", "reversed"])
def test_the_two_translators_have_as_good_as_the_same_parameters(sizes, direction):
    makers = matched_translators(*sizes, direction=direction)
    assert list(makers) == ["fixed vector", "attention"]
    fixed, attention = (
        parameter_count(nnx.eval_shape(lambda make=make: make(nnx.Rngs(0)))) for make in makers.values()
    )
    assert abs(fixed / attention - 1) < 0.02


@pytest.mark.parametrize(
    ("source", "target_in", "words"),
    [
        (SOURCES, TARGETS[0], r"source must be one sentence.*got shape \(4, 6\).*jax.vmap"),
        (SOURCES[0], TARGETS, r"target_in must be one sentence.*got shape \(4, 5\).*jax.vmap"),
        (SOURCES[0, :0], TARGETS[0], r"source.*got shape \(0,\)"),
        (SOURCES[0].at[1].set(9), TARGETS[0], r"source must hold tokens from 0 to 8, got \[5 9 6"),
        (SOURCES[0], TARGETS[0].at[1].set(-1), r"target_in must hold tokens from 0 to 9, got \[ 4 -1"),
    ],
)
def test_sentences_that_fit_no_model_are_named(source, target_in, words):
    with pytest.raises(ValueError, match=words):
        translator()(source, target_in)


def test_a_direction_that_is_none_is_named():
    with pytest.raises(ValueError, match="forward, reversed, bidirectional; got 'sideways'"):
        translator(direction="sideways")
