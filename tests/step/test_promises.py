"""The descriptions of kept gradients, objectives and types that hold, sentence by sentence, in the terms of our API.

Each test quotes the sentence it proves; `PROVEN` names those that are proven beside the module that keeps them. Left
out is what has no counterpart here: a step that is compiled (nothing is fused or lowered, and no template is compared
before a run: `strict` compares states as they come), and what init costs only when gradients are kept (one trial step
is always taken: it checks the objective and learns the types).
"""

from __future__ import annotations

import ast
import copy
import doctest
import inspect
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves

import gradviz as gv
from gradviz.step.objective import Forward
from gradviz.step.train_step import train_step
from tests.step.nets import X, Y, one_weight, two_layers

TESTS = Path(__file__).parents[1]
SCALES = ["identity", "static", "dynamic"]
SGD = partial(torch.optim.SGD, lr=0.1)

PROVEN = {
    # Kept gradients
    "there is no way for a metric or an event handler to report a gradient norm": [
        "loop/test_loop.py::test_kept_gradients_reach_a_metric_and_a_handler_at_every_iteration"
    ],
    "after loss-scale unscaling and before any optimizer transformation, which is exactly what the optimizer's "
    "update_fn receives": [
        "step/test_evaluation.py::test_the_kept_gradient_is_the_analytic_one_and_what_the_optimizer_received",
        "step/test_evaluation.py::test_kept_gradients_are_unscaled_and_what_the_optimizer_gets",
        "step/test_evaluation.py::test_clipping_decay_and_momentum_come_after_what_is_kept",
        "step/test_evaluation.py::test_weight_decay_and_momentum_do_not_show_in_what_is_kept",
    ],
    "init_fn initializes the key to zeros of the same shapes and types": [
        "step/test_step_state.py::test_types_hold_for_every_policy_loss_scale_and_optimizer"
    ],
    "the key is absent rather than nil; the default step state has no :gradients key, before and after a step": [
        "step/test_evaluation.py::test_gradients_are_absent_unless_asked_for"
    ],
    "The metric transform has to be the list [:gradients] rather than the bare atom": [
        "loop/test_loop.py::test_a_slip_of_the_pen_is_answered_with_the_nearest_name"
    ],
    "zeros_like(trainable_parameters) is not a safe template; under a bf16 mixed-precision policy the parameters are "
    "bf16 while the gradients are f32": [
        "step/test_evaluation.py::test_under_a_16_bit_policy_parameters_are_narrow_and_gradients_float32"
    ],
    "Gradient accumulation across micro-batches is a different feature": [
        "step/test_evaluation.py::test_micro_batches_of_any_sizes_give_the_joined_batch_s_loss_and_gradient"
    ],
    "donate_state?: true with the option on converges to the same model state and gradients as the non-donating run, "
    "and the returned state is not donatable": [
        "loop/test_apart.py::test_parameters_and_kept_gradients_are_those_of_a_run_in_place_to_the_bit",
        "loop/test_apart.py::test_an_earlier_run_s_state_holds_the_copy_during_and_after_a_later_run",
    ],
    "with dense_0 frozen, only dense_1 gradients are kept and dense_0 is unchanged by the step": [
        "step/test_evaluation.py::test_a_frozen_layer_has_no_gradient_and_stays_to_the_bit"
    ],
    # Objectives
    "a contrastive objective that runs the model on an anchor and a positive, a penalty computed from the parameters": [
        "step/test_objective.py::test_a_contrastive_objective_by_hand",
        "step/test_objective.py::test_a_penalty_on_a_parameter_that_is_read_directly_is_differentiated",
    ],
    "The objective receives the model's training-mode forward function": [
        "step/test_objective.py::test_an_objective_s_forward_is_the_training_one"
    ],
    "It returns the unscaled loss; an objective equivalent to :mean_squared_error produces the same parameters, loss "
    "and loss-scale state as the loss form": [
        "step/test_objective.py::test_an_objective_that_is_the_loss_is_the_loss_to_the_bit"
    ],
    "and the forward output to use as the prediction, which must be the %{prediction: _, state: _} map": [
        "step/test_objective.py::test_what_an_objective_returned_is_named"
    ],
    "With several forward passes the user picks which output counts as the prediction": [
        "step/test_buffers.py::test_two_passes_have_the_gradient_and_leave_the_buffers_of_passes_that_each_start_anew"
    ],
    "Dispatch is by arity: an arity-4 function is an objective, everything else goes through the existing "
    "build_loss_fn/1, which now wraps the loss in the default objective": [
        "step/test_objective.py::test_four_arguments_make_an_objective",
        "step/test_objective.py::test_losses_of_every_kind_become_the_same_objective",
        "step/test_objective.py::test_what_is_neither_is_refused_with_the_form_to_write",
    ],
    "an objective that returns only the loss raises a clear ArgumentError before anything is compiled": [
        "step/test_objective.py::test_what_is_no_objective_is_refused_at_init_before_anything_moved"
    ],
    "Axon.ModelState.update/3 still passes frozen leaves through untouched": [
        "step/test_objective.py::test_frozen_parameters_stay_to_the_bit_while_others_move"
    ],
    "validate/4 now only carries over metrics given as an atom or an arity-2 function": [
        "loop/test_validation.py::test_metrics_of_what_only_training_has_are_named_once_and_the_others_carried_over"
    ],
    "validate/4 on an objective loop reports validation_mean_absolute_error and no validation_loss": [
        "loop/test_validation.py::test_an_objective_is_never_called_a_validation_loss"
    ],
    "An evaluator/eval_step that accepts an objective is a natural follow-up": [
        "loop/test_evaluator.py::test_an_objective_goes_by_its_own_name"
    ],
    "the targets handed to init_fn must be ones the loss can consume": [
        "step/test_train_step.py::test_what_torch_says_of_a_batch_comes_with_its_shapes"
    ],
    "an objective that runs two forward passes plus a parameter penalty: step state shape and a decreasing loss over "
    "five steps": ["step/test_objective.py::test_two_forward_passes_and_a_penalty_learn"],
    "an arity-3 function is rejected with a message pointing at the objective form": [
        "step/test_objective.py::test_three_arguments_are_shown_the_objective_form",
        "step/test_objective.py::test_arity_three_is_shown_the_objective_form_by_the_trainer_too",
    ],
    # Types that hold
    "the step state is a fixed point of the step in shape and type; optimizer state is whatever the optimizer's update "
    "produces": [
        "step/test_step_state.py::test_types_hold_for_every_policy_loss_scale_and_optimizer",
        "step/test_step_state.py::test_every_parameter_buffer_moment_and_gradient_is_among_the_leaves",
    ],
    "argument at position 3 is not compatible with compiled function template": [
        "step/test_step_state.py::test_a_loss_of_another_dtype_is_named_before_anything_moved",
        "step/test_step_state.py::test_a_moment_of_another_dtype_is_named_at_its_iteration",
        "step/test_step_state.py::test_a_buffer_of_another_dtype_is_named_and_a_new_one_is_no_error",
    ],
    "loss and Adam moments are f64 at init, and the leaf types of the init state equal those of the state after one "
    "step, for :identity, :dynamic and :static loss scales": [
        "step/test_step_state.py::test_under_a_float64_policy_loss_and_moments_are_float64_from_init_on"
    ],
    "an f16 policy keeps f32 loss and moments, f16 parameters, and is a type fixed point": [
        "step/test_step_state.py::test_under_a_float16_policy_loss_and_moments_are_float32_and_nothing_is_cast_down",
        "step/test_step_state.py::test_adam_moves_a_float16_parameter_by_a_float32_master",
    ],
    "f64 inputs against an f32 model": ["step/test_step_state.py::test_float64_inputs_are_cast_and_it_is_said_once"],
    "the step state is initialized in the types the step produces, learned by tracing one step, not computing it": [
        "step/test_step_state.py::test_init_leaves_no_trace_and_fires_no_hook_of_the_optimizer",
        "step/test_untouched.py::test_init_leaves_such_a_model_and_a_loss_with_state_as_they_were",
    ],
    "this hold[s] for custom losses, custom optimizers and every loss-scale mode without per-case code": [
        "step/test_step_state.py::test_types_hold_for_an_optimizer_and_a_loss_scale_of_one_s_own",
        "step/test_evaluation.py::test_a_loss_scale_of_one_s_own",
    ],
    "init_metrics/4 traces one accumulation from an f32 zero; only metrics whose values are wider than f32 widen": [
        "loop/metrics/test_function_metric.py::test_a_metric_is_reported_in_the_wider_of_its_own_dtype_and_float32",
        "loop/test_validation.py::test_a_float64_model_has_float64_metrics_from_its_first_batch_to_its_last",
    ],
    "Metrics that are read straight from the step state take the step state's type": [
        "loop/test_validation.py::test_float64_targets_give_a_float64_loss_from_the_first_batch_on"
    ],
    "integer-valued metrics accumulated with :running_sum keep accumulating in f32": [
        "loop/test_validation.py::test_an_integer_valued_sum_of_a_float32_model_is_float32"
    ],
    "f64 targets against an f32 model completes with :sgd and :adam and reports an f64 loss": [
        "step/test_step_state.py::test_float64_targets_on_a_float32_model_make_a_float64_loss"
    ],
}


