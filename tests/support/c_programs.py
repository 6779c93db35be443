"""C files and libraries that ``weft.export`` makes: built where need be, and called."""

import ctypes
import shutil
import subprocess

import numpy as np
import pytest

CC = shutil.which("cc")
needs_cc = pytest.mark.skipif(CC is None, reason="there is no C compiler")
STRICT = ("-Wall", "-Wextra", "-Werror", "-std=c99", "-pedantic")
CODES = (
    "OK", "NOT_INITIALIZED", "NULL_POINTER", "SHAPE", "MEMORY_TOO_SMALL", "VALUE",
    "WEIGHTS",
)  # fmt: skip


def compiled(source, *flags):
    """The shared library of a C file; the compiler must not warn."""
    library = source.with_suffix(".so")
    command = [CC, *STRICT, *flags, "-fPIC", "-shared", source, "-o", library, "-lm"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:4000]
    assert done.stderr == ""
    return library


class CModel:
    """A model of a C file, or of a library, with memory of its own."""

    def __init__(self, source, size, *init, flags=("-O1",)):
        self.name = source.stem
        path = compiled(source, *flags) if source.suffix == ".c" else source
        self.library = ctypes.CDLL(str(path))
        self.model = ctypes.create_string_buffer(64)
        self.memory = np.full(size, 0xA5, np.uint8)  # what is there does not matter
        self.init_code = self.init(size, *init)

    def init(self, size, *more):
        call = self.library[f"{self.name}_init"]
        return CODES[
            call(self.model, pointer(self.memory), ctypes.c_size_t(size), *more)
        ]

    def __call__(self, entry, arrays, results):
        """The code of a call; results are written to."""
        args = [self.model]
        for array in (*arrays, *results):
            args.append(pointer(array))
            if array.ndim:
                args.append((ctypes.c_int64 * array.ndim)(*array.shape))
        return CODES[self.library[f"{self.name}_{entry}"](*args)]


def pointer(array):
    assert array.flags.c_contiguous
    return ctypes.c_void_p(array.ctypes.data)
