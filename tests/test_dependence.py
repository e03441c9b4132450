"""Dependence: what is measured is what the derivative says, and paths are as long as a hand counts them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from drawn import normal
from flax import nnx
from jax.tree_util import Partial

from whyattention.measure.dependence import (
    Network,
    architectures,
    by_lag,
    convolution_layer,
    dependence,
    path_lengths,
    recurrence,
)
from whyattention.recurrent import LSTMCell, TanhCell

TIME, FEATURES = 6, 4


@pytest.fixture(scope="module")
def networks():
    return architectures(TIME, FEATURES, window=3, rngs=nnx.Rngs(0))


def test_of_a_linear_map_it_is_the_norm_of_each_block():
    blocks = normal(5, 3, 4, 2)  # output, outputs, input, features
    found = dependence(lambda xs: jnp.einsum("ofjg,jg->of", blocks, xs), normal(4, 2))
    np.testing.assert_allclose(found, np.linalg.norm(blocks, axis=(1, 3)) / np.sqrt(2), rtol=1e-5)
    np.testing.assert_allclose(dependence(lambda xs: xs, normal(3, 2)), np.eye(3))


def test_a_dependence_whose_square_is_not_in_float32_is_a_number_like_any_other():
    found = dependence(lambda xs: jnp.array([[1e-30], [1e30]]) * xs, normal(2, 3))
    np.testing.assert_allclose(found, np.diag([1e-30, 1e30]), rtol=1e-5)


def test_by_lag_is_the_mean_of_a_diagonal():
    np.testing.assert_allclose(by_lag(jnp.array([[1.0, 9, 9], [2, 3, 9], [6, 4, 5]])), [3, 3, 6])


@pytest.mark.parametrize("cell", [TanhCell, LSTMCell])
def test_a_recurrence_in_parallel_steps_ends_where_unroll_ends(cell):
    cell, xs = cell(FEATURES, 5, rngs=nnx.Rngs(0)), normal(TIME, FEATURES)
    network = recurrence(cell, TIME)
    hidden = network.start(xs)
    for number, step in enumerate(network.steps, start=1):
        hidden = step(hidden, xs)
        np.testing.assert_allclose(hidden[1][:number], network.function(xs)[:number], atol=1e-6)
        assert number == TIME or not np.allclose(hidden[1][number], network.function(xs)[number], atol=1e-3)


def test_a_convolution_is_a_sum_over_shifted_inputs():
    layer, x = convolution_layer(3, 2, FEATURES, jax.random.key(0)), normal(TIME, FEATURES)
    _, kernel = layer.args
    by_hand = [sum(x[t - 2 * m] @ kernel[m] for m in range(3) if t >= 2 * m) for t in range(TIME)]
    np.testing.assert_allclose(layer(x), np.stack(by_hand), atol=1e-5)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("tanh recurrence", lambda lag: lag + 1),
        ("LSTM", lambda lag: lag + 1),
        ("restricted attention", lambda lag: max(1, -(-lag // 2))),
        ("dilated convolution", lambda lag: 1 if lag <= 2 else 2),
        ("full attention", lambda lag: 1),
    ],
)
def test_paths_are_as_long_as_counted_by_hand(networks, name, expected):
    found = path_lengths(networks[name], normal(TIME, FEATURES))
    by_hand = [[expected(i - j) if i >= j else 0 for j in range(TIME)] for i in range(TIME)]
    np.testing.assert_array_equal(found, by_hand)


def test_nothing_comes_from_the_future_and_everything_from_the_past(networks):
    for network in networks.values():
        found = np.asarray(
            jax.jit(lambda xs, network=network: dependence(network.function, xs))(normal(TIME, FEATURES))
        )
        np.testing.assert_array_equal(found != 0, np.tri(TIME, dtype=bool))


def test_what_no_step_reaches_has_no_path():
    network = Network(lambda xs: 2 * xs, lambda xs: xs, (Partial(lambda hidden, xs: 2 * hidden),))
    np.testing.assert_array_equal(path_lengths(network, normal(3, 2)), np.eye(3))


def test_bad_shapes_and_sizes_are_named():
    with pytest.raises(ValueError, match=r"got shape \(3,\)"):
        dependence(lambda xs: xs, jnp.ones(3))
    with pytest.raises(ValueError, match="got 1 and 2"):
        architectures(1, 4, window=2, rngs=nnx.Rngs(0))
    with pytest.raises(ValueError, match="got 4 and 1"):
        architectures(4, 4, window=1, rngs=nnx.Rngs(0))
