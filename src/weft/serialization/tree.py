"""Structures of tensors: lists, tuples, dictionaries, numbers and strings.

    metadata   = {"format": "weft", "version": "1", "structure": JSON [node, …]}
    node       = ["tensor", name, dtype, requires_grad]
               | ["list", [i, …]] | ["tuple", [i, …]]
               | ["dict", [key, …], [i, …]]          keys: strings or ints
               | ["value", null | bool | int | float | str]
               | ["int", hexadecimal] | ["float", text] | ["complex", text, text]

Children come before parents, the root last: neither writing nor reading recurses,
however deep the nesting. Tensors that share memory are stored once each.
"""

from __future__ import annotations

import json
import math
import sys
from collections import OrderedDict
from typing import Any, NamedTuple

from weft import dtype as dtypes
from weft.core.tensor import Tensor
from weft.errors import DTypeError, FileFormatError
from weft.serialization.container import Contents, FileReader, as_stored, from_stored

FORMAT = "weft"
VERSION = "1"

# -- writing


class _Path(NamedTuple):
    """The path of an object inside the saved one."""

    parent: _Path | None
    key: Any

    def keys(self) -> list[Any]:
        found, path = [], self
        while path.parent is not None:
            found.append(path.key)
            path = path.parent
        return found[::-1]

    def text(self) -> str:
        """The path as Python writes it: ``obj["a"][3]``."""
        return "obj" + "".join(
            f'["{k}"]' if isinstance(k, str) else f"[{k}]" for k in self.keys()
        )


