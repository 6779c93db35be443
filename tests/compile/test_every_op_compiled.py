"""Every operator record as native code, against its NumPy evaluation."""

import numpy as np
import pytest

import weft
import weft.nn  # its operators register themselves
from weft import graph as G
from weft.compile.loop.interpret import run_kernel
from weft.compile.native import Native, Use
from weft.core.lowering import View
from weft.core.op import all_ops
from weft.core.tensor import Tensor

OPS = {op.name: op for op in all_ops() if op.samples is not None and op.lower}
DTYPES = ["float64", "float32"]


def samples(op, dtype):
    for sample in op.samples(np.random.default_rng(0)):
        args = []
        for a in sample.args:
            if isinstance(a, (np.ndarray, np.generic)):
                a = np.asarray(a)
                a = Tensor(a.astype(dtype) if a.dtype == np.float64 else a)
            args.append(a)
        params = dict(sample.params)
        yield args, lambda *xs, op=op, params=params: op(*xs, **params)


def natively(fn, args):
    """A function compiled, and what it gives for the arguments' arrays."""
    captured = G.capture(fn, *args)
    native = Native(captured.graph)
    arrays = [a.numpy() for a in args if isinstance(a, Tensor)]
    return native, [r.copy() for r in native.run(arrays, {})[0]]


def outputs(fn, args):
    found = fn(*args)
    return [t.numpy() for t in (found if isinstance(found, tuple) else (found,))]


def near(got, want):
    for a, b in zip(got, want, strict=True):
        assert a.shape == b.shape
        assert a.dtype == b.dtype
        if b.dtype.kind == "f":
            scale = np.finfo(b.dtype).eps
            np.testing.assert_allclose(a, b, rtol=16 * scale, atol=16 * scale)
        else:
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", OPS)
def test_native_is_numpy(name, dtype):
    for args, fn in samples(OPS[name], dtype):
        _, got = natively(fn, args)
        near(got, outputs(fn, args))


@pytest.mark.parametrize("name", OPS)
def test_loops_are_numpy(name):
    """The Loop IR, run one element at a time."""
    for args, fn in samples(OPS[name], "float64"):
        captured = G.capture(fn, *args)
        native = Native(captured.graph)
        arrays = iter(a.numpy() for a in args if isinstance(a, Tensor))
        memory = dict(zip(captured.graph.inputs, arrays, strict=True))
        for step in native.steps:
            if not isinstance(step, Use):
                return  # a call, for which there are no loops
            for node in step.made:
                memory[node] = np.zeros(node.shape, node.dtype.np)
            buffers = [memory[n].copy(order="C") for n in step.owners]
            run_kernel(step.kernel, buffers, {})
            memory |= dict(zip(step.owners, buffers, strict=True))
        if all(o in memory for o in captured.graph.outputs):
            near([memory[o] for o in captured.graph.outputs], outputs(fn, args))


@pytest.mark.parametrize(
    "name", [n for n, op in OPS.items() if isinstance(op.lower, View)]
)
def test_views_inside_kernels(name):
    """A view read by a kernel is only another index."""
    for args, fn in samples(OPS[name], "float32"):
        moved = lambda *xs, fn=fn: fn(*xs) * 2.0 + 1.0
        if not args[0].dtype.is_inexact:
            continue
        native, got = natively(moved, args)
        near(got, outputs(moved, args))
        assert all(isinstance(step, Use) for step in native.steps)


@pytest.mark.parametrize("size", [1, 3, 15, 16, 17, 63, 64, 65, 1000, 4097])
def test_odd_sizes(size):
    rng = np.random.default_rng(size)
    x = Tensor(rng.normal(size=(5, size)).astype(np.float32))
    b = Tensor(rng.normal(size=size).astype(np.float32))

    def program(x, b):
        y = (x * 2 + b).relu()
        rows = y.sum(1), y.amax(1)
        columns = y.sum(0), (y * y).amax(0)
        mean = y.mean(1, keepdim=True)
        return (*rows, *columns, y - mean, (y > mean).sum(), y.t() * 3)

    _, got = natively(program, [x, b])
    for a, want in zip(got, outputs(program, [x, b]), strict=True):
        np.testing.assert_allclose(a, want, rtol=1e-5, atol=1e-5)


def test_not_contiguous_inputs():
    x = weft.randn(6, 7)
    _, got = natively(lambda x: x * 2 + x.sum(), [x.t()])
    np.testing.assert_allclose(got[0], (x.t() * 2 + x.sum()).numpy(), 1e-5, 1e-5)


def test_special_values():
    x = Tensor(np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -3e38], np.float32))

    def program(x):
        return (
            x.relu(), x.abs(), x.sqrt(), weft.maximum(x, -x), weft.sign(x), x > 0,
            x == x, weft.isnan(x), weft.isinf(x), x.floor(), x.reciprocal(), x.neg(),
        )  # fmt: skip

    _, got = natively(program, [x])
    with np.errstate(all="ignore"):
        for a, b in zip(got, outputs(program, [x]), strict=True):
            np.testing.assert_array_equal(a, b)
