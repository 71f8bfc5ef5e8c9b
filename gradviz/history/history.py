"""`History`: what happened in a run, every iteration of it, as pandas."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypedDict

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gradviz.errors import HistoryError, nearest
from gradviz.history import frames
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
    join,
)
from gradviz.history.progress import Progress
from gradviz.history.rows import COUNTS, EVENTS, STATISTICS, Rows, RowStore

Listener = Callable[[bool], None]
"""Called after an append; True when the run has ended, so that nothing may wait any longer."""


class Parameter(TypedDict):
    """How a parameter is described: its name, shape and dtype (as text, ``"float32"``)."""

    name: str
    shape: tuple[int, ...]
    dtype: str


_STATE_FLAGS = np.array([0, UNUSED, FROZEN, NOT_OPTIMIZED, NOT_RECORDED], np.uint8)
_COPIES_ON_WRITE = int(pd.__version__.split(".")[0]) >= 3
_FLOAT32 = np.finfo(np.float32)


class History:
    """Gradients and metrics of a run by iteration. Made by a loop; it needs no torch to be read.

    Examples
    --------
    >>> history = History()
    >>> history.declare([Parameter(name="w", shape=(2,), dtype="float32")])
    >>> history.append(0, 0, np.array([[5.0, 3.5, 0.7, 4.0, 0.0, 0, 0, 0]]), np.array([0], np.uint8), {"loss": 1.6})
    >>> history.norms
    parameter    w
    iteration
    0          5.0
    >>> history.metrics
               epoch  loss  loss_scale  skipped
    iteration
    0              0   1.6         1.0    False
    """

    def __init__(self) -> None:
        self.progress = Progress()
        self._parameters: list[Parameter] = []
        self._rows = RowStore()
        self._epochs: list[dict[str, float]] = []
        self._epoch_starts: list[int] = []
        self._events: list[tuple[int, str, str]] = []
        self._frames: dict[str, pd.DataFrame] = {}
        self._overview, self._seen = Overview(), 0
        self._listeners: list[weakref.WeakMethod[Listener]] = []
        self._lock = threading.RLock()  # a notebook reads while a thread trains

    # What happened ---------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Number of iterations recorded."""
        return len(self._rows)

    def __repr__(self) -> str:
        return f"History of {len(self):,} iterations of {len(self._parameters)} parameters ({self.progress.status})"

    @property
    def gradients(self) -> pd.DataFrame:
        """Tidy: one line for each iteration and parameter.

        Columns: iteration, epoch (int64, from 0), parameter, stage, state (categories), norm, mean, std, max_abs,
        zero_fraction (float64), nan, posinf, neginf and their sum nonfinite (Int64 counts of entries).

        `stage` says when the gradient was measured: "backward" is as autograd gave it, before the optimizer. `state`
        is "ok"; "unused", no path from the loss; "frozen", ``requires_grad=False``; "not_optimized", measured but in no
        parameter group, or in one whose learning rate is 0; or "not_recorded". Numbers are missing where nothing was
        recorded; ``record="norms"`` records norm and counts only. `std` is torch's own, with n - 1 in the denominator,
        so it is NaN for a parameter of one entry; a NaN or infinite entry shows in the norm, and the counts say which.
        """
        return self._frame("gradients", lambda rows: frames.tidy(rows, self._names))

    @property
    def norms(self) -> pd.DataFrame:
        """Wide: the 2-norm of every parameter's gradient; index iteration, columns parameter."""
        return self.wide("norm")

    def wide(self, statistic: str) -> pd.DataFrame:
        """One statistic, or ``"state"``, of every parameter; index iteration, columns parameter.

        Raises
        ------
        HistoryError
            If no such statistic is kept.
        """
        known = (*STATISTICS, "state")
        if statistic not in known:
            raise HistoryError(f"No statistic is called {statistic!r}: {nearest(str(statistic), known)}")
        return self._frame(statistic, lambda rows: frames.wide(rows, self._names, statistic))

    @property
    def metrics(self) -> pd.DataFrame:
        """The loss and metrics of every batch, its own values; index iteration.

        `loss_scale` is what the loss was multiplied by for this step's backward pass, 1 without a loss scale; `skipped`
        says that the optimizer took no step because gradients were not finite. An optimizer that evaluates the loss
        itself, as LBFGS does, has a row for each of its steps, and `closure_calls` counts how often it did.
        """
        return self._frame("metrics", frames.metrics)

    @property
    def epochs(self) -> pd.DataFrame:
        """The means of every epoch, also of one that was broken off, by examples, over finite values; index epoch.

        `nonfinite` counts the iterations whose loss was NaN or infinite.
        """
        with self._lock:
            return frames.epochs(self._epochs)

    @property
    def events(self) -> pd.DataFrame:
        """Parameters that were frozen or unfrozen: iteration (the first it held for), event (category), parameter."""
        return frames.events(list(self._events))

    @property
    def parameters(self) -> pd.DataFrame:
        """Shape, dtype and size of every parameter, in declaration order; index name."""
        return frames.parameters(self._parameters)

    # Written by recorders --------------------------------------------------------------------------------------

    def declare(self, parameters: Sequence[Parameter]) -> None:
        """Name the parameters of the rows to come; those already known must come first, in the same order."""
        names = [parameter["name"] for parameter in parameters]
        if names[: len(self._parameters)] != self._names:
            raise HistoryError("Parameters can be added to a history, but not taken away or put in another order.")
        with self._lock:
            self._parameters = list(parameters)
            self._frames.clear()

    @property
    def described(self) -> list[Parameter]:
        """The parameters as they were declared."""
        return self._parameters

    def append(
        self,
        iteration: int,
        epoch: int,
        statistics: NDArray[np.float64],
        states: NDArray[np.uint8],
        metrics: Mapping[str, float],
        loss_scale: float = 1.0,
        skipped: bool = False,
    ) -> None:
        """Record one iteration: [parameters, statistics] values, [parameters] states, the batch's metrics and scale."""
        with self._lock:
            if epoch >= len(self._epoch_starts):
                self._epoch_starts.extend([iteration] * (epoch + 1 - len(self._epoch_starts)))
            self._rows.append(iteration, epoch, statistics, states, metrics, loss_scale, skipped)
            self._frames.clear()
        self.notify()

    def end_epoch(self, epoch: int, iterations: int, means: Mapping[str, float], nonfinite: int) -> None:
        """Keep the means of an epoch that is over."""
        with self._lock:
            self._epochs.append({"epoch": epoch, **means, "iterations": iterations, "nonfinite": nonfinite})

    def extend_epoch(self, epoch: int, values: Mapping[str, float]) -> None:
        """Add to an epoch's means what was found out after it, such as validation results."""
        with self._lock:
            record = next((record for record in reversed(self._epochs) if record["epoch"] == epoch), None)
            if record is None:
                raise HistoryError(f"No means of epoch {epoch} are kept; end_epoch comes first.")
            record.update(values)

    def cut(self, iteration: int, epoch: int) -> None:
        """Take out what was recorded from an iteration and an epoch on: a run goes on there once more."""
        with self._lock:
            self._rows.cut(iteration)
            self._epochs = [record for record in self._epochs if record["epoch"] < epoch]
            self._epoch_starts = [start for start in self._epoch_starts[: epoch + 1] if start < iteration]
            self._events = [event for event in self._events if event[0] < iteration]
            self._frames.clear()
            self._overview, self._seen = Overview(), 0
            self.progress.iteration, self.progress.epoch = iteration, epoch
        self.notify(final=True)

    def add_events(self, iteration: int, event: str, parameters: Iterable[str]) -> None:
        """Write down what happened to parameters: "frozen" or "unfrozen"."""
        if event not in EVENTS:
            raise HistoryError(f"No event is called {event!r}: {nearest(event, EVENTS)}")
        self._events.extend((iteration, event, name) for name in parameters)

    # Read by widgets -------------------------------------------------------------------------------------------

    @property
    def epoch_starts(self) -> list[int]:
        """The iteration each epoch began with."""
        return self._epoch_starts

    def columns(self, start: int = 0) -> Columns:
        """The iterations from `start` on as columns of a picture: a row for each parameter's norm, the loss last."""
        with self._lock:
            pieces = [_columns_of(rows) for rows in self._rows.pieces(start)]
            return join(pieces, len(self._parameters) + 1)

    def overview(self) -> tuple[Columns, int]:
        """The whole run in a bounded number of columns, and how many iterations they show."""
        with self._lock:
            if self._seen < len(self):
                fresh = self.columns(self._seen)
                self._overview.append(fresh)
                self._seen += len(fresh)
            return self._overview.columns, self._seen

    def subscribe(self, listener: Listener) -> None:
        """Call a bound method after every append, for as long as its object lives."""
        self._listeners.append(weakref.WeakMethod(listener))

    def unsubscribe(self, listener: Listener) -> None:
        """Call it no more."""
        self._listeners = [held for held in self._listeners if held() not in (None, listener)]

    def notify(self, final: bool = False) -> None:
        """Tell the listeners that something is new."""
        for held in self._listeners:
            listener = held()
            if listener is not None:
                listener(final)

    # -----------------------------------------------------------------------------------------------------------

    @property
    def _names(self) -> list[str]:
        return [parameter["name"] for parameter in self._parameters]

    def _frame(self, name: str, build: Callable[[Rows], pd.DataFrame]) -> pd.DataFrame:
        # Cached until the next append. A reader's own edits must not reach the cache; since pandas 3 a shallow copy is
        # one until somebody writes.
        with self._lock:
            if name not in self._frames:
                self._frames[name] = build(self._rows.read(len(self._parameters)))
            return self._frames[name].copy(deep=not _COPIES_ON_WRITE)


