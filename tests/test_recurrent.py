"""The cells and their scan: equal to a loop and to Flax, alive in every parameter, strict about shapes."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from drawn import model_like, normal
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st

from whyattention.recurrent import GRUCell, LSTMCell, TanhCell, chrono_bias, unroll

CELLS = [TanhCell, GRUCell, LSTMCell]
FLAX = {TanhCell: nnx.SimpleCell, GRUCell: nnx.GRUCell, LSTMCell: nnx.OptimizedLSTMCell}
run = nnx.jit(unroll)


def cell_like(make, features=3, hidden=4, seed=0):
    return model_like(lambda rngs: make(features, hidden, rngs=rngs), seed=seed)


def sequence(time=7, features=3, seed=1, scale=1.0):
    return normal(time, features, seed=seed, scale=scale)


def loop(cell, xs, state=None):
    """The reference: (the states before the first step and after each, outputs at every step)."""
    states, outputs = [cell.initial_state() if state is None else state], []
    for x in xs:
        state, output = cell(states[-1], x)
        states.append(state)
        outputs.append(output)
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *states), jnp.stack(outputs)


def at(states, time):
    return jax.tree.map(lambda leaf: leaf[time], states)


def assert_trees_close(ours, theirs, atol=1e-6):
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    for left, right in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(left, right, atol=atol)


def flax_layer(cell):
    """Flax's layer with the same weights as ours."""
    theirs = FLAX[type(cell)](cell.in_features, cell.hidden_size, rngs=nnx.Rngs(0))
    inputs, hidden = theirs.dense_i, theirs.dense_h
    inputs.kernel[...], hidden.kernel[...] = cell.kernel[...], cell.recurrent_kernel[...]
    (hidden if isinstance(cell, LSTMCell) else inputs).bias[...] = cell.bias[...]
    return nnx.RNN(theirs)


@nnx.jit
def scan_and_loop(cell, xs):
    return unroll(cell, xs), loop(cell, xs)


@pytest.mark.parametrize("make", CELLS)
@settings(max_examples=10)
@given(
    sizes=st.sampled_from([(1, 1, 1), (6, 3, 4)]), seed=st.integers(0, 2**31 - 1), scale=st.sampled_from([0.1, 1, 10])
)
def test_scan_equals_the_python_loop(make, sizes, seed, scale):
    time, features, hidden = sizes
    cell, xs = cell_like(make, features, hidden, seed), sequence(time, features, seed, scale)
    (state, outputs), (states, expected) = scan_and_loop(cell, xs)
    assert_trees_close((state, outputs), (at(states, -1), expected))


@pytest.mark.parametrize("make", CELLS)
def test_equals_flax_outputs_and_gradients(make):
    cell, xs = cell_like(make), sequence()
    graphdef, params = nnx.split(cell)

    def with_gradients(layer):
        def loss(params, xs):
            outputs = layer(nnx.merge(graphdef, params), xs)
            return jnp.sum(outputs**2), outputs

        return jax.jit(jax.value_and_grad(loss, argnums=(0, 1), has_aux=True))(params, xs)

    (_, outputs), gradients = with_gradients(lambda cell, xs: unroll(cell, xs)[1])
    (_, expected), expected_gradients = with_gradients(lambda cell, xs: flax_layer(cell)(xs[None])[0])
    np.testing.assert_allclose(outputs, expected, atol=1e-6)
    assert_trees_close(gradients, expected_gradients, atol=1e-5)
    assert all(jnp.any(gradient != 0) for gradient in jax.tree.leaves(gradients))


@pytest.mark.parametrize("make", CELLS)
def test_step_of_the_projection_is_the_cell(make):
    cell, x = cell_like(make), sequence()[0]
    start = cell.initial_state()
    assert_trees_close(cell(start, x), cell.step(start, cell.project(x)), atol=0)


@pytest.mark.parametrize("make", CELLS)
def test_gradient_reaches_every_parameter_and_the_first_input(make):
    @nnx.jit
    def gradients(cell, xs):
        return nnx.grad(lambda cell, xs: jnp.sum(unroll(cell, xs)[1][-1]), argnums=(0, 1))(cell, xs)

    to_cell, to_xs = gradients(cell_like(make), sequence(20))
    assert all(jnp.all(jnp.any(gradient != 0, axis=0)) for gradient in jax.tree.leaves(to_cell))
    assert jnp.all(to_xs[0] != 0)


@pytest.mark.parametrize("make", CELLS)
def test_the_first_input_changes_the_last_state(make):
    cell, xs = cell_like(make), sequence()
    assert not jnp.array_equal(run(cell, xs)[1][-1], run(cell, xs.at[0].add(1.0))[1][-1])


@pytest.mark.parametrize("make", CELLS)
def test_a_later_input_changes_nothing_before_it(make):
    cell, xs = cell_like(make), sequence()
    before, after = run(cell, xs)[1], run(cell, xs.at[5].add(1.0))[1]
    np.testing.assert_array_equal(before[:5], after[:5])
    assert not jnp.array_equal(before[5:], after[5:])


@pytest.mark.parametrize("make", CELLS)
def test_vmap_makes_a_batch_and_scan_runs_over_time(make):
    cell, batch = cell_like(make), jnp.stack([sequence(seed=seed) for seed in range(4)])
    outputs = jax.jit(jax.vmap(lambda xs: unroll(cell, xs)[1]))(batch)
    np.testing.assert_allclose(outputs, jnp.stack([run(cell, xs)[1] for xs in batch]), atol=1e-6)
    jaxpr = jax.make_jaxpr(jax.vmap(lambda xs: unroll(cell, xs)[1]))(batch)
    scans = [equation for equation in jaxpr.eqns if equation.primitive.name == "scan"]
    assert [scan.params["length"] for scan in scans] == [7]


