"""What the looks are painted with: hatch, dots, lines, and glyphs on red (`js/src/heatmap/marks.ts`).

Patterns are tied to the sheet, not to the run of cells, so that a hatch has no seams.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray
from PIL import ImageDraw

from gradviz.widgets.picture.chips import Chip, place_chips
from gradviz.widgets.picture.fonts import SCALE
from gradviz.widgets.picture.inks import PAPER, SMOOTH, TRACK, Indices, Ink, ramp, reduced
from gradviz.widgets.picture.looks import Look

CHIP = 9 * SCALE
"""Width of a chip with a glyph."""


def paint(band: Indices, looks: NDArray[np.uint8]) -> None:
    """Paint the looks of a row's pixels on a band of [height, width] that has the values' colours already."""
    height, line = len(band), SCALE
    y, x = np.arange(height)[:, None], np.arange(band.shape[1])[None, :]
    for look in np.unique(looks):
        here = np.flatnonzero(looks == look)
        match look:
            case Look.NONE:
                band[:, here] = TRACK
            case Look.ZERO:
                band[:, here] = PAPER
                top = (height - line) // 2
                band[top : top + line, here] = Ink.MUTED.full
            case Look.FROZEN:
                hatch = _hatch()
                band[:, here] = hatch[y % len(hatch), x % len(hatch)][:, here]
            case Look.UNUSED:
                dots = _dots(height)
                band[:, here] = dots[:, here % dots.shape[1]]
            case Look.VALUE_NOT_OPTIMIZED:
                # Its value's colour, with a notched lower edge.
                band[height - 2 * line :, here[here % (4 * SCALE) < 2 * SCALE]] = PAPER
            case Look.NOT_RECORDED:
                band[:, here] = PAPER
                band[:: height - 1, here] = Ink.MARK.full
                inside = looks == look
                ends = inside & ~(np.append(False, inside[:-1]) & np.append(inside[1:], False))
                band[:, np.flatnonzero(ends)] = Ink.MARK.full
    for chip in place_chips(looks, CHIP):
        paint_chip(band, chip)


def paint_chip(band: Indices, chip: Chip) -> None:
    """The mark of a run of cells that are not finite."""
    height, size = len(band), CHIP
    if chip.right - chip.left > chip.stop - chip.start:
        # It covers neighbours: a gap on both sides says so, on any colour.
        band[:, max(0, chip.left - 1) : chip.right + 1] = PAPER
    band[:, chip.left : chip.right] = Ink.BAD.full
    if not chip.glyph:
        return
    glyph = _glyph(chip.look, height)
    if chip.is_band(size):
        lefts = range(chip.left + size // 2, chip.right - size + 1, 2 * size)
    else:
        left = (chip.left + chip.right - size) // 2
        lefts = range(left, left + 1)
    for left in lefts:
        band[:, left : left + size] = glyph


@cache
def _hatch() -> Indices:
    side = 5 * SCALE
    large = side * SMOOTH

    def draw(pen: ImageDraw.ImageDraw) -> None:
        for shift in (-large, 0, large):
            pen.line((shift - 9, large + 9, shift + large + 9, -9), 255, SCALE * SMOOTH)

    return ramp(reduced(side, side, draw), Ink.MARK)


@cache
def _dots(height: int) -> Indices:
    width = 7 * SCALE
    x, y, r = width * SMOOTH / 2, height * SMOOTH / 2, 1.3 * SCALE * SMOOTH
    return ramp(reduced(width, height, lambda pen: pen.ellipse((x - r, y - r, x + r, y + r), 255)), Ink.MARK)


@cache
def _glyph(look: int, height: int) -> Indices:
    """A cross for NaN, arrows for the infinities."""
    x, y = CHIP * SMOOTH / 2, height * SMOOTH / 2
    s = min(2.6 * SCALE, height / 4) * SMOOTH
    reach = 1.55 * s
    wing = 0.8 * s if look == Look.BOTHINF else s
    thick = round(1.3 * SCALE * SMOOTH)

    def draw(pen: ImageDraw.ImageDraw) -> None:
        if look == Look.NAN:
            pen.line((x - s, y - s, x + s, y + s), 255, thick)
            pen.line((x + s, y - s, x - s, y + s), 255, thick)
            return
        pen.line((x, y - reach, x, y + reach), 255, thick)
        for direction, is_there in ((-1, look != Look.NEGINF), (1, look != Look.POSINF)):
            if is_there:
                tip = y + direction * reach
                back = tip - direction * wing
                pen.line((x - wing, back, x, tip, x + wing, back), 255, thick, joint="curve")

    return ramp(reduced(CHIP, height, draw), Ink.GLYPH)
