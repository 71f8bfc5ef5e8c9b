"""Dtypes and devices, since when they hold."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import gradviz as gv
from gradviz.history.history import History

BATCHES = [(torch.ones(2, 3), torch.zeros(2, 1))]


def told(history: History, parameter: str) -> dict[str, tuple[str, str]]:
    """By what: the dtype and device that hold now."""
    frame = history.dtypes
    rows = frame[frame["parameter"] == parameter]
    return {of: (dtype, device) for of, dtype, device in rows[["of", "dtype", "device"]].to_numpy().tolist()}


@pytest.mark.case("C30")
@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
def test_a_16_bit_parameter_has_a_master_that_the_optimizer_s_state_goes_with(half):
    loop = gv.trainer(nn.Linear(3, 1), "mean_squared_error", "adam", policy=gv.Policy(params=half))
    loop.run(BATCHES, display=None)
    wide = ("float32", "cpu")
    assert told(loop.history, "weight") == {
        "parameter": (str(half).removeprefix("torch."), "cpu"),
        "gradient": wide,
        "master": wide,
        "exp_avg": wide,
        "exp_avg_sq": wide,
    }


@pytest.mark.case("C30")
def test_in_a_loop_of_one_s_own_a_16_bit_parameter_has_none():
    model = nn.Linear(3, 1).bfloat16()
    optimizer = torch.optim.Adam(model.parameters())
    with gv.watch(model, optimizer) as watch:
        model(BATCHES[0][0].bfloat16()).square().mean().backward()
        optimizer.step()
    half = ("bfloat16", "cpu")
    assert told(watch.history, "weight") == dict.fromkeys(["parameter", "gradient", "exp_avg", "exp_avg_sq"], half)


def test_a_state_elsewhere_has_a_device_of_its_own():
    class Elsewhere(torch.optim.SGD):
        def step(self, closure=None):
            super().step(closure)
            for group in self.param_groups:
                for p in group["params"]:
                    self.state[p]["copy"] = torch.empty_like(p, device="meta")

    model = nn.Linear(3, 1)
    optimizer = Elsewhere(model.parameters(), lr=0.1)
    with gv.watch(model, optimizer) as watch:
        model(BATCHES[0][0]).square().mean().backward()
        optimizer.step()
    assert told(watch.history, "weight")["copy"] == ("float32", "meta")
    assert told(watch.history, "weight")["parameter"] == ("float32", "cpu")


def test_dtypes_and_devices_are_kept_with_the_run(tmp_path):
    loop = gv.trainer(nn.Linear(3, 1), "mean_squared_error", "adam", save_to=tmp_path / "a")
    loop.run(BATCHES, display=None)
    opened = gv.History.open(tmp_path / "a")
    assert told(opened, "weight") == told(loop.history, "weight")
    assert np.unique(opened.dtypes["device"]).tolist() == ["cpu"]
