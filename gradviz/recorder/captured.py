"""What was captured of an iteration -> rows of the history, and tensors that it keeps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gradviz.errors import CaptureError, CaptureWarning, RecordingWarning, warn
from gradviz.grad.capture.capture import Capture
from gradviz.grad.capture.captured import Call, Captured
from gradviz.grad.statistics import STATISTICS
from gradviz.history.history import History
from gradviz.history.schema import COUNTS
from gradviz.sizes import in_words

Ids = Sequence[Any]
"""One for each example of a batch; what the history keeps of it is its text."""

_NOTHING = np.full(len(STATISTICS), np.nan)


class CaptureRecorder:
    """Writes what was captured.

    Parameters
    ----------
    history : History
    capture : Capture
    keep : str
        What is kept of gradients.
    """

    def __init__(self, history: History, capture: Capture, keep: str) -> None:
        self._history, self._capture, self._keep = history, capture, keep
        history.captures = True
        self._said: set[str] = set()

    def write(self, captured: Captured, iteration: int, epoch: int, ids: Ids | None = None) -> None:
        """The rows of one iteration.

        Parameters
        ----------
        captured : Captured
        iteration, epoch : int
        ids : sequence, optional
            Of the examples of its batch.
        """
        calls = captured.every_call
        if calls:
            self._history.add_rows("activations", _activations(calls, iteration, epoch))
        self._say_missing(captured)
        if self._keep == "example_norms":
            self._write_examples(captured, iteration, ids)
        if self._keep == "tensors":
            self._keep_tensors(calls, iteration)

    def _say_missing(self, captured: Captured) -> None:
        new = {name: why for name, why in captured.missing.items() if name not in self._said}
        if new and not self._said.intersection(captured.missing):
            few = list(new.items())[:3]
            more = f", and {len(new) - len(few)} more" if len(new) > len(few) else ""
            told = "; ".join(f"{name!r}: {why}" for name, why in few)
            warn(
                f"Not all that is to be captured can be: {told}{more}. All are in captured.missing of the step state "
                "or the watch. Said once.",
                CaptureWarning,
            )
        self._said.update(new)

    # Examples -----------------------------------------------------------------------------------------------------

    def _write_examples(self, captured: Captured, iteration: int, ids: Ids | None) -> None:
        rows: dict[str, list[Any]] = {name: [] for name in ("name", "call", "example", "example_id", "norm")}
        for name, call, norms, before, n_all in _example_norms(captured):
            # Micro-batches are calls with ids of their own; a model that is called twice on one batch has them twice.
            own = ids
            if ids is not None and len(ids) != len(norms):
                own = ids[before : before + len(norms)] if len(ids) == n_all else None
                if own is None:
                    self._say_ids(len(ids), len(norms), name)
            largest = _largest(norms, self._capture.top_examples)
            rows["name"] += [name] * len(largest)
            rows["call"] += [call] * len(largest)
            rows["example"] += largest.tolist()
            rows["norm"] += norms[largest].tolist()
            rows["example_id"] += [None if own is None else _text(own[place]) for place in largest]
        if n := len(rows["name"]):
            self._history.add_rows("examples", {"iteration": [iteration] * n, **rows})

    def _say_ids(self, n_ids: int, n_examples: int, name: str) -> None:
        if "ids" not in self._said:
            self._said.add("ids")
            warn(
                f"example_ids gave {n_ids} ids, where {name!r} has {n_examples} examples along batch_dim="
                f"{self._capture.batch_dim}; they are left out where they do not fit. Said once.",
                RecordingWarning,
            )

    # Tensors ------------------------------------------------------------------------------------------------------

    def _keep_tensors(self, calls: Sequence[Call], iteration: int) -> None:
        for call in calls:
            if call.state != "ok":
                continue  # what is unused or frozen has a row that says so
            try:
                gradient = call.gradient
            except CaptureError:  # over the limit, as was said
                continue
            dropped = self._history.keep_tensor(
                call.name,
                iteration,
                _array(gradient),
                call=call.number,
                dtype=str(call.dtype).removeprefix("torch."),
                batch_dim=self._axis(call),
                most=None if self._capture.store == "disk" else self._capture.memory_limit,
            )
            if dropped and "dropped" not in self._said:
                self._said.add("dropped")
                warn(
                    f"Tensors of this run took more than memory_limit={in_words(self._capture.memory_limit)}, and the "
                    'oldest are dropped from now on. Write save_to="runs/a" to keep all of them on disk, or capture '
                    "fewer. Said once.",
                    CaptureWarning,
                )

    def _axis(self, call: Call) -> int | None:
        axis = self._capture.batch_dim
        if call.why_no_examples or not -len(call.shape) <= axis < len(call.shape):
            return None
        return axis % len(call.shape)


def _activations(calls: Sequence[Call], iteration: int, epoch: int) -> dict[str, Any]:
    n = len(calls)
    table = np.array([_NOTHING if call._taken is None else call._taken.row for call in calls])
    columns: dict[str, Any] = dict(zip(STATISTICS, table.T, strict=True))
    for name in COUNTS:
        is_missing = np.isnan(columns[name])
        columns[name] = np.ma.MaskedArray(np.where(is_missing, 0, columns[name]).astype(np.int64), is_missing)
    return {
        "iteration": np.full(n, iteration),
        "epoch": np.full(n, epoch),
        "name": [call.name for call in calls],
        "call": [call.number for call in calls],
        "state": [call.state for call in calls],
        **columns,
    }


def _example_norms(captured: Captured) -> Iterator[tuple[str, int, NDArray[np.float64], int, int]]:
    """Name, call and norms; how many examples the calls before it had, and all calls of its name together."""
    for name, calls in captured.items():
        told = [
            call for call in calls if call.state == "ok" and call._taken is not None and call._taken.more is not None
        ]
        norms = [call.example_norms.cpu().double().numpy() for call in told]
        n_all, before = sum(map(len, norms)), 0
        for call, own in zip(told, norms, strict=True):
            yield name, call.number, own, before, n_all
            before += len(own)
    for name, norms_of in captured.parameter_example_norms.items():
        yield name, 0, norms_of.cpu().double().numpy(), 0, len(norms_of)


def _largest(norms: NDArray[np.float64], most: int) -> NDArray[np.int64]:
    """Places of the largest, first of all those that are not finite."""
    order = np.argsort(-np.nan_to_num(norms, nan=np.inf, posinf=np.inf), kind="stable")
    return order[:most]


def _text(example_id: Any) -> str:
    return str(example_id.item() if isinstance(example_id, Tensor | np.generic) else example_id)


def _array(tensor: Tensor) -> NDArray[Any]:
    tensor = tensor.detach().cpu()
    tensor = tensor.to_dense() if tensor.layout is not torch.strided else tensor
    array: NDArray[Any] = (tensor.float() if tensor.dtype is torch.bfloat16 else tensor).resolve_conj().numpy()
    return array
