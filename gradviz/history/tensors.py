"""Tensors that were kept whole, each with a note of which it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gradviz.history.series import Series


@dataclass(frozen=True)
class Kept:
    """Which value a tensor is.

    Attributes
    ----------
    name : str
        Of the parameter or the intermediate value.
    iteration, attempt : int
        When it was recorded.
    call : int
        Which call of that name within the iteration.
    example : int or None
        Index within the batch; None for the whole batch.
    dtype : str
        What it had where it was recorded. numpy has no bfloat16: such a tensor is float32 here.
    batch_dim : int or None
        The axis of the examples in a tensor of the whole batch; None where there is none, or nobody has said.
    """

    name: str
    iteration: int
    attempt: int
    call: int
    example: int | None
    dtype: str
    batch_dim: int | None = None

    def is_meant(self, name: str, iteration: int | None, call: int | None, example: int | None) -> bool:
        """Whether it has this name; and is of one iteration or call, or has the example, where one is given."""
        asked: list[tuple[int | None, int | None]] = [(iteration, self.iteration), (call, self.call)]
        if self.example is not None or self.batch_dim is None:
            asked.append((example, self.example))
        return name == self.name and all(wanted in (None, own) for wanted, own in asked)


class KeptTensor(NamedTuple):
    """One of them."""

    kept: Kept
    array: NDArray[Any]

    def has(self, example: int | None) -> bool:
        """Whether the example is among those of its batch."""
        axis = self.kept.batch_dim
        return example is None or self.kept.example is not None or axis is None or example < self.array.shape[axis]

    def of(self, example: int | None) -> KeptTensor:
        """One example's part of it."""
        if example is None or self.kept.example is not None or self.kept.batch_dim is None:
            return self
        part = np.take(self.array, example, self.kept.batch_dim)
        return KeptTensor(replace(self.kept, example=example, batch_dim=None), part)


class Shelf:
    """A chunk in memory: one tensor."""

    def __init__(self, tensor: KeptTensor) -> None:
        self.tensor = tensor

    def __len__(self) -> int:
        return 1

    @property
    def nbytes(self) -> int:
        """Memory it takes."""
        return self.tensor.array.nbytes

    def find(
        self, name: str, iteration: int | None, call: int | None, example: int | None, *, rows: slice
    ) -> Iterator[KeptTensor]:
        """Itself, if it is meant; all of its one row."""
        if self.tensor.kept.is_meant(name, iteration, call, example):
            yield self.tensor


class Tensors(Series[Shelf, Any]):
    """All of a run, in the order they were kept."""

    def keep(self, kept: Kept, array: NDArray[Any]) -> None:
        """Copy one."""
        self.begin_chunk(Shelf(KeptTensor(kept, array.copy())))

    def drop(self, most: int) -> int:
        """Let the oldest go for good, until all take no more than this many bytes; how many went. None is on disk."""
        n, left = 0, self.nbytes
        while left > most and n < len(self.chunks):
            left -= self.chunks[n].nbytes
            n += 1
        del self.chunks[:n]
        return n

    def find(self, name: str, iteration: int | None, call: int | None, example: int | None) -> list[KeptTensor]:
        """Those of a name."""
        return [
            tensor
            for segment, rows in self.pieces()
            for tensor in segment.find(name, iteration, call, example, rows=rows)
        ]
