"""After each epoch a loop's metrics are taken on other data, under names that say so."""

from __future__ import annotations

import math
import os
import signal

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import gradviz as gv
from gradviz.errors import DataError, EventError, HandlerWarning, MetricWarning

TRAINING = [(torch.tensor([[1.0], [2.0]]), torch.zeros(2, 1))] * 2
VALIDATION = [(torch.tensor([[1.0], [2.0]]), torch.ones(2, 1))]


def scaled(weight: float = 0.4) -> nn.Linear:
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, weight)
    return model


def at_rest(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.0)


def resting_loop(**options) -> gv.Loop:
    model = scaled()
    return gv.trainer(model, "mean_squared_error", at_rest(model), **options)


def objective(forward, model_state, inputs, targets):
    output = forward(model_state, inputs)
    return F.mse_loss(output.prediction, targets) + model_state["weight"].square().sum(), output


@pytest.mark.case("axon-L11")
def test_results_are_there_for_handlers_attached_after_it_and_in_the_history():
    seen = []

    def look(state):
        seen.append({name: value for name, value in state.metrics.items() if name.startswith("validation_")})

    loop = resting_loop().metric("mean_absolute_error", "mae")
    loop.handle_event("epoch_completed", look).validate(VALIDATION)
    loop.handle_event("epoch_completed", lambda state: look(state))
    state = loop.run(TRAINING, epochs=2)
    found = {"validation_loss": pytest.approx(0.2), "validation_mae": pytest.approx(0.4)}
    assert seen == [{}, found, {}, found]
    assert set(state.metrics) == {"loss", "mae", "validation_loss", "validation_mae"}
    epochs = loop.history.epochs
    assert epochs["validation_loss"].tolist() == pytest.approx([0.2, 0.2])
    assert epochs["validation_mae"].tolist() == pytest.approx([0.4, 0.4])
    assert epochs["mae"].tolist() == pytest.approx([0.6, 0.6])
    assert "validation_loss" not in loop.history.metrics


@pytest.mark.case("axon-O8")
def test_an_objective_is_never_called_a_validation_loss():
    model = scaled(2.0)
    loop = gv.trainer(model, objective, at_rest(model)).metric("mean_absolute_error").validate(VALIDATION)
    state = loop.run(TRAINING)
    assert set(state.metrics) == {
        "loss",
        "mean_absolute_error",
        "validation_objective",
        "validation_mean_absolute_error",
    }
    assert state.metrics["validation_objective"] == pytest.approx(9.0)  # (1 + 9) / 2 + 4
    assert state.metrics["validation_mean_absolute_error"] == pytest.approx(2.0)


@pytest.mark.case("L22")
def test_metrics_of_what_only_training_has_are_named_once_and_the_others_carried_over():
    loop = gv.trainer(scaled(), objective, "sgd", keep_gradients=True)
    loop.metric(lambda p, t: (p - t).abs().mean(), "two arguments")
    loop.metric(lambda gradients: gradients["weight"].norm(), "gradient norm", fields=["gradients"])
    loop.metric(lambda i: i, "steps", fields=["i"])
    loop.metric(lambda loss: loss.sqrt(), "root", fields=["loss"])
    loop.validate(VALIDATION)
    with pytest.warns(MetricWarning) as said:
        state = loop.run(TRAINING, epochs=2)
    assert len(said) == 1
    assert "leaves out 'gradient norm' (of gradients), 'steps' (of i):" in str(said[0].message)
    found = {name for name in state.metrics if name.startswith("validation_")}
    assert found == {"validation_objective", "validation_two arguments", "validation_root"}
    assert state.status == "completed"


def test_every_metric_keeps_its_accumulator_and_examples_weigh_the_same():
    ragged = [(torch.zeros(4, 1), torch.full((4, 1), 1.0)), (torch.zeros(1, 1), torch.full((1, 1), 9.0))]
    loop = resting_loop().metric(lambda p, t: len(t), "n", "running_sum").metric("mean_absolute_error")
    state = loop.validate(ragged).run(TRAINING, epochs=2)
    assert state.metrics["n"] == 4
    assert state.metrics["validation_n"] == 5
    assert state.metrics["validation_mean_absolute_error"] == pytest.approx(2.6)


