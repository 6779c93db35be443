"""Element types, and PyTorch's rules for combining them.

A ``DType`` wraps one NumPy dtype. Mixed operands are promoted by category
(bool < integer < floating < complex); inside a category the wider type wins,
and a pair with no common member (float16 with bfloat16, uint8 with int8) goes
to the smallest type that holds both. There is none for uint64 with a signed type,
which is refused.

>>> weft.promote_types(weft.float16, weft.bfloat16), isinstance(weft.int8, weft.dtype)
(weft.float32, True)
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np

from weft import naming
from weft.errors import DTypeError

BOOL, INT, FLOAT, COMPLEX = range(4)


class DType:
    """One element type, such as ``weft.float32``.

    >>> weft.float32.itemsize, weft.float32.is_floating_point
    (4, True)
    """

    __slots__ = ("category", "itemsize", "name", "np")

    def __init__(self, name: str, np_dtype: Any, category: int) -> None:
        self.name = name
        self.np = np.dtype(np_dtype)
        self.itemsize = self.np.itemsize
        self.category = category

    @property
    def is_floating_point(self) -> bool:
        return self.category == FLOAT

    @property
    def is_complex(self) -> bool:
        return self.category == COMPLEX

    @property
    def is_inexact(self) -> bool:
        return self.category >= FLOAT

    @property
    def is_signed(self) -> bool:
        return self.category != BOOL and self.np.kind != "u"

    def to_real(self) -> DType:
        """The type of this type's real part."""
        return {"complex64": float32, "complex128": float64}.get(self.name, self)

    def to_total(self) -> DType:
        """The type that sums and products of many elements are made in."""
        return {"float16": float32, "bfloat16": float32}.get(self.name, self)

    def to_complex(self) -> DType:
        """The complex type whose parts have this type's precision."""
        return complex128 if self.name in ("float64", "complex128") else complex64

    def __repr__(self) -> str:
        return f"{naming.library()}.{self.name}"

    @property
    def abbr(self) -> str:
        """A short name, such as ``f32`` and ``i64``.

        >>> weft.float32.abbr, weft.bool.abbr, weft.complex64.abbr
        ('f32', 'b8', 'c64')
        """
        if self.name in ("bool", "bfloat16"):
            return {"bool": "b8", "bfloat16": "bf16"}[self.name]
        return f"{self.name[0]}{8 * self.itemsize}"

    def __reduce__(self) -> tuple[Any, ...]:
        return (as_dtype, (self.name,))

    def __deepcopy__(self, memo: object) -> DType:
        return self


bool_ = DType("bool", np.bool_, BOOL)
uint8 = DType("uint8", np.uint8, INT)
uint16 = DType("uint16", np.uint16, INT)
uint32 = DType("uint32", np.uint32, INT)
uint64 = DType("uint64", np.uint64, INT)
int8 = DType("int8", np.int8, INT)
int16 = DType("int16", np.int16, INT)
int32 = DType("int32", np.int32, INT)
int64 = DType("int64", np.int64, INT)
float16 = DType("float16", np.float16, FLOAT)
bfloat16 = DType("bfloat16", ml_dtypes.bfloat16, FLOAT)
float32 = DType("float32", np.float32, FLOAT)
float64 = DType("float64", np.float64, FLOAT)
complex64 = DType("complex64", np.complex64, COMPLEX)
complex128 = DType("complex128", np.complex128, COMPLEX)

ALL: tuple[DType, ...] = (
    bool_, uint8, int8, int16, int32, int64, uint16, uint32, uint64,
    float16, bfloat16, float32, float64, complex64, complex128,
)  # fmt: skip


class Named(DType):
    """A type that programs name and compare with, but that no tensor here has."""

    __slots__ = ()


float8_e4m3fn = Named("float8_e4m3fn", ml_dtypes.float8_e4m3fn, FLOAT)
float8_e4m3fnuz = Named("float8_e4m3fnuz", ml_dtypes.float8_e4m3fnuz, FLOAT)
float8_e5m2 = Named("float8_e5m2", ml_dtypes.float8_e5m2, FLOAT)
float8_e5m2fnuz = Named("float8_e5m2fnuz", ml_dtypes.float8_e5m2fnuz, FLOAT)
float8_e8m0fnu = Named("float8_e8m0fnu", ml_dtypes.float8_e8m0fnu, FLOAT)

_BY_NP: dict[Any, DType] = {d.np: d for d in ALL}
_BY_NAME: dict[str, DType] = {d.name: d for d in ALL} | {
    "float": float32, "double": float64, "half": float16, "int": int32,
    "long": int64, "short": int16, "cfloat": complex64, "cdouble": complex128,
}  # fmt: skip
_BY_PYTHON: dict[Any, DType] = {bool: bool_, int: int64}

