"""Each way of keeping keeps what it says of every gradient, and no more."""

from __future__ import annotations

import gc
import math
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import gradviz as gv
from gradviz.errors import CaptureError, CaptureWarning
from gradviz.grad.capture.keeping import WAYS, example_norms
from gradviz.grad.capture.session import Session
from gradviz.grad.statistics import STATISTICS

KEEPS = ["statistics", "running", "example_norms", "tensors"]


def model_of(*layers: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*layers) if layers else nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def passes(session: Session, model: nn.Module, *batches: Tensor, scale: float = 1.0, by: float = 1.0) -> Any:
    """A step of several batches, whose gradients are added up."""
    for x in batches:
        with session.forward():
            value = model(x).square().sum() * scale
        with session.backward():
            torch.autograd.grad(value, list(model.parameters()))
        session.commit()
    return session.finish(by=by)


def by_hand(model: nn.Sequential, x: Tensor) -> list[Tensor]:
    """Gradients of the outputs of all layers, in plain torch."""
    outputs = []
    for layer in model:
        x = layer(x)
        outputs.append(x)
    return list(torch.autograd.grad(x.square().sum(), outputs))


def test_every_way_that_can_be_asked_for_is_there():
    assert list(WAYS) == KEEPS


@pytest.mark.parametrize("keep", KEEPS)
def test_every_way_has_the_statistics(keep):
    model, x = model_of(), torch.randn(5, 3)
    captured = gv.reap(lambda m, x: m(x).square().sum(), gv.Capture("*", keep=keep))(model, x)[2]
    for calls, hand in zip(captured.values(), by_hand(model, x), strict=True):
        row = calls[0].statistics
        assert list(row) == list(STATISTICS)
        assert row["norm"] == pytest.approx(hand.double().norm().item(), rel=1e-6)
        assert row["mean"] == pytest.approx(hand.double().mean().item(), rel=1e-5, abs=1e-9)
        assert row["max_abs"] == hand.abs().max().item()


@pytest.mark.parametrize("keep", KEEPS)
def test_a_loss_scale_is_divided_out_of_all_that_is_kept(keep):
    model, x = model_of(), torch.randn(5, 3)
    one, other = (Session(gv.Capture("*", keep=keep), "statistics", {"": model}) for _ in range(2))
    for session in (one, other):
        session.attach()
    plain = passes(one, model, x)["0"][0]
    scaled = passes(other, model, x, scale=256.0, by=256.0)["0"][0]
    for session in (one, other):
        session.detach()
    assert scaled.statistics == pytest.approx(plain.statistics, rel=1e-6)
    if keep == "running":
        torch.testing.assert_close(scaled.running.second_moment, plain.running.second_moment)
    if keep == "example_norms":
        torch.testing.assert_close(scaled.example_norms, plain.example_norms)
    if keep == "tensors":
        torch.testing.assert_close(scaled.gradient, plain.gradient)


def test_a_second_backward_through_the_same_values_adds_up_in_tensors_and_is_not_told_in_statistics():
    model, x = model_of(), torch.randn(5, 3)
    for keep in KEEPS:
        session = Session(gv.Capture("*", keep=keep), "statistics", {"": model})
        session.attach()
        with session.forward():
            value = model(x).square().sum()
        for _ in range(2):
            with session.backward():
                torch.autograd.grad(value, list(model.parameters()), retain_graph=True)
            session.commit()
        captured = session.finish()
        session.detach()
        if keep == "tensors":
            hand = 2 * by_hand(model, x)[0]
            torch.testing.assert_close(captured["0"][0].gradient, hand)
            assert captured["0"][0].statistics["norm"] == pytest.approx(hand.norm().item())
        else:
            assert len(captured) == 0
            assert 'keep="tensors" adds them up' in captured.missing["0"]


def test_running_moments_go_on_over_steps_and_are_those_of_all_examples():
    model = model_of()
    session = Session(gv.Capture("*", keep="running"), "statistics", {"": model})
    session.attach()
    batches = [torch.randn(n, 3) for n in (4, 1, 6)]
    for x in batches:
        captured = passes(session, model, x)
    session.detach()
    together = torch.cat([by_hand(model, x)[0] for x in batches]).double()
    running = captured["0"][0].running
    assert (running.count, running.left_out) == (11, 0)
    torch.testing.assert_close(running.mean, together.mean(0))
    torch.testing.assert_close(running.second_moment, together.square().mean(0))


def test_running_moments_of_a_call_that_no_gradient_has_reached_say_so():
    model = model_of()
    session = Session(gv.Capture("0", keep="running"), "statistics", {"": model})
    session.attach()
    with session.forward():
        model(torch.randn(2, 3))
    call = session.finish()["0"][0]
    session.detach()
    with pytest.raises(CaptureError, match="No gradient of call 0 of '0' has come yet"):
        _ = call.running


