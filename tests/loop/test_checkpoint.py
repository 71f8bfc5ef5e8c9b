"""Checkpoints are whole files that torch reads by itself, and hold how things stand when an event is over."""

from __future__ import annotations

import multiprocessing
import os
import random
import resource
import signal
import subprocess
import sys
import warnings
import zipfile
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import gradviz as gv
from gradviz.errors import (
    CheckpointError,
    CheckpointWarning,
    EventError,
    MetricError,
    UnknownKeywordError,
)
from gradviz.loop.checkpoints import files
from gradviz.loop.events import EVENTS
from gradviz.loop.handlers import checkpoint
from tests.loop.new_process import begun
from tests.loop.scenes import loader, net, write_until_killed

BATCH = (torch.ones(4, 2), torch.ones(4, 1))


def small_loop(**options) -> gv.Loop:
    torch.manual_seed(0)
    return gv.trainer(nn.Linear(2, 1), "mean_squared_error", "sgd", **options)


def following(values, **options) -> gv.Loop:
    """A loop with a metric that comes to the next of some values in each epoch of one batch."""
    coming = iter(values)
    return small_loop(**options).metric(lambda i: next(coming), "value", fields=["i"])


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder / "checkpoints"))


def saved(folder: Path, name: str = "last.pt") -> dict:
    return torch.load(folder / "checkpoints" / name)


# Several into one folder --------------------------------------------------------------------------------------------


def handlers(loop: gv.Loop) -> list[checkpoint.Checkpoint]:
    return [each for each in loop._training.handlers if isinstance(each, checkpoint.Checkpoint)]


@pytest.mark.case("N07")
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"best": "loss"}, {"best": "value", "mode": "max"}),
        ({"keep": 1}, {"keep": None}),
        ({"event": ["epoch_completed", "halted"]}, {}),
        ({}, {"event": ["epoch_completed", "halted"]}),
        ({}, {"pattern": "a_{epoch}.pt"}),
    ],
)
def test_a_cell_that_is_edited_and_run_again_leaves_one_checkpoint_and_a_word(tmp_path, first, second):
    loop = following([3, 2, 4]).checkpoint(tmp_path, **first)
    with pytest.warns(CheckpointWarning, match=r"takes the place of the one before.*loop\.checkpoint\('.*_2'\)"):
        loop.checkpoint(tmp_path, **second)
    loop.checkpoint(str(tmp_path), **second)  # once more, and nothing is said
    (left,) = handlers(loop)
    events = second.get("event", ["epoch_completed"])
    assert left.events == events
    assert [event for event in EVENTS if loop._training.handlers.at(event)] == events


def test_the_best_is_of_the_metric_that_was_named_last(tmp_path):
    loop = following([3, 2, 4]).checkpoint(tmp_path, best="value")
    loop.run([BATCH], epochs=2)
    with pytest.warns(CheckpointWarning, match="takes the place"):
        loop.checkpoint(tmp_path, best="value", mode="max", keep=1)
    loop.run([BATCH])
    assert saved(tmp_path, "best.pt")["state"]["epoch"] == 3
    assert names(tmp_path) == ["best.pt", "checkpoint_2_1.pt", "last.pt"]  # and it has taken away what the first wrote


def test_the_best_so_far_stays_where_only_how_many_are_kept_is_another(tmp_path):
    loop = following([2, 3]).checkpoint(tmp_path, best="value")
    loop.run([BATCH])
    with pytest.warns(CheckpointWarning, match="takes the place"):
        loop.checkpoint(tmp_path, best="value", keep=1)
    loop.run([BATCH])
    assert saved(tmp_path, "best.pt")["state"]["epoch"] == 1


@pytest.mark.parametrize("best", ["value", "loss"])
def test_two_that_would_share_a_best_file_are_refused_and_the_first_stays(tmp_path, best):
    loop = following([3, 2]).checkpoint(tmp_path, best="loss")
    (first,) = handlers(loop)
    with pytest.raises(CheckpointError) as error:
        loop.checkpoint(tmp_path, event="iteration_completed", best=best)
    said = str(error.value)
    assert "best='loss' at 'epoch_completed'" in said
    assert f"best={best!r} at 'iteration_completed'" in said
    assert f"loop.checkpoint('{tmp_path}_2', best={best!r})" in said
    assert [*handlers(loop)] == [first]
    assert len(handlers(loop.checkpoint(tmp_path, event="iteration_completed", keep=1))) == 2
    assert loop.run([BATCH]).status == "completed"


