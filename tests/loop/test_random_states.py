"""Random streams are found wherever data holds them, and stand afterwards as they did."""

from __future__ import annotations

import random
from functools import partial

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, RandomSampler, Subset, TensorDataset

from gradviz.loop.random_states import MOST_ITEMS, put_back, put_back_in, random_states, streams_in, undrawn


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


class Noisy(TensorDataset):
    def __init__(self):
        super().__init__(torch.arange(100.0))
        self.streams = {
            "torch": torch.Generator().manual_seed(1),
            "numpy": np.random.default_rng(1),
            "old": np.random.RandomState(1),
            "python": random.Random(1),
        }
        self.itself = self

    def draw(self):
        s = self.streams
        return torch.rand(1, generator=s["torch"]).item(), s["numpy"].random(), s["old"].rand(), s["python"].random()


def test_streams_of_a_data_set_are_found_however_deep():
    data_set = Noisy()
    loader = DataLoader(Subset(data_set, range(10)), generator=torch.Generator().manual_seed(2), shuffle=True)
    for data in (loader, partial(list, loader), lambda epoch: loader, data_set.draw):
        states = streams_in(data)
        first = data_set.draw(), [x.item() for (x,) in loader]
        put_back_in(data, states)
        again = data_set.draw(), [x.item() for (x,) in loader]
        assert first[0] == again[0]
        if data != data_set.draw:
            assert first[1] == again[1]
            assert len(states) == 5  # the loader's and its sampler's are one


def test_a_sampler_s_own_stream_is_found():
    sampler = RandomSampler(range(20), replacement=True, generator=torch.Generator().manual_seed(0))
    loader = DataLoader(torch.arange(20), sampler=sampler)
    states = streams_in(loader)
    first = [x.item() for x in loader]
    put_back_in(loader, states)
    assert [x.item() for x in loader] == first


def test_data_is_not_searched():
    streams = [random.Random() for _ in range(MOST_ITEMS + 1)]
    assert streams_in(streams) == {}
    assert len(streams_in(streams[:MOST_ITEMS])) == MOST_ITEMS


def test_streams_that_are_not_there_are_passed_over():
    put_back_in([1, 2], {".generator": torch.Generator().get_state()})
    put_back_in(Noisy(), {})


@pytest.mark.parametrize("is_warm", [False, True])
def test_persistent_workers_are_there_if_they_were(is_warm):
    """A loader draws one number less when its workers are there."""

    def made():
        return DataLoader(torch.arange(8), shuffle=True, num_workers=1, persistent_workers=True)

    first = made()
    if is_warm:
        list(first)
    streams, states = streams_in(first), random_states()
    order = [x.item() for x in first]
    second = made()
    put_back_in(second, streams)
    put_back(states)
    assert [x.item() for x in second] == order
    put_back_in(first, streams)
    put_back(states)
    assert [x.item() for x in first] == order
