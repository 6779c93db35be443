"""Generated convolutions against NumPy in float64, for every target and shape."""

from typing import NamedTuple

import llvmlite.binding as llvm
import numpy as np
import pytest
from by_loops import kernels_of
from guarded import at_the_end_of_a_page
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft import graph as G
from weft.compile.emit.isa import Isa, new_module
from weft.compile.targets.cpu.convolution import convolve, input_grad, weight_grad
from weft.compile.targets.cpu.convolution.arrays import compiled
from weft.compile.targets.cpu.convolution.call import Convolution
from weft.compile.targets.cpu.convolution.generate import emit_conv
from weft.compile.targets.cpu.convolution.partition import Work, best_cut
from weft.compile.targets.cpu.convolution.shape import shape_of
from weft.compile.targets.cpu.matmul.tiling import tiling
from weft.compile.targets.cpu.object_code import host_isa
from weft.errors import ArgumentError, DTypeError, ShapeError
from weft.ops import conv as ops
from weft.runtime.cpu import pool

LIMITS = [None, "avx2", "baseline"]
DTYPES = ["float32", "float64"]
TILES = {  # sums of products of sums
    "winograd_tasks", "kernels_tasks", "winograd_5x5_tasks", "kernels_5x5_tasks"
}  # fmt: skip


class Case(NamedTuple):
    x: tuple
    w: tuple
    stride: tuple
    padding: tuple
    dilation: tuple
    groups: int = 1

    @property
    def params(self):
        return dict(list(self._asdict().items())[2:])


def flat(x, w, stride=1, padding=0, dilation=1, groups=1):
    """A case with the same numbers in every dimension."""
    rank = len(x) - 2
    pairs = ((padding, padding),) * rank
    return Case(x, w, (stride,) * rank, pairs, (dilation,) * rank, groups)


# What each is there for is beside it: the ways that a plan can take.
CASES = [
    flat((2, 3, 8, 8), (16, 3, 3, 3), padding=1),
    flat((3, 16, 7, 7), (20, 16, 3, 3), padding=1),  # vectors over two images
    flat((9, 20, 2, 2), (30, 20, 3, 3), padding=1),  # over several
    flat((5, 12, 1, 1), (30, 12, 3, 3), padding=1),
    flat((1, 40, 9, 33), (37, 40, 3, 3)),  # more than one block of k, rows apart
    flat((2, 16, 9, 11), (20, 16, 3, 3), stride=2, padding=1),
    flat((2, 16, 9, 11), (20, 16, 1, 1), stride=2),  # phases without a tap
    flat((2, 10, 19, 17), (12, 10, 3, 3), stride=3, padding=1),
    Case((2, 9, 9, 12), (11, 9, 3, 2), (3, 2), ((1, 2), (0, 1)), (2, 1)),
    Case((2, 9, 9, 12), (11, 9, 2, 3), (1, 1), ((-1, 3), (2, -2)), (1, 2)),
    flat((2, 16, 14, 14), (30, 16, 1, 1)),  # products of matrices
    flat((3, 20, 5, 5), (33, 20, 1, 1)),
    flat((2, 3, 2, 2), (4, 3, 5, 5), padding=2),  # kernels larger than images
    flat((2, 12, 3, 3), (12, 12, 5, 5), padding=2),
    flat((2, 8, 13, 11), (12, 4, 3, 3), padding=1, groups=2),
    flat((2, 24, 13, 11), (36, 12, 3, 3), stride=2, padding=1, groups=2),
    flat((2, 8, 13, 11), (8, 1, 3, 3), padding=1, groups=8),
    flat((2, 8, 13, 11), (24, 1, 3, 3), stride=2, padding=1, groups=8),
    flat((2, 6, 21), (6, 1, 5), stride=3, padding=2, groups=6),
    flat((2, 3, 70), (12, 3, 31), stride=4, padding=15),
    flat((2, 12, 301), (10, 12, 3), padding=2, dilation=2),
    Case((2, 3, 5, 6, 7), (11, 3, 2, 3, 3), (1, 2, 1), ((1, 1), (0, 1), (1, 0)),
         (1, 1, 2)),
    flat((2, 10, 4, 5, 3), (12, 10, 3, 3, 3), padding=1),
    flat((2, 20, 14, 14), (37, 20, 3, 3), padding=1),  # tiles
    flat((3, 150, 9, 7), (16, 150, 3, 3), padding=1),  # parts of tiles, blocks of k
    flat((2, 48, 13, 11), (34, 24, 3, 3), padding=1, groups=2),
    Case((2, 17, 8, 21), (33, 17, 3, 3), (1, 1), ((0, 2), (3, -1)), (1, 1)),
    flat((9, 16, 2, 3), (16, 16, 3, 3), padding=1),
    flat((2, 34, 14, 14), (37, 34, 5, 5), padding=2),  # tiles of 5x5 kernels
    flat((3, 150, 9, 7), (32, 150, 5, 5), padding=2),
    flat((2, 66, 9, 11), (70, 33, 5, 5), padding=1, groups=2),
    Case((2, 17, 8, 21), (33, 17, 5, 5), (1, 1), ((0, 5), (6, -1)), (1, 1)),
    flat((1, 1, 40, 40), (1, 1, 3, 3), padding=1),
    flat((1, 300, 3, 3), (12, 300, 3, 3), padding=1),
    flat((4, 12, 17, 17), (20, 12, 1, 1)),
    flat((2, 18, 20, 28), (20, 18, 1, 1)),  # blocks of k inside images
    flat((2, 40, 18, 14), (36, 20, 1, 1), groups=2),
]  # fmt: skip


