"""Recurrences in parallel: equal to the sequential ones, logarithmic in span, and honest about where they end."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from drawn import model_like, normal
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st

from whyattention.parallel import (
    DiagonalLinearRecurrence,
    LinearAttention,
    MatrixRecurrence,
    MinGRU,
    combine,
    combine_logs,
    combine_matrices,
    linear_recurrence,
    log_recurrence,
    newton_unroll,
    newton_update,
    parallel_unroll,
    sequential_recurrence,
)
from whyattention.recurrent import GRUCell, LSTMCell, TanhCell, unroll
from whyattention.tasks.state_tracking import PermutationWords

LINEAR = {
    "MinGRU": lambda rngs: MinGRU(3, 4, rngs=rngs),
    "signed MinGRU": lambda rngs: MinGRU(3, 4, rngs=rngs, signed=True),
    "DiagonalLinearRecurrence": lambda rngs: DiagonalLinearRecurrence(3, 4, rngs=rngs),
    "LinearAttention": lambda rngs: LinearAttention(3, 4, key_features=2, rngs=rngs),
    "MatrixRecurrence": lambda rngs: MatrixRecurrence(3, 2, rngs=rngs),
}
NONLINEAR = [TanhCell, GRUCell, LSTMCell]


@pytest.fixture(params=LINEAR, name="cell")
def linear_cell(request):
    return model_like(LINEAR[request.param])


def nonlinear_cell(make, scale=0.3):
    return model_like(lambda rngs: make(3, 4, rngs=rngs), scale=scale)


def assert_close(ours, theirs, atol=1e-5):
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    for left, right in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(left, right, atol=atol, rtol=1e-5)


def gates(*shape, seed=0):
    """Numbers in (0, 1), as a gate gives them."""
    return jax.nn.sigmoid(normal(*shape, seed=seed, scale=2))


# --- Linear recurrences -----------------------------------------------------------------------------


@pytest.mark.parametrize("join", [combine, combine_logs])
@settings(max_examples=20)
@given(numbers=st.lists(st.floats(-3, 3), min_size=6, max_size=6))
def test_maps_are_joined_in_any_grouping(join, numbers):
    first, second, third = (tuple(map(jnp.float32, numbers[i : i + 2])) for i in (0, 2, 4))
    assert_close(join(join(first, second), third), join(first, join(second, third)))


def test_joined_maps_are_the_maps_one_after_the_other():
    decays, drives, state = normal(2, 4), normal(2, 4, seed=1), normal(4, seed=2)
    decay, drive = combine((decays[0], drives[0]), (decays[1], drives[1]))
    np.testing.assert_allclose(
        decay * state + drive, decays[1] * (decays[0] * state + drives[0]) + drives[1], rtol=1e-5
    )
    matrices = normal(2, 4, 4)
    matrix, drive = combine_matrices((matrices[0], drives[0]), (matrices[1], drives[1]))
    expected = matrices[1] @ (matrices[0] @ state + drives[0]) + drives[1]
    np.testing.assert_allclose(matrix @ state + drive, expected, atol=1e-5)


@pytest.mark.parametrize("length", [1, 2, 7, 16_384])
def test_the_scan_over_pairs_is_the_scan_over_steps(length):
    decay, drive, initial = gates(length, 2), normal(length, 2, seed=1), normal(2, seed=2)
    expected = jax.jit(sequential_recurrence)(decay, drive, initial)
    np.testing.assert_allclose(jax.jit(linear_recurrence)(decay, drive, initial), expected, atol=1e-5)


def test_the_first_state_defaults_to_zero():
    decay, drive = gates(5, 2), normal(5, 2)
    for recurrence in map(jax.jit, (linear_recurrence, sequential_recurrence)):
        np.testing.assert_array_equal(recurrence(decay, drive)[0], drive[0])
        np.testing.assert_array_equal(recurrence(decay, drive), recurrence(decay, drive, jnp.zeros(2)))


def test_complex_decays_turn():
    decay = jnp.full((8, 1), 1j)
    turned = jax.jit(linear_recurrence)(decay, jnp.zeros((8, 1)), jnp.ones(1))[:, 0]
    np.testing.assert_allclose(turned, 1j ** np.arange(1, 9), atol=1e-6)


def test_the_gradients_are_those_of_the_sequence():
    arrays = gates(9, 2), normal(9, 2, seed=1), normal(2, seed=2)
    ours, theirs = (
        jax.jit(jax.grad(lambda *arrays, f=f: jnp.sum(f(*arrays) ** 2), argnums=(0, 1, 2)))(*arrays)
        for f in (linear_recurrence, sequential_recurrence)
    )
    assert_close(ours, theirs)


@pytest.mark.parametrize("recurrence", [linear_recurrence, log_recurrence, sequential_recurrence])
@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        (((5, 2), (5, 3)), r"got shapes \(5, 2\) and \(5, 3\)"),
        (((), ()), r"\[time, features\]"),
        (((0, 2), (0, 2)), r"at least one time step, got shape \(0, 2\)"),
        (((5, 2), (5, 2), (3,)), r"the shape of one step, \(2,\), got \(3,\)"),
    ],
)
def test_shapes_that_do_not_fit_are_named(recurrence, shapes, words):
    with pytest.raises(ValueError, match=words):
        recurrence(*map(jnp.zeros, shapes))


# --- In logarithms -------------------------------------------------------------------------------------


def test_logarithms_give_the_same_states():
    decay, drive, initial = gates(300, 2), jnp.exp(normal(300, 2, seed=1)), jnp.exp(normal(2, seed=2))
    logs = jax.jit(log_recurrence)(jnp.log(decay), jnp.log(drive), jnp.log(initial))
    np.testing.assert_allclose(jnp.exp(logs), sequential_recurrence(decay, drive, initial), rtol=1e-5)


def test_logarithms_go_on_where_products_leave_the_range_of_a_float():
    log_decay = jnp.concatenate([jnp.full(50, 5.0), jnp.full(50, -5.0)])[:, None]  # up to exp(250), and down again
    log_drive = jnp.full((100, 1), -jnp.inf).at[0].set(0.0)  # a drive of 0 but for the first step
    plain = jax.jit(linear_recurrence)(jnp.exp(log_decay), jnp.exp(log_drive))
    assert not jnp.isfinite(plain[60])
    logs = jax.jit(log_recurrence)(log_decay, log_drive)
    np.testing.assert_allclose(logs[:, 0], jnp.cumsum(log_decay[:, 0]) - 5, rtol=1e-6)


def test_plain_products_may_underflow():
    decay, drive = jnp.full((60, 1), 1e-3), normal(60, 1)
    ours, theirs = (jax.jit(run)(decay, drive) for run in (linear_recurrence, sequential_recurrence))
    np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_logarithms_keep_their_digits_over_thousands_of_steps():
    log_decay, log_drive = jnp.log(gates(16_384, 1)), normal(16_384, 1, seed=1)
    expected = jax.jit(sequential_recurrence)(jnp.exp(log_decay), jnp.exp(log_drive))
    np.testing.assert_allclose(jnp.exp(jax.jit(log_recurrence)(log_decay, log_drive)), expected, rtol=1e-5)


# --- Cells ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("length", "start"), [(1, None), (6, 0.5)])
def test_in_parallel_a_cell_gives_what_it_gives_step_by_step(cell, length, start):
    xs, state = normal(length, 3), None if start is None else cell.initial_state() + start
    assert_close(*(nnx.jit(run)(cell, xs, state) for run in (parallel_unroll, unroll)))


def test_gradients_are_the_same_and_reach_every_parameter(cell):
    def loss(run):
        return nnx.jit(nnx.grad(lambda cell, xs: jnp.sum(run(cell, xs)[1] ** 2), argnums=(0, 1)))

    xs = normal(5, 3)
    ours, theirs = (loss(run)(cell, xs) for run in (parallel_unroll, unroll))
    assert_close(ours, theirs, atol=1e-4)
    assert all(jnp.any(gradient != 0) for gradient in jax.tree.leaves(ours))


def test_a_later_input_changes_nothing_before_it(cell):
    run, xs = nnx.jit(lambda cell, xs: parallel_unroll(cell, xs)[1]), normal(4, 3)
    before, after = run(cell, xs), run(cell, xs.at[2].add(1.0))
    np.testing.assert_allclose(before[:2], after[:2], atol=1e-6)
    assert not jnp.allclose(before[2:], after[2:])


def test_vmap_makes_a_batch(cell):
    batch = normal(2, 4, 3)
    outputs = jax.jit(jax.vmap(lambda xs: parallel_unroll(cell, xs)[1]))(batch)
    np.testing.assert_allclose(outputs[1], unroll(cell, batch[1])[1], atol=1e-5)


def test_cells_keep_to_their_contract(cell):
    x = normal(3)
    state, output = cell(cell.initial_state(), x)
    assert_close((state, output), cell.step(cell.initial_state(), cell.project(x)))
    assert state.shape == cell.initial_state().shape and state.dtype == cell.initial_state().dtype
    assert output.shape == (cell.hidden_size,) and output.dtype == jnp.float32


def test_min_gru_forgets_by_its_gate():
    cell = MinGRU(1, 1, rngs=nnx.Rngs(0))
    cell.kernel[...], cell.bias[...] = jnp.array([[0.0, 1.0]]), jnp.array([jnp.log(3.0), 2.0])
    state, _ = cell(jnp.array([8.0]), jnp.array([4.0]))
    np.testing.assert_allclose(state, 0.25 * 8 + 0.75 * (4 + 2), rtol=1e-6)


def test_a_signed_gate_turns_a_unit_over():
    cell = MinGRU(1, 1, rngs=nnx.Rngs(0), signed=True)
    cell.kernel[...] = jnp.array([[40.0, 0.0]])
    cell.bias[...] = jnp.array([-20.0, 0.0])  # 0 keeps the state, 1 turns it over
    bits = jnp.array([1.0, 0, 0, 1, 1, 0, 1])
    states, _ = jax.lax.scan(lambda state, x: (cell(state, x)[0],) * 2, jnp.ones(1), bits[:, None])
    _, outputs = nnx.jit(parallel_unroll)(cell, bits[:, None], jnp.ones(1))
    np.testing.assert_allclose(outputs[:, 0], (-1.0) ** np.cumsum(bits), atol=1e-6)
    np.testing.assert_allclose(states, outputs[-1], atol=1e-6)


def test_decays_of_the_diagonal_recurrence_lie_in_their_ring():
    cell = DiagonalLinearRecurrence(2, 500, rngs=nnx.Rngs(0), smallest=0.8, largest=0.9)
    radius = jnp.abs(cell.decay())
    assert 0.8 <= radius.min() < 0.81 and 0.89 < radius.max() < 0.9001


def test_the_diagonal_recurrence_keeps_its_size():
    cell = DiagonalLinearRecurrence(8, 32, rngs=nnx.Rngs(0), smallest=0.95, largest=0.99)
    states = jax.jit(sequential_recurrence)(*cell.coefficients(cell.project(normal(600, 8))))
    np.testing.assert_allclose(jnp.mean(jnp.abs(states[300:]) ** 2), 2, rtol=0.25)  # 1 in each part, as at the input


@pytest.mark.parametrize(("smallest", "largest"), [(0.5, 1.0), (-0.1, 0.5)])
def test_a_ring_that_is_none_is_named(smallest, largest):
    with pytest.raises(ValueError, match=f"got {smallest} and {largest}"):
        DiagonalLinearRecurrence(2, 2, rngs=nnx.Rngs(0), smallest=smallest, largest=largest)


def test_matrices_follow_permutations():
    """With the matrices of the six permutations of three things, it is told where any word of them leads."""
    task = PermutationWords(objects=3, length=20, batch_size=1)
    moves, answers = (tokens[0] for tokens in task.sample(jax.random.key(0)))
    places = jnp.array(list(itertools.permutations(range(3))))
    # places[i, j] says what moves to place j, so the things' row vector is multiplied from the left by rows of I
    matrices = jnp.eye(3)[places]
    cell = MatrixRecurrence(6, 3, rngs=nnx.Rngs(0))
    cell.kernel[...] = (matrices - jnp.eye(3)).reshape(6, 9)
    outputs = parallel_unroll(cell, jnp.eye(6)[moves])[1].reshape(20, 3, 3)
    np.testing.assert_allclose(outputs, matrices[answers], atol=1e-5)


@pytest.mark.parametrize("size", [0, -2])
def test_a_matrix_of_no_size_is_named(size):
    with pytest.raises(ValueError, match=f"hidden_size={size}"):
        MatrixRecurrence(2, size, rngs=nnx.Rngs(0))


def test_linear_attention_is_a_weighted_mean_of_what_stood_before():
    cell, xs = model_like(LINEAR["LinearAttention"]), normal(4, 3)
    query, key, value = jnp.split(cell.project(xs), [2, 4], axis=-1)
    scores = (jax.nn.elu(query) + 1) @ (jax.nn.elu(key) + 1).T * jnp.tril(jnp.ones((4, 4)))
    expected = scores / scores.sum(axis=1, keepdims=True) @ value
    np.testing.assert_allclose(nnx.jit(parallel_unroll)(cell, xs)[1], expected, atol=1e-5)


@pytest.mark.parametrize("sizes", [{"in_features": 0}, {"hidden_size": 0}, {"key_features": 0}])
def test_sizes_below_one_are_named(sizes):
    with pytest.raises(ValueError, match="at least 1, got"):
        LinearAttention(**{"in_features": 3, "hidden_size": 4, "key_features": 2} | sizes, rngs=nnx.Rngs(0))


@pytest.mark.parametrize("run", [parallel_unroll, newton_unroll])
@pytest.mark.parametrize(
    ("shape", "words"), [((7, 4), "expects 3 features"), ((0, 3), "at least one time step"), ((2, 7, 3), "jax.vmap")]
)
def test_wrong_inputs_are_named(run, shape, words):
    with pytest.raises(ValueError, match=words):
        run(model_like(LINEAR["MinGRU"]), jnp.zeros(shape))


def test_a_wrong_state_is_named(cell):
    with pytest.raises(ValueError, match="the cell's state has shape"):
        parallel_unroll(cell, jnp.zeros((7, 3)), jnp.zeros(9))


def test_a_cell_that_is_not_linear_is_refused():
    with pytest.raises(ValueError, match="got GRUCell; for any other there is newton_unroll"):
        parallel_unroll(nonlinear_cell(GRUCell), jnp.zeros((7, 3)))


# --- Newton's method ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", NONLINEAR)
def test_newton_finds_the_states_of_the_scan(make):
    cell, xs = nonlinear_cell(make), normal(12, 3)
    start = jax.tree.map(lambda leaf: leaf + 0.5, cell.initial_state())
    run = nnx.jit(newton_unroll)(cell, xs, start)
    state, outputs = unroll(cell, xs, start)
    assert_close(jax.tree.map(lambda leaf: leaf[-1], run.states), state)
    np.testing.assert_allclose(run.outputs, outputs, atol=1e-5)
    assert 1 <= run.iterations <= 8
    assert run.residuals[run.iterations] <= 1e-5 < run.residuals[run.iterations - 1]
    assert jnp.all(jnp.isnan(run.residuals[run.iterations + 1 :]))


def test_newton_is_done_with_a_linear_cell_at_once():
    cell, xs = model_like(LINEAR["MinGRU"]), normal(6, 3)
    run = nnx.jit(newton_unroll)(cell, xs)
    assert run.iterations == 1
    np.testing.assert_allclose(run.outputs, unroll(cell, xs)[1], atol=1e-5)


@pytest.mark.parametrize("make", [GRUCell, LSTMCell])
def test_gradients_through_newton_are_those_through_the_scan(make):
    def loss(run):
        return nnx.jit(nnx.grad(lambda *arguments: jnp.sum(run(*arguments) ** 2), argnums=(0, 1, 2)))

    cell, xs = nonlinear_cell(make), normal(5, 3)
    arguments = cell, xs, cell.initial_state()
    ours = loss(lambda *arguments: newton_unroll(*arguments, tolerance=1e-6).outputs)(*arguments)
    theirs = loss(lambda *arguments: unroll(*arguments)[1])(*arguments)
    assert_close(ours, theirs, atol=1e-4)


def test_k_iterations_make_k_states_right():
    cell, xs = nonlinear_cell(TanhCell, scale=1.5), normal(8, 3)
    inputs, expected = cell.project(xs), unroll(cell, xs)[1]
    guess = normal(8, 4, seed=3)
    update = jax.jit(lambda guess: newton_update(lambda h, x: cell.step(h, x)[0], jnp.zeros(4), inputs, guess)[0])
    for iteration in range(1, 9):
        guess = update(guess)
        np.testing.assert_allclose(guess[:iteration], expected[:iteration], atol=1e-4)


def test_a_guess_that_overflows_is_put_back_to_zero():
    update = jax.jit(lambda guess: newton_update(lambda h, x: h**2 + x, jnp.ones(1), jnp.ones(6), guess))
    better, residual = update(jnp.full((6, 1), 1e30))
    assert jnp.all(jnp.isfinite(better)) and not jnp.isfinite(residual)
    np.testing.assert_allclose(update(better)[0][0], 2)


def test_where_newton_does_not_converge_the_residual_says_so():
    cell, xs = nonlinear_cell(TanhCell, scale=4.0), normal(32, 3)
    run = nnx.jit(lambda cell, xs: newton_unroll(cell, xs, max_iterations=3))(cell, xs)
    assert run.iterations == 3 and run.residuals.shape == (4,)
    assert run.residuals[3] > 1e-2 and jnp.all(jnp.isfinite(run.outputs))


@pytest.mark.parametrize("limits", [{"tolerance": 0.0}, {"tolerance": float("nan")}, {"max_iterations": 0}])
def test_limits_that_are_none_are_named(limits):
    with pytest.raises(ValueError, match=f"got .*{next(iter(limits.values()))}"):
        newton_unroll(nonlinear_cell(GRUCell), normal(5, 3), **limits)
