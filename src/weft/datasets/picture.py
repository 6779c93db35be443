"""Image files as arrays: PNG and PNM here, other formats through Pillow.

PNG   := signature chunk*                    numbers are big-endian
chunk := length (4) kind (4) data crc (4)
IHDR  := width (4) height (4) depth colour compression filter interlace
IDAT  := zlib data: for each row a filter's number and its filtered bytes
PNM   := "P5" | "P6" width height 255 data   white space and # comments between
"""

from __future__ import annotations

import os
import re
import struct
import zlib
from typing import Any

import numpy as np

from weft.datasets.images import broken

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_CHANNELS = {0: 1, 2: 3, 4: 2, 6: 4}  # grey, RGB, grey and alpha, RGBA
_PNM = re.compile(rb"P([56])(?:\s|#[^\n]*\n)+(\d+)(?:\s|#[^\n]*\n)+(\d+)"
                  rb"(?:\s|#[^\n]*\n)+(\d+)\s")  # fmt: skip
_MOST = 1 << 28  # pixels; more is no training image


def read_image(path: Any) -> np.ndarray:
    """An image file as ``uint8``: (H, W) if it is grey, else (H, W, channels).

    Reads PNG (8 bits, not interlaced, no palette), PGM and PPM. Anything else
    needs Pillow.

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "two.pgm")
    >>> with open(path, "wb") as file:
    ...     _ = file.write(b"P5 2 1 255 " + bytes([0, 255]))
    >>> weft.datasets.read_image(path)
    array([[  0, 255]], dtype=uint8)
    """
    with open(path, "rb") as file:
        content = file.read()
    if content.startswith(_SIGNATURE):
        header = _png_header(path, content)
        if header is not None:
            return _png(path, content, *header)
    elif content[:2] in (b"P5", b"P6"):
        return _pnm(path, content)
    return _pillow(path, content)


def _pillow(path: Any, content: bytes) -> np.ndarray:
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        kind = (
            "a JPEG" if content.startswith(b"\xff\xd8") else "not an 8-bit PNG or PNM"
        )
        raise broken(
            path, f"{kind} file, which needs Pillow to be read: pip install pillow"
        ) from None
    try:
        with Image.open(path) as image:
            plain = (
                image if image.mode in ("L", "RGB", "RGBA") else image.convert("RGB")
            )
            return np.array(plain, np.uint8)
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError) as error:
        raise broken(path, str(error)) from error


def _check_size(path: Any, width: int, height: int) -> None:
    if not width or not height or width * height > _MOST:
        raise broken(path, f"an image of {width}x{height} pixels")


def _shaped(flat: np.ndarray, height: int, width: int, channels: int) -> np.ndarray:
    shape = (height, width) if channels == 1 else (height, width, channels)
    return flat.reshape(shape)


# -- PNM


def _pnm(path: Any, content: bytes) -> np.ndarray:
    match = _PNM.match(content[:4096])
    if match is None:
        raise broken(path, "damaged PNM header")
    kind, width, height, most = map(int, match.groups())
    _check_size(path, width, height)
    if most != 255:
        raise broken(path, f"expected values up to 255, got up to {most}")
    channels = 1 if kind == 5 else 3
    pixels = content[match.end() :]
    expected = width * height * channels
    if len(pixels) < expected:
        raise broken(path, f"truncated: {len(pixels)} of {expected} bytes of pixels")
    flat = np.frombuffer(pixels, np.uint8, expected)
    return _shaped(flat.copy(), height, width, channels)


# -- PNG


def _chunk(path: Any, content: bytes, at: int) -> tuple[bytes, bytes]:
    """The kind and data of the chunk at an offset, checked."""
    if at + 12 > len(content):
        raise broken(path, "truncated PNG file")
    (length,) = struct.unpack_from(">I", content, at)
    if at + 12 + length > len(content):
        raise broken(path, "truncated PNG file")
    body = content[at + 4 : at + 8 + length]
    (crc,) = struct.unpack_from(">I", content, at + 8 + length)
    if zlib.crc32(body) != crc:
        raise broken(path, f"damaged PNG file: checksum of chunk {body[:4]!r}")
    return body[:4], body[4:]


