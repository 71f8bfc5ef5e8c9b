"""Values in the few types that ``torch.load`` reads by its safe default, and back.

Numbers, strings, None, tensors, and dicts, lists and tuples of them. Arrays and numbers of numpy stand as small dicts
around a tensor or a number, and a dict that could be taken for one of those stands inside another, ``{"dict": ...}``. A
tensor is saved without its graph and on the CPU, and without the larger one it is a view of.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gradviz.errors import described

_AS_THEY_ARE = (bool, int, float, str, type(None))
_KEYS = (bool, int, float, str, type(None))
_ARRAY, _NUMBER, _TENSOR = "numpy array", "numpy number", "tensor"
_DICT = "dict"
_MARKS = ({_NUMBER, "dtype"}, {_ARRAY}, {_TENSOR, "device"}, {_DICT})
"""The keys, all of them, by which it is seen that a dict stands for something else."""

_LEFT_OUT = object()


class Plain:
    """Makes values plain, each tensor once, and remembers what it had to leave out.

    Parameters
    ----------
    keeps_device : bool
        Whether a tensor that is not on the CPU goes back there; without it, a person can use the tensor as it is.

    Examples
    --------
    >>> plain = Plain()
    >>> plain({"best": np.float32(0.5), "loader": object()}, "state")
    {'best': {'numpy number': 0.5, 'dtype': 'float32'}}
    >>> plain.left_out
    ["state['loader'] (an object)"]
    """

    def __init__(self, *, keeps_device: bool = False) -> None:
        self.left_out: list[str] = []
        self._keeps_device = keeps_device
        self._tensors: dict[int, tuple[Tensor, Tensor]] = {}  # the first one too, so that no id is used again

    def __call__(self, value: Any, path: str) -> Any:
        """`value`, plain; what cannot be is left out of the dict or list that it is in, and is None on its own."""
        made = self._made(value, path)
        return None if made is _LEFT_OUT else made

    def parts(self, values: Mapping[Any, Any], path: str) -> dict[Any, Any]:
        """Each value of a dict, plain, under its own key whatever that is; without those that cannot be."""
        parts = {key: self._made(part, f"{path}[{key!r}]") for key, part in values.items()}
        return {key: part for key, part in parts.items() if part is not _LEFT_OUT}

    def _made(self, value: Any, path: str) -> Any:
        if isinstance(value, np.generic) and value.dtype.kind in "biuf":
            return {_NUMBER: value.item(), "dtype": value.dtype.name}
        if type(value) in _AS_THEY_ARE:
            return value
        if isinstance(value, Tensor):
            tensor = self._tensor(value)
            away = self._keeps_device and value.device.type != "cpu"
            return {_TENSOR: tensor, "device": str(value.device)} if away else tensor
        if isinstance(value, np.ndarray) and value.dtype.kind in "biufc":
            return {_ARRAY: torch.from_numpy(value.copy())}
        if isinstance(value, dict) and all(type(key) in _KEYS for key in value):
            parts = self.parts(value, path)
            return {_DICT: parts} if parts.keys() in _MARKS else parts
        if isinstance(value, list | tuple):
            items = [self._made(part, f"{path}[{place}]") for place, part in enumerate(value)]
            items = [part for part in items if part is not _LEFT_OUT]
            return tuple(items) if isinstance(value, tuple) else items
        self.left_out.append(f"{path} ({described(value)})")
        return _LEFT_OUT

    def _tensor(self, value: Tensor) -> Tensor:
        if id(value) not in self._tensors:
            tensor = value.detach().cpu()
            if type(tensor) is not Tensor:
                tensor = tensor.as_subclass(Tensor)
            if tensor.layout is torch.strided and _is_part(tensor):
                tensor = tensor.clone()
            self._tensors[id(value)] = value, tensor
        return self._tensors[id(value)][1]


def _is_part(tensor: Tensor) -> bool:
    return tensor.untyped_storage().nbytes() > math.prod(tensor.shape) * tensor.itemsize


def from_plain(value: Any) -> Any:
    """What was made plain, as it was; a tensor from a device that is not here stays on the CPU.

    Examples
    --------
    >>> from_plain(Plain()({"best": np.float32(0.5)}, "state"))
    {'best': np.float32(0.5)}
    """
    if isinstance(value, dict):
        if value.keys() == {_NUMBER, "dtype"}:
            return np.dtype(value["dtype"]).type(value[_NUMBER])
        if value.keys() == {_ARRAY}:
            return value[_ARRAY].numpy()
        if value.keys() == {_TENSOR, "device"}:
            return _on(value[_TENSOR], torch.device(value["device"]))
        return parts_from_plain(value[_DICT] if value.keys() == {_DICT} else value)
    if isinstance(value, list | tuple):
        return type(value)(map(from_plain, value))
    return value


def parts_from_plain(values: Mapping[Any, Any]) -> dict[Any, Any]:
    """What `Plain.parts` made plain, as it was."""
    return {key: from_plain(part) for key, part in values.items()}


def _on(tensor: Tensor, device: torch.device) -> Tensor:
    try:
        return tensor.to(device)
    except (RuntimeError, AssertionError):  # torch was built without it, or there are fewer of them
        return tensor
