"""Systems that lack what Linux has: eager mode works there, on fewer means."""

import mmap
import os

import numpy as np

import weft
from weft.core import eager_kernels
from weft.runtime.cpu import arena, buffers
from weft.runtime.cpu.buffers import physical_memory
from weft.runtime.cpu.threads import thread_limit


def test_without_affinity_all_cores_count(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.delenv("WEFT_NUM_THREADS", raising=False)
    limit = thread_limit("/nonexistent")
    assert limit == (os.cpu_count(), "number of cores")


def test_without_sysconf_memory_is_not_limited(monkeypatch):
    monkeypatch.delattr(os, "sysconf")
    assert physical_memory() == 1 << 62
    assert buffers._limit() == 1 << 30


def test_pages_without_flags(monkeypatch):
    real = mmap.mmap

    def windows(fileno, length, **options):
        assert not options
        return real(fileno, length)

    monkeypatch.delattr(mmap, "MAP_PRIVATE")
    monkeypatch.setattr(mmap, "mmap", windows)
    assert len(buffers.fresh_pages(100)) == 100
    assert arena._mapped(100).size >= 100


def test_without_a_thread_pool_all_is_numpys(monkeypatch):
    monkeypatch.setattr(eager_kernels, "_kernels", None)
    monkeypatch.setattr(weft.config, "eager_kernels", True)
    monkeypatch.setattr(os, "name", "nt")
    x = np.linspace(-1, 1, 1 << 18, dtype=np.float32)
    got = weft.Tensor(x).exp()
    monkeypatch.undo()
    np.testing.assert_array_equal(got.numpy(), np.exp(x))
