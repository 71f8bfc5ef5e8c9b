"""Which columns a pixel shows (`js/src/data/pixels.ts`).

A column at least a pixel wide owns the pixels from round(start) to round(stop). Narrower columns share pixels: then the
pixel shows every column that touches it, so that nothing is lost by downscaling.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gradviz.history.overview import Columns, join, merged


@dataclass(frozen=True)
class Pixels:
    """The pixels of a row.

    Attributes
    ----------
    first, last : int arrays of shape [width]
        The columns each pixel shows, both ends included; first > last where there is none.
    """

    first: NDArray[np.int64]
    last: NDArray[np.int64]

    @property
    def shown(self) -> NDArray[np.bool_]:
        """Where there is a column."""
        return self.first <= self.last

    @property
    def end(self) -> int:
        """One more than the last pixel that shows a column."""
        return int(np.flatnonzero(self.shown)[-1]) + 1 if self.shown.any() else 0

    def most_iterations(self, columns: Columns) -> int:
        """The largest number of iterations that one pixel shows."""
        if not self.shown.any():
            return 0
        first, last = self.first[self.shown], self.last[self.shown]
        return int(np.max(columns.stop[last].astype(np.int64) - columns.start[first]))

    def merge(self, columns: Columns) -> Columns:
        """What each pixel that shows anything shows: its columns as one."""
        first, last = self.first[self.shown], self.last[self.shown]
        ends = np.ravel(np.column_stack((first, last + 1)))  # reduceat wants every end to be a place in the array
        maximum, minimum, flags = merged(join([columns, columns[:1]]), ends, axis=0)
        return Columns(columns.start[first], columns.stop[last], maximum[::2], minimum[::2], flags[::2])


def place_coarsely(columns: Columns, span: int, width: int, grain: int) -> Pixels:
    """The same on pixels of which `grain` neighbours show the same."""
    blocks = max(width // grain, 1)
    coarse = place_columns(columns, span, blocks)
    block = np.arange(width) * blocks // width
    return Pixels(coarse.first[block], coarse.last[block])


def place_columns(columns: Columns, span: int, width: int) -> Pixels:
    """Columns on `width` pixels that stand for `span` iterations."""
    first, last = np.ones(width, np.int64), np.zeros(width, np.int64)
    shared = np.zeros(width, np.bool_)
    edges = [(a, b) for a, b in zip(columns.start.tolist(), columns.stop.tolist(), strict=True)]
    narrow = [(b - a) * width < span for a, b in edges]

    def show(pixel: int, column: int) -> None:
        if first[pixel] > last[pixel]:
            first[pixel] = last[pixel] = column
        else:
            first[pixel], last[pixel] = min(first[pixel], column), max(last[pixel], column)

    def touched(a: int, b: int) -> range:
        return range(a * width // span, min(width, -(-b * width // span)))

    for column, (a, b) in enumerate(edges):
        if narrow[column]:
            for pixel in touched(a, b):
                show(pixel, column)
                shared[pixel] = True
    for column, (a, b) in enumerate(edges):
        if not narrow[column]:
            owned = range(_round(a * width, span), _round(b * width, span))
            for pixel in touched(a, b):
                if shared[pixel] or pixel in owned:
                    show(pixel, column)
    return Pixels(first, last)


def _round(over: int, under: int) -> int:
    return (2 * over + under) // (2 * under)
