"""What a history is made of: the names that its frames, its files and its pictures share."""

from __future__ import annotations

from typing import Literal, TypedDict

STATISTICS = ("norm", "mean", "std", "max_abs", "zero_fraction", "nan", "posinf", "neginf")
COUNTS = ("nan", "posinf", "neginf")

STATES = ("ok", "unused", "frozen", "not_optimized", "not_recorded")
OK, UNUSED, FROZEN, NOT_OPTIMIZED, NOT_RECORDED = range(len(STATES))

STAGES = ("backward", "clipped", "update", "weight")
"""When numbers were taken: as backward gave them, accumulated and unscaled; as the optimizer received them, where that
differs; how the parameter moved; and the parameter itself before that."""

EVENTS = ("frozen", "unfrozen")
AUTHORS = ("user", "handler", "widget")
"""Who did it: a click in a widget, a handler of the loop, or the user in any other way."""

NARROW = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
"""The dtypes of which is told what they would make of a gradient."""


class Parameter(TypedDict):
    """How a parameter is described: its name, shape and dtype (as text, ``"float32"``).

    Of a history that was made of a frame, the shape is None and the dtype ``"unknown"``; of an intermediate value, None
    and empty: it may have another one in each iteration.
    """

    name: str
    shape: tuple[int, ...] | None
    dtype: str


Kind = Literal["integer", "count", "float", "value", "flag", "text"]
"""What a column of a table holds: int64, int64 that may be missing, float64, float64 that may be missing, bool, or one
of few texts, which may be missing."""

Schema = dict[str, Kind]

METRICS: Schema = {
    "iteration": "integer",
    "attempt": "integer",
    "epoch": "integer",
    "loss_scale": "float",
    "skipped": "flag",
}
"""The one table that grows columns: a ``"value"`` for the loss and each metric, and those of OPTIONAL."""

OPTIONAL: Schema = {"optimizer": "text", "thinned": "flag"}
"""Columns that it has once a row has something there; no metric is called so. Of an iteration that was thinned, nothing
was to be recorded but its metrics: it has no row in any stage, unless it turned out later to be the last."""

TEXTS = {"by": AUTHORS, "event": EVENTS, "stage": STAGES, "state": STATES}
"""The texts of columns that have no others."""

TABLES: dict[str, Schema] = {
    "events": {"iteration": "integer", "attempt": "integer", "event": "text", "parameter": "text", "by": "text"},
    # A row where a dtype or device begins to hold; `of` says of what: "parameter", "gradient", "master", or a moment
    # such as "exp_avg". Runs of before devices were written down have none there.
    "dtypes": {
        "iteration": "integer",
        "attempt": "integer",
        "parameter": "text",
        "of": "text",
        "dtype": "text",
        "device": "text",
    },
    # One line for each bin that is not empty. Zeros have low = high = 0, NaN has NaN, infinities have both ends there.
    "histograms": {
        "iteration": "integer",
        "attempt": "integer",
        "parameter": "text",
        "stage": "text",
        "low": "float",
        "high": "float",
        "count": "integer",
    },
    # One line for each dtype that is asked about. Numbers of entries: all, zeros, others that would be rounded to zero,
    # to a subnormal number, beyond the largest one, and those that are not finite anyway.
    "precision": {
        "iteration": "integer",
        "attempt": "integer",
        "parameter": "text",
        "stage": "text",
        "dtype": "text",
        "entries": "integer",
        "zero": "integer",
        "underflow": "integer",
        "subnormal": "integer",
        "overflow": "integer",
        "nonfinite": "integer",
    },
    "activations": {
        "iteration": "integer",
        "attempt": "integer",
        "epoch": "integer",
        "name": "text",
        "call": "integer",
        "state": "text",
        "norm": "float",
        "mean": "float",
        "std": "float",
        "max_abs": "float",
        "zero_fraction": "float",
        "nan": "count",
        "posinf": "count",
        "neginf": "count",
    },
    "examples": {
        "iteration": "integer",
        "attempt": "integer",
        "name": "text",
        "call": "integer",
        "example": "integer",
        "example_id": "text",
        "norm": "float",
    },
}
"""The tidy tables, by the name of their frame and of their folder."""
