"""Sizes that are not known yet: ``B``, ``4*B*T``, ``(B + 1)//2``.

    size   = term + … + term        a polynomial with integer coefficients
    term   = coefficient * atom * … * atom
    atom   = symbol | quotient(size, size) | rest(size, size)
           | max(size, size) | min(size, size) | ratio(size, size)

A ``Size`` stands for an int in the shapes of a captured program. Arithmetic keeps
it symbolic. A question that needs a bool or an int (``B > 8``, ``range(B)``) is
answered from what can be proved, else for the example's size; that answer is then
noted as an assumption in the ``Scope``, to be checked before every run.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from weft import naming
from weft.core.mode import mode
from weft.core.record import Record
from weft.errors import INTERNAL, ArgumentError, ShapeError, called_by_user, user_line


class Atom:
    """A symbol (``kind`` is its name), or an operation that is no polynomial."""

    __slots__ = ("_hash", "_text", "a", "b", "kind")

    def __init__(self, kind: str, a: Any = None, b: Any = None) -> None:
        self.kind = kind
        self.a = a
        self.b = b
        self._text = ""  # both are used often, so they are kept
        parts = (_odd(p) if isinstance(p, int) else p for p in (a, b))
        self._hash = hash(kind) if a is None else hash((kind, *parts))

    def __eq__(self, other: object) -> bool:
        """Whether they are written alike: nothing is asked of the sizes in them."""
        if self is other:
            return True
        if not isinstance(other, Atom) or self.kind != other.kind:
            return False
        return same(self.a, other.a) and same(self.b, other.b)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return self._hash

    @property
    def below_zero(self) -> bool:
        """Whether it may be negative."""
        if self.a is None or self.kind == "%":
            return False
        low = [may_be_negative(self.a), may_be_negative(self.b)]
        return all(low) if self.kind == "max" else any(low)

    def evaluate(self, sizes: Mapping[str, int]) -> Any:
        if self.a is None:
            return sizes[self.kind]
        return _COMPUTE[self.kind](
            evaluate(self.a, sizes),
            evaluate(self.b, sizes),
        )

    def renamed(self, name_of: Callable[[str], str], scope: Scope) -> Size:
        if self.a is None:
            return Size(((Atom(name_of(self.kind)),), 1), scope=scope)
        a, b = (p.renamed(name_of, scope) if isinstance(p, Size) else p
                for p in (self.a, self.b))  # fmt: skip
        return _atom(self.kind, a, b, scope)

    def __str__(self) -> str:
        if not self._text:
            self._text = self._written()
        return self._text

    __repr__ = __str__

    def _written(self) -> str:
        if self.a is None:
            return self.kind
        if self.kind in ("max", "min"):
            return f"{self.kind}({self.a}, {self.b})"
        return f"({_group(self.a)}{self.kind}{_group(self.b)})"


def quotient(a: Any, b: Any) -> Any:
    """``a / b`` as IEEE 754 has it: 0 / 0 is NaN."""
    return a / b if b else a * math.inf


_COMPUTE: dict[str, Any] = {
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "/": quotient,
    "max": max,
    "min": min,
}

Terms = tuple[tuple[tuple[Atom, ...], Any], ...]


def _group(value: Any) -> str:
    text = str(value)
    plain = not isinstance(value, Size) or len(value.terms) == 1
    return text if plain and "*" not in text else f"({text})"


def evaluate(value: Any, sizes: Mapping[str, int]) -> Any:
    """The number that a size has for given symbols; numbers are themselves."""
    return value.evaluate(sizes) if isinstance(value, Size) else value


def elements(shape: Sequence[Any], sizes: Mapping[str, int]) -> int:
    """The number of elements of a shape, for given symbols."""
    return math.prod(evaluate(n, sizes) for n in shape)


class Assumption(Record):
    """An answer that was given for the example, and must hold in each run."""

    left: Any
    relation: str
    right: Any
    line: str

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Whether it holds; sizes that a run does not know are not needed by it."""
        for side in (self.left, self.right):
            if isinstance(side, Size) and not side.symbols <= sizes.keys():
                return True
        ask = _RELATIONS[self.relation]
        return ask(evaluate(self.left, sizes), evaluate(self.right, sizes))

    def __str__(self) -> str:
        return f"{self.left} {self.relation} {self.right}"


