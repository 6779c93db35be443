"""Windows and macOS, imitated on Linux; and what stands in the source for them."""

import ast
import ctypes
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

import weft
from weft.compile.targets.cpu import elf
from weft.compile.targets.cpu.object_code import Library, host_isa, object_code
from weft.runtime import system

ROOT = Path(__file__).parents[1]
SUPPORT = ROOT / "tests" / "support"
SOURCE = ROOT / "src" / "weft"
# Modules that Windows has not, and names that Linux or POSIX systems alone have.
MODULES = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "termios", "tty"}
NAMES = {
    "os": """fork forkpty register_at_fork getuid geteuid getgid killpg setsid setpgid
        getpgid getpgrp pread preadv pwrite O_DIRECTORY O_NOFOLLOW O_CLOEXEC sysconf
        uname mkfifo wait waitid WNOHANG fchmod chown sendfile statvfs posix_fadvise
        sched_getaffinity sched_setaffinity memfd_create MFD_CLOEXEC set_blocking""",
    "mmap": "MAP_PRIVATE MAP_SHARED MAP_ANONYMOUS MAP_ANON PROT_READ PROT_EXEC",
    "signal": """SIGKILL SIGALRM SIGHUP SIGUSR1 SIGSTOP SIGCONT setitimer alarm
        SIG_SETMASK pthread_sigmask""",
    "socket": "AF_UNIX SO_REUSEPORT",
    "select": "poll epoll",
}
# The modules that may name them in functions: these run on POSIX systems alone there.
GUARDED = {
    "runtime/system.py": "asks for the system first",
    "runtime/cpu/kernel_cache.py": "opens folders by descriptors but on Windows",
    "runtime/cpu/threads.py": "counts cores where there is no affinity",
    "compile/targets/cpu/pool_code.py": "code for POSIX threads",
    "distributed/launch.py": "refuses Windows at once",
    "distributed/snapshots.py": "for processes that the launcher has started",
    "serve/app.py": "says 0 where there is no number",
    "utils/data/transport.py": "for Linux; other systems send bytes",
}


def run(name, *command, **more):
    folders = [str(SUPPORT / "simulated"), os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ, "WEFT_SIMULATE": name, "WEFT_NUM_THREADS": "2",
        "PYTHONPATH": os.pathsep.join(filter(None, folders)), **more,
    }  # fmt: skip
    return subprocess.run(
        [sys.executable, *command], env=environment, text=True, capture_output=True,
        timeout=600,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "waiting"), [("win32", "address"), ("darwin", "condition")]
)
def test_programs_run(name, waiting, tmp_path):
    """Eager mode, training, compiling, threads, files, and workers that are spawned."""
    program = str(SUPPORT / "on_another_system.py")
    done = run(name, program, WEFT_CACHE_DIR=str(tmp_path / "kernels"))
    assert (done.stderr, done.stdout) == ("", f"{waiting} on disk\n")


@pytest.mark.parametrize("name", ["win32", "darwin"])
def test_the_command_runs(name):
    done = run(name, "-m", "weft", "--help")
    assert not done.stderr
    assert "bench" in done.stdout


def test_processes_are_not_launched_on_windows():
    program = str(SUPPORT / "on_another_system.py")
    done = run("win32", "-m", "weft", "run", "-n", "2", program)
    assert done.returncode != 0
    assert "weft run -n: processes are started for one another on" in done.stderr
    assert "RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT" in done.stderr


def test_every_module_can_be_imported():
    """Without optional packages, whose absence is told in words."""
    names = sorted(
        ".".join(("weft", *path.relative_to(SOURCE).with_suffix("").parts))
        for path in SOURCE.rglob("*.py")
        if path.stem not in ("__init__", "__main__")
    )
    code = "import sys, importlib\nfor n in sys.argv[1:]: importlib.import_module(n)"
    done = run("win32", "-W", "ignore", "-c", code, *names)
    assert done.returncode == 0, done.stderr


