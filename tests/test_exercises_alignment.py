"""The checks of chapter 6 accept what is right and send back what is wrong with a hint that fits."""

import jax
import jax.numpy as jnp
import numpy as np
from exercise_cases import accepts, refuses

from whyattention.exercises.alignment import (
    FOLLOWS,
    TRAP,
    check_additive_scores,
    check_beam,
    check_error_rate,
    check_follows,
    check_masked_softmax,
)

softmax = jax.nn.softmax
LOWEST = jnp.finfo(jnp.float32).min


def masked_softmax(scores, mask):
    return jnp.where(mask, softmax(jnp.where(mask, scores, LOWEST)), 0.0)


def nan_behind_a_where(scores, mask):
    """Zeros in a row that is masked out, but the gradient comes by 0 / 0."""
    weights = mask * jnp.exp(jnp.minimum(scores - scores.max(where=mask, initial=LOWEST), 0))
    return jnp.where(mask.any(), weights / weights.sum(), 0.0)


def maximum_over_all(scores, mask):
    weights = jnp.where(mask, jnp.exp(scores - scores.max()), 0)
    return weights / jnp.maximum(weights.sum(), 1e-30)


def beam(
    following,
    size,
    *,
    keep=lambda size: size,
    score=lambda p, words: p,
    ended=True,
    each=False,
    join=None,
    over=all,
):
    """A beam search, right unless told to go wrong."""
    join = (lambda p, q: p * q) if join is None else join
    hypotheses = [((), 1.0)]
    while not over(words[-1:] == (".",) for words, _ in hypotheses):
        longer = []
        for words, p in hypotheses:
            if words[-1:] == (".",):
                longer += [(words, p)] if ended else []
                continue
            after = following[words[-1] if words else ""]
            new = [((*words, word), join(p, q)) for word, q in after.items()]
            longer += [max(new, key=lambda pair: pair[1])] if each and words else new
        hypotheses = sorted(longer, key=lambda pair: -score(pair[1], pair[0]))[: keep(size)]
    return next(pair for pair in hypotheses if pair[0][-1] == ".")


def going_wrong(**how):
    return lambda following, size: beam(following, size, **how)


def follows(**changed):
    return FOLLOWS | changed


def rate(found, known):
    return 1 - 2 * len(found & known) / (len(found) + len(known))


RIGHT = [
    (check_additive_scores, lambda s, h, W, U, v: jnp.tanh(s @ W + h @ U) @ v),
    (check_additive_scores, lambda s, h, W, U, v: [float(v @ jnp.tanh(W.T @ s + U.T @ row)) for row in h]),
    (check_masked_softmax, masked_softmax),
    (check_masked_softmax, lambda x, m: jnp.where(m, softmax(jnp.where(m, x, -jnp.inf)), 0.0)),
    (check_masked_softmax, lambda x, m: maximum_over_all(jnp.where(m, x, LOWEST), m)),
    (check_masked_softmax, lambda x, m: softmax(x + jnp.where(m, 0, -1e9)) * m),
    (check_error_rate, rate),
    (check_error_rate, lambda found, known: np.float32(rate(found, known))),
    (check_beam, beam),
    (check_follows, follows()),
]

