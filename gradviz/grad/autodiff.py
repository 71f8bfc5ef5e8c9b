"""`value_and_grad`: a function of a model, and its gradient with respect to the model's parameters."""

from __future__ import annotations

import contextlib
import functools
import logging
import operator
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Concatenate, overload

import torch
from torch import Tensor

from gradviz.errors import FunctionError, ModelError, NothingReachedError, UnusedParameterWarning, warn
from gradviz.grad.algebra import Grad, M
from gradviz.grad.function import Versions, check_call, check_scalar, code_of, name_of
from gradviz.grad.leaves import Kind, leaves_of
from gradviz.grad.modes import Flags, Mode


# A lambda of one, two or three parameters, which mypy cannot infer from the last.
@overload
def value_and_grad(
    f: Callable[[M], Tensor], model: M, /, *args: Any, create_graph: bool = ..., **kwargs: Any
) -> tuple[Tensor, Grad[M]]: ...
@overload
def value_and_grad(
    f: Callable[[M, Any], Tensor], model: M, /, *args: Any, create_graph: bool = ..., **kwargs: Any
) -> tuple[Tensor, Grad[M]]: ...
@overload
def value_and_grad(
    f: Callable[[M, Any, Any], Tensor], model: M, /, *args: Any, create_graph: bool = ..., **kwargs: Any
) -> tuple[Tensor, Grad[M]]: ...
@overload
def value_and_grad(
    f: Callable[Concatenate[M, ...], Tensor], model: M, /, *args: Any, create_graph: bool = ..., **kwargs: Any
) -> tuple[Tensor, Grad[M]]: ...
def value_and_grad(
    f: Callable[Concatenate[M, ...], Tensor], model: M, /, *args: Any, create_graph: bool = False, **kwargs: Any
) -> tuple[Tensor, Grad[M]]:
    """The value of ``f(model, *args, **kwargs)`` and its gradient with respect to the model's trainable parameters.

    Autograd is on even inside ``torch.no_grad()``. No ``.grad`` is read or written and no train or eval flag switched:
    there is nothing to zero; randomness and modes come from a `Train` or `Eval` passed on to `f` like any argument.
    Calls may be nested.

    Parameters
    ----------
    f : callable
        Its first parameter is the model; it returns a floating scalar and changes no tensor it is given (buffers, which
        batch norm moves, may change).
    model : torch.nn.Module
    create_graph : bool
        Give the gradient a graph of its own, so that it can be differentiated again.
    *args, **kwargs
        Passed on to `f`.

    Returns
    -------
    value : 0-dim Tensor
        Detached, of the dtype `f` returned.
    gradient : Grad
        A parameter that was never reached reads as zeros and is listed in ``unused``.

    Raises
    ------
    FunctionError
        E1105: `f` is not a function of a model, or changed a tensor it was given.
    ModelMismatchError
        E0904: `model` is not of the class that `f` annotates.
    NotAScalarError
        E1106: `f` returned no floating scalar.
    NothingReachedError
        E1107: no trainable parameter is reached, there is none, or re-entrant checkpointing hides one.
    ModelError
        E0202: DDP or FSDP wraps the model, it is lazy, or was made in inference mode.

    Warns
    -----
    UnusedParameterWarning
        W1101: a parameter was never reached; once for each function and parameter.

    Examples
    --------
    >>> from torch import nn
    >>> model = nn.Linear(2, 1, bias=False)
    >>> _ = nn.init.ones_(model.weight)
    >>> def loss(m, x, y):
    ...     return (m(x) - y).square().mean()
    >>> value, g = value_and_grad(loss, model, torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0]]))
    >>> value, g.weight
    (tensor(4.), tensor([[4., 8.]]))
    """
    return evaluated(f, model, args, kwargs, functools.partial(differentiate, create_graph=create_graph))


Differentiate = Callable[[Tensor, Kind, Sequence[Tensor]], Grad[Any]]
"""Gives the gradient of a scalar, of a kind, by the trainable parameters."""


