"""Checks at run time that a gradient belongs to a model: what the annotation ``Grad[M]`` promises."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from torch import nn

from gradviz.errors import ModelMismatchError
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
        raise ModelMismatchError(f"A gradient of a {type(model).__name__} is wanted; got a {type(g).__name__}.")
    kind, parameters = leaves_of(model).trainable()
    if g._kind.model != kind.model:
        raise ModelMismatchError(f"A gradient of a {kind.model} is wanted; this is one of a {g._kind.model}.")
    if g._kind.names != kind.names:
        differing = sorted(set(g._kind.names) ^ set(kind.names)) or ["their order"]
        raise ModelMismatchError(
            f"The gradient and the model differ in trainable parameters: {', '.join(differing[:3])}."
        )
    for name, p in zip(kind.names, parameters, strict=True):
        leaf = g._leaves[name]
        if leaf.shape != p.shape or leaf.dtype != p.dtype:
            raise ModelMismatchError(
                f"The gradient of {name} has shape {tuple(leaf.shape)} and {leaf.dtype}; the parameter has "
                f"{tuple(p.shape)} and {p.dtype}."
            )
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
    wanted: dict[str, type[nn.Module]] = {}

    def read_annotations() -> None:
        # At the first call: a class may be defined after the function that names it.
        for name, annotation in typing.get_type_hints(function).items():
            if typing.get_origin(annotation) is Grad and name in signature.parameters:
                (model,) = typing.get_args(annotation)
                if isinstance(model, type):
                    wanted[name] = model

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if not wanted:
            read_annotations()
        bound = signature.bind(*args, **kwargs).arguments
        for name, model in wanted.items():
            if name in bound:
                _check_argument(name, bound[name], model, bound.values())
        return function(*args, **kwargs)

    return call


def _check_argument(name: str, value: Any, model: type[nn.Module], others: Any) -> None:
    if not isinstance(value, Grad):
        raise ModelMismatchError(f"{name}: A gradient of a {model.__name__} is wanted; got a {type(value).__name__}.")
    known = {f"{kind.__module__}.{kind.__qualname__}" for kind in _family(model)}
    if value._kind.model not in known:
        got = value._kind.model.rpartition(".")[2]
        raise ModelMismatchError(f"{name}: A gradient of a {model.__name__} is wanted; this is one of a {got}.")
    models = [other for other in others if isinstance(other, model)]
    if len(models) == 1:
        try:
            check_grad(value, models[0])
        except ModelMismatchError as error:
            raise ModelMismatchError(f"{name}: {error}") from None
        return
    for leaf_name, shape in zip(value._kind.names, value._kind.shapes, strict=True):
        if value._leaves[leaf_name].shape != shape:
            got_shape = tuple(value._leaves[leaf_name].shape)
            raise ModelMismatchError(f"{name}: {leaf_name} has shape {got_shape}; the parameter has {tuple(shape)}.")


def _family(model: type[nn.Module]) -> list[type[nn.Module]]:
    family, waiting = [], [model]
    while waiting:
        kind = waiting.pop()
        family.append(kind)
        waiting += kind.__subclasses__()
    return family
