"""Objects that accumulate by themselves, as those of torchmetrics: own values, whole epochs, copies and checkpoints."""

from __future__ import annotations

import io
import math
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
import torchmetrics
from torch import nn
from torchmetrics.classification import BinaryAUROC, BinaryPrecision, MulticlassAccuracy, MulticlassConfusionMatrix
from torchmetrics.regression import MeanSquaredError, R2Score

import gradviz as gv
from gradviz.errors import CheckpointWarning, MetricError, MetricWarning
from gradviz.loop.metrics.measured import build_metric
from gradviz.step.batch import Parts
from gradviz.step.step_state import StepState


class Spread:
    """Largest minus smallest target so far: no torchmetrics, and no state_dict."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.seen: list[torch.Tensor] = []
        self.n = 0

    def update(self, prediction: torch.Tensor, targets: torch.Tensor) -> None:
        self.seen.append(targets)
        self.n += 1

    def compute(self) -> torch.Tensor:
        seen = torch.cat(self.seen)
        return seen.max() - seen.min()


def state_of(prediction: object, targets: object) -> StepState:
    return StepState(y_pred=torch.as_tensor(prediction), y_true=torch.as_tensor(targets))


def scaled(weight: float = 1.0) -> nn.Linear:
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, weight)
    return model


def binary_batches(n: int, length: int = 8) -> list[StepState]:
    generator = torch.Generator().manual_seed(0)
    return [
        state_of(
            torch.rand(length, generator=generator),
            torch.randint(0, 2, (length,), generator=generator),
        )
        for _ in range(n)
    ]


def read_safely(state: dict[str, object]) -> dict[str, object]:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize("of", [BinaryAUROC(), BinaryPrecision(), MeanSquaredError(), Spread()])
def test_a_batch_has_its_own_value_and_the_epoch_that_of_all_of_it(of):
    batches = binary_batches(5)
    metric = build_metric(of)
    for place, batch in enumerate(batches):
        own = metric(batch)
        alone, together = build_metric(of), build_metric(of)
        assert own == alone(batch) == float(alone.value)
        together(state_of(*(torch.cat([each[key] for each in batches[: place + 1]]) for key in ("y_pred", "y_true"))))
        assert metric.value == metric.shown == metric.complete == pytest.approx(float(together.value))
    metric.start()
    assert math.isnan(metric.value)
    assert metric(batches[0]) == metric.value


def test_it_says_what_torchmetrics_says_and_leaves_the_object_as_it_was():
    of, reference = BinaryAUROC(), BinaryAUROC()
    metric = build_metric(of)
    for batch in binary_batches(4):
        assert metric(batch) == reference(batch.y_pred, batch.y_true)
    assert metric.value == reference.compute()
    assert type(metric.value) is np.float32
    assert not of.update_called


def test_the_order_is_torch_s_and_fields_are_the_arguments():
    seen = []

    class Seen(Spread):
        def update(self, *arguments):
            seen.append([float(argument) for argument in arguments])

        def compute(self):
            return 1.0

    state = StepState(y_pred=torch.tensor(1.0), y_true=torch.tensor(2.0), loss=torch.tensor(3.0))
    build_metric(Seen())(state)
    build_metric(Seen(), fields=["loss", "y_true"])(state)
    assert seen == [[1, 2], [1, 2], [3, 2], [3, 2]]  # the batch's copy and the epoch's


def test_a_loop_resets_it_at_every_epoch_and_the_history_has_both():
    model = scaled(0.0)
    data = [(torch.ones(n, 1), torch.full((n, 1), float(target))) for n, target in [(3, 1), (1, 3)]]
    loop = gv.trainer(model, "mean_squared_error", torch.optim.SGD(model.parameters(), lr=0.0))
    loop.metric(MeanSquaredError(), "mse").metric(Spread())
    shown = []
    loop.handle_event("iteration_completed", lambda state: shown.append(float(state.metrics["mse"])))
    state = loop.run(data, epochs=2, display=None)
    assert shown == pytest.approx([1, 3, 1, 3])  # (3 * 1 + 1 * 9) / 4
    assert loop.history.metrics["mse"].tolist() == pytest.approx([1, 9, 1, 9])
    assert loop.history.epochs["mse"].tolist() == pytest.approx([3, 3])
    assert loop.history.epochs["Spread"].tolist() == [2, 2]
    assert state.metrics["Spread"] == 2


def test_a_validation_and_an_evaluator_have_their_own():
    model = scaled(0.0)
    training, held_out = ([(torch.ones(2, 1), torch.full((2, 1), float(target)))] * 2 for target in (1, 2))
    loop = gv.trainer(model, "mean_squared_error", torch.optim.SGD(model.parameters(), lr=0.0))
    of = MeanSquaredError()
    state = loop.metric(of, "mse").validate(held_out).run(training, epochs=2, display=None)
    assert (state.metrics["mse"], state.metrics["validation_mse"]) == (1, 4)
    assert loop.history.epochs[["mse", "validation_mse"]].to_numpy().tolist() == [[1, 4], [1, 4]]
    evaluator = gv.evaluator(model).metric(of)
    assert evaluator.run(held_out).metrics == {"MeanSquaredError": 4}
    assert evaluator.run(training).metrics == {"MeanSquaredError": 1}
    assert not of.update_called


def test_float64_stays_float64():
    metric = build_metric(Spread())
    metric(state_of(torch.ones(2), torch.tensor([0.1, 0.3], dtype=torch.float64)))
    assert type(metric.value) is type(metric.shown) is np.float64
    assert type(metric.fresh().value) is np.float32


def test_a_batch_that_is_not_finite_shows_itself_and_the_object_says_what_becomes_of_the_epoch():
    class Mean(Spread):
        def compute(self):
            return torch.cat(self.seen).nanmean()

    metric, shown = build_metric(Mean()), []
    for target in (1.0, math.nan, 3.0):
        metric(state_of([0.0], [target]))
        shown.append(float(metric.shown))
    assert shown == pytest.approx([1, math.nan, 2], nan_ok=True)
    assert metric.value == 2


def test_of_one_example_there_may_be_no_value_while_the_epoch_has_one():
    metric = build_metric(R2Score())
    metric(state_of([1.0, 2.0, 3.5], [1.0, 2.0, 3.0]))
    before = float(metric.value)
    assert math.isnan(metric(state_of([4.5], [4.0])))
    assert math.isnan(metric.shown)
    assert metric.value == pytest.approx(0.9)
    assert metric.value != before
    with pytest.raises(ValueError, match="at least two samples"):
        build_metric(R2Score())(state_of([4.5], [4.0]))


def test_micro_batches_that_do_not_fit_together_are_one_batch():
    parts = [(torch.zeros(2, n), torch.full((2, n), float(n))) for n in (1, 3)]
    metric = build_metric(MeanSquaredError(), "mse")
    state = StepState(y_pred=Parts(p for p, _ in parts), y_true=Parts(y for _, y in parts))
    assert metric(state) == metric.value == (1 + 3 * 9) / 4


@pytest.mark.parametrize("of", [BinaryAUROC(), BinaryAUROC(thresholds=20), BinaryPrecision(), Spread()])
def test_it_goes_on_in_the_middle_of_an_epoch_from_a_file(of):
    batches = binary_batches(6)
    whole, broken, resumed = build_metric(of, "m"), build_metric(of, "m"), build_metric(of, "m")
    resumed(batches[5])
    for batch in batches:
        whole(batch)
    for batch in batches[:3]:
        broken(batch)
    saved = read_safely(broken.state_dict())
    resumed.load_state_dict(saved)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # torchmetrics has a word to say of computing before the first update
        assert resumed.value == broken.value
    for batch in batches[3:]:
        resumed(batch)
    assert resumed.value == whole.value
    again = build_metric(of, "m")
    again.load_state_dict(saved)  # which the batches since have left as it was
    assert again.value == broken.value
    again(batches[3])
    broken(batches[3])
    assert again.value == broken.value


class Counts:
    """How often each target came, in numpy's types; with an option that is none of its memory."""

    def __init__(self) -> None:
        self.key = len
        self.reset()

    def reset(self) -> None:
        self.counts = np.zeros(3, dtype=np.int64)
        self.most = np.float32(0)
        self.by = {"tensor": np.zeros(1)}
        self.seen: set[int] = set()

    def update(self, prediction: torch.Tensor, targets: torch.Tensor) -> None:
        np.add.at(self.counts, targets.numpy(), 1)
        self.most = np.float32(self.counts.max())
        self.by["tensor"] += 1

    def compute(self) -> float:
        return float(self.counts[1] + 10 * self.most + 100 * self.by["tensor"][0])