def evaluated(
    f: Callable[Concatenate[M, ...], Tensor],
    model: M,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    take: Differentiate,
) -> tuple[Tensor, Grad[M]]:
    """What `value_and_grad` says of itself, with the gradient taken in a way of its own."""
    check_call(f, model)
    leaves = leaves_of(model)
    if leaves.wrapper:
        raise ModelError(
            f"{leaves.wrapper} reduces gradients outside torch.autograd.grad, so they would be this process's alone. "
            "Take the gradient of the model inside (model.module), or train with backward()."
        )
    kind, parameters = leaves.trainable()
    if not parameters:
        raise NothingReachedError(
            f"{kind.model} has no trainable parameter (0 of {len(leaves.parameters)}). Unfreeze some: "
            "model.requires_grad_(True)."
        )
    torch.clear_autocast_cache()  # or autocast around several calls goes on with the weights of the first
    with outside_inference_mode(), torch.enable_grad(), Flags(enabled=not leaves.is_compiled) as flags:
        if any(isinstance(argument, Mode) for argument in (*args, *kwargs.values())):
            flags.begin()
        watched = Versions(leaves.parameters, args, kwargs)
        try:
            value = f(model, *args, **kwargs)
        except RuntimeError as error:
            if "nference tensor" in str(error):
                raise FunctionError(
                    f"{name_of(f)} was given a tensor made in inference mode, which autograd cannot use. Write "
                    "x.clone() outside inference mode, or make it under torch.no_grad()."
                ) from error
            raise
        watched.check(f)
        check_scalar(value, f)
        with flags.again() if flags.noted else _NOTHING:
            try:
                gradient: Grad[M] = take(value, kind, parameters)
            except RuntimeError as error:
                if "use_reentrant=True" in str(error):
                    raise NothingReachedError(REENTRANT) from error
                raise
    if gradient._unused:
        _check_reached(value, gradient, f)
    # A parameter itself, or a view of one, would go on moving.
    is_own = not (value.is_leaf or value._is_view())
    return value.detach() if is_own else value.detach().clone(), gradient


# Contexts are entered only where they do something: between the steps of a small model each costs 10 to 50 us.
_NOTHING = contextlib.nullcontext()


def outside_inference_mode() -> contextlib.AbstractContextManager[Any]:
    """Autograd at work, also where the caller has switched it off for inference."""
    return torch.inference_mode(False) if torch.is_inference_mode_enabled() else _NOTHING


def differentiate(value: Tensor, kind: Kind, parameters: Sequence[Tensor], *, create_graph: bool = False) -> Grad[Any]:
    """The gradient of a scalar by the parameters that `Leaves.trainable` gave."""
    gradients = torch.autograd.grad(value, parameters, create_graph=create_graph, allow_unused=True)
    return Grad._from(kind, parameters, gradients if create_graph else apart(gradients))


