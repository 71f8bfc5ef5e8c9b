"""The models that benchmarks share, each with one batch and a loss: small, large and deep."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Setting:
    """A model on a batch."""

    name: str
    model: nn.Module
    batch: tuple[Tensor, Tensor]
    loss: Callable[[nn.Module, Tensor, Tensor], Tensor]
    criterion: Callable[[Tensor, Tensor], Tensor]
    """The loss of a prediction."""


def mlp() -> Setting:
    """8 layers of 256 on 64 rows: a step of two milliseconds."""
    torch.manual_seed(0)
    layers = [layer for _ in range(7) for layer in (nn.Linear(256, 256), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(256, 256))
    return Setting("mlp", model, (torch.randn(64, 256), torch.randn(64, 256)), squared_error, F.mse_loss)


def transformer() -> Setting:
    """A GPT of 12 blocks, width 256 and 10 million parameters on 8 x 64 tokens: a step of about 200 ms."""
    torch.manual_seed(0)
    tokens = torch.randint(0, Transformer.vocabulary, (8, 65))
    return Setting("transformer", Transformer(), (tokens[:, :-1], tokens[:, 1:]), next_token, over_tokens)


def deep() -> Setting:
    """200 tanh layers of 32 on 32 rows: 400 small tensors, where every microsecond for each of them shows."""
    setting = vanishing()
    for p in setting.model.parameters():
        if p.ndim == 2:
            nn.init.xavier_uniform_(p, gain=5 / 3)
    return replace(setting, name="deep")


def vanishing() -> Setting:
    """The same as torch initialises it: most of its gradients are too small for the square of one to be a float32."""
    torch.manual_seed(0)
    model = nn.Sequential(*[layer for _ in range(200) for layer in (nn.Linear(32, 32), nn.Tanh())])
    return Setting("vanishing", model, (torch.randn(32, 32), torch.randn(32, 32)), squared_error, F.mse_loss)


def squared_error(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.mse_loss(model(x), y)


def next_token(model: nn.Module, tokens: Tensor, following: Tensor) -> Tensor:
    return over_tokens(model(tokens), following)


def over_tokens(logits: Tensor, following: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1), following.flatten())


class Transformer(nn.Module):
    """Decoder blocks between an embedding and the same matrix again."""

    vocabulary, width, heads, blocks, context = 2048, 256, 4, 12, 64

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(self.vocabulary, self.width)
        self.position = nn.Parameter(torch.zeros(self.context, self.width))
        self.body = nn.Sequential(*[Block(self.width, self.heads) for _ in range(self.blocks)])
        self.norm = nn.LayerNorm(self.width)
        self.head = nn.Linear(self.width, self.vocabulary, bias=False)
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens) + self.position[: tokens.shape[1]]
        return self.head(self.norm(self.body(x)))


class Block(nn.Module):
    """Attention to what came before, then two layers for each token."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.attend(self.norm_1(x)).chunk(3, -1)
        )
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.project(mixed.transpose(1, 2).flatten(2))
        return x + self.feed(self.norm_2(x))
