"""What of a row stays the same for as long as the same parameters are trained: all but the numbers."""

from __future__ import annotations

from collections.abc import Sequence, Set

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gradviz.grad.statistics import STATISTICS, Statistics
from gradviz.history.history import Row
from gradviz.history.schema import FROZEN, NOT_OPTIMIZED, NOT_RECORDED, OK, UNUSED, Parameter
from gradviz.recorder.subject import Form, Gradients, Subject


class Plan:
    """Where the numbers of some gradients go in a row, and the state of every parameter in it."""

    def __init__(
        self, subject: Subject, gradients: Gradients, described: Sequence[Parameter], *, only_norms: bool, samples: bool
    ) -> None:
        self._subject = subject
        self._described = described
        self.kind, self.unused = gradients.kind, gradients.unused
        row = {parameter["name"]: place for place, parameter in enumerate(described)}
        reached = gradients.reached
        self.reached = {name: Form.of(gradient) for name, gradient in reached.items()}
        """How the gradients are stored, by name."""
        self._rows = [row[name] for name in reached]
        self._is_whole = self._rows == list(range(len(row)))
        self._statistics = Statistics(gradients.tensors, only_norms=only_norms, samples=samples)
        self._table = np.full((len(STATISTICS), len(row)), np.nan).T
        self._states = np.full(len(row), NOT_RECORDED, np.uint8)
        frozen = [name for name, p in subject.parameters().items() if not p.requires_grad]
        self._states[[row[name] for name in frozen]] = FROZEN
        self._states[[row[name] for name in self.unused]] = UNUSED
        self._moved = [(name, row[name]) for name in reached if name not in gradients.unused]
        self._optimized: Set[str] | None = None
        self.had_moments: int | None = None
        """How many parameters had moments when dtypes were last looked at; None before."""

    def fits(self, gradients: Gradients, described: Sequence[Parameter]) -> bool:
        """Whether it holds for these gradients too."""
        is_same = gradients.kind is self.kind and described is self._described
        return is_same and gradients.unused == self.unused and len(gradients.tensors) == len(self.reached)

    def row(self, gradients: Gradients) -> Row:
        """The numbers, [parameters, statistics], and the states; the next call writes into the same numbers."""
        optimized = self._subject.optimized()
        if optimized is not self._optimized:
            self._optimized, self._states = optimized, self._states.copy()
            self._states[[place for _, place in self._moved]] = [
                OK if name in optimized else NOT_OPTIMIZED for name, _ in self._moved
            ]
            self._states.flags.writeable = False  # so that nobody needs to check them anew
        return self._numbers(gradients), self._states

    def sampled(self) -> bytes | None:
        """See `Statistics.sampled`."""
        return self._statistics.sampled()

    def sample(self, gradients: Sequence[Tensor]) -> bytes | None:
        """See `Statistics.sample`."""
        return self._statistics.sample(gradients)

    def _numbers(self, gradients: Gradients) -> NDArray[np.float64]:
        measured = self._statistics(gradients.tensors)
        if self._is_whole:
            return measured
        self._table[self._rows] = measured
        return self._table
