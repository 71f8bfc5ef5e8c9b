"""Buffers across several forward passes: each starts anew, and no gradient is disturbed."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from gradviz.step.train_step import train_step

FIRST, SECOND, TARGETS = torch.randn(8, 3), torch.randn(8, 3) + 1, torch.randn(8, 3)


class Replacing(nn.Module):
    """Replaces a buffer that its graph uses."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))
        self.register_buffer("mean", torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.mean = 0.5 * self.mean + 0.5 * x.detach().mean(0)
        return x + self.scale * self.mean


class Writing(Replacing):
    """Writes into a buffer that its graph has saved."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.mean.mul_(0.5).add_(0.5 * x.detach().mean(0))
        return x + self.scale * self.mean


class Growing(Replacing):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.mean = torch.cat([self.mean, x.detach().mean(0)])
        return x + self.scale * self.mean.sum()


@pytest.mark.parametrize("kind", [Replacing, Writing, Growing, lambda: nn.BatchNorm1d(3)])
@pytest.mark.parametrize("keep", [0, 1])
def test_two_passes_have_the_gradient_and_leave_the_buffers_of_passes_that_each_start_anew(kind, keep):
    model = kind()
    by_hand = [copy.deepcopy(model) for _ in range(2)]
    outputs = [one(x) for one, x in zip(by_hand, (FIRST, SECOND), strict=True)]
    for output in outputs:
        F.mse_loss(output, TARGETS).backward()

    def objective(forward, model_state, inputs, targets):
        outputs = [forward(model_state, FIRST), forward(model_state, SECOND)]
        return sum(F.mse_loss(output.prediction, targets) for output in outputs), outputs[keep]

    step = train_step(model, objective, torch.optim.SGD(model.parameters(), lr=0.0), keep_gradients=True, strict=False)
    own = dict(model.named_buffers())
    state = step((FIRST, TARGETS), step.init((FIRST, TARGETS)))
    for name, gradient in state.gradients.items():
        expected = sum(one.get_parameter(name).grad for one in by_hand)
        torch.testing.assert_close(gradient, expected)
    for name, buffer in by_hand[keep].named_buffers():
        assert torch.equal(model.get_buffer(name), buffer), name
    if not isinstance(model, Replacing) or isinstance(model, Writing):
        assert all(model.get_buffer(name) is buffer for name, buffer in own.items())


def test_the_state_of_an_output_is_that_of_its_own_pass():
    seen = []

    def objective(forward, model_state, inputs, targets):
        first = forward(model_state, FIRST)
        second = forward(model_state, SECOND)
        seen.append((first.state["running_mean"].clone(), second.state["running_mean"].clone()))
        return F.mse_loss(first.prediction + second.prediction, targets), first

    model = nn.BatchNorm1d(3)
    step = train_step(model, objective, "sgd")
    step((FIRST, TARGETS), step.init((FIRST, TARGETS)))
    torch.testing.assert_close(seen[-1][0], 0.1 * FIRST.mean(0))
    torch.testing.assert_close(seen[-1][1], 0.1 * SECOND.mean(0))


def test_a_pass_with_other_tensors_moves_the_buffers_too():
    model = nn.BatchNorm1d(3)

    def objective(forward, model_state, inputs, targets):
        output = forward({name: t.clone() for name, t in model_state.items()}, inputs)
        return F.mse_loss(output.prediction, targets), output

    step = train_step(model, objective, "sgd")
    step((FIRST, TARGETS), step.init((FIRST, TARGETS)))
    assert model.num_batches_tracked == 1
    torch.testing.assert_close(model.running_mean, 0.1 * FIRST.mean(0))


def test_a_constant_expanded_buffer_is_no_obstacle():
    class Shifted(nn.Linear):
        def __init__(self) -> None:
            super().__init__(3, 3)
            self.register_buffer("shift", torch.ones(1, 3).expand(8, 3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) + self.shift

    def objective(forward, model_state, inputs, targets):
        outputs = forward(model_state, FIRST), forward(model_state, SECOND)
        return F.mse_loss(outputs[0].prediction, outputs[1].prediction), outputs[1]

    step = train_step(Shifted(), objective, "sgd")
    step((FIRST, TARGETS), step.init((FIRST, TARGETS)))
