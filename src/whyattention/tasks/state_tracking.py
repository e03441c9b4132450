"""State tracking: after every move, say where things stand."""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

LanguageModel = Callable[[Int[Array, " time"]], Float[Array, "time vocabulary"]]


@cache
def product_table(objects: int) -> Int[np.ndarray, "permutations permutations"]:
    """`table[i, j]`: the number of the permutation that is i and then j; number 0 changes nothing.

    >>> product_table(2).tolist()
    [[0, 1], [1, 0]]
    """
    permutations = list(itertools.permutations(range(objects)))
    number = {permutation: i for i, permutation in enumerate(permutations)}
    return np.array(
        [[number[tuple(first[place] for place in then)] for then in permutations] for first in permutations]
    )


@cache
def parities(objects: int) -> Int[np.ndarray, " permutations"]:
    """For every permutation, by its number: 1 if it takes an odd number of swaps, 0 if an even one.

    >>> parities(2).tolist()
    [0, 1]
    """
    pairs = list(itertools.combinations(range(objects), 2))
    return np.array([sum(p[i] > p[j] for i, j in pairs) % 2 for p in itertools.permutations(range(objects))])


@dataclass(frozen=True)
class PermutationWords:
    """Each token is a permutation of `objects` things, drawn evenly; after each, which permutation are they in?

    The word problem of the symmetric group. With two objects it is parity: token 1 swaps them, and the answer is
    whether the number of ones so far is odd. With three the order of the moves begins to matter, and with five no
    circuit of constant depth is known that answers (Barrington 1989; Merrill et al. 2024, section 2.2). A model of the
    language-model family (`model(tokens) -> logits`) answers at every step; guessing is right once in `objects`! times.

    Raises ValueError if `objects` is not from 2 to 5, or `length` or `batch_size` is below 1.
    """

    objects: int
    length: int
    batch_size: int = 32

    def __post_init__(self):
        if not 2 <= self.objects <= 5 or min(self.length, self.batch_size) < 1:
            raise ValueError(f"objects must be from 2 to 5, length and batch_size at least 1, got {self}")

    @property
    def vocabulary_size(self) -> int:
        return math.factorial(self.objects)

    @property
    def chance(self) -> float:
        return 1 / self.vocabulary_size

    def sample(self, key: Array) -> tuple[Int[Array, "batch time"], Int[Array, "batch time"]]:
        """(moves, the permutation after each)."""
        table = jnp.asarray(product_table(self.objects))
        moves = jax.random.randint(key, (self.batch_size, self.length), 0, self.vocabulary_size)
        # Permutations one after the other are associative, as the maps of a linear recurrence are.
        return moves, jax.lax.associative_scan(lambda first, then: table[first, then], moves, axis=1)

    def loss(self, model: LanguageModel, batch: tuple[Int[Array, "batch time"], Int[Array, "batch time"]]):
        """Mean cross-entropy over all steps in nats, the share of steps answered rightly, and that of last steps."""
        moves, answers = batch
        logits = jax.vmap(model)(moves)
        right = jnp.argmax(logits, axis=-1) == answers
        loss = optax.softmax_cross_entropy_with_integer_labels(logits, answers).mean()
        return loss, {"accuracy": jnp.mean(right), "last": jnp.mean(right[:, -1])}
