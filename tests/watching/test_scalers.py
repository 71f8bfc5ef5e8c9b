"""Gradients are told without the scale of a GradScaler, and a step that it leaves out is a row."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
import torch
from torch import nn

import gradviz as gv
from tests.watching.scenes import inputs, net, norms

SCALE = 2.0**16
INFINITE = 3


def train(optimizer_is_fused, unscales, clips, *, scaler_is_given=False, scale=SCALE, n=6, **options):
    """Train with a loss that is infinite once; the watch, and the gradients' norms in truth."""
    model, truth = net(), []
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=optimizer_is_fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=scale)
    with gv.watch(model, optimizer, scaler=scaler if scaler_is_given else None, **options) as w:
        for iteration in range(n):
            optimizer.zero_grad()
            loss = model(inputs(iteration)).square().mean() * (math.inf if iteration == INFINITE else 1)
            of = torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)
            truth.append([float(gradient.norm()) for gradient in of])
            before = [p.detach().clone() for p in model.parameters()]
            scaler.scale(loss).backward()
            if unscales:
                scaler.unscale_(optimizer)
            if clips:
                nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            scaler.step(optimizer)
            scaler.update()
            moved = not all(map(torch.equal, before, model.parameters()))
            assert moved == (iteration != INFINITE)
    return w.history, truth


@pytest.mark.case("L01")
@pytest.mark.case("L05")
@pytest.mark.parametrize("is_fused", [False, True])
@pytest.mark.parametrize("unscales", [False, True])
@pytest.mark.parametrize("clips", [False, True])
@pytest.mark.parametrize("is_given", [False, True])
def test_gradients_are_without_the_scale_and_a_skipped_step_is_a_row(is_fused, unscales, clips, is_given):
    history, truth = train(is_fused, unscales, clips, scaler_is_given=is_given)
    np.testing.assert_allclose(history.norms.to_numpy(), truth, rtol=1e-6)
    assert history.metrics["skipped"].tolist() == [i == INFINITE for i in range(6)]
    assert history.metrics["loss_scale"].tolist() == [SCALE] * 4 + [SCALE / 2] * 2
    assert history.first_nonfinite().iteration == INFINITE
    assert ("clipped" in set(history.gradients["stage"])) == clips
    if clips and unscales:
        total = np.sqrt(np.square(history.wide("norm", stage="clipped").loc[0].to_numpy()).sum())
        assert total <= 0.1 * (1 + 1e-5)


@pytest.mark.parametrize("is_fused", [False, True])
@pytest.mark.parametrize("unscales", [False, True])
def test_a_scale_that_is_no_power_of_two_leaves_no_clip_of_its_own(is_fused, unscales):
    history, truth = train(is_fused, unscales, False, scale=1000.0)
    np.testing.assert_allclose(history.norms.to_numpy(), truth, rtol=1e-5)
    assert set(history.gradients["stage"]) == {"backward"}


@pytest.mark.parametrize("is_fused", [False, True])
@pytest.mark.parametrize("unscales", [False, True])
def test_histograms_are_of_the_gradients_without_the_scale(is_fused, unscales):
    history, _ = train(is_fused, unscales, False, histograms_every=1, n=2)
    truth, _ = train(is_fused, unscales, False, histograms_every=1, n=2, scale=1.0)
    assert history.histograms.equals(truth.histograms)


@pytest.mark.parametrize("is_fused", [False, True])
def test_a_skipped_step_has_no_update(is_fused):
    history, _ = train(is_fused, False, False, stages=["backward", "update"])
    moved = history.gradients.query("stage == 'update' and state == 'ok'")
    assert sorted(set(moved["iteration"])) == [0, 1, 2, 4, 5]


@pytest.mark.case("L04")
@pytest.mark.parametrize("is_fused", [False, True])
def test_a_step_that_the_loop_itself_leaves_out_is_a_row_and_the_next_one_runs(is_fused):
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), fused=is_fused)
    scaler, vetoed = torch.amp.GradScaler("cpu", init_scale=SCALE), []
    with gv.watch(model, optimizer) as w:
        for iteration in range(5):
            optimizer.zero_grad()
            scaler.scale(model(inputs(iteration)).square().mean() * (1e6 if iteration == 2 else 1)).backward()
            scaler.unscale_(optimizer)
            vetoed.append(max(norms(model)) > 1e3)
            if not vetoed[-1]:
                scaler.step(optimizer)
            scaler.update()
            w.mark(number=iteration)
    assert vetoed == [False, False, True, False, False]
    assert w.history.metrics["skipped"].tolist() == vetoed
    assert w.history.metrics["number"].tolist() == [0, 1, 2, 3, 4]
    assert w.history.norms.loc[2].max() > 1e3


@pytest.mark.case("L06")
def test_a_scale_that_falls_again_and_again_is_a_row_of_skips_that_says_where_it_began():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    with gv.watch(model, optimizer) as w:
        for _ in range(4):
            optimizer.zero_grad()
            scaler.scale(model(inputs(0)).square().mean() * math.inf).backward()
            scaler.step(optimizer)
            scaler.update()
    assert w.history.metrics[["loss_scale", "skipped"]].values.tolist() == [[s, True] for s in (4.0, 2.0, 1.0, 0.5)]
    assert w.history.first_nonfinite()[:2] == (0, "2.bias")


