"""One iteration: objective -> gradients -> optimizer.

What the step gives is what plain torch gives, to the bit. A parameter's ``.grad`` is written for the optimizer's step
only, unless a wrapper or a hook needs backward() (see `gradviz.step.gradients`).
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from gradviz.errors import LossError, OptimizerError, StateTypeError, names_nearest_keyword, whole
from gradviz.grad.algebra import Grad
from gradviz.grad.autodiff import outside_inference_mode
from gradviz.grad.capture.capture import Capture, as_capture
from gradviz.grad.capture.captured import Captured
from gradviz.grad.capture.found import lengths
from gradviz.grad.capture.session import Session
from gradviz.grad.leaves import Kind, Leaves, leaves_of
from gradviz.step import saved
from gradviz.step.batch import Batch, InputCast, as_batch, as_group, in_words, map_leaves, tensors_of
from gradviz.step.clip import as_clip
from gradviz.step.evaluation import Differentiator, Evaluation
from gradviz.step.fixed_point import FixedPoint
from gradviz.step.gradients import (
    ReentrantCheckpoint,
    as_accumulated,
    gradients_kept,
    without_hooks,
)
from gradviz.step.loss_scale import as_loss_scale, scale_used
from gradviz.step.mask import Found, Mask
from gradviz.step.masters import Masters
from gradviz.step.model_state import ModelState, check_trainable
from gradviz.step.objective import Objective, WrappedLoss, as_objective
from gradviz.step.optimizers import OptimizerState, build_optimizer, held_by, rewrites_gradients, take_step
from gradviz.step.policy import Policy, as_policy
from gradviz.step.precision import Precision
from gradviz.step.random_stream import RandomStream
from gradviz.step.skips import Skips
from gradviz.step.step_state import Counts, StepState, joined
from gradviz.step.stillness import TrainingMode
from gradviz.step.surrogate import needs_closure, template
from gradviz.step.tensors import detached, drop_gradients, zeros
from gradviz.step.untouched import untouched


class Observer(Protocol):
    """Who watches a step from within."""

    def see(self, stage: str, kind: Kind, given: Sequence[Tensor | None], unused: Set[str]) -> None:
        """Is shown the gradients as they come ("backward"), and as the optimizer gets them where it differs.

        Parameters
        ----------
        stage : str
        kind : Kind
        given : sequence of Tensor or None
            One for each of its names.
        unused : set of str
            The names of those that are None.
        """

    def before_step(self) -> None:
        """The optimizer is about to move the parameters."""

    def after_step(self) -> None:
        """It has."""

    def wants_captured(self) -> bool:
        """Whether what is captured in the step to come is wanted."""

    def see_captured(self, captured: Captured) -> None:
        """Is shown what was captured."""


class Report(NamedTuple):
    """What a step did besides its state.

    Attributes
    ----------
    loss_scale : float
        What the loss was multiplied by.
    skipped : bool
        Whether the optimizer was left out, because a gradient was not finite.
    frozen, unfrozen : tuples of parameter names
        What was frozen and unfrozen since the step before.
    closure_calls : int
        How often an optimizer that evaluates the loss itself, as LBFGS does, has done so; 0 for all others.
    by : mapping of str to str
        Who froze and unfroze it, by name: see `Mask.acting`.
    """

    loss_scale: float = 1.0
    skipped: bool = False
    frozen: tuple[str, ...] = ()
    unfrozen: tuple[str, ...] = ()
    closure_calls: int = 0
    by: Mapping[str, str] = {}  # never written to


class TrainStep:
    """A training step: ``state = step.init(batch)``, then ``state = step(batch, state)``.

    Made by `train_step`.
    """

    def __init__(
        self,
        model: nn.Module,
        objective: Objective,
        optimizer: Any,
        *,
        loss_scale: Any = "identity",
        policy: Policy | None = None,
        keep_gradients: bool = False,
        accumulate: int = 1,
        clip: Any = None,
        strict: bool = True,
        seed: int | None = None,
        capture: Capture | None = None,
    ) -> None:
        check_trainable(model)
        self.model = model
        self.objective = objective
        self.model_state = ModelState(model)
        self.loss_scale = as_loss_scale(loss_scale)
        self.accumulate = whole("accumulate", accumulate, least=1)
        self.owns_optimizer = not isinstance(optimizer, torch.optim.Optimizer)
        self.keep_gradients = _flag("keep_gradients", keep_gradients)
        self.observer: Observer | None = None
        self.report = Report()
        self._closure_calls = 0
        self._counts = Counts()
        self._is_done = False
        self._clip = as_clip(clip)
        self._strict = _flag("strict", strict)
        self.stream = None if seed is None else RandomStream(model, seed)
        self.precision = Precision(as_policy(policy), model)
        with self.precision.converted() as before_rounding:
            parameters = self.model_state.parameters
            self.masters = Masters(parameters, before_rounding)
            # All parameters from the start: one that is unfrozen later trains on without a new optimizer.
            own = [p for p in parameters.values() if self.masters.of(p) is not p]
            self.optimizer = build_optimizer(optimizer, self.masters.optimized, own=own)
            self.evaluate = Differentiator(
                objective, self.precision, self.masters, self.loss_scale, keeps=keep_gradients or accumulate > 1
            )
            self._needs_closure = needs_closure(self.optimizer)
            if self._needs_closure and self.evaluate.may_skip:
                raise OptimizerError(
                    f"{type(self.optimizer).__name__} evaluates the loss several times in a step, which a loss scale "
                    'that skips steps cannot undo. Write loss_scale="identity", or take another optimizer.'
                )
        capture = as_capture(capture)
        self.session = None if capture is None else Session(capture, "statistics", {"": model})
        self._is_capturing = self._is_hooked = False
        self._hooked_on: Leaves | None = None
        self.mask = Mask(model, self.masters, self.optimizer)
        self.cast = InputCast(asked_for=self.precision.casts)
        self.mode: TrainingMode | None = None
        self._expected: FixedPoint | None = None
        self.unused: Set[str] = frozenset()  # by the last step
        self._unreached: frozenset[str] = frozenset()  # by any step so far
        self.optimizer_state = OptimizerState(self.optimizer, self.optimized_by_name, {})
        self.skips = Skips(self.loss_scale)

    # Before the first step -------------------------------------------------------------------------------------

    def init(self, batch: Any, *, look: Callable[[StepState], Any] | None = None) -> StepState:
        """The state before the first step, in the structure, shapes and dtypes a step produces.

        One forward and one backward pass are tried, and the optimizer on zeros in its parameters' places; parameters,
        buffers, optimizer and random streams end as they began. What is wrong with the model, the objective or the
        batch shows before anything has moved, and the types of the state are learned, not guessed.

        Parameters
        ----------
        batch : pair of (inputs, targets), or with ``accumulate=k`` a list of up to k of them
        look : callable, optional
            Is shown the state as the trial left it, with the batch's own targets, prediction and loss, before
            everything is put back.

        Raises
        ------
        DataError, ModelError, LossError
            If the batch is no pair, nothing is trainable, or the objective returns no differentiable scalar.
        """
        check_trainable(self.model)
        self.masters.refresh(thorough=True)  # weights are often initialised through .data
        with outside_inference_mode():
            group = self._group(batch, Found.of(self.model))
        try:
            try:
                return self._try_out(group, look)
            except ReentrantCheckpoint:
                self.evaluate.taker.reentrant = True
                return self._try_out(group, look)
        except Exception as error:
            error.add_note(f"In a trial step, before anything moved, on a batch of {in_words(group[0])}.{_hint(group)}")
            raise

    def _try_out(self, group: list[Batch], look: Callable[[StepState], Any] | None) -> StepState:
        loss_modules = self.objective.modules if isinstance(self.objective, WrappedLoss) else []
        found = Found.of(self.model)
        self.mask.look(found)
        # DDP wants every process in every pass that it sees; what it wraps gives the same types.
        inside = self.model.module if isinstance(self.model, nn.parallel.DistributedDataParallel) else self.model
        with (
            untouched(self.model, *loss_modules, beside=self.drawing),
            gradients_kept(found.leaves.parameters),
            outside_inference_mode(),
            self._in_training_mode(),
            without_hooks(found.parameters),
        ):
            tried = self.evaluate(group, self.loss_scale.init(), found, ModelState(inside), is_trial=True)
            gradient = tried.gradient
            if len(gradient.unused) == len(gradient):
                raise LossError("The loss reaches none of the trainable parameters.")
            if self._clip is not None:
                self._clip(gradient)
            reached = zip(self.masters.of_all(found.parameters), gradient.given.values(), strict=True)
            learned = template(self.optimizer, [p for p, given in reached if given is not None])
            if look is not None:
                look(self._following(StepState(i=torch.tensor(0)), 0, group, tried))
        self.optimizer_state = OptimizerState(self.optimizer, self.optimized_by_name, learned)
        state = StepState(
            i=torch.tensor(0),
            y_true=map_leaves(zeros, joined([batch.targets for batch in group])),
            y_pred=map_leaves(zeros, tried.prediction),
            loss=zeros(tried.loss),
            model_state=self.model_state,
            optimizer_state=self.optimizer_state,
            loss_scale_state=self.loss_scale.init(),
        )
        if self.keep_gradients:
            state["gradients"] = map_leaves(zeros, gradient)
        self._unreached = frozenset(gradient.unused)
        self._hold(state, tried)
        return state

    # A step ----------------------------------------------------------------------------------------------------

    def __call__(self, batch: Any, state: StepState) -> StepState:
        """One step.

        Parameters
        ----------
        batch : pair of (inputs, targets), or with ``accumulate=k`` a list of up to k of them
        state : StepState
            From `init` or the step before. Keys a handler has put into it are kept.

        Raises
        ------
        StateTypeError
            With ``strict=True``, if a leaf of the state changes its dtype, shape or structure.
        """
        if "loss_scale_state" not in state:
            raise StateTypeError("A step takes the state that init or the step before gave: state = step.init(batch).")
        self._is_done = False
        found = Found.of(self.model)
        scale_state, iteration = state["loss_scale_state"], int(state["i"])
        used = scale_used(self.loss_scale, scale_state)
        with self._surroundings(found):
            group = self._group(batch, found)
            is_new_mask = self._follow(found)
            take = self._minimize if self._needs_closure else self._descend
            try:
                tried = take(group, scale_state, iteration, found)
            except Exception as error:
                error.add_note(f"In a step, on a batch of {in_words(group[0])}.{_hint(group)}")
                raise
        if self.keep_gradients:  # what is written into .grad from here on is none of the kept gradient's business
            drop_gradients(self.masters.of_all(found.parameters))
        if self.optimizer_state.template:
            self.optimizer_state.settle()
        frozen, unfrozen, by = self.mask.changes()
        report = used, not tried.is_finite, frozen, unfrozen, self._closure_calls, by
        if report != self.report:
            self.report = Report(*report)
        if self.evaluate.may_skip:
            self.skips.watch(tried, used, iteration)
        self._is_done = True
        new = self._following(state, iteration, group, tried)
        if self.session is not None:
            new.pop("captured", None)  # that of another iteration
            if tried.captured is not None:
                new["captured"] = tried.captured
        # A parameter that is reached for the first time has its moments from now on.
        self.unused = unused = tried.unused
        unreached = unused if is_new_mask else self._unreached & unused
        if is_new_mask or unreached != self._unreached or self._expected is None:
            self._unreached = unreached
            self._hold(new, tried)
        else:
            self._expected.check(new, iteration, found.kind, found.leaves.looks)
        return new

    def _surroundings(self, found: Found) -> contextlib.AbstractContextManager[Any]:
        """What a step happens in: mostly nothing, and each context that does nothing is felt by a small step."""
        if self.session is None and self.stream is None and not torch.is_inference_mode_enabled():
            return _NOTHING
        return _within(outside_inference_mode(), self.stream or _NOTHING, self._capturing(found))

    def _follow(self, found: Found) -> bool:
        """Take in what was done to the model since the step before; whether that changed what is trained."""
        if not found.parameters:
            check_trainable(self.model)
        is_new_mask = self.mask.look(found)
        if self.mode is not None and (is_new_mask or self.mode.is_off()):
            self.mode.set()  # a handler that validates may have set the flags of the whole model
        if is_new_mask:
            self.masters.check(found.leaves.parameters)
        if self.masters.copies:
            self.masters.refresh()
        torch.clear_autocast_cache()  # or autocast around the run goes on with old weights
        return is_new_mask

    def _following(self, state: StepState, iteration: int, group: Sequence[Batch], tried: Evaluation) -> StepState:
        new = StepState(state)
        new.update(
            i=self._counts.after(state["i"], iteration),
            y_true=map_leaves(detached, group[0].targets if len(group) == 1 else joined([b.targets for b in group])),
            y_pred=tried.prediction,
            loss=tried.loss,
            model_state=self.model_state,
            optimizer_state=self.optimizer_state,
            loss_scale_state=tried.loss_scale_state,
        )
        if self.keep_gradients:
            new["gradients"] = tried.gradient
        return new

    def _descend(self, group: Sequence[Batch], scale_state: Any, iteration: int, found: Found) -> Evaluation:
        """Gradients once, then the optimizer; without it where they are not finite and the loss scale skips."""
        with self._in_training_mode():
            tried = self._evaluate(group, scale_state, found, iteration)
        masters, observer = self.masters, self.observer
        if masters.copies:
            masters.refresh()  # a forward pass may write into parameters, to hold their norm say
        if observer is not None:
            observer.see("backward", tried.kind, tried.taken, tried.unused)
        if tried.is_finite:
            self._hand_over(tried)
            if observer is not None:
                observer.before_step()
            take_step(self.optimizer)
            if masters.copies:
                masters.hand_down()
            if observer is not None:
                observer.after_step()
        else:
            drop_gradients(found.parameters)
        return tried

    def _minimize(self, group: Sequence[Batch], scale_state: Any, iteration: int, found: Found) -> Evaluation:
        """An optimizer that evaluates the loss itself, as LBFGS does: what the first evaluation gave is the step's."""
        first: list[Evaluation] = []
        held = held_by(self.optimizer)
        unmoved: list[tuple[Tensor, Tensor]] = []
        self._closure_calls = 0

        def closure() -> Tensor:
            self._closure_calls += 1
            self.masters.hand_down()
            with self._in_training_mode():
                tried = self._evaluate(group, scale_state, found, iteration, is_first=not first)
            if self.observer is not None and not first:
                self.observer.see("backward", tried.kind, tried.taken, tried.unused)
            self._hand_over(tried, is_shown=not first)
            if not first:
                first.append(tried)
                unmoved.extend((p, p.detach().clone()) for p in held if p.grad is None)
            return tried.loss

        if self.observer is not None:
            self.observer.before_step()
        self.optimizer.step(closure)  # type: ignore[arg-type]
        if not first:
            raise OptimizerError(f"{type(self.optimizer).__name__}.step(closure) never called its closure.")
        self.masters.hand_down()
        with torch.no_grad():
            for p, value in unmoved:  # directions of earlier steps would move what is frozen or unused now
                p.copy_(value)
        if self.observer is not None:
            self.observer.after_step()
        return first[0]

    def _evaluate(
        self, group: Sequence[Batch], scale_state: Any, found: Found, iteration: int, *, is_first: bool = True
    ) -> Evaluation:
        """Loss and gradients, and what is captured on the way; of an optimizer's own evaluations, in the first."""
        session = self.session
        if session is None or not self._is_capturing or not is_first:
            return self.evaluate(group, scale_state, found, self.model_state, self._expected, iteration)
        session.lengths = lengths([batch.inputs for batch in group], session.capture.batch_dim)
        self.evaluate.session = session
        try:
            with session.forward():
                tried = self.evaluate(group, scale_state, found, self.model_state, self._expected, iteration)
        except BaseException:
            session.forget()  # what was seen of a step that broke off belongs to none
            raise
        finally:
            self.evaluate.session = None
        session.commit()
        reached = found.kind.names if not tried.unused else [n for n in found.kind.names if n not in tried.unused]
        wholes = dict(zip(map(id, found.parameters), tried.taken, strict=True))
        tried.captured = session.finish(by=scale_used(self.loss_scale, scale_state), reached=reached, wholes=wholes)
        if self.observer is not None:
            self.observer.see_captured(tried.captured)
        return tried

    @contextlib.contextmanager
    def _hooked(self) -> Iterator[None]:
        """The modules that are captured have their hooks: in a loop for the whole run."""
        session = self.session
        if session is None or self._is_hooked:
            yield
            return
        self._is_hooked = True
        try:
            session.attach()
            yield
        finally:
            session.detach()
            self._is_hooked, self._hooked_on = False, None

    def _capturing(self, found: Found) -> contextlib.AbstractContextManager[Any]:
        session = self.session
        if session is None:
            return _NOTHING
        self._is_capturing = self.observer is None or self.observer.wants_captured()
        if not self._is_capturing:
            return _NOTHING
        if not self._is_hooked:
            return self._hooked()
        if self._hooked_on is not found.leaves:  # modules have come or gone
            self._hooked_on = found.leaves
            session.attach()
        return _NOTHING

    def _hand_over(self, tried: Evaluation, *, is_shown: bool = True) -> None:
        """Give the optimizer its gradients: clipped, and None where no path led to a parameter."""
        handed, is_there = tried.taken, tried.is_in_place
        if self._clip is not None:
            clipped = self._clip(tried.gradient)
            handed, is_there = list(clipped.given.values()), False
            if self.observer is not None and is_shown and clipped is not tried.gradient:
                self.observer.see("clipped", tried.kind, handed, tried.unused)
        if self.keep_gradients and rewrites_gradients(self.optimizer):
            is_there = False
            handed = [
                given.clone() if given is not None and given is kept else given
                for given, kept in zip(handed, tried.taken, strict=True)
            ]
        if is_there:
            return
        for target, given in zip(tried.parameters, as_accumulated(tried.parameters, handed), strict=True):
            target.grad = given

    # What holds over the steps ---------------------------------------------------------------------------------

    def expect_anew(self) -> None:
        """Take the model as it is now: it may have been converted, or written into, between two runs."""
        self._expected = None
        self.masters.refresh(thorough=True)

    @contextlib.contextmanager
    def training(self) -> Iterator[None]:
        """Train mode for many steps: set once, and anew when something is frozen or unfrozen between them."""
        with self._hooked(), TrainingMode(self.model) as self.mode:
            try:
                yield
            finally:
                self.mode = None

    @property
    def left(self) -> tuple[str, Grad[Any]] | None:
        """What the last step has left in ``.grad``, and the stage that it is of: "backward", or "clipped" with a clip.

        None if the step was broken off or skipped, if its optimizer may write into gradients or asks for them several
        times, or if something was frozen, unfrozen or cleared since. What else was written into them is not known here.
        """
        if not self._is_done or self.report.skipped or self._needs_closure or rewrites_gradients(self.optimizer):
            return None
        found = Found.of(self.model)
        if self.mask.has_changed(found):
            return None
        parameters = self.masters.of_all(found.parameters)
        gradient = Grad._from(self.evaluate.in_optimizer(found.kind), parameters, list(map(_grad, parameters)))
        if set(gradient.unused) != self.unused:
            return None
        return "backward" if self._clip is None else "clipped", gradient

    def _in_training_mode(self) -> contextlib.AbstractContextManager[Any]:
        """Train mode, and gradients."""
        # A loop sets the flags once for the whole run; a step on its own sets them for itself, where there are any.
        is_set = self.mode is not None or (self.model.training and not self.mask.holds_still)
        if is_set and torch.is_grad_enabled():
            return _NOTHING
        return _within(torch.enable_grad(), _NOTHING if is_set else TrainingMode(self.model))

    def optimized(self, leaves: Leaves | None = None) -> frozenset[str]:
        """Names of the parameters that the optimizer moves: in a group whose learning rate is not 0.

        The same object for as long as nothing about it changes. Who knows the model's leaves spares it a look.
        """
        return self.mask.optimized(leaves_of(self.model) if leaves is None else leaves)

    def optimized_by_name(self) -> dict[str, Tensor]:
        """What the optimizer works on, by the name of its parameter: that, or its float32 copy."""
        return {name: self.masters.of(p) for name, p in self.model_state.parameters.items()}

    @property
    def drawing(self) -> dict[str, Any]:
        """What may draw random numbers in a step, by name."""
        loss = self.objective.losses if isinstance(self.objective, WrappedLoss) else self.objective
        return {"model": self.model, "loss": loss, "optimizer": self.optimizer}

    # What is saved ----------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """All that a step needs to go on to the bit, but for the state that it is given and the process's streams.

        Returns
        -------
        dict
            ``"model"`` as `model.load_state_dict` takes it, without the prefixes of wrappers, and ``"optimizer"`` as
            that of the optimizer; the float32 copies of 16-bit parameters, buffers that are not persistent, what is
            frozen, the step's own random stream. Live tensors, and plain values but for what a module gives as its
            extra state, or an optimizer of your own keeps.

        Raises
        ------
        CheckpointError
            If FSDP spreads the parameters over processes.

        Examples
        --------
        >>> step = train_step(nn.Linear(1, 1), "mean_squared_error", "adam")
        >>> saved = step.state_dict()
        >>> list(saved["model"]), saved["trainable"]
        (['weight', 'bias'], {'weight': True, 'bias': True})
        """
        return saved.state_of(self)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` gave: parameters and buffers in place, what is frozen, the optimizer.

        Raises
        ------
        CheckpointError
            Before anything has moved, if it is of another model, optimizer or loss scale.
        """
        saved.check(self, state)
        saved.load(self, state)
        self.optimizer_state = OptimizerState(self.optimizer, self.optimized_by_name, {})
        self.expect_anew()

    def _hold(self, state: StepState, tried: Evaluation) -> None:
        """Take a state as what the next ones are held against, its batch by the first micro-batch."""
        if self._strict:
            grows = {"optimizer_state"} if self._needs_closure else set()  # LBFGS keeps a list of directions
            self._expected = FixedPoint({**state, **tried.seen}, without=grows)

    def _group(self, batch: Any, found: Found) -> list[Batch]:
        like = next(iter(found.leaves.parameters.values()))
        device, dtype = like.device, self.precision.input_dtype(like.dtype)
        if self.accumulate == 1:
            return [self.cast(as_batch(batch), device, dtype)]
        return [self.cast(one, device, dtype) for one in as_group(batch, self.accumulate)]


