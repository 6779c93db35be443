"""Curves as a PNG picture, with nothing but zlib."""

from __future__ import annotations

import itertools
import math
import os
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.errors import ArgumentError
from weft.serialization import replacing

# A 3x5 font for the digits and signs that axis labels need.
_ROWS = {
    "0": (7, 5, 5, 5, 7), "1": (2, 6, 2, 2, 7), "2": (7, 1, 7, 4, 7),
    "3": (7, 1, 7, 1, 7), "4": (5, 5, 7, 1, 1), "5": (7, 4, 7, 1, 7),
    "6": (7, 4, 7, 5, 7), "7": (7, 1, 1, 1, 1), "8": (7, 5, 7, 5, 7),
    "9": (7, 5, 7, 1, 7), ".": (0, 0, 0, 0, 2), "-": (0, 0, 7, 0, 0),
    "e": (0, 7, 7, 4, 7), "+": (0, 2, 7, 2, 0), "k": (5, 6, 4, 6, 5),
}  # fmt: skip
_COLOURS = (
    (31, 119, 180),
    (255, 127, 14),
    (44, 160, 44),
    (214, 39, 40),
    (148, 103, 189),
)


def write_png(path: str | os.PathLike[str], pixels: np.ndarray) -> None:
    """Write (H, W, 3) bytes as a PNG file.

    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "black.png"
    ...     weft.training.write_png(path, np.zeros((2, 2, 3), np.uint8))
    ...     path.read_bytes()[1:4]
    b'PNG'
    """
    if pixels.ndim != 3 or pixels.shape[2] != 3 or pixels.dtype != np.uint8:
        raise ArgumentError("write_png: expected (H, W, 3) bytes")
    height, width, _ = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in np.ascontiguousarray(pixels))

    def chunk(kind: bytes, data: bytes) -> bytes:
        check = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows, 9))
    with replacing(os.fspath(path)) as file:
        file.write(b"\x89PNG\r\n\x1a\n" + body + chunk(b"IEND", b""))


class _Canvas:
    def __init__(self, width: int, height: int) -> None:
        self.pixels = np.full((height, width, 3), 255, np.uint8)

    def line(self, x0: float, y0: float, x1: float, y1: float, colour: Any) -> None:
        count = int(max(abs(x1 - x0), abs(y1 - y0))) + 1
        xs = np.linspace(x0, x1, count).round().astype(int)
        ys = np.linspace(y0, y1, count).round().astype(int)
        height, width, _ = self.pixels.shape
        inside = (xs >= 0) & (xs < width - 1) & (ys >= 0) & (ys < height - 1)
        for dx, dy in ((0, 0), (1, 0), (0, 1)):
            self.pixels[ys[inside] + dy, xs[inside] + dx] = colour

    def text(self, x: int, y: int, text: str, scale: int = 2) -> None:
        for letter in text:
            for row, bits in enumerate(_ROWS.get(letter, (0,) * 5)):
                for column in range(3):
                    if bits >> (2 - column) & 1:
                        top, left = y + row * scale, x + column * scale
                        self.pixels[top : top + scale, left : left + scale] = 60
            x += 4 * scale


def plot_curves(
    curves: Mapping[str, Sequence[tuple[float, float]]],
    path: str | os.PathLike[str],
    width: int = 800,
    height: int = 480,
) -> None:
    """Draw curves of (step, value) points into a PNG picture, one colour each.

    Values that are not finite are left out.

    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "curve.png"
    ...     weft.training.plot_curves({"loss": [(0, 1.0), (1, 0.5)]}, path)
    ...     path.exists()
    True
    """
    points = {
        name: np.array([p for p in rows if all(map(math.isfinite, p))], float)
        for name, rows in curves.items()
    }
    points = {name: p for name, p in points.items() if len(p)}
    if not points:
        raise ArgumentError("plot_curves: there is no finite point to draw")
    canvas = _Canvas(width, height)
    every = np.concatenate(list(points.values()))
    (x0, y0), (x1, y1) = every.min(0), every.max(0)
    x1, y1 = (x1 if x1 > x0 else x0 + 1), (y1 if y1 > y0 else y0 + 1)
    left, right, top, bottom = 80, width - 20, 20, height - 40

    def place(x: float, y: float) -> tuple[float, float]:
        across = left + (x - x0) / (x1 - x0) * (right - left)
        return across, bottom - (y - y0) / (y1 - y0) * (bottom - top)

    for k in range(5):
        x, y = x0 + (x1 - x0) * k / 4, y0 + (y1 - y0) * k / 4
        px, _ = place(x, y0)
        _, py = place(x0, y)
        canvas.line(px, top, px, bottom, 225)
        canvas.line(left, py, right, py, 225)
        canvas.text(int(px) - 16, bottom + 12, f"{x:.4g}")
        canvas.text(6, int(py) - 5, f"{y:.3g}")
    for colour, rows in zip(_COLOURS * len(points), points.values(), strict=False):
        for a, b in itertools.pairwise(rows):
            canvas.line(*place(*a), *place(*b), colour)
    write_png(path, canvas.pixels)
