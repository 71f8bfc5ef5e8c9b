"""Which metrics add up over batches, and which are ratios of counts that do."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from gradviz.metrics import METRICS, accuracy, precision, top_k_accuracy, true_positives
from gradviz.metrics.over_batches import counts_of, is_count

COUNTS = {"true_positives", "false_positives", "true_negatives", "false_negatives"}
RATIOS = {"accuracy", "top_k_accuracy", "precision", "recall", "sensitivity", "specificity"}


def test_each_metric_of_classes_is_a_count_or_a_ratio():
    assert {name for name, metric in METRICS.items() if is_count(metric)} == COUNTS
    assert {name for name, metric in METRICS.items() if counts_of(metric)} == RATIOS
    assert set(METRICS) == COUNTS | RATIOS | {"mean_absolute_error", "mean_squared_error"}


def test_a_partial_is_of_the_kind_of_its_function():
    assert is_count(partial(partial(true_positives), threshold=0.5))
    assert not is_count(partial(precision, threshold=0.5))
    assert counts_of(true_positives) is counts_of(len) is counts_of(partial(len)) is None
    part, whole = counts_of(partial(precision, threshold=0.5))(torch.tensor([0.4, 0.8]), torch.tensor([1, 1]))
    assert (part, whole) == (1, 1)


@pytest.mark.parametrize(
    ("metric", "options"),
    [(accuracy, {"threshold": 0.5}), (accuracy, {"ignore_index": 1}), (top_k_accuracy, {"k": 2, "ignore_index": 0})],
)
def test_a_ratio_and_its_counts_take_the_same_arguments(metric, options):
    if "threshold" in options:
        given = torch.tensor([0.2, 0.7, 0.9]), torch.tensor([1, 0, 1])
    else:
        given = torch.tensor([[0.1, 0.4, 0.7], [0.3, 0.2, 0.1], [0.1, 0.3, 0.2]]), torch.tensor([2, 0, 1])
    part, whole = counts_of(partial(metric, **options))(*given)
    assert part / whole == metric(*given, **options)
    assert whole == (3 if "threshold" in options else 2)
