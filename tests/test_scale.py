"""The scale of the experiments."""

import pytest

from whyattention.scale import at_scale


def test_quick_is_the_default_and_full_is_asked_for(monkeypatch):
    monkeypatch.delenv("WHYATTENTION_SCALE", raising=False)
    assert at_scale(quick=1, full=2) == 1
    monkeypatch.setenv("WHYATTENTION_SCALE", "full")
    assert at_scale(quick=1, full=2) == 2


def test_an_unknown_scale_is_named(monkeypatch):
    monkeypatch.setenv("WHYATTENTION_SCALE", "huge")
    with pytest.raises(ValueError, match="quick, full; got 'huge'"):
        at_scale(quick=1, full=2)
