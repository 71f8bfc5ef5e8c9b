"""Every error and warning gradviz raises.

An error says what came, why that cannot work, and the line to write instead. Each has a stable `code`, and derives
from the built-in exception a reader would expect, so ``except ValueError`` and ``except TypeError`` go on working.

===== ========================== ===============================================================================
code  class                      what happened
===== ========================== ===============================================================================
E0201 DataError                  no batch, an iterator already used up, a batch that is not a pair
E0202 ModelError                 nothing trainable, lazy parameters, a wrapper that hides gradients
E0203 LossError                  an unknown loss, or one that returned no scalar to differentiate
E0204 OptimizerError             an unknown optimizer, or one that does not belong to the model
E0205 MetricError                an unknown metric, or one that asks for what the step state does not have
E0206 EventError                 an event that does not exist, or a handler that returned no control word
E0207 HistoryError               a question the history cannot answer
E0208 UnknownKeywordError        a keyword the function does not take
E0209 PolicyError                a precision policy that names no dtype, or no module of the model
E0210 LossScaleError             an unknown loss scale, or one that gave back something else than it was given
E0211 FreezeError                a freeze or unfreeze that names no parameter of the model
E0212 StateTypeError             a leaf of the step state changed its dtype, shape or structure (``strict=True``)
E0213 ScheduleError              a learning rate schedule that is none, or of another optimizer
E0214 CheckpointError            no checkpoint, or one of another model, optimizer or loss scale
E0215 LoopError                  something a loop cannot do now: a run while one is under way, or over an earlier one
E0303 NotAModelError             Grad[...] of something that is no model
E0901 NoSuchFieldError           a field that a step state or a gradient does not have
E0904 ModelMismatchError         a model of another class than the function wants, or gradients of two models
E1105 FunctionError              not a function of a model, or one that changed a tensor it was given
E1106 NotAScalarError            the function returned something other than a floating scalar
E1107 NothingReachedError        the function reaches no trainable parameter
E1108 GradOperationError         an operation gradients don't have
E1109 CaptureError               a capture that cannot be, or what one has not kept
W0201 RecordingWarning           something could not be recorded or shown; training goes on
W0202 InputCastWarning           floating inputs were cast to the model's dtype
W0203 MetricWarning              a metric or validation took another's place, or a metric is left out of one
W0204 HandlerWarning             a handler or metric failed under ``on_error="warn"``
W0205 LossScaleWarning           steps are skipped in a row, and the loss scale falls no further
W0206 ScheduleWarning            a learning rate that was reduced has been set anew
W0207 CheckpointWarning          a checkpoint took another's place, could not be written, or not all of it read
W1101 UnusedParameterWarning     a parameter was never reached
W1102 CaptureWarning             not all that a capture was to keep is kept, or it costs more than one would think
===== ========================== ===============================================================================
"""

from __future__ import annotations

import difflib
import functools
import inspect
import math
import operator
import os
import sys
import typing
import warnings
from collections.abc import Callable, Iterable
from typing import ClassVar, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class GradvizError(Exception):
    """Base of every error gradviz raises on purpose; `code` names its kind for good."""

    code: ClassVar[str]


class DataError(GradvizError, ValueError):
    """The data cannot be trained on: no batch, an iterator already used up, a batch that is not a pair."""

    code = "E0201"


class ModelError(GradvizError, ValueError):
    """The model cannot be trained as it is: nothing trainable, lazy parameters, a wrapper that hides gradients."""

    code = "E0202"


class LossError(GradvizError, ValueError):
    """A loss or objective that is unknown, or that returned something other than a scalar to differentiate."""

    code = "E0203"


class OptimizerError(GradvizError, ValueError):
    """An optimizer that is unknown or does not belong to the model."""

    code = "E0204"


class MetricError(GradvizError, ValueError):
    """A metric that is unknown, has no name of its own, or asks for fields the step state does not have."""

    code = "E0205"


class EventError(GradvizError, ValueError):
    """An event that does not exist, or a handler that returned something other than a control word."""

    code = "E0206"


class HistoryError(GradvizError, ValueError):
    """A question the history cannot answer, such as a statistic it does not keep."""

    code = "E0207"


class UnknownKeywordError(GradvizError, TypeError):
    """A keyword argument that the function does not take."""

    code = "E0208"


class PolicyError(GradvizError, ValueError):
    """A precision policy of something that is no floating dtype, or with a pattern that fits no module."""

    code = "E0209"


class LossScaleError(GradvizError, ValueError):
    """A loss scale that is unknown, or that gave back something else than it was given."""

    code = "E0210"


class FreezeError(GradvizError, ValueError):
    """A freeze or unfreeze that fits no parameter of the model."""

    code = "E0211"


class StateTypeError(GradvizError, TypeError):
    """A leaf of the step state changed its dtype, shape or structure under ``strict=True``."""

    code = "E0212"


class ScheduleError(GradvizError, ValueError):
    """A learning rate schedule that is none, or that belongs to another optimizer than the loop's."""

    code = "E0213"


class CheckpointError(GradvizError, ValueError):
    """A file that is no checkpoint, or one of another model, optimizer or loss scale; a folder that cannot be one."""

    code = "E0214"


class LoopError(GradvizError, RuntimeError):
    """Something asked of a loop that it cannot do now, such as a run while another one is under way."""

    code = "E0215"


class NotAModelError(GradvizError, TypeError):
    """``Grad[...]`` of something that is not a model."""

    code = "E0303"


class NoSuchFieldError(GradvizError, AttributeError, KeyError):
    """A field that a step state or a gradient does not have."""

    code = "E0901"
    __str__ = Exception.__str__  # a KeyError would show its message in quotes


