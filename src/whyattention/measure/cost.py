"""Work and span of a JAX program: how much it computes, and how long its longest chain is.

Both are read from the jaxpr, so nothing is run and the counts are those of the program as JAX
traced it, forward or backward, before the compiler fuses anything.

The unit is one scalar arithmetic operation, of whatever dtype:

=========================  ==============================  =================================
operation                  work                            span
=========================  ==============================  =================================
elementwise (add, exp, …)  1 per element of the result     1
matrix product             2·m·n·k                         1 + ⌈log₂ k⌉ (products, then a tree)
convolution                2 per weight used, per result   1 + ⌈log₂ weights per result⌉
reduction over n           n - 1 per result                ⌈log₂ n⌉ (a tree)
cumulative sum, …          those of `associative_scan`     those of `associative_scan`
scatter-add of n windows   1 per element added             ⌈log₂(n + 1)⌉ (all may hit one cell)
moving or renaming data    0                               0
=========================  ==============================  =================================

Work is the time of one processor, span that of infinitely many (the `w` and `t` of Brent 1974).
Work over span, the parallelism, is the number of processors that could be busy on average.

Dependencies are followed from array to array: an operation waits for the whole of each of its
operands. A schedule that begins on the first rows of an array while its last rows are still
being computed (a wavefront through stacked recurrent layers, say) can therefore be shorter.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal, jaxpr_as_fun
from jax.interpreters.partial_eval import dce_jaxpr

ELEMENTWISE = frozenset(
    """abs acos acosh add add_any and asin asinh atan atan2 atanh cbrt ceil clamp clz conj cos cosh
    digamma div eq erf erf_inv erfc exp exp2 expm1 floor ge gt igamma igammac integer_pow is_finite
    le lgamma log log1p log2 logistic lt max min mul ne neg nextafter not or population_count pow rem
    round rsqrt select_n shift_left shift_right_arithmetic shift_right_logical sign sin sinh sqrt
    square sub tan tanh xor""".split()
)
MOVES_DATA = frozenset(
    """bitcast_convert_type broadcast_in_dim complex concatenate convert_element_type copy
    debug_callback debug_print device_put dynamic_slice dynamic_update_slice empty empty2 gather imag iota
    name optimization_barrier pad pvary real reduce_precision reshape rev scatter
    sharding_constraint slice split squeeze stack stop_gradient tile transpose unstack""".split()
)
REDUCTIONS = frozenset(
    "argmax argmin reduce_and reduce_max reduce_min reduce_or reduce_prod reduce_sum reduce_xor".split()
)
SCATTER_ARITHMETIC = frozenset("scatter-add scatter-max scatter-min scatter-mul scatter-sub".split())
# Programs within programs; of `eval_jaxpr` the newest JAX makes the transposed body of a checkpointed scan.
CALLS = frozenset("call closed_call custom_jvp_call custom_vjp_call eval_jaxpr jit remat2".split())
CUMULATIVE = {
    "cumsum": jax.lax.add,
    "cumprod": jax.lax.mul,
    "cummax": jax.lax.max,
    "cummin": jax.lax.min,
    "cumlogsumexp": jnp.logaddexp,
}
NO_PATH = -np.inf


@dataclass(frozen=True)
class WorkSpan:
    """What a program costs, in scalar operations (see the module for what one is).

    Attributes:
        work: all of them.
        span: those on the longest chain in which each waits for the one before.
    """

    work: int
    span: int

    @property
    def parallelism(self) -> float:
        """work / span: the processors that could be busy on average. NaN if nothing is computed."""
        return self.work / self.span if self.span else math.nan


def work_and_span(fn: Callable, *args) -> WorkSpan:
    """Count the work and the span of `fn(*args)`.

    Exact for `scan` (as if it were unrolled), `cond` (the dearer branch, begun when its index is
    known), nested calls (`jit`, `remat`, custom derivatives), `associative_scan`, `vmap` and
    `grad`. A `while_loop` counts if its number of iterations does not depend on the arguments.
    What no output needs is not counted: the compiler drops it as well.

    Args:
        fn: a function of arrays (pytrees of them). Bind anything else with a lambda.
        args: arrays, or `jax.ShapeDtypeStruct`s: only shapes and dtypes matter.

    Raises:
        ValueError: if the program has a loop of unknown length, or a primitive that has no count.

    >>> work_and_span(lambda a, b: a @ b, jnp.ones((2, 8)), jnp.ones((8, 3)))
    WorkSpan(work=96, span=4)
    """
    closed = jax.make_jaxpr(fn)(*args)
    live, _ = dce_jaxpr(closed.jaxpr, [True] * len(closed.jaxpr.outvars), instantiate=True)
    summary = _summarise(ClosedJaxpr(live, closed.consts), [None] * len(live.invars))
    return WorkSpan(summary.work, int(summary.paths.max(initial=0)))


# --- A program as a linear map --------------------------------------------------------------
#
# The longest chain that ends in an output is the maximum, over the inputs, of (chain that ends in
# that input) + (longest path from it to the output). With max for + and + for x this is a matrix
# times a vector, so a program is a matrix of path lengths, programs compose by matrix product,
# and a loop of T turns is the T-th power of its body: log2(T) products, whatever T is.


@dataclass(frozen=True)
class _Summary:
    """A program seen from outside.

    Attributes:
        work: its operations.
        paths: [outputs, inputs + 1], the longest path from each input; the last column is for
            paths that begin inside, at a constant.
        values: the scalar outputs that are known without running it, else None.
    """

    work: int
    paths: np.ndarray
    values: list


def _summarise(closed: ClosedJaxpr, known: Sequence) -> _Summary:
    """Propagate path lengths through a jaxpr. `known`: the value of each input, or None."""
    jaxpr = closed.jaxpr
    start = np.full((len(jaxpr.invars) + 1, len(jaxpr.invars) + 1), NO_PATH)
    np.fill_diagonal(start, 0)
    constant = start[-1]
    paths = dict(zip(jaxpr.invars, start, strict=False)) | dict.fromkeys(jaxpr.constvars, constant)
    values = dict(zip(jaxpr.invars, known, strict=True))
    values |= {var: value for var, value in zip(jaxpr.constvars, closed.consts, strict=True) if not np.ndim(value)}

    def path(atom):
        return constant if isinstance(atom, Literal) else paths[atom]

    def value(atom):
        return atom.val if isinstance(atom, Literal) else values.get(atom)

    work = 0
    for eqn in jaxpr.eqns:
        summary = _summarise_equation(eqn, [value(atom) for atom in eqn.invars])
        work += summary.work
        arriving = np.stack([*(path(atom) for atom in eqn.invars), constant])
        leaving = _product(summary.paths, arriving)
        for var, row, known_value in zip(eqn.outvars, leaving, summary.values, strict=True):
            # An empty array holds no number to wait for.
            paths[var] = row if math.prod(var.aval.shape) else constant
            values[var] = known_value
    outputs = [path(atom) for atom in jaxpr.outvars]
    return _Summary(
        work,
        np.stack(outputs) if outputs else start[:0],
        [value(atom) for atom in jaxpr.outvars],
    )


def _summarise_equation(eqn: JaxprEqn, known: Sequence) -> _Summary:
    name = eqn.primitive.name
    if name in CALLS:
        return _summarise(_closed(eqn.params.get("jaxpr", eqn.params.get("call_jaxpr"))), known)
    if name in CUMULATIVE:
        return _summarise_cumulative(eqn)
    if name in LOOPS_AND_BRANCHES:
        return LOOPS_AND_BRANCHES[name](eqn, known)
    work, span = _count(eqn)
    paths = np.full((len(eqn.outvars), len(eqn.invars) + 1), float(span))
    return _Summary(work, paths, _fold(eqn, known))


def _count(eqn: JaxprEqn) -> tuple[int, int]:
    """Work and span of one primitive."""
    name = eqn.primitive.name
    size_in, size_out = (math.prod(atoms[0].aval.shape) if atoms else 0 for atoms in (eqn.invars, eqn.outvars))
    if name == "scatter" and eqn.params.get("update_jaxpr") is not None:
        raise ValueError("work_and_span has no count for a scatter with a function, as in x.at[i].apply(f)")
    if name in MOVES_DATA or size_out == 0:
        return 0, 0
    if name in ELEMENTWISE:
        return size_out, 1
    if name == "one_minus_square":
        return 2 * size_out, 2
    if name in REDUCTIONS:
        terms = size_in // size_out
        return max(terms - 1, 0) * size_out, _tree_depth(terms)
    if name == "dot_general":
        (contracted, _), _ = eqn.params["dimension_numbers"]
        return _count_products(size_out, math.prod(eqn.invars[0].aval.shape[axis] for axis in contracted))
    if name == "conv_general_dilated":
        kernel = eqn.invars[1].aval.shape
        filters = kernel[eqn.params["dimension_numbers"].rhs_spec[0]]
        return _count_products(size_out, math.prod(kernel) // filters)
    if name in SCATTER_ARITHMETIC:
        _, indices, updates = (atom.aval.shape for atom in eqn.invars)
        return math.prod(updates), _tree_depth(math.prod(indices[:-1]) + 1)
    raise ValueError(
        f"work_and_span has no count for the primitive '{name}' on {[str(atom.aval) for atom in eqn.invars]}"
    )


def _count_products(results: int, terms: int) -> tuple[int, int]:
    """`results` sums of `terms` products each, added from zero as BLAS does."""
    return 2 * results * terms, 1 + _tree_depth(terms) if terms else 0


def _tree_depth(leaves: int) -> int:
    """⌈log₂ leaves⌉."""
    return (leaves - 1).bit_length() if leaves else 0


def _summarise_cumulative(eqn: JaxprEqn) -> _Summary:
    """A cumulative primitive is compiled as an associative scan, so count it as one."""
    scan = partial(
        jax.lax.associative_scan,
        CUMULATIVE[eqn.primitive.name],
        axis=eqn.params["axis"],
        reverse=eqn.params["reverse"],
    )
    operand = eqn.invars[0].aval
    cost = work_and_span(scan, jax.ShapeDtypeStruct(operand.shape, operand.dtype))
    return _Summary(cost.work, np.array([[cost.span, NO_PATH]], float), [None])


def _summarise_scan(eqn: JaxprEqn, known: Sequence) -> _Summary:
    """T turns of the body.

    The state is [constants, carry, inputs, outputs, source]: a turn replaces the carry by its
    paths through the body, and an output stacked over time waits for the latest of its slices.
    """
    turned = _closed(eqn.params["jaxpr"])
    # What is cut into slices, or stacked from them, has one axis more outside than inside. (The
    # parameters that count constants and carries differ between versions of JAX; this does not.)
    carries = sum(
        outer.aval.ndim == inner.aval.ndim for outer, inner in zip(eqn.outvars, turned.jaxpr.outvars, strict=True)
    )
    whole = sum(
        outer.aval.ndim == inner.aval.ndim for outer, inner in zip(eqn.invars, turned.jaxpr.invars, strict=True)
    )
    constants = whole - carries
    length = eqn.params["length"]
    unchanging = [*known[:constants], *[None] * (len(eqn.invars) - constants)]
    body = _summarise(turned, unchanging)
    inputs, stacked = len(eqn.invars), len(eqn.outvars) - carries
    columns = [*range(inputs), inputs + stacked]
    carry_rows = slice(constants, constants + carries)
    stacked_rows = slice(inputs, inputs + stacked)

    turn = _identity(inputs + stacked + 1)
    turn[carry_rows] = NO_PATH
    turn[carry_rows, columns] = body.paths[:carries]
    turn[stacked_rows, columns] = body.paths[carries:]
    loop = _power(turn, length)
    paths = np.concatenate([loop[carry_rows], loop[stacked_rows]])[:, columns]
    # Before the first turn the stacked outputs are empty: whoever reads them waits for nothing.
    paths[carries:, -1] = np.maximum(paths[carries:, -1], 0)
    return _Summary(length * body.work, paths, [None] * len(eqn.outvars))


def _summarise_while(eqn: JaxprEqn, known: Sequence) -> _Summary:
    """T turns, each begun when the condition has been seen to hold, and one last condition."""
    for_condition, for_body = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
    source = len(eqn.invars)
    carries = slice(for_condition + for_body, source)
    condition_inputs = [*range(for_condition), *range(carries.start, source)]
    body_inputs = [*range(for_condition, source)]
    unknown = [None] * len(eqn.outvars)
    condition = _summarise(_closed(eqn.params["cond_jaxpr"]), [*known[:for_condition], *unknown])
    body = _summarise(_closed(eqn.params["body_jaxpr"]), [*known[for_condition : carries.start], *unknown])
    length = _trip_count(eqn, known, condition.paths, body.paths)

    decided = np.full(source + 1, NO_PATH)
    decided[[*condition_inputs, source]] = condition.paths[0]
    begin = np.maximum(_identity(source + 1), decided)  # nothing in a turn starts before the decision

    turn = _identity(source + 1)
    turn[carries] = _product(body.paths, begin[[*body_inputs, source]])
    paths = _product(begin, _power(turn, length))[carries]
    return _Summary(length * (body.work + condition.work) + condition.work, paths, [None] * len(eqn.outvars))


def _trip_count(eqn: JaxprEqn, known: Sequence, condition_paths: np.ndarray, body_paths: np.ndarray) -> int:
    """Count the turns of a while loop by running the part of it that decides when to stop."""
    for_condition, for_body = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
    condition_constants, body_constants = (
        known[:for_condition],
        known[for_condition : for_condition + for_body],
    )
    initial = known[for_condition + for_body :]

    read = _reached(condition_paths[0])
    constants_known = all(condition_constants[i] is not None for i in read if i < for_condition)
    deciding = {i - for_condition for i in read if i >= for_condition}
    while True:  # what decides is what the condition reads, what that is computed from, and so on
        read = {i for row in deciding for i in _reached(body_paths[row])}
        constants_known &= all(body_constants[i] is not None for i in read if i < for_body)
        before = len(deciding)
        deciding |= {i - for_body for i in read if i >= for_body}
        if len(deciding) == before:
            break
    if not constants_known or any(initial[i] is None for i in deciding):
        raise ValueError(
            "work_and_span met a while loop whose number of iterations depends on the values of its "
            "arguments, so its cost is not one number; give it a fixed number of iterations (scan, or "
            f"fori_loop with constant bounds). Its state: {[str(atom.aval) for atom in eqn.outvars]}"
        )

    def filled(values, atoms):  # what does not decide may be anything
        return [
            jnp.zeros(atom.aval.shape, atom.aval.dtype) if value is None else jnp.asarray(value, atom.aval.dtype)
            for value, atom in zip(values, atoms, strict=True)
        ]

    condition_constants = filled(condition_constants, eqn.invars[:for_condition])
    body_constants = filled(body_constants, eqn.invars[for_condition : for_condition + for_body])
    carry = filled(initial, eqn.outvars)

    def whole(deciders):
        return [deciders.get(i, value) for i, value in enumerate(carry)]

    def holds(state):
        return jaxpr_as_fun(_closed(eqn.params["cond_jaxpr"]))(*condition_constants, *whole(state[1]))[0]

    def turn(state):
        count, deciders = state
        new = jaxpr_as_fun(_closed(eqn.params["body_jaxpr"]))(*body_constants, *whole(deciders))
        return count + 1, {i: new[i] for i in deciders}

    return int(jax.lax.while_loop(holds, turn, (0, {i: carry[i] for i in deciding}))[0])


def _summarise_cond(eqn: JaxprEqn, known: Sequence) -> _Summary:
    """The dearest branch, begun when its index is known: the longest of each path over the branches."""
    branches = [_summarise(_closed(branch), known[1:]) for branch in eqn.params["branches"]]
    paths = np.max([branch.paths for branch in branches], axis=0)
    index = paths.max(axis=1, initial=0, keepdims=True)
    return _Summary(
        max(branch.work for branch in branches),
        np.concatenate([index, paths], axis=1),
        [None] * len(eqn.outvars),
    )


LOOPS_AND_BRANCHES = {"scan": _summarise_scan, "while": _summarise_while, "cond": _summarise_cond}


def _closed(jaxpr) -> ClosedJaxpr:
    return jaxpr if isinstance(jaxpr, ClosedJaxpr) else ClosedJaxpr(jaxpr, ())


def _fold(eqn: JaxprEqn, known: Sequence) -> list:
    """The values of a scalar equation whose operands are all known: how loop bounds are found."""
    scalar = not any(atom.aval.shape for atom in [*eqn.invars, *eqn.outvars])
    if eqn.effects or not (known and scalar and all(value is not None for value in known)):
        return [None] * len(eqn.outvars)
    result = eqn.primitive.bind(*known, **eqn.params)
    return result if eqn.primitive.multiple_results else [result]


def _identity(size: int) -> np.ndarray:
    matrix = np.full((size, size), NO_PATH)
    np.fill_diagonal(matrix, 0)
    return matrix


def _product(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Matrix product with max for + and + for ×."""
    rows = [np.max(row[:, None] + right, axis=0) for row in left]
    return np.stack(rows) if rows else np.empty((0, right.shape[1]))


def _power(matrix: np.ndarray, exponent: int) -> np.ndarray:
    result = _identity(len(matrix))
    while exponent:
        if exponent & 1:
            result = _product(matrix, result)
        matrix = _product(matrix, matrix)
        exponent >>= 1
    return result


def _reached(paths: np.ndarray) -> np.ndarray:
    """The inputs (the source column left out) from which a path leads here."""
    return np.flatnonzero(paths[:-1] > NO_PATH)
