"""A loop that is saved as it trains: the folder holds what the history does, and training knows nothing of it."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import uuid
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import torch.distributed as distributed
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import gradviz as gv
from gradviz.errors import HistoryError, LoopError, MetricError, RecordingWarning
from gradviz.widgets.wire import pack, unpack

torch.manual_seed(0)
DATA = [(torch.randn(6, 3), torch.randn(6, 2)) for _ in range(8)]


def net(*, dtype: torch.dtype = torch.float32) -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 2))).to(dtype)


def loop_of(model: nn.Module | None = None, **options) -> gv.Loop:
    return gv.trainer(net() if model is None else model, "mean_squared_error", "adam", log=0, seed=0, **options)


def weights(loop: gv.Loop) -> list[torch.Tensor]:
    return [p.detach().clone() for p in loop.state.step_state.model_state.values()]


def assert_same_frames(a: gv.History, b: gv.History) -> None:
    for name in ("gradients", "norms", "metrics", "events", "dtypes", "histograms", "precision", "parameters"):
        pd.testing.assert_frame_equal(getattr(a, name), getattr(b, name), obj=name)


def test_training_is_the_same_to_the_bit_and_the_folder_holds_the_history(tmp_path):
    plain, saved = loop_of(), loop_of(save_to=tmp_path / "a", memory_limit="20 kB", flush_interval_s=0.01)
    for loop in (plain, saved):
        torch.manual_seed(3)
        loop.run(DATA, epochs=4)
    assert all(map(torch.equal, weights(plain), weights(saved)))
    opened = gv.History.open(tmp_path / "a", memory_limit="1GB")
    assert_same_frames(plain.history, opened)
    pd.testing.assert_frame_equal(plain.history.epochs, opened.epochs)
    assert opened.progress.status == "completed"


@pytest.mark.case("H05")
@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_disk_that_fails_in_mid_training_is_said_once_and_nothing_is_lost(tmp_path, monkeypatch, failing):
    plain = loop_of()
    torch.manual_seed(3)
    plain.run(DATA, epochs=4)
    plain_call = getattr(os, failing)
    fails = False

    def failing_call(*arguments, **options):
        if fails:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return plain_call(*arguments, **options)

    monkeypatch.setattr(os, failing, failing_call)

    def switch(state):
        nonlocal fails
        saved.history.flush()
        fails = 1 <= state.epoch < 3

    saved = loop_of(save_to=tmp_path / "a", flush_interval_s=0.01)
    saved.handle_event("iteration_completed", switch)
    torch.manual_seed(3)
    with pytest.warns(RecordingWarning, match="No space left on device") as told:
        saved.run(DATA, epochs=4)
    assert len(told) == 1
    assert all(map(torch.equal, weights(plain), weights(saved)))
    assert_same_frames(plain.history, gv.History.open(tmp_path / "a"))
    assert_same_frames(plain.history, saved.history)


FULL = """
import resource, signal, sys, warnings
import torch, gradviz as gv
from tests.loop.test_saved import DATA, loop_of, weights

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
loop = loop_of(save_to=sys.argv[1], flush_interval_s=0.01)

def full(state):
    loop.history.flush()
    if state.iteration == 9:
        resource.setrlimit(resource.RLIMIT_FSIZE, (64, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))