# One-letter NumPy codes of the types on which calculus works.
INEXACT_CODES = "fdeEFD"
assert bfloat16.np.char == "E"


def as_dtype(spec: Any) -> DType:
    """The ``DType`` meant by a DType, a NumPy dtype, a Python type or a name.

    >>> weft.dtype.as_dtype("float32")
    weft.float32
    """
    if type(spec) is DType:
        return spec
    if isinstance(spec, Named):
        raise DTypeError(
            f"{spec.name}: there are no tensors of this type here yet; use "
            "weft.bfloat16 or weft.float16"
        )
    if spec is float:
        return default_dtype()
    if spec is complex:
        return default_dtype().to_complex()
    found = _BY_PYTHON.get(spec) if isinstance(spec, type) else None
    if found is None and isinstance(spec, str):
        found = _BY_NAME.get(spec.removeprefix("weft.").removeprefix("torch."))
    elif found is None and spec is not None:
        try:
            found = _BY_NP.get(np.dtype(spec))
        except (TypeError, ValueError):
            found = None
    if found is None:
        known = ", ".join(d.name for d in ALL)
        raise DTypeError(f"unknown dtype {spec!r}; expected one of {known}")
    return found


def sortable(array: Any) -> Any:
    """An array that NumPy sorts: bfloat16 becomes float32, of which it knows NaN.

    >>> weft.dtype.sortable(weft.ones(2, dtype=weft.bfloat16).numpy()).dtype
    dtype('float32')
    """
    return array.astype(np.float32) if array.dtype == bfloat16.np else array


def of_array(array: np.ndarray) -> DType:
    """The ``DType`` of a NumPy array; an array of a foreign dtype is refused."""
    found = _BY_NP.get(array.dtype)
    return found if found is not None else as_dtype(array.dtype)


def of_code(code: str) -> DType:
    """The ``DType`` with NumPy's one-letter code."""
    return next(d for d in ALL if d.np.char == code)


class _Default:
    value = float32


def default_dtype() -> DType:
    return _Default.value


def get_default_dtype() -> DType:
    """The floating type given to Python floats.

    >>> weft.get_default_dtype()
    weft.float32
    """
    return _Default.value


def set_default_dtype(d: Any) -> None:
    """Change the floating type given to Python floats.

    >>> weft.set_default_dtype(weft.float64)
    >>> weft.tensor(1.5).dtype
    weft.float64
    >>> weft.set_default_dtype(weft.float32)
    """
    chosen = as_dtype(d)
    if not chosen.is_floating_point:
        raise DTypeError(
            f"set_default_dtype: expected a floating-point dtype, got {chosen}"
        )
    _Default.value = chosen


def promote_types(type1: Any, type2: Any) -> DType:
    """The type that both types are converted to when they meet.

    >>> weft.promote_types(weft.int64, weft.float16)
    weft.float16
    """
    a, b = as_dtype(type1), as_dtype(type2)
    if a is b:
        return a
    if a.category != b.category:
        low, high = sorted((a, b), key=lambda d: d.category)
        if high is complex64 and low is float64:
            return complex128
        return high
    if a.category == INT:
        return _promote_ints(a, b)
    if {a, b} == {float16, bfloat16}:
        return float32
    return max(a, b, key=lambda d: d.itemsize)


def _promote_ints(a: DType, b: DType) -> DType:
    if a.is_signed == b.is_signed:
        return max(a, b, key=lambda d: d.itemsize)
    signed, other = (a, b) if a.is_signed else (b, a)
    for found in (signed, int16, int32, int64):
        if found.itemsize > other.itemsize and found.itemsize >= signed.itemsize:
            return found
    raise DTypeError(
        f"expected whole numbers of a common dtype, got {a.name} and {b.name}: none "
        f"holds both; convert one, for example with .to(weft.{signed.name})"
    )


def scalar_dtype(value: Any) -> DType:
    """The type that a bare Python number stands for."""
    if isinstance(value, bool):
        return bool_
    if isinstance(value, int):
        return int64
    if isinstance(value, float):
        return default_dtype()
    if isinstance(value, complex):
        return default_dtype().to_complex()
    fractional = getattr(value, "fractional", None)  # of a symbolic size
    if fractional is not None:
        return default_dtype() if fractional else int64
    raise DTypeError(f"expected a number, got {type(value).__name__}")


class _Module(ModuleType):
    """This module, which also stands for its class: PyTorch's ``dtype`` is the class.

    >>> isinstance(weft.float32, weft.dtype), weft.dtype | None
    (True, weft.dtype.DType | None)
    """

    def __instancecheck__(self, value: object) -> bool:
        return isinstance(value, DType)

    def __call__(self, *args: Any) -> DType:
        return DType(*args)

    def __or__(self, other: Any) -> Any:
        return DType | other

    def __ror__(self, other: Any) -> Any:
        return other | DType


sys.modules[__name__].__class__ = _Module
