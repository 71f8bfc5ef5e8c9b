"""One step is plain torch's step to the bit, and init moves nothing."""

from __future__ import annotations

import copy
import random
import re
import warnings
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import gradviz as gv
from gradviz.errors import (
    DataError,
    LossError,
    LossScaleError,
    LossScaleWarning,
    NoSuchFieldError,
    NothingReachedError,
    OptimizerError,
    PolicyError,
    StateTypeError,
    UnknownKeywordError,
)
from gradviz.step.train_step import train_step
from tests.step.nets import Seen, one_weight


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 2))


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    return torch.randn(16, 3), torch.randint(0, 2, (16,))


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
    streams = torch.get_rng_state(), random.getstate(), str(np.random.get_state())
    step = train_step(model, "cross_entropy", "adam", keep_gradients=True)
    state = step.init(data)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model.calls == 0
    assert not hasattr(model, "last")
    assert torch.equal(streams[0], torch.get_rng_state())
    assert streams[1:] == (random.getstate(), str(np.random.get_state()))
    assert all(p.grad is None for p in model.parameters())
    assert len(step.optimizer.state) == 0
    assert state.loss == 0
    assert state.y_pred.shape == (16, 2)
    assert all(
        g.count_nonzero() == 0 and g.shape == p.shape
        for g, p in zip(state.gradients.values(), model.parameters(), strict=True)
    )


def test_a_state_without_gradients_says_how_to_keep_them():
    model, data = one_weight(1.0)
    step = train_step(model, "mean_squared_error", "sgd")
    with pytest.raises(NoSuchFieldError, match="Pass keep_gradients=True"):
        _ = step.init(data).gradients


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
    model, data = one_weight(0.8)
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


def test_keys_a_handler_put_into_the_state_are_kept():
    model, data = one_weight(0.8)
    step = train_step(model, "mean_squared_error", "sgd")
    state = step.init(data)
    state["least"] = 1.5
    assert step(data, state).least == 1.5


@pytest.mark.parametrize("detached", [True, False])
def test_re_entrant_checkpointing_goes_through_backward(detached):
    class Blocks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.inner, self.last = nn.Linear(3, 4), nn.Linear(4, 4), nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            hidden = self.first(x)
            hidden = hidden.detach().requires_grad_() if detached else hidden
            return self.last(checkpoint(self.inner, hidden, use_reentrant=True))

    torch.manual_seed(0)
    ours, (x, y) = Blocks(), batch()
    theirs = copy.deepcopy(ours)
    step = train_step(ours, "cross_entropy", "adam", keep_gradients=True)
    state = step.init((x, y))
    optimizer = torch.optim.Adam(theirs.parameters())
    for _ in range(3):
        state = step((x, y), state)
        optimizer.zero_grad()
        F.cross_entropy(theirs(x), y).backward()
        for name, p in theirs.named_parameters():
            assert p.grad is None if name in state.gradients.unused else torch.equal(p.grad, state.gradients[name])
        optimizer.step()
    assert state.gradients.unused == (("first.weight", "first.bias") if detached else ())
    assert all(map(torch.equal, ours.parameters(), theirs.parameters()))


