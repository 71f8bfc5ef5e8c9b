"""A run goes on from a checkpoint to the bit: as if it had never been broken off."""

from __future__ import annotations

import copy
import os
import random
import shutil
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, default_collate

import gradviz as gv
from gradviz.errors import CheckpointError, CheckpointWarning, DataError, LoopError, MetricError
from tests.loop.new_process import result_of
from tests.loop.scenes import (
    CHECKPOINTED,
    EPOCHS,
    SCENES,
    assert_equal,
    assert_same,
    examples,
    loader,
    net,
    outcome,
    outcomes,
    resumed,
    resumed_frozen_parts,
    seeded,
    shuffled,
    straight,
    trained_on,
    with_frozen_parts,
)

BATCH = (torch.ones(4, 2), torch.ones(4, 1))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Each scene's straight run: its outcome, and its folder of checkpoints."""

    @cache
    def run(name):
        folder = tmp_path_factory.mktemp(name)
        return outcome(straight(SCENES[name], folder)), folder / "checkpoints"

    return run


def places(folder: Path) -> list[tuple[Path, int]]:
    """Checkpoints at the end of the third epoch, in its middle, and after the first iteration; and the epochs left."""
    end = max(folder.glob("checkpoint_2_*.pt"), key=lambda file: int(file.stem.rpartition("_")[2]))
    return [(end, EPOCHS - 3), (folder / "checkpoint_2_2.pt", EPOCHS - 2), (folder / "checkpoint_0_1.pt", EPOCHS)]


def small_loop(optimizer="sgd", **options) -> gv.Loop:
    torch.manual_seed(0)
    return gv.trainer(nn.Linear(2, 1), "mean_squared_error", optimizer, **options)


def weight(loop: gv.Loop) -> torch.Tensor:
    return loop.state.step_state.model_state["weight"].detach().clone()


# To the bit ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", range(3), ids=["at an epoch's end", "in its middle", "in the first epoch"])
@pytest.mark.parametrize("name", SCENES)
def test_six_epochs_are_three_and_three(runs, name, place):
    expected, folder = runs(name)
    file, epochs = places(folder)[place]
    assert_same(expected, outcome(resumed(SCENES[name], file, epochs)))


def test_six_epochs_are_three_and_three_in_a_new_process(runs):
    names = ["shuffled", "validated", "bfloat16", "frozen", "accumulated"]
    asked = [(name, *places(runs(name)[1])[place % 2]) for place, name in enumerate(names)]
    for (name, *_), found in zip(asked, result_of(outcomes, asked), strict=True):
        assert_same(runs(name)[0], found)


@pytest.mark.case("L19")
def test_stopped_after_two_epochs_of_five_it_goes_on_where_it_was(tmp_path):
    def make():
        loop = gv.trainer(net(), "cross_entropy", "adam", loss_scale=gv.LossScale.dynamic(8.0, period=3))
        return loop.metric("accuracy"), loader()

    whole, data = make()
    torch.manual_seed(1)
    whole.run(data, epochs=5)
    part, data = make()
    torch.manual_seed(1)
    part.checkpoint(tmp_path).run(data, epochs=2)

    again, data = make()
    state = again.resume(tmp_path).state
    assert (state.epoch, state.iteration, state.metrics) == (2, 8, part.state.metrics)
    assert state.step_state.loss_scale_state == part.state.step_state.loss_scale_state
    again.run(data, epochs=3)
    assert_same(outcome(whole), outcome(again))


@pytest.mark.case("axon-L10")
def test_epochs_go_on_counting(tmp_path):
    small_loop().checkpoint(tmp_path).run([BATCH], epochs=3)
    seen = []
    loop = small_loop().handle_event("epoch_started", lambda state: seen.append((state.epoch, state.iteration)))
    loop.resume(tmp_path).run([BATCH] * 2, epochs=2)
    assert seen == [(3, 3), (4, 5)]
    assert loop.history.metrics.index.tolist() == [3, 4, 5, 6]
    assert loop.history.epochs.index.tolist() == [3, 4]
    assert list(loop.state.times) == [0, 1, 2, 3, 4]
    assert loop.history.progress.iterations == 7


