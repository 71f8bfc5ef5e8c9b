"""Checks at run time that a gradient belongs to a model: what the annotation ``Grad[M]`` promises."""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from torch import nn

from gradviz.errors import ModelMismatchError, described
from gradviz.grad.algebra import Grad, M
from gradviz.grad.leaves import leaves_of

P = ParamSpec("P")
R = TypeVar("R")


def check_grad(g: Grad[M], model: M) -> Grad[M]:
    """Check that `g` is a gradient of `model`, with the parameters' names, shapes and dtypes; returns it.

    Raises
    ------
    ModelMismatchError
        E0904: naming what differs.

    Examples
    --------
    >>> model = nn.Linear(2, 1)
    >>> g = Grad(model, [p.detach() for p in model.parameters()])
    >>> check_grad(g, model) is g
    True
    """
    if not isinstance(g, Grad):
        raise ModelMismatchError(f"A gradient of a {type(model).__name__} is wanted; got {described(g)}.")
    kind, parameters = leaves_of(model).trainable()
    if g._kind.model != kind.model:
        raise ModelMismatchError(f"A gradient of a {kind.model} is wanted; this is one of a {g._kind.model}.")
    if g._kind.names != kind.names:
        differing = sorted(set(g._kind.names) ^ set(kind.names)) or ["their order"]
        raise ModelMismatchError(
            f"The gradient and the model differ in trainable parameters: {', '.join(differing[:3])}."
        )
    for name, p in zip(kind.names, parameters, strict=True):
        _check_leaf(name, g._leaves[name], p.shape, p.dtype)
    return g


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function so that every argument annotated ``Grad[M]`` is checked to be a gradient of an `M`.

    Where the function is given an `M` as well, the gradient is held against that very model: names, shapes and dtypes.

    Raises
    ------
    ModelMismatchError
        E0904, when the function is called.

    Examples
    --------
    >>> @checked
    ... def descend(model: nn.Linear, g: Grad[nn.Linear]) -> float:
    ...     return g.norm().item()
    >>> descend(nn.Linear(2, 1), Grad(nn.Bilinear(1, 1, 1), [None, None]))
    Traceback (most recent call last):
    gradviz.errors.ModelMismatchError: g: A gradient of a Linear is wanted; this is one of a Bilinear.
    """
    signature = inspect.signature(function)
    wanted: dict[str, Any] | None = None

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        nonlocal wanted
        if wanted is None:  # at the first call: a class may be defined after the function that names it
            wanted = _wanted(function, signature)
        bound = signature.bind(*args, **kwargs).arguments
        models = [value for value in bound.values() if isinstance(value, nn.Module)]
        for name, model in wanted.items():
            for value in _values(bound, signature.parameters[name]):
                _check_argument(name, value, model, models)
        return function(*args, **kwargs)

    return call


NONE_TOO = type(None)


def _wanted(function: Callable[..., Any], signature: inspect.Signature) -> dict[str, Any]:
    """What each parameter that is annotated ``Grad[M]`` is a gradient of; and whether None is taken too."""

    def read(annotation: Any) -> Any:
        text = annotation.__forward_arg__ if isinstance(annotation, typing.ForwardRef) else annotation
        if not isinstance(text, str):
            return annotation
        names = inspect.getclosurevars(function).nonlocals
        return eval(text, getattr(function, "__globals__", {}), dict(names))

    wanted = {}
    for name, parameter in signature.parameters.items():
        try:
            found = _gradient_in(read(parameter.annotation))
            if found is not None:
                wanted[name] = read(found[0]), found[1]
        except NameError:  # a name that only a type checker can see
            continue
    return wanted


def _gradient_in(annotation: Any) -> tuple[Any, bool] | None:
    """The model of a ``Grad[M]``, inside Annotated or Optional as well."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Grad:
        return arguments[0], False
    if origin is typing.Annotated:
        return _gradient_in(arguments[0])
    if origin in (typing.Union, types.UnionType):
        found = [_gradient_in(argument) for argument in arguments if argument is not NONE_TOO]
        if len(found) == 1 and found[0] is not None:
            return found[0][0], NONE_TOO in arguments
    return None


def _values(bound: dict[str, Any], parameter: inspect.Parameter) -> list[Any]:
    if parameter.name not in bound:
        return []
    value = bound[parameter.name]
    if parameter.kind is parameter.VAR_POSITIONAL:
        return list(value)
    return list(value.values()) if parameter.kind is parameter.VAR_KEYWORD else [value]


def _check_argument(name: str, value: Any, wanted: tuple[Any, bool], models: list[nn.Module]) -> None:
    model, takes_none = wanted
    if value is None and takes_none:
        return
    is_class = isinstance(model, type)
    said = model.__name__ if is_class else "model"
    if not isinstance(value, Grad):
        raise ModelMismatchError(f"{name}: A gradient of a {said} is wanted; got {described(value)}.")
    if is_class and value._kind.model not in {f"{kind.__module__}.{kind.__qualname__}" for kind in _family(model)}:
        got = value._kind.model.rpartition(".")[2]
        raise ModelMismatchError(f"{name}: A gradient of a {said} is wanted; this is one of a {got}.")
    own = [given for given in models if not is_class or isinstance(given, model)]
    try:
        if len(own) == 1:
            check_grad(value, own[0])
        else:
            kind = value._kind
            for leaf, shape, dtype in zip(kind.names, kind.shapes, kind.dtypes, strict=True):
                _check_leaf(leaf, value._leaves[leaf], shape, dtype)
    except ModelMismatchError as error:
        raise ModelMismatchError(f"{name}: {error}") from None


def _check_leaf(name: str, leaf: Any, shape: Any, dtype: Any) -> None:
    if leaf.shape != shape or leaf.dtype != dtype:
        raise ModelMismatchError(
            f"The gradient of {name} has shape {tuple(leaf.shape)} and {leaf.dtype}; the parameter has "
            f"{tuple(shape)} and {dtype}."
        )


def _family(model: type[nn.Module]) -> list[type[nn.Module]]:
    family, waiting = [], [model]
    while waiting:
        kind = waiting.pop()
        family.append(kind)
        waiting += kind.__subclasses__()
    return family
