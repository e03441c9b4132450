"""How large the experiments are: `quick` on a laptop's CPU, `full` on a GPU or TPU or with patience."""

import os
from typing import TypeVar

T = TypeVar("T")

SCALES = ("quick", "full")


def check_scale(name: str) -> str:
    """`name`, if it is a scale. Raises ValueError otherwise."""
    if name not in SCALES:
        raise ValueError(f"the scale must be one of {', '.join(SCALES)}; got {name!r}")
    return name


def at_scale(*, quick: T, full: T) -> T:
    """The value for the scale that `$WHYATTENTION_SCALE` names; `quick` where it names none.

    Raises ValueError for any other name.
    """
    return {"quick": quick, "full": full}[check_scale(os.environ.get("WHYATTENTION_SCALE", "quick"))]
