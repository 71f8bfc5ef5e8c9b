"""The one bridge from tensors to the history: the gradients of an iteration -> a row."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from gradviz.errors import RecordingWarning, warn
from gradviz.grad.statistics import N_SCALING, STATISTICS
from gradviz.history.history import History, Row
from gradviz.history.schema import Parameter
from gradviz.recorder.dtypes import Dtypes
from gradviz.recorder.entries import Entries
from gradviz.recorder.plan import Plan
from gradviz.recorder.settings import Settings
from gradviz.recorder.subject import Gradients, Subject, describe


class Draft:
    """What was measured of an iteration that is not over."""

    entries: Sequence[Entries] = ()
    plan: Plan | None = None
    """That of the backward pass. The gradients themselves are not kept: their memory is wanted for the next."""
    before: Mapping[str, Tensor] = {}  # never written to
    """Parameters before the step, where its update is recorded."""
    is_scaled = False
    """Whether there was a loss scale in the gradients, whose last digits it may have changed."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}

    def divide(self, stage: str, by: float) -> None:
        """Take a loss scale out of what was measured."""
        if by != 1 and stage in self.rows:
            self.rows[stage][0][:, :N_SCALING] /= by
            self.is_scaled = True

    def is_unclipped(self) -> bool:
        """Whether the optimizer gets what the backward pass gave."""
        if "backward" not in self.rows:
            return False
        backward, clipped = self.rows["backward"][0], self.rows["clipped"][0]
        return np.allclose(backward, clipped, rtol=1e-6 if self.is_scaled else 0.0, atol=0.0, equal_nan=True)


class Outcome(NamedTuple):
    """What became of an iteration."""

    iteration: int
    epoch: int
    metrics: Mapping[str, Any]
    loss_scale: float = 1.0
    skipped: bool = False
    frozen: Collection[str] = ()
    unfrozen: Collection[str] = ()
    optimizer: str | None = None
    by: Mapping[str, str] = {}  # never written to


