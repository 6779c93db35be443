"""Every operator record as native code, against its NumPy evaluation.

All samples of a record, in all dtypes that it takes, are compiled as one program. It is
run with inputs that lie in memory in several ways and with one to three threads, which
must give the same bits. The end of a test run shows what is native.
"""

import itertools
import re

import ml_dtypes
import numpy as np
import pytest
from by_loops import kernels_of
from records import OPS, cases_of
from whole_calls import SERIES

import weft
from weft import dtype as dtypes
from weft import graph as G
from weft.compile import pipeline
from weft.compile.loop.interpret import run_kernel
from weft.compile.program.steps import HostCall, KernelLaunch
from weft.compile.targets.cpu import plan
from weft.core.dispatch import type_of
from weft.core.lowering import View
from weft.core.tensor import Tensor
from weft.graph.ir import CONSTANT, Node

NAMES = {
    "bool": "bool", "uint8": "u8", "int8": "i8", "int16": "i16", "int32": "i32",
    "int64": "i64", "float16": "f16", "bfloat16": "bf16", "float32": "f32",
    "float64": "f64", "complex64": "c64", "complex128": "c128", "uint16": "u16",
    "uint32": "u32", "uint64": "u64",
}  # fmt: skip
COMPLEX = {"c64", "c128"}
EXACT = {"bool", "u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64"}
HALF = {"f16", "bf16"}

# -- what is called as a whole, and why

LAPACK = "linear algebra is LAPACK's"
FOURIER = "fast Fourier transforms are NumPy's"
PROGRAMS = "a program inside the program, which decides at run time what to do"
PARTS = "parts of complex numbers"
REJECTION = (
    "standard_gamma", "gamma_moved", "von_mises", "dirichlet", "dirichlet_moved"
)  # fmt: skip
CALLS = {
    **dict.fromkeys(
        (
            "inv", "solve", "solve_triangular", "pinv", "cholesky", "qr", "svd",
            "svdvals", "eigh", "eigvalsh", "det", "cofactor", "slogdet", "matrix_exp",
            "lu", "lu_pivots", "pivot_order",
        ),
        LAPACK,
    ),
    **dict.fromkeys(SERIES, "series and recurrences with as many terms as values ask"),
    **dict.fromkeys(REJECTION, "samples by rejection, and how they move"),
    "sized": PROGRAMS,
    **dict.fromkeys(("fft", "irfft", "rfft"), FOURIER),
    **dict.fromkeys(("real", "imag", "complex", "view_as_complex"), PARTS),
    **{name: "other processes take part" for name in OPS if OPS[name].facts.effect},
}  # fmt: skip
LAST = ("conv_last", "conv_last_input_grad", "conv_last_weight_grad")
CALLS |= dict.fromkeys(LAST, "GPUs have code for channels last")
# Records of which some dtypes are calls, besides complex numbers, which all are:
# convolutions and attention, for which there is code in float32 and float64, and
# products of integers that are longer than a byte.
PRODUCTS = ("matmul", "conv", "conv_input_grad", "conv_weight_grad", "conv_bias")
ATTENTION = ("attention", "attention_backward")
CALLS_IN = {
    **dict.fromkeys((*PRODUCTS, *ATTENTION), EXACT | HALF),
    "matmul": {"bool", "i16", "i32", "i64", "u16", "u32", "u64"},
    "weight_only_matmul": HALF | {"f64"},  # a program of others, elsewhere
}
# records that promise another dtype than their evaluation gives: not run in these
BROKEN: dict[str, set[str]] = {}

# -- how near: the same bits, but for these

