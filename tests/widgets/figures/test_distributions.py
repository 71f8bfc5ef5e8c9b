"""Distributions of gradients, as rows of curves."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import gradviz as gv
from gradviz.errors import HistoryError
from tests.history.made import norms

ENTRIES = torch.tensor([1.0, -1.5, 0.25, 0.0, 1e-20, 1e6, float("nan"), float("inf")])


def history_of(*gradients, every=1):
    """Of a model whose gradient is what each batch says."""
    model = nn.Linear(len(gradients[0]), 1, bias=False)
    loop = gv.trainer(model, lambda prediction, _: prediction.sum(), "sgd", histograms_every=every)
    loop.run([(gradient[None], torch.zeros(1, 1)) for gradient in gradients], display=None)
    return loop.history


def curves(figure):
    return [trace for trace in figure.data if trace.mode == "lines"]


def beside(figure):
    (trace,) = [trace for trace in figure.data if trace.mode == "markers"]
    return dict(zip(trace.x, trace.customdata, strict=True))


def test_shares_of_octaves_and_of_what_is_in_none_come_to_1():
    figure = history_of(ENTRIES).figure("distributions")
    (curve,) = curves(figure)
    by_octave = dict(zip(np.round(np.log2(curve.x) - 0.5).astype(int).tolist(), curve.customdata, strict=True))
    assert {octave: share for octave, share in by_octave.items() if share} == {0: 2 / 8, -2: 1 / 8}
    assert beside(figure) == dict.fromkeys(["zero", "< 2⁻⁴⁸", "≥ 2¹⁶", "±inf", "NaN"], 1 / 8)


def test_the_nearest_iteration_that_was_counted_is_named():
    history = history_of(*[torch.full((4,), float(i + 1)) for i in range(9)], every=4)
    shown = [curve.name for curve in curves(history.figure("distributions", iterations=[4, 6]))]
    assert shown == ["iteration 4", "iteration 4 (nearest to 6)"]
    assert [curve.name for curve in curves(history.figure("distributions"))] == [f"iteration {i}" for i in (0, 4, 8)]


def test_a_row_without_a_curve_says_why():
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 1, bias=False))
    gv.ModelState(model).freeze("0")
    loop = gv.trainer(model, "mean_squared_error", "sgd", histograms_every=1)
    loop.run([(torch.ones(4, 2), torch.ones(4, 1))], display=None)
    figure = loop.history.figure("distributions")
    (words,) = [trace for trace in figure.data if trace.mode == "text"]
    assert list(words.text) == ["frozen"]
    assert list(figure.layout.yaxis.ticktext) == ["0.weight", "1.weight"]


def test_runs_show_their_last_counted_iteration():
    gradient = torch.ones(4)
    both = gv.compare({"one": history_of(gradient), "two": history_of(gradient, 2 * gradient)})
    assert [curve.name for curve in curves(both.figure("distributions"))] == ["one · iteration 0", "two · iteration 1"]


def test_a_run_without_counts_and_one_of_too_many_parameters_are_refused():
    with pytest.raises(HistoryError, match="histograms_every=10"):
        norms([1.0]).figure("distributions")
    many = norms([1.0] * 41, names=[f"w{i}" for i in range(41)])
    with pytest.raises(HistoryError, match=r"41 parameters .*select\(parameters="):
        many.figure("distributions")


def test_a_ratio_and_a_stage_that_is_never_counted_are_refused_by_what_they_are():
    history = history_of(torch.ones(4))
    with pytest.raises(HistoryError, match="A ratio of gradients has no distribution"):
        gv.compare({"one": history, "two": history}).ratios().figure("distributions")
    loop = gv.trainer(nn.Linear(2, 1), "mean_squared_error", "sgd", stages=("backward", "update"), histograms_every=1)
    loop.run([(torch.ones(4, 2), torch.zeros(4, 1))], display=None)
    with pytest.raises(HistoryError, match="at 'update' none are"):
        loop.history.figure("distributions", stage="update")
