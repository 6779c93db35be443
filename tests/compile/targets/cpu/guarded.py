"""Arrays behind which no memory may be touched."""

import ctypes
import mmap

import numpy as np


def at_the_end_of_a_page(array):
    """A copy after which memory must not be read, and what holds it."""
    page = mmap.PAGESIZE
    size = -(-array.nbytes // page) * page
    memory = mmap.mmap(-1, size + page)
    whole = np.frombuffer(memory, np.uint8)
    libc = ctypes.CDLL(None)
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    assert libc.mprotect(whole.ctypes.data + size, page, 0) == 0
    place = whole[size - array.nbytes : size].view(array.dtype).reshape(array.shape)
    place[...] = array
    return place, memory
