"""Kept tensors: written, found by what they are, and refused where they are damaged."""

from __future__ import annotations

import uuid

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from gradviz.errors import HistoryError
from gradviz.history.run.folder import open_folder
from gradviz.history.run.tensors import TensorPart, encode_tensors
from gradviz.history.tensors import Kept

NAME = "tensors/kept-00000000-00000000.safetensors"


@pytest.fixture(params=["here", "memory://"])
def folder(request, tmp_path):
    return open_folder(tmp_path if request.param == "here" else f"memory://{uuid.uuid4()}")


def kept(name="w", iteration=0, attempt=0, call=0, example=None, dtype="float32"):
    return Kept(name, iteration, attempt, call, example, dtype)


DTYPES = ["float64", "float32", "float16", "int64", "uint8", "bool", "complex64"]


@settings(max_examples=60)
@given(
    st.lists(
        arrays.arrays(st.sampled_from(DTYPES), arrays.array_shapes(min_dims=0, min_side=0, max_side=4)), max_size=4
    ),
    st.booleans(),
)
def test_tensors_come_back_to_the_bit(tensors, turned):
    folder = open_folder(f"memory://{uuid.uuid4()}")
    tensors = [tensor.T for tensor in tensors] if turned else tensors  # not as they lie in memory
    folder.write(NAME, encode_tensors([(kept(iteration=k), tensor) for k, tensor in enumerate(tensors)]))
    found = list(TensorPart(folder, NAME).find("w"))
    assert [of.iteration for of, _ in found] == list(range(len(tensors)))
    for (_, read), tensor in zip(found, tensors, strict=True):
        assert (read.dtype, read.shape, read.tobytes()) == (tensor.dtype, tensor.shape, tensor.tobytes())


def test_a_tensor_is_found_by_what_it_is(folder):
    told = [
        kept("a", 3, call=0),
        kept("a", 3, call=1, example=7),
        kept("a", 4, call=1, example=8, dtype="bfloat16"),
        kept("b", 3),
    ]
    folder.write(NAME, encode_tensors([(each, np.full(2, k, np.float32)) for k, each in enumerate(told)]))
    part = TensorPart(folder, NAME)
    assert part.kept == told

    def values(*args, **kwargs):
        return [int(array[0]) for _, array in part.find(*args, **kwargs)]

    assert values("a") == [0, 1, 2]
    assert values("a", iteration=3) == [0, 1]
    assert values("a", call=1) == [1, 2]
    assert values("a", example=8) == [2]
    assert values("a", 3, 1, 7) == [1]
    assert values("a", call=0, example=7) == []
    assert values("c") == []


def test_other_programs_read_the_file(tmp_path):
    open_folder(tmp_path).write(NAME, encode_tensors([(kept(), np.arange(6, dtype=np.float32).reshape(2, 3))]))
    assert safetensors.numpy.load_file(tmp_path / NAME)["0"].tolist() == [[0, 1, 2], [3, 4, 5]]


def test_only_the_header_is_read_to_know_what_is_there(tmp_path):
    folder = open_folder(tmp_path)
    content = encode_tensors([(kept(), np.zeros(1000, np.float32))])
    folder.write(NAME, content[:-4000])
    part = TensorPart(folder, NAME)
    assert part.kept == [kept()]
    with pytest.raises(HistoryError, match=f"{NAME} is damaged"):
        list(part.find("w"))


@pytest.mark.case("H05")
def test_a_file_that_was_cut_short_or_is_another_is_named(folder):
    content = encode_tensors([(kept(), np.zeros(10, np.float32))])
    others = [content[:length] for length in (0, 4, 8, 50, len(content) - 1)]
    others += [
        b"\xff" * 100,
        safetensors.numpy.save({"x": np.zeros(3)}),
        b"\x02" + bytes(7) + b"{}",
        b"\x02" + bytes(7) + b"[]",
    ]
    for other in others:
        folder.write(NAME, other)
        with pytest.raises(HistoryError, match=f"{NAME} is damaged"):
            list(TensorPart(folder, NAME).find("w"))


def test_a_newer_file_is_refused(folder):
    folder.write(NAME, safetensors.numpy.save({"0": np.zeros(3)}, {"gradviz": '{"format": 2, "tensors": []}'}))
    with pytest.raises(HistoryError, match="has format 2"):
        _ = TensorPart(folder, NAME).kept
