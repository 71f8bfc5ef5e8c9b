"""What the tests are worth: each breakage of the step, made on purpose, turns a named test red."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from gradviz.errors import GradvizError
from gradviz.grad.algebra import Grad
from gradviz.grad.modes import Eval
from gradviz.loop import validation
from gradviz.loop.metrics import metric
from gradviz.loop.metrics.function_metric import LossMetric
from gradviz.step import evaluation, gradients, objective, surrogate, train_step
from gradviz.step.buffers import Buffers
from gradviz.step.fixed_point import FixedPoint
from gradviz.step.loss_scale import LossScale
from gradviz.step.masters import Masters
from gradviz.step.model_state import ModelState
from gradviz.step.objective import Forward
from gradviz.step.step_state import StepState
from gradviz.step.tensors import zeros
from gradviz.step.train_step import TrainStep
from tests.loop import test_validation as of_validation
from tests.step import test_buffers as of_buffers
from tests.step import test_evaluation as of_evaluation
from tests.step import test_objective as of_objective
from tests.step import test_promises as of_promises
from tests.step import test_step_state as of_step_state
from tests.step import test_train_step as of_train_step

Patch = pytest.MonkeyPatch


class Breakage(NamedTuple):
    """What is broken, and a test that says so."""

    breaks: Callable[[Patch], None]
    test: Callable[..., None]
    args: tuple[Any, ...] = ()


def on_steps(change: Callable[[TrainStep, StepState], None]) -> Callable[[Patch], None]:
    """A step that changes the state it gives back."""

    def breaks(patch: Patch) -> None:
        step = TrainStep.__call__

        def changed(self: TrainStep, batch: Any, state: StepState) -> StepState:
            new = step(self, batch, state)
            change(self, new)
            return new

        patch.setattr(TrainStep, "__call__", changed)

    return breaks


def on_init(change: Callable[[TrainStep, StepState], None]) -> Callable[[Patch], None]:
    """An init that changes the state it gives back."""

    def breaks(patch: Patch) -> None:
        init = TrainStep.init

        def changed(self: TrainStep, batch: Any) -> StepState:
            state = init(self, batch)
            change(self, state)
            return state

        patch.setattr(TrainStep, "init", changed)

    return breaks


def everywhere(change: Callable[[TrainStep, StepState], None]) -> Callable[[Patch], None]:
    """Both."""

    def breaks(patch: Patch) -> None:
        on_init(change)(patch)
        on_steps(change)(patch)

    return breaks


def replaced(target: Any, name: str, value: Any) -> Callable[[Patch], None]:
    return lambda patch: patch.setattr(target, name, value)


def nothing(*_: Any, **__: Any) -> contextlib.nullcontext[None]:
    return contextlib.nullcontext()


# Kept gradients --------------------------------------------------------------------------------------------------


def kept_after_clipping(step: TrainStep, state: StepState) -> None:
    state["gradients"] = step._clip(state["gradients"])


def kept_while_scaled(step: TrainStep, state: StepState) -> None:
    state["gradients"] = state["gradients"] * step.report.loss_scale


def kept_with_weight_decay(step: TrainStep, state: StepState) -> None:
    decay = step.optimizer.param_groups[0]["weight_decay"]
    parameters = step.model_state.parameters
    state["gradients"] = Grad(step.model, {n: g + decay * parameters[n] for n, g in state["gradients"].items()})


def kept_in_one_place(step: TrainStep, state: StepState) -> None:
    """As ``.grad`` is, which every backward pass writes into."""
    place = vars(step).setdefault("place", state["gradients"])
    for name, leaf in state["gradients"].items():
        place[name].copy_(leaf)
    state["gradients"] = place


def kept_of_the_batch_before(step: TrainStep, state: StepState) -> None:
    latest, step.latest = vars(step).get("latest", state["gradients"]), state["gradients"]
    state["gradients"] = latest


def kept_of_frozen_parameters_too(step: TrainStep, state: StepState) -> None:
    kept = state["gradients"]
    state["gradients"] = {n: kept[n] if n in kept else zeros(p) for n, p in step.model_state.parameters.items()}


def zeros_of_the_parameters(step: TrainStep, state: StepState) -> None:
    state["gradients"] = {name: zeros(p) for name, p in step.model_state.trainable.items()}


def none_where_off(step: TrainStep, state: StepState) -> None:
    state.setdefault("gradients", None)


def scale_left_in(patch: Patch) -> None:
    """For the optimizer too."""
    patch.setattr(type(LossScale.static()), "unscaled", lambda self, gradients, state, finite: (gradients, state))
    patch.setattr(evaluation, "unscale_in_place", lambda gradients, scale: None)


def unused_as_zeros(patch: Patch) -> None:
    for way in (gradients._InPlace, gradients._ByGrad):
        total = way.total

        def filled(self: Any, total: Any = total) -> list[Tensor]:
            parameters = self._found.parameters
            return [zeros(p) if g is None else g for p, g in zip(parameters, total(self), strict=True)]

        patch.setattr(way, "total", filled)


OF_GRADIENTS = {
    "kept after clipping": Breakage(
        on_steps(kept_after_clipping), of_evaluation.test_clipping_decay_and_momentum_come_after_what_is_kept
    ),
    "kept with weight decay": Breakage(
        on_steps(kept_with_weight_decay), of_evaluation.test_weight_decay_and_momentum_do_not_show_in_what_is_kept
    ),
    "kept while scaled": Breakage(
        on_steps(kept_while_scaled),
        of_evaluation.test_kept_gradients_are_unscaled_and_what_the_optimizer_gets,
        (torch.float32, "static"),
    ),
    "never unscaled": Breakage(
        scale_left_in,
        of_evaluation.test_kept_gradients_are_unscaled_and_what_the_optimizer_gets,
        (torch.float64, "static"),
    ),
    "frozen ones kept": Breakage(
        everywhere(kept_of_frozen_parameters_too),
        of_evaluation.test_a_frozen_layer_has_no_gradient_and_stays_to_the_bit,
    ),
    "kept in one place": Breakage(on_steps(kept_in_one_place), of_evaluation.test_a_kept_gradient_is_never_rewritten),
    "kept of the batch before": Breakage(
        on_steps(kept_of_the_batch_before), of_promises.test_the_kept_gradient_is_that_of_the_batch_just_processed
    ),
    "handed to hooks that write": Breakage(
        replaced(train_step, "rewrites_gradients", lambda optimizer: False),
        of_train_step.test_gradients_that_share_memory_are_the_optimizer_s_to_write_into,
        (True,),
    ),
    "zeros of the parameters' dtype": Breakage(
        on_init(zeros_of_the_parameters),
        of_evaluation.test_under_a_16_bit_policy_parameters_are_narrow_and_gradients_float32,
        (torch.bfloat16, "identity"),
    ),
    "None where it is off": Breakage(
        everywhere(none_where_off), of_evaluation.test_gradients_are_absent_unless_asked_for
    ),
    "unused ones given": Breakage(
        unused_as_zeros, of_step_state.test_an_unused_parameter_has_zeros_and_no_moments_until_it_is_reached
    ),
    "unused ones moved": Breakage(
        unused_as_zeros, of_train_step.test_unused_and_frozen_parameters_stay_to_the_bit_under_momentum_and_decay
    ),
}


# Objectives ------------------------------------------------------------------------------------------------------


def buffers_of_the_last_pass(patch: Patch) -> None:
    settle = Forward.settle
    patch.setattr(Forward, "settle", lambda self, output: settle(self, output._replace(state=self._latest)))


def prediction_of_the_first_pass(patch: Patch) -> None:
    forward, seen = Forward.__call__, {}

    def noted(self: Forward, model_state: Any, inputs: Any) -> Any:
        output = forward(self, model_state, inputs)
        seen.setdefault(self, output)
        return output

    def first(self: evaluation.Differentiator, *args: Any, **options: Any) -> evaluation.Evaluation:
        seen.clear()
        tried = evaluate(self, *args, **options)
        return dataclasses.replace(tried, prediction=next(iter(seen.values())).prediction.detach())

    evaluate = evaluation.Differentiator.__call__
    patch.setattr(Forward, "__call__", noted)
    patch.setattr(evaluation.Differentiator, "__call__", first)


def parameters_read_detached(patch: Patch) -> None:
    read = ModelState.__getitem__
    patch.setattr(ModelState, "__getitem__", lambda self, name: read(self, name).detach())


def loss_scaled(step: TrainStep, state: StepState) -> None:
    state["loss"] = state["loss"] * step.report.loss_scale


def three_accepted(patch: Patch) -> None:
    by_arity = objective._by_arity

    def lenient(function: Callable[..., Any]) -> Any:
        return function if function.__code__.co_argcount == 3 else by_arity(function)

    patch.setattr(objective, "_by_arity", lenient)


def frozen_ones_move(patch: Patch) -> None:
    patch.setattr(ModelState, "freeze", lambda self, *which: self)


def checked_by_nothing(result: Any, of: Any, **_: Any) -> Any:
    return result if isinstance(result, tuple) else (result, objective.Output(result.detach(), {}))


OF_OBJECTIVES = {
    "buffers of the last pass": Breakage(
        buffers_of_the_last_pass,
        of_buffers.test_two_passes_have_the_gradient_and_leave_the_buffers_of_passes_that_each_start_anew,
        (of_buffers.Writing, 0),
    ),
    "buffers of the last pass are kept, batch norm": Breakage(
        buffers_of_the_last_pass, of_promises.test_the_output_that_is_returned_is_the_prediction, (0,)
    ),
    "passes go on from each other's buffers": Breakage(
        replaced(Buffers, "lay_out", nothing),
        of_objective.test_each_forward_starts_from_the_same_buffers_and_the_returned_output_s_are_kept,
    ),
    "prediction of the first pass": Breakage(
        prediction_of_the_first_pass, of_promises.test_the_output_that_is_returned_is_the_prediction, (1,)
    ),
    "parameters read detached": Breakage(
        parameters_read_detached,
        of_objective.test_a_penalty_on_a_parameter_that_is_read_directly_is_differentiated,
    ),
    "loss scaled": Breakage(
        on_steps(loss_scaled), of_promises.test_the_loss_is_reported_unscaled, ("mean_squared_error", 2.053, "static")
    ),
    "tried at the first step only": Breakage(
        replaced(TrainStep, "init", lambda self, batch: StepState()),
        of_objective.test_what_is_no_objective_is_refused_at_init_before_anything_moved,
        (of_objective.only_the_loss, "must return the loss and the whole output of forward"),
    ),
    "not checked": Breakage(
        replaced(evaluation, "checked", checked_by_nothing),
        of_objective.test_what_is_no_objective_is_refused_at_init_before_anything_moved,
        (of_objective.only_the_loss, "must return the loss and the whole output of forward"),
    ),
    "refused after something moved": Breakage(
        replaced(train_step, "untouched", nothing),
        of_objective.test_what_is_no_objective_is_refused_at_init_before_anything_moved,
        (of_objective.without_a_graph, "has no graph"),
    ),
    "called a validation loss": Breakage(
        replaced(validation, "loss_metrics", lambda objective: [LossMetric()]),
        of_validation.test_an_objective_is_never_called_a_validation_loss,
    ),
    "three arguments accepted": Breakage(
        three_accepted, of_objective.test_three_arguments_are_shown_the_objective_form
    ),
    "three arguments accepted by the trainer": Breakage(
        three_accepted, of_objective.test_arity_three_is_shown_the_objective_form_by_the_trainer_too
    ),
    "forward in eval mode": Breakage(
        replaced(TrainStep, "_in_training_mode", lambda self, *_: Eval().applied(self.model)),
        of_objective.test_an_objective_s_forward_is_the_training_one,
    ),
    "frozen ones move": Breakage(
        frozen_ones_move, of_objective.test_frozen_parameters_stay_to_the_bit_while_others_move
    ),
}


# Types that hold -------------------------------------------------------------------------------------------------


def moments_in_float32(patch: Patch) -> None:
    learn = train_step.template

    def narrow(*args: Any) -> dict[Tensor, dict[str, Any]]:
        return {p: {key: leaf.float() for key, leaf in state.items()} for p, state in learn(*args).items()}

    patch.setattr(train_step, "template", narrow)


def moments_made_by_a_real_step(optimizer: torch.optim.Optimizer, reached: list[Tensor]) -> dict[Tensor, Any]:
    for p in reached:
        p.grad = zeros(p)
    optimizer.step()
    return {}


def loss_in_float32(step: TrainStep, state: StepState) -> None:
    state["loss"] = torch.zeros(())


def targets_cast(step: TrainStep, state: StepState) -> None:
    state["y_true"] = state["y_true"].float()


OF_TYPES = {
    "moments missing": Breakage(
        replaced(train_step, "template", lambda optimizer, reached: {}),
        of_step_state.test_types_hold_for_every_policy_loss_scale_and_optimizer,
        ("Adam", "float32", "identity"),
    ),
    "moments among the leaves missing": Breakage(
        replaced(train_step, "template", lambda optimizer, reached: {}),
        of_step_state.test_every_parameter_buffer_moment_and_gradient_is_among_the_leaves,
    ),
    "moments in float32": Breakage(
        moments_in_float32,
        of_step_state.test_under_a_float64_policy_loss_and_moments_are_float64_from_init_on,
        ("identity",),
    ),
    "loss in float32": Breakage(
        on_init(loss_in_float32),
        of_step_state.test_under_a_float64_policy_loss_and_moments_are_float64_from_init_on,
        ("dynamic",),
    ),
    "loss in float32 for float64 targets": Breakage(
        on_init(loss_in_float32),
        of_step_state.test_float64_targets_on_a_float32_model_make_a_float64_loss,
        ("sgd",),
    ),
    "loss in float32 for an own loss": Breakage(
        on_init(loss_in_float32),
        of_promises.test_the_loss_is_of_the_type_that_the_loss_function_returns,
        (torch.bfloat16,),
    ),
    "targets cast": Breakage(
        everywhere(targets_cast),
        of_step_state.test_float64_targets_on_a_float32_model_make_a_float64_loss,
        ("adam",),
    ),
    "no masters": Breakage(
        replaced(train_step, "Masters", lambda parameters, *_: _without_copies(parameters)),
        of_step_state.test_under_a_float16_policy_loss_and_moments_are_float32_and_nothing_is_cast_down,
        ("identity",),
    ),
    "a trial that is not undone": Breakage(
        replaced(train_step, "untouched", nothing),
        of_step_state.test_init_leaves_no_trace_and_fires_no_hook_of_the_optimizer,
    ),
    "a trial that moves torch's random stream": Breakage(
        replaced(torch.random, "fork_rng", nothing),
        of_step_state.test_init_leaves_no_trace_and_fires_no_hook_of_the_optimizer,
    ),
    "a trial that moves numpy's random stream": Breakage(
        replaced(np.random, "set_state", nothing),
        of_train_step.test_init_leaves_parameters_buffers_random_streams_and_attributes_as_they_were,
    ),
    "a trial with the optimizer itself": Breakage(
        replaced(train_step, "template", moments_made_by_a_real_step),
        of_step_state.test_init_leaves_no_trace_and_fires_no_hook_of_the_optimizer,
    ),
    "hooks fire": Breakage(
        replaced(surrogate, "_no_global_hooks", nothing),
        of_step_state.test_init_leaves_no_trace_and_fires_no_hook_of_the_optimizer,
    ),
    "metrics in float32": Breakage(
        replaced(metric, "_is_float64", lambda value: False),
        of_validation.test_a_float64_model_has_float64_metrics_from_its_first_batch_to_its_last,
    ),
    "metrics of the state in float32": Breakage(
        replaced(metric, "_is_float64", lambda value: False),
        of_validation.test_float64_targets_give_a_float64_loss_from_the_first_batch_on,
    ),
    "states not checked": Breakage(
        replaced(FixedPoint, "check", nothing), of_step_state.test_a_moment_of_another_dtype_is_named_at_its_iteration
    ),
    "states not checked for buffers": Breakage(
        replaced(FixedPoint, "check", nothing),
        of_step_state.test_a_buffer_of_another_dtype_is_named_and_a_new_one_is_no_error,
    ),
    "batches not checked before anything moved": Breakage(
        replaced(FixedPoint, "check_batch", nothing),
        of_step_state.test_a_loss_of_another_dtype_is_named_before_anything_moved,
    ),
}


def _without_copies(parameters: Any) -> Masters:
    made = Masters(parameters)
    made.copies.clear()
    return made


BREAKAGES = {"gradients": OF_GRADIENTS, "objectives": OF_OBJECTIVES, "types": OF_TYPES}
ALL = {f"{group}: {name}": breakage for group, cases in BREAKAGES.items() for name, breakage in cases.items()}


@pytest.mark.parametrize("breakage", ALL.values(), ids=ALL.keys())
def test_a_breakage_turns_a_test_red(breakage):
    breakage.test(*breakage.args)
    with pytest.MonkeyPatch.context() as patch:
        breakage.breaks(patch)
        with pytest.raises((AssertionError, pytest.fail.Exception, GradvizError)):
            breakage.test(*breakage.args)
    breakage.test(*breakage.args)


@pytest.mark.parametrize("group", BREAKAGES)
def test_every_description_is_broken_in_five_ways_at_least(group):
    assert len({breakage.breaks for breakage in BREAKAGES[group].values()}) >= 5
