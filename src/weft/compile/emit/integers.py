"""Whole numbers and truth values as LLVM instructions, with NumPy's meaning.

Sums and products wrap around. A division never traps: one by 0 gives some number (the
kernel reports it), and the smallest number divided by -1 stays as
it is. Powers and common divisors are loops, in functions of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from weft.compile.emit.control_flow import I1

Emit = Callable[..., Any]


def _of(x: Any, value: int) -> Any:
    return ir.Constant(x.type, value)


def _same(b: Any, x: Any) -> Any:
    return x


def _never(b: Any, x: Any) -> Any:
    return ir.Constant(I1, 0)


def _always(b: Any, x: Any) -> Any:
    return ir.Constant(I1, 1)


def true(b: Any, x: Any) -> Any:
    """Whether a number is not 0."""
    return b.icmp_signed("!=", x, _of(x, 0))


def _below_zero(b: Any, x: Any) -> Any:
    return b.icmp_signed("<", x, _of(x, 0))


def of_truth(name: str, true: Emit) -> Emit:
    """A logical function of values that ``true`` converts."""
    return lambda b, *args: BOOL[name](b, *[true(b, x) for x in args])


# -- division


def _divided(b: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """The quotient, rounded towards zero, and the remainder."""
    minus = b.icmp_signed("==", y, _of(y, -1))
    odd = b.or_(minus, b.icmp_signed("==", y, _of(y, 0)))
    safe = b.select(odd, _of(y, 1), y)
    return b.select(minus, b.neg(x), b.sdiv(x, safe)), b.srem(x, safe)


def _crosses(b: Any, rest: Any, y: Any) -> Any:
    """Whether a remainder is not 0 and its sign is not the divisor's."""
    return b.and_(true(b, rest), _below_zero(b, b.xor(rest, y)))


def _floor_divide(b: Any, x: Any, y: Any) -> Any:
    quotient, rest = _divided(b, x, y)
    return b.sub(quotient, b.zext(_crosses(b, rest, y), x.type))


def _remainder(b: Any, x: Any, y: Any) -> Any:
    _, rest = _divided(b, x, y)
    return b.select(_crosses(b, rest, y), b.add(rest, y), rest)


def _fmod(b: Any, x: Any, y: Any) -> Any:
    return _divided(b, x, y)[1]


def _not_zero(b: Any, y: Any) -> Any:
    return b.select(true(b, y), y, _of(y, 1))


# -- shifts: by so many bits that none are left, too


def _moves(b: Any, x: Any, y: Any) -> Any:
    return b.icmp_unsigned("<", y, _of(y, x.type.width))


def _left_shift(b: Any, x: Any, y: Any) -> Any:
    inside = _moves(b, x, y)
    moved = b.shl(x, b.select(inside, y, _of(y, 0)))
    return b.select(inside, moved, _of(x, 0))


def _right_shift(b: Any, x: Any, y: Any) -> Any:
    last = _of(y, x.type.width - 1)
    return b.ashr(x, b.select(_moves(b, x, y), y, last))


def _unsigned_right_shift(b: Any, x: Any, y: Any) -> Any:
    inside = _moves(b, x, y)
    moved = b.lshr(x, b.select(inside, y, _of(y, 0)))
    return b.select(inside, moved, _of(x, 0))


# -- signs


def _abs(b: Any, x: Any) -> Any:
    return b.select(_below_zero(b, x), b.neg(x), x)


def _sign(b: Any, x: Any) -> Any:
    above = b.icmp_signed(">", x, _of(x, 0))
    return b.sub(b.zext(above, x.type), b.zext(_below_zero(b, x), x.type))


def _relu(b: Any, x: Any) -> Any:
    return b.select(_below_zero(b, x), _of(x, 0), x)


# -- loops


def _function(
    b: Any, name: str, args: list[Any], body: Callable[[Any, list[Any]], Any]
) -> Any:
    """A call of a function of the module, which is made if it is not there."""
    kind = args[0].type
    full = f"weft.{name}.i{kind.width}"
    function = b.module.globals.get(full)
    if function is None:
        function = ir.Function(
            b.module, ir.FunctionType(kind, [kind] * len(args)), full
        )
        function.linkage = "internal"
        for text in ("nounwind", "willreturn", "memory(none)"):
            set.add(function.attributes, text)  # llvmlite knows some attributes only
        inner = ir.IRBuilder(function.append_basic_block("entry"))
        inner.ret(body(inner, list(function.args)))
    return b.call(function, args)


def _while_not_zero(b: Any, first: list[Any], step: Callable[..., list[Any]]) -> Any:
    """The values after repeating a step until the last of them is 0."""
    before = b.block
    head, body, done = map(b.append_basic_block, ("head", "body", "done"))
    b.branch(head)
    b.position_at_end(head)
    values = [b.phi(x.type) for x in first]
    for value, x in zip(values, first, strict=True):
        value.add_incoming(x, before)
    b.cbranch(true(b, values[-1]), body, done)
    b.position_at_end(body)
    for value, x in zip(values, step(b, *values), strict=True):
        value.add_incoming(x, b.block)
    b.branch(head)
    b.position_at_end(done)
    return values[0]


