"""A row for each finished iteration, with the state of every parameter."""

from __future__ import annotations

import copy
import math
import warnings
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import gradviz as gv
from gradviz.errors import RecordingWarning
from gradviz.grad import statistics
from gradviz.history import overview
from gradviz.history.history import History
from gradviz.loop.loop import Loop
from gradviz.loop.trainer import trainer
from gradviz.recorder.of_step import StepRecorder as Recorder
from gradviz.recorder.settings import Record, Settings
from gradviz.recorder.subject import describe
from gradviz.step.policy import Policy
from gradviz.step.train_step import train_step

BATCH = torch.ones(2, 3), torch.zeros(2, 1)


def test_an_iteration_that_is_broken_off_leaves_no_row():
    step, history = train_step(nn.Linear(3, 1), "huber", "sgd"), History()
    recorder = Recorder(step, history)
    state = step(BATCH, step.init(BATCH))
    assert len(history) == 0
    recorder.commit(0, 0, {"loss": 1.0})
    assert len(history) == 1
    assert history.wide("state").loc[0].tolist() == ["ok", "ok"]
    step(BATCH, state)
    assert len(history) == 1


def test_a_row_without_gradients_says_so():
    recorder = Recorder(train_step(nn.Linear(3, 1), "huber", "sgd"), History())
    recorder.commit(0, 0, {"loss": 1.0})
    assert recorder.history.metrics["loss"].tolist() == [1.0]
    step = recorder._step
    step(BATCH, step.init(BATCH))
    recorder.commit(1, 0, {})
    assert recorder.history.wide("state")["weight"].tolist() == ["not_recorded", "ok"]


def test_a_history_that_cannot_be_written_warns_once(monkeypatch):
    def full(*_, **__):
        raise OSError("disk full")

    step, history = train_step(nn.Linear(3, 1), "huber", "sgd"), History()
    recorder = Recorder(step, history)
    monkeypatch.setattr(history, "append", full)
    state = step(BATCH, step.init(BATCH))
    with pytest.warns(RecordingWarning, match="disk full"):
        recorder.commit(0, 0, {})
    step(BATCH, state)
    recorder.commit(1, 0, {})


def test_a_parameter_that_joins_the_optimizer_is_ok_from_then_on():
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model[0].parameters(), lr=0.1)
    step, history = train_step(model, "huber", optimizer), History()
    recorder = Recorder(step, history)
    state = step(BATCH, step.init(BATCH))
    recorder.commit(0, 0, {})
    optimizer.add_param_group({"params": model[1].parameters()})
    step(BATCH, state)
    recorder.commit(1, 0, {})
    assert history.wide("state")["1.weight"].tolist() == ["not_optimized", "ok"]
    assert history.wide("state")["0.weight"].tolist() == ["ok", "ok"]


def test_parameters_that_change_places_in_the_optimizer_are_followed():
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model[0].parameters(), lr=0.1)
    step, history = train_step(model, "huber", optimizer), History()
    recorder = Recorder(step, history)
    state = step(BATCH, step.init(BATCH))
    recorder.commit(0, 0, {})
    optimizer.param_groups[0]["params"] = list(model[1].parameters())
    step(BATCH, state)
    recorder.commit(1, 0, {})
    assert history.wide("state")["0.weight"].tolist() == ["ok", "not_optimized"]
    assert history.wide("state")["1.weight"].tolist() == ["not_optimized", "ok"]


@pytest.mark.case("L15")
def test_frozen_left_out_and_at_rest_are_told_apart_and_a_rate_that_changes_is_followed():
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 1))
    model[1].requires_grad_(False)
    groups = [{"params": model[0].parameters()}, {"params": model[2].parameters(), "lr": 0.0}]
    step, history = train_step(model, "huber", torch.optim.SGD(groups, lr=0.1)), History()
    recorder = Recorder(step, history)
    state = step.init(BATCH)
    for iteration, rate in enumerate([0.0, 0.1, 0.1, 0.0]):
        step.optimizer.param_groups[1]["lr"] = rate
        state = step(BATCH, state)
        recorder.commit(iteration, 0, {})
    states = history.wide("state")
    assert states["0.weight"].tolist() == ["ok"] * 4
    assert states["1.weight"].tolist() == ["frozen"] * 4
    assert states["2.weight"].tolist() == ["not_optimized", "ok", "ok", "not_optimized"]
    assert states["3.weight"].tolist() == ["not_optimized"] * 4
    assert history.norms[["0.weight", "2.weight", "3.weight"]].notna().all(axis=None)


