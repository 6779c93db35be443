"""Executables: programs for one set of sizes, as data that an ``Executor`` runs.

    slots      values whose addresses launches read: arguments, variables, outputs,
               constants, and values in one arena
    values     arrays that Python sees: the first are arguments, then variables, buffers
               for variables that are only written, outputs, and others
    rows       launches, as the native loop reads them (see ``driver``), with numbers
               of functions and slots in place of addresses
    gangs      what it goes through: launches side by side, and where addresses are
               filled in again
    jobs       the records of library calls, likewise

There is no address in it, so that one process can store it and another one run it.
A program that calls NumPy holds the nodes it calls, and cannot be stored.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from weft.core.op import Op, find_op, is_own
from weft.dtype import DType, as_dtype, of_array

ndarray = np.ndarray
NOWHERE = -1  # the slot of a value that no launch reads
ITERATIONS, JOBS, GANG, FILL = range(4)  # what rows lead to


class Symbol(NamedTuple):
    """A native function: of which code, and its name there."""

    kind: str  # "kernel", or the family of library kernels
    of: str  # the key of kernels' code, or the library's dtype (and shape of tile)
    name: str


class Held(NamedTuple):
    """A variable that is read."""

    name: str
    shape: tuple[int, ...]
    dtype: DType
    slot: int
    state: bool  # whether its new value is written over the old one


class OutputBuffer(NamedTuple):
    """Memory for a result: an output, or a variable that is only written."""

    name: str
    shape: tuple[int, ...]
    dtype: DType
    slot: int


class Kept(NamedTuple):
    """A value in the arena that Python sees."""

    value: int
    offset: int
    shape: tuple[int, ...]
    dtype: DType


class Output(NamedTuple):
    """A result: of which value, and whether it is a copy of that."""

    ref: Any
    copied: bool


class Write(NamedTuple):
    """The new value of a variable, and the variable that it is the old value of."""

    name: str
    ref: Any
    source: str


class Jobs(NamedTuple):
    """Records of library calls, and the words in them that are addresses."""

    words: ndarray
    pointers: ndarray  # word, slot, offset in bytes
    workspaces: ndarray  # words of addresses; the next word is the size
    each: int  # bytes of a worker's workspace
    contexts: ndarray  # word, number of a context; the word before is the epilogue's
    tables: ndarray  # word, byte of the constant data
    # Products whose right operand is a variable that does not change here: the job's
    # first word, which of those held, the function that packs it, its tasks, and bytes.
    packs: ndarray
    # Nested programs: words of the addresses of their slots, gangs and sizes; the slot
    # that their memory is in, and the byte there.
    nested: ndarray
    flags: ndarray  # word, number of the error flag among the sizes


class Executable(NamedTuple):
    """A native program for one set of sizes."""

    nbytes: int  # of the arena
    slots: int
    offsets: ndarray  # slot, byte of the arena
    constants: list[tuple[int, int, ndarray]]  # slot, value, and what it is
    inputs: list[int]  # slots
    held: list[Held]
    state_buffers: list[OutputBuffer]
    fresh: list[OutputBuffer]
    kept: list[Kept]
    values: int
    functions: list[Symbol]
    buffer_slots: ndarray  # of each kernel's buffers
    buffer_offsets: ndarray  # in bytes, into the slots' memory
    numbers: ndarray  # sizes
    flags: ndarray  # of errors, among the numbers
    rows: ndarray
    gangs: ndarray
    contexts: ndarray
    jobs: Jobs
    data: ndarray  # bytes of tables
    plan: list[Any]  # ranges of gangs, and calls
    stop: int  # the index in the plan before which errors are looked for
    outputs: list[Output]
    writes: list[Write]
    counts: tuple[int, int]  # nodes and kernels
    nested: Sequence[Executable]  # bodies of loops and branches
    prologue: int  # the gang at which iterations of a loop after the first begin

    @property
    def can_be_stored(self) -> bool:
        """Whether it is data alone."""
        if not all(type(step) is tuple for step in self.plan):
            return False
        try:
            for ref in [o.ref for o in self.outputs] + [w.ref for w in self.writes]:
                _plain_ref(ref)
        except Unstorable:
            return False
        return True


def libraries_of(executable: Executable) -> set[str]:
    """The keys of the libraries that its kernels, and those of its bodies, are in."""
    own = {one.of for one in executable.functions if one.kind == "kernel"}
    return own.union(*[libraries_of(one) for one in executable.nested])


# -- values that are not in memory as they are


class Shown(NamedTuple):
    """A value seen through views."""

    base: Any
    views: Sequence[tuple[Op, dict[str, Any]]]

    def of(self, values: Sequence[Any]) -> ndarray:
        found = value_of(self.base, values)
        for view, params in self.views:
            found = view.kernel(found, **params)
        return found


class Computed(NamedTuple):
    """A value that is computed wherever it is needed."""

    op: Op
    args: Sequence[Any]
    params: dict[str, Any]

    def of(self, values: Sequence[Any]) -> ndarray:
        args = [value_of(a, values) for a in self.args]
        return np.asarray(self.op.kernel(*args, **self.params))


class Literal(NamedTuple):
    """A number, or a constant."""

    value: Any

    def of(self, values: Sequence[Any]) -> Any:
        return self.value


def value_of(ref: Any, values: Sequence[Any]) -> Any:
    """The value that a reference leads to: the number of one, or how to get it."""
    return values[ref] if type(ref) is int else ref.of(values)


def leaves(ref: Any) -> list[int]:
    """The numbers of the values that a reference needs."""
    if type(ref) is int:
        return [ref]
    inner: Sequence[Any] = ()
    if isinstance(ref, (Shown, Computed)):
        inner = [ref.base] if isinstance(ref, Shown) else ref.args
    return [value for one in inner for value in leaves(one)]


class Called(NamedTuple):
    """A node that NumPy computes."""

    node: Any
    args: list[Any]
    params: dict[str, Any]
    value: int
    slot: int


# -- as bytes

_RECORDS: dict[str, Any] = {
    "held": Held, "state_buffers": OutputBuffer, "fresh": OutputBuffer, "kept": Kept,
    "outputs": Output, "writes": Write, "functions": Symbol,
}  # fmt: skip


class Unstorable(Exception):
    """A reference to something of the user's."""