_RELATIONS: dict[str, Any] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}
_NEGATED = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


class OpenSizeError(ArgumentError):
    """A size that is known only in a run was used as a Python number.

    An operator that needs it can still become a node of ``build``'s graph.
    """

    def __init__(self, text: str, build: Any) -> None:
        super().__init__(text)
        self.build = build


class Scope:
    """The symbols of one program: their example sizes, and assumptions."""

    built = "this program was captured"
    advice = "capture it again for these sizes."
    unseen = False  # whether the captured function must not notice that sizes are open

    def __init__(self) -> None:
        self.hints: dict[str, int | None] = {}
        self.assumptions: dict[str, Assumption] = {}
        self.equal: dict[str, str] = {}  # symbols that were assumed equal to others
        self.bounds: dict[str, Any] = {}  # of symbols that are below a size (indices)

    def symbol(self, name: str, hint: int | None = None) -> Size:
        """A size known only by name (and by its example, where there is one)."""
        known = self.hints.get(name)
        self.hints[name] = known if hint is None else hint
        return Size(((Atom(name),), 1), scope=self)

    def assume(self, left: Any, relation: str, right: Any) -> None:
        found = Assumption(left, relation, right, user_line())
        self.assumptions.setdefault(str(found), found)
        names = [s.symbol_name for s in (left, right) if isinstance(s, Size)]
        if relation == "==" and len(names) == 2 and all(names):
            kept, other = self.one_of(names[0]), self.one_of(names[1])
            if kept != other:  # else it was assumed before
                self.equal[other] = kept

    def answer(self, left: Size, relation: str, right: Any) -> bool:
        """The answer to a question that nothing proves: that of the example."""
        return _RELATIONS[relation](left.hint(), _hint(right))

    def one_of(self, name: str) -> str:
        """The symbol that stands for all those assumed equal to this one."""
        while name in self.equal:
            name = self.equal[name]
        return name

    def number(self, size: Size) -> int:
        """A size as a Python number: the example's, from here on assumed."""
        number = size.hint()
        self.assume(size, "==", number)
        return number

    def check(self, sizes: Mapping[str, int]) -> None:
        """Refuse sizes for which the captured program would be another one."""
        for assumption in self.assumptions.values():
            if not assumption.holds(sizes):
                given = ", ".join(f"{k} = {v}" for k, v in sizes.items())
                raise ShapeError(
                    f"{self.built} for sizes with {assumption}, which does not hold "
                    f"for {given}; {self.advice}\n  assumed at {assumption.line}"
                )


