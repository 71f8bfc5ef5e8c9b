"""Every error and warning gradviz raises.

An error says what came, why that cannot work, and the line to write instead. Each class also derives from the
built-in exception a reader would expect, so ``except ValueError`` and ``except TypeError`` go on working.
"""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class GradvizError(Exception):
    """Base of every error gradviz raises on purpose."""


class DataError(GradvizError, ValueError):
    """The data cannot be trained on: no batch, an iterator already used up, a batch that is not a pair."""


class ModelError(GradvizError, ValueError):
    """The model cannot be trained as it is: nothing trainable, lazy parameters, a wrapper that hides gradients."""


class LossError(GradvizError, ValueError):
    """A loss or objective that is unknown, or that returned something other than a scalar to differentiate."""


class OptimizerError(GradvizError, ValueError):
    """An optimizer that is unknown or does not belong to the model."""


class MetricError(GradvizError, ValueError):
    """A metric that is unknown, has no name, or asks for fields the step state does not have."""


class EventError(GradvizError, ValueError):
    """An event that does not exist, or a handler that returned something other than a control word."""


class HistoryError(GradvizError, ValueError):
    """A question the history cannot answer, such as a statistic it does not keep."""


class UnknownKeywordError(GradvizError, TypeError):
    """A keyword argument that the function does not take."""


class NoSuchFieldError(GradvizError, AttributeError):
    """A field that a step state or a gradient does not have."""


class GradvizWarning(UserWarning):
    """Base of every warning gradviz gives. Our own failures warn once and never stop a training step."""


class RecordingWarning(GradvizWarning):
    """Something could not be recorded or shown; training goes on."""


class InputCastWarning(GradvizWarning):
    """Floating inputs were cast to the model's dtype."""


class MetricWarning(GradvizWarning):
    """A metric took the place of another one of the same name."""


class HandlerWarning(GradvizWarning):
    """A handler or metric of yours failed under ``on_error="warn"``."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Words that name the known spelling nearest to `name`, or list the known ones.

    Examples
    --------
    >>> nearest("cros_entropy", ["cross_entropy", "huber"])
    "did you mean 'cross_entropy'?"
    >>> nearest("zzz", ["adam", "sgd"])
    'known: adam, sgd'
    """
    known = sorted(known)
    close = difflib.get_close_matches(str(name).lower(), known, n=1, cutoff=0.55)
    return f"did you mean {close[0]!r}?" if close else "known: " + ", ".join(known)


def names_nearest_keyword(function: Callable[P, R]) -> Callable[P, R]:
    """Make an unknown keyword of `function` a TypeError that names the nearest known one."""
    parameters = inspect.signature(function).parameters.values()
    known = [p.name for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD) and p.name != "self"]

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        for name in kwargs:
            if name not in known:
                raise UnknownKeywordError(f"{function.__name__}() takes no keyword {name!r}: {nearest(name, known)}")
        return function(*args, **kwargs)

    return checked
