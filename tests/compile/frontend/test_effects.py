"""What a compiled function does besides computing, and what it says when it fails."""

import logging
import os
import subprocess
import sys

import numpy as np
import pytest

import weft
from weft import nn
from weft.core.pytree import tree_flatten
from weft.graph import CaptureError

X = weft.tensor([1.0, 2.0])


def both(fn, *calls, **options):
    """Results of a function eagerly and compiled, for the same calls."""
    compiled = weft.compile(fn, **options)
    return [fn(*c) for c in calls], [compiled(*c) for c in calls], compiled


# -- memory that is shared


def test_gradients_are_not_the_memory_of_arguments():
    w = weft.ones(2, requires_grad=True)

    @weft.compile
    def step(x):
        w.grad = None
        (w * x).sum().backward()  # whose gradient is x

    x = X.clone()
    for _ in range(3):
        step(x)
        w.grad.add_(1)
    assert x.tolist() == [1.0, 2.0]


def test_gradients_are_not_the_constants_of_programs():
    w = weft.ones(2, requires_grad=True)

    @weft.compile
    def step():
        w.grad = None
        w.sum().backward()

    for _ in range(6):
        step()
        assert w.grad.tolist() == [1.0, 1.0]
        w.grad.add_(1)


@pytest.mark.parametrize("grad", [False, True])
def test_results_share_memory_as_eagerly(grad):
    def f(x):
        y = x * 2
        return x, x[:1], x.T, x.detach(), y, y.reshape(1, 2), y, y[1:], y.sum()

    for fn in (f, weft.compile(f)):
        x = X.clone().requires_grad_(grad)
        out = fn(x)
        assert out[0] is x
        assert out[4] is out[6]
        memory = [[np.shares_memory(a.numpy(force=True), b.numpy(force=True))
                   for a in out] for b in out]  # fmt: skip
        assert [t.requires_grad for t in out] == [grad] * 3 + [False] + [grad] * 5
        if fn is f:
            eager = memory
        assert memory == eager
        if grad:
            (out[5].sum() + out[7].sum()).backward()
            assert x.grad.tolist() == [2.0, 4.0]


def test_views_of_arguments_with_other_sizes():
    def f(x):
        return x.reshape(-1)[1:], x.sum()

    compiled = weft.compile(f)
    for shape in ((2, 3), (4, 3), (5, 3)):
        x = weft.ones(shape)
        out = compiled(x)[0]
        assert out.shape == f(x)[0].shape
        out.zero_()
        assert x.sum().item() == 1.0
    assert len(compiled.compiles) == 2


UNKNOWN_LAYOUTS = {
    "a value and its copy": lambda y: (y, y.T.reshape(-1)),
    "copies of a value that is gone": lambda y: (y.T.reshape(-1), y.T.flatten()),
    "views of them": lambda y: (y.T.reshape(-1)[1:], y[0]),
    "rows": lambda y: (y.T.reshape(2, 6).unbind(0)[0], y),
    "a copy of a copy": lambda y: (y.T.reshape(2, 6).T.reshape(12), y),
    "in a dictionary": lambda y: {"a": y, "b": y.mT.reshape(2, 6)},
    "contiguous": lambda y: (y.T, y.T.contiguous()),
    "two copies": lambda y: (y.T.contiguous(), y.T.reshape(2, 6)),
}


@pytest.mark.parametrize("name", UNKNOWN_LAYOUTS)
def test_results_that_share_memory_or_not_by_layout_are_refused(name):
    results = weft.compile(lambda x: UNKNOWN_LAYOUTS[name](x.T + 1))
    with pytest.raises(weft.errors.WeftError, match="whether a reshaped or contiguous"):
        results(weft.rand(3, 4))


