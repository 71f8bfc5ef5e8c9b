"""Which parameters are trained, and what changed since the step before.

A freeze or an unfreeze between two steps, by `ModelState`, by a handler or by the user's own ``requires_grad_``, is
seen at the next step.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from gradviz.errors import ModelError, OptimizerError
from gradviz.grad.leaves import Kind, Leaves, leaves_of
from gradviz.step.masters import Masters
from gradviz.step.model_state import stillness
from gradviz.step.surrogate import needs_closure


class Found(NamedTuple):
    """A model as a step finds it: looked at once, since that costs what a small step can feel."""

    leaves: Leaves
    kind: Kind
    parameters: list[nn.Parameter]
    """Those that are trainable, in order."""

    @classmethod
    def of(cls, model: nn.Module) -> Found:
        """Look at a model."""
        leaves = leaves_of(model)
        return cls(leaves, *leaves.trainable())


class Mask:
    """The trainable parameters of one model, as a step finds them."""

    def __init__(self, masters: Masters, optimizer: torch.optim.Optimizer) -> None:
        self._masters = masters
        self._optimizer = optimizer
        self._kind: Kind | None = None
        self._stillness = stillness()
        self._trained: dict[str, bool] = {}
        self._at_first: frozenset[str] = frozenset()
        self._frozen: list[str] = []
        self._unfrozen: list[str] = []
        self._optimized: frozenset[str] = frozenset()
        self._groups: list[Any] = []

    def look(self, found: Found) -> bool:
        """Whether anything changed since the last look.

        A parameter that was unfrozen, and that the optimizer has in no group, joins its first.
        """
        leaves = found.leaves
        if found.kind is self._kind and stillness() == self._stillness:
            return False
        self._kind, self._stillness = found.kind, stillness()
        trained = {name: p.requires_grad for name, p in leaves.parameters.items()}
        for name, now in trained.items():
            if self._trained.get(name, now) != now:
                (self._unfrozen if now else self._frozen).append(name)
        if self._trained:
            self._check_reduced(leaves)
            self._adopt({name: leaves.parameters[name] for name in trained if trained[name] and name in self._unfrozen})
        else:
            self._at_first = found.kind.frozen
        self._trained = trained
        return True

    def changes(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The parameters that were frozen and unfrozen since this was last asked."""
        changes = tuple(self._frozen), tuple(self._unfrozen)
        self._frozen, self._unfrozen = [], []
        return changes

    @staticmethod
    def may_hold_still(found: Found) -> bool:
        """Whether some module may have to stay in eval mode: something is frozen."""
        return stillness() > 0 or len(found.parameters) < len(found.leaves.parameters)

    def optimized(self, leaves: Leaves) -> frozenset[str]:
        """Names of the parameters that the optimizer moves: in a group whose learning rate is not 0."""
        groups = self._optimizer.param_groups
        glance = [leaves, *[(_rate(group), list(map(id, group["params"]))) for group in groups]]
        if glance != self._groups:
            self._groups = glance
            held = {id(p) for group in groups if _rate(group) != 0 for p in group["params"]}
            self._optimized = frozenset(
                name for name, p in leaves.parameters.items() if id(self._masters.of(p)) in held
            )
        return self._optimized

    def _adopt(self, parameters: dict[str, nn.Parameter]) -> None:
        held = {id(p) for group in self._optimizer.param_groups for p in group["params"]}
        for name, p in parameters.items():
            if self._masters.of(p) is p:  # it has joined the model since
                self._masters.add(name, p)
            if id(self._masters.of(p)) not in held:
                self._join(name, self._masters.of(p))

    def _check_reduced(self, leaves: Leaves) -> None:
        """Refuse what DDP may not have taken in, being frozen: its gradient would stay this process's own."""
        late = [name for name in self._unfrozen if name in self._at_first]
        if late and leaves.wrapper == "DistributedDataParallel":
            raise ModelError(
                f"{late[0]!r} was frozen when the step was made, and DistributedDataParallel reduces only what was "
                "trainable when it was made. Unfreeze, wrap the model anew, and make a new step or trainer."
            )

    def _join(self, name: str, p: Tensor) -> None:
        if needs_closure(self._optimizer):
            raise OptimizerError(
                f"{name!r} was unfrozen, and {type(self._optimizer).__name__} cannot take it in on the way. Make it "
                "over all parameters from the start: gradients come for the trainable ones only."
            )
        group = self._optimizer.param_groups[0]
        group["params"].append(p)
        if "param_names" in group:
            group["param_names"].append(name)


def _rate(group: dict[str, Any]) -> float:
    return float(group.get("lr", 1.0))  # an optimizer of the user's own may have none
