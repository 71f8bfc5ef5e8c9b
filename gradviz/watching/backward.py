"""The end of a backward pass: when a loop of the user's own has its gradients, and nobody has touched them yet.

Torch has no event for it. A hook on a parameter is called when its gradient has been added up, in ``.grad``, also under
`torch.compile`; the first in a pass asks the engine to call back when all of the pass is done, and that callback asks
once more, so as to come behind those of `DistributedDataParallel`, which put the sums over all processes in place.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

Ended = Callable[[set[int]], None]
"""Called with the ids of the parameters that the pass has reached."""


def current_pass() -> int | None:
    """The number of the backward pass that is under way in this thread."""
    task: int = _task()
    return None if task == -1 else task


class BackwardEnd:
    """Calls when a backward pass that reaches some parameters is over.

    Parameters
    ----------
    ended : bound method
        It is not kept alive.
    """

    def __init__(self, ended: Ended) -> None:
        self._pass = _Pass(ended)
        self._hooks: dict[int, tuple[weakref.ref[Tensor], RemovableHandle]] = {}

    def follow(self, parameters: Iterable[Tensor]) -> set[int]:
        """Hook these, and no others; the ids of those that were not hooked before.

        Parameters that are frozen cannot be hooked, and need not be.
        """
        wanted = {id(p): p for p in parameters}
        for key, (held, hook) in list(self._hooks.items()):
            if wanted.get(key) is not held() or held() is None:
                hook.remove()
                del self._hooks[key]
        new = wanted.keys() - self._hooks.keys()
        for key in new:
            p = wanted[key]
            self._hooks[key] = weakref.ref(p), p.register_post_accumulate_grad_hook(self._pass.reach)
        return new

    def close(self) -> None:
        """Leave nothing behind."""
        self.follow([])


class _Pass:
    """A backward pass under way. It alone is what parameters hold."""

    def __init__(self, ended: Ended) -> None:
        self._ended = weakref.WeakMethod(ended)
        self._task = -1
        self._reached: set[int] = set()
        self._add = self._reached.add

    def reach(self, p: Tensor) -> None:
        """A parameter has its gradient. Called for every one in every pass, so it does no more than it must."""
        if _task() != self._task:
            self._begin()
        self._add(id(p))

    def _begin(self) -> None:
        # By the pass: of one that broke off, the callback never comes.
        self._task = _task()
        _call_back(self._almost_over)

    def _almost_over(self) -> None:
        _call_back(self._over)

    def _over(self) -> None:
        reached = self._reached.copy()
        self._reached.clear()
        ended = self._ended()
        if reached and ended is not None:
            ended(reached)


_task = torch._C._current_graph_task_id
_call_back = torch.autograd.Variable._execution_engine.queue_callback
