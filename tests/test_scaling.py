"""The experiments of chapter 2 at sizes that take no time, and the model of time on times made by hand."""

import json

import jax
import numpy as np
import pytest
from flax import nnx

from whyattention.measure import scaling
from whyattention.measure.scaling import TimeModel, fit_time_model
from whyattention.measure.timing import Timing

SIZES = [(1, 8, 3), (2, 8, 5)]


def rows(table):
    lengths = {len(column) for column in table.values()}
    assert len(lengths) == 1, {name: len(column) for name, column in table.items()}
    json.dumps(table)  # what is recorded must be plain
    return lengths.pop()


def ordered(low, middle, high):
    return bool(np.all(np.less_equal(low, middle) & np.less_equal(middle, high)))


def test_layer_times_has_a_row_for_each_architecture_and_size():
    table = scaling.layer_times(SIZES, repeats=2)
    assert rows(table) == 4
    assert table["architecture"] == ["recurrence", "attention"] * 2
    assert table["length"] == [3, 3, 5, 5]
    assert ordered(table["low"], table["seconds"], table["high"])
    cost = scaling.layer_cost("attention", (2, 8, 5))
    assert (table["work"][-1], table["span"][-1]) == (cost.work, cost.span)


def test_ratios_pair_the_architectures_of_one_size():
    table = {
        "architecture": ["recurrence", "attention", "attention", "recurrence", "cuDNN", "recurrence", "attention"],
        "batch": [1, 1, 1, 1, 1, 2, 2],
        "width": [8] * 7,
        "length": [5, 5, 3, 3, 3, 3, 3],
        "seconds": [6.0, 2.0, 4.0, 2.0, 9.0, 7.0, 1.0],
    }
    assert scaling.layer_ratios(table, batch=1, width=8) == ([3, 5], [0.5, 3.0])
    assert scaling.layer_ratios(table, batch=1, width=64) == ([], [])


def test_no_sizes_give_no_rows():
    assert scaling.layer_times([]) == {}


def test_an_unknown_architecture_is_refused():
    with pytest.raises(ValueError, match='must be "recurrence" or "attention", got \'convolution\''):
        scaling.layer("convolution", 8)


@pytest.mark.parametrize(("width", "heads"), [(8, 1), (64, 1), (128, 2), (200, 2), (320, 5), (262, 2), (1024, 16)])
def test_attention_gets_as_many_heads_as_divide_its_width(width, heads):
    assert nnx.eval_shape(lambda: scaling.layer("attention", width)).num_heads == heads


def test_past_twice_the_width_attention_does_more_work():
    """Per position: 16 width^2 for the LSTM, 8 width^2 + 4 T width for attention, and twice that for the gradients."""
    width = 64
    short, long = [
        [scaling.layer_cost(name, (1, width, length)).work for name in ("recurrence", "attention")]
        for length in (width, 3 * width)
    ]
    assert short[0] > short[1] and long[0] < long[1]


def test_the_span_of_the_recurrence_grows_with_length_and_that_of_attention_with_its_logarithm():
    def spans(name):
        return np.array([scaling.layer_cost(name, (1, 64, length)).span for length in (64, 128, 256)])

    recurrence, attention = np.diff(spans("recurrence")), np.diff(spans("attention"))
    assert recurrence[1] >= 1.9 * recurrence[0] > 1000
    assert attention[0] == attention[1] < 10


@pytest.mark.skipif(jax.default_backend() == "gpu", reason="the guard is for other devices")
def test_cudnn_is_refused_elsewhere():
    with pytest.raises(RuntimeError, match=r"runs on NVIDIA GPUs only; JAX runs on '(cpu|tpu)' here"):
        scaling.cudnn_gradient((1, 8, 3))


