"""Products of Jacobians: equal to direct ones where those fit, right where they do not, and true to the theory."""

import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from drawn import model_like, normal
from flax import nnx
from jax.flatten_util import ravel_pytree

from whyattention.measure.gradients import (
    decay_rate,
    gradient_by_position,
    jacobian_log_norms,
    largest_singular_value,
    rms_singular_value,
    spectral_radius,
    tanh_slope,
)
from whyattention.recurrent import LSTMCell, TanhCell, unroll

log_norms_of = nnx.jit(jacobian_log_norms, static_argnames="part")
log_gradients_of = nnx.jit(gradient_by_position, static_argnums=1)


def tanh_cell(hidden=4, recurrent_scale=0.5):
    """A cell whose recurrent weights have a standard deviation of `recurrent_scale`."""
    cell = model_like(lambda rngs: TanhCell(3, hidden, rngs=rngs))
    cell.recurrent_kernel[...] *= recurrent_scale / 0.5
    return cell


def cell_with(recurrent_kernel):
    """A cell with these recurrent weights and no bias: without input its state stays at zero."""
    cell = tanh_cell(len(recurrent_kernel))
    cell.bias[...] *= 0
    cell.recurrent_kernel[...] = jnp.asarray(recurrent_kernel, dtype=jnp.float32)
    return cell


def inputs(time, scale=1.0, seed=0):
    return normal(time, 3, scale=scale, seed=seed)


def direct_tanh_log_norms(cell, xs):
    """The same in NumPy float64: W_h and diag(tanh') multiplied as they stand."""
    kernel = np.asarray(cell.recurrent_kernel[...], dtype=np.float64)
    currents = np.asarray(cell.project(xs), dtype=np.float64)
    hidden, factors = np.zeros(len(kernel)), []
    for current in currents:
        hidden = np.tanh(current + hidden @ kernel)
        factors.append((1 - hidden**2)[:, None] * kernel.T)
    product, norms = np.eye(len(kernel)), []
    for factor in reversed(factors):
        product = product @ factor
        norms.append(np.log(np.linalg.norm(product, ord=2)))
    return np.array(norms)


@pytest.mark.parametrize("scale", [0.5, 1.0, 2.0])
def test_tanh_cell_equals_a_direct_product_in_float64(scale):
    cell, xs = tanh_cell(8, scale / 8**0.5), inputs(40)
    np.testing.assert_allclose(log_norms_of(cell, xs), direct_tanh_log_norms(cell, xs), rtol=1e-4, atol=1e-4)


@pytest.fixture(scope="module")
def stretches():
    """An LSTM, six inputs, and the Jacobian of the last state by the state at each lag, over the whole stretch."""
    cell, xs = model_like(lambda rngs: LSTMCell(3, 4, rngs=rngs)), inputs(6)
    flat, restore = ravel_pytree(cell.initial_state())

    def go(flat, xs):
        for x in xs:
            flat = ravel_pytree(cell(restore(flat), x)[0])[0]
        return flat

    def jacobians():
        return [jax.jacobian(go)(go(flat, xs[:start]), xs[start:]) for start in reversed(range(len(xs)))]

    return cell, xs, jax.jit(jacobians)()


