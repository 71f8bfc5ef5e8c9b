"""Frames as CSV read back to the bit, whatever their size."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradviz.errors import HistoryError
from gradviz.history.as_csv import FRAMES
from gradviz.history.history import History
from gradviz.history.schema import OK
from tests.history.made import LOOKS, NAN, history_of, norms

APART = pa.csv.ConvertOptions(null_values=[""], strings_can_be_null=True)


def test_every_frame_has_a_file(tmp_path: Path):
    history = history_of(LOOKS, LOOKS)
    history.add_events(1, "frozen", ["a"])
    history.end_epoch(0, 2, {"loss": 0.5}, nonfinite=0)
    history.to_csv(tmp_path / "tables")
    assert sorted(file.name for file in (tmp_path / "tables").iterdir()) == sorted(f"{name}.csv" for name in FRAMES)
    for name in FRAMES:
        frame = getattr(history, name)
        frame = frame.reset_index() if frame.index.name else frame
        read = pd.read_csv(tmp_path / "tables" / f"{name}.csv")
        assert read.columns.tolist() == frame.columns.tolist()
        assert len(read) == len(frame)
    assert pd.read_csv(tmp_path / "tables" / "parameters.csv")["shape"].tolist() == ["2x3"] * 8
    assert pd.read_csv(tmp_path / "tables" / "metrics.csv")["skipped"].tolist() == [False, False]


def test_what_is_missing_is_empty_and_nan_is_nan(tmp_path: Path):
    history_of(LOOKS).to_csv(tmp_path / "gradients.csv", frame="gradients")
    table = pa.csv.read_csv(tmp_path / "gradients.csv", convert_options=APART)
    assert table["norm"].to_pylist()[:2] == [0.5, 0]
    assert np.isnan(table["norm"][2].as_py())
    assert table["norm"].to_pylist()[3:] == [np.inf, np.inf, None, None, None]
    assert table["nan"].to_pylist() == [0, 0, 2, 0, 0, None, None, None]
    frame = pd.read_csv(tmp_path / "gradients.csv")
    np.testing.assert_array_equal(frame["norm"], history_of(LOOKS).gradients["norm"])
    assert frame["state"].tolist() == history_of(LOOKS).gradients["state"].tolist()


def test_a_statistic_that_was_not_taken_is_empty(tmp_path: Path):
    history_of([([2.0, NAN, NAN, NAN, NAN, 0, 0, 0], OK)]).to_csv(tmp_path / "g.csv", frame="gradients")
    table = pa.csv.read_csv(tmp_path / "g.csv", convert_options=APART)
    assert [table[name][0].as_py() for name in ("norm", "mean", "std")] == [2, None, None]


def test_a_metric_that_some_rows_lack_is_empty_there(tmp_path: Path):
    history = norms([1])
    history.append(1, 0, np.ones((1, 8)), np.zeros(1, np.uint8), {"loss": NAN, "accuracy": NAN})
    history.to_csv(tmp_path / "metrics.csv", frame="metrics")
    accuracy = pa.csv.read_csv(tmp_path / "metrics.csv", convert_options=APART)["accuracy"]
    assert accuracy.is_null().to_pylist() == [True, False]


def test_an_optimizer_is_written_and_nothing_where_no_row_says(tmp_path: Path):
    history = norms([1], [2])
    history.append(2, 0, np.ones((1, 8)), np.zeros(1, np.uint8), {"loss": 1.0}, optimizer="critic")
    history.memory_limit = 600  # a piece for each row
    history.to_csv(tmp_path / "metrics.csv", frame="metrics")
    table = pa.csv.read_csv(tmp_path / "metrics.csv", convert_options=APART)
    assert table["optimizer"].to_pylist() == [None, None, "critic"]


@settings(max_examples=50)
@given(st.lists(st.floats(), min_size=1, max_size=20))
def test_numbers_read_back_to_the_bit(tmp_path_factory: pytest.TempPathFactory, values: list[float]):
    file = tmp_path_factory.mktemp("csv") / "gradients.csv"
    History.from_frame(pd.DataFrame({"w": [*values, 0.5]})).to_csv(file, frame="gradients")
    read = pd.read_csv(file)["norm"].to_numpy()
    np.testing.assert_array_equal(read, [*values, 0.5])
    np.testing.assert_array_equal(np.signbit(read), np.signbit([*values, 0.5]) & ~np.isnan(read))


def test_more_than_fits_in_memory_is_written_in_pieces(tmp_path: Path):
    frame = pd.DataFrame(np.random.default_rng(0).random((2000, 4)), columns=list("abcd"))
    small, large = (History.from_frame(frame, memory_limit=limit) for limit in (800_000, "512MB"))
    with pytest.raises(HistoryError, match="memory limit"):
        _ = small.gradients
    for name, history in (("small", small), ("large", large)):
        history.to_csv(tmp_path / name, frame="gradients")
    assert (tmp_path / "small").read_bytes() == (tmp_path / "large").read_bytes()
    part = large.select(parameters="b", iterations=slice(10, 20), every=3)
    part.to_csv(tmp_path / "part", frame="gradients")
    assert pd.read_csv(tmp_path / "part")["iteration"].tolist() == [10, 13, 16, 19]


def test_names_with_commas_quotes_and_lines_come_back(tmp_path: Path):
    names = ['a,"b"', "c\nd"]
    norms([1, 2], names=names).to_csv(tmp_path / "g.csv", frame="gradients")
    assert pd.read_csv(tmp_path / "g.csv")["parameter"].tolist() == names


def test_what_cannot_be_written_is_refused_and_what_was_there_stays(tmp_path: Path):
    history, file = norms([1]), tmp_path / "g.csv"
    file.write_text("mine")
    with pytest.raises(HistoryError, match="did you mean 'gradients'"):
        history.to_csv(file, frame="gradient")
    with pytest.raises(HistoryError, match='frame="gradients"'):
        history.to_csv(file)
    with pytest.raises(HistoryError, match="got None"):
        history.to_csv(None)
    with pytest.raises(FileNotFoundError):
        history.to_csv(tmp_path / "no" / "g.csv", frame="gradients")
    assert [path.name for path in tmp_path.iterdir()] == ["g.csv"]
    assert file.read_text() == "mine"


def test_metrics_larger_than_memory_are_written_in_pieces_and_a_failure_says_what_is_there(tmp_path: Path, monkeypatch):
    history = norms(*[[float(i)] for i in range(300)])
    whole = history.metrics
    history.memory_limit = 3000
    with pytest.raises(HistoryError, match="memory limit"):
        _ = history.select().metrics
    history.to_csv(tmp_path / "a")
    read = pd.read_csv(tmp_path / "a" / "metrics.csv", index_col="iteration")
    assert read.astype(whole.dtypes).equals(whole)

    def broken(self):
        raise OSError("full")

    monkeypatch.setattr(History, "epochs", property(broken))
    with pytest.raises(OSError, match="full") as error:
        history.to_csv(tmp_path / "b")
    assert error.value.__notes__ == [
        f"While epochs.csv was written; of the frames, gradients, metrics are in {tmp_path / 'b'} by now."
    ]
