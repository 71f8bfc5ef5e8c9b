"""Training and evaluation modes, passed on to a function like any other argument."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, NoReturn

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook

from gradviz.errors import FunctionError

_STREAMS = threading.RLock()
"""torch's streams are the process's: one thread at a time takes one over. A draw of another thread that asks nobody
still goes through it."""


class Mode:
    """How a module runs for a while: in training or evaluation mode, with a random stream of its own.

    ``mode(module)(x)`` is one call, ``with mode.applied(module):`` a stretch of code. Every flag and the random stream
    are as before afterwards.
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
        flags = _watching.get()
        if flags is not None:
            flags.begin(late_for=module)
        with self._flags(module), self._stream(module):
            if flags is not None:
                flags.note(module)  # its forward pass may be checkpointed without a call of it
            yield module

    @contextlib.contextmanager
    def _flags(self, module: nn.Module) -> Iterator[None]:
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
        # Of the devices that the module or its inputs can be on; torch.manual_seed would move all of them for good.
        devices = {p.device.index for p in module.parameters() if p.device.type == "cuda"}
        if torch.cuda.is_initialized():
            devices.add(torch.cuda.current_device())
        with _STREAMS, torch.random.fork_rng(devices=sorted(devices)):
            torch.default_generator.manual_seed(int(self.seed))
            for device in devices:
                torch.cuda.default_generators[device].manual_seed(int(self.seed))
            yield


class Train(Mode):
    """Training mode: dropout drops, batch norm uses the batch and moves its statistics.

    Passed on to a function, which applies it: ``def loss(model, x, y, mode): return f(mode(model)(x), y)``.

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


class Flags:
    """The train flags that modules ran under while a function was differentiated.

    Activation checkpointing runs a module again during backward, when its mode is over. `again` sets the flags that
    each module ran under; one that ran under both cannot be told apart, and is refused if it does run again.
    """

    def __init__(self, *, enabled: bool = True) -> None:
        self._enabled = enabled  # not around torch.compile, which cannot trace the hook
        self._seen: dict[nn.Module, set[bool]] = {}
        self._hook: torch.utils.hooks.RemovableHandle | None = None
        self._began = False
        self._token: Any = None

    def begin(self, late_for: nn.Module | None = None) -> None:
        """Take notes from here on; what `late_for` ran before is not known, and counted as under its flags now."""
        if not self._began and self._enabled:
            self._began = True
            self._hook = register_module_forward_pre_hook(self._note)
            for module in late_for.modules() if late_for is not None else ():
                self._seen.setdefault(module, set()).add(module.training)

    def _note(self, module: nn.Module, inputs: Any) -> None:
        if _watching.get() is self:  # the hook is called for other threads' modules too
            self._seen.setdefault(module, set()).add(module.training)

    def note(self, module: nn.Module) -> None:
        """Note a module's flag as it is."""
        if self._began:
            self._seen.setdefault(module, set()).add(module.training)

    def __enter__(self) -> Flags:
        self._token = _watching.set(self)
        return self

    def __exit__(self, *error: object) -> None:
        _watching.reset(self._token)
        self._stop()
        outside = _watching.get()
        if outside is not None and self._began:  # the outer call's backward may go through what an inner one ran
            outside.begin()
            for module, flags in self._seen.items():
                outside._seen.setdefault(module, set()).update(flags)

    def _stop(self) -> None:
        if self._hook is not None:
            self._hook.remove()

    @property
    def noted(self) -> bool:
        """Whether any module's flag was noted."""
        return bool(self._seen)

    @contextlib.contextmanager
    def again(self) -> Iterator[None]:
        """The flags once more, for backward; what runs there is no longer noted."""
        self._stop()
        before = [(module, module.training) for module in self._seen]
        both = {module for module, flags in self._seen.items() if len(flags) > 1}

        def refuse(module: nn.Module, inputs: Any) -> None:
            if module in both:
                _refuse(module)

        try:
            for module, flags in self._seen.items():
                if module not in both:
                    (module.training,) = flags
            with contextlib.ExitStack() as stack:
                if both:
                    stack.callback(register_module_forward_pre_hook(refuse).remove)
                yield
        finally:
            for module, training in before:
                module.training = training


def _refuse(module: nn.Module) -> NoReturn:
    raise FunctionError(
        f"A {type(module).__name__} may have run in training and in evaluation mode, and activation checkpointing runs "
        "it again during backward, where the two cannot be told apart. Give it one mode in a function, as an argument: "
        "value_and_grad(f, model, x, gv.Train(seed=0))."
    )


_watching: ContextVar[Flags | None] = ContextVar("_watching", default=None)
