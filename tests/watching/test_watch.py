"""A loop of the user's own is recorded as it is."""

from __future__ import annotations

import copy
import gc
import io
import math
import pickle
import subprocess
import sys
import warnings
import weakref

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import gradviz as gv
from gradviz.errors import HistoryError, ModelError, OptimizerError, RecordingWarning, UnknownKeywordError
from tests.benchmarks.bench_loop import ROOT
from tests.watching.scenes import inputs, net, norms, one_weight, plain


def sgd(model, lr=0.1, **options):
    return torch.optim.SGD(model.parameters(), lr=lr, **options)


def test_norms_are_those_that_torch_has_after_the_backward_pass():
    model, truth = net(), []
    optimizer = sgd(model)
    with gv.watch(model, optimizer) as w:
        plain(model, optimizer, 4, lambda _: truth.append(norms(model)))
    np.testing.assert_allclose(w.history.norms.to_numpy(), truth, rtol=1e-6)
    assert w.history.norms.columns.tolist() == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert w.history.wide("state").eq("ok").all(axis=None)
    assert set(w.history.gradients["stage"]) == {"backward"}


def test_all_statistics_are_those_of_the_trainer_of_the_same_loop():
    ours, theirs, data = net(), net(), [(inputs(i), torch.zeros(5, 1)) for i in range(4)]
    loop = gv.trainer(ours, "mean_squared_error", sgd(ours))
    loop.run(data)
    optimizer = sgd(theirs)
    with gv.watch(theirs, optimizer) as w:
        for x, y in data:
            optimizer.zero_grad()
            nn.functional.mse_loss(theirs(x), y).backward()
            optimizer.step()
    assert loop.history.gradients.equals(w.history.gradients)
    assert loop.history.dtypes.equals(w.history.dtypes)
    assert loop.history.histograms.equals(w.history.histograms)


@pytest.mark.parametrize("record", ["norms", None])
def test_less_is_recorded_where_less_is_asked_for(record):
    model = net()
    optimizer = sgd(model)
    with gv.watch(model, optimizer, record=record) as w:
        plain(model, optimizer, 2)
    frame = w.history.gradients
    assert frame["mean"].isna().all()
    assert frame["norm"].notna().all() == (record == "norms")
    assert set(frame["state"]) == ({"ok"} if record == "norms" else {"not_recorded"})
    assert len(w.history) == 2


# Stages -------------------------------------------------------------------------------------------------------------


def test_an_accumulated_gradient_is_the_sum_of_its_micro_batches():
    model = one_weight()
    optimizer = sgd(model, lr=0.0001)
    with gv.watch(model, optimizer) as w:
        for _ in range(2):
            optimizer.zero_grad()
            for x in (1.0, 10.0):
                model(torch.tensor([[x]])).sum().backward()
            optimizer.step()
    assert w.history.norms["weight"].tolist() == [11.0, 11.0]


@pytest.mark.case("L09")
def test_four_micro_batches_of_two_are_one_batch_of_eight_and_a_last_group_may_be_smaller():
    rows, seen = torch.randn(14, 3, generator=torch.Generator().manual_seed(0)), {}
    for size in (2, 8):
        model = net()
        optimizer = sgd(model)
        with gv.watch(model, optimizer) as w:
            for group in rows.split(8):
                optimizer.zero_grad()
                losses = [model(part).square().sum() / len(group) for part in group.split(size)]
                for loss in losses:
                    loss.backward()
                optimizer.step()
                w.mark(loss=sum(losses))
        seen[size] = w.history
    np.testing.assert_allclose(seen[2].norms.to_numpy(), seen[8].norms.to_numpy(), rtol=1e-6)
    np.testing.assert_allclose(seen[2].metrics["loss"], seen[8].metrics["loss"], rtol=1e-6)
    assert len(seen[2]) == 2


def by_norm(model):
    nn.utils.clip_grad_norm_(model.parameters(), 0.01)


def by_value(model):
    nn.utils.clip_grad_value_(model.parameters(), 0.001)


def by_hand(model):
    for p in model.parameters():
        p.grad.clamp_(-0.001, 0.001)


def by_hand_through_data(model):
    for p in model.parameters():
        p.grad.data.clamp_(-0.001, 0.001)