# Which files there are ----------------------------------------------------------------------------------------------


@pytest.mark.case("axon-L9")
def test_a_file_for_each_epoch_by_epoch_and_iterations_run(tmp_path):
    small_loop().checkpoint(tmp_path).run([BATCH], epochs=3)
    files = ["checkpoint_0_1.pt", "checkpoint_1_1.pt", "checkpoint_2_1.pt", "last.pt"]
    assert names(tmp_path) == files


@pytest.mark.case("axon-L9")
def test_names_of_ones_own_in_a_folder_of_ones_own(tmp_path):
    folder = tmp_path / "deep" / "runs"
    small_loop().checkpoint(str(folder), pattern="ckp_{epoch:03d}.pth").run([BATCH], epochs=2)
    loop = small_loop().resume(folder).checkpoint(folder, pattern=lambda state: f"at {state.iteration}")
    loop.run([BATCH])
    assert names(folder) == ["at 2", "ckp_000.pth", "ckp_001.pth", "last.pt"]


@pytest.mark.parametrize(("keep", "n"), [(1, 1), (2, 2), (3, 3), (None, 5), (9, 5)])
def test_the_newest_are_kept(tmp_path, keep, n):
    small_loop().checkpoint(tmp_path, keep=keep).run([BATCH], epochs=5)
    assert names(tmp_path) == [f"checkpoint_{epoch}_1.pt" for epoch in range(5 - n, 5)] + ["last.pt"]


def test_the_last_is_always_the_newest_and_no_link_that_dangles(tmp_path):
    small_loop().checkpoint(tmp_path, keep=1).run([BATCH], epochs=4)
    last = tmp_path / "checkpoints" / "last.pt"
    assert last.is_file()
    assert not last.is_symlink()
    assert saved(tmp_path)["state"]["epoch"] == saved(tmp_path, "checkpoint_3_1.pt")["state"]["epoch"] == 4


def test_filters_and_events_say_when(tmp_path):
    loop = small_loop().checkpoint(tmp_path, event="iteration_completed", every=2, keep=None)
    loop.run([BATCH] * 3, epochs=2)  # of six iterations the 1st, 3rd and 5th
    assert names(tmp_path) == ["checkpoint_0_1.pt", "checkpoint_0_3.pt", "checkpoint_1_2.pt", "last.pt"]
    loop = small_loop().checkpoint(tmp_path / "end", event=["completed", "halted"])
    loop.run([BATCH] * 3, epochs=2)
    assert names(tmp_path / "end") == ["checkpoint_2_0.pt", "last.pt"]


@pytest.mark.case("axon-P2")
def test_the_best_is_written_when_the_metric_improves(tmp_path):
    following([15, 10, 5, 5, 5, 5]).checkpoint(tmp_path, best="value", keep=1).run([BATCH], epochs=6)
    assert names(tmp_path) == ["best.pt", "checkpoint_5_1.pt", "last.pt"]
    assert saved(tmp_path, "best.pt")["state"]["epoch"] == 3  # the first that came to 5
    assert saved(tmp_path, "last.pt")["state"]["epoch"] == 6


@pytest.mark.parametrize(
    ("values", "options", "epochs"),
    [
        ([float("nan"), 3, float("nan"), 4], {}, 2),
        ([1, 3, 2], {"mode": "max"}, 2),
        ([1.0, 0.95, 0.8], {"min_delta": 0.1}, 3),
        ([1.0, 0.95, 0.93], {"min_delta": 0.1}, 1),
    ],
)
def test_what_the_best_is(tmp_path, values, options, epochs):
    following(values).checkpoint(tmp_path, best="value", **options).run([BATCH], epochs=len(values))
    assert saved(tmp_path, "best.pt")["state"]["epoch"] == epochs


def test_nan_is_never_the_best(tmp_path):
    following([float("nan")] * 2).checkpoint(tmp_path, best="value").run([BATCH], epochs=2)
    assert "best.pt" not in names(tmp_path)


