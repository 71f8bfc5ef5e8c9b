"""What was captured is found by name, call and example; what was not kept names the line that keeps it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gradviz as gv
from gradviz.errors import CaptureError

X = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])


def captured(capture: gv.Capture | None = None) -> Any:
    model = nn.Linear(2, 2, bias=False)
    nn.init.eye_(model.weight)

    def f(m: nn.Module, x: Tensor) -> Tensor:
        h = gv.sow(m(x), "h")
        gv.sow(h * 2, "idle")
        gv.sow(x, "data")
        return gv.sow((gv.sow(h, "h") ** 2).sum(), "loss")

    return gv.reap(f, capture)(model, X)[2]


def test_a_call_knows_its_name_number_shape_dtype_and_device():
    call = captured()["h"][1]
    assert (call.name, call.number, call.shape, call.dtype) == ("h", 1, (3, 2), torch.float32)
    assert call.device == torch.device("cpu")
    assert repr(call) == "Call('h', 1: norm 19.1)"
    assert repr(captured()["idle"]) == "[Call('idle', 0: unused)]"


def test_an_example_has_its_part_of_gradient_and_value():
    call = captured(gv.Capture(values=True))["h"][0]
    assert torch.equal(call.example(1).gradient, torch.tensor([6.0, 8.0]))
    assert torch.equal(call.example(-1).value, X[2])
    assert captured()["h"][0].example(0).value is None
    assert torch.allclose(call.example_norms, (2 * X).double().norm(dim=1))


def test_the_axis_of_examples_is_the_one_that_is_declared():
    model = nn.Linear(2, 2)
    x = torch.randn(5, 3, 2)  # time, example, feature
    call = gv.reap(lambda m, x: gv.sow(m(x), "h").square().sum(), gv.Capture(batch_dim=1))(model, x)[2]["h"][0]
    assert torch.equal(call.example(2).gradient, call.gradient[:, 2])
    assert torch.allclose(call.example_norms, call.gradient.double().movedim(1, 0).flatten(1).norm(dim=1))


def test_a_batch_of_no_examples_has_norms_of_none():
    model = nn.Linear(2, 2)
    call = gv.reap(lambda m, x: gv.sow(m(x), "h").sum())(model, torch.zeros(0, 2))[2]["h"][0]
    assert call.gradient.shape == (0, 2)
    assert call.example_norms.shape == (0,)
    with pytest.raises(CaptureError, match="has 0 examples along axis 0; there is no example 0"):
        call.example(0)


@pytest.mark.parametrize("index", [3, -4])
def test_an_example_that_is_not_there(index):
    with pytest.raises(CaptureError, match=f"'h' has 3 examples along axis 0; there is no example {index}"):
        captured()["h"][0].example(index)


def test_a_scalar_has_no_examples():
    with pytest.raises(CaptureError, match=r"it has the shape \(\), and no axis batch_dim=0"):
        captured()["loss"][0].example(0)


def test_what_the_loss_does_not_use_has_zeros_and_no_statistics():
    call = captured()["idle"][0]
    assert (call.state, call.reached) == ("unused", False)
    assert torch.equal(call.gradient, torch.zeros(3, 2))
    assert torch.equal(call.example_norms, torch.zeros(3, dtype=torch.float64))
    with pytest.raises(CaptureError, match="Call 0 of 'idle' has no statistics: no path of the loss leads there"):
        _ = call.statistics


@pytest.mark.parametrize("what", ["gradient", "statistics"])
def test_what_nothing_trained_leads_to_has_no_zeros_either(what):
    call = captured()["data"][0]
    assert (call.state, call.reached) == ("frozen", False)
    with pytest.raises(CaptureError, match=f"Call 0 of 'data' has no {what}: nothing before it is trained"):
        getattr(call, what)


def test_statistics_are_those_of_plain_torch():
    call = captured(gv.Capture(keep="statistics"))["h"][0]
    g = (2 * X).double()
    assert call.statistics["norm"] == pytest.approx(g.norm().item())
    assert call.statistics["mean"] == pytest.approx(g.mean().item())
    assert call.statistics["std"] == pytest.approx(g.std().item())
    assert call.statistics["max_abs"] == 12
    assert [call.statistics[name] for name in ("zero_fraction", "nan", "posinf", "neginf")] == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("keep", "what", "line"),
    [
        ("statistics", "gradient", "gv.Capture('h', keep=\"tensors\")"),
        ("running", "gradient", "gv.Capture('h', keep=\"tensors\")"),
        ("example_norms", "gradient", "gv.Capture('h', keep=\"tensors\")"),
        ("statistics", "example_norms", "gv.Capture('h', keep=\"example_norms\")"),
        ("running", "example_norms", "gv.Capture('h', keep=\"example_norms\")"),
        ("tensors", "running", "gv.Capture('h', keep=\"running\")"),
        ("tensors", "value", "gv.Capture('h', values=True)"),
        ("tensors", "inputs", "gv.Capture('h', values=True)"),
    ],
)
def test_what_was_not_kept_names_the_line_that_keeps_it(keep, what, line):
    call = captured(gv.Capture(keep=keep))["h"][0]
    with pytest.raises(CaptureError) as error:
        getattr(call, what)
    assert line in str(error.value)


def test_a_sown_value_has_no_inputs():
    with pytest.raises(CaptureError, match=r"A sown value has no inputs; gv\.record_vjp"):
        _ = captured(gv.Capture(values=True))["h"][0].inputs


def test_names_that_are_not_there_are_told_the_nearest():
    found = captured(gv.Capture("h", "head"))
    with pytest.raises(KeyError, match="Nothing was captured as 'hh': did you mean 'h'"):
        found["hh"]
    with pytest.raises(CaptureError, match="'head' was not captured: no module and no sown value is called so"):
        found["head"]
    assert "head" not in found
    assert "head" in found.missing


def test_a_call_that_is_not_there_and_one_that_was_forgotten():
    calls = captured()["h"]
    with pytest.raises(IndexError, match="'h' was called 2 times; there is no call 2"):
        calls[2]
    with pytest.raises(AttributeError, match=r"each call has its own. Write captured\['h'\]\[0\].gradient"):
        _ = calls.gradient
    with pytest.raises(AttributeError, match="calls have no 'nonsense'"):
        _ = calls.nonsense
    assert [call.number for call in calls[::-1]] == [1, 0]
    assert calls[-1].number == 1


def test_all_of_it_can_be_read_at_a_glance():
    assert repr(captured(gv.Capture("h", "head"))).splitlines() == [
        "Captured of 1 names, 1 missing",
        "  h: [Call('h', 0: norm 19.1), Call('h', 1: norm 19.1)]",
        "  head: missing, no module and no sown value is called so: known: data, h, idle, loss",
    ]
