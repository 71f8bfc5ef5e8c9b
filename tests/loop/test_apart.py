"""run(in_place=False) trains as run(in_place=True) does, and leaves the model as it was."""

from __future__ import annotations

import copy
import os
import signal
from functools import partial

import pytest
import torch
from torch import nn

import gradviz as gv
from gradviz.errors import DataError, ModelError, OptimizerError

SGD = partial(torch.optim.SGD, lr=0.1, momentum=0.9)


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3))


def data() -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(1)
    x, y = torch.randn(50, 4, generator=generator), torch.randint(0, 3, (50,), generator=generator)
    return list(zip(x.split(16), y.split(16), strict=True))  # 16, 16, 16, 2


def looked_at(model: nn.Module) -> dict[str, object]:
    """Everything that a run might move, as copies."""
    return {
        **{name: t.detach().clone() for name, t in model.state_dict(keep_vars=True).items()},
        "training": [child.training for child in model.modules()],
        "requires_grad": [p.requires_grad for p in model.parameters()],
        "grad": [None if p.grad is None else p.grad.tolist() for p in model.parameters()],
        "tensors": [id(t) for t in model.state_dict(keep_vars=True).values()],
    }


def same(one: dict[str, object], other: dict[str, object]) -> bool:
    assert one.keys() == other.keys()
    return all(torch.equal(v, other[k]) if isinstance(v, torch.Tensor) else v == other[k] for k, v in one.items())


def assert_equal_to_the_bit(one: nn.Module, other: nn.Module) -> None:
    theirs = other.state_dict()
    assert one.state_dict().keys() == theirs.keys()
    for name, value in one.state_dict().items():
        assert torch.equal(value, theirs[name]), name


def trained_apart(loop: gv.Loop) -> nn.Module:
    return loop.state.step_state["model_state"].module


OPTIONS = {
    "plain": {},
    "float16 parameters": {"policy": gv.Policy("float16", "float32"), "loss_scale": "dynamic"},
    "bfloat16 parameters": {"policy": gv.Policy(params="bfloat16", compute="bfloat16", output="float32")},
    "micro-batches": {"accumulate": 3, "clip": 0.5},
    "a stream of its own": {"seed": 5},
}


@pytest.mark.case("axon-G11")
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("optimizer", ["adam", SGD, partial(torch.optim.LBFGS, max_iter=2)], ids=str)
def test_parameters_and_kept_gradients_are_those_of_a_run_in_place_to_the_bit(optimizer, options):
    if isinstance(optimizer, partial) and optimizer.func is torch.optim.LBFGS and "loss_scale" in options:
        options = {**options, "loss_scale": "identity"}

    def run(in_place: bool) -> tuple[gv.Loop, nn.Module, list[dict[str, torch.Tensor]]]:
        model, kept = net(), []
        loop = gv.trainer(model, "cross_entropy", optimizer, keep_gradients=True, **options)
        loop.handle_event("iteration_completed", lambda state: kept.append(dict(state.step_state["gradients"])))
        before = looked_at(model)
        torch.manual_seed(2)
        loop.run(data(), epochs=3, in_place=in_place)
        assert same(before, looked_at(model)) is not in_place
        return loop, model, kept

    (_, model, there), (apart, _, here) = run(True), run(False)
    assert_equal_to_the_bit(trained_apart(apart), model)
    assert len(here) == len(there) == 3 * (2 if "accumulate" in options else 4)
    for ours, theirs in zip(here, there, strict=True):
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_a_second_run_goes_on_as_one_long_run_would(options):
    model, whole = net(), net()
    loop = gv.trainer(model, "cross_entropy", "adam", **options)
    before = looked_at(model)
    torch.manual_seed(2)
    loop.run(data(), epochs=1, in_place=False)
    first = trained_apart(loop)
    after_one = looked_at(first)
    loop.run(data(), epochs=2, in_place=False)
    assert same(before, looked_at(model))
    assert trained_apart(loop) is first
    assert not same(after_one, looked_at(first))
    torch.manual_seed(2)
    gv.trainer(whole, "cross_entropy", "adam", **options).run(data(), epochs=3)
    assert_equal_to_the_bit(first, whole)
    assert loop.history.norms.index.tolist() == list(range(len(loop.history)))


