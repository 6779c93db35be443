"""Kernels in other forms: the same results, and indices still proven."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft import graph as G
from weft.compile.emit.support import supported
from weft.compile.fusion.groups import Fusion, Group
from weft.compile.loop.interpret import run_kernel
from weft.compile.loop.ir import (
    For,
    statements,
)
from weft.compile.loop.schedule import (
    fuse,
    join,
    parallelise,
    reorder,
    serialise,
    split,
    tile,
    unroll,
    vectorise,
)
from weft.compile.loop.staging import cache, sink
from weft.compile.loop.verify import verify_kernel
from weft.compile.lower.group import lower
from weft.core.tensor import Tensor
from weft.graph.ir import GraphError

RNG = np.random.default_rng(11)


def floats(*shape):
    """Small whole numbers: their sums are exact in any order."""
    return Tensor(RNG.integers(-8, 8, shape).astype(np.float32))


PROGRAMS = {
    "elements": (lambda x, y: weft.exp(x) * y + 1, (3, 5), (3, 5)),
    "bias": (lambda x, y: weft.relu(x + y), (4, 3, 5), (5,)),
    "turned": (lambda x: x.T * 2, (5, 19)),
    "heads": (lambda x: x.transpose(1, 2).contiguous(), (2, 3, 2, 4)),
    "rows": (lambda x: x - x.amax(1, keepdim=True), (3, 21)),
    "statistics": (lambda x: (x.sum((0, 2, 3)), x.amax((0, 2, 3))), (2, 3, 2, 4)),
    "columns": (lambda x: x - x.sum(0), (4, 70)),
    "all": (lambda x: x.sum(), (3, 4, 5)),
    "pieces": (lambda x, y: weft.cat([x, y], 1) * 2, (3, 4), (3, 2)),
    "running": (lambda x: weft.cumsum(x, 1), (3, 6)),
    "mask": (lambda x: x.tril() + x.triu(1), (5, 5)),
}


def kernels(name, *, dynamic=False):
    """The kernels of a program, each with arrays for its buffers and its sizes."""
    fn, *shapes = PROGRAMS[name]
    args = [floats(*shape) for shape in shapes]
    same = [label for label, shape in zip("xy", shapes, strict=False)
            if shape[0] == shapes[0][0]]  # fmt: skip
    free = {label: {0: "n"} for label in same} if dynamic else None
    graph = G.capture(fn, *args, dynamic=free).graph
    sizes = {"n": shapes[0][0]}
    arrays = dict(zip(graph.inputs, (a.numpy() for a in args), strict=True))
    found = []
    for unit in Fusion(graph, supported).units:
        assert isinstance(unit, Group)
        kernel, owners = lower(unit, "kernel")
        shapes = [[n if isinstance(n, int) else n.evaluate(sizes) for n in o.shape]
                  for o in owners]  # fmt: skip
        for node, shape in zip(owners, shapes, strict=True):
            if node not in arrays:
                arrays[node] = np.zeros(shape, node.dtype.np)
        memory = [arrays[node].copy() for node in owners]
        found.append((kernel, memory, sizes))
        after = results(kernel, memory, sizes)
        arrays |= dict(zip(owners, after, strict=True))
    return found


def results(kernel, arrays, sizes):
    made = [a.copy() for a in arrays]
    run_kernel(kernel, made, sizes)
    return made


def loop_names(kernel):
    return sorted({s.var for s in statements(kernel.body) if isinstance(s, For)})


STEPS = (
    "tile", "reorder", "fuse", "split", "unroll", "join", "parallelise", "serialise",
    "vectorise", "cache", "sink",
)  # fmt: skip


def random_step(kernel, draw):
    """One transformation, drawn; a GraphError if it is not allowed."""
    # an unrolled loop is as it should be: what is left over is not cut up again
    inner = [v for v in loop_names(kernel) if v[-1] not in "qt"]
    outer = [v for v, _ in kernel.parallel]
    everything = [*outer, *inner]
    if not everything:
        return kernel
    pick = lambda names: draw(st.sampled_from(names or [""]))
    kind = draw(st.sampled_from(STEPS))
    if kind == "tile":
        return tile(kernel, pick(everything), draw(st.integers(1, 7)))
    if kind == "reorder":
        return reorder(kernel, draw(st.permutations(chain(kernel, draw))))
    if kind == "fuse":
        return fuse(kernel, pick(everything), pick(everything), name=fresh(everything))
    if kind == "split":
        return split(kernel, pick(inner), draw(st.integers(0, 9)))
    if kind == "unroll":
        return unroll(kernel, pick(inner), draw(st.integers(1, 4)))
    if kind == "join":
        return join(kernel, pick(inner))
    if kind == "parallelise":
        return parallelise(kernel, pick(inner))
    if kind == "serialise":
        return serialise(kernel, pick(outer))
    if kind == "vectorise":
        return vectorise(kernel, pick(inner), 8)
    if kind == "cache":
        names = [b.name for b in kernel.buffers]
        at = draw(st.sampled_from([None, *inner]))
        return cache(kernel, draw(st.sampled_from(names)), at)
    return sink(kernel, pick(inner))


def chain(kernel, draw):
    """Loops directly inside one another."""
    heads = [s for s in statements(kernel.body) if isinstance(s, For)]
    if not heads:
        return [""]
    loop = draw(st.sampled_from(heads))
    found = [loop.var]
    while len(loop.body) == 1 and isinstance(loop.body[0], For):
        loop = loop.body[0]
        found.append(loop.var)
    return found


def fresh(names):
    return next(f"f{k}" for k in range(99) if f"f{k}" not in names)


@given(name=st.sampled_from(sorted(PROGRAMS)), dynamic=st.booleans(), data=st.data())
@settings(max_examples=150, deadline=None)
def test_any_schedule_means_the_same(name, dynamic, data):
    for kernel, arrays, sizes in kernels(name, dynamic=dynamic):
        expected = results(kernel, arrays, sizes)
        for step in range(data.draw(st.integers(1, 6))):
            try:
                changed = random_step(kernel, data.draw)
            except GraphError:
                continue
            if not proven(changed) and step > 0:
                continue  # of loops cut up several times, not all is provable
            kernel = changed
            verify_kernel(kernel)
            got = results(kernel, arrays, sizes)
            for a, b in zip(got, expected, strict=True):
                np.testing.assert_array_equal(a, b, err_msg=str(kernel))


def proven(kernel):
    try:
        verify_kernel(kernel)
    except GraphError:
        return False
    return True
