"""Work and span against counts made by hand."""

import math

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from whyattention.measure.cost import WorkSpan, work_and_span

VECTOR = jnp.ones(8)


def chain(carry, x):
    """Two dependent operations per element: an addition, then a tanh."""
    carry = jnp.tanh(carry + x)
    return carry, carry


def summed(xs, start=0.0):
    return lax.scan(chain, start, xs)[0]


# --- One primitive ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fn", "args", "work", "span"),
    [
        (lambda x: x + x, [VECTOR], 8, 1),
        (lambda x: jnp.tanh(jnp.exp(x)), [VECTOR], 16, 2),
        (lambda x: jnp.exp(x) + jnp.sin(x), [VECTOR], 24, 2),  # two branches side by side, then one sum
        (lambda x: x.reshape(2, 4).T[::-1], [VECTOR], 0, 0),
        (lambda x: x.astype(jnp.int32), [VECTOR], 0, 0),
        (lambda x: jnp.concatenate([x[2:], x[:2]]), [VECTOR], 0, 0),
        (jnp.sum, [VECTOR], 7, 3),
        (jnp.max, [jnp.ones(9)], 8, 4),
        (lambda x: jnp.sum(x, axis=0), [jnp.ones((4, 5))], 15, 2),
        (jnp.sum, [jnp.ones(1)], 0, 0),
        (jnp.argmax, [VECTOR], 7, 3),
        (lambda a, b: a @ b, [jnp.ones((2, 8)), jnp.ones((8, 3))], 2 * 2 * 8 * 3, 1 + 3),
        (jnp.outer, [jnp.ones(3), jnp.ones(4)], 12, 1),
        (jnp.matmul, [jnp.ones((5, 2, 8)), jnp.ones((5, 8, 3))], 5 * 96, 4),
        (lambda x: x @ x, [jnp.ones(0)], 0, 0),
        (lambda x: x + 1, [jnp.ones(0)], 0, 0),
        (lambda x: jnp.sum(jnp.tanh(x)[:0]) + 1, [VECTOR], 8 + 1, 1),  # the sum waits for no tanh
        # softmax: max (7), the guard against -inf (1), 8 subtractions, 8 exp, sum (7), 8 divisions
        (jax.nn.softmax, [VECTOR], 39, 3 + 1 + 1 + 1 + 3 + 1),
        (lambda x: jnp.where(x > 0, x, 0.0), [VECTOR], 16, 2),
        # one channel, 3 taps, valid: 6 results of 3 products
        (
            lambda x, w: lax.conv_general_dilated(x, w, (1,), "VALID"),
            [jnp.ones((1, 1, 8)), jnp.ones((1, 1, 3))],
            2 * 6 * 3,
            1 + 2,
        ),
        (lambda x, i: x.at[i].add(jnp.ones(3), mode="drop"), [VECTOR, jnp.array([1, 2, 3])], None, None),
    ],
)
def test_a_primitive_costs_what_the_table_says(fn, args, work, span):
    counted = work_and_span(fn, *args)
    if work is None:  # adding into cells: indices are prepared in ways that differ between versions of JAX
        assert counted.work >= 3 and counted.span >= math.ceil(math.log2(3 + 1))
    else:
        assert counted == WorkSpan(work, span)


def test_shapes_are_enough():
    shape = jax.ShapeDtypeStruct((1000, 1000), jnp.float32)
    assert work_and_span(jnp.matmul, shape, shape) == WorkSpan(2 * 10**9, 1 + 10)


def test_what_no_output_needs_is_not_counted():
    def wasteful(x):
        _ = jnp.sin(x) * 3
        return x + 1

    assert work_and_span(wasteful, VECTOR) == WorkSpan(8, 1)


def test_parallelism_is_work_per_dependent_operation():
    assert work_and_span(lambda x: jnp.exp(x) * 2, VECTOR).parallelism == 8
    assert math.isnan(work_and_span(lambda x: x[0], VECTOR).parallelism)


# --- Scan ------------------------------------------------------------------------------------


def test_a_recurrence_is_a_chain():
    assert work_and_span(summed, VECTOR) == WorkSpan(16, 16)


