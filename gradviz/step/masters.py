"""What the optimizer works on: float32 copies in place of 16-bit parameters.

An update much smaller than a 16-bit parameter rounds away, and torch's Adam keeps its moments in the parameter's
dtype, where small ones underflow to zero and send the parameter to infinity. So the optimizer moves a float32 master,
and the parameter is that, rounded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from gradviz.errors import OptimizerError
from gradviz.step.policy import HALF


class Copy(NamedTuple):
    """The master of a 16-bit parameter, and how the parameter was left when the two last agreed."""

    name: str
    master: nn.Parameter
    dtype: torch.dtype
    left_at: tuple[int, int]


class Masters:
    """A model's parameters as the optimizer sees them; as many as there are copies.

    Parameters
    ----------
    parameters : mapping of str to Parameter
        In declaration order; those in float16 and bfloat16 get a copy, the others stand for themselves.
    before_rounding : mapping of str to Tensor, optional
        What 16-bit parameters were rounded from, so that no digit is lost.

    Attributes
    ----------
    copies : dict
        By parameter; where there are none, there is nothing to do.

    Examples
    --------
    >>> weight = nn.Parameter(torch.ones(1, dtype=torch.bfloat16))
    >>> masters = Masters({"weight": weight})
    >>> optimizer = torch.optim.SGD(masters.optimized, lr=0.001)
    >>> for _ in range(4):
    ...     masters.of(weight).grad = torch.ones(1)
    ...     optimizer.step()
    ...     masters.hand_down()
    >>> masters.of(weight), weight.item()  # on its own, it would have stayed at 1
    (Parameter containing:
    tensor([0.9960], requires_grad=True), 0.99609375)
    """

    def __init__(
        self, parameters: Mapping[str, nn.Parameter], before_rounding: Mapping[str, Tensor] | None = None
    ) -> None:
        self._parameters: dict[str, nn.Parameter] = {}
        self.copies: dict[Tensor, Copy] = {}  # by the parameter itself: an id would not outlive deepcopy or pickle
        for name, p in parameters.items():
            self._add(name, p, (before_rounding or {}).get(name, p))

    def add(self, name: str, p: nn.Parameter) -> Tensor:
        """Take a parameter in that has joined the model, and give what the optimizer works on."""
        self._add(name, p, p)
        return self.of(p)

    def _add(self, name: str, p: nn.Parameter, value: Tensor) -> None:
        replaced = self._parameters.get(name)
        if replaced is not None:
            self.copies.pop(replaced, None)
        self._parameters[name] = p
        if p.dtype in HALF:
            master = nn.Parameter(value.detach().to(p.device, torch.float32, copy=True))
            self.copies[p] = Copy(name, master, p.dtype, _left_at(p))

    @property
    def optimized(self) -> list[Tensor]:
        """For each parameter its master, or itself."""
        return [self.of(p) for p in self._parameters.values()]

    def of(self, p: Tensor) -> Tensor:
        """The master of a parameter, or the parameter itself if it has none."""
        copy = self.copies.get(p)
        return p if copy is None else copy.master

    def of_all(self, parameters: Sequence[Tensor]) -> Sequence[Tensor]:
        """The masters of some parameters, or the parameters themselves."""
        return [self.of(p) for p in parameters] if self.copies else parameters

    def __len__(self) -> int:
        return len(self.copies)

    def widened(self, parameters: Sequence[Tensor], gradients: list[Tensor | None]) -> list[Tensor | None]:
        """The gradients of some parameters as their masters take them: in float32."""
        if not self.copies:
            return gradients
        return [
            gradient.float() if gradient is not None and p in self.copies else gradient
            for p, gradient in zip(parameters, gradients, strict=True)
        ]

    def drop_gradients(self) -> None:
        """No master has a ``.grad``, so that an optimizer leaves it alone."""
        for copy in self.copies.values():
            copy.master.grad = None

    def check(self, parameters: Mapping[str, Tensor]) -> None:
        """Refuse parameters that have become 16-bit since, and that the optimizer would work on as they are.

        Raises
        ------
        OptimizerError
        """
        for name, p in parameters.items():
            if p.dtype in HALF and p not in self.copies and name in self._parameters:
                raise OptimizerError(
                    f"{name} is {str(p.dtype).removeprefix('torch.')} now, and was not when the optimizer was made: it "
                    "has no float32 copy, in which small updates would not be lost. Convert the model first, and then "
                    "make the step or trainer."
                )

    def refresh(self, *, thorough: bool = False) -> None:
        """Take over what somebody else wrote into 16-bit parameters since the last step.

        Entries that the master rounds to were not really written, and keep the master's digits.

        Parameters
        ----------
        thorough : bool
            Look at the values of all. Else only of those that were written into by the version that torch counts, or
            given other data: writing in place through ``.data`` leaves no such trace, and is overwritten by the next
            step.

        Raises
        ------
        OptimizerError
            If a parameter has moved to another device or dtype, away from its master and the optimizer's state.
        """
        for p, copy in self.copies.items():
            if p.dtype != copy.dtype or p.device != copy.master.device:
                raise OptimizerError(
                    f"{copy.name} was {copy.dtype} on {copy.master.device} when the optimizer was made, and is "
                    f"{p.dtype} on {p.device} now. Move or convert the model first, and then make the step or trainer."
                )
        for p, copy in self.copies.items():
            left_at = _left_at(p)
            if left_at == copy.left_at and not thorough:
                continue
            with torch.no_grad():
                rounded = copy.master.to(p.dtype)
                same = (rounded == p) | (rounded.isnan() & p.isnan())
                copy.master.copy_(torch.where(same, copy.master, p))
            self.copies[p] = copy._replace(left_at=left_at)

    def state_dict(self) -> dict[str, Tensor]:
        """The masters by the names of their parameters."""
        return {copy.name: copy.master.detach() for copy in self.copies.values()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take over the masters of parameters that have been written back to what they were."""
        with torch.no_grad():
            for p, copy in list(self.copies.items()):
                copy.master.copy_(state[copy.name])
                self.copies[p] = copy._replace(left_at=_left_at(p))

    def hand_down(self) -> None:
        """Round the masters that had a gradient into their parameters, after a step; others stay as they are."""
        copies = {p: copy for p, copy in self.copies.items() if copy.master.grad is not None}
        if not copies:
            return
        with torch.no_grad():
            torch._foreach_copy_(list(copies), [copy.master for copy in copies.values()])
        for p, copy in copies.items():
            self.copies[p] = copy._replace(left_at=_left_at(p))


def _left_at(p: Tensor) -> tuple[int, int]:
    """Changes when a parameter is written into (its version) or given other data (its place in memory)."""
    return p._version, p.data_ptr()