@pytest.mark.parametrize(
    ("part", "chosen"),
    [(lambda state: state, slice(8)), (lambda state: state[0], slice(4)), (lambda state: state[1], slice(4, 8))],
)
def test_lstm_equals_the_jacobian_of_the_whole_stretch(part, chosen, stretches):
    cell, xs, jacobians = stretches
    expected = [np.log(np.linalg.norm(jacobian[chosen, chosen], ord=2)) for jacobian in jacobians]
    np.testing.assert_allclose(log_norms_of(cell, xs, part=part), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("scale", [1e-20, 1e-3, 0.9, 1.0, 1.1, 1e3, 1e19])
def test_without_input_an_orthogonal_matrix_gives_its_scale_at_every_lag(scale):
    """The state stays at 0, tanh' is 1; 200 factors of 1e-3 or 1e3 are far outside float32, one of 1e19 squared is."""
    orthogonal, _ = np.linalg.qr(normal(16, 16))
    log_norms = log_norms_of(cell_with(scale * orthogonal), jnp.zeros((200, 3)))
    np.testing.assert_allclose(log_norms, np.arange(1, 201) * np.log(scale), rtol=1e-4, atol=1e-4)


def test_a_nilpotent_matrix_forgets_exactly():
    """Its product grows and then is zero after n steps: -inf, and never NaN."""
    log_norms = np.asarray(log_norms_of(cell_with(3.0 * np.eye(4, k=1)), jnp.zeros((6, 3))))
    np.testing.assert_allclose(log_norms[:3], np.arange(1, 4) * np.log(3), rtol=1e-5)
    assert (log_norms[3:] == -np.inf).all()


def test_a_start_other_than_zero_counts():
    """From a saturated state, tanh(2) in every unit, the one Jacobian is tanh'(2) times the identity."""
    log_norms = log_norms_of(cell_with(np.eye(4)), jnp.zeros((1, 3)), jnp.full(4, 2.0))
    np.testing.assert_allclose(log_norms, jnp.log(tanh_slope(jnp.tanh(2.0))), rtol=1e-5)


@pytest.mark.parametrize("scale", [0.5, 0.9, 1.3])
def test_no_gradient_exceeds_the_bound_of_pascanu(scale):
    """|d h_T / d h_{T-k}| <= sigma_max^k, since tanh' is never above 1 (Pascanu et al. 2013, section 2.1)."""
    cell = tanh_cell(16, scale / 4)
    bound = np.arange(1, 61) * np.log(largest_singular_value(cell.recurrent_kernel[...]))
    assert (log_norms_of(cell, inputs(60)) <= bound + 1e-4).all()


def test_it_runs_under_jit_and_vmap():
    cell, batch = tanh_cell(), np.stack([inputs(6, seed=seed) for seed in range(3)])
    together = jax.jit(jax.vmap(partial(jacobian_log_norms, cell)))(batch)
    alone = np.stack([log_norms_of(cell, xs) for xs in batch])
    np.testing.assert_allclose(together, alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("make", [TanhCell, LSTMCell])
def test_gradient_by_position_equals_autodiff(make):
    cell, xs = model_like(lambda rngs: make(3, 4, rngs=rngs)), inputs(12)

    def loss(y):
        return jnp.sum(jnp.sin(y) * jnp.arange(4))

    gradient = jax.jit(jax.grad(lambda xs: loss(unroll(cell, xs)[1][-1])))(xs)
    expected = np.log(np.linalg.norm(gradient, axis=-1))
    np.testing.assert_allclose(log_gradients_of(cell, loss, xs), expected, rtol=1e-4, atol=1e-4)


def test_gradient_by_position_goes_on_where_float32_ends():
    cell, xs = cell_with(0.5 * np.eye(4)), jnp.zeros((400, 3))
    log_norms = np.asarray(log_gradients_of(cell, jnp.sum, xs))
    gradient = jax.jit(jax.grad(lambda xs: jnp.sum(unroll(cell, xs)[1][-1])))(xs)
    assert jnp.linalg.norm(gradient[0]) == 0  # what the logarithm would have been taken of
    np.testing.assert_allclose(np.diff(log_norms), np.log(2), rtol=1e-3)


def tiny_sum(output):
    return 1e-15 * jnp.sum(output)


@pytest.mark.parametrize("scale", [1e-20, 1e19])
def test_gradient_by_position_where_one_square_leaves_float32(scale):
    cell, xs = cell_with(scale * np.eye(4)), jnp.zeros((400, 3))
    log_norms = np.asarray(log_gradients_of(cell, jnp.sum, xs))
    np.testing.assert_allclose(np.diff(log_norms), -np.log(scale), rtol=1e-3)
    small = log_gradients_of(cell, tiny_sum, xs)
    np.testing.assert_allclose(small, log_norms + np.log(1e-15), rtol=1e-4)


def test_a_saturated_unit_counts_as_zero():
    log_norms = log_norms_of(cell_with(np.eye(4)), jnp.zeros((1, 3)), jnp.full(4, 20.0))
    assert log_norms[0] == -np.inf


def test_a_gradient_of_a_single_step():
    cell, xs = tanh_cell(), inputs(1)
    assert log_gradients_of(cell, jnp.sum, xs).shape == log_norms_of(cell, xs).shape == (1,)


@pytest.mark.parametrize("shape", [(0, 3), (3,), (2, 4, 3), (5, 2)])
def test_bad_inputs_are_named(shape):
    cell, xs = tanh_cell(), jnp.zeros(shape)
    for instrument in (partial(jacobian_log_norms, cell), partial(gradient_by_position, cell, jnp.sum)):
        with pytest.raises(ValueError, match=re.escape(str(shape))):
            instrument(xs)


def test_decay_rate_is_the_slope_and_leaves_the_beginning_out():
    lags = np.arange(1, 51)
    line = 2.0 - 0.3 * lags
    bent = np.where(lags <= 10, 100.0, line)
    np.testing.assert_allclose(decay_rate(jnp.asarray(line)), -0.3, rtol=1e-5)
    np.testing.assert_allclose(decay_rate(jnp.asarray(bent)), -0.3, rtol=1e-5)
    np.testing.assert_allclose(decay_rate(jnp.asarray([line, 2 * line])), [-0.3, -0.6], rtol=1e-5)
    assert decay_rate(jnp.asarray(bent), first=1) != pytest.approx(-0.3, abs=0.1)


def test_the_decay_rate_of_a_gradient_that_is_zero():
    line = -0.3 * np.arange(1, 51)
    gone = np.where(np.arange(1, 51) > 40, -np.inf, line)
    np.testing.assert_allclose(decay_rate(jnp.asarray([line, gone])), [-0.3, -np.inf], rtol=1e-5)
    early = np.where(np.arange(1, 51) < 5, -np.inf, line)  # left out of the fit
    np.testing.assert_allclose(decay_rate(jnp.asarray(early)), -0.3, rtol=1e-5)


@pytest.mark.parametrize("first", [0, 5, 9])
def test_decay_rate_needs_two_lags(first):
    with pytest.raises(ValueError, match=f"lag {first} on"):
        decay_rate(jnp.zeros(5), first=first)


def test_sizes_of_a_matrix():
    shear = np.array([[0.5, 10.0], [0.0, 0.5]])
    assert spectral_radius(shear) == pytest.approx(0.5)
    assert spectral_radius(np.stack([shear, 2 * shear])) == pytest.approx([0.5, 1.0])
    assert largest_singular_value(jnp.asarray(shear)) == pytest.approx(np.linalg.norm(shear, 2), rel=1e-5)
    matrix = jnp.diag(jnp.array([1.0, 7.0]))
    assert rms_singular_value(matrix) == pytest.approx(5.0)
    assert rms_singular_value(jnp.stack([matrix, 2 * matrix])) == pytest.approx([5.0, 10.0])
    with pytest.raises(ValueError, match=r"square matrix, got shape \(2, 3\)"):
        rms_singular_value(jnp.ones((2, 3)))
    np.testing.assert_allclose(tanh_slope(jnp.tanh(0.7)), jax.grad(jnp.tanh)(0.7), rtol=1e-5)


def test_changing_the_first_input_changes_the_last_state_and_gradients_reach_it():
    cell, xs = tanh_cell(), inputs(30, scale=0.1)
    last_state = jax.jit(jax.value_and_grad(lambda xs: unroll(cell, xs)[0].sum()))
    (before, gradient), (after, _) = last_state(xs), last_state(xs.at[0].add(1.0))
    assert abs(before - after) > 1e-6
    assert jnp.linalg.norm(gradient[0]) > 0


def test_clipping_changes_the_update():
    """An exploding gradient, clipped by its global norm, keeps its direction and moves the parameters less."""
    graphdef, params = nnx.split(cell_with(2.0 * np.eye(4)), nnx.Param)
    xs = inputs(40, scale=1e-10)
    gradient = jax.jit(jax.grad(lambda params: unroll(nnx.merge(graphdef, params), xs)[0].sum()))(params)

    def update(optimizer):
        return jax.jit(lambda params: optimizer.update(gradient, optimizer.init(params), params)[0])(params)

    plain = update(optax.sgd(1.0))
    clipped = update(optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(1.0)))
    length, clipped_length = (jnp.linalg.norm(ravel_pytree(change)[0]) for change in (plain, clipped))
    assert length > 10
    assert clipped_length == pytest.approx(1.0, rel=1e-5)
    for before, after in zip(jax.tree.leaves(plain), jax.tree.leaves(clipped), strict=True):
        np.testing.assert_allclose(after * length, before, rtol=1e-4, atol=1e-5)