def by_another_tensor(model):
    for p in model.parameters():
        p.grad = p.grad / 2


@pytest.mark.parametrize("clip", [by_norm, by_value, by_hand, by_hand_through_data, by_another_tensor])
@pytest.mark.parametrize("record", ["all", "norms"])
def test_both_sides_of_a_clip_are_there(clip, record):
    model, before, after = net(), [], []
    optimizer = sgd(model)

    def between(_):
        before.append(norms(model))
        clip(model)
        after.append(norms(model))

    with gv.watch(model, optimizer, record=record) as w:
        plain(model, optimizer, 6, between)
    np.testing.assert_allclose(w.history.norms.to_numpy(), before, rtol=1e-6)
    np.testing.assert_allclose(w.history.wide("norm", stage="clipped").to_numpy(), after, rtol=1e-6)


def test_a_gradient_that_is_made_sparse_before_the_step_is_the_one_that_the_optimizer_gets():
    model = net()
    optimizer = sgd(model)

    def between(_: int) -> None:
        p = next(model.parameters())
        p.grad = (p.grad / 2).to_sparse()

    with gv.watch(model, optimizer) as w:
        plain(model, optimizer, 3, between)
    halved, *others = w.history.norms.columns
    clipped = w.history.wide("norm", stage="clipped")
    np.testing.assert_allclose(clipped[halved] / w.history.norms[halved], [0.5] * 3, rtol=1e-6)
    np.testing.assert_allclose(clipped[others], w.history.norms[others], rtol=1e-6)


def test_a_clip_that_changes_nothing_is_no_stage():
    model = net()
    optimizer = sgd(model)
    with gv.watch(model, optimizer) as w:
        plain(model, optimizer, 6, lambda _: nn.utils.clip_grad_norm_(model.parameters(), 1e6))
    assert set(w.history.gradients["stage"]) == {"backward"}


@pytest.mark.parametrize("write", ["counted", "uncounted"])
def test_a_clip_that_comes_late_is_there_from_its_first_iteration(write):
    model = net()
    optimizer = sgd(model)

    def halve(iteration):
        for p in model.parameters() if iteration >= 5 else ():
            (p.grad if write == "counted" else p.grad.data).mul_(0.5)

    with gv.watch(model, optimizer) as w:
        plain(model, optimizer, 9, halve)
    clipped = w.history.gradients.query("stage == 'clipped'")
    assert sorted(set(clipped["iteration"])) == [5, 6, 7, 8]
    ratio = w.history.wide("norm", stage="clipped").loc[5:] / w.history.norms.loc[5:]
    np.testing.assert_allclose(ratio, 0.5, rtol=1e-6)


def test_stages_that_are_not_asked_for_are_not_there():
    model = net()
    optimizer = sgd(model)
    with gv.watch(model, optimizer, stages=["backward"]) as w:
        plain(model, optimizer, 2, lambda _: by_norm(model))
    assert set(w.history.gradients["stage"]) == {"backward"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_update_is_how_far_the_parameter_moved_beside_what_it_was(dtype):
    model = nn.Linear(1, 1, bias=False, dtype=dtype)
    nn.init.constant_(model.weight, 8.0)
    optimizer = sgd(model, lr=0.25)
    with gv.watch(model, optimizer, stages=["backward", "clipped", "update"]) as w:
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.ones(1, 1, dtype=dtype)).sum().backward()
            optimizer.step()
    assert w.history.wide("mean", stage="update")["weight"].tolist() == [-0.25, -0.25]
    assert w.history.wide("norm", stage="weight")["weight"].tolist() == [8.0, 7.75]
    assert w.history.update_ratios["weight"].tolist() == [0.25 / 8, 0.25 / 7.75]


def test_gradients_that_are_assigned_by_hand_are_seen_too():
    model = net()
    optimizer = sgd(model)
    truth = []
    with gv.watch(model, optimizer) as w:
        for iteration in range(3):
            parameters = list(model.parameters())
            loss = model(inputs(iteration)).square().mean()
            for p, g in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
                p.grad = g
            truth.append(norms(model))
            optimizer.step()
    np.testing.assert_allclose(w.history.norms.to_numpy(), truth, rtol=1e-6)
    assert set(w.history.gradients["stage"]) == {"backward"}


