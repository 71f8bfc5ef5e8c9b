"""What a table of dtypes shows of a run, read as far as it is new: dtypes, newest entries, and the loss scale."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gradviz.history.cells import Picture
from gradviz.history.overview import NOT_OPTIMIZED, NOT_RECORDED, Columns
from gradviz.history.schema import NARROW
from gradviz.history.schema import NOT_RECORDED as NO_STATE
from gradviz.history.store import Reading, Store
from gradviz.history.table import Columns as TableColumns

FIRST, LAST = -48, 16
"""The octaves in which histograms have bins."""
N_BARS = LAST - FIRST + 2
"""What is smaller, the octaves, and what is larger."""

FATES = ("underflow", "subnormal", "overflow")
LOOK_BACK = 1_000_000
"""Rows of histograms that are read at first. Newest ones lie at the end; a parameter that has had none for so long has
none to show."""
AT_ONCE = 250_000
"""Rows that are read at once."""


class Changes(NamedTuple):
    """Where dtypes and devices began to hold.

    Attributes
    ----------
    rows : int32 array of shape [changes, 5]
        Iteration, place of the parameter, and places in `texts` of what it is of, dtype and device; -1 for a device
        that was not written down.
    texts : list of str
    """

    rows: NDArray[np.int32]
    texts: list[str]


class Entries(NamedTuple):
    """How the newest gradients of some parameters are distributed.

    Attributes
    ----------
    places : uint32 array of shape [parameters]
    iteration : uint32 array of shape [parameters]
    bars : int64 array of shape [parameters, N_BARS]
        Numbers of entries by magnitude: below 2^-48, in each octave from there to 2^16, and above.
    counts : float64 array of shape [parameters, 3 + 4 * 3]
        Entries, zeros and what is not finite; and for each narrow dtype the FATES.
    """

    places: NDArray[np.uint32]
    iteration: NDArray[np.uint32]
    bars: NDArray[np.int64]
    counts: NDArray[np.float64]


class DtypePicture(Picture):
    """The loss scale as a picture of one row, and beside it the dtypes and newest entries of every parameter.

    Of an iteration whose step was skipped the cell says ``NOT_OPTIMIZED``.

    Parameters
    ----------
    store : Store
    reading : callable
        Calls what reads rows, once more where their files were merged meanwhile.
    """

    def __init__(self, store: Store, reading: Reading[Any]) -> None:
        super().__init__(store)
        self._reading = reading
        self._clear()

    def _clear(self) -> None:
        self._attempt = self._store.attempts.current
        self._texts: dict[str, int] = {}
        self._skipped, self._n_steps = 0, 0
        self._n_read = dict.fromkeys(("dtypes", "histograms", "precision"), 0)
        # The iterations that were counted, -1 before the first.
        self._binned, self._counted = np.empty((2, 0), np.int64)
        self._bars = np.empty((0, N_BARS), np.int64)
        self._counts = np.empty((0, 3 + len(NARROW) * len(FATES)))
        self._is_new = np.empty(0, np.bool_)

    def restart(self) -> None:
        """Give everything once more; what no longer holds is forgotten."""
        store = self._store
        with store.lock:
            is_cut = any(len(store.tables[name]) < n for name, n in self._n_read.items())
            if is_cut or len(store.iterations) < self._n_steps or self._attempt != store.attempts.current:
                self.begin()
                self._clear()
            self._n_read["dtypes"] = 0
            self._is_new = self._binned >= 0

    # The loss scale -----------------------------------------------------------------------------------------------

    def overview(self) -> tuple[Columns, int]:
        """The whole run in a bounded number of columns, and how many iterations they show."""
        whole: tuple[Columns, int] = self._reading(super().overview)
        return whole

    def columns(self, start: int, stop: int | None = None) -> Columns:
        """The iterations from the row `start` on, one a column."""
        read: TableColumns = self._reading(lambda: self._store.read_metrics(start, stop))
        scale = read["loss_scale"].values.astype(np.float32)[:, None]
        skipped = read["skipped"].values[:, None]
        flags = np.where(skipped, NOT_OPTIMIZED, 0) | np.where(np.isnan(scale), NOT_RECORDED, 0)
        first = read["iteration"].values.astype(np.uint32)
        return Columns(first, first + np.uint32(1), scale, scale, flags.astype(np.uint8))

    def skipped(self) -> int:
        """How many steps were skipped so far."""
        with self._store.lock:
            steps: TableColumns = self._reading(lambda: self._store.read_metrics(self._n_steps))
            self._n_steps += len(steps["skipped"].values)
            self._skipped += int(steps["skipped"].values.sum())
            return self._skipped

    # Dtypes -------------------------------------------------------------------------------------------------------

    def changes(self) -> Changes:
        """Those that have come since this was last asked."""
        store = self._store
        with store.lock:
            table = store.tables["dtypes"]
            columns: TableColumns = self._reading(lambda: store.read_table("dtypes", self._n_read["dtypes"]))
            self._n_read["dtypes"] = len(table)
            places = self._places(table.vocabulary["parameter"].texts)[columns["parameter"].values]
            rows = np.empty((len(places), 5), np.int32)
            rows[:, 0], rows[:, 1] = columns["iteration"].values, places
            for at, name in enumerate(("of", "dtype", "device"), 2):
                rows[:, at] = self._coded(table.vocabulary[name].texts)[columns[name].values]
            return Changes(rows[places >= 0], list(self._texts))

    def _places(self, names: list[str]) -> NDArray[np.int64]:
        """Where among the parameters each of these stands; -1 for others, and for none at the end."""
        place = {name: at for at, name in enumerate(self._store.names)}
        return np.array([*(place.get(name, -1) for name in names), -1], np.int64)

    def _coded(self, texts: list[str]) -> NDArray[np.int64]:
        return np.array([*(self._texts.setdefault(text, len(self._texts)) for text in texts), -1], np.int64)

    def states(self) -> NDArray[np.uint8]:
        """The state of every parameter at the newest iteration that has any."""
        store = self._store
        with store.lock:
            newest: NDArray[np.uint8] = self._reading(self._newest)
            states = np.full(len(store.parameters), NO_STATE, np.uint8)
            states[: len(newest)] = newest
            return states

    def _newest(self) -> NDArray[np.uint8]:
        # Found anew at each try: the file where it lay may be merged into another.
        found = self._store.newest("backward")
        if found is None:
            return np.empty(0, np.uint8)
        segment, row = found
        states: NDArray[np.uint8] = segment.planes(("state",), row, None)["state"][0]
        return states

    # Entries ------------------------------------------------------------------------------------------------------

    def entries(self, most: int) -> Entries:
        """Those that have come since this was last asked, of at most so many parameters; the rest comes next time."""
        with self._store.lock:
            self._make_room()
            self._read("histograms", self._take_bins)
            self._read("precision", self._take_fates)
            places = np.flatnonzero(self._is_new)[:most]
            self._is_new[places] = False
            return Entries(
                places.astype(np.uint32),
                self._binned[places].astype(np.uint32),
                self._bars[places],
                self._counts[places],
            )

    @property
    def n_more_entries(self) -> int:
        """Of how many parameters there are some that have not been given."""
        return int(self._is_new.sum())

    def _make_room(self) -> None:
        n = len(self._store.parameters) - len(self._binned)
        if not n:
            return
        self._binned, self._counted = (np.append(each, np.full(n, -1)) for each in (self._binned, self._counted))
        self._bars = np.concatenate((self._bars, np.zeros((n, N_BARS), np.int64)))
        self._counts = np.concatenate((self._counts, np.full((n, self._counts.shape[1]), np.nan)))
        self._is_new = np.append(self._is_new, np.zeros(n, np.bool_))

    def _read(self, name: str, take: Callable[[NDArray[np.int64], TableColumns], None]) -> None:
        """Give what is new in a table of the gradients as the backward pass gave them, a piece at a time."""
        store = self._store
        table = store.tables[name]
        backward = table.vocabulary["stage"].place("backward")
        length = len(table)
        for start in range(max(self._n_read[name], length - LOOK_BACK), length, AT_ONCE):
            read = functools.partial(store.read_table, name, start, min(start + AT_ONCE, length))
            columns: TableColumns = self._reading(read)
            places = self._places(table.vocabulary["parameter"].texts)[columns["parameter"].values]
            meant = (columns["stage"].values == backward) & (places >= 0)
            take(places[meant], {key: column[meant] for key, column in columns.items()})
        self._n_read[name] = length

    def _take_bins(self, places: NDArray[np.int64], columns: TableColumns) -> None:
        iteration = columns["iteration"].values
        before = self._binned.copy()
        np.maximum.at(self._binned, places, iteration)
        has_newer = self._binned > before
        self._bars[has_newer] = 0
        self._is_new |= has_newer
        ends = np.abs([columns["low"].values, columns["high"].values])
        near, far = ends.min(axis=0), ends.max(axis=0)
        counted = (iteration == self._binned[places]) & (far > 0) & (near < np.inf)
        near, far, places = near[counted], far[counted], places[counted]
        with np.errstate(divide="ignore"):
            octave = np.floor(np.log2(near) + 0.1)  # edges lie quarters of an octave apart
        bars = np.where(far == np.inf, N_BARS - 1, np.where(near == 0, 0, octave - FIRST + 1)).astype(np.int64)
        np.add.at(self._bars, (places, bars), columns["count"].values[counted])

    def _take_fates(self, places: NDArray[np.int64], columns: TableColumns) -> None:
        iteration = columns["iteration"].values
        np.maximum.at(self._counted, places, iteration)
        texts = self._store.tables["precision"].vocabulary["dtype"].texts
        known = np.array([NARROW.index(text) if text in NARROW else -1 for text in texts], np.int64)
        dtype = known[columns["dtype"].values]
        is_newest = (iteration == self._counted[places]) & (dtype >= 0)
        places, dtype = places[is_newest], dtype[is_newest]
        for at, name in enumerate(("entries", "zero", "nonfinite")):
            self._counts[places, at] = columns[name].values[is_newest]
        for at, name in enumerate(FATES):
            self._counts[places, 3 + len(FATES) * dtype + at] = columns[name].values[is_newest]
        self._is_new[places] = True