@pytest.mark.case("axon-L7")
def test_no_epochs_leave_the_loop_as_it_is(tmp_path):
    loop = small_loop()
    state = loop.run([BATCH], epochs=0)
    assert (state.epoch, state.iteration, state.times, state.metrics) == (0, 0, {}, {})
    small_loop().checkpoint(tmp_path).run([BATCH], epochs=3)
    state = loop.resume(tmp_path).run([BATCH], epochs=0)
    assert (state.epoch, state.iteration, list(state.times)) == (3, 3, [0, 1, 2])


@pytest.mark.case("axon-L12")
@pytest.mark.parametrize("name", ["shuffled", "bfloat16", "float16", "kept_gradients", "lbfgs"])
def test_what_is_read_is_what_was_written(runs, name):
    _, folder = runs(name)
    loop, _ = SCENES[name]()
    loop.resume(folder / "last.pt")
    expected, found = runs(name)[0], outcome(loop)
    for part in ("step", "step_state"):
        assert set(expected[part]) == set(found[part])
        for key, value in expected[part].items():
            if "gradients" not in key:  # zeros, unless they are asked for
                assert torch.equal(value, found[part][key]) if isinstance(value, torch.Tensor) else value == value


@pytest.mark.case("L21")
def test_what_a_handler_keeps_in_the_step_state_survives(tmp_path):
    def keep(state):
        kept = state.step_state
        kept["least"] = min(float(state.metrics["loss"]), kept.get("least", 9.0))
        kept["note"] = "still here"
        kept["scalar"], kept["array"] = np.float64(0.1), np.arange(3)
        kept["nest"] = {"tensors": [torch.ones(2), (torch.zeros(1, dtype=torch.int8), None)]}

    loop = small_loop().handle_event("iteration_completed", keep, once=1).checkpoint(tmp_path)
    loop.run([BATCH] * 3, epochs=2)
    kept = small_loop().resume(tmp_path).state.step_state
    assert kept["least"] == loop.state.step_state["least"] > 0
    assert kept["note"] == "still here"
    assert (type(kept["scalar"]), kept["scalar"]) == (np.float64, 0.1)
    assert kept["array"].tolist() == [0, 1, 2]
    assert kept["nest"]["tensors"][0].tolist() == [1, 1]
    assert kept["nest"]["tensors"][1][0].dtype == torch.int8
    assert kept["nest"]["tensors"][1][1] is None


@pytest.mark.case("L14")
def test_the_mask_and_the_moments_of_what_is_frozen_come_back_in_a_new_process(tmp_path):
    loop, model, data = with_frozen_parts()
    loop.run(data)
    gv.ModelState(model).freeze("0", "1")
    loop.checkpoint(tmp_path).run(data)
    written = trained_on(loop, model, data)
    assert written["trained"] == ["2.weight", "2.bias"]
    assert len(written["moments"]) == 6  # those of what is frozen too
    read = result_of(resumed_frozen_parts, tmp_path / "checkpoints" / "checkpoint_1_1.pt")
    assert read["trained"] == written["trained"]
    for part in ("moments", "before", "after"):
        assert list(read[part]) == list(written[part])
        for name, value in written[part].items():
            assert_equal(value, read[part][name], name)
    for found in (written, read):
        changed = {name for name, value in found["before"].items() if not torch.equal(value, found["after"][name])}
        assert changed == {"['2.weight']", "['2.bias']"}


# Random streams that only the user knows -----------------------------------------------------------------------------


STREAM = np.random.default_rng()
GENERATOR = torch.Generator()


def reseed(seed: int) -> None:
    """As a new process would find them, or as chance has it."""
    STREAM.bit_generator.state = np.random.default_rng(seed).bit_generator.state
    GENERATOR.manual_seed(seed)
    torch.manual_seed(seed)


def helped(n: int) -> DataLoader:
    return DataLoader(examples(n), batch_size=8, shuffle=True, generator=GENERATOR)


class Noisy(Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, place):
        return torch.full((4,), STREAM.normal()).float(), place % 3


class Dropping(nn.Module):
    """Drops by a stream of its own, or by one that it finds elsewhere."""

    def __init__(self, generator):
        super().__init__()
        self.inner, self._own = net(), generator

    def forward(self, x):
        generator = GENERATOR if self._own is None else self._own
        return self.inner(x * torch.bernoulli(torch.full_like(x, 0.5), generator=generator))


def plain_loop(model=None) -> gv.Loop:
    return gv.trainer(net() if model is None else model, "cross_entropy", "adam")


