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

from weft.core.mode import mode as modes
from weft.core.mode import set_watchers
from weft.core.tape import current_backward
from weft.core.tensor import Tensor
from weft.errors import AutogradError, describe_line

Wanted = tuple[bool, bool]  # whether NaN, infinities are looked for


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
def detect_anomaly(check_nan: bool = True, *, check_inf: bool = True) -> Iterator[None]:
    """Raise at the first operator that makes a non-finite value from finite ones.

    Forward and backward operators are both watched. ``check_inf=False`` looks for NaN
    only.

    >>> with weft.autograd.detect_anomaly():
    ...     weft.log(weft.tensor([-1.0]))
    Traceback (most recent call last):
    weft.autograd.anomaly.AnomalyError: log made a non-finite value ...
    """
    switch = set_detect_anomaly(True, check_nan, check_inf=check_inf)
    try:
        yield
    finally:
        switch.__exit__()


class set_detect_anomaly:
    """Look for operators that make non-finite values, or stop looking.

    It holds from now on in this thread, or for a block: eagerly, in compiled programs
    and for optimizers. Programs look at their results alone, which costs little; only
    where these are not finite, the program runs once more operator by operator.

    >>> with weft.autograd.set_detect_anomaly(True):
    ...     weft.compile(lambda x: x.log())(weft.tensor([-1.0]))
    Traceback (most recent call last):
    weft.autograd.anomaly.AnomalyError: log made a non-finite value ...
    """

    def __init__(
        self, mode: bool, check_nan: bool = True, *, check_inf: bool = True
    ) -> None:
        self.before = modes.anomaly
        switch_anomaly(
            (check_nan, check_inf) if mode and (check_nan or check_inf) else None
        )

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        switch_anomaly(self.before)


def is_anomaly_enabled() -> bool:
    """Whether non-finite values are looked for.

    >>> weft.autograd.is_anomaly_enabled()
    False
    """
    return modes.anomaly is not None


def switch_anomaly(wanted: Wanted | None) -> None:
    """Look for non-finite values of these kinds (None: of none)."""
    others = tuple(o for o in modes.observers if o is not _watch)
    modes.anomaly = wanted
    watching = others if wanted is None else (*others, _watch)
    set_watchers(watching, modes.evaluator, vars(modes).get("measured"))


def _watch(op: Any, args: tuple[Any, ...], params: Any, out: Any) -> None:
    outs = out if type(out) is tuple else (out,)
    if modes.anomaly is not None:
        error = anomaly_of(op, args, params, outs, modes.anomaly)
        if error is not None:
            raise error


def anomaly_of(
    op: Any, args: Any, params: Any, outs: Any, wanted: Wanted, node: Any = None
) -> AnomalyError | None:
    """The error of an operator that made a non-finite value from finite ones.

    ``node`` is the operator's node in its program.
    """
    _, inf = wanted
    if all(_finite(o, inf) for o in outs) or not all(_finite(a, inf) for a in args):
        return None
    text = _report(op, args, params, outs)
    if node is not None:
        text += f"\n  in node {node.name!r}, made at {node.line}"
    return AnomalyError(text)


def check_step(name: str, before: list[Any], params: list[Tensor]) -> None:
    """Refuse an optimizer's step that made a parameter non-finite from finite ones."""
    if modes.anomaly is None:
        return
    _, inf = modes.anomaly
    for k, (old, p) in enumerate(zip(before, params, strict=True)):
        if _finite(p, inf):
            continue
        if _finite(Tensor(old), inf) and _finite(p.grad, inf):
            lines = [_summary("parameter", Tensor(old)), _summary("gradient", p.grad)]
            text = f"{name} made a non-finite value of parameter {k} from finite ones"
            raise AnomalyError(text + "".join(f"\n  {line}" for line in lines))


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
