"""What is recorded: parameters by name, their gradients at one stage, and the optimizers that move them."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence, Set
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from gradviz.history.schema import Parameter


class Gradients:
    """The gradients of one iteration at one stage.

    Parameters
    ----------
    names : sequence of str
        Of the parameters.
    given : sequence of Tensor or None
        One for each; None where there is none.
    unused : collection of str
        Those that no path from the loss led to, and so each whose gradient is None. An optimizer may have been given
        zeros for one, or what is left of an earlier step.
    kind : object
        The same object for as long as the same parameters are trained.

    Attributes
    ----------
    tensors : sequence of Tensor
        Those there are.
    """

    def __init__(
        self, names: Sequence[str], given: Sequence[Tensor | None], unused: Collection[str], kind: object
    ) -> None:
        self.unused, self.kind = unused, kind
        self._names = names
        self.tensors: Sequence[Tensor] = given  # type: ignore[assignment]
        if unused:
            there = [(name, gradient) for name, gradient in zip(names, given, strict=True) if gradient is not None]
            self._names, self.tensors = [name for name, _ in there], [gradient for _, gradient in there]

    @property
    def reached(self) -> dict[str, Tensor]:
        """Those there are, by the name of the parameter: made when somebody asks, which a small step can feel."""
        return dict(zip(self._names, self.tensors, strict=True))

    def with_tensors(self, tensors: Sequence[Tensor]) -> Gradients:
        """Other tensors in the places of those there are."""
        made = copy.copy(self)
        made.tensors = tensors
        return made


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
