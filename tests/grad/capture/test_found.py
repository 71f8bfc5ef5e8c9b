"""Every tensor in what a module returns is found, and its path leads back to it."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, namedtuple

import torch
from torch.nn.utils.rnn import pack_padded_sequence

from gradviz.grad.capture.found import tensors_in

A, B, C = torch.zeros(1), torch.zeros(2), torch.zeros(3)


@dataclasses.dataclass
class Pair:
    h: object
    rest: object


Point = namedtuple("Point", "x y")


def paths(value: object) -> dict[str, torch.Tensor]:
    return {found.path: found.value for found in tensors_in(value)}


def test_the_value_itself_has_no_path():
    assert paths(A) == {"": A}


def test_paths_lead_through_what_holds_the_tensors():
    value = {"a": (A, [Pair(B, None)]), 3: OrderedDict(c=C), "no": "text"}
    found = paths(value)
    assert list(found) == ["['a'][0]", "['a'][1][0]['h']", "[3]['c']"]
    assert [found[path] is tensor for path, tensor in zip(found, (A, B, C), strict=True)] == [True] * 3
    assert eval("value['a'][1][0].h", {"value": value}) is B
    assert list(paths(Point(A, B))) == ["[0]", "[1]"]


def test_a_packed_sequence_has_its_data_and_the_lengths_in_the_order_given():
    packed = pack_padded_sequence(torch.zeros(4, 3, 2), torch.tensor([2, 4, 1]), enforce_sorted=False)
    (found,) = tensors_in(packed)
    assert (found.path, found.note) == ("['data']", "packed, sequences of lengths 2, 4, 1")
    assert found.value is packed.data
    assert not found.has_examples
    long = pack_padded_sequence(torch.zeros(1, 20, 2), torch.ones(20, dtype=torch.long))
    assert next(tensors_in(long)).note == f"packed, sequences of lengths {', '.join('1' * 16)} ..."


def test_what_holds_itself_is_looked_at_once():
    value: list[object] = [A]
    value.append(value)
    assert list(paths(value)) == ["[0]"]


def test_a_thousand_levels_are_no_recursion():
    value: object = A
    for _ in range(2000):
        value = [value]
    assert list(paths(value)) == ["[0]" * 2000]


def test_what_holds_no_tensor_has_none():
    assert paths({"a": None, "b": [1, "two"], "c": Pair}) == {}