# Optimizers ---------------------------------------------------------------------------------------------------------


@pytest.mark.case("L10")
def test_an_lbfgs_step_is_one_row_of_its_first_evaluation():
    model, first = net(), []
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)
    calls = []
    with gv.watch(model, optimizer) as w:
        for iteration in range(3):
            calls.append(0)

            def closure(iteration=iteration):
                optimizer.zero_grad()
                loss = model(inputs(iteration)).square().mean()
                loss.backward()
                calls[-1] += 1
                if calls[-1] == 1:
                    first.append(norms(model))
                return loss

            optimizer.step(closure)
    np.testing.assert_allclose(w.history.norms.to_numpy(), first, rtol=1e-6)
    assert w.history.metrics["closure_calls"].tolist() == calls
    assert max(calls) > 1


@pytest.mark.parametrize("by_name", [False, True])
def test_a_closure_that_clips_has_both_stages_and_its_result_comes_back(by_name):
    model = net()
    optimizer = sgd(model)

    def closure():
        optimizer.zero_grad()
        loss = model(inputs(0)).square().mean()
        loss.backward()
        by_norm(model)
        return loss

    with gv.watch(model, optimizer) as w:
        loss = optimizer.step(closure=closure) if by_name else optimizer.step(closure)
    assert loss == net()(inputs(0)).square().mean()
    assert set(w.history.gradients["stage"]) == {"backward", "clipped"}
    assert "closure_calls" not in w.history.metrics


def adversaries():
    g, d = nn.Linear(2, 3), nn.Linear(3, 1)
    return g, d, sgd(g), sgd(d)


@pytest.mark.case("P22")
@pytest.mark.case("P23")
def test_of_two_models_each_step_is_the_one_s_and_the_other_s_gradients_are_not_shown_as_its():
    torch.manual_seed(0)
    g, d, opt_g, opt_d = adversaries()
    noise, truth = torch.randn(4, 2), []
    with gv.watch({"G": g, "D": d}, [opt_g, opt_d]) as w:
        for _ in range(2):
            opt_d.zero_grad()
            d(g(noise).detach()).mean().backward()
            truth.append([math.nan, math.nan, *norms(d)])
            opt_d.step()
            opt_g.zero_grad()
            (-d(g(noise)).mean()).backward()  # which flows through D, and leaves its gradients there
            truth.append([*norms(g), math.nan, math.nan])
            opt_g.step()
    assert w.history.metrics["optimizer"].tolist() == ["D", "G", "D", "G"]
    assert w.history.norms.columns.tolist() == ["G.weight", "G.bias", "D.weight", "D.bias"]
    np.testing.assert_allclose(w.history.norms.to_numpy(), truth, rtol=1e-6)
    states = w.history.wide("state")
    assert states["G.weight"].tolist() == ["not_recorded", "ok"] * 2
    assert states["D.weight"].tolist() == ["ok", "not_recorded"] * 2


@pytest.mark.case("P22")
def test_two_models_of_one_class_have_prefixes_of_their_own_that_stay_the_same():
    names = []
    for _ in range(2):
        first, second = nn.Linear(1, 1), nn.Linear(1, 1)
        with gv.watch({"a": first, "b": second}, sgd(nn.ModuleList([first, second]))) as w:
            pass
        names.append(w.history.parameters.index.tolist())
    assert names == [["a.weight", "a.bias", "b.weight", "b.bias"]] * 2


def test_two_optimizers_in_turn_have_histograms_both():
    models = {"G": nn.Linear(1, 1, bias=False), "D": nn.Linear(1, 1, bias=False)}
    optimizers = [sgd(model) for model in models.values()]
    with gv.watch(models, optimizers, histograms_every=2) as w:
        for _ in range(3):
            for model, optimizer in zip(models.values(), optimizers, strict=True):
                model(torch.ones(1, 1)).sum().backward()
                optimizer.step()
    assert w.history.histograms[["iteration", "parameter"]].drop_duplicates().values.tolist() == [
        [0, "G.weight"], [1, "D.weight"], [4, "G.weight"], [5, "D.weight"]
    ]  # fmt: skip