def tree_of(path, words):
    """A module's syntax tree; an empty one if none of the words is in its text."""
    text = path.read_text("utf-8")
    return ast.parse(text if any(word in text for word in words) else "")


def imports(tree):
    """The modules that a module imports when it is imported."""
    for node in tree.body:
        inner = ast.walk(node) if not isinstance(node, ast.FunctionDef) else ()
        for one in inner:
            if isinstance(one, ast.Import):
                yield from (alias.name for alias in one.names)
            elif isinstance(one, ast.ImportFrom):
                yield one.module or ""


def test_no_module_needs_posix_to_be_imported():
    found = {
        str(path.relative_to(SOURCE)): both
        for path in sorted(SOURCE.rglob("*.py"))
        if (both := MODULES.intersection(imports(tree_of(path, MODULES))))
    }
    assert not found


def named(tree):
    """The names of ``NAMES`` that a module uses."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.attr in NAMES.get(node.value.id, "").split()
        ):
            yield f"{node.value.id}.{node.attr}"


def test_what_windows_lacks_is_used_where_it_is_guarded():
    found = {
        path.relative_to(SOURCE).as_posix()
        for path in sorted(SOURCE.rglob("*.py"))
        if [*named(tree_of(path, NAMES))]
    }
    assert found == set(GUARDED)


# -- object code with the calling convention of Windows

WINDOWS = "x86_64-pc-windows-msvc-elf"
INNER = """
declare i64 @rest(i64, i64)
define i64 @inner(i64 %a, i64 %b, double %c, i64 %d, i64 %e) {
  %room = alloca [3000 x i64]
  %last = getelementptr [3000 x i64], [3000 x i64]* %room, i64 0, i64 %a
  store volatile i64 %e, i64* %last
  %x = load volatile i64, i64* %last
  %whole = fptosi double %c to i64
  %s = add i64 %x, %whole
  %t = mul i64 %s, %d
  %r = call i64 @rest(i64 %t, i64 %b)
  ret i64 %r
}
"""
OUTER = """
declare win64cc i64 @inner(i64, i64, double, i64, i64)
define win64cc i64 @rest(i64 %a, i64 %b) {
  %r = sub i64 %a, %b
  ret i64 %r
}
define void @__chkstk() {
  ret void
}
define i64 @outer() {
  %r = call win64cc i64 @inner(i64 7, i64 2, double 3.0, i64 10, i64 5)
  ret i64 %r
}
"""


@pytest.mark.skipif(
    platform.machine() != "x86_64", reason="Windows' convention of x86-64"
)
def test_code_for_windows_is_loaded_here():
    """Its convention, large frames and calls; the functions around it are Linux'."""
    here = host_isa()
    inner = f'target triple = "{WINDOWS}"\n{INNER}'
    codes = [
        object_code(inner, here._replace(triple=WINDOWS)),
        object_code(f'target triple = "{here.triple}"\n{OUTER}', here),
    ]
    loaded = elf.load(codes)
    outer = ctypes.CFUNCTYPE(ctypes.c_int64)(loaded.functions["outer"])
    assert outer() == (5 + 3) * 10 - 2


def test_code_for_windows_is_elf(monkeypatch):
    from weft.compile.targets.cpu import object_code

    triple = "x86_64-pc-windows-msvc"
    monkeypatch.setattr(object_code.llvm, "get_process_triple", lambda: triple)
    assert object_code._host_triple() == WINDOWS


def test_code_for_other_machines_is_refused():
    isa = host_isa()._replace(triple="riscv64-unknown-linux-gnu", cpu="generic-rv64")
    with pytest.raises(weft.errors.ArgumentError, match="it lacks riscv64"):
        Library(b"", isa)


def test_functions_that_the_system_lacks(monkeypatch):
    assert system.address_of("weft_has_no_such_function") == 0
    monkeypatch.setattr(system, "libraries", lambda: ())
    with pytest.raises(OSError, match="this system has no function mprotect"):
        system.make_runnable(0, 0)
