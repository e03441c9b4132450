"""What a layer that mixes tokens costs and can do: span, state, recall, and keeping track."""

import math
from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Float, Int

from whyattention.measure.cost import WorkSpan, work_and_span
from whyattention.mixers import AttentionMixer, Mixer, RecurrentMixer
from whyattention.parallel import DiagonalLinearRecurrence, LinearAttention, MatrixRecurrence, MinGRU, parallel_unroll
from whyattention.recurrent import GRUCell, LSTMCell, TanhCell, unroll
from whyattention.tasks.recall import AssociativeRecall
from whyattention.tasks.state_tracking import PermutationWords
from whyattention.training import over_seeds

MATRIX_COLUMNS = 16  # of linear attention's state: 15 values and the count that they are divided by
FORGET_BIAS = 3.0  # of cells that have a forget gate or the part of one: a memory of about 20 steps at the start

# By name, as functions of (features, numbers of state, rngs); attention has no state of fixed size and ignores it.
CELLS = {
    "linear attention": lambda features, state, rngs: LinearAttention(
        features, MATRIX_COLUMNS - 1, key_features=state // MATRIX_COLUMNS, rngs=rngs
    ),
    "minGRU": lambda features, state, rngs: MinGRU(features, state, forget_bias=FORGET_BIAS, rngs=rngs),
    "minGRU, signed": lambda features, state, rngs: MinGRU(features, state, signed=True, rngs=rngs),
    "diagonal": lambda features, state, rngs: DiagonalLinearRecurrence(features, state // 2, rngs=rngs),
    "matrix": lambda features, state, rngs: MatrixRecurrence(features, math.isqrt(state), rngs=rngs),
    "LSTM": lambda features, state, rngs: LSTMCell(features, state // 2, forget_bias=FORGET_BIAS, rngs=rngs),
    "GRU": lambda features, state, rngs: GRUCell(features, state, rngs=rngs),
    "tanh": lambda features, state, rngs: TanhCell(features, state, rngs=rngs),
}
PARALLEL = frozenset({"linear attention", "minGRU", "minGRU, signed", "diagonal", "matrix"})


def make_mixer(name: str, features: int, state: int, rngs: nnx.Rngs, *, parallel: bool = False) -> Mixer:
    """The mixer "attention", with one head, or the recurrence of `CELLS` with so many numbers of state.

    `state` is a multiple of 16 for linear attention, of 2 for the LSTM and the diagonal recurrence, and a square number
    for that with matrices. With `parallel`, those that can be are computed by an associative scan over time; the result
    is the same. Raises ValueError for another name.
    """
    if name == "attention":
        return AttentionMixer(features, 1, rngs=rngs)
    if name not in CELLS:
        raise ValueError(f"a mixer is attention, {', '.join(CELLS)}; got {name!r}")
    run = parallel_unroll if parallel and name in PARALLEL else unroll
    return RecurrentMixer(CELLS[name](features, state, rngs), rngs=rngs, run=run)


def kept_numbers(mixer: Mixer, tokens: int) -> int:
    """How many real numbers a mixer keeps of `tokens` tokens that it has read, to go on from there."""
    if isinstance(mixer, AttentionMixer):
        return 2 * tokens * mixer.attention.key.shape[1]
    leaves = jax.tree.leaves(mixer.cell.initial_state())
    return sum(leaf.size * (2 if jnp.iscomplexobj(leaf) else 1) for leaf in leaves)


def training_cost(mixer: Mixer, features: int, length: int) -> WorkSpan:
    """Work and span of one mixer's forward and backward pass over a sequence, without running it."""
    graph, weights = nnx.split(mixer, nnx.Param)

    def loss(weights, x):
        return jnp.mean(nnx.merge(graph, weights)(x) ** 2)

    x = jax.ShapeDtypeStruct((length, features), jnp.float32)
    return work_and_span(jax.grad(loss, argnums=(0, 1)), weights, x)


@partial(jax.jit, static_argnums=0)  # one program per task, for all models
def _drawn(task: AssociativeRecall | PermutationWords, key: Array):
    return task.sample(key)


def accuracy_by_pairs(
    models: nnx.Module, pairs: Sequence[int], symbols: int, key: Array, batch_size: int = 64
) -> Float[np.ndarray, "seeds numbers"]:
    """The share of right answers of models made by `fit_seeds`, with so many pairs, every one of them asked for."""
    tasks = [AssociativeRecall(number, symbols, queries=number, batch_size=batch_size) for number in pairs]
    batches = [_drawn(task, key) for task in tasks]

    @nnx.jit
    def accuracies(models):
        def of_one(model):
            scores = [task.loss(model, batch)[1]["accuracy"] for task, batch in zip(tasks, batches, strict=True)]
            return jnp.stack(scores)

        return over_seeds(of_one, models)

    return np.asarray(accuracies(models))


def answers_by_step(
    models: nnx.Module, task: PermutationWords, key: Array
) -> tuple[Int[np.ndarray, "seeds batch time"], Int[np.ndarray, "batch time"]]:
    """After every step of new words: the answers of models made by `fit_seeds`, and the right ones."""
    moves, answers = _drawn(task, key)

    @nnx.jit
    def given(models):
        return over_seeds(lambda model: jnp.argmax(jax.vmap(model)(moves), axis=-1), models)

    return np.asarray(given(models)), np.asarray(answers)
