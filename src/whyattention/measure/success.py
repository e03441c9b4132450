"""How sure a share of successes is: so many out of so many seeds."""

import math

import numpy as np
from scipy.stats import binomtest


def wilson_interval(successes, trials, z: float = 1.96) -> tuple[np.ndarray, np.ndarray]:
    """(low, high): the probabilities of success that `successes` out of `trials` are compatible with.

    Wilson's score interval (Wilson 1927), at 95 per cent for the default `z`. Unlike share +- z standard errors it
    stays within 0 and 1 and is not empty at 0 or at all of `trials`. Raises ValueError unless both are whole numbers
    with 0 <= successes <= trials and trials >= 1.
    """
    successes, trials = np.asarray(successes), np.asarray(trials)
    whole = np.all(np.mod(successes, 1) == 0) and np.all(np.mod(trials, 1) == 0)  # false for NaN
    if not whole or np.any(trials < 1) or np.any(successes < 0) or np.any(successes > trials):
        raise ValueError(
            f"expected whole numbers, 0 <= successes <= trials and trials >= 1, got {successes} out of {trials}"
        )
    confidence = math.erf(z / math.sqrt(2))  # the share of a normal distribution within z

    def interval(successes, trials):
        return tuple(binomtest(int(successes), int(trials)).proportion_ci(confidence, method="wilson"))

    return np.vectorize(interval, otypes=[float, float])(successes, trials)
