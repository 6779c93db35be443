"""Pickles in protocol 2, as PyTorch writes them, without PyTorch.

Tensors become calls of PyTorch's rebuilding functions over storages. Tensors that
share memory share a storage in the file. It reaches from the first to the last element
of those tensors, so that a small view of a large tensor makes a small file.

Writing does not recurse. Whatever an object's own ``__reduce_ex__`` says of it is
written as it stands; what may be read again is decided by the reader.
"""

from __future__ import annotations

import copyreg
import struct
from collections import Counter, OrderedDict, defaultdict
from types import BuiltinFunctionType, FunctionType
from typing import Any, NamedTuple

import numpy as np

from weft.core.device import Device
from weft.core.dispatch import unable
from weft.core.members import HOOKS, KINDS
from weft.core.size import Shape
from weft.core.tensor import Tensor
from weft.dtype import DType, of_array
from weft.errors import ArgumentError, DTypeError
from weft.nn.module import Module
from weft.pickling import _OWN as TENSOR_FIELDS

_STORAGE = {
    "float32": "Float", "float64": "Double", "float16": "Half", "bfloat16": "BFloat16",
    "int64": "Long", "int32": "Int", "int16": "Short", "int8": "Char", "uint8": "Byte",
    "bool": "Bool", "complex64": "ComplexFloat", "complex128": "ComplexDouble",
}  # fmt: skip
_BATCH = 1000  # items that one instruction appends


class Name(NamedTuple):
    """A name in the pickle."""

    module: str
    name: str


class Call(NamedTuple):
    """A function's name and arguments: the call makes an object when it is read."""

    name: Name
    args: tuple[Any, ...]


class _Saved:
    """A tensor's array, and where it is in the file's storages."""

    def __init__(self, array: np.ndarray, location: str) -> None:
        self.array = array
        self.kind = of_array(array)
        self.location = location
        self.memory: Any = None  # the storage it is in
        first = last = array.__array_interface__["data"][0]
        for n, step in zip(array.shape, array.strides, strict=True):
            last += (n - 1) * step
        self.first = first
        self.end = last + array.itemsize if array.size else first


class SharedMemory:
    """The memory from the first to the last element of tensors that overlap."""

    def __init__(self, group: list[_Saved], number: int) -> None:
        self.start = group[0].first
        self.end = max(one.end for one in group)
        self.kind = group[0].kind
        self.number = number
        self.group = group  # whose arrays are to live until they are written
        for one in group:
            self._check(one)
            one.memory = self

    @property
    def nbytes(self) -> int:
        return self.end - self.start

    @property
    def count(self) -> int:
        """Elements, or bytes where PyTorch has no storage of the dtype."""
        width = self.kind.itemsize if self.kind.name in _STORAGE else 1
        return self.nbytes // width

    def _check(self, one: _Saved) -> None:
        if one.kind is not self.kind:
            raise ArgumentError(
                f"save: tensors of {self.kind.name} and {one.kind.name} are over the "
                "same memory, which PyTorch's files cannot hold; save a .clone() of one"
            )

    def data(self) -> Any:
        """The memory itself."""
        return np.asarray(self).data if self.nbytes else b""

    @property
    def __array_interface__(self) -> dict[str, Any]:
        place = (self.start, True)
        return {"data": place, "shape": (self.nbytes,), "typestr": "|u1", "version": 3}


class _End(NamedTuple):
    """Bytes to write, and an object to remember, once what is before is written."""

    data: bytes
    remembered: Any = None