def test_a_step_s_scale_its_skips_and_its_freezes_are_written_with_the_iteration():
    model = nn.Linear(3, 1)
    step, history = train_step(model, "mean_squared_error", "sgd", loss_scale="dynamic"), History()
    recorder = Recorder(step, history)
    state = step.init(BATCH)
    for iteration, value in enumerate([1.0, math.inf, 1.0]):
        model.bias.requires_grad_(iteration != 1)
        state = step((torch.full((2, 3), value), BATCH[1]), state)
        recorder.commit(iteration, 0, {})
    assert history.metrics["loss_scale"].tolist() == [2**15, 2**15, 2**14]
    assert history.metrics["skipped"].tolist() == [False, True, False]
    assert history.wide("state")["weight"].tolist() == ["ok"] * 3
    assert np.isfinite(history.norms["weight"]).tolist() == [True, False, True]
    assert history.wide("state")["bias"].tolist() == ["ok", "frozen", "ok"]
    assert history.events.to_numpy().tolist() == [[1, "frozen", "bias", "user"], [2, "unfrozen", "bias", "user"]]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_parameters_are_described_in_their_own_dtype_and_optimized_though_the_optimizer_has_copies(dtype):
    step, history = train_step(nn.Linear(3, 1), "huber", "sgd", policy=Policy(params=dtype)), History()
    recorder = Recorder(step, history)
    batch = tuple(tensor.to(dtype) for tensor in BATCH)
    step(batch, step.init(batch))
    recorder.commit(0, 0, {})
    assert set(history.parameters["dtype"]) == {str(dtype).removeprefix("torch.")}
    assert history.wide("state").loc[0].tolist() == ["ok", "ok"]


def test_how_a_parameter_is_described():
    assert describe("w", torch.zeros(2, 3, dtype=torch.bfloat16)) == {"name": "w", "shape": (2, 3), "dtype": "bfloat16"}


def half_frozen() -> nn.Module:
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))
    model[0].bias.requires_grad_(False)
    return model


def run(model: nn.Module, record: Record, value: float = 1.0, iterations: int = 2) -> History:
    batches = [(torch.full((2, 3), value), torch.zeros(2, 1))] * iterations
    loop = trainer(model, "mean_squared_error", "sgd", record=record).metric("mean_absolute_error")
    loop.run(batches, display=None)
    return loop.history


def test_norms_alone_come_with_the_counts_that_follow_from_them():
    torch.manual_seed(0)
    model = half_frozen()
    everything, history = run(copy.deepcopy(model), "all"), run(model, "norms")
    pd.testing.assert_frame_equal(history.norms, everything.norms, rtol=1e-5)
    pd.testing.assert_frame_equal(history.wide("state"), everything.wide("state"))
    assert history.wide("state")["0.bias"].tolist() == ["frozen"] * 2
    for count in ("nan", "posinf", "neginf"):
        pd.testing.assert_frame_equal(history.wide(count), everything.wide(count))
    frame = history.gradients
    assert frame[["mean", "std", "max_abs", "zero_fraction"]].isna().all(axis=None)
    assert frame["nonfinite"].tolist() == everything.gradients["nonfinite"].tolist()
    assert history.columns().flags.tolist() == everything.columns().flags.tolist()


def test_norms_alone_tell_nan_and_infinity_apart():
    history = run(nn.Linear(3, 1), "norms", math.inf, iterations=1)
    frame = history.gradients.set_index("parameter")
    assert frame.loc["weight", "nonfinite"] == 3
    assert frame.loc["weight", "state"] == "ok"
    assert not np.isfinite(frame.loc["weight", "norm"])


