"""The data of an epoch, and how much of it there is."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from gradviz.loop.data import Epochs, length


class Stream(IterableDataset):
    def __iter__(self):
        return iter([1, 2])


def test_an_iterable_is_used_anew_each_epoch_and_a_function_is_asked():
    data = [1, 2]
    assert list(Epochs(data, 3)(0)) == list(Epochs(data, 3)(2)) == [1, 2]
    assert list(Epochs(lambda epoch: range(epoch), 3)(2)) == [0, 1]


def test_an_iterable_that_can_also_be_called_is_an_iterable():
    class Both(list):
        def __call__(self, epoch):
            raise AssertionError("called")

    assert list(Epochs(Both([1]), 2)(0)) == [1]


def test_length_is_told_where_it_is_known():
    loader = DataLoader(TensorDataset(torch.zeros(10, 1)), batch_size=4)
    assert length(loader, None) == 3
    assert length(loader, 2) == 2
    assert length(DataLoader(Stream()), None) is None


def test_with_accumulate_an_epoch_gives_lists_and_the_rest_at_its_end():
    data = [1, 2, 3, 4, 5]
    epochs = Epochs(data, 2, accumulate=2)
    assert list(epochs(0)) == list(epochs(1)) == [[1, 2], [3, 4], [5]]
    assert list(Epochs(lambda epoch: iter(range(epoch)), 2, accumulate=3)(4)) == [[0, 1, 2], [3]]
    assert list(Epochs([], 1, accumulate=2)(0)) == []
    assert Epochs(data, 1)(0) is data


@pytest.mark.parametrize(("batches", "size", "steps"), [(10, 3, 4), (9, 3, 3), (2, 5, 1), (0, 2, 0)])
def test_the_length_of_lists_counts_the_incomplete_last_one(batches, size, steps):
    groups = Epochs(DataLoader(TensorDataset(torch.zeros(batches, 1)), batch_size=1), 1, accumulate=size)(0)
    assert length(groups, None) == len(list(groups)) == steps
    assert length(groups, 2) == min(2, steps)
    assert length(Epochs(DataLoader(Stream()), 1, accumulate=2)(0), None) is None


def test_no_batch_is_read_before_its_list_is_wanted():
    read = []
    groups = iter(Epochs((read.append(i) or i for i in range(5)), 1, accumulate=2)(0))
    assert next(groups) == [0, 1]
    assert read == [0, 1]
