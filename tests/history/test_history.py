"""What was recorded comes back as typed pandas frames, and zero, NaN, infinity and absence stay apart."""

from __future__ import annotations

import gc
import math
import subprocess
import sys
import threading
import weakref
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import torch

from gradviz.errors import HistoryError, UnknownKeywordError
from gradviz.history import overview
from gradviz.history.history import History
from gradviz.history.rows import CHUNK
from gradviz.history.schema import FROZEN, NOT_OPTIMIZED, NOT_RECORDED, OK, STATISTICS, UNUSED, Parameter

NAN, INF = math.nan, math.inf


def parameter(name: str) -> Parameter:
    return Parameter(name=name, shape=(2, 3), dtype="float32")


def row(norm: float, nan: float = 0, posinf: float = 0, neginf: float = 0) -> list[float]:
    return [norm, 0.1, 0.2, 0.3, 0.0, nan, posinf, neginf]


NOTHING = [NAN] * len(STATISTICS)


def history_of(*iterations: list[tuple[list[float], int]], names: str = "abcdefgh") -> History:
    history = History()
    history.declare([parameter(name) for name in names[: len(iterations[0])]])
    for i, cells in enumerate(iterations):
        table, states = zip(*cells, strict=True)
        history.append(i, i // 2, np.array(table), np.array(states, np.uint8), {"loss": float(i)})
    return history


LOOKS = [
    (row(0.5), OK),
    (row(0.0), OK),
    (row(NAN, nan=2), OK),
    (row(INF, posinf=1), OK),
    (row(INF, neginf=3), OK),
    (NOTHING, UNUSED),
    (NOTHING, FROZEN),
    (NOTHING, NOT_RECORDED),
]


def test_every_look_stays_apart_in_the_frames():
    history = history_of(LOOKS)
    frame = history.gradients.set_index("parameter")
    assert frame["state"].tolist() == ["ok"] * 5 + ["unused", "frozen", "not_recorded"]
    np.testing.assert_array_equal(frame["norm"], [0.5, 0, NAN, INF, INF, NAN, NAN, NAN])
    assert frame["nan"].tolist() == [0, 0, 2, 0, 0, pd.NA, pd.NA, pd.NA]
    assert frame["posinf"].tolist()[:5] == [0, 0, 0, 1, 0]
    assert frame["neginf"].tolist()[:5] == [0, 0, 0, 0, 3]
    assert frame["nonfinite"].tolist() == [0, 0, 2, 1, 3, pd.NA, pd.NA, pd.NA]


def test_and_in_the_columns_of_the_picture():
    flags = history_of(LOOKS).columns().flags[0, :-1].tolist()
    names = ["ZERO", "NAN", "POSINF", "NEGINF", "UNUSED", "FROZEN", "NOT_RECORDED"]
    assert flags == [0, *(getattr(overview, name) for name in names)]


@pytest.mark.parametrize("every", [1, 3])
def test_a_picture_can_be_drawn_finer_than_the_overview_and_is_the_same_at_its_level(every, monkeypatch):
    monkeypatch.setattr("gradviz.history.cells.AT_ONCE", 7)
    history = History()
    history.declare([Parameter(name="w", shape=(2,), dtype="float32")])
    for i in range(50):
        row = (np.full((1, 8), i + 1.0), np.zeros(1, np.uint8)) if i % every == 0 else (None, None)
        history.append(i, 0, *row, {"loss": float(i)})
    fine, (coarse, _) = history.drawn(1000), history.overview()
    for name in ("start", "stop", "maximum", "minimum", "flags"):
        np.testing.assert_array_equal(getattr(fine, name), getattr(coarse, name))
    assert len(history.drawn(10)) <= 10


def test_columns_are_typed():
    frame = history_of(LOOKS, LOOKS).gradients
    kinds = {name: str(kind) for name, kind in frame.dtypes.items()}
    assert [kinds[name] for name in ("iteration", "epoch")] == ["int64", "int64"]
    assert [kinds[name] for name in ("parameter", "stage", "state")] == ["category"] * 3
    assert [kinds[name] for name in ("norm", "mean", "std", "max_abs", "zero_fraction")] == ["float64"] * 5
    assert [kinds[name] for name in ("nan", "posinf", "neginf", "nonfinite")] == ["Int64"] * 4
    assert len(frame) == 16
    assert frame["iteration"].tolist() == [0] * 8 + [1] * 8
    assert set(frame["stage"]) == {"backward"}


def test_wide_frames_have_a_column_for_each_parameter():
    history = history_of([(row(1), OK), (row(2), OK)], [(row(3), OK), (NOTHING, FROZEN)])
    assert history.norms.to_dict("list") == {"a": [1, 3], "b": [2, pytest.approx(NAN, nan_ok=True)]}
    assert history.norms.index.name == "iteration"
    assert history.norms.columns.name == "parameter"
    assert history.wide("max_abs").loc[0].tolist() == [0.3, 0.3]
    assert history.wide("nan")["b"].tolist() == [0, pd.NA]
    assert history.wide("state")["b"].tolist() == ["ok", "frozen"]


def test_metrics_epochs_and_parameters():
    history = history_of([(row(1), OK)], [(row(2), OK)], [(row(3), OK)])
    history.end_epoch(0, 2, {"loss": 0.5, "accuracy": 0.9}, nonfinite=0)
    assert history.metrics[["epoch", "loss"]].to_dict("list") == {"epoch": [0, 0, 1], "loss": [0.0, 1.0, 2.0]}
    assert history.epochs.to_dict("index") == {0: {"loss": 0.5, "accuracy": 0.9, "iterations": 2, "nonfinite": 0}}
    assert history.parameters.loc["a"].to_dict() == {"shape": (2, 3), "dtype": "float32", "size": 6}


def test_the_scale_and_whether_a_step_was_skipped_stand_after_the_metrics():
    history = history_of([(row(1), OK)])
    metrics = {"loss": 1.0, "accuracy": 0.5}
    history.append(1, 0, np.array([row(INF)]), np.array([OK], np.uint8), metrics, loss_scale=2.0**15, skipped=True)
    frame = history.metrics
    assert list(frame.columns) == ["epoch", "loss", "accuracy", "loss_scale", "skipped"]
    assert (str(frame["loss_scale"].dtype), str(frame["skipped"].dtype)) == ("float64", "bool")
    assert frame["loss_scale"].tolist() == [1, 32768]
    assert frame["skipped"].tolist() == [False, True]
    assert history.norms.loc[1, "a"] == INF


def test_there_is_a_loss_where_any_row_has_one(tmp_path):
    history = History(save_to=tmp_path / "a")
    history.declare([parameter("a")])
    for i in range(3):
        history.append(i, 0, np.array([row(1)]), np.zeros(1, np.uint8), {"accuracy": 0.5})
    history.flush()
    opened = History.open(tmp_path / "a")
    for each in (history, opened, history.select(iterations=-1)):
        assert list(each.metrics.columns) == ["epoch", "accuracy", "loss_scale", "skipped"]
    assert opened.overview()[0].flags.tolist() == [[0, overview.NOT_RECORDED]] * 3
    assert opened.first_nonfinite() is None
    assert np.isnan(opened.progress.loss)
    history.append(3, 0, np.array([row(1)]), np.zeros(1, np.uint8), {"loss": INF, "accuracy": 0.5})
    history.append(4, 0, np.array([row(1)]), np.zeros(1, np.uint8), {"accuracy": 0.5})
    history.end_run()
    opened.refresh()
    for each in (history, opened):
        assert list(each.metrics.columns) == ["epoch", "loss", "accuracy", "loss_scale", "skipped"]
        assert each.metrics["loss"].tolist() == [pd.NA, pd.NA, pd.NA, INF, pd.NA]
        assert each.first_nonfinite()[:3] == (3, "loss", "posinf")
    assert list(history.select(iterations=0).metrics.columns) == list(history.metrics.columns)
    assert pd.read_parquet(tmp_path / "a" / "metrics")["loss"].isna().tolist() == [True, True, True, False, True]


def test_which_optimizer_took_the_step_stands_last_where_any_row_says():
    history = history_of([(row(1), OK)])
    assert list(history.metrics.columns) == ["epoch", "loss", "loss_scale", "skipped"]
    for i, optimizer in enumerate(["critic", None, "generator", "critic"], 1):
        history.append(i, 0, np.array([row(1)]), np.array([OK], np.uint8), {"loss": 1.0}, optimizer=optimizer)
    frame = history.metrics
    assert list(frame.columns) == ["epoch", "loss", "loss_scale", "skipped", "optimizer"]
    assert frame["optimizer"].cat.categories.tolist() == ["critic", "generator"]
    assert frame["optimizer"].astype(object).where(frame["optimizer"].notna(), None).tolist() == [
        *(None, "critic", None, "generator", "critic")
    ]
    part = history.select(iterations=[0, 3]).metrics["optimizer"]
    assert (part.dtype, part.isna().tolist(), part[3]) == (frame["optimizer"].dtype, [True, False], "generator")
    assert history.select(iterations=0).metrics["optimizer"].isna().tolist() == [True]


def test_an_update_is_told_as_a_share_of_the_weight_it_moved(tmp_path):
    history = History(save_to=tmp_path / "a")
    history.declare([parameter(name) for name in "abcde"])
    states = np.array([OK, OK, OK, FROZEN, NOT_OPTIMIZED], np.uint8)

    def of(*norms: float) -> tuple[np.ndarray, np.ndarray]:
        cells = [row(norm) if state != FROZEN else NOTHING for norm, state in zip(norms, states, strict=True)]
        return np.array(cells), states

    update, weight = of(0.01, 0.0, 0.5, NAN, 0.0), of(10.0, 0.0, 0.0, NAN, 2.0)
    for i, stages in enumerate(({}, {"update": update, "weight": weight}, {"update": update}, {"weight": weight})):
        history.append(i, 0, *of(1, 1, 1, 1, 1), {}, stages=stages)
    history.append(5, 1, *of(1, 1, 1, 1, 1), {}, stages={"update": update, "weight": update})
    history.end_run()
    for each in (history, History.open(tmp_path / "a")):
        frame = each.update_ratios
        assert (frame.index.tolist(), frame.index.name, frame.columns.name) == ([1, 5], "iteration", "parameter")
        np.testing.assert_array_equal(frame.to_numpy(), [[0.001, NAN, INF, NAN, 0], [1, NAN, 1, NAN, NAN]])
        assert each.wide("norm", stage="weight")["a"].tolist() == [10.0, 10.0, 0.01]
        assert each.gradients.query("stage == 'weight'")["norm"].tolist()[:1] == [10.0]
        part = each.select(parameters=["a", "c"], iterations=slice(2, None)).update_ratios
        assert part.to_dict("list") == {"a": [1.0], "c": [1.0]}
    assert History().update_ratios.empty


def test_an_iteration_of_which_nothing_was_to_be_recorded_is_in_every_frame_as_not_recorded():
    history, usual = History(), History()
    for each in (history, usual):
        each.declare([parameter("a"), parameter("b")])
        for i in range(7):
            nothing = (None, None) if each is history else (np.empty((0, 8)), np.empty(0, np.uint8))
            taken = (np.array([row(i), row(2 * i)]), np.zeros(2, np.uint8))
            stages = {"clipped": (taken[0] / 2, taken[1])} if i % 3 == 1 else None
            each.append(i, i // 3, *(taken if i % 3 == 1 else nothing), {"loss": float(i)}, stages=stages)
    assert history.thinned.tolist() == [0, 2, 3, 5, 6]
    assert usual.thinned.tolist() == []
    assert len(history._store.stage("backward")) == 2
    assert history.norms["b"].tolist() == pytest.approx([NAN, 2, NAN, NAN, 8, NAN, NAN], nan_ok=True)
    assert history.wide("state")["a"].tolist() == ["ok" if i % 3 == 1 else "not_recorded" for i in range(7)]
    for one, other in (
        (history, usual),
        (history.select(iterations=slice(2, 6), every=3), usual.select(iterations=slice(2, 6), every=3)),
        (history.select(parameters="b"), usual.select(parameters="b")),
    ):
        for frame in ("gradients", "norms", "metrics"):
            pd.testing.assert_frame_equal(getattr(one, frame), getattr(other, frame))
        for statistic in ("state", "nan", "nonfinite", "std"):
            pd.testing.assert_frame_equal(one.wide(statistic), other.wide(statistic))
        pd.testing.assert_frame_equal(one.wide("norm", stage="clipped"), other.wide("norm", stage="clipped"))
    assert history.select(iterations=[1, 4]).thinned.tolist() == []


def test_the_newest_iteration_can_be_given_its_gradients_later_wherever_its_row_is_then(tmp_path):
    late, usual = History(save_to=tmp_path / "late"), History()
    measured = np.array([row(3.0), row(4.0)]), np.zeros(2, np.uint8)
    for each in (late, usual):
        each.declare([parameter("a"), parameter("b")])
        for i in range(6):
            is_there = i == 0 or (i == 5 and each is usual)
            taken = (np.array([row(1.0), row(2.0)]), np.zeros(2, np.uint8)) if is_there else (None, None)
            each.append(i, 0, *(measured if i == 5 and is_there else taken), {"loss": float(i)})
    late.overview()
    late.flush()  # its metrics are on disk, and say that there is nothing else
    late.complete(*measured, stages={})
    late.end_run()
    opened = History.open(tmp_path / "late")
    for each in (late, opened):
        assert each.thinned.tolist() == [1, 2, 3, 4]
        pd.testing.assert_frame_equal(each.gradients, usual.gradients)
        picture, same = each.overview()[0], usual.overview()[0]
        for name in ("start", "stop", "maximum", "minimum", "flags"):
            np.testing.assert_array_equal(getattr(picture, name), getattr(same, name))
    assert picture.stop.tolist() == [5, 6]
    with pytest.raises(HistoryError, match="has its gradients already"):
        late.complete(*measured, stages={})
    with pytest.raises(HistoryError, match="or there is none"):
        History().complete(*measured, stages={})


def test_where_no_iteration_was_recorded_all_are_not_recorded():
    history = History()
    history.declare([parameter("a")])
    assert history.wide("state").empty
    history.append(0, 0, None, None, {"loss": 1.0})
    assert history.gradients[["state", "stage"]].to_numpy().tolist() == [["not_recorded", "backward"]]
    assert history.overview()[0].flags.tolist() == [[overview.NOT_RECORDED, 0]]


def test_thinned_iterations_of_all_attempts_stand_where_they_were():
    history = History()
    history.declare([parameter("a")])
    for i in range(4):
        history.append(i, 0, *((np.array([row(1)]), np.zeros(1, np.uint8)) if i == 2 else (None, None)), {})
    history.begin_attempt(1, 0)
    history.append(1, 0, None, None, {})
    history.append(2, 0, np.array([row(5)]), np.zeros(1, np.uint8), {})
    assert history.norms["a"].tolist() == pytest.approx([NAN, NAN, 5], nan_ok=True)
    everything = history.select(attempts="all").wide("state")["a"]
    assert everything.index.tolist() == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 1), (1, 2)]
    assert [state == "ok" for state in everything] == [False, False, True, False, False, True]
    assert history.gradients["attempt"].tolist() == [0, 1, 1]


