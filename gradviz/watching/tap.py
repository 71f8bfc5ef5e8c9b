"""One optimizer of a loop that is not ours: from the end of a backward pass to the end of its step."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from torch import Tensor
from torch.optim import Optimizer

from gradviz.grad.algebra import is_incomplete
from gradviz.recorder.pace import Pace
from gradviz.recorder.recorder import Draft, Recorder
from gradviz.recorder.subject import Gradients
from gradviz.watching.backward import current_pass
from gradviz.watching.leftover import Leftover
from gradviz.watching.models import Held, Models

FIRST = 3
"""Iterations in which gradients are read again before the step, whether they seem to have been written into or not."""


class Taken(NamedTuple):
    """An iteration that is over.

    Attributes
    ----------
    place : int
        Of the optimizer that took the step.
    draft : Draft or None
        What was measured; None where nothing was to be.
    loss_scale : float
    skipped : bool
    closure_calls : int
        0 without a closure.
    reached : collection of int
        Ids of the parameters that backward passes have reached.
    """

    place: int
    draft: Draft | None
    loss_scale: float
    skipped: bool
    closure_calls: int
    reached: Collection[int]


class Tap:
    """Measures what one optimizer is given, and when.

    Parameters
    ----------
    place : int
        Of the optimizer among those of the watch.
    optimizer : Optimizer
    models : Models
    recorder : Recorder
    pace : Pace
    look : callable
        Has the models followed to what they are now.
    """

    def __init__(
        self,
        place: int,
        optimizer: Optimizer,
        models: Models,
        recorder: Recorder,
        pace: Pace,
        look: Callable[[], object],
    ) -> None:
        self.optimizer = optimizer
        self.place = place
        self._models = models
        self._recorder = recorder
        self._pace = pace
        self._look = look
        self._count = 0  # iterations so far
        self._always_read = False
        self._stepped_within: int | None = None
        self._leftover = Leftover() if pace.thins else None
        self._reached_last: set[int] = set()
        self._begin()

    def _begin(self) -> None:
        self._draft: Draft | None = None
        self._has_begun = self._is_touched = False
        self._reached: set[int] = set()
        self._before_closure: list[tuple[Tensor, Tensor, int]] = []
        self._traces: _Traces | None = None
        self._scale = 1.0
        self._found_inf: Tensor | None = None
        self._clones: Gradients | None = None
        self._closure_calls = 0
        self.is_stepping = False
        self.is_awaited = False
        """Whether a scaler decides at this moment if it steps."""
        self.scaler: Any = None
        """Whose scale was taken out of the gradients for the step to come."""

    # Gradients ----------------------------------------------------------------------------------------------------

    def backward_ended(self, reached: set[int], *, is_scaled: bool) -> None:
        """A pass has added to the gradients.

        Parameters
        ----------
        reached : set of int
            Ids of the parameters it did so for.
        is_scaled : bool
            Whether a loss scale may be in them.
        """
        if self._held.ids.isdisjoint(reached) or self._closure_calls > 1:
            return
        if self._stepped_within is not None and self._stepped_within == current_pass():
            return  # one that steps in hooks, as soon as it has a gradient
        self._begun()
        if self._before_closure:
            self._forget_cleared()
        self._reached = self._reached | reached if self._reached else reached
        if self._draft is not None:
            self._see_backward(self._draft, is_scaled=is_scaled)

    def _begun(self) -> None:
        if not self._has_begun:
            self._has_begun = True
            self._draft = Draft() if self._pace.is_due(self._count) else None

    @property
    def is_due(self) -> bool:
        """Whether the iteration to come is recorded, as far as can be told before it."""
        return self._pace.is_due(self._count)

    @property
    def _held(self) -> Held:
        return self._models.held[self.place]

    def _gradients(self) -> Gradients:
        held = self._held
        given = list(map(_grad, held.parameters))
        # Who assigns gradients by hand has had no backward pass: there None is all that tells.
        reached = self._reached or held.every_id
        unused = []
        if not held.every_id <= reached or is_incomplete(given):
            unused = [
                name
                for name, p, gradient in zip(held.names, held.parameters, given, strict=True)
                if gradient is None or id(p) not in reached
            ]
        return Gradients(held.names, given, unused, held.kind)

    def _see_backward(self, draft: Draft, *, is_scaled: bool) -> None:
        gradients = self._gradients()
        self._recorder.observe(draft, "backward", gradients, of=self.place)
        self._is_touched = False
        if self._leftover is not None:
            self._leftover.come(gradients.tensors)
        if "clipped" in self._recorder.stages:
            self._traces = _Traces.of(gradients.tensors, None if draft.plan is None else draft.plan.sampled())
        if self._wants_histograms():
            # A scale is known when it is taken out; until then the entries are kept.
            if is_scaled:
                self._clones = gradients.with_tensors([gradient.detach().clone() for gradient in gradients.tensors])
            else:
                self._recorder.count(draft, "backward", gradients)

    def _wants_histograms(self) -> bool:
        # By its own count: of two optimizers in turn, one would have all and the other none.
        return self._recorder.wants_histograms(self._count)

    def _sample(self, gradients: Sequence[Tensor]) -> bytes | None:
        """Some entries of what was measured last, as they are now; None if they cannot be read so."""
        plan = None if self._draft is None else self._draft.plan
        return None if plan is None else plan.sample(gradients)

    def _check_touched(self) -> None:
        """Whether somebody has written into the gradients since the backward pass."""
        if self._traces is not None and not self._is_touched:
            self._is_touched = not self._traces_now(len(self._traces.ids)).shows_no_write(self._traces)

    def _traces_now(self, n_expected: int = -1) -> _Traces:
        given = list(map(_grad, self._held.parameters))
        if len(given) != n_expected:  # else one that is missing is another one too
            given = [gradient for gradient in given if gradient is not None]
        return _Traces.of(given, self._sample(given))

    # A loss scale -------------------------------------------------------------------------------------------------

    def is_unscaled_by(self, scaler: Any) -> None:
        """Its scale is about to be taken out of the gradients, for all that we know of them by then."""
        self._check_touched()
        self.scaler, self._scale = scaler, float(scaler.get_scale())

    def has_been_unscaled(self) -> None:
        """It has been taken out."""
        if self._traces is not None:
            self._traces = self._traces_now()

    # The step -----------------------------------------------------------------------------------------------------

    def missed_backward(self) -> None:
        """Gradients have come of which nobody told: what has become of them since is not known."""
        self._has_begun, self._draft = True, None

    def begins_step(self, *, has_closure: bool) -> None:
        """The optimizer is about to step; with a closure, gradients come within."""
        self.is_stepping, self.is_awaited = True, False
        self._stepped_within = current_pass()
        self._found_inf = getattr(self.optimizer, "found_inf", None)
        self._begun()
        if has_closure:
            self._before_closure = [
                (p, p.grad, _version(p.grad))
                for p in self._held.parameters
                if id(p) in self._reached and p.grad is not None
            ]
        else:
            self.has_gradients()
            if self._leftover is not None and self._draft is not None:
                is_rewritten = self._is_touched or self._always_read or "clipped" in self._draft.rows
                self._leftover.give(self._gradients().tensors, is_rewritten=is_rewritten)
        if self._draft is not None and self._recorder.wants_updates:
            self._recorder.before_step(self._draft, dict(zip(self._held.names, self._held.parameters, strict=True)))

    def _forget_cleared(self) -> None:
        """A closure may clear what was there before it, as those of LBFGS do, or add to it, as where it accumulates."""
        cleared = {
            id(p) for p, grad, version in self._before_closure if p.grad is not grad or _version(grad) != version
        }
        # What its pass adds to is among them, and is reached by it.
        self._reached = self._reached - cleared
        self._before_closure = []

    def calls_closure(self) -> None:
        """The optimizer evaluates the loss."""
        self._closure_calls += 1

    def has_called_closure(self) -> None:
        """It has: the gradients of the first time are the step's."""
        if self._closure_calls == 1:
            self.has_gradients()

    def has_gradients(self) -> None:
        """The optimizer gets them as they are now."""
        self._begun()
        draft = self._draft
        if draft is None:
            return
        left = getattr(self.optimizer, "grad_scale", None)  # what a fused optimizer has yet to take out
        left = 1.0 if left is None else float(left)
        self._scale = left if self._scale == 1 else self._scale
        if "backward" not in draft.rows and not self._reached:
            # They were assigned, and no backward pass was seen: these are the gradients as they came.
            gradients = self._gradients()
            self._recorder.observe(draft, "backward", gradients, by=left, of=self.place)
            if self._wants_histograms():
                self._count_entries(draft, "backward", gradients, left)
            return
        draft.divide("backward", self._scale)
        if self._clones is not None:
            self._count_entries(draft, "backward", self._clones, self._scale)
        if "clipped" in self._recorder.stages:
            self._see_clipped(draft, left)

    def _count_entries(self, draft: Draft, stage: str, gradients: Gradients, scale: float) -> None:
        """Take histograms of gradients in which there is a scale."""
        if scale != 1:
            gradients = gradients.with_tensors([gradient / scale for gradient in gradients.tensors])
        self._recorder.count(draft, stage, gradients)

    def _see_clipped(self, draft: Draft, left: float) -> None:
        """Read them again, if they seem to have been written into; at first, and ever more rarely, in any case."""
        self._check_touched()
        if self._is_touched:  # frozen, maybe, and its gradient cleared
            self._look()
        is_checked = self._count < FIRST or self._count & (self._count - 1) == 0
        if not (self._is_touched or self._always_read or is_checked):
            return
        gradients = self._gradients()
        self._recorder.observe(draft, "clipped", gradients, by=left, of=self.place)
        if "clipped" in draft.rows:
            self._always_read = self._always_read or not self._is_touched  # it left no trace
            if self._wants_histograms():
                self._count_entries(draft, "clipped", gradients, left)

    def ends(self, *, skipped: bool = False) -> Taken:
        """The iteration is over; what became of it."""
        if self._found_inf is not None:
            skipped = skipped or float(self._found_inf) > 0
        if self._draft is not None and not skipped:
            self._recorder.after_step(self._draft, of=self.place)
        taken = Taken(self.place, self._draft, self._scale, skipped, self._closure_calls, self._reached)
        if self._leftover is not None and self._draft is not None:
            self._leftover.leave(self._gradients().tensors)
        self._count += 1
        self._reached_last = self._reached
        self._begin()
        return taken

    def of_what_is_left(self) -> Draft | None:
        """What can be measured of the last step, which was not to be recorded, now that no other comes."""
        if self._leftover is None:
            return None
        self._reached = self._reached_last
        gradients = self._gradients()
        stage = self._leftover.stage(gradients.tensors)
        if stage is None:
            return None
        draft = Draft()
        self._recorder.observe(draft, stage, gradients, of=self.place)
        return draft if draft.rows else None


class _Traces(NamedTuple):
    """What shows that gradients were written into: other tensors, torch's count of writes, or other entries.

    A write through ``.data`` is not counted; so a few entries of each are looked at.
    """

    ids: list[int]
    versions: list[int]
    entries: bytes | None

    @classmethod
    def of(cls, gradients: Sequence[Tensor], entries: bytes | None) -> _Traces:
        """Those there are now, with what some entries are."""
        return cls(list(map(id, gradients)), [] if entries is None else list(map(_version, gradients)), entries)

    def shows_no_write(self, since: _Traces) -> bool:
        """Whether all are as they were; where entries cannot be looked at, nobody knows."""
        return self.entries is not None and self == since


_grad = operator.attrgetter("grad")
_version = operator.attrgetter("_version")
