"""Kept tensors as safetensors files, each with a note of what it is."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict
from functools import cached_property
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray
from safetensors import SafetensorError

from gradviz.errors import HistoryError
from gradviz.history.run.folder import Folder
from gradviz.history.run.form import FORMAT, check_format, damaged
from gradviz.history.tensors import Kept, KeptTensor

_KEY = "gradviz"
_LONGEST_HEADER = 100_000_000
"""Bytes; the format allows no more."""


def encode_tensors(tensors: Sequence[KeptTensor | tuple[Kept, NDArray[Any]]]) -> bytes:
    """A file of these tensors, of any shape.

    Examples
    --------
    >>> kept = Kept("head.weight", iteration=3, attempt=0, call=0, example=None, dtype="float32")
    >>> content = encode_tensors([(kept, np.ones((2, 3), np.float32))])
    >>> safetensors.numpy.load(content)["0"].shape
    (2, 3)
    """
    # The library takes memory as it lies, so that a view of a tensor has to be copied; "C" keeps zero dimensions.
    arrays = {str(place): np.asarray(array, order="C") for place, (_, array) in enumerate(tensors)}
    told = {"format": FORMAT, "tensors": [asdict(kept) for kept, _ in tensors]}
    return safetensors.numpy.save(arrays, {_KEY: json.dumps(told)})


class TensorPart:
    """Kept tensors in a file. Which there are is known from its header alone."""

    def __init__(self, folder: Folder, name: str) -> None:
        self.folder, self.name = folder, name

    def __len__(self) -> int:
        return len(self.kept)

    @cached_property
    def kept(self) -> list[Kept]:
        """What each tensor is.

        Raises
        ------
        HistoryError
            If the file is damaged, or of a newer gradviz.
        """
        try:
            with closing(self.folder.source(self.name)) as source:
                length = int.from_bytes(source.read(8), "little")
                if not 0 < length <= _LONGEST_HEADER:
                    raise self._damaged("it has no header")
                told = json.loads(json.loads(source.read(length))["__metadata__"][_KEY])
            check_format(told["format"], f"{self.folder.address}: {self.name}")
            return [Kept(**each) for each in told["tensors"]]
        except HistoryError:
            raise
        except (ValueError, KeyError, TypeError) as error:
            raise self._damaged(f"its header cannot be read, {error}") from error

    def find(
        self,
        name: str,
        iteration: int | None = None,
        call: int | None = None,
        example: int | None = None,
        *,
        rows: slice = slice(None),
    ) -> Iterator[KeptTensor]:
        """The tensors of that name; of one iteration, call or example only, where one is given; in some rows."""
        places = [
            place for place in range(len(self))[rows] if self.kept[place].is_meant(name, iteration, call, example)
        ]
        if not places:
            return
        try:
            arrays = safetensors.numpy.load(self.folder.read(self.name))
            found = [KeptTensor(self.kept[place], arrays[str(place)]) for place in places]
        except (SafetensorError, ValueError, KeyError) as error:
            raise self._damaged(error) from error
        yield from found

    def _damaged(self, why: object) -> HistoryError:
        return damaged(self.folder.address, self.name, why)