def test_events_stand_in_the_order_they_were_written():
    history = History()
    kinds = {"iteration": "int64", "event": "category", "parameter": "category", "by": "category"}
    assert {name: str(kind) for name, kind in history.events.dtypes.items()} == kinds
    history.add_events(5, "frozen", ["b", "a"], by={"a": "widget"})
    history.add_events(5, "unfrozen", [])
    history.add_events(7, "unfrozen", ["a"])
    frame = history.events
    assert frame.to_numpy().tolist() == [
        [5, "frozen", "b", "user"],
        [5, "frozen", "a", "widget"],
        [7, "unfrozen", "a", "user"],
    ]
    assert {name: str(kind) for name, kind in frame.dtypes.items()} == kinds
    assert frame["event"].cat.categories.tolist() == ["frozen", "unfrozen"]
    with pytest.raises(HistoryError, match="did you mean 'frozen'"):
        history.add_events(8, "froze", ["a"])


def test_an_epoch_s_means_can_be_added_to():
    history = history_of([(row(1), OK)])
    history.end_epoch(0, 1, {"loss": 0.5}, nonfinite=0)
    history.end_epoch(1, 1, {"loss": 0.25}, nonfinite=0)
    history.extend_epoch(1, {"validation_loss": 0.75})
    np.testing.assert_array_equal(history.epochs["validation_loss"], [NAN, 0.75])
    assert history.epochs["loss"].tolist() == [0.5, 0.25]
    with pytest.raises(HistoryError, match="epoch 2"):
        history.extend_epoch(2, {"validation_loss": 0.75})