@pytest.mark.case("C32")
def test_example_norms_are_those_of_a_loop_over_examples_also_of_tied_parameters():
    torch.manual_seed(0)

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(7, 4)
            self.middle = nn.Linear(4, 4)
            self.head = nn.Linear(4, 7, bias=False)
            self.head.weight = self.embedding.weight

        def forward(self, tokens: Tensor) -> Tensor:
            return self.head(self.middle(self.embedding(tokens)).tanh())

    model = Tied()
    tokens, targets = torch.randint(0, 7, (5, 3)), torch.randint(0, 7, (5, 3))

    def loss(m: nn.Module, tokens: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(m(tokens).movedim(-1, 1), targets, reduction="sum")

    _, _, captured = gv.reap(loss, gv.Capture("*", keep="example_norms"))(model, tokens, targets)
    assert captured.missing == {}
    names = ["embedding.weight", "middle.weight", "middle.bias"]
    assert sorted(captured.parameter_example_norms) == sorted(names)
    for example in range(5):
        _, g = gv.value_and_grad(loss, model, tokens[example : example + 1], targets[example : example + 1])
        for name in names:
            expected = g[name].double().norm().item()
            assert captured.parameter_example_norms[name][example].item() == pytest.approx(expected, rel=1e-5)


def test_what_a_module_was_called_with_and_was_then_written_into_tells_nothing_of_its_parameters():
    model = model_of(nn.Linear(3, 3), nn.Linear(3, 2))

    def f(m: nn.Module, x: Tensor) -> Tensor:
        x = x.clone()
        h = m[0](x)
        with torch.no_grad():
            x.zero_()
        return m[1](h.clone()).sum()

    frozen_weight = model[0].weight.requires_grad_(False)
    captured = gv.reap(f, gv.Capture("*", keep="example_norms"))(model, torch.randn(4, 3))[2]
    assert frozen_weight is model[0].weight
    assert "written into afterwards" in captured.missing["0.bias"]
    assert set(captured.parameter_example_norms) == {"1.weight", "1.bias"}


def test_example_norms_neither_vanish_nor_overflow():
    gradient = torch.tensor([[3e-30, 4e-30], [3e30, 4e30], [math.inf, 0.0], [math.nan, 1.0], [0.0, 0.0]])
    norms = example_norms(gradient, 0)
    torch.testing.assert_close(norms[:2], torch.tensor([5e-30, 5e30], dtype=torch.float64), rtol=1e-6, atol=0)
    assert norms[2].isinf()
    assert norms[3].isnan()
    assert norms[4] == 0
    assert example_norms(torch.tensor([[3 + 4j]]), 0).tolist() == [5]


@pytest.mark.parametrize("keep", ["statistics", "running", "example_norms"])
def test_no_gradient_is_retained_where_none_is_asked_for(keep):
    model = model_of(nn.Linear(3, 4), nn.Tanh())
    kept: list[weakref.ref[Any]] = []

    def f(m: nn.Module, x: Tensor) -> Tensor:
        y = m(x)
        y.register_hook(lambda gradient: kept.append(weakref.ref(gradient)))
        return y.square().sum()

    gc.disable()
    try:
        captured = gv.reap(f, gv.Capture("*", keep=keep))(model, torch.randn(2, 3))[2]
        assert len(captured) == 2
        assert [reference() for reference in kept] == [None]
    finally:
        gc.enable()


def test_a_kept_gradient_is_not_rewritten_by_who_writes_into_the_gradient():
    model = model_of(nn.Linear(3, 4))
    passing: list[Tensor] = []

    def f(m: nn.Module, x: Tensor) -> Tensor:
        y = m(x)
        y.register_hook(passing.append)
        return y.square().sum()

    call = gv.reap(f, gv.Capture("0", keep="tensors"))(model, torch.randn(2, 3))[2]["0"][0]
    expected = passing[0].clone()
    passing[0].zero_()
    assert torch.equal(call.gradient, expected)


@pytest.mark.parametrize("store", ["device", "host", "disk"])
def test_over_the_limit_values_and_gradients_make_way_together(store):
    model = model_of(*[nn.Linear(64, 64) for _ in range(4)])
    x = torch.randn(64, 64)
    one = 64 * 64 * 4

    def f(m: nn.Module, x: Tensor) -> Tensor:
        return m(x).sum()

    capture = gv.Capture("*", keep="tensors", values=True, memory_limit=2 * one, store=store)
    if store == "disk":
        captured = gv.reap(f, capture)(model, x)[2]
        free = gv.reap(f, gv.Capture("*", keep="tensors", values=True))(model, x)[2]
        for name in free:
            assert torch.equal(captured[name][0].gradient, free[name][0].gradient)
            assert torch.equal(captured[name][0].value, free[name][0].value)
            assert torch.equal(captured[name][0].inputs["input"], free[name][0].inputs["input"])
        return
    with pytest.warns(CaptureWarning, match="Tensors took more than memory_limit") as caught:
        captured = gv.reap(f, capture)(model, x)[2]
    assert len(caught) == 1
    assert captured["0"][0].gradient.any()  # the last two that came
    assert captured["1"][0].gradient.any()
    for what in ("value", "inputs"):
        with pytest.raises(CaptureError, match='store="disk"'):
            getattr(captured["0"][0], what)
    with pytest.raises(CaptureError, match="were dropped"):
        _ = captured["3"][0].gradient
    assert captured["3"][0].statistics["norm"] == 64  # which are kept all the same


def test_gradients_that_are_not_finite_show_as_they_are():
    model = model_of(nn.Linear(2, 2))
    factors = torch.tensor([[math.nan, 1.0], [math.inf, -math.inf]])
    call = gv.reap(lambda m, x: (m(x) * factors).sum(), gv.Capture("0", keep="statistics"))(model, torch.ones(2, 2))[2]
    row = call["0"][0].statistics
    assert (row["nan"], row["posinf"], row["neginf"]) == (1, 1, 1)
    assert np.isnan(row["norm"])
