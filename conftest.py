"""Fixtures for tests of the repository as a whole, and folders in which pytest must not look."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parent

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
