"""Handlers with a memory go on from a checkpoint to the bit, all together, also from the middle of an epoch."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import ExponentialLR, OneCycleLR

import gradviz as gv

NOISE = torch.Generator().manual_seed(0)
DATA = [(torch.randn(4, 3, generator=NOISE), torch.randn(4, 2, generator=NOISE)) for _ in range(3)]
WORSENS = [5, 4, 3, 3, 3, 3, 3, 3, 3]


def steered(folder, fired: list[int], **options) -> gv.Loop:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.2), nn.Linear(4, 2))
    loop = gv.trainer(model, "mean_squared_error", partial(torch.optim.SGD, lr=1e-3, momentum=0.9), **options)
    loop.metric(lambda prediction, targets: WORSENS[loop.state.epoch], "m").validate(DATA[:1])
    loop.monitor("m", lambda state: fired.append(state.epoch), patience=1)
    loop.lr_schedule(partial(OneCycleLR, max_lr=0.1, total_steps=40), event="iteration_completed")
    loop.lr_schedule(partial(ExponentialLR, gamma=0.9))
    loop.reduce_lr_on_plateau("m", factor=0.9, patience=2)
    loop.early_stop("m", patience=4, restore_best=True)
    return loop.checkpoint(folder, event=["epoch_completed", "iteration_completed"], keep=None, pattern=named)


def named(state) -> str:
    return f"{state.event_counts['iteration_completed']}_{state.event_counts['epoch_completed']}.pt"


def tensors(loop: gv.Loop) -> list[torch.Tensor]:
    step = loop._step
    kept = [value for state in step.optimizer.state.values() for value in state.values() if torch.is_tensor(value)]
    return [*step.model_state.values(), *step.masters.optimized, *kept]


def rates(loop: gv.Loop) -> list[float]:
    return [group["lr"] for group in loop._step.optimizer.param_groups]


@pytest.mark.filterwarnings("ignore:reduce_lr_on_plateau:gradviz.errors.ScheduleWarning")
@pytest.mark.parametrize("options", [{}, {"policy": gv.Policy(params="bfloat16", compute="bfloat16")}])
def test_a_run_that_is_resumed_stops_reduces_schedules_and_restores_as_one_that_never_stopped(tmp_path, options):
    fired: list[int] = []
    straight = steered(tmp_path / "straight", fired, **options)
    straight.run(DATA, epochs=9, display=None)
    assert (straight.state.status, straight.state.epoch, fired) == ("halted", 8, [4, 6])
    for at in ("9_3.pt", "14_4.pt"):  # the end of an epoch, and the middle of one
        again_fired: list[int] = []
        again = steered(tmp_path / at, again_fired, **options)
        again.resume(tmp_path / "straight" / "checkpoints" / at)
        done = again.state.epoch
        again.run(DATA, epochs=9 - done, display=None)
        assert (again.state.status, again.state.epoch, again.state.iteration) == ("halted", 8, 24)
        assert again_fired == [epoch for epoch in fired if epoch >= done]
        assert rates(again) == rates(straight)
        ours, theirs = tensors(again), tensors(straight)
        assert len(ours) == len(theirs)
        assert all(map(torch.equal, ours, theirs))
