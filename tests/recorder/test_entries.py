"""What is counted of gradients' entries beside their statistics, in the history's tables."""

from __future__ import annotations

import torch
from torch import nn

import gradviz as gv
from gradviz.history.history import History
from gradviz.recorder.entries import Entries

COUNTS = ["entries", "zero", "underflow", "subnormal", "overflow", "nonfinite"]


class Scaled(nn.Module):
    """Its gradients are its factors, times what comes in."""

    def __init__(self, factors: list[float]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(len(factors)))
        self.register_buffer("factors", torch.tensor(factors))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return (self.weight * self.factors).sum() * inputs


def total(prediction: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    return prediction.sum()


ONE = torch.ones(1), torch.ones(1)
FACTORS = [0.0, 1e-9, 3e-8, 1e-5, 0.03, 1.0, 500.0, 70000.0]
BY_HAND = {
    "float16": [8, 1, 1, 2, 1, 0],
    "bfloat16": [8, 1, 0, 0, 0, 0],
    "float8_e4m3fn": [8, 1, 3, 0, 2, 0],
    "float8_e5m2": [8, 1, 2, 1, 1, 0],
}


def by_dtype(history: History, iteration: int, stage: str = "backward") -> dict[str, list[int]]:
    frame = history.precision
    rows = frame[(frame["iteration"] == iteration) & (frame["stage"] == stage) & (frame["parameter"] == "weight")]
    return dict(zip(rows["dtype"], rows[COUNTS].to_numpy().tolist(), strict=True))


def test_shares_are_counted_when_histograms_are_and_kept_with_the_run(tmp_path):
    loop = gv.trainer(Scaled(FACTORS), total, "sgd", histograms_every=2, save_to=tmp_path / "a")
    loop.run([ONE] * 4, display=None)
    assert sorted(set(loop.history.precision["iteration"])) == [0, 2]
    for history in (loop.history, gv.History.open(tmp_path / "a")):
        assert by_dtype(history, 0) == by_dtype(history, 2) == BY_HAND
        assert str(history.precision["dtype"].dtype) == "category"
        assert set(history.precision[COUNTS].dtypes.astype(str)) == {"int64"}


def test_each_stage_has_shares_of_its_own():
    loop = gv.trainer(Scaled(FACTORS), total, "sgd", clip=1e-4, histograms_every=1)
    loop.run([ONE], display=None)
    assert by_dtype(loop.history, 0) == BY_HAND
    clipped = by_dtype(loop.history, 0, "clipped")
    assert [fates[-2:] for fates in clipped.values()] == [[0, 0]] * 4
    assert clipped["float16"][2] > BY_HAND["float16"][2]


def test_a_loss_scale_is_not_in_them():
    loop = gv.trainer(Scaled(FACTORS), total, "sgd", loss_scale=gv.LossScale.static(1024.0), histograms_every=1)
    loop.run([ONE], display=None)
    assert by_dtype(loop.history, 0) == BY_HAND


def test_a_watch_tells_the_same():
    model = Scaled(FACTORS)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with gv.watch(model, optimizer) as watch:
        total(model(ONE[0]), ONE[1]).backward()
        optimizer.step()
    assert by_dtype(watch.history, 0) == BY_HAND


def test_a_parameter_without_a_gradient_has_no_shares():
    model = nn.ModuleDict({"used": nn.Linear(1, 1), "idle": nn.Linear(1, 1)})
    model["used"].bias.requires_grad_(False)
    model.forward = lambda inputs: model["used"](inputs)
    loop = gv.trainer(model, "mean_squared_error", "sgd")
    loop.run([(torch.ones(1, 1), torch.zeros(1, 1))], display=None)
    assert set(loop.history.precision["parameter"]) == {"used.weight"}


def test_rows_say_what_they_are_of():
    rows = Entries.of("clipped", {"a": torch.tensor([0.0, 1e-9]), "b": torch.ones(3)}).rows(7)
    precision = rows["precision"]
    assert set(precision["iteration"].tolist()) == {7}
    assert precision["parameter"] == ["a"] * 4 + ["b"] * 4
    assert precision["dtype"] == ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"] * 2
    assert precision["underflow"].tolist() == [1, 0, 1, 1, 0, 0, 0, 0]
    assert rows["histograms"]["count"].tolist() == [1, 1, 3]
    assert set(rows["histograms"]["stage"]) == set(precision["stage"]) == {"clipped"}
