"""A run trains exactly as plain torch does, records every iteration, and stops in good order."""

from __future__ import annotations

import contextlib
import copy
import math
import os
import signal
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import gradviz as gv
from gradviz.errors import (
    DataError,
    EventError,
    HandlerWarning,
    LossError,
    MetricError,
    MetricWarning,
    ModelError,
    OptimizerError,
    RecordingWarning,
    StateTypeError,
    UnknownKeywordError,
)
from gradviz.loop.metrics.accumulators import RunningAverage


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3))


def loader(shuffle: bool = True) -> DataLoader:
    torch.manual_seed(1)
    inputs, targets = torch.randn(50, 4), torch.randint(0, 3, (50,))
    return DataLoader(TensorDataset(inputs, targets), batch_size=16, shuffle=shuffle)  # ragged: 16, 16, 16, 2


def batches(*losses: float) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Batches of one example whose loss, under `own_loss`, is the given number."""
    return [(torch.ones(1, 1), torch.tensor([[float(loss)]])) for loss in losses]


def own_loss(prediction: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return prediction.sum() * 0 + targets.mean()


def small_loop(**options) -> gv.Loop:
    return gv.trainer(nn.Linear(1, 1), own_loss, "sgd", **options)


# Training ---------------------------------------------------------------------------------------------------------


def plain_torch(model: nn.Module, optimizer: torch.optim.Optimizer, data: DataLoader, epochs: int) -> list[list[float]]:
    norms = []
    for _ in range(epochs):
        for inputs, targets in data:
            optimizer.zero_grad()
            F.cross_entropy(model(inputs), targets).backward()
            norms.append([p.grad.norm().item() for p in model.parameters()])
            optimizer.step()
    return norms


@pytest.mark.parametrize("momentum", [0, 0.9])
def test_two_epochs_of_sgd_leave_the_parameters_of_plain_torch_to_the_bit_and_its_norms(momentum):
    theirs, ours = net(), net()
    data = loader()
    torch.manual_seed(2)
    norms = plain_torch(theirs, torch.optim.SGD(theirs.parameters(), lr=0.1, momentum=momentum), data, epochs=2)
    torch.manual_seed(2)
    loop = gv.trainer(ours, "cross_entropy", torch.optim.SGD(ours.parameters(), lr=0.1, momentum=momentum))
    loop.metric("accuracy").run(data, epochs=2)
    for name, value in theirs.state_dict().items():
        assert torch.equal(value, ours.state_dict()[name]), name
    np.testing.assert_allclose(loop.history.norms, norms, rtol=1e-5)
    assert list(loop.history.norms.columns) == [name for name, _ in ours.named_parameters()]


def test_a_second_run_goes_on_where_the_first_stopped():
    theirs, ours, data = net(), net(), loader()
    torch.manual_seed(2)
    plain_torch(theirs, torch.optim.Adam(theirs.parameters()), data, epochs=3)
    torch.manual_seed(2)
    loop = gv.trainer(ours, "cross_entropy", "adam")
    loop.run(data, epochs=1)
    state = loop.run(data, epochs=2)
    assert all(torch.equal(p, q) for p, q in zip(theirs.parameters(), ours.parameters(), strict=True))
    assert (state.iteration, state.epoch, state.status) == (12, 3, "completed")
    assert loop.history.norms.index.tolist() == list(range(12))
    assert loop.history.metrics["epoch"].tolist() == [0] * 4 + [1] * 4 + [2] * 4


def test_train_flags_and_gradients_are_as_before_afterwards():
    model = net().eval()
    gv.trainer(model, "cross_entropy", "sgd").run(loader())
    assert not any(child.training for child in model.modules())
    assert all(p.grad is None for p in model.parameters())


def test_iterations_limit_each_epoch_and_none_at_all_is_no_run():
    loop = small_loop()
    assert loop.run(batches(1, 2, 3), epochs=2, iterations=2).iteration == 4
    assert loop.run(batches(1), epochs=0).iteration == 4
    assert loop.history.metrics["loss"].tolist() == [1, 2, 1, 2]


def test_later_runs_ask_for_their_data_after_the_handlers():
    loop, asked = small_loop(), []
    loop.handle_event("epoch_started", lambda state: asked.append(f"epoch {state.epoch}"))
    for _ in range(2):
        loop.run(lambda epoch: (asked.append(f"data {epoch}"), iter(batches(1)))[1])
    assert asked == ["data 0", "epoch 0", "data 1", "epoch 1"]


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize(
    ("data", "words"),
    [
        (lambda: iter([]), "was used up before"),
        (list, "Is the data set empty"),
        (lambda: DataLoader(TensorDataset(torch.zeros(3, 1)), batch_size=8, drop_last=True), "drop_last=True"),
    ],
)
@pytest.mark.parametrize("ask", [gv.Loop.run, gv.Loop.start, lambda loop, data: list(loop.stream(data))])
def test_a_later_run_of_no_batch_is_refused_before_anything_moves_as_the_first_is(data, words, ask, accumulate):
    fired = []
    loop = small_loop(accumulate=accumulate).handle_event("all", lambda state: fired.append(state.epoch))
    loop.run(batches(1))
    told, epochs = list(fired), loop.history.epochs
    with pytest.raises(DataError, match=f"no batch in epoch 1.*{words}"):
        ask(loop, data())
    assert fired == told
    assert (loop.state.epoch, loop.state.status) == (1, "completed")
    pd.testing.assert_frame_equal(loop.history.epochs, epochs)
    assert loop.run(iter(batches(1, 2))).epoch == 2


def test_of_a_later_run_s_iterator_no_batch_is_lost():
    loop = small_loop()
    for values in ((1, 2), (3, 4)):
        loop.run(iter(batches(*values)))
    assert loop.history.metrics["loss"].tolist() == [1, 2, 3, 4]


def test_a_handler_that_leaves_the_model_in_eval_mode_does_no_harm():
    model = net()
    model[3].eval()
    loop = gv.trainer(model, "cross_entropy", "sgd")
    loop.handle_event("iteration_completed", lambda state: model.eval() and None)
    loop.run(loader())
    assert model[1].num_batches_tracked == 4
    assert [child.training for child in model] == [True, True, True, False, True]


def test_data_may_be_a_function_of_the_epoch():
    loop = small_loop()
    loop.run(lambda epoch: (b for b in batches(epoch, epoch + 1)), epochs=2)
    assert loop.history.metrics["loss"].tolist() == [0, 1, 1, 2]


# What is recorded -------------------------------------------------------------------------------------------------


def test_the_batch_s_own_loss_is_recorded_and_epochs_keep_the_means():
    seen = []
    loop = small_loop().handle_event("iteration_completed", lambda state: seen.append(state.metrics["loss"]))
    loop.run(lambda epoch: batches(*([4, 2, 6] if epoch == 0 else [1, 1, 1])), epochs=2)
    assert loop.history.metrics["loss"].tolist() == [4, 2, 6, 1, 1, 1]
    assert loop.history.epochs["loss"].tolist() == [4, 1]
    assert loop.history.epochs["iterations"].tolist() == [3, 3]
    assert seen == [4, 3, 4, 1, 1, 1]


def test_means_weigh_examples_not_batches():
    data = [(torch.zeros(4, 1), torch.full((4, 1), 1.0)), (torch.zeros(1, 1), torch.full((1, 1), 9.0))]
    loop = small_loop()
    loop.metric(lambda p, t: t.mean(), "targets").metric(lambda loss: loss, "per batch", fields=["i"])
    loop.run(data)
    assert loop.state.metrics["loss"] == pytest.approx(2.6)
    assert loop.state.metrics["targets"] == pytest.approx(2.6)
    assert loop.state.metrics["per batch"] == pytest.approx(1.5)  # looks at no example: unweighted


def test_a_mean_of_many_equal_values_does_not_drift():
    average = RunningAverage()
    for _ in range(200_000):
        average.add(0.1, 1)
    assert average.value == pytest.approx(0.1, abs=1e-12)


def test_a_model_whose_norms_turn_nan_keeps_training_and_recording():
    model = nn.Linear(1, 1)
    loop = gv.trainer(model, "mean_squared_error", "sgd")
    good, bad = (torch.ones(1, 1), torch.ones(1, 1)), (torch.full((1, 1), math.nan), torch.ones(1, 1))
    shown = []
    loop.handle_event("iteration_completed", lambda state: shown.append(state.metrics["loss"]))
    loop.run([good, good, bad, good])
    assert loop.history.norms.isna().any(axis=1).tolist() == [False, False, True, True]
    assert loop.history.wide("nan")["weight"].tolist() == [0, 0, 1, 1]
    assert loop.history.wide("state")["weight"].tolist() == ["ok"] * 4
    assert math.isfinite(loop.history.epochs.loc[0, "loss"])
    assert loop.history.epochs.loc[0, "nonfinite"] == 2
    assert [math.isnan(value) for value in shown] == [False, False, True, True]
    assert loop.state.metrics["loss"] == loop.history.epochs.loc[0, "loss"]


def test_unused_frozen_and_not_optimized_parameters_are_told_apart_and_followed():
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.spare, self.aside, self.cold = (nn.Linear(1, 1, bias=False) for _ in range(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.body(x) + self.aside(x) + self.cold(x)

    model = Net()
    model.cold.requires_grad_(False)
    optimizer = torch.optim.SGD([model.body.weight, model.spare.weight, model.cold.weight], lr=0.1)
    loop = gv.trainer(model, "mean_squared_error", optimizer)

    def thaw(state):
        model.cold.requires_grad_(state.iteration >= 1)

    loop.handle_event("iteration_started", thaw).run([(torch.ones(2, 1), torch.zeros(2, 1))] * 3)
    states = loop.history.wide("state")
    assert states["body.weight"].tolist() == ["ok"] * 3
    assert states["spare.weight"].tolist() == ["unused"] * 3
    assert states["aside.weight"].tolist() == ["not_optimized"] * 3
    assert states["cold.weight"].tolist() == ["frozen", "ok", "ok"]
    norms = loop.history.norms
    assert norms["spare.weight"].isna().all()
    assert norms["aside.weight"].notna().all()
    assert norms["cold.weight"].isna().tolist() == [True, False, False]


@pytest.mark.case("L13")
def test_a_handler_that_undoes_a_freeze_is_seen_with_its_iteration():
    model = nn.Sequential(nn.Linear(1, 2), nn.Linear(2, 1))
    model[0].requires_grad_(False)

    def undo(state):
        if state.iteration == 5:
            model.requires_grad_(True)

    loop = gv.trainer(model, "mean_squared_error", "sgd").handle_event("iteration_started", undo)
    loop.run([(torch.ones(2, 1), torch.zeros(2, 1))] * 7)
    assert loop.history.wide("state")["0.weight"].tolist() == ["frozen"] * 5 + ["ok"] * 2
    assert loop.history.events.to_numpy().tolist() == [
        [5, "unfrozen", "0.weight", "handler"],
        [5, "unfrozen", "0.bias", "handler"],
    ]


def test_shapes_and_dtypes_are_described_as_they_are_now():
    model = nn.Sequential(nn.Linear(1, 4), nn.Linear(4, 1))
    loop = gv.trainer(model, "mean_squared_error", "sgd")
    loop.run([(torch.ones(1, 1), torch.zeros(1, 1))])
    model.double()
    loop.run([(torch.ones(1, 1, dtype=torch.float64), torch.zeros(1, 1, dtype=torch.float64))])
    assert set(loop.history.parameters["dtype"]) == {"float64"}


def test_a_layer_added_between_runs_gets_a_row_of_its_own():
    model = nn.Sequential(nn.Linear(1, 1))
    loop = gv.trainer(model, "mean_squared_error", "sgd")
    data = [(torch.ones(1, 1), torch.zeros(1, 1))]
    loop.run(data)
    model.append(nn.Linear(1, 1))
    loop.run(data)
    states = loop.history.wide("state")
    assert states["1.weight"].tolist() == ["not_recorded", "not_optimized"]
    assert states["0.weight"].tolist() == ["ok", "ok"]


def test_our_own_failure_warns_once_and_leaves_a_row_that_says_so(monkeypatch):
    def broken(tensors, **asked):
        raise RuntimeError("no statistics today")

    monkeypatch.setattr("gradviz.recorder.plan.Statistics", broken)
    loop = small_loop()
    with pytest.warns(RecordingWarning, match="no statistics today") as said:
        loop.run(batches(1, 2, 3))
    assert len(said) == 1
    assert loop.history.metrics["loss"].tolist() == [1, 2, 3]
    assert set(loop.history.wide("state")["weight"]) == {"not_recorded"}
    assert loop.state.status == "completed"


@pytest.mark.case("axon-G10")
def test_kept_gradients_reach_a_metric_and_a_handler_at_every_iteration():
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, 0.8)
    seen, averages = [], []
    loop = gv.trainer(
        model, "mean_squared_error", torch.optim.SGD(model.parameters(), lr=0.1), keep_gradients=True, strict=True
    )
    loop.metric(gv.norm, "gradient norm", "running_average", fields=["gradients"])

    def look(state):
        seen.append(state.step_state["gradients"]["weight"].item())
        averages.append(state.metrics["gradient norm"])

    loop.handle_event("iteration_completed", look)
    loop.run([(torch.tensor([[1.0], [2.0]]), torch.zeros(2, 1))] * 5)
    assert seen == pytest.approx([4, 2, 1, 0.5, 0.25])
    assert averages == pytest.approx([4, 3, 7 / 3, 1.875, 1.55])
    assert loop.history.metrics["gradient norm"].tolist() == pytest.approx(seen)
    assert loop.history.norms["weight"].tolist() == pytest.approx(seen)


@pytest.mark.case("L07")
def test_kept_gradients_at_the_end_of_an_iteration_are_those_of_backward_whatever_is_validated():
    model, backward, kept, norms = net(), [], [], []
    loop = gv.trainer(model, "cross_entropy", "adam", keep_gradients=True).metric(gv.norm, fields=["gradients"])
    observer = loop._training.step.observer
    see = observer.see

    def note(stage, kind, given, unused):
        backward.append({name: gradient.clone() for name, gradient in zip(kind.names, given, strict=True)})
        see(stage, kind, given, unused)

    observer.see = note
    loop.validate(loader(shuffle=False), event="iteration_completed")
    loop.handle_event("iteration_completed", lambda state: kept.append(state.step_state["gradients"]))
    loop.handle_event("iteration_completed", lambda state: norms.append(gv.norm(kept[-1]).item()))
    with pytest.warns(MetricWarning, match="'norm'"):
        loop.run(loader())
    assert len(kept) == len(backward) == 4
    for ours, theirs in zip(kept, backward, strict=True):
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert min(norms) > 0
    assert loop.history.metrics["norm"].tolist() == pytest.approx(norms)
    assert np.sqrt((loop.history.norms**2).sum(axis=1)).tolist() == pytest.approx(norms)


@pytest.mark.case("axon-L15")
@pytest.mark.parametrize("by", ["torch's seed", "its own"])
def test_the_same_seed_twice_is_the_same_run_to_the_bit(by):
    loops = []
    for _ in range(2):
        model, data = net(), loader()
        own = {"seed": 7} if by == "its own" else {}
        optimizer = partial(torch.optim.Adam, lr=5e-3)
        loop = gv.trainer(model, "cross_entropy", optimizer, keep_gradients=True, **own).metric("accuracy")
        torch.manual_seed(3)
        loop.validate(loader(shuffle=False)).run(data, epochs=10)
        loops.append(loop)
    one, other = loops
    assert one.history.epochs.equals(other.history.epochs)
    assert one.history.metrics.equals(other.history.metrics)
    assert one.history.gradients.equals(other.history.gradients)
    assert one.state.metrics == other.state.metrics
    for key in ("y_pred", "loss"):
        assert torch.equal(one.state.step_state[key], other.state.step_state[key])
    for key in ("model_state", "gradients"):
        for name, value in one.state.step_state[key].items():
            assert torch.equal(value, other.state.step_state[key][name])


# What a step does besides -----------------------------------------------------------------------------------------


@pytest.mark.case("L05")
def test_an_overflow_is_a_row_of_its_own_and_moves_nothing():
    def run(overflows: bool) -> tuple[gv.Loop, list[dict[str, torch.Tensor]], list[float]]:
        model = nn.Linear(1, 1)
        nn.init.ones_(model.weight)
        nn.init.zeros_(model.bias)
        data = [(torch.full((2, 1), 1.0 + i), torch.ones(2, 1)) for i in range(10)]
        if overflows:
            data.insert(7, (torch.ones(2, 1), torch.full((2, 1), math.inf)))
        weights, means = [], []
        loop = gv.trainer(model, lambda p, t: (p * t).mean(), "adam", loss_scale="dynamic", keep_gradients=True)

        def look(state):
            values = {**model.state_dict(), **{k: v for m in loop._step.optimizer.state.values() for k, v in m.items()}}
            weights.append({name: value.clone() for name, value in values.items()})
            means.append(float(state.metrics["loss"]))

        loop.handle_event("iteration_completed", look).run(data)
        return loop, weights, means

    (loop, values, means), (plain, without, plain_means) = run(True), run(False)
    metrics, gradients = loop.history.metrics, loop.history.gradients.query("parameter == 'weight'")
    assert metrics["skipped"].tolist() == [i == 7 for i in range(11)]
    assert metrics["loss_scale"].tolist() == [2**15] * 8 + [2**14] * 3
    assert metrics.loc[7, "loss"] == math.inf
    assert gradients["state"].tolist() == ["ok"] * 11
    assert [norm == math.inf for norm in gradients["norm"]] == [i == 7 for i in range(11)]
    assert gradients["posinf"].tolist() == [int(i == 7) for i in range(11)]
    assert all(torch.equal(values[7][name], values[6][name]) for name in values[6])
    for ours, theirs in zip(values[:7] + values[8:], without, strict=True):
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert means[7] == math.inf
    assert means[:7] + means[8:] == plain_means
    epochs, plain_epochs = loop.history.epochs, plain.history.epochs
    assert epochs.loc[0, "loss"] == plain_epochs.loc[0, "loss"] == loop.state.metrics["loss"]
    assert (epochs.loc[0, "nonfinite"], epochs.loc[0, "iterations"]) == (1, 11)
    assert loop.state.step_state["loss_scale_state"]["loss_scale"] == 2**14


@pytest.mark.case("L12")
@pytest.mark.case("L13")
@pytest.mark.parametrize(
    ("freeze", "unfreeze"),
    [
        (
            lambda state: state.step_state["model_state"].freeze("0"),
            lambda state: state.step_state["model_state"].unfreeze("0"),
        ),
        (
            lambda state: state.step_state["model_state"].module[0].requires_grad_(False),
            lambda state: state.step_state["model_state"].module[0].requires_grad_(True),
        ),
    ],
    ids=["ModelState", "requires_grad_"],
)
@pytest.mark.parametrize("event", ["iteration_started", "iteration_completed"])
def test_a_handler_s_freeze_holds_from_the_next_iteration_until_it_is_undone(event, freeze, unfreeze):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
    loop, weights = gv.trainer(model, "mean_squared_error", optimizer, keep_gradients=True), []
    late = event == "iteration_completed"

    def change(state):
        if state.iteration == 5 - late:
            freeze(state)
        if state.iteration == 8 - late:
            unfreeze(state)

    loop.handle_event(event, change)
    loop.handle_event("iteration_completed", lambda state: weights.append(copy.deepcopy(model.state_dict())))
    loop.run([(torch.ones(2, 2), torch.zeros(2, 1))] * 10)
    for name in ("0.weight", "0.bias"):
        assert loop.history.wide("state")[name].tolist() == ["ok"] * 5 + ["frozen"] * 3 + ["ok"] * 2
        assert loop.history.norms[name].isna().tolist() == [False] * 5 + [True] * 3 + [False] * 2
        moved = [not torch.equal(weights[i][name], weights[i - 1][name]) for i in range(1, 10)]
        assert moved == [True] * 4 + [False] * 3 + [True] * 2
    assert loop.history.wide("state")["2.weight"].tolist() == ["ok"] * 10
    assert all(not torch.equal(weights[i]["2.weight"], weights[i - 1]["2.weight"]) for i in range(1, 10))
    assert loop.history.events.to_numpy().tolist() == [
        [5, "frozen", "0.weight", "handler"],
        [5, "frozen", "0.bias", "handler"],
        [8, "unfrozen", "0.weight", "handler"],
        [8, "unfrozen", "0.bias", "handler"],
    ]


@pytest.mark.case("L15")
def test_a_group_at_rest_is_not_optimized_for_as_long_as_it_rests():
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2), nn.Linear(2, 1))
    model[1].requires_grad_(False)
    groups = [
        {"params": model[0].parameters(), "lr": 0.0},
        {"params": [*model[1].parameters(), *model[2].parameters()]},
    ]
    optimizer = torch.optim.SGD(groups, lr=0.1)

    def wake(state):
        if state.iteration == 2:
            optimizer.param_groups[0]["lr"] = 0.1

    before = copy.deepcopy(model.state_dict())
    loop = gv.trainer(model, "mean_squared_error", optimizer).handle_event("iteration_started", wake)
    data = [(torch.ones(2, 2), torch.zeros(2, 1))] * 2
    loop.run(data)
    assert torch.equal(model[0].weight, before["0.weight"])
    loop.run(data)
    states = loop.history.wide("state")
    assert states["0.weight"].tolist() == ["not_optimized"] * 2 + ["ok"] * 2
    assert states["1.weight"].tolist() == ["frozen"] * 4
    assert states["2.weight"].tolist() == ["ok"] * 4
    assert loop.history.norms["0.weight"].notna().all()
    assert not torch.equal(model[0].weight, before["0.weight"])


@pytest.mark.parametrize("validates", [False, True])
def test_a_batch_norm_frozen_from_the_start_is_still_through_runs_and_validations(validates):
    model = net()
    gv.ModelState(model).freeze("1")
    before = copy.deepcopy(model[1].state_dict())
    loop, flags = gv.trainer(model, "cross_entropy", "adam"), []
    if validates:
        loop.validate(loader())
    loop.handle_event("iteration_started", lambda state: flags.append([child.training for child in model]))
    for _ in range(2):
        loop.run(loader(), epochs=2)
    assert flags == [[True, False, True, True, True]] * 16
    for name, value in model[1].state_dict().items():
        assert torch.equal(value, before[name]), name
    assert model.training
    assert model[1].training


def joined(data: list[tuple[torch.Tensor, torch.Tensor]], size: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    groups = [data[i : i + size] for i in range(0, len(data), size)]
    return [(torch.cat([x for x, _ in group]), torch.cat([y for _, y in group])) for group in groups]


@pytest.mark.case("L09")
@pytest.mark.parametrize("examples", [16, 14, 10])  # two groups of four, the last of them incomplete in the others
def test_four_micro_batches_of_two_are_one_batch_of_eight(examples):
    torch.manual_seed(2)
    inputs, targets = torch.randn(examples, 4), torch.randint(0, 3, (examples,))
    loops = []
    for size, accumulate in ((2, 4), (8, 1)):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loop = gv.trainer(model, "cross_entropy", optimizer, accumulate=accumulate, keep_gradients=True)
        kept = []
        loop.handle_event("iteration_completed", lambda s, kept=kept: kept.append(s.step_state["gradients"]))
        loop.run(list(zip(inputs.split(size), targets.split(size), strict=True)))
        loops.append((loop, kept))
    (micro, ours), (whole, theirs) = loops
    assert len(micro.history) == len(whole.history) == len(ours) == 2
    np.testing.assert_allclose(micro.history.metrics["loss"], whole.history.metrics["loss"], rtol=1e-6)
    np.testing.assert_allclose(micro.history.norms, whole.history.norms, rtol=1e-6)
    for g, h in zip(ours, theirs, strict=True):
        for name in g:
            torch.testing.assert_close(g[name], h[name], rtol=1e-6, atol=1e-7)


def test_accumulated_micro_batches_train_as_the_joined_batches_do():
    data = list(loader(shuffle=False)) + list(loader(shuffle=False))[:1]  # 16, 16, 16, 2, 16

    def run(batches, **options) -> tuple[gv.Loop, nn.Module]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        loop = gv.trainer(model, "cross_entropy", optimizer, **options).metric("accuracy")
        loop.run(batches, epochs=2)
        return loop, model

    (ours, model), (theirs, expected) = run(data, accumulate=3), run(joined(data, 3))
    assert len(ours.history) == len(theirs.history) == 4  # steps, not batches: 3 + 2 of them each epoch
    for p, q in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(ours.history.norms, theirs.history.norms, rtol=1e-5)
    metrics = ["loss", "accuracy"]
    np.testing.assert_allclose(ours.history.metrics[metrics], theirs.history.metrics[metrics], rtol=1e-6)
    np.testing.assert_allclose(ours.history.epochs, theirs.history.epochs, rtol=1e-6)
    sizes = [len(y) for _, y in joined(data, 3)]
    assert sizes == [48, 18]
    losses = ours.history.metrics.query("epoch == 1")["loss"]
    assert ours.history.epochs.loc[1, "loss"] == pytest.approx(np.average(losses, weights=sizes))


def test_iterations_progress_and_events_count_steps_of_several_micro_batches():
    read, placed = [], []

    class Counted(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return 10

        def __getitem__(self, i: int) -> tuple[torch.Tensor, torch.Tensor]:
            read.append(i)
            return torch.ones(1), torch.ones(1)

    loop = small_loop(accumulate=3)
    loop.handle_event(
        "iteration_completed",
        lambda state: placed.append((state.epoch_iteration, len(state.step_state["y_true"]))),
    )
    loop.run(DataLoader(Counted(), batch_size=2), epochs=2)  # five batches: 3 + 2
    progress = loop.history.progress
    assert (progress.iteration, progress.iterations, progress.epochs) == (4, 4, 2)
    assert placed == [(0, 6), (1, 4)] * 2
    assert loop.state.event_counts["iteration_completed"] == 4
    assert int(loop.state.step_state["i"]) == 4
    read.clear()
    state = loop.run(DataLoader(Counted(), batch_size=2), iterations=1)
    assert (state.iteration, progress.iteration, progress.iterations) == (5, 5, 5)
    assert read == list(range(6))  # no batch is fetched that no step takes


def test_progress_of_micro_batches_without_a_length_is_unknown():
    loop, planned = small_loop(accumulate=2), []
    loop.handle_event("started", lambda state: planned.append(loop.history.progress.iterations))
    loop.run(lambda epoch: iter(batches(1, 2, 3)))
    assert planned == [None]
    assert loop.history.metrics["loss"].tolist() == [1.5, 3]


def test_clipping_shows_what_came_and_moves_by_what_is_left():
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, 0.8)
    weights = []
    loop = gv.trainer(model, "mean_squared_error", torch.optim.SGD(model.parameters(), lr=0.1), clip=1.0)
    loop.handle_event("iteration_completed", lambda state: weights.append(model.weight.item()))
    loop.run([(torch.tensor([[1.0], [2.0]]), torch.zeros(2, 1))] * 3)
    assert weights == pytest.approx([0.7, 0.6, 0.5], abs=1e-5)
    assert loop.history.norms["weight"].tolist() == pytest.approx([4, 3.5, 3], abs=1e-4)


@pytest.mark.parametrize("compute", ["float16", "bfloat16"])
def test_a_policy_holds_in_training_validation_and_evaluation(compute):
    class Looking(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.add((self.training, x.dtype, self.weight.dtype))
            return super().forward(x)

    seen: set[tuple[bool, torch.dtype, torch.dtype]] = set()
    torch.manual_seed(0)
    model = nn.Sequential(Looking(4, 8), nn.BatchNorm1d(8), Looking(8, 3))
    policy = gv.Policy(params=compute, compute=compute, output="float32")
    narrow = getattr(torch, compute)
    loop = gv.trainer(model, "cross_entropy", "adam", policy=policy, loss_scale="dynamic").metric("accuracy")
    held_out = [(x.to(narrow), y) for x, y in loader(shuffle=False)]
    state = loop.validate(held_out).run(loader(), epochs=2)
    assert seen == {(True, narrow, narrow), (False, narrow, narrow)}
    assert state.step_state["y_pred"].dtype == torch.float32
    assert loop.history.parameters["dtype"].to_dict() == {
        name: "float32" if name.startswith("1.") else compute for name, _ in model.named_parameters()
    }
    assert model[1].running_mean.dtype == torch.float32
    assert set(loop.history.wide("state").to_numpy().ravel()) == {"ok"}
    evaluated = gv.evaluator(model, "cross_entropy", policy=policy).metric("accuracy").run(held_out)
    assert evaluated.step_state["y_pred"].dtype == torch.float32
    assert state.metrics["validation_loss"] == evaluated.metrics["loss"]
    assert state.metrics["validation_accuracy"] == evaluated.metrics["accuracy"]


@pytest.mark.case("L10")
def test_an_optimizer_that_evaluates_the_loss_itself_has_a_row_for_each_step():
    calls = []
    loop = gv.trainer(
        net(),
        lambda p, t: calls.append(1) or F.cross_entropy(p, t),
        partial(torch.optim.LBFGS, max_iter=3),
        keep_gradients=True,
    )
    state = loop.run(loader(shuffle=False), iterations=3)
    assert (state.iteration, len(loop.history), state.event_counts["iteration_completed"]) == (3, 3, 3)
    counted = loop.history.metrics["closure_calls"]
    assert counted.ge(1).all()
    assert counted.max() > 1
    assert counted.sum() == len(calls) - 1  # without the trial's
    assert "closure_calls" not in small_loop().run(batches(1)).metrics
    assert set(loop.history.wide("state").to_numpy().ravel()) == {"ok"}
    assert loop.history.norms.iloc[-1].to_dict() == pytest.approx(
        {name: float(g.norm()) for name, g in state.step_state["gradients"].items()}
    )


def test_a_type_that_changes_on_the_way_ends_the_run_and_keeps_the_rows_before_it():
    model = nn.Linear(1, 1)
    loop = gv.trainer(model, "mean_squared_error", "sgd")
    data = [(torch.ones(2, 1), torch.zeros(2, 1, dtype=torch.float64 if i == 3 else torch.float32)) for i in range(5)]
    with pytest.raises(StateTypeError, match=r"y_true") as error:
        loop.run(data)
    assert str(error.value).startswith("In iteration 3, y_true became float64")
    assert any("At iteration 3, in epoch 0" in note for note in error.value.__notes__)
    assert (loop.state.status, loop.state.iteration, len(loop.history)) == ("failed", 3, 3)
    assert loop.history.progress.message.startswith("StateTypeError")
    assert loop.history.wide("state")["weight"].tolist() == ["ok"] * 3
    assert loop.history.epochs["iterations"].tolist() == [3]
    assert loop.run(data[:3]).iteration == 6
    assert gv.trainer(model, "mean_squared_error", "sgd", strict=False).run(data).iteration == 5


# Events and metrics -----------------------------------------------------------------------------------------------


def test_events_fire_in_order_with_the_index_of_the_current_iteration():
    seen = []

    def note(event):
        return lambda state: seen.append((event, state.epoch, state.iteration, state.epoch_iteration))

    loop = small_loop()
    for event in ("started", "epoch_started", "iteration_started", "iteration_completed", "epoch_completed"):
        loop.handle_event(event, note(event))
    state = loop.run(batches(1, 2), epochs=2)
    assert seen == [
        ("started", 0, 0, 0),
        ("epoch_started", 0, 0, 0),
        ("iteration_started", 0, 0, 0),
        ("iteration_completed", 0, 0, 0),
        ("iteration_started", 0, 1, 1),
        ("iteration_completed", 0, 1, 1),
        ("epoch_completed", 0, 1, 1),
        ("epoch_started", 1, 2, 0),
        ("iteration_started", 1, 2, 0),
        ("iteration_completed", 1, 2, 0),
        ("iteration_started", 1, 3, 1),
        ("iteration_completed", 1, 3, 1),
        ("epoch_completed", 1, 3, 1),
    ]
    assert (state.iteration, state.epoch) == (4, 2)
    assert state.event_counts == {
        "started": 1,
        "epoch_started": 2,
        "iteration_started": 4,
        "iteration_completed": 4,
        "epoch_completed": 2,
        "epoch_halted": 0,
        "completed": 1,
        "halted": 0,
    }
    assert sorted(state.times) == [0, 1]


def test_a_handler_s_error_names_it_and_the_run_can_go_on(recwarn):
    def fails(state):
        raise KeyError("mine")

    loop = small_loop().handle_event("iteration_completed", fails)
    with pytest.raises(KeyError) as error:
        loop.run(batches(1, 2))
    assert "handler" in error.value.__notes__[0]
    assert "'iteration_completed', at iteration 0" in error.value.__notes__[0]
    assert loop.state.status == "failed"
    assert len(loop.history) == 1

    loop = small_loop(on_error="warn").handle_event("iteration_completed", fails)
    loop.metric(lambda p, t: 1 / 0, "broken")
    with pytest.warns(HandlerWarning, match="at iteration 0") as said:
        loop.run(batches(1, 2))
    assert len(said) == 2  # once for the handler, once for the metric
    assert loop.history.metrics["broken"].isna().all()
    assert loop.state.status == "completed"


def test_a_handler_that_returns_something_else_is_named():
    loop = small_loop().handle_event("started", lambda state: "stop")
    with pytest.raises(EventError, match='returned \'stop\'; it may return None, "halt_epoch" or "halt_loop"'):
        loop.run(batches(1))


def test_a_handler_may_return_the_loop_as_its_methods_do_and_no_other():
    loop, other = small_loop(), small_loop()
    loop.handle_event("iteration_completed", lambda state: loop.stop(), once=2)
    loop.handle_event("epoch_started", lambda state: loop.metric("mean_absolute_error"))
    assert (loop.run(batches(1.0, 2.0, 3.0)).status, len(loop.history)) == ("halted", 2)
    loop.handle_event("iteration_completed", lambda state: other.stop())
    with pytest.raises(EventError, match="returned a Loop; it may return None"):
        loop.run(batches(1.0))


def test_a_stop_iteration_of_a_handler_or_a_metric_says_where_it_came_from():
    used_up = iter([])
    loop = small_loop().handle_event("iteration_completed", lambda state: next(used_up), once=2)
    loop.handle_event("completed", lambda state: next(used_up))
    with pytest.raises(RuntimeError, match="StopIteration was raised: next") as error:
        loop.run(batches(1.0, 2.0, 3.0))
    assert "for 'iteration_completed', at iteration 1" in error.value.__notes__[0]
    assert (loop.state.status, len(loop.history)) == ("failed", 2)
    with pytest.raises(RuntimeError, match="StopIteration was raised: next") as error:
        loop.run(batches(1.0))
    assert "for 'completed', at iteration 3" in error.value.__notes__[0]
    loop = small_loop().metric(lambda p, t: next(used_up), "m")
    with pytest.raises(RuntimeError, match="StopIteration was raised: next") as error:
        loop.run(batches(1.0))
    assert "In the metric 'm'" in error.value.__notes__[1]


@pytest.mark.parametrize("event", ["iteration_completed", "epoch_completed", "completed"])
def test_a_generator_exit_of_a_handler_is_an_error_and_no_halt(event):
    def leaves(state):
        raise GeneratorExit

    loop, seen = small_loop(), []
    loop.handle_event("halted", lambda state: seen.append(state.status)).handle_event(event, leaves)
    with pytest.raises(GeneratorExit):
        loop.run(batches(1.0))
    assert (loop.state.status, seen) == ("failed", [])
    with pytest.raises(GeneratorExit):
        list(loop.stream(batches(1.0)))
    assert (loop.state.status, seen) == ("failed", [])


def test_a_metric_s_error_is_named_with_its_iteration():
    loop = small_loop().metric(lambda p, t: p.nonsense, "mine")
    with pytest.raises(AttributeError) as error:
        loop.run(batches(1))
    given = "It was given y_pred, a tensor of shape (1, 1), y_true, a tensor of shape (1, 1)."
    assert error.value.__notes__ == [given, "In the metric 'mine', at iteration 0."]
    assert loop.history.metrics["mine"].isna().tolist() == [True]
    assert loop.history.metrics["loss"].tolist() == [1]


@pytest.mark.case("N07")
def test_attaching_handlers_and_metrics_again_does_not_double_them():
    loop, calls = small_loop(), []
    for _ in range(3):  # a notebook cell that is run three times defines the function anew each time
        cell: dict = {"loop": loop, "calls": calls, "__name__": "__main__"}
        exec(
            "def note(state):\n    calls.append(state.iteration)\n"
            "loop.handle_event('iteration_completed', note)\n"
            "loop.handle_event('iteration_completed', lambda state: calls.append('lambda'))\n"
            "loop.metric(lambda p, t: t.mean(), 'target')",
            cell,
        )
    loop.run(batches(1, 2))
    assert calls == [0, "lambda", 1, "lambda"]
    assert list(loop.history.metrics.columns) == ["epoch", "loss", "target", "loss_scale", "skipped"]
    assert len(loop.history.gradients) == 2 * 2


def test_another_metric_of_the_same_name_takes_its_place_with_a_word():
    def first(p, t):
        return 1.0

    def second(p, t):
        return 2.0

    loop = small_loop().metric(first, "mine")
    with pytest.warns(MetricWarning, match="'mine' was there already"):
        loop.metric(second, "mine")
    loop.run(batches(1))
    assert loop.state.metrics["mine"] == 2


# Bad input --------------------------------------------------------------------------------------------------------


class Endless(IterableDataset):
    def __iter__(self):
        return iter([])


@pytest.mark.parametrize(
    ("data", "epochs", "words"),
    [
        ([], 1, "no batch in epoch 0. Is the data set empty"),
        (DataLoader(TensorDataset(torch.zeros(3, 1)), batch_size=8, drop_last=True), 1, "drop_last=True"),
        (DataLoader(Endless()), 1, "no batch in epoch 0"),
        (iter([]), 1, "was used up before"),
        (iter(batches(1)), 2, r"list_iterator can be read only once, but 2 epochs .* Pass list\(data\)"),
        ((b for b in batches(1)), 5, r"generator can be read only once"),
        ([torch.zeros(2, 1)], 1, r"pair \(inputs, targets\); got a tensor of shape \(2, 1\)"),
        ([(1, 2, 3)], 1, "got a tuple of 3"),
        (3, 1, "got an int"),
        (lambda epoch: 5, 1, r"data\(0\) returned an int"),
        (lambda: batches(1), 1, "takes the epoch's index: lambda epoch: batches"),
        (TensorDataset(torch.zeros(3, 1)), 1, r"DataLoader\(dataset, batch_size=32"),
        (batches(1), -1, "epochs is a whole number from 0 on; got -1"),
        (batches(1), 1.5, "got 1.5"),
    ],
)
def test_data_that_cannot_be_trained_on_is_refused_before_anything_moves(data, epochs, words):
    loop = small_loop()
    before = [p.clone() for p in loop._step.model.parameters()]
    with pytest.raises(DataError, match=words):
        loop.run(data, epochs=epochs)
    assert all(torch.equal(a, b) for a, b in zip(before, loop._step.model.parameters(), strict=True))
    assert loop.state.iteration == 0
    assert loop.run(batches(1)).status == "completed"  # nothing stands in the way of the right call


def test_an_iterator_read_once_is_fine_for_one_epoch():
    loop = small_loop()
    assert loop.run(iter(batches(1, 2))).iteration == 2


def test_bad_data_in_the_middle_keeps_what_was_recorded():
    loop = small_loop()
    with pytest.raises(DataError, match="pair") as error:
        loop.run([*batches(1, 2), torch.zeros(1)])
    assert "At iteration 2, in epoch 0" in error.value.__notes__[0]
    assert loop.history.metrics["loss"].tolist() == [1, 2]
    with pytest.raises(DataError, match="no batch in epoch 1"):
        small_loop().run(lambda epoch: [] if epoch else batches(1), epochs=2)


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: gv.trainer(nn.ReLU(), "huber", "sgd"), ModelError, "no trainable parameter"),
        (lambda: gv.trainer(net(), "crossentropy", "sgd"), LossError, "did you mean 'cross_entropy'"),
        (lambda: gv.trainer(net(), "cross_entropy", "adamm"), OptimizerError, "did you mean 'adam"),
        (
            lambda: gv.trainer(net(), "cross_entropy", "adam", keep_grads=True),
            UnknownKeywordError,
            "did you mean 'keep_gradients'",
        ),
        (lambda: gv.trainer(net(), "mse", "adam"), LossError, "did you mean 'mean_squared_error'"),
        (lambda: gv.trainer(net(), nn.MSELoss, "adam"), LossError, r"make one: MSELoss\(\)"),
        (
            lambda: gv.trainer(net(), "huber", "adam", lr=0.1),
            UnknownKeywordError,
            r"partial\(torch.optim.Adam, lr=0.01\)",
        ),
        (
            lambda: gv.trainer(net(), "huber", "lbfgs", loss_scale="static"),
            OptimizerError,
            "LBFGS evaluates the loss several",
        ),
        (lambda: small_loop().metric(lambda p, t: 7, "epoch"), MetricError, "another name"),
        (lambda: small_loop().metric(lambda p, t: 7, "loss"), MetricError, "another name"),
        (
            lambda: small_loop().handle_event("epoch_end", print),
            EventError,
            "Known: completed, epoch_completed, epoch_h",
        ),
        (lambda: small_loop().run(batches(1), epoch=3), UnknownKeywordError, "'epoch': did you mean 'epochs'"),
        (lambda: small_loop().metric("acuracy"), MetricError, "did you mean 'accuracy'"),
        (lambda: small_loop().metric(lambda p, t: 0), MetricError, "needs a name"),
        (lambda: small_loop().metric("accuracy", accumulate="average"), MetricError, "running_average"),
        (lambda: small_loop().metric("accuracy", fields="y_pred"), TypeError, r"write fields=\['y_pred'\]"),
        (
            lambda: small_loop().metric(len, "n", fields=["gradients"]).run(batches(1)),
            MetricError,
            "keep_gradients=True",
        ),
        (lambda: small_loop().handle_event("epoch_complete", print), EventError, "did you mean 'epoch_completed'"),
        (lambda: small_loop().handle_event("started", 3), EventError, "got an int"),
        (lambda: small_loop(on_error="ignore"), ValueError, '"raise" or "warn"'),
        (lambda: small_loop().run(batches(1), display="yes"), ValueError, "display is"),
        (lambda: gv.trainor, AttributeError, "did you mean 'trainer'"),
        (lambda: gv.heatmap(3), TypeError, r"Write gv.heatmap\(loop\)"),
        (lambda: small_loop().history.wide("nrom"), ValueError, "did you mean 'norm'"),
    ],
)
def test_a_slip_of_the_pen_is_answered_with_the_nearest_name(make, error, words):
    with pytest.raises(error, match=words):
        make()


@pytest.mark.case("N09")
def test_after_an_error_the_same_loop_runs_again():
    failing = True

    def objective(forward, model_state, inputs, targets):
        if failing and targets.item() == 2:
            raise RuntimeError("objective fails at step 2")
        output = forward(model_state, inputs)
        return output.prediction.sum() * 0 + targets.mean(), output

    model = nn.Linear(1, 1)
    loop = gv.trainer(model, objective, "sgd")
    with pytest.raises(RuntimeError, match="step 2"):
        loop.run(batches(0, 1, 2, 3))
    assert (loop.state.status, loop.state.iteration, len(loop.history)) == ("failed", 2, 2)
    failing = False
    state = loop.run(batches(0, 1, 2, 3))
    assert (state.status, state.iteration) == ("completed", 6)
    assert loop.history.metrics["loss"].tolist() == [0, 1, 0, 1, 2, 3]
    assert loop.history.metrics["epoch"].tolist() == [0, 0, 1, 1, 1, 1]
    assert loop.history.epochs["iterations"].tolist() == [2, 4]
    assert loop.history.progress.message is None


# Interrupts -------------------------------------------------------------------------------------------------------


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.case("N04")
def test_ctrl_c_finishes_the_iteration_and_leaves_everything_usable():
    model = nn.Linear(1, 1)
    loop = gv.trainer(model, "mean_squared_error", "sgd")
    loop.handle_event("iteration_started", lambda state: interrupt() if state.iteration == 2 else None)
    data = [(torch.ones(1, 1), torch.zeros(1, 1))] * 5
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt) as stopped:
        loop.run(data)
    assert stopped.value.__notes__ == [
        "Interrupted: 3 iterations are in loop.history, and loop.run(...) goes on with the next epoch."
    ]
    assert signal.getsignal(signal.SIGINT) is before
    assert (loop.state.status, loop.state.iteration, len(loop.history)) == ("interrupted", 3, 3)
    assert loop.history.progress.status == "interrupted"
    assert loop.history.epochs["iterations"].tolist() == [3]
    assert model(torch.ones(1, 1)).isfinite().all()
    state = loop.run(data)
    assert (state.status, state.iteration) == ("completed", 8)
    assert loop.history.norms.index.tolist() == list(range(8))


@pytest.mark.case("N08")
def test_a_second_ctrl_c_stops_at_once_and_still_puts_everything_back():
    class Slow(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.training and loop.state.iteration == 2:
                interrupt()
                interrupt()
                raise AssertionError("the second interrupt came too late")
            return super().forward(x)

    model = Slow(1, 1).eval()
    before = signal.getsignal(signal.SIGINT)
    loop = gv.trainer(model, "mean_squared_error", "sgd")
    data = [(torch.ones(1, 1), torch.zeros(1, 1))] * 5
    with pytest.raises(KeyboardInterrupt):
        loop.run(data)
    assert signal.getsignal(signal.SIGINT) is before
    assert (loop.state.status, loop.state.iteration, len(loop.history)) == ("interrupted", 2, 2)
    assert not model.training


def test_ctrl_c_in_the_last_handler_is_not_swallowed():
    loop = small_loop().handle_event("epoch_completed", lambda state: interrupt())
    with pytest.raises(KeyboardInterrupt):
        loop.run(batches(1))
    assert loop.state.status == "interrupted"


def test_ctrl_c_acts_at_once_while_waiting_for_data():
    def slow_batches():
        yield from batches(1, 2)
        interrupt()
        raise AssertionError("waited on")

    loop = small_loop()
    with pytest.raises(KeyboardInterrupt):
        loop.run(slow_batches())
    assert (loop.state.status, len(loop.history)) == ("interrupted", 2)


def test_an_error_that_ctrl_c_made_elsewhere_is_the_interrupt():
    def fails(state):
        if state.iteration == 1:
            interrupt()
            raise RuntimeError("DataLoader worker exited unexpectedly")

    loop = small_loop().handle_event("iteration_completed", fails)
    with pytest.raises(KeyboardInterrupt) as stopped:
        loop.run(batches(1, 2, 3))
    assert isinstance(stopped.value.__cause__, RuntimeError)
    assert (loop.state.status, len(loop.history)) == ("interrupted", 2)


def test_a_loop_runs_in_another_thread():
    from threading import Thread

    loop = small_loop()
    thread = Thread(target=lambda: loop.run(batches(1, 2)))
    thread.start()
    thread.join(30)
    assert loop.state.status == "completed"


def test_values_written_through_data_between_two_runs_are_taken_over_in_16_bits():
    model = nn.Linear(3, 2)
    loop = gv.trainer(model, "cross_entropy", partial(torch.optim.SGD, lr=1e-4), policy=gv.Policy(params="bfloat16"))
    data = [(torch.randn(4, 3), torch.randint(0, 2, (4,)))]
    loop.run(data, display=None)
    model.weight.data.fill_(2.0)
    loop.run(data, display=None)
    assert model.weight.float().mean().item() == pytest.approx(2, abs=0.02)


def test_a_display_that_fails_warns_and_the_run_goes_on(monkeypatch):
    def broken(*of):
        raise FileNotFoundError("the widgets are not built")

    monkeypatch.setattr("gradviz.widgets.notebook.show_run", broken)
    with pytest.warns(RecordingWarning, match="the widgets are not built"):
        assert small_loop().run(batches(1)).status == "completed"
    assert small_loop().run(batches(1), display=None).status == "completed"


class Shown:
    """What a notebook shows of a run; how the run stood when it was frozen."""

    def __init__(self, history, freeze=lambda: None):
        self.history, self.frozen, self.heard, self._freeze = history, [], [], freeze
        history.subscribe(self.hear)

    def hear(self, final):
        self.heard.append((self.history.progress.status, final, len(self.frozen)))

    def freeze(self):
        self._freeze()
        self.frozen.append(self.history.progress.status)


@pytest.mark.parametrize(
    ("handler", "error", "status"),
    [
        (lambda state: None, None, "completed"),
        (lambda state: "halt_loop", None, "halted"),
        (lambda state: signal.raise_signal(signal.SIGINT), KeyboardInterrupt, "interrupted"),
        (lambda state: 1 / 0, ZeroDivisionError, "failed"),
    ],
)
def test_the_picture_is_made_once_the_run_is_over_and_before_the_last_word(monkeypatch, handler, error, status):
    shown = []
    monkeypatch.setattr(
        "gradviz.widgets.notebook.show_run", lambda history, _: shown.append(Shown(history)) or shown[-1]
    )
    loop = small_loop().handle_event("iteration_completed", handler)
    with pytest.raises(error) if error else contextlib.nullcontext():
        loop.run(batches(2))
    with pytest.raises(error) if error else contextlib.nullcontext():
        loop.run(batches(2))
    assert [one.frozen for one in shown] == [[status], [status]]
    assert shown[-1].heard[-1] == (status, True, 1)


@pytest.mark.case("N08")
@pytest.mark.parametrize("handler", [lambda state: None, lambda state: 1 / 0])
def test_a_ctrl_c_while_the_picture_is_made_waits_for_it_and_is_not_lost(monkeypatch, handler):
    def press():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    shown = []
    monkeypatch.setattr(
        "gradviz.widgets.notebook.show_run", lambda history, _: shown.append(Shown(history, press)) or shown[-1]
    )
    with pytest.raises(KeyboardInterrupt):
        small_loop().handle_event("iteration_completed", handler).run(batches(2))
    assert len(shown[0].frozen) == 1


def test_a_picture_that_fails_warns_and_the_live_one_hears_of_the_end(monkeypatch):
    def broken():
        raise MemoryError("no room")

    shown = []
    monkeypatch.setattr(
        "gradviz.widgets.notebook.show_run", lambda history, _: shown.append(Shown(history, broken)) or shown[-1]
    )
    with pytest.warns(RecordingWarning, match="no room"):
        assert small_loop().run(batches(2)).status == "completed"
    assert shown[0].heard[-1] == ("completed", True, 0)
