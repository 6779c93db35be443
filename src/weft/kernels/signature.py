"""Signatures of kernels: the types of arrays, by name, with symbolic sizes.

    x: float32[n, m], lr: float32, k: int -> out: float32[n, 2*m]

    array     = name : dtype [size, …]
    number    = name : dtype              a tensor of one element, read by its name
    constant  = name : int                a whole number that each call gives
    result    = an array after ``->``; or the name of an array before it, which is
                changed in place

A size is a name, a whole number, or a formula of both; a dtype may be a name such as
``T``, which stands for one floating-point dtype in all places.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from weft import dtype as dtypes
from weft.core.op import TensorType
from weft.core.size import Size
from weft.dtype import DType
from weft.errors import ArgumentError, DTypeError, ShapeError

_DTYPES = {"bool" if d is dtypes.bool_ else d.name: d
           for d in dtypes.ALL if not d.is_complex}  # fmt: skip
_PART = re.compile(r"(\w+)(?:\s*:\s*(\w+)\s*(?:\[(.*)\])?)?")
_FORMULAS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
             ast.FloorDiv: operator.floordiv}  # fmt: skip


class Array(NamedTuple):
    """An array of a signature: its dtype, or the name of one, and its sizes."""

    name: str
    dtype: DType | str
    sizes: tuple[ast.expr, ...]

    def __str__(self) -> str:
        dtype = self.dtype if isinstance(self.dtype, str) else self.dtype.name
        sizes = f"[{', '.join(map(ast.unparse, self.sizes))}]" if self.sizes else ""
        return f"{self.name}: {dtype}{sizes}"


class Signature(NamedTuple):
    """The arguments and results of a kernel.

    >>> from weft.kernels.signature import parse
    >>> one = parse("x: float32[n, m], k: int -> out: float32[n, k]")
    >>> one.names, one.constants, str(one.made[0])
    (('x', 'k'), ('k',), 'out: float32[n, k]')
    """

    names: tuple[str, ...]  # of all arguments, in order
    given: tuple[Array, ...]
    constants: tuple[str, ...]
    made: tuple[Array, ...]
    changed: frozenset[str]  # of the results, those that are arguments too

    def bound(
        self, types: Sequence[TensorType], constants: Mapping[str, int]
    ) -> dict[str, Any]:
        """The sizes and dtypes by name, for arguments of some types."""
        found: dict[str, Any] = dict(constants)
        for array, given in zip(self.given, types, strict=True):
            self._check(array, given, found)
        return found

    def _check(self, array: Array, given: TensorType, found: dict[str, Any]) -> None:
        want = array.dtype
        if isinstance(want, str):
            want = found.setdefault(want, given.dtype)
        if want is not given.dtype or not _computes(given.dtype):
            raise DTypeError(f"expected {array}, got {given}{_values(found)}")
        if len(array.sizes) != len(given.shape):
            raise ShapeError(f"expected {array}, got {given}")
        for size, n in zip(array.sizes, given.shape, strict=True):
            if isinstance(size, ast.Name) and size.id not in found:
                found[size.id] = n
            elif value(size, found) != n:
                raise ShapeError(f"expected {array}, got {given}{_values(found)}")

    def results(self, found: Mapping[str, Any]) -> tuple[TensorType, ...]:
        """The types of the results, for sizes and dtypes by name."""
        types = []
        for array in self.made:
            dtype = array.dtype
            dtype = found[dtype] if isinstance(dtype, str) else dtype
            shape = tuple([value(size, found) for size in array.sizes])
            for n, size in zip(shape, array.sizes, strict=True):
                if not isinstance(n, Size) and n < 0:
                    raise ShapeError(
                        f"expected {array} to have a size of at least 0, but "
                        f"{ast.unparse(size)} is {n}{_values(found)}"
                    )
            types.append(TensorType(shape, dtype))
        return tuple(types)


def value(size: ast.expr, found: Mapping[str, Any]) -> Any:
    """A size formula's value, for sizes by name."""
    if isinstance(size, ast.Constant):
        return size.value
    if isinstance(size, ast.Name):
        return found[size.id]
    assert isinstance(size, ast.BinOp)
    left, right = value(size.left, found), value(size.right, found)
    if isinstance(size.op, ast.FloorDiv) and not isinstance(right, Size) and right <= 0:
        raise ShapeError(f"a size is divided by {ast.unparse(size.right)}, {right}")
    return _FORMULAS[type(size.op)](left, right)


def _values(found: Mapping[str, Any]) -> str:
    text = ", ".join(f"{k} = {getattr(n, 'name', n)}" for k, n in found.items())
    return f" where {text}" if text else ""