def _plain_ref(ref: Any) -> Any:
    """A reference as JSON has it; an error if it leads to something of the user's."""
    if type(ref) is int:
        return ref
    if isinstance(ref, Literal):
        return ["literal", _plain_value(ref.value)]
    if isinstance(ref, Shown):
        views = [[_name(op), _plain_value(params)] for op, params in ref.views]
        return ["shown", _plain_ref(ref.base), views]
    args = [_plain_ref(arg) for arg in ref.args]
    return ["computed", _name(ref.op), args, _plain_value(ref.params)]


def _whole_ref(ref: Any) -> Any:
    if type(ref) is int:
        return ref
    kind, first, *rest = ref
    if kind == "literal":
        return Literal(_whole_value(first))
    if kind == "shown":
        views = [(find_op(name), _whole_value(params)) for name, params in rest[0]]
        return Shown(_whole_ref(first), views)
    args, params = rest
    return Computed(find_op(first), list(map(_whole_ref, args)), _whole_value(params))


def _name(op: Op) -> str:
    if not is_own(op):
        raise Unstorable
    return op.name


def _plain_value(value: Any) -> Any:
    """A parameter as JSON has it."""
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return ["float", value.hex()]
    if type(value) is tuple:
        return ["tuple", *map(_plain_value, value)]
    if type(value) is slice:
        return ["slice", *map(_plain_value, (value.start, value.stop, value.step))]
    if type(value) is dict:
        return {name: _plain_value(one) for name, one in value.items()}
    if isinstance(value, DType):
        return ["dtype", value.name]
    raise Unstorable


def _whole_value(value: Any) -> Any:
    if type(value) is dict:
        return {name: _whole_value(one) for name, one in value.items()}
    if type(value) is not list:
        return value
    kind, *parts = value
    if kind in ("float", "dtype"):
        return float.fromhex(parts[0]) if kind == "float" else as_dtype(parts[0])
    inner = tuple(map(_whole_value, parts))
    return slice(*inner) if kind == "slice" else inner


def to_bytes(executable: Executable) -> bytes:
    """An executable as bytes: its structure as text, then its arrays in a row."""
    arrays: list[ndarray] = []
    outputs = [one._replace(ref=_plain_ref(one.ref)) for one in executable.outputs]
    writes = [one._replace(ref=_plain_ref(one.ref)) for one in executable.writes]
    nested: Any = [np.frombuffer(to_bytes(x), np.uint8) for x in executable.nested]
    executable = executable._replace(outputs=outputs, writes=writes, nested=nested)

    def plain(value: Any) -> Any:
        if isinstance(value, ndarray):
            arrays.append(value)
            return {"array": [of_array(value).name, list(value.shape)]}
        if isinstance(value, (list, tuple)):
            return [plain(v) for v in value]
        return value.name if isinstance(value, DType) else value

    text = json.dumps(plain(executable)).encode()
    return b"".join([len(text).to_bytes(8, "little"), text, *_bytes(arrays)])


def from_bytes(data: bytes) -> Executable:
    """The executable that was stored."""
    end = 8 + int.from_bytes(data[:8], "little")
    at = [end]

    def whole(value: dict[str, Any]) -> Any:
        if "array" not in value:
            return value  # parameters
        name, shape = value["array"]
        dtype = as_dtype(name).np
        begin, at[0] = at[0], at[0] + math.prod(shape) * dtype.itemsize
        return np.frombuffer(bytearray(data[begin : at[0]]), dtype).reshape(shape)

    fields = json.loads(data[8:end], object_hook=whole)
    values = dict(zip(Executable._fields, fields, strict=True))
    for name, kind in _RECORDS.items():
        values[name] = [kind(*row) for row in values[name]]
    for name in ("outputs", "writes"):
        values[name] = [r._replace(ref=_whole_ref(r.ref)) for r in values[name]]
    for name in ("held", "state_buffers", "fresh", "kept"):
        values[name] = [
            r._replace(shape=tuple(r.shape), dtype=as_dtype(r.dtype))
            for r in values[name]
        ]
    values["plan"] = [tuple(step) for step in values["plan"]]
    values["constants"] = [tuple(row) for row in values["constants"]]
    values["nested"] = [from_bytes(one.tobytes()) for one in values["nested"]]
    values["jobs"], values["counts"] = Jobs(*values["jobs"]), tuple(values["counts"])
    return Executable(**values)


def _bytes(arrays: Sequence[ndarray]) -> Iterable[bytes]:
    return (np.ascontiguousarray(a).tobytes() for a in arrays)
