"""A C file in the making: definitions by name, each after those that it needs."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from weft import dtype as dtypes
from weft.core.size import Size, may_be_negative
from weft.dtype import DType
from weft.errors import DTypeError

KEYWORDS = frozenset([
    "auto", "break", "case", "char", "const", "continue", "default", "do", "double",
    "else", "enum", "extern", "float", "for", "goto", "if", "inline", "int", "long",
    "register", "restrict", "return", "short", "signed", "sizeof", "static", "struct",
    "switch", "typedef", "union", "unsigned", "void", "volatile", "while", "main",
])  # fmt: skip
_HALF = ("float16", "bfloat16")
_LINE = 100  # characters of a line of numbers


class Source:
    """Definitions by name, in the order in which C wants them."""

    def __init__(self) -> None:
        self.definitions: dict[str, str] = {}

    def define(self, name: str, text: Callable[[], str]) -> str:
        """Add a definition unless it is there; what ``text`` defines comes first."""
        if name not in self.definitions:
            made = text()
            self.definitions.setdefault(name, made)
        return name

    def helper(self, name: str) -> str:
        """One of the functions below, by name."""
        for other in re.findall(r"\w+", HELPERS[name].partition("{")[2]):
            if other in HELPERS:
                self.helper(other)
        return self.define(name, lambda: HELPERS[name])

    def __str__(self) -> str:
        return "\n".join(self.definitions.values())


# -- names and types


def identifier(name: str, prefix: str = "v") -> str:
    """A name in C's sense that resembles a name of Python's.

    >>> from weft.compile.targets.c.source import identifier
    >>> identifier("layers.0.weight"), identifier("int"), identifier("größe")
    ('layers_0_weight', 'v_int', 'gr_e')
    """
    plain = re.sub(r"[^0-9A-Za-z]+", "_", name).strip("_") or prefix
    return f"{prefix}_{plain}" if plain in KEYWORDS or plain[0].isdigit() else plain


def comment(text: str) -> str:
    """A text as a comment, which it cannot end."""
    plain = "".join(c if " " <= c <= "~" else "?" for c in text)
    return f"/* {plain.replace('*/', '* /').replace('/*', '/ *')} */"


def memory_type(dtype: DType) -> str:
    """The C type of an element in memory; half types are their bit patterns."""
    if dtype.name in _HALF:
        return "uint16_t"
    if dtype is dtypes.bool_:
        return "uint8_t"
    return register_type(dtype)


def register_type(dtype: DType) -> str:
    """The C type of a value that is computed with."""
    if dtype.is_complex:
        raise DTypeError(f"C: expected a real dtype, got {dtype.name}")
    if dtype.is_inexact:
        return "double" if dtype is dtypes.float64 else "float"
    return "int" if dtype is dtypes.bool_ else f"{dtype.name}_t"


def short_name(dtype: DType) -> str:
    """A dtype in names of functions.

    >>> from weft.compile.targets.c.source import short_name
    >>> [short_name(d) for d in (weft.float32, weft.uint8, weft.bfloat16, weft.bool)]
    ['f32', 'u8', 'bf16', 'bool']
    """
    kind = re.sub(r"[^0-9]", "", dtype.name)
    letters = {"bfloat": "bf", "float": "f", "uint": "u", "int": "i"}
    stem = dtype.name[: len(dtype.name) - len(kind)]
    return letters.get(stem, stem) + kind


# -- numbers


def number(value: Any, dtype: DType) -> str:
    """A constant of a dtype, as it is in registers."""
    if dtype.is_inexact:
        return floating(float(dtype.np.type(value)), single=dtype is not dtypes.float64)
    if dtype is dtypes.bool_:
        return str(int(bool(value)))
    return whole(int(np.asarray(value).astype(dtype.np)), dtype)


def whole(value: int, dtype: DType) -> str:
    """An integer constant."""
    bits = 8 * dtype.itemsize
    if not dtype.is_signed:
        return f"{value}u" if bits < 64 else f"UINT64_C({value})"
    if bits == 64 and abs(value) > 0x7FFFFFFF:
        return "INT64_MIN" if value == -(2**63) else f"INT64_C({value})"
    return "INT32_MIN" if value == -(2**31) else str(value)


def floating(value: float, *, single: bool) -> str:
    """A floating-point constant that C reads as the same number.

    >>> from weft.compile.targets.c.source import floating
    >>> floating(0.1, single=True), floating(1.0, single=False)
    ('0.1f', '1.0')
    """
    if math.isnan(value):
        return "NAN" if single else "(double)NAN"
    if math.isinf(value):
        name = "INFINITY" if single else "(double)INFINITY"
        return name if value > 0 else f"-{name}"
    text = str(np.float32(value)) if single else repr(value)
    return f"{text}f" if single else text


def array(name: str, values: np.ndarray, dtype: DType) -> str:
    """The definition of a constant array."""
    flat = np.ascontiguousarray(values).reshape(-1)
    if dtype.name in _HALF:
        items = [f"{n}u" for n in flat.view(np.uint16).tolist()]
    elif dtype.is_inexact:
        items = _floats(flat, dtype is not dtypes.float64)
    else:
        items = [number(n, dtype) for n in flat.tolist()]
    kind, count = memory_type(dtype), max(len(items), 1)
    return f"static const {kind} {name}[{count}] = {{\n{_lines(items or ['0'])}\n}};\n"


def _floats(flat: np.ndarray, single: bool) -> list[str]:
    if not np.isfinite(flat).all():
        return [floating(float(n), single=single) for n in flat]
    style, end = ("%.8e", "f") if single else ("%.16e", "")
    return [style % n + end for n in flat.tolist()]


def _lines(items: Iterable[str]) -> str:
    lines, line = [], ""
    for item in items:
        if len(line) + len(item) > _LINE:
            lines.append(line)
            line = ""
        line += item + ","
    return "\n".join([*lines, line])


# -- sizes and indices


class Indices:
    """Index expressions as C, with the names that their symbols have there."""

    def __init__(self, source: Source, names: dict[str, str]) -> None:
        self.source, self.names = source, names

    def text(self, size: Any) -> str:
        """An index expression as an ``int64_t``."""
        if not isinstance(size, Size):
            return whole(int(size), dtypes.int64)
        text = ""
        for atoms, factor in size.terms:
            parts = [self.atom(atom) for atom in atoms]
            if abs(factor) != 1 or not parts:
                parts.append(whole(abs(factor), dtypes.int64))
            sign = "-" if factor < 0 else "+" if text else ""
            text += f" {sign} " if text else sign
            text += " * ".join(parts)
        return text or "0"

    def inner(self, size: Any) -> str:
        """An index expression as a factor of another."""
        text = self.text(size)
        return text if re.fullmatch(r"\w+", text) else f"({text})"

    def atom(self, atom: Any) -> str:
        if atom.a is None:
            return self.names[atom.kind]
        a, c = self.inner(atom.a), self.inner(atom.b)
        if atom.kind in ("min", "max"):
            return f"{self.source.helper(f'{atom.kind}_index')}({a}, {c})"
        if may_be_negative(atom.a):
            name = "floor_index" if atom.kind == "//" else "modulo_index"
            return f"{self.source.helper(name)}({a}, {c})"
        return f"({a} {'/' if atom.kind == '//' else '%'} {c})"

    def real(self, size: Any) -> str:
        """An index expression as a ``double``, which does not overflow."""
        if not isinstance(size, Size):
            return floating(float(size), single=False)
        terms = []
        for atoms, factor in size.terms:
            parts = [floating(float(factor), single=False)]
            terms.append(" * ".join(parts + [self._real_atom(a) for a in atoms]))
        return " + ".join(terms) or "0.0"

    def _real_atom(self, atom: Any) -> str:
        if atom.a is None:
            return f"(double){self.names[atom.kind]}"
        a, c = self.real(atom.a), self.real(atom.b)
        if atom.kind == "//":
            return f"floor(({a}) / ({c}))"
        name = {"%": "fmod", "min": "fmin", "max": "fmax"}[atom.kind]
        return f"{name}({a}, {c})"

    def ratio(self, size: Any) -> str:
        """An expression with quotients, as a ``double``."""
        if not isinstance(size, Size):
            return floating(float(size), single=False)
        terms = []
        for atoms, factor in size.terms:
            parts = [floating(float(factor), single=False)] if factor != 1 else []
            terms.append(" * ".join(parts + [self._quotient(a) for a in atoms]))
        return " + ".join(term or "1.0" for term in terms) or "0.0"

    def _quotient(self, atom: Any) -> str:
        if atom.kind == "/" and atom.a is not None:
            return f"(({self.ratio(atom.a)}) / ({self.ratio(atom.b)}))"
        return f"(double){self.atom(atom)}"


HELPERS = {
    "min_index": """\
