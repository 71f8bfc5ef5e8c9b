"""A mode is an argument: its own random stream, and every flag and stream as before afterwards."""

from __future__ import annotations

import random
import threading

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import gradviz as gv
from gradviz.errors import FunctionError
from gradviz.grad.modes import Eval, Mode, Train

ONES = torch.ones(64)
DROP = nn.Dropout(0.5)


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2))


def flags(module: nn.Module) -> list[bool]:
    return [child.training for child in module.modules()]


def streams() -> tuple[bytes, object, list[int]]:
    return torch.get_rng_state().numpy().tobytes(), random.getstate(), str(np.random.get_state())


# One mode -------------------------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_mask_whatever_was_drawn_before():
    first = Train(seed=3)(DROP)(ONES)
    torch.manual_seed(99)
    torch.rand(7)
    assert torch.equal(Train(seed=3)(DROP)(ONES), first)
    assert set(first.tolist()) == {0.0, 2.0}


def test_different_seeds_give_different_masks():
    masks = {tuple(Train(seed=seed)(DROP)(ONES).tolist()) for seed in range(20)}
    assert len(masks) == 20


def test_one_mode_used_twice_gives_the_same_mask_twice():
    mode = Train(seed=3)
    assert torch.equal(mode(DROP)(ONES), mode(DROP)(ONES))


def test_two_layers_in_one_stretch_draw_one_after_the_other():
    with Train(seed=3).applied(DROP):
        first, second = DROP(ONES), DROP(ONES)
    assert not torch.equal(first, second)
    assert torch.equal(first, Train(seed=3)(DROP)(ONES))


@pytest.mark.parametrize("seed", [0, 2**63 - 1, -1, np.int64(5), torch.tensor(5)], ids=repr)
def test_any_whole_number_is_a_seed_as_in_a_step_counter(seed):
    assert torch.equal(Train(seed=seed)(DROP)(ONES), Train(seed=seed)(DROP)(ONES))
    before = streams()
    Train(seed=seed)(DROP)(ONES)
    assert streams() == before


def test_without_a_seed_the_caller_s_stream_is_used_and_moves():
    torch.manual_seed(5)
    want = F.dropout(ONES, 0.5)
    torch.manual_seed(5)
    assert torch.equal(Train()(DROP)(ONES), want)
    before = streams()
    Train()(DROP)(ONES)
    assert streams() != before


def test_eval_keeps_everything_and_draws_nothing():
    before = streams()
    assert torch.equal(Eval()(nn.Dropout(0.9))(ONES), ONES)
    assert streams() == before


def test_eval_takes_no_seed():
    with pytest.raises(TypeError):
        Eval(seed=1)


def test_modes_print_as_they_are_written():
    assert [repr(mode) for mode in (Train(), Train(seed=3), Train(7), Eval())] == [
        "Train()",
        "Train(seed=3)",
        "Train(seed=7)",
        "Eval()",
    ]


