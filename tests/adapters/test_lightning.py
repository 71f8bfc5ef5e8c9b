"""Lightning's `Trainer` with the callback, against the same training in plain PyTorch."""

from __future__ import annotations

import importlib
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.plugins.precision import MixedPrecision
from lightning.pytorch.tuner import Tuner
from torch import nn
from torch.utils.data import DataLoader

from gradviz.adapters.lightning import WatchCallback
from gradviz.errors import RecordingWarning
from gradviz.history.history import History
from tests.adapters.plain import Plain, close, norms, same


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))


def batches(n=20):
    rows = torch.randn(4 * n, 3, generator=torch.Generator().manual_seed(1))
    return DataLoader(rows, batch_size=4)


def loss_of(net, x):
    return (net(x) - x.sum(1, keepdim=True)).square().mean()


class Module(LightningModule):
    def __init__(self):
        super().__init__()
        self.net = network()

    def training_step(self, batch):
        return loss_of(self.net, batch)

    def configure_optimizers(self):
        return torch.optim.Adam(self.net.parameters(), lr=0.01)


def plain(n=20, **options):
    net = network()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    return net, Plain(**options).train(net, optimizer, batches(n), lambda x: loss_of(net, x))


@pytest.fixture
def trainer(tmp_path):
    def make(*callbacks, kind=Trainer, **options):
        quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
        options = {"max_epochs": 1, "accelerator": "cpu", "default_root_dir": tmp_path, **quiet, **options}
        return kind(callbacks=list(callbacks), **options)

    return make


def wide(callback, stage="backward"):
    return callback.history.wide("norm", stage=stage).rename(columns=lambda name: name.removeprefix("net."))


@pytest.mark.parametrize("name", ["lightning.pytorch", "pytorch_lightning"])
def test_twenty_steps_are_those_of_a_plain_loop(trainer, name):
    library = importlib.import_module(name)

    class Named(library.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = network()

        training_step, configure_optimizers = Module.training_step, Module.configure_optimizers

    module, callback = Named(), WatchCallback()
    trainer(callback, kind=library.Trainer).fit(module, batches())
    net, expected = plain()
    assert same(module.net, net)
    assert close(wide(callback), expected.backward)
    assert callback.history.metrics["loss"].tolist() == pytest.approx(expected.losses)
    assert callback.history.progress.status == "completed"


def test_accumulated_and_clipped_gradients_are_told_apart(trainer):
    module, callback = Module(), WatchCallback(record="norms")
    trainer(callback, accumulate_grad_batches=2, gradient_clip_val=0.01).fit(module, batches(40))
    net, expected = plain(40, accumulate=2, clip=0.01)
    assert same(module.net, net)
    assert close(wide(callback), expected.backward)
    assert close(wide(callback, "clipped"), expected.clipped)
    assert callback.history.metrics["loss"].tolist() == pytest.approx(expected.losses)


def test_a_parameter_that_only_the_first_of_the_accumulated_batches_reaches_is_told_as_reached(trainer):
    class Twofold(Module):
        def training_step(self, batch, batch_idx):
            return self.net[0](batch).square().mean() + (0 if batch_idx % 2 else self.net(batch).mean())

    callback = WatchCallback()
    trainer(callback, accumulate_grad_batches=2).fit(Twofold(), batches(4))
    assert callback.history.gradients["state"].tolist() == ["ok"] * 8


class TwoOptimizers(Module):
    """One for each layer, in turn and by hand."""

    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.seen = [], []

    def training_step(self, batch):
        for optimizer, layer, seen in zip(self.optimizers(), (self.net[0], self.net[2]), self.seen, strict=True):
            optimizer.zero_grad()
            loss = loss_of(self.net, batch)
            self.manual_backward(loss)
            seen.append(norms(layer))
            self.clip_gradients(optimizer, gradient_clip_val=0.01, gradient_clip_algorithm="norm")
            seen.append(norms(layer))
            optimizer.step()
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.net[0].parameters(), lr=0.1), torch.optim.Adam(self.net[2].parameters())


def test_optimizers_that_step_by_hand_are_told_apart(trainer):
    module, callback = TwoOptimizers(), WatchCallback()
    trainer(callback).fit(module, batches())
    metrics = callback.history.metrics
    assert metrics["optimizer"].tolist() == ["0", "1"] * 20
    assert metrics["loss"].isna().tolist() == [True, False] * 20
    for place, layer in enumerate(("0.", "2.")):
        for stage, seen in (("backward", module.seen[place][::2]), ("clipped", module.seen[place][1::2])):
            own = wide(callback, stage).filter(regex=f"^{layer}").iloc[place::2]
            assert close(own.rename(columns=lambda name: name[2:]), seen)


def test_gradients_are_told_without_the_loss_scale_and_skipped_steps_as_such(trainer):
    class Overflowing(Module):
        def training_step(self, batch, batch_idx):
            return super().training_step(batch) * (float("inf") if batch_idx == 3 else 1.0)

    module, callback = Overflowing(), WatchCallback()
    precision = MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu", init_scale=1024.0))
    trainer(callback, plugins=[precision]).fit(module, batches())
    metrics = callback.history.metrics
    assert metrics.index[metrics["skipped"]].tolist() == [3]
    assert metrics["loss_scale"].tolist() == [1024.0] * 4 + [512.0] * 16

    net = network()
    optimizer, scaler = torch.optim.Adam(net.parameters(), lr=0.01), torch.amp.GradScaler("cpu", init_scale=1024.0)
    expected = []
    for i, batch in enumerate(batches()):
        with torch.autocast("cpu", torch.half):
            loss = loss_of(net, batch) * (float("inf") if i == 3 else 1.0)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        expected.append(norms(net))
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    assert same(module.net, net)
    assert close(wide(callback).drop(3), expected[:3] + expected[4:])


