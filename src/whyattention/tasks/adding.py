"""The adding problem: two of many numbers are marked, and their sum is wanted at the end."""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Regressor = Callable[[Float[Array, "time 2"]], Float[Array, " 1"]]


@dataclass(frozen=True)
class AddingProblem:
    """At every step a number from [0, 1) and a mark, 0 or 1; the answer is the sum of the two marked numbers.

    One mark lies in the first half of the `length` steps and one in the second, so that both the time and the value of
    either have to be noticed and kept (experiment 4 of Hochreiter & Schmidhuber 1997, with the marks and the length of
    Le et al. 2015). A model reads `[time, 2]` and answers with one number, `model(xs) -> [1]`.

    Always answering 1, the mean of the sum, has a mean squared error of 1/6: `baseline`. An answer within `tolerance`
    of the sum counts as right. The 0.04 of Hochreiter & Schmidhuber are of an answer scaled to [0, 1]; here sums reach
    from 0 to 2, so that the same number is twice as strict.

    Raises ValueError if `length` is below 2 or `batch_size` below 1.
    """

    length: int
    batch_size: int = 32
    tolerance: float = 0.04

    def __post_init__(self):
        if self.length < 2 or self.batch_size < 1:
            raise ValueError(f"length must be at least 2 and batch_size at least 1, got {self}")

    @property
    def baseline(self) -> float:
        return 1 / 6

    def sample(self, key: Array) -> tuple[Float[Array, "batch time 2"], Float[Array, " batch"]]:
        """(numbers and marks, sums)."""
        number_key, first_key, second_key = jax.random.split(key, 3)
        half = self.length // 2
        numbers = jax.random.uniform(number_key, (self.batch_size, self.length))
        first = jax.random.randint(first_key, (self.batch_size,), 0, half)
        second = jax.random.randint(second_key, (self.batch_size,), half, self.length)
        marks = jax.nn.one_hot(first, self.length) + jax.nn.one_hot(second, self.length)
        return jnp.stack([numbers, marks], axis=-1), jnp.sum(numbers * marks, axis=1)

    def loss(self, model: Regressor, batch):
        """Mean squared error, and the share of answers within `tolerance`."""
        xs, sums = batch
        errors = jax.vmap(model)(xs)[:, 0] - sums
        return jnp.mean(errors**2), {"accuracy": jnp.mean(jnp.abs(errors) < self.tolerance)}
