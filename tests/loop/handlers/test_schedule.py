"""Any of torch's schedulers steps at an event, on the optimizer that the loop trains with."""

from __future__ import annotations

import io
import math
import warnings
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import lr_scheduler as torch_s

import gradviz as gv
from gradviz.errors import EventError, ScheduleError

NOISE = torch.Generator().manual_seed(0)
DATA = [(torch.randn(4, 3, generator=NOISE), torch.randn(4, 2, generator=NOISE))] * 2
SGD = partial(torch.optim.SGD, lr=1.0)

KINDS = {
    "LambdaLR": partial(torch_s.LambdaLR, lr_lambda=lambda epoch: 0.9**epoch),
    "MultiplicativeLR": partial(torch_s.MultiplicativeLR, lr_lambda=lambda epoch: 0.9),
    "StepLR": partial(torch_s.StepLR, step_size=2),
    "MultiStepLR": partial(torch_s.MultiStepLR, milestones=[2, 4]),
    "ConstantLR": partial(torch_s.ConstantLR, total_iters=3),
    "LinearLR": partial(torch_s.LinearLR, total_iters=4),
    "ExponentialLR": partial(torch_s.ExponentialLR, gamma=0.5),
    "PolynomialLR": partial(torch_s.PolynomialLR, total_iters=4),
    "CosineAnnealingLR": partial(torch_s.CosineAnnealingLR, T_max=4),
    "CosineAnnealingWarmRestarts": partial(torch_s.CosineAnnealingWarmRestarts, T_0=2),
    "CyclicLR": partial(torch_s.CyclicLR, base_lr=0.1, max_lr=1.0, step_size_up=2),
    "OneCycleLR": partial(torch_s.OneCycleLR, max_lr=1.0, total_steps=8),
    "SequentialLR": lambda o: torch_s.SequentialLR(
        o, [torch_s.LinearLR(o, total_iters=2), torch_s.StepLR(o, 2)], milestones=[2]
    ),
    "ChainedScheduler": lambda o: torch_s.ChainedScheduler([torch_s.LinearLR(o), torch_s.StepLR(o, 2)], o),
}


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def loop_of(optimizer=SGD, model: nn.Module | None = None, **options) -> gv.Loop:
    return gv.trainer(model or net(), "mean_squared_error", optimizer, record=None, **options)


def with_rates(loop: gv.Loop) -> tuple[gv.Loop, list[float]]:
    """A list that fills with the learning rate each step was taken with."""
    rates = []
    loop.handle_event("iteration_started", lambda s: rates.append(float(loop._step.optimizer.param_groups[0]["lr"])))
    return loop, rates


def plainly(make, epochs: int, every_iteration: bool = False) -> tuple[nn.Module, list[float]]:
    """The same in a loop of plain torch."""
    model, rates = net(), []
    optimizer = SGD(model.parameters())
    schedule = make(optimizer)
    for _ in range(epochs):
        for inputs, targets in DATA:
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.zero_grad()
            F.mse_loss(model(inputs), targets).backward()
            optimizer.step()
            if every_iteration:
                schedule.step()
        if not every_iteration:
            schedule.step()
    return model, rates


def same(model: nn.Module, other: nn.Module) -> bool:
    return all(map(torch.equal, model.state_dict().values(), other.state_dict().values()))


@pytest.fixture(autouse=True)
def no_warning_of_torch_s():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "The epoch parameter in `scheduler.step", UserWarning)  # torch's own, inside
        yield


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("event", ["epoch_completed", "iteration_completed"])
def test_it_trains_as_plain_torch_with_the_same_scheduler_does_to_the_bit(kind, event):
    is_each = event == "iteration_completed"
    theirs, expected = plainly(KINDS[kind], 3, is_each)
    ours = net()
    loop, rates = with_rates(loop_of(model=ours))
    loop.lr_schedule(KINDS[kind], event=event).run(DATA, epochs=3)
    assert rates == expected
    assert same(ours, theirs)


@pytest.mark.parametrize("kind", KINDS)
def test_what_it_remembers_is_readable_by_the_safe_default_and_a_resumed_run_is_the_same(kind):
    straight, expected = with_rates(loop_of())
    straight.lr_schedule(KINDS[kind]).run(DATA, epochs=6)
    first, rates = with_rates(loop_of())
    first.lr_schedule(KINDS[kind]).run(DATA, epochs=3)
    file = io.BytesIO()
    torch.save([first._training.handlers.state_dict(), first._step.optimizer.state_dict()], file)
    file.seek(0)
    handlers, optimizer = torch.load(file)
    again, later = with_rates(loop_of())
    again.lr_schedule(KINDS[kind])
    again._step.optimizer.load_state_dict(optimizer)
    assert again._training.handlers.load_state_dict(handlers) == []
    again.run(DATA, epochs=3)
    assert rates + later == expected


@pytest.mark.parametrize("optimizer", ["sgd", SGD, partial(torch.optim.LBFGS, lr=1.0, max_iter=1)])
@pytest.mark.parametrize("options", [{}, {"in_place": False}, {"policy": gv.Policy(params="bfloat16")}])
def test_optimizers_by_name_and_factory_apart_from_the_model_and_in_16_bits(optimizer, options):
    run = {key: options[key] for key in options if key == "in_place"}
    loop, rates = with_rates(loop_of(optimizer, **{key: options[key] for key in options if key != "in_place"}))
    loop.lr_schedule(partial(torch_s.ExponentialLR, gamma=0.5))
    data = [(x.bfloat16(), y.bfloat16()) for x, y in DATA] if "policy" in options else DATA
    for _ in range(2):
        loop.run(data, epochs=2, **run)
    first = rates[0]
    assert rates == [first * 0.5**epoch for epoch in range(4) for _ in DATA]