def test_a_state_carried_over_a_cut_changes_nothing():
    cell, xs = cell_like(LSTMCell), sequence()
    state, first = run(cell, xs[:4])
    _, second = run(cell, xs[4:], state)
    np.testing.assert_allclose(jnp.concatenate([first, second]), run(cell, xs)[1], atol=1e-6)


def test_forget_bias_is_in_the_forget_gate_alone():
    bias = LSTMCell(3, 2, rngs=nnx.Rngs(0), forget_bias=3.0).bias[...]
    np.testing.assert_array_equal(bias, [0, 0, 3, 3, 0, 0, 0, 0])
    np.testing.assert_array_equal(LSTMCell(3, 2, rngs=nnx.Rngs(0)).bias[...], [0, 0, 1, 1, 0, 0, 0, 0])


def test_chrono_bias_spreads_time_constants_up_to_the_longest_lag():
    into, forget, rest = jnp.split(chrono_bias(1000, 50, jax.random.key(0)), [1000, 2000])
    np.testing.assert_array_equal(into, -forget)
    np.testing.assert_array_equal(rest, 0)
    time_constant = 1 / (1 - jax.nn.sigmoid(forget))
    assert 2 <= time_constant.min() < 3 and 48 < time_constant.max() <= 50.001
    np.testing.assert_allclose(time_constant.mean(), 26, atol=1.5)


@pytest.mark.parametrize("longest", [1, float("inf"), float("nan")])
def test_a_longest_lag_that_is_none_is_named(longest):
    with pytest.raises(ValueError, match=f"at least 2 and finite, got {longest}"):
        chrono_bias(3, longest, jax.random.key(0))


@pytest.mark.parametrize("make", CELLS)
def test_a_cell_takes_states_side_by_side(make):
    cell = cell_like(make)
    states = jax.tree.map(lambda array: jnp.stack([array, array + 0.5]), cell.initial_state())
    inputs = cell.project(sequence(2))
    together = cell.step(states, inputs)
    assert_trees_close(together, jax.vmap(cell.step)(states, inputs))


@cache
def padded_and_reference(make, padding):
    """The padded run of a cell, and the states and outputs that a Python loop goes through without the padding."""
    cell = cell_like(make)
    start = jax.tree.map(lambda array: array + 0.5, cell.initial_state())
    padded = jax.jit(lambda xs, length: unroll(cell, xs, start, length))
    return padded, jnp.pad(sequence(5), ((0, padding), (0, 0))), jax.jit(lambda xs: loop(cell, xs, start))(sequence(5))


@pytest.mark.parametrize("make", CELLS)
@settings(max_examples=10)
@given(
    real=st.integers(0, 5),
    padding=st.sampled_from([0, 3]),
    filler=st.sampled_from([0.0, 9.0, float("nan"), float("inf")]),
)
def test_padding_never_changes_a_final_state(make, real, padding, filler):
    padded, xs, (states, expected) = padded_and_reference(make, padding)
    state, outputs = padded(jnp.where(jnp.arange(5 + padding)[:, None] < real, xs, filler), real)
    assert_trees_close((state, outputs[:real]), (at(states, real), expected[:real]))
    np.testing.assert_array_equal(outputs[real:], 0)


@pytest.mark.parametrize("make", CELLS)
def test_padding_never_changes_a_gradient(make):
    cell, xs = cell_like(make), sequence(5)

    @nnx.jit
    def gradients(cell, xs, length):
        def loss(cell, xs):
            return sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(unroll(cell, xs, length=length)))

        return nnx.grad(loss, argnums=(0, 1))(cell, xs)

    ours, ours_xs = gradients(cell, jnp.concatenate([xs, jnp.full((3, 3), jnp.nan)]), 5)
    theirs, theirs_xs = gradients(cell, xs, None)
    assert_trees_close(ours, theirs, atol=1e-5)
    np.testing.assert_allclose(ours_xs[:5], theirs_xs, atol=1e-5)
    np.testing.assert_array_equal(ours_xs[5:], 0)


@pytest.mark.parametrize("make", CELLS)
def test_a_batch_of_lengths_is_mapped_like_the_batch(make):
    cell, batch = cell_like(make), jnp.stack([sequence(seed=seed) for seed in range(3)])
    lengths = jnp.array([7, 0, 2])
    states = jax.jit(jax.vmap(lambda xs, length: unroll(cell, xs, length=length)[0]))(batch, lengths)
    wanted = jax.jit(jax.vmap(lambda xs, length: at(loop(cell, xs)[0], length)))(batch, lengths)
    assert_trees_close(states, wanted)


def test_lengths_without_vmap_are_named():
    with pytest.raises(ValueError, match=r"length must be one number, got shape \(2,\)"):
        unroll(TanhCell(3, 4, rngs=nnx.Rngs(0)), sequence(), length=jnp.array([1, 2]))


@pytest.mark.parametrize(
    ("length", "words"), [(2.0, "whole number"), (True, "whole number"), (-1, "from 0 to the 7"), (8, "got 8")]
)
def test_a_length_that_is_none_is_named(length, words):
    with pytest.raises(ValueError, match=words):
        unroll(TanhCell(3, 4, rngs=nnx.Rngs(0)), sequence(), length=length)


@pytest.mark.parametrize("make", CELLS)
@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ((7, 4), "expects 3 features"),
        ((0, 3), "at least one time step"),
        ((2, 7, 3), "jax.vmap"),
        ((3,), "one sequence"),
    ],
)
def test_wrong_shapes_are_named(make, shape, words):
    with pytest.raises(ValueError, match=words) as error:
        unroll(cell_like(make), jnp.zeros(shape))
    assert str(shape) in str(error.value)
