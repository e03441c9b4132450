"""Checks for the exercises of chapter 6."""

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np

from whyattention.exercises.answers import given, judged

Following = Mapping[str, Mapping[str, float]]

# What may follow each word, and how probable it is; "" is the beginning, and a translation ends with its full stop.
TRAP: Following = {
    "": {"le": 0.6, "la": 0.4},
    "le": {"chat": 0.4, "chien": 0.35, "cheval": 0.25},
    "la": {"souris": 0.9, "vache": 0.1},
    **{noun: {".": 1.0} for noun in ("chat", "chien", "cheval", "souris", "vache")},
}
# The best begins with the least probable of three words: a beam of 2 has given it up by then.
DEEPER_TRAP: Following = {
    "": {"un": 0.4, "le": 0.35, "l'": 0.25},
    "un": {"loup": 0.5, "roi": 0.5},
    "le": {"loup": 0.6, "roi": 0.4},
    "l'": {"âne": 1.0},
    **{noun: {".": 1.0} for noun in ("loup", "roi", "âne")},
}
# One translation is over while others go on, one of which is nearly as probable in the end, and more so by the word.
SHORT_AND_LONG: Following = {
    "": {"oui": 0.45, "bien": 0.55},
    "oui": {".": 1.0},
    "bien": {"sûr": 0.9, "entendu": 0.1},
    "sûr": {".": 0.9, "que": 0.1},
    "entendu": {".": 1.0},
    "que": {"oui": 0.6, "non": 0.4},
    "non": {".": 1.0},
}
# The two best beginnings of two words begin with the same word, and the less probable of them ends better.
SAME_BEGINNING: Following = {
    "": {"le": 0.6, "la": 0.4},
    "le": {"chat": 0.52, "chien": 0.48},
    "la": {"vache": 0.6, "souris": 0.4},
    "chat": {"dort": 0.55, "part": 0.45},
    **{word: {".": 1.0} for word in ("chien", "vache", "souris", "dort", "part")},
}
# The first to end is not the best.
LATE: Following = {
    "": {"oui": 0.4, "bien": 0.6},
    "bien": {"sûr": 0.9, "entendu": 0.1},
    **{word: {".": 1.0} for word in ("oui", "sûr", "entendu")},
}

# Whether each statement of the last exercise follows from Bahdanau et al. (2014), figure 2.
FOLLOWS = {"A": True, "B": False, "C": True, "D": False}


def check_additive_scores(scores: Callable) -> None:
    """`scores(s [Q], h [S, K], W [Q, A], U [K, A], v [A])` is v . tanh(s W + h_j U) for every j: `[S]`.

    Raises AssertionError with a hint if it is not.
    """
    rng = np.random.default_rng(0)
    s, h, W, U, v = (jnp.asarray(rng.standard_normal(shape)) for shape in ((3,), (5, 4), (3, 6), (4, 6), (6,)))
    answer = np.asarray(given(scores(s, h, W, U, v)))
    right = jnp.tanh(s @ W + h @ U) @ v

    def same_as(other):
        return answer.shape == other.shape and bool(np.allclose(answer, other, atol=1e-5))

    assert answer.size != 1, "there is one score for each of the annotations in h; got one number"
    assert not same_as((s @ W + h @ U) @ v), (
        "without tanh the state adds the same number to every score, and softmax takes no notice of that: "
        "the weights would not depend on the state at all"
    )
    assert not same_as(jnp.tanh((s @ W + h @ U) @ v)), "tanh comes before v, on each of the A numbers"
    assert not same_as(jnp.tanh(s @ W) @ v + jnp.tanh(h @ U) @ v), (
        "with one tanh for each part the state adds the same number to every score; add first, then tanh"
    )
    assert not same_as(jax.nn.softmax(right)), "those are the weights; the scores are what softmax is given"
    assert answer.shape == (5,), f"the scores of 5 annotations have shape (5,), got {answer.shape}"
    assert same_as(right), f"for the test case {np.round(right, 4)} were expected, got {np.round(answer, 4)}"
    print("Correct: one number for each annotation, and it depends on the state.")


