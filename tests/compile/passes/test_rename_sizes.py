"""Sizes may be called as the variables of kernels' loops are."""

import numpy as np
import pytest
from by_loops import kernels_of

import weft
from weft.errors import ShapeError
from weft.graph import capture

RNG = np.random.default_rng(3)


def program(x):
    lower = weft.cond(x.sum() > 0, lambda x: x[1:] * x.shape[0], lambda x: -x[1:], x)
    return (
        (x * 2).sum(0), x.softmax(1), x.reshape(-1) + 1, x.cumsum(0),
        x.T.clone() + x.shape[0], x.sort(0)[0], (x @ x.T).relu(), lower,
        weft.scan(lambda c, row: (c + row, c * x.shape[0]), x[0], x)[1],
    )  # fmt: skip


NAMES = "i0", "i1", "part", "block", "j", "t", "w0", "count", "width", "chunk", "s0"


@pytest.mark.parametrize("name", NAMES)
def test_any_name(name):
    x = RNG.normal(size=(6, 5)).astype(np.float32)
    graph = capture(program, weft.tensor(x), dynamic={"x": {0: name}}).graph
    native = kernels_of(graph)
    for rows in (6, 70):
        x = RNG.normal(size=(rows, 5)).astype(np.float32)
        found, _ = native.run_named([x], {})
        for got, want in zip(found, program(weft.tensor(x)), strict=True):
            np.testing.assert_allclose(got, want.numpy(), rtol=1e-4, atol=1e-5)


def test_names_that_differ_by_a_line():
    x, y = (RNG.normal(size=(n, 3)).astype(np.float32) for n in (4, 9))
    dynamic = {"x": {0: "i0"}, "y": {0: "i0_"}}
    both = capture(
        lambda x, y: x.sum(0) * y, *map(weft.tensor, (x, y)), dynamic=dynamic
    )
    (found,), _ = kernels_of(both.graph).run_named([x, y], {})
    np.testing.assert_allclose(found, x.sum(0) * y, rtol=1e-5)


def test_what_was_assumed_is_checked():
    def taken(x, y):
        return x + y if x.shape[0] > 2 else x

    x = weft.ones(4, 3)
    graph = capture(taken, x, x, dynamic={"x": {0: "i0"}, "y": {0: "block"}}).graph
    native, (four, five, two) = (
        kernels_of(graph),
        (np.ones((n, 3), "f") for n in (4, 5, 2)),
    )
    assert native.run_named([five, five], {})[0][0].tolist() == (five + five).tolist()
    for wrong in ([four, five], [two, two]):
        with pytest.raises(ShapeError, match="captured for sizes with"):
            native.run_named(wrong, {})
