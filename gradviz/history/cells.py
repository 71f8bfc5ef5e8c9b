"""Rows as columns of a picture: a cell for each parameter's norm, with what happened there, and the loss last.

A column of an iteration that was thinned has the loss alone, and joins the one before it: it says nothing of gradients.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from gradviz.history import schema
from gradviz.history.attempts import END
from gradviz.history.overview import (
    FROZEN,
    NAN,
    NEGINF,
    NOT_OPTIMIZED,
    NOT_RECORDED,
    POSINF,
    UNUSED,
    ZERO,
    Columns,
    Overview,
)
from gradviz.history.rows import Rows, gathered
from gradviz.history.schema import COUNTS
from gradviz.history.store import Store
from gradviz.history.table import Column

_STATE_FLAGS = np.array([0, UNUSED, FROZEN, NOT_OPTIMIZED, NOT_RECORDED], np.uint8)
_MEASURED = (schema.OK, schema.NOT_OPTIMIZED)
_FLOAT32 = np.finfo(np.float32)
AT_ONCE = 4096
"""Iterations that are read at once."""

PLANES = ("norm", *COUNTS, "state")
"""What a picture needs of rows."""


class Picture:
    """The picture of a store: bounded, however long the run. It is drawn anew where rows no longer hold."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.begin()

    def begin(self, overview: Overview | None = None, seen: int = 0) -> None:
        """Draw anew, or go on from what shows the first iterations already."""
        self._overview, self._seen = overview or Overview(), seen
        self._attempt = self._store.attempts.current

    def redraw_newest(self) -> None:
        """Draw the last column anew: more is known of the newest iteration than when it was drawn."""
        with self._store.lock:
            if self._seen == len(self._store.iterations):
                start = self._overview.drop_newest()
                self._seen = bisect_left(self._store.iterations, start)

    def overview(self) -> tuple[Columns, int]:
        """The whole run in a bounded number of columns, and how many iterations they show."""
        with self._store.lock:
            if self._attempt != self._store.attempts.current or self._seen > len(self._store.iterations):
                self.begin()
            while self._seen < len(self._store.iterations):
                fresh = self.columns(self._seen, self._seen + AT_ONCE)
                self._overview.append(fresh)
                self._seen += len(fresh)
            return self._overview.columns, self._seen

    def drawn(self, most: int) -> Columns:
        """The whole run in at most so many columns, drawn anew."""
        overview = Overview(most)
        with self._store.lock:
            for start in range(0, len(self._store.iterations), AT_ONCE):
                overview.append(self.columns(start, start + AT_ONCE))
        return overview.columns

    def columns(self, start: int, stop: int | None = None) -> Columns:
        """The iterations that hold, from the row `start` on, one a column."""
        store = self._store
        with store.lock:
            places = np.arange(len(store.parameters))
            iteration = np.array(store.iterations[start:stop], np.int64)
            if not len(iteration):
                return columns_of(gathered([], PLANES, places), Column(np.empty(0)))
            first, last = int(iteration[0]), int(iteration[-1])
            rows = gathered(store.held("backward", first=first, last=last), PLANES, places)
            recorded = rows.iteration
            if not np.array_equal(rows.iteration, iteration):
                rows = _aligned(rows, iteration, places)
            columns = columns_of(rows, store.read_loss(start, stop))
            if store.thins:
                joins = store.read_metrics(start, stop)["thinned"].values & (iteration > self._first_recorded())
                columns.flags[joins & ~np.isin(iteration, recorded), :-1] = 0
            return columns

    def _first_recorded(self) -> int:
        pieces = self._store.held("backward")
        return int(pieces[0][0].iteration[pieces[0][1]][0]) if pieces else END


def _aligned(rows: Rows, iteration: NDArray[np.int64], places: NDArray[np.int64]) -> Rows:
    """The same for other iterations; of those that are not among the rows, nothing was recorded."""
    at = np.searchsorted(iteration, rows.iteration)
    is_there = (at < len(iteration)) & (iteration[np.minimum(at, len(iteration) - 1)] == rows.iteration)
    planes = {}
    for name, plane in rows.planes.items():
        fill = schema.NOT_RECORDED if name == "state" else np.nan
        planes[name] = np.full((len(iteration), len(places)), fill, plane.dtype)
        planes[name][at[is_there]] = plane[is_there]
    return Rows(iteration, iteration, iteration, planes)


def columns_of(rows: Rows, loss: Column) -> Columns:
    """A column for each row."""
    norms = rows.planes["norm"]
    values = np.concatenate((norms, loss.values[:, None]), axis=1)
    picture = drawn(values)
    flags = np.zeros(values.shape, np.uint8)
    if rows.planes["state"].any():
        flags[:, :-1] = _STATE_FLAGS[rows.planes["state"]]
    if not picture.all():
        flags[:, :-1] |= (norms == 0) * np.uint8(ZERO)
    odd = np.isnan(picture)
    if odd.any():
        for name, flag in zip(COUNTS, (NAN, POSINF, NEGINF), strict=True):  # only where a norm is not finite
            flags[:, :-1] |= (rows.planes[name] > 0) * np.uint8(flag)
        uncounted = odd[:, :-1] & np.isnan(rows.planes["nan"]) & np.isin(rows.planes["state"], _MEASURED)
        flags[:, :-1] |= uncounted * kinds(norms)  # the norm alone is known, and says as much
        flags[:, :-1] |= (np.isnan(picture[:, :-1]) & (flags[:, :-1] == 0)) * np.uint8(NOT_RECORDED)
        flags[:, -1] = kinds(loss.values)
    if loss.missing is not None:
        flags[loss.missing, -1] = NOT_RECORDED
    first = rows.iteration.astype(np.uint32)
    return Columns(first, first + np.uint32(1), picture, picture, flags)


def bounded(pieces: Iterable[Rows], thinned: NDArray[np.int64], most: int) -> Columns:
    """Rows, some at a time, as at most so many columns.

    Parameters
    ----------
    pieces : iterable of Rows
        With the planes of `columns_of`.
    thinned : int64 array
        The iterations that join those before them.
    most : int
    """
    picture, has_begun = Overview(capacity=max(most, 1)), False
    for rows in pieces:
        without_loss = Column(np.full(len(rows), np.nan), np.ones(len(rows), np.bool_))
        columns = columns_of(rows, without_loss)
        stands = ~np.isin(rows.iteration, thinned)
        after = np.logical_or.accumulate(stands) | has_begun
        columns.flags[~stands & after, :-1] = 0
        has_begun = has_begun or bool(stands.any())
        picture.append(columns)
    return picture.columns


def drawn(values: NDArray[np.float64]) -> NDArray[np.float32]:
    """As a picture holds them: NaN for what is not finite.

    float32 holds less than float64: what lies beyond its ends is drawn at the end, not as zero or infinity.
    """
    with np.errstate(all="ignore"):
        picture = values.astype(np.float32)
    if not picture.all():
        small = (picture == 0) & (values != 0)
        picture[small] = np.copysign(_FLOAT32.smallest_subnormal, values[small])
    odd = ~np.isfinite(picture)
    if odd.any():
        large = odd & np.isfinite(values)
        picture[odd] = np.nan
        picture[large] = np.copysign(_FLOAT32.max, values[large])
    return picture


def kinds(values: NDArray[np.float64]) -> NDArray[np.uint8]:
    """The flags of what is not finite."""
    kinds: NDArray[np.uint8] = np.select(
        [np.isnan(values), values == np.inf, values == -np.inf],
        [np.uint8(NAN), np.uint8(POSINF), np.uint8(NEGINF)],
        np.uint8(0),
    )
    return kinds
