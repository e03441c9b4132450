"""How sure a share of successes is: so many out of so many seeds."""

import numpy as np


def wilson_interval(successes, trials, z: float = 1.96) -> tuple[np.ndarray, np.ndarray]:
    """(low, high): the probabilities of success that `successes` out of `trials` are compatible with.

    Wilson's score interval (Wilson 1927), at 95 per cent for the default `z`. Unlike share +- z standard errors it
    stays within 0 and 1 and is not empty at 0 or at all of `trials`. Raises ValueError unless 0 <= successes <= trials
    and trials >= 1.
    """
    successes, trials = np.asarray(successes, dtype=float), np.asarray(trials, dtype=float)
    if np.any(trials < 1) or np.any(successes < 0) or np.any(successes > trials):
        raise ValueError(f"expected 0 <= successes <= trials and trials >= 1, got {successes} out of {trials}")
    share = successes / trials
    centre = share + z**2 / (2 * trials)
    margin = z * np.sqrt(share * (1 - share) / trials + z**2 / (4 * trials**2))
    low, high = ((centre + sign * margin) / (1 + z**2 / trials) for sign in (-1, 1))
    return np.clip(low, 0, 1), np.clip(high, 0, 1)
