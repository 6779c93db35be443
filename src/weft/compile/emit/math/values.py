"""Numbers in generated code that read like numbers.

A ``Value`` is a float or an integer in the code being built, or a vector of them;
``x * y + 1`` emits the instructions. Every function of this package is written once,
with values, and serves float32, float64 and their vectors.
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from llvmlite import ir

from weft.compile.emit.control_flow import F32, F64

# Whether the target is known to have fused products; without, fma may round twice.
_FUSED: ContextVar[bool] = ContextVar("fused", default=False)


@contextmanager
def fused_products(there: bool) -> Iterator[None]:
    """Emit code for a target with, or perhaps without, a fused multiply-add."""
    token = _FUSED.set(there)
    try:
        yield
    finally:
        _FUSED.reset(token)


class Format:
    """A floating-point format: float32 or float64."""

    def __init__(self, bits: int, fraction: int) -> None:
        self.bits, self.fraction = bits, fraction
        self.bias = (1 << (bits - fraction - 2)) - 1
        self.int_type = ir.IntType(bits)
        self.sign_mask = -1 << (bits - 1)
        self.smallest_normal = math.ldexp(1.0, 1 - self.bias)
        self.largest = math.ldexp(2.0 - math.ldexp(1.0, -fraction), self.bias)
        # added to a small number, it leaves the nearest integer in the low bits
        self.magic = math.ldexp(1.5, fraction)

    def bits_of(self, value: float) -> int:
        """The pattern of a number."""
        kinds = "<fi" if self.bits == 32 else "<dq"
        return struct.unpack("<" + kinds[2], struct.pack(kinds[:2], value))[0]

    def short(self, value: float) -> float:
        """A number cut to half its bits."""
        drop = self.fraction // 2 + 2
        kinds = "<fi" if self.bits == 32 else "<dq"
        pattern = self.bits_of(value) >> drop << drop
        return struct.unpack(kinds[:2], struct.pack("<" + kinds[2], pattern))[0]


def cut(value: int, scale: int, parts: Sequence[int]) -> list[float]:
    """``value * 2**-scale`` as a sum of numbers of so many bits each, from the top."""
    found, place = [], value.bit_length()
    for bits in parts:
        place -= bits
        head = value >> place
        found.append(math.ldexp(head, place - scale))
        value -= head << place
    return found


SINGLE, DOUBLE = Format(32, 23), Format(64, 52)


def shaped(like: Any, element: Any) -> Any:
    """The type with ``like``'s number of lanes and another element."""
    if isinstance(like, ir.VectorType):
        return ir.VectorType(element, like.count)
    return element


def constant(type: Any, value: Any) -> Any:
    """A constant of a type; the same in each lane of a vector."""
    if isinstance(type, ir.VectorType):
        return ir.Constant(type, [value] * type.count)
    return ir.Constant(type, value)


def element_of(type: Any) -> Any:
    return type.element if isinstance(type, ir.VectorType) else type