loop.handle_event("iteration_completed", full)
torch.manual_seed(3)
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    loop.run(DATA, epochs=4)
said = [str(each.message) for each in told if "cannot be written" in str(each.message)]
total = sum(float(w.double().sum()) for w in weights(loop))
print(len(told), len(said), loop.state.status, len(loop.history.norms), total)
"""


@pytest.mark.case("H05")
def test_a_disk_that_is_full_for_good_ends_no_training_and_what_was_flushed_is_there(tmp_path):
    plain = loop_of()
    torch.manual_seed(3)
    plain.run(DATA, epochs=4)
    ran = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path / "a")],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        check=True,
    )
    warned, said, status, length, total = ran.stdout.split()
    assert (warned, said, status, length) == ("1", "1", "completed", "32")
    assert float(total) == sum(float(w.double().sum()) for w in weights(plain))
    opened = gv.History.open(tmp_path / "a")
    assert len(opened) == 10
    pd.testing.assert_frame_equal(opened.norms, plain.history.norms.loc[:9])


def test_two_loops_do_not_save_to_one_folder_and_the_second_has_moved_nothing(tmp_path):
    model, before = net(), [p.clone() for p in net().parameters()]
    first, second = loop_of(save_to=tmp_path / "a"), loop_of(model, save_to=tmp_path / "a")
    for _ in first.stream(DATA, epochs=2):
        with pytest.raises(HistoryError, match="is being written by another process, or by another loop"):
            second.run(DATA)
    assert all(map(torch.equal, before, model.parameters()))
    with pytest.raises(HistoryError, match=r'holds a run of 4 parameters.*if_exists="overwrite"'):
        second.run(DATA)
    assert len(gv.History.open(tmp_path / "a")) == 16


def test_each_way_to_treat_an_earlier_run(tmp_path):
    folder = tmp_path / "a"
    loop_of(save_to=folder).checkpoint(folder).run(DATA, epochs=2)
    with pytest.raises((HistoryError, LoopError), match="if_exists"):
        loop_of(save_to=folder).run(DATA)
    again = loop_of(save_to=folder, if_exists="resume").checkpoint(folder)
    again.run(DATA, epochs=1)
    assert again.history.norms.index.tolist() == list(range(24))
    assert gv.History.open(folder).norms.index.tolist() == list(range(24))
    loop_of(save_to=folder, if_exists="overwrite").run(DATA)
    assert gv.History.open(folder).norms.index.tolist() == list(range(8))


def test_a_run_elsewhere_is_followed_while_it_trains():
    where = f"memory://{uuid.uuid4()}/a"
    plain, loop = loop_of(), loop_of(save_to=where, flush_interval_s=0.01)
    plain.run(DATA, epochs=3)
    lengths = []
    for state in loop.stream(DATA, epochs=3):
        loop.history.flush()
        if state.epoch == 1:
            opened = gv.History.open(where)
            assert opened.progress.status == "training"
        lengths.append(len(opened.refresh()))
        assert len(opened.norms) == lengths[-1]
    assert lengths == [8, 16, 24]
    opened.follow(every_s=0.01)
    opened._follower.join(30)
    assert not opened._follower.is_alive()
    assert opened.progress.status == "completed"
    assert_same_frames(plain.history, opened)
    with pytest.raises(HistoryError, match="holds a run of 4 parameters"):
        loop_of(save_to=where).run(DATA)


@pytest.fixture
def world_of_one():
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def compiled(model: nn.Module) -> nn.Module:
    return torch.compile(model, backend="eager")


WRAPS = {
    "plain": lambda model: model,
    "compiled": compiled,
    "distributed": DistributedDataParallel,
    "compiled, distributed": lambda model: DistributedDataParallel(compiled(model)),
    "distributed, compiled": lambda model: compiled(DistributedDataParallel(model)),
}


@pytest.mark.case("H08")
def test_columns_are_called_the_same_however_the_model_is_wrapped_and_a_run_goes_on_across_wrappers(
    tmp_path, world_of_one
):
    names = [name for name, _ in net().named_parameters()]
    folder = tmp_path / "run"
    for turn, (wrap, wrapped) in enumerate(WRAPS.items()):
        alone = loop_of(wrapped(net()), save_to=tmp_path / wrap)
        alone.run(DATA)
        for history in (alone.history, gv.History.open(tmp_path / wrap)):
            assert list(history.norms.columns) == list(history.parameters.index) == names, wrap
            assert set(history.gradients["parameter"]) == set(history.dtypes["parameter"]) == set(names)
        across = loop_of(wrapped(net()), save_to=folder, if_exists="resume").checkpoint(folder)
        across.run(DATA)
        for history in (across.history, gv.History.open(folder)):
            assert list(history.norms.columns) == names, wrap
            assert history.norms.index.tolist() == list(range(8 * (turn + 1))), wrap
            assert set(history.wide("state").stack()) == {"ok"}


@pytest.mark.case("H10")
def test_what_a_metric_returns_is_a_number_from_the_first_record_on(tmp_path):
    returned = {
        "tensor": torch.tensor(0.5),
        "one entry": torch.tensor([0.25]),
        "bfloat16": torch.tensor(1.5, dtype=torch.bfloat16),
        "numpy": np.float32(0.5),
        "array": np.array(3.0),
        "flag": True,
        "numpy flag": np.bool_(False),
        "whole": 7,
    }
    loop = loop_of(save_to=tmp_path / "a")
    for name, value in returned.items():
        loop.metric(lambda loss, value=value: value, name, fields=["loss"])
    loop.checkpoint(tmp_path / "a")
    loop.run(DATA)
    opened = gv.History.open(tmp_path / "a")
    for history in (loop.history, opened):
        for frame in (history.metrics, history.epochs):
            for name, value in returned.items():
                assert str(frame[name].dtype) == "float64"
                assert set(frame[name]) == {float(value)}
    torch.load(tmp_path / "a" / "checkpoints" / "last.pt")


@pytest.mark.case("H10")
@pytest.mark.parametrize("value", [torch.float32, "much", None, torch.ones(2), {"a": 1}], ids=repr)
def test_what_is_no_number_is_refused_at_the_first_record_by_the_metric_s_name(tmp_path, value):
    loop = loop_of(save_to=tmp_path / "a").metric(lambda loss: value, "odd", fields=["loss"])
    with pytest.raises(MetricError, match=r"The metric 'odd' returned .*one number is wanted"):
        loop.run(DATA)
    assert len(loop.history) == 1, "The step was taken, and its row says so."
    assert np.isnan(loop.history.metrics["odd"].tolist()).all()
    assert len(gv.History.open(tmp_path / "a")) == 1


@pytest.mark.case("H12")
def test_a_checkpoint_is_read_by_torch_s_safe_default_with_the_history_beside_it(tmp_path):
    def made(**options) -> gv.Loop:
        loop = loop_of(**options).metric(lambda loss: np.float32(0.5), "numpy", fields=["loss"])
        return loop.early_stop("numpy", patience=50).handle_event("epoch_completed", keep)

    def keep(state):
        state.step_state["norms"] = loop.history.norms.to_numpy()

    loop = made(save_to=tmp_path / "a").checkpoint(tmp_path / "a", best="numpy")
    loop.run(DATA, epochs=3)
    for file in (tmp_path / "a" / "checkpoints").iterdir():
        saved = torch.load(file)
        fresh = net()
        fresh.load_state_dict(saved["model"])
        assert not _kinds(saved) - {dict, list, tuple, str, int, float, bool, type(None), torch.Tensor}
    beside = {entry.name for entry in (tmp_path / "a").iterdir()}
    assert {"checkpoints", "run.json", "gradients", "metrics"} <= beside
    assert len(gv.History.open(tmp_path / "a")) == 24
    assert made(save_to=tmp_path / "b").resume(tmp_path / "a").state.epoch == 3


def _kinds(value) -> set[type]:
    kinds = {type(value)}
    inside = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list | tuple) else []
    for each in inside:
        kinds |= _kinds(each)
    return kinds


class Branches(nn.Module):
    """One branch is used, one is multiplied by zero, one is not used."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.vanished, self.unused = nn.Linear(3, 2), nn.Linear(3, 2), nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.used(x) + 0 * self.vanished(x)


