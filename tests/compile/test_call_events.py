"""Functions that begin, told apart by machine code."""

import sys

import pytest

from weft.compile.guards.events import native_events


def inner():
    return 1


def outer():
    return inner() + inner()


def names_asked(ask):
    asked = []

    def note(frame):
        asked.append(frame.f_code.co_name)
        return ask(frame)

    with native_events(note):
        outer()
        outer()
    return [name for name in asked if name in ("inner", "outer")]


def test_what_is_known_is_asked_about_once():
    assert names_asked(lambda frame: True) == ["outer", "inner"]


def test_what_is_not_known_yet_is_asked_about_again():
    found = names_asked(lambda frame: frame.f_code.co_name != "inner")
    assert found == ["outer", "inner", "inner", "inner", "inner"]


def test_an_error_is_raised_and_nothing_stays_behind():
    def refuse(frame):
        if frame.f_code.co_name == "inner":
            raise ValueError("not this one")
        return True

    with pytest.raises(ValueError, match="not this one"), native_events(refuse):
        outer()
    assert sys.getprofile() is None
    assert outer() == 2
