"""The answers to an inspector's question."""

from __future__ import annotations

import json

import numpy as np
import torch

import gradviz as gv
from gradviz.widgets.inspection import inspect


def trained(**options) -> gv.History:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    loop = gv.trainer(model, "cross_entropy", "sgd", **options)
    loop.run([(torch.randn(8, 3), torch.randint(2, (8,))) for _ in range(12)], display=None)
    return loop.history


def question(name: str = "0.weight", iteration: int | None = 3, of: str = "parameters") -> dict[str, object]:
    return {"kind": "inspect", "id": "7", "of": of, "name": name, "iteration": iteration}


def test_numbers_travel_as_bytes_and_the_rest_as_json():
    history = trained(stages=("backward", "clipped", "update"))
    told, buffers = inspect(history, question())
    json.dumps(told, allow_nan=False)
    norms, bins, pulls = (np.frombuffer(each) for each in buffers)
    found = history.inspected("0.weight", 3)
    assert norms[0] == found.stages["backward"].norm == history.norms["0.weight"][3]
    assert norms[4] == history.update_ratios["0.weight"][3]
    assert bins.reshape(-1, 3)[:, 2].sum() == 12
    assert len(pulls) == 0
    assert (told["kind"], told["id"], told["asked"], told["iteration"]) == ("answer", "7", 3, 3)
    assert (told["bins_iteration"], told["states"]["update"]) == (0, "ok")


def test_what_was_not_recorded_is_nan_with_its_state():
    told, (norms, *_) = inspect(trained(stages=["backward"]), question())
    assert np.isnan(np.frombuffer(norms)[1:]).all()
    assert not told["unclipped"]
    assert told["states"] == {
        "backward": "ok",
        "clipped": "not_recorded",
        "update": "not_recorded",
        "weight": "not_recorded",
    }


def test_where_nothing_was_clipped_the_optimizer_received_what_backward_gave():
    for limit in (None, 1e9):
        told, (norms, *_) = inspect(trained(clip=limit), question())
        backward, clipped, *_ = np.frombuffer(norms)
        assert told["unclipped"]
        assert (told["states"]["clipped"], clipped) == ("ok", backward)
    told, (norms, *_) = inspect(trained(clip=1e-3), question())
    backward, clipped, *_ = np.frombuffer(norms)
    assert not told["unclipped"]
    assert clipped < backward


def test_captured_values_are_asked_for_by_name_and_call():
    history = trained(capture=gv.Capture("*", keep="example_norms"))
    told, (_, bins, pulls) = inspect(history, question("0", None, "activations"))
    assert told["iteration"] == 11
    assert told["examples_iteration"] == 11
    assert len(bins) == 0
    frame = history.examples
    largest = frame[(frame["iteration"] == 11) & (frame["name"] == "0")]["norm"].sort_values(ascending=False)
    np.testing.assert_array_equal(np.frombuffer(pulls), largest[:8])


def test_a_question_that_cannot_be_answered_says_why():
    for wrong in (question("nobody"), question(of="weights"), {"id": "7"}, question("0", 0, "activations")):
        told, buffers = inspect(trained(), wrong)
        assert (told["id"], buffers) == ("7", [])
        assert told["error"]
