"""Where a run first went wrong."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gradviz.history import schema
from gradviz.history.overview import NAN, NEGINF, POSINF, Columns
from gradviz.history.rows import Rows, gathered
from gradviz.history.schema import COUNTS
from gradviz.history.store import Store

BEFORE = 12
"""Iterations over which growth is looked at."""


class FirstNonfinite(NamedTuple):
    """The first NaN or infinity of a run.

    Attributes
    ----------
    iteration : int
    parameter : str
        Whose gradient it was in; ``"loss"`` for the loss.
    kind : str
        "nan", "posinf" or "neginf": what most of the gradient's entries that are not finite were, or what the loss was.
    growth : float
        The newest of its norms in the 12 iterations before, divided by the oldest; NaN if there are not two above 0.
    """

    iteration: int
    parameter: str
    kind: str
    growth: float


def first_nonfinite(store: Store, columns: Columns) -> FirstNonfinite | None:
    """Look in the picture for where, and there alone in the rows."""
    bad = (columns.flags & (NAN | POSINF | NEGINF)).any(axis=1)
    places = np.arange(len(store.parameters))
    with store.lock:
        for column in np.flatnonzero(bad).tolist():
            first, last = int(columns.start[column]), int(columns.stop[column]) - 1
            rows = gathered(store.held("backward", first=first, last=last), (*COUNTS, "norm", "state"), places)
            counts = _counts(rows)
            hit = counts.any(axis=(0, 2))
            loss = _loss(store, first, last)
            of_loss = next((iteration for iteration, value in loss.items() if not math.isfinite(value)), None)
            of_rows = int(rows.iteration[hit.argmax()]) if hit.any() else None
            if of_loss is not None and (of_rows is None or of_loss <= of_rows):
                before = list(_loss(store, of_loss - BEFORE, of_loss - 1).values())
                return FirstNonfinite(of_loss, "loss", _kind_of(loss[of_loss]), _growth(np.array(before)))
            if of_rows is not None:
                at = int(hit.argmax())
                parameter = int(np.flatnonzero(counts[:, at].any(axis=0))[-1])
                held = store.held("backward", first=max(of_rows - BEFORE, 0), last=of_rows - 1)
                norms = gathered(held, ("norm",), np.array([parameter]))
                kind = COUNTS[int(counts[:, at, parameter].argmax())]
                name = store.names[parameter]
                return FirstNonfinite(of_rows, name, kind, _growth(norms.planes["norm"][:, 0]))
    return None


def _counts(rows: Rows) -> NDArray[np.float64]:
    """[kinds, iterations, parameters]; where only the norm is known, that counts as one."""
    norm, known = rows.planes["norm"], ~np.isnan(rows.planes["nan"])
    measured = np.isin(rows.planes["state"], (schema.OK, schema.NOT_OPTIMIZED))
    by_norm = (np.isnan(norm), norm == np.inf, norm == -np.inf)
    counts = [np.where(known, rows.planes[name], seen & measured) for name, seen in zip(COUNTS, by_norm, strict=True)]
    return np.array(counts)


def _loss(store: Store, first: int, last: int) -> dict[int, float]:
    """The losses that were taken, by iteration."""
    low, high = np.searchsorted(np.array(store.iterations, np.int64), (first, last + 1)).tolist()
    loss = store.read_loss(low, high)
    taken = np.ones(len(loss.values), np.bool_) if loss.missing is None else ~loss.missing
    iteration = np.array(store.iterations[low:high], np.int64)
    return dict(zip(iteration[taken].tolist(), loss.values[taken].tolist(), strict=True))


def _kind_of(value: float) -> str:
    return "nan" if math.isnan(value) else "posinf" if value > 0 else "neginf"


def _growth(norms: NDArray[np.float64]) -> float:
    usable = norms[np.isfinite(norms) & (norms > 0)]
    with np.errstate(over="ignore"):  # from 1e-300 to 1e300 is infinite growth
        return float(usable[-1] / usable[0]) if len(usable) > 1 else math.nan
