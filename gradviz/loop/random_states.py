"""Random streams: the process's own, and those that data draws from."""

from __future__ import annotations

import contextlib
import random
from collections import deque
from collections.abc import Iterator
from functools import partial
from types import FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

MOST_OBJECTS = 1000
"""Looked at in search of a data's own streams: those are near its surface, and a data set may hold millions."""

MOST_ITEMS = 64
"""Of a container that is looked into; a longer one holds data."""


class Moment(NamedTuple):
    """How random streams stand: those of the process, and those that the data holds, by where they are in it."""

    random: dict[str, Any]
    streams: dict[str, Any]


def random_states() -> dict[str, Any]:
    """How the streams of torch, of its GPUs once they are used, of Python and of numpy stand."""
    states = {"torch": torch.get_rng_state(), "python": random.getstate(), "numpy": np.random.get_state()}
    if torch.cuda.is_initialized():
        states["cuda"] = torch.cuda.get_rng_state_all()
    return states


def put_back(states: dict[str, Any]) -> None:
    """Let the process's streams stand as they did.

    Examples
    --------
    >>> states = random_states()
    >>> first = torch.rand(1), random.random(), np.random.rand()
    >>> put_back(states)
    >>> first == (torch.rand(1), random.random(), np.random.rand())
    True
    """
    torch.set_rng_state(states["torch"])
    random.setstate(states["python"])
    np.random.set_state(states["numpy"])
    devices = torch.cuda.device_count() if "cuda" in states else 0
    for device, state in enumerate(states.get("cuda", [])[:devices]):
        torch.cuda.set_rng_state(state, device)


@contextlib.contextmanager
def undrawn() -> Iterator[None]:
    """Whatever is drawn inside, the process's streams stand afterwards as they did before."""
    states = random_states()
    try:
        yield
    finally:
        put_back(states)


def streams_in(data: Any) -> dict[str, Any]:
    """How the streams that some data holds stand: generators of torch, numpy and Python, by their place in it.

    A `DataLoader` with persistent workers counts as one too: it draws a number less where its workers are there.
    """
    return {path: _state_of(stream) for path, stream in _found_in(data)}


def put_back_in(data: Any, states: dict[str, Any]) -> None:
    """Let the streams that some data holds stand as they did; those that it does not hold are passed over."""
    if not states:
        return
    with undrawn():
        for path, stream in sorted(_found_in(data), key=lambda found: not isinstance(found[1], DataLoader)):
            if path in states:
                _set_state(stream, states[path])


def _state_of(stream: Any) -> Any:
    if isinstance(stream, torch.Generator):
        return stream.get_state()
    if isinstance(stream, random.Random):
        return stream.getstate()
    if isinstance(stream, np.random.Generator):
        return stream.bit_generator.state
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
    elif isinstance(stream, np.random.RandomState):
        stream.set_state(state)
    elif not state:
        stream._iterator = None
    elif stream._iterator is None:
        iter(stream)  # starts the workers, which the next epoch finds there


_STREAMS = (torch.Generator, random.Random, np.random.Generator, np.random.RandomState)


def _found_in(data: Any) -> Iterator[tuple[str, Any]]:
    """Every stream once, under the first place that leads to it; what is near comes first."""
    seen, waiting = {id(data)}, deque([("", data)])
    for _ in range(MOST_OBJECTS):
        if not waiting:
            return
        path, value = waiting.popleft()
        if isinstance(value, _STREAMS):
            yield path, value
            continue
        if isinstance(value, DataLoader) and value.persistent_workers:
            yield f"{path}.workers", value
        for name, part in _parts(value):
            if id(part) not in seen and not isinstance(part, _SHALLOW):
                seen.add(id(part))
                waiting.append((path + name, part))


_SHALLOW = (str, bytes, int, float, type(None), type, ModuleType, Tensor, np.ndarray, nn.Module)


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, list | tuple):
        if len(value) <= MOST_ITEMS:
            yield from ((f"[{place}]", part) for place, part in enumerate(value))
    elif isinstance(value, dict):
        if len(value) <= MOST_ITEMS:
            yield from ((f"[{key!r}]", part) for key, part in value.items())
    elif isinstance(value, FunctionType):
        code = value.__code__
        for name, cell in zip(code.co_freevars, value.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # a cell that is empty still
                yield f".{name}", cell.cell_contents
        named = {name: value.__globals__[name] for name in code.co_names if name in value.__globals__}
        yield from ((f".{name}", part) for name, part in named.items() if isinstance(part, (*_STREAMS, DataLoader)))
    elif isinstance(value, MethodType):
        yield ".__self__", value.__self__
    elif isinstance(value, partial):
        yield from ((f".{name}", getattr(value, name)) for name in ("func", "args", "keywords"))
    elif hasattr(value, "__dict__"):
        yield from ((f".{name}", part) for name, part in vars(value).items() if name != "_iterator")
