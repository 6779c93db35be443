"""Formulas over real numbers, as data.

    expr = number                     exact (a fraction) where it can be
         | variable
         | expr + expr + …            sums and products have any number of operands,
         | expr * expr * …            kept in one order
         | expr ^ expr
         | op(expr, …)                any other operator, by its record
         | wild                       of rules' patterns: stands for any expr

Equal formulas are one object, so a formula is a graph with common subexpressions
shared, and comparing two costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from weft.core.op import Op
from weft.core.tensor import Tensor
from weft.errors import ArgumentError, DTypeError

Number = int | Fraction | float
NUMBER, VARIABLE, SUM, PRODUCT, POWER, CALL, WILD = (
    "number", "variable", "sum", "product", "power", "call", "wild",
)  # fmt: skip
_LONGEST = 60  # how much of an operand's text decides its position


class Expression:
    """A formula. Make one with ``weft.symbolic.expression`` or ``diff``.

    >>> x, y = weft.symbolic.variables("x y")
    >>> f = weft.symbolic.expression(weft.log(x) + x * y)
    >>> f
    x*y + ln(x)
    >>> f(x=1.0, y=3.0)
    3.0
    """

    __slots__ = ("__weakref__", "args", "kind", "op", "order", "value")

    kind: str
    value: Any  # a number's, or a variable's or wild's name, or a call's parameters
    op: Op | None
    args: tuple[Expression, ...]
    order: tuple[Any, ...]

    # -- making formulas (the rules work on what these give)

    def __add__(self, other: Any) -> Expression:
        return total(self, wrap(other))

    def __mul__(self, other: Any) -> Expression:
        return product(self, wrap(other))

    def __pow__(self, other: Any) -> Expression:
        return make(POWER, None, None, (self, wrap(other)))

    def __neg__(self) -> Expression:
        return product(number(-1), self)

    def __sub__(self, other: Any) -> Expression:
        return self + -wrap(other)

    def __truediv__(self, other: Any) -> Expression:
        return self * wrap(other) ** -1

    def __radd__(self, other: Any) -> Expression:
        return wrap(other) + self

    def __rmul__(self, other: Any) -> Expression:
        return wrap(other) * self

    def __rsub__(self, other: Any) -> Expression:
        return wrap(other) - self

    def __rtruediv__(self, other: Any) -> Expression:
        return wrap(other) / self

    def __rpow__(self, other: Any) -> Expression:
        return wrap(other) ** self

    # -- looking at it

    @property
    def variables(self) -> list[str]:
        """The names it depends on, in alphabetical order."""
        return sorted({e.value for e in distinct(self) if e.kind == VARIABLE})

    def size(self) -> Size:
        """The number of nodes, written out as a tree and with sharing.

        >>> (x,) = weft.symbolic.variables("x")
        >>> weft.symbolic.expression((x + 1) * (x + 1).exp()).size()
        Size(tree=8, shared=5)
        """
        parts = distinct(self)
        count: dict[Expression, int] = {}
        for part in parts:
            count[part] = 1 + sum(count[a] for a in part.args)
        return Size(count[self], len(parts))

    def simplify(self) -> Expression:
        """The formula after all rules that apply (``weft.symbolic.rules``)."""
        from weft.symbolic.rules import simplify

        return simplify(self)

    def latex(self) -> str:
        """The formula as LaTeX.

        >>> (x,) = weft.symbolic.variables("x")
        >>> weft.symbolic.expression(1 / x + weft.sin(x)).latex()
        '\\\\frac{1}{x} + \\\\sin\\\\left(x\\\\right)'
        """
        from weft.symbolic.text import latex

        return latex(self)

    def __repr__(self) -> str:
        from weft.symbolic.text import plain

        return plain(self)

    __str__ = __repr__

    # -- its value

    def __call__(self, **values: Any) -> Any:
        """The value for numbers (a float) or tensors (a tensor)."""
        missing = [n for n in self.variables if n not in values]
        if missing:
            raise ArgumentError(f"{self}: no value for {', '.join(missing)}")
        given = {n: _tensor(n, v) for n, v in values.items()}
        out = self.evaluate(given)
        if any(isinstance(v, Tensor) for v in values.values()):
            return out
        return out.item() if isinstance(out, Tensor) else float(out)

    def evaluate(self, values: Mapping[str, Any]) -> Any:
        """The value by Weft's own operators; each shared part is computed once."""
        found: dict[Expression, Any] = {}
        for part in distinct(self):
            found[part] = _compute(part, [found[a] for a in part.args], values)
        return found[self]


class Size(NamedTuple):
    """A formula's number of nodes: as a tree, and with equal subexpressions shared.

    >>> weft.symbolic.expression(lambda x: x * x).size()
    Size(tree=3, shared=2)
    """

    tree: int
    shared: int


_known: WeakValueDictionary[Any, Expression] = WeakValueDictionary()


def make(
    kind: str, value: Any, op: Op | None = None, args: tuple[Expression, ...] = ()
) -> Expression:
    """The one formula with these operands."""
    if kind in (SUM, PRODUCT):
        args = tuple(sorted(args, key=lambda a: _sort_key(kind, a)))
    key = (kind, type(value), _frozen(value), op, args)
    known = _known.get(key)
    if known is None:
        known = object.__new__(Expression)
        known.kind, known.value, known.op, known.args = kind, value, op, args
        known.order = _order(known)
        _known[key] = known
    return known


