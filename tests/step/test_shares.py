"""Micro-batches count so that their losses add up to the joined batch's."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from gradviz.step.batch import Batch
from gradviz.step.objective import as_objective
from gradviz.step.shares import shared

WEIGHT = torch.tensor([0.5, 2.0, 1.0])


def shares(objective, group: list[Batch]) -> list[float]:
    return [share for _, share in shared(objective, group)]


def added_up(loss, parts: list[tuple[Tensor, Tensor]]) -> Tensor:
    """The micro-batches' losses by their shares, in float64; those that count nothing are left out."""
    objective = as_objective(loss)
    counted = zip(shares(objective, [Batch(x, y) for x, y in parts]), parts, strict=True)
    return torch.stack([share * objective.loss(x, y) for share, (x, y) in counted if share]).sum()


def joined(parts: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    return torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts])


CLASSES = {
    "by name": "cross_entropy",
    "a function": F.cross_entropy,
    "a module": nn.CrossEntropyLoss(),
    "nll": "nll",
    "weighted": nn.CrossEntropyLoss(weight=WEIGHT.double()),
    "weighted and smoothed": nn.CrossEntropyLoss(weight=WEIGHT.double(), label_smoothing=0.1),
    "weighted nll": nn.NLLLoss(weight=WEIGHT.double(), ignore_index=2),
    "a partial": partial(F.cross_entropy, weight=WEIGHT.double(), ignore_index=1),
    "ignoring one class": nn.CrossEntropyLoss(ignore_index=0),
    "a sum": nn.CrossEntropyLoss(reduction="sum"),
    "a partial sum": partial(F.cross_entropy, reduction="sum"),
}


@settings(max_examples=40)
@given(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=4), seed=st.integers(0, 2**16), data=st.data())
@pytest.mark.parametrize("loss", CLASSES.values(), ids=CLASSES)
def test_losses_of_classes_add_up_whatever_they_weigh_and_ignore(loss, sizes, seed, data):
    generator = torch.Generator().manual_seed(seed)
    parts = []
    for size in sizes:
        scores = torch.randn(size, 3, generator=generator, dtype=torch.float64)
        drawn = data.draw(st.lists(st.sampled_from([0, 1, 2, 2, -100]), min_size=size, max_size=size))
        if getattr(loss, "ignore_index", -100) != -100 or "ignore_index" in getattr(loss, "keywords", {}):
            drawn = [max(label, 0) for label in drawn]
        parts.append((scores, torch.tensor(drawn)))
    objective = as_objective(loss)
    whole = objective.loss(*joined(parts))
    torch.testing.assert_close(added_up(loss, parts), whole, equal_nan=True)


NUMBERS = {
    "mean squares": "mean_squared_error",
    "huber": nn.HuberLoss(),
    "logits": nn.BCEWithLogitsLoss(pos_weight=torch.tensor([3.0], dtype=torch.float64)),
    "sum of squares": nn.MSELoss(reduction="sum"),
    "batch mean": nn.KLDivLoss(reduction="batchmean"),
    "shares of classes": nn.CrossEntropyLoss(weight=WEIGHT.double()),
    "a function of one's own": lambda p, t: (p - t).abs().mean(),
}


@settings(max_examples=40)
@given(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=4), seed=st.integers(0, 2**16))
@pytest.mark.parametrize("loss", NUMBERS.values(), ids=NUMBERS)
def test_losses_of_numbers_add_up(loss, sizes, seed):
    generator = torch.Generator().manual_seed(seed)
    parts = [
        (
            torch.randn(size, 3, generator=generator, dtype=torch.float64),
            torch.rand(size, 3, generator=generator, dtype=torch.float64).softmax(1),
        )
        for size in sizes
    ]
    torch.testing.assert_close(added_up(loss, parts), as_objective(loss).loss(*joined(parts)))


def test_pixels_count_one_by_one():
    x = torch.randn(3, 2, 4, 4, dtype=torch.float64)
    y = torch.randint(0, 2, (3, 4, 4))
    y[0, :3] = -100
    parts = [(x[:1], y[:1]), (x[1:], y[1:])]
    assert shares(as_objective("cross_entropy"), [Batch(*part) for part in parts]) == [4 / 36, 32 / 36]
    torch.testing.assert_close(added_up("cross_entropy", parts), F.cross_entropy(x, y))


