"""The one bridge from tensors to the history: gradients of an iteration -> a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gradviz.errors import RecordingWarning, warn
from gradviz.grad.algebra import Grad
from gradviz.grad.histograms import HIGH, LOW, Counts, histograms
from gradviz.grad.leaves import leaves_of
from gradviz.grad.statistics import STATISTICS, Statistics
from gradviz.history.history import History
from gradviz.history.schema import FROZEN, NOT_OPTIMIZED, NOT_RECORDED, OK, UNUSED, Parameter
from gradviz.step.optimizers import OptimizerState
from gradviz.step.train_step import TrainStep

Record = Literal["all", "norms"] | None
"""What is recorded of each gradient: every statistic, its norm, or nothing."""


class Recorder:
    """Watches a step and writes a row for each iteration.

    `observe` is called with the gradients while they are still warm; `commit` writes the row once the iteration is
    done. An iteration that is broken off leaves no row. Our own failure never breaks a training step: it warns once,
    and the row says ``not_recorded``. With ``record=None`` every row does, and the step is not even watched.

    With ``record="all"`` the iterations 0, `histograms_every`, twice that ... have histograms of the gradients too.
    """

    def __init__(
        self, step: TrainStep, history: History, record: Record = "all", *, histograms_every: int | None = 100
    ) -> None:
        self.history = history
        self._step = step
        self._record = record
        self._histograms_every = histograms_every if record == "all" else None
        self._iteration = 0
        self._pending: tuple[NDArray[np.float64], NDArray[np.uint8]] | None = None
        self._histograms: _Histograms | None = None
        self._plan: _Plan | None = None
        self._dtypes: _Dtypes | None = None
        self._dtypes_of: tuple[_Plan, int] | None = None
        self._warned = False
        self._is_declared = False
        if record is not None:
            step.observe = self.observe

    def begin(self, iteration: int) -> None:
        """Look at the model anew: shapes and dtypes may have changed between runs. `iteration` is the next one."""
        self._iteration = iteration
        self._plan = self._dtypes = self._dtypes_of = None
        self._is_declared = False

    def described(self) -> list[Parameter]:
        """The model's parameters as they are now."""
        return [describe(name, p) for name, p in leaves_of(self._step.model).parameters.items()]

    def observe(self, stage: str, gradients: Grad[Any]) -> None:
        """Take the statistics of one stage's gradients, and the histograms where they are due."""
        self._pending = self._histograms = None
        try:
            self._pending = self._measure(gradients)
            if self._histograms_every is not None and self._iteration % self._histograms_every == 0:
                reached = {name: gradient for name, gradient in gradients.given.items() if gradient is not None}
                self._histograms = _Histograms(stage, list(reached), histograms(list(reached.values())))
        except Exception as error:
            self._warn(error)

    def commit(self, iteration: int, epoch: int, metrics: Mapping[str, float]) -> None:
        """Write the row of a finished iteration, and what was frozen or unfrozen for it."""
        report = self._step.report
        try:
            table, states = self._pending if self._pending is not None else self._nothing()
            self._write_beside(iteration)
            if report.frozen or report.unfrozen:
                self.history.add_events(iteration, "frozen", report.frozen)
                self.history.add_events(iteration, "unfrozen", report.unfrozen)
            if report.closure_calls:
                metrics = {**metrics, "closure_calls": report.closure_calls}
            self.history.append(iteration, epoch, table, states, metrics, report.loss_scale, report.skipped)
        except Exception as error:
            self._warn(error)
        self._pending = self._histograms = None
        self._iteration = iteration + 1

    def _write_beside(self, iteration: int) -> None:
        """Histograms that were taken, and dtypes that have changed. The row is written whatever comes of it."""
        try:
            if self._histograms is not None:
                self.history.add_rows("histograms", self._histograms.rows(iteration))
            if self._plan is not None:
                self._write_dtypes(iteration, self._plan)
        except Exception as error:
            self._warn(error, "Histograms and dtypes")

    def _write_dtypes(self, iteration: int, plan: _Plan) -> None:
        """A row for each dtype that is not what the history says. Moments appear with the optimizer's first step."""
        look = plan, len(self._step.optimizer.state)
        if look == self._dtypes_of:
            return
        self._dtypes_of = look
        if self._dtypes is None:
            known = self.history.dtypes
            self._dtypes = dict(zip(zip(known["parameter"], known["of"], strict=True), known["dtype"], strict=True))
        now = dict(plan.dtypes)
        try:
            now |= _moments(self._step.optimizer_state, plan.shapes)
        except Exception as error:
            self._warn(error, "The dtypes of the optimizer's state")
        changed = {key: dtype for key, dtype in now.items() if self._dtypes.get(key) != dtype}
        if changed:
            columns = {"parameter": [name for name, _ in changed], "of": [of for _, of in changed]}
            columns["dtype"] = list(changed.values())
            self.history.add_rows("dtypes", {"iteration": np.full(len(changed), iteration), **columns})
            self._dtypes |= changed

    def _measure(self, gradients: Grad[Any]) -> tuple[NDArray[np.float64], NDArray[np.uint8]]:
        plan = self._plan
        if plan is None or not plan.fits(gradients):
            self._declare()
            plan = self._plan = _Plan(self._step, gradients, self.history.described, only_norms=self._record == "norms")
        plan.follow_optimizer()
        return plan.table(gradients), plan.states

    def _declare(self) -> None:
        """Tell the history of parameters that joined the model; a row once given is kept."""
        described = {parameter["name"]: parameter for parameter in self.history.described}
        described |= {parameter["name"]: parameter for parameter in self.described()}
        self.history.declare(list(described.values()))
        self._is_declared = True

    def _nothing(self) -> tuple[NDArray[np.float64], NDArray[np.uint8]]:
        """No numbers, for no parameter: what a row lacks was not recorded."""
        if not self._is_declared:
            self._declare()
        return _NO_ROW

    def _warn(self, error: Exception, what: str = "Gradients") -> None:
        if not self._warned:
            self._warned = True
            warn(
                f"{what} could not be recorded ({type(error).__name__}: {error}); training goes on. Said once.",
                RecordingWarning,
            )


