"""Tensors in what a module returned, each with the path that leads to it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence


class Found(NamedTuple):
    """One of them.

    Attributes
    ----------
    path : str
        As it would be written behind the name of what returned it: ``""`` for the value itself, ``"['h']"`` for an
        entry or a field, ``"[1][0]"`` for one of a tuple.
    value : Tensor
    note : str or None
        What a reader should know of it.
    has_examples : bool
        Whether one of its axes may count the examples.
    """

    path: str
    value: Tensor
    note: str | None = None
    has_examples: bool = True


def tensors_in(value: object) -> Iterator[Found]:
    """Every tensor in tensors, tuples, lists, mappings, dataclasses and packed sequences, however deep.

    Examples
    --------
    >>> output = {"h": torch.zeros(1)}, [torch.zeros(2)]
    >>> [found.path for found in tensors_in(output)]
    ["[0]['h']", '[1][0]']
    """
    waiting: list[tuple[str, object]] = [("", value)]
    seen: set[int] = set()  # of containers: one may hold itself
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, Tensor):
            yield Found(path, value)
            continue
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, PackedSequence):
            yield Found(f"{path}['data']", value.data, f"packed, {_lengths(value)}", has_examples=False)
            continue
        waiting += reversed(list(_parts(path, value)))


def _parts(path: str, value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, Mapping):
        yield from ((f"{path}[{key!r}]", part) for key, part in value.items())
    elif isinstance(value, tuple | list):
        yield from ((f"{path}[{place}]", part) for place, part in enumerate(value))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield f"{path}[{field.name!r}]", getattr(value, field.name, None)


def _lengths(packed: PackedSequence) -> str:
    """The lengths of packed sequences in the order they were given, in words."""
    sizes = packed.batch_sizes
    lengths = (sizes.unsqueeze(1) > torch.arange(int(sizes[0]) if len(sizes) else 0)).sum(0)
    if packed.unsorted_indices is not None:
        lengths = lengths[packed.unsorted_indices.cpu()]
    return f"sequences of lengths {', '.join(map(str, lengths.tolist()[:16]))}{' ...' if len(lengths) > 16 else ''}"


def lengths(given: object, batch_dim: int) -> set[int]:
    """What the axis of examples measures in all tensors that have it: one of these is the number of examples.

    Examples
    --------
    >>> lengths((torch.zeros(8, 3), {"y": torch.zeros(8)}), 0)
    {8}
    """
    tensors = [found.value for found in tensors_in(given) if found.has_examples]
    return {tensor.shape[batch_dim] for tensor in tensors if -tensor.ndim <= batch_dim < tensor.ndim}
