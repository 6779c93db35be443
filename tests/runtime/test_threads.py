"""The thread limit, on control-group files that the test writes."""

import os

import pytest

from weft.runtime.cpu import threads
from weft.runtime.cpu.threads import ThreadLimit, cgroup_quota, thread_limit


def test_version_2(tmp_path):
    (tmp_path / "cpu.max").write_text("250000 100000\n")
    assert cgroup_quota(tmp_path) == 2.5
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert cgroup_quota(tmp_path) is None


def test_version_1(tmp_path, monkeypatch):
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("50000")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000")
    assert cgroup_quota(tmp_path) == 0.5
    monkeypatch.setattr(threads, "cores", lambda: ThreadLimit(8, "number of cores"))
    assert thread_limit(tmp_path) == (1, "control group quota")
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("-1")
    assert cgroup_quota(tmp_path) is None


def test_affinity_and_environment(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(6)))
    assert thread_limit(tmp_path) == (6, "CPU affinity")
    monkeypatch.setenv("WEFT_NUM_THREADS", "3")
    assert thread_limit(tmp_path) == (3, "WEFT_NUM_THREADS")
    (tmp_path / "cpu.max").write_text("200000 100000")
    assert thread_limit(tmp_path) == (2, "control group quota")


@pytest.mark.parametrize("text", ["", "nonsense", "100 0"])
def test_odd_files_are_no_limit(tmp_path, text):
    (tmp_path / "cpu.max").write_text(text)
    assert cgroup_quota(tmp_path) is None
