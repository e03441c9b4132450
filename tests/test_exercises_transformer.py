"""The checks of chapter 8 accept what is right and send back what is wrong with a hint that fits."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from exercise_cases import accepts, refuses

from whyattention.attention import causal_mask, dot_product_attention
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


def norm_of_what_it_gives(x, sublayer, norm, place):
    return x + norm(sublayer(x)) if place == "pre" else norm(x + sublayer(x))


def without_sublayer(x, sublayer, norm, place):
    return x + sublayer(norm(x)) if place == "pre" else norm(x)


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


def set_instead_of_added(logits, target, share):
    return -jnp.sum(jnp.full(len(logits), share / len(logits)).at[target].set(1 - share) * jax.nn.log_softmax(logits))


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


def cached_in_arrays(x, query, key, value, *, masked=True):
    """With room for all words from the start, in a scan."""

    def step(kept, position):
        row = x[position]
        keys, values = (array.at[position].set(of(row)) for array, of in zip(kept, (key, value), strict=True))
        scores = keys @ query(row) / jnp.sqrt(len(row))
        seen = jnp.arange(len(x)) <= position
        return (keys, values), jax.nn.softmax(jnp.where(seen, scores, -jnp.inf) if masked else scores) @ values

    return jax.lax.scan(step, (jnp.zeros_like(x), jnp.zeros_like(x)), jnp.arange(len(x)))[1]


def all_at_once(x, query, key, value):
    queries, keys, values = (jax.vmap(of)(x) for of in (query, key, value))
    return dot_product_attention(queries, keys, values, causal_mask(len(x)))


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
        (check_cached, cached_in_arrays),
        (check_cached, lambda x, *three: jax.jit(lambda x: cached(x, *three))(x)),
        (check_cached, all_at_once),
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
        (check_add_norm, lambda x, sublayer, norm, place: norm(sublayer(x)), "residual is missing"),
        (check_add_norm, lambda x, sublayer, norm, place: x + sublayer(x), "norm is missing"),
        (check_add_norm, lambda x, sublayer, norm, place: x + norm(sublayer(x)), "the sum includes x"),
        (check_add_norm, norm_of_what_it_gives, "not of what it gives"),
        (check_add_norm, lambda x, sublayer, norm, place: norm(x + sublayer(x)), "is `place` looked at"),
        (check_add_norm, without_sublayer, "post-norm is not yet right"),
        (check_add_norm, lambda *_: None, "return missing"),
        (check_rate, lambda n, features, warmup: features**-0.5 * max(n**-0.5, n * warmup**-1.5), "smaller of the two"),
        (check_rate, lambda n, features, warmup: min(n**-0.5, n * warmup**-1.5), "a wider model"),
        (check_rate, lambda n, features, warmup: (features * n) ** -0.5, "warm-up is missing"),
        (check_rate, lambda n, features, warmup: rate(n, features, 10), "straight line"),
        (check_rate, lambda n, features, warmup: 2 * rate(n, features, warmup), "expected"),
        (check_smoothed_loss, lambda logits, target, share: smoothed(logits, target, 0.0), "nothing is smoothed"),
        (check_smoothed_loss, lambda *answer: -smoothed(*answer), "the sign"),
        (check_smoothed_loss, over_the_others, "over all"),
        (check_smoothed_loss, not_a_distribution, "not all of share"),
        (check_smoothed_loss, set_instead_of_added, "on top of 1 - share"),
        (check_smoothed_loss, lambda logits, target, share: jax.nn.log_softmax(logits), r"got shape \(4,\)"),
        (check_cached, going_wrong(future=True), "looked at later ones"),
        (check_cached, going_wrong(late=True), "look at itself"),
        (check_cached, going_wrong(scale=1.0), "square root"),
        (check_cached, going_wrong(again=True), "'key': 15"),
        (check_cached, lambda *four: cached_in_arrays(*four, masked=False), "mask them"),
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