def _whole_power(b: Any, args: list[Any]) -> Any:
    """``x**y`` for y >= 0, by squaring."""

    def step(b: Any, total: Any, x: Any, y: Any) -> list[Any]:
        odd = true(b, b.and_(y, _of(y, 1)))
        more = b.select(odd, b.mul(total, x), total)
        return [more, b.mul(x, x), b.lshr(y, _of(y, 1))]

    x, y = args
    return _while_not_zero(b, [_of(x, 1), x, y], step)


def _unsigned_pow(b: Any, x: Any, y: Any) -> Any:
    return _function(b, "power", [x, y], _whole_power)


def _pow(b: Any, x: Any, y: Any) -> Any:
    """A negative power is 1 / x**-y cut to a whole number: 0, but for 1 and -1."""
    odd = true(b, b.and_(y, _of(y, 1)))
    unit = b.icmp_signed("==", _abs(b, x), _of(x, 1))
    inverse = b.select(unit, b.select(odd, x, _of(x, 1)), _of(x, 0))
    below = _below_zero(b, y)
    power = _unsigned_pow(b, x, b.select(below, _of(y, 0), y))
    return b.select(below, inverse, power)


def _euclid(b: Any, args: list[Any]) -> Any:
    def step(b: Any, x: Any, y: Any) -> list[Any]:
        return [y, b.urem(x, y)]

    return _while_not_zero(b, args, step)


def _unsigned_gcd(b: Any, x: Any, y: Any) -> Any:
    return _function(b, "gcd", [x, y], _euclid)


def _unsigned_lcm(b: Any, x: Any, y: Any) -> Any:
    common = _not_zero(b, _unsigned_gcd(b, x, y))
    return b.mul(b.udiv(x, common), y)


def _of_sizes(fn: Emit) -> Emit:
    return lambda b, x, y: fn(b, _abs(b, x), _abs(b, y))


# -- by name

BOOL: dict[str, Emit] = {
    "conj": _same,
    "logical_and": lambda b, x, y: b.and_(x, y),
    "logical_or": lambda b, x, y: b.or_(x, y),
    "logical_xor": lambda b, x, y: b.xor(x, y),
    "logical_not": lambda b, x: b.not_(x),
    "bitwise_and": lambda b, x, y: b.and_(x, y),
    "bitwise_or": lambda b, x, y: b.or_(x, y),
    "bitwise_xor": lambda b, x, y: b.xor(x, y),
    "bitwise_not": lambda b, x: b.not_(x),
    "eq": lambda b, x, y: b.not_(b.xor(x, y)),
    "ne": lambda b, x, y: b.xor(x, y),
    "maximum": lambda b, x, y: b.or_(x, y),
    "minimum": lambda b, x, y: b.and_(x, y),
    "add": lambda b, x, y: b.or_(x, y),
    "mul": lambda b, x, y: b.and_(x, y),
    "absorb": lambda b, x, y: b.and_(x, y),
    "pow": lambda b, x, y: b.or_(x, b.not_(y)),
    **dict.fromkeys(("abs", "sign", "floor", "ceil", "trunc", "round"), _same),
    **dict.fromkeys(("isnan", "isinf", "isposinf", "isneginf", "signbit"), _never),
    "isfinite": _always,
}

LOGICAL = [name for name in BOOL if name.startswith("logical")]

_ANY: dict[str, Emit] = {
    "add": lambda b, x, y: b.add(x, y),
    "sub": lambda b, x, y: b.sub(x, y),
    "mul": lambda b, x, y: b.mul(x, y),
    "absorb": lambda b, x, y: b.mul(x, y),
    "neg": lambda b, x: b.neg(x),
    "square": lambda b, x: b.mul(x, x),
    "bitwise_and": lambda b, x, y: b.and_(x, y),
    "bitwise_or": lambda b, x, y: b.or_(x, y),
    "bitwise_xor": lambda b, x, y: b.xor(x, y),
    "bitwise_not": lambda b, x: b.not_(x),
    "bitwise_left_shift": _left_shift,
    "eq": lambda b, x, y: b.icmp_signed("==", x, y),
    "ne": lambda b, x, y: b.icmp_signed("!=", x, y),
    **{name: of_truth(name, true) for name in LOGICAL},
    **dict.fromkeys(("conj", "floor", "ceil", "trunc", "round"), _same),
    **dict.fromkeys(("isnan", "isinf", "isposinf", "isneginf"), _never),
    "isfinite": _always,
}

SIGNED: dict[str, Emit] = {
    **_ANY,
    "floor_divide": _floor_divide,
    "remainder": _remainder,
    "fmod": _fmod,
    "bitwise_right_shift": _right_shift,
    "abs": _abs,
    "sign": _sign,
    "relu": _relu,
    "signbit": _below_zero,
    "pow": _pow,
    "gcd": _of_sizes(_unsigned_gcd),
    "lcm": _of_sizes(_unsigned_lcm),
}

UNSIGNED: dict[str, Emit] = {
    **_ANY,
    "floor_divide": lambda b, x, y: b.udiv(x, _not_zero(b, y)),
    "remainder": lambda b, x, y: b.urem(x, _not_zero(b, y)),
    "fmod": lambda b, x, y: b.urem(x, _not_zero(b, y)),
    "bitwise_right_shift": _unsigned_right_shift,
    "abs": _same,
    "sign": lambda b, x: b.zext(true(b, x), x.type),
    "relu": _same,
    "signbit": _never,
    "pow": _unsigned_pow,
    "gcd": _unsigned_gcd,
    "lcm": _unsigned_lcm,
}
