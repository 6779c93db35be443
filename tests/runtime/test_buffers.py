"""The pool of memory for large arrays."""

import os
import threading

import numpy as np
import pytest

import weft
from weft.runtime.cpu import buffers
from weft.runtime.cpu.buffers import SMALLEST, Pool, block_size

LARGE = (SMALLEST // 4,)


@pytest.fixture(autouse=True)
def own_pool(monkeypatch):
    pool = Pool(limit=8 * SMALLEST)
    monkeypatch.setattr(buffers, "_pool", pool)
    return pool


def where(array):
    return array.__array_interface__["data"][0]


def test_memory_is_used_again():
    x = buffers.empty(LARGE, np.float32)
    first, size = where(x), block_size(x.nbytes)
    assert buffers.pool_bytes() == (size, 0)
    x[:] = 1
    del x
    assert buffers.pool_bytes() == (0, size)
    y = buffers.empty((2, LARGE[0] // 4), np.float64)  # as many bytes
    assert where(y) == first
    assert buffers.pool_bytes() == (size, 0)


def test_a_view_holds_the_memory():
    x = buffers.empty(LARGE, np.float32)
    view = x.reshape(2, -1)[1, ::2]
    view[:] = 3
    del x
    assert buffers.pool_bytes().used
    assert (view == 3).all()
    del view
    assert not buffers.pool_bytes().used


def test_small_arrays_and_other_dtypes_are_numpys():
    assert buffers.empty((3, 4), np.float32).base is None
    half = buffers.empty((SMALLEST,), weft.bfloat16.np)
    assert half.dtype == weft.bfloat16.np
    assert buffers.pool_bytes() == (0, 0)


def test_arrays_of_the_pool_are_owned():
    x = buffers.empty(LARGE, np.float32)
    assert x.flags.writeable
    assert x.flags.c_contiguous
    assert where(x) % 64 == 0
    assert buffers.owned(x)
    assert not buffers.owned(x[1:])
    assert weft.Tensor(x).is_owned()


def test_what_waits_is_bounded(own_pool):
    for _ in range(2):
        held = [buffers.empty(LARGE, np.float32) for _ in range(20)]
        held.clear()
        used, kept = buffers.pool_bytes()
        assert used == 0
        assert 0 < kept <= own_pool.limit


def test_sizes_that_were_not_used_for_long_go_first(own_pool):
    for k in range(1, 30):
        buffers.empty((LARGE[0] + k * LARGE[0] // 6,), np.float32)
    last = block_size(4 * (LARGE[0] + 29 * LARGE[0] // 6))
    assert buffers.pool_bytes().kept <= own_pool.limit
    assert last in own_pool._free


def test_release():
    buffers.empty(LARGE, np.float32)
    kept = buffers.pool_bytes().kept
    assert buffers.release() == kept > 0
    assert buffers.pool_bytes() == (0, 0)
    assert buffers.release() == 0


@pytest.mark.parametrize("nbytes", [SMALLEST, SMALLEST + 1, 64_000_000, 3 << 30])
def test_blocks_are_hardly_larger_than_asked_for(nbytes):
    assert nbytes <= block_size(nbytes) <= nbytes * 9 / 8 + 4096


def test_threads():
    faults = []

    def work(mark):
        for _ in range(50):
            x = buffers.empty(LARGE, np.float32)
            x[::4096] = mark
            if not (x[::4096] == mark).all():
                faults.append(mark)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults
    assert buffers.pool_bytes().used == 0


def test_an_array_that_goes_while_the_pool_is_held(own_pool):
    x = buffers.empty(LARGE, np.float32)
    size = block_size(x.nbytes)
    with own_pool._lock:  # as the garbage collector may find it
        del x
    assert buffers.pool_bytes() == (0, size)


def test_a_fork_while_another_thread_holds_the_pool(own_pool):
    with own_pool._lock:
        child = os.fork()
        if not child:
            try:
                buffers.empty(LARGE, np.float32)[:] = 1
                os._exit(0)
            finally:
                os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


def test_no_memory_left(own_pool, monkeypatch):
    def refuse(size):
        raise OSError("no memory")

    monkeypatch.setattr(buffers, "_mapped", refuse)
    with pytest.raises(weft.errors.AllocationError, match="refused"):
        buffers.empty(LARGE, np.float32)
    assert buffers.pool_bytes() == (0, 0)


def test_results_of_compiled_programs_are_of_the_pool():
    x = weft.ones(LARGE[0])
    y = weft.compile(lambda x: x + 1)(x)
    assert buffers.pool_bytes().used == block_size(SMALLEST)
    assert (y == 2).all()
    del y
    assert buffers.pool_bytes().used == 0