def with_a_handler():
    def draw(state):
        state.step_state["drawn"] = float(STREAM.random())

    return plain_loop().handle_event(["started", "epoch_completed"], draw)


def collated(examples):
    x, y = default_collate(examples)
    return x + STREAM.random(), y


def noisy_loss(prediction, targets):
    return nn.functional.cross_entropy(prediction, targets) * (1 + STREAM.random())


DRAWING = {
    "a data set's method": lambda: (plain_loop(), DataLoader(Noisy(), batch_size=8)),
    "a helper of the data's function": lambda: (plain_loop(), lambda epoch: helped(16)),
    "the model's own": lambda: (plain_loop(Dropping(seeded())), loader(16, batch_size=8)),
    "the model's forward": lambda: (plain_loop(Dropping(None)), loader(16, batch_size=8)),
    "a handler": lambda: (with_a_handler(), loader(16, batch_size=8)),
    "a collate function": lambda: (plain_loop(), loader(16, batch_size=8, collate_fn=collated)),
    "the loss": lambda: (gv.trainer(net(), noisy_loss, "adam"), loader(16, batch_size=8)),
    "a metric": lambda: (plain_loop().metric(lambda p, y: STREAM.random(), "drawn"), loader(16, batch_size=8)),
}


@pytest.mark.parametrize("file", ["checkpoint_1_2.pt", "checkpoint_1_1.pt"], ids=["at an end", "in the middle"])
@pytest.mark.parametrize("name", DRAWING)
def test_four_epochs_are_two_and_two_whoever_draws(tmp_path, name, file):
    reseed(1)
    loop, data = DRAWING[name]()
    loop.checkpoint(tmp_path, **CHECKPOINTED).run(data, epochs=4)
    expected = outcome(loop)
    reseed(99)
    loop, data = DRAWING[name]()
    loop.resume(tmp_path / "checkpoints" / file).run(data, epochs=2 if file == "checkpoint_1_2.pt" else 3)
    assert_same(expected, outcome(loop))


@pytest.mark.parametrize("name", ["the model's own", "the model's forward", "the loss"])
def test_a_trial_draws_nothing(name):
    reseed(1)
    loop, data = DRAWING[name]()
    batches = list(data)
    model, loss = loop._step.model, noisy_loss if name == "the loss" else nn.functional.cross_entropy
    reseed(1)
    copied = copy.deepcopy(model)
    if name == "the model's own":
        copied._own = seeded()
    optimizer = torch.optim.Adam(copied.parameters())
    for x, y in batches * 2:
        optimizer.zero_grad()
        loss(copied(x), y).backward()
        optimizer.step()
    reseed(1)
    loop.run(batches, epochs=2)
    for name, p in copied.named_parameters():
        assert torch.equal(p, dict(model.named_parameters())[name]), name


def test_a_stream_that_cannot_be_saved_is_named_once(tmp_path):
    chance = random.SystemRandom()
    loop = small_loop().handle_event("epoch_completed", lambda state: chance.random() and None)
    said = r"cannot hold these random streams: handler 'epoch_completed: .*<lambda> #0'.chance \(a SystemRandom"
    with pytest.warns(CheckpointWarning, match=said) as warned:
        loop.checkpoint(tmp_path).run([BATCH], epochs=3)
    assert len(warned) == 1


# Where it goes on ---------------------------------------------------------------------------------------------------


def test_the_model_can_be_used_at_once(tmp_path):
    loop = small_loop().checkpoint(tmp_path)
    loop.run([BATCH] * 3)
    model = nn.Linear(2, 1)
    gv.trainer(model, "mean_squared_error", "sgd").resume(tmp_path)
    assert torch.equal(model.weight, weight(loop))


