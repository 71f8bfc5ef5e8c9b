"""Every block of code in the README runs, as a reader of its section would: in order, with what there is by then."""

from __future__ import annotations

import contextlib
import re
from collections import OrderedDict
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import gradviz as gv

README_FILE = Path(__file__).parents[1] / "README.md"
README = README_FILE.read_text(encoding="utf-8")
SECTIONS = re.split(r"^(?=## )", README, flags=re.MULTILINE)
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(1, 4, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.conv1(x).mean(dim=1, keepdim=True)


class Net(nn.Module):
    """What the README's model may be: it has an encoder, blocks and a head."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.blocks = nn.Sequential(Block())
        self.encoder = nn.Sequential(nn.Linear(8, 12), nn.ReLU())
        self.head = nn.Linear(12, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inside = x if x.shape[-1] == 12 else self.encoder(self.blocks(x[:, None]).squeeze(1))
        return self.head(inside)


def _batch() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(16, 8), torch.randint(10, (16,))


def _given() -> dict[str, Any]:
    """What every section takes for granted."""
    model, batches = Net(), [_batch() for _ in range(3)]
    return {
        "gv": gv,
        "torch": torch,
        "F": F,
        "partial": partial,
        "display": print,
        "model": model,
        "optimizer": torch.optim.Adam(model.parameters()),
        "batches": batches,
        "batch": batches[0],
        "held_out": [_batch()],
        "evaluate": lambda model: 0.0,
        **dict(zip(("x", "y"), _batch(), strict=True)),
        **dict(zip(("x2", "y2"), _batch(), strict=True)),
        "step": 0,
    }


def _loop(**options: Any) -> Any:
    given = _given()
    loop = gv.trainer(given["model"], "cross_entropy", "adam", **options).metric("accuracy")
    loop.run(given["batches"], epochs=1, display=None)
    return loop


def _of_two_models() -> dict[str, Any]:
    generator, critic = Net(), Net()
    both = {"generator": generator, "critic": critic}
    return both | {
        name: torch.optim.SGD(each.parameters()) for name, each in zip(("opt_g", "opt_d"), both.values(), strict=True)
    }


def _of_other_trainers() -> dict[str, Any]:
    import accelerate
    import lightning
    import transformers

    class Lit(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = Net()

        def training_step(self, batch: Any, _: int) -> torch.Tensor:
            return F.cross_entropy(self.net(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.parameters())

    class Hugging(Net):
        def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:  # type: ignore[override]
            return {"loss": F.cross_entropy(super().forward(x), labels)}

    examples = [{"x": x, "labels": y} for x, y in zip(*_batch(), strict=True)]
    quiet = {"accelerator": "cpu", "logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    arguments = transformers.TrainingArguments(max_steps=2, use_cpu=True, report_to=[], disable_tqdm=True)

    def train(model: nn.Module, optimizer: Any, data: Any) -> None:
        for x, y in data:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()

    return {
        "lightning": SimpleNamespace(Trainer=partial(lightning.Trainer, max_epochs=1, **quiet)),
        "module": Lit(),
        "data": DataLoader(TensorDataset(*_batch()), batch_size=8),
        "transformers": SimpleNamespace(
            Trainer=lambda model, args, train_dataset, callbacks: transformers.Trainer(
                Hugging(), arguments, train_dataset=examples, callbacks=callbacks
            )
        ),
        "args": None,
        "accelerator": accelerate.Accelerator(cpu=True),
        "train": train,
    }


def _with_checkpoints() -> dict[str, Any]:
    given = _given()
    loop = gv.trainer(given["model"], "cross_entropy", "adam").metric("accuracy").validate(given["held_out"])
    loop.checkpoint("runs/a", best="validation_loss").run(given["batches"], epochs=1, display=None)
    return given | {"loop": gv.trainer(Net(), "cross_entropy", "adam").validate(given["held_out"])}


def _without_blocks() -> dict[str, Any]:
    net = Net()
    return {"model": nn.Sequential(OrderedDict(encoder=net.encoder, head=net.head))}


BY_THEN = {
    "Use it": lambda: {"loop": _loop()},
    "Your own loop": _of_two_models,
    "Lightning, Hugging Face, Accelerate": _of_other_trainers,
    "Figures": lambda: {name: _loop().history for name in ("history", "a", "b")},
    "A page to share, the command line, and where widgets are shown": lambda: {"loop": _loop()},
    "Checkpoints": _with_checkpoints,
    "A loop as a stream, and in the background": lambda: {"loop": _loop()},
    "One step at a time": lambda: {"loop": _loop()},
    "Gradients inside the model": _without_blocks,
}
"""What the reader of a section has made by then, beside what all have."""


def _title(section: str) -> str:
    return section.splitlines()[0].removeprefix("##").strip("# ")


@contextlib.contextmanager
def _tidied() -> Iterator[None]:
    """What a block began in the background does not go on after it: the next may train the same model."""
    try:
        yield
    finally:
        for loop in gv.running():
            loop.stop().wait()


@pytest.mark.parametrize("section", [each for each in SECTIONS if BLOCK.search(each)], ids=_title)
@pytest.mark.filterwarnings("ignore::UserWarning:lightning", "ignore::DeprecationWarning")
def test_every_block_of_a_section_runs(section: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    names = _given() | BY_THEN.get(_title(section), dict)()
    before = README[: README.index(section)].count("\n")
    for block in BLOCK.finditer(section):
        line = before + section[: block.start(1)].count("\n")
        with _tidied():
            exec(compile("\n" * line + block[1], "README.md", "exec"), names)


def test_no_code_is_left_out_for_want_of_its_language() -> None:
    fences = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    assert sum(language == "python" for language, _ in fences) >= 20
    assert not [code for language, code in fences if language != "python" and "gv." in code]


def test_every_picture_and_file_that_it_names_is_there() -> None:
    named = re.findall(r'(?:src|srcset)="([^"]+)"', README) + re.findall(r"\]\((?!https?:|#)([^)#]+)\)", README)
    assert len(named) >= 10
    assert not [name for name in named if not (README_FILE.parent / name).is_file()]