class Late(nn.Module):
    """Begins to use re-entrant checkpointing when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.inner, self.saves = nn.Linear(3, 4), nn.Linear(4, 2), False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = checkpoint(self.first, x.requires_grad_(), use_reentrant=True) if self.saves else self.first(x)
        return self.inner(hidden)


def test_re_entrant_checkpointing_that_begins_later_hides_nothing_from_a_whole_backward():
    ours, data = Late(), batch()
    theirs = copy.deepcopy(ours)
    theirs.saves = True
    step = train_step(ours, "cross_entropy", "sgd", keep_gradients=True)
    state = step.init(data)
    ours.saves = True
    state = step(data, state)
    assert data[0].grad is None
    F.cross_entropy(theirs(data[0].detach()), data[1]).backward()
    assert all(map(torch.equal, state.gradients.values(), [p.grad for p in theirs.parameters()]))


def test_re_entrant_checkpointing_that_begins_later_under_an_objective_is_named():
    def objective(forward, model_state, inputs, targets):
        output = forward(model_state, inputs)
        return F.cross_entropy(output.prediction, targets), output

    model, data = Late(), batch()
    step = train_step(model, objective, "sgd")
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


def test_what_torch_says_of_a_batch_comes_with_its_shapes():
    with pytest.raises(RuntimeError) as error:
        train_step(net(), "cross_entropy", "sgd").init((torch.zeros(4, 7), torch.zeros(4, dtype=torch.int64)))
    assert "before anything moved" in error.value.__notes__[-1]
    assert "inputs (4, 7) float32; targets (4,) int64" in error.value.__notes__[-1]


def test_a_step_state_prints_briefly():
    model, data = one_weight(0.8)
    step = train_step(model, "mean_squared_error", "sgd")
    printed = repr(step(data, step.init(data)))
    assert "y_pred: a tensor of shape (2, 1), float32" in printed
    assert "loss: tensor(1.6000)" in printed
    assert "OptimizerState of SGD" in printed


# Loss scales -----------------------------------------------------------------------------------------------------


class Overflowing(nn.Module):
    """A half-precision model whose loss overflows as soon as it is scaled."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(1, 1, bias=False, dtype=torch.float16)
        nn.init.ones_(self.linear.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)


