"""The inspector as Python has it: what it is asked, what it says, and what it keeps."""

from __future__ import annotations

import numpy as np
import pytest

import gradviz as gv
from gradviz.errors import HistoryError
from tests.widgets.histories import append, history_of


def test_it_answers_and_changes_nothing():
    history = history_of("a", "b")
    widget = gv.inspector(history, "b", iteration=0)
    sent = []
    widget.send = lambda content, buffers=None: sent.append((content, buffers))
    question = {"kind": "inspect", "id": "x", "of": "parameters", "name": "a", "iteration": None}
    widget._on_message(widget, question, [])
    ((told, buffers),) = sent
    assert (told["kind"], told["id"], told["name"]) == ("answer", "x", "a")
    assert np.frombuffer(buffers[0])[0] == 1.0
    assert (widget.parameter, widget.iteration) == ("b", 0)


def test_asked_again_it_is_the_same_and_looks_into_another():
    history = history_of("a", "b")
    widget = gv.inspector(history, "a")
    assert gv.inspector(history, "b") is widget
    assert widget.parameter == "b"
    assert gv.inspector(history) is widget
    assert widget.parameter == "b"


def test_an_iteration_may_be_one_of_a_frame_s_index():
    history = history_of("a")
    assert gv.inspector(history, iteration=history.norms.index.to_numpy()[0]).iteration == 0


def test_what_is_chosen_can_be_observed():
    widget = gv.inspector(history_of("a", "b"))
    seen = []
    widget.observe(lambda change: seen.append(change["new"]), ["parameter", "iteration"])
    widget.set_state({"parameter": "b", "iteration": 3})
    assert seen == ["b", 3]
    widget.iteration = None


def test_the_answer_is_kept_for_a_page_without_a_kernel():
    history = history_of("a", "b")
    widget = gv.inspector(history, "b")
    widget._repr_mimebundle_()
    append(history)
    history.notify(final=True)
    assert widget._inspected["message"]["name"] == "b"
    assert widget._inspected["message"]["iteration"] == 1
    assert len(widget._inspected["buffers"]) == 3


def test_arguments_that_cannot_be_are_refused_with_what_to_write():
    history = history_of("encoder.weight")
    with pytest.raises(HistoryError, match=r"There is no 'encoder.wieght'.*'encoder.weight'"):
        gv.inspector(history, "encoder.wieght")
    with pytest.raises(HistoryError, match="name is that of a parameter"):
        gv.inspector(history, 3)
    with pytest.raises(HistoryError, match="whole number from 0 on"):
        gv.inspector(history, iteration=-1)
    with pytest.raises(HistoryError, match='"parameters" or "activations"'):
        gv.inspector(history, of="activation")
    with pytest.raises(HistoryError, match="Nothing was captured"):
        gv.inspector(history, of="activations")
    with pytest.raises(TypeError, match=r"Write gv.inspector\(loop\)"):
        gv.inspector("a.b.c" and object())
    with pytest.raises(TypeError, match="iteration"):
        gv.inspector(history, iterations=3)
