"""The loops of gradviz, between the bare one and the least that norms can cost."""

from __future__ import annotations

import copy
import time
from dataclasses import replace
from typing import Any

import comm
import torch
from comm.base_comm import BaseComm
from ipykernel.jsonutil import json_clean
from jupyter_client.session import Session
from torch import Tensor, nn

import gradviz as gv
from gradviz.widgets import publish
from tests.benchmarks.interleaved import LEARNING_RATE, Batches, Loop, Stopwatch
from tests.benchmarks.models import Setting


def loops(setting: Setting, adam: torch.optim.Adam) -> list[Loop]:
    """All on one model with one optimizer."""
    return [
        bare("bare", setting, adam),
        bare("bare again", setting, adam),
        floor(setting, adam),
        trainer("none", setting, adam, None),
        trainer("norms", setting, adam, "norms"),
        trainer("all", setting, adam, "all"),
        live(setting, adam),
    ]


def bare(name: str, setting: Setting, adam: torch.optim.Adam) -> Loop:
    """What everything is compared with: nothing but training; not even the loss is looked at."""
    model, criterion = setting.model, setting.criterion

    def train(batches: Batches) -> None:
        for inputs, targets in batches:
            adam.zero_grad()
            loss = criterion(model(inputs), targets)
            loss.backward()
            adam.step()

    return Loop(name, train)


def floor(setting: Setting, adam: torch.optim.Adam) -> Loop:
    """The norms of all gradients in one call and one transfer, kept in a list."""
    model, criterion, norms = setting.model, setting.criterion, []

    def train(batches: Batches) -> None:
        parameters = list(model.parameters())
        for inputs, targets in batches:
            adam.zero_grad()
            loss = criterion(model(inputs), targets)
            loss.backward()
            norms.append(torch.stack(torch._foreach_norm([p.grad for p in parameters])).tolist())
            adam.step()

    return Loop("floor", train, recorded=lambda: sum(map(len, norms)), records=tensors(model))


def trainer(name: str, setting: Setting, adam: torch.optim.Adam, record: Any) -> Loop:
    """gradviz's loop, as it is called by everyone."""
    loop = gv.trainer(setting.model, setting.criterion, adam, record=record)

    def train(batches: Batches) -> None:
        loop.run(batches, display=None)

    records = tensors(setting.model) if record else 0
    return Loop(name, train, recorded=lambda: rows_of(loop.history, record), records=records)


def rows_of(history: gv.History, record: Any) -> int:
    """How many gradients have all numbers that they should have."""
    columns = {None: [], "norms": ["norm"], "all": ["norm", "mean", "std", "max_abs", "zero_fraction"]}[record]
    return int(history.gradients[columns].notna().all(axis=1).sum()) if columns else 0


def live(setting: Setting, adam: torch.optim.Adam) -> Loop:
    """The same with its heatmap on show.

    The picture is sent ten times in a second of this loop's own time, as it would be if the loop were alone: the time
    of the others in between would make it send in far more of its steps.
    """
    watch = Stopwatch()
    publish.time = OwnTime(watch)  # type: ignore[assignment]
    comm.create_comm = ToBrowser
    loop = gv.trainer(setting.model, setting.criterion, adam, record="all")
    heatmap = gv.heatmap(loop)
    heatmap._repr_mimebundle_()  # what a notebook asks for to show it

    def train(batches: Batches) -> None:
        loop.run(batches, display=None)

    def told() -> dict[str, Any]:
        return {"seconds": watch(), "messages": ToBrowser.messages, "bytes": ToBrowser.n_bytes}

    return Loop(
        "live",
        train,
        recorded=lambda: int(loop.history.norms.notna().sum().sum()),
        records=tensors(setting.model),
        sent=lambda: heatmap.publisher.sent.messages,
        told=told,
        watch=watch,
    )


class OwnTime:
    """The time module as a loop among others should see it."""

    def __init__(self, watch: Stopwatch) -> None:
        self.perf_counter = watch

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


class ToBrowser(BaseComm):
    """The line to the browser as ipykernel has it, up to the socket: JSON, signed, with the buffers as they are."""

    messages = n_bytes = 0
    session = Session(key=b"a key, so that messages are signed")

    def publish_msg(
        self, msg_type: str, data: Any = None, metadata: Any = None, buffers: Any = None, **keys: Any
    ) -> None:
        content = json_clean({"data": data or {}, "comm_id": self.comm_id, **keys})
        self.session.send(self, msg_type, content, metadata=json_clean(metadata or {}), buffers=buffers)

    def send_multipart(self, parts: list[Any], copy: bool) -> None:
        ToBrowser.messages += 1
        ToBrowser.n_bytes += len(b"".join(parts))


def a_copy(model: nn.Module) -> tuple[nn.Module, torch.optim.Adam]:
    """The model and an optimizer of it, for hooks."""
    twin = copy.deepcopy(model)
    return twin, torch.optim.Adam(twin.parameters(), lr=LEARNING_RATE)


def of_its_own(setting: Setting) -> tuple[Setting, torch.optim.Adam]:
    """The same with a copy of the model, and an optimizer for it."""
    model, adam = a_copy(setting.model)
    return replace(setting, model=model), adam


def tensors(model: nn.Module) -> int:
    """How many gradients a step of a model has."""
    return len(list[Tensor](model.parameters()))
