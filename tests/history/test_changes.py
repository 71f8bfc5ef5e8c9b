"""What was frozen and unfrozen, in few words."""

from __future__ import annotations

import numpy as np

from gradviz.history.changes import Change, condensed
from gradviz.history.history import History
from gradviz.history.schema import OK, Parameter

NAMES = ["a.0.weight", "a.0.bias", "a.1.weight", "b"]


def history_of(n: int) -> History:
    history = History()
    history.declare([Parameter(name=name, shape=(2,), dtype="float32") for name in NAMES])
    for i in range(n):
        history.append(i, 0, np.ones((4, 8)), np.full(4, OK, np.uint8), {"loss": 1.0})
    return history


def test_what_one_of_them_did_at_one_time_is_one_change():
    history = history_of(9)
    history.add_events(3, "frozen", ["a.0.weight", "b", "a.0.bias"], by={"b": "widget"})
    history.add_events(3, "unfrozen", ["a.1.weight"], by={"a.1.weight": "handler"})
    changes, rows = history.changes()
    assert rows == 4
    assert changes == [
        Change(3, "frozen", "user", ["a.0.weight"]),
        Change(3, "frozen", "widget", ["b"]),
        Change(3, "frozen", "user", ["a.0.bias"]),
        Change(3, "unfrozen", "handler", ["a.1.weight"]),
    ]
    history.add_events(5, "frozen", ["a.1.weight"])
    assert history.changes(rows) == ([Change(5, "frozen", "user", ["a.1.weight"])], 5)


def test_what_no_longer_holds_is_not_told():
    history = history_of(9)
    history.add_events(3, "frozen", ["b"])
    history.add_events(7, "unfrozen", ["b"])
    history.begin_attempt(5, 0)
    assert [change.iteration for change in history.changes()[0]] == [3]


def test_who_did_it_is_there_when_a_run_is_opened(tmp_path):
    history = History(save_to=tmp_path / "run")
    history.declare([Parameter(name="b", shape=(2,), dtype="float32")])
    history.add_events(0, "frozen", ["b"], by={"b": "widget"})
    history.append(0, 0, np.ones((1, 8)), np.full(1, OK, np.uint8), {"loss": 1.0})
    history.end_run()
    opened = History.open(tmp_path / "run")
    assert opened.events.to_numpy().tolist() == [[0, "frozen", "b", "widget"]]
    assert opened.changes()[0] == [Change(0, "frozen", "widget", ["b"])]


def test_a_module_that_is_all_there_is_told_by_its_path():
    assert condensed(["a.0.weight", "a.0.bias"], NAMES) == ["a.0"]
    assert condensed(["a.0.weight", "a.0.bias", "a.1.weight"], NAMES) == ["a"]
    assert condensed(NAMES, NAMES) == [""]
    assert condensed(["b"], NAMES) == ["b"]
    assert condensed(["a.1.weight"], NAMES) == ["a.1.weight"], "one parameter is told by its own name"
    assert condensed(["a.0.weight", "a.0.running_mean"], NAMES) == ["a.0.weight", "a.0.running_mean"]
    assert condensed([], NAMES) == []
