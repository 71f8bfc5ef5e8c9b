"""Every parameter is one leaf under torch's own first name, and the list follows the model."""

from __future__ import annotations

import contextlib
import functools
import gc
import warnings
import weakref
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import distributed, nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import parametrizations, parametrize
from torch.testing._internal.distributed.fake_pg import FakeStore

import gradviz as gv
from gradviz.grad.leaves import class_name, leaves_of, walk, wrapper_name


def names(module: nn.Module) -> tuple[str, ...]:
    return leaves_of(module).trainable()[0].names


def attention_net() -> nn.Module:
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 2, enable_nested_tensor=False)


@pytest.mark.parametrize(
    "module",
    [
        nn.Linear(2, 1),
        nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.ModuleList([nn.Linear(3, 1)])),
        nn.LSTM(3, 4, num_layers=2, bidirectional=True),
        attention_net(),
        nn.ParameterDict({"b": torch.ones(1), "a": torch.ones(1)}),
        parametrizations.weight_norm(nn.Linear(2, 2)),
        nn.ReLU(),
    ],
    ids=lambda module: type(module).__name__,
)
def test_names_and_order_are_those_of_named_parameters(module):
    assert names(module) == tuple(name for name, _ in module.named_parameters())
    assert all(a is b for a, b in zip(leaves_of(module).trainable()[1], module.parameters(), strict=True))


@pytest.mark.case("C31")
def test_one_layer_under_two_names_is_one_leaf_with_an_alias():
    lin = nn.Linear(2, 2)
    model = nn.Sequential(lin, lin)
    model.again = lin
    kind, parameters = leaves_of(model).trainable()
    assert kind.names == ("0.weight", "0.bias")
    assert len(parameters) == 2
    assert kind.aliases == {
        "1.weight": "0.weight",
        "1.bias": "0.bias",
        "again.weight": "0.weight",
        "again.bias": "0.bias",
    }


def test_two_parameters_that_are_equal_in_value_are_two_leaves():
    model = nn.ParameterList([torch.ones(2), torch.ones(2)])
    assert names(model) == ("0", "1")
    assert leaves_of(model).aliases == {}


def test_the_first_name_is_the_first_in_declaration_order_even_when_a_later_one_was_declared_first_elsewhere():
    shared = nn.Linear(2, 2, bias=False)
    model = nn.Module()
    model.z = nn.Sequential(shared)
    model.a = shared
    assert names(model) == ("z.0.weight",)
    assert leaves_of(model).aliases == {"a.weight": "z.0.weight"}


def test_buffers_frozen_names_and_aliases_of_frozen_ones_are_kept_apart():
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Linear(2, 2))
    model[2].weight = model[0].weight
    model[0].requires_grad_(False)
    kind, _ = leaves_of(model).trainable()
    assert kind.names == ("1.weight", "1.bias", "2.bias")
    assert kind.frozen == {"0.weight", "0.bias", "2.weight"}
    assert kind.aliases == {}
    assert kind.buffers == {"1.running_mean", "1.running_var", "1.num_batches_tracked"}


def test_a_missing_bias_and_missing_statistics_are_no_names():
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.BatchNorm1d(2, affine=False, track_running_stats=False))
    assert names(model) == ("0.weight",)
    assert leaves_of(model).buffers == []


def test_a_model_that_did_not_change_is_walked_once():
    model = nn.Sequential(nn.Linear(2, 2))
    assert leaves_of(model) is leaves_of(model)
    assert leaves_of(model).trainable()[0] is leaves_of(model).trainable()[0]


def replace_a_layer(model: nn.Sequential) -> None:
    model[1] = nn.Linear(2, 5)


def replace_a_parameter(model: nn.Sequential) -> None:
    model[1].weight = nn.Parameter(torch.zeros(4, 2))


def add_a_parameter(model: nn.Sequential) -> None:
    model[0].scale = nn.Parameter(torch.ones(1))


def remove_a_layer(model: nn.Sequential) -> None:
    del model[1]


def tie(model: nn.Sequential) -> None:
    model[1].weight = model[0].weight


