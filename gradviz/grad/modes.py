"""Training and evaluation modes, passed on to a function like any other argument."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import torch
from torch import nn

_applied: ContextVar[list[tuple[Mode, nn.Module]] | None] = ContextVar("_applied", default=None)


class Mode:
    """How a module runs for a while: in training or evaluation mode, with a random stream of its own.

    ``mode(module)(x)`` is one call, ``with mode.applied(module):`` a stretch of code. Every flag and the random stream
    are as before afterwards. Activation checkpointing runs a module again during backward, then in the last mode that
    was applied to it: a checkpointed module wants one mode in a function.
    """

    training: bool

    def __init__(self, seed: int | None = None) -> None:
        self.seed = seed

    def __repr__(self) -> str:
        return f"{type(self).__name__}({'' if self.seed is None else f'seed={self.seed}'})"

    def __call__(self, module: nn.Module) -> Callable[..., Any]:
        """The module as a function that runs in this mode."""

        def run(*args: Any, **kwargs: Any) -> Any:
            with self.applied(module):
                return module(*args, **kwargs)

        return run

    @contextlib.contextmanager
    def applied(self, module: nn.Module) -> Iterator[nn.Module]:
        """The module in this mode. The same seed starts the same stream each time, so dropout keeps the same values."""
        used = _applied.get()
        if used is not None:
            used.append((self, module))
        with self.flags(module), self._stream(module):
            yield module

    @contextlib.contextmanager
    def flags(self, module: nn.Module) -> Iterator[None]:
        """The flags alone."""
        before = [(child, child.training) for child in module.modules()]
        try:
            module.train(self.training)
            yield
        finally:
            for child, training in before:
                child.training = training

    @contextlib.contextmanager
    def _stream(self, module: nn.Module) -> Iterator[None]:
        if self.seed is None:
            yield
            return
        devices = {p.device.index for p in module.parameters() if p.device.type == "cuda"}
        with torch.random.fork_rng(devices=sorted(devices)):
            torch.manual_seed(self.seed)
            yield


class Train(Mode):
    """Training mode: dropout drops, batch norm uses the batch and moves its statistics.

    Parameters
    ----------
    seed : int, optional
        Start of the module's own random stream; without one it draws from the caller's.

    Examples
    --------
    >>> drop, x = nn.Dropout(0.5), torch.ones(8)
    >>> torch.equal(Train(seed=3)(drop)(x), Train(seed=3)(drop)(x))
    True
    """

    training = True


class Eval(Mode):
    """Evaluation mode: dropout keeps everything, batch norm uses its statistics and leaves them alone.

    Examples
    --------
    >>> Eval()(nn.Dropout(0.5))(torch.ones(3))
    tensor([1., 1., 1.])
    """

    training = False

    def __init__(self) -> None:
        super().__init__()


class noted:
    """Take note of the modes applied inside, for `again`."""

    __slots__ = ("_token",)

    def __enter__(self) -> list[tuple[Mode, nn.Module]]:
        used: list[tuple[Mode, nn.Module]] = []
        self._token = _applied.set(used)
        return used

    def __exit__(self, *error: object) -> None:
        inside = _applied.get() or []
        _applied.reset(self._token)
        outside = _applied.get()
        if outside is not None:  # the outer call's backward may go through what an inner one ran
            outside.extend(inside)


@contextlib.contextmanager
def again(used: list[tuple[Mode, nn.Module]]) -> Iterator[None]:
    """The flags of those modes once more: activation checkpointing runs the forward pass again during backward."""
    with contextlib.ExitStack() as stack:
        for mode, module in used:
            stack.enter_context(mode.flags(module))
        yield
