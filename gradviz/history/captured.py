"""What was captured, as rows: a store whose parameters are intermediate values, by name and call."""

from __future__ import annotations

import functools
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradviz.history.attempts import END
from gradviz.history.rows import Places, RowStore, Segment, blank
from gradviz.history.schema import Parameter
from gradviz.history.store import Reading, Store
from gradviz.history.table import Columns

AT_ONCE = 250_000
"""Lines of the table that are read at once."""

_CALLS = 1 << 32
"""More than a name has in one iteration."""


class CapturedStore(Store):
    """Reads the table of what was captured as if each name and call were a parameter; all else is the run's own.

    Nothing is kept twice: where the lines of an iteration begin is found once, and they are read when they are asked
    for, from memory or disk.

    Parameters
    ----------
    run : Store
    reading : callable
        Calls what reads lines, once more where their files were merged meanwhile.
    """

    def __init__(self, run: Store, reading: Reading[Any]) -> None:
        # Not a store's own: what is not found here is the run's, as it is then.
        self._run, self._reading = run, reading
        self.table = run.tables["activations"]
        self.stages: dict[str, RowStore] = {}
        self._parameters, self._names = [], []
        self.pairs: list[tuple[str, int]] = []
        """The name and the number of the call, of each parameter."""
        self._place: dict[int, int] = {}
        self._begin()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._run, name)

    def _begin(self) -> None:
        self._n_read = 0
        # In the order of the table: each iteration, and where its lines begin; behind them, where the last ones end.
        self._attempt, self._iteration, self._line = array("q"), array("q"), array("q", [0])

    @property
    def parameters(self) -> list[Parameter]:
        """Names and calls in the order in which they were first captured; a new list when there are others."""
        self._take_up()
        return self._parameters

    @property
    def names(self) -> list[str]:
        """Those of the modules, and of a second call ``"encoder.0#1"``."""
        self._take_up()
        return self._names

    def held(
        self, stage: str, *, first: int = 0, last: int = END, all_attempts: bool = False
    ) -> list[tuple[Segment, Places]]:
        """Where the rows lie that hold, from the iteration `first` to `last`: where those of the run's gradients do."""
        n = len(self.parameters)
        held = self._run.held(stage, first=first, last=last, all_attempts=all_attempts) if stage == "backward" else []
        return [(Stretch(self, segment, n), rows) for segment, rows in held]

    def lines(self, attempt: int, first: int, last: int) -> Columns:
        """Those of the iterations from `first` to `last` in one attempt."""
        low, high = bisect_left(self._attempt, attempt), bisect_right(self._attempt, attempt)
        start = bisect_left(self._iteration, first, low, high)
        stop = bisect_right(self._iteration, last, low, high)
        return self.table.read(self._line[start], self._line[stop])

    # The table ----------------------------------------------------------------------------------------------------

    def places(self, columns: Columns) -> NDArray[np.int64]:
        """Which parameter each line is of; -1 where it has none yet."""
        coded, place = np.unique(_coded(columns), return_inverse=True)
        known = np.array([self._place.get(code, -1) for code in coded.tolist()], np.int64)
        return known[place] if len(known) else np.empty(0, np.int64)

    def _take_up(self) -> None:
        """Find new names and iterations."""
        with self.lock:
            length = len(self.table)
            if length < self._n_read:  # of a run whose files are no longer all there
                self._begin()
            while self._n_read < length:
                start, stop = self._n_read, min(self._n_read + AT_ONCE, length)
                columns = self._reading(functools.partial(self.table.read, start, stop))
                self._name(columns)
                self._index(columns)
                self._n_read = stop

    def _name(self, columns: Columns) -> None:
        coded, first = np.unique(_coded(columns), return_index=True)
        new = [code for code in coded[np.argsort(first)].tolist() if code not in self._place]
        if not new:
            return
        texts = self.table.vocabulary["name"].texts
        pairs = [(texts[code // _CALLS], code % _CALLS) for code in new]
        self._place |= {code: place for place, code in enumerate(new, len(self._place))}
        self.pairs += pairs
        self._names = [*self._names, *(f"{name}#{call}" if call else name for name, call in pairs)]
        self._parameters = [Parameter(name=name, shape=None, dtype="") for name in self._names]

    def _index(self, columns: Columns) -> None:
        iteration, attempt = columns["iteration"].values, columns["attempt"].values
        before = (self._iteration[-1], self._attempt[-1]) if self._iteration else (-1, -1)
        begins = (np.diff(iteration, prepend=before[0]) != 0) | (np.diff(attempt, prepend=before[1]) != 0)
        at = np.flatnonzero(begins)
        self._line.pop()
        for known, new in (
            (self._iteration, iteration[at]),
            (self._attempt, attempt[at]),
            (self._line, np.append(at, len(iteration)) + self._n_read),
        ):
            known.frombytes(new.astype(np.int64).tobytes())


def _coded(columns: Columns) -> NDArray[np.int64]:
    """One number for a name and a call."""
    coded: NDArray[np.int64] = columns["name"].values.astype(np.int64) * _CALLS + columns["call"].values
    return coded


class Stretch:
    """A segment of the run, with what was captured in its iterations.

    Parameters
    ----------
    store : CapturedStore
    of : Segment
        The run's own.
    n_parameters : int
    """

    def __init__(self, store: CapturedStore, of: Segment, n_parameters: int) -> None:
        self.attempt, self.n_parameters = of.attempt, n_parameters
        self._store, self._of = store, of

    def __len__(self) -> int:
        return len(self._of)

    @property
    def iteration(self) -> NDArray[np.int64]:
        """The iterations, ascending."""
        return self._of.iteration

    @property
    def epoch(self) -> NDArray[np.int64]:
        """The epoch of each."""
        return self._of.epoch

    def planes(
        self, names: Sequence[str], rows: Places, parameters: NDArray[np.int64] | None
    ) -> dict[str, NDArray[Any]]:
        """Planes by name; what was not called in an iteration is not recorded there."""
        meant = self.iteration[rows]
        planes = blank(len(meant), names, np.arange(self.n_parameters))
        if len(meant):
            lines = self._store.lines(self.attempt, int(meant[0]), int(meant[-1]))
            place = self._store.places(lines)
            row = np.minimum(np.searchsorted(meant, lines["iteration"].values), len(meant) - 1)
            is_meant = (meant[row] == lines["iteration"].values) & (lines["attempt"].values == self.attempt)
            is_meant &= (place >= 0) & (place < self.n_parameters)
            for name, plane in planes.items():
                column = lines[name][is_meant]
                plane[row[is_meant], place[is_meant]] = column.values
                if column.missing is not None:
                    plane[row[is_meant][column.missing], place[is_meant][column.missing]] = np.nan
        return planes if parameters is None else {name: plane[:, parameters] for name, plane in planes.items()}
