"""Data types: questions about them, conversion, and what this namespace offers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from weft import dtype as dtypes
from weft import dtype_info
from weft.array_api._common import Array, check_array, common_dtype
from weft.core.device import cpu, devices
from weft.core.device import device as find_device
from weft.core.tensor import Tensor
from weft.dtype import DType, as_dtype, promote_types
from weft.errors import ArgumentError, DTypeError
from weft.ops import copies

KINDS: dict[str, tuple[DType, ...]] = {
    "bool": (dtypes.bool_,),
    "signed integer": (dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64),
    "unsigned integer": (dtypes.uint8, dtypes.uint16, dtypes.uint32, dtypes.uint64),
    "real floating": (dtypes.float32, dtypes.float64),
    "complex floating": (dtypes.complex64, dtypes.complex128),
}
KINDS["integral"] = KINDS["signed integer"] + KINDS["unsigned integer"]
KINDS["numeric"] = (
    KINDS["integral"] + KINDS["real floating"] + KINDS["complex floating"]
)
# Types outside the standard still have a kind.
_EXTRA = {
    "real floating": (dtypes.float16, dtypes.bfloat16),
    "numeric": (dtypes.float16, dtypes.bfloat16),
}


@dataclass(frozen=True)
class FInfo:
    """The limits of a floating-point type."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


@dataclass(frozen=True)
class IInfo:
    """The limits of an integer type."""

    bits: int
    max: int
    min: int
    dtype: DType


def _dtype_of(value: Any) -> DType:
    return value.dtype if isinstance(value, Tensor) else as_dtype(value)


def astype(x: Array, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Array:
    """The array converted to a dtype; a copy unless ``copy=False`` allows none.

    >>> weft.array_api.astype(weft.tensor([1.7]), weft.int64)
    tensor([1])
    """
    wanted = as_dtype(dtype)
    if x.dtype.is_complex and not wanted.is_complex:
        raise DTypeError(
            f"astype: {x.dtype.name} cannot become {wanted.name}; take real(x) or "
            "imag(x) first"
        )
    out = copies.cast(check_array("astype", x), wanted)
    if device is not None:
        out = out.to(find_device(device))
    return copies.clone(out) if copy and out is x else out


def can_cast(from_: Any, to: Any, /) -> bool:
    """Whether a dtype (or an array's) becomes the other by type promotion.

    >>> weft.array_api.can_cast(weft.int32, weft.int64)
    True
    """
    have, wanted = _dtype_of(from_), as_dtype(to)
    try:
        return promote_types(have, wanted) is wanted
    except DTypeError:  # no dtype holds both, as of int8 and uint64
        return False


def finfo(type: Any, /) -> FInfo:
    """The limits of a floating-point dtype (or of an array's).

    >>> weft.array_api.finfo(weft.float32).bits
    32
    """
    dtype = _dtype_of(type)
    info = dtype_info.finfo(dtype)
    limits = (info.bits, info.eps, info.max, info.min, info.smallest_normal)
    return FInfo(*limits, dtype.to_real())


def iinfo(type: Any, /) -> IInfo:
    """The limits of an integer dtype (or of an array's).

    >>> weft.array_api.iinfo(weft.int8).max
    127
    """
    dtype = _dtype_of(type)
    info = dtype_info.iinfo(dtype)
    return IInfo(info.bits, info.max, info.min, dtype)


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether a dtype is of a kind, is another dtype, or is one of several.

    >>> weft.array_api.isdtype(weft.float32, ("integral", "real floating"))
    True
    """
    chosen = as_dtype(dtype)
    if isinstance(kind, tuple):
        return any(isdtype(chosen, one) for one in kind)
    if isinstance(kind, DType):
        return chosen is kind
    return chosen in _of_kind(kind) + _EXTRA.get(kind, ())


def _of_kind(kind: Any) -> tuple[DType, ...]:
    if not isinstance(kind, str) or kind not in KINDS:
        known = ", ".join(repr(k) for k in KINDS)
        raise ArgumentError(f"expected a dtype or one of {known}, got {kind!r}")
    return KINDS[kind]


def result_type(*arrays_and_dtypes: Any) -> DType:
    """The dtype that arrays, dtypes and Python numbers have in common.

    >>> weft.array_api.result_type(weft.tensor(1.0), weft.float64)
    weft.float64
    """
    return common_dtype("result_type", *arrays_and_dtypes)


class Info:
    """The result of ``weft.array_api.__array_namespace_info__()``.

    >>> weft.array_api.__array_namespace_info__().default_device()
    device(type='cpu')
    """

    def capabilities(self) -> dict[str, Any]:
        """The standard's optional behaviours.

        >>> info = weft.array_api.__array_namespace_info__()
        >>> info.capabilities()["boolean indexing"]
        True
        """
        return {
            "boolean indexing": True,
            "data-dependent shapes": True,
            "max dimensions": 64,
        }

    def default_device(self) -> Any:
        """The device of new arrays that name none.

        >>> weft.array_api.__array_namespace_info__().default_device()
        device(type='cpu')
        """
        return cpu

    def default_dtypes(self, *, device: Any = None) -> dict[str, DType]:
        """The dtypes given to Python numbers and indices.

        >>> weft.array_api.__array_namespace_info__().default_dtypes()["integral"]
        weft.int64
        """
        real = dtypes.default_dtype()
        return {
            "real floating": real,
            "complex floating": real.to_complex(),
            "integral": dtypes.int64,
            "indexing": dtypes.int64,
        }

    def devices(self) -> list[Any]:
        """Every device of this process.

        >>> weft.array_api.__array_namespace_info__().devices()
        [device(type='cpu')]
        """
        return devices()

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, DType]:
        """The standard's dtypes, by name.

        >>> weft.array_api.__array_namespace_info__().dtypes(kind="bool")
        {'bool': weft.bool}
        """
        if kind is None:
            kind = ("bool", "numeric")
        kinds = kind if isinstance(kind, tuple) else (kind,)
        return {d.name: d for one in kinds for d in _of_kind(one)}


def __array_namespace_info__() -> Info:
    """The capabilities, devices and dtypes of this namespace.

    >>> sorted(weft.array_api.__array_namespace_info__().dtypes(kind="bool"))
    ['bool']
    """
    return Info()