def test_an_empty_history_gives_empty_frames():
    history = History()
    assert len(history) == 0
    assert history.gradients.empty
    assert "norm" in history.gradients.columns
    assert history.norms.empty
    assert history.metrics.empty
    assert history.events.empty
    assert history.epochs.empty
    assert history.parameters.empty
    assert len(history.columns()) == 0
    assert len(history.overview()[0]) == 0
    assert repr(history) == "History of 0 iterations of 0 parameters (idle)"


def test_empty_frames_have_the_columns_and_types_of_those_with_rows():
    empty, full = History(), History()
    full.declare([Parameter(name="w", shape=(2,), dtype="float32")])
    full.append(0, 0, np.ones((1, 8)), np.zeros(1, np.uint8), {"loss": 1.6})
    full.end_epoch(0, 1, {"loss": 1.6}, 0)
    full.add_events(0, "frozen", ["w"])
    for name in ("gradients", "metrics", "epochs", "events", "parameters"):
        of_none, of_some = getattr(empty, name), getattr(full, name)
        assert of_none.dtypes.map(str).to_dict() == of_some.dtypes.map(str).to_dict(), name  # categories differ
        assert (of_none.index.name, of_none.index.dtype) == (of_some.index.name, of_some.index.dtype)
    assert empty.metrics["loss"].tail().empty