def test_arrays_and_numbers_of_numpy_are_remembered():
    broken, resumed = build_metric(Counts(), "m"), build_metric(Counts(), "m")
    for _ in range(2):
        broken(state_of([0.0, 0.0], [1, 1]))
    resumed.load_state_dict(read_safely(broken.state_dict()))
    for metric in (broken, resumed):
        metric(state_of([0.0, 0.0], [1, 2]))
    assert resumed.value == broken.value == 5 + 50 + 300
    assert type(resumed._epoch.most) is np.float32


def test_what_cannot_be_remembered_is_named_once():
    class Keeping(Counts):
        def update(self, prediction: torch.Tensor, targets: torch.Tensor) -> None:
            super().update(prediction, targets)
            self.seen |= set(targets.tolist())

    metric = build_metric(Keeping(), "m")
    metric(state_of([0.0, 0.0], [1, 1]))
    with pytest.warns(CheckpointWarning, match=r"the Keeping of the metric 'm' has in seen \(a set\)"):
        metric.state_dict()
    metric.state_dict()  # a warning would be an error


def test_what_is_shown_costs_a_bounded_number_of_computations_and_the_end_is_exact():
    computed = []

    class Counted(Spread):
        def compute(self):
            computed.append(self.n)
            return torch.tensor(float(self.n))

    metric, shown = build_metric(Counted()), []
    for _ in range(1000):
        metric(state_of([0.0], [1.0]))
        shown.append(float(metric.shown))
    assert shown[:64] == list(range(1, 65))
    assert all(n - value <= n / 64 for n, value in enumerate(shown, start=1))
    of_the_epoch = [n for n in computed if n > 1]  # those of a batch alone are of one
    assert len(of_the_epoch) < 300
    assert sum(of_the_epoch) < 64 * 1000 + 64 * 64
    assert metric.value == 1000
    assert metric.complete == 1000


