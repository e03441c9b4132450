"""Set the repository's address everywhere. For a fork of the course, in the root of the clone:

    python tools/set_address.py https://github.com/OWNER/REPOSITORY

`_config.yml` holds the address. This command writes the new one there and into every file that must agree with it:
the notebooks' setup cells, the Colab links, the package's and the citation's metadata, and the address of the published
book. It changes no other byte of them, needs nothing but Python's standard library, and does nothing when run twice.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLLOWERS = (
    "_config.yml",
    "README.md",
    "CONTRIBUTING.md",
    "CITATION.cff",
    "pyproject.toml",
    "chapters/*.ipynb",
    "chapters/*.md",
    "src/**/*.py",
)
ADDRESS = re.compile(r"https://github\.com/([A-Za-z0-9-]+)/([A-Za-z0-9._-]+)")
END = r"(?![A-Za-z0-9_-])"  # why-attention is not the beginning of why-attention-2


def configured_address(root: Path) -> str:
    """The repository's address in `root/_config.yml`."""
    return re.search(r"^repository:\s*\n\s+url: (\S+)$", (root / "_config.yml").read_text(encoding="utf-8"), re.M)[1]


def published_book(address: str) -> str:
    """Where GitHub Pages publishes the repository's book, with a final slash."""
    owner, name = ADDRESS.fullmatch(address).groups()
    site = f"https://{owner.lower()}.github.io/"
    return site if name.lower() == f"{owner.lower()}.github.io" else f"{site}{name}/"


def set_address(new: str, root: Path) -> list[Path]:
    """Replace the configured address by `new`, and all that follows from it, under `root`.

    Returns:
        The files that changed.

    Raises:
        ValueError: `new` is not of the form https://github.com/OWNER/REPOSITORY.
    """
    if not ADDRESS.fullmatch(new) or new.endswith(".git"):
        raise ValueError(f"expected https://github.com/OWNER/REPOSITORY without .git or a final slash, got {new}")
    old = configured_address(root)
    replacements = (
        (old, new),  # also in git+https://… of the setup cells
        (old.replace("https://github.com/", "/github/"), new.replace("https://github.com/", "/github/")),  # Colab
        (published_book(old).rstrip("/"), published_book(new).rstrip("/")),
    )
    changed = []
    for path in sorted(path for pattern in FOLLOWERS for path in root.glob(pattern)):
        before = after = path.read_bytes().decode("utf-8")
        for was, becomes in replacements:
            after = re.sub(re.escape(was) + END, lambda _, becomes=becomes: becomes, after)
        if after != before:
            path.write_bytes(after.encode("utf-8"))
            changed.append(path)
    return changed


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    try:
        for path in set_address(sys.argv[1], ROOT):
            print(path.relative_to(ROOT))
    except ValueError as error:
        sys.exit(str(error))
