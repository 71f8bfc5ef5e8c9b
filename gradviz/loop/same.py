"""Which handler is another one, defined once more: a notebook cell that runs again adds nothing."""

from __future__ import annotations

from functools import partial
from types import CellType, FunctionType
from typing import Any


def is_same_handler(earlier: Any, later: Any) -> bool:
    """Whether `later` is `earlier` defined once more, as when a notebook cell runs again.

    The same object; or functions of the same module and name with the same defaults and closure, and, for lambdas and
    functions made inside others, the same code.

    Examples
    --------
    >>> def make(n): return lambda state: n
    >>> is_same_handler(make(1), make(1)), is_same_handler(make(1), make(2))
    (True, False)
    """
    if earlier is later or (not isinstance(later, FunctionType) and earlier == later):
        return True
    if isinstance(earlier, partial) and isinstance(later, partial):
        arguments = [[*p.args, *p.keywords.values()] for p in (earlier, later)]
        same_names = list(earlier.keywords) == list(later.keywords)
        return same_names and _same_objects(*arguments) and is_same_handler(earlier.func, later.func)
    if not (isinstance(earlier, FunctionType) and isinstance(later, FunctionType)):
        return False
    if (earlier.__module__, earlier.__qualname__) != (later.__module__, later.__qualname__):
        return False
    if "<" in later.__qualname__ and earlier.__code__ != later.__code__:
        return False
    return _same_objects(_bound(earlier), _bound(later))


def _bound(function: FunctionType) -> list[Any]:
    cells = [_content(cell) for cell in function.__closure__ or ()]
    return [*cells, *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a variable that has no value yet
        return cell


def _same_objects(earlier: list[Any], later: list[Any]) -> bool:
    return len(earlier) == len(later) and all(map(_is_same_object, earlier, later))


def _is_same_object(earlier: Any, later: Any) -> bool:
    # Else by identity: comparing tensors or frames by value is no yes or no.
    return earlier is later or (type(earlier) is type(later) and type(earlier) in _PLAIN and earlier == later)


_PLAIN = (bool, int, float, complex, str, bytes)
