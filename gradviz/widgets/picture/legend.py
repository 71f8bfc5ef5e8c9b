"""The foot: the colour bar, the marks that the picture has, and what is seen as one (`js/src/heatmap/legend.ts`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from gradviz.history.quantity import Quantity
from gradviz.widgets.colours import Domain
from gradviz.widgets.picture.fonts import font
from gradviz.widgets.picture.inks import COLOURS, Ink, Sheet
from gradviz.widgets.picture.looks import LEGEND, Look
from gradviz.widgets.picture.marks import paint

LINE = 20
"""Everything here is in CSS pixels."""
BAR_WIDTH, BAR_HEIGHT = 110, 9
KEY_WIDTH, KEY_HEIGHT = 20, 12
AIR, GAP = 14, 6
"""Between two entries, and between a mark and its word."""


class Legend:
    """What the foot holds, line by line.

    Parameters
    ----------
    quantity : Quantity
        What the colours stand for.
    domain : Domain or None
        The ends of the colours; None if nothing has a colour.
    looks : iterable of Look
        Those in the picture.
    notes : sequence of str
    width : float
        How much room there is.
    """

    def __init__(
        self, quantity: Quantity, domain: Domain | None, looks: Iterable[int], notes: Sequence[str], width: float
    ) -> None:
        self.label = quantity.label
        self.domain = domain
        looks = set(looks)
        self._lines: list[list[tuple[float, Look | str]]] = [[]]
        x = self._bar_width + AIR
        marks = [look for look in LEGEND if look in looks]
        where = [f"{quantity.where.strip()}:"] if quantity.where and marks else []
        entries: list[Look | str] = [*where, *marks, *notes]
        for entry in entries:
            room = font(11).width(entry) if isinstance(entry, str) else KEY_WIDTH + GAP + font(11).width(LEGEND[entry])
            if x + room > width:
                self._lines.append([])
                x = 0
            self._lines[-1].append((x, entry))
            x += room + AIR

    @property
    def height(self) -> float:
        """How high it is."""
        return LINE * len(self._lines)

    def draw(self, sheet: Sheet, left: float, top: float) -> None:
        """Draw it with its left top corner at a point."""
        self._draw_bar(sheet, left, top + 12)
        for place, line in enumerate(self._lines):
            baseline = top + LINE * place + 12
            for x, entry in line:
                if isinstance(entry, str):
                    sheet.write(left + x, baseline, entry, font(11), Ink.MUTED)
                else:
                    _draw_key(sheet, left + x, baseline, entry)

    @property
    def _ends(self) -> tuple[tuple[str, str], tuple[str, str]]:
        """Each end of the bar as a base and its exponent."""
        if self.domain is None:
            return ("low", ""), ("high", "")
        lo, hi, base = self.domain
        return ((f"1/{base**-lo}", ""), (str(base**hi), "")) if base == 2 else (("10", str(lo)), ("10", str(hi)))

    @property
    def _bar_width(self) -> float:
        return font(11).width(self.label) + 8 + sum(map(_end_width, self._ends)) + 2 * GAP + BAR_WIDTH

    def _draw_bar(self, sheet: Sheet, x: float, baseline: float) -> None:
        low, high = self._ends
        sheet.write(x, baseline, self.label, font(11), Ink.MUTED)
        x += font(11).width(self.label) + 8
        _write_end(sheet, x, baseline, low)
        x += _end_width(low) + GAP
        bar = sheet.box(x, baseline - 8, BAR_WIDTH, BAR_HEIGHT)
        bar[:] = np.arange(bar.shape[1]) * COLOURS // bar.shape[1]
        _write_end(sheet, x + BAR_WIDTH + GAP, baseline, high)


def _end_width(end: tuple[str, str]) -> float:
    return font(11).width(end[0]) + 0.5 + font(8).width(end[1])


def _write_end(sheet: Sheet, x: float, baseline: float, end: tuple[str, str]) -> None:
    sheet.write(x, baseline, end[0], font(11), Ink.MUTED)
    sheet.write(x + font(11).width(end[0]) + 0.5, baseline - 4.5, end[1], font(8), Ink.MUTED)


def _draw_key(sheet: Sheet, x: float, baseline: float, look: Look) -> None:
    swatch = sheet.box(x, baseline - 10, KEY_WIDTH, KEY_HEIGHT)
    swatch[:] = COLOURS * 150 // 256
    paint(swatch, np.full(swatch.shape[1], look, np.uint8))
    sheet.write(x + KEY_WIDTH + GAP, baseline, LEGEND[look], font(11), Ink.MUTED)
