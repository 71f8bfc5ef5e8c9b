"""A capture at work over passes: which forward and backward passes count, and what is left behind."""

from __future__ import annotations

import contextlib
import gc
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import gradviz as gv
from gradviz.errors import CaptureWarning
from gradviz.grad.capture import session as at_work
from gradviz.grad.capture.session import Session
from tests.grad.capture.zoo import SCENES, Checkpointed, hooks_of


@pytest.fixture
def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 1))


@pytest.fixture
def session(model):
    session = Session(gv.Capture("*", "y"), "tensors", {"": model})
    session.attach()
    yield session
    session.shut()
    session.detach()
    assert hooks_of(model) == []
    assert at_work.open_sessions == ()


def forward(session: Session, model: nn.Module, x: Tensor) -> Tensor:
    with session.forward():
        return model(x).sum()


def backward(session: Session, value: Tensor, **options: Any) -> None:
    with session.backward():
        value.backward(**options)


X = torch.ones(3, 2)


def test_gradients_of_other_backward_passes_do_not_count(session, model):
    value = forward(session, model, X)
    (2 * value).backward(retain_graph=True)
    backward(session, value)
    session.commit()
    assert torch.equal(session.finish()["2"][0].gradient, torch.ones(3, 1))


def test_gradients_of_one_of_several_passes_can_be_chosen(session, model):
    value = forward(session, model, X)
    tasks: list[int] = []
    value.register_hook(lambda gradient: tasks.append(torch._C._current_graph_task_id()))
    backward(session, 5 * value, retain_graph=True)
    backward(session, value)
    session.commit(tasks[1])
    assert torch.equal(session.finish()["2"][0].gradient, torch.ones(3, 1))


def test_forward_passes_outside_or_without_gradients_do_not_count(session, model):
    model(X)
    with session.forward(), torch.no_grad():
        model(X)
    with session.forward(), torch.inference_mode():
        model(X)
    captured = session.finish()
    assert len(captured) == 0
    assert all("under torch.no_grad()" in why for name, why in captured.missing.items() if name != "y")
    assert "no sown value is called so" in captured.missing["y"]


def test_passes_without_gradients_beside_one_with_them_are_no_calls_of_it(session, model):
    with session.forward(), torch.no_grad():
        model(X)
    backward(session, forward(session, model, X))
    session.commit()
    captured = session.finish()
    assert [len(calls) for calls in captured.values()] == [1, 1, 1]
    assert "0" not in captured.missing


def test_calls_of_several_forward_passes_of_a_step_are_numbered_on(session, model):
    for factor in (1, 2):
        backward(session, factor * forward(session, model, X))
        session.commit()
    captured = session.finish()
    assert [call.gradient[0].item() for call in captured["2"]] == [1, 2]


def test_every_iteration_begins_anew(session, model):
    """Twenty steps of one capture: one step's calls each, and as much memory as after one."""
    counts = []
    for _ in range(20):
        backward(session, forward(session, model, X))
        session.commit()
        captured = session.finish()
        assert [len(calls) for calls in captured.values()] == [1, 1, 1]
        counts.append(len(session._calls) + len(session._awaiting) + len(session._handles))
    assert counts == [0] * 20


def test_what_is_forgotten_is_no_part_of_the_next_iteration(session, model):
    backward(session, forward(session, model, X))
    session.commit()
    session.forget()
    backward(session, forward(session, model, X))
    session.commit()
    assert [len(calls) for calls in session.finish().values()] == [1, 1, 1]


def test_re_entrant_checkpointing_hides_values_and_says_so():
    torch.manual_seed(0)
    model = Checkpointed(reentrant=True)
    session = Session(gv.Capture("*"), "tensors", {"": model})
    session.attach()
    value = forward(session, model, torch.randn(6, 4, requires_grad=True))
    backward(session, value)
    session.commit()
    captured = session.finish()
    session.detach()
    assert list(captured) == ["head"]
    assert set(captured.missing) == {"layers", *(f"layers.{place}" for place in range(5))}
    assert all("use_reentrant=False" in why for why in captured.missing.values())


def test_a_recompute_within_a_backward_pass_is_no_call(session, model):
    with session.forward():
        value = checkpoint(model, X.clone().requires_grad_(), use_reentrant=False).sum()
    session.open()  # also while forward passes are looked at, as in a loop that is not ours
    backward(session, value)
    session.commit()
    assert [len(calls) for calls in session.finish().values()] == [1, 1, 1]


