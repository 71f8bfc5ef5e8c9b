"""Models whose calls are captured: small, and each with something that hooks have failed on elsewhere."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.checkpoint import checkpoint


@dataclasses.dataclass
class Parts:
    h: Tensor
    mask: Tensor


class ModelOutput(OrderedDict[str, Any]):
    """As Hugging Face's models have it: a mapping whose entries are attributes too."""

    def __getattr__(self, name: str) -> Any:
        return self[name]


class Returns(nn.Module):
    """Its linear layer's output, in a container."""

    def __init__(self, wrap: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.wrap = wrap

    def forward(self, x: Tensor) -> Any:
        return self.wrap(self.linear(x))


class Containers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mapping = Returns(lambda h: {"h": h, "n": 3})
        self.listed = Returns(lambda h: [h, None])
        self.nested = Returns(lambda h: (h, (h.exp(), [h.sin()])))
        self.parts = Returns(lambda h: Parts(h, h > 0))
        self.output = Returns(lambda h: ModelOutput(logits=h, hidden=(h.cos(),)))

    def forward(self, x: Tensor) -> Tensor:
        x = self.mapping(x)["h"]
        x = self.listed(x)[0]
        x, (y, [z]) = self.nested(x)
        x = self.parts(x + y + z).h
        output = self.output(x)
        return output.logits + output["hidden"][0]


class DenseBlock(nn.Module):
    """As in DenseNet: what was computed is put together with what came before, and rectified in place."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.relu1, self.conv1 = nn.BatchNorm2d(2), nn.ReLU(inplace=True), nn.Conv2d(2, 2, 3, padding=1)
        self.norm2, self.relu2, self.conv2 = nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Conv2d(4, 2, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        more = self.conv1(self.relu1(self.norm1(x)))
        x = torch.cat([x, more], 1)
        return torch.cat([x, self.conv2(self.relu2(self.norm2(x)))], 1)


class EditsAfter(nn.Module):
    """Writes into what a module returned."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        h.mul_(2)
        h[:, 0] = 0
        h += self.second(h.clone())
        return h


class Views(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.flat, self.open = nn.Linear(4, 4), nn.Flatten(0), nn.Unflatten(0, (-1, 4))

    def forward(self, x: Tensor) -> Tensor:
        return self.open(self.flat(self.linear(x))).chunk(2, 1)[0]


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase], *, packed: bool) -> None:
        super().__init__()
        self.rnn = kind(4, 3, num_layers=2, batch_first=True)
        self.packed = packed

    def forward(self, x: Tensor) -> Tensor:
        x = x.reshape(2, -1, 4)
        if not self.packed:
            return self.rnn(x)[0]
        output, _ = self.rnn(pack_padded_sequence(x, torch.tensor([1, 2]), batch_first=True, enforce_sorted=False))
        return output.data


class Looped(nn.Module):
    """One layer three times, and one whose output is thrown away."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.idle = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(3):
            x = self.layer(x).tanh()
        self.idle(x)
        return x


class Checkpointed(nn.Module):
    def __init__(self, *, reentrant: bool = False) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Dropout(0.5), nn.Linear(4, 4), nn.Tanh())
        self.head = nn.Linear(4, 2)
        self.reentrant = reentrant

    def forward(self, x: Tensor) -> Tensor:
        return self.head(checkpoint(self.layers, x, use_reentrant=self.reentrant))


class NoGradTwin(nn.Module):
    """A pass under no_grad, as a teacher's, beside the one that is trained."""

    def __init__(self) -> None:
        super().__init__()
        self.student, self.teacher = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            target = self.teacher(self.student(x))
        return self.student(x) - target


class FrozenBackbone(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).requires_grad_(False)
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.backbone(x))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attn = nn.MultiheadAttention(4, 2, batch_first=True)
        self.never = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = x.unsqueeze(0)
        return self.attn(x, x, x)[0]


class Keywords(nn.Module):
    """Called by keywords alone."""

    class Inner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, *, x: Tensor, scale: float, mask: Tensor | None = None, **more: Any) -> Tensor:
            return self.linear(x) * scale

    def __init__(self) -> None:
        super().__init__()
        self.inner = self.Inner()

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x=x, scale=2.0, extra=[x])


