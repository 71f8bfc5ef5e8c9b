"""What torch's `GradScaler` does, heard by those who watch an optimizer.

A scaler tells nobody of its scale, nor that it left a step out. So its class tells of what it does, for as long as
somebody listens: an instance of it pickles as ever.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Iterator
from functools import partial
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
_lock = threading.Lock()  # one may come while another thread's scaler tells
_told: dict[tuple[type, str], tuple[Callable[..., Any], Callable[..., Any]]] = {}
"""By class and method: the one that tells, and the class's own."""


def listen(listener: Listener, scaler: Any = None) -> None:
    """Hear of every scaler there is, and of one whose class torch does not know."""
    with _lock:
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
    with _lock:
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


def _telling(plain: Callable[..., Any], before: str) -> Callable[..., Any]:
    """A method that tells of its scaler, and then does what it did."""

    @functools.wraps(plain)
    def telling(self: Any, *args: Any, **keys: Any) -> Any:
        _tell(before, self)
        return plain(self, *args, **keys)

    return telling


def _telling_of_optimizer(plain: Callable[..., Any], before: str, after: str) -> Callable[..., Any]:
    """One that tells of the optimizer that it is given as well, before and after."""

    @functools.wraps(plain)
    def telling(self: Any, optimizer: Optimizer, *args: Any, **keys: Any) -> Any:
        _tell(before, self, optimizer)
        result = plain(self, optimizer, *args, **keys)
        _tell(after, self, optimizer)
        return result

    return telling


def _tell(what: str, *given: Any) -> None:
    with _lock:
        listeners = list(_listeners)
    for each in listeners:
        getattr(each, what)(*given)


_TELLING: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "scale": partial(_telling, before="scales"),
    "unscale_": partial(_telling_of_optimizer, before="unscales", after="has_unscaled"),
    "step": partial(_telling_of_optimizer, before="steps", after="has_stepped"),
    "update": partial(_telling, before="updates"),
}
