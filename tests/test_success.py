"""Wilson's interval: known values, sensible ends, and no nonsense accepted."""

import numpy as np
import pytest

from whyattention.measure.success import wilson_interval


def test_values_worked_out_by_hand():
    """5 of 10 at z = 2: centre 0.5, half width 2 sqrt(0.025 + 0.01) / 1.4."""
    low, high = wilson_interval(5, 10, z=2)
    assert (low, high) == pytest.approx((0.5 - 0.374166 / 1.4, 0.5 + 0.374166 / 1.4), abs=1e-6)


def test_none_and_all_are_not_certainties():
    low, high = wilson_interval([0, 10], 10)
    assert low == pytest.approx([0, 0.7225], abs=1e-3)
    assert high == pytest.approx([0.2775, 1], abs=1e-3)


def test_more_trials_say_more():
    low, high = wilson_interval([5, 50], [10, 100])
    assert np.all(np.diff(high - low) < 0)


@pytest.mark.parametrize(("successes", "trials"), [(-1, 5), (6, 5), (0, 0), (np.nan, 5), (2, np.nan), (2.5, 5)])
def test_impossible_counts_are_refused(successes, trials):
    with pytest.raises(ValueError, match="0 <= successes <= trials"):
        wilson_interval(successes, trials)


def test_being_very_sure_takes_a_wide_interval():
    low, high = wilson_interval(5, 10, z=100.0)
    assert 0 <= low < 0.01 and 0.99 < high <= 1


@pytest.mark.parametrize("z", [-1.0, np.inf, np.nan])
def test_impossible_widths_are_refused(z):
    with pytest.raises(ValueError, match="z must be"):
        wilson_interval(5, 10, z=z)
