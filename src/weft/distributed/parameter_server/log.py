"""Logs and snapshots of a server, which outlive its process.

    folder     = lock, snapshot-N, log-N
    snapshot-N = one record: the state before all that log-N has
    log-N      = record…
    record     = head, text, data
    head       = magic, sizes of text and data, checksums of both and of the head

A record is written before what it says is acknowledged. A process that is killed while
it writes one leaves a part of it at the end, which is dropped. Anything else that does
not fit its checksum is damage, and an error. A snapshot begins a new log, and what was
before is deleted.
"""

from __future__ import annotations

import contextlib
import os
import re
import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from weft.distributed.errors import ParameterServerError
from weft.distributed.pieces import as_bytes
from weft.runtime import system
from weft.serialization.atomic import about, replacing, sweep, sync_folder

_HEAD = struct.Struct("<4sIQI")
_CHECK = struct.Struct("<I")
_SIZE = _HEAD.size + _CHECK.size
_MAGIC = b"weft"


class Record(NamedTuple):
    """A text (JSON) and the bytes of arrays."""

    text: bytes
    data: np.ndarray


class Log:
    """The log and the snapshot in a server's folder.

    ``sync`` makes ``flush`` wait until records are on the disk. Without it they survive
    the end of the process, and not a power cut.
    """

    def __init__(self, folder: str, *, sync: bool = False) -> None:
        self.folder, self.sync = folder, sync
        os.makedirs(folder, exist_ok=True)
        self._lock = _locked(os.path.join(folder, "lock"))
        self.number = max(_numbers(folder), default=0)
        self.size = 0  # bytes of the log
        self.base = 0  # bytes of the snapshot
        self._file: BinaryIO | None = None
        self._fresh = False  # whether records were written since the last flush

    def recover(self) -> Iterator[Record]:
        """The snapshot's record, if there is one, and the log's; ready to append."""
        path, log = self._path("snapshot"), self._path("log")
        if os.path.exists(path):
            yield from self._snapshot(path)
        elif self.number:
            raise ParameterServerError(f"{path} is missing, which {log} goes on from")
        with open(log, "a+b") as file:
            file.seek(0)
            for record, end in _records(file, log):
                yield record
                self.size = end
            file.truncate(self.size)
        self._open()
        self._sweep()

    def _open(self) -> None:
        self._file = open(self._path("log"), "ab", buffering=0)  # noqa: SIM115
        sync_folder(self.folder)  # the name itself survives a power cut

    def _snapshot(self, path: str) -> Iterator[Record]:
        with open(path, "rb") as file:
            found = list(_records(file, path))
        if len(found) != 1:
            raise ParameterServerError(f"{path} is damaged: it is not whole")
        self.base = found[0][1]
        yield found[0][0]

    def append(self, text: bytes, arrays: Sequence[np.ndarray] = ()) -> None:
        """Write a record; on an error, such as a full disk, the log is as before."""
        assert self._file is not None
        with about(self._path("log")):
            try:
                count = _write(self._file, text, arrays)
            except BaseException:
                self._file.truncate(self.size)
                raise
        self.size += count
        self._fresh = True

    def flush(self) -> None:
        """Let records be as safe as ``sync`` says."""
        if self._fresh and self.sync:
            assert self._file is not None
            os.fsync(self._file.fileno())
        self._fresh = False

    def replace(self, text: bytes, arrays: Sequence[np.ndarray]) -> None:
        """Write a snapshot, and begin a new log after it."""
        before, self.number = self.number, self.number + 1
        try:
            with replacing(self._path("snapshot")) as file:
                self.base = _write(file, text, arrays)
        except BaseException:
            self.number = before
            raise
        self.close_file()
        self._open()
        self.size = 0
        self._sweep()

    def close_file(self) -> None:
        """Close the log itself; the folder stays locked."""
        if self._file is not None:
            self._file.close()

    def close(self) -> None:
        """Let go of the folder."""
        self.close_file()
        os.close(self._lock)

    def _path(self, kind: str) -> str:
        return os.path.join(self.folder, f"{kind}-{self.number}")

    def _sweep(self) -> None:
        """Delete what the newest snapshot makes useless, and parts of snapshots."""
        for number in _numbers(self.folder):
            if number < self.number:
                for kind in ("snapshot", "log"):
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(os.path.join(self.folder, f"{kind}-{number}"))
        for number in (self.number, self.number + 1):
            sweep(os.path.join(self.folder, f"snapshot-{number}"))


def _locked(path: str) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        system.lock_file(descriptor)
    except OSError:
        os.close(descriptor)
        raise ParameterServerError(
            f"{os.path.dirname(path)} is in use by another server; give each job a "
            "folder of its own"
        ) from None
    return descriptor


def _numbers(folder: str) -> set[int]:
    """The numbers of snapshots, and of the log that needs none."""
    found = (re.fullmatch(r"(snapshot|log)-(\d+)", name) for name in os.listdir(folder))
    return {int(one[2]) for one in found if one is not None}


def _write(file: Any, text: bytes, arrays: Sequence[np.ndarray]) -> int:
    """Write a record; its size."""
    data = [as_bytes(np.ascontiguousarray(one)) for one in arrays]
    check = zlib.crc32(text)
    for one in data:
        check = zlib.crc32(one.data, check)
    size = sum(one.nbytes for one in data)
    head = _HEAD.pack(_MAGIC, len(text), size, check)
    pieces: list[Any] = [head + _CHECK.pack(zlib.crc32(head)) + text, *data]
    for piece in pieces:
        view = memoryview(piece)
        while view:
            view = view[file.write(view) :]
    return _SIZE + len(text) + size


def _records(file: BinaryIO, path: str) -> Iterator[tuple[Record, int]]:
    """The records of a file, each with where it ends; a torn end is left out."""
    length, at = os.fstat(file.fileno()).st_size, 0
    while at + _SIZE <= length:
        head = file.read(_SIZE)
        magic, text_size, size, check = _HEAD.unpack_from(head)
        (own,) = _CHECK.unpack_from(head, _HEAD.size)
        if magic != _MAGIC or own != zlib.crc32(head[: _HEAD.size]):
            if not any(head) and not any(file.read()):
                return  # a power cut leaves zeros
            raise _damaged(path, at)
        end = at + _SIZE + text_size + size
        if end > length:
            return
        text = file.read(text_size)
        data = np.empty(size, np.uint8)
        file.readinto(data.data)  # type: ignore[attr-defined]
        if zlib.crc32(data.data, zlib.crc32(text)) != check:
            if end == length:
                return
            raise _damaged(path, at)
        yield Record(text, data), end
        at = end


def _damaged(path: str, at: int) -> ParameterServerError:
    return ParameterServerError(
        f"{path} is damaged at byte {at}, and goes on after it: what was acknowledged "
        "is lost. Take the folder from a copy, or delete it to begin anew"
    )
