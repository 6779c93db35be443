"""Matrix products in C: blocks of four rows by sixteen columns.

Columns are copied to a small panel, so that the inner loop reads memory in order and
compilers make vectors of it. Products of few rows read the right operand as it is.
"""

from __future__ import annotations

import numpy as np

from weft import dtype as dtypes
from weft.compile.emit import scalar
from weft.compile.targets.c.functions import half_to_float
from weft.compile.targets.c.source import Source, memory_type, short_name
from weft.dtype import DType

WIDTH = 16  # columns of a panel


def write_product(source: Source, kind: DType, made: DType) -> str:
    """Define the product of two matrices of a dtype; gives the function's name.

    It has the buffers a, b and the result, and the numbers: rows, depth, columns, the
    steps of a's rows and columns, of b's rows and columns, and whether b is packed.
    """
    name = f"matmul_{short_name(kind)}"
    if kind is not made:
        name += f"_{short_name(made)}"
    return source.define(name, lambda: _text(source, name, kind, made))


def _text(source: Source, name: str, kind: DType, made: DType) -> str:
    total = _total_type(made)
    load = f"({total})"
    if kind.name in scalar.HALF:
        load = half_to_float(source, kind)
    source.define("DEPTH", lambda: f"enum {{ DEPTH = 256, COLUMNS = {WIDTH} }};\n")
    names = {
        "NAME": name, "IN": memory_type(kind), "OUT": memory_type(made),
        "TOTAL": total, "LOAD": load, "KIND": name.removeprefix("matmul_"),
    }  # fmt: skip
    as_is = memory_type(kind) == total  # panels are made when the file is
    names["PACKED"] = _PACKED if as_is else ""
    names["START"] = "start" if as_is else "0"
    text = _TEMPLATE.replace("@ROWS", _ROWS if as_is else "")
    text = text.replace("@FEW", _FEW if as_is else "")
    for key, value in names.items():
        text = text.replace(f"@{key}", value)
    return text


def _total_type(made: DType) -> str:
    """The type of totals; integers wrap around without a sign."""
    if made.is_inexact:
        return "double" if made is dtypes.float64 else "float"
    return "uint64_t" if made.itemsize == 8 else "uint32_t"


