"""What is recorded: parameters by name, their gradients at one stage, and the optimizers that move them."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from gradviz.grad.algebra import is_incomplete
from gradviz.history.schema import Parameter


@dataclass(frozen=True, eq=False)
class Gradients:
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

    @functools.cached_property
    def reached(self) -> Mapping[str, Tensor]:
        """Those there are."""
        if not is_incomplete(self.given.values()):
            return self.given  # type: ignore[return-value]
        return {name: gradient for name, gradient in self.given.items() if gradient is not None}


class Subject(Protocol):
    """Who is recorded."""

    def parameters(self) -> Mapping[str, Tensor]:
        """As they are now, in declaration order."""

    def optimized(self) -> Set[str]:
        """Names of those that an optimizer moves; the same object for as long as nothing about it changes."""

    def masters(self) -> Mapping[str, Tensor]:
        """What the optimizers move in place of 16-bit parameters, by the name of the parameter."""

    def moments(self) -> Mapping[str, Any]:
        """What the optimizers keep, by the name of the parameter."""

    def n_with_moments(self) -> int:
        """Of how many parameters something is kept: moments appear with an optimizer's first step."""


def describe(name: str, tensor: Tensor) -> Parameter:
    """A parameter as the history knows it."""
    return Parameter(name=name, shape=tuple(tensor.shape), dtype=in_words(tensor.dtype))


class Form(NamedTuple):
    """How a tensor is stored, as texts."""

    dtype: str
    device: str

    @classmethod
    def of(cls, tensor: Tensor) -> Form:
        """That of a tensor."""
        return cls(in_words(tensor.dtype), str(tensor.device))


def in_words(dtype: torch.dtype) -> str:
    """Without the name of the library."""
    return str(dtype).removeprefix("torch.")
