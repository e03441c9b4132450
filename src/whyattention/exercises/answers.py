"""What every check asks of an answer first."""

from typing import TypeVar

Answer = TypeVar("Answer")


def given(answer: Answer | None) -> Answer:
    """`answer`, unless it is None: then raises AssertionError with the hint that a return is missing."""
    assert answer is not None, "nothing came back: is the return missing?"
    return answer
