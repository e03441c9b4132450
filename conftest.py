"""What every test can ask for, and where pytest must not look."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parent

# Copies of the notebooks in a built book, and packages in a virtual environment, are not the course's tests.
collect_ignore_glob = ["_build/*", "venv/*", ".venv/*", "env/*"]


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository's root folder."""
    return ROOT


@pytest.fixture(scope="session")
def clean_environment() -> dict[str, str]:
    """The environment for a subprocess: as here, without the variables by which pytest marks its own children."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