class Value:
    """A number in generated code: the builder and LLVM's value."""

    __slots__ = ("b", "ir")

    def __init__(self, b: Any, ir: Any) -> None:
        self.b, self.ir = b, ir

    # -- what it is

    @property
    def type(self) -> Any:
        return self.ir.type

    @property
    def format(self) -> Format:
        """The floating-point format."""
        return DOUBLE if element_of(self.type) == F64 else SINGLE

    @property
    def is_float(self) -> bool:
        return not isinstance(element_of(self.type), ir.IntType)

    def like(self, value: Any) -> Value:
        """A Python number as a constant beside this value."""
        if isinstance(value, Value):
            return value
        return Value(self.b, constant(self.type, value))

    # -- arithmetic

    def _apply(self, float_op: str, int_op: str, other: Any) -> Value:
        emit = getattr(self.b, float_op if self.is_float else int_op)
        return Value(self.b, emit(self.ir, self.like(other).ir))

    def __add__(self, other: Any) -> Value:
        return self._apply("fadd", "add", other)

    def __sub__(self, other: Any) -> Value:
        return self._apply("fsub", "sub", other)

    def __mul__(self, other: Any) -> Value:
        return self._apply("fmul", "mul", other)

    def __radd__(self, other: Any) -> Value:
        return self.like(other) + self

    def __rsub__(self, other: Any) -> Value:
        return self.like(other) - self

    def __rmul__(self, other: Any) -> Value:
        return self.like(other) * self

    def __truediv__(self, other: Any) -> Value:
        return Value(self.b, self.b.fdiv(self.ir, self.like(other).ir))

    def __rtruediv__(self, other: Any) -> Value:
        return self.like(other) / self

    def __neg__(self) -> Value:
        return Value(self.b, self.b.fneg(self.ir) if self.is_float else (0 - self).ir)

    # -- bits

    def __and__(self, other: Any) -> Value:
        return self._apply("", "and_", other)

    def __or__(self, other: Any) -> Value:
        return self._apply("", "or_", other)

    def __xor__(self, other: Any) -> Value:
        return self._apply("", "xor", other)

    def __lshift__(self, other: Any) -> Value:
        return self._apply("", "shl", other)

    def __rshift__(self, other: Any) -> Value:
        return self._apply("", "ashr", other)

    def shift_right(self, other: Any) -> Value:
        """A shift that fills with zeros."""
        return self._apply("", "lshr", other)

    def __invert__(self) -> Value:
        return Value(self.b, self.b.not_(self.ir))

    # -- comparison: an i1, false if a NaN takes part

    def _compare(self, sign: str, other: Any) -> Value:
        b = self.b
        emit = b.fcmp_ordered if self.is_float else b.icmp_signed
        return Value(b, emit(sign, self.ir, self.like(other).ir))

    def __lt__(self, other: Any) -> Value:
        return self._compare("<", other)

    def __le__(self, other: Any) -> Value:
        return self._compare("<=", other)

    def __gt__(self, other: Any) -> Value:
        return self._compare(">", other)

    def __ge__(self, other: Any) -> Value:
        return self._compare(">=", other)

    def equals(self, other: Any) -> Value:
        return self._compare("==", other)

    def is_nan(self) -> Value:
        return Value(self.b, self.b.fcmp_unordered("uno", self.ir, self.ir))

    # -- other views

    def bits(self) -> Value:
        """A float's pattern as an integer."""
        type = shaped(self.type, self.format.int_type)
        return Value(self.b, self.b.bitcast(self.ir, type))

    def as_float(self) -> Value:
        """The float with this pattern."""
        element = F64 if element_of(self.type).width == 64 else F32
        return Value(self.b, self.b.bitcast(self.ir, shaped(self.type, element)))

    def convert(self, how: str, element: Any) -> Value:
        """LLVM's conversion of that name (``fpext``, ``sitofp``, ...)."""
        emit = getattr(self.b, how)
        return Value(self.b, emit(self.ir, shaped(self.type, element)))

    def to_double(self) -> Value:
        return self.convert("fpext", F64)

    def to_single(self) -> Value:
        return self.convert("fptrunc", F32)


# -- functions of values


def intrinsic(name: str, *args: Value) -> Value:
    """One of LLVM's own functions whose arguments and result have one type."""
    b, type = args[0].b, args[0].type
    element = element_of(type)
    suffix = f"f{64 if element == F64 else 32}" if args[0].is_float else str(element)
    if isinstance(type, ir.VectorType):
        suffix = f"v{type.count}{suffix}"
    full = f"llvm.{name}.{suffix}"
    function = b.module.globals.get(full)
    if function is None:
        signature = ir.FunctionType(type, [type] * len(args))
        function = ir.Function(b.module, signature, full)
    return Value(b, b.call(function, [x.ir for x in args]))


def fma(x: Value, y: Any, z: Any) -> Value:
    """``x * y + z``: one instruction and one rounding where the target has it."""
    return intrinsic("fmuladd", x, x.like(y), x.like(z))


def select(condition: Value, yes: Any, no: Any) -> Value:
    """``yes`` where the condition holds, else ``no``; one of them is a Value."""
    like = yes if isinstance(yes, Value) else no
    b = condition.b
    return Value(b, b.select(condition.ir, like.like(yes).ir, like.like(no).ir))


