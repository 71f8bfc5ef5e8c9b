"""One iteration: objective -> gradients -> optimizer.

Gradients come from `torch.autograd.grad`; a parameter's `.grad` is written for the optimizer's step only. What the
step gives is what plain torch gives, to the bit.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from gradviz.errors import LossError, NoSuchFieldError, described, names_nearest_keyword, nearest
from gradviz.grad.algebra import Grad
from gradviz.grad.autodiff import differentiate, refuse_hidden
from gradviz.grad.leaves import leaves_of
from gradviz.step.batch import Batch, InputCast, as_batch, in_words, map_leaves
from gradviz.step.model_state import ModelState, check_trainable, training_mode
from gradviz.step.objective import Forward, Objective, Output, WrappedLoss, as_objective, checked
from gradviz.step.optimizers import OptimizerState, build_optimizer
from gradviz.step.untouched import untouched

Observer = Callable[[str, Grad[Any]], None]
"""Called with the stage ("backward") and the gradients, between backward and the optimizer."""


class StepState(dict[str, Any]):
    """What a step leaves behind, by key or attribute.

    Keys: `i` (steps taken, 0-dim int64), `y_true`, `y_pred`, `loss` (this batch's, detached), `model_state` and
    `optimizer_state` (live), and `gradients` only with ``keep_gradients=True``: absent otherwise.
    """

    def __repr__(self) -> str:
        parts = [f"{name}: {_brief(value)}" for name, value in self.items()]
        return "StepState\n" + "\n".join(f"  {part}" for part in parts)

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        hint = " Pass keep_gradients=True to train_step or trainer." if name == "gradients" else ""
        raise NoSuchFieldError(f"The step state has no field {name!r}: {nearest(name, self)}.{hint}")


class TrainStep:
    """A training step: ``state = step.init(batch)``, then ``state = step(batch, state)``.

    Made by `train_step`.
    """

    def __init__(self, model: nn.Module, objective: Objective, optimizer: Any, *, keep_gradients: bool) -> None:
        check_trainable(model)
        self.model = model
        self.objective = objective
        self.model_state = ModelState(model)
        # All parameters from the start: one that is unfrozen later trains on without a new optimizer.
        self.optimizer = build_optimizer(optimizer, self.model_state.parameters.values())
        self.keep_gradients = keep_gradients
        self.observe: Observer | None = None
        self._cast = InputCast()
        self._unused: tuple[str, ...] = ()

    def init(self, batch: Any) -> StepState:
        """The state before the first step, in the shapes and dtypes a step produces.

        One forward and one backward pass are tried, and parameters, buffers, optimizer and random streams left as
        they began: what is wrong with the model, the objective or the batch shows before anything has moved.

        Parameters
        ----------
        batch : pair of (inputs, targets)

        Raises
        ------
        DataError, ModelError, LossError
            If the batch is no pair, nothing is trainable, or the objective returns no differentiable scalar.
        """
        check_trainable(self.model)
        batch = self._cast(as_batch(batch), next(iter(self.model_state.parameters.values())))
        try:
            return self._try_out(batch)
        except Exception as error:
            error.add_note(f"In a trial step, before anything moved, on a batch of {in_words(batch)}.")
            raise

    def _try_out(self, batch: Batch) -> StepState:
        loss_modules = [self.objective.loss] if isinstance(self.objective, WrappedLoss) else []
        modules = [self.model, *(module for module in loss_modules if isinstance(module, nn.Module))]
        with untouched(*modules), torch.enable_grad(), self._in_training_mode():
            loss, output, _ = self._objective(batch)
            grad = differentiate(loss, *leaves_of(self.model).trainable())
            if grad.unused:
                refuse_hidden(loss, grad.unused[0])
            if len(grad.unused) == len(grad):
                raise LossError("The loss reaches none of the trainable parameters.")
            state = StepState(
                i=torch.tensor(0),
                y_true=map_leaves(_zeros, batch.targets),
                y_pred=map_leaves(_zeros, output.prediction),
                loss=_zeros(loss),
                model_state=self.model_state,
                optimizer_state=OptimizerState(self.optimizer, self.model_state),
            )
            if self.keep_gradients:
                zeros = {name: None if g is None else _zeros(g) for name, g in grad.given.items()}
                state["gradients"] = Grad(self.model, zeros)
        return state

    def __call__(self, batch: Any, state: StepState) -> StepState:
        """One step.

        Parameters
        ----------
        batch : pair of (inputs, targets)
        state : StepState
            From `init` or the step before. Keys a handler has put into it are kept.
        """
        leaves = leaves_of(self.model)
        parameters = leaves.parameters
        kind, trainable = leaves.trainable()
        if not trainable:
            check_trainable(self.model)
        batch = self._cast(as_batch(batch), next(iter(parameters.values())))
        torch.clear_autocast_cache()  # or autocast around the run goes on with old weights
        with torch.enable_grad(), self._in_training_mode():
            loss, output, forward = self._objective(batch)
            # The last gradients go just before the new ones come, as zero_grad would have it; frozen and unused
            # parameters keep none, so that neither momentum nor weight decay moves them.
            for p in parameters.values():
                p.grad = None
            grad = differentiate(loss, kind, trainable)
            forward.settle(output)
        if grad.unused and grad.unused != self._unused:
            refuse_hidden(loss, grad.unused[0])
            self._unused = grad.unused
        if self.observe is not None:
            self.observe("backward", grad)
        for p, gradient in zip(trainable, _as_accumulated(trainable, grad.given.values()), strict=True):
            p.grad = gradient.clone() if gradient is not None and self._may_be_rewritten() else gradient
        self.optimizer.step()
        new = StepState(state)
        new.update(
            i=state["i"] + 1, y_true=batch.targets, y_pred=map_leaves(_detached, output.prediction), loss=loss.detach()
        )
        if self.keep_gradients:
            new["gradients"] = grad
        return new

    def _objective(self, batch: Batch) -> tuple[Tensor, Output, Forward]:
        forward = Forward(self.model_state, may_repeat=not isinstance(self.objective, WrappedLoss))
        result = self.objective(forward, self.model_state, batch.inputs, batch.targets)
        return *checked(result, self.objective), forward

    def _may_be_rewritten(self) -> bool:
        """Whether kept gradients need copies: torch's own optimizers leave them alone, a hook may clip them."""
        if not self.keep_gradients:
            return False
        hooked = bool(self.optimizer._optimizer_step_pre_hooks)
        return hooked or not type(self.optimizer).__module__.startswith("torch.optim")

    def _in_training_mode(self) -> contextlib.AbstractContextManager[Any]:
        # A loop sets the flags once for the whole run; a step on its own sets them for itself.
        return contextlib.nullcontext() if self.model.training else training_mode(self.model)


@names_nearest_keyword
def train_step(
    model: nn.Module, loss: Any, optimizer: Any, *, objective: Objective | None = None, keep_gradients: bool = False
) -> TrainStep:
    """Build a training step from a model, a loss or objective, and an optimizer.

    Parameters
    ----------
    model : torch.nn.Module
        Trained in place.
    loss : str or callable
        A name such as ``"cross_entropy"`` (`gradviz.step.losses` lists them, and what each takes: binary ones take
        logits), a function or module of ``(prediction, targets)``, or an objective of
        ``(forward, model_state, inputs, targets)`` that returns ``(loss, output)``.
    optimizer : str, callable or torch.optim.Optimizer
        A name such as ``"adam"`` (torch's defaults), a factory such as ``partial(torch.optim.SGD, lr=0.1)``, or an
        optimizer over the model's parameters.
    objective : callable, optional
        An objective whose signature does not tell that it is one; then `loss` is None.
    keep_gradients : bool
        Keep each step's gradients in the state, under ``gradients``.

    Raises
    ------
    ModelError, LossError, OptimizerError
        Before anything has moved.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> model = nn.Linear(1, 1, bias=False)
    >>> _ = nn.init.constant_(model.weight, 0.8)
    >>> step = train_step(model, "mean_squared_error", torch.optim.SGD(model.parameters(), lr=0.1), keep_gradients=True)
    >>> batch = torch.tensor([[1.0], [2.0]]), torch.zeros(2, 1)
    >>> state = step(batch, step.init(batch))
    >>> state.loss, state.gradients["weight"], model.weight.item()
    (tensor(1.6000), tensor([[4.]]), 0.4000000059604645)
    """
    return TrainStep(model, as_objective(loss, objective), optimizer, keep_gradients=keep_gradients)


def _brief(value: Any) -> str:
    if isinstance(value, Tensor) and value.ndim:
        return f"{described(value)}, {str(value.dtype).removeprefix('torch.')}"
    return repr(value).splitlines()[0]


def _zeros(leaf: Any) -> Any:
    return torch.zeros_like(leaf, requires_grad=False) if isinstance(leaf, Tensor) else leaf


def _detached(leaf: Any) -> Any:
    return leaf.detach() if isinstance(leaf, Tensor) else leaf


def _as_accumulated(parameters: Iterable[Tensor], gradients: Iterable[Tensor | None]) -> list[Tensor | None]:
    """Gradients laid out in memory as their parameters, as backward() would have left them in ``.grad``.

    torch's fused optimizers read memory as it lies, and get other strides wrong.
    """
    return [
        torch.empty_like(p, requires_grad=False).copy_(gradient)
        if gradient is not None and gradient.layout is torch.strided and gradient.stride() != p.stride()
        else gradient
        for p, gradient in zip(parameters, gradients, strict=True)
    ]
