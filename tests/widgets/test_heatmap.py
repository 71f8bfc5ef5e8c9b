"""The widget on Python's side: its traits, one for each history, and its end."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
from ipywidgets import Widget
from traitlets import TraitError

import gradviz as gv
from gradviz.errors import HistoryError
from gradviz.history.history import History
from gradviz.history.schema import OK, Parameter
from gradviz.history.selection import selection
from gradviz.widgets import heatmap as module
from gradviz.widgets.colours import BLUE_ORANGE, VIRIDIS
from gradviz.widgets.heatmap import Heatmap, for_run, heatmap


def history_of(*names: str) -> History:
    history = History()
    history.declare([Parameter(name=name, shape=(2, 3), dtype="bfloat16") for name in names])
    append(history)
    return history


def append(history: History) -> None:
    n = len(history.described)
    history.append(len(history), 0, np.ones((n, 8)), np.full(n, OK, np.uint8), {"loss": 1.0})


@pytest.fixture(autouse=True)
def _closes_what_it_opened():
    yield
    for widget in list(module._open.values()):
        widget.close()


def test_the_parameters_are_described_when_a_view_is_there():
    widget = heatmap(history_of("w", "<img src=x onerror=alert(1)>"))
    bundle = widget._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in str(bundle)
    assert widget._parameters == [
        {"name": "w", "shape": [2, 3], "dtype": "bfloat16"},
        {"name": "<img src=x onerror=alert(1)>", "shape": [2, 3], "dtype": "bfloat16"},
    ]
    assert len(widget._colours) == 768
    assert widget.publisher.sent.messages == 1


@pytest.mark.case("W14")
def test_parameters_that_are_the_same_are_not_sent_again_and_others_are():
    history = history_of("a")
    widget = heatmap(history)
    widget._repr_mimebundle_()
    sent = []
    widget.observe(sent.append, "_parameters")
    for _ in range(3):
        append(history)
        history.notify(final=True)
    assert sent == []
    history.declare([*history.described, Parameter(name="b", shape=(), dtype="float32")])
    append(history)
    history.notify(final=True)
    assert [len(change["new"]) for change in sent] == [2]


def test_the_picture_that_is_kept_is_in_the_state_until_it_is_closed():
    widget = heatmap(history_of("a"))
    widget._repr_mimebundle_()
    assert widget.get_state()["_kept"]["message"]["fresh"]
    sent = []
    widget.comm.send = lambda data=None, **_: sent.append(data)
    widget.close()
    assert next(data["state"] for data in sent if data["method"] == "forget")["_kept"] == {}


def test_parameters_that_come_later_are_described_too():
    history = history_of("a")
    widget = heatmap(history)
    widget._repr_mimebundle_()
    history.declare([*history.described, Parameter(name="b", shape=(), dtype="float32")])
    append(history)
    history.notify(final=True)
    assert [parameter["name"] for parameter in widget._parameters] == ["a", "b"]


def test_a_comparison_is_told_as_one_and_drawn_in_its_own_colours():
    both = gv.compare({"a": history_of("w"), "b": history_of("w")})
    widget = gv.heatmap(both)
    assert widget._quantity["runs"] == ("b", "a")
    assert widget._quantity["noun"] == "ratio"
    assert widget._colours == BLUE_ORANGE
    plain = gv.heatmap(history_of("w"))
    assert (plain._quantity["runs"], plain._quantity["title"], plain._colours) == (None, "gradient norms", VIRIDIS)
    widget.close()


@pytest.mark.case("N07")
def test_asking_again_gives_the_same_widget_and_two_histories_two():
    history = history_of("w")
    before = len(module._open)
    assert heatmap(history) is heatmap(history) is heatmap(history)
    assert len(module._open) == before + 1
    assert heatmap(history) is not heatmap(history_of("w"))


@pytest.mark.case("W07")
def test_a_hundred_widgets_that_were_closed_are_freed():
    from ipywidgets.widgets.widget import _instances
    from torch import nn

    loops = [gv.trainer(nn.Linear(1, 1), "huber", "sgd") for _ in range(100)]
    before = len(_instances)
    freed = []
    for loop in loops:
        widget = gv.heatmap(loop)
        widget._repr_mimebundle_()
        widget.close()
        widget.close()
        loop.history.notify(final=True)
        assert widget.publisher.sent.messages == 1
        freed.append(weakref.ref(widget))
    del widget
    gc.collect()
    assert [ref() for ref in freed] == [None] * 100
    assert len(_instances) == before


def test_a_closed_widget_is_replaced_and_freed():
    history = history_of("w")
    first = heatmap(history)
    first.close()
    first.close()
    append(history)
    second = heatmap(history)
    assert second is not first
    gone = weakref.ref(first)
    del first
    gc.collect()
    assert gone() is None


def test_a_browser_s_hello_is_answered():
    widget = heatmap(history_of("w"))
    widget._repr_mimebundle_()
    widget._on_message(widget, {"kind": "hello", "have": 0}, [])
    assert widget.publisher.sent.messages == 2
    widget._on_message(widget, {"kind": "hello", "have": 2}, [])
    widget._on_message(widget, {"kind": "something else"}, [])
    assert widget.publisher.sent.messages == 2


def test_the_widget_of_a_run_goes_when_the_next_one_begins_unless_somebody_looks_at_it():
    first, second, third = history_of("a"), history_of("b"), history_of("c")
    widget = for_run(first)
    widget._repr_mimebundle_()
    widget._on_message(widget, {"kind": "hello", "have": 0, "view": True}, [])
    assert for_run(second) is not widget
    assert widget.comm is not None  # its run goes on, around the other
    widget.run_is_over()
    widget._on_message(widget, {"kind": "bye"}, [])
    widget._on_message(widget, {"kind": "bye"}, [])
    sent = widget.publisher.sent.messages
    first.notify(final=True)
    assert widget.publisher.sent.messages == sent  # nobody looks

    widget._on_message(widget, {"kind": "hello", "have": 0, "view": True}, [])  # a page that was away
    assert widget.publisher.sent.messages == sent + 1
    for_run(third)
    assert widget.comm is not None
    widget._on_message(widget, {"kind": "bye"}, [])
    assert for_run(third).comm is not None
    assert widget.comm is None


def test_a_widget_that_the_user_asked_for_lives_on():
    first = history_of("a")
    widget = heatmap(first)
    widget._repr_mimebundle_()
    assert for_run(first) is widget
    widget.run_is_over()
    for_run(history_of("b"))
    sent = widget.publisher.sent.messages
    first.notify(final=True)
    assert widget.comm is not None
    assert widget.publisher.sent.messages == sent + 1


def test_the_bundle_is_small_and_imports_nothing_from_the_network():
    assert len(Heatmap._esm) < 60_000
    for text in (str(Heatmap._esm), str(Heatmap._css)):
        assert "http://" not in text.replace("http://www.w3.org/", "")
        assert "https://" not in text


def test_a_loop_and_its_history_are_the_same_picture():
    from torch import nn

    loop = gv.trainer(nn.Linear(1, 1), "huber", "sgd")
    assert gv.heatmap(loop) is gv.heatmap(loop.history)
    assert isinstance(gv.heatmap(loop), Widget)


def test_what_it_does_not_show_is_told_with_the_line_to_write():
    for x, told in [
        (History().select(every=2), r"got a selection, and it shows whole histories: gv.heatmap\(history\)"),
        ("runs/a", r"Write gv.heatmap\(gv.History.open\('runs/a'\)\)"),
        (3, "a loop, a history or a comparison; got an int"),
    ]:
        with pytest.raises(TypeError, match=told):
            gv.heatmap(x)


def test_what_is_selected_in_the_page_is_a_frame_here():
    history = history_of("a.weight", "[b].weight", "c")
    for _ in range(9):
        append(history)
    widget = heatmap(history)
    seen = []
    widget.observe(seen.append, "selection")
    widget.set_state({"selection": {"parameters": ["[b].weight", "c"], "iterations": [2, 5]}})
    assert (widget.selection.parameters, widget.selection.iterations) == (("[b].weight", "c"), slice(2, 5))
    assert len(seen) == 1
    frame = widget.selected()
    assert frame["iteration"].tolist() == [2, 2, 3, 3, 4, 4]
    assert frame["parameter"].unique().tolist() == ["[b].weight", "c"]
    widget.set_state({"selection": None})
    with pytest.raises(HistoryError, match="Nothing is selected: drag over the heatmap"):
        widget.selected()


def test_a_selection_made_here_reaches_the_page_by_name():
    history = history_of("encoder.weight", "encoder.bias", "head")
    for _ in range(9):
        append(history)
    widget = heatmap(history)
    widget.selection = selection("encoder.*", slice(-3, None))
    assert widget.get_state("selection")["selection"] == {
        "parameters": ["encoder.weight", "encoder.bias"],
        "iterations": [7, 10],
    }
    with pytest.raises(TraitError):
        widget.selection = ["encoder.weight"]