def test_a_batch_multiplies_the_work_and_leaves_the_span():
    assert work_and_span(jax.vmap(summed), jnp.ones((5, 8))) == WorkSpan(5 * 16, 16)


@pytest.mark.parametrize("reverse", [False, True])
def test_turns_that_do_not_need_each_other_have_the_span_of_one(reverse):
    def independent(xs):
        return lax.scan(lambda carry, x: (carry, jnp.sin(x * 2)), 0.0, xs, reverse=reverse)

    assert work_and_span(independent, VECTOR) == WorkSpan(16, 2)


def test_only_what_is_on_the_carry_is_repeated_in_the_span():
    def scan(xs):
        # Before the carry: exp. On it: +. After it: tanh, sin. Chain: exp, 8 additions, tanh, sin.
        def body(carry, x):
            carry = carry + jnp.exp(x)
            return carry, jnp.sin(jnp.tanh(carry))

        return lax.scan(body, 0.0, xs)

    assert work_and_span(scan, VECTOR) == WorkSpan(8 * 4, 1 + 8 + 2)


def test_carries_that_take_turns():
    def swap(carry, _):
        slow, fast = carry
        return (jnp.tanh(jnp.tanh(jnp.tanh(fast))), slow + 1), None

    def scan(a, b):
        return lax.scan(swap, (a, b), None, length=4)[0]

    # Each value passes through 3 tanh, then 1 addition, and so on.
    assert work_and_span(scan, 0.0, 0.0) == WorkSpan(16, 3 + 1 + 3 + 1)
    assert work_and_span(lambda a, b: lax.scan(swap, (a, b), None, length=5)[0], 0.0, 0.0).span == 11


def test_an_empty_scan_costs_nothing():
    assert work_and_span(lambda xs: lax.scan(chain, 0.0, xs), jnp.ones(0)) == WorkSpan(0, 0)
    # ... and hands its start on: the tanh is still there.
    assert work_and_span(lambda xs, x: lax.scan(chain, jnp.tanh(x), xs), jnp.ones(0), 1.0) == WorkSpan(1, 1)


def test_scans_in_scans():
    def rows(carry, row):
        return summed(row, carry), None

    assert work_and_span(lambda xs: lax.scan(rows, 0.0, xs)[0], jnp.ones((3, 4))) == WorkSpan(24, 24)


def test_unrolling_the_loop_in_the_compiler_changes_no_count():
    assert work_and_span(lambda xs: lax.scan(chain, 0.0, xs, unroll=4)[0], VECTOR) == WorkSpan(16, 16)


def test_a_long_scan_is_counted_at_once():
    xs = jax.ShapeDtypeStruct((10**9,), jnp.float32)
    assert work_and_span(summed, xs) == WorkSpan(2 * 10**9, 2 * 10**9)


def test_the_backward_pass_of_a_recurrence_is_a_second_chain():
    """Forward: 2 per turn. Backward: at least the product with tanh', at most what JAX 0.7 traced."""
    spans = [work_and_span(jax.grad(summed), jnp.ones(length)).span for length in (8, 16, 32)]
    per_turn = (spans[1] - spans[0]) / 8
    assert per_turn == (spans[2] - spans[1]) / 16
    assert 2 + 1 <= per_turn <= 2 + 3


def test_the_backward_pass_of_a_product_is_two_products():
    def loss(w, x):
        return jnp.sum(x @ w)

    forward, backward = jnp.ones((8, 8)), jnp.ones((4, 8))
    both = work_and_span(jax.grad(loss, argnums=(0, 1)), forward, backward)
    assert both.work == 2 * (2 * 4 * 8 * 8)  # of the ones that come down with the transposes
    assert both.span == 1 + 3  # contracted over 8; the other over 4