# Not NumPy's algorithms: units of the last place, both errors together.
APPROXIMATE = dict.fromkeys(
    (
        "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan",
        "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh",
        "sigmoid", "atan2", "hypot", "logaddexp", "pow", "rsqrt", "i0", "i1", "i0e",
        "i1e", "erf", "erfc", "erfcx", "erfinv", "log_ndtr", "ndtri", "digamma",
        "polygamma",
        "lgamma", "normal",
    ),
    4,
)  # fmt: skip
# Added up in another order: units of the last place of the sum of absolute values.
REORDERED = dict.fromkeys(
    ("sum", "prod", "wide_matmul", "weight_only_matmul", *PRODUCTS, *LAST), 4
)
# Sums by weights that are exponentials of scores, whose rounding they magnify: units
# of the last place of the largest value, times the largest score.
WEIGHTED = dict.fromkeys(ATTENTION, 4)
# Which zero is the larger one is nobody's business.
ANY_ZERO = {"maximum", "minimum", "relu", "amax", "amin"}


def wide(array):
    """Half types as NumPy's own floats."""
    return array if array.dtype.kind in "biuc" else array.astype(np.float64)


def same(name, got, want):
    """Equal, zeros' signs included; a NaN is a NaN."""
    got, want = wide(got), wide(want)
    np.testing.assert_array_equal(got, want)
    if want.dtype.kind == "f" and name not in ANY_ZERO:
        there = want == want
        np.testing.assert_array_equal(np.signbit(got)[there], np.signbit(want)[there])


