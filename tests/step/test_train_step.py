"""One step is plain torch's step to the bit, and init moves nothing."""

from __future__ import annotations

import copy
import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from gradviz.errors import DataError, LossError, ModelError, NoSuchFieldError, NothingReachedError, UnknownKeywordError
from gradviz.step.train_step import train_step


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 2))


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    return torch.randn(16, 3), torch.randint(0, 2, (16,))


def linear_case(weight: float) -> tuple[nn.Linear, tuple[torch.Tensor, torch.Tensor]]:
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, weight)
    return model, (torch.tensor([[1.0], [2.0]]), torch.zeros(2, 1))


@pytest.mark.parametrize(
    ("weight", "loss", "gradient", "after"), [(0.8, 1.6, 4, 0.4), (-0.5, 0.625, -2.5, -0.25), (2, 10, 10, 1)]
)
def test_one_weight_by_hand(weight, loss, gradient, after):
    model, data = linear_case(weight)
    step = train_step(model, "mean_squared_error", torch.optim.SGD(model.parameters(), lr=0.1), keep_gradients=True)
    state = step(data, step.init(data))
    assert state.loss.item() == pytest.approx(loss)
    assert state["gradients"]["weight"].item() == pytest.approx(gradient)
    assert model.weight.item() == pytest.approx(after)
    assert state.i == 1
    assert state.i.dtype == torch.int64


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw", "rmsprop", "nadam"])
def test_five_steps_equal_plain_torch_to_the_bit(name):
    ours, theirs = net(), net()
    data = batch()
    step = train_step(ours, F.cross_entropy, name)
    state = step.init(data)
    torch.manual_seed(5)
    for _ in range(5):
        state = step(data, state)
    optimizer = type(step.optimizer)(theirs.parameters())
    torch.manual_seed(5)
    for _ in range(5):
        optimizer.zero_grad()
        F.cross_entropy(theirs(data[0]), data[1]).backward()
        optimizer.step()
    for name, value in theirs.state_dict().items():
        assert torch.equal(value, ours.state_dict()[name]), name


def test_init_leaves_parameters_buffers_random_streams_and_attributes_as_they_were():
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.calls = net(), 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            self.last = random.random() + np.random.rand()
            return self.inner(x)

    model, data = Counting(), batch()
    before = copy.deepcopy(model.state_dict())
    streams = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    step = train_step(model, "cross_entropy", "adam", keep_gradients=True)
    state = step.init(data)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model.calls == 0
    assert not hasattr(model, "last")
    assert torch.equal(streams[0], torch.get_rng_state())
    assert streams[1:] == (random.getstate(), np.random.get_state()[1].tolist())
    assert all(p.grad is None for p in model.parameters())
    assert len(step.optimizer.state) == 0
    assert state.loss == 0
    assert state.y_pred.shape == (16, 2)
    assert all(
        g.count_nonzero() == 0 and g.shape == p.shape
        for g, p in zip(state.gradients.values(), model.parameters(), strict=True)
    )


def test_gradients_are_absent_unless_asked_for():
    model, data = linear_case(1.0)
    step = train_step(model, "mean_squared_error", "sgd")
    for state in (step.init(data), step(data, step.init(data))):
        assert "gradients" not in state
        with pytest.raises(NoSuchFieldError, match="Pass keep_gradients=True"):
            _ = state.gradients


def test_a_kept_gradient_is_not_rewritten_by_the_next_step():
    model, data = linear_case(0.8)
    step = train_step(model, "mean_squared_error", torch.optim.SGD(model.parameters(), lr=0.1), keep_gradients=True)
    first = step(data, step.init(data))
    step(data, first)
    assert first.gradients["weight"].item() == pytest.approx(4)


