"""Reductions to few elements: in parts, by all threads, to the same bits."""

import by_loops
import numpy as np
import pytest
from by_loops import kernels_of

import weft
from weft import graph as G
from weft.compile.passes.split_reductions import split_reductions
from weft.compile.targets.cpu.cost_model import COST
from weft.compile.targets.cpu.grain import grain_of
from weft.nn import functional as F

RNG = np.random.default_rng(0)


def floats(*shape):
    return RNG.normal(1, 1, size=shape).astype(np.float32)


def parallel_of(compiled):
    """How many iterations each kernel can be shared out in."""
    counts = [[n for _, n in k.kernel.parallel] for k in compiled.explain().kernels]
    return [int(np.prod(c)) for c in counts]


def by_threads(fn, *arrays):
    """The results with one, two and three threads, which must be the same bits."""
    before, found = weft.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            weft.set_num_threads(threads)
            made = weft.compile(fn)(*map(weft.tensor, arrays))
            found.append(made.numpy())
    finally:
        weft.set_num_threads(before)
    assert all(one.tobytes() == found[0].tobytes() for one in found)
    return found[0]


SUMS = {
    "all of a vector": ((70_001,), None),
    "all of a matrix": ((97, 1021), None),
    "all, and rows are short": ((9001, 11), None),
    "all, and few are long": ((2, 50_000), None),
    "columns": ((1024, 128), 0),
    "columns that are left over": ((2047, 131), 0),
    "a few columns": ((20_000, 3), 0),
    "two axes": ((30, 60, 40), (0, 1)),
    "outer and inner axes": ((39, 3, 700), (0, 2)),
    "the middle": ((3, 1500, 40), 1),
    "long rows": ((16, 40_000), 1),
}


@pytest.mark.parametrize("name", SUMS)
def test_sums_are_as_exact_as_pairwise_ones(name):
    shape, dim = SUMS[name]
    x = floats(*shape)
    found = by_threads(lambda x: (x * x).sum(dim), x)
    want = np.square(x.astype(np.float64)).sum(dim)
    np.testing.assert_allclose(found, want, rtol=6e-7)


@pytest.mark.parametrize("shape", [(28, 127, 5), (280, 127, 5)])
def test_short_rows_beside_a_vector_that_is_repeated(shape):
    x, y = floats(*shape), floats(shape[-1])
    found = by_threads(lambda x, y: F.mse_loss(x, y.expand(*shape)), x, y)
    want = np.square(x.astype(np.float64) - y).mean()
    np.testing.assert_allclose(found, want, rtol=3e-7)


@pytest.mark.parametrize("name", ["amax", "amin", "any", "all"])
@pytest.mark.parametrize("dim", [None, 0])
def test_other_reductions(name, dim):
    x = floats(1999, 41)
    given = x > 4.5 if name == "any" else x > -5 if name == "all" else x
    found = by_threads(lambda x: getattr(x, name)(dim), given)
    wanted = {"amax": np.max, "amin": np.min, "any": np.any, "all": np.all}
    np.testing.assert_array_equal(found, wanted[name](given, dim))


@pytest.mark.parametrize("dim", [None, 0])
def test_a_nan_is_the_largest_of_all(dim):
    x = floats(1999, 41)
    x[1700, 3] = np.nan
    found = by_threads(lambda x: x.amax(dim), x)
    np.testing.assert_array_equal(found, x.max(dim))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_types_are_added_up_in_float32(dtype):
    x = weft.tensor(floats(300, 300) * 0.01).to(getattr(weft, dtype))
    found = weft.compile(lambda x: x.sum())(x)
    assert found.dtype is x.dtype
    want = x.to(weft.float64).sum()
    assert found.item() == want.to(x.dtype).item()


def test_sizes_that_are_open():
    fn = weft.compile(lambda x: (x.sum(), x.sum(0)), dynamic=True)
    for rows in (700, 64, 1301, 1):
        x = floats(rows, 90)
        whole, columns = fn(weft.tensor(x))
        np.testing.assert_allclose(whole, x.sum(dtype=np.float64), rtol=1e-6)
        np.testing.assert_allclose(columns, x.sum(0, dtype=np.float64), rtol=1e-6)


