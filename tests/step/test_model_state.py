"""A live view of a module, what of it is frozen, and its train flags for the length of a run."""

from __future__ import annotations

import copy
import gc
import pickle
import warnings
import weakref

import pytest
import torch
import torch.utils._pytree as pytree
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, distributed, nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed.fake_pg import FakeStore

from gradviz.errors import FreezeError, ModelError
from gradviz.step import stillness as still
from gradviz.step.model_state import ModelState, check_trainable
from gradviz.step.stillness import TrainingMode


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


@pytest.mark.parametrize("wrap", [lambda model: torch.compile(model, backend="eager"), nn.DataParallel])
def test_names_of_a_wrapped_model_are_the_plain_ones(wrap):
    state = ModelState(wrap(net()))
    assert list(state) == list(ModelState(net()))
    assert (
        state["1.running_mean"]
        is dict(state.module.named_buffers())[f"{next(iter(state.module._modules))}.1.running_mean"]
    )
    assert repr(state) == "ModelState of Sequential: 19 of 19 parameters trainable"
    state.freeze("0", "1.running_*")
    assert list(state.frozen) == ["0.weight", "0.bias"]


def test_a_buffer_under_two_names_stands_once_and_is_found_under_both():
    norm = nn.BatchNorm1d(2, affine=False)
    state = ModelState(nn.Sequential(norm, norm))
    assert list(state) == ["0.running_mean", "0.running_var", "0.num_batches_tracked"]
    assert state["1.running_mean"] is norm.running_mean


def test_it_says_how_much_is_trainable_and_what_has_no_shape_yet():
    state = ModelState(nn.Sequential(nn.Linear(100, 50), nn.Linear(50, 1)))
    state["0.weight"].requires_grad_(False)
    assert repr(state) == "ModelState of Sequential: 101 of 5,101 parameters trainable"
    assert repr(ModelState(nn.LazyLinear(2))) == "ModelState of LazyLinear: not yet initialised"


def test_to_pytree_it_is_a_mapping_of_parameters_then_buffers():
    model = net()
    state = ModelState(model)
    paths = [pytree.keystr(path) for path, _ in pytree.tree_leaves_with_path(state)]
    assert paths == [f"[{name!r}]" for name in state]
    assert paths[0] == "['0.weight']"
    assert all(a is b for a, b in zip(pytree.tree_leaves(state), state.values(), strict=True))
    copied = pytree.tree_map(torch.clone, state)
    assert type(copied) is dict
    assert list(copied) == list(state)
    assert torch.equal(copied["1.running_var"], model[1].running_var)


def test_an_unknown_name_says_the_nearest():
    with pytest.raises(KeyError, match=r"did you mean '0\.weight'"):
        ModelState(net())["0.wieght"]


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (3, "got an int"),
        (nn.ReLU(), r"no trainable parameter \(0 of 0\)"),
        (
            nn.Linear(2, 2).requires_grad_(False),
            r"\(0 of 2\)\. Unfreeze some: model\.requires_grad_\(True\), or gv\.ModelState\(model\)\.unfreeze\(\)",
        ),
        (nn.LazyLinear(2), r"Run one batch first: model\(inputs\)"),
    ],
)
def test_a_model_that_cannot_train_is_refused(model, words):
    with pytest.raises(ModelError, match=words):
        check_trainable(model)


@pytest.fixture
def world_of_one():
    distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=1)  # no threads that could hang
    yield
    distributed.destroy_process_group()


def sharded(model: nn.Module, *, use_orig_params: bool) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a world of one shards nothing
        return FullyShardedDataParallel(model, device_id=torch.device("cpu"), use_orig_params=use_orig_params)


@pytest.mark.usefixtures("world_of_one")
def test_flattened_parameters_are_refused_and_sharded_ones_with_their_names_are_not():
    flat = sharded(net(), use_orig_params=False)
    with pytest.raises(ModelError, match=r"use_orig_params=True\), or torch\.distributed\.fsdp\.fully_shard\(model\)"):
        check_trainable(flat)
    check_trainable(sharded(net(), use_orig_params=True))


