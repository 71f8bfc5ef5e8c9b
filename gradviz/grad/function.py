"""What a function of a model is, and what it did: the checks around `value_and_grad`."""

from __future__ import annotations

import contextlib
import functools
import inspect
import operator
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from torch import Tensor, nn
from torch.utils._pytree import SequenceKey, tree_flatten_with_path, tree_leaves

from gradviz.errors import FunctionError, ModelError, ModelMismatchError, NotAScalarError, NothingReachedError


def check_call(f: Any, model: Any) -> None:
    """Check that `f` is a function of a model, and `model` one of the class it annotates.

    Raises
    ------
    FunctionError, ModelMismatchError
    """
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
            f"The first parameter of {name_of(f)} is annotated {annotated.__name__}; it must be the model that is "
            "differentiated."
        )
    # A class that a notebook cell defines again is another object of the same name.
    if f"{annotated.__module__}.{annotated.__qualname__}" not in (
        f"{kind.__module__}.{kind.__qualname__}" for kind in type(inside).__mro__
    ):
        given = type(inside).__name__
        raise ModelMismatchError(f"{name_of(f)} wants a {annotated.__name__}; the model given is a {given}.")


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
        raise FunctionError(f"{name_of(f)} takes no positional argument; its first parameter must be the model.")
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


_version = operator.attrgetter("_version")  # a third of the time of a comprehension


class Versions:
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
                self._refuse(f, f"its argument {_argument(f, path)}", "work on a copy: x = x.clone()")
        for name, old, new in zip(self._parameters, self._before[1], now[1], strict=True):
            if old != new:
                self._refuse(f, f"the parameter {name!r}", "write parameters before or after, not inside")

    @staticmethod
    def _refuse(f: Callable[..., Any], what: str, instead: str) -> NoReturn:
        raise FunctionError(
            f"{name_of(f)} changed {what} in place, and it is already changed. A function that is differentiated "
            f"changes nothing it is given; {instead}."
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


def check_scalar(value: Any, f: Callable[..., Any]) -> None:
    """Check that `f` returned a floating scalar with a graph.

    Raises
    ------
    NotAScalarError, NothingReachedError
    """
    name = name_of(f)
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
            f"The value of {name} depends on no trainable parameter: it has no graph. Was it detached, computed "
            "from frozen parameters alone, or from a gradient that was taken without create_graph=True?"
        )


def code_of(f: Any) -> Any:
    """What stays the same of a function that a training loop makes anew at every step: its code."""
    while isinstance(f, functools.partial):
        f = f.func
    f = getattr(inspect.unwrap(f), "__func__", inspect.unwrap(f))
    if not hasattr(f, "__code__"):
        f = type(f).__call__
    return getattr(f, "__code__", f)


def name_of(f: Any) -> str:
    """What a function is called in an error."""
    return getattr(f, "__qualname__", None) or getattr(getattr(f, "func", None), "__qualname__", None) or repr(f)