static inline int64_t min_index(int64_t a, int64_t b) { return a < b ? a : b; }
""",
    "max_index": """\
static inline int64_t max_index(int64_t a, int64_t b) { return a > b ? a : b; }
""",
    "floor_index": """\
static inline int64_t floor_index(int64_t a, int64_t b) {
  return (a < 0 ? a + 1 - b : a) / b;
}
""",
    "modulo_index": """\
static inline int64_t modulo_index(int64_t a, int64_t b) {
  const int64_t rest = a % b;
  return rest < 0 ? rest + b : rest;
}
""",
    "bits_f32": """\
static inline uint32_t bits_f32(float x) {
  uint32_t y;
  memcpy(&y, &x, sizeof y);
  return y;
}
""",
    "bits_f64": """\
static inline uint64_t bits_f64(double x) {
  uint64_t y;
  memcpy(&y, &x, sizeof y);
  return y;
}
""",
    "float_of_bits": """\
static inline float float_of_bits(uint32_t x) {
  float y;
  memcpy(&y, &x, sizeof y);
  return y;
}
""",
    "double_of_bits": """\
static inline double double_of_bits(uint64_t x) {
  double y;
  memcpy(&y, &x, sizeof y);
  return y;
}
""",
    **{
        f"{name}_{kind}": f"""\