def test_a_loop_that_has_trained_on_goes_back(tmp_path):
    torch.manual_seed(0)
    loop, data = shuffled()
    loop.checkpoint(tmp_path, event=["iteration_completed", "epoch_completed"], keep=None).run(data, epochs=4)
    first = outcome(loop)
    for file, iteration, epochs in (("checkpoint_1_4.pt", 8, 2), ("checkpoint_1_2.pt", 6, 3)):
        loop.resume(tmp_path / "checkpoints" / file)
        assert len(loop.history) == iteration
        assert loop.history.epochs.index.tolist() == [0, 1][: iteration // 4]
        loop.run(data, epochs=epochs)
        again = outcome(loop)
        assert_same(first, again)
        assert again["frames"]["norms"].index.tolist() == list(range(16))  # each iteration once


def test_what_joined_the_loop_since_begins_anew_where_it_goes_back(tmp_path):
    small_loop().checkpoint(tmp_path, event="iteration_completed").run([BATCH] * 3, epochs=1)
    seen = iter([100.0, *range(9)])
    loop = small_loop().metric(lambda p, y: next(seen), "seen", "max").validate([BATCH])
    loop.run([BATCH])
    assert "validation_loss" in loop.state.metrics
    loop.resume(tmp_path / "checkpoints" / "checkpoint_0_2.pt")
    shown = []
    loop.handle_event("iteration_completed", lambda state: shown.append(dict(state.metrics)))
    loop.run([BATCH] * 3)
    assert [metrics["seen"] for metrics in shown] == [1]  # the validation has taken the 0
    assert "validation_loss" not in shown[0]


def test_a_run_can_stay_apart_from_its_model(tmp_path):
    def make():
        torch.manual_seed(0)
        model = net()
        return model, gv.trainer(model, "cross_entropy", "adam").checkpoint(tmp_path, keep=None)

    model, loop = make()
    torch.manual_seed(1)
    loop.run(loader(), epochs=4, in_place=False)
    trained = loop.state.step_state.model_state["4.weight"].clone()

    _, again = make()
    again.resume(tmp_path / "checkpoints" / "checkpoint_1_4.pt").run(loader(), epochs=2, in_place=False)
    assert torch.equal(again.state.step_state.model_state["4.weight"], trained)

    before = model[4].weight.clone()
    loop.resume(tmp_path / "checkpoints" / "checkpoint_1_4.pt")  # what is kept apart goes back, and nothing else
    assert torch.equal(model[4].weight, before)
    assert not torch.equal(loop.state.step_state.model_state["4.weight"], trained)
    loop.run(loader(), epochs=2, in_place=False)
    assert torch.equal(loop.state.step_state.model_state["4.weight"], trained)
    assert torch.equal(model[4].weight, before)


def test_the_rest_of_a_limited_epoch_is_run(tmp_path):
    small_loop().checkpoint(tmp_path, event="iteration_completed").run([BATCH] * 9, iterations=3)
    loop = small_loop().resume(tmp_path / "checkpoints" / "checkpoint_0_2.pt")
    loop.run([BATCH] * 9, epochs=2, iterations=3)
    assert (loop.state.iteration, loop.state.epoch) == (6, 2)
    assert loop.history.epochs["iterations"].tolist() == [3, 3]
    loop.resume(tmp_path / "checkpoints" / "checkpoint_0_3.pt").run([BATCH] * 9, iterations=2)  # more is done already
    assert (loop.state.iteration, loop.state.epoch) == (3, 1)


def test_an_epoch_that_a_handler_was_halting_is_halted(tmp_path):
    def make():
        events = []
        loop = small_loop().handle_event("iteration_completed", lambda state: "halt_epoch", once=2)
        loop.handle_event("all", lambda state: events.append((state.epoch, state.epoch_iteration)))
        loop.handle_event("epoch_halted", lambda state: events.append("halted"))
        return loop, events

    loop, events = make()
    loop.checkpoint(tmp_path, event="iteration_completed", keep=None).run([BATCH] * 3, epochs=2)
    again, later = make()
    again.resume(tmp_path / "checkpoints" / "checkpoint_0_2.pt").run([BATCH] * 3, epochs=2)
    assert later[1:] == events[events.index("halted") - 1 :]  # but for "started"
    assert again.state.iteration == loop.state.iteration == 5


def test_a_loop_that_was_halted_in_an_epoch_goes_on_in_it(tmp_path):
    loop = small_loop().handle_event("iteration_completed", lambda state: "halt_loop", once=2)
    loop.checkpoint(tmp_path, event="iteration_completed").run([BATCH] * 3)
    again = small_loop().resume(tmp_path)
    again.run([BATCH] * 3)
    assert (again.state.iteration, again.state.epoch) == (3, 1)


def test_as_a_stream_and_in_the_background(runs):
    expected, folder = runs("shuffled")
    file, epochs = places(folder)[1]
    loop, data = shuffled()
    assert [state.epoch for state in loop.resume(file).stream(data, epochs=epochs)] == [3, 4, 5, 6]
    assert_same(expected, outcome(loop))


def test_not_while_it_runs(tmp_path):
    loop = small_loop().checkpoint(tmp_path)
    for _ in loop.stream([BATCH], epochs=2):
        with pytest.raises(LoopError):
            loop.resume(tmp_path)


# What is taken ------------------------------------------------------------------------------------------------------


def damage(file: Path, how: str) -> None:
    content, status = bytearray(file.read_bytes()), file.stat()
    if how == "cut":
        content = content[: len(content) // 2]
    elif how == "flipped":
        content[content.index(torch.load(file)["model"]["weight"].numpy().tobytes())] ^= 255
    else:
        content = bytearray()
    file.unlink()  # another name of it is another file now
    file.write_bytes(content)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize("how", ["cut", "flipped", "empty"])
def test_of_a_folder_the_newest_good_one_is_taken_and_the_damaged_are_named(tmp_path, how):
    small_loop().checkpoint(tmp_path).run([BATCH], epochs=3)
    damage(tmp_path / "checkpoints" / "checkpoint_2_1.pt", how)
    assert small_loop().resume(tmp_path).state.epoch == 3  # last.pt is as good
    damage(tmp_path / "checkpoints" / "last.pt", how)
    with pytest.warns(CheckpointWarning, match=r"(?s)last.pt is damaged.*Taken instead: .*checkpoint_1_1.pt") as said:
        loop = small_loop().resume(tmp_path)
    assert len(said) == 1
    assert "checkpoint_2_1.pt is damaged" in str(said[0].message)
    assert "weights_only" not in str(said[0].message)
    assert loop.state.epoch == 2


def test_the_folder_of_checkpoints_itself_will_do(tmp_path):
    small_loop().checkpoint(tmp_path).run([BATCH], epochs=2)
    assert small_loop().resume(str(tmp_path / "checkpoints")).state.epoch == 2
    shutil.copytree(tmp_path / "checkpoints", tmp_path / "copied")
    assert small_loop().resume(tmp_path / "copied").state.epoch == 2


def test_a_copied_folder_goes_on_where_the_run_was_whatever_the_times_of_its_files(tmp_path):
    loop = small_loop().metric(lambda p, y: float(loop.state.epoch), "rising")
    loop.checkpoint(tmp_path / "run", best="rising").run([BATCH], epochs=4)
    copied = tmp_path / "copied"
    shutil.copytree(tmp_path / "run" / "checkpoints", copied)
    for place, name in enumerate(["last.pt", "checkpoint_3_1.pt", "checkpoint_2_1.pt", "checkpoint_1_1.pt", "best.pt"]):
        os.utime(copied / name, ns=(place, place))
    assert torch.load(copied / "best.pt")["state"]["epoch"] == 1
    assert small_loop().metric(lambda p, y: 0.0, "rising").resume(copied).state.epoch == 4
    (copied / "last.pt").unlink()
    assert small_loop().metric(lambda p, y: 0.0, "rising").resume(copied).state.epoch == 4
    shutil.copy(copied / "checkpoint_3_1.pt", copied / "last.pt")
    damage(copied / "last.pt", "flipped")
    with pytest.warns(CheckpointWarning, match=r"last.pt is damaged.*Taken instead: .*checkpoint_3_1.pt"):
        assert small_loop().metric(lambda p, y: 0.0, "rising").resume(copied).state.epoch == 4


def test_parameters_and_targets_by_any_name_come_back(tmp_path):
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.tensor, self.device = nn.Parameter(torch.ones(2, 1)), nn.Parameter(torch.zeros(1))

        def forward(self, x):
            return x @ self.tensor + self.device

    def make():
        options = {"optimizer": "adam", "keep_gradients": True}
        return gv.trainer(Named(), lambda p, y: ((p - y["tensor"]) ** 2).mean(), **options)

    loop = make().checkpoint(tmp_path, gradients=True)
    loop.run([(BATCH[0], {"tensor": BATCH[1]})] * 2)
    assert list(torch.load(tmp_path / "checkpoints" / "last.pt")["model"]) == ["tensor", "device"]
    found = make().resume(tmp_path).state.step_state
    for name, p in loop.state.step_state.model_state.items():
        assert torch.equal(p, found.model_state[name])
        assert torch.equal(loop.state.step_state["gradients"][name], found["gradients"][name])
    assert torch.equal(found["y_true"]["tensor"], BATCH[1])


def test_what_is_no_checkpoint_is_an_error(tmp_path):
    file = tmp_path / "file.pt"
    with pytest.raises(CheckpointError, match="There is no"):
        small_loop().resume(file)
    with pytest.raises(CheckpointError, match="holds no checkpoint"):
        small_loop().resume(tmp_path)
    file.write_bytes(b"nothing")
    with pytest.raises(CheckpointError, match=r"is damaged, or no checkpoint \(UnpicklingError: [^.]*\)\.$"):
        small_loop().resume(file)  # and no word of torch's that it be read unsafely
    with pytest.raises(CheckpointError, match=r"No checkpoint in .* can be read"):
        small_loop().resume(tmp_path)
    torch.save(nn.Linear(2, 1).state_dict(), file)
    with pytest.raises(CheckpointError, match=r"model\.load_state_dict\(torch\.load\(file\)\)"):
        small_loop().resume(file)
    torch.save({"format": "gradviz checkpoint", "format_version": 99, "versions": {"gradviz": "7.0"}}, file)
    with pytest.raises(CheckpointError, match=r"format version 99, written by gradviz 7\.0"):
        small_loop().resume(file)


OTHERS = {
    "the model does not": lambda: gv.trainer(nn.Linear(2, 1, bias=False), "mean_squared_error", "sgd"),
    "the checkpoint does not": lambda: gv.trainer(nn.Sequential(nn.Linear(2, 1)), "mean_squared_error", "sgd"),
    r"of shape \(1, 3\) in the model": lambda: gv.trainer(nn.Linear(3, 1), "mean_squared_error", "sgd"),
    r"float64 of shape \(1, 2\) in the model": lambda: gv.trainer(
        nn.Linear(2, 1).double(), "mean_squared_error", "sgd"
    ),
    r"Policy\(params=": lambda: small_loop(policy=gv.Policy(params="bfloat16")),
    "of the optimizer SGD, and this loop has Adam": lambda: small_loop("adam"),
    "1 in the checkpoint": lambda: small_loop(lambda ps: torch.optim.SGD([{"params": [p]} for p in ps])),
    "under the loss scale Identity, and this loop has Dynamic": lambda: small_loop(loss_scale="dynamic"),
}


@pytest.mark.parametrize("said", OTHERS)
def test_another_loop_is_an_error_before_anything_moves(tmp_path, said):
    small_loop().checkpoint(tmp_path).run([BATCH], epochs=2)
    loop = OTHERS[said]()
    loop.run(
        [
            (
                torch.ones(4, loop._step.model_state[next(iter(loop._step.model_state))].shape[1]).to(
                    next(iter(loop._step.model_state.values())).dtype
                ),
                torch.ones(4, 1),
            )
        ]
    )
    before = outcome(loop)
    said = "unexpected|and the" if said in ("the model does not", "the checkpoint does not") else said
    with pytest.raises(CheckpointError, match=said):
        loop.resume(tmp_path)
    assert_same(before, outcome(loop))


def test_other_parameter_groups_are_an_error(tmp_path):
    def make(first):
        def grouped(parameters):
            parts = [parameters[:first], parameters[first:]]
            return torch.optim.SGD([{"params": part, "lr": 0.1} for part in parts])

        torch.manual_seed(0)
        return gv.trainer(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1)), "mean_squared_error", grouped)

    make(2).checkpoint(tmp_path).run([BATCH])
    with pytest.raises(CheckpointError, match=r"'1.weight' is in parameter group 0 in this loop's optimizer only"):
        make(3).resume(tmp_path)
    make(2).resume(tmp_path)