def _png_header(path: Any, content: bytes) -> tuple[int, int, int] | None:
    """Width, height and channels; ``None`` for kinds of PNG that Pillow reads."""
    kind, data = _chunk(path, content, len(_SIGNATURE))
    if kind != b"IHDR" or len(data) != 13:
        raise broken(path, "damaged PNG file: no header")
    width, height, depth, color, _, _, interlace = struct.unpack(">2I5B", data)
    _check_size(path, width, height)
    if depth != 8 or color not in _CHANNELS or interlace:
        return None
    return width, height, _CHANNELS[color]


def _png(path: Any, content: bytes, width: int, height: int, channels: int) -> Any:
    packed = b"".join(_image_data(path, content))
    stride = width * channels
    expected = height * (stride + 1)
    unpack = zlib.decompressobj()
    try:
        raw = unpack.decompress(packed, expected)
    except zlib.error as error:
        raise broken(path, f"damaged PNG file: {error}") from error
    if len(raw) != expected:
        raise broken(path, f"truncated: {len(raw)} of {expected} bytes of pixels")
    rows = np.frombuffer(raw, np.uint8).reshape(height, stride + 1)
    out = np.empty((height, stride), np.uint8)
    above = np.zeros(stride, np.uint8)
    for y in range(height):
        if rows[y, 0] > 4:
            raise broken(path, f"damaged PNG file: filter {rows[y, 0]} in row {y}")
        above = out[y] = _FILTERS[rows[y, 0]](rows[y, 1:], above, channels)
    return _shaped(out, height, width, channels)


def _image_data(path: Any, content: bytes) -> list[bytes]:
    at, parts = len(_SIGNATURE), []
    while True:
        kind, data = _chunk(path, content, at)
        if kind == b"IDAT":
            parts.append(data)
        elif kind == b"IEND":
            return parts
        at += 12 + len(data)


def _plain(row: np.ndarray, above: np.ndarray, step: int) -> np.ndarray:
    return row


def _sub(row: np.ndarray, above: np.ndarray, step: int) -> np.ndarray:
    sums = np.cumsum(row.reshape(-1, step), 0, dtype=np.uint8)  # modulo 256
    return sums.reshape(-1)


def _up(row: np.ndarray, above: np.ndarray, step: int) -> np.ndarray:
    return row + above


def _average(row: np.ndarray, above: np.ndarray, step: int) -> np.ndarray:
    out, up = bytearray(row.tobytes()), above.tobytes()
    for i in range(len(out)):
        left = out[i - step] if i >= step else 0
        out[i] = (out[i] + (left + up[i] >> 1)) & 255
    return np.frombuffer(out, np.uint8)


def _paeth(row: np.ndarray, above: np.ndarray, step: int) -> np.ndarray:
    out, up = bytearray(row.tobytes()), above.tobytes()
    for i in range(len(out)):
        a, c = (out[i - step], up[i - step]) if i >= step else (0, 0)
        b = up[i]
        to_a, to_b, to_c = abs(b - c), abs(a - c), abs(a + b - 2 * c)
        near = a if to_a <= to_b and to_a <= to_c else b if to_b <= to_c else c
        out[i] = (out[i] + near) & 255
    return np.frombuffer(out, np.uint8)


_FILTERS = (_plain, _sub, _up, _average, _paeth)


def is_image(name: str) -> bool:
    """Whether a file's name is an image's."""
    ending = os.path.splitext(name)[1].lower()
    return ending in (".png", ".pgm", ".ppm", ".jpg", ".jpeg", ".bmp", ".gif", ".webp")