@pytest.mark.parametrize("name", sorted({name for names in PROVEN.values() for name in names}))
def test_what_is_said_to_be_proven_elsewhere_is_tested_there(name):
    file, _, function = name.partition("::")
    defined = ast.parse((TESTS / file).read_text()).body
    assert function in [node.name for node in defined if isinstance(node, ast.FunctionDef)]


# Kept gradients --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", [train_step, gv.trainer])
def test_gradients_are_kept_on_request_and_types_hold_by_default(function):
    """Sentences: "train_step/4 and trainer/4 gain a keep_gradients? option (default false)", "the default strict?:
    true".
    """
    options = inspect.signature(function).parameters
    assert options["keep_gradients"].default is False
    assert options["strict"].default is True


def test_one_extra_key_holds_the_structure_of_the_trainable_parameters():
    """Sentence: "When it is set, the step state carries one extra key, :gradients, holding a container with exactly the
    structure of Axon.ModelState.trainable_parameters/1: nested string-keyed maps of tensors, frozen parameters
    excluded".
    """
    model = two_layers()
    gv.ModelState(model).freeze("dense_0.bias")
    plain, keeping = (train_step(model, "mean_squared_error", SGD, keep_gradients=keep) for keep in (False, True))
    states = plain.init((X, Y)), keeping.init((X, Y))
    for _ in range(2):  # after init, and after a step
        assert states[1].keys() - states[0].keys() == {"gradients"}
        trainable = states[1].model_state.trainable
        assert {name: g.shape for name, g in states[1].gradients.items()} == {n: p.shape for n, p in trainable.items()}
        assert list(states[1].gradients) == list(trainable) == ["dense_0.weight", "dense_1.weight", "dense_1.bias"]
        assert list(states[1].gradients["dense_1"]) == ["weight", "bias"]
        assert states[1].gradients["dense_0"]["weight"].shape == (2, 3)
        states = plain((X, Y), states[0]), keeping((X, Y), states[1])