@pytest.mark.filterwarnings("ignore::gradviz.errors.UnusedParameterWarning")
@pytest.mark.parametrize("keep", ["statistics", "running", "tensors", "example_norms"])
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
def test_outputs_die_with_their_last_user_without_the_garbage_collector(scene, keep):
    """A hundred steps would keep a hundred steps' activations if anything of a capture were part of a cycle."""
    model, x = scene.model(), scene.x()
    outputs: list[weakref.ref[Tensor]] = []

    def f(m: nn.Module, x: Tensor) -> Tensor:
        y = m(x)
        outputs.append(weakref.ref(y))
        return (y.abs() if y.is_complex() else y).float().square().mean()

    gc.collect()
    gc.disable()
    try:
        captured = gv.reap(f, gv.Capture("*", keep=keep))(model, x)[2]
        assert all(reference() is None for reference in outputs)
        of_captured = weakref.ref(captured)
        del captured
        assert of_captured() is None
    finally:
        gc.enable()


def test_a_session_dies_with_its_captures_even_if_the_pass_broke():
    model = nn.Sequential(nn.Linear(2, 2))
    sessions: list[weakref.ref[Any]] = []
    outputs: list[weakref.ref[Any]] = []

    def f(m: nn.Module, x: Tensor) -> Tensor:
        sessions.extend(weakref.ref(session) for session in at_work.open_sessions)
        y = m(x)
        outputs.append(weakref.ref(y))
        raise ValueError("stop")

    gc.collect()
    gc.disable()
    try:
        with contextlib.suppress(ValueError):
            gv.reap(f, gv.Capture("*", values=True))(model, X)
        assert [reference() for reference in (*sessions, *outputs)] == [None, None]
    finally:
        gc.enable()


def test_modules_of_two_names_are_captured_under_the_first():
    shared = nn.Linear(2, 2)
    model = nn.Sequential(shared, shared)
    captured = gv.reap(lambda m, x: m(x).sum(), gv.Capture("*"))(model, X)[2]
    assert len(captured["0"]) == 2
    assert captured.missing == {"1": "the same module as '0'"}


def test_models_of_several_names_have_theirs_before_the_paths():
    generator, discriminator = (nn.Sequential(nn.Linear(2, 2)) for _ in range(2))
    session = Session(gv.Capture("*.0"), "tensors", {"g.": generator, "d.": discriminator})
    session.attach()
    with session.forward():
        value = discriminator(generator(X)).sum()
    backward(session, value)
    session.commit()
    captured = session.finish()
    session.detach()
    assert list(captured) == ["g.0", "d.0"]
    assert not captured.missing


def test_a_pattern_that_fits_nothing_is_told_what_there_is():
    model = nn.Sequential(nn.Linear(2, 2))
    captured = gv.reap(lambda m, x: m(x).sum(), gv.Capture("encoder.*"))(model, X)[2]
    assert "no module and no sown value is called so" in captured.missing["encoder.*"]
    alone = gv.reap(lambda m, x: m(x).sum(), gv.Capture("*"))(nn.Linear(2, 2), X)[2]
    assert "of the model as a whole, sow what it returns" in alone.missing["*"]


def test_our_failure_in_a_backward_pass_is_ours_alone(session, model, monkeypatch):
    def fails(*args: Any) -> Any:
        raise RuntimeError("broken on purpose")

    monkeypatch.setattr(session._keeping, "take", fails)
    value = forward(session, model, X)
    with pytest.warns(CaptureWarning, match="RuntimeError: broken on purpose") as caught:
        backward(session, value)
    assert len(caught) == 1
    session.commit()
    captured = session.finish()
    assert len(captured) == 0
    assert captured.missing["0"] == "RuntimeError: broken on purpose"
    assert model[0].weight.grad is not None


def test_evaluation_passes_under_no_grad_leave_nothing_in_memory(session, model):
    outputs: list[weakref.ref[Tensor]] = []
    gc.disable()
    try:
        with session.forward(), torch.no_grad():
            for _ in range(100):
                outputs.append(weakref.ref(model(X)))
        assert all(reference() is None for reference in outputs)
        assert not session._calls
        assert all(not hook._entered for hook in session._hooks.values())
    finally:
        gc.enable()
