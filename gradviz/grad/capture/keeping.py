"""What is kept of a gradient as it comes, by each ``keep=``.

Every way takes the statistics. They are computed within the backward pass, so that no gradient outlives its place in
it: on the CPU at once, and on other devices as a row that stays there until all of a step are fetched in one transfer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gradviz.grad.capture.capture import Capture
from gradviz.grad.capture.running import Running
from gradviz.grad.capture.shelf import Shelf
from gradviz.grad.statistics import N_SCALING, OneByOne, device_row

if TYPE_CHECKING:
    from gradviz.grad.capture.captured import Call

Row = NDArray[np.float64]


class Taken:
    """What was kept of one gradient.

    Attributes
    ----------
    row : array of float64, or a Tensor that is yet to be fetched
        The statistics.
    more : what the way of keeping adds
    """

    __slots__ = ("more", "row")

    def __init__(self, row: Row | Tensor, more: Any) -> None:
        self.row: Any = row
        self.more = more


class Keeping:
    """Keeps statistics, and nothing else: the way that others add to."""

    name = "statistics"

    def __init__(self, capture: Capture) -> None:
        self.capture = capture
        self._measured = OneByOne()

    def take(self, call: Call, gradient: Tensor) -> Taken:
        """From within the backward pass."""
        return Taken(self._row(gradient), self._more(call, gradient))

    def _row(self, gradient: Tensor) -> Row | Tensor:
        return self._measured(gradient) if gradient.is_cpu else device_row(gradient)

    def _more(self, call: Call, gradient: Tensor) -> Any:
        return None

    def add(self, call: Call, taken: Taken, more: Taken) -> bool:
        """A second backward pass has gone through the same value; whether what is kept can tell of both together."""
        return False

    def divide(self, taken: Taken, by: float) -> None:
        """Take a loss scale out."""
        taken.row[:N_SCALING] /= by

    def begin(self, shelf: Shelf) -> None:
        """Another iteration, with room for its tensors."""


class KeepsRunning(Keeping):
    """Mean and second moment of each name and call."""

    name = "running"

    def _more(self, call: Call, gradient: Tensor) -> Running | None:
        return None if call.why_no_examples else Running.of(gradient, self.capture.batch_dim)

    def divide(self, taken: Taken, by: float) -> None:
        """Of the statistics and of what is kept beside them."""
        super().divide(taken, by)
        if taken.more is not None:
            taken.more = taken.more.scaled(1 / by)


class KeepsExampleNorms(Keeping):
    """The norm of each example's part."""

    name = "example_norms"

    def _more(self, call: Call, gradient: Tensor) -> Tensor | None:
        return None if call.why_no_examples else example_norms(gradient, self.capture.batch_dim)

    def divide(self, taken: Taken, by: float) -> None:
        """Of the statistics and of what is kept beside them."""
        super().divide(taken, by)
        if taken.more is not None:
            taken.more = taken.more / by


class KeepsTensors(Keeping):
    """The gradient itself."""

    name = "tensors"

    def begin(self, shelf: Shelf) -> None:
        """What the last iteration kept is its own."""
        self._shelf = shelf

    def _more(self, call: Call, gradient: Tensor) -> Any:
        return self._shelf.put(gradient)

    def add(self, call: Call, taken: Taken, more: Taken) -> bool:
        """Tensors add up."""
        taken.more.add(more.more.get())
        taken.row = self._row(taken.more.get())
        return True

    def divide(self, taken: Taken, by: float) -> None:
        """Of the statistics and of what is kept beside them."""
        super().divide(taken, by)
        taken.more.divide(by)


WAYS = {way.name: way for way in (Keeping, KeepsRunning, KeepsExampleNorms, KeepsTensors)}
"""By ``keep=``."""


def example_norms(gradient: Tensor, batch_dim: int) -> Tensor:
    """The norm of each example's part, in float64 where the device has it.

    Examples
    --------
    >>> example_norms(torch.tensor([[3.0, 4.0], [1e-23, 0.0]]), 0)
    tensor([5.0000e+00, 1.0000e-23], dtype=torch.float64)
    """
    parts = gradient.detach().movedim(batch_dim, 0)
    parts = parts.reshape(len(parts), -1) if parts.numel() else parts.new_zeros(len(parts), 1)
    if gradient.device.type == "mps":
        scale = parts.abs().amax(1, keepdim=True).nan_to_num(1.0, posinf=1.0).clamp_min(torch.finfo(parts.dtype).tiny)
        scaled: Tensor = torch.linalg.vector_norm(parts / scale, dim=1) * scale.squeeze(1)
        return scaled
    wide = torch.complex128 if parts.is_complex() else torch.float64
    norms: Tensor = torch.linalg.vector_norm(parts, dim=1, dtype=wide)
    return norms


def fetch(taken: Sequence[Taken]) -> None:
    """Rows that lie on another device, in one transfer for each device."""
    places: dict[torch.device, list[Taken]] = {}
    for each in taken:
        if isinstance(each.row, Tensor):
            places.setdefault(each.row.device, []).append(each)
    for own in places.values():
        rows = torch.stack([each.row.double() if each.row.device.type != "mps" else each.row for each in own])
        for each, row in zip(own, rows.cpu().double().numpy(), strict=True):
            each.row = row.copy()
