"""The ledger: every claim has its source, and a figure is read from the notebook that measured it."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from whyattention import claims
from whyattention.claims import LEDGER, Claim, Figure, measured, read_measured

ROOT = Path(__file__).parents[1]
NOTEBOOKS = {int(path.name[:2]): path for path in sorted((ROOT / "chapters").glob("[0-9][0-9]_*.ipynb"))}


def notebook(*cells):
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in cells])


def test_a_figure_comes_back_from_the_stored_output(tmp_path):
    book = notebook("from whyattention.claims import measured\nmeasured('a/b', 2.5, 'two and a half')", "1 + 1")
    NotebookClient(book).execute()
    assert book.cells[0].outputs[0]["data"] == {"text/plain": "two and a half"}
    nbformat.write(book, tmp_path / "n.ipynb")
    assert read_measured(tmp_path / "n.ipynb") == {"a/b": Figure(2.5, "two and a half", 0)}
    book.cells[1].outputs = book.cells[0].outputs
    nbformat.write(book, tmp_path / "n.ipynb")
    with pytest.raises(ValueError, match="'a/b' twice"):
        read_measured(tmp_path / "n.ipynb")


@pytest.mark.parametrize("name", ["plain", "a/b/c", "/b", "a/"])
def test_figures_are_named_by_chapter_and_quantity(name):
    with pytest.raises(ValueError, match=re.escape(repr(name))):
        measured(name, 1.0, "")


@pytest.mark.parametrize("claim", LEDGER, ids=lambda claim: f"claim {claim.number}")
def test_every_claim_has_a_source_a_place_and_its_figures(claim: Claim):
    assert f"{{{claim.source}," in (ROOT / "references.bib").read_text(encoding="utf-8")
    assert claim.where and claim.says and claim.article and claim.section
    assert claim.verdict == "not measurable here" or claim.figures
    assert set(claim.figures) <= set(read_measured(NOTEBOOKS[claim.chapter]))


def test_every_chapter_has_claims_and_every_claim_a_number_of_its_own():
    assert {claim.chapter for claim in LEDGER} == set(NOTEBOOKS)
    numbers = [claim.number for claim in LEDGER]
    assert len(set(numbers)) == len(numbers) and set(range(1, 19)) <= set(numbers)


def test_a_claim_is_shown_with_what_was_measured():
    (claim,) = (claim for claim in LEDGER if claim.number == 4)
    first, *others = claim.figures
    lines = (
        "from whyattention import claims",
        f"claims.measured({first!r}, 0.5, 'half of it')",
        f"claims.show({claim.chapter})",
    )
    book = notebook("\n".join(lines))
    NotebookClient(book).execute()
    shown = book.cells[0].outputs[-1]["data"]["text/markdown"]
    for text in (claim.article, claim.says, claim.where, f"**{claim.verdict}**", "half of it"):
        assert text in shown
    assert all(f"{name} has not been measured yet" in shown for name in others)


def test_a_chapter_without_claims_is_named():
    with pytest.raises(ValueError, match="chapter 99"):
        claims.show(99)
