"""A capture at work: what it sees in forward passes, and what then comes back to it.

A module's output, or a value that is sown, gets a hook on the tensor itself: nothing is put into the graph, so that
all numbers stay as they are to the bit. Full backward hooks of modules do put something there; they break code that
works in place, and cost 17 % of a step where this costs 6.

Not every forward pass counts. One under ``torch.no_grad`` has no gradient; one within a backward pass is activation
checkpointing, which runs a second time what was seen before. And not every gradient counts: an objective may take
gradients of its own, for a penalty, on the way.
"""

from __future__ import annotations

import contextlib
import fnmatch
import threading
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten
from torch.utils.hooks import RemovableHandle, unserializable_hook

from gradviz.errors import CaptureWarning, described, nearest, warn
from gradviz.grad.capture.capture import Capture, Keep
from gradviz.grad.capture.captured import Call, Captured, Inputs
from gradviz.grad.capture.examples import ModuleCall
from gradviz.grad.capture.found import Found, tensors_in
from gradviz.grad.capture.keeping import WAYS, Keeping, KeepsRunning, Taken, fetch
from gradviz.grad.capture.modules import Entry, Made, ModuleHook, is_compiled
from gradviz.grad.capture.parameters import NormsByParameter
from gradviz.grad.capture.running import Running
from gradviz.grad.capture.shelf import Shelf
from gradviz.grad.capture.writes import Writes
from gradviz.grad.leaves import leaves_of, walk

_opening = threading.Lock()
_get_ident = threading.get_ident
_task = torch._C._current_graph_task_id
_is_grad_enabled = torch.is_grad_enabled
_transforms = torch._C._functorch.peek_interpreter_stack

_told_of_graphs: weakref.WeakSet[nn.Module] = weakref.WeakSet()
"""Compiled models whose graphs were said to break."""

open_sessions: tuple[Session, ...] = ()
"""All that are at work. It is put in the place of the last one, so that who reads it needs no lock."""


