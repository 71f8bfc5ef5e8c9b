"""Before and after an optimizer's step, behind all who have a say in it.

Torch calls hooks in the order in which they came, and breaks off the step if one is added or taken away while it does.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle


class StepHooks:
    """A hook before each step of an optimizer and one after it.

    Parameters
    ----------
    optimizer : Optimizer
    before, after : callable
        As torch's own hooks, with the optimizer, the arguments and the keywords of the step.
    """

    def __init__(self, optimizer: Optimizer, before: Callable[..., Any], after: Callable[..., Any]) -> None:
        self._optimizer = optimizer
        self._before = before
        self._after = after
        self._is_open = True
        self._hooks: tuple[tuple[dict[int, Any], RemovableHandle], ...] = (
            (optimizer._optimizer_step_pre_hooks, optimizer.register_step_pre_hook(self._begins)),
            (optimizer._optimizer_step_post_hooks, optimizer.register_step_post_hook(self._ends)),
        )

    def come_last(self) -> None:
        """Come behind hooks that were added since, which may clip. Not for within a step."""
        for table, hook in self._hooks:
            if not _is_last(hook, table):
                table[hook.id] = table.pop(hook.id)

    def close(self) -> None:
        """Leave nothing behind; of a step that goes on meanwhile, once it is over."""
        self._is_open = False
        if not self._is_in_step():
            self._remove()

    def _remove(self) -> None:
        for _, hook in self._hooks:
            hook.remove()

    def _is_in_step(self) -> bool:
        """Whether a thread is in it at this moment, and maybe going through the hooks."""
        for innermost in sys._current_frames().values():
            frame: FrameType | None = innermost
            while frame is not None:
                if frame.f_code is _STEP and frame.f_locals.get("self") is self._optimizer:
                    return True
                frame = frame.f_back
        return False

    def _begins(self, *given: Any) -> Any:
        return self._before(*given) if self._is_open else None

    def _ends(self, *given: Any) -> None:
        if self._is_open:
            self._after(*given)
        table, hook = self._hooks[1]
        if not self._is_open and _is_last(hook, table):  # no other comes after it, who would be missed
            self._remove()


def _is_last(hook: RemovableHandle, table: dict[int, Any]) -> bool:
    return hook.id not in table or list(table)[-1] == hook.id


_STEP = Optimizer.profile_hook_step(lambda optimizer: None).__code__
"""What torch has around the step of every optimizer, and calls the hooks."""
