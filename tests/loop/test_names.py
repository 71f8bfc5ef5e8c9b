"""What goes by a metric that will not be there is refused before anything moves."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn

import gradviz as gv
from gradviz.errors import MetricError

DATA = [(torch.ones(2, 1), torch.zeros(2, 1))] * 2


def loop_of(**options) -> gv.Loop:
    options = {"record": None, "log": 0, **options}
    return gv.trainer(nn.Linear(1, 1), "mean_squared_error", partial(torch.optim.SGD, lr=0.1), **options)


def refused(loop: gv.Loop, words: str) -> None:
    weight = loop._step.model.weight.clone()
    for run in (loop.run, loop.start):
        with pytest.raises(MetricError, match=words):
            run(DATA)
    assert torch.equal(loop._step.model.weight, weight)
    assert (len(loop.history), loop.state.event_counts["started"]) == (0, 0)


FOLLOWERS = {
    "early_stop": lambda loop, metric, **options: loop.early_stop(metric, **options),
    "monitor": lambda loop, metric, **options: loop.monitor(metric, lambda state: None, **options),
    "reduce_lr_on_plateau": lambda loop, metric, **options: loop.reduce_lr_on_plateau(metric, **options),
}


@pytest.mark.parametrize("name", FOLLOWERS)
@pytest.mark.parametrize("on_error", ["raise", "warn"])
def test_a_misspelt_metric_is_told_before_anything_moves(name, on_error):
    follow = FOLLOWERS[name]
    loop = follow(loop_of(on_error=on_error).validate(DATA), "validation_los")
    refused(loop, f"called 'validation_los', which {name} follows: did you mean 'validation_loss'")
    follow(loop_of(), "loss").run(DATA)


def test_a_checkpoint_s_best_is_looked_up_too(tmp_path):
    refused(loop_of().checkpoint(tmp_path, best="acuracy").metric("mean_absolute_error"), "which checkpoint follows")
    loop = loop_of().checkpoint(tmp_path, best="validation_loss").validate(DATA)
    assert loop.run(DATA).status == "completed", "it comes last, whenever it was attached"


def test_metrics_and_validations_may_be_attached_after_what_follows_them():
    loop = loop_of().early_stop("mean_absolute_error").monitor("validation_loss", print, event="epoch_completed")
    refused(loop, "'mean_absolute_error', which early_stop follows: known: loss")
    loop.metric("mean_absolute_error").validate(DATA, event="iteration_completed")
    assert loop.run(DATA).status == "completed"


@pytest.mark.parametrize("name", FOLLOWERS)
def test_a_result_of_a_validation_that_is_not_there_or_comes_later_names_the_line_to_write(name):
    follow = FOLLOWERS[name]
    refused(follow(loop_of(), "validation_loss"), rf"no validation\. Write loop\.validate\(data\)\.{name}")
    refused(follow(loop_of(), "validation_loss").validate(DATA), "called before the validation whose result that is")
    early = follow(loop_of().validate(DATA), "validation_loss", event="iteration_completed")
    refused(early, "called before the validation whose result that is")


def test_what_a_validation_leaves_out_is_not_among_its_results():
    loop = loop_of(keep_gradients=True).metric(gv.norm, "norm", fields=["gradients"]).validate(DATA)
    refused(loop.early_stop("validation_norm"), "'validation_norm', which early_stop follows")


@pytest.mark.parametrize(
    ("event", "where"),
    [
        ("epoch_completed", "epoch_completed"),
        ("iteration_completed", "iteration_completed"),
        ("iteration_completed", "iteration_started"),
        ("epoch_completed", "completed"),
    ],
)
def test_a_function_of_the_user_s_may_add_a_metric(event, where):
    def add(state):
        state.metrics = state.metrics | {"own": 1.0}

    seen = []
    loop = loop_of().handle_event(event, add)
    loop.monitor("own", lambda state: seen.append(state.metrics["own"]), patience=0, event=where, when=at_second)
    loop.run(DATA, epochs=3)
    assert set(seen) <= {1.0}
    elsewhere = loop_of().handle_event("epoch_started", add).monitor("own", print, event=where)
    if where in ("epoch_completed", "iteration_completed"):
        refused(elsewhere, "'own', which monitor follows")


def at_second(state) -> bool:
    return state.epoch_iteration > 0