def test_a_reader_s_own_edits_do_not_reach_the_history():
    history = history_of([(row(1), OK)])
    frame = history.norms
    frame.loc[0, "a"] = 99
    assert history.norms.loc[0, "a"] == 1
    frame = history.metrics
    frame["loss"] = 5
    assert history.metrics["loss"].tolist() == [0]


def test_frames_grow_with_the_history_across_chunks():
    history = History()
    history.declare([parameter("a")])
    for i in range(2 * CHUNK + 5):
        history.append(i, 0, np.array([row(float(i))]), np.array([OK], np.uint8), {"loss": float(-i)})
        if i == 3:
            assert history.norms["a"].tolist() == [0, 1, 2, 3]
    assert history.norms["a"].tolist() == list(range(2 * CHUNK + 5))
    assert history.metrics["loss"].tolist() == [-i for i in range(2 * CHUNK + 5)]
    assert history.columns(CHUNK - 2).start.tolist() == list(range(CHUNK - 2, 2 * CHUNK + 5))
    assert len(history.overview()[0]) == 2 * CHUNK + 5


def test_parameters_and_metrics_that_come_later_were_not_recorded_before():
    history = history_of([(row(1), OK)])
    history.declare([parameter("a"), parameter("b")])
    history.append(1, 0, np.array([row(2), row(3)]), np.array([OK, OK], np.uint8), {"loss": 1.0, "accuracy": 0.5})
    assert history.wide("state")["b"].tolist() == ["not_recorded", "ok"]
    np.testing.assert_array_equal(history.norms["b"], [NAN, 3])
    np.testing.assert_array_equal(history.metrics["accuracy"], [NAN, 0.5])
    with pytest.raises(HistoryError, match="not taken away"):
        history.declare([parameter("b")])


