"""The end of a backward pass: when a loop of the user's own has its gradients, and nobody has touched them yet.

Torch has no event for it. A hook on a parameter is called when its gradient has been added up, in ``.grad``, also under
`torch.compile`; the first in a pass asks the engine to call back when all of the pass is done, and that callback asks
once more, so as to come behind those of `DistributedDataParallel`, which put the sums over all processes in place.

A small step feels a Python function that is called for each parameter in the midst of its backward pass. So Python is
called for the first one alone, and all others are put down by what C calls, ``list.append``. Of a pass that broke off
the end never comes; the next one is told from it by the parameter that came first the last time, which is always looked
at.
"""

from __future__ import annotations

import functools
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
                self._pass.forget(key)
        new = wanted.keys() - self._hooks.keys()
        for key in new:
            p = wanted[key]
            self._hooks[key] = weakref.ref(p), p.register_post_accumulate_grad_hook(self._pass.hook)
        return new

    def was_missed(self) -> bool:
        """Whether a pass is over whose end nobody was told of: one after another that broke off, and unlike it."""
        return self._pass.was_missed()

    def close(self) -> None:
        """Leave nothing behind."""
        self.follow([])
        self._pass.clear()


class _Pass:
    """A backward pass under way. It alone is what parameters hold.

    Attributes
    ----------
    hook : callable
        For every parameter. What it does is put in its place, for all of them at once.
    """

    def __init__(self, ended: Ended) -> None:
        self._ended = weakref.WeakMethod(ended)
        self._task = -1
        self._reached: list[Tensor] = []
        self._first: int | None = None
        self._hook_of_first: RemovableHandle | None = None
        # All that it ever calls is kept: it may be told to call another while it is called.
        self._is_first, self._is_another = self._begin, self._reached.append
        self.hook = functools.partial(self._is_first)

    def _call(self, function: Callable[[Tensor], None]) -> None:
        self.hook.__setstate__((function, (), {}, None))  # type: ignore[attr-defined]

    def _begin(self, p: Tensor) -> None:
        """The first parameter has its gradient."""
        self._look_at(p)
        self._reached.append(p)
        self._ask()

    def _ask(self) -> None:
        """To be called when this pass is over."""
        self._task = _task()
        _call_back(self._almost_over)
        self._call(self._is_another)

    def _look(self, p: Tensor) -> None:
        """The parameter that came first the last time has its gradient."""
        if _task() != self._task:
            self._ask()

    def _almost_over(self) -> None:
        _call_back(self._over)

    def _over(self) -> None:
        reached = set(map(id, self._reached))
        self.clear()
        ended = self._ended()
        if reached and ended is not None:
            ended(reached)

    def clear(self) -> None:
        """Await the first parameter."""
        self._reached.clear()
        self._call(self._is_first)

    def _look_at(self, p: Tensor) -> None:
        if self._first != id(p):
            self.forget(self._first)
            self._first, self._hook_of_first = id(p), p.register_post_accumulate_grad_hook(self._look)

    def forget(self, key: int | None) -> None:
        """The parameter of this id is not followed any more."""
        if self._first == key and self._hook_of_first is not None:
            self._hook_of_first.remove()
            self._first = self._hook_of_first = None

    def was_missed(self) -> bool:
        """Whether parameters were reached, and no pass is under way in which they were."""
        if not self._reached or _task() == self._task:
            return False
        self.clear()
        return True


_task = torch._C._current_graph_task_id
_call_back = torch.autograd.Variable._execution_engine.queue_callback
