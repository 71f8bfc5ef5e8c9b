"""Errors are what a reader expects, and name the nearest spelling."""

from __future__ import annotations

import inspect
import math
import re
from pathlib import Path

import pytest
import torch
from torch import nn

import gradviz as gv
from gradviz import errors
from gradviz.errors import GradvizError, GradvizWarning, UnknownKeywordError, names_nearest_keyword, nearest

README = Path(__file__).parents[1] / "README.md"


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


def test_the_readme_lists_every_code():
    listed = re.findall(r"^\| ([EW]\d{4}) \| `(\w+)` \| (.+) \|$", README.read_text(), re.MULTILINE)
    said = re.findall(r"^([EW]\d{4}) (\w+) +(.+)$", errors.__doc__ or "", re.MULTILINE)
    assert listed == [(code, name, what.replace("``", "`")) for code, name, what in said]


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


def net() -> nn.Module:
    return nn.Linear(2, 1)


def batch(dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.ones(3, 2, dtype=dtype), torch.ones(3, 1)


class Never(torch.optim.Optimizer):
    """Keeps what nobody learns before a step: on zeros it cannot take one."""

    def __init__(self, params):
        super().__init__(params, {})

    @torch.no_grad()
    def step(self, closure=None):
        for p in self.param_groups[0]["params"]:
            if not p.grad.any():
                raise ZeroDivisionError("no gradient")
            p.sub_(p.grad)


def casts_by_hand():
    step = gv.train_step(net(), "mean_squared_error", "sgd")
    step.init(batch(torch.float64))


def casts_later():
    step = gv.train_step(net(), "mean_squared_error", "sgd")
    step(batch(torch.float64), step.init(batch()))


def cannot_try_out():
    gv.train_step(net(), "mean_squared_error", Never).init(batch())


def skips_in_a_row():
    step = gv.train_step(net(), lambda prediction, targets: prediction.sum() * math.inf, "sgd", loss_scale="static")
    state = step.init(batch())
    for _ in range(2):
        state = step(batch(), state)


def casts_in_a_run():
    gv.trainer(net(), "mean_squared_error", "sgd").run([batch(torch.float64)], display=None)


def takes_a_place():
    gv.trainer(net(), "mean_squared_error", "sgd").metric(lambda p, y: 1.0, name="m").metric(lambda p, y: 2.0, name="m")


def fails_in_a_run():
    loop = gv.trainer(net(), "mean_squared_error", "sgd", on_error="warn")
    loop.handle_event("iteration_completed", lambda state: 1 / 0)
    loop.run([batch()], display=None)


def leaves_out_of_validation():
    loop = gv.trainer(net(), "mean_squared_error", "sgd").metric(lambda i: i, "m", fields=["i"])
    loop.validate([batch()]).run([batch()], display=None)


def sets_the_rate_anew():
    loop = gv.trainer(net(), "mean_squared_error", "sgd").metric(lambda i: i, "worse", fields=["i"])
    loop.reduce_lr_on_plateau("worse", patience=0).lr_schedule(
        lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda n: 1)
    )
    loop.run([batch()], epochs=3, display=None)


def never_reaches():
    model = nn.ModuleList([net(), net()])
    gv.value_and_grad(lambda m: m[0].weight.sum(), model)


@pytest.mark.parametrize(
    "what",
    [
        casts_by_hand,
        casts_later,
        cannot_try_out,
        skips_in_a_row,
        casts_in_a_run,
        takes_a_place,
        fails_in_a_run,
        leaves_out_of_validation,
        sets_the_rate_anew,
        never_reaches,
    ],
)
def test_a_warning_names_the_user_s_line(what):
    lines, first = inspect.getsourcelines(what)
    with pytest.warns(GradvizWarning) as caught:
        what()
    assert {w.filename for w in caught} == {__file__}
    assert all(first < w.lineno < first + len(lines) for w in caught)
