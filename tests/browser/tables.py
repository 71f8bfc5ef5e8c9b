"""Runs to show in a table of dtypes, and the page that shows them."""

from __future__ import annotations

import base64

import torch
from playwright.sync_api import Locator
from torch import Tensor, nn

import gradviz as gv
from gradviz.history.history import History
from gradviz.widgets.dtype_table import DtypeFeed

from .host import Host

EVIL = "<img src=x onerror=alert(1)>"


class Net(nn.Module):
    """An encoder of several layers, a head, and a parameter that the loss does not reach."""

    def __init__(self, depth: int = 3, activation: type[nn.Module] = nn.ReLU, scale: float = 1.0) -> None:
        super().__init__()
        blocks = [nn.Sequential(nn.Linear(32, 32), activation()) for _ in range(depth)]
        self.encoder = nn.Sequential(*blocks)
        self.head = nn.Linear(32, 4)
        self.register_parameter(EVIL, nn.Parameter(torch.zeros(3)))
        with torch.no_grad():
            for p in self.encoder.parameters():
                p.mul_(scale)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.encoder(inputs))  # type: ignore[no-any-return]


def data(n: int) -> list[tuple[Tensor, Tensor]]:
    torch.manual_seed(1)
    return [(torch.randn(16, 32), torch.randint(4, (16,))) for _ in range(n)]


def healthy() -> History:
    torch.manual_seed(0)
    loop = gv.trainer(Net(), "cross_entropy", "adam", histograms_every=10)
    loop.run(data(40), display=None)
    return loop.history


def mixed() -> History:
    """float16 with master copies, a frozen block, and a loss scale that is too large at first."""
    torch.manual_seed(0)
    model = Net()
    model.encoder[0].requires_grad_(False)
    scale = gv.LossScale.dynamic(2**20, period=8)
    loop = gv.trainer(
        model,
        "cross_entropy",
        "adam",
        policy=gv.Policy(params="float16", compute="float16", output="float32", except_="head"),
        loss_scale=scale,
        histograms_every=10,
    )
    loop.run(data(40), display=None)
    return loop.history


def vanishing() -> History:
    torch.manual_seed(0)
    loop = gv.trainer(Net(8, nn.Sigmoid, 0.2), "cross_entropy", "adam", histograms_every=10)
    loop.run(data(40), display=None)
    return loop.history


def own_loop() -> History:
    """A loop of one's own in bfloat16, without master copies, whose head becomes float32 on the way."""
    torch.manual_seed(0)
    model = Net().bfloat16()
    optimizer = torch.optim.Adam(model.parameters())
    with gv.watch(model, optimizer) as watch:
        for i, (inputs, targets) in enumerate(data(6)):
            if i == 3:
                model.head.float()
                for p in model.head.parameters():
                    p.grad = None
                    state = optimizer.state[p]
                    state.update({name: value.float() for name, value in state.items() if name != "step"})
            hidden = model.encoder(inputs.bfloat16())
            loss = nn.functional.cross_entropy(model.head(hidden.to(model.head.weight.dtype)), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.mark(loss=loss)
    return watch.history


class Shown:
    """A table in the mini page, fed with a history as a kernel feeds it."""

    def __init__(self, page: Host, history: History) -> None:
        self.page, self.history = page, history
        self._feed, self._seq = DtypeFeed(history), 0
        parameters = [dict(each, shape=list(each["shape"] or ())) for each in history.described]
        page.page.evaluate("about => host.start(about)", {"parameters": parameters})
        self.send(fresh=True)

    def send(self, *, fresh: bool = False) -> None:
        told, buffers = self._feed.message(fresh=fresh)
        self._seq += 1
        content = {**told, "seq": self._seq, "fresh": fresh}
        encoded = [base64.b64encode(buffer).decode() for buffer in buffers]
        self.page.page.evaluate("([content, buffers]) => host.send(content, buffers)", [content, encoded])
        self.settle()

    def settle(self) -> None:
        self.page.page.evaluate(
            "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))))"
        )

    @property
    def widget(self) -> Locator:
        return self.page.page.locator(".gv-dtypes").first

    def rows(self) -> list[str]:
        self.settle()
        rows = self.widget.locator("tr[data-parameter]")
        return rows.evaluate_all("all => all.map(row => row.dataset.parameter)")  # type: ignore[no-any-return]

    def cell(self, parameter: str, column: str) -> str:
        script = (
            "(root, [name, column]) => [...root.querySelectorAll('tr[data-parameter]')]"
            ".find(row => row.dataset.parameter === name).querySelector(`[data-column=${column}]`).innerText.trim()"
        )
        return str(self.widget.evaluate(script, [parameter, column]))

    def notes(self, parameter: str) -> list[str]:
        script = (
            "(root, name) => [...[...root.querySelectorAll('tr[data-parameter]')]"
            ".find(row => row.dataset.parameter === name).querySelectorAll('.gv-notes > li')].map(li => li.textContent)"
        )
        return self.widget.evaluate(script, parameter)  # type: ignore[no-any-return]

    def sort(self, column: str) -> None:
        self.widget.locator(f"th[data-column={column}] > button").click()
