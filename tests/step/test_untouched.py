"""A trial leaves no trace."""

from __future__ import annotations

import random
from collections import deque

import numpy as np
import pytest
import torch
from torch import nn

from gradviz.step.train_step import train_step
from gradviz.step.untouched import untouched


class Busy(nn.Module):
    """Does in its forward pass what a well-behaved module doesn't."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.follower = nn.Linear(3, 2), nn.Linear(3, 2).requires_grad_(False)
        self.norm = nn.BatchNorm1d(2)
        self.register_buffer("mean", torch.zeros(2))
        self.register_buffer("constant", torch.zeros(1, 2).expand(4, 2))
        self.seen: list[int] = []
        self.counts = np.zeros(2)
        self.table: dict[str, int] = {}
        self.calls = 0
        self.generator = torch.Generator().manual_seed(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.seen.append(self.calls)
        self.table["calls"] = self.calls
        self.counts += 1
        noise = torch.randn(2, generator=self.generator)
        hidden = self.norm(self.linear(x)) + noise
        self.mean = 0.5 * self.mean + hidden.detach().mean(0)
        with torch.no_grad():
            self.follower.weight.lerp_(self.linear.weight, 0.5)
        return hidden + torch.rand(2) + self.constant[0]


def picture(model: Busy) -> list[object]:
    tensors = [t.clone() for t in (*model.parameters(), *model.buffers())]
    rest = [list(model.seen), model.counts.copy(), dict(model.table), model.calls, model.generator.get_state()]
    return [*tensors, *rest, torch.get_rng_state()]


def same(one: object, two: object) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, two)
    return np.array_equal(one, two) if isinstance(one, np.ndarray) else one == two


def test_everything_a_module_holds_is_put_back_on_errors_too():
    model, x = Busy(), torch.randn(8, 3)
    mean = model.mean
    before = picture(model)
    with untouched(model):
        model(x)
        assert not all(map(same, before, picture(model)))
    assert all(map(same, before, picture(model)))
    assert model.mean is mean

    def fail() -> None:
        with untouched(model):
            model(x)
            raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        fail()
    assert all(map(same, before, picture(model)))


def test_init_leaves_such_a_model_and_a_loss_with_state_as_they_were():
    class Centred(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("centre", torch.zeros(2))

        def forward(self, prediction: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            self.centre = 0.9 * self.centre + 0.1 * prediction.detach().mean(0)
            return (prediction - self.centre - targets).square().mean()

    model, loss = Busy(), Centred()
    batch = torch.randn(8, 3), torch.randn(8, 2)
    before = picture(model)
    train_step(model, loss, "sgd").init(batch)
    assert all(map(same, before, picture(model)))
    assert loss.centre.tolist() == [0, 0]


def test_a_scripted_model_can_be_tried():
    model = torch.jit.script(nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)))
    before = [t.clone() for t in model.state_dict().values()]
    with untouched(model):
        model(torch.randn(4, 3))
    assert all(map(torch.equal, before, model.state_dict().values()))


class Deep(nn.Module):
    """Keeps what it has seen in places that are not buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.ema = torch.zeros(2)
        self.log = {"a": [1.0], "b": {"c": deque([1, 2], maxlen=2)}}
        self.parts = ([torch.zeros(1)], np.zeros(2))
        self.python, self.numpy, self.old = random.Random(1), np.random.default_rng(1), np.random.RandomState(1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        self.ema += y.detach().mean(0)
        self.log["a"].append(self.python.random() + self.numpy.random() + self.old.rand())
        self.log["b"]["c"].append(3)
        self.log["new"] = 1
        self.parts[0][0] += 1
        self.parts[1][:] = 5
        return y


def test_what_a_module_keeps_beside_its_buffers_is_put_back_too():
    model, twin = Deep(), Deep()
    ema, log, nested, first = model.ema, model.log, model.log["b"]["c"], model.parts[0][0]
    with untouched(model):
        model(torch.ones(4, 3))
        model.linear.requires_grad_(False)
        model.parts[0].append(torch.ones(1))
    assert model.ema is ema
    assert ema.tolist() == [0, 0]
    assert model.log is log
    assert log == {"a": [1.0], "b": {"c": deque([1, 2])}}
    assert log["b"]["c"] is nested
    assert nested.maxlen == 2
    assert model.parts[0][0] is first
    assert first.item() == 0
    assert len(model.parts[0]) == 1
    assert model.parts[1].tolist() == [0, 0]
    assert model.linear.weight.requires_grad
    assert model.python.random() == twin.python.random()
    assert model.numpy.random() == twin.numpy.random()
    assert model.old.rand() == twin.old.rand()
