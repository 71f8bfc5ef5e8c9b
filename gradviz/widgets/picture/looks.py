"""How a cell looks, decided by its flags and its value (`js/src/data/looks.ts`)."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from gradviz.history.overview import FROZEN, NAN, NEGINF, NOT_OPTIMIZED, POSINF, UNUSED, ZERO


class Look(IntEnum):
    """The looks of a cell; `NONE`: no column has come here."""

    NONE = 0
    VALUE = 1
    VALUE_NOT_OPTIMIZED = 2
    ZERO = 3
    UNUSED = 4
    FROZEN = 5
    NOT_RECORDED = 6
    NAN = 7
    POSINF = 8
    NEGINF = 9
    BOTHINF = 10


LEGEND = {
    Look.FROZEN: "frozen",
    Look.UNUSED: "unused",
    Look.ZERO: "zero",
    Look.NAN: "NaN",
    Look.POSINF: "+inf",
    Look.NEGINF: "−inf",
    Look.BOTHINF: "±inf",
    Look.VALUE_NOT_OPTIMIZED: "not in the optimizer",
    Look.NOT_RECORDED: "not recorded",
}
"""What is said of a look, in the order of the legend."""


def looks_of(values: NDArray[np.float32], flags: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The look of every cell. Trouble wins over a value, a value over its absence: what matters survives merging.

    >>> looks_of(np.float32([0.5, np.nan, 0.5, 0.0]), np.uint8([0, 1, 4, 8])).tolist()
    [1, 7, 9, 3]
    """
    infinite = flags & (POSINF | NEGINF)
    rules = [
        (flags & NAN > 0, Look.NAN),
        (infinite == POSINF, Look.POSINF),
        (infinite == NEGINF, Look.NEGINF),
        (infinite > 0, Look.BOTHINF),
        ((values > 0) & (flags & NOT_OPTIMIZED > 0), Look.VALUE_NOT_OPTIMIZED),
        (values > 0, Look.VALUE),
        ((values == 0) | (flags & ZERO > 0), Look.ZERO),
        (flags & UNUSED > 0, Look.UNUSED),
        (flags & FROZEN > 0, Look.FROZEN),
    ]
    where, what = zip(*rules, strict=True)
    return np.select(where, [np.uint8(look) for look in what], np.uint8(Look.NOT_RECORDED))
