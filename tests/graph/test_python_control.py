"""Python's branches and loops over tensors' values, captured and compiled."""

import copy
import importlib.util
import pathlib
import sys
import traceback

import numpy as np
import pytest

import weft
from weft.core.pytree import tree_flatten
from weft.graph import CaptureError, capture

PATH = pathlib.Path(__file__).with_name("python_programs.py")


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # as an import does
    spec.loader.exec_module(module)
    return module


programs = load(PATH)


def names(rows):
    return [row[0].__name__ for row in rows]


def assert_same(got, want):
    (a, shape), (b, other) = tree_flatten(got), tree_flatten(want)
    assert shape == other
    for x, y in zip(a, b, strict=True):
        assert type(x) is type(y)
        if isinstance(y, weft.Tensor):
            assert x.dtype is y.dtype
            x, y = x.detach().numpy(), y.detach().numpy()
        np.testing.assert_allclose(x, y, rtol=2e-6, atol=1e-6)


def called(fn, call, seed=3):
    weft.manual_seed(seed)
    return fn(*[x.clone() for x in call])


def gradients(fn, call, seed=3):
    weft.manual_seed(seed)
    xs = [x.clone().requires_grad_() for x in call]
    out = fn(*[x * 1 for x in xs])
    floats = [t for t in tree_flatten(out)[0] if t.dtype.is_floating_point]
    sum((t * t).sum() for t in floats).backward()
    return [x.grad for x in xs]


@pytest.mark.parametrize(
    ("fn", "calls", "grads"), programs.PROGRAMS, ids=names(programs.PROGRAMS)
)
def test_every_way_gives_the_eager_result(fn, calls, grads):
    compiled = weft.compile(fn)
    for first in calls[:2]:  # whichever way the captured call takes
        program = capture(fn, *first)
        for call in calls:
            assert_same(called(program, call), called(fn, call))
    for call in (*calls, *calls):
        assert_same(called(compiled, call), called(fn, call))
    assert len(compiled.compiles) == 1


@pytest.mark.parametrize(
    ("fn", "calls"),
    [(fn, calls) for fn, calls, grads in programs.PROGRAMS if grads],
    ids=[row[0].__name__ for row in programs.PROGRAMS if row[2]],
)
def test_every_way_has_the_eager_gradient(fn, calls):
    compiled = weft.compile(fn)
    inside = weft.compile(lambda *xs: gradients(fn, xs, seed=3))
    for call in calls:
        want = gradients(fn, call)
        assert_same(gradients(compiled, call), want)
        assert_same(inside(*call), want)


@pytest.mark.parametrize(
    ("fn", "text", "args"), programs.REFUSED, ids=names(programs.REFUSED)
)
@pytest.mark.parametrize("how", [weft.compile, lambda fn: lambda *a: capture(fn, *a)])
def test_refusals_name_the_line_and_the_reason(how, fn, text, args):
    first = fn.__code__.co_firstlineno
    with pytest.raises(CaptureError, match=f"(?s){text}") as info:
        how(fn)(*[x.clone() for x in args])
    lines = [f for f in traceback.extract_tb(info.tb) if f.filename == str(PATH)]
    assert any(first < line.lineno < first + 16 for line in lines), lines


def test_functions_have_their_own_code_afterwards():
    for fn in (programs.sets_a_variable, programs.appends):
        before = fn.__code__
        try:
            weft.compile(fn)(programs.UP)
        except CaptureError:
            pass
        assert fn.__code__ is before


def test_a_side_that_is_not_taken_has_no_effect_on_later_calls():
    log = []

    def remembers(x):
        if x.sum() > 0:
            log.append(1)
        return x

    with pytest.raises(CaptureError, match="changes what 'log' leads to"):
        capture(remembers, programs.UP)
    assert log == []


