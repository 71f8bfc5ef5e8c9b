"""Finding in a tidy table the lines of one name at the iteration that is nearest to another."""

from __future__ import annotations

import functools
from array import array
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gradviz.history.store import Reading, Store
from gradviz.history.table import Columns

AT_ONCE = 250_000
"""Lines that are read at once."""


class Found(NamedTuple):
    """Lines of one name and one iteration.

    Attributes
    ----------
    iteration : int
    columns : dict of str to Column
    """

    iteration: int
    columns: Columns


class Lines:
    """Where the lines of each name and iteration lie; found once, and read when they are asked for.

    Parameters
    ----------
    store : Store
    reading : callable
        Calls what reads lines, once more where their files were merged meanwhile.
    table : str
    by : str
        The column of names. Of stages it is the gradient as autograd gave it.
    """

    def __init__(self, store: Store, reading: Reading[Any], table: str, by: str) -> None:
        self._store, self._reading, self._name, self._by = store, reading, table, by
        self._begin()

    def _begin(self) -> None:
        self._n_read = 0
        # Of each stretch of lines: iteration, attempt, name, and where it begins; behind them, where the last ends.
        self._iteration, self._attempt, self._place, self._line = array("q"), array("q"), array("q"), array("q", [0])

    def nearest(self, name: str, iteration: int) -> Found | None:
        """Those of a name at the iteration nearest to this one, of two the earlier; None where there are none."""
        with self._store.lock:
            self._take_up()
            places = self._store.tables[self._name].vocabulary[self._by].texts
            if name not in places:
                return None
            at = np.flatnonzero(np.frombuffer(self._place, np.int64) == places.index(name))
            own, attempt = (np.frombuffer(each, np.int64)[at] for each in (self._iteration, self._attempt))
            holds = self._store.attempts.holds(own, attempt)
            at, own = at[holds], own[holds]
            if not len(at):
                return None
            found = int(own[np.lexsort((own, np.abs(own - iteration)))[0]])
            table = self._store.tables[self._name]
            pieces = [table.read(self._line[i], self._line[i + 1]) for i in at[own == found].tolist()]
            return Found(found, table.joined(pieces))

    def _take_up(self) -> None:
        """Find what is new."""
        length = len(self._store.tables[self._name])
        if length < self._n_read:  # of a run whose files are no longer all there
            self._begin()
        while self._n_read < length:
            stop = min(self._n_read + AT_ONCE, length)
            columns = self._reading(functools.partial(self._store.tables[self._name].read, self._n_read, stop))
            self._index(columns)
            self._n_read = stop

    def _index(self, columns: Columns) -> None:
        place = columns[self._by].values.astype(np.int64)
        if "stage" in columns:
            backward = self._store.tables[self._name].vocabulary["stage"].place("backward")
            place = np.where(columns["stage"].values == backward, place, -1)
        found: list[NDArray[np.int64]] = [columns["iteration"].values, columns["attempt"].values, place]
        known = self._iteration, self._attempt, self._place
        begins = np.zeros(len(place), np.bool_)
        for before, new in zip(known, found, strict=True):
            begins |= np.diff(new, prepend=before[-1] if before else new[0] - 1) != 0
        at = np.flatnonzero(begins)
        self._line.pop()
        for before, new in zip(known, found, strict=True):
            before.frombytes(new[at].astype(np.int64).tobytes())
        self._line.frombytes((np.append(at, len(place)) + self._n_read).astype(np.int64).tobytes())
