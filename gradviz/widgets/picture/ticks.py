"""Where the axis has ticks and labels, so that labels never collide (`js/src/kit/ticks.ts`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count as numbers

from gradviz.widgets.picture.words import count

Measure = Callable[[str], float]
"""The width of a text."""

AIR = 10
"""Kept free between two labels, and `TICK_AIR` between two ticks."""
TICK_AIR = 5


@dataclass(frozen=True)
class Tick:
    """A tick at `x`, and the left edge of its label, which may be empty."""

    x: float
    label: str
    left: float


def iteration_ticks(span: int, width: float, measure: Measure) -> list[Tick]:
    """A label every 80 pixels or so, as many as numbers of this size leave room for."""
    wanted = max(2, int(width / max(80, measure(count(span)) + 3 * AIR)))
    placed: list[Tick] = []
    free = -math.inf
    for value in _round_numbers(span, wanted):
        x, label = value / span * width, count(value)
        size = measure(label)
        left = max(0.0, min(width - size, x - size / 2))
        if left >= free:
            placed.append(Tick(x, label, left))
            free = left + size + AIR
    return placed


def _round_numbers(stop: int, wanted: int) -> range:
    """Whole multiples of 1, 2 or 5 times a power of ten from 0 to `stop`, about as many as wanted."""
    step = stop / wanted
    power = 10.0 ** math.floor(math.log10(step))
    error = step / power
    factor = 10 if error >= math.sqrt(50) else 5 if error >= math.sqrt(10) else 2 if error >= math.sqrt(2) else 1
    return range(0, stop + 1, max(1, round(factor * power)))


def epoch_ticks(starts: Sequence[int], span: int, width: float, measure: Measure) -> list[Tick]:
    """Epoch starts: a tick each while there is room, and labels 0 1 2, or 0 2 4, or 0 5 10, or 0 10 20 ..."""
    return next(ticks for step in _steps() if (ticks := _try(step, starts, span, width, measure)) is not None)


def _steps() -> Iterator[int]:
    for power in numbers():
        yield from (10**power, 2 * 10**power, 5 * 10**power)


def _try(step: int, starts: Sequence[int], span: int, width: float, measure: Measure) -> list[Tick] | None:
    placed: list[Tick] = []
    labels = 0
    free = last = -math.inf
    for epoch, start in enumerate(starts):
        x = start / span * width
        left = x + 4
        text = count(epoch) if epoch else "epoch 0"
        right = left + measure(text)
        labelled = epoch % step == 0
        if labelled and left < free:
            # Larger steps make room. Only what is right beside the wide "epoch 0" simply goes without.
            if labels > 1 or step <= 2:
                return None
            labelled = False
        labelled = labelled and right <= width
        if not labelled and (x - last < TICK_AIR or x < free - AIR + TICK_AIR):
            continue
        placed.append(Tick(x, text if labelled else "", left))
        last = x
        if labelled:
            labels += 1
            free = right + AIR
    return placed
