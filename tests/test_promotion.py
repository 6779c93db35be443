"""Which dtype comes out when two meet: PyTorch's table, and what follows from it."""

from __future__ import annotations

import copy
import itertools
import pickle

import numpy as np
import pytest

import weft

NAMES = (
    "bool", "uint8", "int8", "int16", "int32", "int64",
    "float16", "bfloat16", "float32", "float64", "complex64", "complex128",
)  # fmt: skip
# torch.promote_types, a row for each first type; the table is symmetric.
TABLE = """
b  u8 i8  i16 i32 i64 f16 bf  f32 f64 c64  c128
u8 u8 i16 i16 i32 i64 f16 bf  f32 f64 c64  c128
i8 i16 i8 i16 i32 i64 f16 bf  f32 f64 c64  c128
i16 i16 i16 i16 i32 i64 f16 bf f32 f64 c64 c128
i32 i32 i32 i32 i32 i64 f16 bf f32 f64 c64 c128
i64 i64 i64 i64 i64 i64 f16 bf f32 f64 c64 c128
f16 f16 f16 f16 f16 f16 f16 f32 f32 f64 c64 c128
bf bf bf bf bf bf f32 bf f32 f64 c64 c128
f32 f32 f32 f32 f32 f32 f32 f32 f32 f64 c64 c128
f64 f64 f64 f64 f64 f64 f64 f64 f64 f64 c128 c128
c64 c64 c64 c64 c64 c64 c64 c64 c64 c128 c64 c128
c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128
"""
CODES = "b u8 i8 i16 i32 i64 f16 bf f32 f64 c64 c128"
SHORT = dict(zip(CODES.split(), NAMES, strict=True))
ROWS = [[SHORT[word] for word in row.split()] for row in TABLE.strip().splitlines()]
EXPECTED = {
    (a, b): ROWS[i][j]
    for (i, a), (j, b) in itertools.product(enumerate(NAMES), enumerate(NAMES))
}


def make(name: str, rank: int = 1) -> weft.Tensor:
    return weft.ones((2,) * rank, dtype=name)


@pytest.mark.parametrize("first", NAMES)
def test_promote_types(first: str) -> None:
    for second in NAMES:
        assert weft.promote_types(first, second).name == EXPECTED[first, second]


@pytest.mark.parametrize("first", NAMES)
def test_tensors_meet(first: str) -> None:
    for second in NAMES:
        wanted = EXPECTED[first, second]
        a, b = make(first), make(second)
        assert (a + b).dtype.name == wanted
        assert (a * b).dtype.name == wanted
        assert weft.cat([a, b]).dtype.name == wanted
        assert weft.where(make("bool"), a, b).dtype.name == wanted
        assert (a == b).dtype.name == "bool"
        inexact = wanted if weft.zeros(1, dtype=wanted).dtype.is_inexact else "float32"
        assert (a / b).dtype.name == inexact


CATEGORY = dict(zip(NAMES, (0, 1, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3), strict=True))
NUMBERS = {0: True, 1: 3, 2: 1.5, 3: 2j}


