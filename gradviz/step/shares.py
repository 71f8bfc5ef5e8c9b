"""How much each micro-batch of a step counts, so that together they are the joined batch.

A loss that averages over examples makes the joined loss the mean of its parts by their number of examples. A cross
entropy averages over the targets that it does not ignore, by the weights of their classes. A loss that sums adds up.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gradviz.metrics.shapes import IGNORE_INDEX, not_ignored
from gradviz.step.batch import Batch, Parts, batch_size
from gradviz.step.objective import Objective, WeightedSum, WrappedLoss

_OVER_TARGETS = (F.cross_entropy, F.nll_loss)
_FORWARDS = (nn.CrossEntropyLoss.forward, nn.NLLLoss.forward)


def shared(objective: Objective, group: Sequence[Batch]) -> list[tuple[Objective, float]]:
    """What to evaluate each micro-batch by, and the factor of the loss that it gives.

    Examples
    --------
    >>> group = Batch(torch.zeros(6, 2), torch.zeros(6)), Batch(torch.zeros(2, 2), torch.zeros(2))
    >>> [share for _, share in shared(WrappedLoss(F.mse_loss, "mse_loss"), group)]
    [0.75, 0.25]
    >>> [share for _, share in shared(WrappedLoss(nn.MSELoss(reduction="sum"), "MSELoss"), group)]
    [1.0, 1.0]
    """
    if len(group) == 1:
        return [(objective, 1.0)]
    if not isinstance(objective, WrappedLoss):
        return [(objective, share) for share in _shares(None, group)]
    loss = objective.loss
    if isinstance(loss, WeightedSum) and all(_fits(batch.targets, loss) for batch in group):
        # Each part has a share of its own: one may ignore targets that the other does not have.
        columns = [
            _shares(part, [batch._replace(targets=batch.targets[place]) for batch in group])
            for place, part in enumerate(loss.losses)
        ]
        rows = zip(*columns, strict=True)
        return [(WrappedLoss(loss.times(row), objective.name), 1.0) if any(row) else (objective, 0.0) for row in rows]
    return [(objective, share) for share in _shares(loss, group)]


def _fits(targets: Any, loss: WeightedSum) -> bool:
    return isinstance(targets, tuple | list) and len(targets) == len(loss.losses)


def _shares(loss: Any, group: Sequence[Batch]) -> list[float]:
    if _option(loss, "reduction") == "sum":
        return [1.0] * len(group)
    counts = [_count(loss, batch.targets, batch.targets, batch.inputs) for batch in group]
    total = sum(counts)
    # Where nothing counts, as in a group whose every target is ignored, the loss itself shall say so.
    return [count / total for count in counts] if total else [1 / len(group)] * len(group)


def counts_targets(objective: Objective | None) -> bool:
    """Whether the loss averages over the targets that it does not ignore, and not over examples."""
    loss = objective.loss if isinstance(objective, WrappedLoss) else None
    return _is_over_targets(loss)


def counted(objective: Objective | None, prediction: Any, targets: Any) -> float:
    """How much of a batch counts in the mean that its loss is: examples, or the targets that are not ignored.

    Examples
    --------
    >>> counted(WrappedLoss(F.cross_entropy, "cross_entropy"), torch.zeros(3, 2), torch.tensor([1, -100, 0]))
    2
    """
    if isinstance(targets, Parts):
        predictions = prediction if isinstance(prediction, Parts) else [prediction] * len(targets)
        return sum(counted(objective, p, t) for p, t in zip(predictions, targets, strict=True))
    loss = objective.loss if isinstance(objective, WrappedLoss) else None
    # Predictions first: they have an example a row where targets may be anything.
    return _count(loss, targets, prediction, targets)


def _count(loss: Any, targets: Any, *examples: Any) -> float:
    """The targets that a loss averages over, or the number of `examples`."""
    if not _is_over_targets(loss) or not isinstance(targets, Tensor) or targets.is_floating_point():
        return batch_size(*examples)
    ignored = _option(loss, "ignore_index")
    kept = not_ignored(targets, IGNORE_INDEX if ignored is None else ignored)
    weight = _option(loss, "weight")
    return int(kept.sum()) if weight is None else float(weight.detach().to(torch.float64)[targets[kept].long()].sum())


def _is_over_targets(loss: Any) -> bool:
    function = loss.func if isinstance(loss, partial) else loss
    # By its forward: a subclass may average otherwise.
    return function in _OVER_TARGETS or getattr(type(loss), "forward", None) in _FORWARDS


def _option(loss: Any, name: str) -> Any:
    return loss.keywords.get(name) if isinstance(loss, partial) else getattr(loss, name, None)
