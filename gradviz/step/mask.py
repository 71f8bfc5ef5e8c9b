"""Which parameters are trained, and what changed since the step before.

A freeze or an unfreeze between two steps, by `ModelState`, by a handler or by the user's own ``requires_grad_``, is
seen at the next step.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from gradviz.errors import ModelError, OptimizerError
from gradviz.grad.leaves import Kind, Leaves, leaves_of, walk
from gradviz.step import stillness
from gradviz.step.masters import Masters
from gradviz.step.optimizers import WhoMoves, held_by
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
        kind, parameters = leaves.trainable()
        return cls(leaves, kind, parameters)


_BY_NOBODY: Mapping[str, str] = {}  # never written to


class Mask:
    """The trainable parameters of one model, as a step finds them."""

    def __init__(self, model: nn.Module, masters: Masters, optimizer: torch.optim.Optimizer) -> None:
        self._model = model
        self._masters = masters
        self._optimizer = optimizer
        self._kind: Kind | None = None
        self._stillness = stillness.changes()
        self._parameters: dict[str, nn.Parameter] = {}
        self._trained: dict[str, bool] = {}
        self._still: set[nn.Module] = set()
        self._frozen_at_first: frozenset[str] = frozenset()
        self._frozen: list[str] = []
        self._unfrozen: list[str] = []
        self._by: dict[str, str] = {}
        self._noted = _Notes([], stillness.changes())
        self._actor = "user"
        self._optimized: frozenset[str] = frozenset()
        self._optimized_of: tuple[Leaves, WhoMoves] | None = None

    def has_changed(self, found: Found) -> bool:
        """Whether something was frozen, unfrozen, added or replaced since the last look."""
        is_still = stillness.changes() == self._stillness
        return not (is_still and (found.kind is self._kind or self._is_as_before(found)))

    def look(self, found: Found) -> bool:
        """Whether anything changed since the last look.

        A parameter that was unfrozen, and that the optimizer has in no group, joins its first.

        Raises
        ------
        OptimizerError
            If a parameter was replaced by one that the optimizer does not hold, or cannot take in.
        ModelError
            If DDP would not reduce what was unfrozen.
        """
        if not self.has_changed(found):
            self._kind = found.kind
            return False
        is_first, parameters = not self._trained, found.leaves.parameters
        trained = {name: p.requires_grad for name, p in parameters.items()}
        still = stillness.held_still(self._model)
        if is_first:
            self._frozen_at_first = found.kind.frozen
        else:
            changed = [name for name, now in trained.items() if self._trained.get(name, now) != now]
            unfrozen = [name for name in changed if trained[name]]
            self._check_held(parameters)
            self._check_reduced(found.leaves, unfrozen)
            if unfrozen:
                self._masters.refresh(thorough=True)  # what is frozen is often written into, through .data too
            self._adopt({name: parameters[name] for name in unfrozen})
            unfrozen += self._buffers_of(self._still - still, changed)
            frozen = [name for name in changed if not trained[name]] + self._buffers_of(still - self._still, changed)
            self._frozen += frozen
            self._unfrozen += unfrozen
            self._by |= self._noted.by([*frozen, *unfrozen])
        self._drop_gradients_of_others(parameters)
        self._kind, self._stillness = found.kind, stillness.changes()
        self._parameters, self._trained, self._still = dict(parameters), trained, still
        self._noted = _Notes(list(parameters.items()), self._stillness)
        return True

    @contextlib.contextmanager
    def acting(self, by: str) -> Iterator[None]:
        """What is frozen or unfrozen inside is so by this one; outside it is the user."""
        self._noted.take(self._actor)
        before, self._actor = self._actor, by
        try:
            yield
        finally:
            self._noted.take(by)
            self._actor = before

    def changes(self) -> tuple[tuple[str, ...], tuple[str, ...], Mapping[str, str]]:
        """What was frozen and unfrozen since this was last asked: parameters, and buffers without them; and by whom."""
        if not self._frozen and not self._unfrozen:
            return (), (), _BY_NOBODY
        changes = tuple(self._frozen), tuple(self._unfrozen), self._by
        self._frozen, self._unfrozen, self._by = [], [], {}
        return changes

    def state_dict(self) -> dict[str, Any]:
        """What was trained and what was held still at the last look, by name and path; who has changed it since."""
        self._noted.take(self._actor)
        return {
            "by": dict(self._noted.by_name),
            "trained": dict(self._trained),
            "still": [path for path, m in stillness.by_path(self._model) if m in self._still],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Have looked then: what has been frozen since shows at the next look, and nothing else does.

        It comes before the flags themselves.
        """
        leaves = leaves_of(self._model)
        if not self._trained:
            self._frozen_at_first = leaves.trainable()[0].frozen
        self._kind, self._parameters = None, dict(leaves.parameters)
        self._trained = dict(state["trained"])
        self._still = {module for path, module in stillness.by_path(self._model) if path in state["still"]}
        self._frozen, self._unfrozen, self._by = [], [], {}
        self._noted = _Notes(list(leaves.parameters.items()), stillness.changes())
        self._noted.go_on(self._trained, state.get("by", {}))

    @property
    def holds_still(self) -> bool:
        """Whether some module has to stay in eval mode: something is frozen."""
        return bool(self._still)

    def _buffers_of(self, modules: set[nn.Module], changed: list[str]) -> list[str]:
        """Names of the buffers of some modules, but for those whose parameters say it already."""
        names: dict[str, None] = {}
        for path, child in walk(self._model) if modules else ():
            if child in modules and not any(path + name in changed for name in child._parameters):
                names |= dict.fromkeys(path + name for name, buffer in child._buffers.items() if buffer is not None)
        return list(names)

    def _is_as_before(self, found: Found) -> bool:
        """Whether a model that was looked at anew, since many others were in between, is what it was."""
        kind, before = found.kind, self._kind
        if before is None or kind != before or (kind.dtypes, kind.buffers) != (before.dtypes, before.buffers):
            return False
        pairs = zip(found.leaves.parameters.values(), self._parameters.values(), strict=False)
        return len(found.leaves.parameters) == len(self._parameters) and all(p is q for p, q in pairs)

    def _drop_gradients_of_others(self, parameters: dict[str, nn.Parameter]) -> None:
        """What has left the model, and the optimizer still holds, is not moved by the last gradient it had."""
        known = {id(self._masters.of(p)) for p in parameters.values()}
        for p in held_by(self._optimizer):
            if id(p) not in known:
                p.grad = None

    def _check_held(self, parameters: dict[str, nn.Parameter]) -> None:
        """Refuse parameters that have taken the places of those that the optimizer holds: they would never train."""
        held = set(map(id, held_by(self._optimizer)))
        for name, p in parameters.items():
            is_another = self._parameters.get(name, p) is not p
            if is_another and p.requires_grad and id(self._masters.of(p)) not in held:
                raise OptimizerError(
                    f"{name!r} is another tensor than the one the {type(self._optimizer).__name__} holds, so it would "
                    "never train. Load values without assign=True, and make a new step or trainer where you put in "
                    "another module."
                )

    def optimized(self, leaves: Leaves) -> frozenset[str]:
        """Names of the parameters that the optimizer moves: in a group whose learning rate is not 0."""
        seen = self._optimized_of
        if seen is None or seen[0] is not leaves or not seen[1].is_as_before():
            self._optimized_of = leaves, WhoMoves(self._optimizer)
            held = set(map(id, held_by(self._optimizer, moved=True)))
            self._optimized = frozenset(
                name for name, p in leaves.parameters.items() if id(self._masters.of(p)) in held
            )
        return self._optimized

    def check_unfreeze(self, leaves: Leaves, names: Collection[str]) -> None:
        """Refuse to unfreeze what the next look would refuse to train.

        Raises
        ------
        OptimizerError
            If the optimizer cannot take it in.
        ModelError
            If DDP would not reduce it.
        """
        self._check_reduced(leaves, names)
        held = set(map(id, held_by(self._optimizer)))
        for name in names:
            if id(self._masters.of(leaves.parameters[name])) not in held:
                self._check_joins(name)

    def _adopt(self, parameters: dict[str, nn.Parameter]) -> None:
        held = set(map(id, held_by(self._optimizer)))
        for name, p in parameters.items():
            if self._masters.of(p) is p:  # it has joined the model since
                self._masters.add(name, p)
            if id(self._masters.of(p)) not in held:
                self._join(name, self._masters.of(p))

    def _check_reduced(self, leaves: Leaves, unfrozen: Collection[str]) -> None:
        """Refuse what DDP may not have taken in, being frozen: its gradient would stay this process's own."""
        late = [name for name in unfrozen if name in self._frozen_at_first]
        if late and leaves.wrapper == "DistributedDataParallel":
            raise ModelError(
                f"{late[0]!r} was frozen when the step was made, and DistributedDataParallel reduces only what was "
                "trainable when it was made. Unfreeze, wrap the model anew, and make a new step or trainer."
            )

    def _check_joins(self, name: str) -> None:
        if needs_closure(self._optimizer):
            raise OptimizerError(
                f"{name!r} was unfrozen, and {type(self._optimizer).__name__} cannot take it in on the way. Make it "
                "over all parameters from the start: gradients come for the trainable ones only."
            )

    def _join(self, name: str, p: Tensor) -> None:
        self._check_joins(name)
        group = self._optimizer.param_groups[0]
        group["params"].append(p)
        if "param_names" in group:
            group["param_names"].append(name)


