"""Ordinary loops in which a well-known tool shows another gradient than there is: the second table of the README.

    .venv/peers/bin/python -m tests.benchmarks.wrong_cases            prints it (make bench builds that environment)
    .venv/peers/bin/python -m tests.benchmarks.wrong_cases --readme   and puts it into the README

Each loop is watched by each tool in the way its manual shows, and takes one step. The model is one row of weights whose
output is multiplied by them, so that its gradient is the input.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

import gradviz as gv
from tests.benchmarks.bench_loop import ROOT

README = ROOT / "README.md"
BEGIN, END = "<!-- wrong cases: made by tests/benchmarks/wrong_cases.py -->\n", "<!-- end of wrong cases -->"
NAN = float("nan")
SCALE = 65536.0


@dataclass(frozen=True)
class Case:
    """A loop, and what is asked of its gradient."""

    what: str
    batches: tuple[tuple[float, ...], ...]
    """Inputs; several are accumulated into one step."""
    asked: Literal["norm", "entries", "records"]
    is_scaled: bool = False
    """Whether under torch's GradScaler."""
    n_watches: int = 1
    """How often the tool is told to watch: a cell of a notebook is run again."""

    def model(self) -> nn.Linear:
        """One weight for each number of an input."""
        return nn.Linear(len(self.batches[0]), 1, bias=False)

    def train(self, model: nn.Module, optimizer: torch.optim.Optimizer, log: Callable[[float], object]) -> None:
        """The loop; a loss is logged after each backward pass."""
        scaler = torch.amp.GradScaler("cpu", init_scale=SCALE, enabled=self.is_scaled)
        for batch in self.batches:
            loss = model(torch.tensor(batch)).sum()
            scaler.scale(loss).backward()
            log(float(loss.detach()))
        scaler.step(optimizer)
        scaler.update()

    def gradient(self) -> Tensor:
        """What torch says of the losses together, with nobody watching."""
        model = self.model()
        loss = torch.stack([model(torch.tensor(batch)).sum() for batch in self.batches]).sum()
        return torch.autograd.grad(loss, model.weight)[0]


CASES = [
    Case("`GradScaler`, scale 65536: the gradient's norm", ((1.0,),), "norm", is_scaled=True),
    Case("two micro-batches, 1 and 10, accumulated: its norm", ((1.0,), (10.0,)), "norm"),
    Case("4 of 16 entries are NaN", ((NAN,) * 4 + (1.0,) * 12,), "entries"),
    Case("all 16 entries are NaN", ((NAN,) * 16,), "entries"),
    Case("the cell that watches is run twice: records of a gradient in one step", ((1.0,),), "records", n_watches=2),
]


def truth(case: Case) -> str:
    """What there is to see."""
    gradient = case.gradient()
    if case.asked == "records":
        return "1"
    if case.asked == "norm":
        return f"{float(gradient.norm()):g}"
    return entries(gradient.numel(), int(gradient.isnan().sum()))


def gradviz(case: Case) -> str:
    """What `gv.watch` says."""
    model = case.model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watches = [gv.watch(model, optimizer) for _ in range(case.n_watches)]
    case.train(model, optimizer, lambda loss: watches[-1].mark(loss=loss))
    rows = [row for watch in watches for row in watch.history.gradients.to_dict("records")]
    watches[-1].close()
    if case.asked == "records":
        return str(len(rows))
    if case.asked == "norm":
        return in_turn(row["norm"] for row in rows)
    return ", then ".join(entries(model.weight.numel(), int(row["nan"])) for row in rows)


def wandb_watch(case: Case) -> str:
    """What `wandb.watch` logs."""
    import wandb  # in an environment of its own

    from tests.benchmarks.peers import folder, logged_by

    model = case.model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = wandb.init(mode="offline", dir=folder(), settings=wandb.Settings(console="off", silent=True))
    for _ in range(case.n_watches):
        run.watch(model, log="gradients", log_freq=1)
    case.train(model, optimizer, lambda loss: run.log({"loss": loss}))
    run.unwatch(model)
    histograms = list(logged_by(run))
    if case.asked == "records":
        return str(len(histograms))
    if case.asked == "norm":
        return in_turn(histogram["bins"][0] for histogram in histograms)
    return ", then ".join(f"{sum(histogram['values'])} numbers" for histogram in histograms) or "nothing"


def entries(count: int, n_nan: int) -> str:
    """How many of each kind."""
    numbers = [f"{count - n_nan} numbers"] if count > n_nan else []
    return ", ".join([*numbers, f"{n_nan} NaN"])


def in_turn(norms: Any) -> str:
    """One after the other."""
    return ", then ".join(f"{norm:g}" for norm in norms)


def table(*tools: Callable[[Case], str]) -> Iterator[str]:
    """In markdown, a column for each tool."""
    names = {truth: "there is", gradviz: "`gv.watch`", wandb_watch: "`wandb.watch`"}
    yield f"| | {' | '.join(names[tool] for tool in tools)} |"
    yield "|---|" + "---|" * len(tools)
    for case in CASES:
        yield f"| {case.what} | {' | '.join(tool(case) for tool in tools)} |"


def rewritten(readme: str, lines: Iterator[str]) -> str:
    """The README with a table between its marks."""
    before, _, rest = readme.partition(BEGIN)
    _, _, after = rest.partition(END)
    made = "".join(line + "\n" for line in lines)
    return f"{before}{BEGIN}{made}{END}{after}"


def main() -> None:
    """Ask both tools."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--readme", action="store_true", help="put the table into the README")
    arguments = parser.parse_args()
    lines = list(table(truth, gradviz, wandb_watch))
    print(*lines, sep="\n")
    if arguments.readme:
        README.write_text(rewritten(README.read_text(), iter(lines)))


if __name__ == "__main__":
    main()
