"""A step goes on from what another one was, or refuses it before anything moves."""

from __future__ import annotations

import copy
from functools import partial

import pytest
import torch
from torch import nn

import gradviz as gv
from gradviz.errors import CheckpointError
from gradviz.step import saved

BATCH = (torch.arange(8.0).reshape(4, 2), torch.ones(4, 1))


def made(**options):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Dropout(0.5), nn.Linear(3, 1))
    adam = partial(torch.optim.Adam, lr=0.1)
    return gv.train_step(model, "mean_squared_error", adam, seed=3, **options)


def taken(step, state, n):
    for _ in range(n):
        state = step(BATCH, state)
    return state


@pytest.mark.parametrize("options", [{}, {"policy": gv.Policy(params="bfloat16")}, {"loss_scale": "dynamic"}])
def test_steps_go_on_from_a_state_dict(options):
    whole, part, again = made(**options), made(**options), made(**options)
    end = taken(whole, whole.init(BATCH), 5)
    state = taken(part, part.init(BATCH), 2)
    again.load_state_dict(copy.deepcopy(part.state_dict()))
    leaves = {key: value for key, value in state.items() if key not in ("model_state", "optimizer_state")}
    found = taken(again, saved.step_state(again, leaves), 3)
    assert found.loss == end.loss
    for name, value in whole.state_dict()["model"].items():
        assert torch.equal(value, again.state_dict()["model"][name]), name


def test_its_model_is_as_torch_has_it():
    step = made()
    ours, theirs = step.state_dict()["model"], step.model.state_dict()
    assert list(ours) == list(theirs)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_a_tied_parameter_stands_under_each_of_its_names():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(2, 2), nn.Linear(2, 2)
            self.b.weight = self.a.weight

        def forward(self, x):
            return self.b(self.a(x))

    step = gv.train_step(Tied(), "mean_squared_error", "sgd")
    model = step.state_dict()["model"]
    assert list(model) == list(step.model.state_dict())
    Tied().load_state_dict(model)
    again = gv.train_step(Tied(), "mean_squared_error", "sgd")
    again.load_state_dict(step.state_dict())
    assert torch.equal(again.model.b.weight, model["a.weight"])


def test_a_freeze_that_no_step_has_seen_yet_is_seen_by_the_next_one():
    step = made()
    state = taken(step, step.init(BATCH), 1)
    gv.ModelState(step.model).freeze("0", "1")
    again = made()
    again.load_state_dict(copy.deepcopy(step.state_dict()))
    leaves = {key: value for key, value in state.items() if key not in ("model_state", "optimizer_state")}
    for one, start in ((step, state), (again, saved.step_state(again, leaves))):
        later = one(BATCH, start)
        assert one.report.frozen == ("0.weight", "0.bias", "1.weight", "1.bias")
        one(BATCH, later)
        assert one.report.frozen == ()


def test_buffers_that_grow_and_buffers_that_are_none():
    class Cached(nn.Linear):
        def __init__(self):
            super().__init__(2, 1)
            self.register_buffer("cache", None)
            self.register_buffer("grown", torch.zeros(1), persistent=False)

        def forward(self, x):
            self.cache, self.grown = torch.ones(3), torch.arange(4.0)
            return super().forward(x)

    step = gv.train_step(Cached(), "mean_squared_error", "sgd", strict=False)
    step(BATCH, step.init(BATCH))
    again = gv.train_step(Cached(), "mean_squared_error", "sgd", strict=False)
    again.load_state_dict(copy.deepcopy(step.state_dict()))
    assert again.model.cache.tolist() == [1, 1, 1]
    assert again.model.grown.tolist() == [0, 1, 2, 3]


def test_a_step_of_another_model_is_refused_before_anything_moves():
    step, other = made(), gv.train_step(nn.Linear(2, 1), "mean_squared_error", "adam")
    before = copy.deepcopy(step.state_dict())
    with pytest.raises(CheckpointError, match=r"The checkpoint has 'weight' and 1 more, and the model does not"):
        step.load_state_dict(other.state_dict())
    assert all(torch.equal(value, before["model"][name]) for name, value in step.state_dict()["model"].items())


def test_sharded_parameters_are_refused():
    class FSDPModule(nn.Module):
        pass

    FSDPModule.__module__ = "torch.distributed.fsdp"
    sharded = type("Sharded", (FSDPModule, nn.Linear), {})
    step = gv.train_step(sharded(2, 1), "mean_squared_error", "sgd")
    with pytest.raises(CheckpointError, match="FSDP spreads"):
        step.state_dict()
