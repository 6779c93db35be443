"""TensorBoard event files: scalars, histograms and text.

An event file is a row of records, each with its length and checksums, and each
record is one protocol-buffer message ``Event``. Both formats are small enough to
write here; ``read_events`` reads them back.
"""

from __future__ import annotations

import operator
import os
import pathlib
import socket
import struct
import time
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from weft.core.tensor import Tensor
from weft.errors import DTypeError, FileFormatError
from weft.serialization import about

# -- checksums


def _table() -> list[int]:
    out = []
    for n in range(256):
        for _ in range(8):
            n = (n >> 1) ^ (0x82F63B78 if n & 1 else 0)
        out.append(n)
    return out


_CRC = _table()


def crc32c(data: bytes) -> int:
    """The Castagnoli checksum of some bytes.

    >>> hex(weft.training.events.crc32c(b"123456789"))
    '0xe3069283'
    """
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def _masked(data: bytes) -> int:
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


# -- protocol buffers


def _varint(n: int) -> bytes:
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def _bytes(field: int, data: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def _int(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value & (1 << 64) - 1)


def _double(field: int, value: float) -> bytes:
    return _varint(field << 3 | 1) + struct.pack("<d", value)


def _float(field: int, value: float) -> bytes:
    return _varint(field << 3 | 5) + struct.pack("<f", value)


def _packed(field: int, values: Any) -> bytes:
    return _bytes(field, np.asarray(values, "<f8").tobytes())


# -- messages


def _scalar(tag: str, value: float) -> bytes:
    return _bytes(1, _bytes(1, tag.encode()) + _float(2, value))


def _histogram(tag: str, values: np.ndarray, bins: int) -> bytes:
    counts, edges = np.histogram(values, bins)
    fields = (
        _double(1, values.min()) + _double(2, values.max())
        + _double(3, values.size) + _double(4, values.sum())
        + _double(5, np.square(values).sum())
        + _packed(6, edges[1:]) + _packed(7, counts)
    )  # fmt: skip
    return _bytes(1, _bytes(1, tag.encode()) + _bytes(5, fields))


def png(pixels: np.ndarray) -> bytes:
    """An image (height, width, channels) of bytes as a PNG file."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + check

    height, width, channels = pixels.shape
    color = {1: 0, 3: 2, 4: 6}[channels]  # grey, RGB, RGB with alpha
    head = struct.pack(">IIBBBBB", width, height, 8, color, 0, 0, 0)
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    body = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows))
    return b"\x89PNG\r\n\x1a\n" + body + chunk(b"IEND", b"")


def _image(tag: str, pixels: np.ndarray) -> bytes:
    sizes = b"".join(_int(k + 1, n) for k, n in enumerate(pixels.shape))
    fields = sizes + _bytes(4, png(pixels))
    return _bytes(1, _bytes(1, tag.encode()) + _bytes(4, fields))


def _text(tag: str, text: str) -> bytes:
    plugin = _bytes(1, _bytes(1, b"text"))  # SummaryMetadata.plugin_data.plugin_name
    shape = _bytes(2, _bytes(2, _int(1, 1)))  # one dimension of size 1
    tensor = _int(1, 7) + shape + _bytes(8, text.encode())  # 7: a string
    name = f"{tag}/text_summary".encode()
    return _bytes(1, _bytes(1, name) + _bytes(9, plugin) + _bytes(8, tensor))


def _number(step: Any) -> int:
    try:
        return operator.index(step)
    except TypeError:
        raise DTypeError(
            f"SummaryWriter: expected step to be a whole number, got {step!r}"
        ) from None


class SummaryWriter:
    """Writes what TensorBoard shows.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with weft.training.SummaryWriter(folder) as writer:
    ...         writer.add_scalar("loss", 0.5, step=1)
    ...     [event] = list(weft.training.read_events(writer.path))[1:]
    >>> event["step"], event["loss"]
    (1, 0.5)
    """

    def __init__(self, log_dir: str | os.PathLike[str]) -> None:
        folder = pathlib.Path(log_dir)
        folder.mkdir(parents=True, exist_ok=True)
        stamp = f"{time.time():.0f}.{socket.gethostname()}.{os.getpid()}.{id(self)}"
        self.path = folder / f"events.out.tfevents.{stamp}"
        self._file = self.path.open("wb")
        self._write(_bytes(3, b"brain.Event:2"), None)

    def _write(self, message: bytes, step: int | None) -> None:
        event = _double(1, time.time()) + message
        if step is not None:
            event = _double(1, time.time()) + _int(2, _number(step)) + message
        head = struct.pack("<Q", len(event))
        record = head + struct.pack("<I", _masked(head))
        record += event + struct.pack("<I", _masked(event))
        with about(str(self.path)):
            self._file.write(record)

    def add_scalar(self, tag: str, value: Any, step: int = 0) -> None:
        """One number at a step."""
        self._write(_bytes(5, _scalar(tag, float(value))), step)

    def add_scalars(self, values: dict[str, Any], step: int = 0) -> None:
        """Several numbers at a step."""
        summary = b"".join(_scalar(tag, float(v)) for tag, v in values.items())
        self._write(_bytes(5, summary), step)

    def add_histogram(
        self, tag: str, values: Any, step: int = 0, bins: int = 64
    ) -> None:
        """Add the distribution of values at a step; non-finite ones are left out."""
        array = values.detach().numpy() if isinstance(values, Tensor) else values
        array = np.asarray(array, np.float64).ravel()
        array = array[np.isfinite(array)]
        if array.size:
            self._write(_bytes(5, _histogram(tag, array, bins)), step)

    def add_image(self, tag: str, image: Any, step: int = 0) -> None:
        """Add an image (height, width, channels) of bytes; 1, 3 or 4 channels."""
        pixels = np.asarray(image)
        if (
            pixels.dtype != np.uint8
            or pixels.ndim != 3
            or pixels.shape[2] not in (1, 3, 4)
        ):
            raise DTypeError(
                "add_image: expected uint8 values (height, width, 1, 3 or 4 channels), "
                f"got {pixels.dtype}{list(pixels.shape)}"
            )
        self._write(_bytes(5, _image(tag, pixels)), step)

    def add_text(self, tag: str, text: str, step: int = 0) -> None:
        """Text (Markdown) at a step."""
        self._write(_bytes(5, _text(tag, text)), step)

    def flush(self) -> None:
        """Hand everything to the file system."""
        with about(str(self.path)):
            self._file.flush()

    def close(self) -> None:
        """Finish the file."""
        with about(str(self.path)):
            self._file.close()

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


# -- reading


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a message: (number, value)."""
    offset = 0

    def varint() -> int:
        nonlocal offset
        n = shift = 0
        while True:
            if offset >= len(data) or shift > 63:
                raise FileFormatError("event file: a message ends too early")
            byte = data[offset]
            offset += 1
            n |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return n

    def take(count: int) -> bytes:
        nonlocal offset
        if offset + count > len(data):
            raise FileFormatError("event file: a field ends too late")
        offset += count
        return data[offset - count : offset]

    while offset < len(data):
        key = varint()
        kind = key & 7
        if kind == 0:
            yield key >> 3, varint()
        elif kind == 1:
            yield key >> 3, struct.unpack("<d", take(8))[0]
        elif kind == 5:
            yield key >> 3, struct.unpack("<f", take(4))[0]
        elif kind == 2:
            yield key >> 3, take(varint())
        else:
            raise FileFormatError(f"event file: unknown wire type {kind}")


def read_events(path: str | os.PathLike[str]) -> Iterator[dict[str, Any]]:
    """The events of a file: step, wall time, and scalars by tag.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with weft.training.SummaryWriter(folder) as writer:
    ...         writer.add_scalar("accuracy", 1.0, step=3)
    ...     [e["step"] for e in weft.training.read_events(writer.path)]
    [0, 3]
    """
    data = pathlib.Path(path).read_bytes()
    offset = 0
    while offset < len(data):
        if offset + 12 > len(data):
            raise FileFormatError(f"{path}: the last record is cut off")
        head = data[offset : offset + 8]
        (length,) = struct.unpack("<Q", head)
        (check,) = struct.unpack("<I", data[offset + 8 : offset + 12])
        body = data[offset + 12 : offset + 12 + length]
        end = data[offset + 12 + length : offset + 16 + length]
        if check != _masked(head) or len(body) != length or len(end) != 4:
            raise FileFormatError(f"{path}: damaged record at byte {offset}")
        if struct.unpack("<I", end)[0] != _masked(body):
            raise FileFormatError(f"{path}: wrong checksum at byte {offset}")
        yield _event(body)
        offset += 16 + length


def _event(body: bytes) -> dict[str, Any]:
    out: dict[str, Any] = {"step": 0}
    for number, value in _fields(body):
        if number == 1:
            out["wall_time"] = value
        elif number == 2:
            out["step"] = value
        elif number == 5:
            for _, summary in _fields(value):
                parts = dict(_fields(summary))
                tag = parts.get(1, b"").decode()
                out[tag] = parts.get(2, parts.get(5, parts.get(8, parts.get(4))))
    return out
