"""PyTorch's own files, both kinds: archives, and the older pickles with storages.

    archive    a zip archive (``weft.serialization.archive``): a pickle of the object,
               and a record for each storage
    older      five pickles (magic number, version, facts about the machine, the
               object, the storages' keys), then each storage: its count and elements

Reading makes tensors that share memory as the saved ones did. The pickle is read by
``Machine``, which executes nothing.
"""

from __future__ import annotations

import io
import os
import sys
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.core.device import cpu
from weft.dtype import DType, bool_
from weft.errors import ArgumentError, DTypeError, FileFormatError
from weft.runtime.cpu.buffers import empty
from weft.serialization import options
from weft.serialization.archive import ALIGNMENT, Archive, Record, Writer
from weft.serialization.container import CHUNK, read_into
from weft.serialization.machine import Machine, Scan, Source
from weft.serialization.names import TABLE, Names, get_safe_globals
from weft.serialization.names import _path_of as path_of
from weft.serialization.pickler import Pickler, SharedMemory, plain_pickle
from weft.serialization.storages import Placement, SavedStorage, StorageKind

MAGIC = 0x1950A86A20F9469CFC6C
VERSION = 1001


def is_archive(head: bytes) -> bool:
    """Whether a file begins like a zip archive."""
    return head[:4] in (b"PK\x03\x04", b"PK\x05\x06")


def is_pickle(head: bytes) -> bool:
    """Whether a file begins like a pickle, rather than like safetensors."""
    if head[8:9] in (b"{", b" ", b"\n", b"\t", b"\r"):
        return False
    binary = head[:1] == b"\x80" and len(head) > 1 and head[1] <= 5
    return binary or head.startswith((b"L1195470371", b"I1195470371"))


