"""What is trained, what is frozen since the step before, and what the optimizer moves."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gradviz.step.mask import Found, Mask
from gradviz.step.masters import Masters
from gradviz.step.model_state import ModelState

NAMES = ["0.weight", "0.bias", "1.weight", "1.bias", "2.weight", "2.bias"]


class Case:
    """A model, an optimizer over some of it, and the mask of both."""

    def __init__(self, *held: int, frozen: tuple[int, ...] = (), dtype: torch.dtype = torch.float32) -> None:
        self.model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1)).to(dtype)
        for place in frozen:
            self.model[place].requires_grad_(False)
        self.masters = Masters(ModelState(self.model).parameters)
        parameters = [self.masters.of(p) for place in held or (0, 1, 2) for p in self.model[place].parameters()]
        self.optimizer = torch.optim.SGD(parameters, lr=0.1)
        self.mask = Mask(self.model, self.masters, self.optimizer)

    def look(self) -> bool:
        return self.mask.look(Found.of(self.model))

    def optimized(self) -> frozenset[str]:
        return self.mask.optimized(Found.of(self.model).leaves)

    def held(self) -> list[int]:
        return [id(p) for group in self.optimizer.param_groups for p in group["params"]]


def test_the_first_look_is_what_later_ones_are_compared_with():
    case = Case(frozen=(0,))
    assert case.look()
    assert case.mask.changes()[:2] == ((), ())
    assert not case.look()


def test_a_freeze_and_an_unfreeze_are_seen_once_whoever_did_it():
    case = Case()
    case.look()
    case.model[0].requires_grad_(False)
    ModelState(case.model).freeze("2.bias")
    assert case.look()
    assert case.mask.changes()[:2] == (("0.weight", "0.bias", "2.bias"), ())
    assert not case.look()
    assert case.mask.changes()[:2] == ((), ())
    case.model[0].weight.requires_grad_(True)
    ModelState(case.model).freeze("1.weight")
    assert case.look()
    assert case.mask.changes()[:2] == (("1.weight",), ("0.weight",))


def test_what_is_undone_before_a_look_never_happened():
    case = Case()
    case.look()
    case.model.requires_grad_(False)
    case.model.requires_grad_(True)
    assert not case.look()
    assert case.mask.changes()[:2] == ((), ())


def test_changes_that_nobody_asked_for_are_kept():
    case = Case()
    case.look()
    case.model[0].bias.requires_grad_(False)
    case.look()
    case.model[0].weight.requires_grad_(False)
    case.look()
    assert case.mask.changes()[:2] == (("0.bias", "0.weight"), ())


def test_statistics_that_are_to_be_still_are_a_change_without_a_parameter():
    case = Case()
    case.look()
    ModelState(case.model).freeze("1.running_*", "1.num_batches_tracked")
    assert case.look()
    assert case.mask.changes()[:2] == (("1.running_mean", "1.running_var", "1.num_batches_tracked"), ())
    assert not case.look()
    assert case.mask.holds_still
    ModelState(case.model).unfreeze("1.running_*")
    case.look()
    assert case.mask.changes()[:2] == ((), ("1.running_mean", "1.running_var", "1.num_batches_tracked"))
    assert not case.mask.holds_still


def test_a_tied_parameter_is_seen_once_under_its_first_name():
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    model[1].weight = model[0].weight
    mask = Mask(model, Masters(ModelState(model).parameters), torch.optim.SGD(model.parameters(), lr=0.1))
    mask.look(Found.of(model))
    ModelState(model).freeze("1.weight")
    mask.look(Found.of(model))
    assert mask.changes()[:2] == (("0.weight",), ())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_is_unfrozen_and_in_no_group_joins_the_first_and_nothing_else_does(dtype):
    case = Case(2, frozen=(0,), dtype=dtype)
    case.look()
    before = case.held()
    case.model[0].weight.requires_grad_(True)
    case.look()
    master = case.masters.of(case.model[0].weight)
    assert case.held() == [*before, id(master)]
    assert master.dtype == torch.float32
    assert case.optimized() == {"0.weight", "2.weight", "2.bias"}  # not 1.*: trainable, and left out on purpose
    for trains in (False, True):
        case.model[0].weight.requires_grad_(trains)
        case.look()
    assert case.held() == [*before, id(master)]


def test_a_parameter_that_is_new_is_neither_frozen_nor_unfrozen_and_joins_no_group():
    case = Case()
    case.look()
    before = case.held()
    case.model.append(nn.Linear(1, 1))
    assert case.look()
    assert case.mask.changes()[:2] == ((), ())
    assert case.held() == before


def test_optimized_is_the_same_object_until_a_rate_a_group_or_the_model_changes():
    case = Case(0, 1)
    case.optimizer.add_param_group({"params": case.model[2].parameters(), "lr": 0.0})
    first = case.optimized()
    assert first == {"0.weight", "0.bias", "1.weight", "1.bias"}
    assert case.optimized() is first
    case.optimizer.param_groups[0]["lr"] = 0.2
    assert case.optimized() == first
    case.optimizer.param_groups[1]["lr"] = torch.tensor(0.1)
    assert case.optimized() == set(NAMES)
    case.optimizer.param_groups[0]["params"] = list(case.model[0].parameters())
    assert case.optimized() == {"0.weight", "0.bias", "2.weight", "2.bias"}
    case.model[0] = nn.Linear(2, 3)
    assert case.optimized() == {"2.weight", "2.bias"}


def test_a_group_without_a_rate_moves_its_parameters():
    case = Case()
    for group in case.optimizer.param_groups:
        del group["lr"]
    assert case.optimized() == set(NAMES)


def test_who_froze_what_is_known_where_somebody_said_so():
    case = Case()
    case.look()
    model = case.model
    with case.mask.acting("handler"):
        model[0].requires_grad_(False)
        with case.mask.acting("widget"):
            model[2].bias.requires_grad_(False)
    model[2].weight.requires_grad_(False)
    case.look()
    by = {"0.weight": "handler", "0.bias": "handler", "2.bias": "widget", "2.weight": "user"}
    assert case.mask.changes()[2] == by
    assert case.mask.changes()[2] == {}


def test_what_one_froze_and_another_trains_again_is_the_other_s():
    case = Case()
    case.look()
    with case.mask.acting("handler"):
        case.model[0].bias.requires_grad_(False)
    with case.mask.acting("widget"):
        case.model[0].bias.requires_grad_(True)
    case.model[0].bias.requires_grad_(False)
    case.look()
    assert case.mask.changes() == (("0.bias",), (), {"0.bias": "user"})