def test_a_copy_that_others_may_share_is_not_written_to():
    @weft.compile
    def write(x):
        y = x.T + 1
        a, b = y.T.reshape(-1), y.T.reshape(-1)
        del y
        a.add_(1)
        return b

    with pytest.raises(weft.errors.WeftError, match="whether a reshaped or contiguous"):
        write(weft.rand(3, 4))


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: (x.T + 1).T.reshape(-1),
        lambda x: (x.T, x.T.reshape(-1), x.T.T.reshape(-1)),
        lambda x: (z := (x.T + 1).T.reshape(-1), z[1:]),
        lambda x: (y := x.T.clone(), y.T.reshape(-1), y.reshape(-1)),
        lambda x: (y := x.clone().T, y.T.reshape(-1)),
    ],
)
def test_reshaped_results_share_memory_as_eagerly(fn):
    shared = []
    for one in (fn, weft.compile(fn)):
        arrays = [t.numpy() for t in tree_flatten(one(weft.rand(3, 4)))[0]]
        shared.append([np.shares_memory(a, b) for a in arrays for b in arrays])
    assert shared[0] == shared[1]


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, i: x[i[0] % 2],
        lambda x, i: (x[i[0] % 2, i[1] % 3], x[:, i[0]].unsqueeze(0)),
        lambda x, i: (y := x * 2, y[i[0]][1:]),
    ],
)
def test_rows_at_computed_indices_are_views_as_eagerly(fn):
    program = weft.compile(fn)
    for one in ([1, 0], [0, 2], [1, 1]):
        index, shared = weft.tensor(one), []
        for run in (fn, program):
            x = weft.arange(6.0).reshape(2, 3)
            results = tree_flatten(run(x, index))[0]
            for k, result in enumerate(results):
                result.add_(10 * (k + 1))
            shared.append([x.tolist(), *[r.tolist() for r in results]])
        assert shared[0] == shared[1]


def test_a_reshape_that_has_to_copy_is_a_copy():
    compiled = weft.compile(lambda x: x.reshape(-1))
    x = weft.arange(6.0).reshape(2, 3)
    assert np.shares_memory(compiled(x).numpy(), x.numpy())
    assert not np.shares_memory(compiled(x.T).numpy(), x.numpy())
    assert compiled(x.T).tolist() == x.T.reshape(-1).tolist()


# -- containers


def test_containers_under_verify():
    def f(x, log):
        log.append(x.sum())
        return x * len(log)

    log = []
    compiled = weft.compile(f, verify=True)
    assert [compiled(X, log).tolist() for _ in range(2)] == [[1, 2], [2, 4]]
    assert [t.item() for t in log] == [3.0, 3.0]


def test_changes_before_an_error_of_the_function():
    def f(x, log):
        log.append("begun")
        raise ValueError("mine")

    log = []
    with pytest.raises(ValueError, match="mine"):
        weft.compile(f)(X, log)
    assert log == ["begun"]


def test_losses_in_a_list_can_be_differentiated():
    w = weft.ones(2, requires_grad=True)

    @weft.compile
    def f(x, losses):
        losses.append((w * x).sum())

    losses = []
    f(X, losses)
    losses[0].backward()
    assert w.grad.tolist() == [1.0, 2.0]


def test_captured_programs_change_containers_too():
    program = weft.graph.capture(lambda x, d: d.update(k=x * 2), X, {})
    d = {}
    program(weft.tensor([5.0, 6.0]), d)
    assert d["k"].tolist() == [10.0, 12.0]


def test_a_program_with_effects_is_not_saved(tmp_path):
    program = weft.graph.capture(lambda x, d: d.update(k=x * 2), X, {})
    with pytest.raises(weft.errors.ArgumentError, match="changes Python objects"):
        weft.save(program, tmp_path / "p.safetensors")


# -- floats


def test_floats_that_differ_are_inputs():
    def f(x, t, shift=0.5):
        return (x / t - shift).sum(), x * (1 - t) + 2 / t, x.clamp(max=t), x > t

    calls = [(X, 0.1 * k, 0.01 * k * k) for k in range(1, 25)]
    want, got, compiled = both(f, *calls)
    for a, b in zip(want, got, strict=True):
        for u, v in zip(a, b, strict=True):
            assert u.dtype == v.dtype
            np.testing.assert_allclose(u.numpy(), v.numpy(), rtol=1e-6)
    assert len(compiled.compiles) == 2
    assert "t is any float, was 0.1" in compiled.compiles[1].why


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int32"])
def test_floats_are_rounded_as_numbers_are(dtype):
    x = X.to(getattr(weft, dtype))
    calls = [(x, 0.1 * k) for k in range(1, 6)]
    want, got, compiled = both(lambda x, t: (x * t, x.sum() + t), *calls)
    assert [[str(u) for u in a] for a in want] == [[str(u) for u in a] for a in got]
    assert len(compiled.compiles) == 2


@pytest.mark.parametrize(
    "fn",
    [lambda x, t: x if t > 0.25 else -x, lambda x, t: x * int(t * 10),
     lambda x, t: x * np.sqrt(t), lambda x, t: x * float(f"{t:.1f}"),
     lambda x, t: x * 2 if type(t) is float else x, lambda x, t: x * {t: 2}[t],
     lambda x, t: (x, t), lambda x, t: x * round(t, 1), lambda x, t: x * t**2],
)  # fmt: skip
def test_floats_whose_values_decide_are_constants(fn):
    want, got, _ = both(fn, *[(X, 0.1 * k) for k in range(1, 5)])
    assert str(want) == str(got)


