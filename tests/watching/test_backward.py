"""The end of a backward pass is heard once, when all of it is done."""

from __future__ import annotations

import copy
import sys

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from gradviz.watching import backward
from gradviz.watching.backward import BackwardEnd
from tests.watching.scenes import inputs, net


class Heard:
    """What a pass had reached, and the gradients there were by then, each time that one was over."""

    def __init__(self, model):
        self.model, self.reached, self.gradients = model, [], []
        self.end = BackwardEnd(self.ended)
        self.end.follow(p for p in model.parameters() if p.requires_grad)

    def ended(self, reached):
        self.reached.append(reached)
        self.gradients.append([None if p.grad is None else p.grad.clone() for p in self.model.parameters()])


def ids(*parameters):
    return set(map(id, parameters))


def test_each_pass_is_heard_with_what_it_reached_and_all_gradients_in_place():
    model = net()
    heard = Heard(model)
    model(inputs(0)).sum().backward()
    model[2](torch.ones(1, 4)).sum().backward()
    assert heard.reached == [ids(*model.parameters()), ids(*model[2].parameters())]
    assert all(map(torch.equal, heard.gradients[-1], [p.grad for p in model.parameters()]))


def test_a_pass_that_reaches_nothing_or_asks_for_gradients_only_is_not_heard():
    model = net()
    heard = Heard(model)
    torch.autograd.grad(model(inputs(0)).sum(), list(model.parameters()))
    torch.ones(1, requires_grad=True).sum().backward()
    assert heard.reached == []


def break_off(model):
    def fail(_):
        raise OSError("in the middle")

    hook = model[0].weight.register_hook(fail)
    with pytest.raises(OSError, match="in the middle"):
        model(inputs(0)).sum().backward()
    hook.remove()


def test_a_pass_that_breaks_off_leaves_the_next_one_heard():
    model = net()
    heard = Heard(model)
    break_off(model)
    model(inputs(0)).sum().backward()
    assert ids(*model.parameters()) <= heard.reached[-1]
    assert len(heard.reached) == 1


def test_a_pass_that_is_unlike_the_one_that_broke_off_is_missed_and_that_is_known():
    model = net()
    heard = Heard(model)
    break_off(model)
    model[0](inputs(0)).sum().backward()
    assert heard.reached == []
    assert heard.end.was_missed()
    assert not heard.end.was_missed()
    model[0](inputs(0)).sum().backward()
    assert heard.reached == [ids(*model[0].parameters())]


def test_python_is_called_for_one_parameter_of_a_pass():
    model = net()
    heard = Heard(model)
    for _ in range(2):
        model(inputs(0)).sum().backward()
    called = []

    def see(frame, event, argument):
        if event == "call" and frame.f_code.co_filename == backward.__file__:
            called.append(frame.f_code.co_name)

    sys.setprofile(see)
    try:
        model(inputs(0)).sum().backward()
    finally:
        sys.setprofile(None)
    assert called.count("_begin") == called.count("_look") == 1
    assert len(list(model.parameters())) > 2
    assert len(called) < 20
    assert len(heard.reached) == 3


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_with_checkpoints_the_last_that_is_heard_is_the_whole(use_reentrant):
    model = net()
    heard = Heard(model)
    x = inputs(0).requires_grad_()
    hidden = checkpoint(model[:2], x, use_reentrant=use_reentrant)
    model[2](hidden).sum().backward()
    assert all(map(torch.equal, heard.gradients[-1], [p.grad for p in model.parameters()]))
    assert set().union(*heard.reached) == ids(*model.parameters())


def test_what_is_followed_no_more_has_no_hook_and_what_is_new_is_told():
    model = net()
    heard = Heard(model)
    first, *others = model.parameters()
    assert heard.end.follow(others) == set()
    assert not first._post_accumulate_grad_hooks
    assert heard.end.follow([first, *others]) == ids(first)
    model(inputs(0)).sum().backward()
    heard.end.close()
    assert not any(p._post_accumulate_grad_hooks for p in model.parameters())
    model(inputs(0)).sum().backward()
    assert len(heard.reached) == 1


def test_whoever_listens_is_not_kept_alive_and_a_copy_of_the_model_is_not_heard():
    model = net()
    heard = Heard(model)
    twin = copy.deepcopy(model)
    twin(inputs(0)).sum().backward()
    assert heard.reached == []
    seen = heard.reached
    del heard
    model(inputs(0)).sum().backward()
    assert seen == []


def test_a_hook_of_the_user_s_own_that_takes_the_gradient_away_goes_on_working():
    model = nn.Linear(2, 1)
    taken = []

    def take(p):
        taken.append(p.grad)
        p.grad = None

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(take)
    heard = Heard(model)
    model(torch.ones(1, 2)).sum().backward()
    assert len(taken) == 2
    assert heard.gradients == [[None, None]]
