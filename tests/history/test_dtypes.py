"""What a table of dtypes reads of a run: each row once, the newest entries, and every loss scale."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gradviz.grad import histograms, rounding
from gradviz.history import dtypes as module
from gradviz.history.dtypes import FATES, N_BARS, DtypePicture
from gradviz.history.history import History
from gradviz.history.overview import NOT_OPTIMIZED
from gradviz.history.schema import FROZEN, NARROW, OK, STATISTICS, Parameter
from gradviz.recorder.entries import Entries
from gradviz.recorder.subject import in_words

NAMES = ["a", "b", "c"]


def history_of(*names: str, **options) -> History:
    history = History(**options)
    history.declare([Parameter(name=name, shape=(4,), dtype="float32") for name in names or NAMES])
    return history


def append(history: History, iteration: int, scale: float = 1.0, skipped: bool = False, states: int = OK) -> None:
    n = len(history.described)
    table = np.zeros((n, len(STATISTICS)))
    history.append(iteration, 0, table, np.full(n, states, np.uint8), {}, scale, skipped)


def count(history: History, iteration: int, stage: str = "backward", **gradients: list[float]) -> None:
    tensors = {name: torch.tensor(values) for name, values in gradients.items()}
    for table, rows in Entries.of(stage, tensors).rows(iteration).items():
        history.add_rows(table, rows)


def told(history: History, iteration: int, parameter: str, of: str, dtype: str, device: str | None = "cpu") -> None:
    columns = {"iteration": [iteration], "parameter": [parameter], "of": [of], "dtype": [dtype], "device": [device]}
    history.add_rows("dtypes", columns)


def test_the_grid_and_the_dtypes_are_those_of_the_recorder():
    assert (module.FIRST, module.LAST) == (histograms.FIRST, histograms.LAST)
    assert tuple(map(in_words, rounding.NARROW)) == NARROW
    assert set(FATES) < set(rounding.FATES)


def test_each_change_is_given_once_and_all_of_them_after_a_restart():
    history = history_of()
    picture = history.dtype_picture()
    assert picture.changes().rows.shape == (0, 5)
    told(history, 0, "b", "parameter", "float16")
    told(history, 0, "b", "exp_avg", "float32", None)
    first = picture.changes()
    assert first.texts == ["parameter", "exp_avg", "float16", "float32", "cpu"]
    assert first.rows.tolist() == [[0, 1, 0, 2, 4], [0, 1, 1, 3, -1]]
    told(history, 7, "c", "gradient", "float32")
    later = picture.changes()
    assert later.rows.tolist() == [[7, 2, later.texts.index("gradient"), 3, 4]]
    picture.restart()
    assert picture.changes().rows[:, 0].tolist() == [0, 0, 7]


def test_bars_count_entries_by_their_octave_whatever_their_sign():
    history = history_of()
    count(history, 0, a=[0.0, 1.0, -1.9, 2.0, 2.0**-60, -70000.0, float("inf"), float("nan"), 2.0**-48, 65535.0])
    given = history.dtype_picture().entries(9)
    assert given.places.tolist() == [0]
    assert {octave: n for octave, n in enumerate(given.bars[0].tolist()) if n} == {
        0: 1,  # smaller
        1: 1,  # from 2^-48
        49: 2,  # from 1
        50: 1,
        64: 1,
        N_BARS - 1: 1,
    }
    assert given.counts[0, :3].tolist() == [10, 1, 2]
    float16 = dict(zip(FATES, given.counts[0, 3:6].tolist(), strict=True))
    assert float16 == {"underflow": 2, "subnormal": 0, "overflow": 2}


def test_the_newest_of_each_parameter_counts_and_is_given_once():
    history = history_of()
    picture = history.dtype_picture()
    count(history, 0, a=[1.0], b=[1.0, 1.0])
    count(history, 100, a=[4.0, 4.0, 4.0])
    count(history, 100, "clipped", a=[8.0])
    given = picture.entries(9)
    assert (given.places.tolist(), given.iteration.tolist()) == ([0, 1], [100, 0])
    assert given.bars.sum(axis=1).tolist() == given.counts[:, 0].tolist() == [3, 2]
    assert len(picture.entries(9).places) == 0
    count(history, 200, b=[0.0])
    given = picture.entries(9)
    assert (given.places.tolist(), given.iteration.tolist(), given.bars.sum()) == ([1], [200], 0)
    assert given.counts[0, :3].tolist() == [1, 1, 0]
    picture.restart()
    assert picture.entries(9).iteration.tolist() == [100, 200]


def test_a_message_holds_so_many_and_the_rest_comes_with_the_next():
    history = history_of()
    picture = history.dtype_picture()
    count(history, 0, a=[1.0], b=[1.0], c=[1.0])
    assert picture.entries(2).places.tolist() == [0, 1]
    assert picture.n_more_entries
    assert picture.entries(2).places.tolist() == [2]
    assert not picture.n_more_entries


def test_rows_are_read_in_pieces_that_may_part_an_iteration(monkeypatch):
    monkeypatch.setattr(module, "AT_ONCE", 2)
    history = history_of()
    count(history, 0, a=[1.0, 2.0, 4.0, 8.0], b=[1.0] * 3)
    count(history, 1, a=[2.0**-20] * 5 + [1.0])
    given = history.dtype_picture().entries(9)
    assert given.bars.sum(axis=1).tolist() == [6, 3]
    assert given.counts[:, 0].tolist() == [6, 3]


def test_the_loss_scale_is_a_picture_in_which_skipped_steps_show():
    history = history_of()
    picture = history.dtype_picture()
    for i, (scale, skipped) in enumerate([(1024, False), (1024, True), (512, False)]):
        append(history, i, scale, skipped)
    columns = picture.columns(1)
    assert columns.maximum.tolist() == [[1024], [512]]
    assert columns.flags.tolist() == [[NOT_OPTIMIZED], [0]]
    assert picture.skipped() == picture.skipped() == 1
    append(history, 3, 512, True)
    assert picture.skipped() == 2
    whole, seen = picture.overview()
    assert (whole.start.tolist(), seen) == ([0, 1, 2, 3], 4)


def test_a_skipped_step_is_still_seen_in_a_long_run():
    history = history_of("a")
    for i in range(9000):
        append(history, i, 2.0**15, skipped=i == 4321)
    whole, seen = history.dtype_picture().overview()
    assert seen == 9000
    assert len(whole) <= 4096
    (bad,) = np.flatnonzero(whole.flags[:, 0])
    assert whole.start[bad] <= 4321 < whole.stop[bad]


def test_states_are_those_of_the_newest_iteration_that_has_any():
    history = history_of()
    picture = history.dtype_picture()
    assert picture.states().tolist() == [4, 4, 4]
    append(history, 0, states=FROZEN)
    history.append(1, 0, None, None, {})
    assert picture.states().tolist() == [FROZEN] * 3
    history.declare([*history.described, Parameter(name="d", shape=(), dtype="float32")])
    assert picture.states().tolist() == [FROZEN] * 3 + [4]


def test_what_was_recorded_again_takes_the_place_of_what_no_longer_holds():
    history = history_of()
    picture = history.dtype_picture()
    for i in range(10):
        append(history, i, skipped=i == 8)
    told(history, 0, "a", "parameter", "float32")
    told(history, 8, "a", "parameter", "float64")
    count(history, 8, a=[1.0, 1.0])
    picture.changes(), picture.entries(9), picture.skipped(), picture.overview()
    history.begin_attempt(5, 0)
    append(history, 5)
    count(history, 5, a=[4.0])
    picture.restart()
    assert picture.changes().rows[:, 0].tolist() == [0]
    given = picture.entries(9)
    assert (given.iteration.tolist(), given.bars.sum()) == ([5], 1)
    assert picture.skipped() == 0
    assert picture.overview()[1] == 6


def test_a_run_of_before_devices_were_written_down_has_none(tmp_path):
    history = history_of(save_to=tmp_path / "a")
    append(history, 0)
    told(history, 0, "a", "parameter", "float32", None)
    history.end_run()
    opened = History.open(tmp_path / "a")
    assert opened.dtypes["device"].isna().tolist() == [True]
    assert opened.dtype_picture().changes().rows[0].tolist() == [0, 0, 0, 1, -1]


@pytest.mark.parametrize("how", ["in memory", "opened"])
def test_a_picture_of_an_opened_run_is_the_same(tmp_path, how):
    history = history_of(save_to=tmp_path / "a", memory_limit="10 kB", flush_interval_s=0.01)
    for i in range(300):
        append(history, i, 2.0 ** (i // 100), skipped=i == 150)
        if i % 100 == 0:
            count(history, i, a=[1.0] * (i + 1), b=[0.0])
    history.end_run()
    read = history if how == "in memory" else History.open(tmp_path / "a")
    picture: DtypePicture = read.dtype_picture()
    given = picture.entries(9)
    assert given.iteration.tolist() == [200, 200]
    assert given.counts[:, :2].tolist() == [[201, 0], [1, 1]]
    assert picture.skipped() == 1
    whole, _ = picture.overview()
    assert np.unique(whole.maximum).tolist() == [1, 2, 4]


def test_states_are_found_where_files_were_merged_since_the_run_was_opened(tmp_path):
    history = history_of(save_to=tmp_path / "a")
    append(history, 0, states=FROZEN)
    history.flush()
    picture = History.open(tmp_path / "a").dtype_picture()
    before = set((tmp_path / "a" / "gradients").iterdir())
    for i in range(1, 40):
        append(history, i)
        history.flush()
    history.end_run()
    assert not before <= set((tmp_path / "a" / "gradients").iterdir()), "Parts are merged."
    assert picture.states().tolist() == [FROZEN] * 3
