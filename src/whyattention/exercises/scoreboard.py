"""Checks for the exercises of chapter 12."""

from collections.abc import Callable

import numpy as np
from flax import nnx

from whyattention.exercises.answers import given, judged
from whyattention.language_model import RecurrentLanguageModel
from whyattention.recurrent import TanhCell
from whyattention.training import closest_width

# A small board: updates until a task was solved, for each of three seeds, bytes to keep at length n, longest chain.
BOARD = {
    "chain": {"solved": [100, 900, 1000], "bytes": lambda n: 600, "span": lambda n: 30 * n},
    "tree": {"solved": [200, 200, 2000], "bytes": lambda n: 1200, "span": lambda n: 20 * np.log2(n)},
    "pairs": {"solved": [50, 50, 100], "bytes": lambda n: 512 * n, "span": lambda n: 400},
}

FAIRNESS = {"a": False, "b": True, "c": False, "d": False, "e": True}
FAIRNESS_HINTS = {
    "a": "twice the parameters may be all of the difference; nothing is said of what two LSTMs of these sizes do",
    "b": "same parameters, same updates on the same data, seeds drawn: it is fair, and speaks of that budget",
    "c": "the best of many is compared with the mean of many: on luck alone the first would win",
    "d": "a ratio of times is of two programs on one machine; the other machine's width would decide it anew",
    "e": "a count of bytes is the same on every machine, and equal parameters are a condition that is stated",
}


def check_width(width: Callable) -> None:
    """`width(parameters, vocabulary, embedding)`: of the tanh language model that has about so many parameters.

    Embedding, tanh cell with one bias, read-out with a bias. Raises AssertionError with a hint if it is not.
    """
    for parameters, vocabulary, embedding in ((30_000, 66, 16), (5_000, 18, 8), (1_000_000, 66, 64)):

        def make(width, vocabulary=vocabulary, embedding=embedding):
            cell = TanhCell(embedding, width, rngs=nnx.Rngs(0))
            return RecurrentLanguageModel(vocabulary, cell, rngs=nnx.Rngs(0))

        expected = closest_width(make, parameters, range(1, 4096))
        answer = float(given(width(parameters, vocabulary, embedding)))
        without_readout = _root(1, embedding + 1, vocabulary * embedding - parameters)
        lstm = _root(4, 4 * (embedding + 1) + vocabulary, vocabulary * (embedding + 1) - parameters)
        assert answer == round(answer), "a width is a whole number: take the nearest"
        assert abs(answer - np.sqrt(parameters)) > 1 or abs(answer - expected) <= 1, (
            "the recurrent matrix is not all: embedding, input matrix, biases and read-out have parameters too"
        )
        assert abs(answer - without_readout) > 1 or abs(answer - expected) <= 1, (
            "the read-out is missing: (width + 1) x vocabulary"
        )
        assert abs(answer - lstm) > 1 or abs(answer - expected) <= 1, "four times as many is an LSTM's; tanh has one"
        assert abs(answer - expected) <= 1, (
            f"{parameters:,} parameters, {vocabulary} tokens and {embedding} features: {expected}, not {answer:.0f}: "
            "write down all parameters as a quadratic in the width, and solve it"
        )
    print("Correct: parameters grow with the square of the width, so half of them leave 70% of it.")


def _root(a: float, b: float, c: float) -> float:
    return (-b + np.sqrt(b * b - 4 * a * c)) / (2 * a)


def check_readers(readers: Callable) -> None:
    """`readers(memory, weights, fixed, per_token, tokens)`: how many texts of so many tokens fit beside one model.

    All in bytes: the weights, kept once, and for each text `fixed` and `per_token` for every token of it. Raises
    AssertionError with a hint if it is not.
    """
    for memory, weights, fixed, per_token, tokens in (
        (16e9, 14e9, 0, 524_288, 1000),
        (16e9, 14e9, 32_000, 0, 1000),
        (1e9, 9e8, 1000, 100, 5000),
    ):
        answer = float(given(readers(memory, weights, fixed, per_token, tokens)))
        state = fixed + per_token * tokens
        expected = (memory - weights) // state
        assert answer != memory // state, "the weights take memory as well"
        assert answer != memory // (weights + state), "all texts are read by one model: its weights are kept once"
        assert not per_token or answer != (memory - weights) // (fixed + per_token), "that is for texts of one token"
        assert answer == round(answer), "there is no part of a reader: round down"
        assert answer == expected, f"expected {expected:.0f}, got {answer:.0f}: memory left over the state of one text"
    print("Correct: at equal weights, the state of one text decides how many can be served at once.")


def check_choice(choose: Callable) -> None:
    """`choose(board, length, updates, memory, chain)`: which models will do, as a sorted list of names.

    `board[name]` has "solved", updates by seed, and "bytes" and "span", functions of the length. A model will do if its
    median seed has solved the task within `updates`, and neither its bytes nor its span are above `memory` and `chain`.
    Raises AssertionError with a hint if it is not.
    """
    for length, updates, memory, chain in (
        (100, 950, 10**6, 10**4),
        (100, 150, 10**6, 10**4),
        (10_000, 950, 10**6, 10**4),
        (10_000, 950, 10**7, 10**4),
        (10_000, 60, 10**7, 400),
        (100, 40, 10**6, 10**4),
    ):
        answer = given(choose(BOARD, length, updates, memory, chain))
        assert not isinstance(answer, str), "a list of names is asked for, also when it is one"
        answer = sorted(answer)

        def passing(statistic, length=length, updates=updates, memory=memory, chain=chain):
            return sorted(
                name
                for name, row in BOARD.items()
                if statistic(row["solved"]) <= updates
                and row["bytes"](length) <= memory
                and row["span"](length) <= chain
            )

        expected = passing(np.median)
        assert answer == expected or answer != passing(min), "the best seed is luck: take the median"
        assert answer == expected or answer != passing(max), "one unlucky seed decides there: take the median"
        assert answer == expected or answer != passing(lambda solved: 0), "who has not learnt the task will not do"
        assert answer == expected, (
            f"at length {length}, {updates} updates, {memory:,} bytes, a chain of {chain:,}: {expected}, not {answer}; "
            "every condition has to be met, and its bound may be reached"
        )
    print("Correct: no model is best. The length, the memory and the machine choose.")


def check_fairness(answers: dict[str, bool]) -> None:
    """Whether each of the comparisons a to e supports what is concluded. Raises AssertionError with a hint if not."""
    judged(answers, FAIRNESS, FAIRNESS_HINTS)
    print("Correct: same size, same budget, same data, seeds drawn, and no conclusion beyond the machine.")