@st.composite
def bodies(draw):
    """A random loop body on two carries and one input: each new value is an operation on earlier ones."""
    steps = draw(
        st.lists(
            st.tuples(st.sampled_from(["add", "tanh", "dot"]), st.integers(0, 99), st.integers(0, 99)),
            min_size=1,
            max_size=5,
        )
    )
    picks = draw(st.tuples(st.integers(0, 99), st.integers(0, 99), st.integers(0, 99)))

    def body(carry, x):
        values = [*carry, x]
        for name, first, second in steps:
            a, b = values[first % len(values)], values[second % len(values)]
            values.append(
                {"add": lambda a, b: a + b, "tanh": lambda a, b: jnp.tanh(a), "dot": lambda a, b: jnp.dot(a, b) * a}[
                    name
                ](a, b)
            )
        first, second, out = (values[pick % len(values)] for pick in picks)
        return (first, second), out

    return body


@settings(max_examples=40)
@given(body=bodies(), length=st.integers(0, 6), reverse=st.booleans())
def test_a_scan_costs_what_the_python_loop_costs(body, length, reverse):
    def scanned(carry, *rows):
        xs = jnp.stack(rows) if rows else jnp.ones((0, 3))
        return lax.scan(body, carry, xs, reverse=reverse)

    def looped(carry, *rows):
        carries, ys = [carry], [None] * len(rows)
        for t in reversed(range(len(rows))) if reverse else range(len(rows)):
            carry, ys[t] = body(carries[-1], rows[t])
            carries.append(carry)  # all are handed out, since a loop that drops one need not compute it
        return carries, jnp.stack(ys) if ys else None

    rows = [jnp.ones(3)] * length
    carry = (jnp.ones(3), jnp.ones(3))
    assert work_and_span(scanned, carry, *rows) == work_and_span(looped, carry, *rows)


@pytest.mark.parametrize("length", [1, 5])
def test_a_recurrent_layer_costs_what_its_python_loop_costs(length):
    def body(state, x):
        state = jnp.tanh(weights @ state + x)
        return state, state

    weights = jnp.ones((16, 16))
    rows = [jnp.ones(16)] * length

    def looped(state, *rows):
        outputs = []
        for x in rows:
            state, y = body(state, x)
            outputs.append(y)
        return state, jnp.stack(outputs)

    scanned = work_and_span(lambda state, *rows: lax.scan(body, state, jnp.stack(rows)), jnp.ones(16), *rows)
    assert scanned == work_and_span(looped, jnp.ones(16), *rows)
    # per turn: 16 × 16 products and sums, 16 additions, 16 tanh; a tree over 16, an addition, a tanh
    assert scanned == WorkSpan(length * (2 * 16 * 16 + 32), length * (1 + 4 + 2))


# --- Trees -----------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [2, 8, 64, 1000])
def test_an_associative_scan_has_logarithmic_span_and_linear_work(length):
    cost = work_and_span(lambda x: lax.associative_scan(jnp.add, x), jnp.ones(length))
    # up the tree once, down once, and one addition per level to interleave the two halves
    assert math.log2(length) <= cost.span <= 3 * math.log2(length)
    assert length - 1 <= cost.work <= 4 * length


def test_an_associative_scan_of_two():
    assert work_and_span(lambda x: lax.associative_scan(jnp.add, x), jnp.ones(2)).span <= 2


def test_a_cumulative_sum_is_an_associative_scan():
    assert work_and_span(jnp.cumsum, VECTOR) == work_and_span(lambda x: lax.associative_scan(jnp.add, x), VECTOR)


def test_an_attention_layer_has_logarithmic_span():
    def attention(x):
        scores = x @ x.T
        return jax.nn.softmax(scores) @ x

    spans = [work_and_span(attention, jnp.ones((n, 16))).span for n in (64, 128, 256)]
    # max, sum and the mix are trees over the n positions: one level each per doubling
    assert spans[1] - spans[0] == spans[2] - spans[1] == 3


# --- Branches, calls, loops of known length --------------------------------------------------


def test_of_a_branch_the_dearer_side_counts_and_waits_for_its_index():
    def branch(x):
        return lax.cond(x[0] > 0, lambda x: jnp.sin(jnp.sin(x)), lambda x: x * 2, x)

    # compare (1), then two sines of 8. An index becomes an integer without arithmetic.
    assert work_and_span(branch, VECTOR) == WorkSpan(1 + 16, 1 + 2)


def sines_or_double(take, x):
    return lax.cond(take, lambda x: jnp.sin(jnp.sin(x)), lambda x: x * 2, x)


