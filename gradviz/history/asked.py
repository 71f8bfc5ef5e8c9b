"""Any statistic of any stage as columns of a picture, in a bounded number: what a view asks for."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gradviz.errors import HistoryError, nearest
from gradviz.history.cells import AT_ONCE, columns_of
from gradviz.history.overview import NAN, NEGINF, POSINF, ZERO, Columns, Overview
from gradviz.history.rows import Rows, gathered
from gradviz.history.schema import COUNTS, STAGES
from gradviz.history.store import Store
from gradviz.history.update_ratio import NEEDS, update_ratio

MEASURES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("norm", "rms", "max_abs", "mean", "zero_fraction"), ()),
    "update_ratio": NEEDS,
}
"""What can be asked for, and the stages without which there is none."""

_PLAIN_ZEROS = ("mean", "zero_fraction")
"""Where 0 is a number like others, and not a gradient that is gone."""


def asked(store: Store, measure: str, stage: str, start: int, stop: int, most: int) -> Columns:
    """The iterations [start, stop) as at most so many columns, with the loss as the last row.

    Raises
    ------
    HistoryError
        If there is no such measure or stage.
    """
    if measure not in MEASURES:
        raise HistoryError(f"No picture shows {measure!r}: {nearest(measure, MEASURES)}")
    if stage not in STAGES:
        raise HistoryError(f"No stage is called {stage!r}: {nearest(stage, STAGES)}")
    picture = Overview(capacity=max(most, 1))
    with store.lock:
        iteration = np.array(store.iterations, np.int64)
        first, last = np.searchsorted(iteration, (start, stop)).tolist()
        for begin in range(first, last, AT_ONCE):
            picture.append(_cells(store, measure, stage, iteration, begin, min(begin + AT_ONCE, last)))
    return picture.columns


def _cells(store: Store, measure: str, stage: str, iteration: NDArray[np.int64], begin: int, end: int) -> Columns:
    """The rows [begin, end), one a column."""
    first, last = int(iteration[begin]), int(iteration[end - 1])
    places = np.arange(len(store.parameters))
    statistic = "norm" if measure in ("rms", "update_ratio") else measure  # what these follow from

    def rows_of(stage: str) -> Rows:
        return gathered(store.held(stage, first=first, last=last), (statistic, *COUNTS, "state"), places)

    rows = rows_of("update" if measure == "update_ratio" else stage)
    values = rows.planes[statistic]
    if measure == "update_ratio":
        values, _ = update_ratio(rows, rows_of("weight"))
    if measure == "rms":
        with np.errstate(all="ignore"):
            values = values / np.sqrt(_sizes(store))
    shown = Rows(rows.iteration, rows.epoch, rows.attempt, rows.planes | {"norm": values})
    loss = store.read_loss(begin, end)
    columns = columns_of(shown, loss[np.searchsorted(iteration[begin:end], rows.iteration)])
    if store.thins and len(columns):  # an iteration that was thinned belongs to the one before it
        columns.stop[:] = np.append(columns.start[1:], last + 1)
    for name, flag in zip(COUNTS, (NAN, POSINF, NEGINF), strict=True):
        columns.flags[:, :-1] |= (rows.planes[name] > 0) * np.uint8(flag)
    if measure in _PLAIN_ZEROS:
        columns.flags[:, :-1] &= ~np.uint8(ZERO)
    return columns


def _sizes(store: Store) -> NDArray[np.float64]:
    """How many entries each parameter has; NaN where that is unknown."""
    shapes = [parameter["shape"] for parameter in store.parameters]
    return np.array([np.nan if shape is None else float(np.prod(shape)) for shape in shapes])
