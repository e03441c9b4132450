"""Full attention against `jax.nn.dot_product_attention`, and blockwise against full: forward and backward.

One head of 64 features, float32, side by side. Run it on a machine that does nothing else:
`python benchmarks/attention.py`. It prints two Markdown tables.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from whyattention.attention import blockwise_attention, causal_mask, dot_product_attention
from whyattention.measure.memory import peak_memory
from whyattention.measure.timing import ratio, time_side_by_side
from whyattention.record import device_name

FEATURES = 64
LENGTHS = (128, 512, 2048)
BLOCKWISE_LENGTHS = (2048, 8192)

Heads = Float[Array, "time features"]


def peer(query: Heads, key: Heads, value: Heads, *, causal: bool) -> Heads:
    """JAX's own, which wants an axis for the heads."""
    return jax.nn.dot_product_attention(query[:, None], key[:, None], value[:, None], is_causal=causal)[:, 0]


def course(query: Heads, key: Heads, value: Heads, *, causal: bool) -> Heads:
    return dot_product_attention(query, key, value, causal_mask(len(query)) if causal else None)


def gradient_of(attend: Callable[..., Heads], **options) -> Callable:
    """A function of (query, key, value) that runs `attend` forward and backward."""

    def loss(*heads: Heads) -> Float[Array, ""]:
        return jnp.sum(attend(*heads, **options) ** 2)

    return jax.value_and_grad(loss, argnums=(0, 1, 2))


def inputs(length: int) -> list[Heads]:
    keys = jax.random.split(jax.random.key(1), 3)
    return [jax.random.normal(key, (length, FEATURES)) for key in keys]


def compare(first: Callable, second: Callable, length: int, *, repeats: int):
    """Timings of both. Raises AssertionError if they do not compute the same."""
    heads = inputs(length)
    for left, right in zip(*(jax.tree.leaves(jax.jit(fn)(*heads)) for fn in (first, second)), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-3, atol=1e-4)
    times = time_side_by_side({"first": (first, heads), "second": (second, heads)}, repeats=repeats)
    return times["first"], times["second"]


def full_attention() -> None:
    print("| n | mask | course, ms | jax.nn, ms | course / jax.nn |\n|---|---|---|---|---|")
    for length in LENGTHS:
        for causal in (False, True):
            ours, theirs = (gradient_of(attend, causal=causal) for attend in (course, peer))
            first, second = compare(ours, theirs, length, repeats=101 if length < 1000 else 15)
            medians = f"{first.median_s * 1e3:.2f} | {second.median_s * 1e3:.2f}"
            print(f"| {length} | {'causal' if causal else 'none'} | {medians} | {ratio(first, second)} |", flush=True)


def blockwise() -> None:
    print("| n | mask | blockwise, ms | full, ms | blockwise / full | MB: blockwise | full | full / blockwise |")
    print("|---|---|---|---|---|---|---|---|")
    for length in BLOCKWISE_LENGTHS:
        for causal in (False, True):
            blocks, full = gradient_of(partial(blockwise_attention, causal=causal)), gradient_of(course, causal=causal)
            first, second = compare(blocks, full, length, repeats=5)
            memory = [peak_memory(fn, *inputs(length)) / 1e6 for fn in (blocks, full)]
            cells = [
                length,
                "causal" if causal else "none",
                f"{first.median_s * 1e3:.0f}",
                f"{second.median_s * 1e3:.0f}",
            ]
            cells += [ratio(first, second), *(f"{size:.1f}" for size in memory), f"{memory[1] / memory[0]:.0f}"]
            print(f"| {' | '.join(map(str, cells))} |", flush=True)


if __name__ == "__main__":
    print(f"{device_name()}, jax {jax.__version__}, one head of {FEATURES} features, forward and backward\n")
    full_attention()
    print()
    blockwise()
