"""How far each step moved a parameter, as a share of it: the norm of the update divided by that of the weight."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gradviz.history.rows import Rows

NEEDS = ("update", "weight")
"""The stages that it is made of."""


def update_ratio(update: Rows, weight: Rows) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The ratio of each parameter in each row of `update`, and which of these rows have one of `weight` beside them.

    NaN where there is none, and where a parameter of zeros stayed so; inf where it was all zeros and moved.
    """
    ratio = np.full_like(update.planes["norm"], np.nan)
    _, at, beside = np.intersect1d(_keys(update), _keys(weight), assume_unique=True, return_indices=True)
    with np.errstate(all="ignore"):
        ratio[at] = update.planes["norm"][at] / weight.planes["norm"][beside]
    has_both = np.zeros(len(update), np.bool_)
    has_both[at] = True
    return ratio, has_both


def _keys(rows: Rows) -> NDArray[np.int64]:
    """An iteration that was recorded again is another row."""
    return (rows.attempt << 48) + rows.iteration