class TorchFile:
    """One reading of one file."""

    def __init__(
        self,
        file: Any,
        size: int,
        label: str,
        placement: Placement,
        *,
        weights_only: bool = True,
        mmap: bool = False,
        encoding: str = "utf-8",
    ) -> None:
        self.file = file
        self.size = size
        self.label = label
        self.placement = placement
        self.names = Names(label, placement, weights_only)
        self.mmap = mmap
        self.encoding = encoding
        self.storages: dict[str, SavedStorage] = {}

    def bad(self, reason: str) -> FileFormatError:
        return FileFormatError(f"load: {self.label}: {reason}")

    def read(self, archive: bool) -> Any:
        """The object in the file."""
        if archive:
            return self._archive()
        if self.mmap:
            raise ArgumentError(
                f"load: {self.label} is in PyTorch's older format, which cannot be "
                "mapped; load it without mmap=True, or save it anew"
            )
        return self._older()

    def unsafe(self, archive: bool) -> list[str]:
        """The names in the file that it may not use."""
        if archive:
            source = self._pickle(self._open_archive())
        else:
            source = self._older_start()
        scan = Scan(source, self.encoding)
        scan.run()
        known = {*TABLE, *(path_of(given)[0] for given in get_safe_globals())}
        return sorted(set(scan.names.seen) - known)

    def _machine(self, source: Source, persistent: Callable[[Any], Any]) -> Any:
        return Machine(source, self.names, persistent, self.encoding).run()

    # -- archives

    def _open_archive(self) -> Archive:
        archive = Archive(self.file, self.size, self.bad)
        if "constants.pkl" in archive:
            raise self.bad(
                "this is a TorchScript program (torch.jit.save), not a file of "
                "torch.save; save the model's state_dict()"
            )
        return archive

    def _pickle(self, archive: Archive) -> Source:
        data = archive.read("data.pkl")
        return Source(io.BytesIO(data), len(data), self.bad)

    def _archive(self) -> Any:
        archive = self._open_archive()
        swapped = _byte_order(archive, self.bad) != sys.byteorder

        def persistent(saved: Any) -> Any:
            kind, key, location, count = self._storage_id(saved, 5)
            found = self.storages.get(key)
            if found is None:
                raw = self._record(archive, f"data/{key}", kind, count)
                if swapped:
                    raw = self._swapped(raw, kind)
                found = self.storages[key] = self._stored(raw, kind, location)
            elif found.kind is not kind:
                raise self.bad(f"the storage {key!r} is used with two dtypes")
            return found

        return self._machine(self._pickle(archive), persistent)

    def _storage_id(self, saved: Any, length: int) -> tuple[Any, str, str, int]:
        """A persistent id: that of a storage, checked."""
        if type(saved) is not tuple or len(saved) != length:
            raise self.bad("expected the pickle to refer to storages, and nothing else")
        word, kind, key, location, count, *_ = map(_as_text, saved)
        if (
            not _is_word(word, "storage")
            or type(kind) is not StorageKind
            or type(key) is not str
            or type(location) is not str
            or type(count) is not int
            or count < 0
        ):
            raise self.bad("expected the pickle to refer to storages, and nothing else")
        return kind.dtype, key, location, count

    def _stored(self, raw: np.ndarray, kind: Any, location: str) -> SavedStorage:
        if kind is bool_ and raw.size and raw.max() > 1:
            raise self.bad("expected booleans of 0 and 1")
        made = SavedStorage(raw, kind, cpu)
        made.device = self.placement.device(location, made)
        return made

    def _record(
        self, archive: Archive, name: str, kind: DType | None, count: int
    ) -> np.ndarray:
        """A storage's bytes."""
        record = archive.find(name)
        nbytes = count * (1 if kind is None else kind.itemsize)
        if record.size != nbytes:
            raise self.bad(
                f"the storage {name!r} should have {nbytes:,} bytes, and has "
                f"{record.size:,}"
            )
        if options.state.skip_data:
            return empty((nbytes,), np.uint8)
        at = archive.start + archive.data_at(record)
        if self.mmap and nbytes:
            return self._mapped(at, nbytes)
        self.file.seek(at)
        return self._filled(nbytes, name, archive, record)

    def _mapped(self, at: int, nbytes: int) -> np.ndarray:
        pages = np.memmap(self.file, np.uint8, "c", at, (nbytes,))
        raw = pages.view(np.ndarray)
        return raw if at % ALIGNMENT == 0 else raw.copy()

    def _filled(
        self, nbytes: int, name: str, archive: Any = None, record: Record | None = None
    ) -> np.ndarray:
        """Bytes from where the file stands, and their checksum compared."""
        raw = empty((nbytes,), np.uint8)
        crc, at = 0, 0
        while at < nbytes:
            part = raw[at : at + CHUNK]
            if not read_into(self.file, part.data):
                raise self.bad(f"ends inside the storage {name!r}")
            crc = zlib.crc32(part.data, crc) if archive is not None else 0
            at += len(part)
        if archive is not None:
            archive.check(name, record, crc)
        return raw

    def _swapped(self, raw: np.ndarray, kind: DType | None) -> np.ndarray:
        if kind is None:
            raise self.bad("plain bytes of a machine with another byte order")
        width = kind.itemsize // 2 if kind.is_complex else kind.itemsize
        numbers = raw.reshape(-1, width)
        return np.ascontiguousarray(numbers[:, ::-1]).reshape(-1)

    # -- the older format

    def _older_start(self) -> Source:
        """The bytes from the object's pickle on."""
        source = Source(self.file, self.size, self.bad)
        for expected, what in ((MAGIC, "magic number"), (VERSION, "version")):
            found = self._machine(source, self._no_storage)
            if type(found) is not int or found != expected:
                raise self.bad(
                    f"a pickle without torch.save's {what}; Weft reads pickles of "
                    "torch.save alone"
                )
        facts = self._machine(source, self._no_storage)
        if not isinstance(facts, dict):
            raise self.bad("expected facts about the machine that wrote the file")
        return source

    def _no_storage(self, saved: Any) -> Any:
        raise self.bad("expected no storage here")

    def _older(self) -> Any:
        source = self._older_start()
        at, left = self.file.tell(), source.left
        scan = Scan(source, self.encoding)
        scan.run()
        self._read_storages(source, self._wanted(scan.storages))
        end = self.file.tell()
        self.file.seek(at)
        found = self._machine(Source(self.file, left, self.bad), self._older_id)
        self.file.seek(end)
        return found

    def _wanted(self, ids: list[Any]) -> dict[str, tuple[DType | None, str, int]]:
        """The storages that the pickle refers to."""
        wanted: dict[str, tuple[DType | None, str, int]] = {}
        for saved in ids:
            if type(saved) is tuple and saved and _is_word(saved[0], "module"):
                continue
            word, *rest = saved if type(saved) is tuple and len(saved) == 6 else [None]
            if not rest:
                raise self.bad("expected the pickle to refer to storages")
            known = TABLE.get(getattr(rest[0], "path", ""))
            named = (word, known.value if known is not None else None, *rest[1:])
            kind, key, location, count = self._storage_id(named, 6)
            if wanted.setdefault(key, (kind, location, count)) != (
                kind, location, count,
            ):  # fmt: skip
                raise self.bad(f"the storage {key!r} is described in two ways")
        return wanted

    def _read_storages(self, source: Source, wanted: Any) -> None:
        keys = self._machine(source, self._no_storage)
        if (
            type(keys) is not list
            or not all(type(key) is str for key in keys)
            or sorted(keys) != sorted(wanted)
        ):
            raise self.bad("the storages are not those that the pickle refers to")
        for key in keys:
            kind, location, count = wanted[key]
            stored = int.from_bytes(source.take(8), "little", signed=True)
            nbytes = count * (1 if kind is None else kind.itemsize)
            if stored != count or nbytes > source.left:
                raise self.bad(
                    f"the storage {key!r} should have {count:,} elements in "
                    f"{source.left:,} bytes, and has {stored:,}"
                )
            raw = self._filled(nbytes, key)
            source.left -= nbytes
            if sys.byteorder != "little":  # which every such file is in
                raw = self._swapped(raw, kind)
            self.storages[key] = self._stored(raw, kind, location)

    def _older_id(self, saved: Any) -> Any:
        if type(saved) is tuple and saved and _is_word(saved[0], "module"):
            return saved[1] if len(saved) > 1 else None  # a class, and its source
        kind, key, *_ = self._storage_id(saved, 6)
        found = self.storages[key]
        view = saved[5]
        if view is None:
            return found
        if type(view) is not tuple or list(map(type, view[1:])) != [int, int]:
            raise self.bad("expected a view of a storage to have an offset and a size")
        width = 1 if kind is None else kind.itemsize
        start, length = view[1] * width, view[2] * width
        if start < 0 or length < 0 or start + length > found.nbytes():
            raise self.bad("a view of a storage is not inside of it")
        part = found.to(found.device)
        part.raw = found.raw[start : start + length]
        return part


