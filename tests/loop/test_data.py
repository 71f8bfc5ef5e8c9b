"""The data of an epoch, and how much of it there is."""

from __future__ import annotations

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
