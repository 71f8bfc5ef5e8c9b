"""What torch's `GradScaler` does, heard by those who watch an optimizer.

A scaler tells nobody of its scale, nor that it left a step out. So its class tells of what it does, for as long as
somebody listens: an instance of it pickles as ever.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch
from torch.optim import Optimizer


class Listener(Protocol):
    """Who hears of scalers. Nothing may be raised."""

    def scales(self, scaler: Any) -> None:
        """A loss is multiplied."""

    def unscales(self, scaler: Any, optimizer: Optimizer) -> None:
        """Gradients are about to be divided."""

    def has_unscaled(self, scaler: Any, optimizer: Optimizer) -> None:
        """They have been."""

    def steps(self, scaler: Any, optimizer: Optimizer) -> None:
        """The optimizer is about to step, or not to."""

    def has_stepped(self, scaler: Any, optimizer: Optimizer) -> None:
        """Either has happened."""

    def updates(self, scaler: Any) -> None:
        """The iteration of this scaler is over."""


_listeners: weakref.WeakSet[Any] = weakref.WeakSet()
_told: dict[tuple[type, str], tuple[Callable[..., Any], Callable[..., Any]]] = {}
"""By class and method: the one that tells, and the class's own."""


def listen(listener: Listener, scaler: Any = None) -> None:
    """Hear of every scaler there is, and of one whose class torch does not know."""
    _listeners.add(listener)
    own = [] if scaler is None else [kind for kind in type(scaler).__mro__ if kind is not object]
    for kind in dict.fromkeys([*_kinds(torch.amp.GradScaler), *own]):
        for name, tell in _TELLING.items():
            if name in vars(kind) and (kind, name) not in _told:
                plain = vars(kind)[name]
                telling = tell(plain)
                _told[kind, name] = telling, plain
                setattr(kind, name, telling)


def ignore(listener: Listener) -> None:
    """Hear no more; after the last listener the classes are as they were."""
    _listeners.discard(listener)
    if _listeners:
        return
    for (kind, name), (telling, plain) in list(_told.items()):
        if vars(kind).get(name) is telling:  # else somebody has wrapped it meanwhile, who would be lost
            setattr(kind, name, plain)
            del _told[kind, name]


def _kinds(kind: type[Any]) -> Iterator[type[Any]]:
    yield kind
    for below in kind.__subclasses__():
        yield from _kinds(below)


def _everyone() -> list[Any]:
    return list(_listeners)


def _tell_scale(plain: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(plain)
    def scale(self: Any, *args: Any, **keys: Any) -> Any:
        for each in _everyone():
            each.scales(self)
        return plain(self, *args, **keys)

    return scale


def _tell_unscale(plain: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(plain)
    def unscale_(self: Any, optimizer: Optimizer, *args: Any, **keys: Any) -> Any:
        for each in _everyone():
            each.unscales(self, optimizer)
        result = plain(self, optimizer, *args, **keys)
        for each in _everyone():
            each.has_unscaled(self, optimizer)
        return result

    return unscale_


def _tell_step(plain: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(plain)
    def step(self: Any, optimizer: Optimizer, *args: Any, **keys: Any) -> Any:
        for each in _everyone():
            each.steps(self, optimizer)
        result = plain(self, optimizer, *args, **keys)
        for each in _everyone():
            each.has_stepped(self, optimizer)
        return result

    return step


def _tell_update(plain: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(plain)
    def update(self: Any, *args: Any, **keys: Any) -> Any:
        for each in _everyone():
            each.updates(self)
        return plain(self, *args, **keys)

    return update


_TELLING = {"scale": _tell_scale, "unscale_": _tell_unscale, "step": _tell_step, "update": _tell_update}
