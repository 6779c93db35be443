"""Comparing tensors in tests, and making them, under the names of ``torch.testing``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from weft import dtype as dtypes
from weft.core.tensor import Tensor
from weft.dtype import DType, as_dtype
from weft.errors import ArgumentError
from weft.ops.creation import parse_size, tensor
from weft.ops.random import rand, randint

# relative and absolute tolerance by dtype; whole numbers must be equal
_TOLERANCES = {
    "float16": (1e-3, 1e-5), "bfloat16": (1.6e-2, 1e-5), "float32": (1.3e-6, 1e-5),
    "float64": (1e-7, 1e-7), "complex64": (1.3e-6, 1e-5), "complex128": (1e-7, 1e-7),
}  # fmt: skip


def assert_close(
    actual: Any,
    expected: Any,
    *,
    allow_subclasses: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    msg: str | Callable[[str], str] | None = None,
) -> None:
    """Fail unless tensors, numbers, or containers of them, are close.

    Without tolerances, those of the dtype: 1.3e-6 relative and 1e-5 absolute for
    float32. Shapes, dtypes and devices must be equal.

    >>> weft.testing.assert_close(weft.ones(2), weft.ones(2) + 1e-7)
    >>> weft.testing.assert_close(weft.tensor([1.0, 2.0]), weft.tensor([1.0, 2.5]))
    Traceback (most recent call last):
    AssertionError: Tensor-likes are not close!
    <BLANKLINE>
    Mismatched elements: 1 / 2 (50.0%)
    Greatest absolute difference: 0.5 at index (1,) (up to 1e-05 allowed)
    Greatest relative difference: 0.2 at index (1,) (up to 1.3e-06 allowed)
    """
    if (rtol is None) != (atol is None):
        raise ArgumentError(
            "assert_close: expected both rtol and atol or neither, got "
            f"rtol={rtol} and atol={atol}"
        )
    checks = {
        "device": check_device, "dtype": check_dtype, "stride": check_stride,
        "subclasses": allow_subclasses,
    }  # fmt: skip
    text = _compared(actual, expected, (rtol, atol), equal_nan, checks, "")
    if text:
        if callable(msg):
            text = msg(text)
        raise AssertionError(msg if isinstance(msg, str) else text)


def _compared(
    actual: Any, expected: Any, limits: Any, nan: bool, checks: Any, where: str
) -> str:
    """What differs, or nothing."""
    pair = actual, expected
    if all(isinstance(v, Mapping) for v in pair):
        if set(actual) != set(expected):
            keys = f"{list(actual)} != {list(expected)}"
            return f"The keys of the mappings do not match: {keys}"
        items: Any = [(k, actual[k], expected[k]) for k in expected]
    elif all(isinstance(v, Sequence) and not isinstance(v, str) for v in pair):
        if len(actual) != len(expected):
            return (
                "The length of the sequences mismatch: "
                f"{len(actual)} != {len(expected)}"
            )
        items = [(k, *both) for k, both in enumerate(zip(*pair, strict=True))]
    elif actual is None or expected is None:
        return (
            "" if actual is expected else f"None mismatch: {actual!r} != {expected!r}"
        )
    else:
        return _leaf(actual, expected, limits, nan, checks, where)
    found = (
        _compared(a, b, limits, nan, checks, f"{where}[{k!r}]") for k, a, b in items
    )
    return next((text for text in found if text), "")


def _leaf(a: Any, b: Any, limits: Any, nan: bool, checks: Any, where: str) -> str:
    numbers = not isinstance(a, (Tensor, np.ndarray)) and not isinstance(
        b, (Tensor, np.ndarray)
    )
    if numbers:
        if type(a) is not type(b) and checks["dtype"]:
            kinds = type(a).__name__, type(b).__name__
            if not all(isinstance(v, (bool, int, float, complex)) for v in (a, b)):
                raise TypeError(
                    f"assert_close: cannot compare {kinds[0]} and {kinds[1]}"
                )
        a, b = (tensor(v, dtype=_number_dtype(v)) for v in (a, b))
    elif not all(isinstance(v, (Tensor, np.ndarray)) for v in (a, b)):
        raise TypeError(
            f"assert_close: cannot compare {type(a).__name__} and {type(b).__name__}"
        )
    a, b = (v if isinstance(v, Tensor) else tensor(v) for v in (a, b))
    end = f"\n\nThe failure occurred for item {where}" if where else ""
    if tuple(a.shape) != tuple(b.shape):
        shapes = f"torch.Size({list(a.shape)}) != torch.Size({list(b.shape)})"
        return f"The values for attribute 'shape' do not match: {shapes}.{end}"
    for name in ("device", "dtype"):
        mine, theirs = getattr(a, name), getattr(b, name)
        if checks[name] and not numbers and mine is not theirs:
            return (
                f"The values for attribute '{name}' do not match: "
                f"{mine} != {theirs}.{end}"
            )
    if checks["stride"] and a.stride() != b.stride():
        return (
            "The values for attribute 'stride()' do not match: "
            f"{a.stride()} != {b.stride()}.{end}"
        )
    text = _values(a, b, limits, nan, numbers)
    return text and text + end


def _number_dtype(value: Any) -> DType:
    if isinstance(value, bool):
        return dtypes.bool_
    if isinstance(value, int):
        return dtypes.int64
    return dtypes.complex128 if isinstance(value, complex) else dtypes.float64


def _values(a: Tensor, b: Tensor, limits: Any, nan: bool, number: bool) -> str:
    rtol, atol = limits
    if rtol is None:
        pairs = [_TOLERANCES.get(v.dtype.name, (0.0, 0.0)) for v in (a, b)]
        rtol, atol = (max(p[k] for p in pairs) for k in (0, 1))
    kind = dtypes.promote_types(a.dtype, b.dtype)
    wide = {True: np.complex128, False: np.float64}[kind.is_complex]
    whole = not kind.is_inexact
    x: Any
    y: Any
    x, y = (v.detach().to_host().astype(object if whole else wide) for v in (a, b))
    with np.errstate(all="ignore"):
        gap = np.abs(x - y) if not whole or kind.name != "bool" else (x != y) * 1
        gap = np.asarray(gap, np.float64)
        size = np.asarray(np.abs(y * 1), np.float64)
        close = (gap <= atol + rtol * size) | np.asarray(x == y, bool)
        if nan:
            close |= np.isnan(x.astype(wide)) & np.isnan(y.astype(wide))
        close &= np.isfinite(gap) | np.asarray(x == y, bool) | (nan & np.isnan(gap))
        if close.all():
            return ""
        part = gap / size
    gap, part = (np.where(close, 0.0, v) for v in (gap, part))
    exact = rtol == atol == 0
    equal = "equal" if exact else "close"
    if number:
        allowed = "" if exact else f" (up to {atol} allowed)"
        relative = "" if exact else f" (up to {rtol} allowed)"
        return (
            f"Scalars are not {equal}!\n\nExpected {b.item()} but got {a.item()}.\n"
            f"Absolute difference: {gap.item()}{allowed}\n"
            f"Relative difference: {part.item()}{relative}"
        )
    count = int((~close).sum())
    share = 100 * count / close.size
    lines = [
        f"Tensor-likes are not {equal}!\n",
        f"Mismatched elements: {count} / {close.size} ({share:.1f}%)",
    ]
    for what, values, limit in (("absolute", gap, atol), ("relative", part, rtol)):
        worst = int(np.argmax(np.nan_to_num(values, nan=np.inf)))
        at = np.unravel_index(worst, a.shape)
        place = f" at index {tuple(int(k) for k in at)}" if a.ndim else ""
        allowed = "" if exact else f" (up to {limit} allowed)"
        lines.append(f"Greatest {what} difference: {values[at]}{place}{allowed}")
    return "\n".join(lines)


def assert_allclose(
    actual: Any,
    expected: Any,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = True,
    msg: str = "",
) -> None:
    """``assert_close`` under its older name: dtypes may differ, NaN equals NaN.

    >>> weft.testing.assert_allclose(weft.ones(2), [1.0, 1.0])
    """
    b = expected if isinstance(expected, Tensor) else tensor(expected)
    a = actual if isinstance(actual, Tensor) else tensor(actual)
    assert_close(
        a, b, rtol=rtol, atol=atol, equal_nan=equal_nan, check_dtype=False,
        msg=msg or None,
    )  # fmt: skip


def make_tensor(
    *shape: Any,
    dtype: Any,
    device: Any = None,
    low: float | None = None,
    high: float | None = None,
    requires_grad: bool = False,
    noncontiguous: bool = False,
    exclude_zero: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """Random elements of any dtype, from ``low`` up to ``high``.

    Without limits: -9 to 9 (0 to 9 for unsigned ones, 0 to 1 for bool).

    >>> x = weft.testing.make_tensor(3, 2, dtype=weft.int64, low=1, high=3)
    >>> x.shape, bool(((x >= 1) & (x < 3)).all())
    ((3, 2), True)
    """
    chosen, size = as_dtype(dtype), parse_size("make_tensor", shape)
    if noncontiguous and memory_format is not None:
        raise ArgumentError("make_tensor: noncontiguous has no memory_format")
    drawn = (*size[:-1], 2 * size[-1]) if noncontiguous and size else size
    if chosen is dtypes.bool_:
        a, b = 0 if low is None else low, 2 if high is None else high
        made = randint(int(a), int(b), drawn, device=device).to(chosen)
    elif not chosen.is_inexact:
        a = (-9 if chosen.is_signed else 0) if low is None else low
        b = 10 if high is None else high
        made = randint(int(a), int(b), drawn, device=device).to(chosen)
    else:
        a, b = -9 if low is None else low, 9 if high is None else high
        real = chosen.to_real()
        draw = rand(drawn, dtype=real.to_total(), device=device) * (b - a) + a
        if chosen.is_complex:
            again = rand(drawn, dtype=real, device=device) * (b - a) + a
            draw = draw + 1j * again
        made = draw.to(chosen)
    if noncontiguous and size:
        made = made[..., ::2]
    if exclude_zero:
        made = made.masked_fill(made == 0, 1)
    if memory_format is not None:
        made = made.contiguous(memory_format=memory_format)
    return made.requires_grad_() if requires_grad else made
