"""Gradients come by autograd.grad, and through backward() where a wrapper or a hook needs it: never silently wrong."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DataParallel, DistributedDataParallel

from gradviz.errors import ModelError
from gradviz.grad.statistics import statistics
from gradviz.step.gradients import gradients_kept
from gradviz.step.train_step import train_step

OPTIONS = {"lr": 0.05, "momentum": 0.9}


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    return torch.randn(16, 3), torch.randint(0, 2, (16,))


@pytest.fixture(scope="module")
def one_process():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_a_post_accumulate_hook_fires_at_every_step_and_never_in_init():
    ours, theirs, data = net(), net(), batch()
    seen: dict[str, list[torch.Tensor]] = {"ours": [], "theirs": []}
    for name, model in (("ours", ours), ("theirs", theirs)):
        model[0].weight.register_post_accumulate_grad_hook(lambda p, into=seen[name]: into.append(p.grad.clone()))
    step = train_step(ours, "cross_entropy", torch.optim.SGD(ours.parameters(), **OPTIONS), keep_gradients=True)
    state = step.init(data)
    assert seen["ours"] == []
    optimizer = torch.optim.SGD(theirs.parameters(), **OPTIONS)
    for _ in range(3):
        state = step(data, state)
        optimizer.zero_grad()
        F.cross_entropy(theirs(data[0]), data[1]).backward()
        optimizer.step()
    assert len(seen["ours"]) == 3
    assert all(map(torch.equal, seen["ours"], seen["theirs"]))
    assert all(map(torch.equal, ours.parameters(), theirs.parameters()))
    assert torch.equal(state.gradients["0.weight"], seen["ours"][-1])


def test_a_hook_that_comes_later_fires_from_then_on():
    model, data, seen = net(), batch(), []
    step = train_step(model, "cross_entropy", "sgd")
    state = step(data, step.init(data))
    model[3].bias.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.norm()))
    step(data, step(data, state))
    assert len(seen) == 2


def test_a_hook_that_changes_the_gradient_changes_what_is_kept_and_taken():
    def fill(p: nn.Parameter) -> None:
        p.grad.fill_(7.0)

    model, data = net(), batch()
    model[3].bias.register_post_accumulate_grad_hook(fill)
    step = train_step(model, "cross_entropy", torch.optim.SGD(model.parameters(), lr=1.0), keep_gradients=True)
    before = model[3].bias.detach().clone()
    state = step(data, step.init(data))
    assert state.gradients["3.bias"].tolist() == [7, 7]
    assert torch.equal(model[3].bias, before - 7)


def test_a_hook_that_takes_the_gradient_away_is_named_and_not_taken_for_unused():
    def take(p: nn.Parameter) -> None:
        p.grad = None

    model, data = net(), batch()
    model[3].bias.register_post_accumulate_grad_hook(take)
    step = train_step(model, "cross_entropy", "sgd")
    state, before = step.init(data), copy.deepcopy(list(model.parameters()))
    with pytest.raises(ModelError, match=r"took the gradient of '3.bias' away before the optimizer's step"):
        step(data, state)
    assert all(map(torch.equal, before, model.parameters()))


def test_backward_leaves_the_gradients_of_others_alone():
    model, teacher = net(), net()
    x, y = batch()
    x.requires_grad_()
    teacher[0].weight.grad = torch.ones(8, 3)
    model[0].weight.register_post_accumulate_grad_hook(lambda p: None)

    def loss(prediction, targets):
        return F.cross_entropy(prediction, targets) + F.mse_loss(prediction, teacher(x))

    step = train_step(model, loss, "sgd")
    step((x, y), step.init((x, y)))
    assert x.grad is None
    assert torch.equal(teacher[0].weight.grad, torch.ones(8, 3))
    assert teacher[3].weight.grad is None


def test_kept_gradients_of_others_survive_what_happens_inside():
    x = torch.ones(2, requires_grad=True)
    x.grad = torch.full((2,), 5.0)
    with gradients_kept({"x": x}):
        assert x.grad is None
        x.sum().backward()
    assert x.grad.tolist() == [5, 5]


@pytest.mark.parametrize("wrap", ["data parallel", "distributed"])
@pytest.mark.parametrize("scale", ["identity", "dynamic"])
def test_a_wrapped_model_trains_as_plain_torch_under_its_own_names(wrap, scale, one_process):
    wrapped = {"data parallel": DataParallel, "distributed": DistributedDataParallel}[wrap]
    ours, theirs, data = wrapped(net()), wrapped(net()), batch()
    step = train_step(
        ours, "cross_entropy", torch.optim.SGD(ours.parameters(), **OPTIONS), loss_scale=scale, keep_gradients=True
    )
    state = step.init(data)
    optimizer = torch.optim.SGD(theirs.parameters(), **OPTIONS)
    kept = []
    for _ in range(3):
        state = step(data, state)
        kept.append((state.gradients, state.gradients.clone()))
        optimizer.zero_grad()
        F.cross_entropy(theirs(data[0]), data[1]).backward()
        optimizer.step()
    assert all(map(torch.equal, ours.parameters(), theirs.parameters()))
    assert list(state.gradients) == [name for name, _ in net().named_parameters()]
    assert all(map(torch.equal, state.gradients.values(), [p.grad for p in theirs.parameters()]))
    for gradient, copied in kept:  # never rewritten, though DDP goes on with its buckets
        assert all(map(torch.equal, gradient.values(), copied.values()))


def test_ddp_with_buckets_for_gradients_keeps_them_apart(one_process):
    ours, data = DistributedDataParallel(net(), gradient_as_bucket_view=True), batch()
    step = train_step(ours, "cross_entropy", torch.optim.SGD(ours.parameters(), **OPTIONS), keep_gradients=True)
    state = step(data, step.init(data))
    first, before = state.gradients, state.gradients.clone()
    step(data, state)
    assert all(map(torch.equal, first.values(), before.values()))


def test_a_fully_sharded_model_trains_as_its_plain_self(one_process):
    from torch.distributed.fsdp import fully_shard

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
        theirs, data = copy.deepcopy(ours), batch()
        fully_shard(ours)
        step = train_step(ours, "cross_entropy", "sgd", loss_scale="dynamic", keep_gradients=True)
        state = step.init(data)
        optimizer, measured = torch.optim.SGD(theirs.parameters()), []
        step.observe = lambda stage, gradient: measured.append(statistics(list(gradient.values())))
        for _ in range(2):
            state = step(data, state)
            optimizer.zero_grad()
            F.cross_entropy(theirs(data[0]), data[1]).backward()
            optimizer.step()
    assert not step.report.skipped
    np.testing.assert_allclose(measured[-1], statistics([p.grad for p in theirs.parameters()]), rtol=1e-5)
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(p.full_tensor(), q)
    for gradient, q in zip(state.gradients.values(), theirs.parameters(), strict=True):
        torch.testing.assert_close(gradient.full_tensor(), q.grad)


TWO_PROCESSES = """
import sys, torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from gradviz.step.train_step import train_step
rank, path = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", store=dist.FileStore(path, 2), rank=rank, world_size=2)
torch.manual_seed(0)
model = DistributedDataParallel(nn.Linear(3, 2))
x, y = torch.randn(8, 3), torch.randn(8, 2)
step = train_step(model, "mean_squared_error", "sgd", keep_gradients=True)
mine = slice(4 * rank, 4 * rank + 4)
state = step.init((x[mine], y[mine]))
for _ in range(2):
    state = step((x[mine], y[mine]), state)
whole = nn.Linear(3, 2)
torch.manual_seed(0)
whole = nn.Linear(3, 2)
other = train_step(whole, "mean_squared_error", "sgd", keep_gradients=True)
plain = other.init((x, y))
for _ in range(2):
    plain = other((x, y), plain)
for name in plain.gradients:
    torch.testing.assert_close(state.gradients[name], plain.gradients[name])
torch.testing.assert_close(model.module.weight, whole.weight)
dist.destroy_process_group()
print("agreed")
"""


def test_two_processes_see_the_gradient_of_both_their_batches(tmp_path):
    store = str(tmp_path / "store")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", TWO_PROCESSES, str(rank), store], stdout=subprocess.PIPE, text=True, env=environment
        )
        for rank in range(2)
    ]
    assert [process.communicate(timeout=120)[0].strip() for process in processes] == ["agreed", "agreed"]
