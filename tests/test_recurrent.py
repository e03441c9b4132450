"""The cells and their scan: equal to a loop and to Flax, alive in every parameter, strict about shapes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st

from whyattention.recurrent import GRUCell, LSTMCell, TanhCell, chrono_bias, unroll

CELLS = [TanhCell, GRUCell, LSTMCell]
FLAX = {TanhCell: nnx.SimpleCell, GRUCell: nnx.GRUCell, LSTMCell: nnx.OptimizedLSTMCell}


def sequence(time=7, features=3, seed=1):
    return jax.random.normal(jax.random.key(seed), (time, features))


def loop(cell, xs):
    state, outputs = cell.initial_state(), []
    for x in xs:
        state, output = cell(state, x)
        outputs.append(output)
    return state, jnp.stack(outputs)


def flax_layer(cell):
    """Flax's layer with the same weights as ours."""
    theirs = FLAX[type(cell)](cell.in_features, cell.hidden_size, rngs=nnx.Rngs(0))
    inputs, hidden = theirs.dense_i, theirs.dense_h
    inputs.kernel[...], hidden.kernel[...] = cell.kernel[...], cell.recurrent_kernel[...]
    (hidden if isinstance(cell, LSTMCell) else inputs).bias[...] = cell.bias[...]
    return nnx.RNN(theirs)