def test_what_joined_the_optimizer_on_the_way_joins_it_again(tmp_path):
    def make():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
        gv.ModelState(model).freeze("0")
        head = torch.optim.SGD(model[1].parameters(), lr=0.1, momentum=0.9)
        loop = gv.trainer(model, "mean_squared_error", head)
        return loop.handle_event("epoch_completed", lambda state: gv.ModelState(model).unfreeze() and None, once=1)

    loop = make().checkpoint(tmp_path, keep=None)
    loop.run([BATCH], epochs=4)
    again = make()
    again.resume(tmp_path / "checkpoints" / "checkpoint_2_1.pt").run([BATCH])
    assert_same(outcome(loop), outcome(again))
    again.resume(tmp_path / "checkpoints" / "checkpoint_0_1.pt").run([BATCH], epochs=3)  # before it joined
    assert_same(outcome(loop), outcome(again))


def test_the_options_of_the_optimizer_come_from_the_checkpoint(tmp_path):
    small_loop(partial(torch.optim.SGD, lr=0.25)).checkpoint(tmp_path).run([BATCH])
    loop = small_loop(partial(torch.optim.SGD, lr=0.5)).resume(tmp_path)
    assert loop.state.step_state.optimizer_state.optimizer.param_groups[0]["lr"] == 0.25


