"""A file that lacks a key, or has a value of another kind, is named before anything moves."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import gradviz as gv
from gradviz.errors import CheckpointError, CheckpointWarning
from gradviz.loop.checkpoints.files import load
from gradviz.loop.checkpoints.form import check_form
from tests.loop.scenes import assert_same, outcome

BATCH = (torch.ones(4, 2), torch.ones(4, 1))


class Counting:
    """A handler of the user's, with a memory."""

    name = "counting"

    def __init__(self):
        self.seen = {"n": 0, "last": [0.0]}

    def __call__(self, state):
        self.seen = {"n": self.seen["n"] + 1, "last": [state.metrics["loss"]]}
        state.step_state["least"] = torch.zeros(2)

    def state_dict(self):
        return dict(self.seen)

    def load_state_dict(self, state):
        self.seen = {"n": state["n"], "last": state["last"]}


def small_loop():
    loop = gv.trainer(nn.Linear(2, 1), "mean_squared_error", "adam").metric("mean_absolute_error").validate([BATCH])
    return loop.early_stop("loss", restore_best=True).handle_event("iteration_completed", Counting())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Of a checkpoint in the middle of an epoch, with all that one can have."""
    folder = tmp_path_factory.mktemp("run")
    small_loop().checkpoint(folder, event="iteration_completed").run([BATCH] * 2, epochs=2)
    return folder


def paths(value, path=()):
    """The way to everything that is in it; of long sequences, to the first and the last."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else ()
    for place, (key, part) in enumerate(parts):
        if isinstance(value, dict) or place in (0, len(value) - 1):
            yield (*path, key)
            yield from paths(part, (*path, key))


MISSING = object()


def changed(value, path, how):
    """A copy of it, with the value at a place missing, of another kind, or of another shape; None where it has none."""
    if not path:
        if how == "missing":
            return MISSING
        if how == "of another kind":
            return "spoilt" if not isinstance(value, str) else 7
        return value[..., None] if isinstance(value, torch.Tensor) else None
    key, *rest = path
    part = changed(value[key], rest, how)
    if isinstance(value, dict):
        return {k: part if k == key else v for k, v in value.items() if not (k == key and part is MISSING)}
    return type(value)([part if k == key else v for k, v in enumerate(value) if not (k == key and part is MISSING)])


def at(value, path):
    for key in path:
        value = value[key]
    return value


def test_whatever_is_missing_or_changed_is_named(folder, tmp_path):
    whole = load(folder / "checkpoints" / "checkpoint_1_1.pt")
    check_form(whole, "a file")
    tried = 0
    for path in paths({key: value for key, value in whole.items() if key != "form"}):
        for how in ("missing", "of another kind", "of another shape"):
            if how == "of another shape" and not isinstance(at(whole, path), torch.Tensor):
                continue
            with pytest.raises(CheckpointError) as raised:
                check_form(changed(whole, path, how), "a file")
            named = path if not isinstance(at(whole, path[:-1]), list | tuple) else path[:-1]
            assert "".join(f"[{key!r}]" for key in named) in str(raised.value)
            tried += 1
    assert tried > 250


@pytest.mark.parametrize(
    "path",
    [
        ("form",),
        ("model", "weight"),
        ("optimizer", "state", 1),
        ("optimizer", "state", 0, "exp_avg"),
        ("optimizer", "param_groups", 0, "lr"),
        ("step_state", "least"),
        ("handlers", "iteration_completed: counting #0", "n"),
        ("handlers", "epoch_completed: early_stop(loss) #0", "best"),
        ("metrics", "mean_absolute_error", "so_far", "n"),
        ("epoch", "before_data", "streams"),
    ],
)
@pytest.mark.parametrize("how", ["missing", "of another kind", "of another shape"])
def test_nothing_has_moved_then(folder, tmp_path, path, how):
    whole, file = torch.load(folder / "checkpoints" / "checkpoint_1_1.pt"), tmp_path / "spoilt.pt"
    if how == "of another shape" and not isinstance(at(whole, path), torch.Tensor):
        return
    torch.save(changed(whole, path, how), file)
    loop = small_loop()
    loop.run([BATCH])
    before = outcome(loop)
    with pytest.raises(CheckpointError) as raised:
        loop.resume(file)
    assert str(file) in str(raised.value)
    assert repr(path[-1]) in str(raised.value)
    assert_same(before, outcome(loop))


def test_numbers_may_be_set_and_keys_be_added(folder, tmp_path):
    saved = torch.load(folder / "checkpoints" / "last.pt")
    saved["optimizer"]["param_groups"][0]["lr"] = 0.25
    saved["note"] = "a learning rate of my own"
    torch.save(saved, tmp_path / "mine.pt")
    loop = small_loop().resume(tmp_path / "mine.pt")
    assert loop._step.optimizer.param_groups[0]["lr"] == 0.25
    saved["handlers"]["another"] = {}
    torch.save(saved, tmp_path / "mine.pt")
    with pytest.raises(CheckpointError, match=r"\['handlers'\]\['another'\] was not in it"):
        loop.resume(tmp_path / "mine.pt")


@pytest.mark.parametrize("version", [None, "1"])
def test_without_a_version_it_is_not_read(folder, tmp_path, version):
    saved = torch.load(folder / "checkpoints" / "last.pt")
    saved |= {"format_version": version, "versions": None}
    torch.save(saved, tmp_path / "a.pt")
    with pytest.raises(CheckpointError, match="has format version"):
        load(tmp_path / "a.pt")


def test_of_a_folder_the_next_good_one_is_taken(folder, tmp_path):
    saved = torch.load(folder / "checkpoints" / "last.pt")
    torch.save(saved, tmp_path / "good.pt")
    del saved["state"]
    torch.save(saved, tmp_path / "last.pt")
    with pytest.warns(CheckpointWarning, match=r"last.pt is no whole checkpoint: it has no \['state'\].*Taken instead"):
        assert load(tmp_path)["state"]["iteration"] == 4