@pytest.mark.usefixtures("world_of_one")
def test_models_that_reduce_gradients_in_backward_or_are_hooked_can_train():
    hooked = net()
    hooked[0].weight.register_post_accumulate_grad_hook(lambda p: None)
    for model in (hooked, nn.DataParallel(net()), DistributedDataParallel(net())):
        check_trainable(model)


def flags(model: nn.Module) -> list[bool]:
    return [child.training for child in model.modules()]


def test_everything_trains_and_every_flag_comes_back_on_errors_too():
    model = net().eval()
    model[2].train()
    before = flags(model)
    with TrainingMode(model):
        assert all(flags(model))
    assert flags(model) == before

    def fail() -> None:
        with TrainingMode(model):
            raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        fail()
    assert flags(model) == before


def test_parts_put_in_eval_mode_on_purpose_and_frozen_parts_stay_there():
    model = net().train()
    model[2].eval()
    model[1].requires_grad_(False)
    with TrainingMode(model):
        assert [child.training for child in model] == [True, False, False, True]
    assert [child.training for child in model] == [True, True, False, True]


def test_the_flags_can_be_set_again():
    model = net().train()
    model[1].eval()
    with TrainingMode(model) as mode:
        model.eval()
        mode.set()
        assert [child.training for child in model] == [True, False, True, True]


def test_a_module_s_own_train_is_respected():
    class Frozen(nn.Sequential):
        def train(self, mode: bool = True) -> Frozen:
            super().train(mode)
            self[1].eval()
            return self

    model = Frozen(nn.Linear(2, 2), nn.BatchNorm1d(2))
    model.eval()
    with TrainingMode(model):
        assert not model[1].training


def trainable(model: nn.Module) -> list[str]:
    return list(ModelState(model).trainable)


@pytest.mark.parametrize(
    ("which", "left"),
    [
        ([], []),
        (["0"], ["1.weight", "1.bias", "3.weight", "3.bias"]),
        (["0.*"], ["1.weight", "1.bias", "3.weight", "3.bias"]),
        (["*.bias"], ["0.weight", "1.weight", "3.weight"]),
        (["[01].weight"], ["0.bias", "1.bias", "3.weight", "3.bias"]),
        (["[01]"], ["3.weight", "3.bias"]),
        (["0", "*.bias"], ["1.weight", "3.weight"]),
        ([lambda name: name.endswith("weight")], ["0.bias", "1.bias", "3.bias"]),
        (["3.bias", lambda name: "0" in name], ["1.weight", "1.bias", "3.weight"]),
    ],
)
def test_patterns_paths_and_functions_say_what_is_frozen_and_unfrozen(which, left):
    model = net()
    state = ModelState(model)
    assert state.freeze(*which) is state
    assert trainable(model) == left
    assert state.unfreeze(*which) is state
    assert trainable(model) == trainable(net())


def test_a_path_means_what_is_below_it_and_not_what_begins_alike():
    model = nn.ModuleDict({"enc": nn.Linear(1, 1), "encoder": nn.Sequential(nn.Linear(1, 1))})
    ModelState(model).freeze("enc")
    assert trainable(model) == ["encoder.0.weight", "encoder.0.bias"]
    ModelState(model).freeze("encoder")
    assert trainable(model) == []


def test_freezes_add_up():
    model = net()
    state = ModelState(model)
    state.freeze("0.weight")
    state.freeze("3.weight")
    ModelState(model).freeze("1.bias")
    assert list(state.frozen) == ["0.weight", "1.bias", "3.weight"]
    state.unfreeze("3")
    assert list(state.frozen) == ["0.weight", "1.bias"]


def test_freezing_drops_the_gradient_of_what_is_frozen_alone():
    model = net()
    model(torch.randn(4, 2)).sum().backward()
    ModelState(model).freeze("0")
    assert model[0].weight.grad is None
    assert model[0].bias.grad is None
    assert model[3].weight.grad is not None


