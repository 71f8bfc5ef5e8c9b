"""A file that lacks a key, or has a value of another kind, is named before anything moves."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import gradviz as gv
from gradviz.errors import CheckpointError, CheckpointWarning
from gradviz.loop.checkpoints.files import load

BATCH = (torch.ones(4, 2), torch.ones(4, 1))


DICTS = ("optimizer", "step", "state", "random", "epoch", "validation", "before_data", "mask", "skips")


def small_loop():
    return gv.trainer(nn.Linear(2, 1), "mean_squared_error", "adam")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Of a checkpoint in the middle of an epoch, with a validation."""
    folder = tmp_path_factory.mktemp("run")
    loop = small_loop().validate([BATCH], event="iteration_completed")
    loop.checkpoint(folder, event="iteration_completed").run([BATCH] * 2)
    return folder


def paths(values, path=()):
    """Those of dicts whose keys are the format's own."""
    for key, value in values.items():
        yield (*path, key)
        if key in DICTS and isinstance(value, dict) and path[-1:] != ("optimizer",):
            yield from paths(value, (*path, key))


def spoilt(saved, path, how):
    *above, key = path
    for name in above:
        saved = saved[name]
    if how == "missing":
        del saved[key]
    else:
        saved[key] = {1}


def test_every_key_is_missed_and_its_kind_is_looked_at(folder, tmp_path):
    source, file = folder / "checkpoints" / "checkpoint_0_1.pt", tmp_path / "spoilt.pt"
    loop = small_loop()
    before = [p.clone() for p in loop._step.model.parameters()]
    tried = 0
    for path in list(paths(torch.load(source))):
        if path[0] in ("format", "format_version", "versions"):
            continue
        for how in ("missing", "of another kind"):
            saved = torch.load(source)
            spoilt(saved, path, how)
            torch.save(saved, file)
            with pytest.raises(CheckpointError) as raised:
                loop.resume(file)
            assert str(file) in str(raised.value)
            assert repr(path[-1]) in str(raised.value), path
            tried += 1
    assert tried > 60
    assert all(map(torch.equal, before, loop._step.model.parameters()))


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
        assert load(tmp_path)["state"]["iteration"] == 2
