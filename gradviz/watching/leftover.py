"""What a step has left in ``.grad``, told by torch's counts of writes.

Nobody says beforehand which step of somebody else's loop is the last. When the watch is closed, the gradients of that
step may be there still; but whether they are as the backward pass left them, as the optimizer got them, or something
else, is not seen in them. In the iterations that are recorded it is: writes are counted before the step, and after it.
If the counts are the same at the end, what was done to the gradients since the backward pass is the same too.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable

from torch import Tensor


class Leftover:
    """Follows the counts of writes through the iterations that are recorded."""

    def __init__(self) -> None:
        self._came: list[int] | None = None
        self._given: list[int] | None = None
        self._left: list[int] | None = None
        self._is_rewritten = False

    def come(self, gradients: Iterable[Tensor]) -> None:
        """A backward pass is over."""
        self._came, self._given, self._left = _counts(gradients), None, None

    def give(self, gradients: Iterable[Tensor], *, is_rewritten: bool) -> None:
        """The optimizer gets them; whether others are known to have written into them."""
        self._given, self._is_rewritten = _counts(gradients), is_rewritten

    def leave(self, gradients: Iterable[Tensor]) -> None:
        """The step is over."""
        self._left = _counts(gradients)

    def stage(self, gradients: Iterable[Tensor]) -> str | None:
        """The stage that gradients are of which a later step has left; None if nobody knows.

        Examples
        --------
        >>> import torch
        >>> left, gradient = Leftover(), torch.ones(2)
        >>> left.come([gradient]); left.give([gradient], is_rewritten=False); left.leave([gradient])
        >>> left.stage([torch.ones(2)])
        'backward'
        >>> left.stage([torch.ones(2).mul_(2)]) is None
        True
        """
        if self._left is None or self._left != self._given or self._left != _counts(gradients):
            return None
        return "clipped" if self._is_rewritten or self._came != self._given else "backward"


def _counts(gradients: Iterable[Tensor]) -> list[int]:
    return list(map(operator.attrgetter("_version"), gradients))