def test_without_recording_the_step_is_not_watched_and_the_rest_of_the_row_is_there():
    model = half_frozen()
    step, history = train_step(model, "mean_squared_error", "sgd", loss_scale="dynamic"), History()
    recorder = Recorder(step, history, Settings(None))
    assert step.observer is None
    state = step.init(BATCH)
    for iteration, value in enumerate([1.0, math.inf, 1.0]):
        model[1].bias.requires_grad_(iteration != 1)
        state = step((torch.full((2, 3), value), BATCH[1]), state)
        recorder.commit(iteration, 0, {"loss": float(state.loss)})
    assert history.metrics["skipped"].tolist() == [False, True, False]
    assert history.metrics["loss_scale"].tolist() == [2**15, 2**15, 2**14]
    assert np.isfinite(history.metrics["loss"]).tolist() == [True, False, True]
    assert history.events.to_numpy().tolist() == [[1, "frozen", "1.bias", "user"], [2, "unfrozen", "1.bias", "user"]]


def test_what_was_not_recorded_says_so_everywhere_and_the_parameters_are_declared():
    history = run(half_frozen(), None)
    names = ["0.weight", "0.bias", "1.weight", "1.bias"]
    assert history.parameters.index.tolist() == names
    assert history.metrics["mean_absolute_error"].notna().all()
    states = history.wide("state")
    assert states.columns.tolist() == names
    assert set(states.to_numpy().ravel()) == {"not_recorded"}  # the frozen one too: nobody looked
    assert history.norms.columns.tolist() == names
    assert history.norms.isna().all(axis=None)
    assert history.wide("nan").isna().all(axis=None)
    frame = history.gradients
    assert len(frame) == 2 * len(names)
    assert set(frame["state"]) == {"not_recorded"}
    assert frame[["norm", "mean", "std", "max_abs", "zero_fraction", "nonfinite"]].isna().all(axis=None)


def test_the_picture_of_a_run_that_was_not_recorded_has_a_row_for_each_parameter_and_the_loss():
    history = run(half_frozen(), None)
    for columns in (history.columns(), history.overview()[0]):
        assert columns.flags.tolist() == [[overview.NOT_RECORDED] * 4 + [0]] * 2
        assert np.isnan(columns.maximum[:, :-1]).all()
        np.testing.assert_array_equal(columns.maximum[:, -1], np.float32(history.metrics["loss"]))


@pytest.mark.parametrize("record", ["norm", True, 1, "None"])
def test_what_cannot_be_recorded_is_refused_before_anything_moved(record):
    model = nn.Linear(3, 1)
    with pytest.raises(ValueError, match=r'record is "all", "norms" or None; got'):
        trainer(model, "huber", "sgd", policy=Policy(params=torch.bfloat16), record=record)
    assert model.weight.dtype == torch.float32


def two_layers() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))


def trained(model: nn.Module, iterations: int, optimizer: str = "adam", **options: object) -> Loop:
    return loop_after(trainer(model, "mean_squared_error", optimizer, **options), iterations)


def loop_after(loop: Loop, iterations: int) -> Loop:
    loop.run([BATCH] * iterations, display=None)
    return loop


@pytest.mark.parametrize(("every", "iterations"), [(1, [0, 1, 2, 3, 4]), (2, [0, 2, 4]), (100, [0]), (None, [])])
def test_histograms_are_taken_every_so_many_iterations(every, iterations):
    history = trained(two_layers(), 5, histograms_every=every).history
    assert sorted(set(history.histograms["iteration"])) == iterations


def test_they_are_taken_at_the_hundredth_iteration_if_nothing_else_is_said():
    assert set(trained(two_layers(), 102).history.histograms["iteration"]) == {0, 100}


