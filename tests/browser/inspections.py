"""Runs to look into, and the page that shows them and answers as a kernel does."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradviz.history.history import History
from gradviz.history.schema import FROZEN, OK, UNUSED
from gradviz.widgets.feed import ColumnFeed
from gradviz.widgets.inspection import inspect

from .host import Host, encoded

EVIL = "<img src=x onerror=document.title='run'>.weight"
NAMES = ["embed.weight", "encoder.1.attn.out.weight", "encoder.1.mlp.0.bias", "head.aux.weight", EVIL]
LOOKED = NAMES[1]
EDGES = 2.0 ** (np.arange(-48 * 4, 16 * 4 + 1) / 4)
N = 1300
NAN_AT = 1016


def bins_of(values: np.ndarray) -> list[tuple[float, float, int]]:
    """Lines of the histogram of these values, as a recorder writes them."""
    finite = values[np.isfinite(values)]
    lines = [(0.0, 0.0, int((finite == 0).sum()))]
    for sign in (1, -1):
        sizes = sign * finite[sign * finite > 0]
        counts, _ = np.histogram(sizes, EDGES)
        for place in np.flatnonzero(counts).tolist():
            low, high = sorted((sign * EDGES[place], sign * EDGES[place + 1]))
            lines.append((low, high, int(counts[place])))
    for end, is_it in ((np.inf, values == np.inf), (-np.inf, values == -np.inf), (np.nan, np.isnan(values))):
        lines.append((end, end, int(is_it.sum())))
    return [line for line in lines if line[2]]


def run(*, stages: bool = True, examples: bool = True, length: int = N) -> History:
    """Norms that fall and grow; a frozen beginning, a NaN, an unused parameter, and one that is zero for a while."""
    draw = np.random.default_rng(0)
    history = History()
    shapes = (512, 64), (64, 64), (256,), (64, 4), (3,)
    described = [
        {"name": name, "shape": shape, "dtype": "bfloat16" if name == LOOKED else "float32"}
        for name, shape in zip(NAMES, shapes, strict=True)
    ]
    history.declare(described)
    forms = {"of": ["parameter", "gradient"], "dtype": ["bfloat16", "float32"], "device": ["cpu"] * 2}
    history.add_rows("dtypes", {"iteration": [0] * 2, "parameter": [LOOKED] * 2, **forms})
    for i in range(length):
        norms = np.exp(-i / 600 + draw.normal(0, 0.25, 5)) * (1, 2, 0.1, 0.5, 1e-4)
        states = np.array([FROZEN if i < 400 else OK, OK, OK, UNUSED, OK], np.uint8)
        norms[1] *= np.exp(max(0, i - 990) / 8) if i < NAN_AT else 1
        norms[1] = np.nan if NAN_AT <= i < NAN_AT + 4 else norms[1]
        norms[2] = 0 if 700 <= i < 820 else norms[2]
        norms[states != OK] = np.nan
        table = np.full((5, 8), np.nan)
        table[:, 0] = norms
        table[states == OK, 5:] = 0
        table[1, 5] = np.isnan(norms[1])
        more = {}
        if stages:
            for stage, factor in (("clipped", 0.3), ("update", 0.004), ("weight", 5.0)):
                own = table.copy()
                own[:, 0] *= factor
                more[stage] = own, states
        loss = 2.3 * np.exp(-i / 500) + 0.2 + draw.normal(0, 0.02) + (0.6 if NAN_AT - 8 < i < NAN_AT + 30 else 0)
        skipped = bool(NAN_AT <= i < NAN_AT + 4)
        history.append(i, i // 330, table, states, {"loss": loss}, skipped=skipped, stages=more)
        if i % 100 == 0:
            values = draw.lognormal(-6, 1.4, 4000) * draw.choice([-1, 1, 1], 4000)
            values = np.concatenate([values, [0.0] * 300, [np.inf] * (i == 1000) * 60, [np.nan] * (i == 1000) * 90])
            low, high, count = zip(*bins_of(values), strict=True)
            about = {"iteration": [i] * len(low), "parameter": [LOOKED] * len(low), "stage": ["backward"] * len(low)}
            history.add_rows("histograms", about | {"low": low, "high": high, "count": count})
        if examples and i % 10 == 0:
            about = {"iteration": [i] * 4, "name": [LOOKED] * 4, "call": [0, 1, 0, 0], "example": [17, 3, 40, 8]}
            pulls = {"example_id": ["img_0017", None, "img_0040", None], "norm": [0.92, 0.41, 0.12, 0.07]}
            history.add_rows("examples", about | pulls)
    history.progress.status, history.progress.iteration = "completed", length
    return history


class Inspected:
    """An inspector in the mini page; `deaf`: the kernel answers nothing."""

    def __init__(self, page: Host, history: History, *, deaf: bool = False, **traits: Any) -> None:
        self.page, self.history, self.deaf = page, history, deaf
        self.asked: list[dict[str, Any]] = []
        page.page.expose_function("kernel", self._answer)
        parameters = [dict(each, shape=list(each["shape"] or ())) for each in history.described]
        page.start(NAMES, **{"_parameters": parameters, "parameter": LOOKED, "iteration": None, **traits})
        page.page.evaluate(
            """() => {
              const answer = async (question) => {
                const [told, buffers] = (await kernel(question)) ?? [];
                if (told) host.send(told, buffers);
              };
              host.model.send = (content) => {
                host.sent.push(content);
                if (content.kind === "inspect") answer(content);
              };
            }"""
        )
        told, buffers = ColumnFeed(history).message(fresh=True)
        page.deliver(told | {"seq": 1, "fresh": True}, buffers)
        page.page.locator(f'canvas.gv-norm[data-iterations="{len(history)}"]').wait_for()

    def _answer(self, question: dict[str, Any]) -> Any:
        self.asked.append(question)
        if self.deaf:
            return None
        told, buffers = inspect(self.history, question)
        return told, [encoded(part) for part in buffers]