@pytest.mark.parametrize("loss", [nn.CrossEntropyLoss(), nn.CrossEntropyLoss(weight=torch.ones(200).double())])
def test_classes_in_a_byte_count_as_any_others(loss):
    """-100 would be class 156 there, and a byte tensor that picks weights a mask."""
    x, y = torch.randn(3, 200, dtype=torch.float64), torch.tensor([156, 1, 0], dtype=torch.uint8)
    parts = [(x[:1], y[:1]), (x[1:], y[1:])]
    assert shares(as_objective(loss), [Batch(*part) for part in parts]) == [1 / 3, 2 / 3]
    torch.testing.assert_close(added_up(loss, parts), loss(x, y))


def test_a_micro_batch_without_a_target_counts_nothing_and_a_group_of_such_counts_evenly():
    none, one = torch.tensor([-100, -100]), torch.tensor([1, -100])
    scores = torch.zeros(2, 3)
    assert shares(as_objective("cross_entropy"), [Batch(scores, none), Batch(scores, one)]) == [0, 1]
    # so that the loss, NaN in each, is NaN and not zero
    assert shares(as_objective("cross_entropy"), [Batch(scores, none)] * 2) == [0.5, 0.5]


def objective(forward, model_state, inputs, targets):
    raise AssertionError("a share needs no forward pass")


def test_objectives_and_batches_without_tensors_for_targets_count_examples():
    group = [Batch({"ids": torch.zeros(3, 2)}, None), Batch({"ids": torch.zeros(1, 2)}, None)]
    assert shares(as_objective(objective), group) == [0.75, 0.25]
    assert shares(as_objective("mean_squared_error"), [Batch(torch.zeros(2), torch.zeros(2))] * 4) == [0.25] * 4


def test_one_micro_batch_is_the_batch():
    assert shares(as_objective("cross_entropy"), [Batch(torch.zeros(1, 3), torch.tensor([-100]))]) == [1.0]


def test_each_of_several_losses_has_shares_of_its_own():
    several = [("cross_entropy", 1.0), ("mean_squared_error", 0.5), (nn.L1Loss(reduction="sum"), 0.25)]
    scores, numbers = torch.randn(6, 3, dtype=torch.float64), torch.randn(6, 2, dtype=torch.float64)
    targets = torch.tensor([0, -100, -100, 1, 2, 0]), torch.randn(6, 2).double(), torch.randn(6, 2).double()
    whole = as_objective(several).loss((scores, numbers, numbers), targets)
    for sizes in ([3, 3], [1, 5], [2, 1, 3]):
        cuts = [slice(sum(sizes[:i]), sum(sizes[: i + 1])) for i in range(len(sizes))]
        group = [Batch(None, tuple(target[cut] for target in targets)) for cut in cuts]
        parts = zip(shared(as_objective(several), group), cuts, group, strict=True)
        losses = [
            share * part.loss((scores[cut], numbers[cut], numbers[cut]), batch.targets)
            for (part, share), cut, batch in parts
        ]
        torch.testing.assert_close(sum(losses), whole)


def test_a_micro_batch_where_no_loss_counts_has_no_share():
    none, one = torch.tensor([-100, -100]), torch.tensor([1, -100])
    group = [Batch(None, (none, none)), Batch(None, (one, none))]
    assert shares(as_objective([("cross_entropy", 1.0), ("nll", 0.0)]), group)[0] == 1.0
    assert shares(
        as_objective([("cross_entropy", 1.0), ("cross_entropy", 1.0)]), [Batch(None, (none, one)), group[1]]
    ) == [1.0, 1.0]
    assert shares(as_objective([("cross_entropy", 1.0)]), [Batch(None, (none,)), Batch(None, (one,))]) == [0.0, 1.0]


class Focal(nn.CrossEntropyLoss):
    def forward(self, prediction: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(prediction, targets, reduction="none").square().mean()


def test_a_subclass_with_a_forward_of_its_own_counts_examples():
    parts = [(torch.randn(3, 2), torch.tensor([0, -100, -100])), (torch.randn(1, 2), torch.tensor([1]))]
    assert shares(as_objective(Focal()), [Batch(*part) for part in parts]) == [0.75, 0.25]
