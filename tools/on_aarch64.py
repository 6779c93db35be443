"""The tests on aarch64, emulated: pytest with Debian's Python for arm64 under QEMU.

    python tools/on_aarch64.py                       the suites of ``SUITES``
    python tools/on_aarch64.py tests/ops -k matmul   any arguments of pytest
    python tools/on_aarch64.py --python -c "import weft"      Python itself

Debian's packages and PyPI's wheels come from the mirror and the index that ``apt-get``
and ``pip`` are configured for, and are unpacked into ``build/aarch64`` once; nothing is
installed, and no rights are needed. ``qemu-aarch64-static`` is the installed one, or
comes from Debian too. The interpreter there is a script that starts the emulator, so
that tests can start processes. A program takes some ten times as long as on a machine.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "build" / "aarch64"
SYSTEM, SITE = FOLDER / "system", FOLDER / "site"
PYTHON = SYSTEM / "usr" / "bin" / "python"  # a script
EMULATOR = "qemu-aarch64-static"
DEBIAN = ("python3", "libstdc++6")  # NumPy's and LLVM's wheels need C++
TESTS = (
    "hypothesis",
    "onnx",
    "pytest",
    "pytest-xdist",
    "safetensors",
)  # of the dev tools
SUITES = (
    "tests/test_every_op.py", "tests/ops", "tests/nn", "tests/optim", "tests/compile",
)  # fmt: skip


def run(*command: str | os.PathLike[str], cwd: Path | None = None) -> str:
    """What a command prints; the program ends with its words if it fails."""
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    except FileNotFoundError:
        sys.exit(
            f"{command[0]} is not installed. This program needs Debian's apt-get and "
            "dpkg-deb, or those of a system made from Debian."
        )
    if done.returncode:
        words = done.stderr.strip() or done.stdout.strip()
        sys.exit(f"{' '.join(map(str, command))}\nfailed:\n{words}")
    return done.stdout


def fetch_packages() -> None:
    """Unpack Debian's Python for arm64, and all that it needs, into ``SYSTEM``."""
    state, cache = FOLDER / "apt" / "state", FOLDER / "apt" / "cache"
    (state / "lists" / "partial").mkdir(parents=True, exist_ok=True)
    (cache / "archives" / "partial").mkdir(parents=True, exist_ok=True)
    (state / "status").touch()  # a system without any package
    options = {
        "Dir::State": state, "Dir::State::status": state / "status",
        "Dir::Cache": cache, "APT::Architecture": "arm64",
        "APT::Architectures": "arm64", "APT::Sandbox::User": "",
    }  # fmt: skip
    given = [f"-o{name}={value}" for name, value in options.items()]
    run("apt-get", "-q", *given, "update")
    run("apt-get", "-q", "-y", *given, "install", "--download-only",
        "--no-install-recommends", *DEBIAN)  # fmt: skip
    for name in ("bin", "lib", "sbin"):  # packages have files in both
        (SYSTEM / "usr" / name).mkdir(parents=True, exist_ok=True)
        if not (SYSTEM / name).is_symlink():
            (SYSTEM / name).symlink_to(f"usr/{name}")
    for package in sorted((cache / "archives").glob("*.deb")):
        run("dpkg-deb", "-x", package, SYSTEM)


def fetch_wheels(version: str) -> None:
    """Unpack the wheels for a version of Python on aarch64 into ``SITE``."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project = project["project"]
    tools = project["optional-dependencies"]["dev"]
    wanted = [t for t in tools if re.split(r"[<>=; ]", t)[0] in TESTS]
    systems = (f"--platform=manylinux_2_{n}_aarch64" for n in (17, 27, 28))
    run(sys.executable, "-m", "pip", "install", "-q", "--only-binary=:all:", *systems,
        "--platform=manylinux2014_aarch64", f"--python-version={version}",
        "--target", SITE, "--upgrade", *project["dependencies"], *wanted)  # fmt: skip


def _extract(package: Path, name: str, folder: Path) -> None:
    """Unpack the one file of a package that has a name."""
    with (
        subprocess.Popen(
            ["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE
        ) as unpacked,
        tarfile.open(fileobj=unpacked.stdout, mode="r|") as files,
    ):
        for file in files:
            if file.isfile() and Path(file.name).name == name:
                files.extract(file, folder, filter="data")


def emulator() -> str:
    """The path of QEMU's program for aarch64, which is fetched if it is not here."""
    found = shutil.which(EMULATOR)
    if found is None:
        host = FOLDER / "host"
        if not (host / "usr" / "bin" / EMULATOR).exists():
            host.mkdir(parents=True, exist_ok=True)
            run("apt-get", "-q", "download", "qemu-user-static", cwd=host)
            _extract(next(host.glob("qemu-user-static*.deb")), EMULATOR, host)
        found = str(host / "usr" / "bin" / EMULATOR)
    return found


def prepare() -> None:
    """Make ``PYTHON``, if it is not there yet."""
    if PYTHON.exists():
        return
    fetch_packages()
    real = (SYSTEM / "usr" / "bin" / "python3").resolve()
    fetch_wheels(real.name.removeprefix("python"))
    PYTHON.write_text(
        f'#!/bin/sh\nexec "{emulator()}" -0 "$0" -L "{SYSTEM}" "{real}" "$@"\n'
    )
    PYTHON.chmod(0o755)  # the last step: what was interrupted begins again


def main(arguments: list[str]) -> int:
    prepare()
    if arguments[:1] == ["--python"]:
        command = arguments[1:]
    else:
        command = ["-m", "pytest", *(arguments or SUITES)]
    paths = os.pathsep.join([str(ROOT / "src"), str(SITE)])
    cache = str(FOLDER / "kernels")
    environment = {
        **os.environ, "PYTHONPATH": paths, "PYTHONNOUSERSITE": "1",
        "OPENBLAS_NUM_THREADS": "1", "WEFT_CACHE_DIR": cache,
    }  # fmt: skip
    return subprocess.call([PYTHON, *command], cwd=ROOT, env=environment)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
