"""What a view asks for, and what it is told."""

from __future__ import annotations

import numpy as np

import gradviz as gv
from gradviz.history.asked import MEASURES
from gradviz.history.history import History
from gradviz.history.schema import STAGES as KNOWN
from gradviz.history.schema import Parameter
from gradviz.widgets.answers import STAGES, WORDS, answer, choices
from gradviz.widgets.colours import BLUE_ORANGE, VIRIDIS
from gradviz.widgets.wire import unpack


def history_of(n: int = 10) -> History:
    history = History()
    history.declare([Parameter(name="w", shape=(2, 2), dtype="float32")])
    for i in range(n):
        history.append(i, 0, np.full((1, 8), 1.0 + i), np.zeros(1, np.uint8), {"loss": 1.0})
    return history


def question(statistic: str = "mean", stage: str = "backward") -> dict[str, object]:
    return {"kind": "ask", "id": "7", "statistic": statistic, "stage": stage, "start": 2, "stop": 6}


def test_an_answer_has_columns_colours_and_what_they_are():
    told, (columns, table) = answer(history_of(), question())
    assert unpack(columns).start.tolist() == [2, 3, 4, 5]
    assert table == BLUE_ORANGE
    assert told["end"] == 10
    assert (told["scale"], told["level"]) == ("signed", 0)
    assert told["quantity"]["label"] == "gradient, mean"
    told, (_, table) = answer(history_of(), question("rms"))
    assert (told["scale"], table) == ("norms", VIRIDIS)


def test_all_that_is_offered_can_be_asked_for():
    assert set(WORDS) == set(MEASURES)
    assert set(STAGES) <= set(KNOWN)
    for statistic in MEASURES:
        for stage in STAGES:
            answer(history_of(), question(statistic, stage))


def test_a_ratio_of_two_runs_has_nothing_to_choose():
    assert choices(history_of())["stages"][0][:2] == ["backward", "backward"]
    widget = gv.heatmap(gv.compare({"a": history_of(), "b": history_of()}))
    assert widget._choices == {"statistics": [], "stages": []}
    widget.close()


def test_an_answer_of_a_long_run_keeps_its_size():
    told, (columns, _) = answer(history_of(5000), question() | {"start": 0, "stop": 5000})
    assert len(unpack(columns)) <= 4096
    assert told["level"] == 1


def test_the_widget_answers_and_says_what_it_cannot():
    history = history_of()
    widget = gv.heatmap(history)
    sent = []
    widget.send = lambda content, buffers=(): sent.append((content, list(buffers)))
    widget._on_message(widget, question(), [])
    widget._on_message(widget, question("variance"), [])
    widget._on_message(widget, {"kind": "ask", "id": "8"}, [])
    assert [content["kind"] for content, _ in sent] == ["answer"] * 3
    assert [content["id"] for content, _ in sent] == ["7", "7", "8"]
    assert "error" not in sent[0][0]
    assert "No picture shows 'variance'" in sent[1][0]["error"]
    assert sent[2][0]["error"].startswith("KeyError")
    assert sent[2][1] == []
    del widget.send
    widget.close()


def test_an_empty_history_has_an_empty_answer():
    history = History()
    told, (columns, _) = answer(history, question())
    assert (len(unpack(columns)), told["end"]) == (0, 0)
