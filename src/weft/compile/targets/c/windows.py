"""Windows of images as columns of a matrix, for convolutions in C.

A row of an image is copied at once for each place in the window, or the whole image
where windows are as many as pixels; what lies in the padding becomes 0.
"""

from __future__ import annotations

from weft.compile.targets.c.source import Source, memory_type, short_name
from weft.dtype import DType


def write_windows(source: Source, dtype: DType) -> str:
    """Define the function for a dtype; gives its name.

    It has the buffers of images and columns, and the numbers: height, width, and then
    of rows and of columns the kernel, stride, padding, dilation and number of windows.
    Its iterations are the images' channels.
    """
    name = f"windows_{short_name(dtype)}"
    kind = memory_type(dtype)
    text = _TEXT.replace("@NAME", name).replace("@TYPE", kind)
    return source.define(name, lambda: text.replace("@KIND", short_name(dtype)))


_TEXT = """\
/* an image moved up by so many rows and to the left by so many columns */
static void shift_@KIND(@TYPE *to, const @TYPE *image, const int64_t *r, int64_t up,
                        int64_t left, int64_t first, int64_t last, int64_t height,
                        int64_t width) {
  const int64_t top = up < 0 ? (-up < r[4] ? -up : r[4]) : 0;
  int64_t bottom = height - up < r[4] ? height - up : r[4];
  if (bottom < top) bottom = top;
  const int64_t from = (top + up) * width + left, all = height * width;
  const int64_t count = (bottom - top) * width;
  const int64_t low = from < 0 ? -from : 0;
  const int64_t high = from + count > all ? all - from : count;
  for (int64_t k = 0; k < top * width; k++) to[k] = 0;
  for (int64_t k = low; k < high; k++) to[top * width + k] = image[from + k];
  for (int64_t i = top; i < bottom; i++) {
    for (int64_t j = 0; j < first; j++) to[i * width + j] = 0;
    for (int64_t j = last; j < width; j++) to[i * width + j] = 0;
  }
  for (int64_t k = bottom * width; k < r[4] * width; k++) to[k] = 0;
}

static int @NAME(void *const *p, const int64_t *n, int64_t begin, int64_t end) {
  const @TYPE *x = p[0];
  @TYPE *to = p[1];
  const int64_t height = n[0], width = n[1], *r = n + 2, *c = n + 7;
  to += begin * r[0] * c[0] * r[4] * c[4];
  for (int64_t plane = begin; plane < end; plane++) {
    const @TYPE *image = x + plane * height * width;
    for (int64_t a = 0; a < r[0]; a++) {
      for (int64_t b = 0; b < c[0]; b++) {
        const int64_t start = b * c[3] - c[2];  /* of the first window's column */
        int64_t first = start < 0 ? (c[1] - 1 - start) / c[1] : 0;
        int64_t last = width > start ? (width - start + c[1] - 1) / c[1] : 0;
        if (last > c[4]) last = c[4];
        if (first > last) first = last;
        if (r[1] == 1 && c[1] == 1 && c[4] == width) {
          shift_@KIND(to, image, r, a * r[3] - r[2], start, first, last, height, width);
          to += r[4] * width;
          continue;
        }
        for (int64_t i = 0; i < r[4]; i++, to += c[4]) {
          const int64_t row = i * r[1] + a * r[3] - r[2];
          const int inside = row >= 0 && row < height;
          const int64_t low = inside ? first : 0, high = inside ? last : 0;
          for (int64_t j = 0; j < low; j++) to[j] = 0;
          if (low < high) {
            const @TYPE *from = image + row * width + low * c[1] + start;
            for (int64_t j = low; j < high; j++) to[j] = from[(j - low) * c[1]];
          }
          for (int64_t j = high; j < c[4]; j++) to[j] = 0;
        }
      }
    }
  }
  return 0;
}
"""
