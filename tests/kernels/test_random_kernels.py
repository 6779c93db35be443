"""Random kernels have the same results everywhere, and Python's own.

The oracle is Python: a kernel's function runs on NumPy's arrays as it is written.
"""

import itertools
import linecache
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_gpu import simulated_gpu

import weft
from weft.errors import AutogradError
from weft.kernels.tensors import Underived, as_tensors

SIGNATURE = (
    "x: float64[n, m], y: float64[m], ids: int64[n], a: float64 "
    "-> out: float64[n, m], s: float64[n], p: int64[n]"
)
NUMBERS = itertools.count()


@st.composite
def index(draw, size, variable):
    """An index of an axis: always in range, proven or not."""
    kinds = [variable, f"{size} - 1 - {variable}", f"({variable} + 1) % {size}",
             f"min({variable} + 1, {size} - 1)", "0"]  # fmt: skip
    if size == "m":
        kinds.append("ids[i] % m")
    return draw(st.sampled_from(kinds))


@st.composite
def value(draw, names, depth=0):
    """An expression over elements, locals and loop variables."""
    leaf = depth > 2 or draw(st.booleans())
    if leaf:
        kind = draw(st.sampled_from(["x", "y", "number", "name", "a", "position"]))
        column = "j" if "j" in names else "0"
        if kind == "x":
            row = draw(index("n", "i"))
            at = draw(index("m", "j")) if column == "j" else "m - 1"
            return f"x[{row}, {at}]"
        if kind == "y":
            return f"y[{draw(index('m', column))}]"
        if kind == "name":
            return draw(st.sampled_from(["a", *[n for n in names if n != "j"]]))
        if kind == "position":
            return f"({column} + 2 * i)"
        return "a" if kind == "a" else draw(st.sampled_from(["0.5", "-2", "3", "1.25"]))
    left, right = (draw(value(names, depth + 1)) for _ in range(2))
    form = draw(st.sampled_from([
        "({} + {})", "({} - {})", "({} * {})", "max({}, {})", "min({}, {})",
        "math.tanh({} * {})", "abs({} - {})", "({0} if {0} < {1} else {1})",
        "({0} / (1 + abs({1})))", "math.sin({0} + {1})",
        "({0} if {1} > 0 and {0} != {1} else -{0})",
    ]))  # fmt: skip
    return form.format(left, right)


@st.composite
def source(draw):
    """A kernel as text."""
    lines = ["n, m = x.shape", "for i in weft.kernel.grid(n):"]
    names = ["t"]
    lines.append(f"    t = {draw(value([]))} + 0.0")
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(["sum", "top", "store", "local", "when"]))
        if kind == "local":
            name = f"v{len(names)}"
            lines.append(f"    {name} = {draw(value(names))}")
            names.append(name)
        elif kind == "when":
            lines.append(f"    if {draw(value(names))} > {draw(value(names))}:")
            lines.append(f"        t = t * 0.5 + {draw(value(names))}")
            lines.append("    else:")
            lines.append("        t -= 1")
        else:
            start = draw(st.sampled_from(["range(m)", "range(1, m)", "range(0, m, 2)"]))
            lines.append(f"    for j in {start}:")
            inner = [*names, "j"]
            if kind == "sum":
                lines.append(
                    f"        t += {draw(value([n for n in inner if n != 't']))}"
                )
            elif kind == "top":
                lines.append(
                    f"        t = max(t, {draw(value([n for n in inner if n != 't']))})"
                )
            else:
                lines.append(f"        out[i, j] += {draw(value(inner))}")
    lines += [
        "    for j in range(m):",
        f"        out[i, j] += {draw(value([*names, 'j']))}",
    ]
    lines.append(f"    s[i] = {draw(value(names))}")
    lines.append("    p[i] = int(math.floor(min(max(s[i], -99), 99))) + ids[i]")
    return "\n".join(
        ["def kernel(x, y, ids, a, out, s, p):"] + [f"    {n}" for n in lines]
    )


def made(text):
    """The kernel, and the function itself."""
    name = f"<kernel {next(NUMBERS)}>"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    scope = {"weft": weft, "math": math}
    exec(compile(text, name, "exec"), scope)
    return weft.kernel(SIGNATURE)(scope["kernel"]), scope["kernel"]


def arguments(seed):
    rng = np.random.default_rng(seed)
    n, m = rng.integers(1, 5, 2)
    return (
        rng.standard_normal((n, m)),
        rng.standard_normal(m),
        rng.integers(0, 9, n),
        np.float64(rng.standard_normal()),
    )


@pytest.fixture(scope="module")
def gpu():
    yield weft.register_device(simulated_gpu())
    weft.unregister_device("gpu:0")


def close(found, want):
    for one, other in zip(found, want, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


@settings(max_examples=20, deadline=None)
@given(text=source(), seed=st.integers(0, 99))
def test_random_kernels(gpu, text, seed):
    kernel, function = made(text)
    x, y, ids, a = arguments(seed)
    want = np.zeros(x.shape), np.zeros(len(x)), np.zeros(len(x), np.int64)
    function(x, y, ids, a, *want)
    if abs(want[1] - np.round(want[1])).min() < 1e-6:
        return  # a floor that rounding decides
    close(kernel.op.eval(x, y, ids, a), want)
    tensors = list(map(weft.tensor, (x, y, ids, a)))
    close([t.numpy() for t in kernel(*tensors)], want)
    close([t.numpy() for t in weft.compile(kernel)(*tensors)], want)
    close([t.cpu().numpy() for t in kernel(*[t.to(gpu) for t in tensors])], want)
    try:
        found = as_tensors(kernel, tensors, {})
    except Underived:
        return
    close([t.numpy() for t in found], want)


@settings(max_examples=15, deadline=None)
@given(text=source(), seed=st.integers(0, 99))
def test_random_gradients(text, seed):
    kernel, function = made(text)
    x, y, ids, a = arguments(seed)
    rng = np.random.default_rng(seed)
    direction = rng.standard_normal(x.shape)
    weights = rng.standard_normal(x.shape), rng.standard_normal(len(x))

    def total(step):
        outs = np.zeros(x.shape), np.zeros(len(x)), np.zeros(len(x), np.int64)
        function(x + step * direction, y, ids, a, *outs)
        return sum((w * o).sum() for w, o in zip(weights, outs, strict=False))

    t = weft.tensor(x, requires_grad=True)
    outs = kernel(t, *map(weft.tensor, (y, ids, a)))
    loss = sum((weft.tensor(w) * o).sum() for w, o in zip(weights, outs, strict=False))
    try:
        loss.backward()
    except AutogradError:  # the body is no function of tensors
        with pytest.raises(Underived):
            as_tensors(kernel, list(map(weft.tensor, (x, y, ids, a))), {})
        return
    steps = [(total(e) - total(-e)) / (2 * e) for e in (1e-5, 2e-5)]
    if abs(steps[0] - steps[1]) > 1e-5 * (1 + abs(steps[0])):
        return  # there is an edge nearby
    np.testing.assert_allclose((t.grad.numpy() * direction).sum(), steps[0],
                               rtol=1e-5, atol=1e-6)  # fmt: skip
