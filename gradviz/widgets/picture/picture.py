"""A run's heatmap as a still picture: what the live one shows (`js/src/heatmap/view.ts`), drawn without a browser."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gradviz.history.overview import Columns
from gradviz.history.quantity import NORM, Quantity
from gradviz.history.schema import Parameter
from gradviz.widgets.colours import Domain, colour_index, domain_of, scale_of
from gradviz.widgets.picture import loss, words
from gradviz.widgets.picture.fonts import SCALE, font
from gradviz.widgets.picture.inks import COLOURS, PAPER, Indices, Ink, Sheet
from gradviz.widgets.picture.legend import Legend
from gradviz.widgets.picture.looks import Look, looks_of
from gradviz.widgets.picture.loss import Loss
from gradviz.widgets.picture.marks import paint
from gradviz.widgets.picture.pixels import place_coarsely
from gradviz.widgets.picture.rows import PITCH, Group, Layout, arrange, fit_end, merge_rows
from gradviz.widgets.picture.ticks import epoch_ticks, iteration_ticks

# CSS pixels throughout.
WIDTH = 880
"""Fits beside JupyterLab's file browser, and its text stays legible at two thirds of the size."""
MARGIN = 8
GAP = 10
"""Between the names and the lanes."""
AXIS = 32
NAMES_AT_LEAST, NAMES_AT_MOST = 84, 240
NOTE = 33
"""The column of the dtypes, with its gap."""


def draw(
    columns: Columns,
    parameters: Sequence[Parameter],
    epoch_starts: Sequence[int],
    grain: int = 1,
    quantity: Quantity = NORM,
    newest_loss: float = math.nan,
) -> Indices:
    """The picture of a run that is over, as places in a palette: see `inks`.

    Parameters
    ----------
    columns : Columns
        A row for each parameter, and the loss last.
    parameters : sequence of Parameter
    epoch_starts : sequence of int
        The iteration each epoch began with.
    grain : int
        So many pixels side by side show the same: a picture of noise is a large file otherwise.
    quantity : Quantity
        What the numbers are. A ratio has no lane for the loss, and neither has a run without one.
    newest_loss : float
        The newest batch's own, beside the lane; NaN if nobody has said so.

    Returns
    -------
    uint8 array of shape [height, WIDTH * SCALE]
    """
    if not len(columns):
        return _empty()
    groups, layout = arrange(parameters[: columns.rows - 1])
    names = _names_width(layout)
    shows_loss = not quantity.runs and loss.has_loss(columns)
    left, heat = MARGIN + names + GAP, MARGIN + loss.HEIGHT + MARGIN if shows_loss else MARGIN
    width, axis = WIDTH - left - MARGIN, heat + layout.height
    span = int(columns.stop[-1])

    pixels = place_coarsely(columns, span, width * SCALE, grain)
    cells = pixels.merge(merge_rows(columns, groups))
    looks = np.full((width * SCALE, len(groups)), Look.NONE, np.uint8)
    scale = scale_of(quantity)
    values = scale.shown(cells.maximum[:, :-1], cells.minimum[:, :-1])
    looks[pixels.shown] = looks_of(values, cells.flags[:, :-1])
    domain = domain_of(columns.maximum[:, :-1], columns.minimum[:, :-1], scale)
    colours = np.full(looks.shape, PAPER, np.uint8)
    colours[pixels.shown] = _colours(values, domain)
    which = scale.which
    notes = [words.column_note(columns.level, pixels.most_iterations(columns), which), row_note(groups, which)]
    legend = Legend(quantity, domain, np.unique(looks).tolist(), [note for note in notes if note], width)

    sheet = Sheet(WIDTH, axis + AXIS + MARGIN + legend.height + MARGIN)
    if shows_loss:
        losses = Loss(pixels, cells, newest_loss)
        losses.label(sheet, left - GAP, MARGIN)
        losses.draw(sheet, left, MARGIN, width)
    _draw_names(sheet, layout, heat, names)
    for place, row in enumerate(layout.rows):
        band = sheet.box(left, heat + row.top, width, PITCH - 1)
        band[:] = colours[:, place]
        paint(band, looks[:, place])
    _draw_axis(sheet, epoch_starts, span, left, axis, width)
    legend.draw(sheet, left, axis + AXIS + MARGIN)
    return sheet.finished()


def _empty() -> Indices:
    sheet = Sheet(WIDTH, 80)
    sheet.write(WIDTH / 2, 40, "no iteration recorded", font(11.5), Ink.MUTED, "mm")
    return sheet.finished()


def _colours(values: NDArray[np.float32], domain: Domain | None) -> Indices:
    """Places in the colour map; what has no colour gets any, and a mark later."""
    if domain is None:
        return np.full(values.shape, PAPER, np.uint8)
    return colour_index(np.where(values > 0, values, 1), domain) // np.uint8(256 // COLOURS)


def _names_width(layout: Layout) -> int:
    """What the names need, within bounds."""
    needed = max((font(11.5).width(row.label) for row in layout.rows), default=0) + NOTE
    return math.ceil(min(max(needed, NAMES_AT_LEAST), NAMES_AT_MOST))


def _draw_names(sheet: Sheet, layout: Layout, top: float, width: float) -> None:
    plain, bold = font(11.5), font(11.5, bold=True)
    for header in layout.headers:
        text = fit_end(header.label, width, bold.width)
        sheet.write(MARGIN, top + header.top + header.height - 5, text, bold, Ink.TEXT)
    right = MARGIN + width - NOTE
    for row in layout.rows:
        baseline = top + row.top + 11
        sheet.write(right, baseline, fit_end(row.label, width - NOTE, plain.width), plain, Ink.TEXT, "rs")
        sheet.write(right + 6, baseline, row.note, font(11), Ink.MUTED)


def _draw_axis(sheet: Sheet, epochs: Sequence[int], span: int, left: float, top: float, width: float) -> None:
    small = font(11)
    for tick in epoch_ticks(epochs, span, width, small.width):
        sheet.box(left + round(tick.x), top + 3, 1, 8)[:] = Ink.MARK.full
        sheet.write(left + tick.left, top + 12, tick.label, small, Ink.MUTED)
    for tick in iteration_ticks(span, width, small.width):
        sheet.write(left + tick.left, top + 27, tick.label, small, Ink.MUTED)


def row_note(groups: Sequence[Group], which: str = "max") -> str:
    """How many parameters are seen as one row, and by which of them."""
    most = max((row.stop - row.start for row in groups), default=1)
    return f"1 row = up to {words.count(most)} parameters ({which})" if most > 1 else ""