def test_threads_share_the_work():
    for dim in (None, 0):
        fn = weft.compile(lambda x, dim=dim: x.sum(dim))
        fn(weft.tensor(floats(2048, 256)))
        first, _ = parallel_of(fn)
        assert first >= 16


@pytest.mark.parametrize("name", ["sum", "amax", "argmax", "norm"])
@pytest.mark.parametrize("dim", [None, 0, 1])
def test_threads_have_pieces_of_what_is_reduced(name, dim):
    """How much there is to do is what is read, not the few numbers that come out."""
    x = floats(2048, 256)
    kwargs = {} if dim is None else {"dim": dim}
    graph = G.capture(lambda x: getattr(x, name)(**kwargs), weft.tensor(x)).graph
    native = kernels_of(split_reductions(graph))
    native.run_named([x], {})
    count, grain = native.plan.executable.rows[0, 4:6].tolist()
    assert count >= 2 * grain


def test_long_loops_are_cut_into_long_pieces():
    """Memory is read fastest in order, and some pieces a thread are enough."""
    threads = weft.get_num_threads()
    assert grain_of(64, 100, 1000) == 1000  # too little for another thread
    assert grain_of(64, 64_000, 1000) == 1
    assert grain_of(COST.loops.chunks * threads * 5, 1 << 40, 1000) == 5


@pytest.mark.parametrize("rows", [7, 8, 21, 64])
def test_rows_that_are_combined_at_a_time_are_so_in_order(rows):
    x = floats(rows, 300)
    fn = weft.compile(lambda x: x.sum(0))
    found = fn(weft.tensor(x)).numpy()
    want = np.zeros(300, np.float32)
    for row in x:
        want += row
    assert found.tobytes() == want.tobytes()
    (kernel,) = fn.explain().kernels
    assert ("i0q" in str(kernel.kernel)) == (rows >= COST.loops.jammed_rows)


def test_what_is_small_or_has_many_results_stays_in_one_piece():
    for shape, dim in (((100, 100), None), ((64, 4096), 1), ((64, 100, 50), 1)):
        graph = G.capture(lambda x, dim=dim: x.sum(dim), weft.ones(shape)).graph
        assert split_reductions(graph) is graph


def test_the_parts_are_what_numpy_makes_of_them():
    """The records' evaluations, as programs that kernels do not run use them."""
    x = floats(740, 3, 110)
    given = weft.tensor(x)
    for fn in (
        lambda x: x.sum((0, 2)), lambda x: x.amax((0, 2)), lambda x: x.amin(),
        lambda x: (x > 4).any(), lambda x: x.sum((0, 2), keepdim=True),
    ):  # fmt: skip
        graph = split_reductions(G.capture(fn, given).graph)
        assert any(n.op.name.endswith("_parts") for n in graph)
        (found,), _ = G.Program(graph, graph.outputs).run([x], {})
        np.testing.assert_allclose(found, fn(given).numpy(), rtol=1e-6)


def test_a_group_is_read_once():
    """What is computed on the way to a sum is not stored."""
    fn = weft.compile(lambda x, y: ((x - y) ** 2).mean())
    fn(weft.tensor(floats(300, 300)), weft.tensor(floats(300, 300)))
    first, last = fn.explain().kernels
    assert first.operators == ["sub", "mul", "sum_parts"]
    assert last.operators == ["sum", "div"]


def test_native_programs_hold_the_cut_graph():
    graph = G.capture(lambda x: x.sum(), weft.ones(300, 300)).graph
    names = [n.op.name for n in kernels_of(graph).lowered.graph if n.inputs]
    assert names == ["sum_parts", "sum"]


# -- rows that are combined while they are computed


def normalised(shape):
    def fn(x, g, w, b):
        norm = lambda *a: F.layer_norm(a[0], (shape[-1],), *a[1:])
        _, pull = weft.func.vjp(norm, x, w, b)
        return weft.cat([part.reshape(-1) for part in pull(g)])

    return fn, [shape, shape, shape[-1:], shape[-1:]]