def test_two_optimizers_of_one_model_go_by_their_places():
    model = net()
    first, second = torch.optim.SGD(model[0].parameters(), lr=0.1), torch.optim.Adam(model[2].parameters())
    with gv.watch(model, [first, second], every=2) as w:
        for iteration in range(4):
            model.zero_grad()
            model(inputs(iteration)).square().mean().backward()
            first.step()
            second.step()
    assert w.history.metrics["optimizer"].tolist() == ["0", "1"] * 4
    states = w.history.wide("state")
    assert states["0.weight"].tolist() == ["ok", *["not_recorded"] * 3] * 2  # every second of its own
    every_second = ["not_recorded", "ok", "not_recorded", "not_recorded"] * 2
    assert states["2.weight"].tolist() == [*every_second[:-1], "ok"]  # and the last of all


# Parameters ---------------------------------------------------------------------------------------------------------


def test_what_is_frozen_unfrozen_and_added_on_the_way_is_followed():
    model = net()
    model[0].weight.requires_grad_(False)
    optimizer = sgd(model)
    with gv.watch(model, optimizer) as w:
        plain(model, optimizer, 1)
        model[0].weight.requires_grad_(True)
        model[2].bias.requires_grad_(False)
        model[2].bias.grad = None
        plain(model, optimizer, 1)
        model.append(nn.Linear(1, 1))
        optimizer.add_param_group({"params": model[3].parameters()})
        plain(model, optimizer, 1)
    states = w.history.wide("state")
    assert states["0.weight"].tolist() == ["frozen", "ok", "ok"]
    assert states["2.bias"].tolist() == ["ok", "frozen", "frozen"]
    assert states["3.weight"].tolist() == ["not_recorded", "not_recorded", "ok"]
    assert w.history.events.values.tolist() == [[1, "frozen", "2.bias", "user"], [1, "unfrozen", "0.weight", "user"]]


def test_a_parameter_in_no_optimizer_is_not_optimized_and_one_that_joins_is_ok_from_then_on():
    model = net()
    optimizer = torch.optim.SGD(model[0].parameters(), lr=0.1)
    with gv.watch(model, optimizer) as w:
        plain(model, optimizer, 1)
        optimizer.add_param_group({"params": model[2].parameters()})
        plain(model, optimizer, 1)
    assert w.history.wide("state")["2.weight"].tolist() == ["not_optimized", "ok"]
    assert w.history.norms["2.weight"].notna().all()


class Experts(nn.Module):
    """One of two experts takes each batch."""

    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList([nn.Linear(3, 1), nn.Linear(3, 1)])

    def forward(self, x, which):
        return self.experts[which](x)


@pytest.mark.parametrize("set_to_none", [True, False])
def test_an_idle_expert_is_unused_and_stays_where_plain_torch_has_it(set_to_none):
    ends, states = [], None
    for is_watched in (False, True):
        torch.manual_seed(0)
        model = Experts()
        optimizer = sgd(model, momentum=0.9, weight_decay=0.1)
        w = gv.watch(model, optimizer) if is_watched else None
        for iteration in range(6):
            optimizer.zero_grad(set_to_none=set_to_none)
            model(inputs(iteration), iteration % 3 == 2).square().mean().backward()
            optimizer.step()
        ends.append([p.detach().clone() for p in model.parameters()])
        if w is not None:
            states = w.history.wide("state")
    assert all(torch.equal(a, b) for a, b in zip(*ends, strict=True))
    assert states["experts.1.weight"].tolist() == ["unused", "unused", "ok"] * 2
    assert states["experts.0.weight"].tolist() == ["ok", "ok", "unused"] * 2


@pytest.mark.case("H08")
@pytest.mark.parametrize("wrap", [torch.compile, nn.DataParallel, lambda m: torch.compile(nn.DataParallel(m))])
def test_wrappers_leave_no_prefix_in_a_name(wrap):
    model = net()
    w = gv.watch(wrap(model), sgd(model))
    assert w.history.parameters.index.tolist() == ["0.weight", "0.bias", "2.weight", "2.bias"]
    w.close()


# What the loop tells ------------------------------------------------------------------------------------------------


