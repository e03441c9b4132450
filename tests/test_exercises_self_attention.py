"""The checks of chapter 7 accept what is right and send back what is wrong with a hint that fits."""

import jax
import jax.numpy as jnp
import numpy as np
from exercise_cases import accepts, refuses

from whyattention.attention import dot_product_attention
from whyattention.exercises.self_attention import (
    TRUE,
    check_attention,
    check_document_mask,
    check_look_up,
    check_needed_gap,
    check_promises,
)

softmax = jax.nn.softmax


def attention(query, key, value, mask, *, divide=3, axis=1, low=-1e9, after=True, invert=False):
    mask = ~mask if invert else mask
    weights = softmax(jnp.where(mask, query @ key.T / divide, low), axis=axis)
    return (jnp.where(mask, weights, 0) if after else weights) @ value


def with_fault(function, **fault):
    return lambda *arguments: function(*arguments, **fault)


def masked_late(query, key, value, mask):
    return (mask * softmax(query @ key.T / 3, axis=1)) @ value


def document_mask(documents):
    return (documents[:, None] == documents) & jnp.tri(len(documents), dtype=bool)


def needed_gap(n, weight):
    return np.log((n - 1) * weight / (1 - weight))


def look_up(x, *, shift=-1, sharp=100.0, wrap=False):
    places = jnp.eye(len(x))
    neighbours = jnp.roll(places, shift, axis=1) if wrap else jnp.eye(len(x), k=shift)
    neighbour = dot_product_attention(sharp * neighbours, places, x)
    return dot_product_attention(sharp * x[-1:], neighbour[:-1], x[:-1])[0]


def one_layer(x):
    return dot_product_attention(100 * x[-1:], x[:-1], x[:-1])[0]


test_right_answers_pass = accepts(
    [
        (check_attention, attention),
        (check_document_mask, document_mask),
        (check_needed_gap, needed_gap),
        (check_look_up, look_up),
        (check_promises, TRUE),
    ]
)

test_wrong_answers_get_a_hint = refuses(
    [
        (check_attention, with_fault(attention, divide=1), r"not divided by sqrt\(d\)"),
        (check_attention, with_fault(attention, divide=9), r"not by d"),
        (check_attention, with_fault(attention, axis=0, after=False), "over the keys: the last axis"),
        (check_attention, masked_late, "before it"),
        (check_attention, with_fault(attention, invert=True), "MAY look"),
        (check_attention, with_fault(attention, after=False), "average over all it was forbidden"),
        (check_attention, with_fault(attention, low=-jnp.inf, after=False), "NaN"),
        (check_attention, lambda q, k, v, mask: attention(q, k, v, mask | True), "not used yet"),
        (check_attention, with_fault(attention, low=0.0), r"exp\(0\) = 1"),
        (check_attention, with_fault(attention, low=0.0, after=False), r"exp\(0\) = 1"),
        (check_attention, lambda q, k, v, mask: q, r"shape \(4, 3\), got \(4, 9\)"),
        (check_attention, lambda q, k, v, mask: 2 * attention(q, k, v, mask), "was expected"),
        (check_attention, lambda q, k, v, mask: None, "is the return missing"),
        (check_document_mask, lambda d: d[:, None] == d, "still sees the future"),
        (check_document_mask, lambda d: jnp.tri(len(d), dtype=bool), "the document before its own"),
        (check_document_mask, lambda d: document_mask(d).T, "queries are the rows"),
        (check_document_mask, lambda d: document_mask(d) & ~jnp.eye(len(d), dtype=bool), "its own position"),
        (check_document_mask, lambda d: document_mask(d).astype(float), "boolean, got float32"),
        (check_document_mask, lambda d: document_mask(d)[0], r"shape \(6, 6\)"),
        (check_document_mask, lambda d: ~document_mask(d), "share a document"),
        (check_needed_gap, lambda n, p: (n - 1) * p / (1 - p), "its logarithm"),
        (check_needed_gap, lambda n, p: -needed_gap(n, p), "the sign"),
        (check_needed_gap, lambda n, p: np.log(n * p / (1 - p)), "n - 1 others"),
        (check_needed_gap, lambda n, p: np.log(n - 1), "one half"),
        (check_needed_gap, lambda n, p: needed_gap(n, p) / np.log(2), "natural logarithm"),
        (check_needed_gap, lambda n, p: 1.0, "a gap of 4.3944 was expected"),
        (check_look_up, one_layer, "the key itself"),
        (check_look_up, with_fault(look_up, shift=1), "wrong way"),
        (check_look_up, with_fault(look_up, wrap=True), "no wrapping round"),
        (check_look_up, with_fault(look_up, sharp=1.0), "large enough"),
        (check_look_up, lambda x: x.mean(axis=0), "large enough"),
        (check_look_up, lambda x: x[1], "found was token 10"),
        (check_look_up, lambda x: x[0] * np.nan, "no numbers"),
        (check_look_up, lambda x: x, r"got shape \(9, 12\)"),
        (check_promises, {**TRUE, "B": True}, "B: look at the height"),
        (check_promises, {**TRUE, "C": False}, "C: without a mask"),
        (check_promises, {**TRUE, "D": True}, "D: what stands"),
        (check_promises, {"A": True}, "B, C, D is not judged yet"),
        (check_promises, [True], "got list"),
        (check_promises, {**TRUE, "A": 1}, "True or False"),
    ]
)
