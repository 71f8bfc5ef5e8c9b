"""Checkpoints as files: written whole or not at all, and read back, the newest that is good."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import time
import zipfile
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import torch

from gradviz.errors import CheckpointError, CheckpointWarning, described, warn
from gradviz.history.run.local import sync
from gradviz.history.run.manifest import MANIFEST
from gradviz.loop.checkpoints.form import check_form

FOLDER = "checkpoints"
LAST, BEST = "last.pt", "best.pt"

FORMAT = "gradviz checkpoint"
VERSION = 1
"""Of the format. One that an older gradviz cannot read has a higher one."""

_UNFINISHED = ".tmp"
_ABANDONED_AFTER_S = 600.0
"""Nothing was written into an unfinished file for so long: its writer is gone."""


def save(checkpoint: dict[str, Any], folder: Path, name: str) -> None:
    """Write a checkpoint. It has its name once all of it is on the disk, and another one's place not before.

    Raises
    ------
    OSError
        If it cannot be written; nothing is there under its name then, or what was there before.
    """

    def write(file: BinaryIO) -> None:
        before = torch.serialization.get_crc32_options()
        torch.serialization.set_crc32_options(True)  # `load` finds by it what a disk has damaged
        try:
            torch.save(checkpoint, file)
        except RuntimeError as error:
            # Torch closes what was broken off, which fails, and its error would hide a second Ctrl-C.
            if isinstance(error.__context__, KeyboardInterrupt):
                raise error.__context__ from None
            raise
        finally:
            torch.serialization.set_crc32_options(before)

    folder.mkdir(parents=True, exist_ok=True)
    _clean(folder)
    _write(folder / name, write)


def link(folder: Path, name: str, other: str) -> None:
    """Give a file a second name; a copy where the file system has no links."""
    target = folder / other
    aside = _aside(target)
    try:
        try:
            os.link(folder / name, aside)
        except OSError:
            with (folder / name).open("rb") as source:
                _write(target, lambda file: shutil.copyfileobj(source, file))
            return
        os.replace(aside, target)
        aside.unlink(missing_ok=True)  # two names of one file are not replaced
        _sync(folder)
    finally:
        aside.unlink(missing_ok=True)


def _write(target: Path, write: Callable[[BinaryIO], object]) -> None:
    aside = _aside(target)
    try:
        with aside.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, target)
        _sync(target.parent)
    finally:
        aside.unlink(missing_ok=True)


def _aside(target: Path) -> Path:
    return target.with_name(f".{target.name}.{os.getpid()}{_UNFINISHED}")


def _sync(folder: Path) -> None:
    with contextlib.suppress(OSError):  # the file is there, whole
        sync(folder)


def _clean(folder: Path) -> None:
    """Remove what a writer has left behind that was killed."""
    for file in folder.glob(f".*{_UNFINISHED}"):
        with contextlib.suppress(OSError):
            if time.time() - file.stat().st_mtime > _ABANDONED_AFTER_S:
                file.unlink()


def load(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The checkpoint in a file, or the newest good one in a run's folder.

    Raises
    ------
    CheckpointError
        If there is none.

    Warns
    -----
    CheckpointWarning
        W0207, with the files of a folder that are damaged.
    """
    path = Path(path)
    if path.is_file() and path.name != MANIFEST:
        return _read(path)
    if not path.exists():
        raise CheckpointError(
            f"There is no {str(path)!r}. A run's folder is the one that .checkpoint(folder) was given."
        )
    folder = folder_of(path)
    if (folder / MANIFEST).is_file():
        raise CheckpointError(
            f"{folder} holds the rows of a run, but no checkpoints: write loop.checkpoint({str(folder)!r}) before the "
            "run."
        )
    failures: list[str] = []
    for file in _newest_first(folder):
        try:
            checkpoint = _read(file)
        except CheckpointError as error:
            failures.append(str(error))
            continue
        if failures:
            warn(f"{' '.join(failures)} Taken instead: {file}.", CheckpointWarning)
        return checkpoint
    if failures:
        raise CheckpointError(f"No checkpoint in {folder} can be read. {' '.join(failures)}")
    raise CheckpointError(f"{path} holds no checkpoint. Name the folder that .checkpoint(folder) was given, or a file.")


def folder_of(path: str | os.PathLike[str]) -> Path:
    """The folder in which checkpoints lie that `load` takes by this path."""
    path = Path(path)
    if path.is_file() and path.name == MANIFEST:
        path = path.parent
    if path.is_file():
        return path.parent
    return path / FOLDER if (path / FOLDER).is_dir() else path


def _newest_first(folder: Path) -> Iterator[Path]:
    """`last.pt`, and what would be taken in its place, by how far it is: a copy of a folder has times of its own.

    Every file comes under one name only: `last.pt` and `best.pt` are second names of others.
    """
    files = [file for file in folder.iterdir() if file.is_file() and not file.name.startswith(".")]
    seen: set[tuple[int, int]] = set()
    for file in chain((file for file in files if file.name == LAST), _furthest_first(files)):
        status = file.stat()
        if (status.st_dev, status.st_ino) not in seen:
            seen.add((status.st_dev, status.st_ino))
            yield file


def _furthest_first(files: list[Path]) -> Iterator[Path]:
    """Only when they are asked for is one looked into; what cannot be looked into comes first, to be named."""
    yield from sorted(files, key=lambda file: (*_progress(file), file.name != BEST, file.name), reverse=True)


def _progress(file: Path) -> tuple[float, float]:
    """Iterations and epochs, without the tensors being read."""
    try:
        state = torch.load(file, map_location="cpu", weights_only=True, mmap=True)["state"]
        return float(state["iteration"]), float(state["epoch"])
    except Exception:
        return math.inf, math.inf


def _read(file: Path) -> dict[str, Any]:
    try:
        if zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as archive:
                damaged = archive.testzip()
            if damaged is not None:
                raise ValueError(f"the checksum of {damaged} is wrong")
        checkpoint = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:
        # Torch's next sentences advise to read it by a way that runs whatever code is in it.
        cause = f"{type(error).__name__}: {error}".splitlines()[0].split(". ")[0].removesuffix(".")
        raise CheckpointError(f"{file} is damaged, or no checkpoint ({cause}).") from error
    if not isinstance(checkpoint, dict) or checkpoint.get("format") != FORMAT:
        raise CheckpointError(
            f"{file} is no checkpoint of a loop, but {described(checkpoint)}. Where it holds parameters alone, write "
            "model.load_state_dict(torch.load(file))."
        )
    if checkpoint.get("format_version") != VERSION:
        versions = checkpoint.get("versions")
        by = versions.get("gradviz", "another version") if isinstance(versions, dict) else "another version"
        raise CheckpointError(
            f"{file} has format version {checkpoint.get('format_version')}, written by gradviz {by}; this one reads "
            f"{VERSION}. Resume with that gradviz, or take the parameters: "
            "model.load_state_dict(torch.load(file)['model'])."
        )
    check_form(checkpoint, file)
    return checkpoint