def test_cudnn_is_called_with_what_it_takes(monkeypatch):
    """Its shapes, forward and backward, without a GPU: only the size of cuDNN's own buffer is made up."""
    gpu_rnn = pytest.importorskip("jaxlib.gpu_rnn")
    monkeypatch.setattr(gpu_rnn, "compute_rnn_workspace_reserve_space_sizes", lambda *sizes: (8, 16), raising=False)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    gradient, (weights, xs) = scaling.cudnn_gradient((2, 8, 5))
    for_weights, for_xs = jax.eval_shape(gradient, weights, xs)
    assert xs.shape == for_xs.shape == (2, 5, 8)
    # four gates, each with two matrices and, in cuDNN, two biases
    assert weights.shape == for_weights.shape == (4 * (2 * 8 * 8 + 2 * 8),)


def test_a_gpu_gets_a_third_contestant(monkeypatch):
    """The table has cuDNN's row where the backend says GPU; the kernel itself is stood in for."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(scaling, "cudnn_gradient", lambda size, seed: (jax.numpy.tanh, (jax.numpy.ones(3),)))
    table = scaling.layer_times(SIZES[:1], repeats=1)
    assert table["architecture"] == ["recurrence", "attention", "cuDNN"]
    assert table["span"][2] == table["span"][0]


# --- The model -------------------------------------------------------------------------------------

WORK, SPAN = np.array([1e6, 1e7, 1e8, 1e9]), np.array([1e4, 1e2, 1e3, 1e5])


@pytest.mark.parametrize("model", [TimeModel(1e-7, 1e11), TimeModel(1e-5, 1e12), TimeModel(0.0, 1e9)])
def test_the_model_is_found_again_from_its_own_times(model):
    found = fit_time_model(WORK, SPAN, model.seconds(WORK, SPAN))
    assert found.alpha == pytest.approx(model.alpha, rel=0.02)
    assert found.beta == pytest.approx(model.beta, rel=0.02)


def test_neither_number_is_negative_whatever_the_times():
    found = fit_time_model(WORK, SPAN, 1 / WORK)
    assert found.alpha >= 0 and found.beta > 0


def test_one_measurement_is_refused():
    with pytest.raises(ValueError, match="at least two measurements, got 1"):
        fit_time_model([1.0], [1.0], [1.0])


@pytest.mark.parametrize("wrong", [0.0, -1.0, np.inf, np.nan])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_measurements_that_are_no_amounts_are_refused(place, wrong):
    columns = [[1.0, 2.0], [1.0, 2.0], [1.0, 2.0]]
    columns[place][1] = wrong
    with pytest.raises(ValueError, match="must be positive and finite"):
        fit_time_model(*columns)


def test_columns_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match="equally long"):
        fit_time_model([1.0], [1.0, 2.0], [1.0, 2.0])


def test_at_half_parallelism_half_the_time_is_waiting():
    model = TimeModel(alpha=1e-6, beta=1e11)
    span = 1000
    work = span * model.half_parallelism
    assert model.seconds(work, span) == pytest.approx(2 * work / model.beta)
    assert model.share(model.half_parallelism) == pytest.approx(0.5)
    assert work / model.seconds(work, span) / model.beta == pytest.approx(0.5)


def test_a_device_that_waits_for_nothing_is_as_fast_as_the_work_says():
    size = (1, 64, 32)
    works = [scaling.layer_cost(name, size).work for name in ("recurrence", "attention")]
    assert scaling.predicted_ratios(TimeModel(0.0, 1e9), [size]) == [pytest.approx(works[0] / works[1])]
    assert scaling.predicted_ratios(TimeModel(1.0, 1e9), [size])[0] > 10


# --- The other tables ------------------------------------------------------------------------------


def test_utilisation_is_work_over_time_over_peak(monkeypatch):
    def clock(contestants, *, repeats):
        return {name: Timing(0.0, (2.0, 4.0) if name == "peak" else (1.0, 2.0), run=0) for name in contestants}

    monkeypatch.setattr(scaling, "BANDWIDTH_FLOATS", 1024)
    monkeypatch.setattr(scaling, "time_side_by_side", clock)
    table = scaling.utilisation(SIZES, peak_side=64)
    assert rows(table) == 2
    assert table["bandwidth"] == [4 * 1024 / 1.5] * 2
    assert table["peak"] == [2 * 64**3 / 3.0] * 2
    # the scan took half of the product's time in every round
    assert table["utilisation"] == [work / (2 * 64**3 / 2) for work in table["work"]]
    assert table["utilisation_low"] == table["utilisation_high"] == table["utilisation"]


def test_utilisation_is_timed(monkeypatch):
    monkeypatch.setattr(scaling, "BANDWIDTH_FLOATS", 1024)
    table = scaling.utilisation(SIZES[:1], repeats=2, peak_side=64)
    assert ordered(table["utilisation_low"], table["utilisation"], table["utilisation_high"])
    assert table["utilisation"][0] > 0


def test_step_intensity_by_hand():
    # 2 * 4 * 8 * 8 operations; 8 * 8 weights and three arrays of 4 * 8, 4 bytes each
    assert scaling.step_intensity(4, 8) == 512 / (4 * (64 + 96))


def test_the_chain_and_the_product_do_the_same_work():
    table = scaling.chain_against_product([2, 8], batch=2, width=4, repeats=2, min_seconds=0)
    assert rows(table) == 2
    assert table["work"] == [2 * 2 * 2 * 4 * 4, 8 * 2 * 2 * 4 * 4]


def test_hoisting_compares_inside_with_before():
    table = scaling.hoisting(SIZES[:1], repeats=2)
    assert rows(table) == 1
    assert ordered(table["ratio_low"], table["ratio"], table["ratio_high"])


def fake_clock(**samples):
    """Stands in for `time_side_by_side`: these samples, by the contestants' names."""

    def clock(contestants, **options):
        assert set(contestants) == set(samples)
        return {name: Timing(0.0, times, run=0) for name, times in samples.items()}

    return clock