class _Notes:
    """Who froze and unfroze what since a look, as far as anybody was told.

    Parameters
    ----------
    parameters : sequence of (name, parameter)
        As that look has found them.
    freezes : int
        What `stillness.changes` had counted then.
    """

    def __init__(self, parameters: Sequence[tuple[str, nn.Parameter]], freezes: int) -> None:
        self._parameters = parameters
        self._flags = self._now()
        self._freezes = freezes
        self.by_name: dict[str, str] = {}
        self._by_of_buffers: str | None = None

    def go_on(self, trained: Mapping[str, bool], by: Mapping[str, str]) -> None:
        """Have looked when this was trained, and have noted this since."""
        self._flags = [trained.get(name, p.requires_grad) != (name in by) for name, p in self._parameters]
        self.by_name = dict(by)

    def take(self, by: str) -> None:
        """What is not noted yet was done by this one."""
        flags = self._now()
        if flags != self._flags:
            for (name, _), was, is_now in zip(self._parameters, self._flags, flags, strict=True):
                if was != is_now:
                    self.by_name[name] = by
            self._flags = flags
        if stillness.changes() != self._freezes:
            self._freezes, self._by_of_buffers = stillness.changes(), by

    def by(self, names: Collection[str]) -> dict[str, str]:
        """By name; buffers, which have no flag, by whoever froze any last, or all the parameters."""
        self.take("user")
        of_parameters = {name for name, _ in self._parameters}
        everybody = set(self.by_name.values())
        of_buffers = self._by_of_buffers or (everybody.pop() if len(everybody) == 1 else "user")
        return {name: self.by_name.get(name, "user") if name in of_parameters else of_buffers for name in names}

    def _now(self) -> list[bool]:
        return [p.requires_grad for _, p in self._parameters]