def test_parameters_that_have_no_row_yet_can_be_read():
    history = History()
    history.declare([parameter("a")])
    assert history.norms.empty
    assert list(history.norms.columns) == ["a"]
    history = history_of([(row(1), OK)])
    history.declare([parameter("a"), parameter("b")])
    assert history.wide("state").loc[0].tolist() == ["ok", "not_recorded"]


def test_a_reader_in_another_thread_sees_every_row_in_the_end_and_never_a_row_too_many():
    history, n = History(), 40
    history.declare([parameter(f"p{i}") for i in range(n)])
    done, seen = threading.Event(), []

    def read() -> None:
        while not done.is_set():
            seen.append(history.gradients["iteration"].nunique())
            columns = history.columns()
            assert columns.start.tolist() == list(range(len(columns)))

    reader = threading.Thread(target=read)
    reader.start()
    for i in range(3 * CHUNK):
        if i % 700 == 350:
            history.declare([*history.described, parameter(f"late {i}")])
        width = len(history.described)
        history.append(i, 0, np.tile(row(1.0), (width, 1)), np.full(width, OK, np.uint8), {"loss": 1.0})
    done.set()
    reader.join(60)
    assert seen == sorted(seen)
    assert history.gradients["iteration"].nunique() == len(history) == 3 * CHUNK


