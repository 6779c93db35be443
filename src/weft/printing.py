"""Tensors as text: their numbers, then shape, dtype and gradient function."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.core.record import Record


class Options(Record):
    precision: int = 4
    threshold: int = 1000
    edgeitems: int = 3
    linewidth: int = 88


OPTIONS = Options()


def set_printoptions(
    precision: int | None = None,
    threshold: int | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
) -> None:
    """Change how tensors are printed.

    >>> weft.set_printoptions(precision=2)
    >>> weft.tensor([0.12345])
    tensor([0.12], shape=(1,), dtype=float32)
    >>> weft.set_printoptions(precision=4)
    """
    given = {
        "precision": precision, "threshold": threshold,
        "edgeitems": edgeitems, "linewidth": linewidth,
    }  # fmt: skip
    vars(OPTIONS).update({k: v for k, v in given.items() if v is not None})


def _float_formatter(array: np.ndarray, precision: int) -> Any:
    """PyTorch's choice: whole numbers as ``1.``, else fixed or scientific."""
    finite = np.abs(array[np.isfinite(array)].astype(np.float64))
    nonzero = finite[finite != 0]
    if nonzero.size == 0 or (nonzero == np.ceil(nonzero)).all():
        large = nonzero.size > 0 and nonzero.max() >= 1e8
        style = f"{{:.{precision}e}}" if large else "{:.0f}."
    else:
        low, high = nonzero.min(), nonzero.max()
        scientific = high / low > 1000 or high > 1e8 or low < 1e-4
        style = f"{{:.{precision}{'e' if scientific else 'f'}}}"
    return lambda x: style.format(x) if np.isfinite(x) else str(float(x))


def _formatter(array: np.ndarray, precision: int) -> Any:
    kind = array.dtype.kind
    if kind == "c":
        one = _float_formatter(
            np.concatenate([array.real.ravel(), array.imag.ravel()]), precision
        )
        return lambda z: f"{one(z.real)}{'' if z.imag < 0 else '+'}{one(z.imag)}j"
    if kind in "fV":
        return _float_formatter(array, precision)
    return str


def format_array(array: np.ndarray, indent: int = 0) -> str:
    """The elements in nested brackets, columns aligned, long ones shortened."""
    if array.size == 0:
        return "[]"
    edge = OPTIONS.edgeitems if array.size > OPTIONS.threshold else None
    shown = _edges(array, edge)
    write = _formatter(shown, OPTIONS.precision)
    width = max(len(write(x)) for x in shown.ravel()) if array.ndim else 0
    return _nested(array, edge, lambda x: write(x).rjust(width), indent)


def _edges(array: np.ndarray, edge: int | None) -> np.ndarray:
    """The part of an array that will be printed."""
    if edge is None:
        return array
    for axis, n in enumerate(array.shape):
        if n > 2 * edge:
            ends = [*range(edge), *range(n - edge, n)]
            array = array.take(ends, axis)
    return array


def _nested(array: np.ndarray, edge: int | None, write: Any, indent: int) -> str:
    if array.ndim == 0:
        return write(array[()])
    n = array.shape[0]
    cut = edge is not None and n > 2 * edge
    places = [*range(edge), *range(n - edge, n)] if cut and edge else range(n)
    parts = [_nested(array[i], edge, write, indent + 1) for i in places]
    if cut and edge:
        parts.insert(edge, "...")
    if array.ndim == 1:
        return f"[{_wrapped(parts, indent + 1)}]"
    gap = "," + "\n" * (array.ndim - 1) + " " * (indent + 1)
    return f"[{gap.join(parts)}]"


def _wrapped(parts: list[str], indent: int) -> str:
    """Elements of one row, broken into lines at the line width."""
    per_line = max((OPTIONS.linewidth - indent) // (len(parts[0]) + 2), 1)
    lines = [", ".join(parts[k : k + per_line]) for k in range(0, len(parts), per_line)]
    return (",\n" + " " * indent).join(lines)


def format_tensor(x: Any) -> str:
    """The text of a tensor: ``tensor([...], shape=..., dtype=..., grad_fn=...)``."""
    parts = [format_array(x.to_host(), len("tensor("))]
    if x.ndim:
        parts.append(f"shape={tuple(x.shape)}")
    parts.append(f"dtype={x.dtype.name}")
    if x.device.name != "cpu":
        parts.append(f"device={x.device.name!r}")
    if x.grad_fn is not None:
        parts.append(f"grad_fn={x.grad_fn!r}")
    elif x.requires_grad:
        parts.append("requires_grad=True")
    return f"tensor({', '.join(parts)})"
