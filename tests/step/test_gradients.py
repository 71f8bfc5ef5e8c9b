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
from torch.utils.checkpoint import checkpoint

from gradviz.errors import ModelError, PolicyError
from gradviz.grad.statistics import statistics
from gradviz.step.gradients import gradients_kept
from gradviz.step.policy import Policy
from gradviz.step.train_step import train_step
from tests.step.nets import Seen

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


def test_a_hook_that_takes_it_away_in_one_micro_batch_is_named_too():
    taken: list[nn.Parameter] = []

    def take_the_first(p: nn.Parameter) -> None:
        if not taken:
            taken.append(p)
            p.grad = None

    model, (x, y) = net(), batch()
    model[3].bias.register_post_accumulate_grad_hook(take_the_first)
    step = train_step(model, "cross_entropy", "sgd", accumulate=2)
    group = [(x[:8], y[:8]), (x[8:], y[8:])]
    state = step.init(group)
    with pytest.raises(ModelError, match=r"took the gradient of '3.bias' away before the optimizer's step"):
        step(group, state)


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
        step.observer = Seen(lambda stage, gradient: measured.append(statistics(list(gradient.values()))))
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


def said_by_two_processes(script: str, store: str) -> list[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(rank), store], stdout=subprocess.PIPE, text=True, env=environment
        )
        for rank in range(2)
    ]
    return [process.communicate(timeout=120)[0].strip() for process in processes]


def test_two_processes_see_the_gradient_of_both_their_batches(tmp_path):
    assert said_by_two_processes(TWO_PROCESSES, str(tmp_path / "store")) == ["agreed", "agreed"]


# What a look at the graph has to find -----------------------------------------------------------------------------


