"""The notebooks as files: stored outputs are references, so they come from one clean run and hold on every machine."""

import ast
import re
from collections import Counter
from pathlib import Path

import matplotlib
import nbformat
import pytest
import yaml

CHAPTERS = Path(__file__).parent.parent / "chapters"
PATHS = sorted(CHAPTERS.glob("*.ipynb"))
NUMBERED = [path for path in PATHS if path.name[0].isdigit()]
LARGEST_FILE = 1_000_000  # bytes
LONGEST_CELL = 30  # lines
SHORTEST_ALT = 20  # characters
# A path that exists on one machine only; not the path of a web address.
MACHINE_PATH = re.compile(r"(?<![\w.:/-])/(?:tmp|home|root|Users|usr|var|opt|mnt|work|content)/\w|[A-Z]:\\+Users")
PROGRESS_BAR = re.compile(r"\r|\d%\||<progress|it/s\b")
MYST_ONLY = re.compile(r"\{(?:cite|ref|numref|term|doc|eq)(?::\w+)?\}`|^\s*(?:`{3,}|:{3,})\{", re.M)
SOLUTION = re.compile(r"<details>\s*<summary>Solution</summary>(.*?)</details>", re.S)
PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)
# Hosts of papers: a link to one of these is a citation.
PAPER = re.compile(
    r"https://(?:arxiv\.org|doi\.org|aclanthology\.org|openreview\.net|proceedings\.mlr\.press|proceedings\.neurips\.cc)"
    r"/[^\s)\]>\"]+"
)

every_notebook = pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
every_numbered_chapter = pytest.mark.parametrize("path", NUMBERED, ids=lambda path: path.stem)


def read(path: Path) -> nbformat.NotebookNode:
    return nbformat.read(path, as_version=4)


def code_cells(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def prose(notebook: nbformat.NotebookNode) -> str:
    return "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")


def tags(cell: nbformat.NotebookNode) -> list[str]:
    return cell.metadata.get("tags", [])


def output_texts(cell: nbformat.NotebookNode) -> list[str]:
    """What a code cell shows, images left out."""
    shown = []
    for output in cell.outputs:
        bundle = {"stream": output.get("text", "")} if output.output_type == "stream" else output.get("data", {})
        shown += [str(value) for kind, value in bundle.items() if not kind.startswith("image/png")]
    return shown


def has_image(cell: nbformat.NotebookNode) -> bool:
    return any(kind.startswith("image/") for output in cell.outputs for kind in output.get("data", {}))


def setup_part(notebook: nbformat.NotebookNode) -> str:
    """The first code cell up to its imports."""
    lines = code_cells(notebook)[0].source.splitlines()
    start = next((i for i, line in enumerate(lines) if i > 0 and re.match(r"(import|from) ", line)), len(lines))
    return "\n".join(lines[:start]).rstrip("\n")


def solutions(notebook: nbformat.NotebookNode) -> list[str]:
    """The code of each folded solution, in order."""
    folded = SOLUTION.findall(prose(notebook))
    return ["\n".join(PYTHON_BLOCK.findall(text)) for text in folded]


def test_the_contents_list_every_notebook(root):
    contents = yaml.safe_load((root / "_toc.yml").read_text())
    names = [contents["root"], *(chapter["file"] for part in contents["parts"] for chapter in part["chapters"])]
    listed = {f"{name}.ipynb" for name in names if (root / f"{name}.ipynb").exists()}
    assert listed == {path.relative_to(root).as_posix() for path in PATHS}
    assert len(NUMBERED) >= 3
    assert [path.stem for path in NUMBERED] == [Path(name).name for name in names if Path(name).name[0].isdigit()]


@every_notebook
def test_it_ran_once_from_top_to_bottom(path):
    cells = code_cells(read(path))
    assert all(cell.source.strip() for cell in cells)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))


@every_notebook
def test_it_stores_no_error_stderr_widget_or_progress_bar(path):
    notebook = read(path)
    assert "widgets" not in notebook.metadata
    for cell in code_cells(notebook):
        for output in cell.outputs:
            assert output.output_type != "error", cell.source
            assert output.get("name") != "stderr", output.text
            assert not [kind for kind in output.get("data", {}) if "widget" in kind], cell.source
        assert not [text for text in output_texts(cell) if PROGRESS_BAR.search(text)], cell.source


@every_notebook
def test_it_names_no_path_of_a_machine(path):
    for cell in read(path).cells:
        texts = [cell.source, *(output_texts(cell) if cell.cell_type == "code" else [])]
        assert not [found[0] for text in texts if (found := MACHINE_PATH.search(text))], cell.source


@every_notebook
def test_it_is_a_small_python_3_notebook(path):
    assert path.stat().st_size < LARGEST_FILE
    kernel = read(path).metadata.get("kernelspec", {})
    assert (kernel.get("name"), kernel.get("language")) == ("python3", "python")


@every_notebook
def test_every_cell_is_run_by_nbval(path):
    for cell in code_cells(read(path)):
        assert "nbval-skip" not in tags(cell) and "NBVAL_SKIP" not in cell.source, cell.source