def test_what_is_shown_does_not_depend_on_a_checkpoint():
    def shown(saves: bool, resumes: bool) -> list[float]:
        metric, values = build_metric(Spread()), []
        for n in range(200):
            metric(state_of([0.0, 0.0], [0.0, float(n)]))
            values.append(float(metric.shown))
            if saves and n == 150:
                saved = metric.state_dict()
                if resumes:
                    metric = build_metric(Spread())
                    metric.load_state_dict(read_safely(saved))
        return values

    assert shown(False, False) == shown(True, False) == shown(True, True)


def test_before_the_first_batch_there_is_a_state_too():
    fresh, metric = build_metric(BinaryPrecision()), build_metric(BinaryPrecision())
    metric(binary_batches(1)[0])
    metric.load_state_dict(read_safely(fresh.state_dict()))
    assert math.isnan(metric.value)
    with pytest.raises(MetricError, match="by 'Spread' here, and by 'BinaryPrecision' in what was saved"):
        build_metric(Spread()).load_state_dict(fresh.state_dict())


def test_the_parts_of_a_composition_are_remembered_too():
    f1 = build_metric(BinaryPrecision() + MeanSquaredError(), "both")
    batches = binary_batches(2)
    f1(batches[0])
    resumed = f1.fresh()
    resumed.load_state_dict(read_safely(f1.state_dict()))
    for metric in (f1, resumed):
        metric(batches[1])
    assert f1.value == resumed.value


class Unmovable(Spread):
    def __deepcopy__(self, memo: object) -> None:
        raise TypeError("a lock")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: build_metric(BinaryPrecision), r"BinaryPrecision is a class; write loop\.metric\(BinaryPrecision\("),
        (
            lambda: build_metric(torchmetrics.MetricCollection([BinaryPrecision(), BinaryAUROC()])),
            r"A MetricCollection holds several metrics.* for name, each in collection\.items\(\): loop\.metric\(each,",
        ),
        (lambda: build_metric(BinaryPrecision(), None, "max"), "accumulates by itself; leave out accumulate='max'"),
        (lambda: build_metric(BinaryPrecision(), "loss"), "give the metric another name"),
        (lambda: build_metric(Unmovable()), r"The Unmovable cannot be copied \(TypeError: a lock\)"),
    ],
)
def test_what_is_no_single_metric_is_refused_up_front(make, words):
    with pytest.raises(MetricError, match=words):
        make()


