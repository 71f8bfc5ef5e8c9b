"""The one question that an inspector asks of Python, and the answer.

::

    question  {"kind": "inspect", "id": text, "of": "parameters" | "activations", "name": text, "iteration": int | None}
    answer    {"kind": "answer", "id": text, ...} and three buffers, little-endian; or {"kind": "answer", "id", "error"}

An iteration of None is the newest. Nothing is remembered between two questions, so that anything that has the history
can answer them. Besides `id` the answer has, as `History.inspected` says, `name`, `of`, `asked` (the iteration that was
asked for), `iteration`, `skipped`, `states` (by stage), `unclipped`, `gradient_dtype`, `bins_iteration`,
`examples_iteration` and `examples` ([call, example, id or None] each). For k bins and n examples the buffers are::

    float64 norm[5]       at the four stages, and the norm of the update divided by that of the weight
    float64 bin[k * 3]    both ends and the number of entries
    float64 pull[n]       norms of the examples
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gradviz.errors import HistoryError
from gradviz.history.activations import Activations, activations_of
from gradviz.history.history import History
from gradviz.history.schema import STAGES
from gradviz.widgets.feed import Message

OF = ("parameters", "activations")


def inspect(history: History, question: Mapping[str, Any]) -> Message:
    """The answer to a question, as a message and its buffers.

    Examples
    --------
    >>> history = History()
    >>> history.declare([{"name": "w", "shape": (2,), "dtype": "float32"}])
    >>> history.append(0, 0, np.array([[5.0, 3.5, 0.7, 4.0, 0.0, 0, 0, 0]]), np.array([0], np.uint8), {"loss": 1.6})
    >>> told, (norms, bins, pulls) = inspect(history, {"id": "1", "of": "parameters", "name": "w", "iteration": None})
    >>> told["iteration"], told["states"]["backward"], np.frombuffer(norms)[0]
    (0, 'ok', np.float64(5.0))
    """
    about = {"kind": "answer", "id": question.get("id")}
    try:
        of, name, iteration = question["of"], str(question["name"]), question["iteration"]
        if of not in OF:
            raise HistoryError(f"of is one of {OF}; got {of!r}.")
        run = activations_of(history) if of == "activations" and not isinstance(history, Activations) else history
        found = run.inspected(name, None if iteration is None else int(iteration))
    except Exception as error:  # shown where it was asked
        return about | {"error": f"{type(error).__name__}: {error}"}, []
    norms = {stage: found.stages[stage].norm for stage in STAGES}
    with np.errstate(all="ignore"):
        ratio = np.float64(norms["update"]) / np.float64(norms["weight"])
    told = {
        "of": of,
        "name": name,
        "asked": iteration,
        "iteration": found.iteration,
        "skipped": found.skipped,
        "states": {stage: found.stages[stage].state for stage in STAGES},
        "unclipped": found.unclipped,
        "gradient_dtype": found.gradient_dtype,
        "bins_iteration": found.bins_iteration,
        "examples_iteration": found.examples_iteration,
        "examples": [[each.call, each.example, each.example_id] for each in found.examples],
    }
    numbers = [[*norms.values(), ratio], found.bins, [each.norm for each in found.examples]]
    return about | told, [np.asarray(each, "<f8").tobytes() for each in numbers]
