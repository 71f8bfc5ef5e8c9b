"""What is known of one parameter at one iteration, against plain numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import gradviz as gv
from gradviz.errors import HistoryError
from gradviz.history.activations import activations_of


def test_it_says_what_plain_torch_computes():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    model[0].bias.requires_grad_(False)
    copy = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    copy.load_state_dict(model.state_dict())
    batch = torch.randn(5, 3), torch.tensor([0, 1, 0, 1, 1])
    stages = ("backward", "clipped", "update")
    loop = gv.trainer(model, "cross_entropy", torch.optim.SGD(model.parameters(), lr=0.1), clip=0.01, stages=stages)
    loop.run([batch], display=None)
    torch.nn.functional.cross_entropy(copy(batch[0]), batch[1]).backward()
    gradient = copy[0].weight.grad
    assert gradient is not None
    found = loop.history.inspected("0.weight")
    norm, weight = gradient.norm().item(), copy[0].weight.norm().item()
    update = (model[0].weight - copy[0].weight).norm().item()
    said = [found.stages[stage].norm for stage in ("backward", "update", "weight")]
    np.testing.assert_allclose(said, [norm, update, weight], rtol=1e-4)
    assert found.stages["clipped"].norm == pytest.approx(update / 0.1, rel=1e-4)
    assert (found.iteration, found.skipped, found.gradient_dtype) == (0, False, "float32")
    assert found.bins_iteration == 0
    low, high, count = found.bins.T
    plain, _ = np.histogram(gradient.numpy(), np.append(low, high[-1]))
    assert count.sum() == 12
    assert ((gradient.numpy()[..., None] >= low).any(-1)).sum() >= plain.sum() > 0
    assert loop.history.inspected("0.bias").stages["backward"].state == "frozen"


def test_an_iteration_that_was_not_recorded_is_told_as_the_one_before_it():
    model = torch.nn.Linear(3, 1)
    loop = gv.trainer(model, "mean_squared_error", "sgd", every=10)
    loop.run([(torch.ones(2, 3), torch.zeros(2, 1))] * 35, display=None)
    found = loop.history.inspected("weight", 17)
    assert found.iteration == 10
    assert found.stages["backward"].state == "ok"
    assert found.stages["update"].state == "not_recorded"
    assert loop.history.inspected("weight").iteration == 34


@pytest.mark.parametrize("stages", [("backward", "clipped"), ("backward",)])
def test_where_nothing_was_clipped_is_known_of_a_saved_run_too(tmp_path, stages):
    loop = gv.trainer(torch.nn.Linear(3, 1), "mean_squared_error", "sgd", stages=stages, save_to=tmp_path / "run")
    loop.run([(torch.ones(2, 3), torch.zeros(2, 1))] * 3, display=None)
    for history in (loop.history, gv.History.open(tmp_path / "run")):
        found = history.inspected("weight", 1)
        assert found.unclipped is ("clipped" in stages)
        assert found.stages["clipped"].state == ("ok" if found.unclipped else "not_recorded")


def test_what_failed_to_be_measured_does_not_pass_for_unclipped():
    history = gv.History()
    history.declare([{"name": name, "shape": (2,), "dtype": "float32"} for name in ("a", "b")])
    history.progress.records(1, 0, clipped=True)
    nothing = np.empty((0, 8)), np.empty(0, np.uint8)
    for i, stages in enumerate((None, {"clipped": nothing})):
        history.append(i, 0, np.ones((2, 8)), np.zeros(2, np.uint8), {"loss": 1.0}, stages=stages)
    told = [history.inspected("b", i) for i in (0, 1)]
    assert [found.unclipped for found in told] == [True, False]
    assert told[1].stages["clipped"].state == "not_recorded"


def test_an_infinite_gradient_and_a_skipped_step_are_what_they_are():
    model = torch.nn.Linear(1, 1, bias=False)
    loop = gv.trainer(model, lambda y, _: y.sum() * 1e38 * 1e38, "sgd", loss_scale=gv.LossScale.static(1.0))
    loop.run([(torch.ones(1, 1), torch.zeros(1, 1))], display=None)
    found = loop.history.inspected("weight", 0)
    assert found.skipped
    assert not found.unclipped, "the optimizer received nothing"
    assert found.stages["backward"].norm == np.inf


def test_the_examples_that_pull_hardest_come_first_with_call_and_id():
    model = torch.nn.Sequential(torch.nn.Linear(1, 1, bias=False))
    capture = gv.Capture("0", keep="example_norms", top_examples=3)
    loop = gv.trainer(
        model, lambda y, t: (y * t).sum(), "sgd", capture=capture, example_ids=lambda batch: ["p", "q", "r", "s"]
    )
    weights = torch.tensor([[1.0], [-4.0], [0.5], [2.0]])
    loop.run([(torch.ones(4, 1), weights)], display=None)
    for found in (activations_of(loop.history).inspected("0"), loop.history.inspected("0.weight")):
        assert [(e.example_id, e.example, e.call, e.norm) for e in found.examples] == [
            ("q", 1, 0, 4.0),
            ("s", 3, 0, 2.0),
            ("p", 0, 0, 1.0),
        ]
        assert found.examples_iteration == 0


def test_nothing_is_known_before_the_first_iteration_and_of_other_names():
    history = gv.History()
    history.declare([{"name": "w", "shape": (2,), "dtype": "float32"}])
    found = history.inspected("w")
    assert (found.iteration, found.bins_iteration, found.examples) == (None, None, [])
    assert found.stages["backward"].state == "not_recorded"
    with pytest.raises(HistoryError, match="There is no 'v' in this run"):
        history.inspected("v")
