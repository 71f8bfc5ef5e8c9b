"""What torch does that a tool gets wrong easily: scenes in which others show another number, or none, or break."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import gradviz as gv

BATCH = torch.linspace(-1, 1, 12).reshape(4, 3)


@pytest.fixture(scope="module")
def one_process():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def line() -> nn.Linear:
    """Its output is w x, so the gradient of w is x."""
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, 2.0)
    return model


def net(activation: Callable[[], nn.Module] = nn.ReLU) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), activation(), nn.Linear(4, 1))


def loss(model: nn.Module) -> Tensor:
    return model(BATCH).square().mean()


def recorded(
    model: nn.Module, of: Callable[[nn.Module], Tensor] = loss, n: int = 3, optimizer: Any = None
) -> gv.History:
    """What a watch says of a plain loop."""
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
    with gv.watch(model, optimizer) as watch:
        for _ in range(n):
            optimizer.zero_grad()
            of(model).backward()
            optimizer.step()
    return watch.history


def truth(model: nn.Module, of: Callable[[nn.Module], Tensor] = loss, n: int = 3) -> list[list[float]]:
    """The norm of each parameter's ``.grad`` in the same loop with nobody watching."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    norms = []
    for _ in range(n):
        optimizer.zero_grad()
        of(model).backward()
        norms.append([float(whole(p.grad).norm()) for p in model.parameters()])
        optimizer.step()
    return norms


def whole(tensor: Any) -> Tensor:
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def test_a_watch_tells_the_truth_of_a_plain_loop_and_changes_nothing():
    watched, alone = net(), net()
    np.testing.assert_allclose(recorded(watched).norms, truth(alone), rtol=1e-6)
    assert all(map(torch.equal, watched.parameters(), alone.parameters()))


# A scaler's loss scale ---------------------------------------------------------------------------------------------

SCALE = 65536.0


def scaled(x: list[float], *, fused: bool, unscale: bool = False, clip: float | None = None) -> gv.History:
    """A loop whose gradient is each of some numbers in turn, under a scaler."""
    model = line()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=SCALE)
    with gv.watch(model, optimizer) as watch:
        for each in x:
            optimizer.zero_grad()
            scaler.scale(model(torch.tensor([[each]])).sum()).backward()
            if unscale:
                scaler.unscale_(optimizer)
            if clip is not None:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            scaler.step(optimizer)
            scaler.update()
    return watch.history


@pytest.mark.parametrize("fused", [False, True], ids=["plain", "fused"])
@pytest.mark.parametrize("unscale", [False, True], ids=["", "unscaled"])
def test_under_a_scaler_the_gradient_is_the_unscaled_one_whoever_takes_the_scale_out(fused, unscale):
    history = scaled([1.0, 1.0], fused=fused, unscale=unscale)
    assert history.norms["weight"].tolist() == [1.0, 1.0]  # where hooks and .grad have 65536
    assert history.metrics["loss_scale"].tolist() == [SCALE, SCALE]
    assert history.gradients["stage"].unique().tolist() == ["backward"]


@pytest.mark.parametrize("fused", [False, True], ids=["plain", "fused"])
def test_under_a_scaler_a_clip_shows_as_what_the_optimizer_gets(fused):
    history = scaled([3.0, 3.0], fused=fused, unscale=True, clip=0.5)
    norms = history.gradients.groupby("stage", observed=True)["norm"].apply(list)
    assert norms["backward"] == [3.0, 3.0]
    np.testing.assert_allclose(norms["clipped"], [0.5, 0.5], rtol=1e-5)


@pytest.mark.parametrize("fused", [False, True], ids=["plain", "fused"])
def test_an_infinite_gradient_is_a_skipped_row_with_its_infinity(fused):
    history = scaled([1.0, float("inf"), 1.0], fused=fused)
    assert history.norms["weight"].tolist() == [1.0, float("inf"), 1.0]
    assert history.gradients["posinf"].tolist() == [0, 1, 0]
    assert history.metrics["skipped"].tolist() == [False, True, False]
    assert history.metrics["loss_scale"].tolist() == [SCALE, SCALE, SCALE / 2]


# Accumulation, and what is not finite ------------------------------------------------------------------------------


def test_an_accumulated_gradient_is_the_sum_that_the_optimizer_gets():
    model = line()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with gv.watch(model, optimizer) as watch:
        for x in (1.0, 10.0):
            model(torch.tensor([[x]])).sum().backward()
        optimizer.step()
    assert watch.history.norms["weight"].tolist() == [11.0]  # where tensor hooks see 1, then 10


def test_what_is_not_finite_is_counted_and_never_dropped():
    model = nn.Linear(16, 1, bias=False)
    x = torch.ones(1, 16)
    x[0, :4], x[0, 4], x[0, 5:7] = float("nan"), float("inf"), -float("inf")
    history = recorded(model, lambda model: model(x).sum(), n=1)
    (row,) = history.gradients.to_dict("records")
    assert (row["nan"], row["posinf"], row["neginf"], row["nonfinite"]) == (4, 1, 2, 7)
    assert np.isnan(row["norm"])
    assert history.first_nonfinite()[1] == "weight"


def test_a_gradient_of_nothing_but_nan_is_a_row():
    history = recorded(line(), lambda model: model(torch.tensor([[float("nan")]])).sum(), n=1)
    assert history.gradients[["state", "nan"]].values.tolist() == [["ok", 1]]


