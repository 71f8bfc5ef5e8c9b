"""Buffers across several forward passes of one step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from torch import Tensor, nn

from gradviz.step.model_state import ModelState
from gradviz.step.tensors import write


class Buffers:
    """The buffers a step began with, for passes that each start from them.

    A pass works on tensors of its own, because an earlier one may have saved its buffers for backward: writing into
    those would change gradients without a word. After backward `settle` writes what is to be kept into the module's own
    tensors, so that whoever holds one sees it move as ever.
    """

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._own = _slots(module)
        self._values = {slot: t.detach().clone() for slot, t in self._own.items()}
        self._laid_out: dict[int, Tensor] = {}

    def lay_out(self) -> None:
        """Put fresh copies of the first values in the buffers' places."""
        for (child, name), value in self._values.items():
            fresh = value.clone()
            self._laid_out[id(fresh)] = fresh
            child._buffers[name] = fresh

    def first_values(self, given: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Copies of the first values, by name, where nothing else is given than the module's own tensors."""
        own = {id(t) for t in self._own.values()} | self._laid_out.keys()
        slots = {id(t): slot for slot, t in _slots(self._module).items()}
        first = {}
        for name, live in ModelState(self._module).buffers.items():
            if (name not in given or id(given[name]) in own) and slots[id(live)] in self._values:
                first[name] = self._values[slots[id(live)]].clone()
        return first

    def restore(self) -> None:
        """Leave the module with the buffers that the step began with."""
        for (child, name), own in self._own.items():
            write(self._values[child, name], own)
            child._buffers[name] = own

    def settle(self, kept: Mapping[tuple[nn.Module, str], Tensor]) -> None:
        """Leave the module with the buffers of the pass that is kept."""
        for (child, name), tensor in kept.items():
            own = self._own.get((child, name))
            if own is not None and (tensor is own or id(tensor) in self._laid_out):
                write(tensor, own)
                tensor = own
            child._buffers[name] = tensor


class BuffersAfter(Mapping[str, Tensor]):
    """The buffers as one forward pass left them."""

    def __init__(self, model_state: ModelState) -> None:
        self._model_state = model_state
        self.slots: dict[tuple[nn.Module, str], Tensor] | None = None
        self._by_name: dict[str, Tensor] = {}

    def hold(self) -> None:
        """Keep them: another pass begins."""
        self._by_name = self._model_state.buffers
        self.slots = _slots(self._model_state.module)

    def __getitem__(self, name: str) -> Tensor:
        return (self._model_state.buffers if self.slots is None else self._by_name)[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._model_state.buffers if self.slots is None else self._by_name)

    def __len__(self) -> int:
        return len(self._model_state.buffers)


def _slots(module: nn.Module) -> dict[tuple[nn.Module, str], Tensor]:
    return {
        (child, name): buffer
        for child in module.modules()
        for name, buffer in child._buffers.items()
        if buffer is not None
    }
