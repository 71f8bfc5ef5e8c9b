"""Rows and tables as pandas frames, typed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gradviz.history.rows import Rows
from gradviz.history.schema import COUNTS, STATES, STATISTICS, Schema
from gradviz.history.table import Column, Columns, Vocabulary

TIDY_BYTES = 3 * 8 + 4 + 2 + 5 * 8 + 4 * 9
"""What a line of the tidy frame takes."""


METRIC_BYTES = 8 + 1
"""What a cell of the frame of metrics takes, with its mask."""


def tidy(rows: Rows, stage: NDArray[np.int8], parameters: Sequence[str], stages: Sequence[str]) -> pd.DataFrame:
    """One line for each iteration, stage and parameter; `stage` has a place in `stages` for each row."""
    n, width = rows.planes["state"].shape
    columns: dict[str, object] = {
        "iteration": np.repeat(rows.iteration, width),
        "epoch": np.repeat(rows.epoch, width),
        "attempt": np.repeat(rows.attempt, width),
        "parameter": _category(np.tile(_codes(np.arange(width), width), n), parameters),
        "stage": _category(np.repeat(stage, width), stages),
        "state": _category(rows.planes["state"].astype(np.int8).ravel(), STATES),
    }
    counts = [rows.planes[name] for name in COUNTS]
    nothing_odd = not any(plane.any() for plane in counts)  # NaN, where nothing was counted, is odd too
    for name in STATISTICS:
        if name not in COUNTS:
            columns[name] = _own(rows.planes[name])
    missing = np.zeros(n * width, np.bool_) if nothing_odd else np.isnan(counts[0]).ravel()  # all are counted, or none
    for name, plane in zip(COUNTS, counts, strict=True):
        columns[name] = _zeros(n * width) if nothing_odd else _integers(plane.ravel(), missing)
    nonfinite = _zeros(n * width) if nothing_odd else _integers(np.sum(counts, axis=0).ravel(), missing)
    columns["nonfinite"] = nonfinite
    return pd.DataFrame(columns, copy=False)


def wide(plane: NDArray[Any], statistic: str, parameters: Sequence[str], index: pd.Index) -> pd.DataFrame:
    """One line for each iteration, one column for each parameter."""
    names = pd.Index(list(parameters), name="parameter", dtype=object)
    if statistic == "state":
        columns = {name: _category(plane[:, place].astype(np.int8), STATES) for place, name in enumerate(names)}
        return pd.DataFrame(columns, index=index, columns=names)
    if statistic in COUNTS:
        counts = (_integers(column, np.isnan(column)) for column in plane.T)
        return pd.DataFrame(dict(zip(names, counts, strict=True)), index=index, columns=names)
    return pd.DataFrame(plane.copy(), index=index, columns=names, copy=False)


def table(columns: Columns, schema: Schema, vocabulary: Mapping[str, Vocabulary]) -> pd.DataFrame:
    """A tidy table as it is."""
    frame = {
        name: _category(column.values.astype(np.int32), vocabulary[name].texts)
        if schema[name] == "text"
        else _numbers(column, is_count=schema[name] == "count")
        for name, column in columns.items()
    }
    return pd.DataFrame(frame, copy=False)


def epochs(records: Sequence[Mapping[str, float]]) -> pd.DataFrame:
    """One line for each epoch: the means of its metrics, its iterations, and how many of them had a non-finite loss."""
    frame = pd.DataFrame(list(records), columns=None if records else ["epoch", "loss", "iterations", "nonfinite"])
    whole = ["epoch", "iterations", "nonfinite"]
    return frame.astype(dict.fromkeys(frame.columns.difference(whole), np.float64) | dict.fromkeys(whole, np.int64))


def parameters(described: Sequence[Mapping[str, object]]) -> pd.DataFrame:
    """One line for each parameter, in declaration order."""
    frame = pd.DataFrame(list(described), columns=["name", "shape", "dtype"])
    unknown = np.array([shape is None for shape in frame["shape"]], np.bool_)
    sizes = np.array([0 if shape is None else np.prod(shape) for shape in frame["shape"]], np.int64)
    frame["size"] = pd.arrays.IntegerArray(sizes, unknown) if unknown.any() else sizes
    return frame.astype({"name": str, "dtype": str}).set_index("name")


def index(iteration: NDArray[np.int64], attempt: NDArray[np.int64] | None) -> pd.Index:
    """Lines by iteration, or by attempt and iteration where several attempts are shown."""
    if attempt is None:
        return pd.Index(iteration.copy(), name="iteration")
    return pd.MultiIndex.from_arrays([attempt, iteration], names=["attempt", "iteration"])


def _category(codes: NDArray[Any], names: Sequence[str]) -> Any:
    return pd.Categorical.from_codes(codes, pd.Index(list(names), dtype=object), validate=False)


def _codes(places: NDArray[np.int64], n: int) -> NDArray[Any]:
    """Places among n categories, in the integers that pandas wants for so many: others would be copied."""
    return places.astype(np.int8 if n < 2**7 else np.int16 if n < 2**15 else np.int32)


def _own(plane: NDArray[Any]) -> NDArray[Any]:
    # A view of the history's memory is copied, so that what a reader writes into a frame never reaches it.
    return plane.reshape(-1) if plane.flags.owndata and plane.flags.c_contiguous else plane.flatten()


def _zeros(n: int) -> pd.arrays.IntegerArray:
    return pd.arrays.IntegerArray(np.zeros(n, np.int64), np.zeros(n, np.bool_))


def _integers(values: NDArray[np.float64], missing: NDArray[np.bool_]) -> pd.arrays.IntegerArray:
    # With a mask: a count that was not taken is missing, not zero.
    with np.errstate(invalid="ignore"):
        counts = values.astype(np.int64)
    if missing.any():
        counts[missing] = 0
    return pd.arrays.IntegerArray(counts, missing.copy())


def _numbers(column: Column, *, is_count: bool) -> Any:
    """As numpy has them; with a mask for counts, and for values of which some were never taken: these are not NaN."""
    missing = column.missing
    if is_count:
        none = np.zeros(len(column.values), np.bool_)
        return pd.arrays.IntegerArray(column.values.copy(), none if missing is None else missing.copy())
    if missing is None or not missing.any():
        return column.values.copy()
    return pd.arrays.FloatingArray(np.where(missing, 0.0, column.values), missing.copy())