def near(case, got):
    """As near as the documentation says."""
    name = case.op.name
    for a, b in zip(got, case.want, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        allowed = APPROXIMATE.get(name) or REORDERED.get(name) or WEIGHTED.get(name)
        if allowed is None or b.dtype.kind in "biu" or not b.size:
            same(name, a, b)
            continue
        unit = float(ml_dtypes.finfo(b.dtype).eps)
        a, b = wide(a), wide(b)
        scale = size_of(case) if name in REORDERED else np.abs(b)
        if name in WEIGHTED:
            scale = np.max(scale) * (1 + largest_score(case))
        with np.errstate(invalid="ignore"):
            off = np.abs(a - b) / np.maximum(scale, np.finfo(float).tiny)
        np.testing.assert_array_equal(np.isfinite(a), np.isfinite(b))
        assert np.max(off[np.isfinite(b)], initial=0) <= allowed * unit


def size_of(case):
    """What the operator makes of absolute values."""
    if case.op.name == "weight_only_matmul":  # bytes stand for numbers with signs
        x, weight, scale = case.args
        rows = np.eye(x.shape[1]), weight, scale.astype(np.float64)
        return np.abs(wide(x)) @ np.abs(case.op.eval(*rows, **case.params))
    arrays = [np.abs(a.astype(np.complex128)) for a in case.args]
    return case.op.eval(*arrays, **case.params)


def largest_score(case):
    """A bound of what attention's exponentials are taken of."""
    q, k, *rest = (np.abs(a.astype(np.float64)) for a in case.args)
    scores = case.params["scale"] * (q @ np.swapaxes(k, -1, -2))
    others = [np.max(a, initial=0) for a in rest[1:]]  # a mask, or rows' sums
    return np.max(scores, initial=0) + max(others, default=0)


# -- programs


def program_of(cases):
    """All cases as one function of all their arrays."""

    def program(*tensors):
        found = iter(tensors)
        return tuple(out for c in cases for out in c(*[next(found) for _ in c.arrays]))

    return program


def compiled(cases):
    tensors = [Tensor(a) for c in cases for a in c.arrays]
    return kernels_of(G.capture(program_of(cases), *tensors).graph)


def split(cases, outs):
    """A program's outputs by case."""
    found = iter(outs)
    return [[next(found).copy() for _ in c.want] for c in cases]


def in_order(a):
    return np.array(a, order="C")


def transposed(a):
    return np.array(a, order="F")


def strided(a):
    """Every second element of a larger array, along each axis."""
    room = np.ones([2 * n for n in a.shape], a.dtype)
    view = room[..., *(slice(None, None, 2),) * a.ndim]
    view[...] = a
    return view


def reversed_(a):
    return np.flip(np.flip(a).copy())


LAYOUTS = (in_order, transposed, strided, reversed_)


@pytest.fixture
def small_shares(monkeypatch):
    """Even a few elements are shared out among threads."""
    monkeypatch.setattr(plan, "grain_of", lambda count, operations, worth: 1)
    before = weft.get_num_threads()
    yield
    weft.set_num_threads(before)


def runs(native, cases, layout):
    """The outputs for each number of threads."""
    arrays = [np.asarray(layout(a)) for c in cases for a in c.arrays]
    for threads in (1, 2, 3):
        weft.set_num_threads(threads)
        yield split(cases, native.run_named(arrays, {})[0])


def called(native):
    """The nodes that were called as a whole in the last run, and all after them."""
    steps = native.plan.layout.steps
    found = {step.node for step in steps if isinstance(step, HostCall)}
    for node in native.lowered.graph.nodes:
        if any(type(i) is Node and i in found for i in node.inputs):
            found.add(node)
    return found


def row_of(native, cases):
    """How each dtype is computed: ok (natively), call, or not at all."""
    row = dict.fromkeys(NAMES.values(), "-")
    outs, calls = iter(native.lowered.graph.outputs), called(native)
    for case in cases:
        mine = [next(outs) for _ in case.want]
        some = [n for n, w in zip(mine, case.want, strict=True) if w.size]
        name = NAMES[case.dtype.name]
        if some:  # of nothing, all ways are one
            whole = any(n in calls for n in some)
            row[name] = "call" if whole or row[name] == "call" else "ok"
    return row


@pytest.mark.parametrize("name", OPS)
def test_record(name, record_property, small_shares):
    """One row of the matrix that the end of the test run prints."""
    cases = cases_of(OPS[name])
    native = compiled(cases)
    found = [list(runs(native, cases, layout)) for layout in LAYOUTS]
    row = row_of(native, cases)
    record_property("compiled", (name, row))
    for k, case in enumerate(cases):
        ways = [[outs[k] for outs in layout] for layout in found]
        for first, *others in ways:
            near(case, first)
            assert all(bits(first) == bits(other) for other in others)
        if row[NAMES[case.dtype.name]] == "ok":  # NumPy's sums may depend on strides
            assert len({bits(first) for first, *_ in ways}) == 1
    whole = {d for d, how in row.items() if how == "call"}
    assert set(row.values()) != {"-"}
    assert whole == expected_calls(name, row)


def bits(arrays):
    return tuple(a.tobytes() for a in arrays)


def expected_calls(name, row):
    there = {d for d, how in row.items() if how != "-"}
    if name in CALLS:
        return there
    if isinstance(OPS[name].lower, View):
        return set()
    return there & (COMPLEX | CALLS_IN.get(name, set()))


def test_broken_promises_are_all_listed():
    """Dtypes that a record takes, but gives another one for than its type rule says."""
    found = {name: broken(op) for name, op in OPS.items() if op.function is not None}
    assert {name: kinds for name, kinds in found.items() if kinds} == BROKEN


def broken(op):
    kinds = set()
    for dtype in dtypes.ALL:
        ones = [Tensor(np.ones(2, dtype.np)) for _ in op.inputs]
        try:
            told = op.type(*map(type_of, ones)).dtype
            given = op(*ones).dtype
        except (weft.errors.WeftError, TypeError):
            continue
        if told is not given:
            kinds.add(NAMES[dtype.name])
    return kinds


# -- the loops, run one element at a time

LOOPED = ("float64", "bfloat16", "int64")


@pytest.mark.parametrize("name", OPS)
def test_loops_are_numpy(name, monkeypatch):
    monkeypatch.setattr(pipeline, "emit", lambda lowered: None)  # loops only
    cases = [c for c in cases_of(OPS[name]) if c.dtype.name in LOOPED]
    cases = [c for c in cases if all(a.size < 100 for a in c.arrays)]
    native = compiled(cases)
    feeds = (a for c in cases for a in c.arrays)
    memory = dict(zip(native.lowered.graph.inputs, feeds, strict=True))
    constants = [n for n in native.lowered.graph.nodes if n.op is CONSTANT]
    memory |= {n: n.params["value"] for n in constants}
    for step in native.lowered.steps:
        if isinstance(step, KernelLaunch) and set(step.owners) <= {*memory, *step.made}:
            run_loops(step, memory)
    outs = iter(native.lowered.graph.outputs)
    for case in cases:
        mine = [next(outs) for _ in case.want]
        if all(o in memory for o in mine):
            near(case, [memory[o] for o in mine])


def run_loops(step, memory):
    for node in step.made:
        memory[node] = np.zeros(node.shape, node.dtype.np)
    memory |= {n: memory[n].copy(order="C") for n in step.owners}
    run_kernel(step.kernel, step.arrays(memory), {})


# -- inside larger kernels


@pytest.mark.parametrize(
    "name", [n for n, op in OPS.items() if isinstance(op.lower, View)]
)
def test_views_inside_kernels(name):
    """A view read by a kernel is only another index."""
    cases = [c for c in cases_of(OPS[name]) if c.dtype.name in ("float32", "float16")]

    def program(*tensors):
        return tuple(out * 2.0 + 1.0 for out in program_of(cases)(*tensors))

    arrays = [a for c in cases for a in c.arrays]
    native = kernels_of(G.capture(program, *map(Tensor, arrays)).graph)
    outs = native.run_named(arrays, {})[0]
    assert not called(native)
    for case, (got,) in zip(cases, split(cases, outs), strict=True):
        np.testing.assert_array_equal(got, case.want[0] * 2 + 1)


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

    native = kernels_of(G.capture(program, x, b).graph)
    got = native.run_named([x.numpy(), b.numpy()], {})[0]
    for a, want in zip(got, program(x, b), strict=True):
        np.testing.assert_allclose(a, want.numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_special_values(dtype):
    x = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, 6e-8, -6e-5, 65504.0, -3e38]
    with np.errstate(over="ignore"):
        x = Tensor(np.array(x).astype(weft.dtype.as_dtype(dtype).np))

    def program(x):
        return (
            x.relu(), x.abs(), x.sqrt(), weft.maximum(x, -x), weft.sign(x), x > 0,
            x == x, weft.isnan(x), weft.isinf(x), x.floor(), x.reciprocal(), x.neg(),
            x + x, x * x, x - x, x / x, x * 0.3, weft.nextafter(x, -x), x.double(),
            x.half(), x.bfloat16(), x.float(), weft.signbit(x), x.clone(),
        )  # fmt: skip

    native = kernels_of(G.capture(program, x).graph)
    got = native.run_named([x.numpy()], {})[0]
    assert not called(native)
    with np.errstate(all="ignore"):
        for a, b in zip(got, program(x), strict=True):
            np.testing.assert_array_equal(wide(a), wide(b.numpy()))


# -- indices out of range


def indexed_cases():
    """Cases with an array of indices, of records that take elements by them."""
    for name, op in OPS.items():
        for case in cases_of(op):
            kinds = [a.dtype.kind for a in case.arrays]
            places = [k for k, a in enumerate(case.arrays) if a.dtype == np.int64]
            if case.dtype is dtypes.float32 and places and "f" in kinds:
                yield name, case, places


def error_of(fn, tensors):
    """The text of an IndexError, and the line that it names."""
    try:
        fn(*tensors)
    except IndexError as error:
        text = str(error)
        return text.split("\n")[0], re.search(r"records\.py:\d+", text)[0]
    return None


def test_indices_out_of_range_are_errors_with_the_same_text():
    """The value, the axis and the user's line, as eagerly; and the next run is fine."""
    checked = set()
    for name, case, places in indexed_cases():
        compiled = weft.compile(case)
        good = [Tensor(a) for a in case.arrays]
        for place, value in itertools.product(places, (1000, -1000)):
            arrays = [a.copy() for a in case.arrays]
            if not arrays[place].size:
                continue
            arrays[place].reshape(-1)[-1] = value
            bad = [Tensor(a) for a in arrays]
            want = error_of(case, bad)
            if want is None:
                continue  # not an index
            assert error_of(compiled, bad) == want, name
            assert str(value) in want[0]
            checked.add(name)
        near(case, [out.numpy() for out in compiled(*good)])
    assert checked >= {
        "take", "put", "add_at", "gather", "scatter", "scatter_add", "scatter_combine"
    }  # fmt: skip
