"""A loss or an objective -> one callable form.

The step knows one form only, `(forward, model_state, inputs, targets) -> (loss, output)`; a plain loss is wrapped into
it here, so there is no second code path.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.grad_mode import _unsafe_preserve_version_counter

from gradviz.errors import LossError, described, nearest
from gradviz.step.batch import call
from gradviz.step.losses import LOSSES
from gradviz.step.model_state import ModelState

OBJECTIVE_FORM = """def objective(forward, model_state, inputs, targets):
    output = forward(model_state, inputs)
    return loss(output.prediction, targets), output"""


class Output(NamedTuple):
    """What a forward pass gives: the prediction that metrics see, and the buffers as they were after it."""

    prediction: Any
    state: Mapping[str, Tensor]


class BuffersAfter(Mapping[str, Tensor]):
    """The buffers as one forward pass left them; a copy is made when a later pass starts."""

    def __init__(self, model_state: ModelState) -> None:
        self._model_state = model_state
        self.copied: dict[str, Tensor] | None = None

    def __getitem__(self, name: str) -> Tensor:
        return (self._model_state.buffers if self.copied is None else self.copied)[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._model_state.buffers)

    def __len__(self) -> int:
        return len(self._model_state.buffers)


class Forward:
    """The model's forward pass for one step, as objectives call it.

    Each call starts from the buffers the step began with; `settle` keeps those of the output that was returned.
    Copies are only made for a user's objective: a wrapped loss calls once, and large constant buffers would be
    copied each step for nothing.
    """

    def __init__(self, model_state: ModelState, *, may_repeat: bool) -> None:
        self._model_state = model_state
        self._start = _copy(model_state) if may_repeat else {}
        self._latest: BuffersAfter | None = None

    def __call__(self, model_state: Mapping[str, Tensor], inputs: Any) -> Output:
        """One forward pass in training mode, with the tensors of `model_state`."""
        if self._latest is not None and self._start:
            self._latest.copied = _copy(self._model_state)
            restore_buffers(self._model_state, self._start)
        module = self._model_state.module
        if isinstance(model_state, ModelState) and model_state.module is module:
            prediction = call(module, inputs)
        else:
            prediction = _call_with(module, model_state, inputs)
        self._latest = BuffersAfter(self._model_state)
        return Output(prediction, self._latest)

    def settle(self, output: Output) -> None:
        """Leave the buffers as they were after `output`'s forward pass."""
        if isinstance(output.state, BuffersAfter) and output.state.copied is not None:
            restore_buffers(self._model_state, output.state.copied)


def _copy(model_state: ModelState) -> dict[str, Tensor]:
    return {name: buffer.detach().clone() for name, buffer in model_state.buffers.items()}


def restore_buffers(model_state: ModelState, buffers: Mapping[str, Tensor]) -> None:
    """Write values back into the live buffers."""
    live = model_state.buffers
    # The buffers' values of an earlier forward pass are not needed for its backward; its version check must not say so.
    changed = tuple(live[name] for name in buffers if name in live)
    with torch.no_grad(), _unsafe_preserve_version_counter(changed):
        for name, value in buffers.items():
            if name in live:
                live[name].copy_(value)


def _call_with(module: nn.Module, tensors: Mapping[str, Tensor], inputs: Any) -> Any:
    values = dict(tensors)
    if isinstance(inputs, Mapping):
        return torch.func.functional_call(module, values, (), dict(inputs))
    return torch.func.functional_call(module, values, inputs if isinstance(inputs, tuple) else (inputs,))


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
