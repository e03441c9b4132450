"""How the book draws: series differ in colour, marker and line, spread is a band, baselines are named in place."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

# Okabe & Ito's palette, which colour-blind readers can tell apart, ordered so that neighbours differ in grey as well.
COLOURS = ("#0072B2", "#D55E00", "#56B4E9", "#000000", "#E69F00", "#009E73", "#CC79A7")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LINES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))
GREY = "#555555"


def use_style() -> None:
    """Sets matplotlib's defaults for the book: legible on a phone, on an opaque light ground for dark pages."""
    plt.rcParams.update(
        {
            "figure.figsize": (6.4, 3.8),
            "figure.dpi": 110,
            "figure.facecolor": "white",
            "savefig.facecolor": "white",
            "figure.constrained_layout.use": True,
            "font.size": 11.5,
            "axes.titlesize": 12,
            "axes.titlelocation": "left",
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "axes.axisbelow": True,
            "grid.color": "#DDDDDD",
            "grid.linewidth": 0.8,
            "lines.linewidth": 2.0,
            "lines.markersize": 5.5,
            "legend.frameon": False,
            "legend.fontsize": 10.5,
        }
    )


def series(index: int) -> dict:
    """Keyword arguments of `Axes.plot` for the index-th series. Raises ValueError past the seven that stay distinct."""
    if not 0 <= index < len(COLOURS):
        raise ValueError(f"a figure can tell {len(COLOURS)} series apart; asked for number {index}")
    return {"color": COLOURS[index], "marker": MARKERS[index], "linestyle": LINES[index]}


def band(ax: Axes, x, values, label: str, index: int, **plot) -> None:
    """The median over seeds as a line, and all seeds between the edges of a band.

    `values` is `[seeds, points]`, `x` is `[points]`. Raises ValueError if they do not fit.
    """
    values = np.asarray(values)
    if values.ndim != 2 or values.shape[1] != len(x):
        raise ValueError(f"band expects values of shape [seeds, {len(x)}], got {values.shape}")
    style = {**series(index), **plot}
    ax.plot(x, np.median(values, axis=0), label=label, **style)
    ax.fill_between(x, values.min(axis=0), values.max(axis=0), color=style["color"], alpha=0.2, linewidth=0)


def baseline(ax: Axes, height: float, label: str, place: float = 0.99) -> None:
    """A grey horizontal line with its name written on it, at `place` (0 left, 1 right) of the width."""
    ax.axhline(height, color=GREY, linestyle=(0, (2, 2)), linewidth=1.3, zorder=1)
    ax.text(
        place,
        height,
        label,
        transform=ax.get_yaxis_transform(),
        ha="right" if place > 0.5 else "left",
        va="bottom",
        color=GREY,
        fontsize=10,
    )


def ticks(axis: Axis, values) -> None:
    """Ticks at `values` alone, written out in full: for a logarithmic axis over the sizes that were measured."""
    axis.set_major_locator(FixedLocator(values))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())