def test_an_unknown_statistic_names_the_nearest():
    with pytest.raises(HistoryError, match="did you mean 'max_abs'"):
        History().wide("maxabs")


def test_the_picture_holds_the_loss_in_its_last_row():
    history = History()
    history.declare([parameter("a")])
    for i, loss in enumerate([1.5, NAN, INF, -INF, -2.0]):
        history.append(i, 0, np.array([row(1.0)]), np.array([OK], np.uint8), {"loss": loss})
    columns = history.columns()
    np.testing.assert_array_equal(columns.maximum[:, -1], np.float32([1.5, NAN, NAN, NAN, -2.0]))
    assert columns.flags[:, -1].tolist() == [0, overview.NAN, overview.POSINF, overview.NEGINF, 0]


def test_norms_beyond_float32_are_drawn_at_its_ends_not_as_zero_or_infinity():
    values = history_of([(row(1e-60), OK), (row(1e60), OK), (row(0.0), OK)]).columns().maximum[0]
    assert values[0] == np.finfo(np.float32).smallest_subnormal
    assert values[1] == np.finfo(np.float32).max
    assert values[2] == 0


def test_listeners_hear_of_every_append_and_are_not_kept_alive():
    class Listener:
        heard = 0

        def listen(self, final: bool) -> None:
            self.heard += 1

    history, listener = history_of([(row(1), OK)]), Listener()
    history.subscribe(listener.listen)
    history.append(1, 0, np.array([row(1)]), np.array([OK], np.uint8), {})
    assert listener.heard == 1
    gone = weakref.ref(listener)
    del listener
    gc.collect()
    assert gone() is None
    history.append(2, 0, np.array([row(1)]), np.array([OK], np.uint8), {})


def test_a_history_is_read_without_torch():
    code = "import sys, gradviz as gv; print(len(gv.History().norms)); assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "0\n"