def test_dividing_by_a_float_that_becomes_zero():
    f = weft.compile(lambda x, t: x * (1 / t))
    for t in (2.0, 4.0):
        assert f(X, t).tolist() == [1 / t, 2 / t]
    with pytest.raises(ZeroDivisionError):
        f(X, 0.0)
    assert f(X, 8.0).tolist() == [0.125, 0.25]


# -- people


def test_prints_have_the_values_of_each_call(capsys):
    @weft.compile
    def f(x):
        y = x.sum()
        print("sum", y, f"{y:.1f}", [y], sep="|")
        y.add_(1)
        return y

    for k in range(3):
        f(X * k)
    f3 = "tensor({0}.)|{0}.0|[tensor({0}.)]"
    rows = [f"sum|{f3.format(3 * k)}" for k in range(3)]
    assert capsys.readouterr().out.splitlines() == rows


def test_what_was_printed_before_an_error_is_shown(capsys):
    @weft.compile
    def f(x):
        print("shape", x.shape, x)
        return x @ weft.ones(7)

    with pytest.raises(weft.errors.ShapeError):
        f(X)
    assert capsys.readouterr().out == "shape (2,) <input 'x' float32[2]>\n"


def test_logs_have_the_values_of_each_call(caplog):
    logger = logging.getLogger("weft-test")

    @weft.compile
    def f(x):
        logger.warning("sum %s", x.sum())
        return x

    f(X)
    f(X * 2)
    assert [r.getMessage()[:12] for r in caplog.records] == ["sum tensor(3"] * 1 + [
        "sum tensor(6"
    ]


def test_a_breakpoint_has_values(monkeypatch):
    seen = []
    hook = lambda: seen.append(sys._getframe(1).f_locals["y"].tolist())
    monkeypatch.setattr(sys, "breakpointhook", hook)

    def f(x):
        y = x * 2
        breakpoint()
        return y

    with pytest.warns(UserWarning, match="calls the debugger, so this call"):
        assert weft.compile(f)(X).tolist() == [2.0, 4.0]
    assert seen == [[2.0, 4.0]]


def test_input_is_refused():
    with pytest.raises(CaptureError, match="asks for input"):
        weft.compile(lambda x: x * int(input()))(X)


# -- tracebacks

FAILURES = {
    "a branch": "f = weft.compile(model)\nf(weft.ones(2, 3))",
    "a shape": "f = weft.compile(model)\nf(weft.ones(2, 5))",
    "an index": "f = weft.compile(lambda x, i: x[i])\n"
    "f(weft.ones(3), weft.tensor([7]))",
    "an error of the user's": "f = weft.compile(lambda x: {}[0])\nf(weft.ones(2))",
    "a capture": "weft.graph.capture(model, weft.ones(2, 3))",
}
MODEL = """
import weft

class Model(weft.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = weft.nn.Linear(3, 4)

    def forward(self, x):
        y = self.fc(x)
        assert y.sum() > 0
        return -y

model = Model()
"""


def failure(text, tmp_path, **environment):
    path = tmp_path / "program.py"
    path.write_text(MODEL + text)
    found = subprocess.run(
        [sys.executable, path],
        capture_output=True,
        text=True,
        env=os.environ | environment,
    )
    assert found.returncode == 1
    return found.stderr


@pytest.mark.parametrize("name", FAILURES)
def test_errors_are_short_and_show_the_users_code_alone(name, tmp_path):
    shown = failure(FAILURES[name], tmp_path)
    assert len(shown.splitlines()) <= 15, shown
    files = [row for row in shown.splitlines() if row.startswith("  File ")]
    assert files
    assert all("program.py" in row for row in files), shown


def test_whole_tracebacks_can_be_had(tmp_path):
    shown = failure(FAILURES["a branch"], tmp_path, WEFT_TRACEBACK="full")
    assert "weft/compile/frontend/function.py" in shown


def test_errors_name_the_variable_of_the_model(tmp_path):
    assert "in model.fc (Linear)" in failure(FAILURES["a shape"], tmp_path)


# -- refusals


