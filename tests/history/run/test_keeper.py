"""A run is kept within its memory and in its folder, whatever the disk does; nothing of others is touched."""

from __future__ import annotations

import concurrent.futures.thread
import errno
import gc
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import gradviz as gv
from gradviz.errors import HistoryError, RecordingWarning
from gradviz.history.history import History
from gradviz.history.overview import NOT_RECORDED
from gradviz.history.run.local import LocalFolder
from gradviz.history.run.parts import encode_table
from gradviz.history.schema import METRICS, STATISTICS, Parameter
from gradviz.history.table import Table

N = 40
"""Parameters of these runs: 2.6 kB an iteration."""


def row(i: int, n: int = N) -> tuple[np.ndarray, np.ndarray]:
    """Every number tells whose it is."""
    table = 1000.0 * i + np.arange(n)[:, None] + np.arange(8) / 8
    table[:, 5:] = i % 3
    return table, np.zeros(n, np.uint8)


def begun(n: int = N, **options) -> gv.History:
    history = gv.History(**options)
    history.declare([{"name": f"layer.{k}", "shape": (2,), "dtype": "float32"} for k in range(n)])
    return history


def record(history: gv.History, iterations: range, n: int = N) -> gv.History:
    for i in iterations:
        history.append(i, i // 100, *row(i, n), {"loss": float(i)})
    return history


def assert_holds(history: gv.History, length: int) -> None:
    """All of it, read in pieces that a small limit allows."""
    assert len(history) == length
    for begin in range(0, length, 97):
        part = history.select(iterations=slice(begin, begin + 97), parameters=["layer.0", "layer.7"])
        expected = np.array([row(i)[0][[0, 7], 0] for i in range(begin, min(begin + 97, length))])
        np.testing.assert_array_equal(part.norms, expected)
        assert part.metrics["loss"].tolist() == [norm / 1000 for norm in expected[:, 0]]
    assert history.select(iterations=length - 1).gradients["max_abs"].tolist() == row(length - 1)[0][:, 3].tolist()


def files(folder: Path) -> list[Path]:
    return [file for file in folder.rglob("*") if file.is_file() and file.name != ".lock"]


# Memory -------------------------------------------------------------------------------------------------------------


@pytest.mark.case("H04")
@pytest.mark.parametrize("flushes", ["when memory is full", "each 50 rows"])
def test_many_small_appends_cost_the_same_and_leave_few_files_and_little_memory(tmp_path, monkeypatch, flushes):
    written = [0]

    def counted(self, name, data, plain=LocalFolder.write):
        written[0] += len(memoryview(data))
        plain(self, name, data)

    monkeypatch.setattr(LocalFolder, "write", counted)
    limit, n, total = 200_000, 3, 20_000
    history = begun(n, save_to=tmp_path / "a", memory_limit=limit, flush_interval_s=1e6)
    most, half = 0, 0
    for i in range(total):
        history.append(i, i // 100, *row(i, n), {"loss": float(i)})
        if i == total // 2:
            half = written[0]
        if flushes == "each 50 rows" and i % 50 == 49:
            history.flush()
        if i % 500 == 0:
            most = max(most, history._store.nbytes)
    history.end_run()
    assert most < 2 * limit, "Rows in memory are bounded."
    left = files(tmp_path / "a")
    assert len(left) < 60, "Parts are merged."
    on_disk = sum(file.stat().st_size for file in left)
    assert on_disk < total * (n * 8 * 8 + 50)
    assert written[0] < 2.5 * half + 100_000, "The second half costs what the first one did."
    opened = gv.History.open(tmp_path / "a", memory_limit="1GB")
    assert opened.norms["layer.2"].tolist() == [1000.0 * i + 2 for i in range(total)]
    assert opened.metrics["loss"].tolist() == list(range(total))


def test_a_run_longer_than_memory_is_read_back_whole_and_its_temporary_folder_is_said_once_and_goes(
    monkeypatch, tmp_path
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    limit, length = 300_000, 1500  # 4 MB of rows
    history = begun(memory_limit=limit)
    taken = []
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", RecordingWarning)
        for i in range(length):
            record(history, range(i, i + 1))
            taken.append(history._store.nbytes)
    assert len(told) == 1
    (folder,) = tmp_path.iterdir()
    assert str(folder) in str(told[0].message)
    assert 'save_to="runs/a"' in str(told[0].message)
    assert max(taken) < 1.25 * limit
    assert history._store.stages["backward"].chunks[-1]._statistics.nbytes <= limit / 8
    assert_holds(history, length)
    columns, seen = history.overview()
    assert seen == length
    assert columns.maximum[:, 3].tolist() == [1000 * i + 3 for i in range(length)]
    del history
    gc.collect()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("metrics", [1, 300])
def test_one_row_may_be_larger_than_what_memory_may_take(tmp_path, metrics):
    history = begun(save_to=tmp_path / "a", memory_limit=2000)
    for i in range(30):
        history.append(i, 0, *row(i), {f"m{k}": float(i) for k in range(metrics)})
    assert history._store.nbytes < 3 * 2600 + 9 * 16 * metrics
    history.end_run()
    opened = gv.History.open(tmp_path / "a")
    assert opened.norms["layer.7"].tolist() == [1000 * i + 7 for i in range(30)]
    assert opened.metrics["m0"].tolist() == list(range(30))
    assert set(opened.wide("state").stack()) == {"ok"}


@pytest.mark.parametrize("often", ["metrics", "events"])
def test_tables_and_metrics_alone_are_kept_within_memory_too(tmp_path, often):
    limit, most = 100_000, 0
    history = begun(save_to=tmp_path / "a", memory_limit=limit)
    none = np.empty((0, len(STATISTICS))), np.empty(0, np.uint8)
    for i in range(10_000):
        if often == "metrics" or i % 100 == 0:
            history.append(i, 0, *none, {"loss": float(i)})
        if often == "events" or i % 100 == 0:
            history.add_events(i // 100 * 100, "frozen", ["layer.1"])
        most = max(most, history._store.nbytes)
    assert most < 1.25 * limit
    history.end_run()
    opened = gv.History.open(tmp_path / "a")
    lengths = {"metrics": len(opened.metrics), "events": len(opened.events)}
    assert lengths == {"metrics": 100, "events": 100} | {often: 10_000}


def test_a_frame_that_is_too_large_is_refused_with_a_line_that_works(tmp_path):
    history = record(begun(save_to=tmp_path / "a", memory_limit="14 kB"), range(400))
    for frame in ("gradients", "norms", "metrics"):
        with pytest.raises(HistoryError, match=r"the memory limit is 14\.0 kB") as refused:
            getattr(history, frame)
        line = re.search(r"history\.select\(.*?\)\.[a-z]+(\('[a-z]+'\))?", str(refused.value)).group()
        small = eval(line.replace("encoder.*", "layer.3"), {"history": history})
        assert len(small) == 40
        assert set(small.get("loss", range(0, 400, 10))) == set(range(0, 400, 10))
    history.end_run()


def test_where_there_is_no_place_for_a_temporary_folder_training_goes_on(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    history = begun(memory_limit=50_000)
    with pytest.warns(RecordingWarning, match="a temporary folder") as told:
        record(history, range(100))
    assert len(told) == 1
    assert history.metrics["loss"].tolist() == list(range(100))
    states = history.wide("state")["layer.0"].tolist()
    kept = states.index("not_recorded")
    assert 19 < kept < 100
    assert states == ["ok"] * kept + ["not_recorded"] * (100 - kept), "What has no place is not said to be recorded."


# A disk that fails ----------------------------------------------------------------------------------------------------


@pytest.mark.case("H05")
@pytest.mark.parametrize("failing", [errno.ENOSPC, errno.EIO])
def test_while_the_disk_fails_rows_stay_in_memory_and_are_written_once_when_it_works_again(
    tmp_path, monkeypatch, failing
):
    folder = tmp_path / "a"
    history = record(begun(save_to=folder, flush_interval_s=0.01), range(20))
    history.flush()

    def fails(_):
        raise OSError(failing, os.strerror(failing))

    with monkeypatch.context() as patch, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", RecordingWarning)
        patch.setattr(os, "fsync", fails)
        for i in range(20, 60, 2):
            record(history, range(i, i + 2))
            history.flush()
        opened = gv.History.open(folder)
        assert opened.norms["layer.0"].tolist() == [1000 * i for i in range(20)]
    assert len(told) == 1
    assert str(folder) in str(told[0].message)
    assert os.strerror(failing) in str(told[0].message)
    record(history, range(60, 70))
    history.end_run()
    opened = gv.History.open(folder)
    for each in (history, opened):
        assert each.norms["layer.0"].tolist() == [1000 * i for i in range(70)]
        assert each.metrics.index.tolist() == list(range(70))
    assert opened.progress.status == history.progress.status


def test_a_disk_that_fails_to_the_end_is_told_and_another_history_may_write_there(tmp_path, monkeypatch):
    history = record(begun(save_to=tmp_path / "a", flush_interval_s=60), range(5))
    history.flush()
    record(history, range(5, 9))

    def fails(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fails)
        with pytest.warns(RecordingWarning, match="No space left"):
            history.end_run()
    assert history.norms["layer.0"].tolist() == [1000 * i for i in range(9)]
    assert len(gv.History.open(tmp_path / "a")) == 5
    history.begin_run()  # what was left is written now
    history.end_run()
    assert len(gv.History.open(tmp_path / "a")) == 9


@pytest.mark.parametrize("place", ["write", "join"])
def test_an_error_of_a_signal_s_handler_in_the_last_moment_costs_no_row(tmp_path, monkeypatch, place):
    """Torch's handler of SIGCHLD raises wherever the program stands, when Ctrl-C has ended the workers of a loader."""

    def raises(*_):
        raise RuntimeError("DataLoader worker exited unexpectedly")

    history = record(begun(save_to=tmp_path / "a", flush_interval_s=60), range(5))
    whose, name = (LocalFolder, "write") if place == "write" else (threading.Thread, "join")
    done = getattr(whose, name)

    def interrupted(*arguments):
        monkeypatch.setattr(whose, name, done)
        signal.raise_signal(signal.SIGCHLD)
        return done(*arguments)

    earlier = signal.signal(signal.SIGCHLD, raises)
    try:
        monkeypatch.setattr(whose, name, interrupted)
        history.end_run()
    finally:
        signal.signal(signal.SIGCHLD, earlier)
    assert_holds(gv.History.open(tmp_path / "a"), 5)
    assert_holds(history, 5)
    record(begun(save_to=tmp_path / "a", if_exists="overwrite"), range(1)).end_run()  # it is locked no more


# What is in the way -------------------------------------------------------------------------------------------------


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in files(folder)}


def test_an_existing_run_is_refused_told_of_and_left_as_it_is(tmp_path):
    folder = tmp_path / "a"
    record(begun(save_to=folder), range(5)).end_run()
    before = contents(folder)
    with pytest.raises(HistoryError) as error:
        begun(save_to=folder).begin_run()
    said = str(error.value)
    assert f"{folder} holds a run of {N} parameters" in said
    assert "no checkpoints to go on from. To keep its rows:" in said
    for way_out in ('if_exists="resume"', 'if_exists="overwrite"', "save_to="):
        assert way_out in said
    assert contents(folder) == before
    (folder / "checkpoints").mkdir()
    (folder / "checkpoints" / "last.pt").write_text("a checkpoint")
    with pytest.raises(HistoryError, match=r"To go on with it: loop.resume\('.*a'\); to write over"):
        begun(save_to=folder).begin_run()
    begun(save_to=tmp_path / "b").end_run()  # and nobody is locked out


def test_resume_goes_on_with_it(tmp_path):
    folder = tmp_path / "a"
    record(begun(save_to=folder), range(5)).end_run()
    history = begun(save_to=folder, if_exists="resume")
    history.begin_attempt(3, 0)
    history.begin_run()
    assert history.norms["layer.0"].tolist() == [0, 1000, 2000]
    for i in range(3, 6):
        history.append(i, 0, -row(i)[0], row(i)[1], {"loss": float(-i)})
    history.end_run()
    opened = gv.History.open(folder)
    for each in (history, opened):
        assert each.norms["layer.0"].tolist() == [0, 1000, 2000, -3000, -4000, -5000]
        everything = each.select(attempts="all").norms["layer.0"]
        assert everything.loc[0].tolist() == [0, 1000, 2000, 3000, 4000]
        assert everything.loc[1].tolist() == [-3000, -4000, -5000]


def test_resume_that_begins_again_says_so_once_and_where_the_old_rows_are(tmp_path):
    folder = tmp_path / "a"
    record(begun(save_to=folder), range(5)).end_run()
    history = begun(save_to=folder, if_exists="resume")
    with pytest.warns(
        RecordingWarning, match=r"holds 5 iterations .* begins again at iteration 0.*loop.checkpoint"
    ) as told:
        record(history, range(2))
    assert len(told) == 1
    assert len(history) == 2
    assert len(history.select(attempts="all")) == 7


@pytest.mark.parametrize("flushes", [1, 20])
def test_the_optimizer_of_each_row_is_kept_through_merges_and_a_resume(tmp_path, flushes):
    folder, called = tmp_path / "a", [None, None, None, "critic", "generator", None] * 10
    history = begun(save_to=folder, flush_interval_s=1000)
    for i, optimizer in enumerate(called):
        if i == 40:
            history.end_run()
            assert dict(zip(*_optimizers(history), strict=True)) == dict(enumerate(called[:40]))
            history = begun(save_to=folder, if_exists="resume", flush_interval_s=1000)
            history.begin_attempt(40, 0)
        history.append(i, 0, *row(i), {"loss": float(i)}, optimizer=optimizer)
        if i % (60 // flushes) == 0:
            history.flush()
    history.end_run()
    for each in (history, gv.History.open(folder), gv.History.open(folder).select(attempts="all")):
        assert _optimizers(each)[1] == called
    plain = pd.read_parquet(folder / "metrics").sort_values("iteration")["optimizer"]
    assert plain.astype(object).where(plain.notna(), None).tolist() == called


def _optimizers(history) -> tuple[list[int], list[str | None]]:
    column = history.metrics["optimizer"]
    return column.index.tolist(), column.astype(object).where(column.notna(), None).tolist()


@pytest.mark.parametrize("flushes", [1, 20])
def test_what_was_thinned_is_so_in_the_files_too_through_merges_and_a_resume(tmp_path, flushes):
    folder, usual = tmp_path / "a", begun()
    history = begun(save_to=folder, flush_interval_s=1000)
    for i in range(60):
        if i == 40:
            history.end_run()
            history = begun(save_to=folder, if_exists="resume", flush_interval_s=1000)
            history.begin_attempt(40, 0)
        is_recorded = i % 10 == 0 or i < 6  # the first parts have no column that says so
        history.append(i, 0, *(row(i) if is_recorded else (None, None)), {"loss": float(i)})
        usual.append(i, 0, *(row(i) if is_recorded else (np.empty((0, 8)), np.empty(0, np.uint8))), {"loss": float(i)})
        if i % (60 // flushes) == 0 or i == 3:
            history.flush()
    history.end_run()
    opened = gv.History.open(folder)
    for each in (history, opened):
        pd.testing.assert_frame_equal(each.norms, usual.norms)
        pd.testing.assert_frame_equal(each.wide("state"), usual.wide("state"))
        pd.testing.assert_frame_equal(each.metrics, usual.metrics)
        assert each.overview()[0].start.tolist() == [*range(6), *range(10, 60, 10)]
    assert len(pd.read_parquet(folder / "gradients")) == N * 11
    plain = pd.read_parquet(folder / "metrics").sort_values("iteration")
    assert plain["iteration"][plain["thinned"]].tolist() == opened.thinned.tolist()
    max((folder / "gradients").iterdir()).unlink()
    with pytest.raises(HistoryError, match="iterations have only metrics"):
        gv.History.open(folder)
    with pytest.warns(RecordingWarning, match="Left out"):
        rest = gv.History.open(folder, skip_damaged=True)
    assert rest.thinned.tolist() == opened.thinned.tolist()
    (folder / "overview.safetensors").unlink()
    with pytest.warns(RecordingWarning, match="Left out"):
        columns, seen = gv.History.open(folder, skip_damaged=True).overview()
    assert seen == 60
    assert columns.flags[-1, 0] == NOT_RECORDED  # what is lost is not taken for thinned


def test_a_run_with_a_metric_of_that_name_opens_as_it_was_and_takes_no_optimizer(tmp_path):
    folder = tmp_path / "a"
    record(begun(save_to=folder), range(3)).end_run()
    file = folder / "metrics" / "rows-00000000-00000000.parquet"
    table = Table({**METRICS, "loss": "value", "optimizer": "value"})
    table.append({"iteration": 0, "attempt": 0, "epoch": 0, "loss": 1.0, "loss_scale": 1.0, "skipped": False})
    for i in (1, 2):
        table.append({"iteration": i, "attempt": 0, "epoch": 0, "loss_scale": 1.0, "skipped": False, "optimizer": i})
    file.write_bytes(encode_table(table.read(), table.schema, table.vocabulary))
    assert gv.History.open(folder).metrics["optimizer"].tolist() == [pd.NA, 1.0, 2.0]
    history = begun(save_to=folder, if_exists="resume")
    history.begin_attempt(3, 0)
    history.begin_run()
    with pytest.raises(HistoryError, match="has a metric called 'optimizer'"):
        history.append(3, 0, *row(3), {"loss": 1.0}, optimizer="critic")
    history.end_run()


def test_a_run_can_go_on_behind_its_last_row(tmp_path):
    folder = tmp_path / "a"
    earlier = record(begun(save_to=folder), range(150))  # 100 of epoch 0, 50 of epoch 1
    earlier.end_epoch(0, 100, {"loss": 49.5}, 0)
    earlier.end_epoch(1, 50, {"loss": 124.5}, 0)
    earlier.end_run()
    history = begun(save_to=folder, if_exists="resume")
    history.begin_run(goes_on=True)
    assert history.iterations[-1] + 1 == history.progress.iteration == 150
    assert history.progress.epoch == 1
    with pytest.raises(HistoryError, match="epoch 0, as those before it are of epoch 1"):
        history.append(150, 0, *row(150), {"loss": 0.0})
    record(history, range(150, 230))
    history.end_run()
    for each in (history, gv.History.open(folder)):
        assert_holds(each, 230)
        assert each.epoch_starts == [0, 100, 200]
        assert each.epochs["loss"].tolist() == [49.5, 124.5]
        assert len(each.select(attempts="all")) == 230
        assert each.overview()[0].start.tolist() == list(range(230))


def test_what_a_checkpoint_says_comes_before_going_on_behind_the_last_row_and_a_new_run_begins_at_0(tmp_path):
    folder = tmp_path / "a"
    history = begun(save_to=folder, if_exists="resume")
    history.begin_run(goes_on=True)
    record(history, range(10)).end_run()
    history.begin_run(goes_on=True)  # the same run goes on
    record(history, range(10, 12)).end_run()
    history = begun(save_to=folder, if_exists="resume")
    history.begin_attempt(4, 0)
    history.begin_run(goes_on=True)
    record(history, range(4, 6)).end_run()
    assert_holds(gv.History.open(folder), 6)


def test_a_run_of_another_model_is_not_taken_up(tmp_path):
    folder = tmp_path / "a"
    record(begun(4, save_to=folder), range(5), 4).end_run()
    before = contents(folder)
    own = begun(5).described
    others = [Parameter(name="layer.0", shape=(3,), dtype="float32"), *own[4:]]
    history = begun(4, save_to=folder, if_exists="resume")
    with pytest.raises(HistoryError) as error:
        history.begin_run(others)
    for said in ("'layer.0' is (3,), not (2,)", "'layer.1' is missing", "and 1 more", 'save_to="runs/b"', "overwrite"):
        assert said in str(error.value)
    assert contents(folder) == before
    assert len(history) == 0
    with pytest.warns(RecordingWarning, match="begins again"):
        begun(5, save_to=folder, if_exists="resume").begin_run(own)  # more parameters are fine


def test_a_run_is_told_to_train_from_its_beginning_and_to_have_been_broken_off_by_a_program_s_end(tmp_path):
    history = begun(save_to=tmp_path / "a")
    history.begin_run()
    assert gv.History.open(tmp_path / "a").progress.status == "training"
    history.progress.begin()
    history.end_run()
    assert gv.History.open(tmp_path / "a").progress.status == "interrupted"


def test_a_program_that_ends_writes_what_it_reads_back_without_new_threads(tmp_path, monkeypatch):
    history = record(begun(save_to=tmp_path / "a", memory_limit=100_000, flush_interval_s=1e6), range(300))
    assert len(history._store.stages["backward"].parts) > 1
    monkeypatch.setattr(concurrent.futures.thread, "_shutdown", True)
    history.end_run()  # draws its picture of rows that have left memory
    monkeypatch.undo()
    assert_holds(gv.History.open(tmp_path / "a"), 300)


def test_overwrite_replaces_it_and_leaves_what_is_not_a_run_s(tmp_path):
    folder = tmp_path / "a"
    record(begun(save_to=folder), range(500)).end_run()
    (folder / "notes.txt").write_text("mine")
    (folder / "gradients" / "mine.parquet").write_text("mine")
    (folder / "checkpoints").mkdir()
    (folder / "checkpoints" / "last.pt").write_text("a checkpoint")
    record(begun(3, save_to=folder, if_exists="overwrite"), range(2), 3).end_run()
    assert (folder / "notes.txt").read_text() == (folder / "gradients" / "mine.parquet").read_text() == "mine"
    assert (folder / "checkpoints" / "last.pt").exists()
    assert gv.History.open(folder).norms.shape == (2, 3)


def test_a_run_that_cannot_be_read_is_in_the_way_too(tmp_path):
    folder = tmp_path / "a"
    record(begun(save_to=folder), range(5)).end_run()
    told = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(told | {"format": 2}))
    with pytest.raises(HistoryError, match=r"cannot be read .*format 2"):
        begun(save_to=folder).begin_run()
    with pytest.raises(HistoryError, match=r"format 2.*Upgrade"):
        begun(save_to=folder, if_exists="resume").begin_run()
    (folder / "run.json").unlink()
    before = contents(folder)
    for way in ("error", "resume"):
        with pytest.raises(HistoryError, match=r'has no run.json, but files of a run.*if_exists="overwrite"'):
            begun(save_to=folder, if_exists=way).begin_run()
    assert contents(folder) == before
    record(begun(save_to=folder, if_exists="overwrite"), range(2)).end_run()
    assert len(gv.History.open(folder)) == 2


def test_two_histories_do_not_write_into_one_folder(tmp_path):
    folder = tmp_path / "a"
    first = record(begun(save_to=folder), range(5))
    for way in ("error", "resume", "overwrite"):
        with pytest.raises(HistoryError, match="is being written by another process, or by another loop"):
            begun(save_to=folder, if_exists=way).begin_run()
    record(first, range(5, 8)).end_run()
    assert len(gv.History.open(folder)) == 8


def test_a_run_that_was_overwritten_meanwhile_is_not_written_into(tmp_path):
    folder = tmp_path / "a"
    first = record(begun(save_to=folder), range(5))
    first.end_run()
    second = record(begun(save_to=folder, if_exists="overwrite"), range(3))
    second.end_run()
    with pytest.raises(HistoryError, match="no longer holds the run of this history"):
        first.begin_run()
    assert len(first.norms) == 5
    assert len(gv.History.open(folder)) == 3


def test_a_folder_that_may_only_be_read_is_refused_before_anything_is_recorded(tmp_path):
    (tmp_path / "a").mkdir(mode=0o555)
    history, root = begun(save_to=tmp_path / "a"), os.geteuid() == 0
    if root:  # to whom all is allowed
        os.seteuid(65534)
    try:
        with pytest.raises(HistoryError, match="a cannot be written: Permission denied"):
            record(history, range(1))
    finally:
        if root:
            os.seteuid(0)
    assert len(history) == 0
    (tmp_path / "a").chmod(0o755)
    record(history, range(3)).end_run()  # once it may be written, it goes on
    assert len(gv.History.open(tmp_path / "a")) == 3


def test_a_file_in_place_of_the_folder_is_named(tmp_path):
    (tmp_path / "a").write_text("mine")
    with pytest.raises(HistoryError, match=re.escape(f"{tmp_path / 'a'} cannot be written")):
        begun(save_to=tmp_path / "a").begin_run()
    assert (tmp_path / "a").read_text() == "mine"


def test_no_warning_comes_from_a_run_that_goes_well(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        record(begun(save_to=tmp_path / "a", memory_limit="100 kB"), range(200)).end_run()
        assert_holds(gv.History.open(tmp_path / "a"), 200)


RECORD = """
import sys
import numpy as np
from gradviz.history.history import History

history = History(save_to=sys.argv[1], flush_interval_s=100)
history.declare([{"name": "w", "shape": (2,), "dtype": "float32"}])
for i in range(50):
    history.append(i, 0, np.ones((1, 8)), np.zeros(1, np.uint8), {"loss": 1.0})
history.add_events(3, "frozen", ["w"])
"""


def recorded(history: History, start: int, stop: int) -> History:
    history.declare([{"name": name, "shape": (2,), "dtype": "float32"} for name in "wv"])
    for i in range(start, stop):
        history.append(i, 0, np.full((2, 8), float(i)), np.zeros(2, np.uint8), {"loss": 1.0})
    return history


def test_a_program_that_ends_without_ending_its_run_leaves_all_of_it(tmp_path):
    subprocess.run([sys.executable, "-W", "error", "-c", RECORD, str(tmp_path / "a")], check=True)
    opened = History.open(tmp_path / "a")
    assert len(opened) == len(opened.norms) == 50
    assert len(opened.events) == 1


def test_a_process_that_was_forked_writes_nothing_into_its_parent_s_folder(tmp_path):
    history = recorded(History(save_to=tmp_path / "a", flush_interval_s=100), 0, 5)
    process = os.fork()
    if not process:
        try:
            history.flush()
            history.end_run()
        finally:
            os._exit(0)
    os.waitpid(process, 0)
    assert len(History.open(tmp_path / "a")) == 0
    history.end_run()
    assert len(History.open(tmp_path / "a")) == 5


def test_and_takes_no_rows_of_its_parent_s_away(tmp_path):
    with pytest.warns(RecordingWarning, match="outgrown"):
        history = recorded(History(memory_limit=20_000), 0, 500)
    process = os.fork()
    if not process:
        try:
            del history
        finally:
            os._exit(0)
    os.waitpid(process, 0)
    assert history.select(iterations=slice(0, 5)).norms["w"].tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("also", ["", "and another run is there"])
def test_a_folder_that_was_moved_is_not_written_anew(tmp_path, also):
    history = recorded(History(save_to=tmp_path / "a", flush_interval_s=100), 0, 5)
    history.flush()
    shutil.move(tmp_path / "a", tmp_path / "moved")
    if also:
        subprocess.run([sys.executable, "-c", RECORD, str(tmp_path / "a")], check=True)
    history.end_epoch(0, 5, {"loss": 1.0}, 0)
    with pytest.warns(RecordingWarning, match="cannot be written"):
        history.flush()
    assert history.norms["w"].tolist() == [0, 1, 2, 3, 4]
    history.end_run()
    assert len(History.open(tmp_path / "moved")) == 5
    if also:
        assert len(History.open(tmp_path / "a")) == 50
        assert History.open(tmp_path / "a").epochs.empty
    else:
        assert not (tmp_path / "a").exists()


def test_rows_in_memory_are_read_when_their_files_are_gone(tmp_path):
    history = recorded(History(save_to=tmp_path / "a", flush_interval_s=100), 0, 5)
    history.flush()
    shutil.rmtree(tmp_path / "a")
    assert history.norms["w"].tolist() == [0, 1, 2, 3, 4]
    with pytest.warns(RecordingWarning, match="cannot be written"):
        history.end_run()


def test_a_disk_that_takes_no_overflow_is_told_once_and_training_goes_on(monkeypatch):
    def full(*_: object, **__: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.mkdtemp", full)
    with pytest.warns(RecordingWarning, match="No space left") as told:
        history = recorded(History(memory_limit=20_000), 0, 800)
    assert len(told) == 1
    assert len(history) == 800
    assert history._keeper.is_full


@pytest.mark.parametrize(
    ("option", "came"),
    [
        ({"seed": 1.5}, "1.5"),
        ({"seed": True}, "True"),
        ({"save_to": 5}, "an int"),
        ({"save_to": "a\0b"}, "a.x00b"),
        ({"memory_limit": "5k"}, "'5k'"),
        ({"memory_limit": "9" * 400}, "999"),
        ({"flush_interval_s": 1e300}, "1e.300"),
        ({"flush_interval_s": 10**400}, "1000"),
    ],
)
def test_an_option_that_no_run_can_have_is_refused(option, came):
    with pytest.raises(HistoryError, match=came):
        History(**option)


def test_numpy_s_own_whole_numbers_are_a_seed(tmp_path):
    recorded(History(save_to=tmp_path / "a", seed=np.int64(3)), 0, 1).end_run()
    assert len(History.open(tmp_path / "a")) == 1


def test_a_folder_that_was_moved_says_so(tmp_path):
    folder = LocalFolder(str(tmp_path / "a"))
    folder.lock()
    folder.write("x", b"1")
    (tmp_path / "a").rename(tmp_path / "b")
    with pytest.raises(OSError, match="moved or removed"):
        folder.write("x", b"2")
    folder.unlock()
