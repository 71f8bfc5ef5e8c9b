"""A random stream of a step's own."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn


class RandomStream(contextlib.AbstractContextManager[None]):
    """Within it torch draws from a stream that goes on from one time to the next; outside, the caller's are untouched.

    Examples
    --------
    >>> stream = RandomStream(nn.Linear(1, 1), seed=3)
    >>> with stream: first = torch.rand(2)
    >>> with stream: second = torch.rand(2)
    >>> torch.equal(torch.cat((first, second)), torch.rand(4, generator=torch.Generator().manual_seed(3)))
    True
    """

    def __init__(self, model: nn.Module, seed: int) -> None:
        if isinstance(seed, bool) or not isinstance(seed, int) or not -(2**63) <= seed < 2**64:
            raise ValueError(f"seed is a whole number of 64 bits; got {seed!r}.")
        self._seed = int(seed)
        self._model = model
        self._devices: list[int] = []
        self._states: list[Tensor] | None = None
        self._outside: Any = None

    def __enter__(self) -> None:
        if self._states is None:
            self._devices = self._devices_now()
        self._outside = torch.random.fork_rng(devices=self._devices)
        self._outside.__enter__()
        for place, generator in enumerate(self._generators()):
            if self._states is None:
                generator.manual_seed(self._seed)
            else:
                generator.set_state(self._states[place])

    def __exit__(self, *error: Any) -> None:
        self._states = [generator.get_state() for generator in self._generators()]
        self._outside.__exit__(*error)
        self._outside = None

    def state_dict(self) -> dict[str, Any]:
        """How far it is: the states of the CPU's generator and those of the GPUs; None before its first time."""
        return {"states": self._states}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there; a GPU that was not there then begins with the seed."""
        self._states, self._devices = None, self._devices_now()
        if state["states"] is not None:
            fresh = [generator.clone_state().manual_seed(self._seed).get_state() for generator in self._generators()]
            self._states = [*state["states"], *fresh[len(state["states"]) :]][: len(fresh)]

    def _devices_now(self) -> list[int]:
        return sorted({p.device.index for p in self._model.parameters() if p.device.type == "cuda"})

    def _generators(self) -> list[torch.Generator]:
        return [torch.default_generator, *(torch.cuda.default_generators[device] for device in self._devices)]
