"""Formulas as text: mathematics in one line, or LaTeX."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from weft.symbolic.expression import (
    CALL,
    NUMBER,
    POWER,
    PRODUCT,
    SUM,
    Expression,
    number,
    product,
)

_SUM, _PRODUCT, _POWER, _ATOM = range(4)  # how tightly a text holds together
_NAMES = {"log": "ln", "asin": "arcsin", "acos": "arccos", "atan": "arctan"}
_LATEX = ("sin", "cos", "tan", "sinh", "cosh", "tanh", "exp", "ln")
_SIGNS = {">": ">", ">=": "≥", "<": "<", "<=": "≤", "==": "=", "!=": "≠"}
Text = tuple[str, int]


class _Style:
    """The differences between plain text and LaTeX."""

    def fraction(self, top: Text, bottom: Text) -> Text:
        return f"{_in(top, _PRODUCT)}/{_in(bottom, _POWER)}", _PRODUCT

    def times(self, factors: list[Text]) -> Text:
        return "*".join(_in(p, _PRODUCT) for p in factors), _PRODUCT

    def power(self, base: Text, power: Text) -> Text:
        return f"{_in(base, _ATOM)}^{_in(power, _ATOM)}", _POWER

    def root(self, x: Text) -> Text:
        return f"sqrt({x[0]})", _ATOM

    def call(self, name: str, args: list[Text]) -> Text:
        return f"{name}({', '.join(a[0] for a in args)})", _ATOM

    def name(self, name: str) -> str:
        return name


class _Latex(_Style):
    def fraction(self, top: Text, bottom: Text) -> Text:
        return f"\\frac{{{top[0]}}}{{{bottom[0]}}}", _POWER

    def times(self, factors: list[Text]) -> Text:
        return " ".join(_in(p, _PRODUCT, self) for p in factors), _PRODUCT

    def power(self, base: Text, power: Text) -> Text:
        return f"{_in(base, _ATOM, self)}^{{{power[0]}}}", _POWER

    def root(self, x: Text) -> Text:
        return f"\\sqrt{{{x[0]}}}", _ATOM

    def call(self, name: str, args: list[Text]) -> Text:
        shown = f"\\{name}" if name in _LATEX else f"\\operatorname{{{name}}}"
        return f"{shown}\\left({', '.join(a[0] for a in args)}\\right)", _ATOM

    def name(self, name: str) -> str:
        letters = name.rstrip("0123456789")
        digits = name[len(letters) :]
        return f"{letters}_{{{digits}}}" if letters and digits else name


def _in(text: Text, least: int, style: _Style | None = None) -> str:
    """The text in brackets if its operator binds less tightly."""
    if text[1] >= least:
        return text[0]
    if isinstance(style, _Latex):
        return f"\\left({text[0]}\\right)"
    return f"({text[0]})"


def plain(e: Expression) -> str:
    """A formula in one line."""
    return _write(e, _Style())[0]


def latex(e: Expression) -> str:
    """A formula as LaTeX."""
    return _write(e, _Latex())[0]


def _write(e: Expression, style: _Style) -> Text:
    write = _WRITE.get(e.kind)
    return (style.name(str(e.value)), _ATOM) if write is None else write(e, style)


def _number(e: Expression, style: _Style) -> Text:
    v = e.value
    if isinstance(v, Fraction):
        top, bottom = (str(v.numerator), _ATOM), (str(v.denominator), _ATOM)
        return style.fraction(top, bottom)
    return repr(v), _ATOM if v >= 0 else _SUM


def _sum(e: Expression, style: _Style) -> Text:
    text = ""
    for k, part in enumerate(e.args):
        minus, rest = _sign(part)
        lead = (" - " if minus else " + ") if k else ("-" if minus else "")
        text += lead + _in(_write(rest, style), _PRODUCT, style)
    return text, _SUM


def _sign(e: Expression) -> tuple[bool, Expression]:
    """Whether it has a minus in front, and what follows it."""
    lead = e.args[0] if e.kind == PRODUCT else e
    if lead.kind != NUMBER or lead.value >= 0:
        return False, e
    if e.kind == NUMBER:
        return True, number(-e.value)
    rest = e.args[1:] if lead.value == -1 else (number(-lead.value), *e.args[1:])
    return True, product(*rest)


def _product(e: Expression, style: _Style) -> Text:
    minus, rest = _sign(e)
    if minus:
        return "-" + _in(_write(rest, style), _PRODUCT, style), _SUM
    above = [a for a in e.args if not _below(a)]
    below = [_inverse(a) for a in e.args if _below(a)]
    if above and above[0].kind == NUMBER and isinstance(above[0].value, Fraction):
        ratio = above[0].value
        above = (
            [number(ratio.numerator), *above[1:]] if ratio.numerator != 1 else above[1:]
        )
        below = [number(ratio.denominator), *below]
    top = _times(above, style)
    return style.fraction(top, _times(below, style)) if below else top


def _times(factors: list[Expression], style: _Style) -> Text:
    if not factors:
        return "1", _ATOM
    return (
        _write(factors[0], style)
        if len(factors) == 1
        else style.times([_write(p, style) for p in factors])
    )


def _below(e: Expression) -> bool:
    return e.kind == POWER and e.args[1].kind == NUMBER and e.args[1].value < 0


def _inverse(e: Expression) -> Expression:
    base, power = e.args
    return base if power.value == -1 else base ** number(-power.value)


def _power(e: Expression, style: _Style) -> Text:
    base, power = e.args
    if _below(e):
        return style.fraction(("1", _ATOM), _write(_inverse(e), style))
    if power.kind == NUMBER and power.value == Fraction(1, 2):
        return style.root(_write(base, style))
    return style.power(_write(base, style), _write(power, style))


def _call(e: Expression, style: _Style) -> Text:
    assert e.op is not None
    args = [_write(a, style) for a in e.args]
    sign = _SIGNS.get(e.op.facts.infix)
    if sign is not None:
        return f"({args[0][0]} {sign} {args[1][0]})", _ATOM
    name = _NAMES.get(e.op.name, e.op.name)
    shown = [(f"{k}={v}", _ATOM) for k, v in e.value.items()]
    return style.call(name, [*args, *shown])


_WRITE: dict[str, Callable[[Expression, _Style], Text]] = {
    NUMBER: _number,
    SUM: _sum,
    PRODUCT: _product,
    POWER: _power,
    CALL: _call,
}
