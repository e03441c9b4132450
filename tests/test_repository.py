"""What holds for the repository as a whole: README's commands, the lock, what pytest collects, what CI may do."""

import json
import re
import shutil
import subprocess
import sys
import tomllib

import pytest
import yaml

BUILD = "pip install -r requirements.txt && jupyter-book build ."
TEST = "pip install -r requirements.txt && pytest --nbval"
PYTHONS = ["3.11", "3.12", "3.13"]


def name_of(requirement: str) -> str:
    """The distribution's name in a line of requirements, as package indexes compare it."""
    return re.match(r"[A-Za-z0-9._-]+", requirement)[0].lower().replace("_", "-").replace(".", "-")


def test_the_two_commands_stand_in_the_readme_and_ci_runs_them(root):
    readme = (root / "README.md").read_text()
    assert re.findall(r"^pip install.*$", readme, re.M) == [BUILD, TEST]
    assert f"\n{TEST}\n" in (root / ".ci" / "run").read_text()
    assert TEST in (root / ".github" / "workflows" / "test.yml").read_text()
    assert BUILD in (root / ".github" / "workflows" / "book.yml").read_text()


def test_the_lock_pins_everything_and_the_package_itself(root):
    lines = [line for line in (root / "requirements.txt").read_text().splitlines() if not line.strip().startswith("#")]
    assert lines[-1] == "-e ."
    pinned = {name_of(line) for line in lines[:-1] if re.fullmatch(r"[a-z0-9-]+==\S+( ; .*)?", line)}
    assert len(pinned) == len(lines) - 1
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    wanted = (root / "requirements.in").read_text().splitlines()
    wanted = [*project["dependencies"], *(line for line in wanted if line and not line.startswith("#"))]
    assert {name_of(line) for line in wanted} - pinned == set()


def test_the_package_asks_for_nothing_newer_than_colab_has(root):
    """Otherwise installing the course in Colab would move Colab's own packages."""
    colab = dict(line.split("==") for line in (root / "colab/2026.08.txt").read_text().splitlines() if "==" in line)
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    for line in project["dependencies"]:
        name, lowest = line.split(">=")
        if name in colab:
            assert [int(n) for n in lowest.split(".")] <= [int(n) for n in colab[name].split(".")], line


def test_copies_of_notebooks_and_installed_packages_are_not_collected(copy_course, tmp_path, clean_environment):
    course = copy_course(tmp_path)
    notebook = next(course.glob("chapters/*.ipynb"))
    for folder in ("_build/html/_sources/chapters", "_build/jupyter_execute/chapters", "chapters/.ipynb_checkpoints"):
        (course / folder).mkdir(parents=True)
        shutil.copy(notebook, course / folder)
    for test in course.glob("tests/test_*.py"):
        test.write_text("def test(): pass")  # what the tests import takes long and collects nothing
    for folder in (".venv", "venv", "env"):
        (course / folder).mkdir()
        (course / folder / "test_somebody.py").write_text("assert False")
    command = [sys.executable, "-m", "pytest", "--nbval", "--collect-only", "--quiet", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=course, env=clean_environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    collected = {line.split("::")[0] for line in done.stdout.splitlines() if "::" in line}
    expected = {path.relative_to(course).as_posix() for path in course.glob("chapters/*.ipynb")}
    expected |= {path.relative_to(course).as_posix() for path in course.glob("tests/**/test_*.py")}
    assert collected == expected


SLEEPERS = """
{imports}
import json, pathlib, time
import pytest

@pytest.mark.parametrize("number", range({count}))
def test(number):
    begin = time.monotonic()
    time.sleep(0.1)
    pathlib.Path(f"{name}_{{number}}.json").write_text(json.dumps([begin, time.monotonic()]))
"""


def test_nothing_runs_beside_what_takes_times(copy_course, tmp_path, clean_environment):
    course = copy_course(tmp_path)
    shutil.rmtree(course / "tests")
    (course / "tests").mkdir()
    stopwatch = "from whyattention.measure.timing import time_call"
    for name, count, imports in (("first", 2, ""), ("second", 20, ""), ("timed", 3, stopwatch)):
        text = SLEEPERS.format(name=name, count=count, imports=imports)
        (course / "tests" / f"test_{name}.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "--quiet", "-p", "no:cacheprovider", "tests"]
    subprocess.run(command, cwd=course, env=clean_environment, capture_output=True, check=True)

    def beside(a: str, b: str) -> bool:
        spans = [[json.loads(path.read_text()) for path in course.glob(f"{name}_*.json")] for name in (a, b)]
        return any(max(x[0], y[0]) < min(x[1], y[1]) for x in spans[0] for y in spans[1])

    assert len(list(course.glob("*_*.json"))) == 25
    assert beside("first", "second")
    assert not beside("timed", "first") and not beside("timed", "second")


@pytest.mark.parametrize("name", ["test", "book", "weekly"])
def test_a_workflow_has_the_least_privileges(root, name):
    workflow = yaml.safe_load((root / ".github" / "workflows" / f"{name}.yml").read_text())
    assert workflow["permissions"] == {"contents": "read"}
    for job_name, job in workflow["jobs"].items():
        allowed = {"pages": "write", "id-token": "write"} if job_name == "publish" else None
        assert job.get("permissions") == allowed
        for step in job["steps"]:
            assert re.fullmatch(r"actions/[a-z-]+@v\d+", step.get("uses", "actions/none@v1"))
            if "checkout" in step.get("uses", ""):
                assert step["with"]["persist-credentials"] is False


def test_ci_tests_every_python_that_the_readme_names(root):
    workflow = yaml.safe_load((root / ".github" / "workflows" / "test.yml").read_text())
    assert workflow["jobs"]["test"]["strategy"]["matrix"]["python"] == PYTHONS
    assert "Python 3.11, 3.12 or 3.13" in (root / "README.md").read_text()