class Logging(Module):
    def training_step(self, batch, batch_idx):
        loss = super().training_step(batch)
        self.log("loss_so_far", loss, on_step=True, on_epoch=True)
        self.log("epoch", float(self.current_epoch))
        if batch_idx % 2:
            self.log("odd", float(batch_idx))
        return loss

    def validation_step(self, batch):
        self.log("validation_loss", loss_of(self.net, batch))


def test_metrics_stand_where_they_were_logged_and_those_of_an_epoch_with_its_last_iteration(trainer):
    callback = WatchCallback()
    fitting = trainer(callback, max_epochs=2)
    fitting.fit(Logging(), batches(4), batches(2))
    metrics = callback.history.metrics
    assert metrics["epoch"].tolist() == [0] * 4 + [1] * 4
    assert metrics["loss_so_far_step"].tolist() == metrics["loss"].tolist()
    assert metrics["odd"].dropna().to_dict() == {1: 1.0, 3: 3.0, 5: 1.0, 7: 3.0}
    means = metrics.groupby("epoch")["loss"].mean()
    assert metrics["loss_so_far_epoch"].dropna().to_dict() == pytest.approx({3: means[0], 7: means[1]})
    validated = metrics["validation_loss"].dropna()
    assert validated.index.tolist() == [3, 7]
    assert validated[7] == pytest.approx(fitting.callback_metrics["validation_loss"].item())


def test_a_metric_that_can_be_no_column_is_left_out_with_a_word(trainer):
    class Odd(Module):
        def training_step(self, batch):
            self.log("skipped", 1.0)
            return super().training_step(batch)

    callback = WatchCallback()
    with pytest.warns(RecordingWarning, match="skipped is left out of the history") as warned:
        trainer(callback).fit(Odd(), batches(3))
    assert sum(issubclass(each.category, RecordingWarning) for each in warned) == 1
    assert not callback.history.metrics["skipped"].any()


def test_a_watch_that_is_closed_meanwhile_lets_the_training_go_on(trainer):
    class Closing(Callback):
        def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
            if batch_idx == 1:
                callback.watch.close()

    callback = WatchCallback()
    fitting = trainer(callback, Closing(), max_epochs=2)
    fitting.fit(Module(), batches(3))
    assert (fitting.global_step, len(callback.history)) == (6, 2)


def test_of_several_processes_the_first_one_records_their_common_gradients(tmp_path):
    # In a program of its own, as Lightning's processes are forked from one that has no threads.
    code = f"""if True:
        import torch
        from gradviz.adapters.lightning import WatchCallback
        from tests.adapters.test_lightning import Logging, Trainer, batches

        torch.set_num_threads(1)
        callback = WatchCallback(save_to={str(tmp_path / "run")!r})
        quiet = dict.fromkeys(["logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"], False)
        trainer = Trainer(
            max_epochs=1, accelerator="cpu", devices=2, strategy="ddp_fork", callbacks=[callback],
            use_distributed_sampler=False, **quiet
        )
        trainer.fit(Logging(), batches(20), batches(2))
    """
    program = [sys.executable, "-W", "ignore", "-c", code]
    subprocess.run(program, cwd=Path(__file__).parents[2], check=True, capture_output=True)
    history = History.open(tmp_path / "run")
    _, expected = plain()  # each process has all batches here
    assert close(history.norms.rename(columns=lambda name: name.removeprefix("net.")), expected.backward)
    assert history.progress.status == "completed"
    assert history.metrics["validation_loss"].notna().sum() == 1


@pytest.mark.parametrize(
    ("raised", "passed_on", "status"),
    [(ZeroDivisionError, ZeroDivisionError, "failed"), (KeyboardInterrupt, SystemExit, "interrupted")],
)
def test_a_training_that_breaks_off_says_so_and_leaves_no_hook(trainer, raised, passed_on, status):
    class Breaking(Module):
        def training_step(self, batch, batch_idx):
            if batch_idx == 3:
                raise raised
            return super().training_step(batch)

    callback, module = WatchCallback(), Breaking()
    fitting = trainer(callback)
    handler = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(passed_on):
            fitting.fit(module, batches(5))
    finally:
        signal.signal(signal.SIGINT, handler)  # Lightning lets go of it
    assert len(callback.history) == 3
    assert callback.history.progress.status == status
    assert not any(p._post_accumulate_grad_hooks for p in module.parameters())


def test_a_training_goes_on_from_its_checkpoint(trainer, tmp_path):
    begun = trainer(WatchCallback())
    begun.fit(Module(), batches(3))
    begun.save_checkpoint(tmp_path / "a.ckpt")
    callback = WatchCallback()
    trainer(callback, max_epochs=3).fit(Module(), batches(3), ckpt_path=tmp_path / "a.ckpt", weights_only=True)
    assert callback.history.metrics["epoch"].tolist() == [1] * 3 + [2] * 3


def test_what_a_tuner_tries_is_not_recorded(trainer):
    callback = WatchCallback()

    class Tuned(Module):
        lr = 0.01

    module, fitting = Tuned(), trainer(callback)
    Tuner(fitting).lr_find(module, batches(), num_training=5)
    fitting.fit(module, batches(3))
    assert len(callback.history) == 3
