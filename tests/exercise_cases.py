"""What the tests of the exercises' checks share: right answers pass, wrong ones get the hint meant for them."""

from collections.abc import Callable

import pytest


def _by_check(cases: list[tuple]) -> list[str]:
    return [case[0].__name__ for case in cases]


def accepts(cases: list[tuple]) -> Callable:
    """A test that each `(check, *answers)` passes and says so."""

    @pytest.mark.parametrize("case", cases, ids=_by_check(cases))
    def test(case, capsys):
        check, *answers = case
        check(*answers)
        assert capsys.readouterr().out.startswith("Correct: ")

    return test


def refuses(cases: list[tuple]) -> Callable:
    """A test that each `(check, *answers, hint)` fails with a message that the regular expression `hint` finds."""

    @pytest.mark.parametrize("case", cases, ids=_by_check(cases))
    def test(case, capsys):
        check, *answers, hint = case
        with pytest.raises(AssertionError, match=hint):
            check(*answers)
        assert capsys.readouterr().out == ""

    return test