class Size:
    """A symbolic size: a polynomial over atoms, in one scope."""

    __slots__ = ("scope", "terms")

    def __init__(self, *terms: tuple[tuple[Atom, ...], Any], scope: Scope) -> None:
        self.terms: Terms = terms
        self.scope = scope

    @property
    def symbol_name(self) -> str:
        """The name of a size that is a symbol, else nothing."""
        (atoms, factor), *rest = self.terms
        plain = not rest and len(atoms) == 1 and factor == 1 and atoms[0].a is None
        return atoms[0].kind if plain else ""

    @property
    def value(self) -> None:
        """None, as TensorFlow has it for a size that a run decides."""

    def unified(self) -> Any:
        """The same size in symbols of which none was assumed equal to another."""
        if not self.scope.equal:
            return self
        return self.renamed(self.scope.one_of, self.scope)

    def renamed(self, name_of: Callable[[str], str], scope: Scope) -> Any:
        """The same size in the symbols of a scope, which may have other names."""
        total: Any = 0
        for atoms, factor in self.terms:
            term: Any = factor
            for atom in atoms:
                term = term * atom.renamed(name_of, scope)
            total = total + term
        return total

    @property
    def symbols(self) -> set[str]:
        """The names this size depends on."""
        names: set[str] = set()
        for atoms, _ in self.terms:
            for atom in atoms:
                if atom.a is None:
                    names.add(atom.kind)
                for part in (atom.a, atom.b):
                    if isinstance(part, Size):
                        names |= part.symbols
        return names

    @property
    def fractional(self) -> bool:
        """Whether this is a quotient of sizes rather than a size."""
        return any(
            isinstance(factor, float) or any(a.kind == "/" for a in atoms)
            for atoms, factor in self.terms
        )

    def evaluate(self, sizes: Mapping[str, int]) -> Any:
        total = 0
        for atoms, factor in self.terms:
            for atom in atoms:
                factor = factor * atom.evaluate(sizes)
            total += factor
        return total

    def hint(self) -> Any:
        """The number for the example."""
        unknown = [n for n in self.symbols if self.scope.hints.get(n) is None]
        if unknown:
            raise ArgumentError(
                f"the size {self} is known only when the program runs ({unknown[0]} "
                "depends on data or was left open), so it cannot decide a Python "
                "branch, loop or number here; use weft.cond, weft.while_loop or where"
            )
        hints: Any = self.scope.hints
        return self.evaluate(hints)

    # -- arithmetic

    def __add__(self, other: Any) -> Any:
        if type(other) is int:
            return self._plus(other)
        found = _terms(other)
        if found is None:
            return NotImplemented
        total = dict(self.terms)
        for atoms, factor in found:
            total[atoms] = total.get(atoms, 0) + factor
        both = _both(total)
        rest = _size(total, self.scope)
        return rest if both is None else rest + both

    __radd__ = __add__

    def _plus(self, number: int) -> Size:
        """The text with a number added at its end."""
        (*others, (atoms, last)) = self.terms
        terms = self.terms if atoms else tuple(others)
        total = number if atoms else last + number
        return (
            Size(*terms, ((), total), scope=self.scope)
            if total
            else Size(*terms, scope=self.scope)
        )

    def __mul__(self, other: Any) -> Any:
        if type(other) is int and other:
            terms = [(atoms, factor * other) for atoms, factor in self.terms]
            return Size(*terms, scope=self.scope) if other != 1 else self
        found = _terms(other)
        if found is None:
            return NotImplemented
        total: dict[Any, Any] = {}
        for a, x in self.terms:
            for b, y in found:
                atoms = tuple(sorted(a + b, key=str)) if a and b else a or b
                total[atoms] = total.get(atoms, 0) + x * y
        return _size(total, self.scope)

    __rmul__ = __mul__

    def __neg__(self) -> Any:
        return self * -1

    def __pos__(self) -> Any:
        return self

    def __sub__(self, other: Any) -> Any:
        return NotImplemented if _terms(other) is None else self + -other

    def __rsub__(self, other: Any) -> Any:
        return -self + other

    def __floordiv__(self, other: Any) -> Any:
        exact = _divided(self, other)
        if exact is not None:
            return exact
        whole, rest = _parted(self, other)
        if rest is not None:
            return whole
        return _atom("//", self, other, self.scope)

    def __rfloordiv__(self, other: Any) -> Any:
        return _atom("//", other, self, self.scope)

    def __mod__(self, other: Any) -> Any:
        if _divided(self, other) is not None:
            return 0
        _, rest = _parted(self, other)
        return _atom("%", self, other, self.scope) if rest is None else rest

    def __rmod__(self, other: Any) -> Any:
        return _atom("%", other, self, self.scope)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __truediv__(self, other: Any) -> Any:
        if _terms(other) is None:
            return NotImplemented
        return _atom("/", self, other, self.scope)

    def __rtruediv__(self, other: Any) -> Any:
        if _terms(other) is None:
            return NotImplemented
        return _atom("/", other, self, self.scope)

    def __pow__(self, power: Any) -> Any:
        if type(power) is not int or power < 0:
            return float(self) ** power
        out: Any = 1
        for _ in range(power):
            out = out * self
        return out

    def conjugate(self) -> Size:
        """The size itself, as of every real number."""
        return self

    # -- questions

    def _ask(self, relation: str, other: Any) -> bool:
        difference = self - other
        if not isinstance(difference, Size):
            return _RELATIONS[relation](difference, 0)
        known = _proved(relation, difference)
        if known is not None:
            return known
        answer = self.scope.answer(self, relation, other)
        self.scope.assume(self, relation if answer else _NEGATED[relation], other)
        return answer

    def __eq__(self, other: Any) -> bool:
        if other is self:
            return True
        if isinstance(other, Size) and same(self, other):
            return True
        if _terms(other) is None:
            return False
        return self._ask("==", other)

    def __ne__(self, other: Any) -> bool:
        return not self == other

    def __lt__(self, other: Any) -> bool:
        return self._ask("<", other)

    def __le__(self, other: Any) -> bool:
        return self._ask("<=", other)

    def __gt__(self, other: Any) -> bool:
        return self._ask(">", other)

    def __ge__(self, other: Any) -> bool:
        return self._ask(">=", other)

    def _shows(self) -> bool:
        """Whether a captured function asks for what only a number can give: its hash,
        its text, its class."""
        return (
            mode.capture is not None
            and self.scope.unseen
            and called_by_user(sys._getframe(2))
        )

    def __hash__(self) -> int:
        if self._shows():
            return hash(self.__index__())
        return hash(tuple([(atoms, _odd(factor)) for atoms, factor in self.terms]))

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return int if self._shows() else Size

    @property
    def __array__(self) -> Any:
        """How NumPy makes an array of it, if a captured function asks it to."""
        if not self._shows():
            raise AttributeError("__array__")
        return lambda *args, **kwargs: np.asarray(self.__index__(), *args)

    def __bool__(self) -> bool:
        return self._ask("!=", 0)

    def __index__(self) -> int:
        """The example's number by the scope; an error if there is none."""
        return self.scope.number(self)

    __int__ = __index__

    def __float__(self) -> float:
        return float(self.__index__())

    def __str__(self) -> str:
        if self._shows():
            return str(self.__index__())
        text = ""
        for atoms, factor in self.terms:
            parts = [str(a) for a in atoms]
            if not atoms or factor not in (1, -1):
                parts.insert(0, str(abs(factor)))
            sign = "-" if factor < 0 else "+"
            lead = f" {sign} " if text else ("-" if factor < 0 else "")
            text += lead + "*".join(parts)
        return text

    __repr__ = __str__

    def __format__(self, spec: str) -> str:
        if self._shows():
            return format(self.__index__(), spec)
        return format(str(self), spec)