def apart(gradients: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
    """Gradients that share no memory.

    Autograd gives one tensor for two parameters that were added, parts of one for parameters that were put together,
    and one of stride 0 for a parameter that was expanded.
    """
    with contextlib.suppress(AttributeError, RuntimeError, TypeError):  # one is None, or sparse and has no place
        places, homes = set(map(Tensor.data_ptr, gradients)), set(_homes(gradients))  # type: ignore[arg-type]
        if len(places) == len(homes) == len(gradients) and all(map(Tensor.is_contiguous, gradients)):  # type: ignore[arg-type]
            return gradients
    given = [g for g in gradients if g is not None and g.layout is torch.strided and g.numel()]
    home_of = dict(zip(map(id, given), _homes(given), strict=True))
    seen: set[int] = set()
    own = []
    for gradient in gradients:
        if gradient is not None and id(gradient) in home_of:
            memory = {gradient.data_ptr(), home_of[id(gradient)]}
            if memory & seen or 0 in gradient.stride():
                gradient = gradient.clone(memory_format=torch.contiguous_format)
            seen |= memory
        own.append(gradient)
    return own


_base = operator.attrgetter("_base")


def _homes(tensors: Sequence[Tensor | None]) -> list[int]:
    """Whose memory each tensor lies in: its own, or that of the one it is a view of."""
    bases = list(map(_base, tensors))
    return [id(tensor if base is None else base) for tensor, base in zip(tensors, bases, strict=True)]


# What f reached ------------------------------------------------------------------------------------------------

REENTRANT = (
    "The graph has re-entrant checkpointing, which hides parameters from torch.autograd.grad. Write checkpoint(..., "
    "use_reentrant=False)."
)

_said: weakref.WeakKeyDictionary[Any, set[str]] = weakref.WeakKeyDictionary()


def _check_reached(value: Tensor, gradient: Grad[Any], f: Callable[..., Any]) -> None:
    """Look closer where a parameter was not reached; what was said of a function is not said again."""
    if has_reentrant(value):
        raise NothingReachedError(f"No gradient came for {gradient.unused[0]!r}. {REENTRANT}")
    try:
        said = _said.setdefault(code_of(f), set())
    except TypeError:
        said = set()
    names = {f"{gradient._kind.model}.{name}": name for name in gradient.unused}
    if len(names) == len(gradient):
        raise NothingReachedError(f"{name_of(f)} reaches none of the {len(gradient)} trainable parameters.")
    for full, name in names.items():
        if full not in said:
            said.add(full)
            warn(
                f"{name} was never reached by {name_of(f)}: its gradient reads as zeros, and it is listed in g.unused.",
                UnusedParameterWarning,
            )


def run_backward(loss: Tensor) -> None:
    """``torch.autograd.backward(loss)`` of a loss that has been checked, without what Python does around the engine.

    That looks for functions to transform and for other kinds of losses, opens a log for each node if that is asked for,
    and hands the settings of `torch.compile` to the threads of other devices: of an MLP's step of 3.3 ms, 1.5 %. Where
    one of these may matter it is left to torch.

    Parameters
    ----------
    loss : 0-dim Tensor
        Of a floating dtype, with a graph.
    """
    if (
        not _engine_takes_it()
        or type(loss) is not Tensor
        or not loss.is_cpu
        or torch.cuda.is_initialized()
        or torch._C._are_functorch_transforms_active()
        or _log_of_torch.isEnabledFor(logging.DEBUG)
    ):
        torch.autograd.backward(loss)
        return
    _run(loss)


_log_of_torch = logging.getLogger("torch.autograd.graph")


def _run(loss: Tensor) -> None:
    first = torch.ones_like(loss, memory_format=torch.preserve_format)
    engine: Any = torch.autograd.Variable._execution_engine
    engine.run_backward((loss,), (first,), False, False, (), allow_unreachable=True, accumulate_grad=True)


@functools.cache
def _engine_takes_it() -> bool:
    """Whether torch's engine can be called so: it is no part of torch's interface. Asked when there is a graph."""
    leaf = torch.ones((), requires_grad=True)
    try:
        with torch.enable_grad():
            _run(leaf * 3)
    except Exception:
        return False
    return leaf.grad is not None and leaf.grad.item() == 3


def has_reentrant(value: Tensor) -> bool:
    """Whether the graph of `value` has re-entrant checkpointing in it."""
    return any(type(node).__name__ == "CheckpointFunctionBackward" for node in nodes(value))


def nodes(value: Tensor) -> Iterator[Any]:
    """The nodes of the graph of `value`, each once; there also when its backward is over."""
    seen: set[Any] = set()
    waiting: list[Any] = [value.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        yield node
        waiting += [following for following, _ in node.next_functions]


def other_leaves(value: Tensor, parameters: Sequence[Tensor]) -> list[Tensor]:
    """What else than these a graph leads to. Asked for as well, torch goes through all of the graph."""
    own = set(map(id, parameters))
    variables = (getattr(node, "variable", None) for node in nodes(value))
    return [variable for variable in variables if variable is not None and id(variable) not in own]
