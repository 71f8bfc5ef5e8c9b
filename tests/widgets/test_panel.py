"""The panel on Python's side: what it is sent, and what its buttons do."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import gradviz as gv
from gradviz.history.history import History
from gradviz.widgets.dashboard import dashboard
from gradviz.widgets.panel import PanelFeed
from gradviz.widgets.wire import unpack
from tests.widgets.histories import append, history_of

DATA = [(torch.ones(4, 2), torch.zeros(4, 1))]


def numbers(buffer: bytes) -> list[float]:
    return np.frombuffer(buffer, "<f8").tolist()


def test_it_is_sent_metrics_by_iteration_and_by_epoch_and_their_newest_numbers():
    loop = gv.trainer(nn.Linear(2, 1), "mean_squared_error", "sgd").metric("mean_absolute_error").validate(DATA)
    loop.run(DATA * 3, epochs=2, display=None)
    told, buffers = PanelFeed(loop.history).message(fresh=True)
    json.dumps(told, allow_nan=False)
    assert told["metrics"] == ["mean_absolute_error"]
    assert told["epoch_metrics"] == ["validation_loss", "validation_mean_absolute_error"]
    columns, newest, epochs = unpack(buffers[0]), numbers(buffers[3]), unpack(buffers[4])
    metrics = loop.history.metrics
    assert columns.maximum[:, 1].tolist() == metrics["loss"].astype("f4").tolist()
    assert newest == metrics.iloc[-1][["mean_absolute_error", "loss"]].tolist()
    assert epochs.maximum[:, 0].tolist() == loop.history.epochs["validation_loss"].astype("f4").tolist()
    assert told["controls"] is None


def test_while_it_runs_it_says_what_recording_costs_and_what_the_buttons_act_on():
    loop, told = gv.trainer(nn.Linear(2, 1), "mean_squared_error", "sgd"), []
    feed = PanelFeed(loop.history)
    loop.handle_event("iteration_completed", lambda state: told.append(feed.message(fresh=not told)[0]))
    loop.run(DATA * 5, display=None)
    assert told[0]["overhead"] is None
    assert told[-1]["overhead"] > 0
    assert {each["controls"]["run"] for each in told} == {told[0]["controls"]["run"]}
    assert told[0]["controls"]["blocks"] is True
    assert feed.kept()[0]["controls"] is None


def test_the_first_nonfinite_gradient_is_found_in_what_is_new_and_stays_the_first():
    history = history_of("a", "b")
    feed = PanelFeed(history)
    assert feed.message(fresh=True)[0]["verdict"] is None
    for i in range(20):
        table = np.full((2, 8), 2.0**i)
        table[:, 5:] = 0
        history.append(len(history), 0, table, np.zeros(2, np.uint8), {"loss": 1.0})
    assert feed.message(fresh=False)[0]["verdict"] is None
    table[0, 0], table[0, 5] = math.nan, 3
    history.append(at := len(history), 0, table, np.zeros(2, np.uint8), {"loss": 1.0})
    append(history)
    verdict = feed.message(fresh=False)[0]["verdict"]
    assert verdict == {"iteration": at, "parameter": "a", "kind": "nan", "growth": 2.0**11, "before": 12}
    assert verdict == PanelFeed(history).message(fresh=True)[0]["verdict"]
    found = history.first_nonfinite()
    assert (verdict["iteration"], verdict["parameter"], verdict["growth"]) == (
        found.iteration,
        found.parameter,
        found.growth,
    )


def test_what_was_found_no_longer_holds_where_its_rows_do_not():
    history = History()
    history.declare([{"name": "a", "shape": (2, 3), "dtype": "float32"}])
    table = np.ones((1, 8))
    table[:, 5:] = 0
    history.append(0, 0, table, np.zeros(1, np.uint8), {"loss": 1.0})
    table[0, 0], table[0, 5] = math.nan, 1
    history.append(at := len(history), 0, table, np.zeros(1, np.uint8), {"loss": 1.0})
    feed = PanelFeed(history)
    assert feed.message(fresh=True)[0]["verdict"]["iteration"] == at
    history.begin_attempt(at, 1)
    assert feed.must_begin_anew(final=False)
    assert feed.message(fresh=True)[0]["verdict"] is None


class Page:
    """Hears what a panel is sent, and clicks."""

    def __init__(self, x: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.heard: list[dict[str, Any]] = []
        self._panel = dashboard(x).panel
        monkeypatch.setattr(self._panel, "send", lambda content, buffers=None: self.heard.append(content))
        self._panel._repr_mimebundle_()

    def click(self, verb: str, run: int | None) -> dict[str, Any]:
        self._panel._on_message(self._panel, {"kind": "control", "id": "1", "verb": verb, "run": run}, [])
        return next(content for content in reversed(self.heard) if content["kind"] == "answered")


@pytest.mark.case("W15")
def test_each_click_is_answered_and_one_for_a_run_that_is_over_does_nothing(monkeypatch):
    loop = gv.trainer(nn.Linear(2, 1), "mean_squared_error", "sgd")
    page = Page(loop, monkeypatch)
    assert "over" in page.click("stop", 1)["said"]
    loop.start(DATA, epochs=10**9, display=None)
    run = loop.history.controls.run
    assert "over" in page.click("stop", run - 1)["said"]
    assert page.click("pause", run)["said"] == "pauses after this iteration"
    assert loop.pause().state.status == "paused"
    assert "No button" in page.click("explode", run)["error"]
    assert page.click("stop", run)["said"] == "stops"
    assert loop.wait().status == "halted"


def test_a_run_that_is_watched_or_opened_has_no_buttons(tmp_path):
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with gv.watch(model, optimizer, save_to=tmp_path / "run") as watch:
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        assert PanelFeed(watch.history).message(fresh=True)[0]["controls"] is None
    assert PanelFeed(History.open(tmp_path / "run")).message(fresh=True)[0]["controls"] is None
