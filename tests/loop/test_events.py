"""Which handler takes the place of which."""

from __future__ import annotations

from functools import partial

from gradviz.loop.events import Handlers, State, is_same_handler


def defined(source: str, **names: object) -> dict:
    cell = {"__name__": "__main__", **names}
    exec(source, cell)
    return cell


def test_a_function_defined_again_under_its_name_is_the_same_handler_even_when_edited():
    first = defined("def note(state): return None")["note"]
    again = defined("def note(state): return 'halt_loop'")["note"]
    other = defined("def write(state): return None")["write"]
    assert is_same_handler(first, again)
    assert not is_same_handler(first, other)


def test_lambdas_are_the_same_by_their_code():
    one, two = (defined("f = lambda state: None")["f"] for _ in range(2))
    three = defined("f = lambda state: print(state)")["f"]
    assert is_same_handler(one, two)
    assert not is_same_handler(one, three)


def test_functions_that_carry_different_things_are_different():
    made = [defined("def note(state, number=number): return None", number=[number])["note"] for number in (1, 1)]
    assert not is_same_handler(*made)


def test_partials_are_the_same_by_what_they_carry():
    def note(how, state): ...

    assert is_same_handler(partial(note, "a"), partial(note, "a"))
    assert not is_same_handler(partial(note, "a"), partial(note, "b"))


def test_bound_methods_are_the_same_by_their_object():
    class Keeper:
        def keep(self, state: State) -> None: ...

    one, two = Keeper(), Keeper()
    assert is_same_handler(one.keep, one.keep)
    assert not is_same_handler(one.keep, two.keep)


def test_the_first_control_word_ends_an_event():
    handlers, called, state = Handlers(), [], State()
    handlers.add("started", lambda state: called.append(1))
    handlers.add("started", lambda state: "halt_loop")
    handlers.add("started", lambda state: called.append(2))
    assert handlers.fire("started", state) == "halt_loop"
    assert called == [1]
    assert state.event_counts["started"] == 1


def test_a_state_prints_in_a_line():
    assert repr(State(iteration=1204, epoch=3, metrics={"loss": 0.25}, status="completed")) == (
        "State: completed, iteration 1,204, epoch 3; loss 0.25"
    )