def test_without_marks_there_is_no_loss_and_no_epoch_but_the_first():
    model = net()
    optimizer = sgd(model)
    with gv.watch(model, optimizer) as w:
        plain(model, optimizer, 2)
    assert "loss" not in w.history.metrics
    assert w.history.metrics["epoch"].tolist() == [0, 0]


@pytest.mark.parametrize("when", ["before the backward pass", "before the step", "after the step"])
def test_a_mark_is_of_the_step_it_is_meant_for(when):
    model = net()
    optimizer = sgd(model)
    with gv.watch(model, optimizer) as w:
        for iteration in range(4):
            if iteration % 2 == 0:
                w.mark(epoch=iteration // 2)
            optimizer.zero_grad()
            loss = model(inputs(iteration)).square().mean()
            if when == "before the backward pass":
                w.mark(number=iteration)
            loss.backward()
            if when == "before the step":
                w.mark(number=iteration)
            optimizer.step()
            if when == "after the step":
                w.mark(number=iteration)
    assert w.history.metrics["number"].tolist() == [0, 1, 2, 3]
    assert w.history.metrics["epoch"].tolist() == [0, 0, 1, 1]


def test_marks_of_every_micro_batch_are_of_their_own_step():
    model = one_weight()
    optimizer = sgd(model)
    with gv.watch(model, optimizer) as w:
        for i in range(8):
            model(torch.ones(1, 1)).sum().backward()
            if i % 2 == 1:
                optimizer.step()
                optimizer.zero_grad()
            w.mark(loss=float(i))
    assert w.history.metrics["loss"].tolist() == [1.0, 3.0, 5.0, 7.0]


def test_epochs_have_the_means_of_what_was_marked():
    model = net()
    optimizer = sgd(model)
    with gv.watch(model, optimizer) as w:
        for iteration, loss in enumerate([1.0, 2.0, math.nan, 4.0, 6.0]):
            plain(model, optimizer, 1)
            w.mark(epoch=iteration // 3, loss=loss)
    epochs = w.history.epochs
    assert epochs.index.tolist() == [0, 1]
    assert epochs[["loss", "iterations", "nonfinite"]].values.tolist() == [[1.5, 3, 1], [5.0, 2, 0]]


def test_an_optimizer_that_never_steps_is_told_of():
    model = net()
    w = gv.watch(model, sgd(model))
    plain(model, sgd(model), 2)
    with pytest.warns(RecordingWarning, match="2 backward passes came, and no step of the SGD that is watched"):
        w.close()


@pytest.mark.case("H10")
def test_marks_are_numbers_of_any_kind_from_the_moment_they_are_made():
    model = net()
    optimizer = sgd(model)
    with gv.watch(model, optimizer, save_to=None) as w:
        optimizer.zero_grad()
        loss = model(inputs(0)).square().mean()
        loss.backward()
        w.mark(loss=loss, accuracy=np.float32(0.5), good=True, n=torch.tensor(3))
        value = loss.item()
        with torch.no_grad():
            loss.zero_()
        optimizer.step()
        with pytest.raises(HistoryError, match="'dtype' is one number"):
            w.mark(dtype=torch.float32)
    row = w.history.metrics.iloc[0]
    assert row[["accuracy", "good", "n"]].tolist() == [0.5, 1.0, 3.0]
    assert row["loss"] == pytest.approx(value)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"skipped": 1.0}, "column of that name"),
        ({"epoch": 0.5}, "epoch is a whole number"),
        ({"epoch": 1}, "Epochs go up, and 2 was marked before 1"),
        ({"loss": "0.5"}, "one number"),
    ],
)
def test_a_mark_that_cannot_be_is_refused_and_the_rest_stays(values, said):
    model = net()
    optimizer = sgd(model)
    with gv.watch(model, optimizer) as w:
        plain(model, optimizer, 1)
        w.mark(epoch=2, loss=0.5)
        with pytest.raises(HistoryError, match=said):
            w.mark(**values)
    assert w.history.metrics[["epoch", "loss"]].values.tolist() == [[2.0, 0.5]]


