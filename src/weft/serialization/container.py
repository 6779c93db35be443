"""The safetensors format: named tensors, and texts about them.

    file       = length (8 bytes, little-endian) header data
    header     = JSON {"__metadata__": {str: str}, name: tensor, …}
    tensor     = {"dtype": code, "shape": [n, …], "data_offsets": [begin, end]}

Reading trusts nothing: every length, offset, shape and name is checked against
the file's size before anything is allocated for it, and whatever is wrong is a
``FileFormatError``. Complex tensors are stored as pairs of reals. The format's own
library is not used: ``docs/format.md`` says what it leaves unchecked.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from weft import dtype as dtypes
from weft.core.tensor import Tensor
from weft.dtype import DType, of_array
from weft.errors import ArgumentError, DTypeError, FileFormatError
from weft.serialization.text import ALLOWANCE, Budget, JsonText

HEADER_LIMIT = 100_000_000  # the safetensors format's own limit
MAX_DIMS = 64  # NumPy's
CHUNK = 1 << 26  # bytes that are read at a time
ENTRY_COST = 1000  # bytes of objects for one tensor
_CODES: dict[str, DType] = {
    "BOOL": dtypes.bool_, "U8": dtypes.uint8, "I8": dtypes.int8, "I16": dtypes.int16,
    "I32": dtypes.int32, "I64": dtypes.int64, "F16": dtypes.float16,
    "BF16": dtypes.bfloat16, "F32": dtypes.float32, "F64": dtypes.float64,
    "U16": dtypes.uint16, "U32": dtypes.uint32, "U64": dtypes.uint64,
    "C64": dtypes.complex64,
}  # fmt: skip
_CODE_OF = {d: code for code, d in _CODES.items() if not d.is_complex}


class Contents(NamedTuple):
    """The contents of a file; ``cost`` is the bytes that reading the metadata takes."""

    metadata: dict[str, str]
    tensors: dict[str, np.ndarray]
    cost: int = 0


def as_stored(array: np.ndarray) -> np.ndarray:
    """Complex numbers as pairs of reals; others as they are."""
    kind = of_array(array)
    if not kind.is_complex:
        return array
    pairs = np.ascontiguousarray(array).view(kind.to_real().np)
    return pairs.reshape((*array.shape, 2))


def from_stored(stored: Tensor, dtype: DType) -> Tensor | None:
    """The tensor of a dtype that was stored; None if this is none."""
    if dtype.is_complex and not stored.dtype.is_complex:
        pairs = stored.array()
        if (
            pairs.ndim == 0
            or pairs.shape[-1] != 2
            or stored.dtype is not dtype.to_real()
        ):
            return None
        return Tensor(pairs.view(dtype.np).reshape(pairs.shape[:-1]))
    return stored if stored.dtype is dtype else None


# -- writing


def layout(contents: Contents) -> tuple[bytes, list[np.ndarray]]:
    """The header's bytes, and the arrays in the order of the data."""
    header: dict[str, Any] = {"__metadata__": contents.metadata}
    # The widest first: then each tensor starts at a multiple of its item size.
    ordered = sorted(contents.tensors.items(), key=lambda item: -item[1].itemsize)
    end = 0
    for name, array in ordered:
        offsets = [end, end + array.nbytes]
        header[name] = {
            "dtype": _CODE_OF[of_array(array)], "shape": list(array.shape),
            "data_offsets": offsets,
        }  # fmt: skip
        end = offsets[1]
    text = json.dumps(header, separators=(",", ":")).encode("ascii")
    text += b" " * (-len(text) % 8)
    _check_readable(contents, len(text), end)
    return text, [array for _, array in ordered]


def _check_readable(contents: Contents, header: int, data: int) -> None:
    """Refuse to write a file that reading would refuse."""
    cost = 6 * header + ENTRY_COST * len(contents.tensors) + data + contents.cost
    if header > HEADER_LIMIT or cost > 2 * (header + data) + ALLOWANCE:
        raise ArgumentError(
            f"save: the names and the structure need {header:,} bytes, and "
            f"{cost:,} bytes of memory to be read again, more than a file may ask "
            "for; put the numbers into tensors"
        )


def write(file: Any, header: bytes, arrays: list[np.ndarray]) -> None:
    try:
        file.write(len(header).to_bytes(8, "little") + header)
    except TypeError:
        raise DTypeError(
            "save: expected a file opened in binary, got one of text"
        ) from None
    for array in arrays:
        # bytes of a contiguous copy, one tensor at a time
        file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


# -- reading


class Entry(NamedTuple):
    """One tensor of the header, checked."""

    dtype: DType
    shape: tuple[int, ...]
    begin: int
    end: int


