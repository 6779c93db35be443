"""The number of threads this process may use, and the limit that says so.

In a container the number of cores says little: the scheduler's affinity mask and
the control group's quota do. The smallest of them counts.
"""

from __future__ import annotations

import math
import os
import pathlib
from typing import NamedTuple


class ThreadLimit(NamedTuple):
    """A number of threads, and what it comes from."""

    threads: int
    reason: str


def _read(path: pathlib.Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def cgroup_quota(root: str | os.PathLike[str] = "/sys/fs/cgroup") -> float | None:
    """The cores that the control group grants, or None without a limit.

    >>> weft.runtime.cpu.threads.cgroup_quota("/nonexistent") is None
    True
    """
    folder = pathlib.Path(root)
    quota, _, period = _read(folder / "cpu.max").partition(" ")  # version 2
    if not quota:
        quota = _read(folder / "cpu" / "cpu.cfs_quota_us")  # version 1
        period = _read(folder / "cpu" / "cpu.cfs_period_us")
    if not quota.isdigit() or not period.isdigit() or int(period) == 0:
        return None
    return int(quota) / int(period)


def cores() -> ThreadLimit:
    """The cores that this process may use, where the system says which.

    >>> weft.runtime.cpu.threads.cores().threads >= 1
    True
    """
    try:
        return ThreadLimit(len(os.sched_getaffinity(0)), "CPU affinity")
    except (AttributeError, OSError):  # macOS and Windows have no such thing
        return ThreadLimit(os.cpu_count() or 1, "number of cores")


def thread_limit(root: str | os.PathLike[str] = "/sys/fs/cgroup") -> ThreadLimit:
    """The threads to use: the smallest of affinity, quota and WEFT_NUM_THREADS.

    >>> weft.runtime.cpu.threads.thread_limit().threads >= 1
    True
    """
    limits = [cores()]
    quota = cgroup_quota(root)
    if quota is not None:
        limits.append(ThreadLimit(max(math.floor(quota), 1), "control group quota"))
    asked = os.environ.get("WEFT_NUM_THREADS", "")
    if asked.isdigit() and int(asked) > 0:
        limits.append(ThreadLimit(int(asked), "WEFT_NUM_THREADS"))
    return min(limits, key=lambda limit: limit.threads)
