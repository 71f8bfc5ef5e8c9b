"""What is sown comes back as it is, with or without a capture."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gradviz as gv
from gradviz.errors import CaptureError
from gradviz.grad.capture import session as at_work

NAMES = ["", 3, None, ["y"]]


class Point(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.x = nn.Parameter(torch.tensor([1.0, 2.0]))


@pytest.mark.parametrize("value", [torch.ones(2), (torch.ones(1), None), {"a": 1}, "text", None])
def test_the_value_itself_comes_back_and_nothing_happens_without_a_capture(value):
    assert at_work.open_sessions == ()
    assert gv.sow(value, "y") is value


def test_the_value_itself_comes_back_within_a_capture():
    def f(m: Point) -> Tensor:
        y = m.x * 2
        assert gv.sow(y, "y") is y
        state = {"h": y, "more": (y.sin(), [3])}
        assert gv.sow(state, "state") is state
        return y.sum() + state["more"][0].sum()

    captured = gv.reap(f)(Point())[2]
    assert list(captured) == ["y", "state['h']", "state['more'][0]"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("is_on", [False, True])
def test_a_name_is_a_text_with_or_without_a_capture(name, is_on):
    with pytest.raises(CaptureError, match='A captured value has a name, such as "attention"; got'):
        gv.reap(lambda m: gv.sow(m.x, name).sum())(Point()) if is_on else gv.sow(torch.ones(1), name)
    with pytest.raises(CaptureError, match="A captured value has a name"):
        gv.record_vjp(torch.sin, name)


def test_what_is_not_asked_for_is_not_looked_at():
    captured = gv.reap(lambda m: (gv.sow(m.x, "a") * gv.sow(m.x * 2, "b")).sum(), gv.Capture("b"))(Point())[2]
    assert list(captured) == ["b"]


def test_values_without_a_gradient_are_frozen_and_integers_missing():
    def f(m: Point) -> Tensor:
        gv.sow((m.x > 1, 3), "flags")
        gv.sow(m.x.detach(), "detached")
        with torch.no_grad():
            gv.sow(m.x * 2, "quiet")
        return m.x.sum()

    captured = gv.reap(f)(Point())[2]
    assert captured["detached"][0].state == "frozen"
    assert "there is no floating tensor in a tuple" in captured.missing["flags"]
    assert "under torch.no_grad()" in captured.missing["quiet"]


def test_sow_works_in_a_compiled_function():
    def g(x: Tensor) -> Tensor:
        return gv.sow(x.sin(), "y") ** 2

    compiled = torch.compile(g, backend="aot_eager")
    model = Point()
    assert torch.equal(compiled(model.x), g(model.x))  # compiled without a capture
    captured = gv.reap(lambda m: compiled(m.x).sum())(model)[2]
    torch.testing.assert_close(captured["y"][0].gradient, 2 * model.x.detach().sin())
    assert torch.equal(compiled(model.x), g(model.x))


# record_vjp -----------------------------------------------------------------------------------------------------------


def test_a_function_keeps_its_name_its_results_and_its_errors():
    def double(x: Tensor, *, by: float = 2.0) -> Tensor:
        """Twice."""
        if by == 0:
            raise ValueError("by nothing")
        return x * by

    recorded = gv.record_vjp(double, "double")
    assert recorded.__name__ == "double"
    assert recorded.__doc__ == "Twice."
    x = torch.ones(2)
    assert torch.equal(recorded(x, by=3.0), double(x, by=3.0))
    with pytest.raises(ValueError, match="by nothing"):
        recorded(x, by=0)
    with pytest.raises(TypeError):
        recorded()
    with pytest.raises(CaptureError, match="record_vjp wraps a function or a module"):
        gv.record_vjp(3, "three")


def test_the_gradient_of_an_input_is_that_of_this_call_alone():
    square = gv.record_vjp(lambda x: x**2, "square")

    def f(m: Point) -> Tensor:
        return square(m.x).sum() + 10 * m.x.sum() + square(m.x * 3).sum()

    captured = gv.reap(f)(Point())[2]
    assert [call.gradient.tolist() for call in captured["square(x)"]] == [[2, 4], [6, 12]]
    assert [call.gradient.tolist() for call in captured["square"]] == [[1, 1], [1, 1]]


@pytest.mark.parametrize("f", [nn.Linear(2, 2), partial(torch.mul, other=torch.tensor(2.0)), torch.sin])
def test_modules_partials_and_built_ins_are_functions_too(f):
    captured = gv.reap(lambda m: gv.record_vjp(f, "f")(m.x).sum())(Point())[2]
    inputs = [name for name in captured if name != "f"]
    assert len(inputs) == 1
    assert captured[inputs[0]][0].gradient.shape == (2,)


def test_inputs_are_as_they_were_at_the_call():
    def edits(x: Tensor, scale: dict[str, Tensor]) -> Tensor:
        x = x * 1
        scale["by"].mul_(5)
        return x * scale["by"]

    recorded = gv.record_vjp(edits, "edits")
    by = torch.tensor([2.0, 2.0])
    captured = gv.reap(lambda m: recorded(m.x, scale={"by": by}).sum(), gv.Capture(values=True))(Point())[2]
    inputs = captured["edits"][0].inputs
    assert inputs["scale"]["by"].tolist() == [2, 2]
    assert by.tolist() == [10, 10]


def test_a_function_that_returns_its_input_or_several_outputs():
    both = gv.record_vjp(lambda x: {"same": x, "twice": x * 2}, "both")

    def f(m: Point) -> Tensor:
        out = both(m.x)
        return out["same"].sum() + out["twice"].sum()

    captured = gv.reap(f)(Point())[2]
    assert captured["both['twice']"][0].gradient.tolist() == [1, 1]
    assert captured["both(x)"][0].gradient.tolist() == [3, 3]


def test_recorded_functions_are_the_same_to_the_bit_without_a_capture_and_in_one():
    torch.manual_seed(0)
    model = nn.Linear(5, 5)
    layer = gv.record_vjp(model, "layer")

    def f(m: nn.Module, x: Tensor) -> Tensor:
        for _ in range(3):
            x = layer(x).tanh() + x
        return x.square().sum()

    x = torch.randn(4, 5)
    plain = gv.value_and_grad(f, model, x)
    value, g, _ = gv.reap(f)(model, x)
    assert torch.equal(value, plain[0])
    assert all(torch.equal(g[name], plain[1][name]) for name in g)


def test_our_own_failure_warns_once_and_the_pass_goes_on(monkeypatch):
    def fails(*args: Any) -> Any:
        raise RuntimeError("broken on purpose")

    monkeypatch.setattr(at_work, "tensors_in", fails)
    model = Point()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _, g, captured = gv.reap(lambda m: (gv.sow((m.x * 2,), "y")[0] + gv.sow((m.x,), "z")[0]).sum())(model)
    assert [str(warning.message) for warning in caught] == [
        "A gradient could not be captured (RuntimeError: broken on purpose); everything else goes on. Said once."
    ]
    assert g.x.tolist() == [3, 3]
    assert len(captured) == 0
