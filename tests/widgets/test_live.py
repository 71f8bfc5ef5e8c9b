"""What every live picture has in common: one of a kind for each history, its hello, and its end."""

from __future__ import annotations

import gc
import json
import weakref

import numpy as np
import pytest

import gradviz as gv
from gradviz.history.history import History
from gradviz.history.schema import OK, Parameter
from gradviz.widgets import live
from gradviz.widgets.dashboard import for_run
from gradviz.widgets.dtype_table import dtype_table
from gradviz.widgets.frozen_mask import FrozenMask, frozen_mask
from gradviz.widgets.heatmap import Heatmap, heatmap
from gradviz.widgets.inspector import Inspector
from tests.widgets.histories import append, history_of


def test_parameters_that_come_later_are_described_too():
    history = history_of("a")
    widget = heatmap(history)
    widget._repr_mimebundle_()
    history.declare([*history.described, Parameter(name="b", shape=(), dtype="float32")])
    append(history)
    history.notify(final=True)
    assert [parameter["name"] for parameter in widget._parameters] == ["a", "b"]


@pytest.mark.case("N07")
def test_asking_again_gives_the_same_widget_and_two_histories_two():
    history = history_of("w")
    before = len(live._open)
    assert heatmap(history) is heatmap(history) is heatmap(history)
    assert len(live._open) == before + 1
    assert heatmap(history) is not heatmap(history_of("w"))


def test_widgets_of_one_run_have_one_id_by_which_they_find_each_other_in_a_page():
    history = history_of("w")
    assert heatmap(history)._run == frozen_mask(history)._run == dtype_table(history)._run != ""
    assert heatmap(history)._run != heatmap(history_of("w"))._run


def long_run() -> History:
    """600 iterations of 1,000 parameters, with histograms, dtypes and more changes than anybody reads."""
    n, length, draw = 1000, 600, np.random.default_rng(0)
    names = [f"encoder.layers.{i // 10}.attention.{i % 10}.weight" for i in range(n)]
    history = History()
    history.declare([Parameter(name=name, shape=(1024, 1024), dtype="float32") for name in names])
    for i in range(length):
        history.append(i, 0, np.exp(3 * draw.normal(size=(n, 8))), np.full(n, OK, np.uint8), {"loss": 1.0})
        history.add_events(i, "frozen" if i % 2 else "unfrozen", [names[at] for at in draw.choice(n, 12, False)])
    many = np.repeat(names, 4).tolist()
    forms = ["parameter", "gradient", "exp_avg", "exp_avg_sq"] * n
    about = {"iteration": [0] * len(many), "parameter": many, "of": forms}
    history.add_rows("dtypes", {**about, "dtype": ["float32"] * len(many), "device": ["cuda:0"] * len(many)})
    counted = {"low": np.full(4 * n, 0.5), "high": np.full(4 * n, 0.6), "count": np.full(4 * n, 9)}
    history.add_rows(
        "histograms", {**counted, "iteration": [599] * 4 * n, "parameter": many, "stage": ["backward"] * 4 * n}
    )
    history.progress.status, history.progress.iteration = "completed", length
    return history


@pytest.mark.parametrize("make", [frozen_mask, dtype_table])
def test_a_notebook_that_was_saved_with_a_widget_holds_little_of_it(make):
    from ipywidgets.embed import dependency_state

    widget = make(long_run())
    widget._repr_mimebundle_()
    assert len(json.dumps(dependency_state([widget], drop_defaults=False))) < 300_000
    widget.close()


@pytest.mark.case("W07")
@pytest.mark.parametrize("make", [heatmap, frozen_mask])
def test_a_hundred_widgets_that_were_closed_are_freed(make):
    from ipywidgets.widgets.widget import _instances
    from torch import nn

    loops = [gv.trainer(nn.Linear(1, 1), "huber", "sgd") for _ in range(100)]
    before = len(_instances)
    freed = []
    for loop in loops:
        widget = make(loop)
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
    whole = for_run(first)
    whole._repr_mimebundle_()
    widget = whole.panel
    widget._on_message(widget, {"kind": "hello", "have": 0, "view": True}, [])
    assert for_run(second) is not whole
    assert widget.comm is not None  # its run goes on, around the other
    whole.run_is_over()
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
    assert [each.comm for each in (whole, *whole.parts)] == [None] * (1 + len(whole.parts))


def test_a_widget_that_the_user_asked_for_lives_on():
    first = history_of("a")
    widget = heatmap(first)
    widget._repr_mimebundle_()
    whole = for_run(first)
    assert whole.heatmap is widget
    whole.run_is_over()
    for_run(history_of("b"))
    assert whole.panel.comm is None
    sent = widget.publisher.sent.messages
    first.notify(final=True)
    assert widget.comm is not None
    assert widget.publisher.sent.messages == sent + 1


def test_each_kind_has_a_widget_of_its_own_for_a_history():
    history = history_of("w")
    mask, heat = frozen_mask(history), heatmap(history)
    assert isinstance(mask, FrozenMask)
    assert isinstance(heat, Heatmap)
    assert frozen_mask(history) is mask
    heat.close()
    assert frozen_mask(history) is mask
    assert repr(mask) == f"FrozenMask of {history}"


@pytest.mark.parametrize("kind", [Heatmap, FrozenMask, Inspector])
def test_a_bundle_is_small_and_imports_nothing_from_the_network(kind):
    assert len(str(kind._esm).encode()) <= 60_000
    for text in (str(kind._esm), str(kind._css)):
        assert "http://" not in text.replace("http://www.w3.org/", "")
        assert "https://" not in text
