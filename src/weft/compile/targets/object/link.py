"""Linking: object code as a library, by a linker that is installed.

LLVM's binding makes object code but has no linker. The ``ziglang`` wheel has linkers
for all machines; the system's ``cc`` serves for this one.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from weft.compile.targets.object.machines import Machine
from weft.errors import ArgumentError

_ZIG = {
    "linux": ("-shared", "-Wl,-z,nodelete"),  # threads of the pool run its code
    "macos": ("-dynamiclib",),
    "windows": ("-shared",),
}
_WASM = ("--no-entry", "--strip-all", "-z", "stack-size=1048576")
_CC = ("-shared", "-Wl,-z,nodelete", "-lpthread")


def linked(code: bytes, machine: Machine, public: Sequence[str], name: str) -> bytes:
    """The library of an object file, which is called ``name``."""
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "code.o")
        made = os.path.join(folder, name)
        with open(source, "wb") as file:
            file.write(code)
        command = [*_command(machine, public), source, "-o", made]
        environment = {**os.environ, "ZIG_LOCAL_CACHE_DIR": folder}
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        if done.returncode != 0 or not os.path.exists(made):
            raise ArgumentError(
                f"export: {command[0]} cannot link {name}; it says:\n"
                f"{(done.stderr or done.stdout).strip()[:2000]}"
            )
        with open(made, "rb") as file:
            return file.read()


def _command(machine: Machine, public: Sequence[str]) -> list[str]:
    """The command that links for a machine, before files are named."""
    zig = importlib.util.find_spec("ziglang") is not None
    if machine.system == "wasm32":
        if not zig:
            raise _missing(machine)
        exports = [f"--export={name}" for name in (*public, "__heap_base")]
        return [*_zig(), "wasm-ld", *_WASM, *exports]
    system = _system_compiler() if machine.is_host else None
    if system is not None and machine.system == "linux":
        return [system, *_CC]
    if not zig:
        raise _missing(machine)
    family, _, system = machine.name.partition("-")
    kind = {"linux": "linux-gnu", "windows": "windows-gnu"}.get(system, system)
    return [*_zig(), "cc", "-target", f"{family}-{kind}", *_ZIG[system]]


def _zig() -> list[str]:
    return [sys.executable, "-m", "ziglang"]


def _system_compiler() -> str | None:
    return next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)


def _missing(machine: Machine) -> ArgumentError:
    here = "; a C compiler called cc would do, too" if machine.is_host else ""
    return ArgumentError(
        f"export: no linker for {machine.name} is installed: pip install "
        f"'weft[export]' brings one, in the ziglang wheel{here}. An object file ('.o') "
        "needs none"
    )
