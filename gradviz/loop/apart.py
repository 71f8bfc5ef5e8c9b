"""Training that leaves the user's module as it was: what was trained is kept apart, in a copy."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

from gradviz.errors import ModelError
from gradviz.step.model_state import ModelState
from gradviz.step.stillness import ask, asked
from gradviz.step.tensors import write


class Apart:
    """The tensors of a run's model, kept in a copy of the module while the module itself has its own.

    The module itself is trained, so that an objective that reads it sees what is trained, and the optimizer keeps its
    parameters. Only values change places, before a run and after.
    """

    def __init__(self, module: nn.Module) -> None:
        self.model_state = ModelState(_copied(module))
        self._module = module
        self._left = _frozen_in(module)

    @contextlib.contextmanager
    def lent(self) -> Iterator[None]:
        """The module with the tensors that are kept apart; afterwards they are apart again, and its own are back.

        Raises
        ------
        ModelError
            If the module has other parameters than its copy.
        """
        module = ModelState(self._module)
        changed = sorted(self.model_state.parameters.keys() ^ module.parameters.keys())
        if changed:
            raise ModelError(
                f"run(in_place=False) goes on with the parameters that it trained before, and {changed[0]!r} has "
                "joined or left since. Make a new trainer."
            )
        own = _Own(module)
        self._follow()
        try:
            _move(self.model_state, module)
            yield
        finally:
            try:
                if _tree(self.model_state) == _tree(module):
                    _move(module, self.model_state)
                else:  # a handler has built something on
                    self.model_state = ModelState(_copied(self._module))
            finally:
                own.restore()
                self._left = _frozen_in(self._module)

    def _follow(self) -> None:
        """Freeze and unfreeze in the copy what was frozen and unfrozen in the module since the last run."""
        now = _frozen_in(self._module)
        pairs = zip(self._module.modules(), self.model_state.module.modules(), strict=False)
        for before, after, (_, there) in zip(self._left, now, pairs, strict=False):
            if before != after:
                flags, mark = after
                ask(there, mark)
                for name, p in there._parameters.items():
                    if p is not None and name in flags:
                        p.requires_grad_(flags[name])


def _frozen_in(module: nn.Module) -> list[tuple[dict[str, bool], str | None]]:
    """What of each module inside is trainable, and what was asked of its statistics."""
    return [
        ({name: p.requires_grad for name, p in child._parameters.items() if p is not None}, asked(child))
        for child in module.modules()
    ]


def _tree(state: ModelState) -> list[str]:
    return [name for name, _ in state.module.named_modules()] + list(state.parameters)


def _copied(module: nn.Module) -> nn.Module:
    try:
        return copy.deepcopy(module)
    except Exception as error:
        raise ModelError(
            f"run(in_place=False) keeps what it trains in a copy of the model, and this {type(module).__name__} "
            f"cannot be copied ({type(error).__name__}: {error}). Write run(in_place=True)."
        ) from error


class _Own:
    """What a module has of its own: its tree, its tensors with their values, and what hangs on parameters."""

    def __init__(self, state: ModelState) -> None:
        children = list(state.module.modules())
        tables: list[dict[str, Any]] = [t for c in children for t in (c._modules, c._parameters, c._buffers)]
        self._tables = [(table, dict(table)) for table in tables]
        self._values = [(t, t.detach().clone()) for t in state.values()]
        self._parameters = [(p, p.requires_grad, p.grad) for p in state.parameters.values()]
        self._asked = [(child, asked(child)) for child in children]

    def restore(self) -> None:
        for table, content in self._tables:
            table.clear()
            table.update(content)
        for t, value in self._values:
            _write(value, t)
        for p, requires_grad, gradient in self._parameters:
            p.requires_grad_(requires_grad)
            p.grad = gradient
        for child, mark in self._asked:
            ask(child, mark)


def _move(source: ModelState, target: ModelState) -> None:
    """Give one module the values of another. Its parameters stay the same objects: the optimizer holds them."""
    for p, q in zip(source.parameters.values(), target.parameters.values(), strict=True):
        _write(p, q)
        q.requires_grad_(p.requires_grad)
    for a, b in zip(source.module.modules(), target.module.modules(), strict=True):
        ask(b, asked(a))
        for name in b._buffers.keys() - a._buffers.keys():
            del b._buffers[name]
        for name, buffer in a._buffers.items():
            there = b._buffers.get(name)
            if buffer is None or there is None:
                b._buffers[name] = None if buffer is None else buffer.detach().clone()
            else:
                _write(buffer, there)


def _write(value: Tensor, target: Tensor) -> None:
    if (target.shape, target.dtype, target.device) == (value.shape, value.dtype, value.device):
        write(value, target)
    else:
        target.data = value.detach().clone()
