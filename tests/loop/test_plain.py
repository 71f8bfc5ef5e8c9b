"""What is made plain can be saved, is read by torch's safe default, and is as it was."""

from __future__ import annotations

import io
from collections import OrderedDict, namedtuple

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as of_numpy

from gradviz.loop.plain import Plain, from_plain

leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=5)
    | of_numpy.arrays(st.sampled_from([np.float32, np.int64, np.uint32, np.bool_]), (2,))
    | st.sampled_from([np.float32(0.1), np.float64(0.1), np.int8(3), np.bool_(True), np.float16(2)])
    | st.sampled_from([torch.arange(3.0), torch.ones(2, 2, dtype=torch.bfloat16), torch.tensor(True)])
)
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3)
        | st.tuples(inner, inner)
    ),
    max_leaves=8,
)


def through_a_file(value):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file)


def assert_equal(one, other):
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert list(one) == list(other)
        for key in one:
            assert_equal(one[key], other[key])
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            assert_equal(a, b)
    elif isinstance(one, torch.Tensor):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)
    elif isinstance(one, np.ndarray):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    else:
        assert one == other or one != one


@given(values)
def test_what_was_saved_is_what_is_read(value):
    plain = Plain()
    assert_equal(value, from_plain(through_a_file(plain(value, "value"))))
    assert plain.left_out == []


KEYS = ["tensor", "numpy array", "numpy number", "dict", "device", "dtype"]
marked = st.recursive(leaves, lambda inner: st.dictionaries(st.sampled_from(KEYS), inner, max_size=3), max_leaves=6)


@given(marked)
def test_keys_that_are_the_format_s_own_are_keys_like_any_other(value):
    for plain in (Plain(), Plain(keeps_device=True)):
        assert_equal(value, from_plain(through_a_file(plain(value, "value"))))


def test_nor_is_what_looks_so_once_a_part_is_left_out():
    value = {"tensor": torch.ones(2), "device": "cpu", "loader": object()}
    assert_equal({"tensor": torch.ones(2), "device": "cpu"}, from_plain(Plain()(value, "value")))
    assert from_plain(Plain()({"dict": {"dict": {"numpy array": 1}}}, "value")) == {
        "dict": {"dict": {"numpy array": 1}}
    }


def test_what_cannot_be_saved_is_left_out_and_named():
    plain = Plain()
    made = plain({"a": [1, {2}, len], "b": object(), 3: np.array(["text"])}, "x")
    assert made == {"a": [1]}
    assert plain.left_out == [
        "x['a'][1] (a set)",
        "x['a'][2] (a builtin_function_or_method)",
        "x['b'] (an object)",
        "x[3] (an ndarray of shape (1,))",
    ]
    assert plain(open, "on its own") is None


def test_kinds_of_dicts_and_tuples_become_those():
    pair = namedtuple("pair", "a b")
    made = Plain()({"ordered": OrderedDict(a=1), "named": pair(1, 2)}, "x")
    assert (type(made["ordered"]), type(made["named"])) == (dict, tuple)


def test_a_tensor_is_saved_once_without_its_graph_and_the_rest_of_its_memory():
    whole = torch.zeros(1000, requires_grad=True)
    part = whole[:3] * 1
    view = whole.detach()[:3]
    made = Plain()([part, part, view, whole], "x")
    assert made[0] is made[1]
    assert not any(tensor.requires_grad for tensor in made)
    assert made[2].untyped_storage().nbytes() == 12
    assert made[3].data_ptr() == whole.data_ptr()  # no copy of what is whole
