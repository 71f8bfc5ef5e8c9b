"""Which dtypes parameters, gradients, master copies and moments have, on which device, and since when."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from torch import Tensor

from gradviz.history.history import History
from gradviz.recorder.plan import Plan
from gradviz.recorder.subject import Form, Subject

Key = tuple[str, str]
"""The name of a parameter, and of what: "parameter", "gradient", "master", or one of the optimizer's moments."""


class Dtypes:
    """Writes a row for each dtype and device that are not what the history says."""

    def __init__(self, subject: Subject, history: History, warn: Callable[[Exception, str], None]) -> None:
        self._subject = subject
        self._history = history
        self._warn = warn
        self._known: dict[Key, Form] | None = None

    def write(self, iteration: int, plan: Plan) -> None:
        """Look, where something may be new: other parameters are trained, or there are more moments."""
        n_with_moments = self._subject.n_with_moments()
        if plan.had_moments == n_with_moments:
            return
        plan.had_moments = n_with_moments
        if self._known is None:
            table = self._history.dtypes
            keys = zip(table["parameter"], table["of"], strict=True)
            self._known = dict(zip(keys, map(Form, table["dtype"], table["device"]), strict=True))
        changed = {key: form for key, form in self._now(plan).items() if self._known.get(key) != form}
        if changed:
            columns = {"parameter": [name for name, _ in changed], "of": [of for _, of in changed]}
            columns |= {field: [getattr(form, field) for form in changed.values()] for field in Form._fields}
            self._history.add_rows("dtypes", {"iteration": np.full(len(changed), iteration), **columns})
            self._known |= changed

    def _now(self, plan: Plan) -> dict[Key, Form]:
        parameters = self._subject.parameters()
        now = {(name, "parameter"): Form.of(p) for name, p in parameters.items()}
        now |= {(name, "gradient"): form for name, form in plan.reached.items()}
        now |= {(name, "master"): Form.of(master) for name, master in self._subject.masters().items()}
        try:
            now |= self._of_moments(parameters)
        except Exception as error:  # an optimizer of the user's own may keep anything
            self._warn(error, "The dtypes of the optimizer's state")
        return now

    def _of_moments(self, parameters: Mapping[str, Tensor]) -> dict[Key, Form]:
        return {
            (name, of): Form.of(value)
            for name, kept in self._subject.moments().items()
            if isinstance(kept, Mapping) and name in parameters
            for of, value in kept.items()
            if _is_moment(of, value, parameters[name])
        }


def _is_moment(of: str, value: Any, p: Tensor) -> bool:
    """Whether an optimizer keeps it in the shape of the parameter, as torch calls it: "exp_avg", say."""
    return isinstance(value, Tensor) and value.shape == p.shape and of != "step"
