"""How the time of a recurrence and of attention grows: the experiments of chapter 2, and a model of time.

Every experiment takes sizes and returns a table as a plain dict of equally long lists, so that it can be drawn at once
or written down by `whyattention.record`. A size is `(batch, width, length)`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Float

from whyattention.attention import MultiHeadAttention
from whyattention.measure.cost import WorkSpan, work_and_span
from whyattention.measure.timing import Ratio, Timing, ratio, time_side_by_side
from whyattention.recurrent import LSTMCell, TanhCell, unroll

Size = tuple[int, int, int]
Table = dict[str, list]

HEAD_FEATURES = 64  # per attention head, as in Vaswani et al. 2017, table 3
FLOAT_BYTES = 4
BANDWIDTH_FLOATS = 2**26  # 256 MiB: more than any cache holds

LAYER_SIZES: dict[str, list[Size]] = {
    "quick": [(b, w, t) for b in (1, 16) for w in (64, 128, 256) for t in (32, 64, 128, 256, 512) if w * t <= 65536],
    "full": [
        (b, w, t) for b in (1, 16, 128) for w in (128, 512, 1024) for t in (64, 256, 1024, 4096) if b * t <= 65536
    ],
}
UTILISATION_SIZES: dict[str, list[Size]] = {
    "quick": [(b, w, t) for b in (1, 8, 64, 512) for w in (64, 256, 1024) for t in (32, 128) if b * w * t <= 2**23],
    "full": [
        (b, w, t) for b in (1, 8, 64, 512, 4096) for w in (256, 1024, 4096) for t in (32, 256) if b * w * t <= 2**30
    ],
}
PRODUCT_LENGTHS = {"quick": [16, 64, 256, 1024], "full": [16, 64, 256, 1024, 4096, 16384]}


# --- One layer, forward and backward ----------------------------------------------------------


def layer(architecture: str, width: int) -> nnx.Module:
    """A recurrent layer (LSTM) or a self-attention layer, from `width` features to `width` features.

    Attention has the largest number of heads that divides `width` and leaves each 64 features or more (one head below
    that). Raises ValueError if `architecture` is neither "recurrence" nor "attention".
    """
    if architecture == "recurrence":
        return LSTMCell(width, width, rngs=nnx.Rngs(0))
    if architecture == "attention":
        heads = next(heads for heads in range(max(width // HEAD_FEATURES, 1), 0, -1) if width % heads == 0)
        return MultiHeadAttention(width, heads, rngs=nnx.Rngs(0))
    raise ValueError(f'the architecture must be "recurrence" or "attention", got {architecture!r}')


@cache
def layer_gradient(architecture: str, width: int) -> tuple[Callable, nnx.State]:
    """A training step without the optimiser: (function of weights and batch, weights).

    The function maps `(weights, [batch, time, width])` to the gradients of the mean square of the layer's outputs with
    respect to both.
    """
    model = layer(architecture, width)
    if architecture == "recurrence":
        return _gradient(model, lambda cell, xs: unroll(cell, xs)[1])
    return _gradient(model, lambda attention, xs: attention(xs))


def _gradient(model: nnx.Module, apply: Callable) -> tuple[Callable, nnx.State]:
    """`apply(model, [time, width])` over a batch, with its gradients: (function of weights and batch, weights)."""
    graph, weights = nnx.split(model)

    def loss(weights, batch: Float[Array, "batch time width"]) -> Float[Array, ""]:
        model = nnx.merge(graph, weights)
        return jnp.mean(jax.vmap(lambda xs: apply(model, xs))(batch) ** 2)

    return jax.grad(loss, argnums=(0, 1)), weights


def layer_cost(architecture: str, size: Size) -> WorkSpan:
    """Work and span of `layer_gradient` at one size, without running it."""
    batch, width, length = size
    gradient, weights = layer_gradient(architecture, width)
    return work_and_span(gradient, weights, jax.ShapeDtypeStruct((batch, length, width), jnp.float32))


def cudnn_gradient(size: Size, *, seed: int = 0) -> tuple[Callable, tuple]:
    """Forward and backward of cuDNN's LSTM, the whole scan in fused kernels: (function, arguments).

    Raises RuntimeError where JAX does not run on an NVIDIA GPU.
    """
    if jax.default_backend() != "gpu":
        raise RuntimeError(f"cuDNN's LSTM runs on NVIDIA GPUs only; JAX runs on {jax.default_backend()!r} here")
    from jax.experimental import rnn  # its kernels exist on this backend only

    batch, width, length = size
    weights = rnn.init_lstm_weight(jax.random.key(seed), width, width, num_layers=1, bidirectional=False)
    xs = normal_inputs(seed, (batch, length, width))
    state = jnp.zeros((1, batch, width))
    lengths = jnp.full(batch, length, jnp.int32)

    def loss(weights, xs):
        outputs, _, _ = rnn.lstm(xs, state, state, weights, lengths, width, width, 1, 0.0, False)
        return jnp.mean(outputs**2)

    return jax.grad(loss, argnums=(0, 1)), (weights, xs)


def layer_times(sizes: Sequence[Size], *, seed: int = 0, repeats: int = 5) -> Table:
    """Recurrence and attention, forward and backward, side by side at every size; on a GPU cuDNN's LSTM as well.

    Columns: architecture, batch, width, length, work, span, seconds (median), low, high (quartiles), compile_seconds.
    cuDNN's LSTM does the recurrence's work in the recurrence's order, so it is entered with the recurrence's counts.
    """
    rows = []
    for size in sizes:
        batch, width, length = size
        xs = normal_inputs(seed, (batch, length, width))
        contestants = {}
        for architecture in ("recurrence", "attention"):
            gradient, weights = layer_gradient(architecture, width)
            contestants[architecture] = (gradient, (weights, xs))
        costs = {name: work_and_span(gradient, *args) for name, (gradient, args) in contestants.items()}
        if jax.default_backend() == "gpu":
            contestants["cuDNN"] = cudnn_gradient(size, seed=seed)
            costs["cuDNN"] = costs["recurrence"]
        for name, times in time_side_by_side(contestants, repeats=repeats).items():
            rows.append(
                {"architecture": name, "batch": batch, "width": width, "length": length}
                | {"work": costs[name].work, "span": costs[name].span}
                | time_columns(times)
                | {"compile_seconds": times.compile_s}
            )
    return as_table(rows)


def layer_ratios(table: Table, *, batch: int, width: int) -> tuple[list[int], list[float]]:
    """From a table of `layer_times`: the lengths at this batch and width, and recurrence over attention at each."""
    seconds = {}
    for architecture in ("recurrence", "attention"):
        rows = rows_where(table, architecture=architecture, batch=batch, width=width)
        seconds[architecture] = dict(zip(rows["length"].tolist(), rows["seconds"].tolist(), strict=True))
    lengths = sorted(seconds["recurrence"])
    return lengths, [seconds["recurrence"][length] / seconds["attention"][length] for length in lengths]


# --- A model of time ---------------------------------------------------------------------------


@dataclass(frozen=True)
class TimeModel:
    """A device in two numbers: t = alpha * span + work / beta.

    Brent's bound (Brent 1974, lemma 2: time <= span + (work - span) / processors) with a price for each dependent
    operation.

    Attributes:
        alpha: seconds that one dependent operation costs when nothing else is left to do.
        beta: operations per second when there is always something else to do.
    """

    alpha: float
    beta: float

    def seconds(self, work, span):
        return self.alpha * np.asarray(span, float) + np.asarray(work, float) / self.beta

    @property
    def half_parallelism(self) -> float:
        """alpha * beta: the work per dependent operation at which half of the time is spent waiting."""
        return self.alpha * self.beta

    def share(self, parallelism):
        """The share of beta that a program of this parallelism reaches: 1 / (1 + half_parallelism / parallelism)."""
        return 1 / (1 + self.half_parallelism / np.asarray(parallelism, float))


def fit_time_model(work: Sequence[float], span: Sequence[float], seconds: Sequence[float]) -> TimeModel:
    """The model with the smallest sum of squared relative (logarithmic) errors; neither number is negative.

    With n = alpha * beta the model is t = (work + n span) / beta: for a given n the best beta is a geometric mean, so n
    is found by looking at all of them, 0 and then 1 to 10^12 in steps of 1 %.

    Raises ValueError if there are fewer than two measurements, or unless the three are equally long and hold positive
    finite numbers.
    """
    work, span, seconds = (np.asarray(values, float) for values in (work, span, seconds))
    if not work.shape == span.shape == seconds.shape or work.ndim != 1:
        raise ValueError(
            f"work, span and seconds must be equally long, got shapes {work.shape}, {span.shape}, {seconds.shape}"
        )
    for name, values in (("work", work), ("span", span), ("seconds", seconds)):
        if not np.all((values > 0) & np.isfinite(values)):
            raise ValueError(f"{name} must be positive and finite, got {values}")
    if len(seconds) < 2:
        raise ValueError(f"two numbers need at least two measurements, got {len(seconds)}")
    candidates = np.concatenate([[0.0], np.geomspace(1, 1e12, 2778)])
    logs = np.log(work + candidates[:, None] * span) - np.log(seconds)  # [candidates, measurements]
    best = np.argmin(logs.var(axis=1))
    beta = float(np.exp(logs[best].mean()))
    return TimeModel(alpha=float(candidates[best]) / beta, beta=beta)


def predicted_ratios(model: TimeModel, sizes: Sequence[Size]) -> list[float]:
    """Time of the recurrence over time of attention at each size, from the counts alone."""
    times = [
        [
            model.seconds(cost.work, cost.span)
            for cost in (layer_cost(name, size) for name in ("recurrence", "attention"))
        ]
        for size in sizes
    ]
    return [float(recurrence / attention) for recurrence, attention in times]


# --- Utilisation -------------------------------------------------------------------------------


def step_intensity(batch: int, width: int) -> float:
    """Operations per byte of one step's product: [batch, width] by [width, width], plus the projected input.

    Every array is counted once, from memory: weights, state and input in, state out.
    """
    operations = 2 * batch * width**2
    return operations / (FLOAT_BYTES * (width**2 + 3 * batch * width))


def utilisation(sizes: Sequence[Size], *, seed: int = 0, repeats: int = 5, peak_side: int = 2048) -> Table:
    """Achieved over peak operations per second for the scan of a tanh cell, forward, inputs already projected.

    The peak is that of one square matrix product, and the bandwidth that of reading one large array; both are timed in
    turns with the scans, so that a share is one of the machine as it was then.

    Columns: batch, width, length, work, span, intensity (operations per byte), seconds, low, high, utilisation,
    utilisation_low, utilisation_high; and, the same in every row, peak (operations per second), bandwidth (bytes per
    second).
    """
    square = normal_inputs(seed, (peak_side, peak_side))
    long = normal_inputs(seed, (BANDWIDTH_FLOATS,))
    contestants = {"peak": (jnp.matmul, (square, square)), "bandwidth": (jnp.max, (long,))}
    for size in sizes:
        contestants[size] = _recurrent_scan(size, seed)
    times = time_side_by_side(contestants, repeats=repeats)
    peak_work = work_and_span(*_flat(contestants["peak"])).work
    peak = peak_work / times["peak"].median_s
    bandwidth = long.nbytes / times["bandwidth"].median_s
    rows = []
    for size in sizes:
        cost = work_and_span(*_flat(contestants[size]))
        share = ratio(times["peak"], times[size])  # of times, pair by pair; of rates once the work is put in
        scale = cost.work / peak_work
        rows.append(
            {"batch": size[0], "width": size[1], "length": size[2], "work": cost.work, "span": cost.span}
            | {"intensity": step_intensity(*size[:2])}
            | time_columns(times[size])
            | {"utilisation": scale * share.median}
            | {"utilisation_low": scale * share.quartiles[0], "utilisation_high": scale * share.quartiles[1]}
            | {"peak": peak, "bandwidth": bandwidth}
        )
    return as_table(rows)


def _recurrent_scan(size: Size, seed: int) -> tuple[Callable, tuple]:
    batch, width, length = size
    graph, weights = nnx.split(TanhCell(width, width, rngs=nnx.Rngs(0), recurrent_init=nnx.initializers.lecun_normal()))
    projected = normal_inputs(seed, (length, batch, width))

    def scan(weights, projected):
        step = jax.vmap(nnx.merge(graph, weights).step)
        return jax.lax.scan(step, projected[0], projected)[0]

    return scan, (weights, projected)


# --- Dependent against independent ---------------------------------------------------------------


def chain_against_product(
    lengths: Sequence[int], *, batch: int, width: int, seed: int = 0, repeats: int = 10, min_seconds: float = 0.1
) -> Table:
    """T matrix products that wait for each other, and one that does the same work at once.

    Columns: batch, width, length, work, chain, product (median seconds), ratio (chain over product), ratio_low,
    ratio_high (quartiles of pairs).
    """
    weights = nnx.initializers.orthogonal()(jax.random.key(seed), (width, width))  # a long chain stays of one size
    rows = []
    for length in lengths:
        xs = normal_inputs(seed, (length * batch, width))

        def chain(weights, state, length=length):
            return jax.lax.scan(lambda state, _: (state @ weights, None), state, None, length=length)[0]

        contestants = {"chain": (chain, (weights, xs[:batch])), "product": (jnp.matmul, (xs, weights))}
        work = {name: work_and_span(*_flat(contestant)).work for name, contestant in contestants.items()}
        assert work["chain"] == work["product"]
        times = time_side_by_side(contestants, repeats=repeats, min_seconds=min_seconds)
        share = ratio(times["chain"], times["product"])
        rows.append(
            {"batch": batch, "width": width, "length": length, "work": work["chain"]}
            | {name: times[name].median_s for name in contestants}
            | ratio_columns(share)
        )
    return as_table(rows)


def hoisting(sizes: Sequence[Size], *, seed: int = 0, repeats: int = 10) -> Table:
    """What taking the input projection out of the loop is worth (Appleyard et al. 2016, section 3.2).

    Forward and backward of an LSTM layer, with the projection inside the scan and, as `unroll` does it, before the scan
    in one product. Columns: batch, width, length, inside, before (median seconds), ratio (inside over before),
    ratio_low, ratio_high.
    """
    rows = []
    for batch, width, length in sizes:
        before, weights = layer_gradient("recurrence", width)
        inside, _ = _gradient(
            layer("recurrence", width), lambda cell, xs: jax.lax.scan(cell, cell.initial_state(), xs)[1]
        )
        args = weights, normal_inputs(seed, (batch, length, width))
        contestants = {"inside": (inside, args), "before": (before, args)}
        times = time_side_by_side(contestants, repeats=repeats)
        share = ratio(times["inside"], times["before"])
        rows.append(
            {"batch": batch, "width": width, "length": length}
            | {name: times[name].median_s for name in contestants}
            | ratio_columns(share)
        )
    return as_table(rows)


def normal_inputs(seed: int, shape: tuple[int, ...]) -> Float[Array, "..."]:
    """Standard normal numbers, drawn by NumPy: JAX would compile a generator for every shape."""
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape, dtype=np.float32))


def _flat(contestant: tuple[Callable, tuple]) -> tuple:
    function, args = contestant
    return function, *args


def as_table(rows: Sequence[dict]) -> Table:
    """Rows of the same names as columns."""
    return {name: [row[name] for row in rows] for name in rows[0]} if rows else {}


def rows_where(table: Table, **values) -> dict[str, np.ndarray]:
    """The rows of a table in which the columns named have these values: its columns, as arrays."""
    wanted = tuple(values.values())
    columns = (table[name] for name in values)
    chosen = [number for number, found in enumerate(zip(*columns, strict=True)) if found == wanted]
    return {name: np.array([column[number] for number in chosen]) for name, column in table.items()}


def time_columns(times: Timing) -> dict[str, float]:
    """seconds (median), low, high (quartiles)."""
    low, high = times.quartiles_s
    return {"seconds": times.median_s, "low": low, "high": high}


def ratio_columns(share: Ratio) -> dict[str, float]:
    """ratio (median of pairs), ratio_low, ratio_high (quartiles)."""
    low, high = share.quartiles
    return {"ratio": share.median, "ratio_low": low, "ratio_high": high}
