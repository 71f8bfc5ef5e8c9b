"""`run.json`: what a run is of, when it began and how it ended. Plain values; none is a path, and none is executed."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, TypedDict

from gradviz.errors import HistoryError, described
from gradviz.history.run.folder import Folder
from gradviz.history.run.form import FORMAT, check_format, damaged, version
from gradviz.history.schema import Parameter

MANIFEST = "run.json"
_LARGEST = 2**63 - 1


class Began(TypedDict):
    """An attempt: the first iteration it records, and when it began, as an ISO time."""

    begins: int
    at: str


@dataclass
class Manifest:
    """What stands in `run.json`.

    Attributes
    ----------
    began, ended : str
        ISO times; `ended` is None while the run goes on, or when its process died.
    parameters : list of Parameter
        In the order of the rows.
    attempts : list of Began
        The first begins at 0; there is another one for each time the run was resumed.
    status, seed, progress
        As the loop has them; numbers in `progress` that are not finite are told apart.
    gradviz, libraries : str, dict of str
        The versions that wrote the run.

    Examples
    --------
    >>> manifest = Manifest(began="2026-01-31T12:00:00+00:00")
    >>> Manifest.from_json(manifest.to_json(), "runs/a") == manifest
    True
    """

    began: str
    ended: str | None = None
    parameters: list[Parameter] = field(default_factory=list)
    attempts: list[Began] = field(default_factory=list)
    status: str = "idle"
    seed: int | None = None
    progress: dict[str, Any] = field(default_factory=dict)
    gradviz: str = field(default_factory=version)
    libraries: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> bytes:
        """The file's content."""
        told = {"format": FORMAT, **asdict(self), "progress": _spelled(self.progress)}
        return json.dumps(told, indent=1, allow_nan=False).encode()

    @classmethod
    def from_json(cls, content: bytes, address: str) -> Manifest:
        """What a file holds; `address` is the run's, for errors.

        Raises
        ------
        HistoryError
            If it is of a newer gradviz, or holds something else than it should.
        """
        try:
            told = json.loads(content, object_hook=_read)
        except (ValueError, TypeError, RecursionError) as error:
            raise damaged(address, MANIFEST, f"it is no JSON, {error}") from error
        if not isinstance(told, dict):
            raise damaged(address, MANIFEST, f"it holds {described(told)}, not an object")
        check_format(told.get("format"), f"{address}: {MANIFEST}")
        for name, (fits, wanted) in _FIELDS.items():
            if name not in told:
                raise damaged(address, MANIFEST, f"it lacks {name!r}")
            if not fits(told[name]):
                raise damaged(address, MANIFEST, f"{name!r} is {wanted}; got {str(told[name])[:80]!r}")
        fields = {name: told[name] for name in _FIELDS}
        fields["parameters"] = [
            Parameter(name=each["name"], shape=tuple(each["shape"]), dtype=each["dtype"]) for each in told["parameters"]
        ]
        fields["attempts"] = [Began(begins=each["begins"], at=each["at"]) for each in told["attempts"]]
        return cls(**fields)

    def write(self, folder: Folder) -> None:
        """Put it into a run's folder; OSError if that fails."""
        folder.write(MANIFEST, self.to_json())

    @classmethod
    def read(cls, folder: Folder) -> Manifest:
        """That of a run's folder.

        Raises
        ------
        HistoryError
            If there is no such folder, if it is no run's, or if `from_json` refuses what it holds.
        """
        try:
            content = folder.read(MANIFEST)
        except OSError as error:
            raise HistoryError(_cannot(folder, error)) from error
        return cls.from_json(content, folder.address)


def _cannot(folder: Folder, error: OSError) -> str:
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        return f"{folder.address}: {MANIFEST} cannot be read: {error.strerror or error}."
    above, _, name = folder.address.rpartition("/")
    if name == MANIFEST and folder.exists():
        return f"{folder.address} is a file of a run. Name its folder: gv.History.open({above or '.'!r})."
    if not folder.exists():
        return f'There is no folder {folder.address}. Name one that a run was saved to, as in save_to="runs/a".'
    return (
        f"{folder.address} is no run: it has no {MANIFEST}. "
        'Name the folder that a run was saved to, as in save_to="runs/a", not one above or below it.'
    )


_NOT_FINITE = "not finite"


def _spelled(value: Any) -> Any:
    """The same for JSON, which knows no NaN and no infinity."""
    if isinstance(value, dict):
        return {key: _spelled(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_spelled(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {_NOT_FINITE: str(value)}
    return value


def _read(told: dict[str, Any]) -> Any:
    return float(told[_NOT_FINITE]) if told.keys() == {_NOT_FINITE} else told


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST


def _is_time(value: Any) -> bool:
    try:
        datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return False
    return True


def _is_parameter(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("name"), str)
        and isinstance(value.get("dtype"), str)
        and _is_list(value.get("shape"), _is_whole)
        and math.prod(value["shape"]) <= _LARGEST
    )


def _is_attempt(value: Any) -> bool:
    return isinstance(value, dict) and _is_whole(value.get("begins")) and _is_time(value.get("at"))


def _is_list(value: Any, fits: Callable[[Any], bool]) -> bool:
    return isinstance(value, list) and all(map(fits, value))


_FIELDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "began": (_is_time, "an ISO time"),
    "ended": (lambda value: value is None or _is_time(value), "an ISO time, or null"),
    "parameters": (
        lambda value: _is_list(value, _is_parameter) and len({each["name"] for each in value}) == len(value),
        "a list of names, shapes and dtypes",
    ),
    "attempts": (lambda value: _is_list(value, _is_attempt), "a list of iterations and ISO times"),
    "status": (lambda value: isinstance(value, str), "a text"),
    "seed": (
        lambda value: value is None or (isinstance(value, int) and not isinstance(value, bool)),
        "a whole number, or null",
    ),
    "progress": (lambda value: isinstance(value, dict), "an object"),
    "gradviz": (lambda value: isinstance(value, str), "a text"),
    "libraries": (
        lambda value: isinstance(value, dict) and all(isinstance(each, str) for each in value.values()),
        "an object of texts",
    ),
}
