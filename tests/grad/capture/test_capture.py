"""What a capture may be asked for."""

from __future__ import annotations

import pytest

import gradviz as gv
from gradviz.errors import CaptureError
from gradviz.grad.capture.capture import as_capture


def test_patterns_are_globs_over_names_and_paths():
    capture = gv.Capture("encoder.*", "head.fc")
    assert [capture.wants_module(path) for path in ("encoder.0", "encoder.0.fc", "encoder", "head.fc", "head.fc2")] == [
        True,
        True,
        False,
        True,
        False,
    ]
    assert capture.wants_sown("encoder.attention")
    assert not capture.wants_sown("attention")


def test_without_a_pattern_all_that_is_sown_is_wanted_and_no_module():
    assert gv.Capture().wants_sown("anything")
    assert not gv.Capture().wants_module("anything")


def test_an_exact_name_counts_as_itself_whatever_signs_are_in_it():
    assert gv.Capture("state[0]").wants_sown("state[0]")
    assert not gv.Capture("Head").wants_module("head")


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        ((3,), {}, "names and patterns of modules and sown values, such as 'encoder.*'; got an int"),
        (("",), {}, "got ''"),
        ((["a"],), {}, "got a list"),
        ((), {"keep": "tensor"}, "keep='tensor': did you mean 'tensors'?"),
        ((), {"keep": 3}, "keep=3"),
        ((), {"store": "disc"}, "store='disc': did you mean 'disk'?"),
        ((), {"values": 1}, "values is True or False; got 1"),
        ((), {"batch_dim": 1.0}, "batch_dim is a whole number from 0 on; got 1.0"),
        ((), {"batch_dim": True}, "got True"),
        ((), {"top_examples": -1}, "top_examples"),
        ((), {"memory_limit": "many"}, "memory_limit"),
    ],
)
def test_what_makes_no_sense_is_refused_in_words(arguments, options, words):
    with pytest.raises(CaptureError) as error:
        gv.Capture(*arguments, **options)
    assert words in str(error.value)
    assert error.value.code == "E1109"


def test_a_keyword_that_is_misspelt_is_named():
    with pytest.raises(TypeError, match="memory_limit"):
        gv.Capture(memory_limits="1GB")


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ("encoder.*", "Write capture=gv.Capture('encoder.*')."),
        (True, 'Write capture=gv.Capture("encoder.*").'),
        (["a"], 'Write capture=gv.Capture("encoder.*").'),
    ],
)
def test_what_is_no_capture_is_told_the_line_to_write(given, line):
    with pytest.raises(CaptureError) as error:
        as_capture(given)
    assert str(error.value).endswith(line)


def test_a_capture_and_none_are_taken_as_they_are():
    capture = gv.Capture("a", values=True)
    assert as_capture(capture) is capture
    assert as_capture(None) is None
    assert repr(capture) == "Capture('a', values=True)"