def test_ratios_functions_and_objects_are_carried_over_with_what_accumulates_them():
    class Largest:
        def reset(self) -> None:
            self.value = -math.inf

        def update(self, value: torch.Tensor | gv.Grad) -> None:
            self.value = max(self.value, value.norm().item())

        def compute(self) -> float:
            return self.value

    held_out = [(torch.ones(3, 1), torch.tensor([[1.0], [0.0], [0.0]])), (torch.ones(1, 1), torch.tensor([[1.0]]))]
    loop = resting_loop(keep_gradients=True).metric("precision").metric("true_positives")
    loop.metric(lambda p, y: y.mean(), "last", "last").metric(lambda loss: loss, "worst", "max", fields=["loss"])
    loop.metric(lambda p, y: len(y), "product", lambda so_far, value, n: so_far * value)
    loop.metric(Largest(), "largest", fields=["y_true"])
    loop.metric(Largest(), "gradient norm", fields=["gradients"])
    loop.metric(lambda i: i, "steps", lambda so_far, value, n: so_far + value, fields=["i"])
    with pytest.warns(MetricWarning) as said:
        state = loop.validate(held_out).run(TRAINING, epochs=2, display=None)
    assert len(said) == 1
    assert "leaves out 'gradient norm' (of gradients), 'steps' (of i):" in str(said[0].message)
    found = {name.removeprefix("validation_"): value for name, value in state.metrics.items() if "validation_" in name}
    assert found == pytest.approx(
        {
            "loss": 0.26,
            "precision": 1 / 2,  # of all four examples: 1 of 3 and 1 of 1
            "true_positives": 2,
            "last": 1,
            "worst": 0.36,
            "product": 3,
            "largest": 1,
        }
    )


@pytest.mark.case("axon-T3")
@pytest.mark.case("L23")
def test_a_float64_model_has_float64_metrics_from_its_first_batch_to_its_last():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)).double()
    data = [(torch.randn(8, 4, dtype=torch.float64), torch.randn(8, 1, dtype=torch.float64)) for _ in range(3)]
    types = []
    loop = gv.trainer(model, "mean_squared_error", "adam").metric("mean_absolute_error").validate(data)
    loop.handle_event("iteration_completed", lambda state: types.append({type(m) for m in state.metrics.values()}))
    state = loop.run(data, epochs=2)
    assert state.status == "completed"
    assert types == [{np.float64}] * 6
    assert {type(value) for value in state.metrics.values()} == {np.float64}
    assert len(state.metrics) == 4
    assert state.step_state.loss.dtype == torch.float64
    assert {p.dtype for p in model.parameters()} == {torch.float64}
    assert set(map(str, loop.history.metrics[["loss", "mean_absolute_error"]].dtypes)) == {"float64"}
    assert loop.history.metrics["loss"].iloc[-1] == state.step_state.loss.item()


@pytest.mark.case("axon-T5")
def test_an_integer_valued_sum_of_a_float32_model_is_float32():
    loop = resting_loop().metric(lambda p, t: (t == 0).sum(), "zeros", "running_sum")
    types = []
    loop.handle_event("iteration_completed", lambda state: types.append({type(m) for m in state.metrics.values()}))
    assert loop.run(TRAINING).metrics["zeros"] == 4
    assert types == [{np.float32}] * 2
    assert loop.state.metrics["loss"].dtype == np.float32


def test_float64_targets_give_a_float64_loss_from_the_first_batch_on():
    data = [(inputs, targets.double()) for inputs, targets in TRAINING]
    types = []
    loop = gv.trainer(scaled(), "mean_squared_error", "adam")
    loop.handle_event("iteration_completed", lambda state: types.append(type(state.metrics["loss"])))
    loop.handle_event("epoch_started", lambda state: types.append(dict(state.metrics)))
    loop.run(data)
    assert types == [{}, np.float64, np.float64]


@pytest.mark.case("axon-L16")
def test_an_evaluator_says_afterwards_what_the_last_validation_said():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 3))
    data = [(torch.randn(16, 4), torch.randint(0, 3, (16,))) for _ in range(4)]
    loop = gv.trainer(model, "cross_entropy", "adam").metric("accuracy").validate(data[:2])
    state = loop.run(data, epochs=3)
    evaluated = gv.evaluator(model, "cross_entropy").metric("accuracy").run(data[:2]).metrics
    assert state.metrics["validation_accuracy"] == evaluated["accuracy"]
    assert state.metrics["validation_loss"] == evaluated["loss"]


def test_validating_changes_nothing_of_the_training():
    def trained(validates: bool) -> nn.Module:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.BatchNorm1d(8), nn.Linear(8, 3))
        model[3].eval()
        data = [(torch.randn(16, 4), torch.randint(0, 3, (16,))) for _ in range(4)]
        loop = gv.trainer(model, "cross_entropy", "adam")
        if validates:
            loop.validate(data)
            modes = []
            loop.handle_event("epoch_completed", lambda state: modes.append([m.training for m in model.modules()]))
        loop.run(data, epochs=3)
        if validates:
            assert modes == [[True, True, True, True, False, True]] * 3
        return model

    plain, validated = trained(False), trained(True)
    for name, value in plain.state_dict().items():
        assert torch.equal(value, validated.state_dict()[name]), name
    assert [m.training for m in plain.modules()] == [m.training for m in validated.modules()]


