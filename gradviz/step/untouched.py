"""A trial that leaves no trace."""

from __future__ import annotations

import contextlib
import copy
import operator
import random
from collections import deque
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gradviz.step.streams import put_back_in, states_in
from gradviz.step.tensors import write


@contextlib.contextmanager
def untouched(*modules: nn.Module, beside: Any = None) -> Iterator[None]:
    """Put modules and random streams back as they were, whatever is done inside.

    Parameters and buffers (values, the tensors themselves and whether they require a gradient), the modules' attributes
    with the contents of their tensors, arrays and nested containers; the streams of torch, Python and numpy, and those
    that the modules, and what takes part `beside` them, are found to draw from. What else a module reaches in another
    way, by a closure say, is not seen.
    """
    drawing = {"modules": list(modules), "beside": beside}
    streams = states_in(drawing)
    children = [child for module in modules for child in module.modules()]
    tensors = {id(t): (t, t.requires_grad, t.detach().clone()) for module in modules for t in _tensors(module)}
    devices = {t.device.index for t, _, _ in tensors.values() if t.device.type == "cuda"}
    attributes = [_Attributes(child, tensors.keys()) for child in children if not _is_scripted(child)]
    python_stream, numpy_stream = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=sorted(devices)):
            yield
    finally:
        for kept in attributes:
            kept.restore()
        for tensor, requires_grad, value in tensors.values():
            write(value, tensor)
            if tensor.requires_grad != requires_grad:
                tensor.requires_grad_(requires_grad)
        put_back_in(drawing, streams)
        random.setstate(python_stream)
        np.random.set_state(numpy_stream)


def _tensors(module: nn.Module) -> Iterator[Tensor]:
    yield from module.parameters()
    yield from module.buffers()


def _is_scripted(module: nn.Module) -> bool:
    return isinstance(module, torch.jit.ScriptModule)


Undo = Callable[[], None]


class _Attributes:
    """Everything a module holds."""

    def __init__(self, module: nn.Module, known: Collection[int]) -> None:
        self._module = module
        self._attributes = dict(vars(module))
        self._undo: list[Undo] = []
        seen = set(known)
        for name, value in self._attributes.items():
            if name not in ("_parameters", "_buffers", "_modules"):
                self._note(value, seen)
            else:
                self._undo.append(_refill(value))

    def restore(self) -> None:
        vars(self._module).clear()
        vars(self._module).update(self._attributes)
        for undo in self._undo:
            undo()

    def _note(self, value: Any, seen: set[int]) -> None:
        """Keep how to put a value back, and what is inside it."""
        if id(value) in seen:
            return
        if isinstance(value, list | dict | set | deque | tuple):
            seen.add(id(value))
            if not isinstance(value, tuple):
                self._undo.append(_refill(value))
            for part in value.values() if isinstance(value, dict) else value:
                self._note(part, seen)
        else:
            undo = _undo_of(value)
            if undo is not None:
                seen.add(id(value))
                self._undo.append(undo)


def _undo_of(value: Any) -> Undo | None:
    """How to put back what can be written into."""
    if isinstance(value, Tensor):
        return (
            partial(write, value.detach().clone(), value)
            if not value.is_meta and value.layout is torch.strided
            else None
        )
    if isinstance(value, np.ndarray):
        return partial(value.__setitem__, ..., value.copy())
    return None


def _refill(container: Any) -> Undo:
    content = copy.copy(container)

    def undo() -> None:
        if (
            len(container) == len(content)
            and all(map(operator.is_, container, content))
            and _same_values(container, content)
        ):
            return
        container.clear()
        container.update(content) if isinstance(container, dict | set) else container.extend(content)

    return undo


def _same_values(container: Any, content: Any) -> bool:
    return not isinstance(container, dict) or all(map(operator.is_, container.values(), content.values()))
