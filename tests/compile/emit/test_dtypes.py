"""Dtypes inside kernels: what is converted, rounded and wrapped, against NumPy."""

import itertools
import re

import numpy as np
import pytest
from by_loops import kernels_of

import weft
from weft import dtype as dtypes
from weft import graph as G
from weft.compile.emit.isa import new_module
from weft.compile.program.steps import HostCall
from weft.compile.targets.cpu.kernel import emit_kernel
from weft.compile.targets.cpu.object_code import LEVELS, assembly, host_isa
from weft.core.tensor import Tensor
from weft.errors import WeftError

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
HALF = ("float16", "bfloat16")
INTS = [d for d in dtypes.ALL if d.category == dtypes.INT]
REAL = [d for d in dtypes.ALL if not d.is_complex]
TARGETS = (None, "baseline", "avx2")


def natively(fn, *tensors, limit=None):
    """A function's outputs by kernels alone, for a CPU."""
    native = kernels_of(G.capture(fn, *tensors).graph, host_isa(limit))
    found = native.run_named([t.numpy() for t in tensors], {})[0]
    assert not [step for step in native.lowered.steps if isinstance(step, HostCall)]
    return found


def wide(array):
    return array if array.dtype.kind in "biuc" else array.astype(np.float64)


def same(got, want):
    for a, b in zip(got, want, strict=True):
        b = b.numpy()
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(wide(a), wide(b))
        if b.dtype.kind not in "biu":
            there = b == b
            np.testing.assert_array_equal(np.signbit(a)[there], np.signbit(b)[there])


def tensor(values, dtype):
    with np.errstate(all="ignore"):
        return Tensor(np.asarray(values).astype(dtypes.as_dtype(dtype).np))


# -- conversions

PLAIN = [0, 1, -1, 2, 3, 100, -100, 127, 0.5, -0.5, 1.5, 2.5, 0.1, 1e-3, 0.75, -7.3]
WIDE = [
    np.inf, -np.inf, np.nan, -0.0, 65504, 65519.99, 65520, 65536, 6e-8, 2.9e-8, 3e-8,
    6.1e-5, -6.1e-5, 1e-40, 3.4e38, 1e39, 1e300, -1e300, 1e-300,
]  # fmt: skip


@pytest.mark.parametrize("limit", TARGETS)
def test_every_dtype_to_every_other(limit):
    def program(*tensors):
        pairs = itertools.product(zip(tensors, REAL, strict=True), REAL)
        return tuple(t.to(to) for (t, have), to in pairs if have is not to)

    tensors = []
    for dtype in REAL:
        numbers = np.abs(PLAIN) if dtype is dtypes.uint8 else PLAIN
        tensors.append(tensor(numbers, dtype))
    same(natively(program, *tensors, limit=limit), program(*tensors))


@pytest.mark.parametrize("limit", TARGETS)
def test_floating_dtypes_to_each_other(limit):
    """Halfway cases too, and those that a float32 in between would make one."""
    rng = np.random.default_rng(0)
    half = rng.integers(0, 1 << 16, 2000).astype(np.uint16).view(np.float16)
    middles = half.astype(np.float64) * (1 + 2.0**-11)
    sticky = middles * (1 + rng.choice([-1, 1], 2000) * 2.0**-40)
    numbers = np.concatenate([PLAIN, WIDE, half, middles, sticky])
    floats = [d for d in REAL if d.is_floating_point]
    tensors = [tensor(numbers, d) for d in floats]

    def program(*tensors):
        pairs = itertools.product(zip(tensors, floats, strict=True), floats)
        return tuple(t.to(to) for (t, have), to in pairs if have is not to)

    same(natively(program, *tensors, limit=limit), program(*tensors))


