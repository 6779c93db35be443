"""Weights in a safetensors file beside a C file, and the C that reads it."""

from __future__ import annotations

import json
from collections.abc import Mapping

FNV_START, FNV_FACTOR = 14695981039346656037, 1099511628211


def reader(file: bytes, places: Mapping[str, int]) -> str:
    """A C function that reads a file of weights; another header is refused."""
    length, hash, spans = contents_of(file, places)
    rows = ", ".join(f"{{{place}, {nbytes}}}" for place, nbytes in spans)
    values = {"COUNT": len(spans), "ROWS": rows, "LENGTH": length, "HASH": hash}
    text = _READER
    for name, value in values.items():
        text = text.replace(f"@{name}", str(value))
    return text


def contents_of(
    file: bytes, places: Mapping[str, int]
) -> tuple[int, int, list[tuple[int, int]]]:
    """Of a file of weights: its header's length and hash, and the place in memory and
    the bytes of each tensor, in the file's order."""
    header = file[: 8 + int.from_bytes(file[:8], "little")]
    entries = json.loads(header[8:])
    entries.pop("__metadata__", None)
    spans = sorted((*one["data_offsets"], name) for name, one in entries.items())
    rows = [(places[name], end - start) for start, end, name in spans]
    return len(header), _hash(header), rows


def _hash(data: bytes) -> int:
    """The 64-bit hash of Fowler, Noll and Vo, which is short to write in C."""
    found = FNV_START
    for byte in data:
        found = (found ^ byte) * FNV_FACTOR & (1 << 64) - 1
    return found


_READER = """\
/* a place in memory and a number of bytes for each tensor of the file, in its order */
static const int64_t rows_of_weights[@COUNT][2] = {@ROWS};

/* read a safetensors file that has the header of this model's */
static int read_weights(unsigned char *memory, const char *path) {
  FILE *file = fopen(path, "rb");
  uint64_t hash = UINT64_C(14695981039346656037);
  int wrong = 0;
  if (file == NULL) return 1;
  for (int64_t k = 0; k < @LENGTH; k++) {
    const int c = fgetc(file);
    if (c == EOF) {
      wrong = 1;
      break;
    }
    hash = (hash ^ (uint64_t)c) * UINT64_C(1099511628211);
  }
  wrong = wrong || hash != UINT64_C(@HASH);
  for (int k = 0; k < @COUNT && !wrong; k++) {
    const size_t bytes = (size_t)rows_of_weights[k][1];
    wrong = fread(memory + rows_of_weights[k][0], 1, bytes, file) != bytes;
  }
  wrong = wrong || fgetc(file) != EOF;
  return fclose(file) != 0 || wrong;
}
"""
