"""A loss or an objective -> one callable form.

The step knows one form only, `(forward, model_state, inputs, targets) -> (loss, output)`; a plain loss is wrapped into
it here, so there is no second code path.
"""

from __future__ import annotations

import contextlib
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from gradviz.errors import LossError, described, nearest
from gradviz.step.buffers import Buffers, BuffersAfter
from gradviz.step.losses import LOSSES
from gradviz.step.model_state import ModelState
from gradviz.step.precision import Precision

OBJECTIVE_FORM = """def objective(forward, model_state, inputs, targets):
    output = forward(model_state, inputs)
    return loss(output.prediction, targets), output"""


class Output(NamedTuple):
    """What a forward pass gives: the prediction that metrics see, and the buffers as they were after it."""

    prediction: Any
    state: Mapping[str, Tensor]


class Forward(contextlib.AbstractContextManager["Forward"]):
    """The model's forward pass for one step, as objectives call it.

    Each call starts from the buffers the step began with; `settle` keeps those of the output that was returned. Within
    it, an error puts all of them back. Copies are only made for a user's objective: a wrapped loss calls once, and
    large constant buffers would be copied each step for nothing. Its buffers have moved then as in plain torch.
    """

    def __init__(self, model_state: ModelState, precision: Precision, *, may_repeat: bool) -> None:
        self._model_state = model_state
        self._precision = precision
        self._buffers = Buffers(model_state.module) if may_repeat else None
        self._latest: BuffersAfter | None = None
        self._given: list[Mapping[str, Tensor]] = []

    def __call__(self, model_state: Mapping[str, Tensor], inputs: Any) -> Output:
        """One forward pass in training mode, with the tensors of `model_state`."""
        module = self._model_state.module
        if isinstance(model_state, ModelState) and model_state.module is module:
            if self._latest is not None and self._buffers is not None:
                self._latest.hold()
                self._buffers.lay_out()
            self._latest = BuffersAfter(self._model_state)
            self._given.append(self._latest)
            return Output(self._precision(module, inputs), self._latest)
        # Other tensors than the module's own: it moves the buffers that it is given.
        tensors = dict(model_state)
        if self._buffers is not None:
            tensors |= self._buffers.first_values(tensors)
        prediction = self._precision(module, inputs, tensors)
        after = {name: tensors[name] for name in self._model_state.buffers if name in tensors}
        self._given.append(after)
        return Output(prediction, after)

    def check(self, output: Output) -> None:
        """Check that an output is one of this step's passes, or made of one.

        Raises
        ------
        LossError
        """
        state = output.state
        if any(state is given for given in self._given):
            return
        hint = "Return an output of forward, or output._replace(prediction=...)."
        if not self._given:
            raise LossError(f"The objective never called forward(model_state, inputs). {hint}")
        if isinstance(state, BuffersAfter) or not isinstance(state, Mapping):
            came = "of another step" if isinstance(state, BuffersAfter) else f"whose state is {described(state)}"
            raise LossError(f"The objective returned an output {came}. {hint}")
        known = self._model_state.buffers
        for name in state:
            if name not in known:
                raise LossError(
                    f"The objective returned an output with a buffer {name!r}: {nearest(str(name), known)} {hint}"
                )

    def __exit__(self, kind: Any, *error: object) -> None:
        if kind is not None and self._buffers is not None:
            self._buffers.restore()

    def settle(self, output: Output) -> None:
        """Leave the buffers as they were after `output`'s forward pass; only once backward is over."""
        if self._buffers is None:
            return
        if isinstance(output.state, BuffersAfter):
            if output.state.slots is None:
                output.state.hold()
            self._buffers.settle(output.state.slots or {})
            return
        values = {name: value.detach().clone() for name, value in output.state.items()}
        self._buffers.restore()
        live = self._model_state.buffers
        with torch.no_grad():
            for name, value in values.items():
                live[name].copy_(value)


Objective = Callable[[Forward, ModelState, Any, Any], tuple[Tensor, Output]]


class WrappedLoss:
    """A loss `(prediction, targets) -> scalar` in the form of an objective."""

    def __init__(self, loss: Callable[..., Tensor], name: str) -> None:
        self.loss = loss
        self.name = name

    @property
    def losses(self) -> list[Any]:
        """As they were given: one, or one for each of a model's outputs."""
        return self.loss.losses if isinstance(self.loss, WeightedSum) else [self.loss]

    @property
    def modules(self) -> list[nn.Module]:
        """Losses that are modules, and may have buffers."""
        return [loss for loss in self.losses if isinstance(loss, nn.Module)]

    def __call__(self, forward: Forward, model_state: ModelState, inputs: Any, targets: Any) -> tuple[Tensor, Output]:
        """The loss of one forward pass, and its output."""
        output = forward(model_state, inputs)
        return self.loss(output.prediction, targets), output


