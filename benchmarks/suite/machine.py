"""The machine a run was made on: processor, cores, caches, load."""

from __future__ import annotations

import os
import pathlib
import platform
import re

CACHES = pathlib.Path("/sys/devices/system/cpu/cpu0/cache")


def processor() -> str:
    """Its name, with family and model where the name says little."""
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or platform.machine()
    fields = dict(re.findall(r"^([^\t:]+?)\s*: (.*)$", text, re.MULTILINE))
    name = fields.get("model name", platform.machine())
    if "cpu family" in fields:
        name += f" (family {fields['cpu family']}, model {fields.get('model')})"
    return name


def caches() -> str:
    """Level, kind and size of each, as the first core has them."""
    found = []
    for folder in sorted(CACHES.glob("index*")):
        level, kind, size = (
            (folder / name).read_text().strip() for name in ("level", "type", "size")
        )
        if kind != "Instruction":
            found.append(f"L{level} {size}")
    return ", ".join(found) or "unknown"


def vectors() -> str:
    """The widest vectors the processor has."""
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text()
    except OSError:
        return ""
    return next((name for name in ("avx512f", "avx2", "sse4_2") if name in text), "")


def load() -> float:
    """Processes that wanted to run during the last minute."""
    return os.getloadavg()[0]


def facts() -> dict[str, str]:
    return {
        "processor": f"{processor()} {vectors()}".strip(),
        "cores": f"{len(os.sched_getaffinity(0))} of {os.cpu_count()}",
        "caches": caches(),
        "system": f"{platform.system()} {platform.release()}",
    }
