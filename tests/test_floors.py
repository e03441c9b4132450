"""The package's floors: a file imports only from floors below its own, or from its own folder."""

import ast
import sys
import tomllib
from pathlib import Path

import pytest

PACKAGE = "whyattention"
# A folder is one entry. A file that is not here has no floor yet, and the test says so.
FLOORS = {
    "progress": 0,
    "scale": 0,
    "recurrent": 1,
    "attention": 1,
    "tasks": 1,
    "training": 1,
    "decoding": 1,
    "figures": 1,
    "claims": 1,
    "diagrams": 2,
    "published": 1,
    "language_model": 2,
    "mixers": 2,
    "regression": 2,
    "seq2seq": 2,
    "transformer": 2,
    "parallel": 2,
    "sharding": 2,
    "sequence_parallel": 2,
    "hosts": 3,
    "measure": 3,
    "record": 4,
    "exercises": 4,
}
IMPORT_NAMES = {"ipython": "IPython"}  # distributions imported under another name than their own


def imported_modules(source: str, module: str) -> set[str]:
    """Full names that `source`, the text of `module`, imports anywhere in it, relative ones resolved."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = module.split(".")[: -node.level] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            # `from whyattention import training` names a module; `from whyattention.training import fit` does not.
            names.update(f"{origin}.{alias.name}" for alias in node.names) if origin == PACKAGE else names.add(origin)
    return names


def violations(module: str, source: str) -> list[str]:
    """Imports in `source`, the text of `whyattention.<module>`, that go up or sideways."""
    part = module.split(".")[0]
    found = []
    for name in sorted(imported_modules(source, f"{PACKAGE}.{module}")):
        if name.split(".")[0] != PACKAGE:
            continue
        other = name.split(".")[1]
        if other != part and FLOORS[other] >= FLOORS[part]:
            found.append(f"{module} (floor {FLOORS[part]}) imports {other} (floor {FLOORS[other]})")
    return found


def package_files(root: Path) -> dict[str, Path]:
    """The package's files by module name without the package's own, `__init__` of a folder as `folder.__init__`."""
    source = root / "src" / PACKAGE
    paths = sorted(source.rglob("*.py"))
    names = {".".join(path.relative_to(source).with_suffix("").parts): path for path in paths}
    return {name: path for name, path in names.items() if name != "__init__"}


def test_a_file_imports_only_from_floors_below(root):
    files = package_files(root)
    assert len(files) > 10
    assert [found for name, path in files.items() for found in violations(name, path.read_text())] == []


@pytest.mark.parametrize(
    ("module", "source", "legal"),
    [
        ("training", "from whyattention.progress import track", True),
        ("training", "import whyattention.recurrent", False),
        ("recurrent", "def f():\n    from whyattention import language_model", False),
        ("tasks.text", "from whyattention.tasks.corpora import fetch", True),
        ("tasks.text", "from .corpora import fetch", True),
        ("tasks.text", "from ..training import fit", False),
        ("measure.cost", "from whyattention.record import run", False),
        ("record", "from whyattention import measure, figures", True),
    ],
)
def test_the_rule_tells_right_from_wrong(module, source, legal):
    assert (violations(module, source) == []) == legal


def test_the_package_itself_imports_nothing_of_its_own(root):
    """`import whyattention` must not start JAX: Colab's setup cell and every floor rely on that."""
    assert imported_modules((root / "src" / PACKAGE / "__init__.py").read_text(), PACKAGE) == set()


def test_every_import_is_a_declared_dependency(root):
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    declared = {line.split(">=")[0] for line in project["dependencies"]}
    allowed = {IMPORT_NAMES.get(name, name) for name in declared} | {PACKAGE, "jaxlib"} | set(sys.stdlib_module_names)
    used = {
        name.split(".")[0]
        for module, path in package_files(root).items()
        for name in imported_modules(path.read_text(), f"{PACKAGE}.{module}")
    }
    assert used - allowed == set()
