"""Outputs in the place of inputs: where it is allowed, and that results stay."""

import ctypes
import re

import numpy as np
import pytest
from by_loops import kernels_of
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft import graph as G
from weft.compile.emit.isa import new_module
from weft.compile.loop.alias import may_share
from weft.compile.loop.interpret import run_kernel
from weft.compile.loop.ir import Buffer, For, Kernel, Let, Load, Store
from weft.compile.loop.verify import verify_kernel
from weft.compile.program.steps import KernelLaunch
from weft.compile.targets.cpu.kernel import emit_kernel
from weft.compile.targets.cpu.object_code import assembly, compile_module, host_isa
from weft.core.size import Scope
from weft.core.tensor import Tensor
from weft.graph.ir import GraphError
from weft.nn import functional as F

RNG = np.random.default_rng(3)


def kernel_of(fn, *args, dynamic=None):
    """The only kernel of a function, with the arrays of its buffers."""
    captured = G.capture(fn, *args, dynamic=dynamic)
    native = kernels_of(captured.graph)
    (use,) = [s for s in native.lowered.steps if isinstance(s, KernelLaunch)]
    given = dict(zip(captured.graph.inputs, (a.numpy() for a in args), strict=True))
    return use, given


def names(use, fn=None):
    """Buffers read from outside, and buffers that are results."""
    made = set(use.made)
    pairs = list(zip(use.kernel.buffers, use.owners, strict=True))
    pairs = [(b, n) for b, n in pairs if n not in use.windowed]
    return (
        [b.name for b, n in pairs if n not in made],
        [b.name for b, n in pairs if n in made],
    )


def allowed(fn, *args, dynamic=None):
    """Pairs of an argument and a result that may share memory."""
    use, _ = kernel_of(fn, *args, dynamic=dynamic)
    inputs, results = names(use)
    return {
        (i, r)
        for i, given in enumerate(inputs)
        for r, made in enumerate(results)
        if may_share(use.kernel, given, made)
    }


def floats(*shape):
    return Tensor(RNG.normal(size=shape).astype(np.float32))


X = floats(6, 40)


def test_elementwise_results_may_take_an_arguments_place():
    assert allowed(lambda x: weft.exp(x) * x, X) == {(0, 0)}
    assert allowed(lambda x, y: x + y * 2, X, floats(6, 40)) == {(0, 0), (1, 0)}


def test_broadcast_turned_and_moved_arguments_stay():
    row = floats(40)
    assert allowed(lambda x, y: x + y, X, row) == {(0, 0)}
    assert allowed(lambda x: x.T + 1, floats(5, 5)) == set()
    assert allowed(lambda x: x.flip(0) + 1, X) == set()
    assert allowed(lambda x: x[1:] + 1, X) == set()
    assert allowed(lambda x: x + x.T, floats(5, 5)) == set()
    assert allowed(lambda x: weft.cat([x, x], 0) + 1, X) == set()
    assert allowed(lambda x: x.sum(1), X) == set()
    assert allowed(lambda x: weft.cumsum(x, 1), X) == {(0, 0)}


def test_reduced_rows_may():
    assert allowed(lambda x: F.softmax(x, 1), X)
    assert (0, 0) in allowed(lambda x: F.layer_norm(x, (40,)), X)
    assert (0, 0) in allowed(lambda x: x - x.mean(0), X)
    assert (0, 0) in allowed(lambda x: x - x.mean(0), floats(6, 200))


def test_symbolic_sizes():
    dynamic = {"x": {0: "n", 1: "m"}}
    assert allowed(lambda x: weft.exp(x), X, dynamic=dynamic) == {(0, 0)}
    assert (0, 0) in allowed(lambda x: x - x.amax(1, keepdim=True), X, dynamic=dynamic)
    assert (0, 0) in allowed(lambda x: x - x.mean(0), X, dynamic=dynamic)


def test_other_itemsizes_stay_apart():
    assert allowed(lambda x: x.double(), X) == set()
    assert allowed(lambda x: x > 0, X) == set()
    assert allowed(lambda x: x.to(weft.int32), X) == {(0, 0)}


def test_a_position_written_twice_stays():
    scope = Scope()
    i, j = scope.symbol("i"), scope.symbol("j")
    x, y = (Buffer(n, (8,), weft.float32) for n in "xy")

    def answer(*loops, at):
        body = [Store(y, (at,), Load(x, (at,)))]
        for var, extent in loops:
            body = [For(var, extent, body)]
        return may_share(Kernel("k", (x, y), (), (), body, scope), "x", "y")

    assert answer(("i", 8), at=i)
    assert not answer(("i", 8), ("j", 2), at=i)
    assert answer(("i", 4), ("j", 2), at=i + 4 * j)
    assert not answer(("i", 5), ("j", 2), at=i + 3 * j)
    assert not answer(("i", 8), at=7 - i)


def test_an_index_from_a_value_stays():
    scope = Scope()
    i, w = scope.symbol("i"), scope.symbol("w")
    x, y = (Buffer(n, (8,), weft.float32) for n in "xy")
    k = Buffer("k", (8,), weft.int64)
    body = [Let("w", Load(k, (i,)), 8), Store(y, (w,), Load(x, (w,)))]
    kernel = Kernel("k", (x, y, k), (), (), [For("i", 8, body)], scope)
    assert not may_share(kernel, "x", "y")


def test_a_use_after_the_store_stays():
    scope = Scope()
    i = scope.symbol("i")
    x, y, z = (Buffer(n, (8,), weft.float32) for n in "xyz")
    body = [Store(y, (i,), Load(x, (i,))), Store(z, (i,), Load(x, (i,)))]
    kernel = Kernel("k", (x, y, z), (), (), [For("i", 8, body)], scope)
    assert not may_share(kernel, "x", "y")
    assert may_share(kernel, "x", "z")