def test_what_comes_from_an_iteration_on_holds_no_longer_once_it_is_recorded_again():
    history = history_of(*[[(row(float(i)), OK)] for i in range(6)])  # two iterations an epoch
    for epoch in range(3):
        history.end_epoch(epoch, 2, {"loss": float(epoch)}, 0)
        history.add_events(2 * epoch, "frozen", ["a"])
    assert len(history.overview()[0]) == 6
    history.begin_attempt(3, 1)
    assert history.norms["a"].tolist() == [0, 1, 2]
    assert history.epochs["loss"].tolist() == [0]
    assert history.events["iteration"].tolist() == [0, 2]
    assert history.epoch_starts == [0, 2]
    assert len(history.overview()[0]) == 3
    history.append(3, 1, np.array([row(9.0)]), np.array([OK], np.uint8), {"loss": 9.0})
    assert history.norms["a"].tolist() == [0, 1, 2, 9]
    assert history.epoch_starts == [0, 2]
    history.begin_attempt(0, 0)
    assert (len(history), history.epoch_starts, len(history.epochs), len(history.events)) == (0, [], 0, 0)


def test_an_attempt_does_not_go_back_in_epochs():
    history = history_of(*[[(row(i), OK)] for i in range(6)])  # two an epoch
    history.begin_attempt(3, 0)
    with pytest.raises(HistoryError, match="iteration 3 cannot be of epoch 0, as those before it are of epoch 1"):
        history.append(3, 0, np.array([row(1)]), np.array([OK], np.uint8), {})
    history.append(3, 1, np.array([row(1)]), np.array([OK], np.uint8), {})
    assert history.epoch_starts == [0, 2]


def test_negative_iterations_count_from_the_newest_one_by_one_too():
    history = history_of(*[[(row(i), OK)] for i in range(5)])
    assert history.select(iterations=-1).norms.index.tolist() == [4]
    assert history.select(iterations=[0, -2, -9]).norms.index.tolist() == [0, 3]
    assert history.select(every=10**30).norms.index.tolist() == [0]


@pytest.mark.parametrize(
    ("changed", "came"),
    [
        ({"iteration": 1}, "begin_attempt"),
        ({"iteration": 1.5}, "1.5"),
        ({"epoch": -1}, "-1"),
        ({"epoch": 0}, "cannot be of epoch 0, as those before it are of epoch 1"),
        ({"statistics": np.zeros((3, 8))}, "3, 8"),
        ({"statistics": np.zeros((1, 5))}, "1, 5"),
        ({"states": np.array([9], np.uint8)}, "9"),
        ({"states": np.array([-1])}, "-1 in int64"),
        ({"stages": {"nope": (np.zeros((1, 8)), np.zeros(1, np.uint8))}}, "nope"),
        ({"stages": {"update": (np.zeros((3, 8)), np.zeros(3, np.uint8))}}, "3, 8"),
        ({"metrics": {5: 1.0}}, "5"),
        ({"metrics": {"\ud800": 1.0}}, "ud800"),
        ({"metrics": {"loss": 10**400}}, "an int"),
        ({"metrics": {"optimizer": 1.0}}, "a column of that name"),
        ({"metrics": {"thinned": 1.0}}, "a column of that name"),
        ({"statistics": None}, "None twice"),
        ({"optimizer": 5}, 'such as "generator"; got 5'),
        ({"optimizer": ""}, "got ''"),
        ({"optimizer": "\ud800"}, "ud800"),
    ],
)
def test_what_no_file_could_hold_is_refused_and_nothing_of_it_written(tmp_path, changed, came):
    history = History(save_to=tmp_path / "a")
    history.declare([parameter("a")])
    whole = {"epoch": 1, "statistics": np.zeros((1, 8)), "states": np.zeros(1, np.uint8), "metrics": {"loss": 1.0}}
    history.append(iteration=1, **whole)
    with pytest.raises(HistoryError, match=came):
        history.append(**{"iteration": 2, **whole, **changed})
    history.append(iteration=3, **whole)
    history.end_run()
    for one in (history, History.open(tmp_path / "a")):
        assert one.norms.index.tolist() == one.metrics.index.tolist() == [1, 3]


