"""`value_and_grad`: a function of a model, and its gradient with respect to the model's parameters."""

from __future__ import annotations

import contextlib
import inspect
import operator
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Concatenate, NoReturn, overload

import torch
from torch import Tensor, nn
from torch.utils._pytree import SequenceKey, tree_flatten_with_path, tree_leaves

from gradviz.errors import (
    FunctionError,
    ModelError,
    ModelMismatchError,
    NotAScalarError,
    NothingReachedError,
    UnusedParameterWarning,
)
from gradviz.grad.algebra import Grad, M
from gradviz.grad.leaves import leaves_of
from gradviz.grad.modes import again, noted


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
        E1107: no trainable parameter is reached, or re-entrant checkpointing hides one.
    ModelError
        E0202: DDP or FSDP wraps the model, or nothing is trainable.

    Warns
    -----
    UnusedParameterWarning
        W1101: a parameter was never reached; once for each function and parameter.

    Examples
    --------
    >>> model = nn.Linear(2, 1, bias=False)
    >>> _ = nn.init.ones_(model.weight)
    >>> def loss(m, x, y):
    ...     return (m(x) - y).square().mean()
    >>> value, g = value_and_grad(loss, model, torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0]]))
    >>> value, g.weight
    (tensor(4.), tensor([[4., 8.]]))
    """
    _check_call(f, model)
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
    # Entered only where they do something: between the steps of a small model each call costs 10 to 50 microseconds.
    outside = torch.inference_mode(False) if torch.is_inference_mode_enabled() else contextlib.nullcontext()
    with outside, torch.enable_grad(), noted() as modes:
        watched = _Versions(leaves.parameters, args, kwargs)
        try:
            value = f(model, *args, **kwargs)
        except RuntimeError as error:
            if "nference tensor" in str(error):
                raise FunctionError(
                    f"{_name(f)} was given a tensor made in inference mode, which autograd cannot use. Write x.clone() "
                    "outside inference mode, or make it under torch.no_grad()."
                ) from error
            raise
        watched.check(f)
        _check_scalar(value, f)
        with again(modes) if modes else contextlib.nullcontext():
            try:
                gradients = torch.autograd.grad(value, parameters, create_graph=create_graph, allow_unused=True)
            except RuntimeError as error:
                if "use_reentrant=True" in str(error):
                    raise NothingReachedError(REENTRANT) from error
                raise
    gradient: Grad[M] = Grad._from(kind, parameters, gradients)
    if gradient._unused:
        _check_reached(value, gradient, f)
    return value.detach(), gradient


# What f and model are ------------------------------------------------------------------------------------------


def _check_call(f: Any, model: Any) -> None:
    if not callable(f) or isinstance(f, nn.Module):
        raise FunctionError(
            f"value_and_grad takes a function whose first parameter is the model; got a {type(f).__name__}. Write "
            "value_and_grad(lambda model, x: loss(model(x)), model, x)."
        )
    if not isinstance(model, nn.Module):
        raise FunctionError(
            f"The second argument of value_and_grad is the model, a torch.nn.Module; got a {type(model).__name__}. "
            "Write value_and_grad(f, model, ...)."
        )
    annotated = _first_annotation(f)
    inside = getattr(model, "_orig_mod", model)
    if annotated is None or isinstance(inside, annotated):
        return
    if not issubclass(annotated, nn.Module):
        raise FunctionError(
            f"The first parameter of {_name(f)} is annotated {annotated.__name__}; it must be the model that is "
            "differentiated."
        )
    # A class that a notebook cell defines again is another object of the same name.
    if f"{annotated.__module__}.{annotated.__qualname__}" not in (
        f"{kind.__module__}.{kind.__qualname__}" for kind in type(inside).__mro__
    ):
        given = type(inside).__name__
        raise ModelMismatchError(f"{_name(f)} wants a {annotated.__name__}; the model given is a {given}.")


_annotations: weakref.WeakKeyDictionary[Any, type | None] = weakref.WeakKeyDictionary()


def _first_annotation(f: Callable[..., Any]) -> type | None:
    """The class that `f` annotates its first parameter with, if it is one.

    Raises
    ------
    FunctionError
        If `f` has no parameter to take the model.
    """
    try:
        if f not in _annotations:
            _annotations[f] = _read_annotation(f)
        return _annotations[f]
    except TypeError:  # what cannot be weakly held, such as a bound method, is read each time
        return _read_annotation(f)


def _read_annotation(f: Callable[..., Any]) -> type | None:
    try:
        parameters = list(inspect.signature(f).parameters.values())
    except (TypeError, ValueError):
        return None
    takes = (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.VAR_POSITIONAL,
    )
    if not parameters or parameters[0].kind not in takes:
        raise FunctionError(f"{_name(f)} takes no positional argument; its first parameter must be the model.")
    annotation = parameters[0].annotation
    if isinstance(annotation, str):
        function = inspect.unwrap(getattr(f, "func", f))
        function = getattr(function, "__func__", function)
        function = function if hasattr(function, "__globals__") else type(f).__call__
        names = inspect.getclosurevars(function).nonlocals if hasattr(function, "__closure__") else {}
        try:
            annotation = eval(annotation, getattr(function, "__globals__", {}), dict(names))
        except Exception:  # a name that only a type checker can see
            return None
    is_class = isinstance(annotation, type) and annotation not in (inspect.Parameter.empty, Any)
    return annotation if is_class else None


# What f does ---------------------------------------------------------------------------------------------------


_version = operator.attrgetter("_version")  # a third of the time of a comprehension


class _Versions:
    """Tells whether a tensor that `f` was given has been changed in place, by torch's version counters.

    Parameters count; buffers don't, because batch norm moves them.
    """

    def __init__(self, parameters: Mapping[str, Tensor], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self._given = args, kwargs
        self._tensors = [t for value in (*args, *kwargs.values()) for t in _tensors(value) if not t.is_inference()]
        self._parameters = parameters
        try:
            self._before = list(map(_version, self._tensors)), list(map(_version, parameters.values()))
        except RuntimeError:
            raise ModelError(
                "The model was made in inference mode, and autograd cannot use its parameters. Make it outside, or "
                "load its state_dict, with .clone() of each tensor, into one that was."
            ) from None

    def check(self, f: Callable[..., Any]) -> None:
        """Name the first tensor that was changed."""
        now = list(map(_version, self._tensors)), list(map(_version, self._parameters.values()))
        if now == self._before:
            return
        changed = {id(t) for t, old, new in zip(self._tensors, self._before[0], now[0], strict=True) if old != new}
        for path, leaf in tree_flatten_with_path(self._given)[0]:
            if id(leaf) in changed:
                self._refuse(f, f"its argument {_argument(f, path)}")
        for name, old, new in zip(self._parameters, self._before[1], now[1], strict=True):
            if old != new:
                self._refuse(f, f"the parameter {name!r}")

    @staticmethod
    def _refuse(f: Callable[..., Any], what: str) -> NoReturn:
        raise FunctionError(
            f"{_name(f)} changed {what} in place, and it is already changed. A function that is differentiated changes "
            "nothing it is given; work on a copy: x = x.clone()."
        )


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, list | tuple | dict):
        return [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]
    return []


def _argument(f: Callable[..., Any], path: Sequence[Any]) -> str:
    """An argument's name in the signature of `f`, with the place inside it."""
    positional, key = isinstance(path[0], SequenceKey) and path[0].idx == 0, path[1]
    name = str(getattr(key, "key", getattr(key, "idx", "")))
    if positional:
        with contextlib.suppress(TypeError, ValueError, IndexError):
            name = list(inspect.signature(f).parameters)[int(name) + 1]
    return repr(name) + "".join(map(str, path[2:]))