def test_a_row_that_was_read_is_finished_and_a_later_mark_says_so_once():
    model = net()
    optimizer = sgd(model)
    w = gv.watch(model, optimizer)
    plain(model, optimizer, 1)
    assert len(w.history) == 1
    with pytest.warns(RecordingWarning, match="loss of iteration 0 came after its row was read"):
        w.mark(loss=0.5)
    w.mark(loss=0.5)
    plain(model, optimizer, 1)
    w.mark(loss=0.25)
    assert w.history.metrics["loss"].tolist()[1] == 0.25
    w.close()


# Its life -----------------------------------------------------------------------------------------------------------


def hooks_of(model, optimizer):
    own = [p._post_accumulate_grad_hooks for p in model.parameters()]
    return [held for held in (*own, optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks) if held]


@pytest.mark.parametrize("how", ["close", "with", "error", "Ctrl-C"])
def test_afterwards_no_hook_is_left_and_every_row_is_there(how):
    model = net()
    optimizer = sgd(model)
    before = vars(torch.amp.GradScaler).copy()
    w = gv.watch(model, optimizer)
    assert hooks_of(model, optimizer)
    errors = {"error": OSError("the disk is full"), "Ctrl-C": KeyboardInterrupt()}
    try:
        if how == "close":
            plain(model, optimizer, 2)
            w.close()
            w.close()
        else:
            with w:
                plain(model, optimizer, 2)
                if how in errors:
                    raise errors[how]
    except (OSError, KeyboardInterrupt):
        pass
    assert not hooks_of(model, optimizer)
    assert dict(vars(torch.amp.GradScaler)) == dict(before)
    status = {"error": "failed", "Ctrl-C": "interrupted"}.get(how, "completed")
    assert w.history.progress.status == status
    plain(model, optimizer, 1)
    assert len(w.history) == 2
    with pytest.raises(HistoryError, match="closed"):
        w.mark(loss=1.0)


def test_a_cell_that_is_run_again_replaces_its_watch():
    model = net()
    optimizer = sgd(model)
    first = gv.watch(model, optimizer)
    plain(model, optimizer, 2)
    second = gv.watch(model, optimizer)
    plain(model, optimizer, 3)
    assert (len(first.history), len(second.history)) == (2, 3)
    assert len(model[0].weight._post_accumulate_grad_hooks) == 1
    assert first.history.progress.status == "completed"
    second.close()


def test_a_watch_lives_on_without_a_name_and_goes_with_its_model():
    model = net()
    optimizer = sgd(model)
    history = gv.watch(model, optimizer).history
    plain(model, optimizer, 3)
    assert len(history) >= 2  # the last row waits for its loss
    gone = weakref.ref(model), weakref.ref(optimizer)
    del model, optimizer
    gc.collect()
    assert [ref() for ref in gone] == [None, None]


@pytest.mark.case("P20")
def test_the_model_and_the_optimizer_pickle_and_copy_with_nothing_of_it_inside():
    model = net()
    optimizer = sgd(model, momentum=0.9)
    with gv.watch(model, optimizer) as w:
        plain(model, optimizer, 1)
        file = io.BytesIO()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            torch.save(model, file)
            written = [pickle.dumps(model), pickle.dumps(optimizer), file.getvalue()]
            twins = copy.deepcopy(model), copy.deepcopy(optimizer), pickle.loads(written[0])
        assert not any(b"gradviz" in each for each in written)
        plain(twins[0], sgd(twins[0]), 2)
        assert not hooks_of(twins[2], twins[1])
    assert len(w.history) == 1


def test_an_exploding_statistic_never_breaks_the_step_and_the_rows_say_from_when(monkeypatch):
    ends = []
    for is_watched in (False, True):
        model = net()
        optimizer = sgd(model)
        w = gv.watch(model, optimizer) if is_watched else None
        plain(model, optimizer, 2)
        if w is not None:
            broken = "gradviz.recorder.plan.Statistics.__call__"
            monkeypatch.setattr(broken, lambda *_: (_ for _ in ()).throw(RuntimeError("no statistics")))
            with pytest.warns(RecordingWarning, match="no statistics") as said:
                plain(model, optimizer, 3)
            assert len(said) == 1
            assert w.history.wide("state")["0.weight"].tolist() == ["ok"] * 2 + ["not_recorded"] * 3
            w.close()
        else:
            plain(model, optimizer, 3)
        ends.append([p.detach().clone() for p in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*ends, strict=True))


