"""What Accelerate prepares goes straight into `gv.watch`: there is nothing to adapt."""

from __future__ import annotations

import pytest
import torch
from accelerate import Accelerator
from torch import nn

import gradviz as gv
from tests.adapters.plain import Plain, close, same

BATCHES = torch.randn(40, 4, 3, generator=torch.Generator().manual_seed(1))


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))


def loss_of(model, x):
    return (model(x) - x.sum(1, keepdim=True)).square().mean()


@pytest.mark.parametrize(("accumulate", "clip"), [(1, None), (2, 0.01)])
def test_a_prepared_loop_is_that_of_plain_pytorch(accumulate, clip):
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=accumulate)
    net = network()
    model, optimizer = accelerator.prepare(net, torch.optim.Adam(net.parameters(), lr=0.01))
    with gv.watch(model, optimizer) as w:
        losses = []
        for x in BATCHES[: 20 * accumulate]:
            with accelerator.accumulate(model):
                loss = loss_of(model, x)
                losses.append(loss.detach())
                accelerator.backward(loss)
                if clip is not None and accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), clip)
                optimizer.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                w.mark(loss=torch.stack(losses).mean())
                losses = []

    expected_net = network()
    expected = Plain(accumulate=accumulate, clip=clip).train(
        expected_net,
        torch.optim.Adam(expected_net.parameters(), lr=0.01),
        BATCHES[: 20 * accumulate],
        lambda x: loss_of(expected_net, x),
    )
    assert same(net, expected_net)
    assert close(w.history.norms, expected.backward)
    assert w.history.metrics["loss"].tolist() == pytest.approx(expected.losses)
    if clip is None:
        assert set(w.history.gradients["stage"]) == {"backward"}
    else:
        assert close(w.history.wide("norm", stage="clipped"), expected.clipped)


def test_the_names_of_a_prepared_and_compiled_model_are_its_own():
    accelerator = Accelerator(cpu=True)
    net = network()
    model, optimizer = accelerator.prepare(torch.compile(net, backend="eager"), torch.optim.SGD(net.parameters()))
    with gv.watch(model, optimizer) as w:
        accelerator.backward(loss_of(model, BATCHES[0]))
        optimizer.step()
    assert list(w.history.norms) == [name for name, _ in net.named_parameters()]
