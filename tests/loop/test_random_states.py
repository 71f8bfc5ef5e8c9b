"""The process's random streams stand afterwards as they did."""

from __future__ import annotations

import random

import numpy as np
import torch

from gradviz.loop.random_states import put_back, random_states, undrawn


def drawn():
    return torch.rand(1).item(), random.random(), random.gauss(0, 1), np.random.rand(), np.random.normal()


def test_the_process_s_streams_stand_as_they_did():
    drawn()  # half of a pair of normal numbers is kept for the next time
    states = random_states()
    first = drawn()
    put_back(states)
    assert drawn() == first
    put_back(states)
    with undrawn():
        assert drawn() == first
    assert drawn() == first
