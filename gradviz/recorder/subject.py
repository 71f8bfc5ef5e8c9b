"""What is recorded: parameters by name, their gradients at one stage, and the optimizers that move them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from typing import Any, NamedTuple, Protocol

from torch import Tensor


class Gradients(NamedTuple):
    """The gradients of one iteration at one stage.

    Attributes
    ----------
    given : mapping of str to Tensor or None
        By the name of the parameter; None where there is none.
    unused : collection of str
        Those that no path from the loss led to. An optimizer may have been given zeros for one, or what is left of an
        earlier step.
    kind : object
        The same object for as long as the same parameters are trained.
    """

    given: Mapping[str, Tensor | None]
    unused: Collection[str]
    kind: object

    @property
    def reached(self) -> dict[str, Tensor]:
        """Those there are."""
        return {name: gradient for name, gradient in self.given.items() if gradient is not None}


class Subject(Protocol):
    """Who is recorded."""

    def parameters(self) -> Mapping[str, Tensor]:
        """As they are now, in declaration order."""

    def optimized(self) -> Set[str]:
        """Names of those that an optimizer moves; the same object for as long as nothing about it changes."""

    def moments(self) -> Mapping[str, Any]:
        """What the optimizers keep, by the name of the parameter."""

    def n_with_moments(self) -> int:
        """Of how many parameters something is kept: moments appear with an optimizer's first step."""
