"""Training is the same to the bit with and without a watch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch._dynamo.testing
from torch import Tensor, nn
from torch.nn import functional as F

import gradviz as gv


class Cnn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 4, 3),
            nn.BatchNorm2d(4),
            nn.ReLU(inplace=True),
            nn.Dropout(0.3),
            nn.Flatten(),
            nn.Linear(144, 3),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class Lstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(8, 6, batch_first=True), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(x.squeeze(1))[0][:, -1])


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.block(x.squeeze(1)).mean(1))


def batches(n: int = 6) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [
        (torch.randn(4, 1, 8, 8, generator=generator), torch.randint(0, 3, (4,), generator=generator)) for _ in range(n)
    ]


def ordinary(model: nn.Module, optimizer: Any) -> None:
    for x, y in batches():
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


def accumulating(model: nn.Module, optimizer: Any) -> None:
    for place, (x, y) in enumerate(batches()):
        (F.cross_entropy(model(x), y) / 3).backward()
        if place % 3 == 2:
            optimizer.step()
            optimizer.zero_grad()


def clipping(model: nn.Module, optimizer: Any) -> None:
    for x, y in batches():
        optimizer.zero_grad(set_to_none=False)
        F.cross_entropy(model(x), y).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()


def scaling(model: nn.Module, optimizer: Any) -> None:
    scaler = torch.amp.GradScaler("cpu", growth_interval=2)
    for place, (x, y) in enumerate(batches()):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=not isinstance(model, Lstm)):  # torch has none for it here
            loss = F.cross_entropy(model(x), y) * (float("inf") if place == 3 else 1)
        scaler.scale(loss).backward()
        if place % 2:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        scaler.step(optimizer)
        scaler.update()


def with_closure(model: nn.Module, optimizer: Any) -> None:
    for x, y in batches():

        def closure(x: Tensor = x, y: Tensor = y) -> Tensor:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            return loss

        optimizer.step(closure)


def twice_differentiating(model: nn.Module, optimizer: Any) -> None:
    for x, y in batches():
        optimizer.zero_grad()
        x.requires_grad_()
        loss = F.cross_entropy(model(x), y)
        (slope,) = torch.autograd.grad(loss, x, create_graph=True)
        (loss + slope.square().sum()).backward()
        optimizer.step()


def trained(
    train: Callable[..., None], make: Callable[[], nn.Module], optimizer: Any, watched: dict[str, Any] | None
) -> Any:
    torch.manual_seed(0)
    model = make()
    made = optimizer(model.parameters())
    w = None if watched is None else gv.watch(model, made, **watched)
    train(model, made)
    random = torch.rand(1)
    if w is not None:
        w.close()
    kept = [value for state in made.state_dict()["state"].values() for value in state.values()]
    return [*model.state_dict().values(), *(p.grad for p in model.parameters()), *kept, random], w


def same(a: Any, b: Any) -> bool:
    if isinstance(a, list):  # as LBFGS keeps them
        return len(a) == len(b) and all(map(same, a, b))
    return torch.equal(a, b) if isinstance(a, Tensor) else a == b


ADAM = {"plain": torch.optim.Adam, "fused": lambda parameters: torch.optim.AdamW(parameters, fused=True)}
EVERYTHING = {"stages": ["backward", "clipped", "update"], "histograms_every": 2}


@pytest.mark.parametrize("make", [Cnn, Lstm, Transformer])
@pytest.mark.parametrize("train", [ordinary, accumulating, clipping, scaling, with_closure, twice_differentiating])
@pytest.mark.parametrize("kind", ["plain", "fused"])
def test_training_is_the_same_to_the_bit(make, train, kind):
    plain, _ = trained(train, make, ADAM[kind], None)
    watched, w = trained(train, make, ADAM[kind], EVERYTHING)
    assert all(map(same, plain, watched))
    assert len(w.history) == (2 if train is accumulating else 6)
    assert w.history.wide("state").eq("ok").all(axis=None)


@pytest.mark.parametrize(
    "optimizer", [torch.optim.LBFGS, lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True)]
)
def test_whatever_the_optimizer(optimizer):
    plain, _ = trained(with_closure, Lstm, optimizer, None)
    watched, _ = trained(with_closure, Lstm, optimizer, EVERYTHING)
    assert len(plain) == len(watched)
    assert all(map(same, plain[:-1], watched[:-1]))


@pytest.mark.case("P24")
@pytest.mark.case("P25")
@pytest.mark.case("P26")
@pytest.mark.parametrize("when", ["before the first call", "after it"])
def test_a_compiled_model_is_watched_compiled_and_trains_to_the_bit(when):
    ends, graphs = [], []
    for is_watched in (False, True):
        torch.manual_seed(0)
        torch._dynamo.reset()
        count = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
        model = torch.compile(Transformer(), backend=count)
        optimizer = torch.optim.Adam(model.parameters())
        w = gv.watch(model, optimizer) if is_watched and when == "before the first call" else None
        ordinary(model, optimizer)
        if is_watched and w is None:
            w = gv.watch(model, optimizer)
        ordinary(model, optimizer)
        ends.append([p.detach().clone() for p in model.parameters()])
        graphs.append((count.frame_count, count.op_count))
        if w is not None:
            w.close()
            assert len(w.history) == (12 if when == "before the first call" else 6)
            assert w.history.wide("state").eq("ok").all(axis=None)
            assert not any(name.startswith("_orig_mod") for name in w.history.parameters.index)
    assert all(map(same, *ends))
    assert graphs[0] == graphs[1]  # neither a further break of the graph nor another compilation