def packed(matrix: np.ndarray) -> np.ndarray:
    """A right operand as panels of sixteen columns, in the order of their use."""
    depth, columns = matrix.shape
    panels = -(-columns // WIDTH)
    padded = np.zeros((depth, panels * WIDTH), matrix.dtype)
    padded[:, :columns] = matrix
    return np.ascontiguousarray(padded.reshape(depth, panels, WIDTH).swapaxes(0, 1))


_ROWS = """\
/* one row and four panels, one after the other: totals do not wait for one another */
static void panels_@KIND(const @IN *a, int64_t step, const @TOTAL *panels,
                         int64_t depth, @TOTAL *out) {
  @TOTAL s0[COLUMNS] = {0}, s1[COLUMNS] = {0}, s2[COLUMNS] = {0}, s3[COLUMNS] = {0};
  const @TOTAL *p0 = panels, *p1 = p0 + depth * COLUMNS;
  const @TOTAL *p2 = p1 + depth * COLUMNS, *p3 = p2 + depth * COLUMNS;
  for (int64_t k = 0; k < depth; k++) {
    const @TOTAL x = a[k * step];
    for (int j = 0; j < COLUMNS; j++) {
      s0[j] += x * p0[k * COLUMNS + j];
      s1[j] += x * p1[k * COLUMNS + j];
      s2[j] += x * p2[k * COLUMNS + j];
      s3[j] += x * p3[k * COLUMNS + j];
    }
  }
  for (int j = 0; j < COLUMNS; j++) {
    out[j] = s0[j];
    out[COLUMNS + j] = s1[j];
    out[2 * COLUMNS + j] = s2[j];
    out[3 * COLUMNS + j] = s3[j];
  }
}

"""

_FEW = """\
  int64_t start = 0;  /* the columns that are done */
  if (packed && rows < 4) {
    for (; start + 4 * COLUMNS <= columns; start += 4 * COLUMNS)
      for (int64_t i = begin; i < end; i++) {
        panels_@KIND(a + i * a_row, a_step, b + start * depth, depth, out);
        for (int j = 0; j < 4 * COLUMNS; j++) c[i * columns + start + j] = out[j];
      }
  }
"""

_PACKED = """\
      if (packed) ready = b + j * depth + first * COLUMNS;
"""

_TEMPLATE = """\
/* totals of four rows by sixteen columns, over some of the depth */
static void block_@KIND(const @IN *a, int64_t row, int64_t step, const @TOTAL *panel,
                        int64_t depth, @TOTAL *out) {
  @TOTAL s0[COLUMNS] = {0}, s1[COLUMNS] = {0}, s2[COLUMNS] = {0}, s3[COLUMNS] = {0};
  for (int64_t k = 0; k < depth; k++) {
    const @TOTAL x0 = @LOAD(a[k * step]), x1 = @LOAD(a[row + k * step]);
    const @TOTAL x2 = @LOAD(a[2 * row + k * step]), x3 = @LOAD(a[3 * row + k * step]);
    for (int j = 0; j < COLUMNS; j++) {
      const @TOTAL y = panel[k * COLUMNS + j];
      s0[j] += x0 * y;
      s1[j] += x1 * y;
      s2[j] += x2 * y;
      s3[j] += x3 * y;
    }
  }
  for (int j = 0; j < COLUMNS; j++) {
    out[j] = s0[j];
    out[COLUMNS + j] = s1[j];
    out[2 * COLUMNS + j] = s2[j];
    out[3 * COLUMNS + j] = s3[j];
  }
}

/* the same for one row */
static void row_@KIND(const @IN *a, int64_t step, const @TOTAL *panel, int64_t depth,
                      @TOTAL *out) {
  @TOTAL s[COLUMNS] = {0};
  for (int64_t k = 0; k < depth; k++) {
    const @TOTAL x = @LOAD(a[k * step]);
    for (int j = 0; j < COLUMNS; j++) s[j] += x * panel[k * COLUMNS + j];
  }
  for (int j = 0; j < COLUMNS; j++) out[j] = s[j];
}

@ROWS/* one element, where the depth of b is contiguous */
static @TOTAL dot_@KIND(const @IN *a, int64_t step, const @IN *b, int64_t depth) {
  @TOTAL s[COLUMNS] = {0};
  int64_t k = 0;
  if (step == 1) {
    for (; k + COLUMNS <= depth; k += COLUMNS)
      for (int j = 0; j < COLUMNS; j++) s[j] += @LOAD(a[k + j]) * @LOAD(b[k + j]);
  }
  for (; k < depth; k++) s[k % COLUMNS] += @LOAD(a[k * step]) * @LOAD(b[k]);
  for (int half = COLUMNS / 2; half > 0; half /= 2)
    for (int j = 0; j < half; j++) s[j] += s[j + half];
  return s[0];
}

static int @NAME(void *const *p, const int64_t *n, int64_t begin, int64_t end) {
  const @IN *a = p[0], *b = p[1];
  @OUT *c = p[2];
  const int64_t rows = n[0], depth = n[1], columns = n[2];
  const int64_t a_row = n[3], a_step = n[4], b_step = n[5], b_column = n[6];
  const int packed = n[7] != 0;
  @TOTAL panel[DEPTH * COLUMNS], out[4 * COLUMNS];
@FEW  if (!packed && rows < 4 && b_step == 1) {
    for (int64_t i = begin; i < end; i++)
      for (int64_t j = 0; j < columns; j++)
        c[i * columns + j] =
            (@OUT)dot_@KIND(a + i * a_row, a_step, b + j * b_column, depth);
    return 0;
  }
  for (int64_t j = @START; j < columns; j += COLUMNS) {
    const int width = columns - j < COLUMNS ? (int)(columns - j) : COLUMNS;
    for (int64_t first = 0; first == 0 || first < depth; first += DEPTH) {
      const int64_t count = depth - first < DEPTH ? depth - first : DEPTH;
      const @TOTAL *ready = panel;
@PACKED      for (int64_t k = 0; k < count && ready == panel; k++) {
        const @IN *from = b + (first + k) * b_step + j * b_column;
        @TOTAL *to = panel + k * COLUMNS;
        for (int q = 0; q < width; q++) to[q] = @LOAD(from[q * b_column]);
        for (int q = width; q < COLUMNS; q++) to[q] = 0;
      }
      for (int64_t i = begin; i < end;) {
        const int height = end - i < 4 ? 1 : 4;
        const @IN *from = a + i * a_row + first * a_step;
        if (height == 4)
          block_@KIND(from, a_row, a_step, ready, count, out);
        else
          row_@KIND(from, a_step, ready, count, out);
        for (int r = 0; r < height; r++) {
          @OUT *to = c + (i + r) * columns + j;
          for (int q = 0; q < width; q++)
            to[q] = (@OUT)((first ? (@TOTAL)to[q] : 0) + out[r * COLUMNS + q]);
        }
        i += height;
      }
    }
  }
  return 0;
}
"""