def test_the_kept_gradient_is_that_of_the_batch_just_processed():
    """Sentence: "The value is the gradient of the loss with respect to each trainable parameter for the batch that was
    just processed".
    """
    model = two_layers()
    step = train_step(model, "mean_squared_error", "adam", keep_gradients=True)
    state = step.init((X, Y))
    for k in range(4):
        inputs, targets = X + 0.1 * k, Y * k
        expected = torch.autograd.grad(F.mse_loss(model(inputs), targets), list(model.parameters()))
        state = step((inputs, targets), state)
        assert all(map(torch.equal, state.gradients.values(), expected))


@pytest.mark.parametrize("scale", SCALES)
def test_without_it_every_step_and_state_is_the_same_to_the_bit(scale):
    """Sentence: "When the option is off, the step state is byte-for-byte what it was before"."""
    states = []
    for keep in (False, True):
        step = train_step(two_layers(), "mean_squared_error", "adam", loss_scale=scale, keep_gradients=keep)
        state = step.init((X, Y))
        for _ in range(3):
            state = step((X, Y), state)
        states.append({key: value for key, value in state.items() if key != "gradients"})
    off, on = map(tree_leaves, states)
    assert len(off) == len(on)
    assert all(map(torch.equal, off, on))


def test_the_example_of_kept_gradients_runs_as_it_stands():
    """Example: "|> Axon.Loop.metric(grad_norm, "gradient norm", :running_average, [:gradients]) ...
    IO.inspect(state.step_state.gradients["dense_0"]["kernel"])"; "exposes the gradients to a [:gradients] metric and to
    an :iteration_completed handler through a full Axon.Loop.run/4".
    """
    norms = []

    def grad_norm(grads):
        return sum(g.square().sum() for g in grads.values()).sqrt()

    def look(state):
        assert state.step_state.gradients["dense_0"]["weight"].shape == (2, 3)
        norms.append(state.step_state.gradients.norm().item())

    loop = gv.trainer(two_layers(), "mean_squared_error", "adam", keep_gradients=True)
    loop.metric(grad_norm, "gradient norm", "running_average", fields=["gradients"])
    loop.handle_event("iteration_completed", look)
    state = loop.run([(X, Y)] * 3, epochs=5)
    assert len(norms) == 15
    assert len(set(norms)) == 15
    assert state.metrics["gradient norm"] == pytest.approx(sum(norms[-3:]) / 3)


