"""Another operating system, imitated on Linux from the start of an interpreter.

A process that has this folder in PYTHONPATH and ``WEFT_SIMULATE`` in its environment
(``win32`` or ``darwin``) finds no module, function or constant that the system lacks,
and neither do the processes that it starts. ``sys.platform`` is the system's name for
Weft's own modules alone: Python's library goes on living on Linux. Windows' functions
are made of Linux' by machine code (``WINDOWS_FUNCTIONS``).
"""

import asyncio  # noqa: F401  what is imported here has seen Linux
import builtins
import contextlib
import ctypes
import mmap
import multiprocessing.connection
import multiprocessing.popen_spawn_posix
import multiprocessing.resource_tracker
import multiprocessing.shared_memory  # noqa: F401
import os
import select
import selectors  # noqa: F401
import shutil  # noqa: F401
import signal
import socket
import subprocess  # noqa: F401
import sys
import tempfile  # noqa: F401

import numpy as np  # noqa: F401

MODULES = {
    "darwin": (),
    "win32": ("fcntl", "grp", "posix", "pty", "pwd", "resource", "termios", "tty"),
}
_LINUX = {
    os: "sched_getaffinity sched_setaffinity memfd_create posix_fallocate "
        "posix_fadvise splice preadv eventfd",
    mmap: "MADV_HUGEPAGE MAP_POPULATE",
    signal: "sigtimedwait",
    select: "epoll",
}  # fmt: skip
_POSIX = {
    os: "fork forkpty register_at_fork getuid geteuid getgid getegid killpg setsid "
        "setpgid getpgid getpgrp pread pwrite O_DIRECTORY O_NOFOLLOW sysconf uname "
        "mkfifo wait fchmod chown getloadavg sendfile statvfs",
    mmap: "MAP_PRIVATE MAP_SHARED MAP_ANONYMOUS MAP_ANON PROT_READ PROT_WRITE "
          "PROT_EXEC",
    signal: "SIGALRM SIGHUP SIGUSR1 SIGUSR2 SIGSTOP SIGCONT SIGBUS SIGTRAP SIGSYS "
            "setitimer alarm pause SIG_SETMASK",
    socket: "SO_REUSEPORT",
    select: "poll",
}  # fmt: skip
LACKS = {"darwin": [_LINUX], "win32": [_LINUX, _POSIX]}
FOLDERS = ("/proc", "/sys", "/dev/shm")

# Windows' functions in terms of Linux'. Threads are their own handles; memory for code
# is not freed.
WINDOWS_FUNCTIONS = """
declare i8* @mmap(i8*, i64, i32, i32, i32, i64)
declare i32 @mprotect(i8*, i64, i32)
declare i64 @syscall(i64, ...)
declare i32 @pthread_create(i64*, i8*, i8* (i8*)*, i8*)
declare i32 @pthread_join(i64, i8*)
declare i64 @pthread_self()
declare i32 @usleep(i32)
define i8* @VirtualAlloc(i8* %at, i64 %size, i32 %kind, i32 %how) {
  %p = call i8* @mmap(i8* null, i64 %size, i32 3, i32 34, i32 -1, i64 0)
  ret i8* %p
}
define i32 @VirtualFree(i8* %at, i64 %size, i32 %kind) {
  ret i32 1
}
define i32 @VirtualProtect(i8* %at, i64 %size, i32 %how, i32* %before) {
  store i32 4, i32* %before
  %failed = call i32 @mprotect(i8* %at, i64 %size, i32 5)
  %done = add i32 %failed, 1
  ret i32 %done
}
define i8* @GetCurrentProcess() {
  ret i8* null
}
define i32 @FlushInstructionCache(i8* %process, i8* %at, i64 %size) {
  ret i32 1
}
define i64 @GetCurrentThreadId() {
  %this = call i64 @pthread_self()
  ret i64 %this
}
define i32 @GlobalMemoryStatusEx(i64* %status) {
  %at = getelementptr i64, i64* %status, i64 1
  store i64 8589934592, i64* %at
  ret i32 1
}
define i64 @CreateThread(i8* %a, i64 %s, i8* (i8*)* %f, i8* %x, i32 %g, i8* %i) {
  %made = alloca i64
  %failed = call i32 @pthread_create(i64* %made, i8* null, i8* (i8*)* %f, i8* %x)
  %thread = load i64, i64* %made
  %good = icmp eq i32 %failed, 0
  %handle = select i1 %good, i64 %thread, i64 0
  ret i64 %handle
}
define i32 @WaitForSingleObject(i64 %thread, i32 %milliseconds) {
  %failed = call i32 @pthread_join(i64 %thread, i8* null)
  ret i32 %failed
}
define i32 @CloseHandle(i64 %thread) {
  ret i32 1
}
define void @Sleep(i32 %milliseconds) {
  %t = mul i32 %milliseconds, 1000
  %failed = call i32 @usleep(i32 %t)
  ret void
}
define i32 @WaitOnAddress(i32* %word, i32* %seen, i64 %size, i32 %milliseconds) {
  %value = load i32, i32* %seen
  %r = call i64 (i64, ...)
      @syscall(i64 FUTEX, i32* %word, i32 128, i32 %value, i8* null)
  ret i32 1
}
define void @WakeByAddressAll(i32* %word) {
  %r = call i64 (i64, ...) @syscall(i64 FUTEX, i32* %word, i32 129, i32 2147483647)
  ret void
}
"""


