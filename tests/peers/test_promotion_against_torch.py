"""Result dtypes and values for every pair of dtypes, against PyTorch."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")

from compare import DTYPES, both, compare

BINARY = {
    "add": "a + b", "sub": "a - b", "mul": "a * b", "div": "a / b", "pow": "a ** b",
    "floor_divide": "a // b", "remainder": "a % b", "fmod": "T.fmod(a, b)",
    "eq": "a == b", "ne": "a != b", "lt": "a < b", "ge": "a >= b",
    "where": "T.where(T.tensor([True, False]), a, b)",
    "atan2": "T.atan2(a, b)", "logical_and": "T.logical_and(a, b)",
    "iadd": "c = a.clone(); c += b; c", "isub": "c = a.clone(); c -= b; c",
    "imul": "c = a.clone(); c *= b; c", "idiv": "c = a.clone(); c /= b; c",
    "result_type": "T.result_type(a, b)",
}  # fmt: skip
TENSORS_ONLY = {
    "maximum": "T.maximum(a, b)", "minimum": "T.minimum(a, b)",
    "cat": "T.cat([a.reshape(-1), b.reshape(-1)])", "stack": "T.stack([a, b + b * 0])",
    "hypot": "T.hypot(a, b)", "bitwise_and": "a & b", "bitwise_or": "a | b",
    "gcd": "T.gcd(a, b)", "promote_types": "T.promote_types(a.dtype, b.dtype)",
    "can_cast": "T.can_cast(a.dtype, b.dtype)", "copy_": "a.clone().copy_(b)",
    "setitem": "c = a.clone(); c[:1] = b[:1]; c",
}  # fmt: skip
SCALARS = (True, 2, -3, 1.5, 2 + 1j)
COMPLEX_HALF = {"float16", "complex64", "complex128"}
HALF = ("float16", "bfloat16")  # PyTorch has a complex type of halves, Weft none
VALUES = ([1, 3], [2, 1])


def pair(a: str, b: str, rank_a: int, rank_b: int) -> dict:
    x, y = (v if r else v[0] for v, r in zip(VALUES, (rank_a, rank_b), strict=True))
    return {"a": both(x, a), "b": both(y, b)}


def check(cases: list[tuple[str, dict, object]]) -> None:
    problems = []
    for expression, inputs, label in cases:
        problem = compare(expression, inputs)
        if problem:
            problems.append(f"{label}: {problem}")
    assert not problems, f"{len(problems)} differ:\n" + "\n".join(problems[:12])


@pytest.mark.parametrize("name", [*BINARY, *TENSORS_ONLY])
def test_two_tensors(name: str) -> None:
    expression = {**BINARY, **TENSORS_ONLY}[name]
    ranks = [(1, 1), (1, 0), (0, 1), (0, 0)] if name in BINARY else [(1, 1)]
    check([
        (expression, pair(a, b, *r), (a, b, r))
        for a, b in itertools.product(DTYPES, DTYPES)
        for r in ranks
        if name != "result_type" or not ({a, b} < COMPLEX_HALF)
    ])  # fmt: skip


@pytest.mark.parametrize("name", BINARY)
def test_tensor_and_python_number(name: str) -> None:
    check([
        (expression, inputs | {"b": (number, number)}, (dtype, number, expression))
        for dtype in DTYPES
        for rank in (0, 1)
        for number in SCALARS
        if not (isinstance(number, complex) and dtype in HALF)
        for inputs in [pair(dtype, dtype, rank, rank)]
        for expression in _both_ways(BINARY[name])
    ])  # fmt: skip


def _both_ways(expression: str) -> list[str]:
    """The expression, and for plain operators the one with the number first."""
    if expression[:2] == "a " and len(expression) < 9:
        turned = {"a": "b", "b": "a"}
        return [expression, "".join(turned.get(ch, ch) for ch in expression)]
    return [expression]


@pytest.mark.parametrize("dtype", DTYPES)
def test_matrix_product(dtype: str) -> None:
    a = np.arange(6).reshape(2, 3) % 4
    check([
        ("a @ b", {"a": both(a, dtype), "b": both(a.T, dtype)}, dtype),
        ("a @ b", {"a": both(a, dtype), "b": both(a[0], dtype)}, dtype),
        ("a @ b", {"a": both(a[0], dtype), "b": both(a[1], dtype)}, dtype),
    ])  # fmt: skip


REDUCTIONS = (
    "sum()", "sum(0)", "mean()", "prod()", "prod(1)", "amax()", "amin(0)", "max()",
    "max(0)", "min(1)", "argmin()", "var()", "std(0)", "any()", "all(1)", "cumsum(0)",
    "cumprod(1)", "cummax(0)", "logsumexp(0)", "norm()", "median()", "sort()",
    "argsort(1)", "topk(1)", "kthvalue(1)", "count_nonzero()", "nansum()", "diff()",
    "aminmax()", "unique()", "sum(dtype=T.float64)", "sum(dtype=T.int32)",
    "mean(dtype=T.float32)", "prod(dtype=T.float64)", "cumsum(0, dtype=T.float64)",
    "quantile(0.5)", "bincount()", "trace()", "tril()", "nonzero()", "abs()", "neg()",
    "sign()", "exp()", "sqrt()", "sigmoid()", "floor()", "round()", "square()",
    "reciprocal()", "isnan()", "logical_not()", "bitwise_not()", "clamp(1, 2)",
    "clamp(0.5, 1.5)", "clamp(min=2)", "conj()", "angle()", "flip(0)", "roll(1, 0)",
    "sin()", "log1p()", "rsqrt()", "sgn()", "frac()", "trunc()", "expm1()",
    "masked_fill(b, 1)", "masked_fill(b, 1.5)", "fill_(2)", "fill_(1.5)", "pow(2)",
    "pow(0.5)", "float_power(2)", "deg2rad()", "sinc()", "signbit()", "isfinite()",
    "item()", "nan_to_num()", "view_as(b)", "add(1, alpha=2)", "sub(1, alpha=2)",
    "lerp(a0, 0.5)", "tolist()", "index_fill(0, b.nonzero()[:1, 0], 2)",
    "mode().values", "logaddexp(a0)", "xlogy(a0)", "eq(a0)",
)  # fmt: skip
SAME_ANYWAY = {  # see DEVIATIONS in cases.py
    ("bool", "abs()"), ("bool", "square()"), ("uint8", "any()"), ("uint8", "all(1)"),
}  # fmt: skip


@pytest.mark.parametrize("call", REDUCTIONS)
def test_result_of_every_dtype(call: str) -> None:
    values = np.array([[1, 0, 3], [2, 2, 1]])
    check([
        (
            f"a.{call}",
            {"a": both(values, d), "b": both(values > 1), "a0": both(values + 1, d)},
            (d, call),
        )
        for d in DTYPES
        if (d, call) not in SAME_ANYWAY
    ])  # fmt: skip
