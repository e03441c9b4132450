"""What attention costs: operations, time of a training step, and time and memory of generation. For chapter 9.

A size is `(batch, width, length)`. A table is a plain dict of equally long lists, as in `measure.scaling`.
"""

import math
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jaxtyping import Array, Float, Int

from whyattention.attention import MultiHeadAttention, blockwise_attention, causal_mask, dot_product_attention
from whyattention.measure.cost import WorkSpan, work_and_span
from whyattention.measure.scaling import (
    HEAD_FEATURES,
    Size,
    Table,
    as_table,
    normal_inputs,
    ratio_columns,
    rows_where,
    time_columns,
)
from whyattention.measure.timing import ratio, time_side_by_side
from whyattention.recurrent import LSTMCell, unroll
from whyattention.transformer import Attention, Kept

STEP_SIZES: dict[str, list[Size]] = {
    "quick": [(b, w, t) for b, w in ((1, 64), (1, 512), (16, 64)) for t in (16, 64, 256, 1024) if b * t <= 4096],
    "full": [(b, w, t) for b in (1, 16) for w in (64, 512) for t in (16, 64, 256, 1024, 4096) if b * t <= 16384],
}


# --- Operations ----------------------------------------------------------------------------------


def layer_flops(width: int, length: int, feed_forward: int = 4) -> dict[str, int]:
    """Operations of the matrix products in one Transformer layer, forward, for one sequence, by what they are for.

    "projections" are those to queries, keys, values and output; "pairs" are the scores and the mix of the values, all
    pairs of positions; "feed-forward" is a network with a hidden layer `feed_forward` times as wide. A multiplication
    and an addition count as two. (Kaplan et al. 2020, table 1, count half as many for the pairs: a causal mask's.)
    """
    return {
        "projections": 8 * length * width**2,
        "pairs": 4 * length**2 * width,
        "feed-forward": 4 * feed_forward * length * width**2,
    }


def compiled_flops(fn: Callable, *args) -> float:
    """Floating-point operations of `fn(*args)` as XLA counts them in the compiled program.

    It counts the body of a loop once, however often it runs, so `fn` must not contain one; for a program that does see
    `measure.cost.work_and_span`. `args` may be `jax.ShapeDtypeStruct`s. Raises RuntimeError if the backend does not
    report its count.
    """
    analysis = jax.jit(fn).lower(*args).compile().cost_analysis()
    if not analysis or "flops" not in analysis:
        raise RuntimeError(f"the compiler for {jax.default_backend()!r} devices reports no count of operations")
    return float(analysis["flops"])


