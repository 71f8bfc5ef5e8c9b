"""A trial that leaves no trace."""

from __future__ import annotations

import contextlib
import copy
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


@contextlib.contextmanager
def untouched(*modules: nn.Module) -> Iterator[None]:
    """Put modules and random streams back as they were, whatever is done inside.

    Parameters and buffers (values and the tensors themselves), the modules' attributes with the contents of their
    lists, dicts, sets and arrays, generators they own, and the streams of torch, Python and numpy.
    """
    children = [child for module in modules for child in module.modules()]
    tensors = [(t, t.detach().clone()) for module in modules for t in _tensors(module)]
    attributes = [_Attributes(child) for child in children if not isinstance(child, torch.jit.ScriptModule)]
    devices = {t.device.index for t, _ in tensors if t.device.type == "cuda"}
    python_stream, numpy_stream = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=sorted(devices)):
            yield
    finally:
        for kept in attributes:
            kept.restore()
        with torch.no_grad():
            for tensor, value in tensors:
                # By value: batch norm moves its statistics without counting a version.
                if not torch.equal(tensor, value):
                    tensor.copy_(value)
        random.setstate(python_stream)
        np.random.set_state(numpy_stream)


def _tensors(module: nn.Module) -> Iterator[Tensor]:
    yield from module.parameters()
    yield from module.buffers()


class _Attributes:
    """Everything a module holds, a level deep."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._attributes = dict(vars(module))
        self._contents = [
            (value, copy.copy(value))
            for value in self._attributes.values()
            if isinstance(value, list | dict | set | np.ndarray)
        ]
        generators = [value for value in self._attributes.values() if isinstance(value, torch.Generator)]
        self._streams = [(generator, generator.get_state()) for generator in generators]

    def restore(self) -> None:
        vars(self._module).clear()
        vars(self._module).update(self._attributes)
        for value, content in self._contents:
            _refill(value, content)
        for generator, stream in self._streams:
            generator.set_state(stream)


def _refill(value: Any, content: Any) -> None:
    if isinstance(value, np.ndarray):
        value[...] = content
        return
    value.clear()
    value.extend(content) if isinstance(value, list) else value.update(content)
