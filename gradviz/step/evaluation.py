"""The loss of a step and its gradients: of all micro-batches together, unscaled.

    forward -> loss x share of the micro-batch x loss scale -> gradients -> summed, in float32 for 16-bit parameters
    -> unscaled -> `Evaluation`

What comes out is what the optimizer would get of the joined batch, before clipping, weight decay and momentum.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gradviz.errors import LossScaleError, described
from gradviz.grad.algebra import NO_NAMES, Grad, is_incomplete
from gradviz.grad.autodiff import other_leaves
from gradviz.grad.capture.captured import Captured
from gradviz.grad.capture.session import Session
from gradviz.grad.leaves import Kind
from gradviz.step.batch import Batch, map_leaves, tensors_of
from gradviz.step.fixed_point import FixedPoint
from gradviz.step.gradients import Gradients, GradientTaker, RunningTotal, are_dense
from gradviz.step.loss_scale import ScalesLoss, all_finite, is_built_in, scale_used, unscale_in_place
from gradviz.step.mask import Found
from gradviz.step.masters import Masters
from gradviz.step.model_state import ModelState
from gradviz.step.objective import OBJECTIVE_FORM, Forward, Objective, WrappedLoss, checked, checked_loss
from gradviz.step.precision import Precision
from gradviz.step.shares import shared
from gradviz.step.step_state import joined
from gradviz.step.tensors import own


@dataclass(slots=True)
class Evaluation:
    """What one evaluation of the objective gave.

    Attributes
    ----------
    loss : 0-dim Tensor
        Unscaled and detached.
    prediction : as the model gives it
        Detached.
    taken : Gradients
        Unscaled.
    kind : Kind
        What they are gradients of.
    parameters : sequence of tensors
        What the optimizer works on.
    loss_scale_state : as the loss scale has it
        For the next step.
    is_finite : bool
        Whether the step is to be taken: False under a loss scale that skips, if a gradient is not finite.
    seen : dict
        `y_true`, `y_pred` and `loss` of the first micro-batch.
    unused : frozenset of str
        Names of the parameters that no path leads to.
    is_in_place : bool
        Whether the parameters' ``.grad`` are `taken`.
    captured : Captured or None
        Gradients of intermediate values.
    """

    loss: Tensor
    prediction: Any
    taken: Gradients
    kind: Kind
    parameters: Sequence[Tensor]
    loss_scale_state: Any
    is_finite: bool
    seen: dict[str, Any]
    unused: frozenset[str]
    is_in_place: bool
    captured: Captured | None = None
    _gradient: Grad[Any] | None = None

    @property
    def gradient(self) -> Grad[Any]:
        """The gradients by name, made when somebody asks; a small step that nobody looks into can feel the cost."""
        if self._gradient is None:
            self._gradient = Grad._from(self.kind, self.parameters, self.taken)
        return self._gradient


class Differentiator:
    """Evaluates the objective of one model, and differentiates it."""

    def __init__(
        self, objective: Objective, precision: Precision, masters: Masters, loss_scale: ScalesLoss, *, keeps: bool
    ) -> None:
        self._objective = objective
        self._precision = precision
        self._masters = masters
        self._loss_scale = loss_scale
        self._built_in = loss_scale if is_built_in(loss_scale) else None
        self.may_skip = bool(getattr(loss_scale, "skips_nonfinite", True))
        """Whether a step with gradients that are not finite is skipped; an object of the user's own skips too."""
        self.is_unscaled = self._built_in is not None and not self.may_skip
        """Whether the loss goes back as it is."""
        self.session: Session | None = None
        """Captures gradients of intermediate values, where somebody asks for them."""
        self._kinds: tuple[Kind, Kind] | None = None
        keeps = keeps or self.may_skip  # a scale is taken out in place
        self.taker = GradientTaker(masters, keeps=keeps, is_loss=isinstance(objective, WrappedLoss))

    @property
    def casts(self) -> bool:
        """Whether the policy casts."""
        return self._precision.casts

    def __call__(
        self,
        group: Sequence[Batch],
        scale_state: Any,
        found: Found,
        model_state: ModelState,
        expected: FixedPoint | None = None,
        iteration: int = 0,
        *,
        is_trial: bool = False,
    ) -> Evaluation:
        """The loss and the gradients of the micro-batches as of one batch; what a trial does, the caller has to undo.

        Raises
        ------
        LossError
            If the objective returns no differentiable scalar.
        StateTypeError
            If targets, prediction or loss are not as `expected`; before any backward pass.
        """
        come = _Come(self, self.taker.begin(found, is_trial=is_trial), scale_state, found, expected, iteration)
        for batch, (objective, share) in zip(group, shared(self._objective, group), strict=True):
            if expected is not None:
                expected.check_batch({"y_true": batch.targets}, iteration)
            if isinstance(objective, WrappedLoss):
                # One pass, which moves buffers as in plain torch: nothing to lay out, to choose and to put back.
                prediction = self._precision(model_state.module, batch.inputs)
                loss = checked_loss(objective.loss(prediction, batch.targets), objective.name)
                come.add(batch, loss, prediction, share)
                continue
            with Forward(model_state, self._precision, may_repeat=True) as forward:
                try:
                    result = objective(forward, model_state, batch.inputs, batch.targets)
                except TypeError as error:
                    error.add_note(f"An objective has this form:\n\n{OBJECTIVE_FORM}")
                    raise
                loss, output = checked(result, objective)
                forward.check(output)
                come.add(batch, loss, output.prediction, share)
            forward.settle(output)
        kind: Kind = found.kind
        parameters: Sequence[Tensor] = found.parameters
        if self._masters.copies:
            kind, parameters = self.in_optimizer(kind), self._masters.of_all(parameters)
        came, is_finite = come.gradients.total(), True
        taken = came
        if not self.is_unscaled:
            taken, scale_state, is_finite = self._unscaled(taken, scale_state, kind, parameters)
        losses, seen = come.losses, come.seen
        loss = losses[0] if len(losses) == 1 else torch.stack(losses).sum()
        prediction = seen[0]["y_pred"] if len(seen) == 1 else joined([part["y_pred"] for part in seen])
        unused = NO_NAMES
        if is_incomplete(taken):
            unused = frozenset([name for name, given in zip(kind.names, taken, strict=True) if given is None])
        is_in_place = come.gradients.is_in_place and taken is came
        return Evaluation(
            loss, prediction, taken, kind, parameters, scale_state, is_finite, seen[0], unused, is_in_place
        )

    def scaled(self, loss: Tensor, state: Any) -> Tensor:
        """A loss times the loss scale."""
        scaled: Tensor = self._loss_scale.scale(loss, state)
        if self._built_in is not None:
            return scaled
        if not isinstance(scaled, Tensor) or scaled.ndim or not scaled.requires_grad:
            raise LossScaleError(
                f"scale(loss, state) returned {described(scaled)}; the loss times a factor is wanted, with its graph. "
                "Write return loss * factor."
            )
        return scaled

    def in_optimizer(self, kind: Kind) -> Kind:
        """The kind of gradients that are float32 where the optimizer works on float32 copies."""
        if not self._masters.copies:
            return kind
        if self._kinds is None or self._kinds[0] is not kind:
            dtypes = [torch.float32 if dtype.itemsize < 4 else dtype for dtype in kind.dtypes]
            self._kinds = kind, dataclasses.replace(kind, dtypes=tuple(dtypes), _children={})
        return self._kinds[1]

    def _unscaled(
        self, total: Gradients, state: Any, kind: Kind, parameters: Sequence[Tensor]
    ) -> tuple[Gradients, Any, bool]:
        """The gradients of the loss itself, the scale's next state, and whether the step is to be taken."""
        scale = self._built_in
        if scale is not None:
            finite = unscale_in_place(total, scale_used(scale, state)) if are_dense(total) else None
            if finite is not None:
                return total, scale.following(state, finite), finite
            gradient = Grad._from(kind, parameters, total)
            finite = all_finite(gradient)
            gradient, state = scale.unscaled(gradient, state, finite)
        else:
            gradient = Grad._from(kind, parameters, total)
            unscaled, state = _pair(self._loss_scale.unscale(gradient, state))
            gradient = _as_given(unscaled, gradient)
            finite = not self.may_skip or all_finite(gradient)
        return list(gradient.given.values()), state, finite