@pytest.mark.case("C02")
def test_unused_is_told_from_vanished_in_a_saved_run_too(tmp_path):
    loop = loop_of(Branches(), save_to=tmp_path / "a")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a parameter is unused
        loop.run(DATA)
    for history in (loop.history, gv.History.open(tmp_path / "a")):
        states, norms = history.wide("state"), history.norms
        assert set(states["unused.weight"]) == {"unused"}
        assert set(states["vanished.weight"]) == {"ok"}
        assert set(norms["vanished.weight"]) == {0}
        assert norms["unused.weight"].isna().all()


@pytest.mark.case("C12")
def test_a_bfloat16_model_becomes_frames_files_and_bytes(tmp_path):
    data = [(x.bfloat16(), y.bfloat16()) for x, y in DATA]
    loop = loop_of(net(dtype=torch.bfloat16), save_to=tmp_path / "a")
    loop.run(data)
    opened = gv.History.open(tmp_path / "a")
    for history in (loop.history, opened):
        assert set(history.parameters["dtype"]) == {"bfloat16"}
        dtypes = history.dtypes
        assert "bfloat16" in set(dtypes["dtype"][dtypes["of"] == "parameter"])
        assert history.norms.dtypes.unique().tolist() == [np.dtype("float64")]
        assert (history.norms > 0).all(axis=None)
        columns = unpack(pack(history.overview()[0]))
        np.testing.assert_array_equal(columns.maximum[:, :-1], history.norms.to_numpy(np.float32))
    assert_same_frames(loop.history, opened)
    plain = pd.read_parquet(tmp_path / "a" / "gradients")
    assert plain["norm"].tolist() == loop.history.gradients["norm"].tolist()
    assert set(pd.read_parquet(tmp_path / "a" / "dtypes")["dtype"]) >= {"bfloat16"}


