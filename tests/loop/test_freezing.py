"""What a picture wishes to be frozen is frozen between two iterations, and the run goes on."""

from __future__ import annotations

import copy
import threading

import pytest
import torch
from torch import nn

import gradviz as gv
from gradviz.history.freezer import Wish

DATA = [(torch.randn(4, 2, generator=torch.Generator().manual_seed(0)), torch.zeros(4, 1))]


class Told:
    """An answer that somebody waits for."""

    def __init__(self) -> None:
        self._came = threading.Event()
        self.iteration: int | None = None
        self.error = ""

    def __call__(self, iteration: int | None, error: str) -> None:
        self.iteration, self.error = iteration, error
        self._came.set()

    def wait(self) -> Told:
        assert self._came.wait(60), "there was no answer"
        return self


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))


def wishing(loop: gv.Loop, wish: Wish, at: int) -> Told:
    """Put a wish at the end of an iteration."""
    told = Told()

    def put(state: gv.State) -> None:
        if state.iteration == at:
            loop.history.freezer(wish, told)

    loop.handle_event("iteration_completed", put)
    return told


@pytest.mark.parametrize("optimizer", ["adam", "sgd with momentum and decay"])
def test_a_wish_holds_from_the_next_iteration_on_for_parameters_moments_and_statistics(optimizer):
    model = net()
    made = (
        torch.optim.Adam(model.parameters(), lr=0.1)
        if optimizer == "adam"
        else torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
    )
    loop = gv.trainer(model, "mean_squared_error", made)
    told = wishing(loop, Wish("freeze", frozenset(["0.weight"]), ("1",)), at=4)
    kept = []

    def keep(state: gv.State) -> None:
        moments = {name: copy.deepcopy(made.state[p]) for name, p in model.named_parameters()}
        kept.append((copy.deepcopy(model.state_dict()), moments))

    loop.handle_event("iteration_completed", keep)
    loop.run(DATA * 9)
    assert (told.iteration, told.error) == (5, "")
    still = ["0.weight", "1.weight", "1.bias"]
    for name in still:
        assert loop.history.wide("state")[name].tolist() == ["ok"] * 5 + ["frozen"] * 4
    for values, moments in kept[5:]:
        for name in (*still, "1.running_mean", "1.running_var", "1.num_batches_tracked"):
            assert torch.equal(values[name], kept[4][0][name]), name
        for name in still:
            before = kept[4][1][name]
            assert moments[name].keys() == before.keys() != set()
            assert all(torch.equal(torch.as_tensor(moments[name][key]), torch.as_tensor(before[key])) for key in before)
    assert not torch.equal(kept[8][0]["2.weight"], kept[7][0]["2.weight"])
    losses = loop.history.metrics["loss"]
    assert losses.iloc[6:].is_unique
    assert loop.history.events.to_numpy().tolist() == [[5, "frozen", name, "widget"] for name in still]


def test_a_run_in_the_background_hears_of_it_at_once_also_while_it_is_paused():
    model = net()
    loop = gv.trainer(model, "mean_squared_error", "adam").start(DATA * 100, epochs=10**6, display=None)
    try:
        told = Told()
        loop.history.freezer(Wish("freeze", frozenset(["0.weight", "0.bias"])), told)
        frozen_at = told.wait().iteration
        assert told.error == ""
        loop.pause()
        assert loop.state.iteration >= frozen_at
        frozen = model[0].weight.clone()
        told = Told()
        loop.history.freezer(Wish("unfreeze", modules=("0",)), told)
        assert told.wait().iteration == loop.state.iteration
        assert loop.state.status == "paused"
        assert torch.equal(model[0].weight, frozen)
        n = loop.state.iteration
        loop.unpause()
        while loop.state.iteration < n + 3:
            pass
    finally:
        loop.stop().wait()
    assert not torch.equal(model[0].weight, frozen)
    states = loop.history.wide("state")["0.weight"]
    assert (states.loc[: frozen_at - 1] == "ok").all()
    assert (states.loc[frozen_at : n - 1] == "frozen").all()
    assert (states.loc[n:] == "ok").all()
    assert loop.history.events["by"].unique().tolist() == ["widget"]
    assert loop.history.events.query("event == 'frozen'")["iteration"].tolist() == [frozen_at] * 2


