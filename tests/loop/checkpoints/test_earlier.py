"""An earlier run is neither written over unasked nor mixed with a new one."""

from __future__ import annotations

import os
import shutil

import pytest
import torch
from torch import nn

import gradviz as gv
from gradviz.errors import CheckpointError, CheckpointWarning, LoopError, RecordingWarning
from gradviz.loop.checkpoints.earlier import earlier_in, how_far

BATCH = (torch.ones(4, 2), torch.ones(4, 1))


def small_loop(**options):
    torch.manual_seed(0)
    return gv.trainer(nn.Linear(2, 1), "mean_squared_error", "adam", **options)


def names(folder):
    return sorted(os.listdir(folder / "checkpoints"))


def contents(folder):
    return {file.name: file.read_bytes() for file in (folder / "checkpoints").iterdir()}


@pytest.fixture
def earlier(tmp_path):
    """A folder in which four epochs were run."""
    folder = tmp_path / "a"
    small_loop().checkpoint(folder, best="loss", keep=2).run([BATCH], epochs=4)
    return folder


def test_it_is_refused_before_anything_moves(earlier):
    before = contents(earlier)
    loop = small_loop().checkpoint(earlier)
    weight = loop._step.model.weight.clone()
    with pytest.raises(LoopError) as raised:
        loop.run([BATCH])
    said = str(raised.value)
    for part in (
        str(earlier / "checkpoints"),
        "holds 4 checkpoints of an earlier run, the newest after 4 epochs and 4 iterations",
        "best.pt, checkpoint_2_1.pt, checkpoint_3_1.pt, last.pt",
        f"loop.resume({str(earlier)!r})",
        'if_exists="overwrite"',
        "loop.checkpoint(",
    ):
        assert part in said
    assert torch.equal(loop._step.model.weight, weight)
    assert (loop.state.status, loop.state.event_counts["started"], len(loop.history)) == ("idle", 0, 0)
    assert contents(earlier) == before
    for begin in (loop.stream, loop.start):
        with pytest.raises(LoopError, match="of an earlier run"):
            begin([BATCH])
    assert loop.run([BATCH], epochs=0).epoch == 0  # writes nothing


def test_what_a_loop_has_written_or_goes_on_from_is_its_own(earlier):
    loop = small_loop().checkpoint(earlier).resume(earlier)
    loop.run([BATCH])
    with pytest.warns(CheckpointWarning, match="takes the place"):
        loop.checkpoint(earlier, keep=5)
    assert loop.run([BATCH]).epoch == 6
    file = earlier / "checkpoints" / "last.pt"
    assert small_loop().resume(file).checkpoint(earlier).run([BATCH]).epoch == 7
    loop = small_loop().resume(earlier).checkpoint(earlier.parent / "b")
    loop.run([BATCH])
    shutil.copytree(earlier, earlier.parent / "c")
    loop = small_loop().resume(earlier).checkpoint(earlier.parent / "c")
    with pytest.raises(LoopError, match="an earlier run"):  # although it goes on from a copy of it
        loop.run([BATCH])


def test_one_that_is_attached_on_the_way_is_refused_at_once(earlier):
    def attach(state):
        loop.checkpoint(earlier)

    loop = small_loop().handle_event("epoch_started", attach)
    before = contents(earlier)
    with pytest.raises(LoopError, match="of an earlier run"):
        loop.run([BATCH])
    assert contents(earlier) == before


def test_it_goes_on_by_itself_from_what_is_furthest(earlier):
    straight = small_loop()
    straight.run([BATCH], epochs=6)
    loop = small_loop(if_exists="resume").checkpoint(earlier)
    assert loop.run([BATCH], epochs=2).epoch == 6
    assert torch.equal(loop._step.model.weight, straight._step.model.weight)
    assert loop.run([BATCH]).epoch == 7

    small_loop().checkpoint(earlier.parent / "b").run([BATCH])
    two = small_loop(if_exists="resume").checkpoint(earlier.parent / "b").checkpoint(earlier)
    assert two.run([BATCH]).epoch == 8


