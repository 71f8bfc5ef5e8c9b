"""Training that leaves the user's module as it was: what was trained is kept apart, in a copy."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from gradviz.errors import ModelError
from gradviz.step.model_state import ModelState


class Apart:
    """The values of a run's model, kept in a copy of the module while the module itself has its own.

    The module itself is trained, so that an objective that reads it sees what is trained. Only its values change
    places, before a run and after.
    """

    def __init__(self, module: nn.Module) -> None:
        try:
            self.model_state = ModelState(copy.deepcopy(module))
        except Exception as error:
            raise ModelError(
                f"run(in_place=False) keeps what it trains in a copy of the model, and this {type(module).__name__} "
                f"cannot be copied ({type(error).__name__}: {error}). Write run(in_place=True)."
            ) from error
        self._module = module

    @contextlib.contextmanager
    def lent(self) -> Iterator[None]:
        """The module with the values that are kept apart; afterwards they are apart again, and its own are back."""
        own = [(name, t, t.detach().clone(), t.requires_grad) for name, t in ModelState(self._module).items()]
        self._move(self.model_state, ModelState(self._module))
        try:
            yield
        finally:
            self._move(ModelState(self._module), self.model_state)
            with torch.no_grad():
                for _, t, value, requires_grad in own:
                    t.requires_grad_(requires_grad)
                    t.copy_(value)

    @staticmethod
    def _move(source: ModelState, target: ModelState) -> None:
        tensors: dict[str, Tensor] = dict(target)
        with torch.no_grad():
            for name, t in source.items():
                if name in tensors:
                    tensors[name].copy_(t)
                    tensors[name].requires_grad_(t.requires_grad)
