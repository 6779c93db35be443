"""Systems that lack what Linux has: eager mode works there, on fewer means."""

import os

import numpy as np
import pytest

import weft
from weft.core import eager_kernels
from weft.runtime import system
from weft.runtime.cpu import buffers
from weft.runtime.cpu.buffers import physical_memory
from weft.runtime.cpu.threads import thread_limit


def test_without_affinity_all_cores_count(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.delenv("WEFT_NUM_THREADS", raising=False)
    limit = thread_limit("/nonexistent")
    assert limit == (os.cpu_count(), "number of cores")


@pytest.mark.parametrize("error", [ValueError, OSError])
def test_memory_that_nobody_knows_is_not_limited(monkeypatch, error):
    def sysconf(name):
        raise error

    monkeypatch.setattr(os, "sysconf", sysconf)
    assert physical_memory() == 1 << 62
    assert buffers._limit() == 1 << 30


def test_on_windows_eager_mode_is_numpys(monkeypatch):
    monkeypatch.setattr(eager_kernels, "_kernels", None)
    monkeypatch.setattr(weft.config, "eager_kernels", True)
    monkeypatch.setattr(system, "WINDOWS", True)
    x = np.linspace(-1, 1, 1 << 18, dtype=np.float32)
    got = weft.Tensor(x).exp()
    monkeypatch.undo()
    np.testing.assert_array_equal(got.numpy(), np.exp(x))
