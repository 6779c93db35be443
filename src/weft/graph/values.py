"""The values of nodes' parameters and arguments, as text and back.

    value  = None | True | False | number | inf | nan | complex(number, number)
           | "string" | (value, …) | [value, …] | {"string": value, …} | ...
           | size:size:size           a slice; what is None is left out
           | float32                  a dtype
           | float32(number)          a number of that dtype (a NumPy scalar)
           | float32[size, …]         a type
           | array(type, data)        data = a number or nested list, or base64 text
           | Record(value, …)         an object of a class in ``register_value``
           | size | @variable | graph …
    size   = a sum of products of numbers and symbols: 2*B + 1, (B//2), max(B, 4)

Reading builds values only: no name is looked up outside these tables, nothing is
evaluated or imported.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple, NoReturn

import numpy as np

from weft.core.op import TensorType
from weft.core.size import Atom, Scope, Size, larger, smaller
from weft.dtype import ALL, DType, of_array
from weft.graph.ir import Graph, GraphError, Node, Variable, type_text
from weft.graph.tokens import Tokens, name_text

_DTYPES = {d.name: d for d in ALL}
_LITERALS = {
    "None": None, "True": True, "False": False, "inf": math.inf, "nan": math.nan,
}  # fmt: skip
WORDS = frozenset((*_DTYPES, *_LITERALS, "complex", "array", "graph", "max", "min"))

SMALL = 16  # constants with up to this many elements are written out
DEEPEST = 64  # how far values may nest
MOST_TERMS, MOST_FACTORS = 256, 64  # of a size


class Record(NamedTuple):
    """A class whose objects may be parameters: the fields to make one from."""

    kind: type
    fields: tuple[str, ...]


_RECORDS: dict[str, Record] = {}


def register_value(kind: type, *fields: str) -> None:
    """Let objects of a class be parameters in texts and files.

    The class is called with the values of ``fields`` to make an object from its text.

    >>> class Window:
    ...     def __init__(self, size):
    ...         self.size = size
    >>> weft.graph.values.register_value(Window, "size")
    >>> weft.graph.values.value_text(Window((2, 3)))
    'Window((2, 3))'
    """
    _RECORDS[kind.__name__] = Record(kind, fields)


@cache
def _builtin_records() -> None:
    from weft.ops.resample import Taps

    register_value(Taps, "size", "rows", "cols", "weights")


def value_text(value: Any) -> str:
    """A parameter's value as text that ``parse_value`` reads back exactly.

    >>> weft.graph.values.value_text((1, 2.5, None, slice(0, 4), weft.float32))
    '(1, 2.5, None, 0:4, float32)'
    """
    from weft.graph.text import GraphWriter

    return GraphWriter(constants="full").value(value)


def parse_value(
    text: str,
    *,
    sizes: Scope | None = None,
    variables: Mapping[str, Variable] | None = None,
) -> Any:
    """The value that a text stands for; its sizes and variables must be known.

    >>> weft.graph.values.parse_value("(1, 2.5, None, 0:4, float32)")
    (1, 2.5, None, slice(0, 4, None), weft.float32)
    """
    from weft.graph.parse import GraphReader

    reader = GraphReader(Tokens(text), sizes, variables)
    value = reader.value()
    if reader.tokens.kind != "end":
        reader.tokens.fail("the end of the value")
    return value


# -- writing


class Writer:
    """Values to text. ``constants="small"`` leaves large arrays out."""

    def __init__(self, constants: str = "small") -> None:
        self.full = constants == "full"
        self.variables: dict[str, Variable] = {}  # those written so far

    def value(self, value: Any) -> str:
        write = _WRITE.get(type(value))
        if write is not None:
            return write(self, value)
        if isinstance(value, np.generic):
            return f"{of_array(np.asarray(value)).name}({self.value(value.item())})"
        return self.record(value)

    def record(self, value: Any) -> str:
        _builtin_records()
        name = type(value).__name__
        known = _RECORDS.get(name)
        if known is None or known.kind is not type(value):
            raise GraphError(
                f"a parameter of type {name} cannot be written as text; use numbers, "
                "strings, tuples, dtypes and sizes, or register its class with "
                "weft.graph.values.register_value"
            )
        return f"{name}({self.each(getattr(value, f) for f in known.fields)})"

    def each(self, values: Any) -> str:
        return ", ".join([self.value(v) for v in values])

    def _tuple(self, value: tuple[Any, ...]) -> str:
        return f"({self.each(value)}{',' if len(value) == 1 else ''})"

    def _dict(self, value: dict[str, Any]) -> str:
        for key in value:
            if type(key) is not str:
                raise GraphError(f"a dictionary's keys must be strings, got {key!r}")
        items = [f"{json.dumps(k)}: {self.value(v)}" for k, v in value.items()]
        return "{" + ", ".join(items) + "}"

    def _slice(self, value: slice) -> str:
        bounds = [value.start, value.stop, value.step]
        if value.step is None:
            bounds.pop()
        return ":".join(["" if p is None else self.value(p) for p in bounds])

    def variable(self, variable: Variable) -> str:
        self.variables.setdefault(variable.name, variable)
        return f"@{name_text(variable.name)}"

    def array(self, value: np.ndarray) -> str:
        kind = TensorType(value.shape, of_array(value))
        return f"array({kind}, {self.data(value)})"

    def data(self, value: np.ndarray) -> str:
        """An array's elements: as numbers if few and exact so, else as base64."""
        if value.size <= SMALL:
            listed = _listed(value)
            parsed = np.array(listed, value.dtype).reshape(value.shape)
            if parsed.tobytes() == value.tobytes():
                return self.value(listed)
        elif not self.full:
            return "..."
        return f'"{base64.b64encode(value.tobytes()).decode()}"'

    def graph(self, graph: Graph) -> str:
        raise NotImplementedError