def hinted(shape: tuple[Any, ...]) -> list[int] | None:
    """Sizes as numbers, those of the example where they are open; None without one.

    >>> from weft.core.size import Scope, hinted
    >>> hinted((Scope().symbol("B", 8) * 2, 3)), hinted((Scope().symbol("B"),))
    ([16, 3], None)
    """
    for n in shape:
        if isinstance(n, Size) and None in map(n.scope.hints.get, n.symbols):
            return None
    return [_hint(n) for n in shape]


def _hint(value: Any) -> Any:
    return value.hint() if isinstance(value, Size) else value


def _terms(value: Any) -> Terms | None:
    if isinstance(value, Size):
        return value.terms
    if isinstance(value, (int, float)):
        return (((), value),) if value else ()
    return None


def _size(total: dict[Any, Any], scope: Scope) -> Any:
    """A size from its terms; a plain number if nothing is unknown in it."""
    terms = [(atoms, factor) for atoms, factor in total.items() if factor]
    if not terms:
        return 0
    if len(terms) == 1 and not terms[0][0]:
        return terms[0][1]
    if len(terms) > 1:
        terms.sort(key=_sort_key)
    return Size(*terms, scope=scope)


def _sort_key(term: tuple[tuple[Atom, ...], Any]) -> tuple[Any, ...]:
    """The sort key of a term in text: long terms come first."""
    atoms = term[0]
    return (-len(atoms), *map(str, atoms))


def _both(total: dict[Any, Any]) -> Any:
    """Replace ``max(a, b) + min(a, b)`` by ``a + b`` in terms.

    Both may be shifted by a number: ``max(n - 1, 0) + min(n, 1)`` is ``n``.
    """
    alone = [atoms for atoms in total if len(atoms) == 1 and total[atoms]]
    tops = [atoms for atoms in alone if atoms[0].kind == "max"]
    ends = [atoms for atoms in alone if atoms[0].kind == "min"] if tops else []
    for top, end in itertools.product(tops, ends):
        (x, y), low = ((one[0].a, one[0].b) for one in (top, end))
        for u, v in (low, low[::-1]):
            difference = x - u
            if (
                total[top] == total[end]
                and same(difference, y - v)
                and type(difference) is int
            ):
                factor = total.pop(top)
                del total[end]
                return (u + v + difference) * factor
    return None


