"""The recorder of a training step: what `Loop` has between its step and its history."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

from torch import Tensor

from gradviz.grad.algebra import Grad
from gradviz.grad.leaves import leaves_of
from gradviz.history.history import History
from gradviz.history.schema import Parameter
from gradviz.recorder.pace import Pace
from gradviz.recorder.recorder import Draft, Outcome, Recorder
from gradviz.recorder.settings import Settings
from gradviz.recorder.subject import Gradients
from gradviz.step.train_step import TrainStep

_EVERYTHING = Settings()


class StepRecorder:
    """Observes a step and writes a row for each iteration.

    `see` is called with the gradients while they are still warm; `commit` writes the row once the iteration is done. An
    iteration that is broken off leaves no row. With ``record=None`` every row says ``not_recorded``, and the step is
    not even observed.

    Parameters
    ----------
    step : TrainStep
    history : History
    settings : Settings
    """

    def __init__(self, step: TrainStep, history: History, settings: Settings = _EVERYTHING) -> None:
        self.history = history
        self._step = step
        self._subject = _Stepped(step)
        self._recorder = Recorder(self._subject, history, settings)
        self.pace = Pace(settings.every, settings.budget)
        self._iteration = 0
        self._has_begun = False
        self._draft: Draft | None = None
        if settings.record is not None:
            step.observer = self

    def begin(self, iteration: int) -> None:
        """Look at the model anew: shapes and dtypes may have changed between runs. `iteration` is the next one."""
        self._draft, self._has_begun, self._iteration = None, False, iteration
        self._recorder.begin()

    def described(self) -> list[Parameter]:
        """The model's parameters as they are now."""
        return self._recorder.described()

    # The step's observer ----------------------------------------------------------------------------------------

    def see(self, stage: str, gradients: Grad[Any]) -> None:
        """Take the statistics of one stage's gradients, and the histograms where they are due."""
        with self.pace:
            self._begun()
            if self._draft is None:
                return
            seen = Gradients(gradients.given, gradients.unused, gradients._kind)
            self._recorder.observe(self._draft, stage, seen)
            if stage in self._draft.rows and self._recorder.wants_histograms(self._iteration):
                self._recorder.count(self._draft, stage, seen)

    def _begun(self) -> None:
        """An iteration has begun: with its gradients, or where the optimizer asks for them itself, with its step."""
        if not self._has_begun:
            self._has_begun = True
            self._draft = Draft() if self.pace.is_due(self._iteration) else None

    def before_step(self) -> None:
        """The optimizer is about to move the parameters."""
        if not self._recorder.wants_updates:
            return
        with self.pace:
            self._begun()
            if self._draft is not None:
                trained = {name: p for name, p in self._subject.parameters().items() if p.requires_grad}
                self._recorder.before_step(self._draft, trained)

    def after_step(self) -> None:
        """It has."""
        if self._draft is not None and self._recorder.wants_updates:
            with self.pace:
                self._recorder.after_step(self._draft)

    # The loop's ---------------------------------------------------------------------------------------------------

    def commit(self, iteration: int, epoch: int, metrics: Mapping[str, float]) -> None:
        """Write the row of a finished iteration, and what was frozen or unfrozen for it."""
        with self.pace:
            report, draft = self._step.report, self._draft
            self._draft, self._has_begun, self._iteration = None, False, iteration + 1
            if report.closure_calls:
                metrics = {**metrics, "closure_calls": report.closure_calls}
            beside = report.loss_scale, report.skipped, report.frozen, report.unfrozen
            self._recorder.commit(draft, Outcome(iteration, epoch, metrics, *beside, by=report.by))
            self.pace.end_iteration(was_recorded=draft is not None)


class _Stepped:
    """What a step trains."""

    def __init__(self, step: TrainStep) -> None:
        self._step = step
        self._leaves = leaves_of(step.model)

    def parameters(self) -> Mapping[str, Tensor]:
        self._leaves = leaves_of(self._step.model)
        return self._leaves.parameters

    def optimized(self) -> Set[str]:
        # The leaves of the last time that parameters were asked for: others have gradients of another kind, and are
        # asked for first. Looking at the whole tree in every step is what a small step can feel.
        return self._step.optimized(self._leaves)

    def masters(self) -> Mapping[str, Tensor]:
        return self._step.masters.state_dict()

    def moments(self) -> Mapping[str, Any]:
        return self._step.optimizer_state

    def n_with_moments(self) -> int:
        return len(self._step.optimizer.state)
