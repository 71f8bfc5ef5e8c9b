"""An optimizer from a name, a factory or an instance."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from gradviz.errors import OptimizerError, described, nearest
from gradviz.step.model_state import ModelState

Optimizer = torch.optim.Optimizer
OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {
    name.lower(): kind
    for name, kind in vars(torch.optim).items()
    if isinstance(kind, type) and issubclass(kind, Optimizer) and kind is not Optimizer
}
"""torch.optim's own classes by lower-case name, with torch's defaults."""


def build_optimizer(optimizer: Any, parameters: Iterable[Tensor]) -> Optimizer:
    """The optimizer over `parameters`; an instance is taken as it is.

    Raises
    ------
    OptimizerError
        If the name is unknown, the factory makes something else, or the optimizer holds none of the parameters or
        others than these.
    """
    parameters = list(parameters)
    made = _build(optimizer, parameters)
    known = {id(p) for p in parameters}
    held = [p for group in made.param_groups for p in group["params"]]
    own = sum(id(p) in known for p in held)
    if not own:
        raise OptimizerError(
            f"The {type(made).__name__} holds none of this model's {len(parameters)} parameters, so nothing would "
            "train. Write torch.optim.SGD(model.parameters(), lr=0.1), with this very model."
        )
    if own < len(held):
        raise OptimizerError(
            f"The {type(made).__name__} holds {len(held) - own} of {len(held)} parameters that are not the model's, "
            "which would not be trained. Make what they belong to a part of the model, such as model.loss = loss."
        )
    if isinstance(made, torch.optim.LBFGS):
        raise OptimizerError(
            "LBFGS evaluates the loss several times in a step, which gradviz does not do. Take another "
            'optimizer, such as "adam".'
        )
    return made


def _build(optimizer: Any, parameters: list[Tensor]) -> Optimizer:
    if isinstance(optimizer, Optimizer):
        return optimizer
    if isinstance(optimizer, str):
        if optimizer.lower() not in OPTIMIZERS:
            raise OptimizerError(f"No optimizer is called {optimizer!r}: {nearest(optimizer, OPTIMIZERS)}")
        return OPTIMIZERS[optimizer.lower()](parameters)
    if callable(optimizer):
        made = optimizer(parameters)
        if isinstance(made, Optimizer):
            return made
        raise OptimizerError(f"The optimizer factory returned {described(made)}, not a torch.optim.Optimizer.")
    raise OptimizerError(
        f"An optimizer is a name, a factory or a torch.optim.Optimizer; got {described(optimizer)}. "
        'Write "adam", or functools.partial(torch.optim.SGD, lr=0.1).'
    )


class OptimizerState(Mapping[str, dict[str, Any]]):
    """What the optimizer keeps for each parameter, by the parameter's name; live, empty before the first step."""

    def __init__(self, optimizer: Optimizer, model_state: ModelState) -> None:
        self._optimizer = optimizer
        self._model_state = model_state

    def __getitem__(self, name: str) -> dict[str, Any]:
        state: dict[str, Any] = self._optimizer.state[self._model_state.parameters[name]]
        return state

    def __iter__(self) -> Iterator[str]:
        return (name for name, p in self._model_state.parameters.items() if p in self._optimizer.state)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return f"OptimizerState of {type(self._optimizer).__name__}: {len(self)} parameters"