def test_the_best_is_known_after_a_resume(tmp_path):
    following([3.0, 1.0]).checkpoint(tmp_path, best="value", keep=2).run([BATCH], epochs=2)
    loop = following([2.0, 0.5]).checkpoint(tmp_path, best="value", keep=2).resume(tmp_path)
    loop.run([BATCH])
    assert saved(tmp_path, "best.pt")["state"]["epoch"] == 2
    loop.run([BATCH])
    assert saved(tmp_path, "best.pt")["state"]["epoch"] == 4
    assert names(tmp_path) == ["best.pt", "checkpoint_2_1.pt", "checkpoint_3_1.pt", "last.pt"]


def test_a_metric_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(MetricError, match="No metric is called 'los'"):
        small_loop().checkpoint(tmp_path, best="los").run([BATCH])


def test_it_is_written_after_all_other_handlers(tmp_path):
    """Attached first, it knows what a validation found, what a handler changed, and that one has said to halt."""
    model = nn.Linear(2, 1)
    loop = gv.trainer(model, "mean_squared_error", "sgd").checkpoint(tmp_path, best="validation_loss")
    loop.validate([BATCH]).handle_event("epoch_completed", lambda state: gv.ModelState(model).freeze("bias") and None)
    loop.handle_event("epoch_completed", lambda state: "halt_loop")
    loop.run([BATCH], epochs=3)
    assert "validation_loss" in saved(tmp_path, "best.pt")["state"]["metrics"]
    assert saved(tmp_path)["step"]["trainable"] == {"weight": True, "bias": False}


def test_a_cell_that_runs_again_adds_no_second(tmp_path):
    loop = small_loop()
    for _ in range(3):
        loop.checkpoint(tmp_path, keep=1, pattern=lambda state: f"{state.epoch}.pt")
    loop.run([BATCH], epochs=2)
    loop.checkpoint(tmp_path, keep=1, pattern=lambda state: f"{state.epoch}.pt").run([BATCH])  # knows what is there
    assert names(tmp_path) == ["2.pt", "last.pt"]


def test_two_that_write_one_name_leave_each_other_s_files(tmp_path):
    """After the last iteration, and again when the epoch is over: the second takes the place of the first's file."""
    loop = small_loop().checkpoint(tmp_path, event="iteration_completed", keep=1)
    loop.checkpoint(tmp_path, keep=None).run([BATCH] * 2, epochs=2)
    assert names(tmp_path) == ["checkpoint_0_2.pt", "checkpoint_1_2.pt", "last.pt"]
    assert saved(tmp_path, "checkpoint_0_2.pt")["epoch"] is None


# What is in them ----------------------------------------------------------------------------------------------------


def test_torch_reads_it_where_gradviz_is_not(tmp_path):
    loop = small_loop().metric("mean_absolute_error").validate([BATCH]).early_stop("validation_loss")
    loop.checkpoint(tmp_path).run([BATCH] * 3)
    weight = loop.state.step_state.model_state["weight"].tolist()
    code = """if True:
        import sys, torch
        from torch import nn
        checkpoint = torch.load(sys.argv[1])
        model = nn.Linear(2, 1)
        model.load_state_dict(checkpoint["model"])
        torch.optim.SGD(model.parameters()).load_state_dict(checkpoint["optimizer"])
        assert not any(name.startswith("gradviz") for name in sys.modules)
        print(model.weight.tolist(), checkpoint["format"], checkpoint["format_version"])
    """
    command = [sys.executable, "-I", "-c", code, str(tmp_path / "checkpoints" / "last.pt")]
    assert subprocess.check_output(command, text=True).strip() == f"{weight} gradviz checkpoint 1"


def test_its_keys_are_documented(tmp_path):
    small_loop(keep_gradients=True).checkpoint(tmp_path, gradients=True).run([BATCH])
    documented = gv.loop.checkpoints.snapshot.__doc__.partition("value\n")[2]
    rows = [line.split()[0] for line in documented.splitlines() if line and not line.startswith(("=", " "))]
    assert rows == list(saved(tmp_path))
    assert saved(tmp_path)["versions"] == {"gradviz": gv.__version__, "torch": str(torch.__version__)}


def test_names_are_those_of_the_model_without_its_wrapper(tmp_path):
    gv.trainer(nn.DataParallel(net()), "cross_entropy", "adam").checkpoint(tmp_path).run(loader())
    fresh = net()
    fresh.load_state_dict(saved(tmp_path)["model"])
    assert list(saved(tmp_path)["model"]) == list(fresh.state_dict())


