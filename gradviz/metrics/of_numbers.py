"""Metrics of predictions that are numbers."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from gradviz.errors import MetricError, described


def mean_absolute_error(prediction: Tensor, targets: Tensor) -> Tensor:
    """Mean distance of predictions from targets, over all entries.

    Parameters
    ----------
    prediction, targets : Tensor
        Of one shape; integers are fine.

    Returns
    -------
    0-dim Tensor, in the widest of both dtypes and float32

    Raises
    ------
    MetricError
        If the shapes differ: broadcast, [batch] and [batch, 1] would compare everything with everything.

    Examples
    --------
    >>> mean_absolute_error(torch.tensor([[0, 1], [0, 0]]), torch.tensor([[1, 1], [1, 0]]))
    tensor(0.5000)
    """
    return F.l1_loss(*_widened("mean_absolute_error", prediction, targets))


def mean_squared_error(prediction: Tensor, targets: Tensor) -> Tensor:
    """Mean squared distance of predictions from targets, over all entries; as `mean_absolute_error` otherwise.

    Examples
    --------
    >>> mean_squared_error(torch.tensor([0.0, 3.0]), torch.tensor([1.0, 1.0]))
    tensor(2.5000)
    """
    return F.mse_loss(*_widened("mean_squared_error", prediction, targets))


def _widened(name: str, prediction: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    if not (isinstance(prediction, Tensor) and isinstance(targets, Tensor) and prediction.shape == targets.shape):
        is_one_more = getattr(prediction, "shape", ())[1:] == (1,)
        raise MetricError(
            f"{name} compares tensors of one shape; the prediction is "
            f"{described(prediction)}, the targets are {described(targets)}. "
            f"Write e.g. loop.metric(lambda p, y: gv.metrics.{name}(p{'.squeeze(1)' if is_one_more else '[:, 0]'}, y), "
            f'"{name}").'
        )
    wide = torch.promote_types(torch.promote_types(prediction.dtype, targets.dtype), torch.float32)
    return prediction.to(wide), targets.to(wide)