def test_one_scaler_of_two_optimizers_skips_one_and_not_the_other():
    first, second = nn.Linear(3, 1), nn.Linear(3, 1)
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (first, second)]
    scaler = torch.amp.GradScaler("cpu", init_scale=SCALE)
    with gv.watch({"a": first, "b": second}, optimizers) as w:
        for iteration in range(2):
            for model, optimizer in zip((first, second), optimizers, strict=True):
                optimizer.zero_grad()
                is_infinite = model is first and iteration == 1
                scaler.scale(model(inputs(iteration)).mean() * (math.inf if is_infinite else 1)).backward()
            for optimizer in optimizers:
                scaler.step(optimizer)
            scaler.update()
    assert w.history.metrics[["optimizer", "skipped"]].values.tolist() == [
        ["a", False], ["b", False], ["a", True], ["b", False]
    ]  # fmt: skip
    assert w.history.metrics["loss_scale"].tolist() == [SCALE] * 4


@pytest.mark.parametrize("decides", ["scaler", "loop"])
def test_steps_that_are_left_out_one_after_the_other_have_a_row_each(decides):
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in model]
    scaler = torch.amp.GradScaler("cpu", init_scale=SCALE)
    with gv.watch(model, optimizers) as w:
        for iteration in range(2):
            model.zero_grad()
            is_infinite = decides == "scaler" and iteration == 1
            scaler.scale(model(inputs(iteration)).mean() * (math.inf if is_infinite else 1)).backward()
            for optimizer in optimizers:
                scaler.unscale_(optimizer)
                if decides == "scaler":
                    scaler.step(optimizer)
            scaler.update()
    of_second = decides == "loop"
    assert w.history.metrics[["optimizer", "skipped"]].values.tolist() == [
        ["0", of_second], ["1", of_second], ["0", True], ["1", True]
    ]  # fmt: skip
    assert (w.history.wide("state") == "ok").sum(axis=1).tolist() == [2] * 4


class Around(torch.optim.Optimizer):
    """An optimizer with another inside, under a name of its own, as libraries have them."""

    def __init__(self, base):
        super().__init__(base.param_groups, base.defaults)
        self.base_optimizer = base
        self.param_groups = base.param_groups

    def step(self, closure=None):
        return self.base_optimizer.step(closure)


@pytest.mark.parametrize("unscales", [False, True])
def test_a_scaler_may_be_given_an_optimizer_that_is_around_the_one_that_steps(unscales):
    model = nn.Linear(3, 1)
    optimizer = Around(torch.optim.SGD(model.parameters(), lr=0.1))
    scaler = torch.amp.GradScaler("cpu", init_scale=SCALE)
    with gv.watch(model, optimizer) as w:
        for iteration in range(2):
            optimizer.zero_grad()
            scaler.scale(model(inputs(0)).mean() * (math.inf if iteration else 1)).backward()
            if unscales:
                scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
    assert w.history.metrics[["loss_scale", "skipped"]].values.tolist() == [[SCALE, False], [SCALE, True]]
    assert w.history.norms["bias"][0] == 1


def test_a_scaler_that_is_off_is_as_none():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    with gv.watch(model, optimizer) as w:
        optimizer.zero_grad()
        scaler.scale(model(inputs(0)).square().mean()).backward()
        scaler.unscale_(optimizer)
        truth = norms(model)
        scaler.step(optimizer)
        scaler.update()
    assert w.history.norms.loc[0].tolist() == pytest.approx(truth)
    assert w.history.metrics[["loss_scale", "skipped"]].values.tolist() == [[1.0, False]]


def test_a_scaler_pickles_and_its_class_is_as_it_was_after_the_last_watch():
    before = dict(vars(torch.amp.GradScaler))
    first, second = net(), net(1)
    watches = [gv.watch(model, torch.optim.SGD(model.parameters(), lr=0.1)) for model in (first, second)]
    scaler = torch.amp.GradScaler("cpu")
    assert pickle.loads(pickle.dumps(scaler)).state_dict() == scaler.state_dict()
    watches[0].close()
    assert dict(vars(torch.amp.GradScaler)) != before
    watches[1].close()
    assert dict(vars(torch.amp.GradScaler)) == before


class Own:
    """A scaler that torch knows nothing of."""

    def __init__(self):
        self.scale_by = 8.0

    def is_enabled(self):
        return True

    def get_scale(self):
        return self.scale_by

    def scale(self, loss):
        return loss * self.scale_by

    def unscale_(self, optimizer):
        for group in optimizer.param_groups:
            for p in group["params"]:
                p.grad /= self.scale_by

    def step(self, optimizer):
        self.unscale_(optimizer)
        optimizer.step()

    def update(self):
        pass


def test_a_scaler_of_another_kind_is_heard_if_it_is_given():
    model, truth = net(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = Own()
    with gv.watch(model, optimizer, scaler=scaler) as w:
        for iteration in range(3):
            optimizer.zero_grad()
            loss = model(inputs(iteration)).square().mean()
            truth.append(
                [float(g.norm()) for g in torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)]
            )
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    np.testing.assert_allclose(w.history.norms.to_numpy(), truth, rtol=1e-6)
    assert w.history.metrics["loss_scale"].tolist() == [8.0] * 3
    assert "step" in vars(Own)
    assert vars(Own)["step"].__qualname__ == "Own.step"
