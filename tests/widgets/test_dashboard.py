"""The dashboard: the same widgets that are asked for one by one, as one, and closed as one."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import gradviz as gv
from gradviz.history.selection import selection
from gradviz.widgets.dashboard import dashboard, for_run
from tests.widgets.histories import history_of

DATA = [(torch.ones(4, 2), torch.zeros(4, 1))]


def test_its_parts_are_the_widgets_of_the_history_and_its_selection_that_of_the_heatmap():
    model = nn.Sequential(nn.Linear(2, 1))
    loop = gv.trainer(model, "mean_squared_error", "sgd", capture=gv.Capture("*"))
    loop.run(DATA, display=None)
    d = gv.dashboard(loop)
    assert gv.dashboard(loop.history) is d
    assert gv.heatmap(loop) is d.heatmap
    assert gv.frozen_mask(loop) is d.frozen_mask
    assert gv.dtype_table(loop) is d.dtype_table
    assert gv.inspector(loop) is d.inspector
    assert gv.heatmap(loop, of="activations") is d.activations
    d.selection = selection("0.weight", slice(0, 1))
    assert d.heatmap.selection == d.selection
    assert repr(d) == f"Dashboard of {loop.history}"
    d.close()


def test_closed_it_ends_but_for_what_the_user_asked_for_by_itself():
    history = history_of("w")
    d = dashboard(history)
    mask = gv.frozen_mask(history)
    d.close()
    d.close()
    assert mask.comm is not None
    assert {part.comm for part in d.parts if part is not mask} == {None}
    again = dashboard(history)
    assert again is not d
    assert again.frozen_mask is mask
    mask.close()
    assert again.comm is None
    assert dashboard(history) is not again


def test_only_what_is_seen_is_sent_anything_until_a_page_says_that_it_looks():
    history = history_of("w")
    d = dashboard(history)
    d._repr_mimebundle_()
    sent = {type(part).__name__: part.publisher.sent.messages for part in d.parts}
    assert sent == {"Panel": 1, "Heatmap": 1, "Inspector": 1, "FrozenMask": 0, "DtypeTable": 0}
    d.frozen_mask._on_message(d.frozen_mask, {"kind": "hello", "have": 0, "view": True}, [])
    assert d.frozen_mask.publisher.sent.messages == 1
    d.close()


def test_a_run_that_hears_nothing_meanwhile_sends_to_what_is_hidden_too_but_seldom():
    loop = gv.trainer(nn.Linear(2, 1), "mean_squared_error", "sgd")

    def show(state: gv.State) -> None:
        for_run(loop.history)._repr_mimebundle_()

    loop.handle_event("started", show)
    loop.run(DATA * 50, display=None)
    d = dashboard(loop)
    assert 2 <= d.frozen_mask.publisher.sent.messages < d.heatmap.publisher.sent.messages + 3
    assert d.frozen_mask._kept["message"]["run"]["status"] == "completed"
    d.close()


def test_what_it_does_not_show_is_told_with_the_line_to_write():
    with pytest.raises(TypeError, match=r"a loop, a watch or a history; got an int. Write gv.dashboard\(loop\)"):
        gv.dashboard(3)
    history = history_of("w")
    with pytest.raises(TypeError, match=r"got a comparison, of which there is the heatmap: gv.heatmap\(comparison\)"):
        gv.dashboard(gv.compare({"a": history, "b": history}))
    with pytest.raises(TypeError, match="takes no keyword 'of'"):
        gv.dashboard(history, of="activations")