class Tied(nn.Module):
    """A layer that re-entrant checkpointing hides, and whose weight is reached by another way too."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)
        self.b.weight, self.b.bias = self.a.weight, self.a.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(checkpoint(self.a, x.detach().requires_grad_(), use_reentrant=True))


def test_a_parameter_that_checkpointing_hides_in_one_of_its_uses_has_its_whole_gradient():
    torch.manual_seed(0)
    ours, x, y = Tied(), torch.randn(4, 3), torch.randn(4, 3)
    theirs = copy.deepcopy(ours)
    step = train_step(ours, "mean_squared_error", "sgd", keep_gradients=True)
    state = step((x, y), step.init((x, y)))
    F.mse_loss(theirs(x), y).backward()
    assert torch.equal(state.gradients["a.weight"], theirs.a.weight.grad)


class Lends(torch.autograd.Function):
    """A product whose gradient stands in a buffer that the next backward writes into."""

    buffer = torch.zeros(3, 2)

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x)
        return x @ weight

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        Lends.buffer.copy_(x.T @ gradient)
        return None, Lends.buffer


class Lending(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Lends.apply(x, self.weight)


class HandsOut(torch.autograd.Function):
    """A gradient that is the batch's own memory, or the parameter's."""

    @staticmethod
    def forward(ctx, x, weight, which):
        ctx.save_for_backward(x, weight)
        ctx.which = which
        return (x * weight).sum()

    @staticmethod
    def backward(ctx, gradient):
        return None, ctx.saved_tensors[ctx.which].detach(), None


def test_a_gradient_in_somebody_else_s_memory_is_copied():
    x, y = torch.randn(4, 3), torch.randn(4, 2)
    model = Lending()
    step = train_step(model, "mean_squared_error", "sgd", keep_gradients=True)
    state = step((x, y), step.init((x, y)))
    first, before = state.gradients["weight"], state.gradients["weight"].clone()
    step((x * 2, y), state)
    assert torch.equal(first, before)
    whole = Lending()
    expected = torch.autograd.grad(F.mse_loss(x @ whole.weight, y), [whole.weight])[0]
    both = train_step(Lending(), "mean_squared_error", "sgd", keep_gradients=True, accumulate=2)
    group = [(x[:2], y[:2]), (x[2:], y[2:])]
    torch.testing.assert_close(both(group, both.init(group)).gradients["weight"], expected)


@pytest.mark.parametrize("which", [0, 1])
def test_a_gradient_in_the_batch_s_or_the_parameter_s_memory_is_copied(which):
    class Out(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return HandsOut.apply(x, self.weight, which)

    model, x = Out(), torch.tensor([1.0, 2.0, 3.0])
    step = train_step(model, lambda p, t: p, "sgd", keep_gradients=True)
    state = step((x, torch.zeros(1)), step.init((x, torch.zeros(1))))
    before = state.gradients["weight"].clone()
    x.zero_()
    with torch.no_grad():
        model.weight.zero_()
    assert torch.equal(state.gradients["weight"], before)
    assert before.all()


@pytest.mark.parametrize("hooked", [False, True])
def test_what_an_objective_leaves_in_grad_is_not_part_of_the_gradient(hooked):
    def objective(forward, model_state, inputs, targets):
        output = forward(model_state, inputs)
        loss = F.cross_entropy(output.prediction, targets)
        loss.backward(retain_graph=True)
        return loss, output

    got = []
    for loss in ("cross_entropy", objective):
        model = nn.Sequential(nn.Linear(3, 2))
        nn.init.constant_(model[0].weight, 0.3)
        nn.init.zeros_(model[0].bias)
        if hooked:
            model[0].weight.register_post_accumulate_grad_hook(lambda p: None)
        step = train_step(model, loss, "sgd", keep_gradients=True, accumulate=2)
        group = [(batch()[0][:6], batch()[1][:6]), (batch()[0][6:], batch()[1][6:])]
        got.append(step(group, step.init(group)).gradients)
    assert all(map(torch.equal, got[0].values(), got[1].values()))


def test_a_hook_sees_the_micro_batches_add_up_as_in_plain_torch():
    def clamp(p: nn.Parameter) -> None:
        p.grad.clamp_(-0.05, 0.05)

    ours, theirs, (x, y) = net(), net(), batch()
    for model in (ours, theirs):
        model[0].weight.register_post_accumulate_grad_hook(clamp)
    step = train_step(ours, "cross_entropy", "sgd", keep_gradients=True, accumulate=2)
    group = [(x[:8], y[:8]), (x[8:], y[8:])]
    state = step(group, step.init(group))
    for inputs, targets in group:
        (F.cross_entropy(theirs(inputs), targets) * 0.5).backward()
    for gradient, p in zip(state.gradients.values(), theirs.parameters(), strict=True):
        assert torch.equal(gradient, p.grad)


def zero_after(optimizer: torch.optim.Optimizer) -> None:
    optimizer.register_step_post_hook(lambda o, *_: o.zero_grad(set_to_none=False))


def scale_within(optimizer: torch.optim.Optimizer) -> None:
    take = optimizer.step

    def step() -> None:
        for p in optimizer.param_groups[0]["params"]:
            p.grad.mul_(0.5)
        take()

    optimizer.step = step


@pytest.mark.parametrize("meddle", [zero_after, scale_within])
def test_a_kept_gradient_survives_what_an_optimizer_is_made_to_do(meddle):
    kept = []
    for meddles in (False, True):
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if meddles:
            meddle(optimizer)
        step = train_step(model, "cross_entropy", optimizer, keep_gradients=True)
        kept.append(step(batch(), step.init(batch())).gradients)
    assert all(map(torch.equal, kept[0].values(), kept[1].values()))


def test_a_kept_gradient_survives_what_is_done_to_grad_after_the_step():
    model, (x, y) = net(), batch()
    step = train_step(model, "cross_entropy", "sgd", keep_gradients=True)
    state = step((x, y), step.init((x, y)))
    before = state.gradients.clone()
    model.zero_grad(set_to_none=False)
    F.cross_entropy(model(x), y).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
    assert all(map(torch.equal, state.gradients.values(), before.values()))


def test_init_leaves_grad_and_hooks_of_parameters_alone():
    model, data, seen = net(), batch(), []
    model[0].weight.grad = torch.ones(8, 3)
    model[0].weight.register_hook(lambda gradient: seen.append(gradient.norm()))
    step = train_step(model, "cross_entropy", "sgd")
    step.init(data)
    assert model[0].weight.grad.sum() == 24
    with pytest.raises(RuntimeError):
        step.init((torch.ones(4, 7), data[1]))
    assert model[0].weight.grad.sum() == 24
    assert seen == []


def test_a_policy_refuses_to_convert_what_ddp_has_taken_in(one_process):
    wrapped = DistributedDataParallel(net())
    with pytest.raises(
        PolicyError, match=r"Convert before you wrap: DistributedDataParallel\(model.to\(torch.bfloat16"
    ):
        train_step(wrapped, "cross_entropy", "sgd", policy=Policy(params="bfloat16"))
    assert wrapped.module[0].weight.dtype == torch.float32
    step = train_step(wrapped, "cross_entropy", "sgd", policy=Policy(compute="bfloat16", output="float32"))
    step(batch(), step.init(batch()))


def test_what_was_frozen_when_ddp_was_made_is_not_unfrozen_silently(one_process):
    model = net()
    model[0].requires_grad_(False)
    step = train_step(DistributedDataParallel(model), "cross_entropy", "sgd")
    state = step(batch(), step.init(batch()))
    model[0].requires_grad_(True)
    with pytest.raises(ModelError, match=r"'0\.weight' was frozen when the step was made, and DistributedDataParallel"):
        step(batch(), state)


RANKS_AGREE = """
import sys, torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from gradviz.step.train_step import train_step
rank, path = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", store=dist.FileStore(path, 2), rank=rank, world_size=2)

