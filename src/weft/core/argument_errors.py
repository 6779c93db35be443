"""Clear words for arguments of a foreign type, at no cost to right ones.

A function's annotations say what its arguments are. They are only read once the
function has failed with one of Python's own errors: then the argument that is
not what its annotation says is named.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from weft import late
from weft.core.tensor import Tensor
from weft.errors import ArgumentError, DTypeError, WeftError

_KINDS: dict[str, tuple[Any, str]] = {
    "Tensor": (Tensor, "a tensor"),
    "int": (int, "an int"),
    "int | None": ((int, type(None)), "an int"),
    "float": ((int, float), "a number"),
    "Sequence[Tensor]": ((list, tuple), "a list of tensors"),
}


def guarded(fn: Callable[..., Any]) -> Callable[..., Any]:
    """``fn``, with the culprit named where Python itself refuses an argument.

    >>> weft.topk([1, 2], 1)
    Traceback (most recent call last):
    weft.errors.DTypeError: topk: expected `input` to be a tensor, got list
    """

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return fn(*args, **kwargs)
        except (AttributeError, TypeError, ValueError, ZeroDivisionError) as error:
            if isinstance(error, WeftError):
                raise
            renamed = kwargs and other_names(fn, kwargs)
            if renamed:
                return renamed(*args)
            clear = _culprit(fn, args, kwargs, error)
            if clear is None:
                raise
        raise clear

    call.__module__ = "weft"
    return call


# PyTorch takes NumPy's names for these arguments.
_NUMPY = {
    "axis": "dim", "keepdims": "keepdim", "x": "input", "a": "input", "x1": "input",
    "x2": "other",
}  # fmt: skip


def other_names(fn: Callable[..., Any], kwargs: dict[str, Any]) -> Any:
    """The call with NumPy's names of arguments and ``out``, if that is what it has."""
    known = inspect.signature(fn).parameters
    given = {
        _NUMPY[k] if k not in known and _NUMPY.get(k) in known else k: value
        for k, value in kwargs.items()
    }
    has_out = "out" in given and "out" not in known
    out = given.pop("out") if has_out else None
    if not has_out and given.keys() == kwargs.keys():
        return None

    def call(*args: Any) -> Any:
        result = fn(*args, **given)
        return result if out is None else write(out, result, fn.__name__)

    write = late.find("write_out")
    return call


def _culprit(
    fn: Callable[..., Any], args: Any, kwargs: Any, error: Exception
) -> WeftError | None:
    try:
        bound = inspect.signature(fn).bind(*args, **kwargs)
    except TypeError:  # the call itself does not fit; Python says how
        return None
    for name, value in bound.arguments.items():
        kind, words = _KINDS.get(fn.__annotations__.get(name, ""), (object, ""))
        if not isinstance(value, kind):
            got = type(value).__name__
            return DTypeError(
                f"{fn.__name__}: expected `{name}` to be {words}, got {got}"
            )
    if isinstance(error, AttributeError):
        return None  # no argument's fault
    given = ", ".join(type(v).__name__ for v in bound.arguments.values())
    family = DTypeError if isinstance(error, TypeError) else ArgumentError
    return family(f"{fn.__name__}: cannot take ({given}): {error}")


def guard(namespace: dict[str, Any]) -> None:
    """Guard a namespace's functions of tensors, aliases alike."""
    for name, fn in list(namespace.items()):
        if takes_tensor(fn):
            if fn not in _MADE:
                _MADE[fn] = guarded(fn)
                _MADE[fn].__qualname__ = name  # where pickles find it, in weft
            namespace[name] = _MADE[fn]


_MADE: dict[Any, Any] = {}  # the guarded functions by what they guard


def takes_tensor(fn: Any) -> bool:
    """Whether a function's first argument must be a tensor (or tensors).

    Functions made by the builders of element-wise operators check their own.
    """
    if not inspect.isfunction(fn) or "op" in vars(fn):
        return False
    name, kind = next(iter(fn.__annotations__.items()), ("return", ""))
    return name != "return" and kind in ("Tensor", "Sequence[Tensor]")
