"""The frozen mask on Python's side: what it is sent, and what it asks of a run."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch import nn

import gradviz as gv
from gradviz.history.history import History
from gradviz.widgets.frozen_mask import MOST_CHANGES, MOST_NAMES, MaskFeed
from tests.widgets.histories import history_of

DATA = [(torch.ones(4, 2), torch.zeros(4, 1))]


class Page:
    """A page that shows a mask: hears what is sent, and clicks."""

    def __init__(self, widget: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.heard: list[dict[str, Any]] = []
        self._widget = widget
        monkeypatch.setattr(widget, "send", self._hear)
        widget._repr_mimebundle_()

    def _hear(self, content: dict[str, Any], buffers: Any = None) -> None:
        json.dumps(content, allow_nan=False)
        self.heard.append(content)

    def click(self, verb: str, *modules: str, parameters: tuple[str, ...] = (), id: str = "1") -> None:
        said = {"kind": verb, "id": id, "modules": list(modules), "parameters": list(parameters)}
        self._widget._on_message(self._widget, said, [])

    @property
    def answers(self) -> list[dict[str, Any]]:
        return [content for content in self.heard if content["kind"] == "answered"]


def test_what_changed_is_told_once_with_modules_as_one_and_a_bounded_number_of_names():
    names = [f"body.{i}.weight" for i in range(20)] + ["head.weight", "head.bias"]
    history = history_of(*names)
    feed = MaskFeed(history)
    history.add_events(0, "frozen", ["head.weight", "head.bias"], by={"head.weight": "widget", "head.bias": "widget"})
    told, _ = feed.message(fresh=True)
    head = {"iteration": 0, "event": "frozen", "by": "widget", "names": ["head"], "more": 0}
    assert told["changes"] == [head]
    assert feed.message(fresh=False)[0]["changes"] == []
    history.add_events(1, "unfrozen", names[:12])
    (change,) = feed.message(fresh=False)[0]["changes"]
    assert change["names"] == names[:MOST_NAMES]
    assert change["more"] == 12 - MOST_NAMES
    assert [each["iteration"] for each in feed.message(fresh=True)[0]["changes"]] == [0, 1]


def test_a_handler_that_freezes_something_all_the_time_floods_nobody():
    history = history_of("w")
    feed = MaskFeed(history)
    for i in range(2 * MOST_CHANGES):
        history.add_events(i, "frozen" if i % 2 else "unfrozen", ["w"])
    assert len(feed.message(fresh=True)[0]["changes"]) == MOST_CHANGES


@pytest.mark.case("L13")
def test_a_handler_s_change_reaches_the_page_with_its_iteration_and_its_author(monkeypatch):
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    model[0].requires_grad_(False)

    def undo(state: gv.State) -> None:
        if state.iteration == 5:
            model.requires_grad_(True)

    loop = gv.trainer(model, "mean_squared_error", "sgd").handle_event("iteration_started", undo)
    page = Page(gv.frozen_mask(loop), monkeypatch)
    loop.run(DATA * 8, display=None)
    changes = [change for content in page.heard for change in content["changes"]]
    assert changes == [{"iteration": 5, "event": "unfrozen", "by": "handler", "names": ["0"], "more": 0}]


def test_a_click_freezes_in_the_run_and_its_answer_comes_from_it(monkeypatch):
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    loop = gv.trainer(model, "mean_squared_error", "sgd")
    page = Page(gv.frozen_mask(loop), monkeypatch)

    def click(state: gv.State) -> None:
        if state.iteration == 2:
            page.click("freeze", "0", id="a")
            page.click("freeze", "1", id="b")
        if state.iteration == 4:
            page.click("unfreeze", parameters=("0.bias",), id="c")

    loop.handle_event("iteration_completed", click)
    loop.run(DATA * 7, display=None)
    assert [(each["id"], each["iteration"]) for each in page.answers] == [("a", 3), ("b", None), ("c", 5)]
    assert "Nothing would be left to train" in page.answers[1]["error"]
    assert loop.history.wide("state")["0.weight"].tolist() == ["ok"] * 3 + ["frozen"] * 4
    assert loop.history.wide("state")["0.bias"].tolist() == ["ok"] * 3 + ["frozen"] * 2 + ["ok"] * 2
    assert loop.history.events["by"].unique().tolist() == ["widget"]


def test_what_cannot_be_clicked_on_says_why(monkeypatch, tmp_path):
    loop = gv.trainer(nn.Linear(2, 1), "mean_squared_error", "sgd", save_to=tmp_path / "run")
    page = Page(gv.frozen_mask(loop), monkeypatch)
    during = []
    loop.handle_event("iteration_completed", lambda state: during.append(MaskFeed(loop.history).message(fresh=True)[0]))
    loop.run(DATA * 2, display=None)
    assert [told["barred"] for told in during] == ["", ""]
    assert page.heard[-1]["barred"].startswith("No run is under way: write gv.ModelState(model).freeze")
    page.click("freeze", parameters=("weight",))
    assert page.answers[-1]["error"] == page.heard[-2]["barred"]
    opened = Page(gv.frozen_mask(History.open(tmp_path / "run")), monkeypatch)
    opened.click("freeze", parameters=("weight",))
    assert "opened from its files" in opened.answers[-1]["error"]
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with gv.watch(model, optimizer) as watch:
        watched = Page(gv.frozen_mask(watch), monkeypatch)
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        watch.history.notify(final=True)
        watched.click("freeze", parameters=("weight",))
    assert "only watches it" in watched.answers[-1]["error"]


def test_a_page_that_says_nonsense_or_is_gone_breaks_nothing(monkeypatch):
    loop = gv.trainer(nn.Linear(2, 1), "mean_squared_error", "sgd")
    widget = gv.frozen_mask(loop)
    page = Page(widget, monkeypatch)

    def click(state: gv.State) -> None:
        widget._on_message(widget, {"kind": "freeze", "id": "1", "modules": 3}, [])
        if state.iteration == 1:
            monkeypatch.setattr(widget, "send", lambda *_: 1 / 0)
            page.click("freeze", parameters=("weight",))

    loop.handle_event("iteration_completed", click)
    loop.run(DATA * 4, display=None)
    assert "KeyError" in page.answers[0]["error"]
    assert loop.history.wide("state")["weight"].tolist() == ["ok", "ok", "frozen", "frozen"]


def test_what_it_does_not_show_is_told_with_the_line_to_write():
    for x, told in [
        (History().select(every=2), r"got a selection, and it shows whole histories: gv.frozen_mask\(history\)"),
        ("runs/a", r"Write gv.frozen_mask\(gv.History.open\('runs/a'\)\)"),
        (3, "a loop, a watch or a history; got an int"),
    ]:
        with pytest.raises(TypeError, match=told):
            gv.frozen_mask(x)