def _computes(dtype: DType) -> bool:
    return dtype in _DTYPES.values()


def parse(text: str) -> Signature:
    """The signature that a text describes."""
    if not isinstance(text, str) or text.count("->") != 1:
        raise _wrong(text, "expected arguments, '->' and results")
    before, after = text.split("->")
    names, given, constants = [], [], []
    for one in _parts(before, text):
        names.append(one[0])
        if one[1] is None:
            raise _wrong(text, f"expected a dtype for {one[0]}, such as {one[0]}: int")
        if one[1] == "int" and one[2] is None:
            constants.append(one[0])
        else:
            given.append(_array(one, text))
    by_name = {array.name: array for array in given}
    made, changed = [], set()
    for one in _parts(after, text):
        if one[0] in names and (one[1] is not None or one[0] not in by_name):
            raise _wrong(text, f"expected the name {one[0]} alone, of an array that is "
                               "changed in place, or another name")  # fmt: skip
        if one[1] is None and one[0] not in by_name:
            raise _wrong(text, f"expected a dtype for {one[0]}, or the name of one of "
                               "the arguments")  # fmt: skip
        changed |= {one[0]} & by_name.keys()
        made.append(by_name.get(one[0]) or _array(one, text))
    every = [*names, *[a.name for a in made if a.name not in changed]]
    if len(set(every)) < len(every) or len({a.name for a in made}) < len(made):
        raise _wrong(text, "expected each name once")
    if not made:
        raise _wrong(text, "expected at least one result")
    found = Signature(
        tuple(names), tuple(given), tuple(constants), tuple(made), frozenset(changed)
    )
    _check_names(found, text)
    return found


def _parts(text: str, whole: str) -> list[tuple[str, str | None, str | None]]:
    found = []
    for part in re.split(r",(?![^\[]*\])", text) if text.strip() else ():
        match = _PART.fullmatch(part.strip())
        if match is None or not match[1].isidentifier():
            raise _wrong(
                whole, f"expected 'name: dtype[size, …]', got {part.strip()!r}"
            )
        found.append((match[1], match[2], match[3]))
    return found


def _array(part: tuple[str, str | None, str | None], whole: str) -> Array:
    name, kind, sizes = part
    assert kind is not None
    dtype = _DTYPES.get(kind) or (kind if kind[0].isupper() else None)
    if dtype is None:
        raise _wrong(
            whole,
            f"expected a dtype among {', '.join(_DTYPES)}, or a name such as T, for "
            f"{name}, got {kind}",
        )
    if sizes is None:
        return Array(name, dtype, ())
    try:
        tree = ast.parse(f"({sizes},)", mode="eval").body
        assert isinstance(tree, ast.Tuple)
        parts = tuple(tree.elts)
    except (SyntaxError, AssertionError):
        parts = ()
    if not parts or not all(map(_is_size, parts)):
        raise _wrong(
            whole,
            f"expected sizes such as n, 4 or 2*n for {name}, got [{sizes}]",
        )
    return Array(name, dtype, parts)


def _is_size(tree: ast.expr) -> bool:
    if isinstance(tree, ast.BinOp) and type(tree.op) in _FORMULAS:
        return _is_size(tree.left) and _is_size(tree.right)
    whole = isinstance(tree, ast.Constant) and type(tree.value) is int
    return whole or isinstance(tree, ast.Name)


def _check_names(found: Signature, text: str) -> None:
    """Check that arguments determine all sizes and dtypes, each before its use."""
    known = set(found.constants)
    kinds: set[str] = set()
    for array in found.given:
        for size in array.sizes:
            if isinstance(size, ast.Name):
                known.add(size.id)
            _known(size, known, array, text)
        kinds |= {array.dtype} if isinstance(array.dtype, str) else set()
    for array in found.made:
        for size in array.sizes:
            _known(size, known, array, text)
        if isinstance(array.dtype, str) and array.dtype not in kinds:
            raise _wrong(text, f"expected an argument of the dtype {array.dtype}")


def _known(size: ast.expr, known: set[str], array: Array, text: str) -> None:
    names = {n.id for n in ast.walk(size) if isinstance(n, ast.Name)}
    for name in sorted(names - known):
        raise _wrong(text, f"expected the size {name} of {array.name} to be one of an "
                           f"argument before it, or 'int'")  # fmt: skip


def _wrong(text: Any, what: str) -> ArgumentError:
    return ArgumentError(f"kernel: {what}, in the signature {text!r}")
