"""Translators: padding changes nothing, the future changes nothing, one step at a time is all at once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from drawn import model_like, normal
from flax import nnx

from whyattention.recurrent import unroll
from whyattention.seq2seq import Encoder, Seq2Seq, matched_translators, reverse_within
from whyattention.tasks.translation import RandomTokens, shift_right
from whyattention.tasks.vocabulary import BEGIN
from whyattention.training import parameter_count

# Sources of 4, 1 (the empty sentence), 6 and no real tokens; targets of 5, 1, 3 and none.
SOURCES = jnp.array([[5, 4, 6, 2, 0, 0], [2, 0, 0, 0, 0, 0], [4, 4, 7, 8, 5, 2], [0] * 6])
TARGETS = jnp.array([[4, 5, 6, 7, 2], [2, 0, 0, 0, 0], [9, 8, 2, 0, 0], [0] * 5])


def translator(attention, direction="bidirectional"):
    sizes = {"embed_features": 5, "attention": attention, "direction": direction}
    return model_like(lambda rngs: Seq2Seq(9, 10, 6, **sizes, rngs=rngs))


@pytest.fixture(scope="module", params=[False, True], ids=["fixed vector", "attention"])
def model(request):
    return translator(request.param)


@pytest.fixture(scope="module")
def run(model):
    return jax.jit(jax.vmap(model))


@pytest.fixture(scope="module")
def logits(run):
    return run(SOURCES, shift_right(TARGETS))


@pytest.fixture(scope="module")
def attending():
    return translator(True)


@pytest.fixture(scope="module")
def gradients(model):
    """Of every row of the batch by itself."""
    graphdef, params = nnx.split(model)

    def loss(params, source, target):
        return jnp.sum(nnx.merge(graphdef, params)(source, shift_right(target)) ** 2)

    return jax.device_get(jax.jit(jax.vmap(jax.grad(loss), in_axes=(None, 0, 0)))(params, SOURCES, TARGETS))


def test_padding_and_company_change_no_logit(model, run, logits):
    wider = (jnp.pad(side, ((0, 0), (0, 4))) for side in (SOURCES, shift_right(TARGETS)))
    np.testing.assert_allclose(run(*wider)[:, :5], logits, atol=1e-5)
    batch_of_one = run(SOURCES[2:3], shift_right(TARGETS[2:3]))
    np.testing.assert_allclose(batch_of_one[0], logits[2], atol=1e-5)
    alone = jax.jit(model.__call__)(SOURCES[0, :4], shift_right(TARGETS[0]))  # one sentence, no padding
    np.testing.assert_allclose(alone, logits[0], atol=1e-5)


def test_nothing_to_read_gives_finite_logits_and_gradients(logits, gradients):
    assert jnp.all(jnp.isfinite(logits))
    assert all(np.all(np.isfinite(gradient)) for gradient in jax.tree.leaves(gradients))


def test_gradient_reaches_every_parameter(gradients):
    for path, gradient in jax.tree.leaves_with_path(gradients):
        assert np.any(gradient[0] != 0), path


def test_one_step_at_a_time_is_all_at_once(model, logits):
    @jax.jit
    def first_two(source):
        memory = model.encode(source)
        state, first = model.step(memory, model.start(memory), jnp.int32(BEGIN))
        return first, model.step(memory, state, TARGETS[0, 0])[1]

    np.testing.assert_allclose(first_two(SOURCES[0]), logits[0, :2], atol=1e-5)


def test_a_future_target_token_changes_nothing_before_it(run, logits):
    changed = run(SOURCES, shift_right(TARGETS).at[0, 3].set(8))[0]
    np.testing.assert_allclose(changed[:3], logits[0, :3], atol=1e-6)
    assert jnp.all(jnp.any(jnp.abs(changed[3:] - logits[0, 3:]) > 1e-6, axis=1))


def test_every_source_token_changes_the_first_word(run, logits):
    changed = jnp.tile(SOURCES[:1], (4, 1)).at[jnp.arange(3), jnp.arange(3)].set(8)
    first = run(changed, jnp.tile(shift_right(TARGETS[:1]), (4, 1)))[:, 0]
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


def test_attention_is_a_distribution_over_the_real_source(attending):
    attention = jax.jit(jax.vmap(attending.attention))(SOURCES, shift_right(TARGETS))
    assert attention.shape == (4, 5, 6)
    np.testing.assert_allclose(attention[:3].sum(-1), 1, atol=1e-6)
    np.testing.assert_array_equal(np.asarray(attention)[:3][np.asarray(SOURCES)[:3, None].repeat(5, axis=1) == 0], 0)
    np.testing.assert_array_equal(attention[3], 0)


def test_attention_makes_the_context_of_the_same_step(attending):
    """c_i is the mean of the annotations under the weights that s_{i-1} gives, and goes into s_i (A.1.2, A.2.2)."""

    @jax.jit
    def one_step(source, token):
        memory = attending.encode(source)
        before = attending.start(memory)
        state, _ = attending.step(memory, before, token)
        weights = attending.scorer.weights(before, memory.keys, memory.mask)
        gates = attending.cell.project(attending.target_embedding(token))
        gates += attending.context_gates(weights @ memory.annotations)
        expected, _ = attending.cell.step(before, gates)
        return state, expected, attending.attention(source, token[None])[0], weights

    state, expected, attention, weights = one_step(SOURCES[0], jnp.int32(BEGIN))
    np.testing.assert_allclose(state, expected, atol=1e-6)
    np.testing.assert_allclose(attention, weights, atol=1e-6)


def test_a_fixed_vector_is_the_same_context_at_every_step():
    model = translator(False)
    memory = jax.jit(model.encode)(SOURCES[0])
    np.testing.assert_array_equal(memory.annotations, memory.summary[None])
    np.testing.assert_array_equal(model.weights(memory, jnp.ones(6)), [1])
    with pytest.raises(ValueError, match="fixed context vector"):
        model.attention(SOURCES[0], TARGETS[0])


@pytest.fixture(scope="module")
def both_ways():
    return model_like(lambda rngs: Encoder(3, 4, "bidirectional", rngs=rngs))


def test_the_last_state_is_read_at_the_last_real_token_and_backward_begins_there(both_ways):
    xs = normal(5, 3)
    annotations, summary = jax.jit(both_ways)(jnp.concatenate([xs, jnp.full((2, 3), jnp.nan)]), 5)
    forward, states = unroll(both_ways.forward, xs)
    backward, backward_states = unroll(both_ways.backward, xs[::-1])
    np.testing.assert_allclose(summary, jnp.concatenate([forward, backward]), atol=1e-6)
    np.testing.assert_allclose(annotations[:5], jnp.hstack([states, backward_states[::-1]]), atol=1e-6)
    np.testing.assert_array_equal(annotations[5:], 0)


@pytest.mark.parametrize(("direction", "way", "half"), [("forward", "forward", 0), ("reversed", "backward", 1)])
def test_an_encoder_of_one_direction_is_half_of_one_of_both(both_ways, direction, way, half):
    """So a reversed source (Sutskever et al. 2014) is read from its last real token, and its padding stays behind."""
    encoder, xs = model_like(lambda rngs: Encoder(3, 4, direction, rngs=rngs)), normal(7, 3)
    setattr(encoder, way, getattr(both_ways, way))
    halves = (jnp.split(part, 2, axis=-1)[half] for part in jax.jit(both_ways)(xs, 5))
    for ours, theirs in zip(jax.jit(encoder)(xs, 5), halves, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_reversing_leaves_the_padding_where_it_is():
    rows = jnp.array([[1], [2], [3], [0], [0]])
    for length, expected in {0: [1, 2, 3, 0, 0], 1: [1, 2, 3, 0, 0], 3: [3, 2, 1, 0, 0], 5: [0, 0, 3, 2, 1]}.items():
        assert reverse_within(rows, length)[:, 0].tolist() == expected


@pytest.mark.parametrize(
    ("sizes", "direction"),
    [((300, 400, 128), "bidirectional"), ((40, 40, 32), "reversed"), ((4000, 4000, 256), "bidirectional")],
)
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
        translator(True)(source, target_in)


@pytest.mark.parametrize("token", [-1, 10])
def test_a_word_that_the_vocabulary_lacks_is_named_at_its_step(attending, token):
    memory = attending.encode(SOURCES[0])
    with pytest.raises(ValueError, match=f"token must hold tokens from 0 to 9, got {token}"):
        attending.step(memory, attending.start(memory), jnp.int32(token))


@pytest.mark.parametrize("sizes", [{"source_vocabulary": 0}, {"hidden_size": 0}, {"embed_features": 0}])
def test_sizes_that_make_no_translator_are_named(sizes):
    ((name, size),) = sizes.items()
    arguments = {"source_vocabulary": 9, "target_vocabulary": 10, "hidden_size": 6, "embed_features": 5, **sizes}
    with pytest.raises(ValueError, match=f"sizes must be at least 1.*{name}={size}"):
        Seq2Seq(**arguments, attention=False, rngs=nnx.Rngs(0))
    with pytest.raises(ValueError, match=f"sizes must be at least 1.*{name}={size}"):
        matched_translators(**arguments)


def test_a_direction_that_is_none_is_named():
    with pytest.raises(ValueError, match="forward, reversed, bidirectional; got 'sideways'"):
        translator(True, "sideways")