class FileReader:
    """One reading of one file; every complaint names it."""

    def __init__(self, file: Any, size: int, label: str, *, mmap: bool = False) -> None:
        self.file = file
        self.size = size
        self.label = label
        self.mmap = mmap
        self.place: Callable[[Tensor], Tensor] = lambda x: x  # to its device
        self.budget = Budget(size, self.bad)
        self.metadata: dict[str, str] = {}
        self.entries: dict[str, Entry] = {}
        self.data_size = 0
        self._read_header()

    def bad(self, reason: str) -> FileFormatError:
        return FileFormatError(f"load: {self.label}: {reason}")

    def check_version(self, *known: str) -> None:
        found = self.metadata.get("version")
        if found not in known:
            versions = " and ".join(map(repr, known))
            raise self.bad(
                f"written in version {found!r} of the format "
                f"{self.metadata.get('format')!r}; this Weft reads version {versions}"
            )

    def items(self, key: str) -> Iterator[Any]:
        """The items of a list in the metadata."""
        if key not in self.metadata:
            raise self.bad(f"expected {key!r} in the metadata")
        return JsonText(self.metadata[key], key, self.budget).items()

    # -- the header

    def _read_header(self) -> None:
        if self.size < 8:
            raise self.bad(f"expected at least 8 bytes, got {self.size}")
        length = int.from_bytes(self.read(8), "little")
        if length > self.size - 8 or length > HEADER_LIMIT:
            raise self.bad(
                f"the header claims {length:,} bytes, but {self.size - 8:,} follow"
            )
        self.data_size = self.size - 8 - length
        found = self._parse(self._decode(self.read(length)))
        self._check_offsets(found)

    def _decode(self, raw: bytes) -> str:
        # A text with any character beyond ASCII takes up to four bytes for each.
        self.budget.spend((1 if raw.isascii() else 5) * len(raw))
        try:
            return raw.decode("utf-8")
        except ValueError as error:
            raise self.bad(f"the header is no text: {error}") from None

    def _parse(self, text: str) -> dict[str, Entry]:
        header, entries = JsonText(text, "header", self.budget), {}
        seen: set[str] = set()
        for name in header.members():
            if name in seen:
                raise header.bad(f"the name {name!r} occurs twice")
            seen.add(name)
            if name == "__metadata__":
                self._read_metadata(header)
            else:
                self.budget.spend(ENTRY_COST + sys.getsizeof(name))
                entries[name] = self._check_entry(name, header.entry())
        header.finish()
        return entries

    def _read_metadata(self, header: JsonText) -> None:
        for key in header.members():
            if key in self.metadata:
                raise header.bad(f"the name {key!r} occurs twice")
            if header.next() != '"':
                raise self.bad("expected __metadata__ to map strings to strings")
            value = self.metadata[key] = header.string()
            self.budget.spend(sys.getsizeof(key) + sys.getsizeof(value) + 100)

    def _check_offsets(self, entries: dict[str, Entry]) -> None:
        end = 0
        ordered = sorted(entries.items(), key=lambda item: item[1][2:])
        for name, entry in ordered:
            if entry.begin != end:
                raise self.bad(
                    f"tensor {name!r} begins at {entry.begin}, expected {end}: "
                    "tensors must neither overlap nor leave holes"
                )
            end = entry.end
        if end != self.data_size:
            raise self.bad(
                f"the tensors need {end:,} bytes of data, got {self.data_size:,}"
            )
        self.entries = dict(ordered)

    def _check_entry(self, name: str, info: dict[str, Any]) -> Entry:
        code = info.get("dtype")
        dtype = _CODES.get(code) if isinstance(code, str) else None
        if dtype is None:
            known = ", ".join(_CODES)
            raise self.bad(
                f"tensor {name!r}: expected a dtype of {known}, got {code!r}"
            )
        shape = self._numbers(name, "shape", info.get("shape"))
        offsets = self._numbers(name, "data_offsets", info.get("data_offsets"))
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
        return Entry(dtype, shape, begin, end)

    def _numbers(self, name: str, what: str, values: Any) -> tuple[int, ...]:
        if not isinstance(values, list) or not all(
            type(n) is int and 0 <= n < 1 << 63 for n in values
        ):
            raise self.bad(
                f"tensor {name!r}: expected {what} to be a list of sizes of at least 0"
            )
        return tuple(values)

    # -- the data

    def read(self, count: int) -> bytes:
        data = binary(self.file.read(count))
        if len(data) != count:
            raise self.bad(f"ends in the middle of {count:,} bytes")
        return data

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor by name."""
        if self.mmap and self.data_size:
            return self._map_tensors()
        self.budget.spend(self.data_size)
        return self._read_tensors()

    def _read_tensors(self) -> dict[str, Tensor]:
        """Each tensor into memory of its own."""
        found = {}
        for name, entry in self.entries.items():
            array = np.empty(entry.shape, entry.dtype.np)
            raw = array.reshape(-1).view(np.uint8)
            if not read_into(self.file, raw.data):
                raise self.bad(f"ends inside tensor {name!r}")
            found[name] = self._tensor(name, array)
        return found

    def _map_tensors(self) -> dict[str, Tensor]:
        """Each tensor over the file's own pages, copied when written to."""
        start = self.size - self.data_size
        pages = np.memmap(self.file, np.uint8, "c", start, (self.data_size,))
        data = pages.view(np.ndarray)
        return {
            name: self._tensor(name, _as_array(data[entry.begin : entry.end], entry))
            for name, entry in self.entries.items()
        }

    def _tensor(self, name: str, array: np.ndarray) -> Tensor:
        if array.dtype == np.bool_ and array.size and array.view(np.uint8).max() > 1:
            raise self.bad(f"tensor {name!r}: expected booleans of 0 and 1")
        return self.place(Tensor(array))


def binary(data: Any) -> Any:
    """The bytes that a file gave; an error if it was not opened in binary."""
    if isinstance(data, str):
        raise DTypeError("load: expected a file opened in binary, got one of text")
    return data


def read_into(file: Any, view: memoryview) -> bool:
    """Fill memory with bytes from where a file stands; whether there were enough."""
    readinto = getattr(file, "readinto", None)
    filled = 0
    while filled < len(view):
        rest = view[filled : filled + CHUNK]
        if readinto is not None:
            count = readinto(rest) or 0
        else:
            data = file.read(len(rest))
            count = len(data)
            rest[:count] = data
        if count == 0:
            return False
        filled += count
    return True


def _as_array(raw: np.ndarray, entry: Entry) -> np.ndarray:
    array = raw.view(entry.dtype.np).reshape(entry.shape)
    return array if array.flags.aligned else array.copy()
