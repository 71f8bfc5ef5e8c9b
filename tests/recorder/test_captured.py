"""What is captured is written down: statistics, norms by example with their ids, and whole tensors."""

from __future__ import annotations

import subprocess
import sys
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import gradviz as gv
from gradviz.errors import CaptureWarning, DataError, RecordingWarning

SGD = partial(torch.optim.SGD, lr=0.1)


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def batches(n=4, length=6):
    torch.manual_seed(1)
    return [(torch.randn(length, 3), torch.randint(2, (length,))) for _ in range(n)]


def trained(data, *, epochs=1, model=None, **options):
    loop = gv.trainer(net() if model is None else model, "cross_entropy", SGD, log=0, **options)
    loop.run(data, epochs=epochs)
    return loop


def test_statistics_of_every_call_are_rows():
    loop = trained(batches(3), capture=gv.Capture("*", keep="tensors"))
    rows = loop.history.activations
    assert rows[["iteration", "epoch", "name", "call", "state"]].values.tolist() == [
        [i, 0, name, 0, "ok"] for i in range(3) for name in "012"
    ]
    captured = loop.state.step_state.captured
    for name in "012":
        row = rows[(rows.iteration == 2) & (rows.name == name)].iloc[0]
        gradient = captured[name][0].gradient
        assert row.norm == pytest.approx(gradient.norm().item(), rel=1e-6)
        assert row["mean"] == pytest.approx(gradient.mean().item(), rel=1e-4, abs=1e-9)
        assert row["std"] == pytest.approx(gradient.std().item(), rel=1e-5)
        assert (row.nan, row.posinf, row.neginf) == (0, 0, 0)


def test_what_has_no_gradient_has_a_row_that_says_why_and_no_number():
    model = net()
    model[0].requires_grad_(False)
    rows = trained(batches(1), model=model, capture=gv.Capture("*")).history.activations
    assert rows.state.tolist() == ["frozen", "frozen", "ok"]
    assert rows.norm.isna().tolist() == [True, True, False]
    assert rows["nan"].isna().tolist() == [True, True, False]


def test_an_iteration_that_is_not_recorded_is_not_captured_either():
    loop = trained(batches(5), every=2, capture=gv.Capture("0"))
    assert loop.history.activations.iteration.tolist() == [0, 2, 4]


def test_activations_are_recorded_where_parameters_are_not():
    history = trained(batches(2), record=None, capture=gv.Capture("0")).history
    assert history.activations.norm.notna().all()
    assert set(history.gradients.state) == {"not_recorded"}


def test_norms_by_example_carry_the_ids_of_the_data():
    data = [(x, y, torch.arange(6) + 100 * i) for i, (x, y) in enumerate(batches(2))]
    capture = gv.Capture("2", keep="example_norms", top_examples=2)
    history = trained(data, capture=capture, example_ids=lambda batch: batch[2]).history
    rows = history.examples
    outputs = rows[rows.name == "2"]
    assert outputs.groupby("iteration").size().tolist() == [2, 2]
    assert (outputs.example_id.astype(int) == outputs.iteration * 100 + outputs.example).all()
    model, (x, y) = net(), batches(1)[0]
    (gradient,) = torch.autograd.grad(F.cross_entropy(output := model(x), y), output)
    order = gradient.norm(dim=1).argsort(descending=True)[:2]
    first = outputs[outputs.iteration == 0]
    assert first.example.tolist() == order.tolist()
    np.testing.assert_allclose(first.norm, gradient.norm(dim=1)[order], rtol=1e-6)


def test_per_example_norms_of_parameters_are_those_of_each_example_alone():
    model, (x, y) = net(), batches(1)[0]
    expected = []
    for i in range(len(x)):
        loss = F.cross_entropy(model(x[i : i + 1]), y[i : i + 1]) / len(x)  # the mean has the batch's length in it
        expected.append([g.norm().item() for g in torch.autograd.grad(loss, list(model.parameters()))])
    captured = trained([(x, y)], capture=gv.Capture("*", keep="example_norms")).state.step_state.captured
    for place, name in enumerate(["0.weight", "0.bias", "2.weight", "2.bias"]):
        norms = captured.parameter_example_norms[name]
        np.testing.assert_allclose(norms, np.array(expected)[:, place], rtol=1e-5)


def test_ids_that_do_not_fit_are_left_out_and_said_once():
    data = [(x, y, [1, 2]) for x, y in batches(3)]
    with pytest.warns(RecordingWarning, match=r"gave 2 ids, where '2' has 6 examples") as said:
        loop = trained(data, capture=gv.Capture("2", keep="example_norms"), example_ids=lambda batch: batch[2])
    assert len(said) == 1
    assert loop.history.examples.example_id.isna().all()


