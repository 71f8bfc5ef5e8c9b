"""Runs to show in a frozen mask: their parameters, and which state each has when."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .host import Host

FLAGS = {"trained": 0, "unused": 16, "frozen": 32, "not_optimized": 64, "not_recorded": 128}
EVIL = "<img src=x onerror=document.title='run'>.weight"


@dataclass
class Scene:
    """A run.

    Attributes
    ----------
    shapes : dict
        By parameter.
    course : dict
        By parameter: from which iteration on it has which state.
    changes : list of dict
        As Python tells them.
    """

    shapes: Mapping[str, Sequence[int]]
    n: int
    course: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    changes: Sequence[Mapping[str, Any]] = ()

    @property
    def names(self) -> list[str]:
        return list(self.shapes)

    def send(self, page: Host, first: int, stop: int, barred: str = "", **run: Any) -> None:
        """Send its iterations [first, stop)."""
        flags = np.zeros((stop - first, len(self.shapes) + 1), np.uint8)
        for place, name in enumerate(self.names):
            for begin, state in self.course.get(name, {}).items():
                flags[max(begin - first, 0) :, place] = FLAGS[state]
        norms = np.where(flags & ~np.uint8(64), np.nan, 0.05)
        norms[:, -1] = 1.0
        told = [change for change in self.changes if first <= change["iteration"] < stop]
        page.send(norms, flags, beside={"changes": told, "barred": barred}, **run)

    def show(self, page: Host, **run: Any) -> None:
        """Show all of it, as a run that goes on."""
        page.start(self.names, shapes=self.shapes)
        self.send(page, 0, self.n, **({"iterations": self.n} | run))
        wait_drawn(page, self.n)


def wait_drawn(page: Host, iterations: int) -> None:
    """Wait until so many iterations are painted."""
    page.widget.locator(f'canvas.gv-mask-lanes[data-iterations="{iterations}"]').wait_for()


def _resnet() -> dict[str, Sequence[int]]:
    shapes: dict[str, Sequence[int]] = {
        "stem.conv.weight": (64, 3, 7, 7),
        "stem.bn.weight": (64,),
        "stem.bn.bias": (64,),
    }
    width = 64
    for layer in range(1, 5):
        for block in range(2):
            out = 64 * 2 ** (layer - 1)
            for conv in (1, 2):
                shapes[f"layer{layer}.{block}.conv{conv}.weight"] = (out, width, 3, 3)
                shapes[f"layer{layer}.{block}.bn{conv}.weight"] = (out,)
                shapes[f"layer{layer}.{block}.bn{conv}.bias"] = (out,)
                width = out
    return shapes | {
        "head.fc.weight": (10, 512),
        "head.fc.bias": (10,),
        "head.aux.weight": (15, 512),
        "temperature": (),
    }


RESNET = _resnet()


def _in(*modules: str) -> Iterator[str]:
    yield from (name for name in RESNET if name.startswith(modules))


HEALTHY = Scene({name: shape for name, shape in RESNET.items() if name not in ("temperature", "head.aux.weight")}, 400)

PARTLY = Scene(
    RESNET,
    1285,
    {name: {0: "frozen"} for name in _in("stem", "layer1", "layer2", "layer3")}
    | {name: {0: "frozen", 432: "trained"} for name in _in("layer4")}
    | {"layer4.1.bn2.weight": {0: "frozen"}, "head.aux.weight": {1012: "unused"}, "temperature": {0: "not_optimized"}},
    [{"iteration": 432, "event": "unfrozen", "by": "handler", "names": ["layer4"], "more": 0}],
)

UNUSED = Scene(
    {name: RESNET[name] for name in (*_in("stem", "layer1", "head"), "temperature")},
    300,
    {name: {0: "unused"} for name in _in("layer1.1")}
    | {"head.aux.weight": {0: "unused", 90: "trained", 200: "frozen"}, "temperature": {0: "not_recorded"}},
    [{"iteration": 200, "event": "frozen", "by": "widget", "names": ["head.aux.weight"], "more": 0}],
)

STATES = Scene(
    {f"a.{state}": (64, 32) for state in FLAGS} | {EVIL: (64, 32), "b.weight": (8, 8), "b.bias": (8,)},
    80,
    {f"a.{state}": {40: state} for state in FLAGS} | {"b.bias": {40: "frozen"}},
)
