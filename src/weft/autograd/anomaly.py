"""Finding the operator that made the first NaN or infinity.

Every operator, forward and backward, is watched: the first one whose inputs are
finite and whose output is not raises an error with the user's line and the
inputs' shapes and ranges.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from weft.core.mode import observe
from weft.core.tape import current_backward
from weft.core.tensor import Tensor
from weft.errors import AutogradError, describe_line


class AnomalyError(AutogradError):
    """An operator made a non-finite value from finite ones."""


def _finite(x: Any, inf: bool) -> bool:
    if not isinstance(x, Tensor):
        return not isinstance(x, float) or x == x
    if not x.dtype.is_inexact or x._interpreter is not None:
        return True
    array = x.to_host()
    bad = np.isnan(array) if not inf else ~np.isfinite(array)
    return not bad.any()


def _summary(name: str, x: Any) -> str:
    if not isinstance(x, Tensor):
        return f"{name} = {x!r}"
    array = np.asarray(x.to_host())
    if not array.size:
        return f"{name}: {x.dtype.name} {tuple(x.shape)}, empty"
    wide = array.astype(np.complex128 if x.dtype.is_complex else np.float64)
    size = np.abs(wide) if x.dtype.is_complex else wide
    return (
        f"{name}: {x.dtype.name} {tuple(x.shape)}, from {size.min():.6g} to "
        f"{size.max():.6g}"
    )


@contextmanager
def detect_anomaly(*, nan: bool = True, inf: bool = True) -> Iterator[None]:
    """Raise at the first operator that makes a non-finite value from finite ones.

    Forward and backward operators are both watched. ``inf=False`` looks for NaN
    only.

    >>> with weft.autograd.detect_anomaly():
    ...     weft.log(weft.tensor([-1.0]))
    Traceback (most recent call last):
    weft.autograd.anomaly.AnomalyError: log made a non-finite value ...
    """

    def watch(op: Any, args: tuple[Any, ...], params: Any, out: Any) -> None:
        outs = out if type(out) is tuple else (out,)
        if all(_finite(o, inf) for o in outs):
            return
        if not all(_finite(a, inf) for a in args):
            return
        raise AnomalyError(_report(op, args, params, outs))

    if not nan and not inf:
        yield
        return
    with observe(watch):
        yield


def _report(op: Any, args: Any, params: Any, outs: Any) -> str:
    names = [f"input {k}" for k in range(len(args))]
    if len(op.inputs) == len(args):
        names = list(op.inputs)
    lines = [_summary(n, a) for n, a in zip(names, args, strict=True)]
    if params:
        lines.append(", ".join(f"{k}={v!r}" for k, v in params.items()))
    bad = next(o for o in outs if not _finite(o, True)).to_host()
    count = int((~np.isfinite(bad)).sum())
    text = f"{op.name} made a non-finite value from finite ones ({count} of {bad.size})"
    node = current_backward()
    if node is not None:
        text += f", in the backward of {node.name!r}"
    text += "".join(f"\n  {line}" for line in lines)
    if node is not None:
        text += f"\n  forward at {describe_line(node.code, node.lasti)}"
    return text
