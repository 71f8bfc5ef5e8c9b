"""Right and wrong answers of two classes, counted, and the ratios of the counts."""

from __future__ import annotations

import math

import pytest
import torch
import torchmetrics
from torch import nn

import gradviz as gv
from gradviz.errors import MetricError
from gradviz.metrics.yes_or_no import (
    false_negatives,
    false_positives,
    precision,
    recall,
    sensitivity,
    specificity,
    true_negatives,
    true_positives,
)

COUNTS = (true_positives, false_positives, true_negatives, false_negatives)
RATIOS = (precision, recall, sensitivity, specificity)


@pytest.mark.case("axon-M3")
def test_counts_by_hand():
    targets = torch.tensor([1, 0, 1, 1, 0, 1, 0])
    probabilities = torch.tensor([0.8, 0.6, 0.4, 0.2, 0.8, 0.2, 0.2])
    assert [count(probabilities, targets, threshold=0.5).item() for count in COUNTS] == [1, 2, 1, 3]
    assert [count(probabilities.logit(), targets).item() for count in COUNTS] == [1, 2, 1, 3]


@pytest.mark.case("axon-M4")
def test_ratios_by_hand():
    targets, prediction = torch.tensor([0, 1, 1, 1]), torch.tensor([1, 0, 1, 1])
    for ratio in (precision, recall, sensitivity):
        assert ratio(prediction, targets).item() == pytest.approx(2 / 3)
    assert specificity(prediction, targets) == 0
    assert gv.metrics.mean_absolute_error(torch.tensor([[0, 1], [0, 0]]), torch.tensor([[1, 1], [1, 0]])) == 0.5


@pytest.mark.parametrize(
    ("shape", "of_targets"), [((4,), (4,)), ((4, 1), (4,)), ((4, 1), (4, 1)), ((2, 2), (2, 2)), ((2, 1, 2), (2, 2))]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool])
def test_every_entry_is_an_example_whatever_the_shape(shape, of_targets, dtype):
    prediction = torch.tensor([1.0, -2.0, 0.5, 3.0]).reshape(shape)
    targets = torch.tensor([1, 1, 0, 1]).reshape(of_targets).to(dtype)
    assert true_positives(prediction, targets) == 2
    assert false_positives(prediction > 0, targets) == 1
    assert precision(prediction, targets).dtype == torch.float32


def test_of_two_scores_the_higher_one_counts():
    scores, targets = torch.tensor([[1.0, 2.0], [3.0, 0.0], [0.0, 1.0]]), torch.tensor([1, 1, 0])
    assert [count(scores, targets).item() for count in COUNTS] == [1, 1, 0, 1]
    assert recall(scores, targets) == recall(scores[:, 1] - scores[:, 0], targets) == 0.5
    with pytest.raises(MetricError, match="there is no threshold"):
        recall(scores, targets, threshold=0.5)


def test_of_nothing_there_is_no_ratio_and_of_nan_there_is_no_answer():
    none, some = torch.tensor([-1.0, -1.0]), torch.tensor([-1.0, 1.0])
    assert precision(none, torch.tensor([0, 1])).isnan()
    assert recall(some, torch.tensor([0, 0])).isnan()
    assert specificity(some, torch.tensor([1, 1])).isnan()
    for metric in (*COUNTS, *RATIOS):
        assert metric(torch.tensor([math.nan, 1.0]), torch.tensor([0, 1])).isnan()


@pytest.mark.parametrize("metric", [*COUNTS, *RATIOS])
@pytest.mark.parametrize(
    ("prediction", "targets", "words"),
    [
        (torch.zeros(4), torch.zeros(5), r"prediction is a tensor of shape \(4,\), the targets are a tensor of shape"),
        (torch.zeros(4), torch.zeros(4, 1), r"targets are a tensor of shape \(4, 1\)"),
        (torch.zeros(4, 3), torch.zeros(4), "has 3 classes.*Write e.g. loop"),
        (torch.zeros(4), torch.tensor([0, 1, 2, 1]), "neither class indices nor 0 and 1"),
        (torch.zeros(4), torch.tensor([-1, 1, 1, 1]), "neither class indices nor 0 and 1"),
        ({"logits": torch.zeros(4)}, torch.zeros(4), "the prediction is a dict"),
        (torch.zeros(()), torch.zeros(4), "the prediction is a tensor of shape"),
    ],
)
def test_what_is_no_yes_or_no_is_told_so(metric, prediction, targets, words):
    with pytest.raises(MetricError, match=words):
        metric(prediction, targets)


@pytest.mark.parametrize("name", ["true_positives", "false_positives", "true_negatives", "false_negatives"])
def test_a_count_of_more_than_two_classes_is_shown_how_to_count_one_of_them(name):
    scores, targets = torch.tensor([[9.0, 0, 0], [0, 9, 0], [9, 0, 0]]), torch.tensor([0, 1, 2])
    with pytest.raises(MetricError) as error:
        getattr(gv.metrics, name)(scores, targets)
    loop = gv.trainer(nn.Linear(1, 3), "cross_entropy", "sgd")
    eval(str(error.value).split("Write e.g. ")[1].rstrip("."), {"loop": loop, "gv": gv})
    counted = loop._metrics[f"{name}_of_0"].function(scores, targets)
    expected = {"true_positives": 1, "false_positives": 1, "true_negatives": 1, "false_negatives": 0}
    assert counted == expected[name]


@pytest.mark.parametrize("name", ["precision", "recall", "specificity", "sensitivity"])
def test_a_ratio_of_more_than_two_classes_is_sent_to_the_object_that_is_of_so_many(name):
    with pytest.raises(MetricError) as error:
        getattr(gv.metrics, name)(torch.zeros(4, 3), torch.zeros(4))
    instead = {"sensitivity": "recall"}.get(name, name).capitalize()
    line = str(error.value).split("Write e.g. ")[1].rstrip(".")
    assert line == f"loop.metric(torchmetrics.classification.Multiclass{instead}(3))"
    eval(line, {"loop": gv.trainer(nn.Linear(1, 3), "cross_entropy", "sgd"), "torchmetrics": torchmetrics})
