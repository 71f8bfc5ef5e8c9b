"""Rows as pandas frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gradviz.history.rows import COUNTS, EVENTS, STAGES, STATES, STATISTICS, Rows


def tidy(rows: Rows, parameters: Sequence[str]) -> pd.DataFrame:
    """One line for each iteration and parameter."""
    n_iterations, n_parameters = rows.states.shape
    columns: dict[str, object] = {
        "iteration": np.repeat(rows.iteration, n_parameters),
        "epoch": np.repeat(rows.epoch, n_parameters),
        "parameter": _category(np.tile(np.arange(n_parameters), n_iterations), parameters),
        "stage": _category(np.zeros(rows.states.size), STAGES),
        "state": _category(rows.states.ravel(), STATES),
    }
    for place, name in enumerate(STATISTICS):
        values = rows.statistics[:, place].ravel()
        columns[name] = _counts(values) if name in COUNTS else values
    places = [STATISTICS.index(name) for name in COUNTS]
    columns["nonfinite"] = _counts(rows.statistics[:, places].sum(axis=1).ravel())
    return pd.DataFrame(columns)


def wide(rows: Rows, parameters: Sequence[str], statistic: str) -> pd.DataFrame:
    """One line for each iteration, one column for each parameter."""
    index = pd.Index(rows.iteration, name="iteration")
    names = pd.Index(list(parameters), name="parameter", dtype=object)
    if statistic != "state" and statistic not in COUNTS:
        return pd.DataFrame(rows.statistics[:, STATISTICS.index(statistic)].copy(), index=index, columns=names)
    if statistic == "state":
        columns = {name: _category(rows.states[:, place], STATES) for place, name in enumerate(names)}
    else:
        counts = rows.statistics[:, STATISTICS.index(statistic)]
        columns = {name: _counts(counts[:, place]) for place, name in enumerate(names)}
    return pd.DataFrame(columns, index=index, columns=names)


def metrics(rows: Rows) -> pd.DataFrame:
    """One line for each iteration: the epoch, each metric's own value of that batch, and how the step was scaled."""
    index = pd.Index(rows.iteration, name="iteration")
    own = rows.metrics if len(rows) else {"loss": np.empty(0), **rows.metrics}  # which every run has
    scaling = {"loss_scale": rows.loss_scale, "skipped": rows.skipped}
    return pd.DataFrame({"epoch": rows.epoch, **own, **scaling}, index=index)


def events(written: Sequence[tuple[int, str, str]]) -> pd.DataFrame:
    """One line for each event of a parameter, in the order they were written."""
    iterations, names, parameters = zip(*written, strict=True) if written else ((), (), ())
    codes = np.array([EVENTS.index(name) for name in names], np.int32)
    return pd.DataFrame(
        {
            "iteration": np.array(iterations, np.int64),
            "event": _category(codes, EVENTS),
            "parameter": pd.Series(list(parameters), dtype=object),
        }
    )


def epochs(records: Sequence[Mapping[str, float]]) -> pd.DataFrame:
    """One line for each epoch: the means of its metrics, its iterations, and how many of them had a non-finite loss."""
    frame = pd.DataFrame(list(records) or {name: np.empty(0) for name in ("epoch", "loss", "iterations", "nonfinite")})
    return frame.astype({"epoch": np.int64, "iterations": np.int64, "nonfinite": np.int64}).set_index("epoch")


def parameters(described: Sequence[Mapping[str, object]]) -> pd.DataFrame:
    """One line for each parameter, in declaration order."""
    frame = pd.DataFrame(list(described), columns=["name", "shape", "dtype"])
    frame["size"] = np.array([np.prod(shape) for shape in frame["shape"]], np.int64)
    return frame.astype({"name": str, "dtype": str}).set_index("name")


def _category(codes: NDArray[Any], names: Sequence[str]) -> Any:
    return pd.Categorical.from_codes(codes.astype(np.int32), pd.Index(list(names), dtype=object))


def _counts(values: NDArray[np.float64]) -> pd.arrays.IntegerArray:
    # Integers with a mask: a count that was not taken is missing, not zero.
    missing = np.isnan(values)
    return pd.arrays.IntegerArray(np.where(missing, 0, values).astype(np.int64), missing)