def test_a_dead_listener_never_breaks_the_step(monkeypatch):
    model = net()
    optimizer = sgd(model)
    w = gv.watch(model, optimizer)
    monkeypatch.setattr(w._history, "notify", lambda **_: (_ for _ in ()).throw(RuntimeError("the widget is dead")))
    with pytest.warns(RecordingWarning, match="the widget is dead") as said:
        plain(model, optimizer, 3)
    assert len(said) == 1


def test_every_so_many_iterations_are_recorded_and_the_others_say_so():
    model = net()
    optimizer = sgd(model)
    with gv.watch(model, optimizer, every=3) as w:
        plain(model, optimizer, 7)
    states = w.history.wide("state")["0.weight"]
    assert states.tolist() == [state for i in range(7) for state in [["ok", "not_recorded"][i % 3 > 0]]]
    assert w.history.metrics.index.tolist() == list(range(7))


@pytest.mark.case("W19")
@pytest.mark.parametrize(("is_clipped", "stage"), [(False, "backward"), (True, "clipped")])
def test_the_last_iteration_is_recorded_as_the_others_are(is_clipped, stage):
    def history(every):
        model = net()
        optimizer = torch.optim.Adam(model.parameters())
        with gv.watch(model, optimizer, every=every) as w:
            plain(model, optimizer, 5, lambda _: is_clipped and nn.utils.clip_grad_norm_(model.parameters(), 1e-3))
        return w.history

    some, all_of_them = history(100), history(1)
    norms = some.wide("norm", stage=stage).dropna()
    assert norms.index.tolist() == [0, 4]
    pd.testing.assert_frame_equal(norms, all_of_them.wide("norm", stage=stage).loc[[0, 4]])
    assert set(some.wide("state").loc[4]) == {"not_recorded" if is_clipped else "ok"}


@pytest.mark.parametrize("how", ["cleared", "added to", "scaled by hand", "read before", "rewritten by the optimizer"])
def test_of_a_last_iteration_whose_gradients_are_not_there_as_they_were_nothing_is_said(how):
    model = net()
    options = {"momentum": 0.9, "nesterov": True, "foreach": True} if how == "rewritten by the optimizer" else {}
    optimizer = sgd(model, **options)
    with gv.watch(model, optimizer, every=100) as w:
        plain(model, optimizer, 5)
        if how == "cleared":
            optimizer.zero_grad()
        elif how == "added to":
            model(inputs(0)).sum().backward()
        elif how == "scaled by hand":
            model[0].weight.grad *= 2
        elif how == "read before":
            assert len(w.history) == 5
    assert w.history.wide("state")["0.weight"].tolist() == ["ok", *["not_recorded"] * 4]


def test_a_run_is_saved_and_goes_on(tmp_path):
    model = net()
    optimizer = sgd(model)
    with gv.watch(model, optimizer, save_to=tmp_path / "run") as w:
        plain(model, optimizer, 2)
        w.mark(epoch=2, loss=1.0)
    assert gv.History.open(tmp_path / "run").norms.equals(w.history.norms)
    with pytest.raises(HistoryError, match="if_exists"):
        gv.watch(model, optimizer, save_to=tmp_path / "run")
    assert not hooks_of(model, optimizer)
    with gv.watch(model, optimizer, save_to=tmp_path / "run", if_exists="resume") as w:
        with pytest.raises(HistoryError, match="that this one goes on from has reached epoch 2; got 1"):
            w.mark(epoch=1)
        plain(model, optimizer, 2)
    assert gv.History.open(tmp_path / "run").norms.index.tolist() == [0, 1, 2, 3]
    assert gv.History.open(tmp_path / "run").metrics["epoch"].tolist() == [0, 2, 2, 2]
    with gv.watch(model, optimizer, save_to=tmp_path / "run", if_exists="overwrite") as w:
        plain(model, optimizer, 1)
    assert gv.History.open(tmp_path / "run").norms.index.tolist() == [0]


