"""One place holds the repository's address; everything else agrees with it, also after the command for forks."""

import importlib.util
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from urllib.parse import urlparse

import pytest
import yaml

FORK = "https://github.com/A-Teacher/course.notes_2027"
OWN_SITE = "https://github.com/A-Teacher/A-Teacher.github.io"  # a book published without a folder


def load_tool():
    spec = importlib.util.spec_from_file_location("set_address", Path(__file__).parent.parent / "tools/set_address.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


published_book = load_tool().published_book


def setup_cell(notebook: Path) -> str:
    """The source of the notebook's first code cell."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return "".join(next(cell for cell in cells if cell["cell_type"] == "code")["source"])


def disagreements(root: Path) -> list[str]:
    """Places that do not agree with the address in `root/_config.yml`."""
    config = yaml.safe_load((root / "_config.yml").read_text())
    address, branch = config["repository"]["url"], config["repository"]["branch"]
    owner, name = urlparse(address).path.strip("/").split("/")
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    citation = yaml.safe_load((root / "CITATION.cff").read_text())
    readme = (root / "README.md").read_text()
    checks = {
        "_config.yml baseurl": config["html"]["baseurl"] == published_book(address),
        "pyproject.toml": project["urls"]["Repository"] == address,
        "CITATION.cff repository-code": citation["repository-code"] == address,
        "CITATION.cff url": citation["url"] == config["html"]["baseurl"],
        "README.md clone command": f"git clone {address}\n" in readme,
    }
    for notebook in sorted(root.glob("chapters/*.ipynb")):
        chapter = notebook.relative_to(root).as_posix()
        colab = f"https://colab.research.google.com/github/{owner}/{name}/blob/{branch}/{chapter}"
        checks[f"{chapter} setup cell"] = f'"git+{address}"' in setup_cell(notebook)
        checks[f"README.md Colab link of {chapter}"] = f"]({colab})" in readme
    return [place for place, agrees in checks.items() if not agrees]


@pytest.fixture
def fork(copy_course, tmp_path) -> Path:
    """A copy of the course to be moved to another address."""
    return copy_course(tmp_path)


def run_command(folder: Path, *arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "tools/set_address.py", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_everything_agrees_with_the_configured_address(root):
    assert disagreements(root) == []


def test_a_disagreement_is_seen(fork):
    before = disagreements(fork)
    citation = fork / "CITATION.cff"
    citation.write_text(citation.read_text().replace("github.com/", "github.com/not-"))
    assert [place for place in disagreements(fork) if place not in before] == ["CITATION.cff repository-code"]


@pytest.mark.parametrize(
    ("address", "book"),
    [
        (FORK, "https://a-teacher.github.io/course.notes_2027/"),
        (OWN_SITE, "https://a-teacher.github.io/"),
        ("https://github.com/me/you.github.io", "https://me.github.io/you.github.io/"),
    ],
)
def test_where_github_publishes_a_book(address, book):
    assert published_book(address) == book


@pytest.mark.parametrize("new", [FORK, OWN_SITE])
def test_one_command_sets_the_address_everywhere_and_back(fork, root, new):
    config = yaml.safe_load((root / "_config.yml").read_text())
    address, book = config["repository"]["url"], config["html"]["baseurl"]
    before = contents(fork)

    assert run_command(fork, new).returncode == 0
    assert disagreements(fork) == []
    old = re.compile("|".join(re.escape(s) for s in (address, address.removeprefix("https://github.com"), book)))
    left = [name for name, data in contents(fork).items() if old.search(data.decode("utf-8", "ignore"))]
    assert [name for name in left if not name.startswith("tests/")] == []

    assert run_command(fork, new).stdout == "", "a second run must change nothing"
    assert run_command(fork, address).returncode == 0
    after = contents(fork)
    assert [name for name in before if before[name] != after[name]] == []


@pytest.mark.parametrize("wrong", ["github.com/me/course", "git@github.com:me/course.git", f"{FORK}/", f"{FORK}.git"])
def test_a_malformed_address_is_refused(fork, wrong):
    before = contents(fork)
    refused = run_command(fork, wrong)
    assert refused.returncode != 0
    assert wrong in refused.stderr and "https://github.com/OWNER/REPOSITORY" in refused.stderr
    assert contents(fork) == before