def test_what_a_branch_reads_is_guarded(tmp_path):
    path = tmp_path / "guarded_branch.py"
    path.write_text(
        "SCALE = 2.0\n"
        "def make(shift):\n"
        "    def fn(x):\n"
        "        if x.sum() > 0:\n"
        "            y = x * SCALE + shift[0]\n"
        "        else:\n"
        "            y = x\n"
        "        return y\n"
        "    return fn\n"
        "def closed(k):\n"
        "    def fn(x):\n"
        "        return x * k if x.sum() > 0 else x\n"
        "    def change(new):\n"
        "        nonlocal k\n"
        "        k = new\n"
        "    return fn, change\n"
    )
    module = load(path)
    shift = [1.0]
    fn = weft.compile(module.make(shift))
    assert fn(programs.UP).tolist() == [3, 5]
    module.SCALE = 3.0
    assert fn(programs.UP).tolist() == [4, 7]
    shift[0] = 0.0
    assert fn(programs.UP).tolist() == [3, 6]
    assert fn(programs.DOWN).tolist() == [-1, -2]
    assert len(fn.compiles) == 3
    inner, change = module.closed(2.0)
    fn = weft.compile(inner)
    assert fn(programs.UP).tolist() == [2, 4]
    change(5.0)
    assert fn(programs.UP).tolist() == [5, 10]


def test_changed_code_is_noticed(tmp_path):
    path = tmp_path / "changed_code.py"
    path.write_text(
        "def one(x):\n"
        "    if x.sum() > 0:\n"
        "        return x * 2\n"
        "    return x\n"
        "def two(x):\n"
        "    return x * 10\n"
    )
    module = load(path)
    fn = weft.compile(module.one)
    assert fn(programs.UP).tolist() == [2, 4]
    module.one.__code__ = module.two.__code__
    assert fn(programs.UP).tolist() == [10, 20]


def test_a_file_that_has_changed_is_not_read(tmp_path):
    path = tmp_path / "changed_file.py"
    text = "def one(x):\n    if x.sum() > 0:\n        return x * 2\n    return x\n"
    path.write_text(text)
    module = load(path)
    path.write_text(text.replace("* 2", "- 2"))
    with pytest.raises(CaptureError, match="known only when the graph runs"):
        weft.compile(module.one)(programs.UP)


def test_code_without_source_is_refused_as_before():
    space = {}
    exec("def f(x):\n    return x if x.sum() > 0 else -x", space)
    with pytest.raises(CaptureError, match=r"weft\.cond"):
        weft.compile(space["f"])(programs.UP)
    with pytest.raises(CaptureError, match=r"weft\.cond"):
        weft.compile(lambda x: x if x.sum() > 0 else -x)(programs.UP)


def test_rows_of_a_tensor_with_an_open_size():
    path = PATH.with_name("row_programs.py")
    module = load(path)
    for fn in module.PROGRAMS:
        compiled = weft.compile(fn, dynamic=True)
        for n in (4, 5, 2, 7):
            x = weft.rand(n, 3)
            assert_same(compiled(x), fn(x))
            assert_same(gradients(compiled, (x,)), gradients(fn, (x,)))
        assert len(compiled.compiles) <= 2  # one with a gradient, one without
    for fn, text in module.REFUSED:
        with pytest.raises(CaptureError, match=text):
            weft.compile(fn, dynamic=True)(weft.rand(4, 3))


def test_a_training_step_with_a_branch():
    model = programs.Gated()
    twin = copy.deepcopy(model)
    pairs = [(m, weft.optim.SGD(m.parameters(), lr=0.1)) for m in (model, twin)]

    def make(model, optimizer):
        def step(x):
            optimizer.zero_grad()
            loss = (model(x) ** 2).sum()
            loss.backward()
            optimizer.step()
            return loss.detach()

        return step

    eager, compiled = make(*pairs[0]), weft.compile(make(*pairs[1]))
    for x in (programs.UP, programs.DOWN, programs.UP * 3, programs.DOWN):
        assert_same(compiled(x), eager(x))
        assert_same(twin.w, model.w)
    assert len(compiled.compiles) == 1
    verified = weft.compile(make(*pairs[1]), verify=True)
    assert verified(programs.UP).shape == ()
