"""The widget on Python's side: its traits, one for each history, and its end."""

from __future__ import annotations

import copy

import pandas as pd
import pytest
import torch
from ipywidgets import Widget
from torch import nn
from traitlets import TraitError

import gradviz as gv
from gradviz.errors import CaptureWarning, HistoryError
from gradviz.history.history import History
from gradviz.history.overview import UNUSED
from gradviz.history.schema import Parameter
from gradviz.history.selection import selection
from gradviz.widgets.answers import answer
from gradviz.widgets.colours import BLUE_ORANGE, VIRIDIS
from gradviz.widgets.feed import why_nothing
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


class Cell(nn.Module):
    """One module that is called twice, and one that the loss does not reach."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head, self.spare = nn.Linear(3, 3), nn.Linear(3, 1), nn.Linear(3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        once = self.inner(x)
        self.spare(once)
        return self.head(self.inner(once.tanh()).tanh())


BATCHES = [(torch.linspace(-1, 1, 12).reshape(4, 3) * i, torch.ones(4, 1)) for i in range(1, 4)]


def captured_loop(model: nn.Module | None = None) -> gv.Loop:
    return gv.trainer(model or Cell(), "mean_squared_error", "sgd", capture=gv.Capture("*"), log=0)


def test_captured_values_are_rows_with_the_numbers_of_plain_torch():
    model = Cell()
    loop = captured_loop(copy.deepcopy(model))
    widget = gv.heatmap(loop, of="activations")
    loop.run(BATCHES, display=None)
    x, y = BATCHES[0]
    once = model.inner(x)
    twice = model.inner(once.tanh())
    out = model.head(twice.tanh())
    values = {"inner": once, "inner#1": twice, "head": out}
    gradients = torch.autograd.grad(nn.functional.mse_loss(out, y), list(values.values()))
    found = {name: g.norm().item() for name, g in zip(values, gradients, strict=True)}
    columns, seen = widget.history.overview()
    names = [parameter["name"] for parameter in widget.history.described]
    assert (names, seen) == (["inner", "inner#1", "spare", "head"], 3)
    row = dict(zip([*names, "loss"], columns.maximum[0].tolist(), strict=True))
    assert {name: row[name] for name in found} == pytest.approx(found, rel=1e-5)
    assert columns.flags[:, names.index("spare")].tolist() == [UNUSED] * 3
    widget.close()


def test_parameters_and_captured_values_of_a_run_are_shown_side_by_side():
    loop = captured_loop()
    widget = gv.heatmap(loop, of="activations")
    assert gv.heatmap(loop) is gv.heatmap(loop, of="parameters") is not widget
    assert gv.heatmap(loop, of="activations") is gv.heatmap(loop.history, of="activations") is widget
    assert repr(widget).startswith("Heatmap of What was captured in History of 0 iterations")
    widget._repr_mimebundle_()
    sent = []
    widget.observe(sent.append, "_parameters")
    loop.run(BATCHES, display=None)
    assert [each["name"] for each in widget._parameters] == ["inner", "inner#1", "spare", "head"]
    assert len(sent) == 1, "The list is sent when there are names, and not again."
    assert [name for name, *_ in widget._choices["statistics"]] == ["norm", "max_abs", "mean", "zero_fraction"]
    assert widget._quantity["of"] == "intermediate value"
    told, _ = answer(widget.history, {"id": 1, "statistic": "mean", "stage": "backward", "start": 0, "stop": 3})
    assert told["quantity"]["of"] == "intermediate value"
    widget.close()


def test_captured_values_that_are_selected_are_rows_of_their_table():
    loop = captured_loop()
    loop.run(BATCHES, display=None)
    widget = gv.heatmap(loop, of="activations")
    widget.set_state({"selection": {"parameters": ["inner#1", "spare"], "iterations": [1, 3]}})
    activations = loop.history.activations
    expected = activations[
        (activations["iteration"] >= 1) & ((activations["call"] == 1) | (activations["name"] == "spare"))
    ]
    pd.testing.assert_frame_equal(widget.selected(), expected.reset_index(drop=True))
    widget.close()


def test_a_watch_shows_what_it_captured():
    torch.manual_seed(0)
    model = Cell()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with gv.watch(model, optimizer, capture=gv.Capture("inner")) as watch:
        widget = gv.heatmap(watch, of="activations")
        for x, y in BATCHES:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
    assert widget.history.norms.columns.tolist() == ["inner", "inner#1"]
    assert widget.history.norms.notna().values.all()
    widget.close()


def test_a_run_that_captured_nothing_after_all_says_what_to_write():
    loop = gv.trainer(Cell(), "mean_squared_error", "sgd", capture=gv.Capture("never"), log=0)
    widget = gv.heatmap(loop, of="activations")
    assert why_nothing(widget.history) == "no iteration recorded yet"
    with pytest.warns(CaptureWarning, match="no module and no sown value is called so"):
        loop.run(BATCHES, display=None)
    assert why_nothing(widget.history) == 'nothing was captured: gv.trainer(..., capture=gv.Capture("encoder.*"))'
    assert why_nothing(loop.history) is None
    widget.close()


def test_what_rows_are_asked_for_is_checked_first():
    history = history_of("w")
    with pytest.raises(HistoryError, match=r"of is \"parameters\" or \"activations\"; got 'activation': did you mean"):
        gv.heatmap(history, of="activation")
    with pytest.raises(HistoryError, match="Nothing was captured in this run"):
        gv.heatmap(history, of="activations")
    with pytest.raises(HistoryError, match="A comparison shows parameters"):
        gv.heatmap(gv.compare({"a": history, "b": history_of("w")}), of="activations")
    with pytest.raises(TypeError, match="got a path"):
        gv.heatmap("runs/a", of="activations")


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
    forgotten = next(data for data in sent if data["method"] == "forget")
    assert forgotten["state"]["_kept"] == {"buffers": [None] * 3}, "a place for each of the buffers that it had"
    assert forgotten["state"]["_parameters"] is None
    assert ["_kept", "buffers", 2] in forgotten["buffer_paths"]
    assert ["_colours"] in forgotten["buffer_paths"]
