"""Errors are what a reader expects, and name the nearest spelling."""

from __future__ import annotations

import inspect
import re

import pytest

from gradviz import errors
from gradviz.errors import GradvizError, GradvizWarning, UnknownKeywordError, names_nearest_keyword, nearest


def test_every_error_and_warning_has_its_base_and_a_description():
    classes = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if kind.__module__ == errors.__name__]
    assert len(classes) > 10
    for kind in classes:
        assert issubclass(kind, GradvizError | GradvizWarning)
        assert kind.__doc__
        if kind not in (GradvizError, GradvizWarning):
            assert re.fullmatch(r"[EW]\d{4}", kind.code)
            assert f"{kind.code} {kind.__name__}" in errors.__doc__
    codes = [kind.code for kind in classes if kind not in (GradvizError, GradvizWarning)]
    assert len(set(codes)) == len(codes)


def test_bad_values_are_value_errors():
    for kind in (errors.DataError, errors.ModelError, errors.LossError, errors.OptimizerError, errors.MetricError):
        assert issubclass(kind, ValueError)
    assert issubclass(errors.NoSuchFieldError, AttributeError)


def test_the_nearest_name_or_all_of_them():
    assert nearest("Huber", ["huber", "hinge"]) == "did you mean 'huber'? Known: hinge, huber"
    errors_by_name = ["mean_absolute_error", "mean_squared_error"]
    assert nearest("mae", errors_by_name).startswith("did you mean 'mean_absolute_error'?")
    assert nearest("mse_loss", errors_by_name).startswith("did you mean 'mean_squared_error'?")
    assert nearest("adamm", ["adam", *(f"name {n}" for n in range(9))]) == "did you mean 'adam'?"
    assert nearest("", ["b", "a"]) == "known: a, b"


def test_an_unknown_keyword_is_a_type_error_and_known_ones_pass_through():
    @names_nearest_keyword
    def run(data: int, *, epochs: int = 1) -> int:
        return data * epochs

    assert run(2, epochs=3) == run(data=2, epochs=3) == 6
    with pytest.raises(UnknownKeywordError, match=r"run\(\) takes no keyword 'epcohs': did you mean 'epochs'"):
        run(2, epcohs=3)
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        run()