def test_a_histogram_has_every_entry_of_every_gradient_that_was_reached_in_the_bin_that_holds_it():
    model = nn.ModuleDict({"used": nn.Linear(3, 1), "unused": nn.Linear(3, 1)})
    model["used"].bias.requires_grad_(False)
    model.forward = lambda inputs: model["used"](inputs)
    loop, seen = trainer(model, "mean_squared_error", "sgd", keep_gradients=True, histograms_every=1), []
    loop.handle_event("iteration_completed", lambda state: seen.append(state.step_state["gradients"]["used.weight"]))
    frame = loop_after(loop, 2).history.histograms
    assert set(frame["parameter"]) == {"used.weight"}
    assert set(frame["stage"]) == {"backward"}
    for iteration, gradient in enumerate(seen):
        rows = frame[frame["iteration"] == iteration]
        assert rows["count"].sum() == gradient.numel() == 3
        for low, high, count in rows[["low", "high", "count"]].to_numpy().tolist():
            assert ((low <= gradient) & (gradient <= high)).sum() == count


def test_what_is_zero_or_no_number_has_bins_of_its_own():
    step, history = train_step(nn.Linear(3, 1), "mean_squared_error", "sgd"), History()
    recorder = Recorder(step, history)
    batch = torch.tensor([[0.0, math.inf, math.nan]]), torch.zeros(1, 1)
    step(batch, step.init(batch))
    recorder.commit(0, 0, {})
    rows = history.histograms[history.histograms["parameter"] == "weight"]
    assert rows["count"].tolist() == [3]
    assert rows[["low", "high"]].isna().all(axis=None)  # a prediction of NaN leaves nothing else


def test_an_iteration_that_is_broken_off_leaves_no_histogram_and_no_dtypes():
    step, history = train_step(two_layers(), "mean_squared_error", "adam"), History()
    recorder = Recorder(step, history)
    state = step(BATCH, step.init(BATCH))
    assert (len(history.histograms), len(history.dtypes)) == (0, 0)
    state = step(BATCH, state)  # the next one that is done is the first
    recorder.commit(0, 0, {})
    assert set(history.histograms["iteration"]) == set(history.dtypes["iteration"]) == {0}
    n = len(history.histograms)
    step(BATCH, state)
    recorder.commit(1, 0, {})
    assert len(history.histograms) == n


@pytest.mark.parametrize("record", ["norms", None])
def test_there_are_no_histograms_where_only_norms_are_recorded_or_nothing(record):
    assert trained(two_layers(), 2, record=record, histograms_every=1).history.histograms.empty


@pytest.mark.parametrize("every", [0, -1, 1.5, True, "100"])
def test_how_often_histograms_are_taken_is_a_whole_number(every):
    with pytest.raises(ValueError, match="histograms_every is a whole number from 1 on; got"):
        trainer(two_layers(), "huber", "sgd", histograms_every=every)


@pytest.mark.parametrize("options", [{"histograms_every": 1}, {"record": None}])
def test_training_is_the_same_with_histograms_and_without(options):
    plain, recorded = two_layers(), two_layers()
    trained(plain, 4, histograms_every=None)
    trained(recorded, 4, **options)
    assert all(map(torch.equal, plain.parameters(), recorded.parameters()))


def dtypes_of(history: History, parameter: str) -> list[list[object]]:
    frame = history.dtypes
    return frame.loc[frame["parameter"] == parameter, ["iteration", "of", "dtype"]].to_numpy().tolist()


def test_dtypes_are_told_once_with_those_of_the_optimizer_s_moments():
    loop = trained(two_layers(), 3)
    told = [[0, of, "float32"] for of in ("parameter", "gradient", "exp_avg", "exp_avg_sq")]
    for name in ("0.weight", "0.bias", "2.weight", "2.bias"):
        assert dtypes_of(loop.history, name) == told
    n = len(loop.history.dtypes)
    assert len(loop_after(loop, 2).history.dtypes) == n
    assert trained(two_layers(), 2, record=None).history.dtypes.empty


