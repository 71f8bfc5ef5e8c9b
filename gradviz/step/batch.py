"""A batch `(inputs, targets)` on its way into the model."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from torch.utils import _pytree as pytree
from torch.utils._pytree import tree_leaves, tree_map

from gradviz.errors import DataError, InputCastWarning, described, warn


class Batch(NamedTuple):
    """What a model is given and what it should say.

    Inputs are a tensor (``model(x)``), a tuple or list (``model(*x)``) or a mapping (``model(**x)``).
    """

    inputs: Any
    targets: Any


class Parts(tuple[Any, ...]):
    """Targets or predictions of micro-batches that do not fit together."""

    __slots__ = ()


pytree.register_pytree_node(
    Parts,
    lambda parts: (list(parts), None),
    lambda values, _: Parts(values),
    serialized_type_name="gradviz.Parts",
    flatten_with_keys_fn=lambda parts: ([(pytree.SequenceKey(i), part) for i, part in enumerate(parts)], None),
)


def as_batch(batch: Any) -> Batch:
    """Check that `batch` is a pair.

    Raises
    ------
    DataError
        If it is not a tuple or list of two.
    """
    if isinstance(batch, _PAIRS) and len(batch) == 2:
        inputs, targets = batch
        if not isinstance(inputs, Tensor) and isinstance(inputs, Mapping):
            inputs = dict(inputs)  # other mappings, such as a tokenizer's output, are no pytrees
        return Batch(inputs, targets)
    came = described(batch) + (f" of {len(batch)}" if isinstance(batch, tuple | list | Mapping) else "")
    raise DataError(
        f"A batch is a pair (inputs, targets); got {came}. "
        "Write e.g. [(x, y) for x, y in ...], or ((x1, x2), y) for a model of two inputs."
    )


class InputCast:
    """Moves batches to the model's device and floating inputs to its dtype; integers are never cast.

    Parameters
    ----------
    asked_for : bool
        Whether the user has named that dtype, so that there is nothing to say.
    """

    def __init__(self, asked_for: bool = False) -> None:
        self._said = asked_for

    def __call__(self, batch: Batch, device: torch.device, dtype: torch.dtype) -> Batch:
        """The batch on a device, its floating inputs of a dtype."""
        inputs, targets = batch
        are_there = type(inputs) is Tensor is type(targets) and inputs.device == device == targets.device
        if are_there and inputs.dtype == dtype and not (inputs.is_inference() or targets.is_inference()):
            return batch  # two tensors that the model takes as they are: the common case

        def to_model(leaf: Any) -> Any:
            leaf = self._as_tensor(leaf)
            if not isinstance(leaf, Tensor):
                return leaf
            if leaf.is_inference() and not torch.is_inference_mode_enabled():
                leaf = leaf.clone()  # autograd cannot use it
            if leaf.is_floating_point() and dtype.is_floating_point and leaf.dtype != dtype:
                self._say(leaf.dtype, dtype)
                return leaf.to(device, dtype, non_blocking=True)
            return leaf if leaf.device == device else leaf.to(device, non_blocking=True)

        def to_device(leaf: Any) -> Any:
            leaf = self._as_tensor(leaf)
            return leaf.to(device, non_blocking=True) if isinstance(leaf, Tensor) and leaf.device != device else leaf

        return Batch(map_leaves(to_model, batch.inputs), map_leaves(to_device, batch.targets))

    @staticmethod
    def _as_tensor(leaf: Any) -> Any:
        return torch.as_tensor(leaf) if isinstance(leaf, np.ndarray) else leaf

    def _say(self, came: torch.dtype, wanted: torch.dtype) -> None:
        if not self._said:
            self._said = True
            warn(f"Inputs of {came} are cast to the model's {wanted} (said once).", InputCastWarning)


def as_group(batches: Any, accumulate: int) -> list[Batch]:
    """The micro-batches of a step that takes a list of up to `accumulate`.

    Raises
    ------
    DataError
        If it is not a list of so many pairs.
    """
    if isinstance(batches, list) and 0 < len(batches) <= accumulate:
        with contextlib.suppress(DataError):
            return [as_batch(batch) for batch in batches]
    came = described(batches) + (f" of {len(batches)}" if isinstance(batches, tuple | list) else "")
    with contextlib.suppress(DataError):
        came = f"one batch, of {in_words(as_batch(batches))}: write [batch]"
    raise DataError(
        f"With accumulate={accumulate} a step takes a list of 1 to {accumulate} batches, each a pair (inputs, "
        f"targets); got {came}. Write step([batch_1, batch_2, ...], state); a loop puts them together by itself."
    )


_TENSORS = {Tensor}
_PAIRS = (tuple, list)


def tensors_of(*values: Any) -> list[Tensor]:
    """The tensors among the leaves of some values."""
    if _TENSORS.issuperset(map(type, values)):
        return list(values)  # the common case: a pytree walk costs what a small step can feel
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]


def map_leaves(function: Callable[[Any], Any], value: Any) -> Any:
    """`function` on every leaf of a pytree."""
    # One tensor is the common case, and a pytree walk costs more than the step of a small model can hide.
    return function(value) if isinstance(value, Tensor) else tree_map(function, value)


def call(module: nn.Module, inputs: Any) -> Any:
    """The module on inputs of any of the three forms."""
    if isinstance(inputs, Tensor):  # the common case
        return module(inputs)
    if isinstance(inputs, Mapping):
        return module(**inputs)
    return module(*inputs) if is_several(inputs) else module(inputs)


def is_several(inputs: Any) -> bool:
    """Whether inputs are several arguments: a tuple, or the list that a DataLoader makes of one."""
    return isinstance(inputs, tuple | list) and not isinstance(inputs, PackedSequence)


def in_words(batch: Batch) -> str:
    """The shapes and dtypes of a batch.

    Examples
    --------
    >>> in_words(Batch(torch.zeros(4, 3), {"label": torch.zeros(4, dtype=torch.int64)}))
    'inputs (4, 3) float32; targets (4,) int64'
    """
    parts = []
    for name, value in zip(batch._fields, batch, strict=True):
        shapes = [f"{tuple(leaf.shape)} {str(leaf.dtype).removeprefix('torch.')}" for leaf in tensors_of(value)]
        parts.append(f"{name} {', '.join(shapes) or described(value)}")
    return "; ".join(parts)


def batch_size(*values: Any) -> int:
    """Length of the first axis of the first tensor found, of all `Parts` together; 1 if there is none.

    Examples
    --------
    >>> batch_size(torch.zeros(5, 2)), batch_size({"ids": torch.zeros(3)}), batch_size(torch.tensor(1.0))
    (5, 3, 1)
    """
    for value in values:
        if isinstance(value, Tensor):  # the common case, without a pytree walk
            if value.ndim:
                return value.shape[0]
        elif isinstance(value, Parts):
            return sum(map(batch_size, value))
        else:
            break
    return next((leaf.shape[0] for leaf in tensors_of(values) if leaf.ndim), 1)
