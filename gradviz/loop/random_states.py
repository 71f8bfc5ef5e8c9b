"""Random streams: the process's own, and those that what takes part in a run draws from."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch


class Moment(NamedTuple):
    """How random streams stand: those of the process, and those of what takes part, by the place that leads to them."""

    random: dict[str, Any]
    streams: dict[str, Any]


def random_states() -> dict[str, Any]:
    """How the streams of torch, of its GPUs once they are used, of Python and of numpy stand."""
    states = {"torch": torch.get_rng_state(), "python": random.getstate(), "numpy": np.random.get_state()}
    if torch.cuda.is_initialized():
        states["cuda"] = torch.cuda.get_rng_state_all()
    return states


def put_back(states: dict[str, Any]) -> None:
    """Let the process's streams stand as they did.

    Examples
    --------
    >>> states = random_states()
    >>> first = torch.rand(1), random.random(), np.random.rand()
    >>> put_back(states)
    >>> first == (torch.rand(1), random.random(), np.random.rand())
    True
    """
    torch.set_rng_state(states["torch"])
    random.setstate(states["python"])
    np.random.set_state(states["numpy"])
    devices = torch.cuda.device_count() if "cuda" in states else 0
    for device, state in enumerate(states.get("cuda", [])[:devices]):
        torch.cuda.set_rng_state(state, device)


@contextlib.contextmanager
def undrawn() -> Iterator[None]:
    """Whatever is drawn inside, the process's streams stand afterwards as they did before."""
    states = random_states()
    try:
        yield
    finally:
        put_back(states)