def test_the_ratio_of_a_chain_is_chain_over_product(monkeypatch):
    monkeypatch.setattr(scaling, "time_side_by_side", fake_clock(chain=(6.0, 6.0, 8.0), product=(2.0, 3.0, 2.0)))
    table = scaling.chain_against_product([2], batch=2, width=4)
    assert (table["chain"], table["product"]) == ([6.0], [2.0])
    assert (table["ratio_low"], table["ratio"], table["ratio_high"]) == ([2.5], [3.0], [3.5])  # of 2, 3 and 4


def test_the_ratio_of_hoisting_is_inside_over_before(monkeypatch):
    monkeypatch.setattr(scaling, "time_side_by_side", fake_clock(inside=(6.0, 6.0, 8.0), before=(2.0, 3.0, 2.0)))
    table = scaling.hoisting(SIZES[:1])
    assert (table["inside"], table["before"]) == ([6.0], [2.0])
    assert (table["ratio_low"], table["ratio"], table["ratio_high"]) == ([2.5], [3.0], [3.5])


def test_hoisting_takes_the_projection_out_of_the_loop(monkeypatch):
    outside = {}

    def clock(contestants, **options):
        for name, (fn, args) in contestants.items():
            primitives = [equation.primitive.name for equation in jax.make_jaxpr(fn)(*args).eqns]
            outside[name] = primitives[: primitives.index("scan")].count("dot_general")
        return {name: Timing(0.0, (1.0,), run=0) for name in contestants}

    monkeypatch.setattr(scaling, "time_side_by_side", clock)
    scaling.hoisting(SIZES[:1])
    assert outside == {"inside": 0, "before": 1}


@pytest.mark.parametrize("scale", ["quick", "full"])
def test_there_are_sizes_for_both_scales(scale):
    for sizes in (scaling.LAYER_SIZES[scale], scaling.UTILISATION_SIZES[scale]):
        assert sizes == list(dict.fromkeys(sizes)) and len(sizes) >= 10
