"""A user's module, with a random stream of its own behind functions and a class."""

from __future__ import annotations

import numpy as np

RNG = np.random.default_rng(1)


def noise() -> float:
    return float(RNG.random())


def noisy(x: float) -> float:
    return x + noise()