def test_unused_and_frozen_parameters_stay_to_the_bit_under_momentum_and_decay():
    class TwoHeads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head, self.spare = nn.Linear(3, 4), nn.Linear(4, 2), nn.Linear(4, 2)
            self.use_spare = True

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (self.spare if self.use_spare else self.head)(self.body(x))

    model = TwoHeads()
    step = train_step(
        model,
        "cross_entropy",
        torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1),
        keep_gradients=True,
    )
    state = step(batch(), step.init(batch()))  # the spare head gets momentum
    model.use_spare = False
    model.body.requires_grad_(False)
    before = copy.deepcopy(model.state_dict())
    state = step(batch(), state)
    after = model.state_dict()
    assert state.gradients.unused == ("spare.weight", "spare.bias")
    assert "body.weight" not in state.gradients
    assert [name for name in after if not torch.equal(after[name], before[name])] == ["head.weight", "head.bias"]


def test_gradients_outside_the_optimizer_s_step_are_the_user_s_own_business():
    model, data = linear_case(0.8)
    inputs = data[0].requires_grad_()
    step = train_step(model, "mean_squared_error", "sgd")
    step((inputs, data[1]), step.init((inputs, data[1])))
    assert inputs.grad is None


def test_it_works_inside_no_grad_and_leaves_eval_flags_alone():
    model, data = net().eval(), batch()
    step = train_step(model, "cross_entropy", "sgd")
    before = model[0].weight.clone()
    with torch.no_grad():
        step(data, step.init(data))
    assert not torch.equal(before, model[0].weight)
    assert not any(child.training for child in model.modules())
    assert model[1].num_batches_tracked == 1  # the step itself ran in training mode


def test_an_objective_with_a_penalty_is_differentiated_through_the_state():
    model, data = linear_case(0.8)

    def objective(forward, model_state, inputs, targets):
        output = forward(model_state, inputs)
        return F.mse_loss(output.prediction, targets) + model_state["weight"].square().sum(), output

    step = train_step(model, objective, "sgd", keep_gradients=True)
    state = step(data, step.init(data))
    assert state.gradients["weight"].item() == pytest.approx(4 + 1.6)


def test_keys_a_handler_put_into_the_state_are_kept():
    model, data = linear_case(0.8)
    step = train_step(model, "mean_squared_error", "sgd")
    state = step.init(data)
    state["least"] = 1.5
    assert step(data, state).least == 1.5


def test_re_entrant_checkpointing_is_named_instead_of_reported_as_unused():
    class Blocks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.inner, self.last = nn.Linear(3, 4), nn.Linear(4, 4), nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(checkpoint(self.inner, self.first(x).detach().requires_grad_(), use_reentrant=True))

    model = Blocks()
    with pytest.raises(NothingReachedError, match="use_reentrant=False"):
        train_step(model, "cross_entropy", "sgd").init(batch())
    assert all(p.grad is None for p in model.parameters())