class Session:
    """What one capture sees, iteration by iteration.

    Parameters
    ----------
    capture : Capture
    keep : str
        What is kept if the capture does not say.
    models : mapping of str to Module
        Those whose modules are looked for, by what comes before their paths.
    """

    def __init__(self, capture: Capture, keep: Keep, models: Mapping[str, nn.Module]) -> None:
        self.capture = capture
        self.keep: Keep = capture.keep or keep
        self._models = models
        self._said: set[str] = set()
        self._keeping: Keeping = WAYS[self.keep](capture)
        self._running: dict[tuple[str, int], Running] = {}
        self._hooks: dict[str, ModuleHook] = {}
        self._paths: set[str] = set()
        self._unhooked: dict[str, str] = {}
        """Further names of modules, which have no hook of their own, and why."""
        self.is_on = False
        """Whether forward passes are looked at."""
        self._thread: int | None = None  # whose passes these are; None for any
        self.is_accepting = False
        """Whether gradients are those of the loss."""
        self.lengths: Collection[int] = ()
        """What the axis of examples may measure; empty if that is not known."""
        self._begin()

    # On and off -------------------------------------------------------------------------------------------------

    def attach(self) -> None:
        """Hook the modules that are meant, as the models are now, and no others."""
        wanted: dict[str, nn.Module] = {}
        first: dict[int, str] = {}
        self._unhooked, self._paths = {}, set()
        compiled = False
        for prefix, model in self._models.items():
            for path, module in walk(model):
                name = prefix + path.rstrip(".")
                compiled = compiled or is_compiled(module)
                if name:
                    self._paths.add(name)
                if not name or name in wanted or not self.capture.wants_module(name):
                    continue
                if id(module) in first:
                    self._unhooked[name] = f"the same module as {first[id(module)]!r}"
                else:
                    wanted[name] = module
                    first[id(module)] = name
        for name, hook in list(self._hooks.items()):
            if wanted.get(name) is not hook.module():
                hook.remove()
                del self._hooks[name]
        new = [name for name in wanted if name not in self._hooks]
        for name in new:
            self._hooks[name] = ModuleHook(self, name, wanted[name])
        if compiled and new:
            self._say_compiled(len(new))

    def _say_compiled(self, n: int) -> None:
        torch._dynamo.reset()  # what was compiled before a hook came never calls it
        new = [model for model in self._models.values() if model not in _told_of_graphs]
        _told_of_graphs.update(new)
        if new:
            warn(
                f"The model is compiled, and each captured module breaks its graph: {n} of them. Numbers stay as they "
                "are; it is compiled anew, and runs slower while the capture is on. Said once.",
                CaptureWarning,
            )

    def detach(self) -> None:
        """Leave no hook behind."""
        for hook in self._hooks.values():
            hook.remove()
        self._hooks.clear()
        self.forget()

    @contextlib.contextmanager
    def forward(self) -> Iterator[None]:
        """Forward passes are looked at meanwhile."""
        self.open()
        try:
            yield
        finally:
            self.shut()

    def open(self, *, in_any_thread: bool = False) -> None:
        """Look at forward passes from here on: those of this thread, for another one may go through a model as well."""
        global open_sessions
        self._thread = None if in_any_thread else _get_ident()
        self.is_on = True
        if self not in open_sessions:
            with _opening:
                open_sessions = (*open_sessions, self)

    def shut(self) -> None:
        """Look away."""
        global open_sessions
        self.is_on = False
        with _opening:
            open_sessions = tuple(session for session in open_sessions if session is not self)

    @contextlib.contextmanager
    def backward(self) -> Iterator[None]:
        """The gradients that come meanwhile are those of the loss."""
        self.is_accepting = True
        try:
            yield
        finally:
            self.is_accepting = False

    # Forward ----------------------------------------------------------------------------------------------------

    def is_looking(self) -> bool:
        """Whether what happens now is a forward pass that counts."""
        return self.is_on and _task() == -1 and self._thread in (None, _get_ident())

    def see(
        self,
        name: str,
        value: object,
        *,
        inputs: Callable[[], Mapping[str, Any] | None] | None = None,
        entry: Entry | None = None,
        of: Made | None = None,
    ) -> None:
        """Look at a value, and await its gradient.

        Parameters
        ----------
        name : str
        value : tensors, in whatever holds them
        inputs : callable, optional
            Gives what made it was called with, by name: copies that nobody else has.
        entry : Entry, optional
            Of the call that made it, which knows what is handed through as it came.
        of : Made, optional
            The call of a module that has made it, where its parameters are asked about.
        """
        if not torch.is_grad_enabled():
            self._why.setdefault(name, NO_GRAD)
            return
        if _transforms() is not None:
            self._why[name] = "inside a transform of torch.func, such as vmap, values have no gradient to hook"
            return
        kept, is_any = None, False
        for found in (Found("", value),) if type(value) is Tensor else tensors_in(value):
            tensor = found.value
            if tensor.is_floating_point() or tensor.is_complex():
                if not is_any:
                    kept, is_any = self._kept(inputs), True
                note = TOTAL if entry is not None and entry.handed_through(tensor) else found.note
                self._seen.add(name)
                call = self._await(name + found.path, tensor, note, of)
                call._has_examples = found.has_examples
                if self.capture.values:
                    call._value, call._inputs = self._shelf.put(tensor), kept
        if not is_any:
            self._why[name] = f"there is no floating tensor in {described(value)}"

    def see_output(self, name: str, output: Tensor, *, is_own: bool) -> None:
        """Look at what a layer of torch's has returned: `see`, for what most models are made of.

        A call costs twice as much there.

        Parameters
        ----------
        name : str
        output : Tensor
        is_own : bool
            Whether it was handed through as it came.
        """
        try:
            if not _is_grad_enabled() or _transforms() is not None or not output.is_floating_point():
                self.see(name, output)  # which says why
            else:
                self._seen.add(name)
                self._await(name, output, TOTAL if is_own else None)
        except CaptureWarning:  # of a user who wants errors for warnings
            raise
        except Exception as error:
            self.fail(error)

    def pass_by(self, name: str) -> None:
        """A value of this name is sown that is not meant."""
        self._passed_by.add(name)

    def see_input(self, name: str, value: object, own: Collection[int]) -> None:
        """Look at what a function is given, of which it has some tensors to itself."""
        self._seen.add(name)
        for found in tensors_in(value):
            if found.value.requires_grad and torch.is_grad_enabled() and _transforms() is None:
                note = found.note if id(found.value) in own else TOTAL
                call = self._await(name + found.path, found.value, note)
                call._has_examples = found.has_examples
                if self.capture.values:
                    call._value = self._shelf.put(found.value)

    def guarded(self) -> _Guard:
        """What is ours never breaks a forward pass."""
        return _Guard(self)

    def _await(self, name: str, tensor: Tensor, note: str | None, made: Made | None = None) -> Call:
        calls = self._calls.get(name)
        if calls is None:
            calls = self._calls[name] = []
        call = Call(name, len(calls), tensor, self._keeping, note)
        call._lengths = self.lengths
        calls.append(call)
        if not tensor.requires_grad:
            call.state = "frozen"
            return call
        if tensor._is_view():
            call._writes = Writes(tensor)
            self._views.append(call)
        handle = tensor.register_hook(_Arrival(self, call, made).arrives)
        if tensor.is_leaf:
            self._handles.append(handle)  # those of others go with their graph
        return call

    def _kept(self, inputs: Callable[[], Mapping[str, Any] | None] | None) -> Inputs | None:
        given = inputs() if self.capture.values and inputs is not None else None
        if given is None:
            return None
        leaves, structure = tree_flatten(given)
        return [self._shelf.keep(leaf) if isinstance(leaf, Tensor) else leaf for leaf in leaves], structure

    # Backward ---------------------------------------------------------------------------------------------------

    def arrived(self, call: Call, gradient: Tensor | None, made: Made | None) -> None:
        """A gradient has come back; None is what a function of the user's gives where there is none."""
        if not self.is_accepting or gradient is None:
            return
        try:
            if gradient.requires_grad:
                gradient = gradient.detach()
            if not call._pending:
                self._awaiting.append(call)
            call._pending.append((_task(), self._keeping.take(call, gradient)))
            if made is not None:
                made.gradient, made.task = gradient, _task()
                self._made.append((call, made))
        except CaptureWarning:  # of a user who wants errors for warnings
            raise
        except Exception as error:
            self._lose(call, error)

    def _lose(self, call: Call, error: Exception) -> None:
        call._taken, call.state, call.note = None, "not_recorded", f"{type(error).__name__}: {error}"
        self.fail(error)

    def fail(self, error: Exception) -> None:
        """Our own failure is nobody's but ours."""
        if "failed" not in self._said:
            self._said.add("failed")
            warn(
                f"A gradient could not be captured ({type(error).__name__}: {error}); everything else goes on. Said "
                "once.",
                CaptureWarning,
            )

    def commit(self, task: int | None = None) -> None:
        """The gradients of a backward pass that is over count; those of others since the last one do not.

        Parameters
        ----------
        task : int, optional
            Torch's number of the pass; without it, all count.
        """
        for call in self._awaiting:
            for own_task, taken in call._pending:
                if task is None or own_task == task:
                    self._count(call, taken)
            call._pending.clear()
        self._awaiting.clear()
        for call in self._views:
            if call._writes is not None and call._writes.happened():
                call._taken, call.state, call.note = None, "not_recorded", EDITED
            call._writes = None
        self._views.clear()
        if self._made:
            self._add_examples()

    def _count(self, call: Call, taken: Taken) -> None:
        if call.state == "not_recorded":
            return
        if call._taken is None:
            call._taken, call.state = taken, "ok"
            return
        try:
            if not self._keeping.add(call, call._taken, taken):
                call._taken, call.state, call.note = None, "not_recorded", TWICE
        except Exception as error:
            self._lose(call, error)

    # What has come of it ----------------------------------------------------------------------------------------

    def finish(
        self,
        *,
        by: float = 1.0,
        reached: Collection[str] = (),
        wholes: Mapping[int, Tensor | None] = MappingProxyType({}),
    ) -> Captured:
        """What was captured since the last time.

        Parameters
        ----------
        by : float
            A loss scale that is still in the gradients.
        reached : collection of str
            Names of parameters that have a gradient.
        wholes : mapping of int to Tensor
            By the identity of a parameter, its gradient, without the loss scale.
        """
        calls = self._calls
        taken = [call._taken for own in calls.values() for call in own if call._taken is not None]
        fetch(taken)
        if by != 1:
            for each in taken:
                self._keeping.divide(each, by)
        if isinstance(self._keeping, KeepsRunning):
            self._run_on()
        norms, unknown = self._of_parameters(by, wholes)
        captured = Captured(calls, {**self._uncalled(reached), **unknown}, norms)
        self._release()
        self._begin()
        return captured

    def _begin(self) -> None:
        """Another iteration."""
        self._shelf = Shelf(self.capture.memory_limit, self.capture.store, self._said)
        self._keeping.begin(self._shelf)
        self._calls: dict[str, list[Call]] = {}
        self._views: list[Call] = []
        self._why: dict[str, str] = {}
        self._seen: set[str] = set()
        self._passed_by: set[str] = set()
        self._awaiting: list[Call] = []
        self._made: list[tuple[Call, Made]] = []
        self._written: dict[int, str] = {}
        self._by_parameter = NormsByParameter(self.capture.batch_dim)
        self._handles: list[RemovableHandle] = []
        for hook in self._hooks.values():
            hook.begin()

    def forget(self) -> None:
        """What was seen since the last time belongs to nothing."""
        self._release()
        self._begin()

    def _release(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _run_on(self) -> None:
        for own in self._calls.values():
            for call in own:
                key = call.name, call.number
                before = self._running.get(key)
                if call._taken is not None and call._taken.more is not None:
                    now: Running = call._taken.more
                    self._running[key] = before = now if before is None else before.merged(now)
                call._running = before

    def _add_examples(self) -> None:
        """The calls of modules whose gradients have come, pass by pass, for the norms by parameter."""
        passes: dict[int, list[ModuleCall]] = {}
        for call, made in self._made:
            if call.state == "ok":
                self._written |= made.why_unknown()
                passes.setdefault(made.task, []).append(made.call())
        self._made.clear()
        for calls in passes.values():
            try:
                self._by_parameter.add(calls)
            except Exception as error:
                self.fail(error)

    def _of_parameters(
        self, by: float, wholes: Mapping[int, Tensor | None]
    ) -> tuple[dict[str, Tensor], dict[str, str]]:
        """Norms of examples' gradients by the parameters of modules; and which cannot be told, and why."""
        if self.keep != "example_norms":
            return {}, {}
        norms, unknown = self._by_parameter.finish(wholes, by)
        names = {id(p): name for name, p in self._parameters()}
        lost = {id(p): why for p, why in unknown.items()} | self._written
        for hook in self._hooks.values():  # what nothing was heard of
            for p in hook.parameters():
                if p.requires_grad and id(p) not in lost and p not in norms:
                    lost[id(p)] = "its module was not called, returns several tensors, or has its weights used directly"
        return (
            {names[id(p)]: told for p, told in norms.items() if id(p) in names and id(p) not in lost},
            {names[key]: why for key, why in lost.items() if key in names},
        )

    def _parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        for prefix, model in self._models.items():
            for name, p in leaves_of(model).parameters.items():
                yield prefix + name, p

    def _uncalled(self, reached: Collection[str]) -> dict[str, str]:
        """Modules that are meant and were not called, and patterns that fit nothing."""
        seen = self._seen
        missing = {name: why for name, why in self._why.items() if name not in seen}
        for name, hook in self._hooks.items():
            if name not in seen and name not in missing:
                missing[name] = hook.why_uncalled(name, reached)
        known = {*self._hooks, *self._unhooked, *seen, *self._calls, *missing}
        others = {*known, *self._paths, *self._passed_by}
        for pattern in self.capture.patterns:
            if not any(pattern == name or fnmatch.fnmatchcase(name, pattern) for name in known):
                about = nearest(pattern, others) if others else "of the model as a whole, sow what it returns"
                missing[pattern] = f"no module and no sown value is called so: {about}"
        return {**self._unhooked, **missing}


class _Guard:
    """By hand: a generator costs what all the rest of a hook does."""

    __slots__ = ("_session",)

    def __init__(self, session: Session) -> None:
        self._session = session

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, where: object) -> bool:
        if not isinstance(error, Exception) or isinstance(error, CaptureWarning):
            return False  # of a user who wants errors for warnings
        self._session.fail(error)
        return True


class _Arrival:
    """What hangs on a tensor, and waits there for its gradient. What made the tensor goes with the graph."""

    __slots__ = ("_call", "_made", "_session")

    def __init__(self, session: Session, call: Call, made: Made | None) -> None:
        self._session, self._call, self._made = session, call, made

    @unserializable_hook  # type: ignore[untyped-decorator]  # a tensor is pickled without it, and without a warning
    def arrives(self, gradient: Tensor | None) -> None:
        """Called by autograd."""
        self._session.arrived(self._call, gradient, self._made)


NO_GRAD = (
    "it was called without gradients alone: under torch.no_grad(), or by re-entrant checkpointing (write "
    "use_reentrant=False)"
)
TWICE = 'several backward passes went through it, whose sum statistics cannot tell; keep="tensors" adds them up'
EDITED = (
    "it is a view that was edited in place after it was returned, which takes its gradient elsewhere, or a part of it; "
    "returned as x.clone(), it keeps it"
)
TOTAL = "handed through as it came: this is the total gradient of that tensor, by all that uses it"
