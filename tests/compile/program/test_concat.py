"""Many pieces side by side, and outputs that are views."""

import numpy as np
import pytest
from by_loops import kernels_of

import weft
from weft import graph as G
from weft.compile.passes.copy_view_outputs import copy_view_outputs
from weft.compile.program.concat import Piece

RNG = np.random.default_rng(0)


def tensors(*shapes):
    return [weft.tensor(RNG.normal(size=s).astype(np.float32)) for s in shapes]


def doubled(xs):
    return [x * 2 for x in xs]


JOINS = {
    "along the first axis": (lambda *xs: weft.cat(doubled(xs)).sum(0), [(3, 4)] * 8),
    "of several sizes": (
        lambda *xs: weft.cat(doubled(xs)).cos(),
        [(k, 5) for k in (1, 7, 2, 9, 3, 4)],
    ),
    "some are empty": (
        lambda *xs: weft.cat(doubled(xs)).cos(),
        [(k, 5) for k in (0, 7, 0, 9, 3, 4)],
    ),
    "along the middle": (
        lambda *xs: weft.cat(doubled(xs), 1).exp(),
        [(3, k, 5) for k in (1, 7, 2, 9, 3, 4)],
    ),
    "along the last axis": (
        lambda *xs: weft.cat(doubled(xs), -1).exp(),
        [(30, k) for k in (1, 7, 2, 9, 3, 4)],
    ),
    "of one row": (
        lambda *xs: weft.cat([x @ x.T @ x for x in xs], 1).cos(),
        [(1, k) for k in (10, 7, 20, 9, 3, 4)],
    ),
    "of one row, along the middle": (
        lambda *xs: weft.cat(doubled(xs), -2).exp().sum(),
        [(1, 1, k, 5) for k in (10, 7, 20, 9, 3, 4)],
    ),
    "the same one twice": (
        lambda x, y: weft.cat([x.exp(), y, x.exp(), y, y, x.exp()]).cos(),
        [(3, 4), (2, 4)],
    ),
    "in two others": (
        lambda *xs: (
            weft.cat(doubled(xs)).cos(),
            weft.cat([*doubled(xs)[::-1], xs[0]]).cos(),
        ),
        [(3, 4)] * 6,
    ),
    "inside one another": (
        lambda *xs: weft.cat([weft.cat(doubled(xs)), *doubled(xs)]).cos(),
        [(3, 4)] * 6,
    ),
    "of views": (
        lambda *xs: weft.cat([x.T for x in doubled(xs)], 1).cos(),
        [(5, 3)] * 6,
    ),
    "of numbers": (
        lambda *xs: weft.cat([*doubled(xs), weft.zeros(2, 4), weft.ones(1, 4)]).cos(),
        [(5, 4)] * 6,
    ),
    "of inputs": (lambda *xs: weft.cat(list(xs)), [(5, 4)] * 6),
    "of stacked ones": (lambda *xs: weft.stack(doubled(xs)).sum(0), [(5, 4)] * 6),
    "and read alone": (
        lambda *xs: (weft.cat(d := doubled(xs)).cos(), d[3] + 1, d[4].sum()),
        [(5, 4)] * 6,
    ),
    "and given back": (
        lambda *xs: (weft.cat(d := doubled(xs)), d[0], weft.cat(d).cos()),
        [(5, 4)] * 6,
    ),
    "of products": (
        lambda *xs: weft.cat([(x @ x.T).relu() for x in xs]).sum(0),
        [(20, 20)] * 6,
    ),
    "a piece is needed after the whole": (
        lambda *xs: (weft.cat(d := doubled(xs)).cos() @ xs[0].T, d[1] @ xs[0].T),
        [(20, 20)] * 6,
    ),
}


@pytest.mark.parametrize("name", JOINS)
def test_pieces_are_where_they_belong(name):
    fn, shapes = JOINS[name]
    xs = tensors(*shapes)
    wanted, compiled = fn(*xs), weft.compile(fn)
    for _ in range(2):
        found = compiled(*xs)
        for want, got in zip(*map(listed, (wanted, found)), strict=True):
            got, want = got.numpy(), want.numpy()
            rounding = 1e-6 * max(1, np.abs(want).max())  # of sums that cancel out
            np.testing.assert_allclose(got, want, rtol=2e-6, atol=rounding)


def listed(value):
    return value if isinstance(value, tuple) else (value,)


def test_open_sizes():
    compiled = weft.compile(lambda *xs: weft.cat(doubled(xs)).sum(0), dynamic=True)
    for rows in (3, 8, 1):
        xs = tensors(*[(rows, 4)] * 6)
        want = np.concatenate([2 * x.numpy() for x in xs]).sum(0)
        np.testing.assert_allclose(compiled(*xs).numpy(), want, rtol=1e-5, atol=1e-6)


def instance_of(fn, xs):
    native = kernels_of(G.capture(fn, *xs).graph)
    native.run_named([x.numpy() for x in xs], {})
    return native.plan


def test_pieces_that_launches_make_are_not_copied():
    xs = tensors(*[(3, 4)] * 6)
    found = instance_of(lambda *xs: weft.cat([*doubled(xs), xs[0]]).sum(0), xs)
    copied = [
        step.piece
        for row, step in zip(found.executable.rows, found.layout.launches, strict=True)
        if isinstance(step, Piece) and row[4] > 0
    ]  # fmt: skip
    assert copied == [found.layout.lowered.graph.inputs[0]]
    pieces = [s for s in found.layout.launches if isinstance(s, Piece)]
    assert len(pieces) == 7


def test_few_pieces_are_one_kernel():
    xs = tensors(*[(3, 4)] * 4)
    found = instance_of(lambda *xs: weft.cat(list(xs)).cos(), xs)
    assert len(found.layout.launches) == 1


VIEWS = {
    "turned": lambda x: x.T,
    "turned and computed": lambda x: x.exp().T,
    "another shape": lambda x: x.exp().reshape(-1),
    "repeated": lambda x: x.expand(3, *x.shape),
    "a part": lambda x: x[:, ::2],
    "twice": lambda x: (x.T, x.T, x.T.exp()),
}


@pytest.mark.parametrize("name", VIEWS)
def test_outputs_that_are_views(name):
    fn, (x,) = VIEWS[name], tensors((70, 130))
    first, second = (listed(weft.compile(fn)(x)) for _ in range(2))
    for want, got, other in zip(listed(fn(x)), first, second, strict=True):
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-6)
        shared = np.shares_memory(want.numpy(), x.numpy())
        assert np.shares_memory(got.numpy(), x.numpy()) == shared
        assert np.shares_memory(got.numpy(), other.numpy()) == shared


def test_a_view_of_what_is_computed_is_stored_once():
    (x,) = tensors((70, 130))
    compiled = weft.compile(lambda x: x.exp().reshape(-1))
    compiled(x)
    (kernel,) = compiled.explain().kernels
    assert kernel.operators == ["exp", "copy"]
    assert len(kernel.kernel.buffers) == 2


def test_small_views_need_no_kernel():
    graph = G.capture(lambda x: x.T, weft.ones(3, 4)).graph
    assert copy_view_outputs(graph) is graph
