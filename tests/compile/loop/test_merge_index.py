"""Axes that an index takes apart become one."""

import numpy as np
import pytest
from by_loops import compiled

import weft
from weft import nn
from weft.compile.loop.ir import Buffer, For, Kernel, Load, Store
from weft.compile.loop.merge_index import merge_index
from weft.core.size import Scope


def kernel_of(index, shape, **extents):
    scope = Scope()
    names = {name: scope.symbol(name) for name in extents}
    scope.bounds.update(extents)
    x, y = Buffer("x", shape, weft.float32), Buffer("y", shape, weft.float32)
    body = [Store(y, tuple(index(**names)), Load(x, tuple(index(**names))))]
    for name, extent in reversed(extents.items()):
        body = [For(name, extent, body)]
    return Kernel("copy", (x, y), (), (), body, scope)


def test_quotient_and_remainder_of_one_position():
    def index(i, j):
        at = 32 * i + j
        return at // 12 // 4, at // 12 % 4, at % 12

    found = str(merge_index(kernel_of(index, (8, 4, 12), i=12, j=32)))
    assert "x: float32[384]" in found
    assert "x[32*i + j]" in found
    assert "//" not in found


def test_axes_that_are_not_taken_apart_stay():
    def index(i, j):
        return i, (5 * i + j) // 4, (5 * i + j) % 4

    found = str(merge_index(kernel_of(index, (3, 6, 4), i=3, j=7)))
    assert "x: float32[3, 24]" in found
    assert "x[i, 5*i + j]" in found


@pytest.mark.parametrize(
    "index",
    [
        lambda i, j: (i // 4, j % 4),  # of two positions
        lambda i, j: ((i + j) // 3, (i + j) % 4),  # by two numbers
        lambda i, j: ((i + j) % 3, (i + j) % 4),  # which begins again
    ],
)
def test_other_indices_are_left_alone(index):
    kernel = kernel_of(index, (3, 4), i=4, j=4)
    assert merge_index(kernel) is kernel


@pytest.mark.parametrize("dim", [0, 1, 2, 3])
def test_columns_side_by_side_are_one_loop(dim):
    x = weft.randn(3, 4, 5, 6)
    fn = weft.compile(lambda x: nn.functional.softmax(x.relu(), dim))
    want = nn.functional.softmax(x.relu(), dim).numpy()
    np.testing.assert_allclose(fn(x).numpy(), want, rtol=1e-5)
    if dim == 0:
        program = compiled(lambda x: nn.functional.softmax(x, 0), x)
        (kernel,) = [launch.kernel for launch in program.lowered.steps]
        assert kernel.buffers[0].shape == (3, 120)


@pytest.mark.parametrize("shape", [(2, 6, 5), (3, 4, 2, 7), (2, 8, 3, 1, 2)])
def test_group_norm_and_its_gradient_need_no_quotients(shape):
    x, w = weft.randn(shape), weft.randn(shape[1])

    def fn(x, w):
        return nn.functional.group_norm(x.tanh(), 2, w, w).sigmoid().square().sum()

    want = weft.func.grad(fn, argnums=(0, 1))(x, w)
    got = weft.compile(weft.func.grad(fn, argnums=(0, 1)))(x, w)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-4, atol=1e-5)
