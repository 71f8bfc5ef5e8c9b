"""A batch is a pair; inputs follow the model, integers never change."""

from __future__ import annotations

import warnings
from collections import UserDict

import numpy as np
import pytest
import torch
from torch import nn

from gradviz.errors import DataError, InputCastWarning
from gradviz.step.batch import Batch, InputCast, as_batch, batch_size, call

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("batch", "came"),
    [
        (torch.zeros(2, 3), "a tensor of shape (2, 3)"),
        ((1, 2, 3), "a tuple of 3"),
        ([1], "list of 1"),
        ({"x": 1, "y": 2}, "dict of 2"),
        ("ab", "str"),
    ],
)
def test_what_is_not_a_pair_is_refused_with_what_came_and_what_to_write(batch, came):
    with pytest.raises(DataError) as error:
        as_batch(batch)
    assert came in str(error.value)
    assert "(inputs, targets)" in str(error.value)


def test_a_list_of_two_is_a_pair():
    assert as_batch([1, 2]) == Batch(1, 2)


def test_floating_inputs_take_the_model_s_dtype_and_this_is_said_once():
    cast = InputCast()
    batch = Batch(
        {"x": torch.zeros(2, dtype=torch.float64), "ids": torch.zeros(2, dtype=torch.int64)},
        torch.zeros(2, dtype=torch.float64),
    )
    with pytest.warns(InputCastWarning, match="float64 are cast to the model's torch.float32"):
        done = cast(batch, CPU, torch.float32)
    assert done.inputs["x"].dtype == torch.float32
    assert done.inputs["ids"].dtype == torch.int64
    assert done.targets.dtype == torch.float64  # targets decide the width of the loss
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cast(batch, CPU, torch.float32)


def test_numpy_arrays_become_tensors():
    done = InputCast()(Batch(np.zeros((2, 3), np.float32), np.array([0, 1])), CPU, torch.float32)
    assert done.inputs.shape == (2, 3)
    assert done.targets.tolist() == [0, 1]


def test_inputs_reach_the_model_in_three_forms():
    class Add(nn.Module):
        def forward(self, a, b=10):
            return a + b

    assert call(Add(), 1) == 11
    assert call(Add(), (1, 2)) == 3
    assert call(Add(), {"a": 1, "b": 5}) == 6
    assert call(Add(), [1, 2]) == 3  # what a DataLoader makes of a tuple


def test_a_packed_sequence_is_one_input():
    packed = nn.utils.rnn.pack_sequence([torch.zeros(3, 2), torch.zeros(1, 2)])
    output, _ = call(nn.LSTM(2, 4), packed)
    assert output.data.shape == (4, 4)


def test_mappings_that_are_no_dicts_are_moved_and_cast_too():
    inputs = UserDict(x=torch.zeros(2, dtype=torch.float64))
    with pytest.warns(InputCastWarning):
        done = InputCast()(as_batch((inputs, torch.zeros(2))), CPU, torch.float32)
    assert done.inputs["x"].dtype == torch.float32


def test_batch_size_is_the_first_axis_of_the_first_tensor():
    assert batch_size(torch.tensor(1.0), [torch.zeros(4, 2)]) == 4
    assert batch_size("nothing") == 1