class Recorder:
    """Measures gradients and writes a row for each iteration.

    Our own failure never breaks a training step: it is warned of once, and the row says ``not_recorded``.

    Parameters
    ----------
    subject : Subject
    history : History
    settings : Settings
        With ``record="all"`` the iterations 0, `histograms_every`, twice that ... have histograms of the gradients.
    samples : bool
        Whether the plan of a draft shall know samples of what was measured.
    """

    def __init__(self, subject: Subject, history: History, settings: Settings, *, samples: bool = False) -> None:
        self.history = history
        self.stages = frozenset(settings.stages) if settings.record is not None else frozenset()
        self.wants_updates = "update" in self.stages
        """Whether it is to be told before a step and after it."""
        self._samples = samples
        self._only_norms = settings.record == "norms"
        self._histograms_every = settings.histograms_every if settings.record == "all" else None
        self._subject = subject
        self._plans: dict[tuple[str, Hashable], Plan] = {}
        self._dtypes = Dtypes(subject, history, self.warn)
        self._warned = False
        self._described: list[Parameter] = []
        self._is_declared = False

    def begin(self) -> None:
        """Look at the parameters anew: shapes and dtypes may have changed."""
        self._plans.clear()
        self._dtypes = Dtypes(self._subject, self.history, self.warn)
        self._is_declared = False

    def described(self) -> list[Parameter]:
        """The parameters as they are now."""
        return [describe(name, p) for name, p in self._subject.parameters().items()]

    # Measured ---------------------------------------------------------------------------------------------------

    def observe(self, draft: Draft, stage: str, gradients: Gradients, *, by: float = 1.0, of: Hashable = None) -> None:
        """Take the statistics of one stage; what was clipped has none where they are those of the backward pass.

        Parameters
        ----------
        draft : Draft
            Gets them.
        stage : str
        gradients : Gradients
        by : float
            A loss scale that is still in them.
        of : hashable
            Whose they are, where several have gradients of their own in turn.
        """
        draft.rows.pop(stage, None)
        if stage not in self.stages:
            return
        try:
            plan = self._plan(stage, of, gradients)
            if stage == "backward":
                draft.plan = plan
            draft.rows[stage] = plan.row(gradients)
            if by != 1:
                draft.divide(stage, by)
            if stage == "clipped" and draft.is_unclipped():
                del draft.rows[stage]
        except Exception as error:
            if stage == "clipped":
                draft.rows.setdefault(stage, _NO_ROW)  # without a row it would pass for unclipped
            self.warn(error)

    def _plan(self, stage: str, of: Hashable, gradients: Gradients) -> Plan:
        plan = self._plans.get((stage, of))
        if plan is None or not plan.fits(gradients, self._described):
            self.declare()
            plan = Plan(self._subject, gradients, self._described, only_norms=self._only_norms, samples=self._samples)
            self._plans[stage, of] = plan
        return plan

    def wants_histograms(self, iteration: int) -> bool:
        """Whether they are due."""
        return self._histograms_every is not None and iteration % self._histograms_every == 0

    def count(self, draft: Draft, stage: str, gradients: Gradients) -> None:
        """Take the histograms of one stage, and what narrower dtypes would make of its entries."""
        draft.entries = [each for each in draft.entries if each.stage != stage]
        try:
            draft.entries = [*draft.entries, Entries.of(stage, gradients.reached)]
        except Exception as error:
            self.warn(error, "Histograms")

    def before_step(self, draft: Draft, parameters: Mapping[str, Tensor]) -> None:
        """Remember what an optimizer may move."""
        draft.before = {}
        try:
            draft.before = {name: p.detach().clone() for name, p in parameters.items()}
        except Exception as error:
            self.warn(error, "Updates")

    def after_step(self, draft: Draft, *, of: Hashable = None) -> None:
        """Measure how parameters have moved, and what they were, where there are gradients."""
        before, draft.before = draft.before, {}
        if not before or draft.plan is None:
            return
        try:
            now, plan = self._subject.parameters(), draft.plan
            moved = [name for name in plan.reached if name in before and name in now]
            update = [_difference(now[name].detach(), before[name]) for name in moved]
            weight = [before[name] for name in moved]
            for stage, given in (("update", update), ("weight", weight)):
                gradients = Gradients(moved, given, plan.unused, plan.kind)
                draft.rows[stage] = self._plan(stage, of, gradients).row(gradients)
        except Exception as error:
            self.warn(error, "Updates")

    # Written ----------------------------------------------------------------------------------------------------

    def commit(self, draft: Draft | None, outcome: Outcome) -> None:
        """Write the row of a finished iteration, and what was frozen or unfrozen for it; None if it is not recorded."""
        iteration = outcome.iteration
        try:
            if not self._is_declared:
                self.declare()
            stages = {} if draft is None else dict(draft.rows)
            is_thinned = draft is None and self.stages
            table, states = (None, None) if is_thinned else stages.pop("backward", _NO_ROW)
            if draft is not None and (draft.entries or draft.plan is not None):
                self._write_beside(iteration, draft)
            if outcome.frozen or outcome.unfrozen:
                self.history.add_events(iteration, "frozen", outcome.frozen, by=outcome.by)
                self.history.add_events(iteration, "unfrozen", outcome.unfrozen, by=outcome.by)
            self.history.append(
                iteration,
                outcome.epoch,
                table,
                states,
                outcome.metrics,
                outcome.loss_scale,
                outcome.skipped,
                stages=stages or None,
                optimizer=outcome.optimizer,
            )
        except Exception as error:
            self.warn(error)

    def complete(self, draft: Draft, iteration: int) -> None:
        """Add to the newest row, which has no gradients, what was measured of them after all."""
        try:
            stages = dict(draft.rows)
            table, states = stages.pop("backward", _NO_ROW)
            self._write_beside(iteration, draft)
            self.history.complete(table, states, stages=stages)
        except Exception as error:
            self.warn(error)

    def _write_beside(self, iteration: int, draft: Draft) -> None:
        """Histograms that were taken, and dtypes that have changed. The row is written whatever comes of it."""
        try:
            for each in draft.entries:
                for table, rows in each.rows(iteration).items():
                    self.history.add_rows(table, rows)
            if draft.plan is not None:
                self._dtypes.write(iteration, draft.plan)
        except Exception as error:
            self.warn(error, "Histograms and dtypes")

    def declare(self) -> None:
        """Tell the history of parameters that joined the model; a row once given is kept."""
        described = {parameter["name"]: parameter for parameter in self.history.described}
        described |= {parameter["name"]: parameter for parameter in self.described()}
        if (now := list(described.values())) != self.history.described:
            self.history.declare(now)
        self._described, self._is_declared = self.history.described, True

    def warn(self, error: Exception, what: str = "Gradients") -> None:
        """Say that something was not recorded."""
        if not self._warned:
            self._warned = True
            warn(
                f"{what} could not be recorded ({type(error).__name__}: {error}); training goes on. Said once.",
                RecordingWarning,
            )


_NO_ROW: Row = np.empty((0, len(STATISTICS))), np.empty(0, np.uint8)
"""No numbers, for no parameter: what a row lacks was not recorded."""


def _difference(now: Tensor, before: Tensor) -> Tensor:
    """In float32 at least: between two neighbours in 16 bits there is nothing."""
    wide = torch.promote_types(now.dtype, torch.float32)
    return now.to(wide) - before.to(wide)
