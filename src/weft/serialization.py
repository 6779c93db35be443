"""Saving tensors, and structures of them, to one safetensors file.

    file       := length (8 bytes, little-endian) header data
    header     := JSON {"__metadata__": {str: str}, name: tensor, ...}
    tensor     := {"dtype": code, "shape": [n, ...], "data_offsets": [begin, end]}
    metadata   := {"format": "weft", "version": "1", "structure": nodes as JSON}
    nodes      := [node, ...]           children before parents, the root last
    node       := ["tensor", name, dtype, requires_grad]
                | ["list", [i, ...]] | ["tuple", [i, ...]]
                | ["dict", [key, ...], [i, ...]]          keys: strings or ints
                | ["value", null | bool | int | float | str]
                | ["int", hexadecimal] | ["float", text] | ["complex", text, text]

The structure is a flat list, so neither writing nor reading recurses, however
deep the nesting. Complex tensors are stored as pairs of reals, with the dtype in
their node. Tensors that share memory are stored once each.

Reading trusts nothing: every length, offset, shape and name is checked against
the file's size before anything is allocated for it, and whatever is wrong is a
``FileFormatError``. Tensors take as much memory as their bytes in the file; the
header, which may have 100 MB, takes some tens of times its text while it is
read, as JSON does in Python. Nothing in a file is ever executed.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import re
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from weft import dtype as dtypes
from weft.core.tensor import Tensor
from weft.dtype import DType
from weft.errors import ArgumentError, DTypeError, FileFormatError

VERSION = "1"
HEADER_LIMIT = 100_000_000  # the safetensors format's own limit
MAX_DIMS = 64  # NumPy's
_CODES: dict[str, DType] = {
    "BOOL": dtypes.bool_, "U8": dtypes.uint8, "I8": dtypes.int8, "I16": dtypes.int16,
    "I32": dtypes.int32, "I64": dtypes.int64, "F16": dtypes.float16,
    "BF16": dtypes.bfloat16, "F32": dtypes.float32, "F64": dtypes.float64,
    "C64": dtypes.complex64,
}  # fmt: skip
_CODE_OF = {d: code for code, d in _CODES.items() if not d.is_complex}


# -- saving


def save(obj: Any, path: Any) -> None:
    """Write tensors, numbers, strings and structures of them to a file.

    ``obj`` is a tensor, ``None``, a bool, number or string, or lists, tuples and
    dictionaries (with string or int keys) of these, nested as deep as you like.
    ``path`` is a path, or a file opened for writing in binary. A path is written
    beside the old file first and then renamed, so a failure leaves the old file
    as it was. Leaves remember ``requires_grad``; gradients are not stored.

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "state.safetensors")
    >>> weft.save({"weight": weft.ones(2), "step": 3}, path)
    >>> weft.load(path)
    {'weight': tensor([1., 1.], shape=(2,), dtype=float32), 'step': 3}
    """
    header, arrays = _encode(obj)
    if callable(getattr(path, "write", None)):
        _write(path, header, arrays)
        return
    try:
        target = os.path.realpath(os.fspath(path))
    except TypeError:
        raise DTypeError(
            f"save: expected a path or a binary file, got {type(path).__name__}"
        ) from None
    with replacing(os.fsdecode(target)) as file:
        _write(file, header, arrays)


@contextlib.contextmanager
def replacing(target: str) -> Iterator[BinaryIO]:
    """A file that takes the target's place once it is wholly on disk."""
    folder, name = os.path.split(target)
    temporary = os.path.join(folder, f".{name[:200]}.{os.urandom(6).hex()}.tmp")
    with about(target):
        try:
            with open(temporary, "xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
    _sync_folder(folder)


def sweep(target: str) -> None:
    """Delete what processes that were killed while writing the target left.

    Nobody else may be writing it.
    """
    folder, name = os.path.split(os.path.realpath(target))
    ours = re.compile(rf"\.{re.escape(name[:200])}\.[0-9a-f]{{12}}\.tmp")
    for left in filter(ours.fullmatch, os.listdir(folder)):
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(folder, left))