COMBINED = {
    "layer norm's gradients": normalised((300, 128)),
    "of three axes": normalised((5, 97, 100)),
    "many before": normalised((3, 4, 50, 60)),
    "a softmax's and its columns": (
        lambda x, y: (s := (x + y).softmax(-1), s.sum(0), (s * y).sum((0,)))[1:],
        [(500, 90), (500, 90)],
    ),
    "the largest of columns and the sums of rows": (
        lambda x: (x.exp().sum(1), x.exp().amax(0), x.exp().sum(0)),
        [(501, 90)],
    ),
    "what is only read": (
        lambda x, y: (x.sum(0), (x * y).sum(1), (x * y).sum(0)),
        [(501, 90), (501, 90)],
    ),
    "two axes of a row": (
        lambda x: (x.exp().sum((1, 2)), x.exp().sum(0), x.cos().sum((1, 2))),
        [(513, 9, 8)],
    ),
    "stored and combined": (
        lambda x, y: (z := (x * y).relu(), z.sum(0)),
        [(600, 64), (64,)],
    ),
}


@pytest.mark.parametrize("name", COMBINED)
def test_rows_are_combined_while_they_are_computed(name):
    fn, shapes = COMBINED[name]
    arrays = [floats(*s) for s in shapes]
    whole = lambda *xs: weft.cat([p.reshape(-1) for p in listed(fn(*xs))])
    found = by_threads(whole, *arrays)
    want = whole(*[weft.tensor(a.astype(np.float64)) for a in arrays]).numpy()
    np.testing.assert_allclose(found, want, rtol=2e-5, atol=2e-5 * abs(want).max())


def listed(value):
    return value if isinstance(value, tuple) else (value,)


def test_a_gradient_is_read_once():
    """Rows' sums and columns' sums of one value, and what is computed from them."""

    def fn(x, y):
        z = x * y
        return z - z.sum(1, keepdim=True), z.sum(0), x.sum(0)

    compiled = weft.compile(fn)
    compiled(weft.tensor(floats(512, 128)), weft.tensor(floats(512, 128)))
    kernels = compiled.explain().kernels
    reading = [k for k in kernels if "sum_parts" in k.operators]
    assert len(reading) == 1
    assert sorted(reading[0].operators) == [
        "mul",
        "sub",
        "sum",
        "sum_parts",
        "sum_parts",
    ]


def test_rows_that_are_too_long_to_be_combined_inside():
    x = floats(300, 5000)
    found = by_threads(lambda x: (x * 2).sum(0), x)
    np.testing.assert_allclose(found, 2 * x.sum(0, dtype=np.float64), rtol=1e-6)


# -- the machine code


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["amax", "amin"])
def test_the_largest_of_rows_with_nan_and_zeros(name, dtype):
    """Which of two zeros it is does not matter; that there is a NaN does."""
    x = RNG.normal(size=(40, 70)).astype(dtype)
    x[3, 5] = x[7, 69] = np.nan
    x[5], x[6] = 0.0, -0.0
    x[9, :9] = -np.inf
    x[11], x[12] = -np.inf, np.inf
    found = by_threads(lambda x: getattr(x, name)(1), x)
    wanted = {"amax": np.max, "amin": np.min}[name]
    np.testing.assert_array_equal(found, wanted(x, 1))


@pytest.mark.parametrize("shape", [(2, 3, 5, 7), (1, 4, 1, 9), (6, 1, 130, 2)])
def test_several_parallel_loops_are_counted_through(shape):
    """Each thread begins somewhere, and goes on from there."""
    x = floats(*shape)
    found = by_threads(lambda x: x.permute(2, 0, 1, 3) * 2, x)
    np.testing.assert_array_equal(found, 2 * x.transpose(2, 0, 1, 3))
    large = floats(31, 17, 9, 40)
    found = by_threads(lambda x: x.permute(1, 2, 0, 3) + 1, large)
    np.testing.assert_array_equal(found, large.transpose(1, 2, 0, 3) + 1)


@pytest.mark.parametrize("size", [20, 100, 1000, 5000])
def test_the_loops_that_are_printed_add_in_the_order_that_runs(size):
    """The interpreter of loops gives the compiled program's bits."""
    x = weft.tensor(np.random.default_rng(size).normal(size=(3, size)).astype("f"))
    native = by_loops.compiled(lambda x: (x * x).sum(1), x)
    assert "totals" in str(next(iter(native.lowered.kernels.values())))
    (got,), (want,) = by_loops.run(native, x), by_loops.by_loops(native, x)
    assert got.tobytes() == want.tobytes()
