"""The zip archives of PyTorch: records that are stored, not compressed.

    archive    = (local header, name, padding, data, descriptor) … directory end
    records    = data.pkl .format_version .storage_alignment byteorder data/0 data/1 …
                 version .data/serialization_id, each below the archive's name

Data begin at multiples of ``ALIGNMENT`` bytes, so that they can be mapped. Reading
checks that records are stored as they are, that they lie in the file side by side and
that no name occurs twice: an archive has no more data than the file has bytes.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

from weft.serialization.text import Complain

ALIGNMENT = 64
_LOCAL, _CENTRAL, _END = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"
_END64, _LOCATOR64 = b"PK\x06\x06", b"PK\x06\x07"
_LARGE = 0xFFFFFFFF
_SCAN = 22 + 0xFFFF  # the end, and the longest comment after it


class Record(NamedTuple):
    """One record's place in the file: that of its header, and what is said of it."""

    at: int
    size: int
    crc: int


class Archive:
    """The records of an archive, by name."""

    def __init__(self, file: Any, size: int, bad: Complain) -> None:
        self.file = file
        self.size = size
        self.bad = bad
        self.start = file.tell()
        self.records: dict[str, Record] = {}
        at, count, end = self._find_directory()
        self._read_directory(at, count, end)
        self._check_places(at)
        first = next(iter(self.records), "")
        self.prefix = first.partition("/")[0] + "/" if "/" in first else ""

    def __contains__(self, name: str) -> bool:
        return self.prefix + name in self.records

    def read(self, name: str) -> bytes:
        """A record's bytes."""
        record = self.find(name)
        self.file.seek(self.start + self.data_at(record))
        data = self._take(record.size)
        self.check(name, record, zlib.crc32(data))
        return data

    def find(self, name: str) -> Record:
        record = self.records.get(self.prefix + name)
        if record is None:
            raise self.bad(f"the archive has no record {name!r}")
        return record

    def check(self, name: str, record: Record, crc: int) -> None:
        """Compare checksums; 0 stands for none."""
        if record.crc not in (0, crc):
            raise self.bad(f"the record {name!r} is damaged (wrong checksum)")

    def data_at(self, record: Record) -> int:
        """Where a record's data begin, after its local header."""
        head = self._bytes(record.at, 30)
        if head[:4] != _LOCAL:
            raise self.bad("a record of the archive has no header")
        name, extra = struct.unpack("<HH", head[26:30])
        at = record.at + 30 + name + extra
        if at + record.size > self.size:
            raise self.bad("a record of the archive ends after the file")
        return at

    # -- the directory

    def _take(self, count: int) -> bytes:
        data = self.file.read(count)
        if len(data) != count:
            raise self.bad(f"ends in the middle of {count:,} bytes")
        return data

    def _bytes(self, at: int, count: int) -> bytes:
        if at < 0 or count < 0 or at + count > self.size:
            raise self.bad("the archive refers to bytes that the file does not have")
        self.file.seek(self.start + at)
        return self._take(count)

    def _find_directory(self) -> tuple[int, int, int]:
        """Where the directory begins, its entries, and where it must end."""
        tail_at = max(0, self.size - _SCAN)
        tail = self._bytes(tail_at, self.size - tail_at)
        found = tail.rfind(_END)
        if found < 0 or found + 22 > len(tail):
            raise self.bad("the archive has no end; the file is not whole")
        end = tail_at + found
        count, length, at = struct.unpack("<HII", tail[found + 10 : found + 20])
        if end >= 20 and self._bytes(end - 20, 4) == _LOCATOR64:
            end = struct.unpack("<Q", self._bytes(end - 12, 8))[0]
            head = self._bytes(end, 56)
            if head[:4] != _END64:
                raise self.bad("the archive has no end; the file is not whole")
            count, length, at = struct.unpack("<QQQ", head[32:56])
        if at + length > end:
            raise self.bad("the archive's directory is not inside of the file")
        return at, count, at + length

    def _read_directory(self, at: int, count: int, end: int) -> None:
        data = self._bytes(at, end - at)
        if count > len(data) // 46:
            raise self.bad(f"the archive's directory is too short for {count} records")
        place = 0
        for _ in range(count):
            place = self._read_entry(data, place)

    def _read_entry(self, data: bytes, at: int) -> int:
        head = data[at : at + 46]
        if len(head) < 46 or head[:4] != _CENTRAL:
            raise self.bad("the archive's directory is damaged")
        flags, method = struct.unpack("<HH", head[8:12])
        crc, packed, size, name_size, extra_size, comment = struct.unpack(
            "<IIIHHH", head[16:34]
        )
        (place,) = struct.unpack("<I", head[42:46])
        name_end = at + 46 + name_size
        extra_end = name_end + extra_size
        name = self._name(data[at + 46 : name_end], name_size)
        extra = data[name_end:extra_end]
        size, packed, place = self._large(extra, size, packed, place)
        if flags & 1 or method or packed != size:
            raise self.bad(
                f"the record {name!r} is compressed or encrypted; torch.save stores "
                "records as they are. Write the archive again with `zip -0`"
            )
        if name in self.records:
            raise self.bad(f"the archive has two records {name!r}")
        self.records[name] = Record(place, size, crc)
        return extra_end + comment

    def _name(self, raw: bytes, size: int) -> str:
        try:
            name = raw.decode("utf-8")
        except ValueError:
            raise self.bad("the archive has a name that is no text") from None
        if len(raw) != size:
            raise self.bad("the archive's directory is damaged")
        return name

    def _large(self, extra: bytes, *values: int) -> list[int]:
        """Sizes and places of 64 bits, where those of 32 are full."""
        found, at = list(values), 0
        while at + 4 <= len(extra):
            kind, length = struct.unpack("<HH", extra[at : at + 4])
            if kind == 1:
                field, used = extra[at + 4 : at + 4 + length], 0
                for k, value in enumerate(found):
                    if value == _LARGE and used + 8 <= len(field):
                        (found[k],) = struct.unpack("<Q", field[used : used + 8])
                        used += 8
            at += 4 + length
        return found

    def _check_places(self, end: int) -> None:
        """Refuse records that overlap, which could be read many times over."""
        if not self.records:
            raise self.bad("the archive is empty")
        ordered = sorted(self.records.values())
        limits = [record.at for record in ordered[1:]] + [end]
        for record, limit in zip(ordered, limits, strict=True):
            if record.at + 30 + record.size > limit:
                raise self.bad("records of the archive overlap")