def untie_bias(model: nn.Sequential) -> None:
    model[0].register_parameter("bias", None)


def parametrize_a_layer(model: nn.Sequential) -> None:
    parametrizations.orthogonal(model[1])


def rename_a_layer(model: nn.Sequential) -> None:
    layer = model[1]
    delattr(model, "1")
    model.head = layer


def rename_a_parameter(model: nn.Sequential) -> None:
    bias = model[1].bias
    del model[1].bias
    model[1].register_parameter("offset", bias)


@pytest.mark.parametrize(
    "change",
    [
        replace_a_layer,
        replace_a_parameter,
        add_a_parameter,
        remove_a_layer,
        tie,
        untie_bias,
        parametrize_a_layer,
        rename_a_layer,
        rename_a_parameter,
    ],
)
def test_a_changed_tree_is_seen_at_once(change):
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    names(model)
    change(model)
    kind, parameters = leaves_of(model).trainable()
    assert kind.names == tuple(name for name, _ in model.named_parameters())
    assert kind.shapes == tuple(p.shape for p in model.parameters())
    assert all(a is b for a, b in zip(parameters, model.parameters(), strict=True))


def test_removing_a_parametrization_gives_the_plain_names_back():
    model = nn.Sequential(nn.Linear(2, 2, bias=False))
    parametrizations.orthogonal(model[0])
    assert names(model) == ("0.parametrizations.weight.original",)
    parametrize.remove_parametrizations(model[0], "weight")
    assert names(model) == ("0.weight",)


def test_a_buffer_registered_later_is_known_as_a_buffer():
    model = nn.Linear(2, 1)
    names(model)
    model.register_buffer("scale", torch.ones(1))
    _, g = gv.value_and_grad(lambda m, x: (m(x) * m.scale).sum(), model, torch.ones(1, 2))
    with pytest.raises(AttributeError, match="is a buffer"):
        _ = g.scale


def test_freezing_and_unfreezing_changes_the_kind_and_comes_back_to_an_equal_one():
    model = nn.Linear(2, 1)
    before, _ = leaves_of(model).trainable()
    model.bias.requires_grad_(False)
    frozen, _ = leaves_of(model).trainable()
    assert frozen.names == ("weight",)
    assert frozen != before
    model.bias.requires_grad_(True)
    assert leaves_of(model).trainable()[0] == before


def test_kinds_agree_when_class_names_and_shapes_do():
    assert leaves_of(nn.Linear(2, 1)).trainable()[0] == leaves_of(nn.Linear(2, 1).double()).trainable()[0]
    assert leaves_of(nn.Linear(2, 1)).trainable()[0] != leaves_of(nn.Linear(3, 1)).trainable()[0]
    assert leaves_of(nn.Linear(2, 2)).trainable()[0] != leaves_of(nn.Bilinear(1, 2, 2)).trainable()[0]


def test_names_of_a_compiled_model_are_the_plain_ones_at_every_depth():
    plain = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2)))
    want, model_name = names(plain), class_name(plain)
    plain[1] = torch.compile(plain[1], backend="eager")
    whole = torch.compile(plain, backend="eager")
    assert names(whole) == want
    assert class_name(whole) == model_name
    assert set(leaves_of(whole).trainable()[0].modules) == {"0", "1", "1.0"}


def small_net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 1)))


def compiled(module: nn.Module) -> nn.Module:
    wrapped: nn.Module = torch.compile(module, backend="eager")
    return wrapped


def sharded_1(module: nn.Module) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a world of one shards nothing
        return FullyShardedDataParallel(module, device_id=torch.device("cpu"), use_orig_params=True)


def sharded_2(module: nn.Module) -> nn.Module:
    return fully_shard(module, mesh=init_device_mesh("cpu", (1,)))


@contextlib.contextmanager
def world_of_one() -> Iterator[None]:
    distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=1)  # no threads that could hang
    try:
        yield
    finally:
        distributed.destroy_process_group()


WRAPPERS = [nn.DataParallel, DistributedDataParallel, sharded_1, sharded_2, checkpoint_wrapper]


