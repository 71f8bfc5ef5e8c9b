"""Random streams that objects hold and functions draw from: found, saved and put back.

Found are generators of torch, numpy and Python: attributes of an object, of its class and of what it holds; variables
of a function's closure, its defaults, and globals that it names, or a function it calls. Functions of libraries are not
read, nor large containers, nor what only C code knows.
"""

from __future__ import annotations

import contextlib
import logging
import random
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import PurePath
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

MOST_OBJECTS = 1000
"""Looked at in search of one thing's streams: those are near its surface, and a data set may hold millions."""

MOST_ITEMS = 64
"""Of a container that is looked into; a longer one holds data, unless it begins with a stream."""

_STREAMS = (torch.Generator, random.Random, np.random.Generator, np.random.RandomState, np.random.BitGenerator)
_CONTAINERS = (list, tuple, dict, set, frozenset, deque)
_SHALLOW = (str, bytes, int, float, complex, type(None), ModuleType, Tensor, np.ndarray, np.generic, logging.Logger)
_LIBRARIES = {
    *sys.stdlib_module_names - {"test"},  # a script of one's own may be called so
    *("torch", "numpy", "pandas", "scipy", "IPython", "ipykernel", "ipywidgets", "traitlets", "matplotlib", "tqdm"),
}
_OURS = __name__.partition(".")[0]
_TENSORS_OF_MODULES = ("_parameters", "_buffers", "_modules")


def states_in(roots: Mapping[str, Any]) -> dict[str, Any]:
    """How the streams stand that are found in some things, by the place that leads to each.

    A `DataLoader` with persistent workers counts as one too: it draws a number less where its workers are there.

    Examples
    --------
    >>> stream = random.Random(0)
    >>> data = {"data": [stream]}
    >>> states, first = states_in(data), stream.random()
    >>> list(states)
    ['data[0]']
    >>> put_back_in(data, states)
    >>> stream.random() == first
    True
    """
    states = {}
    for path, stream in _found_in(roots):
        with contextlib.suppress(Exception):  # named by `unsaved_in`
            states[path] = _state_of(stream)
    return states


def put_back_in(roots: Mapping[str, Any], states: Mapping[str, Any]) -> None:
    """Let the streams of some things stand as they did; those that are not there are passed over.

    What starting the workers of a `DataLoader` draws from the process's streams is drawn.
    """
    if states:
        for path, stream in sorted(_found_in(roots), key=lambda found: not isinstance(found[1], DataLoader)):
            if path in states:
                _set_state(stream, states[path])


def unsaved_in(roots: Mapping[str, Any]) -> list[str]:
    """The streams that are found and that nobody can put back, in words."""
    unsaved = {}
    for path, stream in _found_in(roots):
        try:
            _state_of(stream)
        except Exception:
            unsaved[id(stream)] = f"{path} (a {type(stream).__name__} has no state to save)"
    for path, stream in _found_in(roots):
        if isinstance(stream, DataLoader):
            place = path.removesuffix(_WORKERS)
            held = {f"{place}.{name}": getattr(stream, name) for name in ("dataset", "collate_fn", "worker_init_fn")}
            for there, copied in _found_in(held):
                unsaved[id(copied)] = f"{there} (persistent workers draw from copies of it)"
    return list(unsaved.values())


def _state_of(stream: Any) -> Any:
    if isinstance(stream, torch.Generator):
        return stream.get_state()
    if isinstance(stream, random.Random):
        return stream.getstate()
    if isinstance(stream, np.random.Generator):
        return stream.bit_generator.state
    if isinstance(stream, np.random.BitGenerator):
        return stream.state
    if isinstance(stream, np.random.RandomState):
        return stream.get_state()
    return stream._iterator is not None


def _set_state(stream: Any, state: Any) -> None:
    if isinstance(stream, torch.Generator):
        stream.set_state(state)
    elif isinstance(stream, random.Random):
        stream.setstate(state)
    elif isinstance(stream, np.random.Generator):
        stream.bit_generator.state = state
    elif isinstance(stream, np.random.BitGenerator):
        stream.state = state
    elif isinstance(stream, np.random.RandomState):
        stream.set_state(state)
    elif not state:
        stream._iterator = None
    elif stream._iterator is None:
        iter(stream)  # starts the workers, which the next epoch finds there


# The search ---------------------------------------------------------------------------------------------------------

_WORKERS = ".workers"


