"""The picture of a run beside its rows, so that it is drawn at once when the run is opened."""

from __future__ import annotations

import zlib
from functools import reduce

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from gradviz.history.overview import Columns
from gradviz.history.run.folder import Folder
from gradviz.history.run.form import FORMAT

FILE = "overview.safetensors"


def write_overview(folder: Folder, columns: Columns, seen: int, attempt: int) -> None:
    """The columns of the first `seen` iterations of an attempt's view; OSError if that fails."""
    arrays = {name: np.ascontiguousarray(getattr(columns, name)) for name in _ARRAYS}
    arrays["told"] = np.array([FORMAT, seen, attempt, columns.level, _checksum(columns)], np.int64)
    folder.write(FILE, save(arrays))


def read_overview(folder: Folder, rows: int, attempt: int) -> tuple[Columns, int] | None:
    """What was written; None where there is nothing that fits: it can be drawn from the rows."""
    try:
        arrays = load(folder.read(FILE))
        form, seen, at, level, checksum = arrays["told"].tolist()
        columns = Columns(
            **{name: arrays[name].astype(dtype, casting="no") for name, dtype in _ARRAYS.items()}, level=level
        )
    except (OSError, SafetensorError, KeyError, TypeError, ValueError):
        return None
    n = len(columns.start)
    fits = columns.maximum.shape == columns.minimum.shape == columns.flags.shape == (n, rows)
    fits = fits and columns.stop.shape == (n,)
    fits = fits and (form, at, checksum) == (FORMAT, attempt, _checksum(columns))
    return (columns, seen) if fits else None


def _checksum(columns: Columns) -> int:
    return reduce(lambda known, name: zlib.crc32(getattr(columns, name).tobytes(), known), _ARRAYS, columns.level)


_ARRAYS = {"start": np.uint32, "stop": np.uint32, "maximum": np.float32, "minimum": np.float32, "flags": np.uint8}