class _Come:
    """What the micro-batches of a step have come to so far."""

    def __init__(
        self,
        differentiator: Differentiator,
        gradients: RunningTotal,
        scale_state: Any,
        found: Found,
        expected: FixedPoint | None,
        iteration: int,
    ) -> None:
        self.gradients = gradients
        self.losses: list[Tensor] = []
        self.seen: list[dict[str, Any]] = []
        self._differentiator = differentiator
        self._scale_state = scale_state
        self._found = found
        self._expected = expected
        self._iteration = iteration

    def add(self, batch: Batch, loss: Tensor, prediction: Any, share: float) -> None:
        """Take in a micro-batch, and its backward pass."""
        came = {"y_pred": map_leaves(own, prediction), "loss": own(loss)}
        self.seen.append({"y_true": batch.targets, **came})
        if self._expected is not None:
            self._expected.check_batch(came, self._iteration)
        differentiator = self._differentiator
        if share:
            part = loss if share == 1 else loss * share
            self.losses.append(came["loss"] if share == 1 else part.detach())
            goes_back = part if differentiator.is_unscaled else differentiator.scaled(part, self._scale_state)
        elif self._found.leaves.wrapper is not None:
            # Nothing of it counts, and its loss is a mean over nothing, NaN. The other processes wait for it.
            goes_back = _nothing(prediction)
        else:
            return
        try:
            if differentiator.session is None:
                self.gradients.add(goes_back, batch)
            else:
                self._captured(differentiator.session, goes_back, batch)
        except RuntimeError as error:
            if differentiator.casts:
                error.add_note(
                    "Does the model use activation checkpointing? That runs part of it again during backward, when the "
                    "casts of the policy are over. Compute by torch.autocast around the run then, without a policy."
                )
            raise

    def _captured(self, session: Session, loss: Tensor, batch: Batch) -> None:
        taker = self._differentiator.taker
        taker.beside = [] if taker.goes_everywhere else other_leaves(loss, self._found.parameters)
        try:
            with session.backward():
                self.gradients.add(loss, batch)
        finally:
            taker.beside = []