def test_wrong_sharing_is_refused():
    use, _ = kernel_of(lambda x: x.flip(0) + 1, X)
    (given,), (made,) = names(use)
    with pytest.raises(GraphError, match="must lie apart"):
        verify_kernel(use.kernel._replace(shared=((given, made),)))
    use, _ = kernel_of(lambda x, y: x + y, X, floats(6, 40))
    (one, two), (made,) = names(use)
    with pytest.raises(GraphError, match="must lie apart"):
        verify_kernel(use.kernel._replace(shared=((one, made), (two, made))))
    with pytest.raises(GraphError, match="expected a buffer among"):
        may_share(use.kernel, "q", made)


PROGRAMS = [
    lambda x, y: weft.exp(x) + y * x,
    lambda x, y: F.softmax(x * y, 1),
    lambda x, y: F.layer_norm(x + y, (x.shape[1],)),
    lambda x, y: (x - x.mean(0)) * y,
    lambda x, y: (x > y).to(weft.int32),
    lambda x, y: weft.where(x > 0, x, y).cumsum(1),
    lambda x, y: x.T + 1,
    lambda x, y: (x + y).flip(1),
]


@given(
    program=st.sampled_from(PROGRAMS),
    rows=st.integers(1, 9),
    columns=st.integers(1, 70),
    data=st.data(),
)
@settings(max_examples=60, deadline=None)
def test_shared_memory_gives_the_same(program, rows, columns, data):
    x, y = floats(rows, columns), floats(rows, columns)
    captured = G.capture(program, x, y)
    native = kernels_of(captured.graph)
    feeds = dict(zip(captured.graph.inputs, (x.numpy(), y.numpy()), strict=True))
    for use in native.lowered.steps:
        assert isinstance(use, KernelLaunch)
        for n in use.made:
            feeds[n] = np.zeros(n.shape, n.dtype.np)
        names = [b.name for b in use.kernel.buffers]
        arrays = dict(zip(names, use.arrays(feeds), strict=True))
        kernel = use.kernel._replace(shared=())
        check_sharing(kernel, arrays, data)
        run_kernel(kernel, list(arrays.values()), {})


def check_sharing(kernel, arrays, data):
    """Every allowed pair: interpreted and compiled, the result is the one apart."""
    buffers = [b.name for b in kernel.buffers]
    allowed = [(a, b) for a in buffers for b in buffers if may_share(kernel, a, b)]
    if not allowed:
        return
    one, two = data.draw(st.sampled_from(allowed))
    shared = kernel._replace(shared=((one, two),))
    verify_kernel(shared)
    apart = {name: a.copy() for name, a in arrays.items()}
    run_native(kernel, apart)
    together = {name: a.copy() for name, a in arrays.items()}
    together[two] = together[one].view(arrays[two].dtype).reshape(arrays[two].shape)
    by_loops = {name: a.copy() for name, a in arrays.items()}
    by_loops[two] = by_loops[one].view(arrays[two].dtype).reshape(arrays[two].shape)
    run_native(shared, together)
    np.testing.assert_array_equal(together[two], apart[two])
    expected = [a.copy() for a in arrays.values()]
    run_kernel(kernel, expected, {})
    run_kernel(shared, list(by_loops.values()), {})
    place = buffers.index(two)
    np.testing.assert_array_equal(by_loops[two], expected[place])


def run_native(kernel, arrays):
    module = new_module("one", host_isa())
    emit_kernel(module, kernel, host_isa())
    library = compile_module(module)
    kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 2)
    table = np.array([a.ctypes.data for a in arrays.values()], np.int64)
    sizes = np.zeros(1, np.int64)
    known = dict(kernel.given)
    if kernel.sizes:
        sizes = np.array([known[s] for s in kernel.sizes], np.int64)
    count = 1
    for _, extent in kernel.parallel:
        count *= extent if isinstance(extent, int) else extent.evaluate(known)
    address = library.address(kernel.name)
    kind(address)(table.ctypes.data, sizes.ctypes.data, 0, count)


def test_chains_have_one_pointer():
    """Pointers of a kernel are said to lie apart, so that one must do for a chain."""
    use, _ = kernel_of(lambda x: (x * 2, x + 1), floats(64))
    one, two, three = (buffer.name for buffer in use.kernel.buffers)
    chain = use.kernel._replace(shared=((one, two), (two, three)))
    assert chain.takers == {one: three, two: three}
    module = new_module("one", host_isa())
    emit_kernel(module, chain, host_isa())
    inner = str(module).partition("define internal")[2]
    head, _, body = inner.partition("\n}")[0].partition("{")
    first, second, third = re.findall(r'%"\.\d+"', head)[:3]
    assert f"{first}," not in body
    assert f"{second}," not in body
    assert third in body


def test_shared_code_is_vectors_without_checks():
    """One pointer, and no comparison of addresses before the vector loop."""
    use, _ = kernel_of(lambda x: x * 2 + 1, floats(64, 64))
    (given,), (made,) = names(use)
    module = new_module("one", host_isa("avx2"))
    shared = use.kernel._replace(shared=((given, made),))
    emit_kernel(module, shared, host_isa("avx2"))
    text = assembly(module, host_isa("avx2"))
    assert "ymm" in text
    apart = new_module("one", host_isa("avx2"))
    emit_kernel(apart, use.kernel, host_isa("avx2"))
    branches = [t.count("\tj") for t in (text, assembly(apart, host_isa("avx2")))]
    assert branches[0] <= branches[1]


def test_text_says_it():
    use, _ = kernel_of(lambda x: x * 2, X)
    (given,), (made,) = names(use)
    text = str(use.kernel._replace(shared=((given, made),)))
    assert f"{made} in the place of {given}" in text