class Dll:
    """A library of Windows with the functions that are imitated, and C's own."""

    def __init__(self, c):
        import llvmlite.binding as llvm

        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        number = {"x86_64": "202"}.get(os.uname().machine, "98")
        text = WINDOWS_FUNCTIONS.replace("FUTEX", number)
        machine = llvm.Target.from_default_triple().create_target_machine()
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(text), machine)
        self._engine.finalize_object()
        self._c = c

    def __getattr__(self, name):
        at = self._engine.get_function_address(name)
        if not at and (name.startswith("pthread") or name in ("mmap", "mprotect")):
            raise AttributeError(name)  # Windows has none
        return ctypes.CFUNCTYPE(None)(at) if at else getattr(self._c, name)


class Platform(str):
    """The name of a system for Weft's modules, and Linux' for all others."""

    def _seen(self):
        caller = sys._getframe(2).f_globals.get("__name__", "")
        return self[:] if caller.partition(".")[0] == "weft" else "linux"

    def __str__(self):
        return self._seen()

    def __format__(self, how):
        return format(self._seen(), how)

    def __eq__(self, other):
        return self._seen() == other

    def __ne__(self, other):
        return self._seen() != other

    def startswith(self, *given):
        return self._seen().startswith(*given)

    __hash__ = str.__hash__


class NoModules:
    """Finds none of the modules that a system lacks."""

    def __init__(self, names):
        self.names = names

    def find_spec(self, name, path=None, target=None):
        if name in self.names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def imitate(name):
    cdll, c = ctypes.CDLL, ctypes.CDLL(None)
    if name == "win32":
        dll = Dll(c)

        def load(name, *rest, **options):
            if name in ("ucrtbase", "kernel32", "kernelbase", "ntdll"):
                return dll
            if name is None:
                raise TypeError("there is no library without a name on Windows")
            return cdll(name, *rest, **options)

        ctypes.CDLL = load
    for lacks in LACKS[name]:
        for module, names in lacks.items():
            for one in names.split():
                with contextlib.suppress(AttributeError):
                    delattr(module, one)
    for one in MODULES[name]:
        sys.modules.pop(one, None)
    sys.meta_path.insert(0, NoModules(MODULES[name]))
    opened = builtins.open

    def open_here(file, *rest, **options):
        if isinstance(file, str) and file.startswith(FOLDERS):
            raise FileNotFoundError(2, "there is no such folder here", file)
        return opened(file, *rest, **options)

    builtins.open = open_here
    sys.platform = Platform(name)


if os.environ.get("WEFT_SIMULATE"):
    imitate(os.environ["WEFT_SIMULATE"])
