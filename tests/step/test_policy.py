"""What a policy may be, and which modules it is meant for."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

import gradviz as gv
from gradviz.errors import PolicyError
from gradviz.step.policy import Policy, as_policy, check_patterns, covers, places_in

F16, BF16 = torch.float16, torch.bfloat16


def test_policies_are_values():
    assert Policy("bfloat16") == Policy(BF16)
    assert hash(Policy("bfloat16")) == hash(Policy(BF16))
    assert repr(Policy(F16, F16, torch.float32)) == "Policy(params=float16, compute=float16, output=float32)"
    assert repr(Policy(F16, except_=())) == "Policy(params=float16, except_=())"
    assert repr(Policy()) == "Policy()"
    with pytest.raises(AttributeError):
        Policy().params = F16


def test_no_policy_is_one_that_leaves_everything_alone():
    assert as_policy(None) == Policy()
    assert as_policy(Policy(F16)) == Policy(F16)
    assert gv.Policy is Policy
    for wrong in ("float16", F16, {"compute": F16}):
        with pytest.raises(PolicyError, match=r"A policy is a gv\.Policy; got .* Write gv\.Policy\(compute="):
            as_policy(wrong)


def names_in(policy, model):
    """Parameters of the modules that a policy is meant for."""
    check_patterns(policy, model)
    meant = [place for place in places_in(model) if covers(policy, place)]
    return {place.path + name for place in meant for name, p in place.module._parameters.items() if p is not None}


@pytest.mark.parametrize(
    ("keywords", "meant"),
    [
        ({"only": "encoder"}, {"encoder.0.weight", "encoder.2.0.weight"}),
        ({"only": "encoder.*"}, {"encoder.0.weight", "encoder.2.0.weight"}),
        ({"only": "enc*.0"}, {"encoder.0.weight", "encoder.2.0.weight"}),
        ({"only": ["head", "encoder.2"]}, {"encoder.2.0.weight", "head.weight"}),
        ({"except_": "encoder"}, {"head.weight"}),
        ({"except_": nn.Sequential}, {"head.weight"}),
        ({"only": lambda module: isinstance(module, nn.Linear) and module.out_features == 4}, {"encoder.0.weight"}),
        ({"except_": lambda module: isinstance(module, nn.Linear) and module.out_features == 4},
         {"encoder.2.0.weight", "head.weight"}),
        ({"except_": ()},
         {"encoder.0.weight", "encoder.1.weight", "encoder.1.bias", "encoder.2.0.weight", "head.weight"}),
    ],
)  # fmt: skip
def test_patterns_name_modules(keywords, meant):
    def linear(n, m):
        return nn.Linear(n, m, bias=False)

    inner = nn.Sequential(linear(4, 3))
    model = nn.ModuleDict({"encoder": nn.Sequential(linear(2, 4), nn.BatchNorm1d(4), inner), "head": linear(3, 1)})
    assert names_in(Policy(F16, **keywords), model) == meant


def test_what_serves_a_module_goes_with_it():
    model = nn.Sequential(nn.MultiheadAttention(4, 2), parametrizations.weight_norm(nn.Linear(4, 2)), nn.Linear(2, 2))
    assert names_in(Policy(F16, only=lambda m: isinstance(m, nn.MultiheadAttention)), model) == {
        "0.in_proj_weight",
        "0.in_proj_bias",
        "0.out_proj.weight",
        "0.out_proj.bias",
    }
    assert names_in(Policy(BF16, only=lambda m: isinstance(m, nn.Linear)), model) == {
        "1.bias",
        "1.parametrizations.weight.original0",
        "1.parametrizations.weight.original1",
        "2.weight",
        "2.bias",
    }


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Policy("float8"), "params must be one of float16, bfloat16, float32, float64"),
        (lambda: Policy(compute=torch.int64), r"compute must be .* got torch\.int64"),
        (lambda: Policy(compute=torch.complex64), r"got torch\.complex64"),
        (lambda: Policy(compute=torch.float8_e4m3fn), r"got torch\.float8_e4m3fn"),
        (lambda: Policy(output=float), "got the class float"),
        (lambda: Policy(F16, only=()), r"only=\(\) is a policy for no module"),
        (lambda: Policy(F16, except_=nn.Sequential()), "except_ takes the path .* got a Sequential"),
        (lambda: Policy(F16, only=3), "only takes the path .* got an int"),
        (lambda: Policy(F16, only=int), "got the class int"),
    ],
)
def test_what_is_no_policy_is_refused_in_words(make, words):
    with pytest.raises(PolicyError, match=words):
        make()


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"except_": "lst"}, "did you mean 'last'"),
        ({"only": nn.Conv2d}, "only=Conv2d fits no module .* known: .*Linear"),
        ({"except_": nn.ReLU}, "except_=ReLU fits no module with floating"),
        ({"only": lambda module: False}, "asked of BatchNorm1d, Linear"),
        ({"only": "norm"}, "all that fit only= are excepted"),
    ],
)
def test_a_pattern_that_fits_nothing_is_refused_in_words(keywords, words):
    modules = {"first": nn.Linear(2, 2), "norm": nn.BatchNorm1d(2), "relu": nn.ReLU(), "last": nn.Linear(2, 1)}
    with pytest.raises(PolicyError, match=words):
        check_patterns(Policy(F16, **keywords), nn.ModuleDict(modules))
