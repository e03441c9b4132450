"""Published curves are whole, ordered, and say what the papers' text says of them."""

import numpy as np
import pytest

from whyattention.published import FOLDER, SOURCES, published


@pytest.mark.parametrize("name", SOURCES)
def test_a_figure_is_whole(name):
    figure = published(name)
    assert np.all(np.diff(figure.lengths) > 0)
    for curve in figure.curves.values():
        assert curve.shape == figure.lengths.shape
        assert np.all((curve > 0) & (curve < 50))  # BLEU in percent


@pytest.mark.parametrize("name", SOURCES)
def test_its_source_is_in_the_bibliography(name, root):
    assert f"{{{published(name).source},\n" in (root / "references.bib").read_text(encoding="utf-8")


def test_every_file_has_a_source():
    assert {path.stem for path in FOLDER.glob("*.csv")} == set(SOURCES)


def test_the_article_s_collapse_is_not_in_sutskever_but_in_bahdanau():
    sutskever, bahdanau = published("sutskever_fig3"), published("bahdanau_fig2")
    lstm = sutskever.curves["LSTM_ensemble"]
    assert lstm[sutskever.lengths == 79] > 0.9 * lstm[sutskever.lengths == 35]
    for name, kept in {"RNNenc-30": False, "RNNenc-50": False, "RNNsearch-30": False, "RNNsearch-50": True}.items():
        curve = bahdanau.curves[name]
        assert bool(curve[bahdanau.lengths == 59] > 0.9 * curve[bahdanau.lengths == 20]) == kept


def test_an_unknown_figure_is_named():
    with pytest.raises(ValueError, match=r"bahdanau_fig2.*got 'vaswani_fig1'"):
        published("vaswani_fig1")
