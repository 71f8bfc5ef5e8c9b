"""The learning rate of every group is reduced once a metric no longer improves."""

from __future__ import annotations

import io
import math
from functools import partial

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import ExponentialLR, LambdaLR, LinearLR

import gradviz as gv
from gradviz.errors import MetricError, ScheduleError, ScheduleWarning

DATA = [(torch.ones(2, 1), torch.ones(2, 1))]
SGD = partial(torch.optim.SGD, lr=10.0)


def loop_of(values, optimizer=SGD, model: nn.Module | None = None, **options) -> gv.Loop:
    """A loop whose metric "m" is one of these numbers in each epoch."""
    loop = gv.trainer(model or nn.Linear(1, 1), lambda p, t: (p * 0).sum(), optimizer, record=None, **options)
    return loop.metric(lambda prediction, targets: values[loop.state.epoch], "m")


def rates(loop: gv.Loop, epochs: int, **options) -> list[float]:
    """The first group's learning rate at the end of every epoch."""
    seen = []

    def note(state):
        seen.append(float(loop._step.optimizer.param_groups[0]["lr"]))

    loop.handle_event("epoch_completed", note).run(DATA, epochs=epochs, **options)
    return seen


@pytest.mark.case("axon-P4")
@pytest.mark.parametrize("in_place", [True, False])
def test_it_is_multiplied_after_patience_and_one_more_and_again(in_place):
    loop = loop_of(range(7)).reduce_lr_on_plateau("m", factor=0.5, patience=2)
    assert rates(loop, 7, in_place=in_place) == [10, 10, 10, 5, 5, 5, 2.5]


@pytest.mark.case("axon-P5")
def test_the_best_is_kept_as_torch_keeps_it():
    loop = loop_of([1, 5, 5, 4, 3]).reduce_lr_on_plateau("m", factor=0.5, patience=1)
    assert rates(loop, 5) == [10, 10, 5, 5, 2.5]


def test_every_group_is_reduced_and_none_below_the_least():
    model = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1))
    groups = [{"params": model[0].parameters(), "lr": 8.0}, {"params": model[1].parameters()}]
    optimizer = torch.optim.SGD(groups, lr=1.0)
    loop = loop_of(range(9), optimizer, model).reduce_lr_on_plateau("m", factor=0.25, patience=0, min_lr=0.5)
    loop.run(DATA, epochs=4)
    assert [group["lr"] for group in optimizer.param_groups] == [0.5, 0.5]


def test_after_a_reduction_nothing_counts_for_a_while_and_small_gains_may_be_none():
    loop = loop_of(range(9)).reduce_lr_on_plateau("m", factor=0.5, patience=0, cooldown=2)
    assert rates(loop, 6) == [10, 5, 5, 5, 2.5, 2.5]
    loop = loop_of([1.0, 0.9, 0.8, 0.7]).reduce_lr_on_plateau("m", factor=0.5, patience=0, min_delta=0.5)
    assert rates(loop, 4) == [10, 5, 2.5, 1.25]
    loop = loop_of([1, 2, 3, 3]).reduce_lr_on_plateau("m", factor=0.5, patience=0, mode="max")
    assert rates(loop, 4) == [10, 10, 10, 5]
    loop = loop_of([math.nan, math.nan, 1, 2]).reduce_lr_on_plateau("m", factor=0.5, patience=0)
    assert rates(loop, 4) == [5, 2.5, 2.5, 1.25]


def test_a_small_learning_rate_is_reduced_too():
    loop = loop_of(range(3), partial(torch.optim.SGD, lr=1e-9)).reduce_lr_on_plateau("m", factor=0.5, patience=0)
    assert rates(loop, 2) == [1e-9, 5e-10]


def test_learning_rates_may_be_tensors_and_optimizers_any():
    for make in (partial(torch.optim.Adam, lr=torch.tensor(4.0)), partial(torch.optim.LBFGS, lr=4.0)):
        loop = loop_of(range(3), make).reduce_lr_on_plateau("m", factor=0.5, patience=0)
        assert rates(loop, 3) == [4, 2, 1]