def in_float16(prediction: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return (prediction * 2).sum()


@pytest.mark.case("L06")
def test_the_scale_has_a_floor_and_says_so_once_with_the_layer_that_went_first():
    class Infinite(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(2, 2), nn.Linear(2, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(self.first(x)) * float("inf")

    model = Infinite()
    before = copy.deepcopy(model.state_dict())
    step = train_step(model, lambda p, t: p.sum(), "adam", loss_scale=gv.LossScale.dynamic(4.0, minimum=1))
    batch, used = (torch.ones(3, 2), torch.zeros(3)), []
    state = step.init(batch)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(6):
            state = step(batch, state)
            used.append(step.report.loss_scale)
            assert step.report.skipped
    (warning,) = said
    assert warning.category is LossScaleWarning
    words = r"3 steps in a row.*iteration 2.*first that of 'last.bias'.*stays at 1"
    assert re.search(words, str(warning.message))
    assert used == [4, 2, 1, 1, 1, 1]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not step.optimizer.state


@pytest.mark.case("L06")
def test_a_half_loss_that_overflows_when_scaled_brings_the_scale_down_until_steps_are_taken():
    model = Overflowing()
    step = train_step(model, in_float16, partial(torch.optim.SGD, lr=0.01), loss_scale=gv.LossScale.dynamic(2**17))
    batch = torch.ones(1, 1, dtype=torch.float16), torch.zeros(1)
    state, seen = step.init(batch), []
    for _ in range(5):
        state = step(batch, state)
        seen.append((step.report.loss_scale, step.report.skipped))
    assert seen == [(2**17, True), (2**16, True), (2**15, True), (2**14, False), (2**14, False)]
    assert state.loss_scale_state["loss_scale"] == 2**14
    assert model.linear.weight.item() < 1


def test_an_overflow_leaves_parameters_and_moments_and_the_next_step_is_as_ever():
    def run(skip_one: bool) -> nn.Module:
        model, data = net(), batch()
        step = train_step(model, F.cross_entropy, "adam", loss_scale="static")
        state = step.init(data)
        torch.manual_seed(3)
        for i in range(4):
            if skip_one and i == 2:
                stream, buffers = torch.get_rng_state(), copy.deepcopy(dict(model.named_buffers()))
                bad = torch.full_like(data[0], float("nan")), data[1]
                moments = copy.deepcopy(step.optimizer.state_dict())
                values = [p.clone() for p in model.parameters()]
                state = step(bad, state)
                assert step.report.skipped
                assert all(map(torch.equal, values, model.parameters()))
                kept = step.optimizer.state_dict()["state"]
                assert all(
                    torch.equal(value, moments["state"][place][name])
                    for place, entry in kept.items()
                    for name, value in entry.items()
                )
                for name, value in buffers.items():  # batch norm moved, as in plain torch
                    model.get_buffer(name).copy_(value)
                torch.set_rng_state(stream)
            state = step(data, state)
        return model

    assert all(map(torch.equal, run(False).parameters(), run(True).parameters()))


def test_under_identity_a_step_that_is_not_finite_is_taken_as_plain_torch_does():
    model, data = one_weight(0.8)
    step = train_step(model, "mean_squared_error", "sgd")
    state = step((data[0] * float("inf"), data[1]), step.init(data))
    assert not step.report.skipped
    assert step.report.loss_scale == 1
    assert model.weight.isnan().all() or model.weight.isinf().all()
    assert state.loss.isnan() or state.loss.isinf()


# Freezing --------------------------------------------------------------------------------------------------------


def trained(*, frozen_at: int | None, steps: int = 6, how=lambda model: None) -> tuple[nn.Module, list[torch.Tensor]]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    step = train_step(
        model, "cross_entropy", partial(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=0.1), keep_gradients=True
    )
    state, norms = step.init(batch()), []
    for i in range(steps):
        if i == frozen_at:
            how(model)
        state = step(batch(), state)
        norms.append(state.gradients.norm())
    return model, norms


@pytest.mark.case("L12")
@pytest.mark.parametrize(
    "how",
    [
        lambda model: gv.ModelState(model).freeze("0.*", "1"),
        lambda model: [p.requires_grad_(False) for p in (*model[0].parameters(), *model[1].parameters())],
    ],
)
def test_what_is_frozen_on_the_way_stays_to_the_bit_with_its_statistics(how):
    at = {}

    def freeze(model: nn.Module) -> None:
        how(model)
        at.update(copy.deepcopy(model.state_dict()))

    model, norms = trained(frozen_at=2, how=freeze)
    for name, value in model.state_dict().items():
        assert torch.equal(value, at[name]) == (not name.startswith("3.")), name
    free, free_norms = trained(frozen_at=None)
    assert not torch.equal(free[0].weight, model[0].weight)
    assert norms[1] == free_norms[1]
    assert norms[2] < free_norms[2]  # the frozen part is not in the total norm


@pytest.mark.case("L12")
def test_momentum_and_decay_do_move_what_has_a_gradient_of_zero_and_not_what_has_none():
    p, q = (nn.Parameter(torch.ones(1)) for _ in range(2))
    optimizer = torch.optim.SGD([p, q], lr=0.1, momentum=0.9, weight_decay=0.1)
    for gradient in (torch.ones(1), torch.zeros(1)):
        p.grad, q.grad = gradient.clone(), gradient.clone() if gradient else None
        optimizer.step()
    assert p.item() < q.item() == pytest.approx(0.89)


def test_unfreezing_goes_on_and_what_the_optimizer_did_not_hold_joins_its_first_group():
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    state_of = gv.ModelState(model)
    state_of.freeze("0")
    step = train_step(model, "cross_entropy", torch.optim.SGD(model[2].parameters(), lr=0.1), keep_gradients=True)
    before = model[0].weight.clone()
    state = step(batch(), step.init(batch()))
    assert step.optimized() == {"2.weight", "2.bias"}
    assert torch.equal(model[0].weight, before)
    state_of.unfreeze("0")
    state = step(batch(), state)
    assert step.report.unfrozen == ("0.weight", "0.bias")
    assert step.optimized() == {"0.weight", "0.bias", "2.weight", "2.bias"}
    assert not torch.equal(model[0].weight, before)
    assert list(state.gradients) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    step(batch(), state)
    assert step.report.unfrozen == step.report.frozen == ()


@pytest.mark.case("L15")
def test_a_parameter_in_no_group_or_one_without_a_rate_is_not_optimized():
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2), nn.Linear(2, 2))
    groups = [{"params": model[0].parameters()}, {"params": model[2].parameters(), "lr": 0.0}]
    step = train_step(model, "cross_entropy", torch.optim.SGD(groups, lr=0.1))
    state = step(batch(), step.init(batch()))
    optimized = step.optimized()
    assert optimized == {"0.weight", "0.bias"}
    assert step.optimized() is optimized
    step.optimizer.param_groups[1]["lr"] = 0.1
    step(batch(), state)
    assert step.optimized() == {"0.weight", "0.bias", "2.weight", "2.bias"}


# 16-bit parameters -----------------------------------------------------------------------------------------------


def test_an_optimizer_over_16_bit_parameters_is_refused_with_the_factory_to_write():
    model = nn.Linear(3, 2).half()
    with pytest.raises(OptimizerError, match=r"functools\.partial\(torch\.optim\.AdamW, lr=0.01\)"):
        train_step(model, "cross_entropy", torch.optim.AdamW(model.parameters(), lr=0.01))


def test_a_policy_leaves_the_model_alone_when_the_step_cannot_be_made():
    model = nn.Linear(3, 2)
    with pytest.raises(OptimizerError):
        train_step(
            model, "cross_entropy", torch.optim.SGD(model.parameters(), lr=0.1), policy=gv.Policy(params="float16")
        )
    assert model.weight.dtype == torch.float32


def test_masters_are_taken_from_the_values_before_rounding():
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, 0.1)
    step = train_step(model, "mean_squared_error", "sgd", policy=gv.Policy(params="bfloat16"))
    assert model.weight.item() == pytest.approx(0.1001, abs=1e-4)
    assert step.masters.of(model.weight).item() == pytest.approx(0.1, abs=1e-8)