def test_dtypes_of_16_bit_parameters_and_of_the_moments_of_their_copies_differ():
    step, history = train_step(nn.Linear(3, 1), "huber", "adam", policy=Policy(params=torch.bfloat16)), History()
    recorder, batch = Recorder(step, history, Settings("norms")), tuple(tensor.bfloat16() for tensor in BATCH)
    step(batch, step.init(batch))
    recorder.commit(0, 0, {})
    assert {of: dtype for _, of, dtype in dtypes_of(history, "weight")} == {
        "parameter": "bfloat16",
        "gradient": "float32",  # as the optimizer gets it
        "master": "float32",
        "exp_avg": "float32",
        "exp_avg_sq": "float32",
    }


def test_a_dtype_that_changes_has_a_row_from_then_on_and_the_others_none():
    model = two_layers()
    step, history = train_step(model, "mean_squared_error", partial(torch.optim.SGD, lr=0.1)), History()
    recorder = Recorder(step, history)
    step(BATCH, step.init(BATCH))
    recorder.commit(0, 0, {})
    model.double()
    recorder.begin(1)
    batch = tuple(tensor.double() for tensor in BATCH)
    step(batch, step.init(batch))
    recorder.commit(1, 0, {})
    assert dtypes_of(history, "0.weight") == [
        [0, "parameter", "float32"],
        [0, "gradient", "float32"],
        [1, "parameter", "float64"],
        [1, "gradient", "float64"],
    ]


def test_what_is_unfrozen_on_the_way_tells_its_gradient_s_and_its_moments_dtypes_then():
    model = two_layers()
    model[2].requires_grad_(False)
    loop = trainer(model, "mean_squared_error", "adam")
    loop_after(loop, 2)
    assert dtypes_of(loop.history, "2.bias") == [[0, "parameter", "float32"]]
    model[2].requires_grad_(True)
    loop_after(loop, 2)
    later = [[2, of, "float32"] for of in ("gradient", "exp_avg", "exp_avg_sq")]
    assert dtypes_of(loop.history, "2.bias") == [[0, "parameter", "float32"], *later]


def test_after_a_resume_histograms_are_taken_again_and_dtypes_told_only_where_they_no_longer_hold():
    step, history = train_step(two_layers(), "mean_squared_error", "adam"), History()
    recorder, state = Recorder(step, history, Settings(histograms_every=2)), step.init(BATCH)
    for iteration in (0, 1, 2):
        state = step(BATCH, state)
        recorder.commit(iteration, 0, {})
    everything = history.dtypes
    history.begin_attempt(1, 0)
    recorder.begin(1)
    for iteration in (1, 2):
        state = step(BATCH, state)
        recorder.commit(iteration, 0, {})
    pd.testing.assert_frame_equal(history.dtypes, everything)
    taken = history.select(attempts="all").histograms[["iteration", "attempt"]].drop_duplicates()
    assert taken.to_numpy().tolist() == [[0, 0], [2, 0], [2, 1]]
    history.begin_attempt(0, 0)
    recorder.begin(0)
    step(BATCH, state)
    recorder.commit(0, 0, {})
    assert len(history.dtypes) == len(everything)


class Unreadable(dict):
    def items(self):
        raise RuntimeError("kept elsewhere")


def test_an_optimizer_state_that_cannot_be_read_leaves_the_row_and_the_other_dtypes(monkeypatch):
    step, history = train_step(two_layers(), "mean_squared_error", "adam"), History()
    recorder = Recorder(step, history)
    step(BATCH, step.init(BATCH))
    monkeypatch.setattr(step, "optimizer_state", Unreadable())
    with pytest.warns(RecordingWarning, match="optimizer's state could not be recorded .*kept elsewhere"):
        recorder.commit(0, 0, {})
    assert history.wide("state").loc[0].tolist() == ["ok"] * 4
    assert set(history.dtypes["of"]) == {"parameter", "gradient"}


def test_an_optimizer_that_keeps_something_else_tells_no_moments():
    model = two_layers()
    step, history = train_step(model, "mean_squared_error", "lbfgs"), History()
    recorder = Recorder(step, history)
    step(BATCH, step.init(BATCH))
    recorder.commit(0, 0, {})
    assert set(history.dtypes["of"]) == {"parameter", "gradient"}