class Writer:
    """Writes records one after another, and the directory at the end."""

    def __init__(self, write: Callable[[Any], Any], prefix: str, crc: bool) -> None:
        self.write = write
        self.prefix = prefix
        self.crc = crc
        self.at = 0
        self.directory = bytearray()
        self.count = 0
        self.digest = hashlib.sha256()

    def add(self, name: str, data: Any) -> None:
        """Write a record of bytes."""
        view = memoryview(data).cast("B")
        crc = zlib.crc32(view) if self.crc else 0
        self.digest.update(f"{name} {crc} {len(view)}".encode())
        text = f"{self.prefix}/{name}".encode()
        flags = 0x0808 if len(view) else 0x0800
        start = self.at
        self._put(self._local(text, flags, len(view)))
        self._put(view)
        if len(view):
            self._put(_descriptor(crc, len(view), start))
        self._enter(text, flags, crc, len(view), start)

    def _local(self, name: bytes, flags: int, size: int) -> bytes:
        """A local header with padding, so that the data are aligned."""
        wide = struct.pack("<HHQQ", 1, 16, size, size) if size >= _LARGE else b""
        begin = self.at + 30 + len(name) + len(wide) + 4
        extra = -begin % ALIGNMENT
        padding = wide + struct.pack("<2sH", b"FB", extra) + b"Z" * extra
        full = _LARGE if wide else 0
        fields = (_LOCAL, 0, flags, 0, 0, 0, 0, full, full, len(name), len(padding))
        return struct.pack("<4s5H3I2H", *fields) + name + padding

    def _enter(self, name: bytes, flags: int, crc: int, size: int, at: int) -> None:
        wide = b"".join(struct.pack("<Q", n) for n in _full(size, size, at))
        extra = struct.pack("<HH", 1, len(wide)) + wide if wide else b""
        size, at = min(size, _LARGE), min(at, _LARGE)
        fields = (_CENTRAL, 0, 0, flags, 0, 0, 0, crc, size, size, len(name),
                  len(extra), 0, 0, 0, 0, at)  # fmt: skip
        self.directory += struct.pack("<4s6H3I5H2I", *fields) + name + extra
        self.count += 1

    def finish(self) -> None:
        """Write what ends an archive."""
        self.add("version", b"3\n")
        number = int.from_bytes(self.digest.digest(), "little") % 10**40
        self.add(".data/serialization_id", f"{number:040}".encode())
        at, length, count = self.at, len(self.directory), self.count
        self._put(self.directory)
        end = self.at
        self._put(struct.pack("<4sQ2H2I4Q", _END64, 44, 0x31E, 45, 0, 0,
                              count, count, length, at))  # fmt: skip
        self._put(struct.pack("<4sIQI", _LOCATOR64, 0, end, 1))
        counts = (min(count, 0xFFFF), min(count, 0xFFFF))
        places = (min(length, _LARGE), min(at, _LARGE))
        self._put(struct.pack("<4s4H2IH", _END, 0, 0, *counts, *places, 0))

    def _put(self, data: Any) -> None:
        self.write(data)
        self.at += len(data)


def _full(*values: int) -> list[int]:
    return [n for n in values if n >= _LARGE]


def _descriptor(crc: int, size: int, at: int) -> bytes:
    wide = size >= _LARGE or at >= _LARGE
    return struct.pack("<4sIQQ" if wide else "<4s3I", b"PK\x07\x08", crc, size, size)
