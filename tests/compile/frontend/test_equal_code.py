"""Functions that share their code: the variables of each one that runs are watched."""

import gc
import sys
import types

import pytest

import weft
from weft.compile.frontend.guards import events, frames

TEXT = "def scaled(x):\n    return x * K\n"


def _available():
    if hasattr(sys, "monitoring"):
        return ["monitored", "profiled", "traced"]
    return ["evaluated", "profiled", "traced"] if events.available() else ["profiled"]


@pytest.fixture(params=_available(), autouse=True)
def way(request, monkeypatch):
    """Each of the ways in which functions that begin are noticed."""
    found = getattr(frames, f"_{request.param}")
    if request.param == "monitored":
        way = lambda entered: found(sys.monitoring, entered)
    elif request.param == "profiled":
        way = lambda entered: found(None, entered)
    else:
        way = found
    monkeypatch.setattr(frames, "_way", lambda: way)


def module(name, folder):
    path = folder / f"{name}.py"
    path.write_text("K = 1.0\n" + TEXT)
    made = types.ModuleType(name)
    exec(compile(path.read_text(), path, "exec"), vars(made))
    return made


def totals(function, *changes):
    """The first element of the results, before and after each of the changes."""
    x, found = weft.ones(2), []
    for change in (lambda: None, *changes):
        change()
        found.append(function(x)[0].item())
    return found


def pair(k):
    def scaled(x):
        return x * k

    def put(value):
        nonlocal k
        k = value

    return scaled, put


def test_equal_files(tmp_path):
    one, two = module("one", tmp_path), module("two", tmp_path)
    assert one.scaled.__code__ == two.scaled.__code__
    both = weft.compile(lambda x: one.scaled(x) + two.scaled(x))
    changes = [lambda: setattr(two, "K", 10.0), lambda: setattr(one, "K", 20.0)]
    assert totals(both, *changes) == [2, 11, 30]


def test_one_code_over_two_namespaces():
    code, one, two = compile(TEXT, "shared.py", "exec"), {"K": 1.0}, {"K": 1.0}
    exec(code, one)
    exec(code, two)
    both = weft.compile(lambda x: one["scaled"](x) + two["scaled"](x))
    changes = [lambda: two.update(K=10.0), lambda: one.update(K=20.0)]
    assert totals(both, *changes) == [2, 11, 30]


@pytest.mark.parametrize("frozen", [False, True])
def test_closures_that_only_a_method_of_c_reaches(frozen):
    (one, put_one), (two, put_two) = pair(1.0), pair(1.5)
    get = {"two": two}.get
    both = weft.compile(lambda x: one(x) + get("two")(x))
    try:
        if frozen:
            gc.freeze()
        changes = [lambda: put_two(10.0), lambda: put_one(20.0)]
        assert totals(both, *changes) == [2.5, 11, 30]
    finally:
        gc.unfreeze()


def test_others_with_the_same_code_do_not_count():
    (one, _), (other, put_other) = pair(1.0), pair(1.5)
    compiled = weft.compile(lambda x: one(x))
    assert totals(compiled, lambda: put_other(7.0)) == [1, 1]
    assert len(compiled.compiles) == 1
    assert other(1.0) == 7


def test_branches_of_a_frozen_function():
    def shifted(x):
        return chooses(x)

    gc.freeze()
    try:
        compiled = weft.compile(shifted)
        assert compiled(weft.ones(2)).tolist() == [2, 2]
        assert compiled(-weft.ones(2)).tolist() == [0, 0]
    finally:
        gc.unfreeze()


def chooses(x):
    if x.sum() > 0:
        return x + 1
    return x - x
