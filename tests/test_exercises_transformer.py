"""The checks of chapter 8 accept what is right and send back what is wrong with a hint that fits."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from exercise_cases import accepts, refuses

from whyattention.exercises.transformer import (
    TRUTHS,
    check_add_norm,
    check_cached,
    check_rate,
    check_smoothed_loss,
    check_truths,
)


def add_norm(x, sublayer, norm, place):
    return x + sublayer(norm(x)) if place == "pre" else norm(x + sublayer(x))


def exchanged(x, sublayer, norm, place):
    return add_norm(x, sublayer, norm, "post" if place == "pre" else "pre")


def normed_residual(x, sublayer, norm, place):
    return norm(x) + sublayer(norm(x)) if place == "pre" else norm(x + sublayer(x))


def norm_inside(x, sublayer, norm, place):
    return x + sublayer(norm(x)) if place == "pre" else x + norm(sublayer(x))


def rate(n, features, warmup):
    return features**-0.5 * min(n**-0.5, n * warmup**-1.5)


def smoothed(logits, target, share):
    wanted = (1 - share) * jax.nn.one_hot(target, len(logits)) + share / len(logits)
    return -jnp.sum(wanted * jax.nn.log_softmax(logits))


def over_the_others(logits, target, share):
    right = jax.nn.one_hot(target, len(logits))
    wanted = (1 - share) * right + share * (1 - right) / (len(logits) - 1)
    return -jnp.sum(wanted * jax.nn.log_softmax(logits))


def not_a_distribution(logits, target, share):
    wanted = (1 - share) * jax.nn.one_hot(target, len(logits)) + share
    return -jnp.sum(wanted * jax.nn.log_softmax(logits))


def cached(x, query, key, value, *, late=False, scale=None, again=False, future=False):
    """Causal attention from a cache, right unless told to go wrong."""
    if future:
        keys, values = [key(row) for row in x], [value(row) for row in x]
        return jax.nn.softmax(jnp.stack([query(row) for row in x]) @ jnp.stack(keys).T / 2) @ jnp.stack(values)
    keys, values, rows = [], [], []
    for position, row in enumerate(x):
        if again:
            keys, values = [key(r) for r in x[: position + 1]], [value(r) for r in x[: position + 1]]
        elif not late:
            keys, values = [*keys, key(row)], [*values, value(row)]
        if keys:
            weights = jax.nn.softmax(jnp.stack(keys) @ query(row) / (scale or np.sqrt(len(row))))
        rows.append(weights @ jnp.stack(values) if keys else jnp.zeros(len(row)))
        if late:
            keys, values = [*keys, key(row)], [*values, value(row)]
    return jnp.stack(rows)


def going_wrong(**how):
    return lambda *arguments: cached(*arguments, **how)


test_right_answers_pass = accepts(
    [
        (check_add_norm, add_norm),
        (check_rate, rate),
        (check_smoothed_loss, smoothed),
        (
            check_smoothed_loss,
            lambda logits, target, share: optax.softmax_cross_entropy(
                logits, optax.smooth_labels(jax.nn.one_hot(target, len(logits)), share)
            ),
        ),
        (check_cached, cached),
        (check_truths, TRUTHS),
        (check_truths, {letter: np.bool_(truth) for letter, truth in TRUTHS.items()}),
    ]
)

test_wrong_answers_get_a_hint = refuses(
    [
        (check_add_norm, exchanged, "exchanged"),
        (check_add_norm, normed_residual, "residual carries x as it is"),
        (check_add_norm, norm_inside, "the sum includes x"),
        (check_add_norm, lambda x, sublayer, norm, place: sublayer(norm(x)), "residual is missing"),
        (check_add_norm, lambda *_: None, "return missing"),
        (check_rate, lambda n, features, warmup: features**-0.5 * max(n**-0.5, n * warmup**-1.5), "smaller of the two"),
        (check_rate, lambda n, features, warmup: min(n**-0.5, n * warmup**-1.5), "a wider model"),
        (check_rate, lambda n, features, warmup: (features * n) ** -0.5, "warm-up is missing"),
        (check_rate, lambda n, features, warmup: rate(n, features, 10), "straight line"),
        (check_rate, lambda n, features, warmup: 2 * rate(n, features, warmup), "expected"),
        (check_smoothed_loss, lambda logits, target, share: smoothed(logits, target, 0.0), "nothing is smoothed"),
        (check_smoothed_loss, lambda *answer: -smoothed(*answer), "the sign"),
        (check_smoothed_loss, over_the_others, "over all"),
        (check_smoothed_loss, not_a_distribution, "must sum to 1"),
        (check_smoothed_loss, lambda logits, target, share: jax.nn.log_softmax(logits), r"got shape \(4,\)"),
        (check_cached, going_wrong(future=True), "looked at later ones"),
        (check_cached, going_wrong(late=True), "look at itself"),
        (check_cached, going_wrong(scale=1.0), "square root"),
        (check_cached, going_wrong(again=True), "'key': 15"),
        (check_cached, lambda x, query, key, value: cached(x, query, key, value)[-1], r"got shape \(4,\)"),
        (check_truths, {**TRUTHS, "A": False}, "A: in training"),
        (check_truths, {**TRUTHS, "B": True}, "B: word i"),
        (check_truths, {**TRUTHS, "C": True}, "C: what else"),
        (check_truths, {**TRUTHS, "D": False}, "D: no positions"),
        (check_truths, {"A": True}, "B, C, D is not judged"),
        (check_truths, {**TRUTHS, "A": "yes"}, "True or False"),
        (check_truths, "ABCD", "a dict"),
    ]
)