def test_a_scheduler_of_the_user_s_own_optimizer():
    model = net()
    optimizer = SGD(model.parameters())
    loop, rates = with_rates(loop_of(optimizer, model))
    loop.lr_schedule(torch_s.StepLR(optimizer, 1, gamma=0.5)).run(DATA, epochs=3)
    assert rates == [1, 1, 0.5, 0.5, 0.25, 0.25]


def test_filters_say_when_it_steps_and_different_kinds_act_together():
    loop, rates = with_rates(loop_of())
    loop.lr_schedule(partial(torch_s.ExponentialLR, gamma=0.5), every=2)
    loop.run(DATA, epochs=4)
    assert rates[::2] == [1, 0.5, 0.5, 0.25]
    loop, rates = with_rates(loop_of())
    loop.lr_schedule(partial(torch_s.LinearLR, start_factor=0.25, total_iters=3), event="iteration_completed")
    loop.lr_schedule(partial(torch_s.ExponentialLR, gamma=0.5))
    loop.run(DATA * 3, epochs=2)
    assert rates == pytest.approx([0.25, 0.5, 0.75, 1, 1, 1] + [0.5] * 6)


@pytest.mark.parametrize("event", ["epoch_completed", "iteration_completed"])
def test_skipped_steps_count_and_nothing_is_warned_of_also_where_all_of_an_epoch_were(event):
    bad = [(x, torch.full_like(y, math.inf)) for x, y in DATA]
    loop, rates = with_rates(loop_of(loss_scale="dynamic"))
    loop.lr_schedule(partial(torch_s.ExponentialLR, gamma=0.5), event=event)
    loop.run(lambda epoch: DATA if epoch else bad, epochs=2)
    assert loop.history.metrics["skipped"].tolist() == [True, True, False, False]
    assert rates == {"epoch_completed": [1, 1, 0.5, 0.5], "iteration_completed": [1, 0.5, 0.25, 0.125]}[event]


def test_a_step_before_the_first_training_step_is_as_torch_has_it():
    loop, rates = with_rates(loop_of())
    loop.lr_schedule(partial(torch_s.ExponentialLR, gamma=0.5), event="epoch_started")
    with pytest.warns(UserWarning, match="before `optimizer.step"):
        loop.run(DATA, epochs=2)
    assert rates == [0.5, 0.5, 0.25, 0.25]


def test_what_is_no_schedule_or_one_of_something_else_is_refused():
    model = net()
    others = SGD(model.parameters())
    for make, words in (
        (torch_s.StepLR(others, 2), r"The StepLR sets the learning rate of another SGD than the SGD .*partial\(torch"),
        (lambda optimizer: torch_s.StepLR(others, 2), "The StepLR sets the learning rate of another SGD"),
        ("step", r"A schedule is a torch.optim.lr_scheduler, or a factory of one; got a str. Write functools"),
        (None, "got None"),
        (lambda optimizer: optimizer, r"The factory of a schedule returned a SGD, not a torch.optim.lr_scheduler"),
        (
            torch_s.StepLR,
            r"missing a required argument: 'step_size'\. Write .*lr_scheduler\.StepLR, step_size=\.\.\.\)",
        ),
        (partial(torch_s.CyclicLR, base_lr=0.1), r"CyclicLR, max_lr=\.\.\.\)"),
        (
            lambda: None,
            r"too many positional arguments\. Write functools\.partial\(torch\.optim\.lr_scheduler\.StepLR, ",
        ),
        (torch.optim.SGD, "got the class SGD. Write functools.partial"),
        (torch_s.ReduceLROnPlateau, r"follows a metric. Write loop.reduce_lr_on_plateau\("),
    ):
        loop = loop_of()
        with pytest.raises(ScheduleError, match=words):
            loop.lr_schedule(make)
        assert loop._training.handlers.state_dict() == {}
    with pytest.raises(ZeroDivisionError) as error:
        loop_of().lr_schedule(lambda optimizer: 1 / 0)
    assert error.value.__notes__ == ["In the factory of a schedule, which is given the SGD."]
    with pytest.raises(EventError, match="No event is called 'epoch'"):
        loop_of().lr_schedule(KINDS["StepLR"], event="epoch")


@pytest.mark.case("N07")
def test_a_cell_that_is_run_again_goes_on_and_an_edited_one_takes_the_place():
    cell = "loop.lr_schedule(partial(torch_s.LambdaLR, lr_lambda=halve))\n"
    cell += "loop.lr_schedule(partial(torch_s.MultiStepLR, milestones=[3, 4], gamma={}))"
    loop, rates = with_rates(loop_of())
    for gamma in (0.1, 0.1, 0.1, 0.25):
        names = {"__name__": "__main__", "loop": loop, "partial": partial, "torch_s": torch_s, "halve": halve}
        exec(cell.format(float(str(gamma))), names)
        loop.run(DATA[:1])
    assert rates == pytest.approx([1, 0.5, 0.25, 0.125 * 0.1])
    assert len(loop._training.handlers.state_dict()) == 2


def halve(epoch: int) -> float:
    return 0.5**epoch


def test_several_events_step_one_scheduler():
    loop, rates = with_rates(loop_of())
    loop.lr_schedule(partial(torch_s.ExponentialLR, gamma=0.5), event=["iteration_completed", "epoch_completed"])
    loop.run(DATA, epochs=2)
    assert rates == [1, 0.5, 0.125, 0.0625]
    assert len(loop._training.handlers.state_dict()) == 1