def test_what_the_loop_has_no_place_for_is_named_once(tmp_path):
    full = small_loop().metric("mean_absolute_error").validate([BATCH]).early_stop("validation_loss")
    full.checkpoint(tmp_path, event="iteration_completed").run([BATCH])
    said = r"remembers epoch_completed: early_stop\(validation_loss\), the metric 'mean_absolute_error', a validation"
    with pytest.warns(CheckpointWarning, match=said) as warned:
        small_loop().resume(tmp_path).run([BATCH])
    assert len(warned) == 1


def test_a_metric_that_was_accumulated_otherwise_is_an_error_before_anything_moves(tmp_path):
    small_loop().metric("mean_absolute_error").checkpoint(tmp_path, event="iteration_completed").run([BATCH])
    loop = small_loop().metric("mean_absolute_error", None, "max")
    before = nn.Linear.state_dict(loop._step.model)["weight"].clone()
    with pytest.raises(MetricError, match="accumulated by 'max' here"):
        loop.resume(tmp_path)
    assert torch.equal(loop._step.model.weight, before)


def test_data_with_fewer_batches_than_were_trained_on_is_an_error_and_the_right_data_go_on(tmp_path):
    small_loop().checkpoint(tmp_path, event="iteration_completed").run([BATCH] * 4)
    loop = small_loop().resume(tmp_path / "checkpoints" / "checkpoint_0_3.pt")
    with pytest.raises(DataError, match="after 3 iterations of epoch 0, and the data has 2"):
        loop.run([BATCH] * 2)
    assert loop.run([BATCH] * 4).iteration == 4
    assert loop.state.epoch == 1