def test_what_a_module_saves_besides_is_there(tmp_path):
    class Counting(nn.Linear):
        count = 0

        def forward(self, x):
            self.count += self.training
            return super().forward(x)

        def get_extra_state(self):
            return {"count": self.count}

        def set_extra_state(self, state):
            self.count = state["count"]

    model = Counting(2, 1)
    model.register_buffer("scratch", torch.zeros(3), persistent=False)
    gv.trainer(model, "mean_squared_error", "sgd").checkpoint(tmp_path).run([BATCH] * 3)
    again = Counting(2, 1)
    again.load_state_dict(saved(tmp_path)["model"])
    assert again.count == 3
    assert list(saved(tmp_path)["step"]["buffers"]) == ["scratch"]


def test_a_part_of_a_larger_tensor_is_saved_without_the_rest(tmp_path):
    inputs, targets = torch.ones(100_000, 2), torch.ones(100_000, 1)
    small_loop().checkpoint(tmp_path).run([(inputs[:4], targets[:4])])
    assert (tmp_path / "checkpoints" / "last.pt").stat().st_size < 100_000


@pytest.mark.case("axon-G12")
def test_kept_gradients_are_left_out_unless_they_are_asked_for(tmp_path):
    def size(**options):
        model = nn.Linear(100, 500, bias=False)
        folder = tmp_path / str(options)
        loop = gv.trainer(model, "mean_squared_error", "sgd", keep_gradients=True).checkpoint(folder, **options)
        loop.run([(torch.ones(4, 100), torch.ones(4, 500))])
        return (folder / "checkpoints" / "last.pt").stat().st_size

    tree = 100 * 500 * 4
    assert tree <= size(gradients=True) - size() < tree + 2000


@pytest.mark.case("axon-G12")
def test_kept_gradients_are_zeros_after_a_resume_unless_they_were_saved(tmp_path):
    for gradients in (False, True):
        loop = small_loop(keep_gradients=True, if_exists="overwrite").checkpoint(tmp_path, gradients=gradients)
        loop.run([BATCH])
        again = small_loop(keep_gradients=True).resume(tmp_path)
        kept, now = loop.state.step_state.gradients, again.state.step_state.gradients
        assert list(now) == list(kept)
        for name, gradient in now.items():
            assert torch.equal(gradient, kept[name] if gradients else torch.zeros_like(gradient))


def test_what_cannot_be_saved_is_named_once(tmp_path):
    def keep(state):
        state.step_state |= {"file": open, "nest": {"fine": 1, "not": [2, object()]}}

    loop = small_loop().handle_event("iteration_completed", keep).checkpoint(tmp_path)
    with pytest.warns(CheckpointWarning, match=r"step_state\['file'\] \(a builtin.*\['nest'\]\['not'\]\[1\]") as said:
        loop.run([BATCH], epochs=3)
    assert len(said) == 1
    again = small_loop().resume(tmp_path)
    assert again.state.step_state["nest"] == {"fine": 1, "not": [2]}


# Bad input ----------------------------------------------------------------------------------------------------------


@pytest.mark.case("L18")
def test_there_is_no_patience(tmp_path):
    with pytest.raises(UnknownKeywordError, match=r"checkpoint\(\) takes no keyword 'patience'"):
        small_loop().checkpoint(tmp_path, best="loss", patience=2)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"keep": 0}, "keep is a whole number from 1 on"),
        ({"keep": True}, "keep is a whole number from 1 on"),
        ({"keep": 2.0}, "keep is a whole number from 1 on"),
        ({"pattern": "a_{batch}.pt"}, "the fields epoch and iteration"),
        ({"pattern": "a_{}.pt"}, "the fields epoch and iteration"),
        ({"pattern": "a_{epoch"}, "the fields epoch and iteration"),
        ({"pattern": "last.pt"}, "cannot be called 'last.pt'"),
        ({"pattern": ".hidden"}, "cannot be called"),
        ({"pattern": "a/b.pt"}, "cannot be called"),
        ({"pattern": ""}, "cannot be called"),
        ({"pattern": 3}, "a function of the state"),
        ({"pattern": lambda: "a.pt"}, "pattern is called with the state alone, .*; write pattern=lambda state: ..."),
        ({"event": "epoch_started"}, "when something is over"),
        ({"event": ["epoch_completed", "iteration_started"]}, "when something is over"),
        ({"gradients": True}, "keep_gradients=True"),
    ],
)
def test_bad_options_are_errors_at_once(tmp_path, options, said):
    with pytest.raises(CheckpointError, match=said):
        small_loop().checkpoint(tmp_path / "new", **options)
    assert not (tmp_path / "new").exists()