def _nothing(prediction: Any) -> Tensor:
    """A loss of zero that goes back through the whole model."""
    total: Tensor = sum(leaf.sum() * 0.0 for leaf in tensors_of(prediction) if leaf.requires_grad)  # type: ignore[assignment]
    return total


def _pair(result: Any) -> tuple[Any, Any]:
    if isinstance(result, tuple) and len(result) == 2:
        return result
    raise LossScaleError(
        f"unscale(gradients, state) returned {described(result)}; the gradients and the next state are wanted. Write "
        "return gradients / scale, state."
    )


def _as_given(unscaled: Any, gradient: Grad[Any]) -> Grad[Any]:
    """What a loss scale of the user's own returned, in the names, shapes and dtypes it was given."""
    if not isinstance(unscaled, Mapping) or set(unscaled) != set(gradient):
        raise LossScaleError(
            f"unscale(gradients, state) returned {described(unscaled)} instead of the gradients by name. Write return "
            "gradients / scale, state; or {name: g / scale for name, g in gradients.items()}, state."
        )
    given: list[Tensor | None] = []
    for name, leaf in gradient.items():
        if not isinstance(unscaled[name], Tensor) or unscaled[name].shape != leaf.shape:
            raise LossScaleError(
                f"unscale(gradients, state) returned {described(unscaled[name])} for {name!r}; its gradient has shape "
                f"{tuple(leaf.shape)}."
            )
        given.append(None if name in gradient.unused else unscaled[name].to(leaf.dtype))
    return Grad._from(gradient._kind, list(gradient.values()), given)
