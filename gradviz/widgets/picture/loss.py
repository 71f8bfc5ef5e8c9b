"""The loss lane (`js/src/heatmap/loss.ts`): a line, a band from min to max where it stands for several iterations, and
chips where the loss was not finite.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from PIL import ImageDraw

from gradviz.history.overview import NAN, NEGINF, POSINF, Columns
from gradviz.widgets.picture import words
from gradviz.widgets.picture.chips import place_chips
from gradviz.widgets.picture.fonts import SCALE, font
from gradviz.widgets.picture.inks import FAINT, SMOOTH, Indices, Ink, Sheet, reduced
from gradviz.widgets.picture.looks import Look, looks_of
from gradviz.widgets.picture.marks import CHIP, paint_chip
from gradviz.widgets.picture.pixels import Pixels

HEIGHT = 54
"""CSS pixels."""
CHIP_HEIGHT = 12

LOG_FROM = 100
"""A loss that has fallen so many times is a flat line on a linear scale."""

NONFINITE = NAN | POSINF | NEGINF


@dataclass(frozen=True)
class Point:
    """The middle of the pixels that it stands for, and their largest and smallest loss."""

    x: float
    high: float
    low: float


class Loss:
    """The losses of a run as the pixels show them.

    Parameters
    ----------
    pixels : Pixels
    cells : Columns
        What the pixels show; the loss is the last row.
    newest : float
        The newest batch's own; NaN if nobody has said so. A last column of several iterations does not know.
    """

    def __init__(self, pixels: Pixels, cells: Columns, newest: float = math.nan) -> None:
        high, low = np.full((2, len(pixels.first)), np.nan, np.float32)
        flags = np.zeros(len(high), np.uint8)
        shown = pixels.shown
        high[shown], low[shown], flags[shown] = cells.maximum[:, -1], cells.minimum[:, -1], cells.flags[:, -1]
        bad = looks_of(np.full_like(high, np.nan), flags)
        self.looks: NDArray[np.uint8] = np.where(flags & NONFINITE > 0, bad, np.uint8(Look.VALUE))
        self.pieces = _pieces(pixels, high, low, flags & NONFINITE > 0)
        self.range = (float(np.nanmin(low)), float(np.nanmax(high))) if self.pieces else None
        self.last = _last(cells) if math.isnan(newest) else newest

    @property
    def log(self) -> bool:
        """Whether the lane is logarithmic."""
        return self.range is not None and self.range[0] > 0 and self.range[1] >= LOG_FROM * self.range[0]

    def draw(self, sheet: Sheet, x: float, y: float, width: float) -> None:
        """Draw the lane with its left top corner at a point."""
        lane = sheet.box(x, y, width, HEIGHT)
        lane[-SCALE:] = Ink.LINE.full
        chips = place_chips(self.looks, CHIP)
        for chip in chips:
            wide = chip.stop - chip.start > 3 * SCALE
            lane[:-SCALE, chip.start : max(chip.stop, chip.start + SCALE)] = FAINT if wide else Ink.BAD.full
        if self.range is not None:
            sheet.stencil(x, y, self._line(*lane.shape), Ink.ACCENT)
        for chip in chips:
            paint_chip(lane[: CHIP_HEIGHT * SCALE], chip)

    def label(self, sheet: Sheet, right: float, y: float) -> None:
        """Write the last loss, and between which it lay, beside the lane."""
        small, large = font(11), font(12.5, bold=True)
        middle = y + HEIGHT / 2 + 4
        value = words.glance(self.last)
        sheet.write(right, middle, value, large, Ink.TEXT if math.isfinite(self.last) else Ink.BAD, "rs")
        sheet.write(right - large.width(value) - 4, middle, "loss", small, Ink.MUTED, "rs")
        if self.range is not None and self.range[0] < self.range[1]:
            low, high = map(words.glance, self.range)
            sheet.write(right, y + 10, high, small, Ink.MUTED, "rs")
            sheet.write(right, y + HEIGHT - 3, f"(log) {low}" if self.log else low, small, Ink.MUTED, "rs")

    def _line(self, height: int, width: int) -> Indices:
        def draw(pen: ImageDraw.ImageDraw) -> None:
            for piece in self.pieces:
                if len(piece) > 1 and any(point.high > point.low for point in piece):
                    above = [(SMOOTH * point.x, y(point.high)) for point in piece]
                    below = [(SMOOTH * point.x, y(point.low)) for point in reversed(piece)]
                    pen.polygon([*above, *below], 255 // 3)
            for piece in self.pieces:
                line = [(SMOOTH * point.x, y((point.high + point.low) / 2)) for point in piece]
                pen.line(line, 255, round(1.5 * SCALE * SMOOTH), joint="curve")
                if len(line) == 1:  # a lone point has no line
                    pen.circle(line[0], 1.75 * SCALE * SMOOTH, 255)

        def y(value: float) -> float:
            top, bottom = 4 * SCALE * SMOOTH, (height - 5 * SCALE) * SMOOTH
            return bottom - self._share(value) * (bottom - top)

        return reduced(width, height, draw)

    def _share(self, value: float) -> float:
        low, high = self.range or (0.0, 0.0)
        if low == high:
            return 0.5
        return math.log(value / low) / math.log(high / low) if self.log else (value - low) / (high - low)


def _pieces(
    pixels: Pixels, high: NDArray[np.float32], low: NDArray[np.float32], bad: NDArray[np.bool_]
) -> list[list[Point]]:
    """The points between losses that are not finite; pixels that show the same are one."""
    pieces: list[list[Point]] = [[]]
    changes = np.flatnonzero((np.diff(pixels.first) != 0) | (np.diff(pixels.last) != 0)) + 1
    for a, b in pairwise([0, *changes.tolist(), len(high)]):
        if math.isfinite(high[a]):
            pieces[-1].append(Point((a + b) / 2, float(high[a]), float(low[a])))
        elif bad[a]:
            pieces.append([])
    return [piece for piece in pieces if piece]


def has_loss(columns: Columns) -> bool:
    """Whether any was recorded."""
    return bool(_taken(columns).any())


def _taken(columns: Columns) -> NDArray[np.bool_]:
    taken: NDArray[np.bool_] = np.isfinite(columns.maximum[:, -1]) | (columns.flags[:, -1] & NONFINITE > 0)
    return taken


def _last(cells: Columns) -> float:
    """Of the last cell that has one."""
    at = int(np.flatnonzero(_taken(cells))[-1])
    flags = int(cells.flags[at, -1])
    if flags & NAN:
        return math.nan
    if flags & (POSINF | NEGINF):
        return math.inf if flags & POSINF else -math.inf
    return float(cells.maximum[at, -1])