def run_all(case, arrays, **options):
    """The result, with a bias too, and both gradients."""
    x, w, y, bias = arrays
    options |= case.params
    return [
        convolve(x, w, **options),
        convolve(x, w, bias, **options),
        input_grad(y, w, size=case.x[2:], **options),
        weight_grad(x, y, size=case.w[2:], **options),
    ]


def evaluate(case, arrays):
    """The same by NumPy, in float64."""
    x, w, y, bias = arrays
    return [
        ops._conv_eval(x, w, **case.params),
        ops._conv_eval(x, w, bias=bias, **case.params),
        ops._input_grad_eval(y, w, size=case.x[2:], **case.params),
        ops._weight_grad_eval(x, y, size=case.w[2:], **case.params),
    ]


def operands(rng, case, dtype):
    shape = shape_of(case.x, case.w, *case[2:])
    y = (case.x[0], case.w[0], *shape.counts[5 - len(case.x) :])
    sizes = case.x, case.w, y, case.w[:1]
    return [rng.normal(size=size).astype(dtype) for size in sizes]


def terms(case):
    """The most products that one element sums, and a bias."""
    shape = shape_of(case.x, case.w, *case[2:])
    k = max(shape.group_channels, shape.group_filters) * shape.taps
    return max(k, shape.images * shape.pixels) + 1


def check(case, got, arrays, target=None):
    """Within the error bound of sums of products in any order.

    With tiles, an error depends on all results of the tile, so that the bound is that
    of the largest result.
    """
    wide = [a.astype(np.float64) for a in arrays]
    unit = np.finfo(arrays[0].dtype).eps / 2
    count = terms(case)
    assert count * unit < 0.01
    bound = count * unit / (1 - count * unit)
    sizes = evaluate(case, [np.abs(a) for a in wide])
    wants, ways = evaluate(case, wide), functions(case, arrays[0].dtype, target)
    for result, want, size, way in zip(got, wants, sizes, ways, strict=True):
        assert result.shape == want.shape
        assert result.dtype == arrays[0].dtype
        size = size.max() if way in TILES else size
        assert (np.abs(result - want) <= bound * size + unit * np.abs(want)).all()


def functions(case, dtype="float32", target=None):
    """What the plans for a case call."""
    code = compiled(np.dtype(dtype).name, target or host_isa())
    shape = shape_of(case.x, case.w, *case[2:])
    kinds = "forward", "biased", "input_grad", "weight_grad"
    return [code.plan(kind, shape, 1).function for kind in kinds]


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_all_ways(rng, limit, dtype):
    target = host_isa(limit)
    for case in CASES:
        arrays = operands(rng, case, dtype)
        check(case, run_all(case, arrays, isa=target), arrays, target)


def test_the_cases_take_all_ways():
    ways = {"gemm", "image_tasks", "weight_tasks", "direct_tasks", "dots_tasks"}
    for limit in LIMITS:
        target = host_isa(limit)
        taken = {way for case in CASES for way in functions(case, "float32", target)}
        assert taken - TILES == ways
        assert (taken >= TILES) == (target.bits == 512)


