"""A run ends once a metric no longer improves, with the best values in the model if one likes."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from torch import nn

import gradviz as gv
from gradviz.errors import EventError, MetricError, ModelError

NOISE = torch.Generator().manual_seed(0)
DATA = [(torch.randn(4, 3, generator=NOISE), torch.randn(4, 2, generator=NOISE))] * 2


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def loop_of(values, model: nn.Module | None = None, optimizer="adam", **options) -> gv.Loop:
    """A loop whose metric "m" is one of these numbers in each epoch."""
    loop = gv.trainer(model or net(), "mean_squared_error", optimizer, record=None, **options)
    return loop.metric(lambda prediction, targets: values[loop.state.epoch], "m")


def snapshots(loop: gv.Loop) -> list[dict[str, torch.Tensor]]:
    """The model's tensors, and the optimizer's in place of 16-bit ones, at the end of every epoch."""
    taken = []
    loop.handle_event("epoch_completed", lambda state: taken.append(everything(loop)))
    return taken


def everything(loop: gv.Loop) -> dict[str, torch.Tensor]:
    step = loop._step
    masters = {f"master of {name}": step.masters.of(p) for name, p in step.model_state.parameters.items()}
    return {name: tensor.detach().clone() for name, tensor in {**masters, **step.model_state}.items()}


def same(ours, theirs) -> bool:
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.case("axon-P3")
@pytest.mark.parametrize(("mode", "values"), [("min", [1, 2, 3, 4, 5]), ("max", [5, 4, 3, 2, 1])])
def test_a_metric_that_only_worsens_ends_the_run_after_patience_and_one_more(mode, values):
    state = loop_of(values).early_stop("m", mode=mode, patience=2).run(DATA, epochs=5)
    assert (state.status, state.epoch) == ("halted", 4)  # the number of epochs run, counted afterwards
    assert state.metrics["m"] == values[3]
    assert state.event_counts["epoch_completed"] == 4


@pytest.mark.case("L18")
def test_patience_is_the_number_of_epochs_that_are_borne_on_a_plateau():
    for patience in (0, 1, 2):
        state = loop_of([2, 1, 1, 1, 1, 1]).early_stop("m", patience=patience).run(DATA, epochs=6)
        assert state.epoch == 2 + patience + 1


def test_a_metric_that_is_nan_from_the_start_ends_the_run():
    assert loop_of([math.nan] * 5).early_stop("m", patience=1).run(DATA, epochs=5).epoch == 2


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("params", [None, "bfloat16"])
@pytest.mark.parametrize(("values", "end", "best"), [([3, 1, 2, 2, 2], "halted", 1), ([3, 2, 1, 2, 2], "completed", 2)])
def test_the_best_parameters_buffers_and_float32_copies_are_put_back_at_the_end(values, end, best, params, in_place):
    policy = params and gv.Policy(params=params, compute=params)
    loop = loop_of([*values, 9], policy=policy)
    taken = snapshots(loop)
    loop.early_stop("m", patience=2, restore_best=True)
    seen = []
    loop.handle_event(end, lambda state: seen.append(everything(loop)))
    before = everything(loop)
    state = loop.run(DATA, epochs=5, in_place=in_place, display=None)
    assert (state.status, len(taken)) == (end, 5)
    assert same(seen[0], taken[best])
    assert not same(taken[-1], taken[best])
    trained = dict(state.step_state["model_state"])
    assert same(trained, {name: taken[best][name] for name in trained})
    module = dict(loop._step.model_state)
    assert same(module, {name: (taken[best] if in_place else before)[name] for name in module})
    loop.handle_event("epoch_started", lambda state: seen.append(everything(loop)), once=6)
    loop.run(DATA, in_place=in_place, display=None)
    assert same(seen[1], taken[best])


def streamed(loop):
    for _ in loop.stream(DATA, epochs=5):
        pass


def in_the_background(loop):
    loop.start(DATA, epochs=5)
    loop.wait(60)


@pytest.mark.parametrize("way", [streamed, in_the_background])
def test_it_stops_and_restores_however_the_loop_is_run(way):
    loop = loop_of([2, 1, 1, 1, 1])
    taken = snapshots(loop)
    way(loop.early_stop("m", patience=1, restore_best=True))
    assert (loop.state.status, loop.state.epoch) == ("halted", 4)
    assert same(everything(loop), taken[1])


def test_the_state_and_the_last_word_say_which_epoch_is_back(capsys, tmp_path):
    seen = []
    loop = loop_of([3, 1, 2, 2, 0, 5, 5]).early_stop("m", patience=1, restore_best=True).checkpoint(tmp_path)
    loop.handle_event(["epoch_started", "halted", "completed"], lambda state: seen.append(state.restored_epoch))
    state = loop.run(DATA, epochs=9)
    assert (state.status, state.restored_epoch, state.metrics["m"]) == ("halted", 1, 2)
    assert loop.history.progress.message == "the model is that of epoch 2 of 9 again"
    assert capsys.readouterr().err.splitlines()[-1] == "the model is that of epoch 2 of 9 again"
    assert loop.run(DATA).restored_epoch == 4
    assert seen == [None, None, None, None, 1, None, 4]
    again = loop_of([9] * 9).early_stop("m", restore_best=True).resume(tmp_path)
    assert again.run(DATA).restored_epoch == 4
    assert loop_of([1]).early_stop("m").run(DATA).restored_epoch is None


def test_a_model_that_is_lost_in_an_epoch_with_a_better_mean_is_not_the_best(tmp_path):
    """The mean leaves out what is NaN, and the first batches of that epoch were the best so far."""

    def lose(state):
        if state.epoch == 2:
            with torch.no_grad():
                model[0].bias[0] = math.nan

    model = net()
    loop = gv.trainer(model, "mean_squared_error", "sgd", record=None)
    loop.handle_event("iteration_completed", lose)
    taken = snapshots(loop)
    loop.early_stop("loss", patience=1, restore_best=True).checkpoint(tmp_path, best="loss").run(DATA, epochs=9)
    losses = loop.history.epochs["loss"]
    assert losses[2] < losses[1] < losses[0]
    assert math.isnan(losses[3])
    assert (loop.state.status, loop.state.epoch, loop.state.restored_epoch) == ("halted", 4, 1)
    assert same(everything(loop), taken[1])
    best = torch.load(tmp_path / "checkpoints" / "best.pt")
    assert best["state"]["epoch"] == 2
    assert same(best["model"], {name: taken[1][name] for name in best["model"]})


def test_without_restore_best_the_last_values_stay():
    loop = loop_of([1, 2, 3, 4])
    taken = snapshots(loop)
    loop.early_stop("m", patience=2).run(DATA, epochs=4)
    assert same(everything(loop), taken[-1])


def test_an_error_or_a_metric_that_was_never_good_leaves_the_model_as_it_was_then():
    loop = loop_of([math.nan] * 3)
    taken = snapshots(loop)
    loop.early_stop("m", restore_best=True).run(DATA, epochs=2)
    assert same(everything(loop), taken[-1])
    loop = loop_of([1, 2, 3])
    taken = snapshots(loop)
    loop.early_stop("m", restore_best=True)
    loop.handle_event("epoch_completed", lambda state: 1 / 0, once=2)
    with pytest.raises(ZeroDivisionError):
        loop.run(DATA, epochs=3)
    assert same(everything(loop), taken[-1])


def test_a_copy_is_no_view_of_what_trains_on_and_frozen_parameters_are_in_it():
    model = net()
    gv.ModelState(model).freeze("0")
    loop = loop_of([1, 2, 2], model)
    taken = snapshots(loop)
    loop.early_stop("m", restore_best=True).run(DATA, epochs=3)
    assert same(everything(loop), taken[0])
    assert not same(taken[0], taken[1])


def test_a_model_that_has_changed_since_its_best_is_refused_as_a_whole():
    model = net()
    loop = loop_of([1, 2], model).early_stop("m", restore_best=True)
    loop.handle_event("epoch_completed", lambda state: model.append(nn.BatchNorm1d(2)) and None, once=2)
    with pytest.raises(ModelError, match=r"early_stop\(m\) cannot put the best values back: '3\."):
        loop.run(DATA, epochs=2)


def test_several_of_them_share_no_memory():
    loop = loop_of([5, 4, 3, 2, 1]).metric(lambda p, t: float(loop.state.epoch == 1), "other")
    loop.early_stop("m", patience=0).early_stop("other", mode="max", patience=1)
    state = loop.run(DATA, epochs=5)
    assert (state.epoch, state.status) == (4, "halted")


@pytest.mark.case("N07")
def test_the_same_metric_once_more_takes_the_place_of_the_earlier_and_knows_what_it_has_seen():
    loop = loop_of([1, 2, 3, 4, 5, 6, 7]).early_stop("m", patience=0)
    loop.early_stop("m", patience=1, restore_best=True).early_stop("m", patience=4, restore_best=True)
    taken = snapshots(loop)
    loop.run(DATA, epochs=4)
    assert (loop.state.status, loop.state.epoch) == ("completed", 4)
    assert same(everything(loop), taken[0])
    state = loop.early_stop("m", patience=4, restore_best=True).run(DATA, epochs=3)
    assert (state.status, state.epoch) == ("halted", 6)
    assert same(everything(loop), taken[0])
    assert len(loop._training.handlers.state_dict()) == 1


def test_it_listens_within_an_epoch_too_and_not_when_the_run_is_over():
    state = loop_of([1]).early_stop("m", patience=2, event="iteration_completed").run(DATA * 5)
    assert (state.status, state.iteration) == ("halted", 4)
    with pytest.raises(EventError, match="At 'completed' the run is over, and there is nothing left to stop"):
        loop_of([1]).early_stop("m", event="completed")


def test_it_works_with_an_optimizer_of_the_user_s_and_a_validation():
    model = net()
    loop = loop_of([1] * 9, model, torch.optim.SGD(model.parameters(), lr=0.1)).validate(DATA)
    loop.early_stop("validation_loss", patience=0, mode="max", restore_best=True)
    state = loop.run(DATA, epochs=9)
    found = loop.history.epochs["validation_loss"]
    assert (state.status, state.epoch) == ("halted", 2)
    assert found[0] > found[1]
    evaluated = gv.evaluator(model, "mean_squared_error").run(DATA).metrics["loss"]
    assert float(evaluated) == pytest.approx(found[0])


def test_a_metric_that_is_not_there_is_an_error():
    with pytest.raises(MetricError, match="No metric is called 'accuracy', which early_stop follows: known: loss, m"):
        loop_of([1], optimizer=partial(torch.optim.SGD, lr=0.1)).early_stop("accuracy").run(DATA)