def check_masked_softmax(masked_softmax: Callable) -> None:
    """`masked_softmax(scores [S], mask [S])` sums to 1 where `mask` is true and is 0 elsewhere: all 0 if it is nowhere.

    Its gradient is finite as well. Raises AssertionError with a hint if it is not so.
    """
    scores = jnp.array([2.0, -1.0, 0.5, 300.0])  # beside the last the others are 0 in float32
    mask = jnp.array([True, True, False, False])
    answer = np.asarray(given(masked_softmax(scores, mask)))
    assert answer.shape == (4,), f"there is one weight for each of 4 scores, got shape {answer.shape}"
    assert np.allclose(answer[2:], 0, atol=1e-6), f"what is masked out gets no weight; got {np.round(answer, 4)}"
    assert np.isclose(answer.sum(), 1, atol=1e-5), (
        f"the weights of what may be looked at sum to 1; here to {answer.sum():.3g}: mask before softmax, not after, "
        "and before a maximum is taken: beside a large score that is masked out they would all be 0"
    )
    right = np.append(jax.nn.softmax(scores[:2]), [0, 0])
    assert np.allclose(answer, right, atol=1e-5), f"expected {np.round(right, 4)}, got {np.round(answer, 4)}"
    nowhere = jnp.zeros(4, dtype=bool)
    answer = np.asarray(masked_softmax(scores, nowhere))
    assert not np.any(np.isnan(answer)), (
        "where nothing may be looked at the weights are NaN: -inf minus -inf; use a large finite number, "
        "jnp.finfo(scores.dtype).min"
    )
    assert np.allclose(answer, 0), (
        f"where nothing may be looked at the weights are {np.round(answer, 4)}: "
        "softmax makes something of nothing; set to zero what is masked out, after softmax as well"
    )
    for case in (mask, nowhere):
        gradient = np.asarray(jax.grad(lambda x, case=case: masked_softmax(x, case)[0])(scores))
        assert np.all(np.isfinite(gradient)), (
            f"the weights are right but their gradient is {gradient}: where jnp.where takes one branch, "
            "the gradient runs through the other as well; it must be finite there"
        )
    print("Correct: no weight on padding, and nothing, not NaN, where there is nothing to look at.")


def check_error_rate(error_rate: Callable) -> None:
    """`error_rate(found, known)` of two sets of links (target, source): 1 - 2 |both| / (|found| + |known|).

    Raises AssertionError with a hint if it is not.
    """
    found = {(0, 0), (1, 2), (2, 2), (3, 1), (4, 4)}
    known = {(0, 0), (1, 2), (2, 1), (2, 2), (3, 1), (4, 3), (5, 4), (5, 5)}
    answer = np.asarray(given(error_rate(set(found), set(known))), dtype=float)
    both = len(found & known)

    def same_as(other):
        return answer.shape == () and bool(np.isclose(answer, other))

    assert not same_as(2 * both / (len(found) + len(known))), "that is the share that agrees; the error is what is left"
    assert not same_as(1 - both / len(found)), (
        "that is 1 - precision: whoever links one sure word and keeps silent on the rest would make no error"
    )
    assert not same_as(1 - both / len(known)), (
        "that is 1 - recall: whoever links every word with every word would make no error"
    )
    assert not same_as(1 - both / len(found | known)), (
        "that divides by the union; what agrees is in both sets, and is counted twice in |found| + |known|"
    )
    assert same_as(1 - 2 * both / (len(found) + len(known))), (
        f"{both} links agree, of {len(found)} found and {len(known)} known; got {answer}"
    )
    assert np.isclose(error_rate(set(known), set(known)), 0), "an alignment that is right has no error"
    assert np.isclose(error_rate({(0, 1)}, {(1, 0)}), 1), "(0, 1) and (1, 0) are two links: the order matters"
    print("Correct: a link that is missed and a link too many both count.")