def test_metrics_are_checked_as_a_row_would_be():
    history = History()
    given = {
        "tensor": torch.tensor(0.5),
        "with a graph": torch.tensor(0.25, requires_grad=True),
        "half": torch.tensor(0.1, dtype=torch.bfloat16),
        "numpy": np.float32(0.1),
        "array": np.array(2),
        "one entry": torch.tensor([[0.75]]),
        "count": 3,
        "flag": True,
        "nan": NAN,
        "fraction": Fraction(1, 4),
        "numpy flag": np.bool_(False),
    }
    checked = history.check_metrics(given)
    assert all(type(value) is float for value in checked.values())
    history.append(0, 0, None, None, given)
    written = history.metrics.loc[0, list(given)]
    assert {name: repr(value) for name, value in checked.items()} == {k: repr(float(v)) for k, v in written.items()}
    assert (checked["tensor"], checked["one entry"], checked["numpy"]) == (0.5, 0.75, float(np.float32(0.1)))
    assert history.check_metrics({}) == {}


@pytest.mark.parametrize(
    ("metrics", "came"),
    [
        ({"loss": "0.5"}, "got a str"),
        ({"loss": torch.zeros(2)}, "The metric 'loss' is one number"),
        ({"loss": np.zeros(2)}, "The metric 'loss' is one number"),
        ({"loss": None}, "The metric 'loss' is one number"),
        ({"loss": 1j}, "The metric 'loss' is one number"),
        ({"loss": 10**400}, "an int"),
        *[
            ({name: 1.0}, "a column of that name")
            for name in ("iteration", "attempt", "epoch", "loss_scale", "skipped")
        ],
        *[({name: 1.0}, "a column of that name") for name in ("optimizer", "thinned")],
        ({5: 1.0}, "is a text; got 5"),
    ],
)
def test_what_no_row_could_have_is_refused_before_it_is_due(metrics, came):
    history = History()
    for write in (history.check_metrics, lambda metrics: history.append(0, 0, None, None, metrics)):
        with pytest.raises(HistoryError, match=came):
            write(metrics)
    assert len(history) == 0
    assert history.metrics.columns.tolist() == ["epoch", "loss", "loss_scale", "skipped"]


@pytest.mark.parametrize("changed", [{"norm": [1.0]}, {"norm": 3.0}, {"name": [5, 6]}, {"call": [None, 1]}])
def test_rows_that_do_not_fit_their_table_are_refused(changed):
    columns = {"iteration": [0, 0], "name": ["n", "m"], "call": [0, 0], "example": [1, 2], "example_id": ["a", None]}
    history = History()
    with pytest.raises(HistoryError, match="examples"):
        history.add_rows("examples", {**columns, "norm": [1.0, 2.0], **changed})
    assert history.examples.empty


def test_two_parameters_of_one_name_are_refused():
    with pytest.raises(HistoryError, match="'a' is there twice"):
        History().declare([parameter("a"), parameter("a")])


def test_what_a_history_does_not_have_is_told_with_the_line_to_write():
    history = History()
    for name, told in [
        ("norm", "did you mean 'norms'"),
        ("refresh", "the history of a loop is always current"),
        ("follow", "the history of a loop is always current"),
    ]:
        with pytest.raises(AttributeError, match=told):
            getattr(history, name)
        assert not hasattr(history.select(), name)
    with pytest.raises(UnknownKeywordError, match="did you mean 'parameters'"):
        history.select(parameter="a")
    with pytest.raises(UnknownKeywordError, match=r"select\(iterations=history.metrics.query\('epoch == 2'\).index\)"):
        history.select(epochs=2)
    with pytest.raises(HistoryError, match=r"gv.History.open\('runs/a'\)"):
        History("runs/a")
    with pytest.raises(HistoryError, match=r'save_to is a folder, such as save_to="runs/a"; got an int'):
        History(save_to=3)