def test_micro_batches_have_ids_one_behind_the_other():
    data = [(x, y, [f"{i}.{k}" for k in range(6)]) for i, (x, y) in enumerate(batches(2))]
    capture = gv.Capture("2", keep="example_norms", top_examples=12)
    rows = trained(data, accumulate=2, capture=capture, example_ids=lambda batch: batch[2]).history.examples
    outputs, weights = rows[rows.name == "2"], rows[rows.name == "2.weight"]
    assert (outputs.example_id == outputs.call.astype(str) + "." + outputs.example.astype(str)).all()
    expected = weights.example.map(lambda place: f"{place // 6}.{place % 6}")
    assert (weights.example_id == expected).all()
    assert len(weights) == len(outputs) == 12


@pytest.mark.parametrize("wrong", [3, "ids", lambda: 1])
def test_ids_that_are_no_function_of_a_batch_are_refused_before_anything_moved(wrong):
    with pytest.raises(DataError, match="example_ids=lambda batch"):
        gv.trainer(net(), "cross_entropy", SGD, example_ids=wrong)


@pytest.mark.parametrize("saved", [False, True])
def test_whole_runs_of_tensors_are_read_back(saved, tmp_path):
    options = {"save_to": tmp_path / "run"} if saved else {}
    gradients = []
    loop = gv.trainer(net(), "cross_entropy", SGD, log=0, capture=gv.Capture("2", keep="tensors"), **options)
    loop.handle_event("iteration_completed", lambda s: gradients.append(s.step_state.captured["2"][0].gradient.numpy()))
    loop.run(batches(4))
    history = gv.History.open(tmp_path / "run") if saved else loop.history
    kept = history.tensors("2")
    assert [tensor.kept.iteration for tensor in kept] == [0, 1, 2, 3]
    for tensor, gradient in zip(kept, gradients, strict=True):
        np.testing.assert_array_equal(tensor.array, gradient)
    np.testing.assert_array_equal(history.tensors("2", iteration=3, call=0)[0].array, gradients[3])


def test_tensors_of_a_run_are_read_back_without_torch(tmp_path):
    trained(batches(2), capture=gv.Capture("2", keep="tensors"), save_to=tmp_path / "run")
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from gradviz.history.history import History\n"
        f"print(len(History.open({str(tmp_path / 'run')!r}).tensors('2')))"
    )
    asked = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert asked.stdout.split() == ["2"]


def test_over_the_limit_the_oldest_tensors_go_and_it_is_said_once():
    with pytest.warns(CaptureWarning, match=r'save_to="runs/a"') as said:
        loop = trained(batches(5), capture=gv.Capture("2", keep="tensors", memory_limit=2 * 6 * 2 * 4))
    assert len(said) == 1
    assert [tensor.kept.iteration for tensor in loop.history.tensors("2")] == [3, 4]


def test_what_cannot_be_captured_is_said_once():
    with pytest.warns(CaptureWarning, match="'head': no module and no sown value is called so") as said:
        trained(batches(3), capture=gv.Capture("0", "head"))
    assert len(said) == 1


def test_our_own_failure_breaks_no_step(monkeypatch):
    def fail(*_):
        raise OSError("no space")

    model, plain = net(), net()
    monkeypatch.setattr("gradviz.grad.capture.keeping.Keeping._row", fail)
    with pytest.warns(CaptureWarning, match="no space") as said:
        loop = trained(batches(3), model=model, capture=gv.Capture("*"))
    monkeypatch.undo()
    trained(batches(3), model=plain)
    assert len(said) == 2  # that it failed, and what is missing therefore
    assert set(loop.history.activations.state) == {"not_recorded"}
    assert all(map(torch.equal, plain.state_dict().values(), model.state_dict().values()))


@pytest.mark.case("P28")
def test_an_empty_batch_is_no_crash():
    empty = torch.empty(0, 3), torch.empty(0, 2)
    capture = gv.Capture("*", keep="example_norms")
    loop = gv.trainer(net(), nn.MSELoss(reduction="sum"), SGD, log=0, capture=capture)
    loop.run([(torch.randn(2, 3), torch.randn(2, 2)), empty])
    rows = loop.history.activations
    assert rows[rows.iteration == 1].norm.tolist() == [0, 0, 0]
    assert set(loop.history.examples.iteration) == {0}


def test_what_was_dropped_in_an_iteration_takes_nothing_else_with_it(tmp_path):
    capture = gv.Capture("*", keep="tensors", memory_limit=6 * 4 * 4)
    with pytest.warns(CaptureWarning, match="dropped"):
        loop = trained(batches(3), capture=capture, save_to=tmp_path / "run")
    assert [len(loop.history.tensors(name)) for name in "012"] == [3, 0, 0]  # of each iteration the last to come


def test_a_checkpoint_says_nothing_of_what_was_captured(tmp_path):
    loop = gv.trainer(net(), "cross_entropy", SGD, log=0, capture=gv.Capture("*")).checkpoint(tmp_path / "run")
    loop.run(batches(2))
    again = gv.trainer(net(), "cross_entropy", SGD, log=0, capture=gv.Capture("*")).resume(tmp_path / "run")
    again.run(batches(2))
    assert len(again.state.step_state.captured) == 3