# Inputs ----------------------------------------------------------------------------------------------------------


@pytest.mark.case("L16")
def test_byte_inputs_are_refused_up_front_and_byte_targets_count_as_numbers():
    model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
    x, y = (
        torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]], dtype=torch.uint8),
        torch.tensor([[0], [1], [1], [0]], dtype=torch.uint8),
    )
    step = train_step(model, "mean_squared_error", "adam", keep_gradients=True)
    with pytest.raises(RuntimeError) as error:
        step.init((x, y))
    assert "Inputs of uint8 are never cast" in error.value.__notes__[-1]
    assert "inputs.float()" in error.value.__notes__[-1]
    floats = train_step(copy.deepcopy(model), "mean_squared_error", "adam", keep_gradients=True)
    states = [
        one((x.float(), target), one.init((x.float(), target))) for one, target in ((step, y), (floats, y.float()))
    ]
    assert states[0].loss == states[1].loss
    assert all(map(torch.equal, states[0].gradients.values(), states[1].gradients.values()))


# Optimizers that evaluate the loss themselves --------------------------------------------------------------------


def test_lbfgs_steps_are_plain_torch_s_and_count_once():
    torch.manual_seed(0)
    ours = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 2))
    theirs, (x, y) = copy.deepcopy(ours), batch()
    calls = []
    step = train_step(
        ours,
        lambda p, t: calls.append(1) or F.cross_entropy(p, t),
        partial(torch.optim.LBFGS, lr=0.5, max_iter=4),
        keep_gradients=True,
    )
    state = step.init((x, y))
    assert len(calls) == 1  # one evaluation in init
    optimizer, shown = torch.optim.LBFGS(theirs.parameters(), lr=0.5, max_iter=4), []
    step.observer = Seen(lambda stage, gradient: shown.append(gradient.norm()))
    for _ in range(3):

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = F.cross_entropy(theirs(x), y)
            loss.backward()
            return loss

        first = F.cross_entropy(copy.deepcopy(theirs)(x), y)
        optimizer.step(closure)
        state = step((x, y), state)
        assert state.loss == first.detach()
    assert all(map(torch.equal, ours.parameters(), theirs.parameters()))
    assert all(map(torch.equal, ours.buffers(), theirs.buffers()))
    assert len(shown) == 3
    assert state.i == 3
    assert state["optimizer_state"]["0.weight"]["n_iter"] > 0


def test_lbfgs_moves_nothing_that_is_frozen_on_the_way():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    step = train_step(model, "cross_entropy", partial(torch.optim.LBFGS, lr=0.5, max_iter=3))
    state = step.init(batch())
    for _ in range(3):
        state = step(batch(), state)
    gv.ModelState(model).freeze("0")
    before = copy.deepcopy(model.state_dict())
    step(batch(), state)
    assert [name for name, value in model.state_dict().items() if not torch.equal(value, before[name])] == [
        "2.weight",
        "2.bias",
    ]


def test_lbfgs_under_a_loss_scale_is_refused_with_the_reason():
    with pytest.raises(OptimizerError, match=r'several times in a step.*loss_scale="identity"'):
        train_step(net(), "cross_entropy", torch.optim.LBFGS, loss_scale="dynamic")


# Randomness ------------------------------------------------------------------------------------------------------