def around_a_part(wrap: Callable[[nn.Module], nn.Module]) -> nn.Module:
    model = small_net()
    model[1] = wrap(model[1])
    return model


@pytest.mark.parametrize(
    "make",
    [
        lambda: compiled(small_net()),
        lambda: around_a_part(compiled),
        *[functools.partial(lambda wrap: wrap(small_net()), wrap) for wrap in WRAPPERS],
        *[functools.partial(lambda wrap: wrap(compiled(small_net())), wrap) for wrap in WRAPPERS],
        *[functools.partial(lambda wrap: compiled(wrap(small_net())), wrap) for wrap in WRAPPERS],
        *[functools.partial(around_a_part, wrap) for wrap in WRAPPERS],
    ],
)
def test_a_wrapped_model_has_the_names_and_the_class_of_the_plain_one(make):
    plain = leaves_of(small_net())
    with world_of_one():
        wrapped = leaves_of(make())
        assert wrapped.trainable()[0] == plain.trainable()[0]
        assert wrapped.modules == plain.modules
        assert wrapped.buffers == plain.buffers
        assert [name for name, _ in wrapped.named_buffers()] == plain.buffers


@pytest.mark.parametrize("name", ["module", "_orig_mod", "_fsdp_wrapped_module", "my_orig_mod"])
def test_a_child_of_one_s_own_that_is_called_as_in_a_wrapper_keeps_its_name(name):
    model = nn.ModuleDict({name: nn.Linear(1, 1)})
    assert names(model) == (f"{name}.weight", f"{name}.bias")
    assert names(nn.DataParallel(model)) == (f"{name}.weight", f"{name}.bias")
    assert class_name(model) == "torch.nn.modules.container.ModuleDict"


def test_a_wrapper_with_something_of_its_own_beside_the_model_keeps_the_two_apart():
    class WithHead(nn.DataParallel):
        def __init__(self, module: nn.Module) -> None:
            super().__init__(module)
            self.head = nn.Linear(1, 1, bias=False)

    assert names(WithHead(nn.ModuleDict({"head": nn.Linear(2, 1, bias=False)}))) == (
        "module.head.weight",
        "head.weight",
    )


def test_buffers_are_those_the_module_has_now_under_every_name():
    norm = nn.BatchNorm1d(2)
    model = nn.Sequential(norm, norm)
    leaves = leaves_of(model)
    norm.running_mean = torch.full((2,), 7.0)
    buffers = dict(leaves.named_buffers())
    assert list(buffers) == leaves.buffers
    assert buffers["0.running_mean"] is norm.running_mean
    assert buffers["1.running_mean"] is norm.running_mean


def test_a_thousand_levels_are_no_recursion_error():
    model = nn.Linear(1, 1)
    for _ in range(1000):
        model = nn.Sequential(model)
    (weight, bias) = names(model)
    assert weight == "0." * 1000 + "weight"
    assert bias == "0." * 1000 + "bias"


def test_a_module_inside_itself_is_visited_once():
    model = nn.Sequential(nn.Linear(1, 1))
    model[0].parent = model
    assert [path for path, _ in walk(model)] == ["", "0."]
    assert names(model) == ("0.weight", "0.bias")


@pytest.mark.parametrize("inside_itself", [False, True])
def test_looking_at_a_model_does_not_keep_it(inside_itself):
    model = nn.Sequential(nn.Linear(1, 1))
    if inside_itself:
        model[0].parent = model
    leaves_of(model).trainable()
    seen = weakref.ref(model)
    del model
    gc.collect()
    assert seen() is None


def test_only_torch_s_own_wrappers_count_as_wrappers():
    class DistributedDataParallel(nn.Module):
        """Of the same name, but not torch's."""

    assert wrapper_name(DistributedDataParallel()) is None
    assert wrapper_name(nn.Linear(1, 1)) is None
    assert wrapper_name(nn.DataParallel(nn.Linear(1, 1))) == "DataParallel"

    class Mine(nn.DataParallel):
        pass

    assert wrapper_name(Mine(nn.Linear(1, 1))) == "DataParallel"
