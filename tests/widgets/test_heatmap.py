"""The widget on Python's side: its traits, one for each history, and its end."""

from __future__ import annotations

import pytest
from ipywidgets import Widget
from traitlets import TraitError

import gradviz as gv
from gradviz.errors import HistoryError
from gradviz.history.history import History
from gradviz.history.schema import Parameter
from gradviz.history.selection import selection
from gradviz.widgets.colours import BLUE_ORANGE, VIRIDIS
from gradviz.widgets.heatmap import heatmap
from tests.widgets.histories import append, history_of


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


def test_a_comparison_is_told_as_one_and_drawn_in_its_own_colours():
    both = gv.compare({"a": history_of("w"), "b": history_of("w")})
    widget = gv.heatmap(both)
    assert widget._quantity["runs"] == ("b", "a")
    assert widget._quantity["noun"] == "ratio"
    assert widget._colours == BLUE_ORANGE
    plain = gv.heatmap(history_of("w"))
    assert (plain._quantity["runs"], plain._quantity["title"], plain._colours) == (None, "gradient norms", VIRIDIS)
    widget.close()


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
