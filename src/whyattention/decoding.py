"""Saying a translation word by word, with any translator: see `Decodable` for what is asked of it."""

import math
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

PADDING, BEGIN, END = 0, 1, 2
# With a greater divisor an ln p next to 0 would be below the least number that float32 holds in full.
LARGEST_LOG_DIVISOR = math.log(float(jnp.finfo(jnp.float32).eps) / float(jnp.finfo(jnp.float32).tiny))

Memory = Any  # a pytree of arrays: what the model keeps of the source
State = Any  # a pytree of arrays: what it keeps of the words said so far


class Decodable(Protocol):
    """What decoding asks of a translator, for one sentence at a time.

    One that can take only so many steps says how many in its attribute `cache_length`.
    """

    def encode(self, source: Int[Array, " source"]) -> Memory: ...

    def start(self, memory: Memory) -> State: ...

    def step(self, memory: Memory, state: State, token: Int[Array, ""]) -> tuple[State, Float[Array, " vocabulary"]]:
        """(the state after `token` was said, logits of the word that follows it)."""


def greedy_decode(model: Decodable, source: Int[Array, " source"], max_length: int) -> Int[Array, " length"]:
    """The most probable word at every step: `max_length` tokens, END and padding after the last word.

    A translation that has not ended after `max_length` words is cut there and has no END. Padding and BEGIN are never
    said. The loop ends with the sentence, and under `jax.vmap` with the last sentence of the batch. Raises ValueError
    if `max_length` is below 1 or beyond the model's `cache_length`.
    """
    _check_max_length(model, max_length)
    memory = model.encode(source)

    def unfinished(carry):
        _, last, position, _ = carry
        return (position < max_length) & (last != END)

    def say_one(carry):
        state, last, position, tokens = carry
        state, logits = model.step(memory, state, last)
        word = jnp.argmax(_sayable(logits)).astype(jnp.int32)
        return state, word, position + 1, tokens.at[position].set(word)

    begin = model.start(memory), jnp.int32(BEGIN), jnp.int32(0), jnp.full(max_length, PADDING, jnp.int32)
    return jax.lax.while_loop(unfinished, say_one, begin)[3]


def beam_search(
    model: Decodable,
    source: Int[Array, " source"],
    max_length: int,
    beam_size: int,
    length_penalty: float = 0.0,
) -> tuple[Int[Array, " length"], Float[Array, ""]]:
    """The best translation that `beam_size` hypotheses side by side find: (tokens as `greedy_decode` has them, ln p).

    At every step each hypothesis is continued by every word, and the best `beam_size` of all these stay; one that has
    ended stays as it is. They are ranked by ln p / ((5 + length) / 6)^length_penalty, END counted as a word (Wu et al.
    2016, equation 14): 0 ranks by probability, which favours short ones. The ln p given back is not divided; it is a
    sum in float32, whatever the type of the logits. The search ends when no hypothesis can overtake one that has ended;
    among equals, one that has ended is given back. A beam of 1 is `greedy_decode`, but for words so nearly alike that
    ln p of the sentence rounds to the same with either.

    Raises ValueError if `max_length` or `beam_size` is below 1, `max_length` beyond the model's `cache_length`, or
    `length_penalty` below 0 or so large that float32 could not hold ln p divided for `max_length` words.
    """
    _check_max_length(model, max_length)
    _require_at_least_one("beam_size", beam_size)
    if not length_penalty >= 0:
        raise ValueError(f"length_penalty must be at least 0, got {length_penalty}")
    if length_penalty * math.log((5 + max_length) / 6) > LARGEST_LOG_DIVISOR:
        raise ValueError(f"length_penalty is too large for max_length={max_length}: got {length_penalty}")
    memory = model.encode(source)

    def score(log_p, length):
        return log_p / ((5 + length) / 6) ** length_penalty

    def unfinished(carry):
        _, last, log_p, lengths, position, _ = carry
        ended = last == END
        best = jnp.max(jnp.where(ended, score(log_p, lengths), -jnp.inf))
        # ln p only falls, and the divisor is never more than at the greatest length.
        hope = jnp.max(jnp.where(ended, -jnp.inf, score(log_p, max_length)))
        return (position < max_length) & (hope > best)

    def say_one(carry):
        states, last, log_p, lengths, position, tokens = carry
        ended = last == END
        states, logits = jax.vmap(model.step, in_axes=(None, 0, 0))(memory, states, last)
        steps = _sayable(jax.nn.log_softmax(logits.astype(jnp.float32)))
        # What has ended goes on with END for certain, which is not written down.
        steps = jnp.where(ended[:, None], jnp.where(jnp.arange(steps.shape[1]) == END, 0.0, -jnp.inf), steps)
        lengths = lengths + ~ended
        ranked = score(log_p[:, None] + steps, lengths[:, None])
        _, chosen = jax.lax.top_k(ranked.ravel(), beam_size)
        parent, word = jnp.divmod(chosen, steps.shape[1])
        log_p = log_p[parent] + steps[parent, word]
        tokens = tokens[parent].at[:, position].set(jnp.where(ended[parent], PADDING, word))
        states = jax.tree.map(lambda array: array[parent], states)
        return states, word.astype(jnp.int32), log_p, lengths[parent], position + 1, tokens

    begin = (
        jax.tree.map(lambda array: jnp.broadcast_to(array, (beam_size, *array.shape)), model.start(memory)),
        jnp.full(beam_size, BEGIN, jnp.int32),
        jnp.where(jnp.arange(beam_size) == 0, 0.0, -jnp.inf),  # all begin alike, and one of them is enough
        jnp.zeros(beam_size, jnp.int32),
        jnp.int32(0),
        jnp.full((beam_size, max_length), PADDING, jnp.int32),
    )
    _, last, log_p, lengths, _, tokens = jax.lax.while_loop(unfinished, say_one, begin)
    scores = score(log_p, lengths)
    best = jnp.argmax(jnp.where(scores == jnp.max(scores), 1 + (last == END), 0))
    return tokens[best], log_p[best]


def _sayable(logits):
    return logits.at[..., jnp.array([PADDING, BEGIN])].set(-jnp.inf)


def _check_max_length(model, max_length):
    _require_at_least_one("max_length", max_length)
    cache_length = getattr(model, "cache_length", max_length)
    if max_length > cache_length:
        raise ValueError(f"max_length must be at most the model's cache_length, {cache_length}, got {max_length}")


def _require_at_least_one(name, number):
    if number < 1:
        raise ValueError(f"{name} must be at least 1, got {number}")