class Spectral(nn.Module):
    """A weight of each kind, as in a Fourier operator."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.spectrum = nn.Parameter(torch.randn(2, dtype=torch.complex64))
        self.gain = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.fft.irfft(torch.fft.rfft(self.gain(x)) * self.spectrum, n=2)


@pytest.mark.case("C15")
def test_rows_of_complex_and_real_parameters_are_saved_as_real_numbers(tmp_path):
    loop = loop_of(Spectral(), save_to=tmp_path / "a", keep_gradients=True).checkpoint(tmp_path / "a")
    expected = []
    loop.handle_event(
        "iteration_completed", lambda state: expected.append(state.step_state.gradients["spectrum"].norm().item())
    )
    loop.run(DATA)
    opened = gv.History.open(tmp_path / "a")
    assert_same_frames(loop.history, opened)
    assert opened.parameters["dtype"].tolist() == ["complex64", "float32", "float32"]
    np.testing.assert_allclose(opened.norms["spectrum"], expected, rtol=1e-6)
    assert all(dtype.kind in "fi" for dtype in opened.gradients.select_dtypes("number").dtypes.map(_kind))
    assert pd.read_parquet(tmp_path / "a" / "gradients")["norm"].dtype == np.float64
    state = torch.load(tmp_path / "a" / "checkpoints" / "last.pt")["model"]
    assert [state[name].dtype for name in ("spectrum", "gain.weight")] == [torch.complex64, torch.float32]


def _kind(dtype) -> np.dtype:
    return getattr(dtype, "numpy_dtype", dtype)


@pytest.mark.parametrize(
    "options", [{"memory_limit": "much"}, {"if_exists": "append"}, {"flush_interval_s": 0}, {"save_to": 5}]
)
def test_a_bad_option_of_the_history_is_an_error_before_a_policy_converts_the_model(options):
    model = net()
    before = {name: p.dtype for name, p in model.named_parameters()}
    with pytest.raises(ValueError, match=next(iter(options))):
        gv.trainer(model, "cross_entropy", "adam", policy=gv.Policy(params="bfloat16"), **options)
    assert {name: p.dtype for name, p in model.named_parameters()} == before