def _listed(value: np.ndarray) -> Any:
    """The elements as Python numbers, floating ones with the fewest digits."""
    if value.dtype.kind in "biuc":
        return value.tolist()
    numbers = [float(str(x)) for x in value.ravel()]
    return np.array(numbers).reshape(value.shape).tolist()


_WRITE: dict[type, Callable[[Writer, Any], str]] = {
    **dict.fromkeys((type(None), bool, int, float), lambda w, v: repr(v)),
    complex: lambda w, v: f"complex({v.real!r}, {v.imag!r})",
    str: lambda w, v: json.dumps(v, ensure_ascii=False),
    type(...): lambda w, v: "...",
    Size: lambda w, v: str(v),
    DType: lambda w, v: v.name,
    TensorType: lambda w, v: type_text(v),
    Node: lambda w, v: f"%{name_text(v.name)}",
    tuple: Writer._tuple,
    list: lambda w, v: f"[{w.each(v)}]",
    dict: Writer._dict,
    slice: Writer._slice,
    Variable: Writer.variable,
    np.ndarray: Writer.array,
    Graph: lambda w, v: w.graph(v),
}

# -- reading

_NUMBERS = (int, float, Size)


class Reader:
    """Text to values; ``nodes`` are those that a ``%name`` can mean."""

    def __init__(
        self,
        tokens: Tokens,
        sizes: Scope | None = None,
        variables: Mapping[str, Variable] | None = None,
    ) -> None:
        self.tokens = tokens
        self.sizes = Scope() if sizes is None else sizes
        self.variables: dict[str, Variable] = dict(variables or {})
        self.nodes: dict[str, Node] = {}
        self._depth = 0

    def value(self) -> Any:
        tokens = self.tokens
        if tokens.skip(":"):
            return self._slice(None)
        self._depth += 1
        if self._depth > DEEPEST:
            tokens.fail("", f"values nest deeper than {DEEPEST} levels")
        found = self._sum()
        self._depth -= 1
        if tokens.skip(":"):
            return self._slice(found)
        return found

    def _slice(self, start: Any) -> slice:
        stop = self._part()
        step = self._part() if self.tokens.skip(":") else None
        return slice(start, stop, step)

    def _part(self) -> Any:
        ends = (":", ",", ")", "]", "}", "")  # the last one: the end of the text
        return None if self.tokens.word in ends else self._sum()

    # -- numbers and sizes

    def _sum(self) -> Any:
        left = self._product()
        while self.tokens.word in ("+", "-") and self.tokens.kind == "mark":
            minus = self._operand(left).take() == "-"
            right = self._number(self._product())
            left = left - right if minus else left + right
            self._bound(1, left)
        return left

    def _product(self) -> Any:
        left = self._primary()
        while self.tokens.word == "*" and self.tokens.kind == "mark":
            self._operand(left).take()
            right = self._number(self._primary())
            self._bound(left, right)
            left = left * right
        return left

    def _bound(self, left: Any, right: Any) -> None:
        """Refuse a product of sizes with more terms or factors than programs have."""
        sizes = [value.terms for value in (left, right) if isinstance(value, Size)]
        factors = sum(max(len(atoms) for atoms, _ in terms) for terms in sizes)
        if math.prod(map(len, sizes)) > MOST_TERMS or factors > MOST_FACTORS:
            self.tokens.fail("a simpler size")

    def _operand(self, value: Any) -> Tokens:
        if not isinstance(value, _NUMBERS):
            self.tokens.fail("',' or the end of the value")
        return self.tokens

    def _number(self, value: Any) -> Any:
        if not isinstance(value, _NUMBERS):
            self.tokens.at -= 1
            self.tokens.fail("a number or a size")
        return value

    def size(self) -> Any:
        """A number or a symbolic size."""
        start = self.tokens.at
        size = self._sum()
        if type(size) is not int and not isinstance(size, Size):
            self.tokens.at = start
            self.tokens.fail("a size")
        if type(size) is int and size < 0:
            self.tokens.at = start
            self.tokens.fail("a size of at least 0")
        return size

    def _primary(self) -> Any:
        tokens = self.tokens
        read = _READ.get(tokens.kind)
        if read is None:
            tokens.fail("a value")
        return read(self)

    def _literal(self) -> Any:
        word = self.tokens.word
        try:
            found: Any = int(word) if word.isdigit() else float(word)
        except ValueError:
            self.tokens.fail("a shorter number")
        self.tokens.at += 1
        return found

    def _string(self) -> str:
        found = self.tokens.decode(self.tokens.word)
        self.tokens.at += 1
        return found

    def _mark(self) -> Any:
        tokens = self.tokens
        word = tokens.word
        if word not in ("-", "(", "[", "{", "..."):
            tokens.fail("a value")
        tokens.at += 1
        if word == "-":
            return -self._number(self._primary())
        if word == "(":
            return self._paren()
        if word == "[":
            return self._items("]")
        return ... if word == "..." else self._dict()

    def _paren(self) -> Any:
        """A tuple, or a size in parentheses."""
        tokens = self.tokens
        if tokens.skip(")"):
            return ()
        first = self.value()
        if tokens.word in ("//", "%", "/") and tokens.kind == "mark":
            kind = self._operand(first).take()
            found = self._atom(kind, first, self._number(self._sum()))
            tokens.expect(")")
            return found
        if tokens.skip(")"):
            return first
        tokens.expect(",")
        return (first, *self._items(")"))

    def _items(self, end: str) -> list[Any]:
        items: list[Any] = []
        while not self.tokens.skip(end):
            items.append(self.value())
            if not self.tokens.skip(","):
                self._end(end)
                break
        return items

    def _end(self, end: str) -> None:
        if not self.tokens.skip(end):
            self.tokens.fail(f"',' or {end!r}")

    def _dict(self) -> dict[str, Any]:
        items: dict[str, Any] = {}
        while not self.tokens.skip("}"):
            if self.tokens.kind != "string":
                self.tokens.fail("a string as key")
            key = self._string()
            self.tokens.expect(":")
            items[key] = self.value()
            if not self.tokens.skip(","):
                self._end("}")
                break
        return items

    def _atom(self, kind: str, a: Any, b: Any) -> Any:
        if not isinstance(a, Size) and not isinstance(b, Size):
            self.tokens.fail("", f"{kind!r} of two numbers; write the result")
        return Size(((Atom(kind, a, b),), 1), scope=self.sizes)

    # -- words

    def _word(self) -> Any:
        tokens = self.tokens
        word = tokens.word
        if word in _LITERALS:
            tokens.at += 1
            return _LITERALS[word]
        if word == "graph":
            return self.graph()
        dtype = _DTYPES.get(word)
        if dtype is not None:
            return self._dtype(dtype)
        tokens.at += 1
        if tokens.word == "(" and tokens.kind == "mark":
            return self._call(word)
        if word not in self.sizes.hints:
            tokens.at -= 1
            tokens.fail("", self._unknown(word))
        return Size(((Atom(word),), 1), scope=self.sizes)

    def _unknown(self, word: str) -> str:
        known = ", ".join(self.sizes.hints) or "none"
        return f"{word!r} is no value; the sizes declared here are: {known}"

    def _dtype(self, dtype: DType) -> Any:
        self.tokens.at += 1
        if self.tokens.skip("["):
            return self.tensor_type(dtype)
        if not self.tokens.skip("("):
            return dtype
        number = self.value()
        self.tokens.expect(")")
        return self._array(TensorType((), dtype), number)[()]

    def _call(self, name: str) -> Any:
        start = self.tokens.at - 1
        self.tokens.at += 1
        if name == "array":
            return self._array_call()
        args = self._items(")")
        try:
            return self._made(name, args)
        except (TypeError, ValueError) as error:
            if isinstance(error, GraphError):
                raise
            self.tokens.at = start
            self.tokens.fail("", f"{name}: {error}")

    def _made(self, name: str, args: list[Any]) -> Any:
        if name in ("max", "min"):
            return (larger if name == "max" else smaller)(*args)
        if name == "complex":
            return complex(*args)
        _builtin_records()
        if name not in _RECORDS:
            raise ValueError("there is no such kind of value")
        return _RECORDS[name].kind(*args)

    # -- types and arrays

    def type(self) -> Any:
        """A tensor's type, or the types of several outputs."""
        tokens = self.tokens
        if tokens.skip("("):
            types = []
            while not tokens.skip(")"):
                types.append(self.type())
                if not tokens.skip(","):
                    self._end(")")
                    break
            return tuple(types)
        dtype = _DTYPES.get(tokens.word)
        if dtype is None:
            tokens.fail("a type, such as float32[2, 3]")
        tokens.at += 1
        tokens.expect("[")
        return self.tensor_type(dtype)

    def tensor_type(self, dtype: DType) -> TensorType:
        """The rest of a type, after ``dtype[``."""
        shape = []
        while not self.tokens.skip("]"):
            shape.append(self.size())
            if not self.tokens.skip(","):
                self._end("]")
                break
        return TensorType(tuple(shape), dtype)

    def _array_call(self) -> np.ndarray:
        kind = self.type()
        self.tokens.expect(",")
        found = self.data(kind)
        self.tokens.expect(")")
        return found

    def data(self, kind: Any) -> np.ndarray:
        """The elements of an array of this type."""
        if not isinstance(kind, TensorType) or any(
            isinstance(n, Size) for n in kind.shape
        ):
            self.tokens.fail("", f"a constant cannot be of type {type_text(kind)}")
        if self.tokens.word == "...":
            self.tokens.fail(
                "", "this constant's elements were left out of the text; print the "
                "graph with constants='full'",
            )  # fmt: skip
        start = self.tokens.at
        found = self.value()
        self.tokens.at, end = start, self.tokens.at
        array = self._array(kind, found)
        self.tokens.at = end
        return array

    def _array(self, kind: TensorType, data: Any) -> np.ndarray:
        try:
            if type(data) is str:
                raw = base64.b64decode(data, validate=True)
                found = np.frombuffer(raw, kind.dtype.np).copy()
            else:
                _check_numbers(data)
                found = np.array(data, kind.dtype.np)
            return found.reshape(kind.shape)
        except (ValueError, TypeError, OverflowError) as error:
            self._bad(kind, error)

    def _bad(self, kind: TensorType, error: Exception) -> NoReturn:
        why = str(error).partition("\n")[0]
        self.tokens.fail("", f"these are no elements of {kind} ({why})")

    # -- references

    def _reference(self) -> Any:
        if self.tokens.word[0] == "@":
            return self.variable()
        return self.node()

    def variable(self) -> Variable:
        name = self.tokens.reference("@")
        found = self.variables.get(name)
        if found is None:
            self.tokens.at -= 1
            self.tokens.fail("", f"there is no variable @{name} (`state` declares one)")
        return found

    def node(self) -> Node:
        name = self.tokens.reference("%")
        found = self.nodes.get(name)
        if found is None:
            self.tokens.at -= 1
            self.tokens.fail("", f"there is no %{name} before this line")
        return found

    def graph(self) -> Graph:
        raise NotImplementedError


def _check_numbers(data: Any) -> None:
    if isinstance(data, list):
        for one in data:
            _check_numbers(one)
    elif not isinstance(data, (bool, int, float, complex)):
        raise TypeError(f"{type(data).__name__} is no number")


_READ: dict[str, Callable[[Reader], Any]] = {
    "number": Reader._literal,
    "string": Reader._string,
    "mark": Reader._mark,
    "word": Reader._word,
    "reference": Reader._reference,
}