def test_the_gradient_of_a_branch():
    def backward(x, g):
        return jax.vjp(lambda x: sines_or_double(x[0] > 0, x), x)[1](g)[0]

    # compare, then sin, cos and cos of it, and two products on the way back
    assert work_and_span(backward, VECTOR, VECTOR) == WorkSpan(1 + 5 * 8, 1 + 2 + 2)


def test_the_gradient_of_a_scan_of_branches_is_that_of_the_python_loop():
    def body(carry, x):
        return sines_or_double(x > 0, carry), None

    def looped(carry, xs):
        for t in range(5):
            carry, _ = body(carry, xs[t])
        return carry

    def scanned(carry, xs):
        return lax.scan(body, carry, xs)[0]

    xs = jnp.ones(5)
    assert work_and_span(jax.value_and_grad(scanned), 1.0, xs) == work_and_span(jax.value_and_grad(looped), 1.0, xs)


@pytest.mark.parametrize("wrap", [jax.jit, jax.checkpoint, lambda f: jax.jit(jax.jit(f))])
def test_calls_cost_what_is_in_them(wrap):
    assert work_and_span(wrap(summed), VECTOR) == WorkSpan(16, 16)


def test_custom_derivatives_are_followed():
    @jax.custom_vjp
    def double(x):
        return x * 2

    double.defvjp(lambda x: (x * 2, None), lambda _, g: (jnp.tanh(jnp.tanh(jnp.tanh(g))),))
    assert work_and_span(double, VECTOR) == WorkSpan(8, 1)
    backward = work_and_span(lambda x, g: jax.vjp(double, x)[1](g)[0], VECTOR, VECTOR)
    assert backward == WorkSpan(24, 3)
    assert work_and_span(jax.nn.relu, VECTOR) == WorkSpan(8, 1)  # a custom_jvp


def test_rematerialisation_is_paid_for():
    def layer(x):
        return jnp.sin(jnp.sin(x))

    plain = work_and_span(jax.grad(lambda x: jnp.sum(layer(x) ** 2)), VECTOR)
    remat = work_and_span(jax.grad(lambda x: jnp.sum(jax.checkpoint(layer)(x) ** 2)), VECTOR)
    assert remat.work > plain.work


def test_a_while_loop_of_known_length():
    def loop(x):
        return lax.while_loop(lambda s: s[0] < 5, lambda s: (s[0] + 1, s[1] * 2), (0, x))[1]

    # 5 turns of compare, count, double, and the comparison that ends it; each turn waits for its
    # comparison, which waits for the count.
    assert work_and_span(loop, VECTOR) == WorkSpan(5 * (1 + 1 + 8) + 1, 5 * 2 + 1)


def test_a_loop_bound_is_found_through_calls_and_arithmetic():
    @jax.jit
    def power(n, x):
        return lax.fori_loop(0, jnp.minimum(n, 7), lambda _, x: x * 2, x)

    assert work_and_span(lambda x: power(5, x), VECTOR).work == 5 * 10 + 1 + 1
    assert work_and_span(lambda x: power(50, x), VECTOR).work == 7 * 10 + 1 + 1


def test_a_loop_of_unknown_length_is_refused():
    with pytest.raises(ValueError, match="number of iterations depends on the values of its arguments"):
        work_and_span(lambda n, x: lax.fori_loop(0, n, lambda _, x: x * 2, x), 3, VECTOR)
    with pytest.raises(ValueError, match="number of iterations"):
        work_and_span(lambda x: lax.while_loop(lambda x: jnp.sum(x) < 9, lambda x: x * 2, x), VECTOR)


def test_an_unknown_primitive_is_refused_by_name():
    with pytest.raises(ValueError, match="no count for the primitive 'sort'"):
        work_and_span(jnp.sort, VECTOR)


def test_a_scatter_with_a_function_is_refused():
    assert work_and_span(lambda x: x.at[0].set(1.0), VECTOR) == WorkSpan(0, 0)
    with pytest.raises(ValueError, match="scatter with a function"):
        work_and_span(lambda x: x.at[0].apply(jnp.exp), VECTOR)
