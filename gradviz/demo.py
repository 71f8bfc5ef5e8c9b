"""A small run without a notebook: a net that reads handwritten digits, and the page of what its gradients did."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from gradviz.loop.trainer import trainer
from gradviz.widgets.page import save_html

PAGE = "gradviz-demo.html"
EPOCHS = 4


class Block(nn.Module):
    """Two convolutions and a way around them."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm2 = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        """Images of the same size."""
        hidden = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(x + self.norm2(self.conv2(hidden)))


class DigitNet(nn.Module):
    """Ten scores for an image of 8 by 8."""

    def __init__(self, channels: int = 16) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, channels, 3, padding=1), nn.ReLU())
        self.blocks = nn.Sequential(Block(channels), nn.MaxPool2d(2), Block(channels))
        self.head = nn.Linear(channels * 16, 10)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, 1, 8, 8] -> [batch, 10]."""
        scores: Tensor = self.head(self.blocks(self.stem(x)).flatten(1))
        return scores


def demo(folder: str = ".") -> Path:
    """Train, with a progress bar, save the page, and say how to look at it; where it is."""
    torch.manual_seed(0)
    images, labels, what = digits()
    print(f"Training a small convolutional net on {len(images):,} {what}.", flush=True)
    order = torch.randperm(len(images))
    batches = [(images[part], labels[part]) for part in order.split(64)]
    loop = trainer(DigitNet(), "cross_entropy", "adam").metric("accuracy")
    loop.run(batches, epochs=EPOCHS)
    path = save_html(loop, Path(folder) / PAGE, if_exists="overwrite").resolve()
    print(f"What its gradients did is in {path}. Open it in a browser: {path.as_uri()}")
    return path


def digits() -> tuple[Tensor, Tensor, str]:
    """Images, labels, and what they are: scikit-learn's digits, or noisy patterns where that is not installed."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        labels = torch.arange(1797) % 10
        patterns = torch.rand(10, 1, 8, 8)
        images = patterns[labels] + 0.5 * torch.randn(1797, 1, 8, 8)
        return images, labels, "noisy patterns (with scikit-learn installed: handwritten digits)"
    found = load_digits()
    images = torch.tensor(found.images, dtype=torch.float32).unsqueeze(1) / 16
    return images, torch.tensor(found.target), "handwritten digits"