def _found_in(roots: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Every stream once, under the first root and the shortest way that leads to it."""
    seen: set[int] = set()
    alive = []  # what is made on the way, such as bound methods, so that no id is used again
    for name, root in roots.items():
        if id(root) in seen or _leads_nowhere(root):
            continue
        seen.add(id(root))
        waiting, looked = deque([(name, root)]), 0
        while waiting and looked < MOST_OBJECTS:
            path, value = waiting.popleft()
            if issubclass(type(value), _STREAMS):
                yield path, value
                continue
            if issubclass(type(value), DataLoader) and value.persistent_workers:
                yield path + _WORKERS, value
            looked += not issubclass(type(value), nn.Module)  # of those there are many, and all are wanted
            for step, part in _parts_that_lead_on(value):
                if id(part) not in seen:
                    seen.add(id(part))
                    alive.append(part)
                    waiting.append((path + step, part))


def _parts_that_lead_on(value: Any) -> list[tuple[str, Any]]:
    parts = []
    with contextlib.suppress(Exception):  # a stranger's object may do anything when it is looked at
        for step, part in _parts(value):
            with contextlib.suppress(Exception):
                if not _leads_nowhere(part):
                    parts.append((step, part))
    return parts


def _leads_nowhere(value: Any) -> bool:
    kind = type(value)  # isinstance would ask the object itself, which may be a stranger's
    if issubclass(kind, _CONTAINERS):
        parts = value.values() if issubclass(kind, dict) else value
        if len(value) > MOST_ITEMS:
            return not issubclass(type(next(iter(parts))), _STREAMS)
        return all(issubclass(type(part), _SHALLOW) for part in parts)
    if issubclass(kind, type):
        return _root_of(value) in _LIBRARIES or _root_of(value) == _OURS
    return issubclass(kind, (*_SHALLOW, PurePath)) or _root_of(kind) == _OURS


def _root_of(value: Any) -> str:
    """The package that a function or a class is of."""
    return str(getattr(value, "__module__", None) or "").partition(".")[0]


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        yield from ((f"[{key!r}]", part) for key, part in list(value.items()))
    elif isinstance(value, _CONTAINERS):
        yield from ((f"[{place}]", part) for place, part in enumerate(list(value)))
    elif isinstance(value, FunctionType):
        yield from _of_function(value)
    elif isinstance(value, MethodType):
        yield from ((".__self__", value.__self__), ("", value.__func__))
    elif isinstance(value, partial):
        yield from ((f".{name}", getattr(value, name)) for name in ("func", "args", "keywords"))
    elif isinstance(value, type):
        yield from ((f".{name}", _plain(part)) for name, part in list(vars(value).items()))
        yield from ((f".{base.__name__}", base) for base in value.__bases__)
    elif isinstance(value, property):
        yield from ((".fget", part) for part in (value.fget, value.fset) if part is not None)
    else:
        yield from _of_object(value)


def _of_object(value: Any) -> Iterator[tuple[str, Any]]:
    is_module = isinstance(value, nn.Module)
    for name, part in list(getattr(value, "__dict__", {}).items()):
        if name != "_iterator" and not (is_module and name in _TENSORS_OF_MODULES):
            yield f".{name}", part
    if is_module:
        yield from ((f".{name}", child) for name, child in value._modules.items())
    for kind in type(value).__mro__:
        slots = vars(kind).get("__slots__", ())
        for name in [slots] if isinstance(slots, str) else slots:
            with contextlib.suppress(AttributeError):  # one that has no value
                yield f".{name}", getattr(value, name)
    yield ".__self__", getattr(value, "__self__", None)  # of a method that is no Python function
    yield f".{type(value).__name__}", type(value)


def _of_function(function: FunctionType) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # a cell that is empty still
            yield f".{name}", cell.cell_contents
    yield from ((f".defaults[{place}]", part) for place, part in enumerate(function.__defaults__ or ()))
    yield from ((f".{name}", part) for name, part in (function.__kwdefaults__ or {}).items())
    yield from ((f".{name}", part) for name, part in vars(function).items())
    if _root_of(function) not in _LIBRARIES and _root_of(function) != _OURS:
        yield from _named(function.__globals__, _names(function.__code__), "")


def _named(space: Mapping[str, Any], names: set[str], path: str, depth: int = 3) -> Iterator[tuple[str, Any]]:
    """What code that has these names can mean by them."""
    for name in sorted(names & space.keys()):
        part = space[name]
        if not isinstance(part, ModuleType):
            yield f"{path}.{name}", part
        elif depth and part.__name__.partition(".")[0] not in _LIBRARIES and part.__name__ != _OURS:
            yield from _named(vars(part), names - {name}, f"{path}.{name}", depth - 1)


def _names(code: CodeType) -> set[str]:
    """Of a function, and of those that are made in it."""
    inside = (_names(part) for part in code.co_consts if isinstance(part, CodeType))
    return set(code.co_names).union(*inside)


def _plain(part: Any) -> Any:
    """What a class has in its body, as a function."""
    return part.__func__ if isinstance(part, staticmethod | classmethod) else part