@contextlib.contextmanager
def about(path: str) -> Iterator[None]:
    """Let an error of the system, such as a full disk, name the file it is about."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, path) from error


def _sync_folder(folder: str) -> None:
    """Make the rename itself survive a power cut, where the system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _write(file: Any, header: bytes, arrays: list[np.ndarray]) -> None:
    try:
        file.write(len(header).to_bytes(8, "little") + header)
    except TypeError:
        raise DTypeError(
            "save: expected a file opened in binary, got one of text"
        ) from None
    for array in arrays:
        # bytes of a contiguous copy, one tensor at a time
        file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


class _Place(NamedTuple):
    """Where an object stands inside the saved one."""

    parent: _Place | None
    key: Any

    def keys(self) -> list[Any]:
        found, place = [], self
        while place.parent is not None:
            found.append(place.key)
            place = place.parent
        return found[::-1]

    def text(self) -> str:
        """As Python writes it: ``obj["a"][3]``."""
        return "obj" + "".join(
            f'["{k}"]' if isinstance(k, str) else f"[{k}]" for k in self.keys()
        )


class _Encoder:
    """The nodes of a structure, and the tensors in it by name."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.tensors: dict[str, tuple[str, np.ndarray]] = {}

    def run(self, obj: Any) -> None:
        """Visit the structure without recursion, children before parents."""
        results: list[int] = []  # the finished nodes that wait for their parents
        todo: list[tuple[Any, _Place, bool]] = [(obj, _Place(None, None), False)]
        open_ids: set[int] = set()
        while todo:
            value, place, done = todo.pop()
            if done:
                open_ids.discard(id(value))
                self._close(value, results)
            elif type(value) in (list, tuple, dict, OrderedDict):
                self._check_container(value, place, open_ids)
                open_ids.add(id(value))
                todo.append((value, place, True))
                todo += [(v, p, False) for v, p in reversed(_children(value, place))]
            else:
                self._add(self._leaf(value, place), results)

    def _check_container(self, value: Any, place: _Place, open_ids: set[int]) -> None:
        if id(value) in open_ids:
            raise DTypeError(f"save: {place.text()} contains itself; expected a tree")
        for key in value if isinstance(value, dict) else ():
            if type(key) not in (str, int):
                raise DTypeError(
                    f"save: expected string or int keys in {place.text()}, got "
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

    def _leaf(self, value: Any, place: _Place) -> list[Any]:
        if isinstance(value, Tensor):
            return self._tensor(value, place)
        if value is None or type(value) in (bool, str):
            return ["value", value]
        if type(value) is int:
            return ["value", value] if value.bit_length() < 64 else ["int", hex(value)]
        if type(value) is float:
            return ["value", value] if math.isfinite(value) else ["float", repr(value)]
        if type(value) is complex:
            return ["complex", repr(value.real), repr(value.imag)]
        raise DTypeError(
            f"save: cannot save {place.text()}, a {type(value).__name__}; expected "
            "tensors, numbers, strings, None, and lists, tuples or dicts of them"
        )

    def _tensor(self, x: Tensor, place: _Place) -> list[Any]:
        array = x.to_host()
        name = self._name(place)
        if x.dtype.is_complex:
            pairs = np.ascontiguousarray(array).view(x.dtype.to_real().np)
            array = pairs.reshape((*array.shape, 2))
        self.tensors[name] = (_CODE_OF[x.dtype.to_real()], array)
        return ["tensor", name, x.dtype.name, bool(x.requires_grad and x.is_leaf)]

    def _name(self, place: _Place) -> str:
        """The keys on the way, joined by dots, made unique."""
        base = ".".join(map(str, place.keys())) or "tensor"
        base = base.encode("utf-8", "replace").decode()  # no lone surrogates
        name, count = base, 1
        while name in self.tensors or name == "__metadata__":
            count += 1
            name = f"{base}#{count}"
        return name


def _plain_key(key: Any) -> Any:
    """A key as JSON keeps it: large ints as hexadecimal in a list."""
    return key if type(key) is str or key.bit_length() < 64 else [hex(key)]


def _children(value: Any, place: _Place) -> list[tuple[Any, _Place]]:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    return [(item, _Place(place, key)) for key, item in items]


def _encode(obj: Any) -> tuple[bytes, list[np.ndarray]]:
    """The header's bytes, and the arrays in the order of the data."""
    import json

    encoder = _Encoder()
    encoder.run(obj)
    structure = json.dumps(encoder.nodes, separators=(",", ":"), allow_nan=False)
    metadata = {"format": "weft", "version": VERSION, "structure": structure}
    header: dict[str, Any] = {"__metadata__": metadata}
    # The widest first: then each tensor starts at a multiple of its item size.
    ordered = sorted(encoder.tensors.items(), key=lambda item: -item[1][1].itemsize)
    place = 0
    for name, (code, array) in ordered:
        offsets = [place, place + array.nbytes]
        header[name] = {
            "dtype": code, "shape": list(array.shape), "data_offsets": offsets,
        }  # fmt: skip
        place = offsets[1]
    text = json.dumps(header, separators=(",", ":")).encode("ascii")
    text += b" " * (-len(text) % 8)
    if len(text) > HEADER_LIMIT:
        raise ArgumentError(
            f"save: the names and the structure need {len(text):,} bytes, more than "
            f"the format's {HEADER_LIMIT:,}; put the numbers into tensors"
        )
    return text, [array for _, (_, array) in ordered]