def test_a_seed_gives_the_step_a_stream_of_its_own():
    def run(disturb: bool) -> nn.Module:
        model, data = net(), batch()
        step = train_step(model, "cross_entropy", "sgd", seed=3)
        state = step.init(data)
        for _ in range(3):
            if disturb:
                torch.rand(5)
            stream = torch.get_rng_state()
            state = step(data, state)
            assert torch.equal(stream, torch.get_rng_state())
        return model

    assert all(map(torch.equal, run(False).parameters(), run(True).parameters()))


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "2", None])
def test_accumulate_is_a_whole_number(value):
    with pytest.raises(ValueError, match="accumulate is a whole number from 1 on"):
        train_step(net(), "cross_entropy", "sgd", accumulate=value)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"policy": "float16"}, PolicyError, r"got 'float16'. Write gv.Policy\(compute=torch.bfloat16\)"),
        ({"policy": torch.float16}, PolicyError, "got torch.float16"),
        ({"policy": gv.Policy}, PolicyError, "got the class Policy"),
        ({"policy": {}}, PolicyError, "got a dict"),
        ({"seed": "a"}, ValueError, "seed is a whole number of 64 bits; got 'a'"),
        ({"seed": 2**70}, ValueError, "seed is a whole number"),
        ({"seed": True}, ValueError, "seed is a whole number"),
        ({"strict": "no"}, ValueError, "strict is True or False; got 'no'"),
        ({"keep_gradients": 1}, ValueError, "keep_gradients is True or False"),
        ({"loss_scale": 2**15}, LossScaleError, "LossScale"),
        ({"clip": "norm"}, OptimizerError, "clip=1.0"),
    ],
)
def test_an_option_of_another_type_is_refused_when_the_step_is_made(options, error, words):
    with pytest.raises(error, match=words):
        train_step(net(), "cross_entropy", "sgd", **options)


def test_a_state_that_is_none_says_where_one_comes_from():
    step = train_step(net(), "cross_entropy", "sgd")
    with pytest.raises(StateTypeError, match=r"state = step\.init\(batch\)"):
        step(batch(), {})


def test_it_works_inside_inference_mode():
    model, data = net(), batch()
    step = train_step(model, "cross_entropy", "sgd")
    with torch.inference_mode():
        made_there = data[0] * 1.0
        state = step.init((made_there, data[1]))
        before = model[0].weight.clone()
        step((made_there, data[1]), state)
        assert not torch.equal(before, model[0].weight)


def test_a_model_that_becomes_16_bit_on_the_way_is_refused_with_the_order_to_keep():
    for how in ("sgd", "adam"):
        loop = gv.trainer(nn.Linear(3, 2), "cross_entropy", how)
        loop.run([batch()], display=None)
        loop._step.model.half()
        with pytest.raises(OptimizerError, match=r"weight is float16 now.*Convert the model first"):
            loop.run([(batch()[0].half(), batch()[1])], display=None)


def test_lbfgs_takes_in_no_parameter_on_the_way():
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    gv.ModelState(model).freeze("0")
    step = train_step(model, "cross_entropy", torch.optim.LBFGS(model[2].parameters()))
    state = step(batch(), step.init(batch()))
    gv.ModelState(model).unfreeze("0")
    with pytest.raises(OptimizerError, match=r"'0\.weight' was unfrozen, and LBFGS cannot take it in"):
        step(batch(), state)


def test_what_joins_an_optimizer_of_named_parameters_has_its_name_there():
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    gv.ModelState(model).freeze("0")
    step = train_step(model, "cross_entropy", torch.optim.SGD(model[2].named_parameters(), lr=0.1))
    state = step(batch(), step.init(batch()))
    gv.ModelState(model).unfreeze("0")
    step(batch(), state)
    group = step.optimizer.param_groups[0]
    assert len(group["params"]) == len(group["param_names"]) == 4


def test_what_an_objective_freezes_in_the_trial_is_as_it_was():
    model = net()

    def freezes(forward, model_state, inputs, targets):
        output = forward(model_state, inputs)
        model[0].requires_grad_(False)
        return F.cross_entropy(output.prediction, targets), output

    with pytest.raises(RuntimeError):
        train_step(model, freezes, "sgd").init(batch())
    assert all(p.requires_grad for p in model.parameters())


