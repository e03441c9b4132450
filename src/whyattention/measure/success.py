"""How sure a share of successes is: so many out of so many seeds."""

import numpy as np


def wilson_interval(successes, trials, z: float = 1.96) -> tuple[np.ndarray, np.ndarray]:
    """(low, high): the probabilities of success that `successes` out of `trials` are compatible with.

    Wilson's score interval (Wilson 1927), at 95 per cent for the default `z`. Unlike share +- z standard errors it
    stays within 0 and 1 and is not empty at 0 or at all of `trials`. Raises ValueError unless both are whole numbers
    with 0 <= successes <= trials and trials >= 1, or if `z` is negative or not finite.
    """
    successes, trials = np.asarray(successes), np.asarray(trials)
    whole = np.all(np.mod(successes, 1) == 0) and np.all(np.mod(trials, 1) == 0)  # false for NaN
    if not 0 <= z < np.inf:
        raise ValueError(f"z must be a finite number from 0, got {z}")
    if not whole or np.any(trials < 1) or np.any(successes < 0) or np.any(successes > trials):
        raise ValueError(
            f"expected whole numbers, 0 <= successes <= trials and trials >= 1, got {successes} out of {trials}"
        )
    share, weight = successes / trials, z**2 / trials
    centre = (share + weight / 2) / (1 + weight)
    half_width = np.sqrt(share * (1 - share) * weight + weight**2 / 4) / (1 + weight)
    # None and all of them belong to the interval exactly, which rounding may miss.
    return np.minimum(np.maximum(centre - half_width, 0), share), np.maximum(np.minimum(centre + half_width, 1), share)
