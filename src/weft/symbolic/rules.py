"""The simplifier: rules as data, and one loop that applies them.

The rules promise: wherever a formula and all its subexpressions are real numbers, the
simplified formula is the same number. It may be defined at more points (``x/x -> 1`` at
0, ``exp(ln(x)) -> x`` also below 0). A rule that would change a value, such as
``sqrt(x^2) -> x``, is not here; nor is one that loses points, such as
``ln(x*y) -> ln(x) + ln(y)``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any, NamedTuple

from weft.core.op import find_op
from weft.symbolic.expression import (
    NUMBER,
    PRODUCT,
    SUM,
    WILD,
    Expression,
    Number,
    call,
    distinct,
    make,
    number,
    rebuilt,
)

Match = dict[str, Expression]


class Rule(NamedTuple):
    """A formula with wild cards, and its replacement.

    The letters ``a b n m`` stand for numbers, others for any formula. ``after`` is a
    formula, or a function of the numbers found that gives one.
    """

    algebra: str
    before: Expression
    after: Expression | Callable[[Match], Expression | None]
    where: Callable[[Match], bool] = lambda found: True


def wild(name: str) -> Expression:
    """A letter of a rule."""
    return make(WILD, name)


def function(name: str) -> Callable[..., Expression]:
    """An operator, applied to formulas, by its record's name."""
    op = find_op(name)
    return lambda *args: call(op, args)


exp, log, sin, cos, tan, sinh, cosh, tanh, absolute = map(
    function, ["exp", "log", "sin", "cos", "tan", "sinh", "cosh", "tanh", "abs"]
)
x, y, z, a, b, n, m = map(wild, "xyzabnm")


def _value(found: Match, name: str) -> Number:
    return found[name].value


def _whole(name: str) -> Callable[[Match], bool]:
    return lambda found: isinstance(_value(found, name), int)


def _negative(found: Match) -> bool:
    return _value(found, "a") < 0


def _plus(found: Match) -> Expression:
    return number(_value(found, "a") + _value(found, "b"))


def _times(found: Match) -> Expression:
    return number(_value(found, "a") * _value(found, "b"))


def _power(found: Match) -> Expression | None:
    """A power of numbers, if it is one exactly (or no exact numbers are involved)."""
    base, power = _value(found, "a"), _value(found, "b")
    if isinstance(power, int) and (base != 0 or power > 0) and abs(power) < 64:
        return number(
            Fraction(base) ** power if not isinstance(base, float) else base**power
        )
    if isinstance(base, float) and base > 0:
        return number(base ** float(power))
    if power == Fraction(1, 2) and isinstance(base, int) and base >= 0:
        root = math.isqrt(base)
        return number(root) if root * root == base else None
    return None


RULES = [
    # numbers
    Rule("a + b -> their sum", a + b, _plus),
    Rule("a * b -> their product", a * b, _times),
    Rule("a ^ b -> their power, if exact", a**b, _power),
    # nothing added, nothing multiplied
    Rule("x + 0 -> x", x + 0, x),
    Rule("x * 1 -> x", x * 1, x),
    Rule("x * 0 -> 0", x * 0, number(0)),
    Rule("x ^ 1 -> x", x**1, x),
    Rule("x ^ 0 -> 1", x**0, number(1)),
    Rule("1 ^ x -> 1", number(1) ** x, number(1)),
    # like terms
    Rule("x + x -> 2*x", x + x, 2 * x),
    Rule("x + a*x -> (1 + a)*x", x + a * x, (1 + a) * x),
    Rule("a*x + b*x -> (a + b)*x", a * x + b * x, (a + b) * x),
    Rule("a*(x + y) -> a*x + a*y", a * (x + y), a * x + a * y),
    # powers
    Rule("x * x -> x^2", x * x, x**2),
    Rule("x * x^y -> x^(1 + y)", x * x**y, x ** (1 + y)),
    Rule("x^y * x^z -> x^(y + z)", x**y * x**z, x ** (y + z)),
    Rule("(x^y)^n -> x^(y*n), n whole", (x**y) ** n, x ** (y * n), _whole("n")),
    Rule("(x*y)^n -> x^n * y^n, n whole", (x * y) ** n, x**n * y**n, _whole("n")),
    Rule("sqrt(x^2) -> |x|", (x**2) ** Fraction(1, 2), absolute(x)),
    # exponentials and logarithms
    Rule("exp(0) -> 1", exp(number(0)), number(1)),
    Rule("ln(1) -> 0", log(number(1)), number(0)),
    Rule("exp(ln(x)) -> x", exp(log(x)), x),
    Rule("ln(exp(x)) -> x", log(exp(x)), x),
    Rule("exp(x) * exp(y) -> exp(x + y)", exp(x) * exp(y), exp(x + y)),
    Rule("exp(x)^y -> exp(x*y)", exp(x) ** y, exp(x * y)),
    # circular and hyperbolic functions
    Rule("sin(0) -> 0", sin(number(0)), number(0)),
    Rule("cos(0) -> 1", cos(number(0)), number(1)),
    Rule("tan(0) -> 0", tan(number(0)), number(0)),
    Rule("sinh(0) -> 0", sinh(number(0)), number(0)),
    Rule("cosh(0) -> 1", cosh(number(0)), number(1)),
    Rule("tanh(0) -> 0", tanh(number(0)), number(0)),
    Rule("sin(a*x) -> -sin(-a*x), a < 0", sin(a * x), -sin(-1 * a * x), _negative),
    Rule("cos(a*x) -> cos(-a*x), a < 0", cos(a * x), cos(-1 * a * x), _negative),
    Rule("tanh(a*x) -> -tanh(-a*x), a < 0", tanh(a * x), -tanh(-1 * a * x), _negative),
    Rule("sin(x)^2 + cos(x)^2 -> 1", sin(x) ** 2 + cos(x) ** 2, number(1)),
    Rule(
        "a*sin(x)^2 + a*cos(x)^2 -> a", a * sin(x) ** 2 + a * cos(x) ** 2, a,
    ),
    Rule("sin(x) / cos(x) -> tan(x)", sin(x) * cos(x) ** -1, tan(x)),
]  # fmt: skip