@pytest.mark.parametrize(
    ("of", "words"),
    [
        (
            MulticlassAccuracy(3, average=None),
            r"returned a tensor of shape \(3,\); one number is wanted.*average=.macro",
        ),
        (MulticlassConfusionMatrix(3), r"returned a tensor of shape \(3, 3\)"),
    ],
)
def test_what_computes_several_numbers_is_told_what_to_write(of, words):
    metric = build_metric(of)
    with pytest.raises(MetricError, match=words):
        metric(state_of(torch.eye(3), torch.arange(3)))
    assert math.isnan(metric.shown)
    assert math.isnan(metric.value)


def test_under_warn_a_run_goes_on_without_it():
    loop = gv.trainer(nn.Linear(1, 3), "cross_entropy", "sgd", on_error="warn").metric(MulticlassConfusionMatrix(3))
    with pytest.warns(gv.errors.HandlerWarning, match="one number is wanted"):
        state = loop.run([(torch.ones(4, 1), torch.tensor([0, 1, 2, 1]))] * 3, display=None)
    assert state.status == "completed"
    assert math.isnan(state.metrics["MulticlassConfusionMatrix"])


def test_a_batch_that_it_refuses_leaves_the_epoch_as_it_was():
    metric = build_metric(MeanSquaredError())
    metric(state_of([1.0, 1.0], [0.0, 0.0]))
    with pytest.raises(RuntimeError, match="same shape"):
        metric(state_of([1.0, 1.0], [0.0]))
    assert math.isnan(metric.shown)
    assert metric.value == 1
    metric(state_of([0.0, 0.0], [0.0, 0.0]))
    assert metric.value == metric.shown == 0.5


def test_a_cell_that_runs_again_says_nothing_and_other_options_do():
    evaluator = gv.evaluator(scaled()).metric(BinaryPrecision())
    evaluator.metric(BinaryPrecision())
    with pytest.warns(MetricWarning, match="'BinaryPrecision' was there already"):
        evaluator.metric(BinaryPrecision(threshold=0.7))
    with pytest.warns(MetricWarning, match="was there already"):
        evaluator.metric(Spread(), "BinaryPrecision")


def test_it_goes_where_the_prediction_is():
    moved = []

    class Placed(Spread):
        def to(self, device):
            moved.append(device)

    metric = build_metric(Placed())
    for batch in binary_batches(3):
        metric(batch)
    assert moved == [torch.device("cpu")] * 2  # the copy of the batch and that of the epoch, once


def test_torchmetrics_is_not_needed():
    code = (
        "import sys; sys.modules['torchmetrics'] = None; import torch, gradviz as gv; "
        "gv.evaluator(torch.nn.Linear(1, 2)).metric('accuracy')"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_object_that_does_not_fit_the_data_is_told_before_anything_moves_and_a_trial_is_forgotten():
    torch.manual_seed(0)
    data = [(torch.randn(6, 2), torch.tensor([0, 1, 2, 0, 1, 2]))] * 2
    model = nn.Linear(2, 3)
    before = model.weight.clone()
    with pytest.raises(Exception) as error:  # noqa: PT011
        gv.trainer(model, "cross_entropy", "sgd").metric(BinaryAUROC()).run(data)
    assert "In a trial step, before anything moved" in error.value.__notes__[-1]
    assert torch.equal(model.weight, before)
    assert "BinaryAUROC is of two classes; write loop.metric(MulticlassAUROC(3)) of 3." in error.value.__notes__[0]

    class Batches(Spread):
        def compute(self) -> torch.Tensor:
            return torch.tensor(self.n)

    assert float(gv.trainer(model, "cross_entropy", "sgd").metric(Batches()).run(data).metrics["Batches"]) == 2
