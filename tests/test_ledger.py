"""The ledger's page: every claim under its section, figures taken from the notebooks and linked to where they stand."""

import html
import importlib.util
import re
from io import StringIO
from pathlib import Path
from typing import get_args

import nbformat
import pytest
from sphinx.application import Sphinx

from whyattention.claims import LEDGER, Claim, Verdict

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "chapters" / "ledger.md").read_text(encoding="utf-8")
CLAIM = Claim(1, "Start", "It is so.", "somebody2020", "Somebody 2020", "It is.", 3, ("a/b",), "holds", "就是这样")


def load_extension():
    spec = importlib.util.spec_from_file_location("ledger", ROOT / "_ext" / "ledger.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


ledger = load_extension()


def test_every_claim_stands_under_a_heading_that_begins_with_its_section():
    parts = re.findall(r"^## (.*)\n(?:(?!^## )[^`]|`(?!``))*```\{ledger\} (.*)\n```$", PAGE, re.M)
    assert all(title.startswith(section) for title, section in parts)
    assert [section for _, section in parts] == list(dict.fromkeys(claim.section for claim in LEDGER))


def test_every_verdict_is_explained():
    assert re.findall(r"\{claims\}`(.*?)`", PAGE) == list(get_args(Verdict))


@pytest.mark.parametrize("claim", LEDGER, ids=lambda claim: f"claim {claim.number}")
def test_every_claim_has_the_articles_words_and_a_source_to_open(claim):
    assert re.search(r"[\u4e00-\u9fff]", claim.quote)
    assert ledger.source_address(ROOT / "references.bib", claim.source).startswith("https://")


@pytest.fixture
def build(tmp_path, monkeypatch):
    """A function that builds a book of two pages, the ledger and chapter 3: (warnings, the two pages)."""
    chapters = tmp_path / "chapters"
    chapters.mkdir()
    (tmp_path / "references.bib").write_text("@misc{somebody2020, eprint = {2001.00001}, title = {It}}")
    (chapters / "index.md").write_text(
        "# Ledger\n\n```{toctree}\n03_it\n```\n\n```{ledger} Start\n```\n\n{claims}`holds`\n"
    )
    output = nbformat.v4.new_output(
        "display_data",
        {"text/plain": "it's 5 < 6"},
        metadata={"whyattention": {"name": "a/b", "value": 5.0}},
    )
    cells = [nbformat.v4.new_markdown_cell("# It"), nbformat.v4.new_code_cell("measured()", outputs=[output])]
    metadata = {"kernelspec": {"name": "python3", "language": "python", "display_name": "Python 3"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=metadata), chapters / "03_it.ipynb")
    monkeypatch.syspath_prepend(ROOT / "_ext")

    def build(claim: Claim) -> tuple[str, str, str]:
        import ledger  # the module that Sphinx will find

        monkeypatch.setattr(ledger, "LEDGER", (claim,))
        settings = {
            "extensions": ["myst_nb", "ledger"],
            "nb_execution_mode": "off",
            "root_doc": "chapters/index",
            "nitpicky": True,
        }
        out = tmp_path / "out"
        warnings = StringIO()
        app = Sphinx(tmp_path, None, out, tmp_path / "trees", "html", settings, status=None, warning=warnings)
        app.build()
        pages = ((out / "chapters" / f"{name}.html").read_text() for name in ("index", "03_it"))
        return warnings.getvalue(), *pages

    return build


def test_a_figure_is_quoted_from_the_notebook_and_linked_to_its_cell(build):
    warnings, page, chapter = build(CLAIM)
    assert warnings == ""
    href, text = re.search(r'<a[^>]*href="([^"]*#measured-[^"]*)"[^>]*><span[^>]*>(.*?)</span>', page).groups()
    assert html.unescape(text) == "it's 5 < 6"
    assert href == "03_it.html#measured-a-b" and len(re.findall(r'id="measured-a-b"', chapter)) == 1
    for shown in (CLAIM.article, CLAIM.says, CLAIM.quote, "https://arxiv.org/abs/2001.00001", 'id="claim-1"'):
        assert shown in page
    assert 'href="#claim-1"' in page and "1 claim: " in page


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"figures": ("a/b", "a/c")}, "03_it.ipynb does not measure 'a/c'"),
        ({"source": "nobody1999"}, "references.bib has no 'nobody1999'"),
        ({"section": "End"}, "no claim for the section 'Start'"),
    ],
)
def test_what_is_missing_is_named(build, wrong, message):
    warnings, _, _ = build(Claim(**{**vars(CLAIM), **wrong}))
    assert message in warnings
