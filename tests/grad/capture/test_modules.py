"""The hooks on modules: what they note, and that a model is as it was with them on and after them."""

from __future__ import annotations

import copy
import io
import pickle
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import gradviz as gv
from gradviz.grad.capture import session as at_work
from gradviz.grad.capture.modules import Entry, named
from gradviz.grad.capture.session import Session
from tests.grad.capture.zoo import Keywords, hooks_of


def model_of() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1))


def within_capture(do: Any, keep: str = "tensors") -> tuple[Any, Any]:
    """What `do` gives of a model, called within the forward pass of a capture; and what was captured."""
    results: list[Any] = []

    def f(m: nn.Module, x: Tensor) -> Tensor:
        value = m(x).sum()
        results.append(do(m, x))
        return value

    _, _, captured = gv.reap(f, gv.Capture("*", keep=keep, values=True))(model_of(), torch.ones(3, 2))
    return results[0], captured


# Entries --------------------------------------------------------------------------------------------------------------


def test_arguments_have_the_names_of_the_parameters_that_take_them():
    def f(a: int, /, b: int, *rest: int, c: int = 0, **more: int) -> None: ...

    assert named(f, (1, 2, 3, 4), {"c": 5, "d": 6}) == {"a": 1, "b": 2, "rest[0]": 3, "rest[1]": 4, "c": 5, "d": 6}
    assert named(lambda a: a, (1, 2), {}) == {"a": 1, "[1]": 2}
    assert named(dict, (1,), {"b": 2}) == {"[0]": 1, "b": 2}


def test_what_is_handed_through_is_told_from_what_is_written_into():
    x, y = torch.ones(2), torch.ones(2)
    entry = Entry((x, 3), {"y": y}, copies=False, keeps=False)
    assert entry.handed_through(x)
    assert entry.handed_through(y)
    assert not entry.handed_through(torch.ones(2))
    y.add_(1)
    assert not entry.handed_through(y)


def test_tensors_made_in_inference_mode_can_be_handed_in():
    with torch.inference_mode():
        x = torch.ones(1, 2)
    assert Entry((x,), {}, copies=True, keeps=True).handed_through(x)


def test_inputs_by_keyword_and_place_are_copies():
    torch.manual_seed(0)
    model = Keywords()
    x = torch.randn(3, 4)
    kept = x.clone()

    def f(m: nn.Module, x: Tensor) -> Tensor:
        value = m(x).sum()
        with torch.no_grad():
            x.data.zero_()
        return value

    captured = gv.reap(f, gv.Capture("inner*", values=True))(model, x)[2]
    assert torch.equal(captured["inner"][0].inputs["x"], kept)
    assert torch.equal(captured["inner"][0].inputs["extra"][0], kept)
    assert torch.equal(captured["inner.linear"][0].inputs["input"], kept)


def test_a_call_that_raised_inside_the_model_leaves_the_others_theirs():
    class Tries(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(2, 2)

        def forward(self, x: Tensor) -> Tensor:
            with pytest.raises(RuntimeError):
                self.linear(torch.ones(1, 3))
            return self.linear(x)

    captured = gv.reap(lambda m, x: m(x).sum(), gv.Capture("*", values=True))(Tries(), torch.ones(1, 2))[2]
    assert len(captured["linear"]) == 1
    assert captured["linear"][0].inputs["input"].tolist() == [[1, 1]]


# The model is as it was -----------------------------------------------------------------------------------------------


def test_a_users_own_hooks_stay_in_their_order_and_what_they_return_counts():
    model = model_of()
    seen: list[str] = []
    model[0].register_forward_hook(lambda module, args, output: seen.append("before") or output * 2)
    own = hooks_of(model)
    inner: list[Any] = []

    def f(m: nn.Module, x: Tensor) -> Tensor:
        inner.append(m[1].register_forward_hook(lambda *args: seen.append("within")))
        return m(x).sum()

    gv.reap(f, gv.Capture("*"))(model, torch.ones(1, 2))
    assert seen == ["before", "within"]
    assert hooks_of(model) == [*own, *model[1]._forward_hooks.values()]
    assert inner[0].id in model[1]._forward_hooks


@pytest.mark.case("P20")
@pytest.mark.parametrize("save", [pickle.dumps, "torch.save"])
def test_a_model_pickles_within_a_capture_and_nothing_of_gradviz_is_in_the_bytes(save):
    def saved(model: nn.Module, x: Tensor) -> bytes:
        if save is pickle.dumps:
            return pickle.dumps(model)
        buffer = io.BytesIO()
        torch.save(model, buffer)
        return buffer.getvalue()

    content, _ = within_capture(saved)
    assert b"gradviz" not in content
    loaded = torch.load(io.BytesIO(content), weights_only=False) if save == "torch.save" else pickle.loads(content)
    x = torch.ones(3, 2)
    assert torch.equal(loaded(x), model_of()(x))
    loaded(x).sum().backward()


@pytest.mark.case("P20")
@pytest.mark.parametrize("keep", ["statistics", "tensors", "example_norms"])
def test_a_copy_works_and_its_calls_are_not_those_of_the_model(keep):
    def copied(model: nn.Module, x: Tensor) -> nn.Module:
        twin = copy.deepcopy(model)
        twin(x).sum().backward()
        return twin

    twin, captured = within_capture(copied, keep)
    assert [len(calls) for calls in captured.values()] == [1, 1, 1]
    assert torch.equal(twin(torch.ones(3, 2)), model_of()(torch.ones(3, 2)))
    assert all(type(hook).__module__ == "builtins" for hook in hooks_of(twin))


class Rows(Dataset[Any]):
    """A data set that holds a model, as those that embed their rows do."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    def __len__(self) -> int:
        return 4

    def __getitem__(self, place: int) -> Tensor:
        with torch.no_grad():
            return self.model(torch.full((2,), float(place)))


@pytest.mark.case("P20")
def test_a_data_loader_spawns_workers_within_a_capture():
    def load(model: nn.Module, x: Tensor) -> list[Tensor]:
        return list(DataLoader(Rows(model), batch_size=2, num_workers=1, multiprocessing_context="spawn"))

    batches, captured = within_capture(load)
    expected = model_of()(torch.arange(4.0).unsqueeze(1).expand(4, 2)).detach()
    torch.testing.assert_close(torch.cat(batches), expected)
    assert [len(calls) for calls in captured.values()] == [1, 1, 1]


def test_outputs_can_be_pickled_without_a_warning_of_hooks():
    def saved(model: nn.Module, x: Tensor) -> Tensor:
        output = model(x)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            buffer = io.BytesIO()
            torch.save(output, buffer)
        return torch.load(io.BytesIO(buffer.getvalue()))

    loaded, _ = within_capture(saved)
    assert torch.equal(loaded, model_of()(torch.ones(3, 2)))


def test_a_module_that_goes_takes_its_hook_with_it_and_a_new_one_gets_one():
    model = model_of()
    session = Session(gv.Capture("*"), "statistics", {"": model})
    session.attach()
    old = model[1]
    model[1] = nn.Tanh()
    session.attach()
    assert not old._forward_hooks
    assert len(model[1]._forward_hooks) == 1
    assert len(hooks_of(model[0])) == 2  # no second one: each is in two tables
    session.detach()
    assert hooks_of(model) == []
    assert at_work.open_sessions == ()
