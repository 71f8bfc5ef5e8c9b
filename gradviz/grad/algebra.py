"""`Grad`: the gradient of a loss with respect to a model's parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor


class Grad(Mapping[str, Tensor]):
    """Gradients by parameter name, in declaration order; frozen parameters are not among them.

    A parameter that the loss never reached reads as zeros of its shape and dtype and is listed in `unused`: no path
    and a gradient of zero are different things.

    Parameters
    ----------
    parameters : mapping of str to Tensor
        The parameters differentiated, in declaration order.
    gradients : sequence of Tensor or None
        One for each parameter; None where there is no path from the loss.

    Examples
    --------
    >>> w, b = torch.ones(2, requires_grad=True), torch.ones(1, requires_grad=True)
    >>> g = Grad({"w": w, "b": b}, torch.autograd.grad((3 * w).sum(), [w, b], allow_unused=True))
    >>> g["w"], g["b"], g.unused
    (tensor([3., 3.]), tensor([0.]), ('b',))
    """

    def __init__(self, parameters: Mapping[str, Tensor], gradients: Sequence[Tensor | None]) -> None:
        self._parameters = dict(parameters)
        self._gradients = dict(zip(parameters, gradients, strict=True))

    @property
    def unused(self) -> tuple[str, ...]:
        """Names of the parameters that the loss never reached."""
        return tuple(name for name, gradient in self._gradients.items() if gradient is None)

    @property
    def given(self) -> Mapping[str, Tensor | None]:
        """What autograd gave: None where there is no path, which an optimizer must not see as zeros."""
        return self._gradients

    def __getitem__(self, name: str) -> Tensor:
        gradient = self._gradients[name]
        # Zeros are made when somebody looks: an unused head costs no memory.
        return torch.zeros_like(self._parameters[name], requires_grad=False) if gradient is None else gradient

    def __iter__(self) -> Iterator[str]:
        return iter(self._gradients)

    def __len__(self) -> int:
        return len(self._gradients)

    def __repr__(self) -> str:
        lines = [
            f"  {name}: {tuple(p.shape)} {str(p.dtype).removeprefix('torch.')}" for name, p in self._parameters.items()
        ]
        return "\n".join([f"Grad of {len(self)} parameters", *lines])
