"""Which handler takes the place of which."""

from __future__ import annotations

from functools import partial

from gradviz.loop.same import is_same_handler


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


def test_a_function_may_speak_of_what_has_no_value_yet():
    def made():
        def note(state):
            return later

        yield note
        later = 1

    kept = [made(), made()]  # generators that have stopped before the assignment
    assert not is_same_handler(*map(next, kept))


def test_numbers_and_strings_that_functions_carry_are_compared_by_value():
    one, same, other, integer = (
        defined("def note(state, number=number): return None", number=number)["note"]
        for number in (float("0.1"), float("0.1"), 0.2, 1)
    )
    assert is_same_handler(one, same)
    assert not is_same_handler(one, other)
    assert not is_same_handler(one, integer)


def test_partials_are_the_same_by_what_they_carry():
    def note(how, state): ...

    assert is_same_handler(partial(note, "a"), partial(note, "a"))
    assert not is_same_handler(partial(note, "a"), partial(note, "b"))


def test_bound_methods_are_the_same_by_their_object():
    class Keeper:
        def keep(self, state) -> None: ...

    one, two = Keeper(), Keeper()
    assert is_same_handler(one.keep, one.keep)
    assert not is_same_handler(one.keep, two.keep)