def test_tiles_are_as_exact_as_sums(rng):
    case = flat((2, 256, 14, 14), (64, 256, 3, 3), padding=1)
    arrays = operands(rng, case, "float32")
    wants = evaluate(case, [a.astype(np.float64) for a in arrays])
    errors = [
        [np.abs(got - want).std() for got, want in zip(results, wants, strict=True)]
        for results in (run_all(case, arrays), run_all(case, arrays, exact=True))
    ]
    assert (np.array(errors[0]) <= 1.5 * np.array(errors[1])).all()


def test_exact_ones_keep_infinities_in_place(rng):
    x, w = rng.normal(size=(1, 16, 12, 12)), rng.normal(size=(16, 16, 3, 3))
    x[0, 3, 4, 4] = np.inf
    options = {"stride": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1)}
    got = convolve(x.astype("f4"), w.astype("f4"), exact=True, **options)
    assert np.isfinite(got).sum() == got.size - 16 * 9


@pytest.mark.parametrize("dtype", DTYPES)
def test_threads_change_no_bit(rng, dtype):
    before = pool.get_num_threads()
    try:
        for case in CASES:
            arrays = operands(rng, case, dtype)
            alone = run_all(case, arrays)
            for threads in (2, 3, 4):
                pool.set_num_threads(threads)
                shared = run_all(case, arrays, threads=threads)
                for one, many in zip(alone, shared, strict=True):
                    np.testing.assert_array_equal(one, many)
    finally:
        pool.set_num_threads(before)


@st.composite
def cases(draw):
    rank = draw(st.integers(1, 3))
    groups = draw(st.sampled_from([1, 1, 1, 2, 3]))
    each = draw(st.sampled_from([1, 2, 5, 11, 19]))
    filters = groups * draw(st.sampled_from([1, 3, 9, 13, 17]))
    few = st.integers(1, (40, 9, 5)[rank - 1])
    size = [draw(few) for _ in range(rank)]
    kernel = [draw(st.integers(1, 4)) for _ in range(rank)]
    stride = [draw(st.integers(1, 3)) for _ in range(rank)]
    dilation = [draw(st.integers(1, 2)) for _ in range(rank)]
    padding = []
    for n, k, d in zip(size, kernel, dilation, strict=True):
        lo = draw(st.integers(-1 if n > 3 else 0, 4))
        need = max(d * (k - 1) + 1 - n - lo, 0)
        padding.append((lo, draw(st.integers(need, need + 2))))
    x = draw(st.integers(1, 4)), groups * each, *size
    w = filters, each, *kernel
    return Case(x, w, tuple(stride), tuple(padding), tuple(dilation), groups)


@settings(max_examples=60)
@given(case=cases(), dtype=st.sampled_from(DTYPES), limit=st.sampled_from(LIMITS))
def test_any_shape(case, dtype, limit):
    arrays = operands(np.random.default_rng(0), case, dtype)
    target = host_isa(limit)
    check(case, run_all(case, arrays, isa=target), arrays, target)


def test_no_images(rng):
    for case in (
        flat((0, 12, 5), (9, 12, 3)),
        flat((0, 4, 5, 5), (4, 1, 3, 3), groups=4),
    ):
        arrays = operands(rng, case, "float32")
        got = run_all(case, arrays)
        for result, want in zip(got, evaluate(case, arrays), strict=True):
            np.testing.assert_array_equal(result, want)


def test_other_layouts_are_copied(rng):
    x = rng.normal(size=(2, 9, 10, 12)).astype(np.float32).transpose(0, 3, 2, 1)
    w = rng.normal(size=(10, 12, 3, 6)).astype(np.float32)[..., ::2]
    options = {"stride": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1)}
    got = convolve(x, w, **options)
    want = convolve(np.ascontiguousarray(x), np.ascontiguousarray(w), **options)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("limit", LIMITS)
def test_nothing_is_touched_beyond_the_operands(rng, limit):
    target = host_isa(limit)
    for case in CASES:
        arrays = operands(rng, case, "float32")
        pairs = [at_the_end_of_a_page(a) for a in arrays]
        guarded = [pair[0] for pair in pairs]
        got = run_all(case, guarded, isa=target)
        for one, other in zip(got, run_all(case, arrays, isa=target), strict=True):
            np.testing.assert_array_equal(one, other)


def test_code_for_other_machines_compiles():
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = Isa("aarch64-unknown-linux-gnu", "generic", "", 128)
    for part in ("usual", "few"):  # the third has code for long vectors alone
        module = new_module("conv", target)
        emit_conv(module, "float32", target, part=part)
        parsed = llvm.parse_assembly(str(module))
        parsed.verify()
        machine = llvm.Target.from_triple(target.triple).create_target_machine(opt=3)
        assert "fmla" in machine.emit_assembly(parsed)


