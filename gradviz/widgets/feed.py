"""What is sent of a run that grows: columns that are new, and how it stands.

Where more columns are waiting than a message should hold, neighbours merge first (maximum, minimum and flags are
kept), and the fine picture follows when the run ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from gradviz.history.history import History
from gradviz.history.overview import Columns
from gradviz.widgets.wire import pack

LIVE_BYTES = 40_000
"""Columns in one live message: 400 kB a second at most, however many parameters and iterations there are."""
WHOLE_BYTES = 4_000_000
"""Columns in a message that carries the whole picture."""

KEPT_BYTES = 100_000
"""Columns in the picture that is kept for a page without a kernel: a saved notebook holds it, a third longer."""

Message = tuple[dict[str, Any], list[bytes]]
"""A JSON-able dict, and buffers."""


class Feed(Protocol):
    """What a widget shows, in messages."""

    def message(self, *, fresh: bool) -> Message:
        """What is new since the message before, or all there is."""

    def kept(self) -> Message | None:
        """All there is, in little, for a page without a kernel; None if there is nothing yet."""

    def must_begin_anew(self, *, final: bool) -> bool:
        """Whether what was sent no longer holds, or can be told better now that the run is over (`final`)."""


class Drawn(Protocol):
    """A picture of a run."""

    def columns(self, start: int) -> Columns:
        """The iterations from the row `start` on, one a column."""

    def overview(self) -> tuple[Columns, int]:
        """The whole run in a bounded number of columns, and how many iterations they show."""


class ColumnFeed:
    """A run as columns of a picture: a history's own has a row for each parameter's norm and its flags, the loss last.

    Parameters
    ----------
    history : History
    picture : Drawn, optional
        Another one.
    """

    kept_bytes = KEPT_BYTES

    def __init__(self, history: History, picture: Drawn | None = None) -> None:
        self._history = history
        self._picture = picture or history
        self._columns_sent = 0
        self._epochs_sent = 0
        self._coarse = False
        self._n_completed = history.n_completed

    @property
    def is_of_rows(self) -> bool:
        """Whether its picture is the history's own."""
        return self._picture is self._history

    def must_begin_anew(self, *, final: bool) -> bool:
        """Whether rows were taken back or completed, or the run is over and columns had to be merged on the way."""
        is_past = self._columns_sent > len(self._history) or self._n_completed != self._history.n_completed
        return is_past or (final and self._coarse)

    def message(self, *, fresh: bool) -> Message:
        """Columns, the metrics' means with the newest loss, and where epochs began."""
        columns = self._whole() if fresh else self._new()
        starts = self._history.epoch_starts[0 if fresh else self._epochs_sent :]
        self._epochs_sent = len(self._history.epoch_starts)
        return self._told(columns, starts)

    def kept(self) -> Message | None:
        """The whole picture in few columns."""
        columns, n_seen = self._picture.overview()
        return self._told(_within(columns, self.kept_bytes), self._history.epoch_starts) if n_seen else None

    def _told(self, columns: Columns, starts: Sequence[int]) -> Message:
        progress = self._history.progress
        metrics = progress.metrics  # read once: a thread that trains may put others in their place meanwhile
        buffers = [
            pack(columns),
            np.array([*metrics.values(), progress.loss], "<f8").tobytes(),
            np.array(starts, "<u4").tobytes(),
        ]
        told = {"kind": "columns", "level": columns.level, "stages": list(self._history.stages)}
        return {**told, "run": self._run(metrics)}, buffers

    def _whole(self) -> Columns:
        columns, self._columns_sent = self._picture.overview()
        self._coarse, self._n_completed = False, self._history.n_completed
        return _within(columns, WHOLE_BYTES)

    def _new(self) -> Columns:
        fresh = self._picture.columns(self._columns_sent)
        self._columns_sent += len(fresh)
        columns = fresh.at_level(0)  # what belongs to the column before it needs none of its own
        merged = _within(columns, LIVE_BYTES)
        self._coarse = self._coarse or len(merged) < len(columns)
        return merged

    def _run(self, metrics: Mapping[str, float]) -> dict[str, Any]:
        progress = self._history.progress
        return {
            "status": progress.status,
            "epoch": progress.epoch,
            "epochs": progress.epochs,
            "iteration": progress.iteration,
            "iterations": progress.iterations,
            "nothing": why_nothing(self._history),
            "left_s": progress.left_s,
            "metric_names": list(metrics),
            "message": progress.message,
        }


def why_nothing(history: History) -> str | None:
    """Why there is no gradient to be seen; None where there is one.

    Examples
    --------
    >>> history = History()
    >>> why_nothing(history)
    'no iteration recorded yet'
    >>> history.append(4, 0, None, None, {"loss": 1.0})
    >>> history.progress.every, history.progress.iteration, history.progress.status = 100, 5, "training"
    >>> why_nothing(history)
    'no record yet: every 100 iterations, now at 5'
    """
    every, n = history.progress.every, history.progress.iteration
    if not len(history):
        return "no iteration recorded yet"
    if history.has_gradients:
        return None
    if every == 1:
        return history.quantity.none
    if every is None:
        return "no gradients are recorded: record=None"
    if history.progress.status in ("training", "paused"):
        return f"no record yet: every {every:,} iterations, now at {n:,}"
    return f"no record: every {every:,} iterations, and there were {n:,}"


def _within(columns: Columns, n_bytes: int) -> Columns:
    """Merge columns until they fit in a message; one column always goes."""
    return columns.at_most(n_bytes // (9 * max(columns.rows, 1)))
