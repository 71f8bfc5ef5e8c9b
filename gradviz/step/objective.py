"""A loss or an objective -> one callable form.

The step knows one form only, `(forward, model_state, inputs, targets) -> (loss, output)`; a plain loss is wrapped into
it here, so there is no second code path.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from gradviz.errors import LossError, described, nearest
from gradviz.step.batch import call, is_several
from gradviz.step.buffers import Buffers, BuffersAfter
from gradviz.step.losses import LOSSES
from gradviz.step.model_state import ModelState

OBJECTIVE_FORM = """def objective(forward, model_state, inputs, targets):
    output = forward(model_state, inputs)
    return loss(output.prediction, targets), output"""


class Output(NamedTuple):
    """What a forward pass gives: the prediction that metrics see, and the buffers as they were after it."""

    prediction: Any
    state: Mapping[str, Tensor]


class Forward:
    """The model's forward pass for one step, as objectives call it.

    Each call starts from the buffers the step began with; `settle` keeps those of the output that was returned.
    Copies are only made for a user's objective: a wrapped loss calls once, and large constant buffers would be
    copied each step for nothing.
    """

    def __init__(self, model_state: ModelState, *, may_repeat: bool) -> None:
        self._model_state = model_state
        self._buffers = Buffers(model_state.module) if may_repeat else None
        self._latest: BuffersAfter | None = None

    def __call__(self, model_state: Mapping[str, Tensor], inputs: Any) -> Output:
        """One forward pass in training mode, with the tensors of `model_state`."""
        if self._latest is not None and self._buffers is not None:
            self._latest.hold()
            self._buffers.lay_out()
        module = self._model_state.module
        self._latest = BuffersAfter(self._model_state)
        if isinstance(model_state, ModelState) and model_state.module is module:
            return Output(call(module, inputs), self._latest)
        # Other tensors than the module's own: it moves the buffers that it was given.
        tensors = dict(model_state)
        prediction = _call_with(module, tensors, inputs)
        return Output(prediction, {name: tensors[name] for name in self._model_state.buffers if name in tensors})

    def settle(self, output: Output) -> None:
        """Leave the buffers as they were after `output`'s forward pass; only once backward is over."""
        if self._latest is None:
            return
        state = output.state if isinstance(output.state, BuffersAfter) else self._latest
        if state.slots is None and state is not self._latest:
            return
        if self._buffers is not None:
            if state.slots is None:
                state.hold()
            self._buffers.settle(state.slots or {})
        if state is not output.state:
            live = self._model_state.buffers
            with torch.no_grad():
                for name, value in output.state.items():
                    if name in live and live[name] is not value:
                        live[name].copy_(value)


def _call_with(module: nn.Module, tensors: dict[str, Tensor], inputs: Any) -> Any:
    if isinstance(inputs, Mapping):
        return torch.func.functional_call(module, tensors, (), dict(inputs))
    return torch.func.functional_call(module, tensors, tuple(inputs) if is_several(inputs) else (inputs,))


Objective = Callable[[Forward, ModelState, Any, Any], tuple[Tensor, Output]]


class WrappedLoss:
    """A loss `(prediction, targets) -> scalar` in the form of an objective."""

    def __init__(self, loss: Callable[[Any, Any], Tensor], name: str) -> None:
        self.loss = loss
        self.name = name

    def __call__(self, forward: Forward, model_state: ModelState, inputs: Any, targets: Any) -> tuple[Tensor, Output]:
        """The loss of one forward pass, and its output."""
        output = forward(model_state, inputs)
        return self.loss(output.prediction, targets), output


def as_objective(loss: Any, objective: Objective | None = None) -> Objective:
    """The one form, from a loss by name or function, a loss module, or an objective.

    Dispatch is by the number of required positional parameters: two make a loss, four an objective. `objective=` says
    it where a signature cannot.

    Raises
    ------
    LossError
        If the name is unknown, or the function takes neither two nor four arguments.
    """
    if objective is not None:
        if loss is not None:
            raise LossError("Give a loss or objective=, not both: trainer(model, None, optimizer, objective=...).")
        if not callable(objective):
            raise LossError(f"objective= must be a function of four arguments; got {described(objective)}.")
        return objective
    if isinstance(loss, str):
        if loss not in LOSSES:
            raise LossError(f"No loss is called {loss!r}: {nearest(loss, LOSSES)}")
        return WrappedLoss(LOSSES[loss], loss)
    if isinstance(loss, nn.Module):
        return WrappedLoss(loss, type(loss).__name__)
    if isinstance(loss, type) and issubclass(loss, nn.Module):
        raise LossError(f"{loss.__name__} is the class of a loss; make one: {loss.__name__}().")
    if not callable(loss):
        raise LossError(
            f"A loss is a name, a function of (prediction, targets) or a loss module; got {described(loss)}. "
            'Write "cross_entropy" or torch.nn.functional.cross_entropy.'
        )
    return _by_arity(loss)


def _by_arity(function: Callable[..., Any]) -> Objective:
    name = getattr(function, "__name__", type(function).__name__)
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        raise LossError(
            f"The signature of {name} cannot be read. Wrap a loss, lambda prediction, targets: {name}(prediction, "
            f"targets), or pass an objective as objective={name}."
        ) from None
    positional = [p for p in signature.parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = sum(p.default is p.empty for p in positional)
    takes_any = any(p.kind is p.VAR_POSITIONAL for p in signature.parameters.values())
    if required == 4:
        return function
    if required == 2 or (required < 2 and (len(positional) >= 2 or takes_any) and required > 0):
        return WrappedLoss(function, name)
    raise LossError(
        f"{name} takes {required} required positional arguments. A loss takes two, (prediction, targets); an objective "
        f"takes four:\n\n{OBJECTIVE_FORM}\n\nor pass it as objective={name} if its signature does not tell."
    )


def checked(result: Any, objective: Objective) -> tuple[Tensor, Output]:
    """Check what an objective returned.

    Raises
    ------
    LossError
        If it is not a pair of a scalar floating loss with a graph and an `Output`.
    """
    own_name = getattr(objective, "__name__", type(objective).__name__)
    name = objective.name if isinstance(objective, WrappedLoss) else own_name
    if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], Output)):
        raise LossError(
            f"The objective {name} returned {_parts(result)}; it must return the loss and the whole output of forward, "
            f"not its prediction:\n\n{OBJECTIVE_FORM}"
        )
    loss, output = result
    if not isinstance(loss, Tensor):
        raise LossError(f"{name} returned {described(loss)} as the loss; a scalar tensor is wanted, computed by torch.")
    if loss.ndim:
        hint = "It averages over the batch with loss.mean(); a torch loss does with reduction='mean'."
        raise LossError(f"{name} returned a loss of shape {tuple(loss.shape)}; a scalar is wanted. {hint}")
    if not loss.is_floating_point():
        raise LossError(f"{name} returned a loss of {loss.dtype}; a floating scalar is wanted, to differentiate.")
    if not loss.requires_grad:
        raise LossError(
            f"The loss of {name} does not depend on any trainable parameter: it has no graph. Was it detached, "
            "computed under torch.no_grad(), or are the layers it uses frozen?"
        )
    return loss, output


def _parts(value: Any) -> str:
    if isinstance(value, tuple):
        return "a tuple of (" + ", ".join(type(item).__name__ for item in value) + ")"
    return described(value)