/* a NaN if one of both is; of two zeros the {"larger" if sign == ">" else "smaller"} */
static inline {type} {name}_{kind}({type} x, {type} y) {{
  const {type} alike = {type}_of_bits(bits_{kind}(x) {bits} bits_{kind}(y));
  const {type} z = x {sign} y ? x : y, w = x == y ? alike : z;
  return x != x ? x : w;
}}
"""
        for name, sign, bits in (("maximum", ">", "&"), ("minimum", "<", "|"))
        for kind, type in (("f32", "float"), ("f64", "double"))
    },
    **{
        f"either_{name}_{kind}": f"""\
/* a NaN if one of both is; of two zeros either */
static inline {type} either_{name}_{kind}({type} x, {type} y) {{
  const {type} z = x {sign} y ? x : y;
  return x != x ? x : z;
}}
"""
        for name, sign in (("maximum", ">"), ("minimum", "<"))
        for kind, type in (("f32", "float"), ("f64", "double"))
    },
    **{
        f"i{bits}_of_{kind}": f"""\
static inline int{bits}_t i{bits}_of_{kind}({type} x) {{
  const {type} low = {low}{end}, high = -low;
  return (int{bits}_t)(x >= low && x < high ? x : low);
}}
"""
        for bits, low in ((32, "-2147483648.0"), (64, "-9223372036854775808.0"))
        for kind, type, end in (("f32", "float", "f"), ("f64", "double", ""))
    },
}
