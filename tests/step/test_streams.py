"""Random streams are found wherever what draws from them holds them, and stand afterwards as they did."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from functools import lru_cache, partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler, Subset, TensorDataset

from gradviz.loop.random_states import put_back, random_states
from gradviz.step.streams import MOST_ITEMS, put_back_in, states_in, unsaved_in
from tests.step import streams_of_a_module


def streams_of(data):
    return states_in({"data": data})


def go_back(data, states):
    put_back_in({"data": data}, states)


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
        states = streams_of(data)
        first = data_set.draw(), [x.item() for (x,) in loader]
        go_back(data, states)
        again = data_set.draw(), [x.item() for (x,) in loader]
        assert first[0] == again[0]
        if data != data_set.draw:
            assert first[1] == again[1]
            assert len(states) == 5  # the loader's and its sampler's are one


def test_a_sampler_s_own_stream_is_found():
    sampler = RandomSampler(range(20), replacement=True, generator=torch.Generator().manual_seed(0))
    loader = DataLoader(torch.arange(20), sampler=sampler)
    states = streams_of(loader)
    first = [x.item() for x in loader]
    go_back(loader, states)
    assert [x.item() for x in loader] == first


def test_data_is_not_searched():
    holders = [[random.Random()] for _ in range(MOST_ITEMS + 1)]
    assert streams_of(holders) == {}
    assert len(streams_of(holders[:MOST_ITEMS])) == MOST_ITEMS
    assert len(streams_of([holder[0] for holder in holders])) == len(holders)  # a stream for each example, say


GLOBAL = np.random.default_rng(1)
KEPT = {"generator": torch.Generator().manual_seed(1)}


def helper():
    return GLOBAL.random()


class OfTheClass:
    stream = random.Random(3)

    def draw(self):
        return self.stream.random()


class InAMethod(Dataset):
    def __getitem__(self, place):
        return GLOBAL.random()


class InAnInheritedMethod(InAMethod):
    pass


class InAComprehension:
    @staticmethod
    def several():
        return max([(lambda: GLOBAL.random())() for _ in range(1)])


class InAProperty:
    @property
    def number(self):
        return GLOBAL.random()


@dataclass(slots=True)
class Slotted:
    stream: random.Random = field(default_factory=lambda: random.Random(1))


class Drawing(nn.Module):
    def __init__(self):
        super().__init__()
        self.many = nn.ModuleList([nn.Linear(1, 1) for _ in range(100)])
        self.many[-1].register_forward_hook(lambda module, inputs, output: output + helper())

    def forward(self, x):
        return x


def by_default(x, stream=GLOBAL):
    return stream.random()


def drawing_from_elsewhere():
    return streams_of_a_module.noisy(0.0)


@lru_cache
def remembered():
    return helper()


bound = GLOBAL.random


def of_a_mapping():
    return torch.rand(1, generator=KEPT["generator"]).item()


def calls_what_is_bound():
    return bound()


class_drawn, slotted, comprehension, of_property = OfTheClass(), Slotted(), InAComprehension(), InAProperty()
PLACES = {
    "a helper": (helper, helper),
    "a function that calls a helper": (lambda: helper(), helper),
    "a method": (InAMethod(), lambda: InAMethod()[0]),
    "an inherited method": (InAnInheritedMethod(), lambda: InAnInheritedMethod()[0]),
    "a class that a function makes": (lambda: InAMethod(), lambda: InAMethod()[0]),
    "an attribute of a class": (class_drawn, class_drawn.draw),
    "a comprehension in a static method": (comprehension, comprehension.several),
    "a property": (of_property, lambda: of_property.number),
    "a slot": (slotted, lambda: slotted.stream.random()),
    "a default": (by_default, lambda: by_default(1)),
    "another module": (drawing_from_elsewhere, drawing_from_elsewhere),
    "a cached function": (remembered, helper),
    "a bound method": (calls_what_is_bound, bound),
    "a global container": (of_a_mapping, of_a_mapping),
    "a deque": (deque([slotted]), lambda: slotted.stream.random()),
    "a hook of the hundredth module": (Drawing(), helper),
    "a collate function": (DataLoader([1.0], collate_fn=lambda xs: helper()), helper),
    "a bit generator": (lambda bits=GLOBAL.bit_generator: bits, helper),
}


@pytest.mark.parametrize("name", PLACES)
def test_found_in(name):
    holder, draw = PLACES[name]
    states = streams_of(holder)
    first = draw()
    go_back(holder, states)
    assert draw() == first
    assert len(states) == 1


def test_a_model_s_tensors_and_gradviz_itself_are_not_searched():
    import gradviz as gv

    loop = gv.trainer(nn.Linear(1, 1), "mean_squared_error", "sgd")
    stream = random.Random(1)
    loop.handle_event("started", lambda state: stream.random() and None)
    assert streams_of([loop]) == {}
    assert streams_of(nn.Linear(1, 1)) == {}


def test_an_object_that_cannot_be_looked_at_is_passed_over():
    class Touchy:
        def __getattribute__(self, name):
            raise RuntimeError(name)

    stream = random.Random()
    assert list(streams_of([Touchy(), stream])) == ["data[1]"]


def test_what_cannot_be_put_back_is_named():
    held = [random.SystemRandom(), random.Random()]
    assert list(streams_of(held)) == ["data[1]"]
    assert unsaved_in({"data": held}) == ["data[0] (a SystemRandom has no state to save)"]
    loader = DataLoader(Noisy(), num_workers=1, persistent_workers=True)
    named = unsaved_in({"data": loader})
    assert len(named) == 4
    assert "data.dataset.streams['torch'] (persistent workers draw from copies of it)" in named
    assert unsaved_in({"data": DataLoader(Noisy(), num_workers=1)}) == []


def test_streams_that_are_not_there_are_passed_over():
    go_back([1, 2], {"data.generator": torch.Generator().get_state()})
    go_back(Noisy(), {})


@pytest.mark.parametrize("is_warm", [False, True])
def test_persistent_workers_are_there_if_they_were(is_warm):
    """A loader draws one number less when its workers are there."""

    def made():
        return DataLoader(torch.arange(8), shuffle=True, num_workers=1, persistent_workers=True)

    first = made()
    if is_warm:
        list(first)
    streams, states = streams_of(first), random_states()
    order = [x.item() for x in first]
    second = made()
    go_back(second, streams)
    put_back(states)
    assert [x.item() for x in second] == order
    go_back(first, streams)
    put_back(states)
    assert [x.item() for x in first] == order