def test_what_the_run_would_end_of_is_refused_and_it_goes_on():
    model = nn.ModuleDict({"used": nn.Linear(2, 1), "spare": nn.Linear(2, 1)})
    model.forward = lambda x: model["used"](x)
    for wish, why in [
        (Wish("freeze", modules=("used", "spare")), "Nothing would be left to train"),
        (Wish("freeze", modules=("used",)), "The loss reaches nothing of what would be left to train"),
        (Wish("freeze", frozenset(["nowhere"])), "fits no parameter or buffer"),
    ]:
        loop = gv.trainer(model, "mean_squared_error", "sgd")
        told = wishing(loop, wish, at=1)
        loop.run(DATA * 4)
        assert told.iteration is None
        assert why in told.error
        assert loop.state.status == "completed"
        assert loop.history.events.empty


def test_what_an_optimizer_cannot_take_in_is_refused():
    model = net()
    model[0].requires_grad_(False)
    trained = [p for p in model.parameters() if p.requires_grad]
    loop = gv.trainer(model, "mean_squared_error", torch.optim.LBFGS(trained, max_iter=2))
    told = wishing(loop, Wish("unfreeze", modules=("0",)), at=1)
    loop.run(DATA * 4)
    assert told.iteration is None
    assert "LBFGS cannot take it in on the way" in told.error
    assert loop.state.status == "completed"


def test_a_run_that_is_over_says_so():
    loop = gv.trainer(net(), "mean_squared_error", "sgd")
    held = []
    loop.handle_event("started", lambda state: held.append(loop.history.freezer))
    told = wishing(loop, Wish("freeze", modules=("0",)), at=99)
    loop.handle_event("completed", lambda state: held[0](Wish("freeze", modules=("0",)), told))
    loop.run(DATA * 3)
    assert "The run was over before it heard of it" in told.wait().error
    assert loop.history.freezer is None
    again = Told()
    held[0](Wish("freeze", modules=("0",)), again)
    assert (again.iteration, again.error) == (None, told.error)
    assert all(p.requires_grad for p in loop.state.step_state.model_state.module.parameters())


def test_who_did_it_is_written_for_each():
    model = net()
    loop = gv.trainer(model, "mean_squared_error", "sgd")
    wishing(loop, Wish("freeze", frozenset(["0.bias"])), at=1)

    def undo(state: gv.State) -> None:
        if state.iteration == 1:
            model[2].bias.requires_grad_(False)
        if state.iteration == 2:
            state.step_state.model_state.freeze("1")

    loop.handle_event("iteration_completed", undo)
    loop.run(DATA * 4)
    model[2].bias.requires_grad_(True)
    loop.run(DATA * 2)
    assert loop.history.events.to_numpy().tolist() == [
        [2, "frozen", "0.bias", "widget"],
        [2, "frozen", "2.bias", "handler"],
        [3, "frozen", "1.weight", "handler"],
        [3, "frozen", "1.bias", "handler"],
        [4, "unfrozen", "2.bias", "user"],
    ]


def test_a_resumed_run_knows_what_a_handler_did_before_the_checkpoint(tmp_path):
    def make() -> gv.Loop:
        model = net()

        def freeze(state: gv.State) -> None:
            if state.epoch == 0:
                model[0].requires_grad_(False)

        return gv.trainer(model, "mean_squared_error", "sgd").handle_event("epoch_completed", freeze)

    whole = make()
    whole.run(DATA * 2, epochs=2)
    first = make().checkpoint(tmp_path)
    first.run(DATA * 2, epochs=1)
    resumed = make().resume(tmp_path)
    resumed.run(DATA * 2, epochs=1)
    expected = [[2, "frozen", "0.weight", "handler"], [2, "frozen", "0.bias", "handler"]]
    assert whole.history.events.to_numpy().tolist() == expected
    assert resumed.history.events.to_numpy().tolist() == expected