def test_an_optimizer_without_a_learning_rate_is_refused():
    class Signs(torch.optim.Optimizer):
        def __init__(self, params):
            super().__init__(params, {})

        def step(self, closure=None): ...

    with pytest.raises(ScheduleError, match="The Signs has no learning rate that could change"):
        loop_of([1], Signs).reduce_lr_on_plateau("m")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"factor": 1}, "factor is a number between 0 and 1; got 1"),
        ({"factor": 0}, "factor is a number between 0 and 1; got 0"),
        ({"factor": "half"}, "factor is a number from 0 on; got 'half'"),
        ({"cooldown": -1}, "cooldown is a whole number from 0 on"),
        ({"min_lr": -1.0}, "min_lr is a number from 0 on"),
        ({"patience": 0.5}, "patience is a whole number"),
        ({"mode": "most"}, 'mode is "min" or "max"'),
    ],
)
def test_options_that_are_none_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        loop_of([1]).reduce_lr_on_plateau("m", **options)


def test_a_metric_that_is_not_there_is_an_error():
    with pytest.raises(
        MetricError, match="No metric is called 'n', which reduce_lr_on_plateau follows: known: loss, m"
    ):
        loop_of([1]).reduce_lr_on_plateau("n").run(DATA)


def test_a_schedule_that_undoes_reductions_is_named_once():
    loop = loop_of(range(6)).reduce_lr_on_plateau("m", factor=0.1, patience=0)
    loop.lr_schedule(partial(LambdaLR, lr_lambda=lambda epoch: 0.99**epoch))
    with pytest.warns(
        ScheduleWarning, match=r"had reduced the learning rate to 0\.99, and .* has set it to 9\.801\."
    ) as said:
        loop.run(DATA, epochs=6)
    assert len(said) == 1


def test_a_schedule_that_goes_on_from_the_reduced_rate_is_fine():
    loop = loop_of(range(6)).lr_schedule(partial(ExponentialLR, gamma=0.5))
    loop.reduce_lr_on_plateau("m", factor=0.1, patience=0)
    assert rates(loop, 3) == pytest.approx([5, 0.25, 0.0125])
    loop = loop_of(range(6)).lr_schedule(partial(LinearLR, start_factor=0.5, total_iters=5))  # it grows, from there
    loop.reduce_lr_on_plateau("m", factor=0.1, patience=0)
    assert rates(loop, 3) == pytest.approx([6, 0.7, 0.08])


@pytest.mark.case("axon-P7")
def test_what_it_has_seen_goes_around_and_a_resumed_run_is_the_same():
    def made():
        return loop_of(range(9)).reduce_lr_on_plateau("m", factor=0.5, patience=2, cooldown=1)

    straight, first, again = made(), made(), made()
    expected = rates(straight, 9)
    assert rates(first, 5) == expected[:5]
    file = io.BytesIO()
    torch.save([first._training.handlers.state_dict(), first._step.optimizer.state_dict()], file)
    file.seek(0)
    handlers, optimizer = torch.load(file)
    assert handlers == {
        "epoch_completed: reduce_lr_on_plateau(m) #0": {
            "best": 0.0,
            "num_bad_epochs": 0,
            "cooldown_counter": 0,
            "last_epoch": 5,
            "rates": [[5.0, 5.0]],
        }
    }
    again.state.epoch = 5
    again._step.optimizer.load_state_dict(optimizer)
    assert again._training.handlers.load_state_dict(handlers) == []
    assert rates(again, 4) == expected[5:]


@pytest.mark.case("N07")
def test_the_same_metric_once_more_takes_the_place_and_knows_what_the_earlier_has_seen():
    loop = loop_of(range(6))
    for factor in (0.1, 0.5, 0.5):
        loop.reduce_lr_on_plateau("m", factor=factor, patience=2)
    assert rates(loop, 3) == [10, 10, 10]
    loop.reduce_lr_on_plateau("m", factor=0.5, patience=2)
    assert rates(loop, 1)[-1] == 5