class ModelMismatchError(GradvizError, TypeError):
    """A model of another class than the function wants, or gradients of different models together."""

    code = "E0904"


class FunctionError(GradvizError, TypeError):
    """Not a function whose first parameter is a model, or one that changed a tensor it was given."""

    code = "E1105"


class NotAScalarError(GradvizError, ValueError):
    """The function returned something other than a floating scalar."""

    code = "E1106"


class NothingReachedError(GradvizError, ValueError):
    """The function reaches no trainable parameter, or hides from autograd that it does."""

    code = "E1107"


class GradOperationError(GradvizError, TypeError):
    """An operation that gradients don't have."""

    code = "E1108"


class CaptureError(GradvizError, ValueError):
    """A capture that cannot be, or something that one has not kept."""

    code = "E1109"


class GradvizWarning(UserWarning):
    """Base of every warning gradviz gives. Our own failures warn once and never stop a training step."""

    code: ClassVar[str]


class RecordingWarning(GradvizWarning):
    """Something could not be recorded or shown; training goes on."""

    code = "W0201"


class InputCastWarning(GradvizWarning):
    """Floating inputs were cast to the model's dtype."""

    code = "W0202"


class MetricWarning(GradvizWarning):
    """A metric or a validation took the place of another one, or a metric is left out of a validation."""

    code = "W0203"


class HandlerWarning(GradvizWarning):
    """A handler or metric of yours failed under ``on_error="warn"``."""

    code = "W0204"


class LossScaleWarning(GradvizWarning):
    """Steps are skipped in a row because of gradients that are not finite, and the loss scale falls no further."""

    code = "W0205"


class ScheduleWarning(GradvizWarning):
    """A learning rate that ``reduce_lr_on_plateau`` had reduced has been set anew by something else."""

    code = "W0206"


class CheckpointWarning(GradvizWarning):
    """A checkpoint took another's place, could not be written, is damaged, or holds what the loop has no place for."""

    code = "W0207"


class UnusedParameterWarning(GradvizWarning):
    """A parameter was never reached by the value that was differentiated."""

    code = "W1101"


class CaptureWarning(GradvizWarning):
    """A capture keeps less than it was to keep, or costs more than one would think."""

    code = "W1102"


_PACKAGE = os.path.dirname(__file__) + os.sep


def warn(message: str, category: type[GradvizWarning]) -> None:
    """Give a warning that points at the line outside gradviz that led to it, however deep inside it is given."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and _is_inside(frame.f_code.co_filename):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def _is_inside(filename: str) -> bool:
    # torch's pytrees call back into gradviz for every leaf of a batch.
    return filename.startswith(_PACKAGE) or filename.endswith(os.path.join("torch", "utils", "_pytree.py"))


MOST_KNOWN = 24
"""Names that an error lists at most."""


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
    by_beginning = [full for full in known if len(word) > 2 and full.startswith(word)]
    close = by_initials or by_beginning or difflib.get_close_matches(word, known, n=1, cutoff=0.55)
    if not close:
        more = f" ... {len(known) - MOST_KNOWN} more" if len(known) > MOST_KNOWN else ""
        return "known: " + ", ".join(known[:MOST_KNOWN]) + more
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


def whole(name: str, value: object, *, least: int = 0, error: type[ValueError] = ValueError) -> int:
    """An argument as a whole number that is not too small; `error` if it is none.

    Examples
    --------
    >>> whole("epochs", 3)
    3
    >>> whole("accumulate", 0, least=1)
    Traceback (most recent call last):
    ValueError: accumulate is a whole number from 1 on; got 0.
    """
    try:
        number = least - 1 if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = least - 1
    if number < least:
        raise error(f"{name} is a whole number from {least} on; got {value!r}.")
    return number


def at_least_0(name: str, value: object) -> float:
    """An argument as a finite number from 0 on; ValueError if it is none.

    Examples
    --------
    >>> at_least_0("timeout", 2)
    2.0
    >>> at_least_0("timeout", -1)
    Traceback (most recent call last):
    ValueError: timeout is a number from 0 on; got -1.
    """
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not value >= 0 or not math.isfinite(value):  # type: ignore[operator, arg-type]
        raise ValueError(f"{name} is a number from 0 on; got {value!r}.")
    return float(value)  # type: ignore[arg-type]


def names_nearest_keyword(function: Callable[P, R]) -> Callable[P, R]:
    """Make an unknown keyword of `function` a TypeError that names the nearest known one."""
    parameters = inspect.signature(function).parameters.values()
    known = [p.name for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD) and p.name != "self"]
    for p in parameters:
        if p.kind is p.VAR_KEYWORD:  # **filters: Unpack[Filters], where Filters names them
            (named,) = typing.get_args(typing.get_type_hints(function)[p.name])
            known += typing.get_type_hints(named)

    def check(keywords: Iterable[str]) -> None:
        for name in keywords:
            if name not in known:
                hint = ""
                if "optimizer" in known and name in ("lr", "learning_rate", "momentum", "weight_decay", "betas"):
                    hint = ". An option of the optimizer goes into it: functools.partial(torch.optim.Adam, lr=0.01)"
                if "iterations" in known and "parameters" in known and name in ("epoch", "epochs"):
                    hint = ". An epoch's: select(iterations=history.metrics.query('epoch == 2').index)"
                raise UnknownKeywordError(
                    f"{function.__name__}() takes no keyword {name!r}: {nearest(name, known)}{hint}"
                )

    @functools.wraps(function)
    def with_known_keywords(*args: P.args, **kwargs: P.kwargs) -> R:
        check(kwargs)
        return function(*args, **kwargs)

    # By which Python says that an argument is missing: a method's class is often not one that the user knows.
    function.__qualname__ = function.__name__

    return with_known_keywords
