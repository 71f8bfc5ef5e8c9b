"""The `Trainer` of transformers with the callback, against the same training in plain PyTorch."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from gradviz.adapters.transformers import WatchCallback
from gradviz.errors import RecordingWarning
from tests.adapters.plain import Plain, close, same

TOKENS = torch.randint(16, (160, 6), generator=torch.Generator().manual_seed(1))


def gpt():
    torch.manual_seed(0)
    none = {"bos_token_id": None, "eos_token_id": None, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    return GPT2LMHeadModel(GPT2Config(vocab_size=16, n_positions=6, n_embd=8, n_layer=2, n_head=2, **none))


def loss_of(model, tokens):
    # The trainer counts tokens like that.
    return model(input_ids=tokens, labels=tokens, num_items_in_batch=tokens.numel()).loss


class InOrder(Trainer):
    def _get_train_sampler(self, *_):
        return torch.utils.data.SequentialSampler(self.train_dataset)


@pytest.fixture
def trainer(tmp_path):
    def make(model, callback, n=20, kind=InOrder, **options):
        quiet = {"disable_tqdm": True, "report_to": "none", "save_strategy": "no", "logging_steps": 1}
        options = {"use_cpu": True, "per_device_train_batch_size": 4, "num_train_epochs": 1, **quiet, **options}
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        schedule = torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1.0)
        data = [{"input_ids": tokens, "labels": tokens} for tokens in TOKENS[: 4 * n]]
        args = TrainingArguments(str(tmp_path), **options)
        return kind(
            model, args, train_dataset=data, eval_dataset=data, optimizers=(optimizer, schedule), callbacks=[callback]
        )

    return make


def plain(n=20, **options):
    model = gpt()
    batches = TOKENS[: 4 * n].split(4)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    return model, Plain(**options).train(model, optimizer, batches, lambda tokens: loss_of(model, tokens))


def test_twenty_steps_are_those_of_a_plain_loop(trainer):
    model, callback = gpt(), WatchCallback()
    trainer(model, callback, max_grad_norm=0).train()
    expected_model, expected = plain()
    assert same(model, expected_model)
    assert close(callback.history.norms, expected.backward)
    assert callback.history.metrics["loss"].tolist() == pytest.approx(expected.losses)
    assert callback.history.progress.status == "completed"


def test_accumulated_and_clipped_gradients_are_told_apart(trainer):
    model, callback = gpt(), WatchCallback(record="norms")
    trainer(model, callback, 40, gradient_accumulation_steps=2, max_grad_norm=0.1).train()
    _, expected = plain(40, accumulate=2, clip=0.1)
    norms, metrics = callback.history.norms, callback.history.metrics
    assert close(norms, expected.backward)
    assert close(callback.history.wide("norm", stage="clipped"), expected.clipped)
    assert metrics["loss"].tolist() == pytest.approx(expected.losses)
    assert metrics["grad_norm"].tolist() == pytest.approx(norms.pow(2).sum(axis=1).pow(0.5).tolist())


def test_what_is_logged_stands_with_the_last_step_and_the_summary_nowhere(trainer):
    model, callback = gpt(), WatchCallback()
    often = {"logging_steps": 2, "eval_strategy": "epoch", "eval_on_start": True}
    trainer(model, callback, 4, num_train_epochs=2, **often).train()
    metrics = callback.history.metrics
    assert metrics["epoch"].tolist() == [0] * 4 + [1] * 4
    assert metrics.index[metrics["loss"].notna()].tolist() == [1, 3, 5, 7]
    assert metrics.index[metrics["eval_loss"].notna()].tolist() == [3, 7]
    assert not {"train_loss", "train_runtime"} & set(metrics)


def test_an_epoch_of_unknown_length_is_counted(trainer):
    class Unknown(InOrder):
        def get_train_dataloader(self):
            return iter_of(super().get_train_dataloader())

    model, callback = gpt(), WatchCallback()
    trainer(model, callback, 3, kind=Unknown, max_steps=7).train()
    assert callback.history.metrics["epoch"].tolist() == [0, 0, 0, 1, 1, 1, 2]


def iter_of(loader):
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(loader)

    return torch.utils.data.DataLoader(Stream(), batch_size=None)


def test_a_value_that_can_be_no_column_is_left_out_with_a_word(trainer):
    class Odd(InOrder):
        def log(self, logs, *args):
            super().log({**logs, "skipped": 1.0, "phase": "early"}, *args)

    model, callback = gpt(), WatchCallback()
    with pytest.warns(RecordingWarning, match="is left out of the history") as warned:
        trainer(model, callback, 3, kind=Odd).train()
    assert sum(issubclass(each.category, RecordingWarning) for each in warned) == 2
    assert callback.history.metrics["loss"].notna().all()


def test_a_training_goes_on_from_its_checkpoint(trainer, tmp_path):
    saving = {"save_strategy": "epoch", "num_train_epochs": 2}
    trainer(gpt(), WatchCallback(), 3, **saving).train()
    model, callback = gpt(), WatchCallback()
    trainer(model, callback, 3, **saving).train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    metrics = callback.history.metrics
    assert metrics["epoch"].tolist() == [1] * 3
    assert not any(p._post_accumulate_grad_hooks for p in model.parameters())


def test_of_a_training_that_failed_the_next_one_takes_the_place(trainer):
    class Breaking(InOrder):
        def training_step(self, *args):
            if self.state.global_step == 2 and self.is_breaking:
                raise ZeroDivisionError
            return super().training_step(*args)

    model, callback = gpt(), WatchCallback()
    training = trainer(model, callback, 4, kind=Breaking)
    training.is_breaking = True
    with pytest.raises(ZeroDivisionError):
        training.train()
    failed = callback.history
    assert len(failed) == 2
    training.is_breaking = False
    training.train()
    assert (len(failed), len(callback.history)) == (2, 4)


def test_a_model_of_ones_own_may_have_parts_that_nobody_reaches(trainer):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.gpt, self.idle = gpt(), nn.Linear(1, 1)

        def forward(self, input_ids, labels):
            return self.gpt(input_ids=input_ids, labels=labels)

    callback = WatchCallback()
    trainer(Model(), callback, 2).train()
    states = callback.history.wide("state")
    assert set(states["idle.weight"]) == {"unused"}
    assert math.isfinite(callback.history.norms["gpt.transformer.wte.weight"].iloc[-1])