OPTIONS = {"stride": (1,), "padding": ((0, 0),), "dilation": (1,)}
X, W = np.zeros((1, 2, 5), np.float32), np.zeros((4, 2, 3), np.float32)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: convolve(X, W[:, :1], **OPTIONS), ShapeError, "channels of 1 groups"),
        (lambda: convolve(X[..., :2], W, **OPTIONS), ShapeError, "no window fits"),
        (lambda: convolve(X[0], W, **OPTIONS), ShapeError, "1 to 3 spatial"),
        (lambda: convolve(X, W, W[0, 0], **OPTIONS), ShapeError, r"bias of shape \(4,"),
        (lambda: convolve(X, W, **{**OPTIONS, "stride": (0,)}), ArgumentError, "least"),
        (lambda: convolve(X, W.astype("f8"), **OPTIONS), DTypeError, "one nat"),
        (lambda: convolve(X.astype("i4"), W.astype("i4"), **OPTIONS), DTypeError, "32"),
        (lambda: input_grad(X, W, size=(5,), **OPTIONS), ShapeError, "y of shape"),
        (lambda: weight_grad(X, X, size=(3,), **OPTIONS), ShapeError, "y of shape"),
    ],
)  # fmt: skip
def test_errors(call, error, text):
    with pytest.raises(error, match=text):
        call()


# -- in compiled programs


def test_programs_have_native_convolutions():
    def run(x, w, b):
        y = weft.nn.functional.conv2d(x, w, b, stride=2, padding=1)
        return weft.autograd.grad((y * y).sum(), [x, w, b])

    x = weft.randn(2, 12, 9, 9, requires_grad=True)
    w = weft.randn(10, 12, 3, 3, requires_grad=True)
    b = weft.randn(10, requires_grad=True)
    compiled_run = weft.compile(run)
    for ours, theirs in zip(compiled_run(x, w, b), run(x, w, b), strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-4, atol=1e-4)
    graph = G.capture(run, x, w, b).graph
    steps = kernels_of(graph).lowered.steps
    routines = [step.node.op.name for step in steps if isinstance(step, Convolution)]
    assert sorted(routines) == ["conv_bias", "conv_input_grad", "conv_weight_grad"]


def test_sizes_may_be_symbolic():
    conv = weft.nn.Conv2d(3, 12, 3, padding=1)
    step = weft.compile(lambda x: conv(x).relu())
    for size in ((2, 3, 8, 8), (3, 3, 8, 8), (5, 3, 8, 8), (3, 3, 11, 6), (1, 3, 5, 7)):
        x = weft.randn(*size)
        want = conv(x).relu().detach().numpy()
        np.testing.assert_allclose(step(x).detach().numpy(), want, rtol=1e-5, atol=1e-5)


def test_strict_programs_use_no_tiles():
    def run(x, w):
        return weft.nn.functional.conv2d(x, w, padding=1)

    x, w = weft.randn(2, 16, 12, 12), weft.randn(16, 16, 3, 3)
    x[0, 3, 4, 4] = float("inf")
    weft.config.strict_ieee = True
    try:
        got = weft.compile(run)(x, w).numpy()
    finally:
        weft.config.strict_ieee = False
    assert np.isfinite(got).sum() == got.size - 16 * 9


def test_operands_that_are_views():
    w = weft.randn(12, 12, 3, 3)

    def run(x):
        return weft.nn.functional.conv2d(x.transpose(1, 3)[:, :, ::2], w.flip(0))

    x = weft.randn(2, 9, 14, 12)
    got, want = weft.compile(run)(x), run(x)
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("columns", [49, 196, 392, 1568, 6272])
@pytest.mark.parametrize("rows", [64, 256, 2048])
def test_threads_have_equal_work(rows, columns):
    """No thread has another block while the others wait, as with one of few columns."""
    tile = tiling(4, host_isa())
    height, across = best_cut(Work(rows, columns, 1), tile, 512, 2)
    blocks = [min(across, columns - j) for j in range(0, columns, across)]
    down = -(-rows // height)
    ends = [0, 0]
    for task in [block * height for block in blocks for _ in range(down)]:
        ends[ends.index(min(ends))] += task
    assert max(ends) <= 0.58 * height * down * columns
    assert len(blocks) * down >= 2
