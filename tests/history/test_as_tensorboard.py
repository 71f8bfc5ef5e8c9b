"""TensorBoard reads what the history has, and nothing where nothing was recorded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from gradviz.errors import HistoryError
from gradviz.history.history import History
from gradviz.history.schema import OK
from tests.history.made import INF, LOOKS, NAN, history_of, norms, row


def events(folder: Path) -> EventAccumulator:
    return EventAccumulator(str(folder), size_guidance={"scalars": 0, "histograms": 0, "tensors": 0}).Reload()


def scalar(read: EventAccumulator, tag: str) -> list[tuple[int, float]]:
    return [(event.step, event.value) for event in read.Scalars(tag)]


def test_norms_loss_and_metrics_are_scalars(tmp_path: Path):
    history = norms([0.5, 1.0], [0.25, 2.0])
    extra = {"loss": 0.125, "accuracy": 0.75}
    history.append(2, 1, np.array([row(1.0)] * 2), np.zeros(2, np.uint8), extra, loss_scale=4.0, skipped=True)
    history.to_tensorboard(tmp_path)
    read = events(tmp_path)
    assert scalar(read, "gradients/norm/a") == [(0, 0.5), (1, 0.25), (2, 1.0)]
    assert scalar(read, "loss") == [(0, 0.0), (1, 1.0), (2, 0.125)]
    assert scalar(read, "accuracy") == [(2, 0.75)]
    assert scalar(read, "loss_scale")[-1] == (2, 4.0)
    assert scalar(read, "skipped") == [(0, 0.0), (1, 0.0), (2, 1.0)]


def test_a_run_without_a_loss_has_none(tmp_path: Path):
    History.from_frame(pd.DataFrame({"a": [0.5]})).to_tensorboard(tmp_path)
    assert "loss" not in events(tmp_path).Tags()["scalars"]


def test_a_text_is_no_scalar(tmp_path: Path):
    history = norms([0.5])
    history.append(1, 0, np.array([row(1.0)]), np.zeros(1, np.uint8), {"loss": 2.0}, optimizer="critic")
    history.to_tensorboard(tmp_path)
    read = events(tmp_path)
    assert sorted(read.Tags()["scalars"]) == ["gradients/norm/a", "loss", "loss_scale", "skipped"]
    assert scalar(read, "loss") == [(0, 0.0), (1, 2.0)]


def test_nan_and_infinity_are_as_they_are_and_what_was_not_recorded_is_not_there(tmp_path: Path):
    history_of(LOOKS, loss=[NAN]).to_tensorboard(tmp_path)
    read = events(tmp_path)
    found = {tag[-1]: scalar(read, tag)[0][1] for tag in read.Tags()["scalars"] if tag.startswith("gradients/")}
    assert list(found) == list("abcde")
    np.testing.assert_array_equal(list(found.values()), [0.5, 0, NAN, INF, INF])
    assert np.isnan(scalar(read, "loss")[0][1])


def test_finite_numbers_beyond_float32_stay_finite(tmp_path: Path):
    norms([1e300, 1e-300]).to_tensorboard(tmp_path)
    read = events(tmp_path)
    assert scalar(read, "gradients/norm/a")[0][1] == np.finfo(np.float32).max
    assert scalar(read, "gradients/norm/b")[0][1] > 0


def test_stages_have_tags_of_their_own(tmp_path: Path):
    history = norms([1.0])
    clipped = np.array([row(0.5)]), np.array([OK], np.uint8)
    history.append(1, 0, np.array([row(2.0)]), np.array([OK], np.uint8), {"loss": 1.0}, stages={"clipped": clipped})
    others = dict.fromkeys(("update", "weight"), clipped)
    history.append(2, 0, np.array([row(2.0)]), np.array([OK], np.uint8), {"loss": 1.0}, stages=others)
    history.to_tensorboard(tmp_path)
    read = events(tmp_path)
    assert scalar(read, "gradients/norm/a") == [(0, 1.0), (1, 2.0), (2, 2.0)]
    assert scalar(read, "clipped/norm/a") == [(1, 0.5)]
    assert scalar(read, "update/norm/a") == scalar(read, "weight/norm/a") == [(2, 0.5)]


def test_histograms_keep_every_finite_entry_in_its_bin(tmp_path: Path):
    history = norms([1.0])
    lows = [-2.0, 0.0, 0.5, 1.0, NAN, INF]
    highs = [-1.5, 0.0, 0.6, 1.25, NAN, INF]
    history.add_rows(
        "histograms",
        {
            "iteration": [0] * 6,
            "parameter": ["a"] * 6,
            "stage": ["backward"] * 6,
            "low": lows,
            "high": highs,
            "count": [3, 5, 2, 1, 7, 9],
        },
    )
    history.to_tensorboard(tmp_path)
    [event] = events(tmp_path).Histograms("gradients/histogram/a")
    histogram = event.histogram_value
    filled = [(limit, n) for limit, n in zip(histogram.bucket_limit, histogram.bucket, strict=True) if n]
    assert filled == [(-1.5, 3), (0.0, 5), (0.6, 2), (1.25, 1)]
    assert (np.diff(histogram.bucket_limit) > 0).all()
    assert (histogram.min, histogram.max, histogram.num) == (-2.0, 1.25, 11)


def test_a_run_of_any_length_is_written_in_pieces(tmp_path: Path):
    values = np.arange(3000.0).reshape(1000, 3)
    History.from_frame(pd.DataFrame(values, columns=list("abc")), memory_limit=300_000).to_tensorboard(tmp_path)
    read = events(tmp_path)
    assert scalar(read, "gradients/norm/b") == list(zip(range(1000), values[:, 1].tolist(), strict=True))
    assert "loss" not in read.Tags()["scalars"]


def test_without_tensorboard_the_line_to_install_it_is_named(tmp_path: Path):
    code = (
        "import sys; sys.modules['tensorboard'] = None; sys.modules['torch'] = None\n"
        "from gradviz.history.history import History\n"
        "try: History().to_tensorboard('x')\n"
        "except ValueError as error: assert 'pip install tensorboard' in str(error), error\n"
        "else: raise AssertionError\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)
    assert not list(tmp_path.iterdir())


def test_it_is_written_without_torch(tmp_path: Path):
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import pandas as pd\n"
        "from gradviz.history.history import History\n"
        "History.from_frame(pd.DataFrame({'w': [1.0]})).to_tensorboard('x')\n"
        "assert 'tensorflow' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)
    assert len(list((tmp_path / "x").iterdir())) == 1


def test_a_file_in_place_of_the_folder_is_named(tmp_path: Path):
    (tmp_path / "a").write_text("mine")
    with pytest.raises(HistoryError, match=r"Event files go into a folder.*got the file"):
        norms([1.0]).to_tensorboard(tmp_path / "a")
