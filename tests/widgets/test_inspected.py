"""What a page's inspector is told: Python's own answers, of some iterations, within some bytes."""

from __future__ import annotations

import itertools
import json
import zlib

import numpy as np
import pandas as pd
import torch

import gradviz as gv
from gradviz.history.history import History
from gradviz.widgets.inspected import INSPECTED_BYTES, inspected, moments
from gradviz.widgets.inspection import inspect
from tests.widgets.histories import history_of
from tests.widgets.test_packed import realistic
from tests.widgets.test_page import long_run


def read(history: History) -> list[tuple[dict, list[bytes]]]:
    told, buffers = map(zlib.decompress, inspected(history))
    found, at = [], 0
    for message, sizes in json.loads(told):
        edges = np.cumsum([at, *sizes]).tolist()
        found.append((message, [buffers[a:b] for a, b in itertools.pairwise(edges)]))
        at = edges[-1]
    assert at == len(buffers)
    return found


def test_the_answers_are_those_of_python():
    torch.manual_seed(0)
    loop = gv.trainer(torch.nn.Linear(3, 2), "mean_squared_error", "sgd", histograms_every=5)
    loop.run([(torch.randn(4, 3), torch.randn(4, 2))] * 12, display=None)
    answers = read(loop.history)
    assert {(told["name"], told["iteration"]) for told, _ in answers} == {
        (name, iteration) for name in ("weight", "bias") for iteration in (0, 5, 10, 11)
    }
    for told, buffers in answers:
        question = {"id": "", "of": "parameters", "name": told["name"], "iteration": told["iteration"]}
        message, parts = inspect(loop.history, question)
        assert (told, buffers) == (json.loads(json.dumps(message)), parts)


def test_the_newest_iteration_is_among_them_and_the_first_that_went_wrong():
    frame = pd.DataFrame({"w": [1.0] * 60 + [np.nan] + [1.0] * 40})
    found = moments(History.from_frame(frame), 8)
    assert len(found) <= 8
    assert {0, 60, 100} <= set(found)
    assert moments(History.from_frame(frame), 1) == [100]
    assert moments(History(), 8) == []


def test_a_run_of_one_iteration_and_one_of_none_have_what_there_is():
    assert [told["iteration"] for told, _ in read(history_of("w"))] == [0]
    assert read(History()) == []


def test_many_parameters_have_fewer_iterations_each():
    assert sum(map(len, inspected(long_run(realistic(2000, 200))))) <= INSPECTED_BYTES