def agree(tensor):
    both = [torch.zeros_like(tensor) for _ in range(2)]
    dist.all_gather(both, tensor.contiguous())
    assert torch.equal(*both), both

for options in ({"static_graph": True}, {"find_unused_parameters": True}, {}):
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)), **options)
    torch.manual_seed(rank)
    x, y = torch.randn(8, 3), torch.randint(0, 2, (8,))
    step = train_step(model, "cross_entropy", "sgd", keep_gradients=True, accumulate=2)
    ignored = torch.full((4,), -100) if rank else y[4:]  # nothing of it counts on one of the two
    group = [(x[:4], y[:4]), (x[4:], ignored)] if not options else [(x, y)]
    state = step.init(group)
    for _ in range(3):
        state = step(group, state)
        for name, gradient in state.gradients.items():
            assert gradient.isfinite().all()
            agree(gradient)
dist.destroy_process_group()
print("agreed")
"""


def test_processes_agree_whatever_ddp_is_told_of_the_graph(tmp_path):
    assert said_by_two_processes(RANKS_AGREE, str(tmp_path / "store")) == ["agreed", "agreed"]


# Memory that gradients share --------------------------------------------------------------------------------------


class PutTogether(nn.Module):
    """Parameters whose gradients are parts of one tensor, beside one that has the whole of it."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.dim = dim
        self.w = nn.Parameter(torch.randn(2, 3))
        parts = ((2, 1), (2, 2)) if dim else ((1, 3), (1, 3))
        self.a, self.b = (nn.Parameter(torch.randn(*shape)) for shape in parts)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.w + torch.cat([self.a, self.b], self.dim))


class OnePart(PutTogether):
    """All of them contiguous, and no two that begin at one place."""

    def __init__(self) -> None:
        super().__init__(0)
        del self.a

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.w + torch.cat([torch.ones(1, 3), self.b]))


@pytest.mark.parametrize("make", [lambda: PutTogether(0), lambda: PutTogether(1), OnePart])
@pytest.mark.parametrize("options", [{"loss_scale": "static"}, {"loss_scale": "dynamic"}, {"accumulate": 2}, {}])
def test_gradients_that_overlap_in_memory_are_scaled_and_added_once(make, options):
    torch.manual_seed(1)
    x, y, ours, theirs = torch.randn(4, 3), torch.randn(4, 2), make(), make()
    optimizers = [
        torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True, foreach=True)
        for model in (ours, theirs)
    ]
    step = train_step(ours, "mean_squared_error", optimizers[0], keep_gradients=True, **options)
    group = [(x[:2], y[:2]), (x[2:], y[2:])] if "accumulate" in options else (x, y)
    state = step.init(group)
    for _ in range(3):
        state = step(group, state)
        optimizers[1].zero_grad()
        F.mse_loss(theirs(x), y).backward()
        for name, p in theirs.named_parameters():
            torch.testing.assert_close(state.gradients[name], p.grad, rtol=1e-5, atol=1e-6)
        optimizers[1].step()
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)
