"""What was captured as a history: of a run that grows, of one that is opened, and of none."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

from gradviz.errors import HistoryError
from gradviz.history.activations import activations_of
from gradviz.history.history import History
from gradviz.history.overview import FROZEN, NAN, NOT_RECORDED, POSINF, UNUSED, ZERO
from gradviz.history.selection import selection
from tests.history import made
from tests.history.made import capture, capturing


class Listener:
    def __init__(self) -> None:
        self.heard: list[bool] = []

    def hear(self, final: bool) -> None:
        self.heard.append(final)


def test_each_look_is_a_flag_of_its_own_in_the_picture():
    run = capturing()
    looks = {"ok": 0.5, "zero": 0.0, "nan": made.NAN, "inf": made.INF, "unused": made.NAN, "frozen": made.NAN}
    states = {"unused": "unused", "frozen": "frozen", "lost": "not_recorded"}
    capture(run, 0, looks | {"lost": made.NAN}, state=states)
    columns, _ = activations_of(run).overview()
    assert columns.flags[0].tolist() == [0, ZERO, NAN, POSINF, UNUSED, FROZEN, NOT_RECORDED, 0]
    assert columns.maximum[0, 0] == 0.5
    assert columns.maximum[0, -1] == 0  # the loss


def test_an_iteration_that_was_thinned_joins_the_one_before_it():
    run = capturing()
    for i in range(6):
        capture(run, i, {} if i % 3 else {"a": 1.0 + i}, thinned=i % 3 > 0)
    found = activations_of(run)
    assert found.columns(0).flags[:, 0].tolist() == [0] * 6
    columns, seen = found.overview()
    assert (columns.start.tolist(), columns.stop.tolist(), seen) == ([0, 3], [3, 6], 6)
    assert found.thinned.tolist() == [1, 2, 4, 5]


def test_names_that_come_later_are_told_by_a_new_list_and_by_no_other():
    run = capturing()
    capture(run, 0, {"b": 1.0, "a": 1.0})
    found = activations_of(run)
    before = found.described
    capture(run, 1, {"b": 1.0})
    assert found.described is before
    capture(run, 2, {"a#1": 1.0, "b": 1.0})
    assert [parameter["name"] for parameter in found.described] == ["b", "a", "a#1"]
    assert found.described[2] == {"name": "a#1", "shape": None, "dtype": ""}
    assert [parameter["name"] for parameter in before] == ["b", "a"]


def test_it_is_as_far_as_the_run_and_tells_what_the_run_tells():
    run = capturing()
    found = activations_of(run)
    listener = Listener()
    found.subscribe(listener.hear)
    capture(run, 0, {"a": 1.0})
    run.notify(final=True)
    assert listener.heard == [False, True]
    assert found.progress is run.progress
    assert (len(found), found.epoch_starts, found.metrics["loss"].tolist()) == (1, [0], [0.0])
    found.unsubscribe(listener.hear)
    capture(run, 1, {"a": 1.0})
    assert len(listener.heard) == 2
    assert found.columns(1).start.tolist() == [1]


def test_another_statistic_is_asked_of_it_but_none_that_needs_a_size():
    run = capturing()
    for i in range(4):
        capture(run, i, {"a": float(i)})
    found = activations_of(run)
    assert found.measures == ("norm", "max_abs", "mean", "zero_fraction")
    assert found.asked("max_abs", "backward", 1, 3, 100).maximum[:, 0].tolist() == [0.5, 1.0]
    assert "rms" in run.measures


def test_what_is_chosen_are_lines_of_the_table():
    run = capturing()
    for i in range(8):
        capture(run, i, {"a": 1.0, "a#1": 2.0, "b": 3.0})
    lines = activations_of(run).chosen(selection(["a#1", "b"], slice(2, 6), every=2))
    assert lines[["iteration", "name", "call", "norm"]].values.tolist() == [
        [2, "a", 1, 2.0],
        [2, "b", 0, 3.0],
        [4, "a", 1, 2.0],
        [4, "b", 0, 3.0],
    ]
    assert list(lines.columns) == list(run.activations.columns)


def test_there_is_one_of_a_run_while_anybody_holds_it():
    run = capturing()
    found = activations_of(run)
    assert activations_of(run) is found
    assert activations_of(found) is found
    assert found.identity == run.identity  # in a page they are of one run
    gone = weakref.ref(found)
    del found
    gc.collect()
    assert gone() is None
    assert activations_of(run)._run is run


def test_a_run_that_captures_nothing_is_told_what_to_write():
    run = made.norms([1.0])
    with pytest.raises(HistoryError, match=r'Nothing was captured in this run.*capture=gv\.Capture\("encoder\.\*"\)'):
        activations_of(run)
    with pytest.raises(HistoryError, match="Nothing was captured"):
        activations_of(History())
    with pytest.raises(HistoryError, match="only read here"):
        activations_of(capturing()).append(0, 0, None, None, {})


def test_an_opened_run_is_shown_as_far_as_it_is_written(tmp_path):
    run = capturing(save_to=tmp_path / "a", flush_interval_s=1e6)
    run.begin_run()
    run.flush()
    opened = History.open(tmp_path / "a")
    found = activations_of(opened)  # more may come
    assert (len(found), found.described) == (0, [])
    for i in range(3):
        capture(run, i, {"a": float(i)})
    run.flush()
    opened.refresh()
    np.testing.assert_array_equal(found.overview()[0].maximum[:, 0], [0, 1, 2])
    run.begin_attempt(1, 0)
    for i in range(1, 5):
        capture(run, i, {"a": 10.0 * i, "b": 1.0})
    run.end_run()
    opened.refresh()
    np.testing.assert_array_equal(found.overview()[0].maximum[:, 0], [0, 10, 20, 30, 40])
    np.testing.assert_array_equal(activations_of(History.open(tmp_path / "a")).norms, found.norms)


def test_an_opened_run_without_captures_is_told_what_to_write(tmp_path):
    run = made.norms([1.0])
    saved = History(save_to=tmp_path / "a")
    saved.declare(run.described)
    saved.append(0, 0, np.ones((1, 8)), np.zeros(1, np.uint8), {})
    saved.end_run()
    with pytest.raises(HistoryError, match="Nothing was captured"):
        activations_of(History.open(tmp_path / "a"))
