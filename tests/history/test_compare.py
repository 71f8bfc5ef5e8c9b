"""Runs side by side: what one lacks, and what cannot be divided, is said and never guessed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gradviz as gv
from gradviz.errors import HistoryError, RecordingWarning, UnknownKeywordError
from gradviz.history import overview
from gradviz.history.history import History
from gradviz.history.schema import FROZEN, NOT_OPTIMIZED, OK, UNUSED
from tests.history.made import INF, LOOKS, NAN, NOTHING, cells, histories, history_of, norms, row


@pytest.mark.case("H08")
@pytest.mark.parametrize("wrap", ["{}", "module.{}", "_orig_mod.{}", "module._orig_mod.{}", "_orig_mod.module.{}"])
def test_runs_of_wrapped_models_meet_by_the_names_of_the_plain_one(wrap: str):
    names = ["encoder.weight", "head.bias"]
    wrapped = norms([2, 3], names=[wrap.format(name) for name in names])
    both = gv.compare({"a": norms([1, 2], names=names), "b": wrapped})
    assert both.ratio().loc[0].to_dict() == {"encoder.weight": 2, "head.bias": 1.5}
    assert both.only == {"a": [], "b": []}
    assert both.norms["b"].columns.tolist() == names
    assert both.gradients["parameter"].cat.categories.tolist() == names


def test_iterations_and_parameters_that_one_lacks_are_kept_and_named():
    both = gv.compare({"a": norms([1, 2], [3, 4]), "b": norms([5], [6], [7], names=["b"])})
    assert both.norms.columns.tolist() == [("a", "a"), ("a", "b"), ("b", "b")]
    assert both.norms.columns.names == ["run", "parameter"]
    np.testing.assert_array_equal(both.norms.to_numpy(), [[1, 2, 5], [3, 4, 6], [NAN, NAN, 7]])
    assert both.wide("state")["a"]["b"].isna().tolist() == [False, False, True]
    assert both.wide("nan")["a"]["b"].tolist() == [0, 0, pd.NA]
    assert both.only == {"a": ["a"], "b": []}
    assert repr(both) == "Comparison of b with a (only in a: a)"
    assert both.why()["b"].tolist() == ["ok", "ok", "missing in a"]


def test_every_reason_why_there_is_no_ratio_is_said():
    reference = history_of([(row(2.0), OK)] * 8)
    why = gv.compare({"a": reference, "b": history_of(LOOKS)})
    told = ["ok", "ok", "nan in b", "inf in b", "inf in b", "unused in b", "frozen in b", "not recorded in b"]
    assert why.why().loc[0].tolist() == told
    np.testing.assert_array_equal(why.ratio().loc[0], [0.25, 0, *[NAN] * 6])
    turned = gv.compare({"a": history_of(LOOKS), "b": reference})
    told = ["ok", "zero in a", "nan in a", "inf in a", "inf in a", "unused in a", "frozen in a", "not recorded in a"]
    assert turned.why().loc[0].tolist() == told
    np.testing.assert_array_equal(turned.ratio().loc[0], [4, *[NAN] * 7])


def test_two_reasons_are_both_said():
    a = history_of([(row(0.0), OK), (NOTHING, FROZEN), (row(NAN, nan=1), OK)])
    b = history_of([(row(0.0), OK), (NOTHING, UNUSED), (row(0.0), OK)])
    told = ["zero in a and b", "frozen in a, unused in b", "nan in a"]
    assert gv.compare({"a": a, "b": b}).why().loc[0].tolist() == told


@pytest.mark.parametrize(("a", "b"), [(1e-300, 1e300), (1e300, 1e-300)])
def test_a_ratio_that_no_float_can_hold_is_neither_infinite_nor_zero(a: float, b: float):
    both = gv.compare({"a": norms([a]), "b": norms([b])})
    assert both.why().loc[0, "a"] == "out of range"
    assert np.isnan(both.ratio().loc[0, "a"])


@given(st.lists(st.tuples(cells(), cells()), min_size=1, max_size=8))
def test_there_is_a_ratio_exactly_where_nothing_is_in_its_way(pairs):
    a, b = (history_of(list(side)) for side in zip(*pairs, strict=True))
    both = gv.compare({"a": a, "b": b})
    ratio, why = both.ratio().loc[0], both.why().loc[0]
    for name in ratio.index:
        assert np.isnan(ratio[name]) == (why[name] != "ok")
        if why[name] == "ok":
            assert ratio[name] == b.norms.loc[0, name] / a.norms.loc[0, name]
    np.testing.assert_array_equal(both.ratios().norms.loc[0], ratio)


def test_statistics_that_were_not_taken_are_not_recorded_and_not_nan():
    only_norm = [2.0, NAN, NAN, NAN, NAN, 0, 0, 0]
    both = gv.compare({"a": history_of([(only_norm, OK)]), "b": history_of([(row(1.0), OK)])})
    assert both.why("mean").loc[0, "a"] == "not recorded in a"
    assert both.ratio().loc[0, "a"] == 0.5
    assert both.why("nan").loc[0, "a"] == "zero in a and b"


def test_a_parameter_that_is_not_optimized_is_measured():
    both = gv.compare({"a": history_of([(row(2.0), NOT_OPTIMIZED)]), "b": history_of([(row(1.0), OK)])})
    assert both.ratio().loc[0, "a"] == 0.5


def test_gradients_stand_one_run_after_the_other():
    a, b = norms([1, 2]), norms([3], [4], names=["b"])
    tidy = gv.compare({"a": a, "b": b}).gradients
    assert tidy[["run", "iteration", "parameter", "norm"]].to_numpy().tolist() == [
        ["a", 0, "a", 1],
        ["a", 0, "b", 2],
        ["b", 0, "b", 3],
        ["b", 1, "b", 4],
    ]
    assert tidy.dtypes.drop("run").astype(str).equals(a.gradients.dtypes.astype(str))
    assert str(tidy["run"].dtype) == "category"


def test_metrics_stand_side_by_side_and_what_a_run_lacks_is_missing_and_not_nan():
    a, b = history_of([LOOKS[0]], loss=[NAN]), history_of([LOOKS[0]], [LOOKS[0]])
    metrics = gv.compare({"a": a, "b": b}).metrics
    assert metrics.columns.names == ["run", "metric"]
    assert {str(kind) for kind in metrics["a"].dtypes} == {"Int64", "Float64", "boolean"}
    assert metrics["a"]["loss"].isna().tolist() == [False, True]
    assert np.isnan(metrics["a"]["loss"].to_numpy(np.float64, na_value=0)).tolist() == [True, False]
    pd.testing.assert_frame_equal(metrics["b"], b.metrics, check_names=False, check_dtype=False)


def test_a_run_without_a_loss_has_no_column_for_it():
    frame = gv.compare({"a": norms([1], [2]), "b": gv.History.from_frame(norms([1]).norms)}).metrics
    assert frame["a"].columns.tolist() == ["epoch", "loss", "loss_scale", "skipped"]
    assert frame["b"].columns.tolist() == ["epoch", "loss_scale", "skipped"]


def test_the_optimizers_of_runs_stand_side_by_side(tmp_path: Path):
    a, b = norms([1], [2], [3]), norms([1])
    b.append(1, 0, np.ones((1, 8)), np.zeros(1, np.uint8), {"loss": 1.0}, optimizer="critic")
    frame = gv.compare({"a": a, "b": b}).metrics
    assert ("a", "optimizer") not in frame
    assert frame["b"]["optimizer"].isna().tolist() == [True, False, True]
    assert frame["b"]["optimizer"][1] == "critic"
    frame.to_parquet(tmp_path / "a.parquet")
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "a.parquet"), frame, check_categorical=False)


def test_epochs_stand_side_by_side():
    a, b = norms([1]), norms([1])
    a.end_epoch(0, 1, {"loss": 0.5}, nonfinite=0)
    b.end_epoch(0, 1, {"loss": 0.25}, nonfinite=0)
    b.end_epoch(1, 1, {"loss": 0.125}, nonfinite=0)
    epochs = gv.compare({"a": a, "b": b}).epochs
    assert epochs["b"]["loss"].tolist() == [0.25, 0.125]
    assert epochs["a"]["loss"].isna().tolist() == [False, True]


def test_parameters_that_differ_are_named():
    a, b = History(), History()
    a.declare([{"name": "w", "shape": (2, 3), "dtype": "float32"}, {"name": "v", "shape": (), "dtype": "float32"}])
    b.declare([{"name": "module.w", "shape": (3, 3), "dtype": "bfloat16"}])
    frame = gv.compare({"a": a, "b": b}).parameters
    assert frame.loc["w"].to_dict() == {
        "runs": "a, b",
        "shape": (2, 3),
        "dtype": "float32",
        "differs": "shape (2, 3) in a, (3, 3) in b; dtype float32 in a, bfloat16 in b",
    }
    assert frame.loc["v", ["runs", "differs"]].tolist() == ["a", ""]


@pytest.mark.case("H01")
@pytest.mark.parametrize("stage", ["backward", "clipped"])
@pytest.mark.parametrize("statistic", ["norm", "max_abs", "nan", "nonfinite", "state"])
def test_frames_of_two_levels_come_back_from_parquet(tmp_path: Path, statistic: str, stage: str):
    both = gv.compare({"a": history_of(LOOKS), "b": history_of(LOOKS[:3], LOOKS[3:6], names=["a", "x.y", "z"])})
    for name, frame in [
        ("wide", both.wide(statistic, stage=stage)),
        ("metrics", both.metrics),
        ("gradients", both.gradients),
        ("why", both.why()),
        ("ratio", both.ratio()),
    ]:
        frame.to_parquet(tmp_path / name)
        # Categories and names come back as pandas' own type of text.
        pd.testing.assert_frame_equal(
            pd.read_parquet(tmp_path / name), frame, check_categorical=False, check_column_type=False
        )


@settings(max_examples=30)
@given(histories(), histories())
def test_any_two_runs_can_be_compared(a: History, b: History):
    both = gv.compare({"a": a, "b": b})
    for statistic in ("norm", "std", "nan"):
        ratio, why = both.ratio(statistic), both.why(statistic)
        assert (ratio.isna() == (why != "ok")).all(axis=None)
    assert len(both.gradients) == len(a.gradients) + len(b.gradients)
    pd.testing.assert_frame_equal(both.norms["a"].loc[a.norms.index], a.norms, check_column_type=False)
    pd.testing.assert_frame_equal(both.ratios().norms, both.ratio())


def test_a_part_of_all_runs_is_selected_by_the_common_names():
    a = norms([1, 2], [3, 4], [5, 6], names=["head.w", "head.b"])
    b = norms([2, 2], [2, 2], names=["module.head.w", "module.tail.w"])
    part = gv.compare({"a": a, "b": b}).select(parameters="head.w", iterations=slice(1, None))
    np.testing.assert_array_equal(part.norms.to_numpy(), [[3, 2], [5, NAN]])
    assert gv.compare({"a": a, "b": b}).select(every=2).norms.index.tolist() == [0, 2]
    with pytest.raises(HistoryError, match=r"did you mean 'head\.w'"):
        gv.compare({"a": a, "b": b}).select(parameters="hea.w")


def test_of_three_runs_the_one_to_divide_is_named():
    three = gv.compare({"a": norms([2]), "b": norms([4]), "c": norms([1])})
    assert three.ratio(run="c").loc[0, "a"] == 0.5
    assert three.norms.loc[0].tolist() == [2, 4, 1]
    with pytest.raises(HistoryError, match="run='b'"):
        three.ratio()
    with pytest.raises(HistoryError, match="No run is called 'a'"):
        three.ratio(run="a")
    with pytest.raises(HistoryError, match="States cannot be divided"):
        three.ratio("state", run="b")


def test_a_comparison_follows_its_runs():
    a, b = norms([1]), norms([2])
    both = gv.compare({"a": a, "b": b})
    assert len(both.norms) == 1
    a.append(1, 0, np.array([row(3.0)]), np.array([OK], np.uint8), {"loss": 0.0})
    assert both.why()["a"].tolist() == ["ok", "missing in b"]


def test_the_picture_of_a_ratio_says_what_is_in_its_way():
    a = history_of([(row(2.0), OK), (NOTHING, FROZEN), (row(1.0), OK), (row(0.0), OK), (row(1.0), OK)])
    b = history_of([(row(1.0), OK), (row(1.0), OK), (NOTHING, UNUSED), (row(1.0), OK), (row(INF, posinf=1), OK)])
    ratios = gv.compare({"a": a, "b": b}).ratios()
    assert ratios.wide("state").loc[0].tolist() == ["ok", "frozen", "unused", "not_recorded", "ok"]
    assert ratios.wide("posinf").loc[0, "e"] == 1
    assert ratios.parameters["shape"].tolist() == [(2, 3)] * 5
    cells, seen = ratios.overview()
    assert cells.flags[0].tolist() == [
        0,
        overview.FROZEN,
        overview.UNUSED,
        overview.ZERO,
        overview.POSINF,
        overview.NOT_RECORDED,
    ]
    np.testing.assert_array_equal(cells.maximum[0], np.float32([0.5, *[NAN] * 5]))
    assert seen == len(ratios.columns()) == 1


def test_the_picture_of_a_ratio_keeps_what_is_in_both_runs_and_what_no_float_can_hold():
    a = history_of([(NOTHING, FROZEN), (row(1e-300), OK), (row(1e300), OK), (row(1.0), OK), (row(NAN, nan=1), OK)])
    b = history_of([(NOTHING, UNUSED), (row(1e300), OK), (row(1e-300), OK), (row(0.0), OK), (NOTHING, FROZEN)])
    cells, _ = gv.compare({"a": a, "b": b}).ratios().overview()
    assert cells.flags[0, :-1].tolist() == [
        overview.FROZEN | overview.UNUSED,
        0,
        0,
        overview.ZERO,
        overview.NAN | overview.FROZEN,
    ]
    limits = np.finfo(np.float32)
    np.testing.assert_array_equal(cells.maximum[0, 1:4], [limits.max, limits.smallest_subnormal, 0])


def test_the_picture_of_a_ratio_is_not_hidden_by_what_was_thinned():
    a, b = norms([1.0, 1.0]), norms([2.0, 2.0])
    for i in range(1, 12):
        nan = float(i == 7)
        b.append(i, 0, np.array([row(NAN if nan else 2.0, nan=nan), row(0.0)]), np.zeros(2, np.uint8), {"loss": 0.0})
        taken = (np.array([row(1.0)] * 2), np.zeros(2, np.uint8)) if i == 10 else (None, None)
        a.append(i, 0, *taken, {"loss": 0.0})
    both = gv.compare({"a": a, "b": b})
    assert both.why().loc[3].tolist() == ["not recorded in a"] * 2
    cells, seen = both.ratios().overview()
    assert (seen, cells.start.tolist(), cells.stop.tolist()) == (12, [0, 7, 10], [7, 10, 12])
    assert cells.flags[:, 0].tolist() == [0, overview.NAN | overview.NOT_RECORDED, 0]
    np.testing.assert_array_equal(both.ratios().norms, both.ratio())


def test_the_picture_of_a_ratio_says_what_it_is_of_and_who_has_no_counterpart():
    a, b = norms([1, 2], names=["w", "aux"]), norms([2], [3], names=["w"])
    ratios = gv.compare({"baseline": a, "lr 0.5": b}).ratios()
    assert ratios.quantity.runs == ("lr 0.5", "baseline")
    assert "lr 0.5 ÷ baseline" in repr(ratios)
    assert ratios.progress.message == "Only in baseline: aux."
    assert (ratios.progress.iteration, ratios.progress.iterations) == (2, 2)
    assert gv.compare({"a": b, "b": b}).ratios().progress.message is None
    assert a.quantity.runs is None


def test_the_epochs_of_a_ratio_are_the_reference_s_as_far_as_it_goes():
    a, b = (norms(*[[1.0]] * n, names=["w"]) for n in (1, 3))
    b.append(3, 1, np.array([row(3.0)]), np.array([OK], np.uint8), {"loss": 0.0})
    ratios = gv.compare({"a": a, "b": b}).ratios()
    assert ratios.metrics["epoch"].tolist() == [0, 0, 1, 1]
    assert ratios.epoch_starts == [0, 2]


@pytest.mark.parametrize(
    ("runs", "told"),
    [
        ([1, 2], "a list"),
        ({"a": History()}, "at least two"),
        ({"a": History(), "b": 3}, "'b' is an int"),
        ({"a": History(), 1: History()}, "name is text; got 1"),
        ({"a": History(), "b": History().select(attempts="all")}, "all attempts"),
    ],
)
def test_what_cannot_be_compared_is_refused_with_the_line_to_write(runs: object, told: str):
    with pytest.raises(HistoryError, match=told) as refused:
        gv.compare(runs)
    assert "history" in str(refused.value)


def test_a_frame_that_would_be_too_large_is_refused():
    frame = pd.DataFrame(np.ones((1000, 10)), columns=list("abcdefghij"))
    history = History.from_frame(frame, memory_limit=750_000)
    assert len(history.norms) == 1000
    with pytest.raises(HistoryError, match=r"comparison\.select\("):
        _ = gv.compare(dict.fromkeys("abcdefghij", history)).norms


def test_runs_with_nothing_in_common_are_told_once():
    a, b = norms([1.0], names="a"), History.from_frame(pd.DataFrame({"z": [1.0]}, index=pd.Index([5])))
    with pytest.warns(RecordingWarning, match="b and a have no parameter and no iteration in common") as told:
        gv.compare({"a": a, "b": b})
    assert len(told) == 1


def test_metrics_of_runs_of_different_length_are_columns_of_one_kind():
    metrics = gv.compare({"a": norms([1.0], [2.0]), "b": norms([1.0])}).metrics
    assert (metrics["a"].dtypes == metrics["b"].dtypes).all()


def test_runs_without_names_and_paths_are_told_what_to_write():
    with pytest.raises(HistoryError, match=r'takes runs by name; .*gv.compare\(\{"a": history, "b": other\}\)'):
        gv.compare(norms([1.0]), norms([1.0]))
    with pytest.raises(HistoryError, match=r"'a' is a path.*gv.History.open\('runs/a'\)"):
        gv.compare({"a": "runs/a"})
    with pytest.raises(UnknownKeywordError, match="did you mean 'parameters'"):
        gv.compare({"a": norms([1.0]), "b": norms([1.0])}).select(parameter="a")