@names_nearest_keyword
def train_step(
    model: nn.Module,
    loss: Any,
    optimizer: Any,
    *,
    objective: Objective | None = None,
    loss_scale: Any = "identity",
    policy: Policy | None = None,
    keep_gradients: bool = False,
    accumulate: int = 1,
    clip: float | tuple[str, float] | None = None,
    strict: bool = True,
    seed: int | None = None,
    capture: Capture | None = None,
) -> TrainStep:
    """Build a training step from a model, a loss or objective, and an optimizer.

    Parameters
    ----------
    model : torch.nn.Module
        Trained in place. Wrapped by DDP or FSDP, or hooked, it is trained through backward().
    loss : str, callable or list of (loss, weight)
        A name such as ``"cross_entropy"`` (`gradviz.step.losses` lists them, and what each takes: binary ones take
        logits), a function or module of ``(prediction, targets)``, a list with a loss and a weight for each of several
        outputs, or an objective.
    optimizer : str, callable or torch.optim.Optimizer
        A name such as ``"adam"`` (torch's defaults), a factory such as ``partial(torch.optim.SGD, lr=0.1)``, or an
        optimizer over the model's parameters (not with 16-bit parameters: the optimizer works on float32 copies then).
        A factory is given a list in the order of ``model.named_parameters()``, with those copies in their places; what
        it makes is ``state["optimizer_state"].optimizer``.
    objective : callable, optional
        An objective whose signature does not tell that it is one; then `loss` is None.
    loss_scale : str or LossScale
        ``"identity"``, ``"static"``, ``"dynamic"``, a `LossScale`, or an object with init, scale and unscale. All but
        identity skip a step whose gradients are not finite; batch norm has seen the batch all the same, as in plain
        torch.
    policy : Policy, optional
        The dtypes of parameters, of the computation and of the prediction. Values that are written into 16-bit
        parameters between two steps are taken over, but for those written through ``.data`` in the middle of a run.
    keep_gradients : bool
        Keep each step's gradients in the state, under ``gradients``: accumulated and unscaled, before clipping, weight
        decay and momentum. In the parameter's dtype, float32 for 16-bit parameters.
    accumulate : int
        A step takes a list of up to so many micro-batches; its gradient is the one of the joined batch. A function of
        your own is taken to average over the batch; one that sums is a loss module with ``reduction="sum"``. Batch norm
        sees each micro-batch by itself.
    clip : float or ("value", float), optional
        Clip what the optimizer gets by its norm, or each entry by value.
    strict : bool
        Raise at the iteration where a leaf of the state changes its dtype, shape or structure. What may change: the
        length of a batch, and what a handler puts into the state. A freeze, an unfreeze, and a parameter that the loss
        reaches for the first time set what later states are held against.
    seed : int, optional
        A random stream of the step's own, for dropout; the caller's streams stay as they are.
    capture : Capture, optional
        Capture gradients of intermediate values as well: ``state["captured"]`` is a `Captured`. They are those of the
        loss of the whole step, without the loss scale; micro-batches are calls one after the other. By default their
        statistics are kept, and no tensor.

    Raises
    ------
    ModelError, LossError, OptimizerError, PolicyError, LossScaleError, CaptureError
        Before anything has moved.

    Objective functions
    -------------------
    Where a loss of ``(prediction, targets)`` says too little, an objective says everything::

        def objective(forward, model_state, inputs, targets):
            return loss, output

    - ``forward(model_state, inputs)`` runs the model in training mode and gives an `Output`: ``output.prediction`` and
      ``output.state``, the buffers after it. It may be called several times, on any inputs; each call starts from the
      buffers that the step began with.
    - ``model_state[name]`` is any parameter or buffer. A parameter that is read directly is differentiated like one
      that the model uses.
    - It returns the *unscaled* loss, a floating scalar with a graph, and the output of one forward pass, which decides
      what metrics see as ``y_pred`` and which buffers are kept. For another prediction:
      ``output._replace(prediction=logits)``.
    - A function with four required positional parameters is an objective, one with two is a loss. What has no readable
      signature, or another number, is given as ``objective=``.

    It is tried on the first batch, in `init`. `LossError` is raised before anything has moved, if only the loss comes
    back, the loss is no floating scalar or has no graph, or the output is not one of forward's.

    A penalty on parameters:

    >>> import torch
    >>> from torch import nn
    >>> def penalized(forward, model_state, inputs, targets):
    ...     output = forward(model_state, inputs)
    ...     error = nn.functional.mse_loss(output.prediction, targets)
    ...     return error + 0.1 * model_state["weight"].square().sum(), output

    Two forward passes, and the similarity of both as the prediction:

    >>> def contrastive(forward, model_state, inputs, targets):
    ...     anchors, positives = (forward(model_state, x) for x in inputs)
    ...     logits = anchors.prediction @ positives.prediction.T
    ...     return nn.functional.cross_entropy(logits, targets), anchors._replace(prediction=logits)

    Examples
    --------
    >>> model = nn.Linear(1, 1, bias=False)
    >>> _ = nn.init.constant_(model.weight, 0.8)
    >>> step = train_step(model, "mean_squared_error", torch.optim.SGD(model.parameters(), lr=0.1), keep_gradients=True)
    >>> batch = torch.tensor([[1.0], [2.0]]), torch.zeros(2, 1)
    >>> state = step(batch, step.init(batch))
    >>> state.loss, state.gradients["weight"], model.weight.item()
    (tensor(1.6000), tensor([[4.]]), 0.4000000059604645)
    """
    return TrainStep(
        model,
        as_objective(loss, objective),
        optimizer,
        loss_scale=loss_scale,
        policy=policy,
        keep_gradients=keep_gradients,
        accumulate=accumulate,
        clip=clip,
        strict=strict,
        seed=seed,
        capture=capture,
    )


_NOTHING = contextlib.nullcontext()


@contextlib.contextmanager
def _within(*contexts: contextlib.AbstractContextManager[Any]) -> Iterator[None]:
    """All of them, entered one after the other."""
    with contextlib.ExitStack() as stack:
        for each in contexts:
            stack.enter_context(each)
        yield


_grad = operator.attrgetter("grad")


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{name} is True or False; got {value!r}.")
    return value


def _hint(group: Sequence[Batch]) -> str:
    kinds = {leaf.dtype for leaf in tensors_of(group[0].inputs)}
    whole = [str(dtype).removeprefix("torch.") for dtype in kinds if not (dtype.is_floating_point or dtype.is_complex)]
    return f" Inputs of {whole[0]} are never cast; a model of numbers wants inputs.float()." if whole else ""
