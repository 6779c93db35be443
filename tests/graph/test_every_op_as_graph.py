"""Every operator record as a graph: captured, derived, pushed, batched, sized."""

import numpy as np
import pytest

import weft
import weft.nn  # its operators register themselves
from weft import graph as G
from weft.core.op import all_ops
from weft.core.tensor import Tensor
from weft.graph.interpret import run_graph

OPS = {op.name: op for op in all_ops() if op.samples is not None}


def samples(op):
    """(arguments, the operator with its parameters bound) of each sample."""
    for sample in op.samples(np.random.default_rng(0)):
        args = [
            Tensor(np.asarray(a)) if isinstance(a, (np.ndarray, np.generic)) else a
            for a in sample.args
        ]
        yield args, Bound(op, sample.params)


class Bound:
    """An operator as a function of arguments a0, a1, … ."""

    def __init__(self, op, params):
        self.op, self.params = op, params

    def __call__(self, *args, **named):
        return self.op(*args, *named.values(), **self.params)


def several(value):
    return value if isinstance(value, tuple) else (value,)


def same(got, want):
    """The same kernels ran on the same numbers: equal bit for bit."""
    for a, b in zip(got, want, strict=True):
        b = b.numpy() if isinstance(b, Tensor) else b
        assert a.shape == b.shape
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def close(got, want):
    """Sums of several cotangents may be added up in another order."""
    for a, b in zip(got, want, strict=True):
        assert a.shape == b.shape
        assert a.dtype is b.dtype.np
        np.testing.assert_allclose(a, b.numpy(), rtol=1e-12, atol=1e-13)


def tensors(args):
    return [a for a in args if isinstance(a, Tensor)]


def is_float(value):
    return isinstance(value, Tensor) and value.dtype.is_inexact


def floating(values):
    return [v for v in values if is_float(v)]


@pytest.mark.parametrize("name", OPS)
def test_capture_is_eager(name):
    for args, fn in samples(OPS[name]):
        captured = G.capture(fn, *args)
        G.verify(captured.graph)
        same([t.numpy() for t in several(captured(*args))], several(fn(*args)))


@pytest.mark.parametrize("name", [n for n, op in OPS.items() if op.vjp is not None])
def test_gradients_are_the_tapes(name):
    for args, fn in samples(OPS[name]):
        outs = floating(several(fn(*args)))
        if not outs or not floating(tensors(args)):
            continue
        rng = np.random.default_rng(1)
        gs = [np.asarray(rng.normal(size=o.shape)).astype(o.dtype.np) for o in outs]
        program = G.vjp(G.capture(fn, *args).graph)
        G.verify(program)
        got = run_graph(program, [a.numpy() for a in tensors(args)] + gs)
        leaves = _leaves(args)
        ys = floating(several(fn(*leaves)))
        pairs = [(y, Tensor(g)) for y, g in zip(ys, gs, strict=True) if y.requires_grad]
        xs = [x for x in tensors(leaves) if x.requires_grad]
        want = weft.autograd.grad(
            [y for y, _ in pairs], xs, [g for _, g in pairs], materialize_grads=True
        )
        close(got, want)


def _leaves(args):
    return [a.clone().requires_grad_() if is_float(a) else a for a in args]


@pytest.mark.parametrize("name", [n for n, op in OPS.items() if op.vjp is not None])
def test_tangents_are_those_of_jvp(name):
    for args, fn in samples(OPS[name]):
        moving = floating(tensors(args))
        if not moving:
            continue
        rng = np.random.default_rng(2)
        ts = [np.asarray(rng.normal(size=x.shape)).astype(x.dtype.np) for x in moving]

        def of_moving(*xs, fn=fn, args=args):
            some = iter(xs)
            return fn(*[next(some) if is_float(x) else x for x in args])

        program = G.jvp(G.capture(fn, *args).graph)
        got = run_graph(program, [a.numpy() for a in tensors(args)] + ts)
        y, dy = weft.func.jvp(of_moving, tuple(moving), tuple(map(Tensor, ts)))
        close(got, [*several(y), *several(dy)])


@pytest.mark.parametrize("name", OPS)
def test_batches_are_rows(name):
    for args, fn in samples(OPS[name]):
        if not tensors(args):
            continue
        program = G.vmap(G.capture(fn, *args).graph, 3)
        got = run_graph(program, [np.stack([a.numpy()] * 3) for a in tensors(args)])
        for rows, one in zip(got, several(fn(*args)), strict=True):
            want = np.stack([one.numpy()] * 3)
            assert rows.shape == want.shape
            assert rows.dtype == want.dtype
            np.testing.assert_allclose(rows, want, rtol=1e-12, atol=1e-13)


# Which sizes of these stay numbers: they are assumed and checked, never ignored.
FIXED = {
    "diagonal", "svd", "svdvals", "conv", "conv_bias", "conv_input_grad",
    "conv_weight_grad", "conv_last", "conv_last_input_grad", "conv_last_weight_grad",
    "resample", "all_to_all",
}  # fmt: skip


@pytest.mark.parametrize("name", OPS)
def test_sizes_stay_open(name):
    """Captured with a named size, an operator runs for another size too."""
    for args, fn in samples(OPS[name]):
        for size in {n for a in tensors(args) for n in a.shape if n > 1}:
            _check_open(name, args, fn, size)


def _check_open(name, args, fn, size):
    named = {f"a{i}": a for i, a in enumerate(args)}
    dynamic = {
        label: {d: "S" for d, n in enumerate(a.shape) if n == size}
        for label, a in named.items()
        if isinstance(a, Tensor) and size in a.shape
    }
    try:
        captured = G.capture(fn, **named, dynamic=dynamic)
    except weft.errors.WeftError:
        return  # the parameters fix the size
    same([t.numpy() for t in several(captured(**named))], several(fn(*args)))
    larger = {
        label: _resized(a, size) if isinstance(a, Tensor) else a
        for label, a in named.items()
    }
    try:
        want = several(fn(*larger.values()))
    except weft.errors.WeftError:
        return
    try:
        got = several(captured(**larger))
    except weft.errors.ShapeError:
        assert name in FIXED, list(captured.graph.sizes.assumptions)
        return
    same([t.numpy() for t in got], want)


def _resized(a, size):
    shape = tuple(n + 1 if n == size else n for n in a.shape)
    return Tensor(np.resize(a.numpy(), shape))