def test_a_float16_loss_that_its_scale_makes_infinite_is_told_how_to_be_wide():
    model = Overflowing()
    step = train_step(model, in_float16, "sgd", loss_scale=gv.LossScale.static(2**17))
    data = torch.ones(1, 1, dtype=torch.float16), torch.zeros(1)
    state = step(data, step.init(data))
    with pytest.warns(LossScaleWarning, match=r"write Policy\(output='float32'\)"):
        step(data, state)


@pytest.mark.parametrize("when", ["iteration_completed", "epoch_completed"])
def test_a_handler_that_sets_the_flags_of_the_whole_model_does_not_wake_what_is_frozen(when):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)), nn.Linear(4, 2))
    gv.ModelState(model).freeze("0")
    before = model[0][1].running_mean.clone()

    def evaluate(state) -> None:
        model.eval()
        model.train()

    gv.trainer(model, "cross_entropy", "sgd").handle_event(when, evaluate).run([batch()] * 3, epochs=2, display=None)
    assert torch.equal(model[0][1].running_mean, before)


def test_a_parameter_that_was_replaced_is_named_instead_of_left_untrained():
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    loop = gv.trainer(model, "cross_entropy", "sgd")
    loop.run([batch()], display=None)
    model.load_state_dict(copy.deepcopy(model.state_dict()), assign=True)
    with pytest.raises(OptimizerError, match=r"'0\.weight' is another tensor than the one the SGD holds"):
        loop.run([batch()], display=None)


def test_a_head_that_was_replaced_and_given_to_the_optimizer_trains():
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    loop = gv.trainer(model, "cross_entropy", torch.optim.SGD(model.parameters(), lr=0.1))
    loop.run([batch()], display=None)
    model[1] = nn.Linear(4, 2)
    loop._step.optimizer.add_param_group({"params": model[1].parameters()})
    before = model[1].weight.clone()
    loop.run([batch()], display=None)
    assert not torch.equal(model[1].weight, before)


def test_lbfgs_leaves_a_kept_gradient_alone_too():
    model, data = net(), batch()
    step = train_step(model, "cross_entropy", partial(torch.optim.LBFGS, max_iter=1), keep_gradients=True)
    state = step(data, step.init(data))
    before = state.gradients.clone()
    step.optimizer.zero_grad(set_to_none=False)
    assert all(map(torch.equal, state.gradients.values(), before.values()))


def test_nesterov_over_many_tensors_writes_into_its_gradients_and_not_into_the_kept_ones():
    model, data = one_weight(0.8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True, foreach=True)
    step = train_step(model, "mean_squared_error", optimizer, keep_gradients=True)
    assert step(data, step.init(data)).gradients["weight"].item() == pytest.approx(4)


class Begun(torch.optim.Optimizer):
    """An optimizer that begins its state when it is made, and adds to it in a step."""

    def __init__(self, params) -> None:
        super().__init__(params, {"lr": 0.1})
        for p in self.param_groups[0]["params"]:
            self.state[p]["first"] = torch.ones(1)

    @torch.no_grad()
    def step(self, closure=None) -> None:
        for p in self.param_groups[0]["params"]:
            p.sub_(0.1 * self.state[p].setdefault("m", torch.zeros_like(p)).add_(p.grad))


def test_a_state_that_an_optimizer_has_begun_holds_over_a_skipped_step():
    model, good = one_weight(0.8)
    step = train_step(model, "mean_squared_error", Begun, loss_scale="dynamic")
    state, keys = step.init(good), []
    for batch in ((good[0] * float("inf"), good[1]), good, good):
        keys.append(list(state.optimizer_state["weight"]))
        state = step(batch, state)
    assert keys == [["first", "m"]] * 3
    assert not step.report.skipped


def test_weights_initialised_through_data_before_the_first_step_are_taken_over_in_16_bits():
    model = nn.Linear(3, 2)
    step = train_step(model, "cross_entropy", partial(torch.optim.SGD, lr=1e-4), policy=gv.Policy(params="bfloat16"))
    model.weight.data.fill_(5.0)
    step(batch(), step.init(batch()))
    assert model.weight.float().mean().item() == pytest.approx(5, abs=0.05)


