"""What attention costs: formulas against counts, curves made by hand, and tables at sizes that take no time."""

import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from drawn import model_like, normal
from flax import nnx

from whyattention.attention import blockwise_attention, causal_mask
from whyattention.measure import attention_cost as cost
from whyattention.measure.cost import WorkSpan
from whyattention.measure.scaling import TimeModel
from whyattention.measure.timing import Timing
from whyattention.transformer import Attention


def no_clock(contestants, **options):
    """Stands in for `time_side_by_side`: the k-th contestant takes k seconds."""
    return {name: Timing(0.0, (index + 1.0,) * 2, run=0) for index, name in enumerate(contestants)}


def test_the_formula_counts_what_the_compiler_counts():
    width, length = 32, 16
    layer = cost.TransformerLayer(width, rngs=nnx.Rngs(0))
    counted = cost.compiled_flops(layer, jax.ShapeDtypeStruct((length, width), jnp.float32))
    formula = sum(cost.layer_flops(width, length).values())
    assert formula <= counted < 1.05 * formula
    assert cost.layer_flops(3, 5, feed_forward=2) == {"projections": 360, "pairs": 300, "feed-forward": 360}


def test_doubling_and_the_share_of_pairs_follow_from_the_formula():
    once, twice = (sum(cost.layer_flops(64, n).values()) for n in (64, 128))
    assert twice / once == pytest.approx(16 / 7)  # 2 (24 + 8) / (24 + 4)
    parts = cost.layer_flops(64, 6 * 64)
    assert parts["pairs"] == parts["projections"] + parts["feed-forward"]


def test_no_count_is_an_error(monkeypatch):
    monkeypatch.setattr(jax.stages.Compiled, "cost_analysis", lambda self: {})
    with pytest.raises(RuntimeError, match="reports no count of operations"):
        cost.compiled_flops(jnp.tanh, jnp.ones(3))


def test_the_slope_of_a_power_is_its_exponent():
    sizes = np.array([1.0, 2.0, 8.0])
    middles, slopes = cost.local_slope(sizes, 3 * sizes**1.5)
    np.testing.assert_allclose(middles, [2**0.5, 4])
    np.testing.assert_allclose(slopes, 1.5)


@pytest.mark.parametrize(
    ("sizes", "costs", "words"),
    [
        ([1], [1], "two sizes"),
        ([1, 2], [1], "as many costs"),
        ([2, 1], [1, 1], "must grow"),
        ([1, 2], [1, 0], "positive"),
    ],
)
def test_a_slope_of_nothing_is_refused(sizes, costs, words):
    with pytest.raises(ValueError, match=words):
        cost.local_slope(sizes, costs)


def test_a_crossing_is_found_between_neighbours():
    sizes = np.array([1.0, 4.0, 16.0, 64.0])
    assert cost.crossing(sizes, 8 / sizes) == pytest.approx(8)
    assert cost.crossing(sizes, sizes / 8) == pytest.approx(8)
    assert cost.crossing(sizes, [2, 1, 0.5, 0.5]) == pytest.approx(4)
    assert cost.crossing(sizes, [2, 1, 1, 0.5]) == pytest.approx(4)
    for never in ([2, 3, 4, 5], [1, 1, 1, 1], [1, 2, 3, 4], [2, 1, 2, 1]):  # to touch 1 is not to pass it
        assert math.isnan(cost.crossing(sizes, never))
    for wrong in ([2, 1], [2, 1, 0, 1]):
        with pytest.raises(ValueError, match="as many sizes as ratios"):
            cost.crossing(sizes, wrong)


def test_the_layer_is_the_same_with_blocks():
    full, blockwise = (
        model_like(lambda rngs, options=options: cost.TransformerLayer(8, rngs=rngs, **options))
        for options in ({}, {"attend": blockwise_attention})
    )
    xs = normal(5, 8)
    np.testing.assert_allclose(jax.jit(full)(xs), jax.jit(blockwise)(xs), atol=1e-4)


def test_a_training_step_changes_every_weight():
    for name in ("LSTM", "blockwise attention"):
        step, (weights, state) = cost.training_step(name, 8)
        after, _, loss = jax.jit(step)(weights, state, normal(2, 3, 8))
        assert jnp.isfinite(loss)
        changed = jax.tree.map(lambda old, new: bool(jnp.any(old != new)), weights, after)
        assert all(jax.tree.leaves(changed)), name


