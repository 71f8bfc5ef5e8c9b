"""Any statistic of any stage as columns of a picture: the numbers of the frames, merged and flagged."""

from __future__ import annotations

import numpy as np
import pytest

from gradviz.errors import HistoryError
from gradviz.history.history import History
from gradviz.history.overview import FROZEN, NAN, POSINF, UNUSED, ZERO
from gradviz.history.schema import STATISTICS, Parameter

N = 100
SHAPES = {"w": (4, 4), "b": (9,), "scalar": ()}


@pytest.fixture
def history() -> History:
    draw = np.random.default_rng(3)
    history = History()
    history.declare([Parameter(name=name, shape=shape, dtype="float32") for name, shape in SHAPES.items()])
    for i in range(N):
        table = np.zeros((3, len(STATISTICS)))
        table[:, :5] = draw.normal(size=(3, 5))
        table[:, 0] = np.abs(table[:, 0])
        states = np.zeros(3, np.uint8)
        if i == 10:
            table[0] = [np.nan, np.nan, np.nan, np.nan, 0.25, 3, 1, 0]
        if i < 5:
            table[1], states[1] = np.nan, 2  # frozen
        if i == 20:
            table[2], states[2] = np.nan, 1  # unused
        if i == 30:
            table[0, :4], table[0, 4] = 0, 1
        history.append(i, 0, table, states, {"loss": 1 / (i + 1)}, stages={"clipped": (table / 2, states)})
    return history


@pytest.mark.parametrize("measure", ["norm", "max_abs", "mean", "zero_fraction"])
@pytest.mark.parametrize("stage", ["backward", "clipped"])
def test_a_column_an_iteration_has_the_frame_s_numbers(history, measure, stage):
    columns = history.asked(measure, stage, 0, N, 1000)
    frame = history.wide(measure, stage=stage).to_numpy().astype(np.float32)
    np.testing.assert_array_equal(columns.maximum[:, :-1], np.where(np.isfinite(frame), frame, np.nan))
    np.testing.assert_array_equal(columns.start, np.arange(N))
    np.testing.assert_allclose(columns.maximum[:, -1], 1 / np.arange(1, N + 1), rtol=1e-6)


def test_flags_are_those_of_the_gradient_whichever_number_is_shown(history):
    for measure in ("norm", "mean", "zero_fraction"):
        flags = history.asked(measure, "backward", 0, N, 1000).flags
        assert flags[10, 0] == NAN | POSINF, measure
        assert flags[:5, 1].tolist() == [FROZEN] * 5
        assert flags[20, 2] == UNUSED
        assert not flags[11:20].any()
        assert (flags[30, 0] == ZERO) == (measure == "norm"), "A mean of 0 is a number like others."


def test_rms_is_the_norm_by_the_root_of_the_number_of_entries(history):
    columns = history.asked("rms", "backward", 40, 50, 1000)
    sizes = np.array([np.prod(shape) for shape in SHAPES.values()])
    expected = history.norms.to_numpy()[40:50] / np.sqrt(sizes)
    np.testing.assert_allclose(columns.maximum[:, :-1], expected, rtol=1e-6)
    assert columns.start.tolist() == list(range(40, 50))


def test_columns_merge_until_they_are_few_enough_and_lose_no_extreme(history):
    columns = history.asked("mean", "backward", 0, N, 30)
    assert 15 <= len(columns) <= 30
    frame = history.wide("mean")
    for column in range(len(columns)):
        part = frame.iloc[columns.start[column] : columns.stop[column]]
        np.testing.assert_array_equal(columns.maximum[column, :-1], part.max().to_numpy(np.float32))
        np.testing.assert_array_equal(columns.minimum[column, :-1], part.min().to_numpy(np.float32))


def test_a_stage_without_rows_has_no_columns_and_names_that_are_wrong_are_told(history):
    assert len(history.asked("norm", "update", 0, N, 10)) == 0
    assert len(history.asked("norm", "backward", 500, 600, 10)) == 0
    with pytest.raises(HistoryError, match=r"No picture shows 'nrm'.*norm"):
        history.asked("nrm", "backward", 0, N, 10)
    with pytest.raises(HistoryError, match=r"No stage is called 'backwards'.*backward"):
        history.asked("norm", "backwards", 0, N, 10)


def test_more_iterations_than_are_read_at_once_are_all_there():
    history = History()
    history.declare([Parameter(name="w", shape=(2,), dtype="float32")])
    for i in range(5000):
        history.append(i, 0, np.full((1, 8), float(i)), np.zeros(1, np.uint8), {"loss": 1.0})
    columns = history.asked("max_abs", "backward", 0, 5000, 4096)
    assert (int(columns.start[0]), int(columns.stop[-1])) == (0, 5000)
    assert columns.maximum[:, 0].max() == 4999


def test_an_update_is_divided_by_the_weight_where_both_are_recorded(history):
    table, states = np.ones((3, len(STATISTICS))), np.zeros(3, np.uint8)
    history.append(N, 0, table, states, {}, stages={"update": (table * 0.5, states), "weight": (table * 4, states)})
    history.append(N + 1, 0, table, states, {}, stages={"update": (table, states)})
    columns = history.asked("update_ratio", "update", 0, N + 2, 1000)
    assert columns.start.tolist() == [N, N + 1]
    np.testing.assert_array_equal(columns.maximum[:, :-1], [[0.125] * 3, [np.nan] * 3])
    ratios = history.update_ratios.to_numpy(np.float32)
    np.testing.assert_array_equal(columns.maximum[:1, :-1], ratios[:1])