@pytest.mark.parametrize("name", NAMES)
def test_zero_dimensional_tensors_count_less(name: str) -> None:
    for other in NAMES:
        got = (make(name) + make(other, 0)).dtype.name
        if CATEGORY[other] <= CATEGORY[name]:
            assert got == name
        elif CATEGORY[name] < 2:
            assert got == other


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("rank", [0, 1])
def test_python_numbers_count_least(name: str, rank: int) -> None:
    for category, number in NUMBERS.items():
        got = (make(name, rank) * number).dtype.name
        if category <= CATEGORY[name]:
            assert got == name
        elif category == 3:
            assert got == ("complex128" if name == "float64" else "complex64")
        else:
            assert got == {1: "int64", 2: "float32"}[category]


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + 1, lambda x: 2.5 * x, lambda x: 1 / x, lambda x: x**0.5,
        lambda x: 2**x, lambda x: x - 1.0, weft.exp, weft.log, weft.sigmoid, weft.tanh,
        weft.rsqrt, weft.reciprocal, weft.sin, weft.abs, weft.square, weft.sign,
        weft.floor, weft.round, weft.sinc, weft.logit, weft.expm1, weft.nan_to_num,
        lambda x: x.clamp(0, 0.25), lambda x: weft.where(x > 0, x, 0),
        lambda x: weft.where(x > 0, 1.5, x), lambda x: x.masked_fill(x > 0, 1.5),
        weft.sum, weft.mean, weft.var, weft.std, weft.prod, weft.amax, weft.norm,
        lambda x: x.cumsum(0), lambda x: x.logsumexp(0), lambda x: x.quantile(0.5),
        lambda x: x % 0.3, lambda x: x // 0.3, lambda x: x @ x, lambda x: x.median(),
        lambda x: weft.pad(x, (1, 1), value=2), lambda x: weft.lerp(x, x, 0.5),
        lambda x: weft.maximum(x, x * 2), lambda x: weft.atan2(x, x),
    ],
)  # fmt: skip
def test_halves_stay_halves(name: str, function: object) -> None:
    x = weft.tensor([0.25, 0.5], dtype=name, requires_grad=True)
    out = function(x)  # type: ignore[operator]
    assert out.dtype.name == name
    out.sum().backward()
    assert x.grad is None or x.grad.dtype.name == name


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_halves_are_summed_in_float32(name: str) -> None:
    many = weft.full((5000,), 0.1, dtype=name)
    exact = 5000 * many[0].item()
    unit = {"float16": 2.0**-10, "bfloat16": 2.0**-7}[name]
    assert many.sum().item() == pytest.approx(exact, rel=unit)
    assert many.mean().item() == pytest.approx(many[0].item(), rel=unit)
    assert many.cumsum(0)[-1].item() == pytest.approx(exact, rel=unit)
    assert (many @ many).item() == pytest.approx(exact * many[0].item(), rel=unit)


def test_python_integers_wrap() -> None:
    x = weft.tensor([250, 1], dtype=weft.uint8)
    assert (x + 300).tolist() == [(250 + 300) % 256, 301 % 256]
    assert (x - 2).tolist() == [248, 255]
    assert (x * -1).tolist() == [6, 255]
    assert (weft.tensor([2**31 - 1], dtype=weft.int32) + 1).tolist() == [-(2**31)]
    assert weft.where(x > 5, x, -3).tolist() == [250, 253]


def test_integer_results() -> None:
    x = weft.tensor([2, -3])
    assert (x**2).dtype.name == "int64"
    assert (x**0.5).dtype.name == "float32"
    assert (2 ** x.abs()).tolist() == [4, 8]
    assert (1 / x).dtype.name == "float32"
    assert weft.pow(x, weft.tensor([-1, -1])).tolist() == [0, 0]
    assert weft.pow(weft.tensor([1, -1, -1]), weft.tensor([-5, -3, -2])).tolist() == [
        1, -1, 1,
    ]  # fmt: skip
    assert x.sum(dtype=weft.int32).dtype.name == "int32"
    assert weft.tensor([True, True]).sum().tolist() == 2
    assert weft.tensor([200, 200], dtype=weft.uint8).sum().tolist() == 400


def test_comparison_promotes_as_pytorch() -> None:
    # int64 with float32 compares as float32, where both are 2**53
    assert (weft.tensor([2**53 + 1]) == weft.tensor([2.0**53])).tolist() == [True]
    assert (weft.tensor([3]) > 2.5).tolist() == [True]
    assert (weft.tensor([3], dtype=weft.uint8) > -1).tolist() == [False]  # -1 wraps


def test_default_dtype_is_what_python_floats_get() -> None:
    weft.set_default_dtype(weft.float64)
    try:
        assert weft.tensor([1.5]).dtype is weft.float64
        assert (weft.tensor([1]) / 2).dtype is weft.float64
        assert weft.zeros(1).dtype is weft.float64
        assert (weft.tensor([1]) * 2j).dtype is weft.complex128
    finally:
        weft.set_default_dtype(weft.float32)


def test_numpy_scalars_act_as_0d_tensors() -> None:
    x = weft.ones(2)
    assert (x * np.float64(2)).dtype is weft.float32
    assert (np.float64(2) * x).dtype is weft.float32
    assert (x + np.int32(1)).dtype is weft.float32


def test_dtypes_survive_copying_and_other_processes() -> None:
    for dtype in weft.dtype.ALL:
        assert copy.deepcopy(dtype) is dtype
        assert pickle.loads(pickle.dumps(dtype)) is dtype
