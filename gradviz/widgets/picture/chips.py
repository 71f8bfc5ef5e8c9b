"""Where the marks of non-finite cells go in a row (`js/src/heatmap/chips.ts`).

A NaN may be one pixel wide, and a red line alone would speak by hue only. Its mark is a chip wide enough for a glyph,
centred on the run of cells; neighbouring chips move aside for each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from gradviz.widgets.picture.looks import Look

BAND = 3
"""A run this many chips wide repeats its glyph from its start on instead of centring one."""


@dataclass(frozen=True)
class Chip:
    """The mark of a run of pixels [start, stop).

    `left` and `right` are what it covers: as wide as the run or wider. Where neighbours leave no room there is no
    `glyph`, and the bare run is painted.
    """

    look: int
    start: int
    stop: int
    left: int
    right: int
    glyph: bool

    def is_band(self, size: int) -> bool:
        """Whether the run has room for several glyphs."""
        return self.stop - self.start >= BAND * size


def place_chips(looks: NDArray[np.uint8], size: int) -> list[Chip]:
    """The chips of a row, from left to right; `size` is the width of a glyph's.

    >>> place_chips(np.uint8([1, 1, 1, 1, 7, 1, 1, 1]), 3)
    [Chip(look=7, start=4, stop=5, left=3, right=6, glyph=True)]
    """
    chips: list[Chip] = []
    for look, start, stop in runs(looks):
        if look >= Look.NAN:
            chips.append(_place(look, start, stop, chips[-1] if chips else None, size, len(looks)))
    return chips


def runs(looks: NDArray[np.uint8]) -> list[tuple[int, int, int]]:
    """The stretches of one look: (look, start, stop)."""
    edges = [0, *(np.flatnonzero(np.diff(looks)) + 1).tolist(), len(looks)]
    return [(int(looks[a]), a, b) for a, b in pairwise(edges) if b > a]


def _place(look: int, start: int, stop: int, before: Chip | None, size: int, width: int) -> Chip:
    bare = Chip(look, start, stop, start, stop, glyph=False)
    if stop - start >= size:
        return Chip(look, start, stop, start, stop, glyph=True)
    centred = max(0, min(width - size, (start + stop - size + 1) // 2))
    left = max(centred, before.right + 1) if before is not None and before.glyph else centred
    if left - centred > size or left + size > width:
        return bare
    return Chip(look, start, stop, left, left + size, glyph=True)
