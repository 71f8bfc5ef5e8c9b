"""What a view may ask for beside the live norms, and the answers.

Norms come by themselves, whatever the kernel does. Another statistic, another stage, or single iterations of a part
that the picture has merged are asked for, and answered when the kernel is free.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from gradviz.history.asked import MEASURES
from gradviz.history.history import History
from gradviz.history.overview import CAPACITY
from gradviz.history.quantity import Quantity
from gradviz.widgets.colours import BLUE_ORANGE, VIRIDIS
from gradviz.widgets.feed import WHOLE_BYTES
from gradviz.widgets.wire import pack


@dataclass(frozen=True)
class Words:
    """What a measure is called: on a button, in its tooltip, before a value, and of many in a sentence.

    `scale` is how it becomes a colour (`js/src/data/colour.ts`).
    """

    word: str
    title: str
    noun: str
    nouns: str
    scale: str = "norms"


WORDS = {
    "norm": Words("norm", "2-norm", "norm", "norms"),
    "rms": Words("rms", "root mean square of the entries", "rms", "rms"),
    "max_abs": Words("max", "size of the largest entry", "largest entry", "largest entries"),
    "mean": Words("mean", "mean of the entries", "mean", "means", "signed"),
    "zero_fraction": Words("zeros", "share of the entries that are 0", "share of zeros", "shares of zeros", "shares"),
    "update_ratio": Words("update", "norm of the update ÷ norm of the parameter", "ratio", "ratios"),
}
STAGES = {
    "backward": ("backward", "the gradient as autograd gave it", "gradient"),
    "clipped": ("clipped", "the gradient as the optimizer received it", "clipped gradient"),
    "update": ("moved", "how the parameter moved", "update"),
    "weight": ("weight", "the parameter itself, before the step", "parameter"),
}
"""On a button, in its tooltip, and before a measure's noun."""


def choices(history: History) -> dict[str, Any]:
    """What a view of this history offers: name, word, tooltip and needed stages of each."""
    if not history.measures:
        return {"statistics": [], "stages": []}
    return {
        "statistics": [[name, WORDS[name].word, WORDS[name].title, MEASURES[name]] for name in history.measures],
        "stages": [[name, word, title, [name]] for name, (word, title, _) in STAGES.items()],
    }


def answer(history: History, question: Mapping[str, Any]) -> tuple[dict[str, Any], list[bytes]]:
    """What a view asks for, as a message and its buffers: columns and a table of colours."""
    name, stage = str(question["statistic"]), str(question["stage"])
    most = min(CAPACITY, WHOLE_BYTES // (9 * (len(history.described) + 1)))
    columns = history.asked(name, stage, int(question["start"]), int(question["stop"]), most)
    quantity, scale, colours = looks_of(history.quantity, name, stage)
    told = {
        "end": int(history.iterations[-1]) + 1 if len(history) else 0,
        "level": columns.level,
        "scale": scale,
        "quantity": asdict(quantity),
    }
    return told, [pack(columns), colours]


def looks_of(live: Quantity, name: str, stage: str) -> tuple[Quantity, str, bytes]:
    """What the numbers of an answer are, the name of their scale, and 256 colours."""
    words = WORDS[name]
    return _quantity(live, words, name, stage), words.scale, BLUE_ORANGE if words.scale == "signed" else VIRIDIS


def _quantity(live: Quantity, words: Words, name: str, stage: str) -> Quantity:
    """That of the answer, where the live one is this."""
    if name == "update_ratio":
        label, title = "update ÷ weight", "ratios of update to weight"
    else:
        of = STAGES[stage][2]
        label, title = f"{of}, {words.noun}", f"{words.nouns} of the {of}"
    return replace(live, label=label, title=title, noun=words.noun)