def check_beam(beam: Callable) -> None:
    """`beam(following, size)` is the (words, probability) that a beam search of `size` hypotheses finds.

    `following[last word]` has the probability of every word that may come next; "" is before the first, and "." the
    last. Tried on five tables; prints what it found. Raises AssertionError with a hint if a search goes wrong.
    """
    found = {size: _searched(beam, TRAP, size) for size in (1, 2)}
    assert found[1][0] == ("le", "chat", "."), (
        f"a beam of 1 takes the most probable word at every step: le chat . for TRAP; got {' '.join(found[1][0])}"
    )
    assert np.isclose(found[1][1], 0.24), f"le chat . has probability 0.6 x 0.4 x 1 = 0.24; got {found[1][1]:.4g}"
    assert found[2][0] != found[1][0], (
        "a beam of 2 found what a beam of 1 finds; do all the continuations of both hypotheses compete for two places?"
    )
    assert found[2][0] == ("la", "souris", ".") and np.isclose(found[2][1], 0.36), (
        f"la souris . (0.4 x 0.9 = 0.36) was expected of a beam of 2; got {' '.join(found[2][0])} ({found[2][1]:.4g})"
    )
    deeper = {size: _searched(beam, DEEPER_TRAP, size) for size in (2, 3)}
    assert deeper[2][0] == ("le", "loup", "."), (
        f"after one word a beam of 2 knows two beginnings, the most probable: of those le loup . (0.21) is the best; "
        f"got {' '.join(deeper[2][0])}, so more than two hypotheses were kept, or the wrong ones"
    )
    assert deeper[3][0] == ("l'", "âne", "."), f"a beam of 3 finds l' âne . (0.25); got {' '.join(deeper[3][0])}"
    short = _searched(beam, SHORT_AND_LONG, 2)
    assert short[0] != ("bien", "sûr", "."), (
        "bien sûr . (0.4455) was preferred to oui . (0.45): rank by the probability itself, whatever the length, and "
        "do not forget a translation that has ended"
    )
    assert short[0] == ("oui", ".") and np.isclose(short[1], 0.45), (
        f"oui . has probability 0.45, and nothing longer has as much: a translation that has ended stays in the beam "
        f"as it is; got {' '.join(short[0])} ({short[1]:.4g})"
    )
    same = _searched(beam, SAME_BEGINNING, 2)
    assert same[0] == ("le", "chien", ".") and np.isclose(same[1], 0.288), (
        f"le chat (0.312) and le chien (0.288) are the best two beginnings, and le chien . (0.288) is found: every "
        f"hypothesis is continued by every word, not only by its best; got {' '.join(same[0])} ({same[1]:.4g})"
    )
    late = _searched(beam, LATE, 2)
    assert late[0] == ("bien", "sûr", ".") and np.isclose(late[1], 0.54), (
        f"bien sûr . (0.54) was expected, got {' '.join(late[0])} ({late[1]:.4g}): "
        "go on after the first translation has ended, as long as another hypothesis has not"
    )
    print("Correct: greedy says le chat, a beam of 2 la souris, which is more probable by half; and 2 may be too few.")


def _searched(beam, following, size):
    answer = given(beam({word: dict(after) for word, after in following.items()}, size))
    pair = isinstance(answer, tuple | list) and len(answer) == 2 and isinstance(answer[0], tuple | list)
    assert pair, f"a pair is asked for, the words as a tuple and their probability; got {answer!r}"
    words, probability = tuple(answer[0]), float(answer[1])
    assert words and words[-1] == ".", f"a translation ends with its full stop; got {words}"
    return words, probability


def check_follows(follows: dict[str, bool]) -> None:
    """`follows` says of each of the statements A to D whether it follows from Bahdanau et al. (2014), figure 2.

    Raises AssertionError with a hint if one is missing or wrong.
    """
    hints = {
        "A": "compare RNNsearch-50 at 30 and at 59 words",
        "B": "look at RNNsearch-30, which has attention as well, from 30 words on",
        "C": "compare the two models without attention, RNNenc-30 and RNNenc-50, at 40 words",
        "D": "the figure has two curves, and not how the two models differ: the paper's table 2 gives unequal training",
    }
    judged(follows, FOLLOWS, hints)
    print("Correct: a curve shows what it shows, for the model and the training that it is of.")
