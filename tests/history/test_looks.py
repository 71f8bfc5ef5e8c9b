"""Zero, NaN, the infinities and every reason for no number are told apart wherever a run is read."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pandas as pd
import pytest

from gradviz.history import overview
from gradviz.history.history import History
from gradviz.history.schema import FROZEN, NOT_OPTIMIZED, NOT_RECORDED, OK, UNUSED

NAN, INF = math.nan, math.inf
NOTHING = [NAN] * 8


def numbers(norm: float, mean: float = 0.1, nan: float = 0, posinf: float = 0, neginf: float = 0) -> list[float]:
    return [norm, mean, 0.2, 0.3, 0.0, nan, posinf, neginf]


LOOKS = {
    "a number": (numbers(0.5), OK),
    "zero": (numbers(0.0, 0.0), OK),
    "NaN": (numbers(NAN, NAN, nan=2), OK),
    "+inf": (numbers(INF, INF, posinf=1), OK),
    "-inf": (numbers(INF, -INF, neginf=3), OK),
    "unused": (NOTHING, UNUSED),
    "frozen": (NOTHING, FROZEN),
    "not_optimized": (numbers(0.5), NOT_OPTIMIZED),
    "not_recorded": (NOTHING, NOT_RECORDED),
}
SKIPPED, MISSING = 1, 2


def look(state: str, norm: float, nan, posinf, neginf) -> str:
    """What one cell says, read as a person would."""
    if state != "ok":
        assert (state == "not_optimized") != pd.isna(norm)
        return state
    counted = {"NaN": nan, "+inf": posinf, "-inf": neginf}
    seen = [name for name, count in counted.items() if count > 0]
    assert bool(seen) == (not math.isfinite(norm))
    return seen[0] if seen else "zero" if norm == 0 else "a number"


@pytest.fixture(params=["in memory", "opened", "opened from elsewhere", "resumed"])
def histories(request, tmp_path):
    """The history of three iterations: the looks, a skipped step, and after one that is missing the looks again."""
    where = "memory://looks/" + tmp_path.name if request.param == "opened from elsewhere" else str(tmp_path / "a")
    history = History(save_to=None if request.param == "in memory" else where)
    history.declare([{"name": name, "shape": (2,), "dtype": "float32"} for name in LOOKS])
    table, states = (np.array(column) for column in zip(*LOOKS.values(), strict=True))
    values = {"zero": 0.0, "NaN": NAN, "+inf": INF, "-inf": -INF}
    for i in (0, SKIPPED, MISSING + 1):
        metrics = {"loss": 1.0, **values, **({"taken": 5.0} if i else {})}
        history.append(i, 0, table, states.astype(np.uint8), metrics, skipped=i == SKIPPED)
    if request.param == "in memory":
        return history
    history.end_run()
    if request.param == "resumed":
        history = History(save_to=where, if_exists="resume")
        history.begin_attempt(4, 0)
        history.begin_run()
        history.end_run()
        return history
    return History.open(where)


@pytest.mark.case("H11")
def test_the_looks_are_apart_in_the_tidy_frame(histories):
    frame = histories.gradients
    for _, rows in frame.groupby("iteration"):
        columns = (rows[name] for name in ("state", "norm", "nan", "posinf", "neginf"))
        assert list(map(look, *columns)) == list(LOOKS)
    assert sorted(set(frame["iteration"])) == [0, 1, 3]
    assert object not in set(frame.dtypes)


@pytest.mark.case("H11")
def test_they_are_apart_in_the_wide_frames(histories):
    wide = [histories.wide(name) for name in ("state", "norm", "nan", "posinf", "neginf")]
    for iteration in (0, 1, 3):
        assert list(map(look, *(frame.loc[iteration] for frame in wide))) == list(LOOKS)
    for frame in wide:
        assert MISSING not in frame.index
        assert list(frame.columns) == list(LOOKS)
    assert histories.wide("mean").loc[0, "-inf"] == -INF


@pytest.mark.case("H11")
def test_a_metric_s_values_are_apart_and_so_are_a_skipped_and_a_missing_step(histories):
    frame = histories.metrics
    assert frame.index.tolist() == [0, 1, 3]
    assert frame["skipped"].tolist() == [False, True, False]
    assert frame["zero"].tolist() == [0, 0, 0]
    assert (frame["+inf"].tolist(), frame["-inf"].tolist()) == ([INF] * 3, [-INF] * 3)
    assert all(math.isnan(value) for value in frame["NaN"].to_numpy("float64"))
    assert frame["NaN"].dtype == np.float64, "NaN was a value, and is none that is missing."
    assert frame["taken"].tolist() == [pd.NA, 5, 5]
    assert str(frame["taken"].dtype) == "Float64"


@pytest.mark.case("H11")
def test_they_are_apart_in_the_picture(histories):
    columns, seen = histories.overview()
    assert seen == 3
    assert columns.start.tolist() == [0, 1, 3]
    names = ["NAN", "POSINF", "NEGINF", "UNUSED", "FROZEN", "NOT_OPTIMIZED", "NOT_RECORDED"]
    flags = [0, overview.ZERO, *(getattr(overview, name) for name in names)]
    assert columns.flags[:, :-1].tolist() == [flags] * 3
    assert len(set(flags)) == len(LOOKS)
    merged = columns.at_level(2)
    assert (merged.start.tolist(), merged.stop.tolist()) == ([0], [4])
    assert merged.flags[0, :-1].tolist() == flags


@pytest.mark.case("H11")
def test_they_are_apart_for_plain_pandas(histories):
    if not hasattr(histories, "_reader"):
        return
    address = histories._reader.folder.address
    gradients, metrics = pd.read_parquet(f"{address}/gradients"), pd.read_parquet(f"{address}/metrics")
    for _, rows in gradients.groupby("iteration"):
        columns = (rows[name] for name in ("state", "norm", "nan", "posinf", "neginf"))
        assert list(map(look, *columns)) == list(LOOKS)
    assert sorted(set(gradients["iteration"])) == metrics["iteration"].tolist() == [0, 1, 3]
    assert metrics["skipped"].tolist() == [False, True, False]
    exact = pd.read_parquet(f"{address}/metrics", dtype_backend="pyarrow")
    assert exact["taken"].isna().tolist() == [True, False, False]
    assert exact["NaN"].isna().sum() == 0, "NaN is not null in the file."


@pytest.mark.case("H02")
def test_values_states_and_absences_of_one_name_never_make_a_column_of_objects(tmp_path):
    class Tensor0:  # what a tensor of one entry can do
        def __float__(self) -> float:
            return 4.0

    history = History(save_to=tmp_path / "a")
    history.declare([{"name": "w", "shape": (2,), "dtype": "float32"}])
    values = [1.0, None, Tensor0(), np.float32(2.5), True, 3, np.array(7), NAN]
    for i, value in enumerate(values):
        table, state = (numbers(1.0), OK) if i % 2 else (NOTHING, FROZEN)
        metrics = {"loss": 1.0} | ({} if value is None else {"value": value})
        history.append(i, 0, np.array([table]), np.array([state], np.uint8), metrics)
    history.end_epoch(0, 8, {"loss": 1.0, "value": np.float32(2.0)}, 0)
    history.end_run()
    for each in (history, History.open(tmp_path / "a")):
        assert each.metrics["value"].tolist()[:7] == [1, pd.NA, 4, 2.5, 1, 3, 7]
        assert str(each.metrics["value"].dtype) == "Float64"
        for frame in (each.gradients, each.norms, each.metrics, each.epochs, each.events, each.dtypes, each.histograms):
            assert object not in set(frame.dtypes)
    for name in ("gradients", "metrics"):
        frame = pd.read_parquet(tmp_path / "a" / name)
        assert {str(dtype) for dtype in frame.dtypes} <= {"int64", "float64", "bool", "category"}
    with pytest.raises(ValueError, match=r"The metric 'value' is one number for each iteration; got .*'frozen'|str"):
        history.append(8, 0, np.array([NOTHING]), np.array([FROZEN], np.uint8), {"value": "frozen"})
    assert len(history) == 8, "What is refused leaves nothing behind."


@pytest.mark.case("H09")
def test_five_hundred_layers_and_more_on_the_way_are_frames_without_a_warning(tmp_path):
    history = History(save_to=tmp_path / "a")
    n = 500
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for i in range(30):
            if i % 10 == 0:
                names = [f"layers.{k}.weight" for k in range(n + i)]
                history.declare([{"name": name, "shape": (2,), "dtype": "float32"} for name in names])
            width = n + i // 10 * 10
            table = np.array([numbers(float(i))] * width)
            history.append(i, 0, table, np.zeros(width, np.uint8), {f"metric {k}": 1.0 for k in range(width)})
        history.end_epoch(0, 30, {f"metric {k}": 1.0 for k in range(width)}, 0)
        history.end_run()
        for each in (history, History.open(tmp_path / "a")):
            assert each.norms.shape == (30, width)
            assert each.norms["layers.519.weight"].tolist()[20:] == list(range(20, 30))
            assert each.wide("state")["layers.519.weight"].tolist() == ["not_recorded"] * 20 + ["ok"] * 10
            assert each.wide("nan").shape == (30, width)
            assert each.metrics["metric 519"].count() == 10
            assert each.epochs.shape == (1, width + 2)
            assert len(each.gradients) == 30 * width