def horner(x: Value, coefficients: Sequence[float]) -> Value:
    """A polynomial, its lowest coefficient first.

    One step after another: kernels wait for arithmetic, not for results, so that
    Estrin's pairs, measured, gain nothing and cost accuracy.
    """
    total = x.like(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        total = fma(total, x, c)
    return total


def absolute(x: Value) -> Value:
    return (x.bits() & ~x.format.sign_mask).as_float()


def sign_bits(x: Value) -> Value:
    """The sign's bit alone, as an integer."""
    return x.bits() & x.format.sign_mask


def flip_sign(x: Value, sign: Value) -> Value:
    """x, negated where a sign's bit is set."""
    return (x.bits() ^ sign).as_float()


def with_sign(size: Value, sign: Value) -> Value:
    """A value whose sign is plus, with the sign of another."""
    return (size.bits() | sign_bits(sign)).as_float()


def copysign(x: Value, y: Value) -> Value:
    return with_sign(absolute(x), y)


def at_most(x: Value, limit: float) -> Value:
    """x or the limit; a NaN stays."""
    return select(x > limit, limit, x)


def at_least(x: Value, limit: float) -> Value:
    """x or the limit; a NaN stays."""
    return select(x < limit, limit, x)


def nearest(x: Value, factor: float = 1.0) -> tuple[Value, Value]:
    """The whole number nearest to ``x * factor``, as a float and as an integer."""
    magic = x.format.magic
    shifted = x + magic if factor == 1 else fma(x, factor, magic)
    return shifted - magic, shifted.bits() - x.format.bits_of(magic)


def power_of_two(k: Value) -> Value:
    """``2**k`` for an integer k in the range of normal numbers."""
    format = DOUBLE if element_of(k.type).width == 64 else SINGLE
    return ((k + format.bias) << format.fraction).as_float()


def head(x: Value, bits: int) -> Value:
    """x without its last bits, so that a product of two heads is exact."""
    return (x.bits() & (-1 << bits)).as_float()


def rarely(
    condition: Value, usual: Value, name: str, rare: Callable[..., Value], *args: Value
) -> Value:
    """``rare(*args)`` in the lanes where the condition holds, ``usual`` in the others.

    The one place that branches. The rare code is a function of its own, for scalars,
    that is called by name for each lane that needs it: so it is compiled once, and
    LLVM does not fold it into the loops that it turns into vectors.
    """
    b = condition.b
    function = _scalar_function(name, rare, args)
    if not isinstance(usual.type, ir.VectorType):
        return _called_if(condition, usual, function, args)
    mask = b.bitcast(condition.ir, ir.IntType(usual.type.count))
    return _branched(
        b, b.icmp_unsigned("!=", mask, ir.Constant(mask.type, 0)), usual,
        lambda: _by_lane(condition, usual, function, args),
    )  # fmt: skip


def _branched(b: Any, test: Any, usual: Value, rare: Callable[[], Value]) -> Value:
    """``rare()`` if the test (an i1) holds, else ``usual``."""
    before = b.block
    with b.if_then(test, likely=False):
        other = rare()
        inside = b.block
    phi = b.phi(usual.type)
    phi.add_incoming(usual.ir, before)
    phi.add_incoming(other.ir, inside)
    return Value(b, phi)


def _called_if(
    condition: Value, usual: Value, function: Any, args: Sequence[Value]
) -> Value:
    b = usual.b
    call = functools.partial(b.call, function, [x.ir for x in args])
    return _branched(b, condition.ir, usual, lambda: Value(b, call()))


def _by_lane(
    condition: Value, usual: Value, function: Any, args: Sequence[Value]
) -> Value:
    b, out = usual.b, usual
    for lane in range(usual.type.count):
        at = ir.Constant(ir.IntType(32), lane)
        test, old, *scalars = (
            Value(b, b.extract_element(x.ir, at)) for x in (condition, usual, *args)
        )
        new = _called_if(test, old, function, scalars)
        out = Value(b, b.insert_element(out.ir, new.ir, at))
    return out


def _scalar_function(name: str, rare: Callable[..., Value], args: Any) -> Any:
    """A function of scalars of the module, made when first asked for."""
    b, element = args[0].b, element_of(args[0].type)
    full = f"weft.{name}.f{args[0].format.bits}"
    function = b.module.globals.get(full)
    if function is None:
        signature = ir.FunctionType(element, [element] * len(args))
        function = ir.Function(b.module, signature, full)
        function.linkage = "internal"
        for text in ("noinline", "nounwind", "willreturn", "memory(none)"):
            set.add(function.attributes, text)  # llvmlite knows some of them only
        inner = ir.IRBuilder(function.append_basic_block("entry"))
        inner.ret(rare(*[Value(inner, x) for x in function.args]).ir)
    return function


def in_double(fn: Callable[..., Value]) -> Callable[..., Value]:
    """A function that is evaluated in float64 for float32 too.

    It is told how accurate to be: float64 (64), or enough for float32 (48).
    """

    @functools.wraps(fn)
    def widened(*args: Value) -> Value:
        if args[0].format is DOUBLE:
            return fn(*args, accuracy=64)
        return fn(*[x.to_double() for x in args], accuracy=48).to_single()

    return widened


def square_root(x: Value) -> Value:
    return intrinsic("sqrt", x)


def float_of(k: Value) -> Value:
    """A small integer as a float of the same width."""
    if element_of(k.type).width == 32:
        return k.convert("sitofp", F32)
    magic = DOUBLE.magic  # below AVX-512, x86 has no conversion from 64 bits
    return (k + DOUBLE.bits_of(magic)).as_float() - magic


# -- twice the precision: numbers as unevaluated sums (high, low)

Pair = tuple[Value, Value]


def exact_sum(x: Value, y: Value) -> Pair:
    """x + y and what its rounding lost, for ``|x| >= |y|`` or x = 0."""
    total = x + y
    return total, y - (total - x)


def exact_product(x: Value, y: Value) -> Pair:
    """x * y and what its rounding lost: by one fused product, or Dekker's way."""
    total = x * y
    if _FUSED.get():
        return total, intrinsic("fma", x, y, -total)
    half = x.format.fraction // 2 + 1
    x_high, y_high = head(x, half), head(y, half)
    x_low, y_low = x - x_high, y - y_high
    lost = fma(x_high, y_high, -total)
    lost = fma(x_low, y_high, fma(x_high, y_low, lost))
    return total, fma(x_low, y_low, lost)


def pair_product(x: Pair, y: Pair) -> Pair:
    high, low = exact_product(x[0], y[0])
    low = fma(x[0], y[1], fma(x[1], y[0], low))
    return exact_sum(high, low)