def test_step_times_are_ratios_to_the_lstm(monkeypatch):
    monkeypatch.setattr(cost, "time_side_by_side", no_clock)
    table = cost.step_times([(1, 8, 3), (2, 8, 5)])
    json.dumps(table)  # what is recorded must be plain
    assert table["layer"] == list(cost.LAYERS) * 2 and table["length"] == [3] * 3 + [5] * 3
    assert table["ratio"] == pytest.approx([1, 1 / 2, 1 / 3] * 2)
    counted = cost.step_cost("full attention", (2, 8, 5))
    assert (table["work"][4], table["span"][4]) == (counted.work, counted.span)
    rows = cost.against_lstm(table, "blockwise attention", batch=2, width=8)
    assert rows["length"].tolist() == [5] and rows["seconds"].tolist() == [3.0]
    assert len(cost.against_lstm(table, "LSTM", batch=7, width=8)["length"]) == 0


def test_the_device_that_is_needed_gives_the_factor():
    slow, fast = WorkSpan(work=1000, span=500), WorkSpan(work=3000, span=10)
    for factor in (0.5, 5, 40):
        model = TimeModel(alpha=1.0, beta=cost.needed_parallelism(slow, fast, factor))
        assert model.seconds(1000, 500) / model.seconds(3000, 10) == pytest.approx(factor)
    assert cost.needed_parallelism(slow, fast, 50) == math.inf
    assert cost.needed_parallelism(slow, fast, 0.1) == 0
    heavy, light = WorkSpan(work=1000, span=10), WorkSpan(work=100, span=5)  # 10 times to 2 times, the other way round
    model = TimeModel(alpha=1.0, beta=cost.needed_parallelism(heavy, light, 4))
    assert model.seconds(1000, 10) / model.seconds(100, 5) == pytest.approx(4)
    assert cost.needed_parallelism(heavy, light, 11) == math.inf and cost.needed_parallelism(heavy, light, 2) == 0


def test_there_is_a_head_for_every_64_features_and_one_at_least():
    heads = {width: cost.TransformerLayer(width, rngs=nnx.Rngs(0)).attention.num_heads for width in (8, 100, 130)}
    assert heads == {8: 1, 100: 1, 130: 2}
    with pytest.raises(ValueError, match="3 heads for 200 features"):
        cost.TransformerLayer(200, rngs=nnx.Rngs(0))
    with pytest.raises(ValueError, match="with a time step"):
        cost.TransformerLayer(8, rngs=nnx.Rngs(0))(jnp.zeros((0, 8)))


@pytest.mark.parametrize("rotary", [False, True])
def test_cached_steps_equal_causal_attention_and_give_nan_beyond_the_cache(rotary):
    attention = model_like(lambda rngs: Attention(8, 2, rotary=rotary, rngs=rngs))
    xs = normal(6, 8)
    (kept, filled), ys = jax.lax.scan(
        lambda cache, x: cost.cached_step(attention, cache, x), cost.empty_cache(attention, 5), xs
    )
    np.testing.assert_allclose(ys[:5], attention(xs, causal_mask(6))[:5], atol=1e-5)
    assert filled == 6 and kept.keys.shape == (2, 5, 4)
    np.testing.assert_array_equal(np.isnan(ys).all(axis=1), [False] * 5 + [True])


def test_generation_times_are_per_token(monkeypatch):
    monkeypatch.setattr(cost, "time_side_by_side", no_clock)
    table = cost.generation_times((3, 5), width=8, tokens=4, recompute_to=3)
    assert table["method"] == ["LSTM", "cache", "no cache", "LSTM", "cache"]
    assert table["seconds"] == [1 / 4, 2 / 4, 3, 1 / 4, 2 / 4]


def test_what_is_timed_generates():
    table = cost.generation_times((3,), width=8, tokens=2, repeats=1)
    assert min(table["seconds"]) > 0


def test_the_cache_of_a_published_model():
    # OPT-13B: 800 KB a token (Kwon et al. 2023, section 3)
    assert cost.cache_bytes(1, layers=40, kv_heads=40, head_features=128) == 2 * 5120 * 40 * 2
    assert cost.cache_bytes(7, layers=1, kv_heads=1, head_features=3, bytes_per_number=4) == 168


@pytest.mark.parametrize("scale", ["quick", "full"])
def test_there_are_sizes_for_both_scales(scale):
    sizes = cost.STEP_SIZES[scale]
    assert sizes == list(dict.fromkeys(sizes)) and len(sizes) >= 8