def test_numbers_that_fit_no_integer_are_some_number():
    """Not one for a comparison and another for an index."""
    rows = Tensor(np.arange(4.0))

    @weft.compile
    def pick(x):
        return rows[x.long()]

    np.testing.assert_array_equal(pick(weft.tensor([1.0, 3.5])).numpy(), [1.0, 3.0])
    for bad in (np.nan, np.inf, 1e30, 4.0):
        with np.errstate(invalid="ignore"):
            number = np.float32(bad).astype(np.int64)
        if number == 0:  # aarch64 makes that of what is no number
            assert pick(weft.tensor([1.0, bad])).tolist() == [1.0, 0.0]
            continue
        with pytest.raises(IndexError):
            pick(weft.tensor([0.0, bad]))


# -- half types


@pytest.mark.parametrize("limit", TARGETS)
@pytest.mark.parametrize("dtype", HALF)
def test_every_operation_rounds_as_eagerly(dtype, limit):
    rng = np.random.default_rng(0)
    x, y = (
        tensor(np.concatenate([WIDE, rng.normal(size=3000) * 10.0**k]), dtype)
        for k in (0, 2)
    )
    y = Tensor(rng.permutation(y.numpy()))

    def program(x, y):
        return (
            x + y, x - y, x * y, x / y, x.sqrt(), x.abs(), -x, x.square(), x * 0.1,
            x.floor(), x.round(), weft.maximum(x, y), x < y, x == y, weft.fmod(x, y),
            weft.copysign(x, y), weft.nextafter(x, y), weft.where(x > y, x, y),
            weft.remainder(x, y), weft.floor_divide(x, y), x.reciprocal(),
            (x * y + x) * 0.3 - y / 7, x.relu() * x, x.isfinite(), x.clone(),
        )  # fmt: skip

    same(natively(program, x, y, limit=limit), program(x, y))


@pytest.mark.parametrize("limit", TARGETS)
@pytest.mark.parametrize("dtype", HALF)
def test_sums_are_made_in_float32(dtype, limit):
    """Halves would stop at 2048 (float16) or 256 (bfloat16) when ones are added."""
    x = weft.ones(3, 5001, dtype=dtypes.as_dtype(dtype))

    def program(x):
        y = x * 0.5
        return x.sum(1), y.sum(0), x.sum(), y.cumsum(1), y.t().cumsum(0), x.mean(1)

    same(natively(program, x, limit=limit), program(x))


@pytest.mark.parametrize("dtype", HALF)
def test_a_layer_in_half(dtype):
    """Softmax, normalisation and their gradients: several stages in one kernel."""
    kind = dtypes.as_dtype(dtype)
    rng = np.random.default_rng(0)
    x = tensor(rng.normal(size=(7, 33)), dtype)
    w = tensor(rng.normal(size=33), dtype)

    def loss(x, w):
        y = weft.nn.functional.layer_norm(x, (33,), w)
        return (y.softmax(-1) * y).sum()

    def program(x, w):
        return loss(x, w), *weft.func.grad(loss, (0, 1))(x, w)

    unit = 2.0**-10 if dtype == "float16" else 2.0**-7
    for a, b in zip(natively(program, x, w), program(x, w), strict=True):
        assert dtypes.of_array(a) is kind
        b = wide(b.numpy())
        np.testing.assert_allclose(wide(a), b, atol=4 * unit * np.abs(b).max())


def kernels_text(fn, *tensors, limit):
    target = host_isa(limit)
    native = kernels_of(G.capture(fn, *tensors).graph, target)
    module = new_module("text", target)
    for kernel in native.lowered.kernels.values():
        emit_kernel(module, kernel, target)
    return assembly(module, target)


@pytest.mark.parametrize("limit", LEVELS)
@pytest.mark.parametrize("dtype", HALF)
def test_half_types_need_no_library(dtype, limit):
    """Its conversions may not be there; and vectors are made of ours."""
    x = weft.ones(5000, dtype=dtypes.as_dtype(dtype))

    def program(x):
        return (x * 2 + 1) * x, x.double().to(x.dtype), x.to(weft.float64)

    text = kernels_text(program, x, limit=limit)
    assert not re.findall(r"__\w*[hs]f2", text)
    if limit == "avx2":
        assert "ymm" in text
        assert ("vcvtph2ps" in text) == (dtype == "float16")