def test_a_refusal_inside_a_branch_passes_the_handlers_outside():
    def f(x):
        try:
            return weft.cond(x.sum() > 0, lambda: x * float(x[0]), lambda: x)
        except Exception:
            return x * 100

    with pytest.raises(CaptureError, match="known only when"):
        weft.compile(f)(X)


def test_a_refusal_inside_a_body_that_is_run_eagerly():
    def body(x):
        try:
            return x * float(x.sum())
        except Exception:
            return x * 100

    with pytest.raises(CaptureError):
        weft.graph.capture(lambda x: weft.cond(x.sum() > 0, body, body, (x,)), X)


def test_errors_that_eager_code_raises_too_can_be_caught():
    def f(x):
        try:
            return x @ weft.ones(7)
        except RuntimeError:
            return x * 2

    assert weft.compile(f)(X).tolist() == f(X).tolist() == [2.0, 4.0]


def test_the_first_refusal_is_the_one_that_is_told():
    def f(x):
        try:
            x.item()
        except BaseException:
            return x.tolist()

    with pytest.raises(CaptureError) as found:
        weft.compile(f)(X)
    assert "x.item()" in str(found.value)


def test_a_module_that_swallows_is_still_refused():
    class Swallowing(nn.Module):
        def forward(self, x):
            try:
                return x * bool(x.sum())
            finally:
                return x  # noqa: B012, SIM107

    with pytest.raises(CaptureError):
        weft.compile(Swallowing())(X)


def test_a_capture_that_is_tried_again_has_its_effects_once(capsys):
    def f(x, log):
        log["n"] += 1
        print("here")
        return x.reshape(3, -1)[:, : int(x.shape[0])]

    compiled = weft.compile(f)
    for size in (3, 6, 9, 12):
        log = {"n": 0}
        compiled(weft.ones(size), log)
        assert log["n"] == 1
    assert capsys.readouterr().out == "here\n" * 4


def test_copies_in_place_keep_memory_of_their_own():
    """``copy_`` gives two tensors one node of the graph, but not one array."""

    def program(x, log):
        source, copy, other = x * 2, x.clone(), x + 1
        copy.copy_(source)
        log["last"] = copy.reshape(-1)
        return source, copy, other, other.reshape(-1), source.reshape(-1)

    def shared(function):
        log = {}
        tensors = [*function(weft.ones(2), log), log["last"]]
        arrays = [t.numpy() for t in tensors]
        return [[np.shares_memory(a, b) for a in arrays] for b in arrays]

    assert shared(weft.compile(program)) == shared(program)


# -- leaves that are views


def leaf():
    return weft.arange(6.0).reshape(2, 3).requires_grad_()


def test_gradients_of_a_leaf_that_is_a_view():
    p, x = leaf(), weft.ones(2, 3)
    program = weft.compile(lambda a: p * a)
    (program(x).sum() + program(x * 3).sum()).backward()
    assert p.grad.tolist() == [[4.0] * 3] * 2
    assert p._base is not None

    @weft.compile
    def accumulate(a):
        (p * a).sum().backward()
        return p.grad * 1

    p.grad = None
    assert [accumulate(x)[0, 0].item() for _ in range(3)] == [1, 2, 3]


def test_a_leaf_that_is_a_view_is_changed_in_place():
    whole = weft.arange(6.0)
    p = whole[1:4].requires_grad_()

    @weft.compile
    def train(x):
        p.grad = None
        (p * x).sum().backward()
        with weft.no_grad():
            p.sub_(p.grad)

    for _ in range(3):
        train(weft.ones(3))
    assert whole.tolist() == [0, -2, -1, 0, 4, 5]
    assert p.tolist() == [-2, -1, 0]


def test_a_view_that_is_used_after_its_base():
    whole = weft.arange(6.0)
    part = whole[:3]
    program = weft.compile(lambda: whole.sum() + part)
    assert program().tolist() == [15, 16, 17]
    whole.add_(1)
    assert program().tolist() == [22, 23, 24]


def test_leaves_over_parts_of_one_tensor():
    whole = weft.arange(6.0)
    p, q = whole[:3].requires_grad_(), whole[3:].requires_grad_()
    weft.compile(lambda: (p * q).sum())().backward()
    assert (p.grad.tolist(), q.grad.tolist()) == ([3, 4, 5], [0, 1, 2])
    r = whole[1:4].requires_grad_()
    for uses in (lambda: p * whole[:3], lambda: whole.sum() + p, lambda: p + r):
        with pytest.raises(CaptureError, match="is a view of another one"):
            weft.compile(uses)()