class Integers(nn.Module):
    """An integer first, and integers out."""

    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, mask: Tensor, x: Tensor) -> Tensor:
            return self.linear(x).masked_fill(mask == 0, 0.0)

    class Signs(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x > 0

    def __init__(self) -> None:
        super().__init__()
        self.masked, self.pool, self.signs = self.Masked(), nn.MaxPool1d(2, return_indices=True), self.Signs()

    def forward(self, x: Tensor) -> Tensor:
        x = self.masked((x > 0).long(), x)
        pooled, places = self.pool(x)
        return pooled * self.signs(pooled) + places * 0


class Penalized(nn.Module):
    """A gradient penalty inside: its own gradient is taken, and then differentiated."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))

    def forward(self, x: Tensor) -> Tensor:
        x = x.detach().clone().requires_grad_(True)
        y = self.net(x)
        (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        return y + slope.square().sum(1, keepdim=True)


class Scene(NamedTuple):
    name: str
    make: Callable[[], nn.Module]
    shape: tuple[int, ...] = (6, 4)

    def model(self) -> nn.Module:
        torch.manual_seed(0)
        return self.make()

    def x(self) -> Tensor:
        return torch.randn(self.shape, generator=torch.Generator().manual_seed(1))


SCENES = [
    Scene("in-place ReLU", lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 2))),
    Scene("dense block", DenseBlock, (2, 2, 5, 5)),
    Scene("convolutions", lambda: nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(inplace=True), nn.Flatten()), (2, 2, 5, 5)),
    Scene("edits after", EditsAfter),
    Scene("views", Views),
    Scene("containers", Containers),
    Scene("LSTM", lambda: Recurrent(nn.LSTM, packed=False), (4, 4)),
    Scene("packed LSTM", lambda: Recurrent(nn.LSTM, packed=True), (4, 4)),
    Scene("packed GRU", lambda: Recurrent(nn.GRU, packed=True), (4, 4)),
    Scene("looped", Looped),
    Scene("checkpointed", Checkpointed),
    Scene("no-grad twin", NoGradTwin),
    Scene("frozen backbone", FrozenBackbone),
    Scene("dropout and batch norm", lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))),
    Scene("attention", Attention),
    Scene("keywords", Keywords),
    Scene("integers", Integers),
    Scene("penalized", Penalized),
    Scene("identity", lambda: nn.Sequential(nn.Linear(4, 4), nn.Identity(), nn.Dropout(0.5).eval(), nn.Linear(4, 2))),
    Scene("complex", lambda: nn.Sequential(nn.Linear(4, 4), Imaginary(), nn.Linear(4, 2))),
    Scene("weight norm", lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)), nn.ReLU())),
    Scene("half", lambda: nn.Sequential(ToHalf(), nn.Linear(4, 4), nn.ReLU()).to(torch.bfloat16)),
]


class Imaginary(nn.Module):
    class Turn(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * 1j

    def __init__(self) -> None:
        super().__init__()
        self.turn = self.Turn()

    def forward(self, x: Tensor) -> Tensor:
        return self.turn(x).abs()


class ToHalf(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.to(torch.bfloat16)


def leaf_names(model: nn.Module) -> Iterator[str]:
    """Paths of modules without modules in them."""
    for name, module in model.named_modules(remove_duplicate=False):
        if name and not any(True for _ in module.children()):
            yield name


def name_of_module(name: str) -> str:
    """Without the path to a tensor in what the module returned."""
    return name.partition("[")[0]


def hooks_of(model: nn.Module) -> list[Any]:
    """Every hook of every module."""
    tables = ("_forward_hooks", "_forward_pre_hooks", "_forward_hooks_with_kwargs", "_forward_pre_hooks_with_kwargs")
    tables += ("_backward_hooks", "_backward_pre_hooks", "_forward_hooks_always_called")
    hooks = [hook for module in model.modules() for table in tables for hook in getattr(module, table).values()]
    return hooks + [hook for p in model.parameters() for hook in (p._backward_hooks or {}).values()]
