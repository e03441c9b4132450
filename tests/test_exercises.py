"""Exercises across the book: every check that a chapter calls is tested with a right answer and three wrong ones."""

import ast
import importlib
from collections import Counter

import pytest
from test_notebook_files import NUMBERED, code_cells, read, solutions

FEWEST_WRONG = 3


def checks_called(blocks: list[str]) -> set[str]:
    """The names of the check functions that the code calls."""
    calls = (node.func for block in blocks for node in ast.walk(ast.parse(block)) if isinstance(node, ast.Call))
    return {function.id for function in calls if isinstance(function, ast.Name) and function.id.startswith("check_")}


def origins(setup: str) -> dict[str, str]:
    """From which topic of `whyattention.exercises` the first cell of a notebook imports each check."""
    imports = (node for node in ast.walk(ast.parse(setup)) if isinstance(node, ast.ImportFrom))
    return {
        name.name: node.module.rpartition(".")[2]
        for node in imports
        if node.module.startswith("whyattention.exercises.")
        for name in node.names
    }


def cases(test) -> Counter:
    """How many cases a test of `exercise_cases` has for each check."""
    (mark,) = test.pytestmark
    return Counter(case[0].__name__ for case in mark.args[1])


@pytest.mark.parametrize("path", NUMBERED, ids=lambda path: path.stem)
def test_every_check_of_a_chapter_is_tested_with_right_and_wrong_answers(path):
    notebook = read(path)
    checks, topics = checks_called(solutions(notebook)), origins(code_cells(notebook)[0].source)
    assert checks <= set(topics)
    for name in checks:
        tests = importlib.import_module(f"test_exercises_{topics[name]}")
        assert cases(tests.test_right_answers_pass)[name] >= 1, f"{name}: no right answer is tried"
        assert cases(tests.test_wrong_answers_get_a_hint)[name] >= FEWEST_WRONG, f"{name}: too few wrong answers"