def test_a_tied_parameter_is_frozen_under_any_of_its_names():
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2))
    model[1].weight = model[0].weight
    ModelState(model).freeze("1.weight")
    assert trainable(model) == ["1.bias"]
    ModelState(model).unfreeze(lambda name: name == "1.weight")
    assert trainable(model) == ["0.weight", "1.bias"]


@pytest.mark.parametrize("verb", ["freeze", "unfreeze"])
@pytest.mark.parametrize(
    ("which", "words"),
    [
        ("0.wieght", r"'0\.wieght'\) fits no parameter or buffer: did you mean '0\.weight'"),
        ("encodr", r"did you mean 'encoder'"),
        ("encodr.*", r"did you mean 'encoder'"),
        ("ENCODER", r"did you mean 'encoder'"),
        ("", r"fits no parameter or buffer: known: 0"),
        (lambda name: False, r"\(<lambda>\) fits no parameter or buffer: known: 0, 0\.bias, 0\.weight"),
        (["0", "1"], r"got a list\. Write (un)?freeze\(\"encoder\", \"\*\.bias\"\)"),
        (nn.Linear(1, 1), r"got a Linear\. Write (un)?freeze\(\)"),
    ],
)
def test_what_fits_nothing_is_refused_before_anything_changed(verb, which, words):
    model = net()
    model.encoder = nn.Linear(3, 3)
    state = ModelState(model).freeze("3.bias")
    before, count = trainable(model), still.changes()
    with pytest.raises(FreezeError, match=words):
        getattr(state, verb)("0", "1", "3", which)
    assert trainable(model) == before
    assert still.changes() == count


def test_a_module_in_the_place_of_its_name_is_refused_with_the_name():
    model = net()
    with pytest.raises(FreezeError, match=r"got a BatchNorm1d\. Write freeze\('1'\)"):
        ModelState(model).freeze(model[1])


def test_integer_parameters_stay_frozen_and_naming_only_them_is_refused():
    model = nn.Linear(2, 2)
    model.codes = nn.Parameter(torch.zeros(2, dtype=torch.int8), requires_grad=False)
    state = ModelState(model).freeze()
    with pytest.raises(
        FreezeError, match=r"unfreeze\('codes'\) fits only parameters of torch\.int8, which have no gradient"
    ):
        state.unfreeze("bias", "codes")
    assert list(state.trainable) == []
    assert list(state.unfreeze().frozen) == ["codes"]


@given(
    st.lists(
        st.tuples(
            st.booleans(), st.sets(st.sampled_from(["0", "1", "3", "*.bias", "1.running_*", "*.weight"]), min_size=1)
        )
    )
)
def test_any_order_of_freezes_and_unfreezes_leaves_what_the_last_word_on_each_name_said(words):
    model = net()
    state = ModelState(model)
    want = dict.fromkeys(state.parameters, True)
    for freezes, which in words:
        (state.freeze if freezes else state.unfreeze)(*which)
        for name in want:
            if name[0] in which or f"*.{name[2:]}" in which:
                want[name] = not freezes
    assert {name: p.requires_grad for name, p in state.parameters.items()} == want


def statistics_move(model: nn.Module, norm: nn.Module) -> bool:
    """Whether a forward pass in training mode moves a batch norm's statistics; all is put back."""
    before: Tensor = norm.running_mean.clone()
    with TrainingMode(model), torch.no_grad():
        model(torch.randn(8, 2) + 3)
    moved = not torch.equal(norm.running_mean, before)
    norm.running_mean.copy_(before)
    assert all(flags(model))
    return moved


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("which", [[], ["1"], ["1.running_mean"], [lambda name: "running" in name]])
def test_statistics_of_what_is_frozen_stay_still_until_it_is_unfrozen(affine, which):
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3, affine=affine), nn.Linear(3, 1))
    assert statistics_move(model, model[1])
    ModelState(model).freeze(*which)
    assert not statistics_move(model, model[1])
    ModelState(model).unfreeze(*which)
    assert statistics_move(model, model[1])


