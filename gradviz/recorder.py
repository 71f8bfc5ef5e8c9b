"""The one bridge from tensors to the history: gradients of an iteration -> a row."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gradviz.errors import RecordingWarning, warn
from gradviz.grad.algebra import Grad
from gradviz.grad.leaves import Leaves, leaves_of
from gradviz.grad.statistics import STATISTICS, norms, statistics
from gradviz.history.history import History, Parameter
from gradviz.history.rows import FROZEN, NOT_OPTIMIZED, NOT_RECORDED, OK, UNUSED
from gradviz.step.train_step import TrainStep

Record = Literal["all", "norms"] | None
"""What is recorded of each gradient: every statistic, its norm, or nothing."""


class Recorder:
    """Watches a step and writes a row for each iteration.

    `observe` is called with the gradients while they are still warm; `commit` writes the row once the iteration is
    done. An iteration that is broken off leaves no row. Our own failure never breaks a training step: it warns once,
    and the row says ``not_recorded``. With ``record=None`` every row does, and the step is not even watched.
    """

    def __init__(self, step: TrainStep, history: History, record: Record = "all") -> None:
        self.history = history
        self._step = step
        self._statistics = norms if record == "norms" else statistics
        self._watches = record is not None
        self._pending: tuple[NDArray[np.float64], NDArray[np.uint8]] | None = None
        self._leaves: Leaves | None = None
        self._parameters: list[str] = []
        self._row: dict[str, int] = {}
        self._states: dict[str, int] = {}
        self._optimized: Set[str] = frozenset()
        self._warned = False
        if self._watches:
            step.observe = self.observe

    def begin(self) -> None:
        """Look at the model anew: shapes and dtypes may have changed between runs."""
        self._leaves = None

    def observe(self, stage: str, gradients: Grad[Any]) -> None:
        """Take the statistics of one stage's gradients."""
        self._pending = None
        try:
            self._pending = self._measure(gradients)
        except Exception as error:
            self._warn(error)

    def commit(self, iteration: int, epoch: int, metrics: Mapping[str, float]) -> None:
        """Write the row of a finished iteration, and what was frozen or unfrozen for it."""
        report = self._step.report
        try:
            if not self._watches and self._leaves is None:
                self._look_for_changes()
            table, states = self._pending if self._pending is not None else self._nothing()
            self.history.add_events(iteration, "frozen", report.frozen)
            self.history.add_events(iteration, "unfrozen", report.unfrozen)
            self.history.append(iteration, epoch, table, states, metrics, report.loss_scale, report.skipped)
        except Exception as error:
            self._warn(error)
        self._pending = None

    def _measure(self, gradients: Grad[Any]) -> tuple[NDArray[np.float64], NDArray[np.uint8]]:
        self._look_for_changes()
        table, states = self._nothing()
        states[[self._row[name] for name in self._parameters]] = FROZEN
        states[[self._row[name] for name in gradients]] = UNUSED
        reached = {name: gradient for name, gradient in gradients.given.items() if gradient is not None}
        if reached:
            rows = [self._row[name] for name in reached]
            table[rows] = self._statistics(list(reached.values()))
            states[rows] = [self._states[name] for name in reached]
        return table, states

    def _look_for_changes(self) -> None:
        """Follow parameters that join or leave the model or the optimizer; a row once given is kept."""
        # Both are the same objects for as long as the module tree and the optimizer's groups are the same.
        leaves, optimized = leaves_of(self._step.model), self._step.optimized()
        if leaves is self._leaves and optimized is self._optimized:
            return
        parameters = leaves.parameters
        described = {parameter["name"]: parameter for parameter in self.history.described}
        described |= {name: describe(name, p) for name, p in parameters.items()}
        self.history.declare(list(described.values()))
        self._row = {name: row for row, name in enumerate(described)}
        self._leaves, self._parameters, self._optimized = leaves, list(parameters), optimized
        self._states = {name: OK if name in optimized else NOT_OPTIMIZED for name in parameters}

    def _nothing(self) -> tuple[NDArray[np.float64], NDArray[np.uint8]]:
        if not self._watches:
            return _NO_ROW
        shape = len(self.history.described)
        return np.full((shape, len(STATISTICS)), np.nan), np.full(shape, NOT_RECORDED, np.uint8)

    def _warn(self, error: Exception) -> None:
        if not self._warned:
            self._warned = True
            warn(
                f"Gradients could not be recorded ({type(error).__name__}: {error}); training goes on. Said once.",
                RecordingWarning,
            )


_NO_ROW = np.empty((0, len(STATISTICS))), np.empty(0, np.uint8)
"""What a row lacks was not recorded."""


def describe(name: str, tensor: Tensor) -> Parameter:
    """A parameter as the history knows it."""
    return Parameter(name=name, shape=tuple(tensor.shape), dtype=str(tensor.dtype).removeprefix("torch."))