@pytest.mark.parametrize("policy", [None, gv.Policy(params="bfloat16"), gv.Policy(compute="bfloat16")])
def test_what_a_forward_pass_writes_into_its_parameters_stays(policy):
    class Bounded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.table = nn.Linear(3, 2), nn.Embedding(5, 3, max_norm=0.5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                self.linear.weight.clamp_(-0.05, 0.05)
            return self.linear(x + self.table(torch.arange(5)).mean(0))

    torch.manual_seed(0)
    model = Bounded()
    step = train_step(model, "cross_entropy", partial(torch.optim.SGD, lr=1e-4), policy=policy)
    state = step.init(batch())
    for _ in range(3):
        state = step(batch(), state)
    assert model.linear.weight.abs().max() < 0.052
    assert model.table.weight.float().norm(dim=1).max() < 0.52


def test_what_has_left_the_model_is_not_moved_by_its_last_gradient():
    class Heads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(3, 2), nn.Linear(3, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return sum(head(x) for head in self.children())

    model = Heads()
    head = model.two
    step = train_step(model, "cross_entropy", torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    state = step(batch(), step.init(batch()))
    del model.two
    before = copy.deepcopy(head.state_dict())
    for _ in range(2):
        state = step(batch(), state)
    assert all(torch.equal(value, before[name]) for name, value in head.state_dict().items())


def test_types_are_held_however_many_models_are_in_use():
    steps = [train_step(net(), "cross_entropy", "sgd") for _ in range(6)]
    states = [step.init(batch()) for step in steps]
    for _ in range(2):
        states = [step(batch(), state) for step, state in zip(steps, states, strict=True)]
    steps[0].model[1].num_batches_tracked = torch.tensor(0, dtype=torch.int32)
    with pytest.raises(StateTypeError, match=r"1\.num_batches_tracked'\] became int32"):
        steps[0](batch(), states[0])


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
def test_a_registered_sparse_buffer_is_no_hindrance():
    for layout in (torch.Tensor.to_sparse, torch.Tensor.to_sparse_csr):

        class Graph(nn.Module):
            def __init__(self, layout=layout) -> None:
                super().__init__()
                self.linear = nn.Linear(3, 2)
                self.register_buffer("adjacency", layout(torch.eye(16)))

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return self.adjacency @ self.linear(x)

        def objective(forward, model_state, inputs, targets):
            outputs = forward(model_state, inputs), forward(model_state, inputs)
            return F.cross_entropy(outputs[1].prediction, targets), outputs[1]

        for loss in ("cross_entropy", objective):
            step = train_step(Graph(), loss, "sgd")
            assert step(batch(), step.init(batch())).loss.isfinite()


class Falling(gv.LossScale):
    """A loss scale of one's own that halves at every step."""

    def init(self):
        return {"scale": torch.tensor(1024.0)}

    def scale(self, value, state):
        return value * state["scale"]

    def unscaled(self, gradients, state, finite):
        return gradients / state["scale"], {"scale": state["scale"] / 2}


def test_a_loss_scale_derived_from_ours_goes_its_own_way():
    model, data = one_weight(0.8)
    step = train_step(model, "mean_squared_error", "sgd", loss_scale=Falling(), keep_gradients=True)
    state, used = step.init(data), []
    for _ in range(3):
        state = step(data, state)
        used.append(step.report.loss_scale)
    assert used == [1024, 512, 256]
    assert state.gradients["weight"].item() == pytest.approx(5 * 0.8, rel=0.1)


def test_a_part_put_into_eval_mode_on_the_way_stays_there_over_a_freeze():
    model, data = net(), batch()
    step = train_step(model, "cross_entropy", "sgd")
    state = step.init(data)
    with step.training():
        state = step(data, state)
        model[1].eval()
        gv.ModelState(model).freeze("0")
        before = model[1].running_mean.clone()
        step(data, state)
        assert not model[1].training
    assert torch.equal(model[1].running_mean, before)


def test_a_step_with_a_stream_of_its_own_can_be_copied():
    step = train_step(net(), "cross_entropy", "sgd", seed=3)
    state = step(batch(), step.init(batch()))
    twin = copy.deepcopy((step, state))
    a, b = step(batch(), state), twin[0](batch(), twin[1])
    assert a.loss == b.loss