def test_data_may_be_a_function_of_the_epoch():
    loop, asked = resting_loop(), []
    loop.validate(lambda epoch: (asked.append(epoch), iter(VALIDATION))[1])
    loop.run(TRAINING, epochs=2)
    assert asked == [0, 1]
    assert loop.history.epochs["validation_loss"].tolist() == pytest.approx([0.2, 0.2])


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (iter(VALIDATION), r"list_iterator can be read only once, but every validation .* Pass list\(data\)"),
        ((batch for batch in VALIDATION), "generator can be read only once"),
        (3, "got an int"),
        (lambda: VALIDATION, "takes the epoch's index"),
    ],
)
def test_data_that_cannot_be_validated_on_is_refused_up_front(data, words):
    with pytest.raises(DataError, match=words):
        resting_loop().validate(data)


def watched_loop(**options) -> tuple[gv.Loop, list[dict[str, float]]]:
    """A loop whose n-th validation finds a loss of n, and a list that fills with what handlers see of it."""
    loop, seen, asked = resting_loop(), [], []

    def growing(epoch):
        asked.append(epoch)
        return [(torch.zeros(1, 1), torch.full((1, 1), len(asked) ** 0.5))]

    loop.validate(growing, **options)
    for event in ("epoch_started", "iteration_completed", "epoch_completed"):
        loop.handle_event(event, lambda state, event=event: seen.append((event, state.metrics.get("validation_loss"))))
    return loop, seen


def test_within_an_epoch_results_stay_until_the_next_and_the_epoch_keeps_the_newest():
    loop, seen = watched_loop(event="iteration_completed", every=2)
    loop.run(TRAINING + TRAINING[:1], epochs=2)  # three batches an epoch: at iterations 0, 2 and 4
    one, two, three = (pytest.approx(n) for n in (1, 2, 3))
    assert seen == [
        ("epoch_started", None),
        *[("iteration_completed", n) for n in (one, one, two)],
        ("epoch_completed", two),
        ("epoch_started", None),
        *[("iteration_completed", n) for n in (None, three, three)],
        ("epoch_completed", three),
    ]
    assert loop.history.epochs["validation_loss"].tolist() == [two, three]
    assert loop.state.metrics["validation_loss"] == three
    assert "validation_loss" not in loop.history.metrics
    assert loop.history.progress.metrics["validation_loss"] == three


def test_a_second_validation_in_an_epoch_takes_the_place_of_the_first():
    loop, seen = watched_loop(event=["iteration_completed", "epoch_completed"], after=1)
    loop.run(TRAINING)  # at the second iteration; the epoch's own event has not fired before
    assert [value for _, value in seen] == [None, None, pytest.approx(1), pytest.approx(1)]
    loop.run(TRAINING)
    assert loop.history.epochs["validation_loss"].tolist() == [pytest.approx(1), pytest.approx(4)]
    assert loop.state.metrics["validation_loss"] == pytest.approx(4)


def test_a_halted_epoch_may_be_validated_and_one_without_a_step_has_no_row():
    loop, _ = watched_loop(event=["epoch_completed", "epoch_halted"])
    loop.handle_event("iteration_completed", lambda state: "halt_epoch" if state.epoch == 0 else None)
    loop.handle_event("epoch_started", lambda state: "halt_epoch" if state.epoch == 2 else None)
    state = loop.run(TRAINING, epochs=3)
    assert loop.history.epochs["validation_loss"].tolist() == [pytest.approx(1), pytest.approx(2)]
    assert state.metrics == {"validation_loss": pytest.approx(3)}


def test_a_loop_has_one_validation_and_the_next_call_moves_it():
    loop, seen = watched_loop(event="iteration_completed")
    with pytest.warns(MetricWarning, match="takes the place of the one before"):
        loop.validate(VALIDATION)
    loop.handle_event("epoch_completed", lambda state: seen.append(("later", state.metrics["validation_loss"])))
    loop.run(TRAINING)
    assert [value for _, value in seen] == [None] * 4 + [pytest.approx(0.2)]


def test_a_validation_of_other_data_takes_the_place_with_a_word_and_the_same_once_more_without():
    def held_out(epoch):
        return VALIDATION

    loop = resting_loop().validate(VALIDATION).validate(VALIDATION, event="iteration_completed")
    with pytest.warns(MetricWarning, match="A loop has one validation: this one takes the place"):
        loop.validate(held_out)
    loop.validate(held_out)


