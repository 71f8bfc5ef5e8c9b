"""Iterations in memory: numpy columns that grow in chunks, so that an append is one copy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

STATISTICS = ("norm", "mean", "std", "max_abs", "zero_fraction", "nan", "posinf", "neginf")
COUNTS = ("nan", "posinf", "neginf")
STATES = ("ok", "unused", "frozen", "not_optimized", "not_recorded")
STAGES = ("backward",)
EVENTS = ("frozen", "unfrozen")

OK, UNUSED, FROZEN, NOT_OPTIMIZED, NOT_RECORDED = range(len(STATES))

Floats = NDArray[np.float64]

CHUNK = 1024
"""Iterations a chunk holds."""


@dataclass(frozen=True)
class Rows:
    """Some iterations of a run.

    Attributes
    ----------
    iteration, epoch : int64 arrays of shape [iterations]
    statistics : float64 array of shape [iterations, len(STATISTICS), parameters]
        NaN where nothing was recorded. One statistic of one iteration lies together: that is what is read most.
    states : uint8 array of shape [iterations, parameters]
        Places in STATES.
    metrics : dict of str to float64 array of shape [iterations]
        The batch's own values; NaN where a metric had none.
    loss_scale : float64 array of shape [iterations]
        What the loss was multiplied by for backward.
    skipped : bool array of shape [iterations]
        Whether the optimizer was kept from a step because gradients were not finite.
    """

    iteration: NDArray[np.int64]
    epoch: NDArray[np.int64]
    statistics: NDArray[np.float64]
    states: NDArray[np.uint8]
    metrics: dict[str, NDArray[np.float64]]
    loss_scale: NDArray[np.float64]
    skipped: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.iteration)


class RowStore:
    """Append-only rows. Parameters and metrics may be added on the way; earlier rows never recorded them."""

    def __init__(self) -> None:
        self._chunks: list[Rows] = []
        self._length = 0
        self._in_chunk = 0

    def __len__(self) -> int:
        return self._length

    def append(
        self,
        iteration: int,
        epoch: int,
        statistics: Floats,
        states: NDArray[np.uint8],
        metrics: Mapping[str, float],
        loss_scale: float = 1.0,
        skipped: bool = False,
    ) -> None:
        """Copy one iteration to the end."""
        chunk = self._chunks[-1] if self._chunks and self._in_chunk < len(self._chunks[-1]) else None
        if chunk is None or len(states) != chunk.states.shape[1] or not metrics.keys() <= chunk.metrics.keys():
            chunk = self._open(len(states), metrics)
        at = self._in_chunk
        chunk.iteration[at], chunk.epoch[at] = iteration, epoch
        if len(states):
            chunk.statistics[at], chunk.states[at] = statistics.T, states
        chunk.loss_scale[at], chunk.skipped[at] = loss_scale, skipped
        for name, value in metrics.items():
            chunk.metrics[name][at] = value
        self._in_chunk += 1
        self._length += 1

    def cut(self, iteration: int) -> None:
        """Take out the rows of this iteration and later ones."""
        pieces = [_cut(rows, 0, int(np.searchsorted(rows.iteration, iteration))) for rows in self.pieces()]
        self._chunks = [rows for rows in pieces if len(rows)]
        self._length = sum(map(len, self._chunks))
        self._in_chunk = len(self._chunks[-1]) if self._chunks else 0  # full: the next row opens another

    def pieces(self, start: int = 0) -> Iterator[Rows]:
        """The rows from `start` on, chunk by chunk, without a copy."""
        at = 0
        for place, chunk in enumerate(self._chunks):
            held = len(chunk) if place < len(self._chunks) - 1 else self._in_chunk
            if at + held > start:
                yield _cut(chunk, max(start - at, 0), held)
            at += held

    def read(self, n_parameters: int) -> Rows:
        """All rows as one set of arrays, for so many parameters as are known by now."""
        pieces = list(self.pieces()) or [_blank(0, n_parameters, {})]
        names = list(dict.fromkeys(name for piece in pieces for name in piece.metrics))
        pieces = [_widened(piece, n_parameters, names) for piece in pieces]
        return Rows(
            np.concatenate([piece.iteration for piece in pieces]),
            np.concatenate([piece.epoch for piece in pieces]),
            np.concatenate([piece.statistics for piece in pieces]),
            np.concatenate([piece.states for piece in pieces]),
            {name: np.concatenate([piece.metrics[name] for piece in pieces]) for name in names},
            np.concatenate([piece.loss_scale for piece in pieces]),
            np.concatenate([piece.skipped for piece in pieces]),
        )

    def _open(self, n_parameters: int, metrics: Mapping[str, float]) -> Rows:
        if self._chunks:
            self._chunks[-1] = _cut(self._chunks[-1], 0, self._in_chunk)
        # Not filled: the pages of a large model's chunk cost nothing before they are written.
        chunk = Rows(
            np.empty(CHUNK, np.int64),
            np.empty(CHUNK, np.int64),
            np.empty((CHUNK, len(STATISTICS), n_parameters)),
            np.empty((CHUNK, n_parameters), np.uint8),
            {name: np.full(CHUNK, np.nan) for name in metrics},
            np.empty(CHUNK),
            np.empty(CHUNK, np.bool_),
        )
        self._chunks.append(chunk)
        self._in_chunk = 0
        return chunk


def _blank(length: int, n_parameters: int, metrics: Iterable[str]) -> Rows:
    return Rows(
        np.zeros(length, np.int64),
        np.zeros(length, np.int64),
        np.full((length, len(STATISTICS), n_parameters), np.nan),
        np.full((length, n_parameters), NOT_RECORDED, np.uint8),
        {name: np.full(length, np.nan) for name in metrics},
        np.ones(length),
        np.zeros(length, np.bool_),
    )


def _cut(rows: Rows, start: int, stop: int) -> Rows:
    part = slice(start, stop)
    metrics = {name: values[part] for name, values in rows.metrics.items()}
    return Rows(
        rows.iteration[part],
        rows.epoch[part],
        rows.statistics[part],
        rows.states[part],
        metrics,
        rows.loss_scale[part],
        rows.skipped[part],
    )


def _widened(rows: Rows, n_parameters: int, names: list[str]) -> Rows:
    missing = n_parameters - rows.states.shape[1]
    if not missing and list(rows.metrics) == names:
        return rows
    blank = _blank(len(rows), missing, names)
    return Rows(
        rows.iteration,
        rows.epoch,
        np.concatenate((rows.statistics, blank.statistics), axis=2),
        np.concatenate((rows.states, blank.states), axis=1),
        {name: rows.metrics.get(name, blank.metrics[name]) for name in names},
        rows.loss_scale,
        rows.skipped,
    )
