"""Curves of quality against sentence length, read out of the figures of the papers that this course is about."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Figure:
    """A published figure: where it stands, and its curves by name over `lengths` in words.

    `source` is a key of references.bib. Values are BLEU in percent, as each paper computed it: tokenised text, its own
    script, so that levels can be compared within a figure, not between two.
    """

    source: str
    where: str
    lengths: Float[np.ndarray, " points"]
    curves: dict[str, Float[np.ndarray, " points"]]


# By name of the file: key of references.bib, and the place in that paper.
SOURCES = {
    "bahdanau_fig2": ("bahdanau2015", "Bahdanau et al. 2014, figure 2"),
    "cho2014_fig4_fig5": ("cho2014properties", "Cho et al. 2014, figures 4 and 5"),
    "luong2015_fig6": ("luong2015", "Luong et al. 2015, figure 6"),
    "sutskever_fig3": ("sutskever2014", "Sutskever et al. 2014, figure 3, left"),
}


def published(name: str) -> Figure:
    """One of the figures in `SOURCES`. Raises ValueError if there is none of that name."""
    if name not in SOURCES:
        raise ValueError(f"the figure must be one of {', '.join(sorted(SOURCES))}; got {name!r}")
    source, where = SOURCES[name]
    header, *rows = (FOLDER / f"{name}.csv").read_text(encoding="utf-8").splitlines()
    lengths, *columns = np.array([[float(value) for value in row.split(",")] for row in rows]).T
    return Figure(source, where, lengths, dict(zip(header.split(",")[1:], columns, strict=True)))
