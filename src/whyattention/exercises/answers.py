"""What checks ask of answers of one kind."""

from collections.abc import Mapping
from typing import TypeVar

import numpy as np

Answer = TypeVar("Answer")


def given(answer: Answer | None) -> Answer:
    """`answer`, unless it is None: then raises AssertionError with the hint that a return is missing."""
    assert answer is not None, "nothing came back: is the return missing?"
    return answer


def judged(answers: dict[str, bool], truths: Mapping[str, bool], hints: Mapping[str, str]) -> None:
    """Raises AssertionError, with the statement's hint, unless `answers` has the truth for each letter of `truths`."""
    assert isinstance(answers, dict), f"a dict from letters to True or False is asked for, got {type(answers).__name__}"
    missing = sorted(set(truths) - set(answers))
    assert not missing, f"statement {', '.join(missing)} is not judged yet"
    for letter, truth in truths.items():
        answer = answers[letter]
        assert isinstance(answer, bool | np.bool_), f"statement {letter}: True or False is asked for, got {answer!r}"
        assert answer == truth, f"statement {letter}: {hints[letter]}"