class _Histograms(NamedTuple):
    """How the entries of some gradients were distributed, until the iteration is done."""

    stage: str
    names: list[str]
    counts: Counts

    def rows(self, iteration: int) -> dict[str, Any]:
        """The bins that are not empty, as the history's table has them."""
        places, bins = self.counts.nonzero()
        return {
            "iteration": np.full(len(places), iteration),
            "parameter": [self.names[place] for place in places.tolist()],
            "stage": [self.stage] * len(places),
            "low": LOW[bins],
            "high": HIGH[bins],
            "count": self.counts[places, bins],
        }


_Dtypes = dict[tuple[str, str], str]
"""By the name of a parameter, and of what: "parameter", "gradient", or one of the optimizer's moments."""


def _moments(state: OptimizerState, shapes: Mapping[str, Any]) -> _Dtypes:
    """Of what the optimizer keeps in the shape of a parameter, as torch calls it: "exp_avg", say."""
    return {
        (name, of): _called(value)
        for name, kept in state.items()
        if isinstance(kept, Mapping)
        for of, value in kept.items()
        if isinstance(value, Tensor) and value.shape == shapes.get(name) and of != "step"
    }


_NO_ROW = np.empty((0, len(STATISTICS))), np.empty(0, np.uint8)


class _Plan:
    """What of a row stays the same for as long as the same parameters are trained: all but the numbers."""

    def __init__(
        self, step: TrainStep, gradients: Grad[Any], described: Sequence[Parameter], *, only_norms: bool
    ) -> None:
        self._step = step
        self._leaves = leaves_of(step.model)
        self._kind, self._unused = gradients._kind, gradients.unused
        row = {parameter["name"]: place for place, parameter in enumerate(described)}
        reached = {name: gradient for name, gradient in gradients.given.items() if gradient is not None}
        self._reached = list(reached)
        self._rows = [row[name] for name in reached]
        self._is_whole = self._rows == list(range(len(row)))
        self._statistics = Statistics(list(reached.values()), only_norms=only_norms)
        self._table = np.full((len(STATISTICS), len(row)), np.nan).T
        self.states = np.full(len(row), NOT_RECORDED, np.uint8)
        self.states[[row[name] for name in self._leaves.parameters]] = FROZEN
        self.states[[row[name] for name in self._unused]] = UNUSED
        self._optimized: Set[str] | None = None
        self.shapes = {name: p.shape for name, p in self._leaves.parameters.items()}
        self.dtypes = {(name, "parameter"): _called(p) for name, p in self._leaves.parameters.items()}
        self.dtypes |= {(name, "gradient"): _called(gradient) for name, gradient in reached.items()}

    def fits(self, gradients: Grad[Any]) -> bool:
        """Whether it holds for these gradients too; their kind is the same object until the model changes."""
        return gradients._kind is self._kind and gradients.unused == self._unused

    def follow_optimizer(self) -> None:
        """Take in which parameters it moves now; learning rates change from step to step."""
        optimized = self._step.optimized(self._leaves)
        if optimized is not self._optimized:
            self._optimized = optimized
            self.states[self._rows] = [OK if name in optimized else NOT_OPTIMIZED for name in self._reached]

    def table(self, gradients: Grad[Any]) -> NDArray[np.float64]:
        """The numbers of a row, [parameters, statistics]; the next call writes into the same table."""
        measured = self._statistics([gradient for gradient in gradients.given.values() if gradient is not None])
        if self._is_whole:
            return measured
        self._table[self._rows] = measured
        return self._table


def describe(name: str, tensor: Tensor) -> Parameter:
    """A parameter as the history knows it."""
    return Parameter(name=name, shape=tuple(tensor.shape), dtype=_called(tensor))


def _called(tensor: Tensor) -> str:
    """Its dtype, as text."""
    return str(tensor.dtype).removeprefix("torch.")