# -- loading


def load(path: Any, *, mmap: bool = False) -> Any:
    """Read what ``save`` wrote, or a dictionary from any safetensors file.

    ``path`` is a path, or a file opened for reading in binary. With ``mmap=True``
    tensors are read from the file when they are first touched (a path only);
    changing them does not change the file. A damaged or hostile file raises
    ``FileFormatError``.

    >>> import io
    >>> file = io.BytesIO()
    >>> weft.save([weft.tensor(1.5), ("a", None)], file)
    >>> weft.load(io.BytesIO(file.getvalue()))
    [tensor(1.5000, dtype=float32), ('a', None)]
    """
    if callable(getattr(path, "read", None)):
        if mmap:
            raise ArgumentError("load: mmap=True needs a path, got an open file")
        return _Reader(*_sized(path), _label(path)).load(mmap=False)
    try:
        name = os.fspath(path)
    except TypeError:
        raise DTypeError(
            f"load: expected a path or a binary file, got {type(path).__name__}"
        ) from None
    with open(name, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        return _Reader(file, size, repr(os.fsdecode(name))).load(mmap=mmap)


def _label(file: Any) -> str:
    return repr(str(getattr(file, "name", f"<{type(file).__name__}>")))


def _sized(file: Any) -> tuple[Any, int]:
    """A file and the bytes left in it; one that cannot seek is read whole."""
    try:
        start = file.tell()
        size = file.seek(0, os.SEEK_END) - start
        file.seek(start)
        return file, size
    except (OSError, AttributeError):
        whole = io.BytesIO()
        while chunk := file.read(1 << 20):
            whole.write(_binary(chunk))
        size = whole.tell()
        whole.seek(0)
        return whole, size


def _binary(data: Any) -> Any:
    """What a file gave, if it was opened in binary."""
    if isinstance(data, str):
        raise DTypeError("load: expected a file opened in binary, got one of text")
    return data


class _Entry(NamedTuple):
    """One tensor of the header, checked."""

    dtype: DType
    shape: tuple[int, ...]
    begin: int
    end: int


class _Reader:
    """One reading of one file; every complaint names it."""

    def __init__(self, file: Any, size: int, label: str) -> None:
        self.file = file
        self.size = size
        self.label = label

    def bad(self, reason: str) -> FileFormatError:
        return FileFormatError(f"load: {self.label}: {reason}")

    def load(self, *, mmap: bool) -> Any:
        header, data_size = self.read_header()
        metadata = self.check_metadata(header.pop("__metadata__", {}))
        entries = self.check_entries(header, data_size)
        nodes = None
        if metadata.get("format") == "weft":
            nodes = self.parse_structure(metadata)
        if mmap and data_size:
            tensors = self.map_tensors(entries, data_size)
        else:
            tensors = self.read_tensors(entries)
        return tensors if nodes is None else _Structure(self, nodes, tensors).build()

    # -- the header

    def read_header(self) -> tuple[dict[str, Any], int]:
        if self.size < 8:
            raise self.bad(f"expected at least 8 bytes, got {self.size}")
        length = int.from_bytes(self.read(8), "little")
        if length > self.size - 8 or length > HEADER_LIMIT:
            raise self.bad(
                f"the header claims {length:,} bytes, but {self.size - 8:,} follow"
            )
        header = self.parse_json(self.read(length), "header")
        if not isinstance(header, dict):
            raise self.bad("expected a JSON object as header")
        return header, self.size - 8 - length

    def read(self, count: int) -> bytes:
        data = _binary(self.file.read(count))
        if len(data) != count:
            raise self.bad(f"ends in the middle of {count:,} bytes")
        return data

    def parse_json(self, text: bytes | str, what: str) -> Any:
        import json

        def refuse(word: str) -> Any:
            raise ValueError(f"{word} is not a JSON number")

        try:
            decoded = text.decode("utf-8") if isinstance(text, bytes) else text
            return json.loads(
                decoded, object_pairs_hook=_without_repeats, parse_constant=refuse
            )
        except RecursionError:
            raise self.bad(f"the {what} is nested too deeply") from None
        except ValueError as error:
            raise self.bad(f"the {what} is no valid JSON: {error}") from None

    def check_metadata(self, metadata: Any) -> dict[str, str]:
        if not isinstance(metadata, dict) or not all(
            isinstance(value, str) for value in metadata.values()
        ):
            raise self.bad("expected __metadata__ to map strings to strings")
        return metadata

    def check_entries(self, header: dict[str, Any], size: int) -> dict[str, _Entry]:
        entries = {name: self.check_entry(name, info) for name, info in header.items()}
        place = 0
        ordered = sorted(entries.items(), key=lambda item: item[1][2:])
        for name, entry in ordered:
            if entry.begin != place:
                raise self.bad(
                    f"tensor {name!r} begins at {entry.begin}, expected {place}: "
                    "tensors must neither overlap nor leave holes"
                )
            place = entry.end
        if place != size:
            raise self.bad(f"the tensors need {place:,} bytes of data, got {size:,}")
        return dict(ordered)

    def check_entry(self, name: str, info: Any) -> _Entry:
        if not isinstance(info, dict):
            raise self.bad(f"tensor {name!r}: expected a JSON object")
        code = info.get("dtype")
        dtype = _CODES.get(code) if isinstance(code, str) else None
        if dtype is None:
            known = ", ".join(_CODES)
            raise self.bad(
                f"tensor {name!r}: expected a dtype of {known}, got {code!r}"
            )
        shape = self.check_numbers(name, "shape", info.get("shape"))
        offsets = self.check_numbers(name, "data_offsets", info.get("data_offsets"))
        if len(shape) > MAX_DIMS or len(offsets) != 2:
            raise self.bad(
                f"tensor {name!r}: expected at most {MAX_DIMS} dimensions and two "
                f"offsets, got {len(shape)} and {len(offsets)}"
            )
        # NumPy limits the product of the sizes even where one of them is 0.
        if math.prod(n for n in shape if n) * dtype.itemsize >= 1 << 63:
            raise self.bad(f"tensor {name!r}: the shape {list(shape)} is too large")
        begin, end = offsets
        if end - begin != math.prod(shape) * dtype.itemsize:
            raise self.bad(
                f"tensor {name!r}: {dtype.name} of shape {list(shape)} does not fit "
                f"offsets {[begin, end]}"
            )
        return _Entry(dtype, shape, begin, end)

    def check_numbers(self, name: str, what: str, values: Any) -> tuple[int, ...]:
        if not isinstance(values, list) or not all(
            type(n) is int and 0 <= n < 1 << 63 for n in values
        ):
            raise self.bad(
                f"tensor {name!r}: expected {what} to be a list of sizes of at least 0"
            )
        return tuple(values)

    def parse_structure(self, metadata: dict[str, str]) -> list[Any]:
        if metadata.get("version") != VERSION:
            raise self.bad(
                f"written in version {metadata.get('version')!r} of the format; this "
                f"Weft reads version {VERSION!r}"
            )
        nodes = self.parse_json(metadata.get("structure", ""), "structure")
        if not isinstance(nodes, list) or not nodes:
            raise self.bad("expected the structure to be a list of nodes")
        return nodes

    # -- the data

    def read_tensors(self, entries: dict[str, _Entry]) -> dict[str, Tensor]:
        """Each tensor into memory of its own."""
        found = {}
        for name, entry in entries.items():
            array = np.empty(entry.shape, entry.dtype.np)
            self.fill(array.reshape(-1).view(np.uint8), name)
            found[name] = self.tensor(name, array)
        return found

    def fill(self, raw: np.ndarray, name: str) -> None:
        """Read a tensor's bytes straight into its memory."""
        view, place = raw.data, 0
        readinto = getattr(self.file, "readinto", None)
        while place < len(view):
            rest = view[place : place + (1 << 26)]
            if readinto is not None:
                count = readinto(rest) or 0
            else:
                data = self.file.read(len(rest))
                count = len(data)
                rest[:count] = data
            if count == 0:
                raise self.bad(f"ends inside tensor {name!r}")
            place += count

    def map_tensors(self, entries: dict[str, _Entry], size: int) -> dict[str, Tensor]:
        """Each tensor over the file's own pages, copied when written to."""
        pages = np.memmap(self.file, np.uint8, "c", self.size - size, (size,))
        data = pages.view(np.ndarray)
        return {
            name: self.tensor(name, _as_array(data[entry.begin : entry.end], entry))
            for name, entry in entries.items()
        }

    def tensor(self, name: str, array: np.ndarray) -> Tensor:
        if array.dtype == np.bool_ and array.size and array.view(np.uint8).max() > 1:
            raise self.bad(f"tensor {name!r}: expected booleans of 0 and 1")
        return Tensor(array)


def _as_array(raw: np.ndarray, entry: _Entry) -> np.ndarray:
    array = raw.view(entry.dtype.np).reshape(entry.shape)
    return array if array.flags.aligned else array.copy()


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object whose names all differ."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name occurs twice in an object")
    return found