def test_keeping_them_costs_one_buffer_of_the_parameters_size():
    """Sentence: "Keeping the gradients costs a parameter-sized buffer between iterations"."""
    model = two_layers()
    step = train_step(model, "mean_squared_error", "adam", keep_gradients=True)
    state = step((X, Y), step.init((X, Y)))
    storages = {g.untyped_storage().data_ptr(): g.untyped_storage().nbytes() for g in state.gradients.values()}
    assert sum(storages.values()) == sum(p.nbytes for p in model.parameters())


def test_the_step_never_reads_the_gradients_before():
    """Sentence: "the step never reads the previous gradients back"."""
    models = two_layers(), two_layers()
    for model in models:
        step = train_step(model, "mean_squared_error", "adam", keep_gradients=True)
        state = step((X, Y), step.init((X, Y)))
        if model is models[1]:
            for g in state.gradients.values():
                g.fill_(float("nan"))
            del state["gradients"]
        step((X, Y), state)
    assert all(map(torch.equal, models[0].parameters(), models[1].parameters()))


def test_what_was_frozen_is_frozen_after_init():
    """Sentence: "a %Axon.ModelState{} with frozen_parameters set by Axon.ModelState.freeze/2 loses that field when
    passed back through a model's init_fn": ours keeps it.
    """
    model = two_layers()
    gv.ModelState(model).freeze("dense_0")
    state = train_step(model, "mean_squared_error", SGD).init((X, Y))
    assert list(state.model_state.frozen) == ["dense_0.weight", "dense_0.bias"]


def test_the_count_of_steps_is_wide_and_stays_so():
    """Suggestion: "i: Nx.u64(0)": torch counts in int64."""
    step = train_step(two_layers(), "mean_squared_error", SGD)
    state = step.init((X, Y))
    for count in range(3):
        assert (state.i.item(), state.i.dtype, state.i.shape) == (count, torch.int64, ())
        state = step((X, Y), state)


# Objectives ------------------------------------------------------------------------------------------------------


def penalized(forward, model_state, inputs, targets):
    output = forward(model_state, inputs)
    penalty = model_state["dense_0.weight"].square().sum()
    return F.mse_loss(output.prediction, targets) + 1e-3 * penalty, output


def with_batch_norm() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 1))


def test_the_example_of_objectives_runs_as_it_stands():
    """Example: "model |> Axon.Loop.trainer(objective, :sgd) |> Axon.Loop.run(data)"; "Both functions now accept an
    arity-4 objective function anywhere they accept a loss"; "trainer/3 with an objective runs end to end with a loss
    and a :mean_absolute_error metric".
    """
    models = two_layers(), two_layers()
    state = gv.trainer(models[0], penalized, "sgd").metric("mean_absolute_error").run([(X, Y)] * 2)
    assert list(state.metrics) == ["loss", "mean_absolute_error"]
    step = train_step(models[1], penalized, "sgd")
    by_step = step.init((X, Y))
    for _ in range(2):
        by_step = step((X, Y), by_step)
    assert all(map(torch.equal, models[0].parameters(), models[1].parameters()))
    assert torch.equal(state.step_state.loss, by_step.loss)


def test_it_receives_a_forward_the_model_state_and_the_batch():
    """Sentence: "The objective receives the model's training-mode forward function, so users never build the model a
    second time or remember mode: :train, the %Axon.ModelState{} being trained, and the batch".
    """
    received = []

    def objective(*args):
        received.append(args)
        assert model.training
        return penalized(*args)

    model = two_layers().eval()
    step = train_step(model, None, SGD, objective=objective)
    state = step.init((X, Y))
    received.clear()
    step((X, Y), state)
    ((forward, model_state, inputs, targets),) = received
    assert isinstance(forward, Forward)
    assert model_state is state.model_state
    assert inputs is X
    assert targets is Y