class Pickler:
    """Writes one object."""

    def __init__(self) -> None:
        self.out: list[Any] = []
        self.memo: dict[int, int] = {}
        self.kept: list[Any] = []  # so that no id is used twice
        self.todo: list[Any] = []
        self.saved: list[_Saved] = []
        self.open: set[int] = set()  # objects that are begun, and not yet remembered

    def run(self, obj: Any, *, older: bool = False) -> tuple[bytes, list[SharedMemory]]:
        """The pickle, and the memory of its storages in order."""
        self.older = older
        self.out.append(b"\x80\x02")
        self.todo.append(obj)
        while self.todo:
            item = self.todo.pop()
            if type(item) is _End:
                self.out.append(item.data)
                if item.remembered is not None:
                    self.open.discard(id(item.remembered))
                    self.remember(item.remembered)
            else:
                self.write(item)
        self.out.append(b".")
        memories = _shared(self.saved)
        data = (x if type(x) is bytes else self._storage(x) for x in self.out)
        return b"".join(data), memories

    # -- the memo

    def remember(self, obj: Any) -> None:
        number = len(self.memo)
        self.memo[id(obj)] = number
        self.kept.append(obj)
        self.out.append(
            b"q" + bytes([number]) if number < 256 else b"r" + struct.pack("<I", number)
        )

    def recall(self, number: int) -> None:
        self.out.append(
            b"h" + bytes([number]) if number < 256 else b"j" + struct.pack("<I", number)
        )

    def begin(self, obj: Any) -> None:
        """Refuse an object that cannot be made before itself."""
        if id(obj) in self.open:
            raise DTypeError(
                f"save: a {type(obj).__name__} contains itself; expected a tree"
            )
        self.open.add(id(obj))

    def then(self, *items: Any) -> None:
        """Write these next, in this order."""
        self.todo += reversed(items)

    # -- values

    def write(self, obj: Any) -> None:
        kind = type(obj)
        plain = _PLAIN.get(kind)
        if plain is not None:
            self.out.append(plain(obj))
        elif kind is Name:
            self.out.append(f"c{obj.module}\n{obj.name}\n".encode())
        elif kind is Call:
            self.then(obj.name, obj.args, _End(b"R"))
        elif id(obj) in self.memo:
            self.recall(self.memo[id(obj)])
        elif kind is tuple:
            self.put_tuple(obj)
        elif kind in _CONTAINERS:
            _CONTAINERS[kind](self, obj)
        else:
            self.put_object(obj)

    def put_tuple(self, obj: Any) -> None:
        if not obj:
            self.out.append(b")")
            return
        if len(obj) > 3:
            self.out.append(b"(")
        end = {1: b"\x85", 2: b"\x86", 3: b"\x87"}.get(len(obj), b"t")
        self.begin(obj)
        self.then(*obj, _End(end, obj))

    def put_list(self, obj: Any) -> None:
        self.out.append(b"]")
        self.remember(obj)
        self.then(*_batched(list(obj), b"e"))

    def put_dict(self, obj: Any) -> None:
        self.out.append(b"}")
        self.remember(obj)
        self.then(*_pairs(obj))

    def put_string(self, obj: str) -> None:
        data = obj.encode("utf-8", "surrogatepass")
        self.out.append(b"X" + struct.pack("<I", len(data)) + data)
        self.remember(obj)

    def put_made(self, obj: Any, call: Call, *rest: Any) -> None:
        """An object that a call makes, then what is done to it."""
        self.begin(obj)
        self.then(call, _End(b"", obj), *rest)

    def put_ordered(self, obj: Any) -> None:
        state = (vars(obj), _End(b"b")) if vars(obj) else ()
        self.put_made(obj, Call(_ORDERED, ()), *_pairs(obj), *state)

    def put_defaultdict(self, obj: Any) -> None:
        call = Call(Name("collections", "defaultdict"), (obj.default_factory,))
        self.put_made(obj, call, *_pairs(obj))

    def put_counter(self, obj: Any) -> None:
        self.put_made(obj, Call(Name("collections", "Counter"), (dict(obj),)))

    def put_bytes(self, obj: bytes) -> None:
        self.put_made(
            obj, Call(Name("_codecs", "encode"), (obj.decode("latin1"), "latin1"))
        )

    def put_bytearray(self, obj: Any) -> None:
        args = (bytes(obj).decode("latin1"), "latin-1")
        self.put_made(obj, Call(Name("__builtin__", "bytearray"), args))

    def put_set(self, obj: Any) -> None:
        name = Name("__builtin__", type(obj).__name__)
        self.put_made(obj, Call(name, (list(obj),)))

    def put_complex(self, obj: complex) -> None:
        self.put_made(obj, Call(Name("__builtin__", "complex"), (obj.real, obj.imag)))

    def put_object(self, obj: Any) -> None:
        if isinstance(obj, Tensor):
            self.put_tensor(obj)
        elif isinstance(obj, DType):
            self.then(Name("torch", obj.name))
        elif isinstance(obj, Device):
            args = (obj.type,) if obj.index is None else (obj.type, obj.index)
            self.put_made(obj, Call(Name("torch", "device"), args))
        elif isinstance(obj, Shape):
            self.put_made(obj, Call(Name("torch", "Size"), (tuple(obj),)))
        elif isinstance(obj, Module):
            self.put_module(obj)
        elif isinstance(obj, (type, FunctionType, BuiltinFunctionType)):
            self.put_reference(obj)
        else:
            self.put_reduced(obj)

    # -- tensors

    def put_tensor(self, x: Any) -> None:
        if x._interpreter is not None:
            raise unable(
                DTypeError(
                    f"save: a value inside {x._interpreter.name} stands for others and "
                    "has none of its own; save the results of the call"
                ),
                x,
            )
        plain = self._rebuilt(x, bool(x.requires_grad) and not x._parameter)
        if x._parameter:
            args: Any = (plain, bool(x.requires_grad), OrderedDict())
            plain = Call(Name("torch._utils", "_rebuild_parameter"), args)
        state = {k: v for k, v in vars(x).items() if k not in TENSOR_FIELDS}
        if state:
            kind = Name("torch.nn.parameter", "Parameter") if x._parameter else _TENSOR
            args = (plain.name, kind, plain.args, state)
            plain = Call(Name("torch._tensor", "_rebuild_from_type_v2"), args)
        self.put_made(x, plain)

    def _rebuilt(self, x: Any, requires_grad: bool) -> Call:
        array = x.to_host()
        if any(s < 0 or s % array.itemsize for s in array.strides):
            array = np.ascontiguousarray(array)
        saved = _Saved(array, str(x.device))
        self.saved.append(saved)
        steps = tuple(s // array.itemsize for s in array.strides)
        tail: tuple[Any, ...] = (requires_grad, OrderedDict())
        name = "_rebuild_tensor_v2"
        if saved.kind.name not in _STORAGE:
            name, tail = "_rebuild_tensor_v3", (*tail, saved.kind)
        args = (saved, _Offset(saved), array.shape, steps, *tail)
        return Call(Name("torch._utils", name), args)

    def _storage(self, item: Any) -> bytes:
        """The bytes of a storage's id, or of a tensor's offset in it."""
        memory = (item.saved if type(item) is _Offset else item).memory
        if type(item) is _Offset:
            return _integer((item.saved.first - memory.start) // memory.kind.itemsize)
        kind = _STORAGE.get(memory.kind.name)
        name = (
            f"ctorch\n{kind}Storage\n" if kind else "ctorch.storage\nUntypedStorage\n"
        )
        texts = map(_text, (str(memory.number), item.location))
        head = b"(" + _text("storage") + name.encode() + b"".join(texts)
        return head + _integer(memory.count) + (b"N" if self.older else b"") + b"tQ"

    # -- modules, and objects by their own account

    def put_module(self, obj: Any) -> None:
        """A module: an empty one of its class, and its attributes."""
        for kind in HOOKS:
            if obj.__dict__.get(kind):
                raise DTypeError(
                    f"save: this {type(obj).__name__} has hooks, which are code and "
                    "stay in the program; remove them, or save its state_dict()"
                )
        fields = {**obj.__dict__, **{kind: dict(getattr(obj, kind)) for kind in KINDS}}
        for kind in KINDS:
            for name, value in fields[kind].items():
                if name not in KINDS and fields.get(name) is value:
                    del fields[name]
        self.then(_reference(type(obj)), (), _End(b"\x81", obj), fields, _End(b"b"))

    def put_reference(self, obj: Any) -> None:
        self.then(_reference(obj))

    def put_reduced(self, obj: Any) -> None:
        self.begin(obj)
        reduce = copyreg.dispatch_table.get(type(obj))
        try:
            found = reduce(obj) if reduce is not None else obj.__reduce_ex__(2)
        except TypeError as error:
            raise _refused(obj, str(error)) from None
        if isinstance(found, str) or len(found) < 2:
            raise _refused(obj, "it is known by its name alone")
        call, args, state, items, pairs = (*found, None, None, None)[:5]
        if items is not None or pairs is not None:
            raise _refused(obj, "it is a container of its own kind")
        if getattr(call, "__name__", "") == "__newobj__":
            kind, *rest = args
            made = (_reference(kind), tuple(rest), _End(b"\x81", obj))
        else:
            made = (_reference(call), args, _End(b"R", obj))
        self.then(*made, *(() if state is None else (state, _End(b"b"))))


class _Offset(NamedTuple):
    """A tensor's offset in its storage, written when all tensors are known."""

    saved: _Saved


def _refused(obj: Any, reason: str) -> DTypeError:
    return DTypeError(
        f"save: cannot save a {type(obj).__name__}: {reason}. Save tensors, numbers, "
        "strings and containers of them, such as a state_dict()"
    )


def _reference(obj: Any) -> Name:
    """A class or function by its name, which must lead to it."""
    module = getattr(obj, "__module__", None) or "builtins"
    name = getattr(obj, "__qualname__", "")
    if "<" in name or not name:
        raise DTypeError(
            f"save: cannot save {name or obj!r}, which was defined inside of a "
            "function: a file knows classes and functions by name. Define it in a "
            "module, or save a state_dict()"
        )
    return Name("__builtin__" if module == "builtins" else module, name)


def _shared(saved: list[_Saved]) -> list[SharedMemory]:
    """Storages for tensors, numbered in the order of first use."""
    groups = [[one] for one in saved if one.end == one.first]
    end = -1
    for one in sorted(saved, key=lambda s: (s.first, -s.end)):
        if one.end > one.first:
            if one.first < end:
                groups[-1].append(one)
            else:
                groups.append([one])
            end = max(end, one.end)
    order = {id(one): k for k, one in enumerate(saved)}
    groups.sort(key=lambda group: min(order[id(one)] for one in group))
    return [SharedMemory(group, number) for number, group in enumerate(groups)]


def _batched(items: list[Any], end: bytes) -> list[Any]:
    found: list[Any] = []
    for start in range(0, len(items), _BATCH):
        found += [_End(b"("), *items[start : start + _BATCH], _End(end)]
    return found


def _pairs(obj: Any) -> list[Any]:
    return _batched([x for pair in obj.items() for x in pair], b"u")


def _integer(n: int) -> bytes:
    if 0 <= n < 256:
        return b"K" + bytes([n])
    if 0 <= n < 65536:
        return b"M" + struct.pack("<H", n)
    if -(1 << 31) <= n < 1 << 31:
        return b"J" + struct.pack("<i", n)
    data = n.to_bytes(n.bit_length() // 8 + 1, "little", signed=True)
    if len(data) < 256:
        return b"\x8a" + bytes([len(data)]) + data
    return b"\x8b" + struct.pack("<i", len(data)) + data


def _text(text: str) -> bytes:
    data = text.encode("utf-8", "surrogatepass")
    return b"X" + struct.pack("<I", len(data)) + data


def plain_pickle(value: Any) -> bytes:
    """The pickle of numbers, strings, lists and dictionaries.

    >>> import pickle
    >>> pickle.loads(weft.serialization.pickler.plain_pickle({"a": [1, 2.5]}))
    {'a': [1, 2.5]}
    """
    return Pickler().run(value)[0]


_ORDERED = Name("collections", "OrderedDict")
_TENSOR = Name("torch", "Tensor")
_PLAIN: dict[type, Any] = {
    type(None): lambda _: b"N",
    bool: lambda b: b"\x88" if b else b"\x89",
    int: _integer,
    float: lambda f: b"G" + struct.pack(">d", f),
    _Saved: lambda saved: saved,  # this and the next are written at the end
    _Offset: lambda offset: offset,
}
_CONTAINERS: dict[type, Any] = {
    str: Pickler.put_string, list: Pickler.put_list, dict: Pickler.put_dict,
    OrderedDict: Pickler.put_ordered, defaultdict: Pickler.put_defaultdict,
    Counter: Pickler.put_counter, bytes: Pickler.put_bytes,
    bytearray: Pickler.put_bytearray,
    set: Pickler.put_set, frozenset: Pickler.put_set, complex: Pickler.put_complex,
}  # fmt: skip
