"""Norms by example over several passes; and none where they do not add up to the parameter's gradient."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import gradviz as gv
from gradviz.errors import CaptureWarning


def net():
    """In float64: what a LayerNorm of two does to the last digits of an example alone, and in a batch, is large."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2), nn.LayerNorm(2)).double()


def batch(n=6):
    torch.manual_seed(1)
    return torch.randn(n, 3, dtype=torch.float64), torch.randn(n, 2, dtype=torch.float64)


def alone(model, x, y, loss):
    """Each example's gradient by itself, by torch alone."""
    names, parameters = zip(*model.named_parameters(), strict=True)
    losses = (loss(model(x[i : i + 1]), y[i : i + 1]) for i in range(len(x)))
    norms = np.array([[g.norm().item() for g in torch.autograd.grad(each, parameters)] for each in losses])
    return dict(zip(names, norms.T, strict=True))


def summed(prediction, targets):
    return (prediction - targets).square().sum()


CAPTURE = gv.Capture("*", keep="example_norms")


def test_examples_of_micro_batches_stand_one_behind_the_other():
    model, (x, y) = net(), batch(6)
    expected = alone(model, x, y, lambda p, t: F.mse_loss(p, t) / len(x))
    step = gv.train_step(model, "mean_squared_error", "sgd", accumulate=2, capture=CAPTURE)
    group = [(x[:3], y[:3]), (x[3:], y[3:])]
    norms = step(group, step.init(group)).captured.parameter_example_norms
    assert norms.keys() == expected.keys()
    for name, own in norms.items():
        np.testing.assert_allclose(own, expected[name], rtol=1e-5)


def test_a_parameter_that_leads_to_the_loss_in_another_way_too_is_not_told():
    model, (x, y) = net(), batch()

    def penalized(m, x, y):
        return summed(m(x), y) + m[0].weight.square().sum()

    _, _, captured = gv.reap(penalized, CAPTURE)(model, x, y)
    assert "0.weight" not in captured.parameter_example_norms
    assert "used in other ways" in captured.missing["0.weight"]
    expected = alone(model, x, y, summed)
    for name, own in captured.parameter_example_norms.items():
        np.testing.assert_allclose(own, expected[name], rtol=1e-5)
    assert {"0.bias", "2.weight", "2.bias"} <= captured.parameter_example_norms.keys()


def test_nor_one_with_a_penalty_of_its_gradient():
    model, (x, y) = net(), batch()

    def penalized(m, x, y):
        x = x.clone().requires_grad_()
        output = m(x)
        (slope,) = torch.autograd.grad(output.square().sum(), x, create_graph=True)
        return summed(output, y) + slope.square().sum()

    _, _, captured = gv.reap(penalized, CAPTURE)(model, x, y)
    assert "0.weight" not in captured.parameter_example_norms
    assert "2.weight" not in captured.parameter_example_norms


@pytest.mark.parametrize("clips", [False, True])
def test_in_a_loop_of_the_user_s_own_too(clips):
    model, (x, y) = net(), batch()
    expected = alone(model, x, y, summed)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    w = gv.watch(model, optimizer, capture=CAPTURE)
    (summed(model(x), y) + model[2].weight.sum()).backward()
    if clips:
        nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
    optimizer.step()
    with pytest.warns(CaptureWarning, match="used in other ways"):
        w.close()
    norms = w.captured.parameter_example_norms
    assert norms.keys() == expected.keys() - {"2.weight"}
    for name, own in norms.items():
        np.testing.assert_allclose(own, expected[name], rtol=1e-5)
    assert "2.weight" in w.captured.missing
