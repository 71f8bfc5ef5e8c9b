"""A history as TensorBoard's event files."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd

from gradviz.errors import HistoryError, described
from gradviz.history.schema import STAGES
from gradviz.history.view import View

CELL_BYTES = 512
"""What a number takes as a Python object and as a message, generously."""

_TAGS = {"backward": "gradients", "clipped": "clipped", "update": "update", "weight": "weight"}
_FLOAT32 = np.finfo(np.float32)


def write_events(view: View, folder: str | os.PathLike[str]) -> None:
    """Scalars and histograms into a file of their own."""
    if not isinstance(folder, str | os.PathLike) or Path(folder).is_file():
        came = described(folder) if not isinstance(folder, str | os.PathLike) else f"the file {os.fspath(folder)}"
        raise HistoryError(f'Event files go into a folder, such as history.to_tensorboard("logs/a"); got {came}.')
    try:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.record_writer import RecordWriter
    except ImportError as error:
        raise HistoryError(
            "TensorBoard's files are written by TensorBoard, which is not installed. Install it: pip install "
            "tensorboard. What needs nothing more: history.to_csv(...)."
        ) from error
    os.makedirs(folder, exist_ok=True)
    now = time.time()
    # Its readers look for these names, and take files in their order.
    file = Path(folder) / f"events.out.tfevents.{now:.6f}.{socket.gethostname()}.{os.getpid()}.gradviz"
    with file.open("xb") as stream:
        writer = RecordWriter(stream)
        writer.write(Event(wall_time=now, file_version="brain.Event:2").SerializeToString())
        for step, values in _values(view, Summary.Value):
            writer.write(Event(wall_time=now, step=step, summary=Summary(value=values)).SerializeToString())
        writer.flush()


def _values(view: View, value: Any) -> Iterator[tuple[int, list[Any]]]:
    """What there is of each iteration."""
    for part in view.in_pieces(CELL_BYTES):
        metrics = part.metrics.drop(columns="epoch").select_dtypes(exclude="category")
        for step, given in _scalars(metrics):
            yield step, [value(tag=tag, simple_value=number) for tag, number in given]
        for stage in STAGES:
            norms = part.wide("norm", stage=stage)
            measured = part.wide("state", stage=stage).isin(["ok", "not_optimized"])
            for step, given in _scalars(norms, measured.to_numpy()):
                yield step, [value(tag=f"{_TAGS[stage]}/norm/{name}", simple_value=number) for name, number in given]
    for of, bins in view.histograms.groupby(["iteration", "parameter", "stage"], observed=True):
        at, name, stage = cast("tuple[int, str, str]", of)
        yield int(at), [value(tag=f"{_TAGS[stage]}/histogram/{name}", histo=_histogram(bins))]


def _scalars(frame: pd.DataFrame, taken: Any = None) -> Iterator[tuple[int, list[tuple[str, float]]]]:
    """Line by line, what is not missing, as float32 holds it: what lies beyond its ends stands at the end."""
    there = ~frame.isna().to_numpy() if taken is None else taken
    values = frame.to_numpy(np.float64, na_value=np.nan, copy=True)
    if taken is None:  # a NaN of a column without a mask is a value
        plain = [isinstance(kind, np.dtype) for kind in frame.dtypes]
        there[:, plain] = True
    finite = np.isfinite(values)
    values[finite] = np.clip(values[finite], -float(_FLOAT32.max), float(_FLOAT32.max))
    tiny = (values != 0) & (np.abs(values) < _FLOAT32.smallest_subnormal)
    values[tiny] = np.copysign(_FLOAT32.smallest_subnormal, values[tiny])
    names = frame.columns.tolist()
    for step, row, has in zip(frame.index.tolist(), values.tolist(), there.tolist(), strict=True):
        yield step, [(name, number) for name, number, is_there in zip(names, row, has, strict=True) if is_there]


def _histogram(bins: pd.DataFrame) -> Any:
    """Finite entries by buckets; their sums are those of the buckets' middles, since only counts were kept."""
    from tensorboard.compat.proto.summary_pb2 import HistogramProto

    finite = bins[np.isfinite(bins["low"]) | np.isfinite(bins["high"])].sort_values("low")
    most = sys.float_info.max
    limits: list[float] = []
    counts: list[float] = []
    low, high = finite["low"].clip(-most, most).to_numpy(), finite["high"].clip(-most, most).to_numpy()
    for left, right, count in zip(low.tolist(), high.tolist(), finite["count"].tolist(), strict=True):
        edge = left if left < right else float(np.nextafter(left, -np.inf))
        if not limits or edge > limits[-1]:
            limits.append(edge)
            counts.append(0.0)
        limits.append(right)
        counts.append(float(count))
    n = finite["count"].to_numpy(np.float64)
    middle = np.where(np.abs(low) == most, high, np.where(np.abs(high) == most, low, low / 2 + high / 2))
    return HistogramProto(
        min=low[0] if len(low) else 0.0,
        max=high[-1] if len(high) else 0.0,
        num=float(n.sum()),
        sum=float((middle * n).sum()),
        sum_squares=float((middle**2 * n).sum()),
        bucket_limit=limits or [0.0],
        bucket=counts or [0.0],
    )
