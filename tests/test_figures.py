"""Figures: series stay apart without colour, bands say what they need."""

from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_rgb

from whyattention import figures


@pytest.fixture
def ax():
    figure, ax = plt.subplots()
    yield ax
    plt.close(figure)


def test_series_differ_without_colour():
    styles = [figures.series(index) for index in range(len(figures.COLOURS))]
    assert len({style["marker"] for style in styles}) == len({str(style["linestyle"]) for style in styles}) == 7


def test_neighbouring_series_differ_in_grey():
    grey = [np.dot(to_rgb(colour), (0.299, 0.587, 0.114)) for colour in figures.COLOURS]
    assert all(abs(one - next_) > 0.05 for one, next_ in pairwise(grey))


def test_a_band_is_the_median_and_the_extremes(ax):
    figures.band(ax, [0, 1], [[1, 2], [3, 5], [2, 9]], "a", 0)
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), [2, 5])
    heights = ax.collections[0].get_paths()[0].vertices[:, 1]
    assert (heights.min(), heights.max()) == (1, 9)


def test_a_baseline_is_named_in_place(ax):
    figures.baseline(ax, 0.5, "chance")
    assert ax.texts[0].get_text() == "chance" and ax.lines[0].get_ydata()[0] == 0.5


def test_what_does_not_fit_is_named(ax):
    with pytest.raises(ValueError, match=r"\[seeds, 3\], got \(2,\)"):
        figures.band(ax, [1, 2, 3], [1, 2], "a", 0)
    with pytest.raises(ValueError, match="7 series apart; asked for number 7"):
        figures.series(7)


def test_ticks_stand_at_the_measured_sizes_and_are_written_out(ax):
    ax.set_xscale("log")
    ax.plot([4, 1000], [1, 2])
    figures.ticks(ax.xaxis, [4, 64, 1000])
    ax.figure.canvas.draw()
    assert [label.get_text() for label in ax.get_xticklabels()] == ["4", "64", "1000"]
    assert len(ax.xaxis.get_minorticklocs()) == 0