@pytest.mark.parametrize("make", CELLS)
@settings(max_examples=5, deadline=None)
@given(time=st.integers(1, 6), features=st.integers(1, 4), hidden=st.integers(1, 5))
def test_scan_equals_the_python_loop(make, time, features, hidden):
    cell = make(features, hidden, rngs=nnx.Rngs(time))
    xs = sequence(time, features)
    for ours, theirs in zip(jax.tree.leaves(unroll(cell, xs)), jax.tree.leaves(loop(cell, xs)), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


@pytest.mark.parametrize("make", CELLS)
def test_equals_flax_outputs_and_gradients(make):
    cell = make(3, 5, rngs=nnx.Rngs(2))
    cell.bias[...] = jax.random.normal(jax.random.key(3), cell.bias.shape)
    layer, xs = flax_layer(cell), sequence()
    np.testing.assert_allclose(unroll(cell, xs)[1], layer(xs[None])[0], atol=1e-6)
    ours = nnx.grad(lambda cell: jnp.sum(unroll(cell, xs)[1] ** 2))(cell)
    theirs = nnx.grad(lambda layer: jnp.sum(layer(xs[None]) ** 2))(layer).cell
    np.testing.assert_allclose(ours.kernel[...], theirs.dense_i.kernel[...], atol=1e-5)
    np.testing.assert_allclose(ours.recurrent_kernel[...], theirs.dense_h.kernel[...], atol=1e-5)
    with_bias = theirs.dense_h if make is LSTMCell else theirs.dense_i
    np.testing.assert_allclose(ours.bias[...], with_bias.bias[...], atol=1e-5)


@pytest.mark.parametrize("make", CELLS)
def test_step_of_the_projection_is_the_cell(make):
    cell = make(3, 5, rngs=nnx.Rngs(0))
    x = sequence(1)[0]
    for left, right in zip(
        jax.tree.leaves(cell(cell.initial_state(), x)),
        jax.tree.leaves(cell.step(cell.initial_state(), cell.project(x))),
        strict=True,
    ):
        np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("make", CELLS)
def test_gradient_reaches_every_parameter_and_the_first_input(make):
    cell, xs = make(3, 5, rngs=nnx.Rngs(0)), sequence(20)
    gradients = jax.tree.leaves(nnx.grad(lambda cell: jnp.sum(unroll(cell, xs)[1][-1]))(cell))
    assert all(jnp.all(jnp.any(gradient != 0, axis=0)) for gradient in gradients)
    assert jnp.all(jax.grad(lambda xs: jnp.sum(unroll(cell, xs)[1][-1]))(xs)[0] != 0)


@pytest.mark.parametrize("make", CELLS)
def test_the_first_input_changes_the_last_state(make):
    cell, xs = make(3, 5, rngs=nnx.Rngs(0)), sequence(10)
    assert not jnp.array_equal(unroll(cell, xs)[1][-1], unroll(cell, xs.at[0].add(1.0))[1][-1])


@pytest.mark.parametrize("make", CELLS)
def test_a_later_input_changes_nothing_before_it(make):
    cell, xs = make(3, 5, rngs=nnx.Rngs(0)), sequence(10)
    before, after = unroll(cell, xs)[1], unroll(cell, xs.at[6].add(1.0))[1]
    np.testing.assert_array_equal(before[:6], after[:6])
    assert not jnp.array_equal(before[6:], after[6:])


@pytest.mark.parametrize("make", CELLS)
def test_vmap_makes_a_batch_and_scan_runs_over_time(make):
    cell = make(3, 5, rngs=nnx.Rngs(0))
    batch = jax.random.normal(jax.random.key(0), (4, 6, 3))
    outputs = jax.vmap(lambda xs: unroll(cell, xs)[1])(batch)
    np.testing.assert_allclose(outputs, jnp.stack([unroll(cell, xs)[1] for xs in batch]), atol=1e-6)
    jaxpr = jax.make_jaxpr(jax.vmap(lambda xs: unroll(cell, xs)[1]))(batch)
    scans = [equation for equation in jaxpr.eqns if equation.primitive.name == "scan"]
    assert [scan.params["length"] for scan in scans] == [6]


def test_a_state_carried_over_a_cut_changes_nothing():
    cell, xs = LSTMCell(3, 5, rngs=nnx.Rngs(0)), sequence(10)
    state, first = unroll(cell, xs[:4])
    _, second = unroll(cell, xs[4:], state)
    np.testing.assert_allclose(jnp.concatenate([first, second]), unroll(cell, xs)[1], atol=1e-6)


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


def test_a_lag_too_short_for_chrono_is_named():
    with pytest.raises(ValueError, match=r"at least 2, got 1"):
        chrono_bias(3, 1, jax.random.key(0))


@pytest.mark.parametrize("make", CELLS)
@settings(max_examples=5, deadline=None)
@given(real=st.integers(0, 5), padding=st.integers(0, 4), filler=st.sampled_from([0.0, 9.0, jnp.nan, jnp.inf]))
def test_padding_never_changes_a_final_state(make, real, padding, filler):
    cell, xs = make(3, 4, rngs=nnx.Rngs(0)), sequence(5)
    start = jax.tree.map(lambda array: array + 0.5, cell.initial_state())
    padded = jnp.concatenate([xs[:real], jnp.full((5 - real + padding, 3), filler)])
    state, outputs = unroll(cell, padded, start, length=real)
    expected = unroll(cell, xs[:real], start) if real else (start, jnp.zeros((0, 4)))
    for ours, theirs in zip(jax.tree.leaves(state), jax.tree.leaves(expected[0]), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)
    np.testing.assert_allclose(outputs[:real], expected[1], atol=1e-6)
    np.testing.assert_array_equal(outputs[real:], 0)


@pytest.mark.parametrize("make", CELLS)
def test_padding_never_changes_a_gradient(make):
    cell, xs = make(3, 4, rngs=nnx.Rngs(0)), sequence(5)

    def gradients(xs, length):
        def loss(cell, xs):
            return sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(unroll(cell, xs, length=length)))

        return nnx.grad(loss, argnums=(0, 1))(cell, xs)

    ours, ours_xs = gradients(jnp.concatenate([xs, jnp.full((3, 3), jnp.nan)]), 5)
    theirs, theirs_xs = gradients(xs, None)
    for left, right in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(left, right, atol=1e-5)
    np.testing.assert_allclose(ours_xs[:5], theirs_xs, atol=1e-5)
    np.testing.assert_array_equal(ours_xs[5:], 0)


@pytest.mark.parametrize("make", CELLS)
def test_a_batch_of_lengths_is_mapped_like_the_batch(make):
    cell, batch = make(3, 4, rngs=nnx.Rngs(0)), jax.random.normal(jax.random.key(0), (3, 6, 3))
    lengths = jnp.array([6, 0, 2])
    states = jax.jit(jax.vmap(lambda xs, length: unroll(cell, xs, length=length)[0]))(batch, lengths)
    wanted = [unroll(cell, batch[0])[0], cell.initial_state(), unroll(cell, batch[2, :2])[0]]
    for ours, theirs in zip(jax.tree.leaves(states), zip(*map(jax.tree.leaves, wanted), strict=True), strict=True):
        np.testing.assert_allclose(ours, jnp.stack(theirs), atol=1e-6)


def test_lengths_without_vmap_are_named():
    with pytest.raises(ValueError, match=r"length must be one number, got shape \(2,\)"):
        unroll(TanhCell(3, 5, rngs=nnx.Rngs(0)), sequence(), length=jnp.array([1, 2]))


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
        unroll(make(3, 5, rngs=nnx.Rngs(0)), jnp.zeros(shape))
    assert str(shape) in str(error.value)
