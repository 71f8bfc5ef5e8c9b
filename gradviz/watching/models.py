"""The parameters of some models, and the optimizers that hold them."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence, Set
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.optim import Optimizer

from gradviz.grad.leaves import Kind, Leaves, leaves_of
from gradviz.step.optimizers import WhoMoves, held_by


class Held(NamedTuple):
    """The trainable parameters whose gradients belong to the steps of one optimizer: those it holds, and those that no
    optimizer does.

    Attributes
    ----------
    names : list of str
    parameters : list of Tensor
    ids : frozenset of int
        Of those that it holds.
    every_id : frozenset of int
        Of all of them.
    kind : object
        Another one whenever anything of this changes.
    """

    names: list[str]
    parameters: list[Tensor]
    ids: frozenset[int]
    every_id: frozenset[int]
    kind: object


class Models:
    """What is watched; it follows what is added, frozen and unfrozen.

    Parameters
    ----------
    models : dict of str to Module
        By what their parameters' names begin with.
    optimizers : list of Optimizer
    """

    def __init__(self, models: Mapping[str, nn.Module], optimizers: Sequence[Optimizer]) -> None:
        self.by_prefix = dict(models)
        self._optimizers = list(optimizers)
        self._leaves: list[Leaves] = []
        self._kinds: list[Kind] = []
        self._movers: list[WhoMoves] = []
        self._parameters: dict[str, Tensor] = {}
        self._optimized: frozenset[str] = frozenset()
        self._trained: dict[str, bool] | None = None
        self._frozen: list[str] = []
        self._unfrozen: list[str] = []
        self.held: list[Held] = []
        self.look()

    def look(self) -> bool:
        """Whether anything has changed since the last look: parameters, their flags, or who holds them."""
        leaves = [leaves_of(model) for model in self.by_prefix.values()]
        kinds = [each.trainable()[0] for each in leaves]
        if _are(leaves, self._leaves) and _are(kinds, self._kinds) and all(map(WhoMoves.is_as_before, self._movers)):
            return False
        self._leaves, self._kinds, self._movers = leaves, kinds, list(map(WhoMoves, self._optimizers))
        found: dict[int, tuple[str, Tensor]] = {}
        for prefix, each in zip(self.by_prefix, leaves, strict=True):
            for name, p in each.parameters.items():
                found.setdefault(id(p), (prefix + name, p))
        self._parameters = dict(found.values())
        self._follow_flags()
        self._divide()
        return True

    def _follow_flags(self) -> None:
        trained = {name: p.requires_grad for name, p in self._parameters.items()}
        if self._trained is not None:
            changed = [name for name, now in trained.items() if self._trained.get(name, now) != now]
            self._frozen += [name for name in changed if not trained[name]]
            self._unfrozen += [name for name in changed if trained[name]]
        self._trained = trained

    def _divide(self) -> None:
        """Between the optimizers."""
        ids = [frozenset(map(id, held_by(optimizer))) for optimizer in self._optimizers]
        everyone = frozenset().union(*ids)
        self.held = []
        for own in ids:
            those = {
                name: p
                for name, p in self._parameters.items()
                if p.requires_grad and (id(p) in own or id(p) not in everyone)
            }
            every_id = frozenset(map(id, those.values()))
            self.held.append(Held(list(those), list(those.values()), own, every_id, object()))
        moved = {id(p) for optimizer in self._optimizers for p in held_by(optimizer, moved=True)}
        self._optimized = frozenset(name for name, p in self._parameters.items() if id(p) in moved)

    def changes(self) -> tuple[list[str], list[str]]:
        """What was frozen and unfrozen since this was last asked."""
        changes = self._frozen, self._unfrozen
        self._frozen, self._unfrozen = [], []
        return changes

    @property
    def trainable(self) -> list[Tensor]:
        """All parameters that have gradients."""
        return [p for p in self._parameters.values() if p.requires_grad]

    # The recorder's subject -------------------------------------------------------------------------------------

    def parameters(self) -> Mapping[str, Tensor]:
        """By name."""
        return self._parameters

    def optimized(self) -> Set[str]:
        """Those in a group of some optimizer whose learning rate is not 0."""
        return self._optimized

    def masters(self) -> Mapping[str, Tensor]:
        """None: an optimizer that moves copies holds these, and not the parameters."""
        return {}

    def moments(self) -> Mapping[str, Any]:
        """What the optimizers keep."""
        return {
            name: optimizer.state[p]
            for optimizer in self._optimizers
            for name, p in self._parameters.items()
            if p in optimizer.state
        }

    def n_with_moments(self) -> int:
        """Of how many parameters they keep something."""
        return sum(len(optimizer.state) for optimizer in self._optimizers)


def _are(some: Sequence[object], others: Sequence[object]) -> bool:
    return len(some) == len(others) and all(map(operator.is_, some, others))
