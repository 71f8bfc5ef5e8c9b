"""The heatmap as a plotly figure."""

from __future__ import annotations

import numpy as np
import pytest

import gradviz as gv
from gradviz.history.history import History
from gradviz.history.schema import OK, STATISTICS, Parameter
from tests.history.made import LOOKS, history_of, norms, row


def heatmaps(figure):
    return [trace for trace in figure.data if trace.type == "heatmap"]


def cells_of(figure, word):
    (trace,) = [trace for trace in heatmaps(figure) if trace.name == word]
    return np.argwhere(np.isfinite(np.asarray(trace.z))).tolist()


def test_cells_have_the_logarithm_of_the_norm_and_the_norm_itself():
    (trace,) = heatmaps(norms([0.01, 10.0], [1.0, 0.1], names=["body", "head"]).figure("heatmap"))
    np.testing.assert_allclose(trace.z, [[-2, 0], [1, -1]], atol=1e-6)
    np.testing.assert_allclose(np.asarray(trace.customdata)[..., 0], [[0.01, 1], [10, 0.1]], rtol=1e-6)
    assert list(trace.y) == ["body", "head"]
    np.testing.assert_array_equal(trace.x, [-0.5, 0.5, 1.5])


def test_no_cell_is_blank_and_each_look_has_its_own_colour_and_a_place_in_the_legend():
    figure = history_of(LOOKS, LOOKS[::-1]).figure("heatmap")
    traces = heatmaps(figure)
    filled = np.sum([np.isfinite(np.asarray(trace.z)) for trace in traces], axis=0)
    np.testing.assert_array_equal(filled, np.ones((8, 2)))
    assert cells_of(figure, "zero") == [[1, 0], [6, 1]]
    assert cells_of(figure, "NaN") == [[2, 0], [5, 1]]
    assert cells_of(figure, "frozen") == [[1, 1], [6, 0]]
    words = ["frozen", "unused", "zero", "NaN", "+inf", "−inf", "not recorded"]
    assert [trace.name for trace in figure.data if trace.showlegend] == words
    assert len({trace.colorscale[0][1] for trace in traces[1:]}) == len(words)


def test_what_is_not_finite_is_a_sign_as_well():
    figure = history_of(LOOKS).figure("heatmap")
    signs = {trace.marker.symbol for trace in figure.data if trace.type == "scatter" and trace.hoverinfo == "skip"}
    assert {"x", "triangle-up", "triangle-down"} <= signs


def test_iterations_that_are_not_selected_are_empty_and_not_stretched():
    history = norms(*[[1.0]] * 30)
    (trace,) = heatmaps(history.select(iterations=[0, 1, 2, 20, 21]).figure("heatmap"))
    np.testing.assert_array_equal(trace.x, [-0.5, 0.5, 1.5, 2.5, 19.5, 20.5, 21.5])
    np.testing.assert_array_equal(np.isnan(trace.z[0]), [False, False, False, True, False, False])
    (trace,) = heatmaps(history.select(every=10).figure("heatmap"))
    np.testing.assert_array_equal(trace.x, [-0.5, 9.5, 19.5, 20.5])


def test_at_most_1000_by_2000_cells_and_what_was_merged_is_said():
    history, n = History(), 1500
    history.declare([Parameter(name=f"layers.{i}.weight", shape=(2,), dtype="float32") for i in range(n)])
    table = np.tile(np.array([row(1.0)]), (n, 1))
    for i in range(2500):
        history.append(i, 0, table[:, : len(STATISTICS)], np.full(n, OK, np.uint8), {"loss": 1.0})
    figure = history.figure("heatmap")
    (trace,) = heatmaps(figure)
    rows, columns = np.asarray(trace.z).shape
    assert rows <= 1000
    assert columns <= 2000
    assert rows * columns <= 1_000_000
    assert f"1,500 parameters in {rows} rows (max)" in figure.layout.title.subtitle.text
    assert "1 column = up to 2 iterations (max)" in figure.layout.title.subtitle.text


def test_runs_stand_side_by_side_on_one_scale():
    both = gv.compare({"one": norms([0.002], names=["a"]), "two": norms([500.0, 1.0], names=["a", "b"])})
    figure = both.figure("heatmap")
    first, second = heatmaps(figure)
    assert (first.xaxis, second.xaxis) == ("x", "x2")
    assert [note.text for note in figure.layout.annotations] == ["one", "two"]
    assert first.coloraxis == second.coloraxis == "coloraxis"
    assert (figure.layout.coloraxis.cmin, figure.layout.coloraxis.cmax) == (-3, 3)


def test_a_ratio_is_drawn_around_1():
    figure = gv.compare({"a": norms([1.0], [4.0]), "b": norms([2.0], [1.0])}).ratios().figure("heatmap")
    (trace,) = heatmaps(figure)
    np.testing.assert_allclose(trace.z, [[1, -2]])
    assert (figure.layout.coloraxis.cmin, figure.layout.coloraxis.cmax) == (-2, 2)


def test_what_is_in_no_optimizer_is_named():
    from gradviz.history.schema import NOT_OPTIMIZED

    history = history_of([(row(1.0), OK), (row(1.0), NOT_OPTIMIZED)])
    assert "not in the optimizer: b" in history.figure("heatmap").layout.title.subtitle.text


@pytest.mark.parametrize("n", [1, 3])
def test_thinned_iterations_belong_to_the_one_before(n):
    history = norms([1.0])
    for i in range(1, 4):
        history.append(i, 1, None, None, {"loss": 1.0})
    figure = history.select(iterations=slice(0, n + 1)).figure("heatmap")
    assert np.asarray(heatmaps(figure)[0].z).shape == (1, 1)
    assert [trace.name for trace in figure.data if trace.showlegend] == []


def test_rows_whose_names_are_numbers_stand_in_a_row_each():
    figure = norms([1.0, 2.0, 3.0], names=["0", "2", "0.5"]).figure("heatmap")
    assert figure.layout.yaxis.type == "category"