# Tried on what the rules leave; the result is kept if it is shorter.
EXPANDING = [Rule("x*(y + z) -> x*y + x*z", x * (y + z), x * y + x * z)]
_WORTH_EXPANDING = 200  # nodes: longer formulas explode when they are written out


# -- matching

_NUMBERS = "abnm"


def match(pattern: Expression, e: Expression, bound: Match) -> Iterator[Match]:
    """The ways in which a formula matches a pattern."""
    if pattern.kind == WILD:
        held = bound.get(pattern.value)
        if held is not None:
            if held is e:
                yield bound
        elif pattern.value not in _NUMBERS or e.kind == NUMBER:
            yield {**bound, pattern.value: e}
    elif pattern is e:
        yield bound
    elif pattern.kind == e.kind and pattern.op is e.op and pattern.args:
        if pattern.kind in (SUM, PRODUCT):
            yield from _parts(pattern.args, e, e.args, bound, whole=True)
        else:
            yield from _in_order(pattern.args, e.args, bound)


def _in_order(patterns: Any, args: Any, found: Match) -> Iterator[Match]:
    if not patterns:
        yield found
        return
    for one in match(patterns[0], args[0], found):
        yield from _in_order(patterns[1:], args[1:], one)


def _parts(
    patterns: Any, e: Expression, args: Any, bound: Match, whole: bool
) -> Iterator[Match]:
    """Match operands of a sum or product in any order; the rest is under ``…``.

    If it must match as a whole, the last open letter takes all that is left.
    """
    if not patterns:
        if not whole or not args:
            yield {**bound, "…": rebuilt(e, args)} if args else bound
        return
    first, rest = patterns[0], patterns[1:]
    if whole and not rest and len(args) > 1:
        yield from match(first, rebuilt(e, args), bound)
        return
    for k, one in enumerate(args):
        for now in match(first, one, bound):
            yield from _parts(rest, e, args[:k] + args[k + 1 :], now, whole)


def fill(pattern: Expression, found: Match) -> Expression:
    """The pattern with its letters replaced."""
    if pattern.kind == WILD:
        return found[pattern.value]
    return rebuilt(pattern, tuple(fill(p, found) for p in pattern.args))


def apply(rule: Rule, e: Expression) -> Expression | None:
    """The result of a rule for a formula (or some operands of a sum or product)."""
    before = rule.before
    if before.kind != e.kind or before.op is not e.op:
        return None
    if before.kind in (SUM, PRODUCT):
        ways = _parts(before.args, e, e.args, {}, whole=False)
    else:
        ways = match(before, e, {})
    for found in ways:
        if rule.where(found):
            after = rule.after
            new = fill(after, found) if isinstance(after, Expression) else after(found)
            if new is not None:
                rest = found.get("…")
                return new if rest is None else rebuilt(e, (new, rest))
    return None


# -- simplifying


def simplify(e: Expression) -> Expression:
    """Apply the rules from the inside out, until none applies.

    Products of sums are written out if that makes the formula shorter.

    >>> x, y = weft.symbolic.variables("x y")
    >>> weft.symbolic.expression((x * x * 2 + y * 0 + x**2) / x).simplify()
    3*x
    """
    short = _apply_all(RULES, e)
    if short.size().tree > _WORTH_EXPANDING:
        return short
    long = _apply_all([*RULES, *EXPANDING], short)
    return long if long.size().tree < short.size().tree else short


def _apply_all(rules: list[Rule], e: Expression) -> Expression:
    known: dict[Expression, Expression] = {}
    for part in distinct(e):
        _settle(part, rules, known)
    return known[e]


def _settle(
    e: Expression, rules: list[Rule], known: dict[Expression, Expression]
) -> Expression:
    """The end of the line for one formula; what it is made of is mostly known."""
    settled = known.get(e)
    if settled is None:
        now = rebuilt(e, tuple(_settle(a, rules, known) for a in e.args))
        better = (after for rule in rules if (after := apply(rule, now)) is not None)
        after = next(better, None)
        settled = now if after is None else _settle(after, rules, known)
        known[e] = known[settled] = settled
    return settled
