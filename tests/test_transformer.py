"""The Transformer: equal to Flax's sublayers; word by word as all at once; blind to padding and to the future."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from drawn import model_like, normal
from flax import nnx
from scipy.special import log_softmax

from whyattention.attention import causal_mask
from whyattention.decoding import beam_search, greedy_decode
from whyattention.measure import length_curve as curve
from whyattention.seq2seq import Seq2Seq
from whyattention.tasks.translation import shift_right
from whyattention.tasks.vocabulary import BEGIN, END
from whyattention.training import parameter_count
from whyattention.transformer import (
    Attention,
    EncoderLayer,
    Transformer,
    TransformerLM,
    inverse_square_root_schedule,
    matched_transformer,
)

# Sources of 4, 1 (the empty sentence), 6 and no real tokens; targets of 5, 1, 3 and none.
# In NumPy's arrays: JAX would compile a program for every small change that is made to them.
SOURCES = np.array([[5, 4, 6, 2, 0, 0], [2, 0, 0, 0, 0, 0], [4, 4, 7, 8, 5, 2], [0] * 6], dtype=np.int32)
TARGETS = np.array([[4, 5, 6, 7, 2], [2, 0, 0, 0, 0], [9, 8, 2, 0, 0], [0] * 5], dtype=np.int32)
TOKENS = np.array([1, 2, 3, 4, 5, 6, 7], dtype=np.int32)
WIDER = np.pad(SOURCES, ((0, 0), (0, 4)))


def told(target):
    """What the decoder reads, as `shift_right` gives it."""
    return np.concatenate([np.full_like(target[..., :1], BEGIN), target[..., :-1]], axis=-1)


def changed(array, *place, to):
    array = array.copy()
    array[place] = to
    return array


READ = told(TARGETS)


def translator(source_vocabulary=9, target_vocabulary=10, features=8, *, seed=0, **options):
    options = {"num_heads": 2, "num_layers": 2, "width": 12, "cache_length": 8} | options
    sizes = source_vocabulary, target_vocabulary, features
    return model_like(lambda rngs: Transformer(*sizes, **options, rngs=rngs), seed=seed)


def language_model(**options):
    options = {"features": 8, "num_heads": 2, "num_layers": 2} | options
    return model_like(lambda rngs: TransformerLM(9, **options, rngs=rngs))


KINDS = {
    "pre-norm, sinusoidal": {"num_layers": 1, "seed": 200},
    "post-norm, rotary": {"num_layers": 1, "seed": 300, "norm": "post", "positions": "rotary"},
}


@pytest.fixture(scope="module", params=KINDS.values(), ids=KINDS)
def model(request):
    return translator(**request.param)


@pytest.fixture(scope="module")
def run(model):
    return jax.jit(jax.vmap(model))


@pytest.fixture(scope="module")
def logits(run):
    return np.asarray(run(SOURCES, READ))


@pytest.fixture(scope="module", params=KINDS.values(), ids=KINDS)
def gradients(request):
    """Of every row of the batch by itself, through two layers."""
    graphdef, params = nnx.split(translator(**request.param | {"num_layers": 2}))

    def loss(params, source, target):
        return jnp.sum(nnx.merge(graphdef, params)(source, target) ** 2)

    return jax.device_get(jax.jit(jax.vmap(jax.grad(loss), in_axes=(None, 0, 0)))(params, SOURCES, READ))


@pytest.fixture(scope="module", params=[("sinusoidal", 1), ("rotary", 2)], ids=["sinusoidal", "rotary"])
def reader(request):
    positions, layers = request.param
    return language_model(positions=positions, num_layers=layers)


@pytest.fixture(scope="module")
def read(reader):
    return np.asarray(jax.jit(reader.__call__)(TOKENS))


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_an_encoder_layer_equals_flax_in_outputs_and_gradients(norm):
    """x + sublayer(norm(x)), or norm(x + sublayer(x)), of nnx.MultiHeadAttention, nnx.LayerNorm and nnx.Linear."""
    ours = model_like(lambda rngs: EncoderLayer(8, 2, width=12, norm=norm, rotary=False, rngs=rngs))
    heads = model_like(lambda rngs: nnx.MultiHeadAttention(2, 8, use_bias=False, decode=False, rngs=rngs))
    for name in ("query", "key", "value"):
        getattr(heads, name).kernel[...] = getattr(ours.attention, name)[...].reshape(8, 2, 4)
    heads.out.kernel[...] = ours.attention.output[...].reshape(2, 4, 8)
    norms = ours.attention_norm.norm, ours.feed_forward_norm.norm
    wide, narrow = ours.feed_forward.wide, ours.feed_forward.narrow

    def theirs(heads, norms, wide, narrow, x, mask):
        sublayers = (lambda x: heads(x, mask=mask[None])), (lambda x: narrow(jax.nn.relu(wide(x))))
        for layer_norm, sublayer in zip(norms, sublayers, strict=True):
            x = x + sublayer(layer_norm(x)) if norm == "pre" else layer_norm(x + sublayer(x))
        return x

    x, mask = normal(6, 8), causal_mask(6).at[:, 1].set(False).at[0, 1].set(True)

    @nnx.jit
    def both(ours, theirs_parts, x):
        here = nnx.value_and_grad(lambda layer, x: jnp.sum(layer(x, mask)[0] ** 3), argnums=(0, 1))(ours, x)
        there = nnx.value_and_grad(lambda parts, x: jnp.sum(theirs(*parts, x, mask) ** 3), argnums=(0, 1))
        return ours(x, mask)[0], theirs(*theirs_parts, x, mask), here[1], there(theirs_parts, x)[1]

    out, expected, (gradient, to_x), (parts, expected_to_x) = both(ours, (heads, norms, wide, narrow), x)
    np.testing.assert_allclose(out, expected, atol=1e-5)
    np.testing.assert_allclose(to_x, expected_to_x, rtol=1e-4, atol=1e-4)
    their_heads, their_norms, their_wide, their_narrow = parts
    pairs = [(gradient["attention"][name], their_heads[name]["kernel"]) for name in ("query", "key", "value")]
    pairs += [(gradient["attention"]["output"], their_heads["out"]["kernel"])]
    for name, theirs_ in (("wide", their_wide), ("narrow", their_narrow)):
        pairs += [(gradient["feed_forward"][name][part], theirs_[part]) for part in ("kernel", "bias")]
    for name, theirs_ in zip(("attention_norm", "feed_forward_norm"), their_norms, strict=True):
        pairs += [(gradient[name]["norm"][part], theirs_[part]) for part in ("scale", "bias")]
    for left, right in pairs:
        left, right = np.asarray(left[...]), np.asarray(right[...])
        np.testing.assert_allclose(left, right.reshape(left.shape), rtol=1e-4, atol=1e-4 * np.abs(left).max())


@pytest.mark.parametrize("rotary", [False, True])
def test_what_is_kept_row_by_row_is_what_is_kept_at_once(rotary):
    layer, x = model_like(lambda rngs: Attention(8, 2, rotary=rotary, rngs=rngs)), normal(5, 8)

    @jax.jit
    def both_ways(x):
        kept = jax.tree.map(jnp.zeros_like, layer.keep(x))
        rows = []
        for position in range(5):
            row = x[position : position + 1]
            kept = layer.keep(row, kept, position)
            rows.append(layer.look(row, kept, jnp.arange(5)[None] <= position, position)[0])
        return jnp.stack(rows), layer(x, causal_mask(5)), kept, layer.keep(x)

    rows, at_once, kept, kept_at_once = both_ways(x)
    np.testing.assert_allclose(rows, at_once, atol=1e-5)
    jax.tree.map(lambda *pair: np.testing.assert_allclose(*pair, atol=1e-6), kept, kept_at_once)


def test_padding_and_company_change_no_logit(run, logits):
    np.testing.assert_allclose(run(WIDER, np.pad(READ, ((0, 0), (0, 3))))[:, :5], logits, atol=1e-5)
    batch_of_one = run(SOURCES[:1, :4], READ[:1])  # and no padding
    np.testing.assert_allclose(batch_of_one[0], logits[0], atol=1e-5)


def test_nothing_to_read_gives_finite_logits(logits):
    assert np.all(np.isfinite(logits))


def test_nothing_to_read_gives_finite_gradients(gradients):
    assert all(np.all(np.isfinite(gradient)) for gradient in jax.tree.leaves(gradients))


def test_gradient_reaches_every_parameter(gradients):
    for path, gradient in jax.tree.leaves_with_path(gradients):
        assert np.any(gradient[0] != 0), path


def test_a_future_target_token_changes_nothing_before_it(run, logits):
    after = np.asarray(run(SOURCES, changed(READ, 0, 3, to=8)))[0]
    np.testing.assert_array_equal(after[:3], logits[0, :3])
    assert np.all(np.any(np.abs(after[3:] - logits[0, 3:]) > 1e-6, axis=1))


def test_every_source_token_changes_the_first_word(run, logits):
    sources = changed(SOURCES[[0] * 4], range(3), range(3), to=8)
    first = np.asarray(run(sources, READ[[0] * 4]))[:, 0]
    np.testing.assert_array_equal(np.any(np.abs(first - logits[0, 0]) > 1e-6, axis=1), [True, True, True, False])


def test_the_order_of_the_source_matters(run, logits):
    swapped = np.asarray(run(changed(SOURCES, 0, slice(2), to=SOURCES[0, 1::-1]), READ))
    assert np.all(np.any(np.abs(swapped[0] - logits[0]) > 1e-4, axis=1))


def test_the_layers_of_a_cache_are_kept_apart():
    model = translator(norm="post")

    def steps(source, target_in):
        memory = model.encode(source)
        _, logits = jax.lax.scan(lambda state, token: model.step(memory, state, token), model.start(memory), target_in)
        return logits, model(source, target_in)

    np.testing.assert_allclose(*jax.jit(steps)(SOURCES[0], READ[0]), atol=1e-5)


def test_what_the_decoder_reads_here_is_what_the_task_gives_it():
    np.testing.assert_array_equal(READ, shift_right(TARGETS))


def test_word_by_word_is_all_at_once(model, logits):
    """For every sentence, the empty one and nothing but padding included."""

    def steps(source, target_in):
        memory = model.encode(source)
        _, logits = jax.lax.scan(lambda state, token: model.step(memory, state, token), model.start(memory), target_in)
        return logits

    np.testing.assert_allclose(jax.jit(jax.vmap(steps))(SOURCES, READ), logits, atol=1e-5)


@pytest.fixture(scope="module")
def greedy(model):
    return np.asarray(jax.jit(jax.vmap(lambda source: greedy_decode(model, source, 8)))(SOURCES))


def test_decoding_with_a_cache_is_decoding_without(run, greedy):
    """The argmax of the logits of all that has been said so far, computed anew for every word."""
    said = np.zeros_like(greedy)
    for position in range(8):
        step = np.array(run(WIDER, told(said))[:, position])
        step[:, [0, BEGIN]] = -np.inf
        ended = np.any(said == END, axis=1)
        said[:, position] = np.where(ended, 0, step.argmax(axis=-1))
    assert len(np.unique(greedy, axis=0)) > 1
    np.testing.assert_array_equal(said, greedy)


def test_the_probability_of_a_beam_is_the_one_without_a_cache(model, run):
    tokens, log_p = jax.jit(jax.vmap(lambda source: beam_search(model, source, 8, 3)))(SOURCES)
    tokens = np.asarray(tokens)
    said = np.take_along_axis(log_softmax(run(WIDER, told(tokens)), axis=-1), tokens[..., None], axis=-1)[..., 0]
    np.testing.assert_allclose(log_p, said.sum(axis=1, where=tokens != 0), rtol=1e-5, atol=1e-5)


def test_a_decode_longer_than_the_cache_is_named_and_a_step_beyond_it_is_nan():
    model = translator(num_layers=1, cache_length=2)
    for decode in (greedy_decode, lambda *arguments: beam_search(*arguments, 2)):
        with pytest.raises(ValueError, match="cache_length, 2, got 3"):
            decode(model, SOURCES[0], 3)

    @jax.jit
    def steps(source):
        memory = model.encode(source)
        return jax.lax.scan(lambda state, token: model.step(memory, state, token), model.start(memory), TARGETS[0, :3])

    _, logits = steps(SOURCES[0])
    np.testing.assert_array_equal(np.isnan(logits).all(axis=1), [False, False, True])
    with pytest.raises(ValueError, match="room for 2 words, and 2 are in it"):
        model.step(None, model.start(None)._replace(position=jnp.int32(2)), jnp.int32(4))


@pytest.fixture(scope="module")
def looks(model):
    return jax.device_get(jax.jit(jax.vmap(model.attention_weights))(SOURCES, READ))


def test_looks_add_up_and_miss_padding_and_the_future(model, looks):
    layers = model.num_layers
    assert [part.shape for part in looks] == [(4, layers, 2, *sides) for sides in ((6, 6), (5, 5), (5, 6))]
    padding = np.asarray(SOURCES) == 0
    for part in (looks.encoder, looks.cross):
        np.testing.assert_allclose(part[:3].sum(axis=-1), 1, atol=1e-5)
        assert not part[np.broadcast_to(padding[:, None, None, None], part.shape)].any()
    np.testing.assert_allclose(looks.decoder.sum(axis=-1), 1, atol=1e-5)
    assert not looks.decoder[..., ~np.tri(5, dtype=bool)].any()


def test_the_one_look_that_alignment_is_read_from_is_their_mean(model, looks):
    one = jax.jit(jax.vmap(model.attention))(SOURCES, READ)
    np.testing.assert_allclose(one, looks.cross.mean(axis=(1, 2)), atol=1e-6)


def test_without_positions_the_order_of_the_source_is_lost():
    model = translator(num_layers=1, positions="none")
    sources = changed(SOURCES[[0, 0]], 1, slice(2), to=SOURCES[0, 1::-1])
    logits = jax.jit(jax.vmap(model))(sources, READ[[0, 0]])
    np.testing.assert_allclose(*logits, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "matters"),
    [
        ({"num_layers": 1, "positions": "sinusoidal"}, True),
        ({"num_layers": 1, "positions": "rotary"}, True),
        ({"num_layers": 1, "positions": "none"}, False),
        ({"num_layers": 2, "positions": "none"}, True),  # the causal mask alone tells orders apart
    ],
)
def test_when_the_order_of_the_past_matters(options, matters):
    logits = jax.jit(jax.vmap(language_model(**options)))(np.stack([TOKENS, changed(TOKENS, slice(2), to=[2, 1])]))
    assert np.allclose(*logits[:, -1], atol=1e-5) != matters


def test_rotary_looks_depend_on_distances_alone():
    layer, x = model_like(lambda rngs: Attention(8, 2, rotary=True, rngs=rngs)), normal(5, 8)

    @jax.jit
    def at(position):
        return layer.look(x, layer.keep(x, None, position), causal_mask(5), position)

    np.testing.assert_allclose(at(0), at(100), atol=1e-4)


def test_the_embedding_of_the_target_is_the_output_matrix():
    """Section 3.4: so a change to the row of a word that is not said changes its logit, and no other."""

    @jax.jit
    def logits(change):
        model = translator(num_layers=1)
        model.target_embedding.embedding[...] = model.target_embedding.embedding[...].at[9].add(change)
        return model(SOURCES[0], READ[0])

    before, after = np.asarray(logits(0.0)), np.asarray(logits(1.0))
    np.testing.assert_array_equal(before[:, :9], after[:, :9])
    assert np.all(before[:, 9] != after[:, 9])


def test_one_vocabulary_has_one_embedding():
    two, one = (translator(10, num_layers=1, one_vocabulary=shared) for shared in (False, True))
    assert parameter_count(two) - parameter_count(one) == 10 * 8
    jax.eval_shape(one, SOURCES[0], TARGETS[0])
    with pytest.raises(ValueError, match="one vocabulary has one size, got 9 and 10"):
        translator(one_vocabulary=True)


def test_a_transformer_can_have_the_parameters_of_a_recurrent_translator():
    def count(make):
        return parameter_count(nnx.eval_shape(lambda: make(nnx.Rngs(0))))

    sizes = curve.SOURCE.size, curve.TARGET.size
    wanted = count(lambda rngs: Seq2Seq(*sizes, 64, embed_features=64, attention=True, rngs=rngs))
    options = {"num_heads": 4, "num_layers": 2, "norm": "post", "positions": "rotary"}
    assert abs(count(matched_transformer(*sizes, 64, parameters=wanted, **options)) / wanted - 1) < 0.02
    with pytest.raises(ValueError, match=r"2 layers of 64 features.*about 1,000 parameters"):
        matched_transformer(*sizes, 64, parameters=1000, num_heads=4, num_layers=2)


def test_the_schedule_is_equation_3_and_what_optax_joins():
    schedule, updates = inverse_square_root_schedule(64, 400), np.arange(2000)
    peak = (64 * 400) ** -0.5
    rise = optax.linear_schedule(0.0, peak, 400)
    joined = optax.join_schedules([rise, lambda n: peak * jnp.sqrt(400 / (n + 400))], [400])
    rates = np.asarray(jax.vmap(schedule)(updates))
    np.testing.assert_allclose(rates, jax.vmap(joined)(updates + 1), rtol=1e-4)
    assert rates.argmax() == 399
    with pytest.raises(ValueError, match="at least 1, got 64 and 0"):
        inverse_square_root_schedule(64, 0)


def test_a_text_read_token_by_token_is_read_at_once(reader, read):
    @jax.jit
    def steps(tokens):
        return jax.lax.scan(reader.step, reader.start(9), tokens)[1]

    np.testing.assert_allclose(steps(TOKENS), read, atol=1e-5)


def test_a_text_generated_with_a_cache_is_the_one_generated_without(reader):
    key, prompt = jax.random.key(0), TOKENS[:3]
    generate = jax.jit(lambda prompt, key: reader.generate(prompt, 6, key=key, temperature=0.7))
    draw = jax.jit(lambda text, last, key: jax.random.categorical(key, reader(text)[last] / 0.7))
    text = np.concatenate([prompt, np.zeros(6, np.int32)])
    for position, draw_key in enumerate(jax.random.split(key, 6), 3):
        text[position] = draw(text, position - 1, draw_key)
    np.testing.assert_array_equal(generate(prompt, key), text[3:])
    for prompt, length, temperature, words in (
        (TOKENS[:0], 2, 1.0, r"prompt must be one sentence.*shape \(0,\)"),
        (TOKENS + 3, 2, 1.0, "prompt must hold tokens from 0 to 8"),
        (TOKENS, -1, 1.0, "length must be at least 1, got -1"),
        (TOKENS, 2, 0.0, "got 0.0"),
    ):
        with pytest.raises(ValueError, match=words):
            reader.generate(prompt, length, key=key, temperature=temperature)


def test_a_later_token_changes_no_earlier_logit(reader, read):
    after = np.asarray(jax.jit(reader.__call__)(changed(TOKENS, 3, to=8)))
    assert read.shape == (7, 9)
    np.testing.assert_array_equal(read[:3], after[:3])
    assert np.all(np.any(np.abs(read[3:] - after[3:]) > 1e-6, axis=1))


def test_the_reader_looks_back_and_its_gradient_reaches_every_parameter(reader):
    def loss(model):
        return jnp.sum(model(TOKENS)[-1] ** 2), model.attention_weights(TOKENS)

    gradients, weights = nnx.jit(nnx.grad(loss, has_aux=True))(reader)
    assert all(np.any(gradient != 0) for gradient in jax.device_get(jax.tree.leaves(gradients)))
    assert weights.shape == (reader.num_layers, 2, 7, 7)
    np.testing.assert_array_equal(np.asarray(weights)[..., ~np.tri(7, dtype=bool)], 0)
    np.testing.assert_allclose(weights.sum(axis=-1), 1, atol=1e-5)


@pytest.mark.parametrize("make", [translator, language_model], ids=["Transformer", "TransformerLM"])
@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"features": 9}, "2 heads for 9 features"),
        ({"features": 6, "positions": "rotary"}, "3 features"),
        ({"features": 7, "num_heads": 7, "positions": "rotary"}, "1 features"),
        ({"num_layers": 0}, "num_layers must be at least 1, got 0"),
        ({"positions": "learned"}, "sinusoidal, rotary, none; got 'learned'"),
    ],
)
def test_sizes_that_make_no_model_are_named(make, sizes, words):
    with pytest.raises(ValueError, match=words):
        make(**sizes)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: translator(features=7, num_heads=1)(SOURCES[0], TARGETS[0]), "even; got 7"),
        (lambda: translator(norm="middle"), "pre, post; got 'middle'"),
        (lambda: translator(cache_length=0).start(None), "room for at least one word, got 0"),
        (lambda: translator()(SOURCES, TARGETS[0]), r"source must be one sentence.*got shape \(4, 6\).*jax.vmap"),
        (lambda: translator()(SOURCES[0], TARGETS), r"target_in must be one sentence.*got shape \(4, 5\).*jax.vmap"),
        (lambda: translator()(changed(SOURCES[0], 1, to=9), TARGETS[0]), "source must hold tokens from 0 to 8"),
        (lambda: translator()(SOURCES[0], changed(TARGETS[0], 1, to=-1)), "target_in must hold tokens from 0 to 9"),
        (lambda: translator().step(None, translator().start(None), 10), "token must hold tokens from 0 to 9, got 10"),
        (lambda: language_model().step(language_model().start(2), TOKENS), r"one token, got shape \(7,\)"),
        (lambda: language_model()(np.stack([TOKENS] * 7)), r"tokens must be one sentence.*\(7, 7\).*jax.vmap"),
        (lambda: language_model()(TOKENS[:0]), r"tokens must be one sentence.*\(0,\)"),
        (lambda: language_model()(changed(TOKENS, 1, to=9)), "tokens must hold tokens from 0 to 8"),
        (lambda: language_model().attention_weights(changed(TOKENS, 1, to=-1)), "tokens must hold tokens from 0 to 8"),
        (lambda: matched_transformer(9, 9, 8, parameters=0, num_heads=2, num_layers=1), "at least 1, got 0"),
    ],
)
def test_what_fits_no_model_is_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_an_attention_refuses_a_batch():
    layer = model_like(lambda rngs: EncoderLayer(8, 2, width=8, norm="pre", rotary=False, rngs=rngs))
    with pytest.raises(ValueError, match=r"\[time, 8\] with a time step, got shape \(4, 4, 8\)"):
        layer(jnp.ones((4, 4, 8)), causal_mask(4))
