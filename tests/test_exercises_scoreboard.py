"""The checks of chapter 12 accept what is right and send back what is wrong with a hint that fits."""

import numpy as np
from exercise_cases import accepts, refuses

from whyattention.exercises.scoreboard import (
    FAIRNESS,
    FAIRNESS_HINTS,
    check_choice,
    check_fairness,
    check_readers,
    check_width,
)


def width(parameters, vocabulary, embedding, gates=1, readout=True):
    linear = gates * (embedding + 1) + (vocabulary if readout else 0)
    constant = vocabulary * embedding + (vocabulary if readout else 0) - parameters
    return round((-linear + np.sqrt(linear**2 - 4 * gates * constant)) / (2 * gates))


def readers(memory, weights, fixed, per_token, tokens):
    return (memory - weights) // (fixed + per_token * tokens)


def choose(board, length, updates, memory, chain, statistic=np.median):
    return sorted(
        name
        for name, row in board.items()
        if statistic(row["solved"]) <= updates and row["bytes"](length) <= memory and row["span"](length) <= chain
    )


def judge(**changed):
    return {**FAIRNESS, **changed}


RIGHT = [(check_width, width), (check_readers, readers), (check_choice, choose), (check_fairness, judge())]

WRONG = [
    (check_width, lambda *a: None, "is the return missing"),
    (check_width, lambda *a: width(*a) + 0.4, "whole number"),
    (check_width, lambda p, v, e: round(np.sqrt(p)), "recurrent matrix is not all"),
    (check_width, lambda *a: width(*a, readout=False), "read-out is missing"),
    (check_width, lambda *a: width(*a, gates=4), "an LSTM's"),
    (check_width, lambda *a: 7, "solve it"),
    (check_readers, lambda *a: None, "is the return missing"),
    (check_readers, lambda m, w, f, p, t: m // (f + p * t), "weights take memory"),
    (check_readers, lambda m, w, f, p, t: m // (w + f + p * t), "kept once"),
    (check_readers, lambda m, w, f, p, t: (m - w) // (f + p), "one token"),
    (check_readers, lambda m, w, f, p, t: (m - w) / (f + p * t), "round down"),
    (check_readers, lambda *a: 12, "memory left over"),
    (check_choice, lambda *a: None, "is the return missing"),
    (check_choice, lambda *a: "pairs", "list of names"),
    (check_choice, lambda *a: choose(*a, statistic=min), "best seed is luck"),
    (check_choice, lambda *a: choose(*a, statistic=max), "unlucky seed"),
    (check_choice, lambda *a: choose(*a, statistic=lambda solved: 0), "has not learnt"),
    (check_choice, lambda *a: ["chain"], "every condition"),
    (check_fairness, None, "a dict from letters"),
    (check_fairness, {"a": False}, "not judged yet"),
    *((check_fairness, judge(**{letter: not FAIRNESS[letter]}), FAIRNESS_HINTS[letter][:20]) for letter in FAIRNESS),
]


test_right_answers_pass = accepts(RIGHT)
test_wrong_answers_get_a_hint = refuses(WRONG)