def test_statistics_frozen_with_their_weights_move_when_the_weights_are_made_trainable_by_hand():
    model = net()
    ModelState(model).freeze("1")
    model[1].requires_grad_(True)
    assert statistics_move(model, model[1])
    model[1].requires_grad_(False)
    assert not statistics_move(model, model[1])


def test_statistics_frozen_alone_stay_still_whatever_the_weights_do():
    model = net()
    state = ModelState(model).freeze("1.running_*", "1.num_batches_tracked")
    assert trainable(model) == trainable(net())
    state.freeze("1")
    model[1].requires_grad_(True)
    assert not statistics_move(model, model[1])
    state.unfreeze("1.weight")
    assert not statistics_move(model, model[1])


def test_statistics_unfrozen_alone_move_although_the_weights_are_frozen():
    model = net()
    state = ModelState(model).freeze("0", "1")
    state.unfreeze("1.running_*")
    assert list(state.frozen) == ["0.weight", "0.bias", "1.weight", "1.bias"]
    assert statistics_move(model, model[1])
    state.freeze("1")
    assert not statistics_move(model, model[1])


def test_weights_frozen_by_hand_hold_statistics_only_where_all_of_the_module_are():
    model = net()
    model[1].weight.requires_grad_(False)
    assert statistics_move(model, model[1])
    model[1].bias.requires_grad_(False)
    assert not statistics_move(model, model[1])


def test_a_batch_norm_without_parameters_inside_a_wholly_frozen_part_is_still_too():
    model = nn.Sequential(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3, affine=False)), nn.Linear(3, 1))
    model[0].requires_grad_(False)
    assert not statistics_move(model, model[0][1])
    ModelState(model).unfreeze("0.1")
    assert statistics_move(model, model[0][1])


def test_every_view_of_a_module_knows_what_is_still():
    model = net()
    ModelState(model[1]).freeze("running_mean")
    assert not statistics_move(model, model[1])
    ModelState(torch.compile(model, backend="eager")).unfreeze("1.running_mean")
    assert statistics_move(model, model[1])


def test_flags_follow_a_freeze_and_an_unfreeze_while_they_are_set():
    model = net()
    model[2].eval()
    state = ModelState(model)
    with TrainingMode(model) as mode:
        state.freeze("1.running_*")
        mode.set()
        assert [child.training for child in model] == [True, False, False, True]
        state.unfreeze("1.running_*")
        mode.set()
        assert [child.training for child in model] == [True, True, False, True]
        state.freeze("1", "3")
        mode.set()
        assert [child.training for child in model] == [True, False, False, False]
    assert [child.training for child in model] == [True, True, False, True]


def test_the_count_grows_only_when_it_changed_which_modules_are_still():
    state = ModelState(net())

    def grown(verb: str, *which: str) -> bool:
        before = still.changes()
        getattr(state, verb)(*which)
        return still.changes() > before

    assert not grown("freeze", "0.weight")
    assert grown("freeze", "1")
    assert not grown("freeze", "1")
    assert grown("unfreeze", "1.running_mean")
    assert not grown("unfreeze", "1.weight")
    assert grown("freeze", "1.running_mean")
    assert grown("unfreeze")
    assert not grown("unfreeze")


def test_what_is_still_is_forgotten_with_the_module():
    model = net()
    ModelState(model).freeze()
    seen = weakref.ref(model[1])
    del model
    gc.collect()
    assert seen() is None


def test_a_copy_of_a_frozen_batch_norm_is_frozen_by_its_weights():
    model = net()
    ModelState(model).freeze("1")
    copied = copy.deepcopy(model)
    assert not statistics_move(copied, copied[1])


def test_what_was_frozen_stays_frozen_in_a_copy_and_a_pickle():
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3, affine=False))
    ModelState(model).freeze("1")
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        with TrainingMode(twin):
            twin(torch.randn(8, 2))
        assert twin[1].num_batches_tracked == 0
    assert list(model.state_dict()) == list(
        nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3, affine=False)).state_dict()
    )