def test_where_nothing_is_it_begins(tmp_path):
    loop = small_loop(if_exists="resume").checkpoint(tmp_path)
    assert loop.run([BATCH]).epoch == 1
    assert loop.run([BATCH]).epoch == 2


def test_what_was_trained_before_is_not_thrown_away(earlier):
    loop = small_loop(if_exists="resume")
    with pytest.warns(
        RecordingWarning, match='if_exists="resume" says nothing about this run, which is written nowhere'
    ):
        loop.run([BATCH])
    with pytest.raises(LoopError, match=r"loop\.resume\(.*before the first run"):
        loop.checkpoint(earlier).run([BATCH])
    assert loop.state.epoch == 1


def test_a_run_apart_from_its_model_goes_on_apart(earlier):
    loop = small_loop(if_exists="resume").checkpoint(earlier)
    before = loop._step.model.weight.clone()
    state = loop.run([BATCH], in_place=False)
    assert state.epoch == 5
    assert torch.equal(loop._step.model.weight, before)
    assert not torch.equal(state.step_state.model_state["weight"], before)


def test_what_cannot_be_read_is_not_begun_over(earlier):
    for file in (earlier / "checkpoints").iterdir():
        file.write_bytes(b"damaged")
    loop = small_loop(if_exists="resume").checkpoint(earlier)
    for _ in range(2):
        with pytest.raises(CheckpointError, match="can be read"):
            loop.run([BATCH])
    with pytest.raises(LoopError, match=r"holds 4 checkpoints of an earlier run: best\.pt"):
        small_loop().checkpoint(earlier).run([BATCH])


def test_the_old_ones_go_when_the_first_new_one_is_written(earlier):
    mine = earlier / "checkpoints" / "checkpoint_2_1 of mine.pt"
    shutil.copy(earlier / "checkpoints" / "best.pt", mine)
    before, seen = names(earlier), []
    loop = small_loop(if_exists="overwrite").checkpoint(earlier)
    loop.handle_event("epoch_started", lambda state: seen.append(names(earlier)))
    loop.run([BATCH] * 3, epochs=2)
    assert seen == [before, ["checkpoint_0_3.pt", mine.name, "last.pt"]]
    assert small_loop().resume(earlier).state.epoch == 2
    loop.run([BATCH])
    assert len(names(earlier)) == 5


def test_names_of_another_pattern_are_known(tmp_path):
    small_loop().checkpoint(tmp_path, pattern=lambda state: f"old {state.epoch}", keep=None).run([BATCH], epochs=2)
    small_loop(if_exists="overwrite").checkpoint(tmp_path, best="loss").run([BATCH])
    assert names(tmp_path) == ["best.pt", "checkpoint_0_1.pt", "last.pt"]
    (tmp_path / "checkpoints" / "epoch_07.pt").write_bytes(b"")
    assert earlier_in(tmp_path / "checkpoints", "epoch_{epoch:02d}.pt") == [*names(tmp_path)[:1], *names(tmp_path)[1:]]


def test_as_long_as_nothing_can_be_written_the_old_ones_stay(earlier, monkeypatch):
    before = contents(earlier)

    def full(*args, **options):
        raise OSError("No space left on device")

    loop = small_loop(if_exists="overwrite").checkpoint(earlier)
    with monkeypatch.context() as disk:
        disk.setattr("gradviz.loop.handlers.checkpoint.save", full)
        with pytest.warns(CheckpointWarning, match="No space left"):
            loop.run([BATCH])
    assert contents(earlier) == before
    loop.run([BATCH])
    assert names(earlier) == ["checkpoint_1_1.pt", "last.pt"]


def test_how_far_a_folder_is(earlier, tmp_path):
    assert how_far(earlier / "checkpoints") == (4, 4)
    assert how_far(tmp_path / "none") == (-1, -1)
    assert earlier_in(tmp_path / "none") == []


def test_another_word_is_an_error():
    with pytest.raises(ValueError, match='if_exists is "error", "resume" or "overwrite"; got \'append\''):
        small_loop(if_exists="append")