def test_functions_that_read_the_flag_follow_the_mode():
    class Functional(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return F.dropout(x, 0.5, training=self.training)

    model = Functional().eval()
    assert torch.equal(Train(seed=1)(model)(ONES), Train(seed=1)(DROP)(ONES))
    assert torch.equal(Eval()(model.train())(ONES), ONES)


def test_arguments_are_passed_on_and_the_output_comes_back_as_it_is():
    class Echo(nn.Module):
        def forward(self, *args: object, **kwargs: object) -> object:
            return self.training, args, kwargs

    assert Eval()(Echo())(1, 2, key=3) == (False, (1, 2), {"key": 3})
    assert Train()(Echo().eval())() == (True, (), {})


# Flags and streams come back ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [Train(), Train(seed=1), Eval()], ids=repr)
def test_every_flag_comes_back_one_by_one_and_inside_all_are_the_mode_s(mode):
    model = net().eval()
    model[2].train()
    before = flags(model)
    with mode.applied(model) as inside:
        assert inside is model
        assert flags(model) == [mode.training] * 5
    assert flags(model) == before
    mode(model)(torch.randn(6, 4))
    assert flags(model) == before


@pytest.mark.parametrize("mode", [Train(), Train(seed=1), Eval()], ids=repr)
@pytest.mark.parametrize("error", [RuntimeError("boom"), KeyboardInterrupt(), SystemExit()], ids=repr)
def test_flags_and_streams_come_back_when_the_module_raises(mode, error):
    class Failing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Dropout(0.5).eval()

        def forward(self, x: Tensor) -> Tensor:
            if mode.seed is not None:
                torch.rand(3)
            raise error

    model = Failing()
    before, drawn = flags(model), streams()
    with pytest.raises(type(error)):
        mode(model)(ONES)
    with pytest.raises(type(error)), mode.applied(model):
        raise error
    assert flags(model) == before
    assert streams() == drawn


def test_a_seeded_mode_leaves_the_caller_s_streams_where_they_were():
    torch.manual_seed(4)
    want = torch.rand(3)
    torch.manual_seed(4)
    before = streams()
    with Train(seed=1).applied(DROP):
        torch.rand(5)
    assert streams() == before
    assert torch.equal(torch.rand(3), want)


def test_a_module_s_own_train_is_respected_and_undone():
    class AlwaysEval(nn.Sequential):
        def train(self, mode: bool = True) -> AlwaysEval:
            super().train(mode)
            self[1].eval()
            return self

    model = AlwaysEval(nn.Linear(2, 2), nn.BatchNorm1d(2)).eval()
    with Train(seed=1).applied(model):
        assert flags(model) == [True, True, False]
    assert flags(model) == [False, False, False]


def test_only_the_module_given_changes_mode():
    model = net().eval()
    with Train(seed=1).applied(model[2]):
        assert flags(model) == [False, False, False, True, False]


needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@needs_gpu
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_seeded_mode_leaves_the_gpu_s_stream_where_it_was(device):
    torch.cuda.init()
    before = torch.cuda.get_rng_state()
    Train(seed=1)(DROP)(ONES.to(device))  # a module without parameters says nothing of its device
    assert torch.equal(torch.cuda.get_rng_state(), before)


# Nesting --------------------------------------------------------------------------------------------------------------


def test_modes_nest_and_each_ends_where_it_began():
    model = net()
    before = flags(model)
    with Train(seed=1).applied(model):
        with Eval().applied(model[2]):
            assert flags(model) == [True, True, True, False, True]
        assert flags(model) == [True] * 5
        with Eval().applied(model), Train().applied(model[1]):
            assert flags(model) == [False, False, True, False, False]
        assert flags(model) == [True] * 5
    assert flags(model) == before


def test_an_inner_stream_does_not_move_the_outer_one():
    with Train(seed=1).applied(DROP):
        plain = [DROP(ONES), DROP(ONES)]
    with Train(seed=1).applied(DROP):
        first = DROP(ONES)
        inner = Train(seed=2)(DROP)(ONES)
        second = DROP(ONES)
    assert torch.equal(first, plain[0])
    assert torch.equal(second, plain[1])
    assert torch.equal(inner, Train(seed=2)(DROP)(ONES))


# With value_and_grad --------------------------------------------------------------------------------------------------


def loss(m: nn.Module, x: Tensor, mode: Mode) -> Tensor:
    return mode(m)(x).square().mean()


def test_gradients_go_through_the_values_dropout_keeps():
    model, x = nn.Sequential(nn.Linear(4, 32), nn.Dropout(0.5)), torch.randn(3, 4)
    kept = Train(seed=5)(nn.Dropout(0.5))(torch.ones(3, 32))  # 0 or 2 each
    _, g = gv.value_and_grad(lambda m, x, mode: mode(m)(x).sum(), model, x, Train(seed=5))
    torch.testing.assert_close(g[0].bias, kept.sum(dim=0))
    torch.testing.assert_close(g[0].weight, kept.t() @ x)
    assert 0 < (kept == 0).sum() < kept.numel()


@pytest.mark.parametrize("keyword", [False, True])
def test_the_mode_is_passed_on_like_any_other_argument(keyword):
    model, x, mode = net().eval(), torch.randn(6, 4), Train(seed=2)
    value, g = gv.value_and_grad(loss, model, x, mode=mode) if keyword else gv.value_and_grad(loss, model, x, mode)
    again, h = gv.value_and_grad(loss, model, x, Train(seed=2))
    other, _ = gv.value_and_grad(loss, model, x, Train(seed=3))
    assert value == again
    assert (g - h).norm() == 0
    assert value != other


def test_a_call_with_a_mode_leaves_flags_and_streams_alone():
    model, x = net().eval(), torch.randn(6, 4)
    before, drawn = flags(model), streams()
    gv.value_and_grad(loss, model, x, Train(seed=2))
    assert flags(model) == before
    assert streams() == drawn


def test_flags_come_back_when_the_backward_pass_raises():
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: object, g: Tensor) -> Tensor:
            raise ArithmeticError("in backward")

    model, x = net().eval(), torch.randn(6, 4)
    before, drawn = flags(model), streams()
    with pytest.raises(ArithmeticError, match="in backward"):
        gv.value_and_grad(lambda m, x, mode: Fails.apply(mode(m)(x)).sum(), model, x, Train(seed=2))
    assert flags(model) == before
    assert streams() == drawn