class WeightedSum:
    """Several losses, one for each of a model's outputs: the i-th takes the i-th prediction and the i-th targets."""

    def __init__(self, parts: Sequence[tuple[WrappedLoss, float | None]]) -> None:
        self.losses = [part.loss for part, _ in parts]
        self._parts = list(parts)

    def times(self, factors: Sequence[float]) -> WeightedSum:
        """Each loss by a factor more; one that counts nothing is not computed, since a mean over nothing is NaN."""
        weighted = zip(self._parts, factors, strict=True)
        return WeightedSum([(part, weight * f if f and weight is not None else None) for (part, weight), f in weighted])

    def __call__(self, prediction: Any, targets: Any) -> Tensor:
        """The weighted sum; the weights are not normalised."""
        for what, values in (("predictions", prediction), ("targets", targets)):
            if not isinstance(values, tuple | list) or len(values) != len(self.losses):
                came = described(values) + (f" of {len(values)}" if isinstance(values, tuple | list) else "")
                names = ", ".join(part.name for part, _ in self._parts)
                raise LossError(f"{len(self.losses)} losses ({names}) take a tuple of as many {what}; got {came}.")
        columns = zip(self._parts, prediction, targets, strict=True)
        weighted = [weight * part.loss(p, t) for (part, weight), p, t in columns if weight is not None]
        total: Tensor = sum(weighted[1:], weighted[0])
        return total


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
    if isinstance(loss, list | tuple):
        return WrappedLoss(_weighted_sum(loss), "the weighted sum of losses")
    if not callable(loss):
        raise LossError(
            f"A loss is a name, a function of (prediction, targets) or a loss module; got {described(loss)}. "
            'Write "cross_entropy" or torch.nn.functional.cross_entropy.'
        )
    return _by_arity(loss)


def _weighted_sum(parts: Sequence[Any]) -> WeightedSum:
    wrapped = []
    for part in parts:
        loss, weight = part if isinstance(part, tuple | list) and len(part) == 2 else (None, None)
        is_weight = isinstance(weight, int | float) and math.isfinite(weight)
        one = as_objective(loss) if is_weight else None
        if not isinstance(one, WrappedLoss) or not isinstance(weight, int | float):
            raise LossError(
                f"Several losses are a list of (loss, weight), one for each output; {part!r} is no such pair. Write "
                '[("cross_entropy", 1.0), ("mean_squared_error", 0.5)].'
            )
        wrapped.append((one, float(weight)))
    if not wrapped:
        raise LossError("The list of losses is empty; write [(loss, weight), ...], one pair for each output.")
    return WeightedSum(wrapped)


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
        f"takes four:\n\n{OBJECTIVE_FORM}\n"
    )


def checked(result: Any, objective: Objective, *, graph: bool = True) -> tuple[Tensor, Output]:
    """Check what an objective returned; an evaluation asks for no graph.

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
    return checked_loss(loss, name, graph=graph), output


def checked_loss(loss: Any, name: str, *, graph: bool = True) -> Tensor:
    """Check a loss that `name` gave.

    Raises
    ------
    LossError
        If it is not a scalar floating tensor with a graph.
    """
    if not isinstance(loss, Tensor):
        raise LossError(f"{name} returned {described(loss)} as the loss; a scalar tensor is wanted, computed by torch.")
    if loss.ndim:
        hint = "It averages over the batch with loss.mean(); a torch loss does with reduction='mean'."
        raise LossError(f"{name} returned a loss of shape {tuple(loss.shape)}; a scalar is wanted. {hint}")
    if not loss.is_floating_point():
        raise LossError(f"{name} returned a loss of {loss.dtype}; a floating scalar is wanted, to differentiate.")
    if graph and not loss.requires_grad:
        raise LossError(
            f"The loss of {name} does not depend on any trainable parameter: it has no graph. Was it detached, "
            "computed under torch.no_grad(), or are the layers it uses frozen?"
        )
    return loss


def _parts(value: Any) -> str:
    if isinstance(value, tuple):
        return "a tuple of (" + ", ".join(type(item).__name__ for item in value) + ")"
    return described(value)