class Running(nn.Module):
    """Buffers as people write them: one rebound each pass, one that grows, one made late, and an expanded constant."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 1, bias=False)
        self.register_buffer("mean", torch.zeros(2))
        self.register_buffer("seen", torch.zeros(0))
        self.register_buffer("late", None)
        self.register_buffer("places", torch.arange(3.0).expand(4, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
            self.seen = torch.cat((self.seen, x.detach().mean().reshape(1)))
            self.late = x.detach()[0] if self.late is None else self.late + 1
        return self.linear(x - self.mean)


def test_buffers_of_every_kind_are_the_model_s_own_again_and_go_on_apart():
    torch.manual_seed(0)
    model = Running()
    whole = copy.deepcopy(model)
    batches = [(torch.randn(3, 2), torch.randn(3, 1)) for _ in range(3)]
    loop = gv.trainer(model, "mean_squared_error", SGD, strict=False)
    before = looked_at(model)
    for _ in range(2):
        loop.run(batches, in_place=False)
        assert same(before, looked_at(model))
        assert model.late is None
    gv.trainer(whole, "mean_squared_error", SGD, strict=False).run(batches, epochs=2)
    assert len(whole.seen) == 6
    assert_equal_to_the_bit(trained_apart(loop), whole)


def interrupts(state: gv.State) -> None:
    if state.iteration == 2:
        os.kill(os.getpid(), signal.SIGINT)


def fails(state: gv.State) -> None:
    if state.iteration == 2:
        raise RuntimeError("a handler of one's own")


@pytest.mark.parametrize(("ends", "error"), [(interrupts, KeyboardInterrupt), (fails, RuntimeError)])
def test_after_an_error_or_ctrl_c_the_model_is_as_it_was_and_what_was_trained_is_kept(ends, error):
    model, twin = net(), net()
    loop = gv.trainer(model, "cross_entropy", "adam").handle_event("iteration_completed", ends)
    model[0].weight.grad = torch.ones(8, 4)
    model[1].bias.requires_grad_(False)
    model.eval()
    model[1].train()
    before = looked_at(model)
    torch.manual_seed(2)
    with pytest.raises(error):
        loop.run(data(), in_place=False)
    assert same(before, looked_at(model))
    assert (loop.state.iteration, len(loop.history)) == (3, 3)
    twin[1].bias.requires_grad_(False)
    torch.manual_seed(2)
    gv.trainer(twin, "cross_entropy", "adam").run(data(), iterations=3)
    assert_equal_to_the_bit(trained_apart(loop), twin)
    assert loop.run(data(), in_place=False).iteration == 7
    assert same(before, looked_at(model))


def test_a_second_ctrl_c_leaves_the_model_as_it_was_too():
    class Slow(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.training and loop.state.iteration == 2:
                interrupts(loop.state)
                interrupts(loop.state)
                raise AssertionError("the second interrupt came too late")
            return super().forward(x)

    model = Slow(4, 3)
    loop = gv.trainer(model, "cross_entropy", "sgd")
    before = looked_at(model)
    with pytest.raises(KeyboardInterrupt):
        loop.run(data(), in_place=False)
    assert same(before, looked_at(model))
    assert not torch.equal(trained_apart(loop).weight, model.weight)


def test_handlers_see_and_freeze_what_is_trained_and_the_model_keeps_its_flags():
    model = net()
    loop = gv.trainer(model, "cross_entropy", SGD)
    loop.run(data(), in_place=False)
    seen = []

    def freeze(state: gv.State) -> None:
        seen.append(state.step_state["model_state"]["0.weight"].clone())
        if state.iteration == 4:  # the first of this run
            state.step_state["model_state"].freeze("0")

    loop.handle_event("iteration_started", freeze)
    after_one = trained_apart(loop)[0].weight.clone()
    loop.run(data(), in_place=False)
    assert all(torch.equal(after_one, weight) for weight in [*seen, trained_apart(loop)[0].weight])
    assert all(p.requires_grad for p in model.parameters())
    assert not trained_apart(loop)[0].weight.requires_grad
    assert loop.history.events.to_numpy().tolist() == [
        [4, "frozen", "0.weight", "handler"],
        [4, "frozen", "0.bias", "handler"],
    ]
    trained_apart(loop).requires_grad_(True)  # between runs the copy is the one to speak to
    loop.run(data(), in_place=False)
    assert loop.history.wide("state")["0.weight"].tolist() == ["ok"] * 4 + ["frozen"] * 4 + ["ok"] * 4
    assert not torch.equal(trained_apart(loop)[0].weight, after_one)


def test_an_earlier_run_s_state_holds_the_copy_during_and_after_a_later_run():
    loop = gv.trainer(net(), "cross_entropy", "sgd")
    earlier = loop.run(data(), in_place=False).step_state
    copied, during = earlier["model_state"], []
    loop.handle_event("started", lambda state: during.append(earlier["model_state"]))
    loop.run(data(), in_place=False)
    assert during == [copied]
    assert earlier["model_state"].module is copied.module is trained_apart(loop)


def test_an_objective_that_reads_the_model_itself_reads_what_is_trained():
    model = nn.Linear(4, 3)

    def objective(forward, model_state, inputs, targets):
        output = forward(model_state, inputs)
        assert torch.equal(model.weight, model_state["weight"])
        return nn.functional.cross_entropy(output.prediction, targets) + model.weight.square().sum(), output

    loop = gv.trainer(model, objective, "sgd")
    loop.run(data(), in_place=False)
    norm = trained_apart(loop).weight.norm()
    assert norm < model.weight.norm()


def test_validations_look_at_what_is_trained():
    model = net()
    loop = gv.trainer(model, "cross_entropy", "adam").metric("accuracy").validate(data())
    state = loop.run(data(), epochs=2, in_place=False)
    evaluated = gv.evaluator(trained_apart(loop), "cross_entropy").metric("accuracy").run(data())
    assert state.metrics["validation_loss"] == evaluated.metrics["loss"]
    assert state.metrics["validation_accuracy"] == evaluated.metrics["accuracy"]
    assert gv.evaluator(model, "cross_entropy").run(data()).metrics["loss"] != evaluated.metrics["loss"]


def test_an_optimizer_over_the_model_is_refused_with_the_factory_to_write():
    model = net()
    loop = gv.trainer(model, "cross_entropy", torch.optim.AdamW(model.parameters()))
    before = looked_at(model)
    with pytest.raises(OptimizerError, match=r"functools\.partial\(torch\.optim\.AdamW, \.\.\.\)"):
        loop.run(data(), in_place=False)
    assert same(before, looked_at(model))
    assert loop.state.status == "idle"


def test_a_loop_that_trained_apart_does_not_go_on_in_place():
    loop = gv.trainer(net(), "cross_entropy", "adam")
    loop.run(data(), in_place=False)
    with pytest.raises(ModelError, match=r"Go on with run\(in_place=False\)"):
        loop.run(data())
    assert loop.run(data(), in_place=False).iteration == 8


def test_a_first_batch_that_does_not_pass_decides_nothing():
    model = net()
    loop = gv.trainer(model, "cross_entropy", "adam")
    before = looked_at(model)
    with pytest.raises(DataError):
        loop.run([torch.ones(2, 4)], in_place=False)
    assert same(before, looked_at(model))
    assert loop.run(data()).iteration == 4
    assert not same(before, looked_at(model))


def test_a_loop_that_trained_in_place_may_go_on_apart():
    model, whole = net(), net()
    torch.manual_seed(2)
    loop = gv.trainer(model, "cross_entropy", "adam")
    loop.run(data())
    before = looked_at(model)
    loop.run(data(), in_place=False)
    assert same(before, looked_at(model))
    torch.manual_seed(2)
    gv.trainer(whole, "cross_entropy", "adam").run(data(), epochs=2)
    assert_equal_to_the_bit(trained_apart(loop), whole)


def test_a_model_that_cannot_be_copied_is_refused_with_the_line_to_write():
    model = nn.Linear(4, 3)
    model.seen = model(torch.ones(1, 4))  # a tensor with a graph
    with pytest.raises(ModelError, match=r"this Linear cannot be copied.*Write run\(in_place=True\)"):
        gv.trainer(model, "cross_entropy", "sgd").run(data(), in_place=False)


def test_a_layer_that_a_handler_adds_is_kept_apart_and_the_next_run_says_what_changed():
    model = net()

    def add(state: gv.State) -> None:
        if state.iteration == 1:
            model.append(nn.Linear(3, 3))

    loop = gv.trainer(model, "cross_entropy", "sgd", strict=False).handle_event("iteration_completed", add)
    before = looked_at(model)
    loop.run(data(), in_place=False)
    assert same(before, looked_at(model))
    assert len(model) == 5
    assert len(trained_apart(loop)) == 6
    with pytest.raises(ModelError, match=r"'5.bias' has joined or left since"):
        loop.run(data(), in_place=False)
    assert same(before, looked_at(model))


@pytest.mark.parametrize("in_between", [lambda model: model.double(), lambda model: model.half()])
def test_a_model_converted_between_runs_keeps_its_dtype_and_the_training_its_own(in_between):
    model = nn.Linear(4, 3)
    whole = copy.deepcopy(model)
    loop = gv.trainer(model, "cross_entropy", "adam")
    loop.run(data(), in_place=False)
    in_between(model)
    before = looked_at(model)
    loop.run(data(), in_place=False)
    assert same(before, looked_at(model))
    gv.trainer(whole, "cross_entropy", "adam").run(data(), epochs=2)
    assert_equal_to_the_bit(trained_apart(loop), whole)


def test_tied_lstm_and_parametrized_models_train_apart_as_in_place():
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))
            self.second = nn.Linear(4, 4, bias=False)
            self.third = nn.Linear(4, 4)
            self.third.weight = self.second.weight
            self.lstm = nn.LSTM(4, 3, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.lstm(self.third(self.second(self.first(x))).unsqueeze(1))[0].squeeze(1)

    torch.manual_seed(0)
    model = Odd()
    whole = copy.deepcopy(model)
    before = looked_at(model)
    loop = gv.trainer(model, "cross_entropy", "adam")
    for _ in range(2):
        loop.run(data(), in_place=False)
        assert same(before, looked_at(model))
    gv.trainer(whole, "cross_entropy", "adam").run(data(), epochs=2)
    assert_equal_to_the_bit(trained_apart(loop), whole)
    assert trained_apart(loop).third.weight is trained_apart(loop).second.weight


def test_a_freeze_of_the_user_s_model_between_two_runs_holds_in_what_is_trained_apart():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, affine=False), nn.Linear(4, 2))
    data = [(torch.randn(8, 3), torch.randint(0, 2, (8,))) for _ in range(3)]
    loop = gv.trainer(model, "cross_entropy", "sgd")
    state = loop.run(data, in_place=False, display=None)
    gv.ModelState(model).freeze("0", "1")
    before = copy.deepcopy(state.step_state["model_state"].module.state_dict())
    state = loop.run(data, in_place=False, display=None)
    after = copy.deepcopy(state.step_state["model_state"].module.state_dict())
    moved = [name for name, value in after.items() if not torch.equal(value, before[name])]
    assert moved == ["2.weight", "2.bias"]
    assert loop.history.events["parameter"].tolist()[:2] == ["0.weight", "0.bias"]
    gv.ModelState(model).unfreeze()
    state = loop.run(data, in_place=False, display=None)
    assert not torch.equal(state.step_state["model_state"]["0.weight"], after["0.weight"])


def test_a_module_without_parameters_that_a_handler_adds_leaves_the_user_s_model_as_it_was():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 2))
    before = copy.deepcopy(model.state_dict())
    loop = gv.trainer(model, "cross_entropy", "sgd")
    loop.handle_event("started", lambda state: setattr(model, "probe", nn.Identity()))
    state = loop.run([(torch.randn(4, 3), torch.randint(0, 2, (4,)))] * 2, in_place=False, display=None)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not torch.equal(state.step_state["model_state"]["0.weight"], before["0.weight"])
