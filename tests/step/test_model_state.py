"""A live view of a module, and its train flags for the length of a run."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gradviz.errors import ModelError
from gradviz.step.model_state import ModelState, check_trainable, training_mode


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Dropout(0.5), nn.Linear(3, 1))


def test_it_is_live():
    model = net()
    state = ModelState(model)
    with torch.no_grad():
        model[0].weight.fill_(7)
    assert state["0.weight"] is model[0].weight
    assert list(state) == [*dict(model.named_parameters()), *dict(model.named_buffers())]
    assert len(state) == 9


def test_it_follows_a_freeze_and_a_replaced_layer():
    model = net()
    state = ModelState(model)
    before = state.parameters
    assert state.parameters is before
    model[0].weight.requires_grad_(False)
    assert "0.weight" in state.frozen
    assert "0.weight" not in state.trainable
    model[3] = nn.Linear(3, 5)
    assert state.parameters is not before
    assert state.parameters["3.weight"].shape == (5, 3)
    model[3].weight = nn.Parameter(torch.zeros(4, 3))
    assert state.parameters["3.weight"].shape == (4, 3)


def test_a_tied_parameter_stands_once():
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    model[1].weight = model[0].weight
    assert list(ModelState(model).parameters) == ["0.weight"]


def test_names_of_a_compiled_model_are_the_plain_ones():
    assert list(ModelState(torch.compile(nn.Linear(2, 2), backend="eager")).parameters) == ["weight", "bias"]
    assert list(ModelState(nn.ModuleDict({"my_orig_mod": nn.Linear(1, 1, bias=False)}))) == ["my_orig_mod.weight"]


def test_an_unknown_name_says_the_nearest():
    with pytest.raises(KeyError, match=r"did you mean '0\.weight'"):
        ModelState(net())["0.wieght"]


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (3, "got an int"),
        (nn.ReLU(), r"no trainable parameter \(0 of 0\)"),
        (nn.Linear(2, 2).requires_grad_(False), r"\(0 of 2\). Unfreeze some: model.requires_grad_\(True\)"),
        (nn.LazyLinear(2), r"Run one batch first: model\(inputs\)"),
        (nn.DataParallel(nn.Linear(2, 2)), "Pass model.module instead"),
    ],
)
def test_a_model_that_cannot_train_is_refused(model, words):
    with pytest.raises(ModelError, match=words):
        check_trainable(model)


def flags(model: nn.Module) -> list[bool]:
    return [child.training for child in model.modules()]


def test_everything_trains_and_every_flag_comes_back_on_errors_too():
    model = net().eval()
    model[2].train()
    before = flags(model)
    with training_mode(model):
        assert all(flags(model))
    assert flags(model) == before

    def fail() -> None:
        with training_mode(model):
            raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        fail()
    assert flags(model) == before


def test_parts_put_in_eval_mode_on_purpose_and_frozen_parts_stay_there():
    model = net().train()
    model[2].eval()
    model[1].requires_grad_(False)
    with training_mode(model):
        assert [child.training for child in model] == [True, False, False, True]
    assert [child.training for child in model] == [True, True, False, True]


def test_the_flags_can_be_set_again():
    model = net().train()
    model[1].eval()
    with training_mode(model) as train:
        model.eval()
        train()
        assert [child.training for child in model] == [True, False, True, True]


def test_a_module_s_own_train_is_respected():
    class Frozen(nn.Sequential):
        def train(self, mode: bool = True) -> Frozen:
            super().train(mode)
            self[1].eval()
            return self

    model = Frozen(nn.Linear(2, 2), nn.BatchNorm1d(2))
    model.eval()
    with training_mode(model):
        assert not model[1].training