# -- whole numbers

BINARY = (
    "add", "sub", "mul", "floor_divide", "remainder", "fmod", "bitwise_and",
    "bitwise_or",
    "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift", "gcd", "lcm", "pow",
    "maximum", "minimum", "eq", "lt", "ge", "logical_and", "logical_xor",
)  # fmt: skip
UNARY = (
    "neg", "abs", "sign", "square", "bitwise_not", "logical_not", "floor", "round",
    "isnan", "isfinite", "signbit",
)  # fmt: skip
DIVISIONS = ("floor_divide", "remainder", "fmod")


def operands(dtype):
    """All pairs of 8-bit numbers; of wider ones, those at the ends and at random."""
    info = np.iinfo(dtype.np)
    if dtype.itemsize == 1:
        line = np.arange(info.min, info.max + 1)
    else:
        ends = [info.min, info.min + 1, info.max - 1, info.max]
        random = np.random.default_rng(0).integers(info.min, info.max, 60, dtype.np)
        near = np.arange(-70, 70).astype(dtype.np)
        line = np.concatenate([np.array(ends, dtype.np), near, random])
    x, y = np.meshgrid(line, line)
    return x.ravel().astype(dtype.np), y.ravel().astype(dtype.np)


@pytest.mark.parametrize("dtype", INTS, ids=lambda d: d.name)
def test_whole_numbers(dtype):
    x, y = operands(dtype)
    nonzero = np.where(y == 0, 1, y).astype(dtype.np)
    tensors = [Tensor(a) for a in (x, y, nonzero)]

    def program(x, y, nonzero):
        ops = {name: weft.core.op.find_op(name) for name in (*BINARY, *UNARY)}
        two = [ops[n](x, nonzero if n in DIVISIONS else y) for n in BINARY]
        return (*two, *[ops[n](x) for n in UNARY])

    same(natively(program, *tensors), program(*tensors))


@pytest.mark.parametrize("name", DIVISIONS)
@pytest.mark.parametrize("dtype", INTS, ids=lambda d: d.name)
def test_division_by_zero_is_an_error_at_its_line(name, dtype):
    divide = getattr(weft, name)

    @weft.compile
    def program(x, y):
        return divide(x + 1, y) * 2  # here

    x = tensor([7, 8, 9], dtype)
    want = divide(x + 1, x) * 2
    np.testing.assert_array_equal(program(x, x).numpy(), want.numpy())
    with pytest.raises(ZeroDivisionError, match=rf"{name}: .*by zero[\s\S]*# here"):
        program(x, tensor([1, 0, 2], dtype))
    np.testing.assert_array_equal(program(x, x).numpy(), want.numpy())


def test_truth_values():
    x, y = (Tensor(a) for a in np.array([[0, 0, 1, 1], [0, 1, 0, 1]], bool))

    def program(x, y):
        return (
            x + y, x * y, x & y, x | y, x ^ y, ~x, x == y, x != y, x < y, x >= y,
            weft.maximum(x, y), weft.minimum(x, y), weft.pow(x, y), x.abs(),
            weft.logical_xor(x, y), weft.isnan(x), x.any(), x.all(), x.sum(),
            x.to(weft.float16) + y, weft.where(x, 2, y),
        )  # fmt: skip

    same(natively(program, x, y), program(x, y))


def test_what_a_record_refuses_is_refused_when_captured():
    with pytest.raises(WeftError, match="neg: expected a non-boolean dtype, got bool"):
        weft.compile(lambda x: -x)(weft.tensor([True]))


def test_complex_numbers_are_called():
    """They are not part of kernels, and the result is the same."""
    x = weft.tensor([1 + 2j, 3 - 4j])

    def program(x):
        return (x * x.conj()).real + weft.abs(x), x.exp()

    for a, b in zip(weft.compile(program)(x), program(x), strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())
