"""Distances of predictions from targets."""

from __future__ import annotations

import pytest
import torch

from gradviz.errors import MetricError
from gradviz.metrics import METRICS, mean_squared_error


def test_mean_absolute_error_by_hand():
    error = METRICS["mean_absolute_error"]
    assert error(torch.tensor([[0, 1], [0, 0]]), torch.tensor([[1, 1], [1, 0]])) == 0.5
    assert error(torch.tensor([0, 255], dtype=torch.uint8), torch.tensor([1, 0], dtype=torch.uint8)) == 128
    assert error(torch.ones(2, dtype=torch.float64), torch.zeros(2)).dtype == torch.float64
    assert error(torch.ones(2, dtype=torch.float16), torch.zeros(2, dtype=torch.float16)).dtype == torch.float32
    with pytest.raises(MetricError, match=r"tensor of shape \(4, 1\), the targets are a tensor of shape \(4,\)"):
        error(torch.zeros(4, 1), torch.zeros(4))
    with pytest.raises(MetricError, match="the prediction is a dict"):
        error({"a": torch.zeros(4)}, torch.zeros(4))


def test_mean_squared_error_by_hand():
    assert mean_squared_error(torch.tensor([0, 3]), torch.tensor([1, 1])) == 2.5
    assert mean_squared_error(torch.full((2,), 300.0, dtype=torch.float16), torch.zeros(2)) == 90_000
    with pytest.raises(MetricError, match="mean_squared_error compares tensors of one shape"):
        mean_squared_error(torch.zeros(4, 1), torch.zeros(4))
