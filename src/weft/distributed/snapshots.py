"""Snapshots in memory that outlives a process.

A launcher makes two such memories for each process, and gives them to the process that
takes its place. They are files without a name, so they are gone with the launcher.

    memory = record, text, data
    record = magic, step, sizes of text and data, checksum of the text
    text   = JSON: what the data is
    data   = bytes of arrays

A snapshot is valid from the moment its record is written, the last thing that happens.
So a process that is killed while it writes leaves the other memory, with the snapshot
before.
"""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
import zlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

_RECORD = struct.Struct("<8sQQQI")
_MAGIC = b"weftkeep"
_START = 64  # where the text begins
_ALIGN = 64

# What a launcher says in the environment:
MEMORY = "WEFT_MEMORY"  # two descriptors: "5:6"
RESTARTS = "WEFT_RESTARTS"  # how often the processes were started again
NODES = "WEFT_NODES"  # processes on each machine: "4,4"
_FOLDER = "/dev/shm"  # files there are memory


class Snapshot(NamedTuple):
    """What a memory holds."""

    step: int
    text: bytes
    data: np.ndarray  # a view of the memory


def new_memory() -> int:
    """The descriptor of a file without a name, in memory where the system has that."""
    folder = _FOLDER if os.access(_FOLDER, os.W_OK) else None
    with tempfile.TemporaryFile(dir=folder) as file:
        return os.dup(file.fileno())


class Memory:
    """One memory, by its descriptor."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._map: mmap.mmap | None = None

    def write(self, step: int, text: bytes, pieces: Sequence[np.ndarray]) -> None:
        """Keep a snapshot; ``pieces`` are arrays of bytes."""
        size = sum(piece.nbytes for piece in pieces)
        start = _data_start(len(text))
        memory = self._mapped(start + size)
        memory[: _RECORD.size] = bytes(_RECORD.size)
        memory[_START : _START + len(text)] = text
        data = np.frombuffer(memory, np.uint8)[start:]
        at = 0
        for piece in pieces:
            data[at : at + piece.nbytes] = piece
            at += piece.nbytes
        record = _RECORD.pack(_MAGIC, step, len(text), size, zlib.crc32(text))
        memory[: _RECORD.size] = record

    def _mapped(self, size: int) -> mmap.mmap:
        if self._map is None or len(self._map) < size:
            if os.fstat(self.descriptor).st_size < size:
                os.ftruncate(self.descriptor, size)
            self._map = mmap.mmap(self.descriptor, os.fstat(self.descriptor).st_size)
        return self._map

    def read(self) -> Snapshot | None:
        """The snapshot; None if there is none, or a part of one."""
        found = _record(self.descriptor)
        if found is None:
            return None
        step, length, size, check = found
        start = _data_start(length)
        if os.fstat(self.descriptor).st_size < start + size:
            return None
        memory = self._mapped(start + size)
        text = memory[_START : _START + length]
        if zlib.crc32(text) != check:
            return None
        return Snapshot(step, text, np.frombuffer(memory, np.uint8, size, start))


def step_of(descriptor: int) -> int:
    """The step of a memory's snapshot; -1 if there is none."""
    found = _record(descriptor)
    return -1 if found is None else found[0]


def _record(descriptor: int) -> tuple[int, int, int, int] | None:
    head = os.pread(descriptor, _RECORD.size, 0)
    if len(head) < _RECORD.size:
        return None
    magic, step, length, size, check = _RECORD.unpack(head)
    return (step, length, size, check) if magic == _MAGIC else None


def _data_start(length: int) -> int:
    return -(-(_START + length) // _ALIGN) * _ALIGN


def given() -> list[Memory]:
    """The two memories that a launcher gave this process; none without one."""
    found = os.environ.get(MEMORY, "")
    return [Memory(int(one)) for one in found.split(":") if one]
