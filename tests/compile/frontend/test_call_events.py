"""Functions that begin, told apart by machine code."""

import ctypes
import sys
import threading

import pytest

from weft.compile.frontend.guards import events, frames

pytestmark = pytest.mark.skipif(
    sys.version_info[:2] != (3, 11), reason="later Pythons have sys.monitoring"
)


def inner():
    return 1


def outer():
    return inner() + inner()


def numbers():
    yield 1
    yield 2


def names_asked(ask, run=outer, names=("inner", "outer", "numbers")):
    asked = []

    def note(code, known, function):
        assert function.__code__ is code or code.co_name not in names
        assert known["__name__"] == __name__ or code.co_name not in names
        asked.append(code.co_name)
        return ask(code)

    with events.native_events(note):
        run()
        run()
    return [name for name in asked if name in names]


def test_what_is_known_is_asked_about_once():
    assert names_asked(lambda code: True) == ["outer", "inner"]


def test_what_is_not_known_yet_is_asked_about_again():
    found = names_asked(lambda code: code.co_name != "inner")
    assert found == ["outer", "inner", "inner", "inner", "inner"]


def test_a_generator_goes_on_where_it_was():
    assert names_asked(lambda code: True, lambda: list(numbers())) == ["numbers"]
    with events.native_events(lambda code, names, function: True):
        assert list(numbers()) == [1, 2]


def test_an_error_thrown_into_a_generator_arrives():
    def ask(code, names, function):
        return code.co_name != "numbers"

    with events.native_events(ask):
        running = numbers()
        assert next(running) == 1
        with pytest.raises(KeyError):
            running.throw(KeyError("thrown"))


def test_what_is_called_while_asking_is_not_asked_about():
    def ask(code):
        return outer() == 2

    assert names_asked(ask, inner) == ["inner"]


@pytest.mark.parametrize("run", [outer, lambda: list(numbers())])
def test_an_error_is_raised_and_nothing_stays_behind(run):
    def refuse(code, names, function):
        if code.co_name in ("inner", "numbers"):
            raise ValueError("not this one")
        return True

    with events.native_events(refuse):
        with pytest.raises(ValueError, match="not this one"):
            run()
        with pytest.raises(ValueError, match="not this one"):
            run()
    assert events.available()
    assert outer() == 2
    assert list(numbers()) == [1, 2]


def test_an_error_can_be_caught_where_the_function_is_called():
    def caught():
        try:
            return inner()
        except ValueError:
            return 3

    def refuse(code, names, function):
        if code.co_name == "inner":
            raise ValueError("not this one")
        return True

    with events.native_events(refuse):
        assert caught() == 3


def test_other_threads_are_not_asked_about():
    def elsewhere():
        thread = threading.Thread(target=outer)
        thread.start()
        thread.join()

    assert names_asked(lambda code: True, elsewhere) == []


def test_one_at_a_time_and_not_where_recursion_is_deep():
    assert events.available()
    with events.native_events(lambda code, names, function: True):
        assert not events.available()
    before = sys.getrecursionlimit()
    try:
        sys.setrecursionlimit(events.DEEPEST + 1)
        assert not events.available()
    finally:
        sys.setrecursionlimit(before)


def test_where_somebody_else_evaluates_frames_it_is_left_to_them():
    own = events.library().evaluate
    put = events._evaluate_by
    known = events.Known(lambda code, names, function: True)
    events.library().prepare(known)
    default = ctypes.cast(ctypes.pythonapi._PyEval_EvalFrameDefault, ctypes.c_void_p)
    put(own)
    try:
        free = events.available()
    finally:
        put(default.value)
    assert not free


class Mine(dict):
    def __missing__(self, name):
        return name == __file__


@pytest.mark.parametrize("way", ["_evaluated", "_profiled", "_traced"])
def test_every_way_tells_the_same(way, monkeypatch):
    found = []
    start = getattr(frames, way)
    given = (None,) if way == "_profiled" else ()
    monkeypatch.setattr(frames, "USERS", Mine())
    with start(*given, lambda code, names, _: found.append((code, names))):
        outer()
    wanted = [(outer.__code__, globals()), (inner.__code__, globals())]
    assert list(dict.fromkeys(code for code, _ in found)) == [c for c, _ in wanted]
    assert all(names is globals() for _, names in found)