def _frozen(value: Any) -> Any:
    return tuple(sorted(value.items())) if isinstance(value, dict) else value


_RANK = {VARIABLE: 0, POWER: 1, PRODUCT: 2, SUM: 3, CALL: 4, WILD: 5, NUMBER: 6}


def _order(e: Expression) -> tuple[Any, ...]:
    """The sort key among other operands, with a text that is cut off when long."""
    head = e.op.name if e.op is not None else str(e.value)
    text = f"{head}({','.join(a.order[-1] for a in e.args)})"[:_LONGEST]
    return _RANK[e.kind], text


def _sort_key(kind: str, e: Expression) -> tuple[Any, ...]:
    """Numbers first in products, last in sums, where what has a minus follows."""
    if kind == PRODUCT:
        return (e.kind != NUMBER, *e.order)
    lead = e.args[0] if e.kind == PRODUCT else e
    negative = lead.kind == NUMBER and lead.value < 0
    return (negative, e.kind == NUMBER, *e.order)


def number(value: Number) -> Expression:
    """A constant; kept as a fraction if it is one with a small denominator."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    elif isinstance(value, float) and value == value and abs(value) < 1e15:
        exact = Fraction(value)
        value = exact if exact.denominator <= 1024 else value
    if isinstance(value, Fraction) and value.denominator == 1:
        value = int(value)
    return make(NUMBER, value)


def variable(name: str) -> Expression:
    """The formula of a variable."""
    return make(VARIABLE, name)


def wrap(value: Any) -> Expression:
    """A formula from a formula or a number."""
    if isinstance(value, Expression):
        return value
    if isinstance(value, (int, float, Fraction)):
        return number(value)
    raise DTypeError(
        f"expected a formula or a number, got {type(value).__name__}; "
        "weft.symbolic.expression makes a formula of a tensor or a function"
    )


def _joined(kind: str, args: tuple[Expression, ...]) -> Expression:
    """A sum's or product's operands, with those of nested ones."""
    flat: list[Expression] = []
    for a in args:
        flat += a.args if a.kind == kind else (a,)
    return flat[0] if len(flat) == 1 else make(kind, None, None, tuple(flat))


def total(*args: Expression) -> Expression:
    """The sum; of nothing, zero."""
    return _joined(SUM, args) if args else number(0)


def product(*args: Expression) -> Expression:
    """The product; of nothing, one."""
    return _joined(PRODUCT, args) if args else number(1)


def call(op: Op, args: tuple[Expression, ...], params: Any = None) -> Expression:
    """An operator applied to formulas."""
    return make(CALL, dict(params or {}), op, args)


def rebuilt(e: Expression, args: tuple[Expression, ...]) -> Expression:
    """The same operator on other operands."""
    if e.kind == SUM:
        return total(*args)
    if e.kind == PRODUCT:
        return product(*args)
    return make(e.kind, e.value, e.op, args) if args else e


def distinct(root: Expression) -> list[Expression]:
    """Every subexpression once, each after its operands."""
    seen: dict[Expression, None] = {}
    stack: list[tuple[Expression, Iterator[Expression]]] = [(root, iter(root.args))]
    while stack:
        e, rest = stack[-1]
        for a in rest:
            if a not in seen:
                stack.append((a, iter(a.args)))
                break
        else:
            seen.setdefault(e)
            stack.pop()
    return list(seen)


# -- values


def _tensor(name: str, value: Any) -> Any:
    from weft import float64
    from weft.ops.creation import tensor

    if isinstance(value, Tensor):
        return value
    if isinstance(value, (int, float, Fraction)):
        return tensor(float(value), dtype=float64)
    raise DTypeError(
        f"{name}: expected a number or a tensor, got {type(value).__name__}"
    )


def _compute(e: Expression, args: list[Any], values: Mapping[str, Any]) -> Any:
    if e.kind == NUMBER:
        return float(e.value) if isinstance(e.value, Fraction) else e.value
    if e.kind == VARIABLE:
        return values[e.value]
    if e.kind in (SUM, PRODUCT):
        out = args[0]
        for a in args[1:]:
            out = out + a if e.kind == SUM else out * a
        return out
    if e.kind == POWER:
        base, power = args
        # a power of two numbers may be no real number, which only tensors can say
        return (base if isinstance(power, Tensor) else _tensor("", base)) ** power
    if e.op is None:
        raise ArgumentError(f"{e.value} is a rule's wild card and has no value")
    return _applied(e.op, args, e.value)


def _applied(op: Op, args: list[Any], params: Any) -> Any:
    from weft import float64
    from weft.ops.creation import full

    shape: tuple[int, ...] = ()
    kind = float64
    for a in args:
        if isinstance(a, Tensor):
            shape = a.shape
            kind = a.dtype if a.dtype.is_inexact else kind
    args = [a if isinstance(a, Tensor) else full(shape, a, dtype=kind) for a in args]
    return op(*args, **params)
