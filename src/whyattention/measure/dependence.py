"""Which inputs an output depends on, how strongly, and how many steps lie between them.

"One key factor affecting the ability to learn such dependencies is the length of the paths forward and backward signals
have to traverse in the network" (Vaswani et al. 2017, section 4). Here the length of a path is counted in *parallel
steps*: in one of them every position makes something new out of what all positions held before it, and all do so at
once. A layer of attention or of convolution is such a step. So is one turn of a recurrence: every position takes the
state that its neighbour held.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.tree_util import Partial
from jaxtyping import Array, Bool, Float, Int

from whyattention.attention import causal_mask, dot_product_attention, sliding_window_mask
from whyattention.recurrent import Cell, LSTMCell, TanhCell, lecun_normal, unroll

Hidden = Any  # a pytree of arrays whose first axis is time


def dependence(function: Callable, xs: Float[Array, "time features"]) -> Float[Array, "output input"]:
    """How strongly each output y_i of `function(xs)` depends on each input x_j: |d y_i / d x_j|_F / sqrt(features).

    The factor by which a small change of x_j in a random direction arrives at y_i, in root mean square; zero where x_j
    does not reach y_i at all. The identity has 1 on the diagonal and 0 elsewhere. `function` takes `[time, features]`
    to `[time, outputs]`. Raises ValueError if `xs` is not one such sequence.
    """
    if xs.ndim != 2:
        raise ValueError(f"expected one sequence of shape [time, features], got shape {xs.shape}")
    jacobian = jax.jacfwd(function)(xs)  # [output, outputs, input, features]
    largest = jnp.max(jnp.abs(jacobian), axis=(1, 3))  # divided out first: float32 has no square of 1e-25
    scaled = jacobian / jnp.where(largest > 0, largest, 1)[:, None, :, None]
    return largest * jnp.linalg.norm(scaled, axis=(1, 3)) / jnp.sqrt(xs.shape[1])


def by_lag(matrix: Float[Array, "output input"]) -> Float[Array, " time"]:
    """The mean over all pairs in which the output is `lag` positions after the input, for lag = 0 ... time - 1."""
    return jnp.array([jnp.mean(jnp.diagonal(matrix, -lag)) for lag in range(matrix.shape[0])])


@dataclass(frozen=True)
class Network:
    """A network seen twice: as the function that it computes, and as the parallel steps that lead there.

    `function` takes `[time, features]` to `[time, outputs]`. `start(xs)` is what the positions hold before the first
    step, and a step is `step(hidden, xs) -> hidden`. That it is a `Partial` lets steps that differ in their arrays
    alone share one compiled program.
    """

    function: Callable[[Float[Array, "time features"]], Float[Array, "time outputs"]]
    start: Callable[[Float[Array, "time features"]], Hidden]
    steps: tuple[Partial, ...]


def recurrence(cell: Cell, length: int) -> Network:
    """`cell` over `length` positions: in one step every position takes the state that the one before it held.

    All positions hold (initial state, output 0) at first. After t steps the first t outputs are those of `unroll`, and
    the others are still on their way.
    """

    def start(xs):
        return jax.vmap(lambda _: (cell.initial_state(), jnp.zeros(cell.hidden_size)))(xs)

    def step(hidden, xs):
        states, _ = hidden
        shift = partial(jax.tree.map, lambda first, states: jnp.concatenate([first[None], states[:-1]]))
        return jax.vmap(cell)(shift(cell.initial_state(), states), xs)

    return Network(lambda xs: unroll(cell, xs)[1], start, (Partial(step),) * length)


def residual(*layers: Partial) -> Network:
    """x + layer(norm(x)), one layer after the other, as Transformers stack them; the norm has no parameters.

    A layer takes `[time, features]` to the same shape, and differs from the others in its arrays alone: so they are one
    scan, of which one layer is compiled.
    """
    steps = tuple(Partial(_residual_step, layer) for layer in layers)
    stacked = jax.tree.map(lambda *arrays: jnp.stack(arrays), *steps)

    def function(xs):
        return jax.lax.scan(lambda xs, step: (step(xs, xs), None), xs, stacked)[0]

    return Network(function, lambda xs: xs, steps)


def _residual_step(layer, hidden, _):
    return hidden + layer(jax.nn.standardize(hidden))


def attention_layer(mask: Bool[Array, "time time"], features: int, key: Array) -> Partial:
    """One head of `features` dimensions, without an output projection."""
    return Partial(_attend, mask, lecun_normal(key, (features, 3 * features)))


def _attend(mask, kernel, x):
    return dot_product_attention(*jnp.split(x @ kernel, 3, axis=1), mask)


def convolution_layer(width: int, dilation: int, features: int, key: Array) -> Partial:
    """sum_m x_{t - m dilation} W_m for m = 0 ... width - 1: a causal convolution, with zeros before the beginning."""
    kernel = lecun_normal(key, (width * features, features)).reshape(width, features, features)
    return Partial(_convolve, jnp.asarray(dilation), kernel)


def _convolve(dilation, kernel, x):
    def shifted(places):
        return jnp.where((jnp.arange(len(x)) >= places)[:, None], jnp.roll(x, places, axis=0), 0)

    return sum(shifted(m * dilation) @ weights for m, weights in enumerate(kernel))


def architectures(length: int, features: int, *, window: int, rngs: nnx.Rngs) -> dict[str, Network]:
    """The layer types of Vaswani et al. (2017, table 1), untrained, each with as many layers as reach over `length`.

    All are causal and `features` wide. Restricted attention sees `window` positions. The convolution is as wide, and
    its dilation grows by that factor from layer to layer. The LSTM's forget bias is 1. Raises ValueError if `length`
    or `window` is below 2.
    """
    if min(length, window) < 2:
        raise ValueError(f"length and window must be at least 2, got {length} and {window}")
    near, past = sliding_window_mask(length, window), causal_mask(length)
    windows = -(-(length - 1) // (window - 1))
    dilations = [window**layer for layer in range(length) if window**layer < length]
    return {
        "tanh recurrence": recurrence(TanhCell(features, features, rngs=rngs), length),
        "LSTM": recurrence(LSTMCell(features, features, rngs=rngs), length),
        "restricted attention": residual(*(attention_layer(near, features, rngs.params()) for _ in range(windows))),
        "dilated convolution": residual(
            *(convolution_layer(window, dilation, features, rngs.params()) for dilation in dilations)
        ),
        "full attention": residual(attention_layer(past, features, rngs.params())),
    }


def path_lengths(network: Network, xs: Float[Array, "time features"]) -> Int[np.ndarray, "output input"]:
    """The fewest parallel steps of `network` after which position i depends on x_j, for every output i and input j.

    Read from the derivatives of what each position holds, not from the architecture: a position depends on an input as
    soon as one of them is not exactly zero. 0 where no number of its steps is enough, or where all of them are too
    small for float32, as those of a small recurrence may be over a hundred steps.
    """
    hidden = network.start(xs)
    directions = jnp.eye(xs.size).reshape(xs.size, *xs.shape)
    changes = jax.vmap(lambda change: jax.jvp(network.start, (xs,), (change,))[1])(directions)
    found = np.zeros((len(xs), len(xs)), dtype=int)
    for number, step in enumerate(network.steps, start=1):
        hidden, changes, reached = _push(step, hidden, xs, changes, directions)
        found[np.asarray(reached) & (found == 0)] = number
    return found


@jax.jit
def _push(step, hidden, xs, changes, directions):
    """One step, and how it passes a change of the input in each direction on; who depends on which input by then."""

    def push(change, direction):
        return jax.jvp(step, (hidden, xs), (change, direction))

    after, changes = jax.vmap(push, out_axes=(None, 0))(changes, directions)
    return after, changes, _reached(changes, xs.shape)


def _reached(changes, shape) -> Bool[Array, "output input"]:
    time, features = shape
    # A change is [directions, output, ...], and the directions are [input, features].
    moved = [jnp.any(leaf.reshape(time, features, time, -1) != 0, axis=(1, 3)) for leaf in jax.tree.leaves(changes)]
    return jnp.any(jnp.stack(moved), axis=0).T