def test_layer_state_is_merged_back_as_for_a_loss():
    """Sentence: "That keeps y_pred available to metrics and lets Axon.ModelState.update/3 merge the updated layer state
    (batch norm statistics, dropout keys) back as before".
    """

    def objective(forward, model_state, inputs, targets):
        output = forward(model_state, inputs)
        return F.mse_loss(output.prediction, targets), output

    models = with_batch_norm(), with_batch_norm()
    predictions = []
    for model, loss in zip(models, ("mean_squared_error", objective), strict=True):
        step = train_step(model, loss, SGD)
        state = step.init((X, Y))
        torch.manual_seed(2)
        for _ in range(3):
            state = step((X, Y), state)
        predictions.append((state.y_pred, torch.rand(1)))  # as far along the random stream
    for one, other in zip(*(model.state_dict().values() for model in models), strict=True):
        assert torch.equal(one, other)
    assert all(map(torch.equal, *predictions))


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize(("loss", "expected"), [("mean_squared_error", 2.053), (penalized, 2.05391)])
def test_the_loss_is_reported_unscaled(loss, expected, scale):
    """Sentence: "It returns the unscaled loss": so it stands in the state, whatever the step scales it by."""
    step = train_step(two_layers(), loss, SGD, loss_scale=scale)
    assert step((X, Y), step.init((X, Y))).loss.item() == pytest.approx(expected)
    assert step.report.loss_scale == (1 if scale == "identity" else 2**15)


@pytest.mark.parametrize("which", [0, 1])
def test_the_output_that_is_returned_is_the_prediction(which):
    """Sentence: "With several forward passes the user picks which output counts as the prediction"."""
    model = nn.BatchNorm1d(3)
    inputs = X, X + 5

    def objective(forward, model_state, inputs, targets):
        outputs = [forward(model_state, one) for one in inputs]
        return (outputs[0].prediction - 2 * outputs[1].prediction).square().mean(), outputs[which]

    alone = copy.deepcopy(model)
    expected = alone(inputs[which])
    step = train_step(model, objective, SGD)
    state = step((inputs, Y), step.init((inputs, Y)))
    assert torch.equal(state.y_pred, expected)
    assert torch.equal(model.running_mean, alone.running_mean)
    assert model.num_batches_tracked == 1


def test_the_optimizer_sees_exactly_what_is_trainable():
    """Sentences: "so the optimizer sees exactly the parameters its state was initialised from", "Gradients of frozen
    parameters and layer state are dead nodes": an objective may read those, too.
    """
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    gv.ModelState(model).freeze("0")
    received = []

    def reading(forward, model_state, inputs, targets):
        output = forward(model_state, inputs)
        read = model_state["0.weight"].square().sum() + model_state["1.running_var"].sum()
        return F.mse_loss(output.prediction, targets) + read * model_state["2.bias"].square().sum(), output

    step = train_step(model, reading, "adam", keep_gradients=True)
    names = {id(p): name for name, p in model.named_parameters()}
    step.optimizer.register_step_pre_hook(
        lambda optimizer, *_: received.extend(
            names[id(p)] for group in optimizer.param_groups for p in group["params"] if p.grad is not None
        )
    )
    state = step.init((X, Y))
    promised = list(state.optimizer_state)
    state = step((X, Y), state)
    assert promised == received == list(state.optimizer_state) == list(state.gradients)
    assert received == ["1.weight", "1.bias", "2.weight", "2.bias"]


def test_a_loop_reports_the_objective_s_own_loss_and_computes_it_once_a_step():
    """Sentence: "trainer/4 reports loss from the running average the step keeps in its state instead of recomputing it
    from y_true/y_pred".
    """
    losses = []

    def counted(*args):
        loss, output = penalized(*args)
        losses.append(loss.item())
        return loss, output

    loop = gv.trainer(two_layers(), None, "sgd", objective=counted)
    state = loop.run([(X, Y)] * 3)
    assert len(losses) == 4  # one in init
    assert state.metrics["loss"] == pytest.approx(sum(losses[1:]) / 3)
    assert loop.history.metrics["loss"].tolist() == pytest.approx(losses[1:])