@pytest.mark.case("C20")
def test_eval_leaves_running_statistics_alone_and_train_moves_them():
    model, x = net(), torch.randn(6, 4)

    def buffers() -> list[Tensor]:
        return [buffer.clone() for buffer in model.buffers()]

    before = buffers()
    gv.value_and_grad(loss, model, x, Eval())
    assert all(torch.equal(a, b) for a, b in zip(buffers(), before, strict=True))
    gv.value_and_grad(loss, model.eval(), x, Train(seed=1))
    assert not any(torch.equal(a, b) for a, b in zip(buffers(), before, strict=True))
    assert model[1].num_batches_tracked == 1


# With checkpointing ---------------------------------------------------------------------------------------------------


class Checkpointed(nn.Module):
    """Notes the flag its block sees at each run, the recomputation of backward included."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(4, 16)
        self.drop = nn.Dropout(0.5)
        self.last = nn.Linear(16, 1)
        self.checkpointed = True
        self.seen: list[bool] = []

    def block(self, x: Tensor) -> Tensor:
        self.seen.append(self.drop.training)
        return self.drop(x).tanh()

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        x = checkpoint(self.block, x, use_reentrant=False) if self.checkpointed else self.block(x)
        return self.last(x)


@pytest.mark.parametrize("mode", [Train(seed=3), Eval()], ids=repr)
@pytest.mark.parametrize("training", [True, False])
def test_the_recomputation_of_checkpointing_sees_the_flags_of_the_forward_pass(mode, training):
    model, x = Checkpointed().train(training), torch.randn(6, 4)
    value, g = gv.value_and_grad(loss, model, x, mode)
    assert model.seen == [mode.training] * 2
    assert flags(model) == [training] * 4
    model.checkpointed = False
    plain, want = gv.value_and_grad(loss, model, x, mode)
    assert value == plain
    assert (g - want).norm() == 0
    assert g.norm() > 0


def test_the_recomputation_draws_the_same_mask_and_leaves_the_stream_alone():
    model, x = Checkpointed(), torch.randn(6, 4)
    drawn = streams()
    _, g = gv.value_and_grad(loss, model, x, Train(seed=3))
    assert streams() == drawn
    model.checkpointed = False
    assert (gv.value_and_grad(loss, model, x, Train(seed=3))[1] - g).norm() == 0


def test_a_mode_on_a_part_of_a_module_in_another_mode_is_recomputed_under_both():
    def nested(m: Checkpointed, x: Tensor, whole: Mode, part: Mode) -> Tensor:
        with whole.applied(m), part.applied(m.drop):
            return m(x).square().mean()

    model, x = Checkpointed(), torch.randn(6, 4)
    _, g = gv.value_and_grad(nested, model, x, Train(seed=3), Eval())
    assert model.seen == [False, False]
    model.checkpointed = False
    assert (gv.value_and_grad(nested, model, x, Train(seed=3), Eval())[1] - g).norm() == 0


def test_a_nested_call_s_checkpointed_module_is_recomputed_under_its_mode_by_the_outer_backward():
    def penalty(m: nn.Module, x: Tensor) -> Tensor:
        _, g = gv.value_and_grad(loss, m, x, Train(seed=3), create_graph=True)
        return g.norm().square()

    model, x = Checkpointed().eval(), torch.randn(6, 4)
    _, g = gv.value_and_grad(penalty, model, x)
    assert model.seen
    assert all(model.seen)
    model.checkpointed = False
    _, want = gv.value_and_grad(penalty, model, x)
    for name in want:
        torch.testing.assert_close(g[name], want[name])


class SavesMemory(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.drop, self.last = nn.Linear(4, 16), nn.Dropout(0.5), nn.Linear(16, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(checkpoint(lambda x: self.drop(x).tanh(), self.first(x), use_reentrant=False))


@pytest.mark.parametrize(
    "f",
    [
        lambda m, x: (gv.Train(seed=3)(m)(x) - m(x)).square().mean(),
        lambda m, x: (m(x) - gv.Train(seed=3)(m)(x)).square().mean(),
        lambda m, x: (gv.Train(seed=3)(m)(x) - gv.Eval()(m)(x)).square().mean(),
    ],
    ids=["mode, then plain", "plain, then mode", "two modes"],
)
def test_a_checkpointed_module_in_both_modes_is_refused_rather_than_run_again_under_the_wrong_one(f):
    model = SavesMemory().eval()
    with pytest.raises(FunctionError, match="Dropout may have run in training and in evaluation mode"):
        gv.value_and_grad(f, model, torch.randn(6, 4))
    assert not any(child.training for child in model.modules())


@pytest.mark.parametrize("mode", [gv.Train(seed=3), gv.Eval()])
@pytest.mark.parametrize("outside", [True, False])
def test_a_checkpointed_module_in_one_mode_has_the_gradient_of_the_plain_one(mode, outside, monkeypatch):
    def f(m, x, mode):
        return mode(m)(x).square().mean()

    model, x = SavesMemory().train(outside), torch.randn(6, 4)
    _, g = gv.value_and_grad(f, model, x, mode)
    monkeypatch.setitem(SavesMemory.forward.__globals__, "checkpoint", lambda run, x, use_reentrant: run(x))
    _, plain = gv.value_and_grad(f, model, x, mode)
    assert all(torch.equal(g[name], plain[name]) for name in g)


def test_a_pass_that_is_checkpointed_without_a_call_of_the_module_runs_again_in_its_mode():
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.tensor([2.0]))

        def body(self, x: Tensor) -> Tensor:
            return (x * self.w * (3.0 if self.training else 1.0)) ** 2

    def f(m: Scaled, x: Tensor, mode: Mode) -> Tensor:
        with mode.applied(m):
            return checkpoint(m.body, x, use_reentrant=False).sum()

    value, g = gv.value_and_grad(f, Scaled().eval(), torch.ones(1), Train(seed=1))
    assert (value.item(), g.w.item()) == (36, 36)


def test_threads_keep_their_flags_and_streams_apart():
    models = [nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 1)).eval() for _ in range(2)]
    x = torch.ones(2, 4)

    def work(seed: int, out: list[Tensor]) -> None:
        model = models[seed]
        for _ in range(60):
            _, g = gv.value_and_grad(lambda m, x, mode: mode(m)(x).square().sum(), model, x, Train(seed=seed))
            out.append(g["0.weight"])
            assert not any(child.training for child in model.modules())

    results: list[list[Tensor]] = [[], []]
    threads = [threading.Thread(target=work, args=(seed, out)) for seed, out in enumerate(results)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for out in results:
        assert len(out) == 60
        assert all(torch.equal(out[0], other) for other in out)