def _columns_of(rows: Rows) -> Columns:
    norms = rows.statistics[:, STATISTICS.index("norm")]
    loss = rows.metrics.get("loss", np.full(len(rows), np.nan))[:, None]
    values = np.concatenate((norms, loss), axis=1)
    with np.errstate(all="ignore"):
        picture = values.astype(np.float32)
    flags = np.zeros(values.shape, np.uint8)
    if rows.states.any():
        flags[:, :-1] = _STATE_FLAGS[rows.states]
    zero = picture == 0
    if zero.any():
        # float32 holds less than float64: what lies beyond its ends is drawn at the end, not as zero or infinity.
        small = zero & (values != 0)
        picture[small] = np.copysign(_FLOAT32.smallest_subnormal, values[small])
        flags[:, :-1] |= (norms == 0) * np.uint8(ZERO)
    odd = ~np.isfinite(picture)
    if odd.any():
        large = odd & np.isfinite(values)
        picture[odd] = np.nan
        picture[large] = np.copysign(_FLOAT32.max, values[large])
        for name, flag in zip(COUNTS, (NAN, POSINF, NEGINF), strict=True):  # only where a norm is not finite
            flags[:, :-1] |= (rows.statistics[:, STATISTICS.index(name)] > 0) * np.uint8(flag)
        flags[:, -1:] = np.select([np.isnan(loss), loss == np.inf, loss == -np.inf], [NAN, POSINF, NEGINF], 0)
    first = rows.iteration.astype(np.uint32)
    return Columns(first, first + np.uint32(1), picture, picture, flags)