def test_the_setup_is_the_same_everywhere(root):
    address = yaml.safe_load((root / "_config.yml").read_text())["repository"]["url"]
    parts = {path.name: setup_part(read(path)) for path in PATHS}
    assert len(set(parts.values())) == 1, parts
    setup = next(iter(parts.values()))
    assert f'"git+{address}"' in setup
    # What is imported before the package is installed, installing it can no longer move.
    imports = [node for node in ast.walk(ast.parse(setup)) if isinstance(node, ast.Import | ast.ImportFrom)]
    assert {ast.unparse(node) for node in imports} == {"import sys", "import subprocess", "import importlib.util"}


@every_notebook
def test_only_the_first_code_cell_is_the_setup_and_it_prints_nothing(path):
    first, *others = code_cells(read(path))
    assert "setup" in tags(first) and first.outputs == []
    assert not [cell.source for cell in others if "setup" in tags(cell)]


@every_numbered_chapter
def test_the_knobs_come_next_and_begin_with_the_seed(path):
    assert code_cells(read(path))[1].source.startswith("SEED = 0")


@every_notebook
def test_a_code_cell_fits_the_eye(path):
    for cell in code_cells(read(path))[1:]:  # the first is a list of imports
        assert len(cell.source.strip().splitlines()) <= LONGEST_CELL, cell.source


@every_notebook
def test_every_figure_has_an_alternative_text(path):
    notebook = read(path)
    for cell in filter(has_image, code_cells(notebook)):
        alt = cell.metadata.get("mystnb", {}).get("image", {}).get("alt", "")
        assert len(alt) >= SHORTEST_ALT, cell.source
    assert not re.search(rf"!\[.{{0,{SHORTEST_ALT - 1}}}\]\(|<img", prose(notebook))


@every_notebook
def test_a_cell_with_a_caption_shows_the_figure_and_nothing_else(path):
    """MyST-NB would wrap each of the cell's outputs in the figure, caption and all. Only printed text it leaves out."""
    for cell in code_cells(read(path)):
        if "figure" in cell.metadata.get("mystnb", {}):
            assert [has_image(cell)] == [True for output in cell.outputs if output.output_type != "stream"], cell.source


def test_the_names_of_figures_are_unique():
    figures = [cell.metadata.get("mystnb", {}).get("figure", {}) for path in PATHS for cell in code_cells(read(path))]
    names = Counter(figure["name"] for figure in figures if "name" in figure)
    assert [name for name, count in names.items() if count > 1] == []


@every_numbered_chapter
def test_it_reaches_a_verdict_that_nbval_compares(path):
    verdicts = [cell for cell in code_cells(read(path)) if "verdict" in tags(cell)]
    assert verdicts
    for cell in verdicts:
        assert tags(cell) == ["verdict"], f"nbval must compare this: {cell.source}"
        assert any(isinstance(node, ast.Assert) for node in ast.walk(ast.parse(cell.source))), cell.source
        assert any(output.get("name") == "stdout" for output in cell.outputs), f"prints no sentence: {cell.source}"


@every_notebook
def test_its_prose_is_plain_markdown(path):
    """Colab and GitHub show MyST's roles and directives as they are written."""
    assert not [found[0] for found in MYST_ONLY.finditer(prose(read(path)))]


@every_notebook
def test_its_prose_has_no_control_characters(path):
    r"""They are what is left of \alpha or \text after a string that should have been raw."""
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", prose(read(path)))


@every_notebook
def test_what_it_cites_is_in_the_bibliography(path, root):
    records = (root / "references.bib").read_text()
    known = set(re.findall(r"^\s*url\s*=\s*\{(.*)\}", records, re.M))
    known |= {f"https://arxiv.org/abs/{number}" for number in re.findall(r"eprint\s*=\s*\{(.*)\}", records)}
    known |= {f"https://doi.org/{name}" for name in re.findall(r"doi\s*=\s*\{(.*)\}", records)}
    cited = {link.rstrip(".,;") for link in PAPER.findall(prose(read(path)))}
    assert cited - known == set()


@every_numbered_chapter
def test_it_has_exercises_that_check_themselves(path):
    blocks = solutions(read(path))
    assert 3 <= len(blocks) <= 5
    for block in blocks:
        calls = [
            node.func.id
            for node in ast.walk(ast.parse(block))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        ]
        assert [name for name in calls if name.startswith("check_")], f"checks nothing:\n{block}"


@every_numbered_chapter
def test_its_solutions_pass_their_checks(path, capsys):
    """The first cell and then every solution in order, and nothing else of the notebook, as one program."""
    notebook = read(path)
    source = "\n\n".join([code_cells(notebook)[0].source, *solutions(notebook)])
    with matplotlib.rc_context({"backend": "agg"}):
        exec(compile(source, f"the solutions of {path.name}", "exec"), {"__name__": "__main__"})
    printed = capsys.readouterr()
    assert len(re.findall(r"^Correct", printed.out, re.M)) >= len(solutions(notebook)), printed.out
    assert printed.err == ""
