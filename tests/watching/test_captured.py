"""A watch captures gradients of intermediate values of a loop that is not ours, and leaves the loop as it is."""

from __future__ import annotations

import copy
import functools
import pickle
import weakref

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import gradviz as gv
from gradviz.errors import CaptureWarning, DataError, RecordingWarning
from gradviz.grad.capture import session


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True), nn.Linear(4, 2))


def batches(n=4):
    torch.manual_seed(1)
    return [(torch.randn(6, 3), torch.randint(2, (6,))) for _ in range(n)]


def plainly(model, data, *, scaler=None, penalty=False, accumulate=1):
    """A loop of the user's own."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    yield optimizer
    for place, (x, y) in enumerate(data):
        x = x.clone().requires_grad_(penalty)
        output = model(x)
        loss = F.cross_entropy(output, y)
        if penalty:
            (slope,) = torch.autograd.grad(output.sum(), x, create_graph=True)
            loss = loss + slope.square().sum()
        (loss if scaler is None else scaler.scale(loss)).backward()
        if (place + 1) % accumulate == 0:
            if scaler is None:
                optimizer.step()
            else:
                scaler.step(optimizer)
                scaler.update()
            optimizer.zero_grad()
            yield


def watched(model, data, *, capture, example_ids=None, **options):
    loop = plainly(model, data, **options)
    optimizer = next(loop)
    with gv.watch(model, optimizer, capture=capture, example_ids=example_ids) as w:
        for _ in loop:
            pass
    return w


@pytest.mark.parametrize("is_scaled", [False, True])
@pytest.mark.parametrize("keep", ["statistics", "example_norms", "tensors"])
def test_it_writes_what_the_trainer_writes(is_scaled, keep):
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0) if is_scaled else None
    w = watched(net(), batches(), capture=gv.Capture("*", keep=keep), scaler=scaler)
    sgd = functools.partial(torch.optim.SGD, lr=0.1)
    loop = gv.trainer(net(), "cross_entropy", sgd, log=0, capture=gv.Capture("*", keep=keep))
    loop.run(batches())
    mine, others = w.history.activations, loop.history.activations
    assert mine[["iteration", "name", "call", "state"]].equals(others[["iteration", "name", "call", "state"]])
    np.testing.assert_allclose(mine.norm, others.norm, rtol=1e-5)
    if keep == "example_norms":
        np.testing.assert_allclose(w.history.examples.norm, loop.history.examples.norm, rtol=1e-5)
    for ours, theirs in zip(w.history.tensors("0"), loop.history.tensors("0"), strict=True):
        np.testing.assert_allclose(ours.array, theirs.array, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("options", [{}, {"penalty": True}, {"accumulate": 2}], ids=str)
def test_training_is_the_same_to_the_bit(options):
    plain, model = net(), net()
    for _ in plainly(plain, batches(), **options):
        pass
    watched(model, batches(), capture=gv.Capture("*", values=True, keep="tensors"), **options)
    assert all(map(torch.equal, plain.state_dict().values(), model.state_dict().values()))


def test_the_gradients_of_a_penalty_on_the_way_are_not_those_of_the_loss():
    model, (x, y) = net(), batches(1)[0]
    w = watched(model, [(x, y)], capture=gv.Capture("2", keep="tensors"), penalty=True)
    model = net()
    x.requires_grad_()
    output = model(x)
    (slope,) = torch.autograd.grad(output.sum(), x, create_graph=True)
    (gradient,) = torch.autograd.grad(F.cross_entropy(output, y) + slope.square().sum(), output)
    torch.testing.assert_close(w.captured["2"][0].gradient, gradient)


def test_micro_batches_are_calls_of_one_iteration():
    rows = watched(net(), batches(4), capture=gv.Capture("2"), accumulate=2).history.activations
    assert rows[["iteration", "call"]].values.tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]


def test_several_passes_through_one_call_add_up_or_say_that_they_cannot():
    model, (x, y) = net(), batches(1)[0]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def twice(keep):
        with gv.watch(model, optimizer, capture=gv.Capture("2", keep=keep)) as w:
            loss = F.cross_entropy(output := model(x), y)
            (gradient,) = torch.autograd.grad(loss, output, retain_graph=True)
            loss.backward(retain_graph=True)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        return w, gradient

    w, gradient = twice("tensors")
    torch.testing.assert_close(w.captured["2"][0].gradient, 2 * gradient)
    with pytest.warns(CaptureWarning, match='keep="tensors" adds them up'):
        w, _ = twice("statistics")
    assert w.history.activations.state.tolist() == ["not_recorded"]
    assert 'keep="tensors"' in w.captured.missing["2"]


@pytest.mark.case("P22")
@pytest.mark.case("P23")
def test_of_two_models_in_turn_each_iteration_has_what_its_own_pass_reached():
    torch.manual_seed(0)
    g, d = nn.Sequential(nn.Linear(2, 2), nn.Tanh()), nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    opt_g, opt_d = (torch.optim.SGD(m.parameters(), lr=0.1) for m in (g, d))
    with gv.watch({"G": g, "D": d}, [opt_g, opt_d], capture=gv.Capture("*.0")) as w:
        for _ in range(2):
            opt_d.zero_grad()
            (d(g(torch.randn(4, 2)).detach()).mean() - d(torch.randn(4, 2)).mean()).backward()
            opt_d.step()
            opt_g.zero_grad()
            (-d(g(torch.randn(4, 2))).mean()).backward()
            opt_g.step()
    rows = w.history.activations.merge(w.history.metrics.reset_index()[["iteration", "optimizer"]], on="iteration")
    told = rows.groupby(["optimizer", "name", "call"]).state.unique().map(list).to_dict()
    assert told == {
        ("D", "D.0", 0): ["ok"],
        ("D", "D.0", 1): ["ok"],
        ("D", "G.0", 0): ["unused"],  # its output was detached
        ("G", "D.0", 0): ["ok"],  # the loss of G goes through D, in an iteration of G's optimizer
        ("G", "G.0", 0): ["ok"],
    }


@pytest.mark.case("P15")
def test_passes_without_gradients_leave_nothing_behind():
    model, kept = net(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with gv.watch(model, optimizer, capture=gv.Capture("*", keep="tensors", values=True)) as w:
        with torch.no_grad():
            for x, _ in batches(100):
                kept.append(weakref.ref(model(x)))
        assert not any(ref() is not None for ref in kept)
        x, y = batches(1)[0]
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    assert [len(calls) for calls in w.captured.values()] == [1, 1, 1]


@pytest.mark.case("P20")
def test_the_model_pickles_and_deep_copies_meanwhile_and_a_copy_is_not_recorded(tmp_path):
    model, (x, y) = net(), batches(1)[0]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with gv.watch(model, optimizer, capture=gv.Capture("*")) as w:
        pickled = pickle.dumps(model)
        torch.save(model, tmp_path / "model.pt")
        copies = [copy.deepcopy(model), pickle.loads(pickled), torch.load(tmp_path / "model.pt", weights_only=False)]
        for each in copies:
            assert torch.equal(each(x), model(x.clone()))
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    assert b"gradviz" not in pickled
    assert b"gradviz" not in (tmp_path / "model.pt").read_bytes()
    assert [len(calls) for calls in w.captured.values()] == [1 + len(copies)] * 3  # all of the model itself


def test_no_hook_is_left_after_it_is_closed_however_it_ends():
    for error in (None, RuntimeError, KeyboardInterrupt):
        model = net()
        loop = plainly(model, batches())
        optimizer = next(loop)
        try:
            with gv.watch(model, optimizer, capture=gv.Capture("*")):
                next(loop)
                if error is not None:
                    raise error
        except (RuntimeError, KeyboardInterrupt):
            pass
        assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
        assert session.open_sessions == ()


@pytest.mark.case("P17")
def test_a_pass_that_goes_on_after_it_is_closed_is_not_recorded_and_no_error():
    model, (x, y) = net(), batches(1)[0]
    with gv.watch(model, torch.optim.SGD(model.parameters(), lr=0.1), capture=gv.Capture("*")) as w:
        loss = F.cross_entropy(model(x), y)
    loss.backward()
    assert w.history.activations.empty


def test_ids_are_asked_for_when_the_optimizer_has_stepped():
    now = []

    def ids():
        now[:] = [len(now) and now[0] + 6] if now else [0]
        return range(now[0], now[0] + 6)

    capture = gv.Capture("2", keep="example_norms", top_examples=6)
    rows = watched(net(), batches(3), capture=capture, example_ids=ids).history.examples
    rows = rows[rows.name == "2"]
    assert (rows.example_id.astype(int) == 6 * rows.iteration + rows.example).all()
    model = net()
    with pytest.raises(DataError, match="example_ids=lambda: indices"):
        gv.watch(model, torch.optim.SGD(model.parameters(), lr=0.1), example_ids=[1, 2])


def test_with_every_the_iterations_between_cost_nothing():
    model = net()
    loop = plainly(model, batches(5))
    optimizer = next(loop)
    on = []
    with gv.watch(model, optimizer, capture=gv.Capture("0"), every=2) as w:
        on.append(bool(session.open_sessions))
        for _ in loop:
            on.append(bool(session.open_sessions))
    assert on == [True, False, True, False, True, False]
    assert w.history.activations.iteration.tolist() == [0, 2, 4]


def test_passes_that_are_thrown_away_keep_nothing_alive():
    model, kept = net(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with gv.watch(model, optimizer, capture=gv.Capture("*", keep="example_norms")) as w:
        for _ in range(20):
            x = torch.randn(6, 3)
            kept.append(weakref.ref(x))
            model(x)
            del x
        assert not any(ref() is not None for ref in kept)
    assert w.captured is None


def test_ids_that_cannot_be_asked_for_cost_the_ids_alone():
    with pytest.warns(RecordingWarning, match="example_ids could not be asked") as said:
        w = watched(net(), batches(3), capture=gv.Capture("2", keep="example_norms"), example_ids=lambda: None)
    assert len(said) == 1
    assert set(w.history.gradients.state) == {"ok"}
    assert len(w.history.activations) == 3
