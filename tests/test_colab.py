"""The course on Colab's versions: an environment like Colab's, the setup cell as it stands, then notebooks and tests.

This takes minutes and a Python 3.13, and runs where WHYATTENTION_COLAB_TEST is set: to `all` for every notebook, to
anything else for those of the first three chapters.
"""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import nbformat
import pytest
import yaml

WANTED = os.environ.get("WHYATTENTION_COLAB_TEST")
VERSIONS = "colab/2026.08.txt"
PIP = "pip==24.1.2"
# What the course needs of Colab's own packages, and what pytest needs to run notebooks and tests there.
COLAB_PACKAGES = ["jax", "jaxlib", "flax", "optax", "numpy", "scipy", "matplotlib", "tqdm", "ipykernel", "ipython"]
TEST_PACKAGES = ["pytest", "pytest-xdist", "filelock", "nbval", "nbclient", "nbformat", "hypothesis"]
CHAPTERS = Path(__file__).parent.parent / "chapters"
NOTEBOOKS = [
    path.name for pattern in (["*"] if WANTED == "all" else ["index", "primer", "0[1-3]_*"])
    for path in sorted(CHAPTERS.glob(f"{pattern}.ipynb"))
]  # fmt: skip

# Tests of the module import it; those of the book need what builds a book too, which nobody has in Colab.
OF_THE_MODULE = re.compile(r"^(from|import) whyattention", re.M)
OF_THE_BOOK = re.compile(r"^(from|import) (docutils|sphinx)", re.M)
PROBE = """
import importlib.metadata, json
distribution = importlib.metadata.distribution("whyattention")
print(json.dumps(json.loads(distribution.read_text("direct_url.json"))))
"""

pytestmark = pytest.mark.skipif(not WANTED, reason="takes minutes; set WHYATTENTION_COLAB_TEST=1 to run it")


def run(*command, **options) -> str:
    """The output of a command that must succeed."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout[-6000:]}"
    return done.stdout


def find_python(version: str) -> str | None:
    """A Python of that version: on the PATH, or kept by pyenv or uv."""
    candidates = [shutil.which(f"python{version}")]
    for tool, arguments in (("pyenv", ["prefix", version]), ("uv", ["python", "find", version])):
        if shutil.which(tool):
            found = subprocess.run([tool, *arguments], capture_output=True, text=True).stdout.strip()
            candidates.append(f"{found}/bin/python" if tool == "pyenv" else found)
    for python in filter(None, candidates):
        # A shim of pyenv may stand on the PATH for a version that is not chosen, and then only fails.
        if shutil.which(python) and subprocess.run([python, "-c", ""], capture_output=True).returncode == 0:
            return python
    return None


@pytest.fixture(scope="module")
def address(root) -> str:
    """The repository's address."""
    return yaml.safe_load((root / "_config.yml").read_text())["repository"]["url"]


@pytest.fixture(scope="module")
def course(copy_course, tmp_path_factory) -> Path:
    """A git repository that holds the course as it is now, uncommitted changes included."""
    course = copy_course(tmp_path_factory.mktemp("course"))
    author = ["-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "commit.gpgsign=false"]
    run("git", "init", "--quiet", cwd=course)
    run("git", "add", "--all", cwd=course)
    run("git", *author, "commit", "--quiet", "--message", "The course", cwd=course)
    return course


@pytest.fixture(scope="module")
def environment(address, course, clean_environment) -> dict[str, str]:
    """Variables that make git take the local repository for the one at the course's address."""
    git = {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.{course.as_uri()}.insteadOf",
        "GIT_CONFIG_VALUE_0": address,
    }
    return {**clean_environment, **git}


@pytest.fixture(scope="module")
def colab(root, tmp_path_factory, clean_environment) -> Path:
    """The Python of an environment with Colab's packages in Colab's versions, and `google.colab` in every process."""
    base = find_python("3.13")
    if base is None:
        pytest.skip("Colab runs Python 3.13, and none was found on the PATH, in pyenv or in uv")
    folder = tmp_path_factory.mktemp("colab")
    run(base, "-m", "venv", folder, env=clean_environment)
    python = folder / "bin" / "python"
    install = [python, "-m", "pip", "install", "--quiet"]
    run(*install, PIP, env=clean_environment)
    run(*install, "--constraint", root / VERSIONS, *COLAB_PACKAGES, *TEST_PACKAGES, env=clean_environment)
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    (site / "google" / "colab").mkdir(parents=True)
    (site / "google" / "colab" / "__init__.py").touch()
    (site / "google" / "colab" / "output.py").touch()  # JAX imports it where it finds itself in Colab
    (site / "google_colab.pth").write_text("import google.colab\n")
    return python


@pytest.fixture(scope="module")
def installed(colab, environment, address, tmp_path_factory) -> dict[str, dict[str, str]]:
    """Versions `before` and `after` a notebook's first cell, as it stands, has run in a kernel of that environment."""

    def versions() -> dict[str, str]:
        listed = run(colab, "-m", "pip", "list", "--format=json", env=environment).splitlines()[0]
        return {package["name"]: package["version"] for package in json.loads(listed)}

    before = versions()
    source = nbformat.read(CHAPTERS / "primer.ipynb", as_version=4)
    first = next(cell for cell in source.cells if cell.cell_type == "code")
    notebook = nbformat.v4.new_notebook(
        metadata=source.metadata, cells=[nbformat.v4.new_code_cell(first.source), nbformat.v4.new_code_cell(PROBE)]
    )
    folder = tmp_path_factory.mktemp("content")  # as in Colab, a folder with no repository around it
    nbformat.write(notebook, folder / "first_cell.ipynb")
    run(colab.with_name("jupyter"), "execute", "--inplace", "first_cell.ipynb", cwd=folder, env=environment)
    probe = nbformat.read(folder / "first_cell.ipynb", as_version=4).cells[-1]
    assert json.loads(probe.outputs[0].text)["url"] == address
    return {"before": before, "after": versions()}


def test_the_setup_cell_installs_the_course_and_moves_nothing(installed):
    before, after = installed["before"], installed["after"]
    assert "whyattention" not in before and "whyattention" in after
    assert {"jax", "jaxlib", "flax", "numpy"} <= set(before)
    moved = {name: (version, after.get(name)) for name, version in before.items() if after.get(name) != version}
    assert moved == {}


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_a_notebook_runs(notebook, installed, colab, environment, tmp_path):
    shutil.copy(CHAPTERS / notebook, tmp_path)
    run(colab, "-m", "pytest", "--nbval-lax", "-p", "no:cacheprovider", notebook, cwd=tmp_path, env=environment)


def test_the_modules_tests_pass(installed, colab, environment, course):
    texts = {path: path.read_text() for path in sorted(course.glob("tests/test_*.py"))}
    tests = [path for path, text in texts.items() if OF_THE_MODULE.search(text) and not OF_THE_BOOK.search(text)]
    # Old matplotlib warns of newer pyparsing, and the like: only the course's own warnings count here.
    options = ["-p", "no:cacheprovider", "-o", "filterwarnings=error:::whyattention"]
    run(colab, "-m", "pytest", *options, *tests, cwd=course, env=environment)
