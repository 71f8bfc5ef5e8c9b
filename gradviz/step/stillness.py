"""Which modules stay in eval mode during training: what is frozen keeps its statistics, and its dropout asleep.

What `ModelState.freeze` asked of a module's buffers is marked on the module, so that a copy and a pickle know it too; a
batch norm without parameters has no ``requires_grad`` to tell.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from torch import nn

from gradviz.grad.leaves import walk

STILL, WITH_PARAMETERS, MOVING = "still", "still with its parameters", "moving"
"""Buffers that are to be still; to be so for as long as the module's own parameters are frozen; or to move although
they are."""

_MARK = "_gradviz_statistics"

_changes = 0


def asked(module: nn.Module) -> str | None:
    """What was asked of a module's buffers."""
    return vars(module).get(_MARK)


def ask(module: nn.Module, what: str | None) -> None:
    """Mark what is asked of a module's buffers; None takes it back."""
    if what is None:
        vars(module).pop(_MARK, None)
    else:
        vars(module)[_MARK] = what


def changes() -> int:
    """A number that grows with each freeze and unfreeze that changed which modules `TrainingMode` holds still."""
    return _changes


@contextlib.contextmanager
def counted(module: nn.Module) -> Iterator[None]:
    """Count what is done inside, if it changes what is held still."""
    global _changes
    before = held_still(module)
    yield
    _changes += held_still(module) != before


def held_still(module: nn.Module) -> set[nn.Module]:
    """The modules inside that stay in eval mode during training, because they are frozen.

    Those whose buffers were frozen, and wholly frozen ones with all that is inside, whoever froze them.
    """
    held: set[nn.Module] = set()
    children = list(module.modules())
    if all(p.requires_grad for p in module.parameters()) and not any(_MARK in vars(child) for child in children):
        return held
    for child in children:
        if is_frozen(child):
            held.update(child.modules())
        elif asked(child) == STILL or (asked(child) == WITH_PARAMETERS and is_frozen(child, recurse=False)):
            held.add(child)
    return {child for child in held if asked(child) != MOVING}


def is_frozen(module: nn.Module, *, recurse: bool = True) -> bool:
    """Whether a module has parameters, and none of them is trainable."""
    parameters = list(module.parameters(recurse))
    return bool(parameters) and not any(p.requires_grad for p in parameters)


def by_path(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Each module inside once, with its path; where a wrapper has the path of what is inside, that one."""
    seen: set[int] = set()
    for path, child in dict(walk(module)).items():
        if id(child) not in seen:
            seen.add(id(child))
            yield path, child


class TrainingMode(contextlib.AbstractContextManager["TrainingMode"]):
    """A module in train mode for a while, and every flag back as it was afterwards, on errors too.

    Submodules in eval mode while the root is in train mode were put there on purpose and stay; so do frozen ones
    (`held_still`), whose batch-norm statistics should be as still as their weights.
    """

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._before: list[tuple[nn.Module, bool]] = []
        self._still: list[nn.Module] = []
        self._kept: list[nn.Module] = []

    def __enter__(self) -> TrainingMode:
        self._before = [(child, child.training) for child in self._module.modules()]
        self._kept = [child for child, training in self._before if self._module.training and not training]
        try:
            self.set()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: Any) -> None:
        for child, training in self._before:
            child.training = training

    def set(self) -> None:
        """Set all flags: somebody has frozen or unfrozen a part, or is done with an evaluation."""
        if self._module.training:  # a part that was put into eval mode since stays there
            self._kept += [c for c in self._module.modules() if not (c.training or c in self._still or c in self._kept)]
        self._module.train()  # the module's own train(), which may hold parts of it in eval mode
        self._still = [*self._kept, *held_still(self._module)]
        for child in self._still:
            child.training = False

    def is_off(self) -> bool:
        """Whether somebody has put the module into eval mode, or all of it into train mode."""
        return not (self._module.training or self._module in self._still) or any(c.training for c in self._still)

    def kept(self) -> list[nn.Module]:
        """Parts that somebody has put into eval mode, before or since, and that are not so for being frozen."""
        if not self._module.training:
            return self._kept
        frozen = {child for child in self._still if child not in self._kept}
        return [child for child in self._module.modules() if not (child.training or child in frozen)]