def _check_scalar(value: Any, f: Callable[..., Any]) -> None:
    name = _name(f)
    if isinstance(value, tuple | list):
        raise NotAScalarError(
            f"{name} returned a {type(value).__name__} of {len(value)}; a floating scalar is wanted, and there is no "
            "auxiliary output. Record intermediate values with gv.sow; an objective for gv.train_step returns the "
            "output beside the loss."
        )
    if not isinstance(value, Tensor):
        raise NotAScalarError(
            f"{name} returned a {type(value).__name__}; a floating scalar computed by torch is wanted."
        )
    if value.ndim:
        raise NotAScalarError(
            f"{name} returned a tensor of shape {tuple(value.shape)}; a scalar is wanted: take its .mean() or .sum()."
        )
    if not value.is_floating_point():
        raise NotAScalarError(f"{name} returned a scalar of {value.dtype}; a floating one is wanted.")
    if not value.requires_grad:
        raise NothingReachedError(
            f"The value of {name} depends on no trainable parameter: it has no graph. Was it detached, or computed "
            "from frozen parameters alone?"
        )


# What f reached ------------------------------------------------------------------------------------------------

REENTRANT = (
    "The graph has re-entrant checkpointing, which hides parameters from torch.autograd.grad. Write checkpoint(..., "
    "use_reentrant=False)."
)

_said: weakref.WeakKeyDictionary[Any, set[str]] = weakref.WeakKeyDictionary()


def _check_reached(value: Tensor, gradient: Grad[Any], f: Callable[..., Any]) -> None:
    """Look closer where a parameter was not reached; what was said of a function is not said again."""
    refuse_hidden(value, gradient.unused[0])
    try:
        said = _said.setdefault(_code_of(f), set())
    except TypeError:
        said = set()
    names = {f"{gradient._kind.model}.{name}": name for name in gradient.unused}
    if len(names) == len(gradient):
        raise NothingReachedError(f"{_name(f)} reaches none of the {len(gradient)} trainable parameters.")
    for full, name in names.items():
        if full not in said:
            said.add(full)
            warnings.warn(
                f"{name} was never reached by {_name(f)}: its gradient reads as zeros, and it is listed in g.unused.",
                UnusedParameterWarning,
                stacklevel=3,
            )


def _code_of(f: Any) -> Any:
    """What stays the same of a function that a training loop makes anew at every step: its code."""
    while hasattr(f, "func"):  # a partial
        f = f.func
    f = getattr(f, "__func__", f)
    if not hasattr(f, "__code__"):
        f = type(f).__call__
    return getattr(f, "__code__", f)


def refuse_hidden(value: Tensor, name: str) -> None:
    """Refuse a graph with re-entrant checkpointing in it: autograd.grad goes around it without a word.

    Raises
    ------
    NothingReachedError
        If the graph of `value` has such a part; `name` is a parameter without a path.
    """
    seen: set[Any] = set()
    waiting: list[Any] = [value.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if type(node).__name__ == "CheckpointFunctionBackward":
            raise NothingReachedError(f"No gradient came for {name!r}. {REENTRANT}")
        waiting += [following for following, _ in node.next_functions]


def _name(f: Any) -> str:
    return getattr(f, "__qualname__", None) or getattr(getattr(f, "func", None), "__qualname__", None) or repr(f)
