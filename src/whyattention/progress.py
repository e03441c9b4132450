"""Progress bars that a reader sees and that no stored notebook keeps.

Only a front end with a person at it lets a kernel ask for input; programs that execute notebooks (nbclient, nbval, a
book's build) do not, and they get no bar. After a bar in a notebook closes, its cell's output is cleared, so that
saving the notebook by hand keeps no trace of it either: draw or print after training, not before it in the same cell.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from IPython import get_ipython
from IPython.display import clear_output
from tqdm import tqdm


def _kernel():
    return getattr(get_ipython(), "kernel", None)


def wanted() -> bool:
    """True in a notebook that a person runs, and in a terminal."""
    kernel = _kernel()
    return bool(getattr(kernel, "_allow_stdin", False)) if kernel is not None else sys.stderr.isatty()


@contextmanager
def bar(total: int, label: str) -> Iterator[tqdm]:
    """A tqdm bar of `total` units; call `.update(n)` and `.set_postfix_str(text)` on what it yields."""
    shown = wanted()
    try:
        with tqdm(total=total, desc=label, disable=not shown, leave=False) as progress:
            yield progress
    finally:
        if shown and _kernel() is not None:
            clear_output()