def _as_text(value: Any) -> Any:
    """Strings of Python 2 may be read as bytes."""
    return value.decode("latin1") if type(value) is bytes else value


def _is_word(value: Any, word: str) -> bool:
    return type(value) in (str, bytes) and _as_text(value) == word


def _byte_order(archive: Archive, bad: Any) -> str:
    if "byteorder" in archive:
        found = archive.read("byteorder").decode("latin1")
        if found not in ("little", "big"):
            raise bad(f"expected the byte order little or big, got {found[:20]!r}")
        return found
    return options.default_byte_order()


# -- writing


def encode(obj: Any, path: str | None, *, zipped: bool) -> Callable[[Any], None]:
    """A function that writes the object to a file; everything is checked before."""
    pickler = Pickler()
    body, memories = pickler.run(obj, older=not zipped)
    name = "archive" if path is None else _stem(path)

    def write(file: Any) -> None:
        put = _checked(file)
        if zipped:
            _write_archive(put, name, body, memories)
        else:
            _write_older(put, body, memories)

    return write


def _stem(path: str) -> str:
    return os.path.splitext(os.path.basename(path))[0] or "archive"


def _checked(file: Any) -> Callable[[Any], Any]:
    def put(data: Any) -> None:
        try:
            file.write(data)
        except TypeError:
            raise DTypeError(
                "save: expected a file opened in binary, got one of text"
            ) from None

    return put


def _write_archive(
    put: Any, name: str, body: bytes, memories: list[SharedMemory]
) -> None:
    writer = Writer(put, name, options.get_crc32_options())
    writer.add("data.pkl", body)
    writer.add(".format_version", b"1")
    writer.add(".storage_alignment", str(ALIGNMENT).encode())
    writer.add("byteorder", sys.byteorder.encode())
    for number, memory in enumerate(memories):
        data = bytes(memory.nbytes) if options.state.skip_data else memory.data()
        writer.add(f"data/{number}", data)
    writer.finish()


def _write_older(put: Any, body: bytes, memories: list[SharedMemory]) -> None:
    facts = {
        "protocol_version": VERSION, "little_endian": sys.byteorder == "little",
        "type_sizes": {"short": 2, "int": 4, "long": 4},
    }  # fmt: skip
    keys = [str(number) for number in range(len(memories))]
    for value in (MAGIC, VERSION, facts):
        put(plain_pickle(value))
    put(body)
    put(plain_pickle(keys))
    for memory in memories:
        put(memory.count.to_bytes(8, "little"))
        put(memory.data())
