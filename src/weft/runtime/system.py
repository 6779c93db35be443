"""Memory, functions and forks of the operating system: on Linux, macOS and Windows.

    fresh_pages(size)           memory of this process's own
    code_pages(size)            memory that ``make_runnable`` lets run
    address_of("memcpy")        a function of the system's, for native code
    at_fork(before=...)         callbacks around forks, where there are forks
    lock_file(descriptor)       a file for one process at a time

All that differs by system in the memory and the functions that native code needs is
here. Weft runs on Linux; what stands here for Windows was tried against imitations of
its functions alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import mmap
import os
import sys
import weakref
from collections.abc import Callable
from typing import Any

WINDOWS = sys.platform == "win32"
# Of Windows: C's functions, threads, waiting at addresses, and ``__chkstk``, which
# functions with large frames call.
_DLLS = ("ucrtbase", "kernel32", "kernelbase", "ntdll")
_RESERVE_AND_COMMIT, _RELEASE = 0x3000, 0x8000  # VirtualAlloc, VirtualFree
_READ_WRITE, _READ_RUN = 0x04, 0x20  # pages


def at_fork(**callbacks: Callable[[], Any]) -> None:
    """Register callbacks around forks; nothing on systems that have none.

    They are named as for ``os.register_at_fork``.
    """
    if not WINDOWS:
        os.register_at_fork(**callbacks)


# -- functions


@functools.cache
def libraries() -> tuple[Any, ...]:
    """The system's libraries whose functions native code may call."""
    if WINDOWS:
        return tuple(ctypes.CDLL(name) for name in _DLLS)
    return (ctypes.CDLL(None),)


def address_of(name: str) -> int:
    """The address of a function of the system; 0 if it has none of that name.

    >>> from weft.runtime.system import address_of
    >>> address_of("memcpy") != 0, address_of("no_such_function")
    (True, 0)
    """
    for library in libraries():
        with contextlib.suppress(AttributeError):
            return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
    return 0


def _function(name: str, result: Any, *kinds: Any) -> Any:
    """A function of the system, to call from Python."""
    found = address_of(name)
    if not found:
        raise OSError(f"this system has no function {name}")
    return ctypes.CFUNCTYPE(result, *kinds)(found)


# -- memory


def fresh_pages(size: int) -> mmap.mmap:
    """Memory of this process's own, from the system.

    >>> len(weft.runtime.system.fresh_pages(100))
    100
    """
    if WINDOWS:  # where it is private anyway
        return mmap.mmap(-1, size)
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def ask_for_huge_pages(pages: mmap.mmap) -> None:
    """Let memory have huge pages, where the system has them to ask for."""
    with contextlib.suppress(AttributeError, OSError):
        pages.madvise(mmap.MADV_HUGEPAGE)


def code_pages(size: int) -> Any:
    """Memory that can be made runnable: a buffer that is freed with its last user."""
    if not WINDOWS:
        return fresh_pages(size)
    word, whole, flags = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint32
    reserve = _function("VirtualAlloc", word, word, whole, flags, flags)
    start = reserve(None, size, _RESERVE_AND_COMMIT, _READ_WRITE)
    if not start:
        raise OSError("VirtualAlloc gives no memory")
    pages = (ctypes.c_uint8 * size).from_address(start)
    free = _function("VirtualFree", ctypes.c_int, word, whole, flags)
    weakref.finalize(pages, free, start, 0, _RELEASE).atexit = False
    return pages


def make_runnable(start: int, size: int) -> bool:
    """Let pages of ``code_pages`` be read and run, and not written any more.

    Gives whether the system allows it.
    """
    word, whole, flags = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint32
    if not WINDOWS:
        protect = _function("mprotect", ctypes.c_int, word, whole, ctypes.c_int)
        return protect(start, size, mmap.PROT_READ | mmap.PROT_EXEC) == 0
    change = _function("VirtualProtect", ctypes.c_int, word, whole, flags, word)
    before = ctypes.c_uint32()
    if not change(start, size, _READ_RUN, ctypes.addressof(before)):
        return False
    this = _function("GetCurrentProcess", word)()
    flush = _function("FlushInstructionCache", ctypes.c_int, word, word, whole)
    return bool(flush(this, start, size))


def lock_file(descriptor: int) -> None:
    """Take an open file for this process alone; OSError if another one has it."""
    if WINDOWS:
        windows: Any = importlib.import_module("msvcrt")
        windows.locking(descriptor, windows.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def machine_memory() -> int | None:
    """The bytes of memory that the machine has; None where the system does not say."""
    if WINDOWS:
        status = (ctypes.c_uint64 * 8)(64)  # MEMORYSTATUSEX: its size, the total, …
        ask = _function("GlobalMemoryStatusEx", ctypes.c_int, ctypes.c_void_p)
        return int(status[1]) if ask(ctypes.addressof(status)) else None
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None
