"""Whether somebody has written into a tensor, asked later, without keeping its memory."""

from __future__ import annotations

import torch
from torch import Tensor


class Writes:
    """How often a tensor was written into, from now on.

    Torch counts writes where all views of a memory see them. An alias shares that count, also when it is given other
    data: so it tells of writes, and holds none of the entries.

    Examples
    --------
    >>> tensor = torch.zeros(2)
    >>> writes = Writes(tensor)
    >>> _ = tensor.add_(1)
    >>> writes.happened()
    True
    """

    __slots__ = ("_alias", "_before")

    def __init__(self, tensor: Tensor) -> None:
        self._alias = tensor.detach()
        self._before = self._alias._version
        self._alias.data = torch.empty(0, dtype=tensor.dtype, device=tensor.device)

    def happened(self) -> bool:
        """Whether there was one."""
        return self._alias._version != self._before