def test_other_bad_options_are_errors_at_once(tmp_path):
    for options in ({"event": "epoch_end"}, {"every": 0}):
        with pytest.raises(EventError):
            small_loop().checkpoint(tmp_path, **options)
    for options in ({"best": "loss", "mode": "least"}, {"best": "loss", "min_delta": -1}):
        with pytest.raises(ValueError, match=next(iter(reversed(options)))):
            small_loop().checkpoint(tmp_path, **options)


def test_a_path_that_cannot_be_a_folder_is_an_error_at_once(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    for path in (file, file / "deeper", None):
        with pytest.raises(CheckpointError, match="cannot be a folder"):
            small_loop().checkpoint(path)


def test_a_function_that_gives_no_name_is_an_error(tmp_path):
    for wrong in (7, "last.pt"):
        with pytest.raises(CheckpointError, match=r"the name of a file|cannot be called") as caught:
            small_loop().checkpoint(tmp_path, pattern=lambda state, wrong=wrong: wrong).run([BATCH])
        assert "epoch_completed" in caught.value.__notes__[0]


# Disks --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def full_disk():
    """Files longer than 2,000 bytes cannot be written, by this process, as long as it is switched on."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda is_full: resource.setrlimit(resource.RLIMIT_FSIZE, (2000 if is_full else soft, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_is_said_once_and_training_goes_on(tmp_path, full_disk):
    plain = small_loop()
    plain.run([BATCH], epochs=6)

    full = following([6, 5, 4, 3, 3, 3]).checkpoint(tmp_path, best="value", keep=2)
    full.handle_event("epoch_started", lambda state: full_disk(1 <= state.epoch <= 3))
    with pytest.warns(CheckpointWarning, match="No checkpoint could be written") as said:
        full.run([BATCH], epochs=6)
    full_disk(False)
    assert len(said) == 1
    assert names(tmp_path) == ["best.pt", "checkpoint_4_1.pt", "checkpoint_5_1.pt", "last.pt"]
    assert saved(tmp_path, "best.pt")["state"]["epoch"] == 5  # what could not be written never was the best
    assert torch.equal(plain.state.step_state.model_state["weight"], full.state.step_state.model_state["weight"])
    assert plain.history.norms.equals(full.history.norms)


@pytest.mark.case("L28")
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("place", ["save", "link"])
def test_after_a_ctrl_c_while_it_writes_only_whole_files_are_there_and_known(tmp_path, monkeypatch, place, times):
    write, presses = getattr(checkpoint, place), [times]

    def pressed(*of):
        while loop.state.epoch == 2 and presses[0]:
            presses[0] -= 1
            os.kill(os.getpid(), signal.SIGINT)
        write(*of)

    monkeypatch.setattr(checkpoint, place, pressed)
    loop = following([6, 5, 4, 4.5, 3, 7]).checkpoint(tmp_path, best="value", keep=2)
    with pytest.raises(KeyboardInterrupt):
        loop.run([BATCH], epochs=4)
    is_written = (place, times) != ("save", 2)  # the second acts at once, but not between a file and its second name
    newest = ["checkpoint_1_1.pt", "checkpoint_2_1.pt"] if is_written else ["checkpoint_0_1.pt", "checkpoint_1_1.pt"]
    assert names(tmp_path) == ["best.pt", *newest, "last.pt"]
    assert saved(tmp_path)["state"]["epoch"] == saved(tmp_path, "best.pt")["state"]["epoch"] == (3 if is_written else 2)
    loop.run([BATCH])
    assert names(tmp_path) == ["best.pt", newest[1], "checkpoint_3_1.pt", "last.pt"]
    assert saved(tmp_path, "best.pt")["state"]["epoch"] == (3 if is_written else 4)  # 4.5 beats what was written: 5
    assert loop.run([BATCH], epochs=2).epoch == 6
    assert saved(tmp_path, "best.pt")["state"]["epoch"] == 5


@pytest.mark.case("N08")
def test_a_second_ctrl_c_in_the_middle_of_a_file_acts_at_once_and_is_no_fault_of_the_disk(tmp_path, monkeypatch):
    write = files._write

    class Pressing:
        """A file into which the second part is not written before Ctrl-C is pressed twice."""

        def __init__(self, file):
            self._file, self._parts = file, 0

        def __getattr__(self, name):
            return getattr(self._file, name)

        def write(self, part):
            self._parts += 1
            if self._parts == 2:
                os.kill(os.getpid(), signal.SIGINT)
                os.kill(os.getpid(), signal.SIGINT)
            return self._file.write(part)

    monkeypatch.setattr(files, "_write", lambda target, fill: write(target, lambda file: fill(Pressing(file))))
    loop = small_loop().checkpoint(tmp_path, event="iteration_completed")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with pytest.raises(KeyboardInterrupt):
            loop.run([BATCH], epochs=2)
    assert not said
    assert (loop.state.status, loop.state.iteration, names(tmp_path)) == ("interrupted", 1, [])
    monkeypatch.undo()
    loop.run([BATCH])
    assert names(tmp_path) == ["checkpoint_1_1.pt", "last.pt"]


def test_a_folder_that_is_gone_is_made_anew(tmp_path):
    loop = small_loop().checkpoint(tmp_path / "a")
    os.rename(tmp_path / "a", tmp_path / "b")
    loop.run([BATCH])
    assert names(tmp_path / "a") == ["checkpoint_0_1.pt", "last.pt"]


def test_what_a_killed_writer_left_is_removed(tmp_path):
    loop = small_loop().checkpoint(tmp_path)
    for name, age_s in ((".checkpoint_0_1.pt.7.tmp", 3600), (".checkpoint_0_2.pt.8.tmp", 0), (".mine", 3600)):
        file = tmp_path / "checkpoints" / name
        file.write_bytes(b"half")
        now = file.stat().st_mtime
        os.utime(file, (now - age_s, now - age_s))
    loop.run([BATCH])
    hidden = [name for name in names(tmp_path) if name.startswith(".")]
    assert hidden == [".checkpoint_0_2.pt.8.tmp", ".mine"]  # one that may be written now, and somebody else's


def test_a_file_system_without_links_has_copies(tmp_path, monkeypatch):
    def refuse(*args, **options):
        raise OSError("no links here")

    monkeypatch.setattr(os, "link", refuse)
    following([1, 2]).checkpoint(tmp_path, best="value").run([BATCH], epochs=2)
    assert saved(tmp_path)["state"]["epoch"] == 2
    assert saved(tmp_path, "best.pt")["state"]["epoch"] == 1
    assert names(tmp_path) == ["best.pt", "checkpoint_0_1.pt", "checkpoint_1_1.pt", "last.pt"]


def test_a_writer_that_is_killed_leaves_whole_files(tmp_path):
    chance = random.Random(0)
    for _ in range(4):
        heard, said = multiprocessing.Pipe(duplex=False)
        writer = begun(write_until_killed, tmp_path, said)
        said.close()  # the writer's own is the last one, so that its end is heard
        for _ in range(chance.randrange(2, 12)):
            heard.recv()
        writer.kill()
        writer.join()
        files = [file for file in (tmp_path / "checkpoints").iterdir() if not file.name.startswith(".")]
        assert {"best.pt", "last.pt"} <= {file.name for file in files}
        for file in files:
            assert zipfile.ZipFile(file).testzip() is None
            assert torch.load(file)["format"] == "gradviz checkpoint"


def test_a_damaged_byte_is_found_whatever_is_set_for_torch(tmp_path):
    before = torch.serialization.get_crc32_options()
    torch.serialization.set_crc32_options(False)
    try:
        small_loop().checkpoint(tmp_path).run([BATCH])
        assert torch.serialization.get_crc32_options() is False
    finally:
        torch.serialization.set_crc32_options(before)
    assert zipfile.ZipFile(tmp_path / "checkpoints" / "last.pt").testzip() is None


def test_training_is_the_same_with_and_without(tmp_path):
    def run(loop):
        torch.manual_seed(3)
        np.random.seed(3)
        loop.run(loader(), epochs=3)
        return loop.state.step_state.model_state["4.weight"], loop.history.norms, torch.rand(1), np.random.rand()

    make = partial(gv.trainer, loss="cross_entropy", optimizer="adam", loss_scale="dynamic")
    plain = run(make(net()))
    checkpointed = run(make(net()).checkpoint(tmp_path, event=["iteration_completed", "epoch_completed"]))
    assert torch.equal(plain[0], checkpointed[0])
    assert plain[1].equals(checkpointed[1])
    assert plain[2:] == checkpointed[2:]
