"""Bytes on disk of a package and of everything that it requires.

python -m benchmarks.suite.installed NAME
"""

from __future__ import annotations

import importlib.metadata as metadata
import importlib.util
import pathlib
import re
import sys


def required(name: str, found: set[str]) -> set[str]:
    """Names of the distributions that it needs, itself among them; no extras."""
    name = re.sub(r"[-_.]+", "-", name).lower()
    if name in found:
        return found
    try:
        needs = metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        return found  # for another platform
    found.add(name)
    for need in needs:
        if "extra" not in need.partition(";")[2]:
            required(re.split(r"[^\w.-]", need, maxsplit=1)[0], found)
    return found


def package_bytes(name: str) -> int:
    """The files of an importable package, without bytecode."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise SystemExit(f"{name} is not installed")
    files = pathlib.Path(spec.origin).parent.rglob("*")
    return sum(f.stat().st_size for f in files if _counts(f))


def distribution_bytes(name: str) -> int:
    files = metadata.files(name) or []
    paths = [pathlib.Path(str(file.locate())) for file in files]
    return sum(p.stat().st_size for p in paths if _counts(p))


def _counts(path: pathlib.Path) -> bool:
    return path.is_file() and path.suffix != ".pyc"


def total(name: str) -> int:
    """A checkout has its files elsewhere, so a package counts by its folder."""
    own = package_bytes(name)
    names = required(name, set()) - {name}
    return own + sum(map(distribution_bytes, names))


if __name__ == "__main__":
    print(total(sys.argv[1]))