def test_a_loop_begins_with_a_batch_of_its_data():
    """Sentence: "Axon.Loop.run/4 always initialises from a real batch so this does not affect loops": and each batch is
    read once.
    """
    seen, read = [], []

    def objective(forward, model_state, inputs, targets):
        seen.append(targets[0].item())
        return penalized(forward, model_state, inputs, targets)

    def data(epoch):
        for k in range(3):
            read.append(k)
            yield X, torch.full((2, 1), float(k))

    gv.trainer(two_layers(), objective, "sgd").run(data)
    assert seen == [0, 0, 1, 2]
    assert read == [0, 1, 2]


def test_the_docs_say_what_an_objective_is():
    """Sentence: "train_step/4 gains an "Objective functions" section with the contract and two examples, trainer/4 a
    "Custom objective" example": the trainer refers to it.
    """
    section = inspect.getdoc(train_step).partition("Objective functions")[2].partition("Examples\n--------")[0]
    assert all(
        part in section for part in ("(forward, model_state, inputs, targets)", "return loss, output", "LossError")
    )
    assert "what an objective is" in " ".join(inspect.getdoc(gv.trainer).split())
    found = {}
    for example in doctest.DocTestParser().get_examples(section):
        exec(example.source, found)
    batches = {"penalized": (X, Y), "contrastive": ((X, X + 0.1), torch.arange(2))}
    for name, batch in batches.items():
        torch.manual_seed(0)
        step = train_step(nn.Linear(3, 1), found[name], SGD)
        state = step(batch, step.init(batch))
        assert step(batch, state).loss < state.loss


# Types that hold -------------------------------------------------------------------------------------------------


def test_the_example_of_types_runs_as_it_stands():
    """Example: "|> Axon.Loop.trainer(:mean_squared_error, :adam) |> Axon.Loop.metric(:mean_absolute_error) |>
    Axon.Loop.run(data, Axon.ModelState.empty(), epochs: 5)"; "the loss, the Adam moments and both metrics are f64".
    """
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    policy = gv.Policy(params=torch.float64, compute=torch.float64, output=torch.float64)
    data = [(torch.randn(6, 4).double(), torch.randn(6, 1).double()) for _ in range(3)]
    loop = gv.trainer(model, "mean_squared_error", "adam", policy=policy).metric("mean_absolute_error")
    state = loop.run(data, epochs=5)
    assert state.status == "completed"
    assert state.step_state.loss.dtype == torch.float64
    moments = [entry[key] for entry in state.step_state.optimizer_state.values() for key in ("exp_avg", "exp_avg_sq")]
    assert {moment.dtype for moment in moments} == {torch.float64}
    assert len(moments) == 8
    assert {name: type(value) for name, value in state.metrics.items()} == dict.fromkeys(
        ("loss", "mean_absolute_error"), np.float64
    )


@pytest.mark.parametrize("scale", SCALES)
def test_nothing_of_the_trial_is_referenced_by_the_state(scale):
    """Sentence: "nothing of the gradient expression is referenced by the returned state"."""
    step = train_step(two_layers(), penalized, "adam", loss_scale=scale, keep_gradients=True)
    for state in (step.init((X, Y)), step((X, Y), step.init((X, Y)))):
        of_the_step = [leaf for key, value in state.items() if key != "model_state" for leaf in tree_leaves(value)]
        assert not any(leaf.requires_grad for leaf in of_the_step)


@pytest.mark.parametrize("scale", SCALES)
def test_what_has_its_type_already_is_untouched(scale):
    """Sentence: "Nx.as_type/2 is a no-op where the type already matches, so i, the loss-scale state and every
    already-correct tensor are untouched".
    """
    model = two_layers()
    own = {name: (tensor, tensor.detach().clone()) for name, tensor in gv.ModelState(model).items()}
    step = train_step(model, "mean_squared_error", "adam", loss_scale=scale)
    state = step.init((X, Y))
    assert state.i == 0
    assert state.loss_scale_state == step.loss_scale.init()
    for name, tensor in state.model_state.items():
        assert tensor is own[name][0]
        assert torch.equal(tensor, own[name][1])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_the_loss_is_of_the_type_that_the_loss_function_returns(dtype):
    """Sentence: "the loss type is whatever the loss function returns for the model's output and targets"."""
    model, batch = one_weight(0.8)
    step = train_step(model, lambda prediction, targets: F.mse_loss(prediction, targets).to(dtype), "adam")
    state = step.init(batch)
    assert (state.loss.dtype, state.y_pred.dtype) == (dtype, torch.float32)
    state = step(batch, state)
    assert (state.loss.dtype, state.y_pred.dtype) == (dtype, torch.float32)