def test_re_entrant_checkpointing_that_begins_later_is_named_too():
    class Late(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.inner, self.saves = nn.Linear(3, 4), nn.Linear(4, 2), False

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            hidden = checkpoint(self.first, x.requires_grad_(), use_reentrant=True) if self.saves else self.first(x)
            return self.inner(hidden)

    model, data = Late(), batch()
    step = train_step(model, "cross_entropy", "sgd")
    state = step(data, step.init(data))
    model.saves = True
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(NothingReachedError, match="use_reentrant=False"):
        step(data, state)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize(
    ("loss", "data", "error", "words"),
    [
        (nn.CrossEntropyLoss(reduction="none"), batch(), LossError, r"shape \(16,\); a scalar is wanted"),
        (lambda p, t: torch.tensor(1.0), batch(), LossError, "has no graph"),
        ("cross_entropy", batch()[0], DataError, r"tensor of shape \(16, 3\)"),
    ],
)
def test_bad_input_is_refused_before_anything_moves(loss, data, error, words):
    model = net()
    before, stream = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    with pytest.raises(error, match=words):
        train_step(model, loss, "sgd").init(data)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(stream, torch.get_rng_state())


def test_an_unknown_keyword_names_the_nearest():
    with pytest.raises(UnknownKeywordError, match="'keep_gradient': did you mean 'keep_gradients'"):
        train_step(net(), "cross_entropy", "sgd", keep_gradient=True)


class Added(nn.Module):
    """Two parameters whose gradient autograd hands out as one tensor, and one whose gradient has stride 0."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.a, self.b, self.c = (nn.Parameter(torch.ones(3)) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x + (self.a + self.b)) + self.c.sum()


@pytest.mark.parametrize("keep", [True, False])
def test_gradients_that_share_memory_are_the_optimizer_s_to_write_into(keep):
    def clipping(optimizer: torch.optim.Optimizer, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        optimizer.register_step_pre_hook(lambda *_: nn.utils.clip_grad_norm_(parameters, 0.1) and None)
        return optimizer

    torch.manual_seed(0)
    ours = Added()
    theirs, data = copy.deepcopy(ours), batch()
    step = train_step(
        ours,
        "cross_entropy",
        clipping(torch.optim.SGD(ours.parameters(), lr=0.1), list(ours.parameters())),
        keep_gradients=keep,
    )
    state = step(data, step.init(data))
    optimizer = clipping(torch.optim.SGD(theirs.parameters(), lr=0.1), list(theirs.parameters()))
    F.cross_entropy(theirs(data[0]), data[1]).backward()
    unclipped = [p.grad.clone() for p in theirs.parameters()]
    optimizer.step()
    assert all(map(torch.equal, ours.parameters(), theirs.parameters()))
    if keep:  # as it was before the optimizer's own hook
        assert all(map(torch.equal, state.gradients.values(), unclipped))


class Laid(nn.Module):
    """Gradients that lie in memory otherwise than their parameters do."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1).to(memory_format=torch.channels_last)
        self.weight = nn.Parameter(torch.randn(2, 64))
        self.shift = nn.Parameter(torch.zeros(2, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.conv(x.to(memory_format=torch.channels_last)).flatten(1)
        return torch.einsum("bi,oi->bo", hidden, self.weight) + self.shift.sum()


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad])
def test_fused_optimizers_read_the_right_memory(kind):
    torch.manual_seed(0)
    ours = Laid()
    theirs, x, y = copy.deepcopy(ours), torch.randn(8, 3, 4, 4), torch.randint(0, 2, (8,))
    step = train_step(ours, "cross_entropy", kind(ours.parameters(), lr=0.01, fused=True))
    optimizer = kind(theirs.parameters(), lr=0.01, fused=True)
    state = step.init((x, y))
    for _ in range(5):
        state = step((x, y), state)
        optimizer.zero_grad()
        F.cross_entropy(theirs(x), y).backward()
        optimizer.step()
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(p, q)


def test_autocast_around_the_run_trains_on_the_newest_weights():
    model, data = nn.Linear(3, 2), batch()
    step = train_step(model, "cross_entropy", torch.optim.SGD(model.parameters(), lr=0.5))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        state = step.init(data)
        losses = []
        for _ in range(30):
            state = step(data, state)
            losses.append(state.loss.item())
    assert losses[-1] < losses[0] - 0.02


def test_a_hook_that_would_never_fire_is_refused():
    model = nn.Linear(3, 2)
    model.weight.register_post_accumulate_grad_hook(lambda p: None)
    with pytest.raises(ModelError, match=r"parameter\.register_hook"):
        train_step(model, "cross_entropy", "sgd")


def test_what_torch_says_of_a_batch_comes_with_its_shapes():
    with pytest.raises(RuntimeError) as error:
        train_step(net(), "cross_entropy", "sgd").init((torch.zeros(4, 7), torch.zeros(4, dtype=torch.int64)))
    assert "before anything moved" in error.value.__notes__[-1]
    assert "inputs (4, 7) float32; targets (4,) int64" in error.value.__notes__[-1]


def test_a_step_state_prints_briefly():
    model, data = linear_case(0.8)
    step = train_step(model, "mean_squared_error", "sgd")
    printed = repr(step(data, step.init(data)))
    assert "y_pred: a tensor of shape (2, 1), float32" in printed
    assert "loss: tensor(1.6000)" in printed
    assert "OptimizerState of SGD" in printed
