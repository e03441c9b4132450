"""The checks of chapter 5 accept what is right and send back what is wrong with a hint that fits."""

import math

import jax.numpy as jnp
import numpy as np
from exercise_cases import accepts, refuses

from whyattention.exercises.bottleneck import (
    check_last_state,
    check_mean_loss,
    check_reverse_words,
    check_shift_right,
    check_symbols_that_fit,
)
from whyattention.tasks.translation import shift_right
from whyattention.tasks.vocabulary import BEGIN, END, PADDING


def without_end(target):
    shifted = np.array(shift_right(target))
    shifted[shifted == END] = PADDING
    return shifted


def state_at(shift):
    def answer(states, tokens):
        last = jnp.sum(tokens != PADDING, axis=1) - 1 + shift
        return states[jnp.arange(len(states)), jnp.minimum(last, states.shape[1] - 1)]

    return answer


def mean_state(states, tokens):
    real = (tokens != PADDING)[..., None]
    return jnp.sum(states * real, axis=1) / jnp.sum(real, axis=1)


def reversed_by(kept):
    """Reverses all but the last `kept` of the real tokens."""

    def answer(source):
        position = jnp.arange(source.shape[1])
        length = jnp.sum(source != PADDING, axis=1, keepdims=True) - kept
        return jnp.take_along_axis(source, jnp.where(position < length, length - 1 - position, position), axis=1)

    return answer


def fit(units, bits, alphabet):
    return int(units * bits // np.log2(alphabet))


def sums(losses, masks):
    return [jnp.sum(loss, where=mask) for loss, mask in zip(losses, masks, strict=True)]


def counts(masks):
    return [jnp.sum(mask) for mask in masks]


def by_sentence(losses, masks):
    means = [jnp.sum(x, axis=1, where=m) / jnp.sum(m, axis=1) for x, m in zip(losses, masks, strict=True)]
    return jnp.mean(jnp.concatenate(means))


RIGHT = [
    (check_shift_right, shift_right),
    (check_shift_right, lambda y: np.insert(np.asarray(y)[:, :-1], 0, BEGIN, axis=1)),
    (check_last_state, state_at(0)),
    (check_last_state, lambda s, x: s[np.arange(len(x)), np.argmax(np.asarray(x) == END, axis=1)]),
    (check_reverse_words, reversed_by(1)),
    (check_symbols_that_fit, fit),
    (check_symbols_that_fit, lambda u, b, k: jnp.floor(u * b / np.log2(k))),
    (check_symbols_that_fit, lambda u, b, k: math.floor(u * b / math.log2(k))),
    (check_symbols_that_fit, lambda u, b, k: math.floor(u * b * math.log(2) / math.log(k))),
    (check_symbols_that_fit, lambda u, b, k: math.floor(u * b / (math.log(k) / math.log(2)))),
    (check_symbols_that_fit, lambda u, b, k: math.floor(u * b / math.log(k, 2))),
    (check_symbols_that_fit, lambda u, b, k: math.floor(u * b / math.log2(k) + 1e-9)),
    (check_symbols_that_fit, lambda u, b, k: jnp.floor(u * b / jnp.log2(k))),
    (check_symbols_that_fit, lambda u, b, k: jnp.floor(u * b * jnp.log(2.0) / jnp.log(k))),
    (
        check_symbols_that_fit,
        lambda u, b, k: np.floor(np.float32(u * b) * np.log(np.float32(2)) / np.log(np.float32(k))),
    ),
    (check_mean_loss, lambda x, m: sum(sums(x, m)) / sum(counts(m))),
]
WRONG = [
    (check_shift_right, lambda y: y, "the target itself"),
    (check_shift_right, lambda y: jnp.roll(y, -1, axis=1), "the wrong way"),
    (check_shift_right, lambda y: jnp.pad(y[:, 1:], ((0, 0), (0, 1))), "the wrong way"),
    (check_shift_right, lambda y: jnp.roll(y, 1, axis=0), "time is axis 1"),
    (check_shift_right, lambda y: jnp.roll(y, 1, axis=1), "begins with BEGIN"),
    (check_shift_right, lambda y: jnp.pad(y, ((0, 0), (1, 0)))[:, :-1], "begins with BEGIN"),
    (check_shift_right, lambda y: jnp.pad(y, ((0, 0), (1, 0)), constant_values=BEGIN), "one token too many"),
    (check_shift_right, without_end, "an END is lost"),
    (check_shift_right, lambda y: shift_right(y).at[0, 1].set(BEGIN), "was expected"),
    (check_shift_right, lambda y: y[:, :-1], "of shape"),
    (check_shift_right, lambda y: None, "is the return missing"),
    (check_last_state, lambda s, x: s[:, -1], "has read padding"),
    (check_last_state, state_at(-1), "one too early"),
    (check_last_state, state_at(1), "one too late"),
    (check_last_state, mean_state, "the mean over"),
    (check_last_state, lambda s, x: s[:, 0], "the state after token"),
    (check_last_state, lambda s, x: s, "of shape"),
    (check_last_state, lambda s, x: None, "is the return missing"),
    (check_reverse_words, lambda x: x, "as it was"),
    (check_reverse_words, lambda x: x[:, ::-1], "the padding was reversed"),
    (check_reverse_words, lambda x: x[::-1], "time is axis 1"),
    (check_reverse_words, reversed_by(0), "END was reversed"),
    (check_reverse_words, reversed_by(2), "was expected"),
    (check_reverse_words, lambda x: None, "is the return missing"),
    (check_symbols_that_fit, lambda u, b, k: u * b / np.log2(k), "round down"),
    (check_symbols_that_fit, lambda u, b, k: u * b // np.log(k), "natural logarithm"),
    (check_symbols_that_fit, lambda u, b, k: u * b // k, "does not cost K bits"),
    (check_symbols_that_fit, lambda u, b, k: u // np.log2(k), "bits_per_unit. is missing"),
    (check_symbols_that_fit, lambda u, b, k: fit(u, b, k) + 1, "symbols were expected"),
    (check_symbols_that_fit, lambda u, b, k: math.ceil(u * b / math.log2(k)) - 1, "the last of them fits as well"),
    (check_symbols_that_fit, lambda u, b, k: np.ones(3), "one number"),
    (check_symbols_that_fit, lambda u, b, k: None, "is the return missing"),
    (check_mean_loss, lambda x, m: sum(s / c for s, c in zip(sums(x, m), counts(m), strict=True)) / 2, "two means"),
    (check_mean_loss, lambda x, m: sum(sums(x, m)), "that is the sum"),
    (check_mean_loss, lambda x, m: sum(sums(x, m)) / sum(a.size for a in m), "padding was counted"),
    (check_mean_loss, lambda x, m: sum(jnp.sum(a) for a in x) / sum(counts(m)), "at padding were added"),
    (check_mean_loss, by_sentence, "over sentences"),
    (check_mean_loss, lambda x, m: jnp.mean(x[0], where=m[0]), "was expected"),
    (check_mean_loss, lambda x, m: jnp.stack(sums(x, m)), "one number"),
    (check_mean_loss, lambda x, m: None, "is the return missing"),
]


test_right_answers_pass = accepts(RIGHT)
test_wrong_answers_get_a_hint = refuses(WRONG)
