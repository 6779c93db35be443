"""Initial values of parameters, from a name, a description or a function."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weft import as_tensor, empty
from weft.dtype import DType, default_dtype
from weft.errors import ArgumentError, DTypeError
from weft.layers.layer import _as_parameter
from weft.nn import init


def _xavier(tensor: Any, variance_norm: str = "FAN_IN") -> Any:
    """Caffe's: uniform, of variance ``1 / n``."""
    limit = math.sqrt(3 / _count(tensor, variance_norm))
    return init.uniform_(tensor, -limit, limit)


def _msra(tensor: Any, variance_norm: str = "FAN_IN") -> Any:
    """Caffe's: normal, of variance ``2 / n``."""
    return init.normal_(tensor, 0.0, math.sqrt(2 / _count(tensor, variance_norm)))


def _count(tensor: Any, variance_norm: str) -> float:
    """Caffe's n: the inputs of an output, the outputs of an input, or their mean."""
    inputs, outputs = init.calculate_fan_in_and_fan_out(tensor)
    known = {"FAN_IN": inputs, "FAN_OUT": outputs, "AVERAGE": (inputs + outputs) / 2}
    if variance_norm not in known:
        raise ArgumentError(
            f"filler: expected variance_norm to be one of {', '.join(known)}, got "
            f"{variance_norm!r}"
        )
    return known[variance_norm]


# Caffe's and tinynn's names, and the initialiser and option names behind them.
_NORM = {"variance_norm": "variance_norm"}
_NAMES: dict[str, tuple[Callable[..., Any], dict[str, str]]] = {
    "constant": (init.constant_, {"value": "val"}),
    "zeros": (init.zeros_, {}),
    "ones": (init.ones_, {}),
    "gaussian": (init.normal_, {"mean": "mean", "std": "std"}),
    "normal": (init.normal_, {"mean": "mean", "std": "std"}),
    "uniform": (init.uniform_, {"min": "a", "max": "b"}),
    "xavier": (_xavier, _NORM),
    "xavier_uniform": (init.xavier_uniform_, {}),
    "xavier_normal": (init.xavier_normal_, {}),
    "msra": (_msra, _NORM),
    "kaiming_uniform": (init.kaiming_uniform_, {}),
    "kaiming_normal": (init.kaiming_normal_, {}),
    "orthogonal": (init.orthogonal_, {}),
}


def filled(
    filler: Any,
    shape: Sequence[int],
    dtype: DType | None = None,
    transposed: bool = False,
) -> Any:
    """A parameter of this shape with its first values.

    ``filler`` is a name, a table such as ``{"type": "gaussian", "std": 0.01}``, or a
    function from the shape to a tensor. ``transposed`` says that the shape is
    (in, out), the other way round than the initialisers read it.

    >>> weft.layers.fillers.filled({"type": "constant", "value": 3}, (2,)).detach()
    tensor([3., 3.])
    """
    dtype = dtype or default_dtype()
    if callable(filler):
        return _as_parameter(_fitting(filler(list(shape)), shape).to(dtype))
    fill, options = _named(filler)
    value = empty(tuple(shape), dtype=dtype)
    fill(value.T if transposed else value, **options)
    return _as_parameter(value)


def _named(filler: Any) -> tuple[Callable[..., Any], dict[str, Any]]:
    table = {"type": filler} if isinstance(filler, str) else filler
    if not isinstance(table, Mapping) or "type" not in table:
        raise DTypeError(
            "filler: expected a name, a table with 'type', or a function of the shape, "
            f"got {filler!r}"
        )
    if table["type"] not in _NAMES:
        raise ArgumentError(
            f"filler: expected one of {', '.join(_NAMES)}, got {table['type']!r}"
        )
    function, names = _NAMES[table["type"]]
    unknown = [key for key in table if key != "type" and key not in names]
    if unknown:
        known = ", ".join(names) or "no options"
        raise ArgumentError(
            f"filler {table['type']!r}: unknown option {unknown[0]!r}; it takes {known}"
        )
    options = {names[key]: value for key, value in table.items() if key != "type"}
    if function is init.constant_:
        options.setdefault("val", 0.0)
    return function, options


def _fitting(value: Any, shape: Sequence[int]) -> Any:
    found = as_tensor(value)
    if found.shape != tuple(shape):
        raise ArgumentError(
            f"filler: expected a tensor of shape {tuple(shape)}, got {found.shape}"
        )
    return found
