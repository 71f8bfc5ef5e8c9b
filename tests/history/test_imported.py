"""A frame becomes a history that gives the same frame; what is no such frame is refused by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given

from gradviz.errors import HistoryError
from gradviz.history import overview
from gradviz.history.history import History
from tests.history.made import INF, LOOKS, NAN, histories, history_of, norms


@given(histories())
def test_a_history_s_own_frame_comes_back(history: History):
    pd.testing.assert_frame_equal(History.from_frame(history.gradients).gradients, history.gradients)
    every = history.select(attempts="all").gradients
    again = History.from_frame(every).select(attempts="all").gradients
    key = ["attempt", "iteration", "stage", "parameter"]
    pd.testing.assert_frame_equal(again.sort_values(key, ignore_index=True), every.sort_values(key, ignore_index=True))


@given(histories())
def test_in_any_order_of_its_lines(history: History):
    frame = history.gradients
    turned = frame.sample(frac=1, random_state=0)
    pd.testing.assert_frame_equal(History.from_frame(turned).gradients, frame)


def test_and_through_parquet(tmp_path: Path):
    history = history_of(LOOKS, LOOKS)
    history.gradients.to_parquet(tmp_path / "gradients.parquet")
    again = History.from_frame(pd.read_parquet(tmp_path / "gradients.parquet"))
    pd.testing.assert_frame_equal(again.gradients, history.gradients)


def test_and_from_the_files_of_a_run(tmp_path: Path):
    history = History(save_to=tmp_path / "a")
    history.declare([{"name": name, "shape": (2,), "dtype": "float32"} for name in "abcdefgh"])
    table, states = zip(*LOOKS, strict=True)
    history.append(0, 0, np.array(table), np.array(states, np.uint8), {"loss": 1.0})
    history.end_run()
    again = History.from_frame(pd.read_parquet(tmp_path / "a" / "gradients"))
    pd.testing.assert_frame_equal(again.gradients, history.gradients)


def test_columns_that_are_not_there_were_not_recorded():
    frame = pd.DataFrame({"iteration": [3, 1, 3], "parameter": ["b", "a", "a"], "norm": [0.5, NAN, INF]})
    history = History.from_frame(frame)
    tidy = history.gradients
    assert tidy["iteration"].tolist() == [1, 1, 3, 3]
    assert tidy["parameter"].tolist() == ["b", "a", "b", "a"]
    assert tidy["state"].tolist() == ["not_recorded", "ok", "ok", "ok"]
    np.testing.assert_array_equal(tidy["norm"], [NAN, NAN, 0.5, INF])
    assert tidy[["mean", "nan", "nonfinite"]].isna().all(axis=None)
    assert history.parameters["shape"].tolist() == [None, None]
    assert history.parameters["size"].isna().all()
    assert history.metrics.columns.tolist() == ["epoch", "loss_scale", "skipped"]


def test_the_picture_of_such_a_frame_has_its_nan_and_no_loss():
    history = History.from_frame(pd.DataFrame({"w": [NAN, INF, 0.0, 1.0]}))
    flags = history.overview()[0].flags
    assert flags[:, 0].tolist() == [overview.NAN, overview.POSINF, overview.ZERO, 0]
    assert flags[:, 1].tolist() == [overview.NOT_RECORDED] * 4


def test_wide_frames_are_norms_and_only_a_mask_says_that_nothing_was_recorded():
    history = norms([1, 2], [3, NAN])
    pd.testing.assert_frame_equal(History.from_frame(history.norms).norms, history.norms)
    masked = pd.DataFrame({"w": pd.array([1.0, pd.NA], "Float64"), "v": [1.0, NAN]})
    states = History.from_frame(masked).wide("state")
    assert states.loc[1].tolist() == ["not_recorded", "ok"]
    whole = pd.DataFrame({"w": [1, 2]}, index=pd.Index([5, 9]))
    assert History.from_frame(whole).norms.index.tolist() == [5, 9]


def test_an_empty_frame_is_an_empty_history():
    history = history_of(LOOKS)
    none = history.gradients.iloc[:0]
    pd.testing.assert_frame_equal(History.from_frame(none).gradients, none)


GOOD = {"iteration": [0, 1], "parameter": ["w", "w"], "norm": [1.0, 2.0]}


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"iteration": [0.0, 1.0]}, "'iteration' has whole numbers; got float64"),
        ({"iteration": [-1, 1]}, "counts from 0; got -1"),
        ({"iteration": [0, 0]}, "Iteration 0 of 'w' is there twice"),
        ({"attempt": [0, 10**9]}, "how often a run was resumed"),
        ({"norm": ["1", "2"]}, "'norm' has numbers"),
        ({"norm": [True, False]}, "'norm' has numbers; got bool"),
        ({"norm": [1 + 1j, 2]}, "'norm' has numbers; got complex128"),
        ({"norm": None}, "no column 'norm'"),
        ({"parameter": [1, 2]}, "'parameter' has texts"),
        ({"parameter": ["w", None]}, "'parameter' has texts; some are missing"),
        ({"state": ["ok", "frosen"]}, "did you mean 'frozen'"),
        ({"stage": ["backward", "backwards"]}, "did you mean 'backward'"),
        ({"nrom": [1, 2]}, "did you mean 'norm'"),
        ({"nan": [0, 0]}, "counted together or not at all"),
        ({"nan": [0, None], "posinf": [0, 0], "neginf": [0, 0]}, "some of nan, posinf and neginf are missing"),
        ({"nan": [0, 0.5], "posinf": [0, 0], "neginf": [0, 0]}, "no counts"),
        ({"iteration": [0, 0], "parameter": ["w", "v"], "epoch": [0, 1]}, "have another epoch"),
    ],
)
def test_what_is_no_such_frame_is_refused(columns: dict[str, list[object] | None], told: str):
    made = {name: values for name, values in (GOOD | columns).items() if values is not None}
    with pytest.raises(HistoryError, match=told):
        History.from_frame(pd.DataFrame(made))


def test_frames_of_several_runs_and_other_objects_are_refused():
    with pytest.raises(HistoryError, match=r"frame\['a'\]"):
        History.from_frame(pd.concat({"a": norms([1]).norms}, axis=1))
    with pytest.raises(HistoryError, match="got a dict"):
        History.from_frame(GOOD)
    with pytest.raises(HistoryError, match="one is called 0"):
        History.from_frame(pd.DataFrame([[1.0]]))
    with pytest.raises(HistoryError, match="xs"):
        History.from_frame(norms([1]).select(attempts="all").norms)


TIDY = pd.DataFrame({"iteration": [0, 1], "parameter": ["a", "a"], "norm": [1.0, 2.0]})


@pytest.mark.parametrize(
    ("frame", "told"),
    [
        (TIDY.rename(columns={"iteration": "step"}), r'no column \'iteration\'.*columns=\{"step": "iteration"\}\)\.$'),
        (TIDY.rename(columns={"parameter": "name"}), r'no column \'parameter\'.*columns=\{"name": "parameter"\}\)\.$'),
        (TIDY.rename(columns={"iteration": "step", "parameter": "name"}), "no column 'iteration'"),
        (TIDY.assign(norms=0.0), r"\(did you mean 'norm'\?\)\. To leave it out"),
        (TIDY.assign(norm=["x", "y"]), "The column 'norm' has numbers.* 'x' is none"),
        (TIDY.assign(iteration=[0, NAN]), r"some are missing. Write frame.dropna\(subset=\['iteration'\]\)"),
        (TIDY.assign(iteration=[0.0, 1.0]), r"Write frame.astype\("),
        (History.from_frame(TIDY).metrics, r"That is history\.metrics: from_frame wants history\.gradients"),
        (History.from_frame(TIDY).epochs, r"That is history\.epochs"),
    ],
)
def test_a_frame_of_another_form_is_told_by_name_with_a_line_that_works(frame: pd.DataFrame, told: str):
    with pytest.raises(HistoryError, match=told):
        History.from_frame(frame)