@pytest.mark.parametrize(("end", "status"), [("", "completed"), ("raise OSError('the disk is full')", "failed")])
def test_a_program_that_ends_without_closing_has_its_last_row_and_how_it_ended(tmp_path, end, status):
    program = f"""
import torch, gradviz as gv
from tests.benchmarks.bench_loop import ROOT
from tests.watching.scenes import net, plain
model = net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
w = gv.watch(model, optimizer, save_to={str(tmp_path / "run")!r})
plain(model, optimizer, 3)
w.mark(loss=0.5)
{end}
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, "disk is full" in done.stderr) == ((0, False) if not end else (1, True))
    history = gv.History.open(tmp_path / "run")
    assert (len(history), history.progress.status) == (3, status)
    assert history.metrics["loss"].tolist()[-1] == 0.5


def test_an_optimizer_that_steps_in_a_hook_as_soon_as_it_has_its_gradient_is_recorded():
    model, truth = net(), []
    optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}

    def step(p):
        truth.append(float(p.grad.norm()))
        optimizers[p].step()
        optimizers[p].zero_grad()

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(step)
    with gv.watch(model, optimizers.values()) as w:
        for iteration in range(2):
            model(inputs(iteration)).square().mean().backward()
    rows = w.history.gradients.query("state == 'ok'")
    np.testing.assert_allclose(rows["norm"], truth, rtol=1e-6)
    assert len(rows) == len(w.history) == 8


def test_a_watch_is_shown_as_a_loop_is():
    model = net()
    optimizer = sgd(model)
    w = gv.watch(model, optimizer)
    plain(model, optimizer, 2)
    assert repr(w) == "Watch of Sequential: 2 iterations (training)"
    assert "2 iterations" in repr(gv.heatmap(w))
    w.close()


# Arguments ----------------------------------------------------------------------------------------------------------


def wrong():
    model = net()
    optimizer = sgd(model)
    yield ModelError, "gv.watch\\(model, optimizer\\)", (optimizer, model), {}
    yield ModelError, "no model", ({}, optimizer), {}
    yield ModelError, "goes by a name", ({"": model}, optimizer), {}
    yield OptimizerError, "or a list of them", (model, "adam"), {}
    yield OptimizerError, "no optimizer", (model, []), {}
    yield OptimizerError, "twice", (model, [optimizer, optimizer]), {}
    yield OptimizerError, "a torch.optim.Optimizer each", (model, [model]), {}
    yield OptimizerError, "holds no parameter of the model", (model, sgd(net())), {}
    yield TypeError, "scaler is a torch.amp.GradScaler", (model, optimizer), {"scaler": 65536}
    yield UnknownKeywordError, "every", (model, optimizer), {"evry": 2}
    yield ValueError, 'record is "all"', (model, optimizer), {"record": "norm"}
    yield ValueError, "every is a whole number from 1", (model, optimizer), {"every": 0}
    yield ValueError, "did you mean 'clipped'", (model, optimizer), {"stages": ["backward", "clip"]}
    yield ValueError, "is recorded in any case", (model, optimizer), {"stages": ["update"]}
    yield TypeError, "stages is a list", (model, optimizer), {"stages": "update"}
    yield ValueError, "budget is a share", (model, optimizer), {"budget": -0.05}


@pytest.mark.parametrize(("error", "said", "args", "options"), list(wrong()))
def test_bad_input_is_refused_before_anything_was_hooked(error, said, args, options):
    with pytest.raises(error, match=said):
        gv.watch(*args, **options)
    for model in [each for each in args if isinstance(each, nn.Module)]:
        assert all(p._post_accumulate_grad_hooks is None for p in model.parameters())


def test_parameters_of_no_watched_model_are_told_of():
    model, head = net(), nn.Linear(1, 1)
    optimizer = sgd(nn.ModuleList([model, head]))
    with pytest.warns(RecordingWarning, match="2 of 6 parameters that belong to no model watched"):
        gv.watch(model, optimizer).close()


def test_a_lazy_model_is_asked_for_one_batch_first():
    model = nn.Sequential(nn.LazyLinear(2))
    with pytest.raises(ModelError, match="Run one batch first"):
        gv.watch(model, torch.optim.SGD(model.parameters(), lr=0.1))