class _Encoder:
    """The nodes of a structure, and the tensors in it by name."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.tensors: dict[str, Any] = {}
        self.cost = 0  # of the objects that reading makes

    def run(self, obj: Any) -> None:
        """Visit the structure without recursion, children before parents."""
        results: list[int] = []  # the finished nodes that wait for their parents
        todo: list[tuple[Any, _Path, bool]] = [(obj, _Path(None, None), False)]
        open_ids: set[int] = set()
        while todo:
            value, path, done = todo.pop()
            self.cost += sys.getsizeof(value) + 16
            if done:
                open_ids.discard(id(value))
                self._close(value, results)
            elif type(value) in (list, tuple, dict, OrderedDict):
                self._check_container(value, path, open_ids)
                open_ids.add(id(value))
                todo.append((value, path, True))
                todo += [(v, p, False) for v, p in reversed(_children(value, path))]
            else:
                self._add(self._leaf(value, path), results)

    def _check_container(self, value: Any, path: _Path, open_ids: set[int]) -> None:
        if id(value) in open_ids:
            raise DTypeError(f"save: {path.text()} contains itself; expected a tree")
        for key in value if isinstance(value, dict) else ():
            if type(key) not in (str, int):
                raise DTypeError(
                    f"save: expected string or int keys in {path.text()}, got "
                    f"{type(key).__name__} ({key!r})"
                )

    def _add(self, node: list[Any], results: list[int]) -> None:
        results.append(len(self.nodes))
        self.nodes.append(node)

    def _close(self, value: Any, results: list[int]) -> None:
        cut = len(results) - len(value)
        children = results[cut:]
        del results[cut:]
        if isinstance(value, dict):
            keys = [_plain_key(key) for key in value]
            self._add(["dict", keys, children], results)
        else:
            self._add([type(value).__name__, children], results)

    def _leaf(self, value: Any, path: _Path) -> list[Any]:
        if isinstance(value, Tensor):
            return self._tensor(value, path)
        if value is None or type(value) in (bool, str):
            return ["value", value]
        if type(value) is int:
            return ["value", value] if value.bit_length() < 64 else ["int", hex(value)]
        if type(value) is float:
            return ["value", value] if math.isfinite(value) else ["float", repr(value)]
        if type(value) is complex:
            return ["complex", repr(value.real), repr(value.imag)]
        raise DTypeError(
            f"save: cannot save {path.text()}, a {type(value).__name__}; expected "
            "tensors, numbers, strings, None, and lists, tuples or dicts of them"
        )

    def _tensor(self, x: Tensor, path: _Path) -> list[Any]:
        name = self._name(path)
        self.tensors[name] = as_stored(x.to_host())
        return ["tensor", name, x.dtype.name, bool(x.requires_grad and x.is_leaf)]

    def _name(self, path: _Path) -> str:
        """The keys on the way, joined by dots, made unique."""
        base = ".".join(map(str, path.keys())) or "tensor"
        base = base.encode("utf-8", "replace").decode()  # no lone surrogates
        name, count = base, 1
        while name in self.tensors or name == "__metadata__":
            count += 1
            name = f"{base}#{count}"
        return name


def _plain_key(key: Any) -> Any:
    """A key as JSON keeps it: large ints as hexadecimal in a list."""
    return key if type(key) is str or key.bit_length() < 64 else [hex(key)]


def _children(value: Any, path: _Path) -> list[tuple[Any, _Path]]:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    return [(item, _Path(path, key)) for key, item in items]


def encode_tree(obj: Any) -> Contents:
    """The contents of a file for a structure of tensors."""
    encoder = _Encoder()
    encoder.run(obj)
    structure = json.dumps(encoder.nodes, separators=(",", ":"), allow_nan=False)
    metadata = {"format": FORMAT, "version": VERSION, "structure": structure}
    return Contents(metadata, encoder.tensors, encoder.cost)


# -- reading


def decode_tree(reader: FileReader) -> Any:
    """The structure in a file."""
    reader.check_version(VERSION)
    return _Structure(reader, reader.tensors()).build()


class _Structure:
    """Builds the saved structure from its nodes, each used exactly once."""

    def __init__(self, reader: FileReader, tensors: dict[str, Tensor]) -> None:
        self.reader = reader
        self.tensors = tensors
        self.built: list[Any] = []
        self.free: list[bool] = []

    def build(self) -> Any:
        for number, node in enumerate(self.reader.items("structure")):
            self.built.append(self.one(number, node))
            self.free.append(True)
            self.reader.budget.spend(sys.getsizeof(self.built[-1]) + 16)
        if not self.free or self.free.count(True) != 1 or not self.free[-1]:
            raise self.reader.bad("the structure is not one tree")
        if self.tensors:
            name = next(iter(self.tensors))
            raise self.reader.bad(f"the structure does not use tensor {name!r}")
        return self.built[-1]

    def bad(self, number: int) -> FileFormatError:
        return self.reader.bad(f"the structure's node {number} is not valid")

    def one(self, number: int, node: Any) -> Any:
        if not isinstance(node, list) or not node or not isinstance(node[0], str):
            raise self.bad(number)
        rule = _RULES.get((node[0], len(node) - 1))
        if rule is None:
            raise self.bad(number)
        try:
            return rule(self, *node[1:])
        except _BadNode:
            raise self.bad(number) from None

    def take(self, children: Any) -> list[Any]:
        """The built children, which no other node may use."""
        _need(isinstance(children, list))
        for i in children:
            _need(type(i) is int and 0 <= i < len(self.built) and self.free[i])
            self.free[i] = False
        return [self.built[i] for i in children]

    def dictionary(self, keys: Any, children: Any) -> dict[Any, Any]:
        _need(isinstance(keys, list))
        names = [_read_key(key) for key in keys]
        values = self.take(children)
        _need(len(names) == len(values) == len(set(names)))
        return dict(zip(names, values, strict=True))

    def tensor(self, name: Any, kind: Any, requires_grad: Any) -> Tensor:
        _need(isinstance(name, str) and name in self.tensors)
        _need(isinstance(kind, str) and type(requires_grad) is bool)
        dtype = dtypes._BY_NAME.get(kind)
        if dtype is None:
            raise _BadNode
        out = from_stored(self.tensors.pop(name), dtype)
        if out is None:
            raise _BadNode
        _need(out.dtype is dtype and (dtype.is_inexact or not requires_grad))
        return out.requires_grad_() if requires_grad else out


class _BadNode(Exception):
    """A node that does not follow the grammar."""


def _need(truth: bool) -> None:
    if not truth:
        raise _BadNode


def _read_key(key: Any) -> Any:
    if type(key) in (str, int):
        return key
    _need(isinstance(key, list) and len(key) == 1)
    return _whole(key[0])


def _scalar(value: Any) -> Any:
    _need(value is None or type(value) in (bool, int, float, str))
    return value


def _whole(text: Any) -> int:
    _need(isinstance(text, str) and text.removeprefix("-").startswith("0x"))
    try:
        return int(text, 16)
    except ValueError:
        raise _BadNode from None


def _real(text: Any) -> float:
    _need(isinstance(text, str) and len(text) < 64)
    try:
        return float(text)
    except ValueError:
        raise _BadNode from None


_RULES: dict[tuple[str, int], Any] = {
    ("tensor", 3): _Structure.tensor,
    ("list", 1): _Structure.take,
    ("tuple", 1): lambda self, children: tuple(self.take(children)),
    ("dict", 2): _Structure.dictionary,
    ("value", 1): lambda self, value: _scalar(value),
    ("int", 1): lambda self, text: _whole(text),
    ("float", 1): lambda self, text: _real(text),
    ("complex", 2): lambda self, real, imag: complex(_real(real), _real(imag)),
}
