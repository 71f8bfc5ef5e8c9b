"""Frames as CSV: numbers that read back exactly, and what is missing apart from NaN."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv

from gradviz.errors import HistoryError, described, nearest
from gradviz.history import frames
from gradviz.history.schema import TABLES
from gradviz.history.view import View

FRAMES = ("gradients", "metrics", "epochs", "parameters", *TABLES)
SUFFIX = ".csv"
PIECES = 8
"""A frame is made in pieces of this part of the memory limit, as the text takes memory too."""


def write_csv(view: View, path: str | os.PathLike[str], frame: str | None) -> None:
    """All frames into a folder, or one into a file."""
    if not isinstance(path, str | os.PathLike):
        raise HistoryError(f'CSV goes into a folder, such as history.to_csv("tables"); got {described(path)}.')
    if frame is not None:
        _write(view, frame, Path(path))
        return
    folder = Path(path)
    if folder.is_file():
        raise HistoryError(
            f"{folder} is a file, and several frames go into a folder. One of them: history.to_csv({str(path)!r}, "
            'frame="gradients").'
        )
    folder.mkdir(parents=True, exist_ok=True)
    for place, name in enumerate(FRAMES):
        try:
            _write(view, name, folder / f"{name}{SUFFIX}")
        except BaseException as error:
            there = ", ".join(FRAMES[:place]) or "none"
            error.add_note(f"While {name}{SUFFIX} was written; of the frames, {there} are in {folder} by now.")
            raise


def _write(view: View, frame: str, file: Path) -> None:
    if frame not in FRAMES:
        raise HistoryError(f"No frame is called {frame!r}: {nearest(str(frame), FRAMES)}")
    unfinished = file.with_name(f".{file.name}.tmp")
    try:
        writer = None
        for piece in _pieces(view, frame):
            table = _arrow(piece)
            writer = writer or pa.csv.CSVWriter(unfinished, table.schema)
            writer.write_table(table)
        assert writer is not None, "there is a piece, be it of no lines"
        writer.close()
        unfinished.replace(file)
    finally:
        unfinished.unlink(missing_ok=True)


def _pieces(view: View, frame: str) -> Iterator[pd.DataFrame]:
    if frame == "gradients":
        for part in view.in_pieces(frames.TIDY_BYTES * PIECES):
            yield part.gradients
    elif frame == "metrics":
        for part in view.in_pieces(frames.METRIC_BYTES * PIECES, of="metrics"):
            yield part.metrics.reset_index()
    else:
        whole: pd.DataFrame = getattr(view, frame)
        yield whole.reset_index() if whole.index.names != [None] else whole


def _arrow(frame: pd.DataFrame) -> pa.Table:
    """The same; missing is null, which is written as nothing, and NaN is written as nan."""
    columns = {}
    unmeasured = frame["state"].isin(["unused", "frozen", "not_recorded"]).to_numpy() if "state" in frame else None
    finite = frame["nonfinite"].eq(0).to_numpy(np.bool_, na_value=False) if "nonfinite" in frame else None
    for name in frame.columns:
        array = frame[name].array
        if isinstance(array, pd.Categorical):
            codes = array.codes.astype(np.int32)
            texts = pa.array(array.categories.tolist(), pa.string())
            columns[str(name)] = pa.DictionaryArray.from_arrays(pa.array(codes, mask=codes < 0), texts).cast(
                pa.string()
            )
        elif isinstance(array, pd.arrays.FloatingArray | pd.arrays.IntegerArray):
            kind = np.float64 if isinstance(array, pd.arrays.FloatingArray) else np.int64
            columns[str(name)] = pa.array(array.to_numpy(kind, na_value=0), mask=array.isna())
        elif frame[name].dtype == np.float64:
            values = array.to_numpy()
            missing = np.zeros(len(values), np.bool_) if unmeasured is None else unmeasured
            if finite is not None:  # a NaN of entries that are finite: it was not taken, or there is none
                missing = missing | (np.isnan(values) & finite)
            columns[str(name)] = pa.array(values, mask=missing, from_pandas=False)
        elif name == "shape":
            columns[str(name)] = pa.array(["x".join(map(str, shape)) if shape is not None else None for shape in array])
        else:
            columns[str(name)] = pa.array(array.to_numpy(), from_pandas=True)
    return pa.table(columns)