def test_histograms_that_cannot_be_taken_or_written_leave_the_row(monkeypatch):
    def full(*_, **__):
        raise OSError("disk full")

    for broken in ("gradviz.recorder.entries.Entries.of", "gradviz.history.history.History.add_rows"):
        step, history = train_step(two_layers(), "mean_squared_error", "adam"), History()
        recorder = Recorder(step, history)
        state = step.init(BATCH)
        with monkeypatch.context() as patch:
            patch.setattr(broken, full)
            with warnings.catch_warnings(record=True, category=RecordingWarning) as said:
                warnings.simplefilter("always")
                step(BATCH, state)
                recorder.commit(0, 0, {})
        assert ["disk full" in str(warning.message) for warning in said] == [True]
        assert history.wide("state").loc[0].tolist() == ["ok"] * 4
        assert history.norms.notna().all(axis=None)
        assert history.histograms.empty


class Transfers(TorchDispatchMode):
    """Counts what waits for a device: a value that is asked for, a copy to another device."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        moved = isinstance(result, torch.Tensor) and any(
            isinstance(arg, torch.Tensor) and arg.device != result.device for arg in args
        )
        self.count += func is torch.ops.aten._local_scalar_dense.default or moved
        return result


class Asked(TorchFunctionMode):
    """Counts methods that bring a value to the host, wherever the tensor is."""

    HOST = ("cpu", "item", "tolist", "__float__", "__bool__", "__int__", "__index__", "__array__")
    count = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name = getattr(func, "__name__", "")
        self.count += name in self.HOST or (name == "to" and any(isinstance(arg, str | torch.device) for arg in args))
        return func(*args, **(kwargs or {}))


@pytest.mark.case("L25")
@pytest.mark.parametrize("record", ["all", "norms"])
def test_a_record_of_a_thousand_parameters_asks_for_no_value_of_any_tensor(record):
    layers = [nn.Linear(2, 2) for _ in range(499)]
    step, history = train_step(nn.Sequential(nn.Linear(3, 2), *layers), "huber", "sgd"), History()
    recorder, given = Recorder(step, history, Settings(record)), []
    see = recorder.see
    recorder.see = lambda *seen: given.append(seen)
    batch = torch.ones(2, 3), torch.zeros(2, 2)
    state = step.init(batch)
    for iteration in range(3):
        state = step(batch, state)
        with Transfers() as transfers, Asked() as asked:
            see(*given.pop())
            recorder.commit(iteration, 0, {"loss": 1.0})
        assert (transfers.count, asked.count) == (0, 0)
    assert len(history.parameters) == 1000
    assert (history.wide("state") == "ok").all(axis=None)


@pytest.mark.case("L25")
def test_on_another_device_the_whole_table_is_asked_for_at_once():
    gradients = [torch.randn(2, 2) for _ in range(1000)]
    with Transfers() as transfers, Asked() as asked:
        table = statistics._on_device(gradients)
    assert (transfers.count, asked.count) == (0, 1)
    assert table.shape == (1000, len(statistics.STATISTICS))


# Stages -------------------------------------------------------------------------------------------------------------


QUARTER = partial(torch.optim.SGD, lr=0.25)


def staged(model, *, n=4, optimizer=QUARTER, batch=BATCH, **options):
    loop = gv.trainer(model, "mean_squared_error", optimizer, **options)
    loop.run([batch] * n, display=None)
    return loop.history


@pytest.mark.parametrize(
    ("clip", "clipped"), [(0.02, lambda p: None), (("value", 0.01), lambda p: p.grad.clamp_(-0.01, 0.01))]
)
@pytest.mark.parametrize("record", ["all", "norms"])
def test_both_sides_of_a_clip_are_rows(clip, clipped, record):
    model, theirs = two_layers(), two_layers()
    history = staged(model, clip=clip, record=record)
    optimizer, before, after = torch.optim.SGD(theirs.parameters(), lr=0.25), [], []
    for _ in range(4):
        optimizer.zero_grad()
        nn.functional.mse_loss(theirs(BATCH[0]), BATCH[1]).backward()
        before.append([float(p.grad.norm()) for p in theirs.parameters()])
        if isinstance(clip, float):
            nn.utils.clip_grad_norm_(theirs.parameters(), clip)
        else:
            for p in theirs.parameters():
                clipped(p)
        after.append([float(p.grad.norm()) for p in theirs.parameters()])
        optimizer.step()
    np.testing.assert_allclose(history.norms.to_numpy(), before, rtol=1e-5)
    np.testing.assert_allclose(history.wide("norm", stage="clipped").to_numpy(), after, rtol=1e-5)


@pytest.mark.parametrize("clip", [1e6, ("value", 1e6), None])
def test_what_the_optimizer_gets_is_no_stage_where_it_is_what_backward_gave(clip):
    assert set(staged(two_layers(), clip=clip).gradients["stage"]) == {"backward"}


def test_a_stage_that_is_not_asked_for_is_not_recorded():
    assert set(staged(two_layers(), clip=1e-3, stages=["backward"]).gradients["stage"]) == {"backward"}


def one_weight(value, dtype=torch.float32):
    model = nn.Linear(1, 1, bias=False, dtype=dtype)
    nn.init.constant_(model.weight, value)
    return model


HALVES = torch.ones(1, 1), torch.zeros(1, 1)


@pytest.mark.parametrize("policy", [None, Policy(params=torch.bfloat16)])
def test_an_update_and_the_weight_before_it_are_rows(policy):
    history = staged(one_weight(8.0), batch=HALVES, n=3, stages=["backward", "update"], policy=policy)
    assert history.wide("mean", stage="update")["weight"].tolist() == [-4.0, -2.0, -1.0]  # halved in every step
    assert history.wide("norm", stage="weight")["weight"].tolist() == [8.0, 4.0, 2.0]
    assert history.update_ratios["weight"].tolist() == [0.5] * 3


def test_an_update_of_an_lbfgs_step_is_that_of_the_whole_step():
    model = one_weight(8.0)
    history = staged(model, batch=HALVES, n=1, stages=["backward", "update"], optimizer="lbfgs")
    assert history.wide("mean", stage="update")["weight"].tolist() == [model.weight.item() - 8.0]


def test_a_skipped_step_has_no_update():
    data = [(torch.full((1, 1), value), HALVES[1]) for value in (1.0, math.inf, 1.0)]
    loop = gv.trainer(one_weight(8.0), "mean_squared_error", "sgd", loss_scale="dynamic", stages=["backward", "update"])
    loop.run(data, display=None)
    assert loop.history.metrics["skipped"].tolist() == [False, True, False]
    assert loop.history.gradients.query("stage == 'update' and state == 'ok'")["iteration"].tolist() == [0, 2]


def test_every_so_many_iterations_are_recorded_and_the_others_have_their_loss():
    history = staged(two_layers(), n=7, every=3)
    assert history.wide("state")["0.weight"].tolist() == ["ok", "not_recorded", "not_recorded"] * 2 + ["ok"]
    assert history.metrics["loss"].notna().all()
    assert len(history) == 7


def test_what_recording_costs_is_told():
    loop = gv.trainer(two_layers(), "mean_squared_error", "sgd")
    assert math.isnan(loop.overhead)
    loop.run([BATCH] * 5, display=None)
    assert 0 < loop.overhead < math.inf


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"stages": ["backward", "clip"]}, "did you mean 'clipped'"),
        ({"stages": []}, "is recorded in any case"),
        ({"every": 0}, "every is a whole number from 1"),
        ({"budget": "5%"}, "budget is a share"),
    ],
)
def test_options_that_cannot_be_are_refused(options, said):
    with pytest.raises(ValueError, match=said):
        gv.trainer(two_layers(), "mean_squared_error", "sgd", **options)
