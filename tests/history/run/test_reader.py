"""What a reader makes of a folder whose listing is not all there is, or that lacks something."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest

import gradviz as gv
from gradviz.errors import HistoryError, RecordingWarning
from gradviz.history.history import History
from gradviz.history.overview import NOT_RECORDED
from gradviz.history.run.local import LocalFolder
from gradviz.history.run.names import PartName
from gradviz.history.run.writer import Writer


def row(i: int) -> tuple[np.ndarray, np.ndarray]:
    return np.full((2, 8), float(i)), np.zeros(2, np.uint8)


def saved(folder, n: int, **options) -> gv.History:
    """A run whose every iteration is a flush, so that it has merged parts and others."""
    history = gv.History(save_to=folder, **options)
    history.declare([{"name": name, "shape": (2,), "dtype": "float32"} for name in "ab"])
    for i in range(n):
        history.append(i, 0, *row(i), {"loss": float(i)})
        history.add_events(i, "frozen", ["a"])
        history.flush()
    return history


def parts(folder, sub: str) -> list[PartName]:
    names = sorted(file.name for file in (folder / sub).iterdir())
    return [part for part in map(PartName.parse, names) if part is not None]


def assert_reads(history, n: int) -> None:
    assert history.norms["b"].tolist() == history.metrics["loss"].tolist() == list(range(n))
    assert history.events["iteration"].tolist() == list(range(n))


@pytest.mark.parametrize("at", [1, 3])  # the merged part lies between others, or is the last one
def test_a_listing_that_misses_a_merged_part_and_those_in_it_is_made_again(tmp_path, monkeypatch, at):
    folder = tmp_path / "a"
    saved(folder, 24 if at == 3 else 28).end_run()
    listed: dict[str, int] = {}

    def names(self, sub="", plain=LocalFolder.names):
        found = plain(self, sub)
        listed[sub] = listed.get(sub, 0) + 1
        merged = [name for name in found if (part := PartName.parse(name)) and part.last > part.first]
        return found if listed[sub] > 1 else [name for name in found if name not in merged[at - 1 :]]

    monkeypatch.setattr(LocalFolder, "names", names)
    assert_reads(gv.History.open(folder), 24 if at == 3 else 28)


@pytest.mark.parametrize("sub", ["gradients", "metrics", "events"])
def test_a_part_that_is_missing_is_named_and_the_rest_can_be_read(tmp_path, sub):
    folder = tmp_path / "a"
    saved(folder, 20).end_run()
    lost = parts(folder, sub)[1]
    assert (lost.first, lost.last) == (8, 15)
    (folder / sub / str(lost)).unlink()
    with pytest.raises(HistoryError, match=rf"{sub}/{lost} is missing.*skip_damaged=True"):
        gv.History.open(folder)
    with pytest.warns(RecordingWarning, match="Left out") as told:
        rest = gv.History.open(folder, skip_damaged=True)
    assert len(told) == 1
    read = {
        "gradients": rest.norms.index.tolist(),
        "metrics": rest.metrics.index.tolist(),
        "events": rest.events["iteration"].tolist(),
    }
    assert read.pop(sub) == [*range(8), *range(16, 20)]
    assert list(read.values()) == [list(range(20))] * 2
    assert len(rest.refresh().overview()[0]) == len(rest)


def test_the_first_part_is_missed_too(tmp_path):
    folder = tmp_path / "a"
    saved(folder, 3).end_run()
    (folder / "metrics" / "rows-00000000-00000000.parquet").unlink()
    with pytest.raises(HistoryError, match=r"metrics/rows-00000000-00000000\.parquet is missing"):
        gv.History.open(folder)


def test_what_a_killed_merge_left_is_read_once_and_removed_by_the_next_writer(tmp_path):
    folder = tmp_path / "a"
    history = saved(folder, 7)
    files = [file for sub in ("gradients", "metrics", "events") for file in (folder / sub).iterdir()]
    before = {file: file.read_bytes() for file in files}
    history.append(7, 0, *row(7), {"loss": 7.0})
    history.add_events(7, "frozen", ["a"])
    history.end_run()
    for file, content in before.items():
        assert not file.exists()
        file.write_bytes(content)
    assert_reads(gv.History.open(folder), 8)
    again = gv.History(save_to=folder, if_exists="resume")
    again.begin_attempt(8, 0)
    again.begin_run()
    again.end_run()
    assert not any(file.exists() for file in before)
    assert_reads(gv.History.open(folder), 8)


def test_a_merge_that_failed_when_its_file_was_there_is_finished_before_any_other(tmp_path, monkeypatch):
    folder = tmp_path / "a"
    history = saved(folder, 7)

    def fails_late(self, name, data, plain=LocalFolder.write):
        plain(self, name, data)
        if "00000000-00000007" in name:
            raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(LocalFolder, "write", fails_late)
        history.append(7, 0, *row(7), {"loss": 7.0})
        with pytest.warns(RecordingWarning, match="Input/output error"):
            history.flush()
        history.append(8, 0, *row(8), {"loss": 8.0})
        history.flush()
    for i in range(9, 12):
        history.append(i, 0, *row(i), {"loss": float(i)})
        history.flush()
    history.end_run()
    opened = gv.History.open(folder)
    assert opened.norms["b"].tolist() == opened.metrics["loss"].tolist() == list(range(12))
    assert [(part.first, part.last) for part in parts(folder, "gradients")][:2] == [(0, 7), (8, 8)]


def test_a_damaged_file_is_named_at_first_and_the_rest_can_be_read_and_followed(tmp_path):
    folder = tmp_path / "a"
    history = saved(folder, 10)
    file = folder / "gradients" / str(parts(folder, "gradients")[1])
    whole = file.read_bytes()
    file.write_bytes(whole[:-20])
    with pytest.raises(
        HistoryError, match=rf"gradients/{file.name} is damaged.*Nothing was deleted.*skip_damaged=True"
    ):
        gv.History.open(folder)
    with pytest.warns(RecordingWarning, match=f"Left out: .*{file.name}"):
        rest = gv.History.open(folder, skip_damaged=True)
    assert rest.norms["b"].tolist() == [*range(8), 9]
    assert rest.metrics.index.tolist() == list(range(10))
    history.append(10, 0, *row(10), {"loss": 10.0})
    history.flush()
    assert rest.refresh().norms["b"].tolist() == [*range(8), 9, 10], "And it was said once."
    assert rest.overview()[0].flags[8, 0] == NOT_RECORDED
    assert file.read_bytes() == whole[:-20]
    file.write_bytes(whole)
    history.end_run()
    assert gv.History.open(folder).norms["b"].tolist() == list(range(11))


def test_a_run_whose_json_is_damaged_or_newer_or_gone_is_refused_by_name(tmp_path):
    folder = tmp_path / "a"
    saved(folder, 3).end_run()
    told = folder / "run.json"
    content = told.read_text()
    for text, why in [
        (content[:-5], "run.json is damaged: it is no JSON"),
        (content.replace('"format": 1', '"format": 7'), r"run.json has format 7; this gradviz .* Upgrade it"),
    ]:
        told.write_text(text)
        with pytest.raises(HistoryError, match=why):
            gv.History.open(folder)
    told.unlink()
    with pytest.raises(HistoryError, match=r"is no run: it has no run\.json"):
        gv.History.open(folder)
    with pytest.raises(HistoryError, match=f"There is no folder {tmp_path / 'b'}"):
        gv.History.open(tmp_path / "b")
    assert not (tmp_path / "b").exists()
    told.write_text(content)
    assert len(gv.History.open(folder)) == 3


def test_the_rest_of_a_run_whose_json_is_damaged_can_be_read(tmp_path):
    folder = tmp_path / "a"
    history = saved(folder, 6)
    history.begin_attempt(4, 0)
    for i in (4, 5, 6):
        history.append(i, 0, *row(10 * i), {"loss": 10.0 * i})
    history.end_run()
    (folder / "run.json").write_text("{")
    with pytest.raises(HistoryError, match=r"run.json is damaged.*skip_damaged=True"):
        gv.History.open(folder)
    with pytest.warns(RecordingWarning, match=r"Left out: .*run.json is damaged") as told:
        opened = gv.History.open(folder, skip_damaged=True)
    assert len(told) == 1
    assert opened.norms["b"].tolist() == opened.metrics["loss"].tolist() == [0, 1, 2, 3, 40, 50, 60]
    assert len(opened.select(attempts="all")) == 9
    assert opened.parameters["shape"].tolist() == [None, None]
    assert opened.parameters["dtype"].tolist() == ["unknown", "unknown"]
    assert (opened.progress.status, opened.progress.message) == ("unknown", "its run.json is damaged")
    opened.refresh()
    (folder / "run.json").write_text('{"format": 7}')
    with pytest.raises(HistoryError, match="format 7"):
        gv.History.open(folder, skip_damaged=True)


def test_a_file_of_a_run_is_told_from_its_folder(tmp_path):
    saved(tmp_path / "a", 1).end_run()
    with pytest.raises(HistoryError, match=r"run.json is a file of a run. Name its folder: gv.History.open\('.*a'\)"):
        gv.History.open(tmp_path / "a" / "run.json")


def test_a_run_that_may_only_be_read_is_read(tmp_path):
    folder = tmp_path / "a"
    saved(folder, 3).end_run()
    for each in [*folder.rglob("*"), folder]:
        each.chmod(0o555 if each.is_dir() else 0o444)
    try:
        assert_reads(gv.History.open(folder), 3)
    finally:
        for each in [folder, *folder.rglob("*")]:
            each.chmod(0o755)


def test_a_forked_process_reads_on_by_itself(tmp_path):
    history = saved(tmp_path / "a", 5)
    opened = gv.History.open(tmp_path / "a")
    assert_reads(opened, 5)  # with threads, which the child will not have
    child = os.fork()
    if not child:
        signal.alarm(60)  # ends it where it waits for them
        try:
            os._exit(0 if opened.wide("max_abs")["b"].tolist() == list(range(5)) else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    history.end_run()


PARTS = [f"gradients/backward-{k:08d}-{k:08d}.parquet" for k in range(3)]
PARTS += [f"metrics/rows-{k:08d}-{k:08d}.parquet" for k in range(3)]


def rows(history: History, start: int, stop: int) -> None:
    for i in range(start, stop):
        history.append(i, i // 10, np.full((2, 8), float(i)), np.zeros(2, np.uint8), {"loss": float(i)})


def begun(folder: Path, **options: object) -> History:
    history = History(save_to=folder, flush_interval_s=100, **options)
    history.declare([{"name": name, "shape": (2,), "dtype": "float32"} for name in "wv"])
    return history


@pytest.fixture
def run(tmp_path: Path) -> Path:
    history = begun(tmp_path / "a")
    for k in range(3):
        rows(history, 10 * k, 10 * k + 10)
        history.end_epoch(k, 10, {"loss": 1.5 + k}, 0)
        history.flush()
    history.end_run()
    return tmp_path / "a"


@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_is_missing_is_told(run, part):
    (run / part).unlink()
    with pytest.raises(HistoryError, match=part.split("/")[0]):
        History.open(run)
    with pytest.warns(RecordingWarning, match=part.split("/")[0]):
        left = History.open(run, skip_damaged=True)
    assert len(left.select(iterations=slice(0, 30)).gradients) > 0


def test_no_bit_of_the_epochs_or_of_the_names_of_columns_turns_unseen(run):
    epochs, names = History.open(run).epochs, list(History.open(run).metrics)
    for file in (run / "epochs.parquet", run / PARTS[3]):
        whole = file.read_bytes()
        for at in range(0, len(whole), 7 if file.name == "epochs.parquet" else 11):
            file.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            try:
                opened = History.open(run)
                same = opened.epochs.equals(epochs) and list(opened.metrics) == names
            except HistoryError:
                continue
            assert same, f"{file.name} at {at}"
        file.write_bytes(whole)


def test_a_picture_of_which_a_bit_turned_is_drawn_anew(run):
    file = run / "overview.safetensors"
    before = History.open(run).overview()[0]
    content = file.read_bytes()
    for name in ("start", "stop", "maximum", "minimum", "flags"):
        at = content.index(getattr(before, name).tobytes()) + 1
        file.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        drawn = History.open(run).overview()[0]
        np.testing.assert_array_equal(getattr(drawn, name), getattr(before, name))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("parameters", [{"name": "w", "shape": [2], "dtype": "float32"}] * 2),
        ("parameters", [{"name": name, "shape": [2**40, 2**40], "dtype": "float32"} for name in "wv"]),
    ],
)
def test_what_no_run_json_says_is_refused(run, field, value):
    told = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**told, field: value}))
    with pytest.raises(HistoryError, match=field):
        History.open(run)


def test_a_run_whose_epochs_go_back_is_refused_and_the_rest_can_be_read(run):
    history = History(save_to=run, if_exists="overwrite")
    history.declare([{"name": "a", "shape": (2,), "dtype": "float32"}])
    for i, epoch in enumerate([0, 1, 1, 0, 2]):  # as was once accepted
        history._store.epoch_starts.clear()
        history.append(i, epoch, np.ones((1, 8)), np.zeros(1, np.uint8), {"loss": 1.0})
    history.end_run()
    with pytest.raises(HistoryError, match="iteration 3 is of an earlier epoch than those before it"):
        History.open(run)
    with pytest.warns(RecordingWarning, match="Left out"):
        rest = History.open(run, skip_damaged=True)
    assert rest.epoch_starts == [0, 1, 4]
    assert rest.norms["a"].tolist() == [1.0] * 5


@pytest.mark.parametrize("goes_on", [False, True])
def test_rows_that_a_killed_attempt_wrote_without_their_metrics_never_hold(tmp_path, monkeypatch, goes_on):
    history = begun(tmp_path / "a")
    rows(history, 0, 10)
    history.flush()
    rows(history, 10, 20)
    put = Writer._put

    def killed(self, name, *others):
        if name.startswith("metrics"):
            raise KeyboardInterrupt
        put(self, name, *others)

    with monkeypatch.context() as patched:
        patched.setattr(Writer, "_put", killed)
        with pytest.raises(KeyboardInterrupt):
            history.flush()
    history._keeper._writer._stop.set()  # as when its process is gone
    history._keeper._writer.folder.unlock()
    history._keeper.leave()
    again = begun(tmp_path / "a", if_exists="resume")
    if goes_on:
        again.begin_run(goes_on=True)
    else:
        again.begin_attempt(25, 2)  # a checkpoint that is newer than the rows
    begins = 10 if goes_on else 25
    rows(again, begins, 30)
    again.end_run()
    opened = History.open(tmp_path / "a")
    there = [*range(10), *range(begins, 30)]
    for one in (again, opened):
        for view in (one, one.select(attempts="all")):
            assert view.norms.index.get_level_values("iteration").tolist() == there
            assert view.metrics.index.get_level_values("iteration").tolist() == there
