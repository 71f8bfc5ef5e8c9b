"""Where whole tensors are kept while there is room for them."""

from __future__ import annotations

import functools
import tempfile
from collections import deque
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from gradviz.errors import CaptureError, CaptureWarning, warn
from gradviz.grad.capture.capture import Store
from gradviz.sizes import in_words


class Shelf:
    """Room for tensors up to a limit; beyond it the oldest make way.

    Parameters
    ----------
    limit : int
        Bytes.
    store : "device", "host" or "disk"
    said : set
        Of what its owner has warned of already.
    """

    def __init__(self, limit: int, store: Store, said: set[str]) -> None:
        self._limit, self._store, self._said = limit, store, said
        self._nbytes = self._n_moved = 0
        self._kept: deque[Slot] = deque()

    def put(self, tensor: Tensor) -> Slot:
        """Keep a copy: what somebody writes into the tensor later on does not change it."""
        return self.keep(tensor.detach().clone())

    def keep(self, copy: Tensor) -> Slot:
        """Keep a copy that nobody else has."""
        slot = Slot(copy if self._store == "device" else copy.cpu())
        self._kept.append(slot)
        self._nbytes += slot.nbytes
        while self._nbytes > self._limit and self._kept:
            oldest = self._kept.popleft()
            self._nbytes -= oldest.nbytes
            if self._store == "disk":
                self._n_moved += 1
                oldest.move(self._folder, f"{self._n_moved}.safetensors")
            else:
                oldest.drop(self._why)
        return slot

    @functools.cached_property
    def _folder(self) -> tempfile.TemporaryDirectory[str]:
        return tempfile.TemporaryDirectory(prefix="gradviz-")  # goes with the last slot that has a file in it

    @functools.cached_property
    def _why(self) -> str:
        why = (
            f"Tensors took more than memory_limit={in_words(self._limit)}, so the oldest were dropped. Capture fewer "
            'names, or write memory_limit="2GB", or store="disk".'
        )
        if "dropped" not in self._said:
            self._said.add("dropped")
            warn(f"{why} Said once.", CaptureWarning)
        return why


class Slot:
    """One tensor, wherever it is now."""

    def __init__(self, tensor: Tensor) -> None:
        strided = tensor.layout is torch.strided
        self.nbytes = tensor.untyped_storage().nbytes() if strided else tensor.numel() * tensor.element_size()
        self._tensor: Tensor | None = tensor
        self._load: Callable[[], Tensor] | None = None
        self._why = ""

    def get(self) -> Tensor:
        """The tensor.

        Raises
        ------
        CaptureError
            If it had to make way.
        """
        if self._tensor is not None:
            return self._tensor
        if self._load is None:
            raise CaptureError(self._why)
        return self._load()

    def divide(self, by: float) -> None:
        """Divide it, wherever it is."""
        if self._tensor is not None:
            self._tensor /= by
        elif (load := self._load) is not None:
            self._load = lambda: load() / by

    def add(self, tensor: Tensor) -> None:
        """Add to it."""
        if self._tensor is not None:
            self._tensor += tensor.detach().to(self._tensor.device)
        elif (load := self._load) is not None:
            more = tensor.detach().cpu().clone()
            self._load = lambda: load() + more

    def move(self, folder: tempfile.TemporaryDirectory[str], file: str) -> None:
        """To a file."""
        from safetensors.torch import load_file, save_file

        assert self._tensor is not None
        save_file({"tensor": self._tensor.contiguous()}, Path(folder.name) / file)
        self._tensor, self._load = None, lambda: load_file(Path(folder.name) / file)["tensor"]

    def drop(self, why: str) -> None:
        """For good."""
        self._tensor, self._why = None, why