def test_a_cell_that_builds_its_validation_data_hears_that_it_takes_the_place_once():
    loop = resting_loop().validate(list(VALIDATION))
    with pytest.warns(MetricWarning, match="takes the place"):
        loop.validate(list(VALIDATION))
    loop.validate(list(VALIDATION))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"event": "completed"}, "No event is called 'completed': did you mean 'epoch_completed'?"),
        ({"event": "started"}, "No event is called 'started': did you mean"),
        ({"every": 0}, "every is a whole number from 1 on"),
        ({"every": 2, "per": "epoch"}, "'epoch_completed' is not counted anew in each epoch"),
    ],
)
def test_an_event_outside_epochs_is_refused_and_the_earlier_validation_stays(options, words):
    loop = resting_loop().validate(VALIDATION)
    with pytest.raises(EventError, match=words):
        loop.validate([], **options)
    assert loop.run(TRAINING).metrics["validation_loss"] == pytest.approx(0.2)


def test_train_flags_are_as_before_after_a_validation_that_failed():
    class Fails(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if not self.training:
                raise ZeroDivisionError
            return super().forward(x)

    model = nn.Sequential(nn.BatchNorm1d(1), nn.Dropout(0.5), Fails(1, 1))
    model[1].eval()
    loop, flags = gv.trainer(model, "mean_squared_error", "sgd", on_error="warn").validate(VALIDATION), []
    loop.handle_event("epoch_completed", lambda state: flags.append([child.training for child in model.modules()]))
    with pytest.warns(HandlerWarning, match="ZeroDivisionError"):
        loop.run(TRAINING)
    assert flags == [[True, True, False, True]]
    loop = gv.trainer(model, "mean_squared_error", "sgd").validate(VALIDATION)
    with pytest.raises(ZeroDivisionError):
        loop.run(TRAINING)
    assert [child.training for child in model.modules()] == [True, True, False, True]


def test_empty_data_fails_the_run_and_says_where():
    loop = resting_loop().validate([])
    with pytest.raises(DataError, match="no batch in epoch 0") as error:
        loop.run(TRAINING)
    assert "In a validation." in error.value.__notes__
    assert (loop.state.status, len(loop.history)) == ("failed", 2)
    assert "validation_loss" not in loop.history.epochs


def test_a_metric_that_fails_in_validation_is_named_and_under_warn_the_run_goes_on():
    def fails(prediction, targets):
        return 1 / (1 - targets.mean().item())

    with pytest.raises(ZeroDivisionError) as error:
        resting_loop().metric(fails).validate(VALIDATION).run(TRAINING)
    assert error.value.__notes__[1] == "In the metric 'fails', at batch 0 of an evaluation."
    assert error.value.__notes__[2] == "In the handler validate for 'epoch_completed', at iteration 1."

    loop = resting_loop(on_error="warn").metric(fails).validate(VALIDATION)
    with pytest.warns(HandlerWarning, match="'fails', at batch 0"):
        state = loop.run(TRAINING, epochs=2)
    assert (state.status, state.epoch) == ("completed", 2)
    assert "validation_loss" not in state.metrics


def test_an_epoch_that_was_broken_off_is_not_validated():
    loop = resting_loop().validate(VALIDATION)
    loop.handle_event("iteration_completed", lambda state: "halt_epoch" if state.epoch == 0 else None)
    loop.run(TRAINING, epochs=2)
    values = loop.history.epochs["validation_loss"].tolist()
    assert math.isnan(values[0])
    assert values[1] == pytest.approx(0.2)


def test_ctrl_c_in_a_validation_finishes_the_batch_and_keeps_no_half_result():
    evaluated = []

    class Watched(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if not self.training:
                evaluated.append(len(evaluated))
                if len(evaluated) == 2:
                    os.kill(os.getpid(), signal.SIGINT)
            return super().forward(x)

    model = Watched(1, 1)
    loop = gv.trainer(model, "mean_squared_error", "sgd").validate(VALIDATION * 5)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        loop.run(TRAINING, epochs=3)
    assert evaluated == [0, 1]
    assert signal.getsignal(signal.SIGINT) is before
    assert (loop.state.status, loop.state.iteration, loop.state.epoch) == ("interrupted", 2, 1)
    assert "validation_loss" not in loop.history.epochs
    assert model.training
    assert loop.run(TRAINING).metrics["validation_loss"] >= 0


def test_ctrl_c_acts_at_once_while_waiting_for_validation_data():
    def slow(epoch):
        yield from VALIDATION
        os.kill(os.getpid(), signal.SIGINT)
        raise AssertionError("waited on")

    loop = resting_loop().validate(slow)
    with pytest.raises(KeyboardInterrupt):
        loop.run(TRAINING)
    assert loop.state.status == "interrupted"


def test_the_picture_s_head_line_ends_with_the_results():
    loop = resting_loop().validate(VALIDATION)
    loop.run(TRAINING)
    metrics = loop.history.progress.metrics
    assert metrics["validation_loss"] == pytest.approx(0.2)
    assert {type(value) for value in metrics.values()} == {float}