def _atom(kind: str, a: Any, b: Any, scope: Scope) -> Size:
    return Size(((Atom(kind, a, b),), 1), scope=scope)


def _divided(a: Size, b: Any) -> Any:
    """``a // b`` where every term divides without rest, else None."""
    below = _terms(b)
    if not below:
        return None
    atoms, factor = below[0]
    total: dict[Any, Any] = {}
    left = a.terms
    while left:
        have, x = left[0]
        rest = list(have)
        for atom in atoms:
            if atom not in rest:
                return None
            rest.remove(atom)
        if x % factor:
            return None
        total[tuple(rest)] = x // factor
        left = left[1:]
        if len(below) > 1:  # as polynomials: the divisor's other terms, as often
            share = _size({tuple(rest): x // factor}, a.scope)
            others = _size(dict(below[1:]), a.scope)
            left = _terms(_size(dict(left), a.scope) - share * others) or ()
    return _size(total, a.scope)


def _parted(a: Size, b: Any) -> tuple[Any, Any]:
    """``a`` as b * whole + rest, if the rest is known to be below b; else None."""
    if not a.scope.bounds:
        return None, None
    whole: Any = 0
    rest: Any = 0
    for term in a.terms:
        if not term[0] and type(term[1]) is type(b) is int and b > 0:
            whole, rest = whole + term[1] // b, rest + term[1] % b
            continue
        share = _divided(Size(term, scope=a.scope), b)
        if share is None or not term[0]:
            rest = rest + _size(dict([term]), a.scope)
        else:
            whole = whole + share
    return (whole, rest) if below(rest, b) else (None, None)


def below(value: Any, limit: Any) -> bool:
    """Whether a position is surely at least 0 and less than a size."""
    if not isinstance(value, Size):
        return (isinstance(limit, Size) and value == 0) or (
            not isinstance(limit, Size) and 0 <= value < limit
        )
    name, bounds = value.symbol_name, value.scope.bounds
    if name and name in bounds and same(bounds[name], limit):
        return True
    top: Any = 1
    for atoms, factor in value.terms:
        reach: Any = factor
        if factor < 0:
            return False
        for atom in atoms:
            if atom.a is not None:
                return False
            bound = bounds.get(atom.kind)
            reach = reach * (
                atom_size(atom, value.scope) if bound is None else bound - 1
            )
        top = top + reach
    if isinstance(top, Size) or isinstance(limit, Size):
        difference = limit - top
        return not isinstance(difference, Size) and difference >= 0
    return top <= limit


def atom_size(atom: Atom, scope: Scope) -> Size:
    """A symbol as a size."""
    return Size(((atom,), 1), scope=scope)


def _proved(relation: str, difference: Size) -> bool | None:
    """Whether ``difference relation 0`` follows from sizes being at least 0."""
    if any(atom.below_zero for atoms, _ in difference.terms for atom in atoms):
        return None
    positive = all(factor > 0 for _, factor in difference.terms)
    negative = all(factor < 0 for _, factor in difference.terms)
    constant = any(not atoms for atoms, _ in difference.terms)
    if positive and relation in (">=", "<"):
        return relation == ">="
    if negative and relation in ("<=", ">"):
        return relation == "<="
    if (positive or negative) and constant:  # strictly apart
        return {"==": False, "!=": True, ">": positive, "<": negative,
                ">=": positive, "<=": negative}[relation]  # fmt: skip
    return None


def larger(a: Any, b: Any) -> Any:
    """``max`` that keeps sizes symbolic."""
    return _choose("max", a, b)


def smaller(a: Any, b: Any) -> Any:
    """``min`` that keeps sizes symbolic."""
    return _choose("min", a, b)


def _choose(kind: str, a: Any, b: Any) -> Any:
    if not isinstance(a, Size) and not isinstance(b, Size):
        return _COMPUTE[kind](a, b)
    difference = a - b
    if not isinstance(difference, Size):
        above = difference >= 0
    else:
        above = _never_below(difference)
        if not above and not _never_below(-difference):
            return _atom(kind, a, b, difference.scope)
    return a if above == (kind == "max") else b


def _never_below(difference: Any) -> bool:
    """Whether a size is surely at least 0, also for the ends that it is cut off at.

    >>> from weft.core.size import Scope, _never_below, smaller
    >>> n = Scope().symbol("n")
    >>> _never_below(n - smaller(3, n)), _never_below(n - 1)
    (True, False)
    """
    if not isinstance(difference, Size):
        return difference >= 0
    if _proved(">=", difference):
        return True
    for (atom, *others), factor in (term for term in difference.terms if term[0]):
        if not others and atom.kind == ("min" if factor < 0 else "max"):
            rest = difference - atom_size(atom, difference.scope) * factor
            if any(_never_below(rest + end * factor) for end in (atom.a, atom.b)):
                return True
    return False


def _odd(number: Any) -> Any:
    """A number to hash instead of a coefficient: -1 and -2 have the same hash, so that
    a dictionary would compare sizes, which asks how large they are."""
    return 2 * number + 1


def may_be_negative(size: Any) -> bool:
    """Whether an expression could be below 0, for symbols that are not."""
    return not _never_below(size)


class Shape(tuple[Any, ...]):
    """The sizes of a tensor's dimensions: ``weft.Size``, a tuple that counts elements.

    >>> size = weft.zeros(2, 3).shape
    >>> size.numel(), size[1:] == (3,), type(size[:1] + size) is weft.Size
    (6, True, True)
    """

    __slots__ = ()

    def __repr__(self) -> str:
        shown: Any = self
        for size in self:
            if type(size) is Size and size._shows():
                shown = tuple(map(int, self))
                break
        plain = tuple.__repr__(shown)
        return f"torch.Size({list(shown)})" if naming.is_torch() else plain

    def numel(self) -> int:
        """The number of elements of a tensor of this shape.

        >>> weft.Size([2, 3]).numel()
        6
        """
        return math.prod(self)

    def __getitem__(self, index: Any) -> Any:
        found = tuple.__getitem__(self, index)
        return type(self)(found) if type(index) is slice else found

    def __add__(self, other: tuple[Any, ...]) -> Shape:
        return Shape(tuple.__add__(self, other))

    def __radd__(self, other: tuple[Any, ...]) -> Shape:
        return Shape(other) + self

    def __mul__(self, count: Any) -> Shape:
        return Shape(tuple.__mul__(self, count))

    __rmul__ = __mul__

    def __reduce__(self) -> Any:
        return type(self), (tuple(self),)


class Dimension(int):
    """A size with TensorFlow's ``value``; ``Dimension(None)`` is one that is unknown.

    >>> weft.static.Dimension(3).value, weft.static.Dimension(3) * 2
    (3, 6)
    >>> weft.static.Dimension(None).value is None
    True
    """

    def __new__(cls, value: Any) -> Any:
        return UNKNOWN if value is None else super().__new__(cls, value)

    @property
    def value(self) -> int:
        """The size as a plain number."""
        return int(self)


class UnknownDimension:
    """A size that only a run decides; arithmetic with it gives another one."""

    value = None

    def __eq__(self, other: object) -> bool:
        return other is None or isinstance(other, UnknownDimension)

    def __bool__(self) -> bool:
        return False

    def _unknown(self, other: Any) -> UnknownDimension:
        return self

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _unknown
    __floordiv__ = __rfloordiv__ = __mod__ = _unknown
    __hash__ = object.__hash__

    def __int__(self) -> int:
        raise TypeError(
            "int: this size is known only in a run; use static.shape(x)[axis]"
        )

    def __repr__(self) -> str:
        return "None"


UNKNOWN = UnknownDimension()


def _asked_by_user() -> bool:
    """Whether a size is asked for outside of Weft, whose own code has plain numbers."""
    return not INTERNAL[sys._getframe(2).f_code.co_filename]


class TensorShape(Shape):
    """A tuple of sizes with the questions of TensorFlow's ``TensorShape``.

    >>> with weft.static.Graph().as_default():
    ...     shape = weft.static.placeholder(weft.float32, [None, 3], name="x").shape
    >>> shape, shape.as_list(), shape.ndims
    ((x_0, 3), [None, 3], 2)
    """

    __slots__ = ()

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        if (found is None or type(found) is int) and _asked_by_user():
            return Dimension(found)
        return found

    def as_list(self) -> list[int | None]:
        """The sizes, with None for those that a run decides."""
        return [int(n) if isinstance(n, int) else None for n in self]

    @property
    def ndims(self) -> int:
        """The number of dimensions."""
        return len(self)

    rank = ndims

    @property
    def dims(self) -> list[Any]:
        """The sizes, each a ``Dimension``."""
        return [Dimension(n) for n in self.as_list()]

    def assert_has_rank(self, rank: int) -> None:
        """Raise a ``ValueError`` unless there are so many sizes."""
        self.with_rank(rank)

    def with_rank(self, rank: int) -> TensorShape:
        """This shape, which must have so many sizes."""
        if len(self) != rank:
            raise ShapeError(f"expected a shape of rank {rank}, got {self}")
        return self

    def is_compatible_with(self, other: Any) -> bool:
        """Whether some tensor can have this shape and the other one."""
        return len(self) == len(other) and all(
            None in (m, n) or m == n
            for m, n in zip(self.as_list(), TensorShape(other).as_list(), strict=True)
        )

    def merge_with(self, other: Any) -> TensorShape:
        """This shape with the sizes that only the other one knows."""
        if not self.is_compatible_with(other):
            raise ShapeError(f"the shapes {self} and {tuple(other)} are not compatible")
        pairs = zip(self.as_list(), TensorShape(other).as_list(), strict=True)
        return TensorShape([n if m is None else m for m, n in pairs])

    def concatenate(self, other: Any) -> TensorShape:
        """The sizes of this shape, then those of the other one."""
        return TensorShape((*self.as_list(), *TensorShape(other).as_list()))

    def is_fully_defined(self) -> bool:
        """Whether all sizes are known before a run."""
        return None not in self.as_list()

    def num_elements(self) -> int | None:
        """The number of elements; None unless all sizes are known."""
        total: Any = 1
        for n in self.as_list():
            total = None if total is None or n is None else total * n
        return total


def same(a: Any, b: Any) -> bool:
    """Whether two sizes are surely equal; nothing is assumed to find out."""
    if isinstance(a, Size):
        return isinstance(b, Size) and (
            a.terms == b.terms or _terms(a.unified()) == _terms(b.unified())
        )
    return not isinstance(b, Size) and a == b


def same_shape(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    """Whether two shapes are surely equal."""
    if a is b:
        return True
    if len(a) != len(b):
        return False
    for m, n in zip(a, b, strict=True):
        if m != n if type(m) is int is type(n) else not same(m, n):
            return False
    return True


def is_one(size: Any) -> bool:
    """Whether a size is the number 1 (a symbolic size is no broadcast axis)."""
    return not isinstance(size, Size) and size == 1


def slice_bounds(item: slice, size: Any) -> tuple[Any, Any, Any]:
    """``item.indices(size)``, also for symbolic sizes and bounds."""
    parts = (item.start, item.stop, item.step)
    if not any(isinstance(p, Size) for p in (*parts, size)):
        return item.indices(size)
    step = 1 if item.step is None else item.step
    low, high = (0, size) if step > 0 else (-1, size - 1)
    first, last = (low, high) if step > 0 else (high, low)
    start = first if item.start is None else _bound(item.start, size, low, high)
    stop = last if item.stop is None else _bound(item.stop, size, low, high)
    return start, stop, step


def _bound(bound: Any, size: Any, low: int, high: Any) -> Any:
    """A slice's bound counted from the front and cut off at both ends."""
    if not isinstance(bound, Size) and bound < 0:
        return larger(size + bound, low)
    return smaller(bound, high)


def slice_length(start: Any, stop: Any, step: Any) -> Any:
    """The number of elements of a slice."""
    if not any(isinstance(p, Size) for p in (start, stop, step)):
        return len(range(start, stop, step))
    if step < 0:
        start, stop, step = stop, start, -step
    return larger((stop - start + (step - 1)) // step, 0)


def is_integer(value: Any) -> bool:
    """Whether a value can be a size: an int (no bool) or a symbolic size."""
    return isinstance(value, Size) or (
        isinstance(value, int) and not isinstance(value, bool)
    )