def test_a_cell_that_is_run_again_takes_the_place_of_its_watch_and_doubles_nothing():
    model = line()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train():
        optimizer.zero_grad()
        model(torch.tensor([[3.0]])).sum().backward()
        optimizer.step()

    first = gv.watch(model, optimizer)
    train()
    n_hooks = len(model.weight._post_accumulate_grad_hooks)
    second = gv.watch(model, optimizer)
    for _ in range(2):
        train()
    assert len(model.weight._post_accumulate_grad_hooks) == n_hooks
    assert len(first.history) == 1
    assert second.history.gradients["norm"].tolist() == [3.0, 3.0]
    second.close()
    assert not model.weight._post_accumulate_grad_hooks


# Compiled, wrapped and sharded models -------------------------------------------------------------------------------


@pytest.mark.parametrize("is_watched_first", [True, False], ids=["watched first", "compiled first"])
def test_a_compiled_model_is_seen_whether_it_was_watched_before_its_first_call_or_after(is_watched_first):
    model, alone = net(), net()
    compiled = torch.compile(model, backend="aot_eager")
    if not is_watched_first:
        loss(compiled).backward()
    history = recorded(compiled if is_watched_first else model, lambda _: loss(compiled))
    assert list(history.norms) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    np.testing.assert_allclose(history.norms, truth(alone), rtol=1e-5)


def test_a_fully_sharded_model_has_the_norms_of_its_whole_gradients(one_process):
    from torch.distributed.fsdp import fully_shard

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, of one process
        sharded, alone = net(), net()
        fully_shard(sharded)
        history = recorded(sharded)
        np.testing.assert_allclose(history.norms, truth(alone), rtol=1e-5)
    assert set(history.gradients["state"]) == {"ok"}


TWO_PROCESSES = """
import sys, warnings, torch, torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
import gradviz as gv

warnings.filterwarnings("ignore", module="torch")
rank, path = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", store=dist.FileStore(path, 2), rank=rank, world_size=2)
inputs = torch.linspace(-1, 2, 24).reshape(8, 3)
mine = inputs[4 * rank : 4 * rank + 4]

def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))

def average(p):  # of what is not sharded, as a loop has to by itself
    dist.all_reduce(p.grad)
    p.grad.div_(2)

def train(model, x, *averaged, clip=True):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with gv.watch(model, optimizer) as watch:
        for _ in range(3):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            for p in averaged:
                average(p)
            if clip:
                nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
    return watch.history.gradients

def agree(ours, plain):
    for column in ("iteration", "parameter", "stage", "state"):
        assert list(ours[column]) == list(plain[column]), column
    norms = [torch.tensor(frame["norm"].to_numpy()) for frame in (ours, plain)]
    torch.testing.assert_close(*norms, rtol=1e-5, atol=0)

plain = train(net(), inputs)
agree(train(DistributedDataParallel(net()), mine), plain)
sharded = net()
fully_shard(sharded)
agree(train(sharded, mine), plain)

half = net()
fully_shard(half[0])
of_half, plain = train(half, mine, *half[2].parameters(), clip=False), train(net(), inputs, clip=False)
of_sharded = "stage == 'backward' and parameter.str.startswith('0.')"
agree(of_half.query(of_sharded), plain.query(of_sharded))
assert set(of_half["state"]) == {"ok"}
assert set(of_half["parameter"]) == set(plain["parameter"])

# A weight whose gradient is 1 here and 2 there: one pass apart, then one together.
model = DistributedDataParallel(nn.Linear(1, 1, bias=False))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.full((1, 1), rank + 1.0)
with gv.watch(model, optimizer) as watch:
    for apart in (False, True):
        optimizer.zero_grad()
        if apart:
            with model.no_sync():
                model(x).sum().backward()
        model(x).sum().backward()
        optimizer.step()
print(watch.history.norms["weight"].tolist())
dist.destroy_process_group()
"""


@pytest.mark.case("D15")
@pytest.mark.case("D16")
def test_two_processes_record_what_their_optimizers_get_of_both_batches(tmp_path):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", TWO_PROCESSES]
    processes = [
        subprocess.Popen(
            [*command, str(rank), str(tmp_path / "store")], stdout=subprocess.PIPE, text=True, env=environment
        )
        for rank in range(2)
    ]
    said = [process.communicate(timeout=120)[0].splitlines() for process in processes]
    assert said == [["[1.5, 3.0]"]] * 2


# Modules that break hooks --------------------------------------------------------------------------------------------


def test_an_in_place_activation_is_watched_as_one_that_is_not():
    watched, alone = net(lambda: nn.ReLU(inplace=True)), net()
    np.testing.assert_allclose(recorded(watched).norms, truth(alone), rtol=1e-6)


class Twice(nn.Module):
    """One layer, called two times."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(torch.tanh(self.layer(x)))


def test_a_module_that_is_called_twice_has_one_gradient_of_both_calls():
    history = recorded(Twice())
    assert list(history.norms) == ["layer.weight", "layer.bias"]
    np.testing.assert_allclose(history.norms, truth(Twice()), rtol=1e-6)


class Checkpointed(nn.Module):
    """Its body is computed once more in the backward pass."""

    def __init__(self, use_reentrant: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.body, self.head = nn.Linear(3, 4), nn.Linear(4, 4), nn.Linear(4, 1)
        self.use_reentrant = use_reentrant

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        for _ in range(2):
            y = torch.tanh(checkpoint(self.body, y, use_reentrant=self.use_reentrant))
        return self.head(y)


@pytest.mark.parametrize("use_reentrant", [False, True], ids=["", "reentrant"])
def test_a_checkpointed_body_has_the_gradient_of_an_iteration_once(use_reentrant):
    model, alone = Checkpointed(use_reentrant), Checkpointed(use_reentrant)
    history = recorded(model)
    assert len(history) == 3
    np.testing.assert_allclose(history.norms, truth(alone), rtol=1e-6)
    assert set(history.gradients["state"]) == {"ok"}
