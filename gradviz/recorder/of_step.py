"""The recorder of a training step: what `Loop` has between its step and its history."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence, Set
from typing import Any

from torch import Tensor

from gradviz.grad.algebra import Grad
from gradviz.grad.capture.captured import Captured
from gradviz.grad.leaves import Kind, leaves_of
from gradviz.history.history import History
from gradviz.history.schema import Parameter
from gradviz.recorder.captured import CaptureRecorder, Ids
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

    Where not every iteration is recorded, the last one is: where the plan says beforehand that it is the last, as any
    other; else what is measured is what the step has left behind, which nobody may have written into.

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
        self._every = None if settings.record is None else settings.every
        self._thinned: int | None = None  # the newest iteration, if its gradients were not recorded
        self._captured: Captured | None = None
        self.ids: Ids | None = None
        """Of the examples of the batch that is under way."""
        session = step.session
        self._captures = None if session is None else CaptureRecorder(history, session.capture, session.keep)
        self._observes = settings.record is not None or session is not None
        if self._observes:
            step.observer = self

    def begin(self, iteration: int) -> None:
        """Look at the model anew: shapes and dtypes may have changed between runs. `iteration` is the next one."""
        self._draft, self._has_begun, self._iteration = None, False, iteration
        self._thinned = None
        self.history.progress.records(self._every, iteration, clipped="clipped" in self._recorder.stages)
        self._captured = self.ids = None
        self._recorder.begin()

    def described(self) -> list[Parameter]:
        """The model's parameters as they are now."""
        return self._recorder.described()

    # The step's observer ----------------------------------------------------------------------------------------

    def see(self, stage: str, kind: Kind, given: Sequence[Tensor | None], unused: Set[str]) -> None:
        """Take the statistics of one stage's gradients, and the histograms where they are due."""
        began = time.perf_counter()
        self._begun()
        if self._draft is not None:
            seen = Gradients(kind.names, given, unused, kind)
            self._recorder.observe(self._draft, stage, seen)
            if self._recorder.wants_histograms(self._iteration) and stage in self._draft.rows:
                self._recorder.count(self._draft, stage, seen)
        self.pace.count_since(began)

    def _begun(self) -> None:
        """An iteration has begun: with its gradients, or where the optimizer asks for them itself, with its step."""
        if not self._has_begun:
            self._has_begun = True
            is_due = self.pace.is_due(self._iteration) or self._iteration + 1 == self.history.progress.iterations
            self._draft = Draft() if is_due else None

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

    def wants_captured(self) -> bool:
        """Whether this iteration is recorded: of others, nothing is captured either."""
        with self.pace:
            self._begun()
            return self._draft is not None

    def see_captured(self, captured: Captured) -> None:
        """For the rows of this iteration."""
        self._captured = captured

    # The loop's ---------------------------------------------------------------------------------------------------

    def commit(self, iteration: int, epoch: int, metrics: Mapping[str, float], *, is_last: bool = False) -> None:
        """Write the row of a finished iteration, and what was frozen or unfrozen for it; `is_last` is what is known."""
        report, draft = self._step.report, self._draft
        if report.closure_calls:
            metrics = {**metrics, "closure_calls": report.closure_calls}
        scale, skipped, frozen, unfrozen, _, by = report
        outcome = Outcome(iteration, epoch, metrics, scale, skipped, frozen, unfrozen, None, by)
        if not self._observes:  # what costs nothing is not measured either
            self._recorder.commit(None, outcome)
            return
        began = time.perf_counter()
        if draft is None and is_last and self._every is not None:
            draft = self._of_what_is_left()
        self._thinned = iteration if draft is None and self._every is not None else None
        self._draft, self._has_begun, self._iteration = None, False, iteration + 1
        try:
            if self._captured is not None:
                self._write_captured(self._captured, outcome)
        finally:  # last: who hears of the row finds all there is of the iteration
            self._recorder.commit(draft, outcome)
        self.pace.count_since(began)
        self.pace.end_iteration(was_recorded=draft is not None)
        self.history.progress.overhead = self.pace.overhead

    def _write_captured(self, captured: Captured, outcome: Outcome) -> None:
        self._captured = None
        try:
            if self._captures is not None:
                self._captures.write(captured, outcome.iteration, outcome.epoch, self.ids)
        except Exception as error:
            self._recorder.warn(error, "What was captured")

    def complete(self, kept: Any = None, *, is_untouched: bool) -> None:
        """The run ends here: the newest iteration is recorded after all, where that can be done rightly.

        Parameters
        ----------
        kept : Grad, optional
            Its gradients, if they were kept.
        is_untouched : bool
            Whether nobody can have written into those in ``.grad``.
        """
        iteration, self._thinned = self._thinned, None
        if iteration is not None and (isinstance(kept, Grad) or is_untouched):
            draft = self._of_what_is_left(kept if isinstance(kept, Grad) else None)
            if draft is not None:
                self._recorder.complete(draft, iteration)

    def _of_what_is_left(self, kept: Grad[Any] | None = None) -> Draft | None:
        """What can be measured of the last step's gradients now that it is over."""
        stage, gradients = self._step.left or ("backward", None) if kept is None else ("backward", kept)
        if gradients is None:
            return None
        draft = Draft()
        given = list(gradients.given.values())
        self._recorder.observe(draft, stage, Gradients(gradients._kind.names, given, gradients.unused, gradients._kind))
        return draft if draft.rows else None


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
        return self._step.mask.optimized(self._leaves)

    def masters(self) -> Mapping[str, Tensor]:
        return self._step.masters.state_dict()

    def moments(self) -> Mapping[str, Any]:
        return self._step.optimizer_state

    def n_with_moments(self) -> int:
        return len(self._step.optimizer.state)