def test_an_iterator_that_is_read_once_loses_no_batch(tmp_path):
    """The trial takes the first batch that the epoch reads anyway."""
    small_loop().checkpoint(tmp_path).run([BATCH] * 2)
    seen = []
    loop = small_loop().metric(lambda p, y: seen.append(y[0].item()) or 0.0, "seen").resume(tmp_path)
    loop.run(iter([(BATCH[0], torch.full((4, 1), float(n))) for n in range(3)]))
    assert seen == [0, 1, 2]


def test_parts_in_eval_mode_stay_so(tmp_path):
    model = net()
    loop = gv.trainer(model, "cross_entropy", "adam").checkpoint(tmp_path)
    loop.handle_event("epoch_started", lambda state: model[3].eval() and None).run(loader())
    fresh = net()
    gv.trainer(fresh, "cross_entropy", "adam").resume(tmp_path)
    assert [name for name, child in fresh.named_modules() if not child.training] == ["3"]


def test_training_leaves_no_trial_behind(tmp_path):
    """What the trial step of a resumed run moves is put back: it counts its calls, in a buffer."""

    class Counting(nn.Linear):
        def __init__(self):
            super().__init__(2, 1)
            self.register_buffer("calls", torch.tensor(0))

        def forward(self, x):
            self.calls += 1
            return super().forward(x)

    gv.trainer(Counting(), "mean_squared_error", "adam").checkpoint(tmp_path).run([BATCH] * 2)
    model = Counting()
    gv.trainer(model, "mean_squared_error", "adam").resume(tmp_path).run([BATCH] * 3)
    assert model.calls == 5


@pytest.mark.parametrize("file", ["", "run.json"])
def test_a_folder_of_rows_alone_is_no_checkpoint_and_says_what_it_lacks(tmp_path, file):
    folder = tmp_path / "b"
    loop = gv.trainer(nn.Linear(2, 1), "mean_squared_error", "adam", save_to=folder)
    loop.run([(torch.ones(4, 2), torch.ones(4, 1))])
    with pytest.raises(CheckpointError) as error:
        loop.resume(folder / file)
    assert str(error.value) == (
        f"{folder} holds the rows of a run, but no checkpoints: write loop.checkpoint({str(folder)!r}) before the run."
    )