def local_slope(sizes: Sequence[float], costs: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """The exponent of cost = size^exponent between neighbours: (geometric means of the sizes, exponents).

    Raises ValueError unless there are two sizes or more, growing, and as many costs, all positive.
    """
    sizes, costs = np.asarray(sizes, float), np.asarray(costs, float)
    if sizes.ndim != 1 or len(sizes) < 2 or sizes.shape != costs.shape:
        raise ValueError(f"a slope needs two sizes and as many costs, got shapes {sizes.shape} and {costs.shape}")
    if sizes[0] <= 0 or np.any(np.diff(sizes) <= 0) or np.any(costs <= 0):
        raise ValueError(f"sizes must grow from above zero and costs be positive, got {sizes} and {costs}")
    return np.sqrt(sizes[1:] * sizes[:-1]), np.diff(np.log(costs)) / np.diff(np.log(sizes))


def crossing(sizes: Sequence[float], ratios: Sequence[float]) -> float:
    """The size at which `ratios` first passes 1, upwards or downwards, on a straight line between neighbours.

    The line is straight on logarithmic axes; through ratios of exactly 1 it passes at the first of them. NaN if no two
    lie on different sides of 1. Raises ValueError unless there are as many sizes as ratios, all positive.
    """
    sizes, ratios = np.asarray(sizes, float), np.asarray(ratios, float)
    if sizes.shape != ratios.shape or np.any(sizes <= 0) or np.any(ratios <= 0):
        raise ValueError(f"as many sizes as ratios are needed, all positive, got {sizes} and {ratios}")
    logs, places = np.log(ratios), np.log(sizes)
    for left, right in pairwise(np.flatnonzero(logs)):
        if logs[left] * logs[right] < 0:
            # A 1 between the two is a neighbour of the left one, and the line ends there.
            share = logs[left] / (logs[left] - logs[left + 1])
            return float(np.exp(places[left] + share * (places[left + 1] - places[left])))
    return math.nan


# --- A training step -------------------------------------------------------------------------------


class TransformerLayer(nnx.Module):
    """Self-attention and a feed-forward network, each added to its input (Vaswani et al. 2017, section 3.1).

    Without layer normalisation and dropout, whose cost is small beside that of the products. `attend` maps query, key
    and value of one head, each `[time, features]`, to `[time, features]`. There is a head for every 64 features, and
    one at least. Raises ValueError if their number does not divide `width`.
    """

    def __init__(
        self,
        width: int,
        *,
        attend: Callable = dot_product_attention,
        activation: Callable = jax.nn.relu,
        rngs: nnx.Rngs,
    ):
        self.attend = attend
        self.activation = activation
        self.attention = MultiHeadAttention(width, max(width // HEAD_FEATURES, 1), rngs=rngs)
        initializer = nnx.initializers.lecun_normal()
        self.widen = nnx.Param(initializer(rngs.params(), (width, 4 * width)))
        self.narrow = nnx.Param(initializer(rngs.params(), (4 * width, width)))

    def __call__(self, x: Float[Array, "time width"]) -> Float[Array, "time width"]:
        attended = jax.vmap(self.attend, in_axes=1, out_axes=1)(*self.attention.heads(x))
        x = x + attended.reshape(x.shape) @ self.attention.output[...]
        return x + self.activation(x @ self.widen[...]) @ self.narrow[...]


LAYERS: dict[str, Callable[[int], nnx.Module]] = {
    "LSTM": lambda width: LSTMCell(width, width, rngs=nnx.Rngs(0)),
    "full attention": lambda width: TransformerLayer(width, rngs=nnx.Rngs(0)),
    "blockwise attention": lambda width: TransformerLayer(width, attend=blockwise_attention, rngs=nnx.Rngs(0)),
}


@cache
def training_step(name: str, width: int) -> tuple[Callable, tuple]:
    """A whole training step of one layer: (function of weights, optimiser's state and batch; weights and state).

    `name` is a key of `LAYERS`. The loss is the mean square of the outputs for `[batch, time, width]`, the optimiser
    Adam; the function returns new weights, new state and the loss.
    """
    graph, weights = nnx.split(LAYERS[name](width))
    optimizer = optax.adam(1e-3)

    def loss(weights, batch: Float[Array, "batch time width"]):
        layer = nnx.merge(graph, weights)
        apply = (lambda xs: unroll(layer, xs)[1]) if isinstance(layer, LSTMCell) else layer
        return jnp.mean(jax.vmap(apply)(batch) ** 2)

    def step(weights, state, batch):
        value, gradient = jax.value_and_grad(loss)(weights, batch)
        updates, state = optimizer.update(gradient, state)
        return optax.apply_updates(weights, updates), state, value

    return step, (weights, optimizer.init(weights))


def step_cost(name: str, size: Size) -> WorkSpan:
    """Work and span of `training_step` at one size, without running it."""
    batch, width, length = size
    step, state = training_step(name, width)
    return work_and_span(step, *state, jax.ShapeDtypeStruct((batch, length, width), jnp.float32))


def step_times(sizes: Sequence[Size], *, seed: int = 0, repeats: int = 3) -> Table:
    """A training step of every layer in `LAYERS`, in turns at every size.

    Columns: layer, batch, width, length, work, span, seconds (median), low, high (quartiles), ratio (LSTM's time over
    this layer's, median over rounds), ratio_low, ratio_high.
    """
    rows = []
    for batch, width, length in sizes:
        xs = normal_inputs(seed, (batch, length, width))
        contestants = {}
        for name in LAYERS:
            step, state = training_step(name, width)
            contestants[name] = (step, (*state, xs))
        times = time_side_by_side(contestants, repeats=repeats)
        for name, timing in times.items():
            cost = step_cost(name, (batch, width, length))
            rows.append(
                {"layer": name, "batch": batch, "width": width, "length": length}
                | {"work": cost.work, "span": cost.span}
                | time_columns(timing)
                | ratio_columns(ratio(times["LSTM"], timing))
            )
    return as_table(rows)


def against_lstm(table: Table, layer: str, *, batch: int, width: int) -> dict[str, np.ndarray]:
    """The rows of a table of `step_times` for one layer, batch and width, by length: its columns, as arrays."""
    rows = rows_where(table, layer=layer, batch=batch, width=width)
    order = np.argsort(rows["length"])
    return {name: column[order] for name, column in rows.items()}


def needed_parallelism(slow: WorkSpan, fast: WorkSpan, factor: float) -> float:
    """The work that a device must do in the time of one dependent operation so that `slow` takes `factor` times `fast`.

    In the model of time of chapter 2, t = alpha * span + work / beta, it is the alpha * beta at which the quotient of
    the two times is `factor`: 0 if it is that or more on any device, infinity if it is less on all.
    """
    work, span = factor * fast.work - slow.work, slow.span - factor * fast.span
    if work * span > 0:
        return work / span
    return 0.0 if work <= 0 and span >= 0 else math.inf


# --- Generation ------------------------------------------------------------------------------------

Cache = tuple[Kept, Int[Array, ""]]  # what is kept, and the number of positions that it is of


def empty_cache(attention: Attention, longest: int) -> Cache:
    """Room for the keys and values of `longest` positions, and none of them filled."""
    return attention.empty(longest), jnp.asarray(0)


def cached_step(attention: Attention, cache: Cache, x: Float[Array, " width"]) -> tuple[Cache, Float[Array, " width"]]:
    """One position of causal self-attention: its key and value go into the cache, its query looks at all in there.

    Run over a sequence it gives what `attention(xs, causal_mask(len(xs)))` gives. Past `longest` positions there is no
    room for more, and what comes back is NaN.
    """
    kept, filled = cache
    kept = attention.keep(x[None], kept, filled)
    found = attention.look(x[None], kept, (jnp.arange(kept.room) <= filled)[None], filled)[0]
    return (kept, filled + 1), jnp.where(filled < kept.room, found, jnp.nan)


def generation_times(
    lengths: Sequence[int], *, width: int, tokens: int = 16, recompute_to: int = 1024, seed: int = 0, repeats: int = 5
) -> Table:
    """Seconds per generated token where so many are there already: attention with and without a cache, and an LSTM.

    One layer each, one sequence; every output is the next input. With a cache, and for the LSTM, `tokens` are made in
    one call. Without a cache the layer is computed for all positions to get the last, at lengths up to `recompute_to`.
    Columns: method ("LSTM", "cache", "no cache"), length, seconds (median per token), low, high (quartiles).
    """
    attention = Attention(width, max(width // HEAD_FEATURES, 1), rngs=nnx.Rngs(0))
    lstm = LSTMCell(width, width, rngs=nnx.Rngs(0))
    x = normal_inputs(seed, (width,))
    rows = []
    for length in lengths:
        kept, _ = empty_cache(attention, length + tokens)
        contestants = {
            "LSTM": _generation(lstm, lambda cell, state, x: cell(state, x), lstm.initial_state(), x, tokens),
            "cache": _generation(attention, cached_step, (kept, jnp.asarray(length)), x, tokens),
        }
        if length <= recompute_to:
            contestants["no cache"] = _whole_layer(attention, normal_inputs(seed, (length, width)))
        for name, timing in time_side_by_side(contestants, repeats=repeats).items():
            made = 1 if name == "no cache" else tokens
            per_token = {column: seconds / made for column, seconds in time_columns(timing).items()}
            rows.append({"method": name, "length": length} | per_token)
    return as_table(rows)


def cache_bytes(tokens: int, *, layers: int, kv_heads: int, head_features: int, bytes_per_number: int = 2) -> int:
    """Bytes of the keys and values of so many tokens, for one sequence: 2 * layers * heads * features * bytes * tokens.

    `kv_heads` are the heads that keep keys and values of their own: all (Vaswani et al. 2017), some (Ainslie et al.
    2023), or one (Shazeer 2019).
    """
    return 2 * layers * kv_heads * head_features * bytes_per_number * tokens


def _generation(layer: nnx.Module, step: Callable, state, x, tokens: int) -> tuple[Callable, tuple]:
    """`tokens` steps, each fed the output of the one before: (function, arguments)."""
    graph, weights = nnx.split(layer)

    def generate(weights, state, x):
        layer = nnx.merge(graph, weights)
        return jax.lax.scan(lambda carry, _: (step(layer, *carry), None), (state, x), None, length=tokens)[0]

    return generate, (weights, state, x)


def _whole_layer(attention: MultiHeadAttention, xs) -> tuple[Callable, tuple]:
    graph, weights = nnx.split(attention)
    return (lambda weights, xs: nnx.merge(graph, weights)(xs, causal_mask(len(xs)))), (weights, xs)
