"""The parts that functions of floats are made of.

Every function of this package is written once, with values (``emit.values``), and
serves float32, float64 and their vectors.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from llvmlite import ir

from weft.compile.emit.control_flow import F32
from weft.compile.emit.values import (
    DOUBLE,
    SINGLE,
    Value,
    element_of,
    fma,
    intrinsic,
    select,
)

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


def cut(value: int, scale: int, parts: Sequence[int]) -> list[float]:
    """``value * 2**-scale`` as a sum of numbers of so many bits each, from the top."""
    found, place = [], value.bit_length()
    for bits in parts:
        place -= bits
        head = value >> place
        found.append(math.ldexp(head, place - scale))
        value -= head << place
    return found


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
