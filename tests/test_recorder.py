"""A row for each finished iteration, with the state of every parameter."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gradviz.errors import RecordingWarning
from gradviz.history.history import History
from gradviz.recorder import Recorder, describe
from gradviz.step.train_step import train_step

BATCH = torch.ones(2, 3), torch.zeros(2, 1)


def test_an_iteration_that_is_broken_off_leaves_no_row():
    step, history = train_step(nn.Linear(3, 1), "huber", "sgd"), History()
    recorder = Recorder(step, history)
    state = step(BATCH, step.init(BATCH))
    assert len(history) == 0
    recorder.commit(0, 0, {"loss": 1.0})
    assert len(history) == 1
    assert history.wide("state").loc[0].tolist() == ["ok", "ok"]
    step(BATCH, state)
    assert len(history) == 1


def test_a_row_without_gradients_says_so():
    recorder = Recorder(train_step(nn.Linear(3, 1), "huber", "sgd"), History())
    recorder.commit(0, 0, {"loss": 1.0})
    assert recorder.history.metrics["loss"].tolist() == [1.0]
    step = recorder._step
    step(BATCH, step.init(BATCH))
    recorder.commit(1, 0, {})
    assert recorder.history.wide("state")["weight"].tolist() == ["not_recorded", "ok"]


def test_a_history_that_cannot_be_written_warns_once(monkeypatch):
    def full(*_):
        raise OSError("disk full")

    step, history = train_step(nn.Linear(3, 1), "huber", "sgd"), History()
    recorder = Recorder(step, history)
    monkeypatch.setattr(history, "append", full)
    state = step(BATCH, step.init(BATCH))
    with pytest.warns(RecordingWarning, match="disk full"):
        recorder.commit(0, 0, {})
    step(BATCH, state)
    recorder.commit(1, 0, {})


def test_a_parameter_that_joins_the_optimizer_is_ok_from_then_on():
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model[0].parameters(), lr=0.1)
    step, history = train_step(model, "huber", optimizer), History()
    recorder = Recorder(step, history)
    state = step(BATCH, step.init(BATCH))
    recorder.commit(0, 0, {})
    optimizer.add_param_group({"params": model[1].parameters()})
    step(BATCH, state)
    recorder.commit(1, 0, {})
    assert history.wide("state")["1.weight"].tolist() == ["not_optimized", "ok"]
    assert history.wide("state")["0.weight"].tolist() == ["ok", "ok"]


def test_parameters_that_change_places_in_the_optimizer_are_followed():
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model[0].parameters(), lr=0.1)
    step, history = train_step(model, "huber", optimizer), History()
    recorder = Recorder(step, history)
    state = step(BATCH, step.init(BATCH))
    recorder.commit(0, 0, {})
    optimizer.param_groups[0]["params"] = list(model[1].parameters())
    step(BATCH, state)
    recorder.commit(1, 0, {})
    assert history.wide("state")["0.weight"].tolist() == ["ok", "not_optimized"]
    assert history.wide("state")["1.weight"].tolist() == ["not_optimized", "ok"]


def test_how_a_parameter_is_described():
    assert describe("w", torch.zeros(2, 3, dtype=torch.bfloat16)) == {"name": "w", "shape": (2, 3), "dtype": "bfloat16"}
