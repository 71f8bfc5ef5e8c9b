"""One batch seen without a step: model in eval mode -> prediction and loss.

What a training step would have moved stays: parameters, batch-norm statistics, and the train flag of every module.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch import nn

from gradviz.grad.modes import Eval
from gradviz.step.batch import Batch, InputCast, as_batch, in_words, map_leaves
from gradviz.step.gradients import gradients_kept
from gradviz.step.model_state import ModelState, check_module
from gradviz.step.objective import Forward, Objective, WrappedLoss, checked
from gradviz.step.policy import Policy
from gradviz.step.precision import Precision
from gradviz.step.step_state import StepState
from gradviz.step.tensors import detached


class EvalStep:
    """An evaluation of one batch: ``state = step(batch)``.

    Examples
    --------
    >>> import torch
    >>> model = nn.Linear(1, 1, bias=False)
    >>> _ = nn.init.constant_(model.weight, 0.5)
    >>> state = EvalStep(model, WrappedLoss(nn.MSELoss(), "mse"))((torch.ones(2, 1), torch.zeros(2, 1)))
    >>> state.loss, model.training
    (tensor(0.2500), True)
    """

    def __init__(
        self,
        model: nn.Module,
        objective: Objective | None,
        precision: Precision | None = None,
        cast: InputCast | None = None,
    ) -> None:
        check_module(model)
        self.model = model
        self.objective = objective
        self.model_state = ModelState(model)
        self._precision = precision or Precision(Policy(), model)
        self._cast = cast or InputCast(asked_for=self._precision.casts)

    @property
    def fields(self) -> tuple[str, ...]:
        """Keys of the states it gives."""
        return ("model_state", "y_true", "y_pred", *([] if self.objective is None else ["loss"]))

    def __call__(self, batch: Any) -> StepState:
        """Evaluate a batch.

        Parameters
        ----------
        batch : pair of (inputs, targets)

        Returns
        -------
        StepState
            With `fields` as its keys, everything in it detached.

        Raises
        ------
        DataError, LossError
            If the batch is no pair, or the objective returns no scalar and `Output`.
        """
        batch = self._on_model(as_batch(batch))
        try:
            return self._evaluate(batch)
        except Exception as error:
            error.add_note(f"In an evaluation, on a batch of {in_words(batch)}.")
            raise

    def _evaluate(self, batch: Batch) -> StepState:
        is_own = self.objective is not None and not isinstance(self.objective, WrappedLoss)
        torch.clear_autocast_cache()  # or autocast around the run goes on with the weights before the last step
        # An objective of the user's own may differentiate inside.
        with Eval().applied(self.model), torch.set_grad_enabled(is_own):
            forward = Forward(self.model_state, self._precision, may_repeat=is_own)
            with forward, gradients_kept(self.model_state.parameters) if is_own else contextlib.nullcontext():
                if self.objective is None:
                    loss, output = None, forward(self.model_state, batch.inputs)
                else:
                    result = self.objective(forward, self.model_state, batch.inputs, batch.targets)
                    loss, output = checked(result, self.objective, graph=False)
                    forward.check(output)
            forward.settle(output)
        state = StepState(
            model_state=self.model_state,
            y_true=map_leaves(detached, batch.targets),
            y_pred=map_leaves(detached, output.prediction),
        )
        if loss is not None:
            state["loss"] = loss.detach()
        return state

    def _on_model(self, batch: Batch) -> Batch:
        like = next(iter(self.model_state.values()), None)
        if like is None:
            return batch  # a model without tensors is nowhere
        return self._cast(batch, like.device, self._precision.input_dtype(like.dtype))
