"""The loops of other tools, each recording every parameter's gradient in every iteration, in the way its manual shows.

They run in an environment of their own (`peers.txt`). Those that hook into a model or an optimizer have a copy of their
own, so that nobody else's step pays for their hooks.
"""

from __future__ import annotations

import atexit
import itertools
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import torch
import torchlens.trackers
import wandb
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from torch.utils.tensorboard import SummaryWriter
from wandb.proto.wandb_internal_pb2 import Record

from tests.benchmarks.interleaved import Batches, Loop
from tests.benchmarks.models import Setting
from tests.benchmarks.ours import a_copy, bare, tensors


def loops(setting: Setting, adam: torch.optim.Adam) -> list[Loop]:
    """All of them, and the bare one."""
    return [
        bare("bare", setting, adam),
        bare("bare again", setting, adam),
        tensorboard("TensorBoard scalars", setting, adam, add_norm),
        tensorboard("TensorBoard histograms", setting, adam, SummaryWriter.add_histogram),
        wandb_watch(setting),
        torchlens_watch(setting),
    ]


def add_norm(writer: SummaryWriter, name: str, gradient: torch.Tensor, iteration: int) -> None:
    """One number of a gradient."""
    writer.add_scalar(name, gradient.norm(), iteration)


def tensorboard(name: str, setting: Setting, adam: torch.optim.Adam, add: Callable[..., None]) -> Loop:
    """A file of events, with one for each parameter and iteration."""
    model, criterion = setting.model, setting.criterion
    writer = SummaryWriter(folder())

    def train(batches: Batches) -> None:
        for iteration, (inputs, targets) in enumerate(batches):
            adam.zero_grad()
            loss = criterion(model(inputs), targets)
            loss.backward()
            for name, p in model.named_parameters():
                add(writer, name, p.grad, iteration)
            adam.step()

    def recorded() -> int:
        writer.close()
        files = Path(writer.log_dir).iterdir()
        return sum(len(event.summary.value) for file in files for event in EventFileLoader(str(file)).Load())

    return Loop(name, train, recorded=recorded, records=tensors(model), settle=writer.flush)


def wandb_watch(setting: Setting) -> Loop:
    """Histograms of all gradients by hooks, logged offline."""
    model, adam = a_copy(setting.model)
    run = wandb.init(mode="offline", dir=folder(), settings=wandb.Settings(console="off", silent=True))
    run.watch(model, log="gradients", log_freq=1)

    def train(batches: Batches) -> None:
        for inputs, targets in batches:
            adam.zero_grad()
            loss = setting.criterion(model(inputs), targets)
            loss.backward()
            adam.step()
            run.log({"loss": loss})

    def recorded() -> int:
        return len(list(logged_by(run)))

    return Loop("wandb.watch", train, recorded=recorded, records=tensors(model), settle=wait_for_children)


def logged_by(run: wandb.Run) -> Iterator[dict[str, list[float]]]:
    """The histograms of gradients that a run of wandb has written in the end: counts (`values`) and edges (`bins`)."""
    (file,) = Path(run.dir).parent.glob("*.wandb")
    run.finish()
    wandb.teardown()  # the process that writes the file goes on behind `finish`
    for data in records(file):
        found: dict[str, dict[str, list[float]]] = {}
        for item in Record.FromString(data).history.item:
            if len(item.nested_key) == 2 and item.nested_key[0].startswith("gradients/"):
                name, key = item.nested_key
                found.setdefault(name, {})[key] = json.loads(item.value_json)
        yield from found.values()


def torchlens_watch(setting: Setting) -> Loop:
    """Statistics of all gradients at the optimizer's step, kept in memory; the loop is the bare one."""
    model, adam = a_copy(setting.model)
    iteration, sink = itertools.count(), torchlens.trackers.MemorySink()
    watch = torchlens.trackers.watch(model, to=sink, optimizer=adam, step=lambda: next(iteration), every=1)

    def recorded() -> int:
        watch.close()
        return sum(point.tag.startswith("gradients/norm/") for point in sink.scalars)

    loop = bare("TorchLens watch", replace(setting, model=model), adam)
    return replace(loop, recorded=recorded, records=tensors(model))


def records(file: Path) -> Iterator[bytes]:
    """What wandb wrote: pieces with a head of seven bytes, none of which goes beyond a block of 32 kB."""
    data, pieces = file.read_bytes(), []
    for start in range(0, len(data), 2**15):
        block = data[start : start + 2**15]
        at = 7 if start == 0 else 0  # the file has a head of its own
        while at + 7 <= len(block):
            length, kind = int.from_bytes(block[at + 4 : at + 6], "little"), block[at + 6]
            pieces.append(block[at + 7 : at + 7 + length])
            at += 7 + length
            if kind in (1, 4):  # a whole record, or the last piece of one
                yield b"".join(pieces)
                pieces = []


def wait_for_children() -> None:
    """Until the processes that this one has started do nothing any more."""
    children, before = psutil.Process().children(recursive=True), -1.0
    while (now := sum(sum(child.cpu_times()[:2]) for child in children)) > before:
        before = now
        time.sleep(0.03)  # cpu_times has hundredths


def folder() -> str:
    """A folder that is gone when the process is."""
    made = tempfile.TemporaryDirectory(prefix="bench-")
    atexit.register(made.cleanup)
    return made.name