WRONG = [
    (check_additive_scores, lambda s, h, W, U, v: None, "is the return missing"),
    (check_additive_scores, lambda s, h, W, U, v: (s @ W + h @ U) @ v, "without tanh"),
    (check_additive_scores, lambda s, h, W, U, v: jnp.tanh((s @ W + h @ U) @ v), "before v"),
    (check_additive_scores, lambda s, h, W, U, v: jnp.tanh(s @ W) @ v + jnp.tanh(h @ U) @ v, "add first"),
    (check_additive_scores, lambda s, h, W, U, v: softmax(jnp.tanh(s @ W + h @ U) @ v), "those are the weights"),
    (check_additive_scores, lambda s, h, W, U, v: (jnp.tanh(s @ W + h @ U) @ v)[:, None], r"\(5, 1\)"),
    (check_additive_scores, lambda s, h, W, U, v: jnp.tanh(s @ W + h @ U), r"\(5, 6\)"),
    (check_additive_scores, lambda s, h, W, U, v: jnp.sum(jnp.tanh(s @ W + h @ U) @ v), "got one number"),
    (check_additive_scores, lambda s, h, W, U, v: jnp.tanh(s @ W) * jnp.tanh(h @ U) @ v, "were expected"),
    (check_masked_softmax, lambda x, m: None, "is the return missing"),
    (check_masked_softmax, lambda x, m: softmax(x[m]), r"got shape \(2,\)"),
    (check_masked_softmax, lambda x, m: softmax(x), "gets no weight"),
    (check_masked_softmax, lambda x, m: softmax(jnp.where(m, x, 0.0)), "gets no weight"),
    (check_masked_softmax, lambda x, m: jnp.where(m, softmax(x), 0.0), "before softmax, not after"),
    (check_masked_softmax, maximum_over_all, "before a maximum is taken"),
    (check_masked_softmax, lambda x, m: m / jnp.maximum(m.sum(), 1), "expected"),
    (check_masked_softmax, lambda x, m: softmax(jnp.where(m, x, -jnp.inf)), "-inf minus -inf"),
    (check_masked_softmax, lambda x, m: softmax(jnp.where(m, x, LOWEST)), "something of nothing"),
    (check_masked_softmax, nan_behind_a_where, "the gradient runs through the other"),
    (check_error_rate, lambda found, known: None, "is the return missing"),
    (check_error_rate, lambda found, known: 1 - rate(found, known), "the share that agrees"),
    (check_error_rate, lambda found, known: 1 - len(found & known) / len(found), "1 - precision"),
    (check_error_rate, lambda found, known: 1 - len(found & known) / len(known), "1 - recall"),
    (check_error_rate, lambda found, known: 1 - len(found & known) / len(found | known), "union"),
    (check_error_rate, lambda found, known: len(found ^ known), "3 links agree|4 links agree"),
    (
        check_error_rate,
        lambda found, known: rate({tuple(sorted(link)) for link in found}, {tuple(sorted(link)) for link in known}),
        "the order matters|links agree",
    ),
    (check_beam, lambda following, size: None, "is the return missing"),
    (check_beam, lambda following, size: beam(following, size)[0], "a pair is asked for"),
    (check_beam, lambda following, size: (("le", "chat"), 0.24), "full stop"),
    (check_beam, lambda following, size: beam(following, 1), "found what a beam of 1 finds"),
    (check_beam, lambda following, size: beam(following, 9), "le chat . for TRAP"),
    (check_beam, going_wrong(each=True, keep=lambda size: max(size - 1, 1)), "found what a beam of 1 finds"),
    (check_beam, going_wrong(join=lambda p, q: p + q), "probability 0.6 x 0.4"),
    (check_beam, going_wrong(join=lambda p, q: q), "probability 0.6 x 0.4"),
    (check_beam, going_wrong(keep=lambda size: 2 * size - 1), "more than two hypotheses"),
    (check_beam, lambda following, size: beam(following, size) if following == TRAP else beam(following, 3), "more"),
    (check_beam, going_wrong(ended=False), "stays in the beam"),
    (check_beam, going_wrong(score=lambda p, words: p ** (1 / len(words))), "whatever the length"),
    (check_beam, going_wrong(each=True), "not only by its best"),
    (check_beam, going_wrong(over=any), "go on after the first"),
    (check_follows, None, "a dict from letters"),
    (check_follows, {"A": True}, "statement B, C, D is not judged"),
    (check_follows, follows(A="yes"), "True or False is asked for, got 'yes'"),
    (check_follows, follows(A=False), "RNNsearch-50 at 30"),
    (check_follows, follows(B=True), "RNNsearch-30"),
    (check_follows, follows(C=False), "RNNenc-30 and RNNenc-50"),
    (check_follows, follows(D=True), "unequal training"),
]


test_right_answers_pass = accepts(RIGHT)
test_wrong_answers_get_a_hint = refuses(WRONG)
