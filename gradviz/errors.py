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
    """A metric that is unknown, has no name of its own, or asks for fields the step state does not have."""


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
    """Words that name the known spelling nearest to `name`, and list the known ones where they are few.

    Examples
    --------
    >>> nearest("cros_entropy", ["cross_entropy", "huber"])
    "did you mean 'cross_entropy'? Known: cross_entropy, huber"
    >>> nearest("mse", ["mean_squared_error", "hinge"])
    "did you mean 'mean_squared_error'? Known: hinge, mean_squared_error"
    >>> nearest("zzz", ["adam", "sgd"])
    'known: adam, sgd'
    """
    known = sorted(known)
    word = str(name).lower().removesuffix("_loss")
    by_initials = [full for full in known if word and "".join(part[:1] for part in full.split("_")) == word]
    close = by_initials or difflib.get_close_matches(word, known, n=1, cutoff=0.55)
    if not close:
        return "known: " + ", ".join(known)
    return f"did you mean {close[0]!r}?" + (f" Known: {', '.join(known)}" if len(known) <= 8 else "")


def described(value: object) -> str:
    """What came, in words: a type with its article, and a shape where there is one.

    Examples
    --------
    >>> described([1]), described(None), described(int)
    ('a list', 'None', 'the class int')
    """
    if value is None:
        return "None"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    shape = getattr(value, "shape", None)
    name = type(value).__name__
    name = "tensor" if name == "Tensor" else name
    article = "an" if name[:1].lower() in "aeio" or name == "ndarray" else "a"
    return f"{article} {name}" + (f" of shape {tuple(shape)}" if isinstance(shape, tuple) else "")


def names_nearest_keyword(function: Callable[P, R]) -> Callable[P, R]:
    """Make an unknown keyword of `function` a TypeError that names the nearest known one."""
    parameters = inspect.signature(function).parameters.values()
    known = [p.name for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD) and p.name != "self"]

    def check(keywords: Iterable[str]) -> None:
        for name in keywords:
            if name not in known:
                hint = ""
                if "optimizer" in known and name in ("lr", "learning_rate", "momentum", "weight_decay", "betas"):
                    hint = ". An option of the optimizer goes into it: functools.partial(torch.optim.Adam, lr=0.01)"
                raise UnknownKeywordError(
                    f"{function.__name__}() takes no keyword {name!r}: {nearest(name, known)}{hint}"
                )

    @functools.wraps(function)
    def with_known_keywords(*args: P.args, **kwargs: P.kwargs) -> R:
        check(kwargs)
        return function(*args, **kwargs)

    return with_known_keywords