class _Structure:
    """Building what was saved from its nodes, each used exactly once."""

    def __init__(self, reader: _Reader, nodes: list[Any], tensors: Any) -> None:
        self.reader = reader
        self.nodes = nodes
        self.tensors = tensors
        self.built: list[Any] = []
        self.free: list[bool] = []

    def build(self) -> Any:
        for number, node in enumerate(self.nodes):
            self.built.append(self.one(number, node))
            self.free.append(True)
        if self.free.count(True) != 1 or not self.free[-1]:
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
        out = self.tensors.pop(name)
        if dtype is None or dtype.to_real() is not out.dtype.to_real():
            raise _BadNode
        if dtype.is_complex and not out.dtype.is_complex:
            out = Tensor(_joined(out.array(), dtype))
        _need(out.dtype is dtype and (dtype.is_inexact or not requires_grad))
        return out.requires_grad_() if requires_grad else out


class _BadNode(Exception):
    """A node that does not follow the grammar."""


def _need(truth: bool) -> None:
    if not truth:
        raise _BadNode


def _joined(pairs: np.ndarray, dtype: DType) -> np.ndarray:
    """Complex numbers from pairs of reals."""
    _need(pairs.ndim > 0 and pairs.shape[-1] == 2)
    return pairs.view(dtype.np).reshape(pairs.shape[:-1])


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
