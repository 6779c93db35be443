"""Tensors as text, as PyTorch has it: their numbers, then what is unusual."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft.core.record import Record
from weft.dtype import default_dtype
from weft.errors import ArgumentError


class Options(Record):
    precision: int = 4
    threshold: int = 1000
    edgeitems: int = 3
    linewidth: int = 80
    sci_mode: bool | None = None


OPTIONS = PRINT_OPTS = Options()  # the second name is PyTorch's


_PROFILES: dict[str, dict[str, Any]] = {
    "default": {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80},
    "short": {"precision": 2, "threshold": 1000, "edgeitems": 2, "linewidth": 80},
    "full": {"precision": 4, "threshold": math.inf, "edgeitems": 3, "linewidth": 80},
}


def set_printoptions(
    precision: int | None = None,
    threshold: int | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Change how tensors are printed.

    >>> weft.set_printoptions(precision=2)
    >>> weft.tensor([0.12345])
    tensor([0.12])
    >>> weft.set_printoptions(precision=4)
    """
    if profile is not None:
        if profile not in _PROFILES:
            raise ArgumentError(
                f"set_printoptions: expected profile 'default', 'short' or 'full', got "
                f"{profile!r}"
            )
        vars(OPTIONS).update(_PROFILES[profile])
    OPTIONS.sci_mode = sci_mode
    given = {
        "precision": precision, "threshold": threshold,
        "edgeitems": edgeitems, "linewidth": linewidth,
    }  # fmt: skip
    vars(OPTIONS).update({k: v for k, v in given.items() if v is not None})


class _Formatter:
    """How numbers are written: PyTorch's choice for the array as a whole.

    Whole numbers are ``1.``; the others fixed or scientific. The width is that of the
    widest number that is finite and not 0.
    """

    def __init__(self, array: np.ndarray, precision: int) -> None:
        self.plain = array.dtype.kind not in "fV"
        self.width, self.style = 1, "{:.0f}."
        if self.plain:
            self.style = "{}"
            self.width = max([1, *(len(str(x)) for x in array.ravel())])
            return
        values = array[np.isfinite(array)].astype(np.float64)
        values = values[values != 0]
        if values.size:
            self._choose(values, precision)
            self.width = max(1, *(len(self.style.format(x)) for x in values))

    def _choose(self, values: np.ndarray, precision: int) -> None:
        sizes = np.abs(values)
        low, high = sizes.min(), sizes.max()
        whole = bool((values == np.ceil(values)).all())
        scientific = high / low > 1000 or high > 1e8 or (not whole and low < 1e-4)
        if OPTIONS.sci_mode is not None:
            scientific = OPTIONS.sci_mode
        if scientific:
            self.style = f"{{:.{precision}e}}"
        elif not whole:
            self.style = f"{{:.{precision}f}}"

    def write(self, x: Any) -> str:
        if self.plain or np.isfinite(x):
            return self.style.format(x).rjust(self.width)
        return str(float(x)).rjust(self.width)


class _ComplexFormatter:
    """Real and imaginary parts, each with a formatter of its own."""

    def __init__(self, array: np.ndarray, precision: int) -> None:
        self.real = _Formatter(array.real, precision)
        self.imag = _Formatter(array.imag, precision)
        self.width = self.real.width + self.imag.width + 1

    def write(self, z: Any) -> str:
        imag = self.imag.write(z.imag).lstrip()
        return f"{self.real.write(z.real)}{'' if imag[0] in '+-' else '+'}{imag}j"


def _formatter(array: np.ndarray) -> Any:
    kind = _ComplexFormatter if array.dtype.kind == "c" else _Formatter
    return kind(array, OPTIONS.precision)


def format_array(array: np.ndarray, indent: int = 0) -> str:
    """The elements in nested brackets, columns aligned, long ones shortened."""
    if array.size == 0:
        return "[]"
    edge = OPTIONS.edgeitems if array.size > OPTIONS.threshold else None
    return _nested(array, edge, _formatter(_edges(array, edge)), indent)


def _edges(array: np.ndarray, edge: int | None) -> np.ndarray:
    """The part of an array that will be printed."""
    if edge is None:
        return array
    for axis, n in enumerate(array.shape):
        if n > 2 * edge:
            ends = [*range(edge), *range(n - edge, n)]
            array = array.take(ends, axis)
    return array


def _nested(array: np.ndarray, edge: int | None, form: Any, indent: int) -> str:
    if array.ndim == 0:
        return form.write(array[()])
    n = array.shape[0]
    cut = edge is not None and n > 2 * edge
    places = [*range(edge), *range(n - edge, n)] if cut and edge else range(n)
    parts = [_nested(array[i], edge, form, indent + 1) for i in places]
    if cut and edge:
        parts.insert(edge, " ..." if array.ndim == 1 else "...")
    if array.ndim == 1:
        return f"[{_wrapped(parts, form.width, indent)}]"
    gap = "," + "\n" * (array.ndim - 1) + " " * (indent + 1)
    return f"[{gap.join(parts)}]"


def _wrapped(parts: list[str], width: int, indent: int) -> str:
    """Elements of one row, broken into lines at the line width."""
    per_line = max((OPTIONS.linewidth - indent) // (width + 2), 1)
    lines = [", ".join(parts[k : k + per_line]) for k in range(0, len(parts), per_line)]
    return (",\n" + " " * (indent + 1)).join(lines)


_UNSAID = ("int64", "bool")  # the dtypes of Python's numbers, with the default dtype


def _tensor_str(x: Any, indent: int = 0) -> str:
    """The numbers of a tensor as text, under PyTorch's name."""
    text = format_tensor(x.detach())
    return text.removeprefix("tensor(").removesuffix(")")


def format_tensor(x: Any) -> str:
    """The text of a tensor as in PyTorch: ``tensor([...], dtype=..., grad_fn=...)``.

    The dtype of Python's numbers is not said, and the size only of an empty tensor.
    """
    ours = type(x).__module__.startswith("weft.")
    start = "tensor(" if ours else f"{type(x).__name__}("
    text = start + ("..." if x.is_meta else format_array(x.to_host(), len(start)))
    default = default_dtype()
    usual = x.dtype in (default, default.to_complex()) or x.dtype.name in _UNSAID
    parts = []
    if x.device.name != "cpu":
        parts.append(f"device={x.device.name!r}")
    if x.numel() == 0 or x.is_meta:
        usual = x.dtype is default
        if x.ndim != 1 or x.is_meta:
            parts.append(f"size={tuple(x.shape)}")
    if not usual:
        parts.append(f"dtype={x.dtype!r}")
    if x.grad_fn is not None:
        parts.append(f"grad_fn={x.grad_fn!r}")
    elif x.requires_grad:
        parts.append("requires_grad=True")
    return _with_parts(text, parts, len(start)) + ")"


def _with_parts(text: str, parts: list[str], indent: int) -> str:
    """The facts after the elements, on a new line where they do not fit."""
    used = len(text) - text.rfind("\n") + 1
    for part in parts:
        if used + len(part) + 2 > OPTIONS.linewidth:
            text += ",\n" + " " * indent + part
            used = indent + len(part)
        else:
            text += f", {part}"
            used += len(part) + 2
    return text
