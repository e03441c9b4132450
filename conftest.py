"""What runs beside what, fixtures for tests of the repository as a whole, and folders in which pytest must not look."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path

import pytest
from filelock import ReadWriteLock

ROOT = Path(__file__).parent
STOPWATCH = re.compile(r"^\W*from whyattention\.measure(\.timing | import .*\b(timing|scaling)\b)", re.M)

# Copies of the notebooks in a built book, and packages in a virtual environment, are not the course's tests.
collect_ignore_glob = ["_build/*", ".venv/*", "venv/*", "env/*"]


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository's root folder."""
    return ROOT


@pytest.fixture(scope="session")
def copy_course() -> Callable[[Path], Path]:
    """A function that copies the repository's files as they are now, those that git ignores left out, into a folder."""

    def copy(target: Path) -> Path:
        command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if listed.returncode:
            pytest.skip(f"cannot tell the repository's files from others: {listed.stderr.strip()}")
        for name in listed.stdout.splitlines():
            if (ROOT / name).is_file():  # and not deleted since the last commit
                (target / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, target / name)
        return target

    return copy


@pytest.fixture(scope="session")
def clean_environment() -> dict[str, str]:
    """The environment for a subprocess: as here, without the variables by which pytest marks its own children."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}


@cache
def takes_times(path: Path) -> bool:
    """Whether a file of tests, or a notebook, imports what holds the stopwatch."""
    return STOPWATCH.search(path.read_text(encoding="utf-8")) is not None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Notebooks first, since they take longest; what must run alone last, when it keeps no other worker waiting."""
    items.sort(key=lambda item: (takes_times(item.path), item.path.suffix != ".ipynb"))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node) -> None:
    """Name a lock to each of the processes that run tests."""
    node.workerinput["lock"] = str(node.config._tmp_path_factory.getbasetemp() / "running")


def turn(item: pytest.Item) -> AbstractContextManager:
    """What `item` must hold while it runs: others may run beside it, but none beside one that takes times."""
    if not hasattr(item.config, "workerinput"):
        return nullcontext()  # the only process
    lock = ReadWriteLock(item.config.workerinput["lock"])
    return lock.write_lock() if takes_times(item.path) else lock.read_lock()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    with turn(item):
        return (yield)
