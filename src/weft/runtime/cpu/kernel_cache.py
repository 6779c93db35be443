"""Compiled kernels on disk, so that other processes need not compile them.

    code = cache.get(key, make)      the stored bytes, or make() and store them

A key is a text with everything that the code depends on (``key_of``). Its hash names
the entry's file; the file holds the text itself, a checksum and the code. Another
text, a wrong checksum or a file of somebody else's is no entry: the code is
recompiled and the file replaced.

Machine code from a file gets executed, so the folder must belong to this user and be
writable by nobody else; the check and the use are of the same open folder. Windows
keeps others out of the user's own folders, so there nothing is checked. Files are
replaced atomically and nothing is locked: two processes that need the same kernel
both make it, and the later one's file stays. Where a folder cannot be used, entries
are kept in memory, and ``weft info`` says why.

``WEFT_CACHE_DIR`` names another folder, ``WEFT_CACHE_SIZE`` another limit in MiB.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import pathlib
import secrets
import stat
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from weft.errors import ArgumentError
from weft.runtime import system

LIMIT = 512 << 20  # bytes
_MAGIC = b"weft kernel 1\n"
_SUFFIX = ".kernel"
_UNFINISHED = ".part"
_LOOK_EVERY = 32  # writes
_STALE = 3600.0  # seconds after which an unfinished file has no writer any more
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_NO_LINKS: int = getattr(os, "O_NOFOLLOW", 0)  # Windows has none
_USUAL = {"darwin": "Library/Caches", "win32": "AppData/Local"}


class Unusable(Exception):
    """A folder that must not or cannot be used; the text says why."""


class Report(NamedTuple):
    """The contents of a cache, and its folder."""

    folder: str
    state: str
    entries: int
    nbytes: int
    limit: int


class _File(NamedTuple):
    used: float
    nbytes: int
    name: str


def key_of(text: str, target: str, *, level: int = 3) -> str:
    """The key of the code that LLVM makes of a module's text for a target.

    >>> from weft.runtime.cpu import kernel_cache
    >>> key = kernel_cache.key_of("define void @f() { ret void }", "some CPU")
    >>> key.splitlines()[1]
    'some CPU'
    """
    import llvmlite

    import weft

    digest = hashlib.sha256(text.encode()).hexdigest()
    made_by = f"weft {weft.__version__}, llvmlite {llvmlite.__version__}, O{level}"
    return f"{made_by}\n{target}\n{digest}"


def user_folder() -> pathlib.Path | None:
    """The folder of this user's cached kernels; None without a home."""
    named = os.environ.get("WEFT_CACHE_DIR")
    if named:
        return pathlib.Path(named).absolute()
    given = pathlib.Path(os.environ.get("XDG_CACHE_HOME", ""))
    if given.is_absolute():  # a relative one is to be ignored
        return given / "weft"
    try:
        home = pathlib.Path.home()
    except RuntimeError:
        return None
    usual = _USUAL.get(sys.platform, ".cache")
    return home / usual / "weft" if home.is_dir() else None


def size_limit() -> int:
    """The most bytes that the cache may take."""
    text = os.environ.get("WEFT_CACHE_SIZE", "")
    if not text:
        return LIMIT
    if not text.isdecimal():
        raise ArgumentError(f"WEFT_CACHE_SIZE: expected a number of MiB, got {text!r}")
    return int(text) << 20


def _pack(key: str, code: bytes) -> bytes:
    text = key.encode()
    rest = len(text).to_bytes(8, "little") + text + code
    return _MAGIC + hashlib.sha256(rest).digest() + rest


def _unpack(key: str, data: bytes) -> bytes | None:
    """The code in a file's bytes; None if they are not this key's, whole and true."""
    start = len(_MAGIC) + 32
    rest = data[start:]
    if data[: len(_MAGIC)] != _MAGIC:
        return None
    if hashlib.sha256(rest).digest() != data[len(_MAGIC) : start]:
        return None
    text = key.encode()
    head = len(text).to_bytes(8, "little") + text
    return rest[len(head) :] if rest.startswith(head) else None


def _check_private(found: os.stat_result, what: str) -> None:
    if system.WINDOWS:
        return  # files have neither owner nor mode
    if found.st_uid != os.geteuid():
        raise Unusable(f"{what} belongs to another user")
    if found.st_mode & _OTHERS_WRITE:
        raise Unusable(f"{what} is writable by others (mode {found.st_mode & 0o777:o})")


class _Folder(NamedTuple):
    """An open folder by its descriptor, or by its path on Windows."""

    path: pathlib.Path
    descriptor: int | None

    def of(self, name: str) -> str:
        """A file's name, as functions of ``os`` take it with the descriptor."""
        return str(self.path / name) if self.descriptor is None else name


class Cache:
    """Kernels in one folder, up to a number of bytes; the least recently used go.

    >>> import tempfile
    >>> kernels = weft.runtime.cpu.kernel_cache.Cache(tempfile.mkdtemp())
    >>> kernels.get("key", lambda: b"code"), kernels.get("key", lambda: b"not made")
    (b'code', b'code')
    """

    def __init__(
        self, folder: str | os.PathLike[str] | None, limit: int = LIMIT
    ) -> None:
        self.folder = None if folder is None else pathlib.Path(folder)
        self.limit = limit
        self.memory: OrderedDict[str, bytes] = OrderedDict()
        self._writes = 0
        self._estimate = 0  # bytes in the folder
        self._problem = ""

    def get(self, key: str, make: Callable[[], bytes]) -> bytes:
        """The code stored under a key, or what ``make`` gives, stored."""
        code = self.find(key)
        if code is None:
            code = make()
            self.put(key, code)
        return code

    # -- the folder

    @contextmanager
    def _opened(self, create: bool = False) -> Iterator[_Folder]:
        """The folder, checked; Unusable or OSError otherwise."""
        if self.folder is None:
            raise Unusable("there is no home folder")
        if create:
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                self.folder.mkdir(mode=0o700)
        if system.WINDOWS:
            os.stat(self.folder)  # an error if it is not there
            yield _Folder(self.folder, None)
            return
        descriptor = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            _check_private(os.fstat(descriptor), "the folder")
            yield _Folder(self.folder, descriptor)
        finally:
            os.close(descriptor)

    def find(self, key: str) -> bytes | None:
        """The bytes stored under a key, or None."""
        kept = self.memory.get(key)
        if kept is not None:
            self.memory.move_to_end(key)
            return kept
        try:
            with self._opened() as folder:
                return _read_entry(folder, _name(key), key)
        except (OSError, Unusable):
            return None  # writing will say why

    def has(self, key: str) -> bool:
        """Whether something seems to be stored under a key.

        >>> weft.runtime.cpu.kernel_cache.Cache(None).has("key")
        False
        """
        if key in self.memory or self.folder is None:
            return key in self.memory
        return os.path.exists(self.folder / _name(key))

    def put(self, key: str, code: bytes) -> None:
        """Store bytes under a key, replacing others."""
        data = _pack(key, code)
        try:
            with self._opened(create=True) as folder:
                _write_entry(folder, _name(key), data)
                self._make_room(folder, len(data))
            self._problem = ""
        except (OSError, Unusable) as error:
            self._problem = _say(error)
            self._keep(key, code)

    def _keep(self, key: str, code: bytes) -> None:
        self.memory[key] = code
        while sum(map(len, self.memory.values())) > self.limit and len(self.memory) > 1:
            self.memory.popitem(last=False)

    def _make_room(self, folder: _Folder, added: int) -> None:
        """Remove the least recently used entries, to nine tenths of the limit."""
        self._estimate += added
        look = self._writes % _LOOK_EVERY == 0  # others write here too
        self._writes += 1
        if look or self._estimate > self.limit:
            files = sorted(_entries(folder, clean=True))
            total = sum(file.nbytes for file in files)
            if total > self.limit:
                for file in files:
                    if total <= self.limit * 9 // 10:
                        break
                    _remove(folder, file.name)
                    total -= file.nbytes
            self._estimate = total

    # -- for people

    def report(self) -> Report:
        """The cache's contents; nothing is changed."""
        files: list[_File] = []
        state = self._problem
        try:
            with self._opened() as folder:
                files = list(_entries(folder))
                if not os.access(folder.of("."), os.W_OK, dir_fd=folder.descriptor):
                    state = state or "the folder is read-only"
        except FileNotFoundError as error:
            state = state or _creatable(pathlib.Path(error.filename))
        except (OSError, Unusable) as error:
            state = _say(error)
        if state:
            state = f"in memory only: {state}"
        nbytes = sum(file.nbytes for file in files)
        where = "nowhere" if self.folder is None else str(self.folder)
        return Report(where, state or "on disk", len(files), nbytes, self.limit)

    def clear(self) -> int:
        """Remove all entries; gives how many there were."""
        count = len(self.memory)
        self.memory.clear()
        try:
            with self._opened() as folder:
                names = [file.name for file in _entries(folder)]
                for name in names:
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(folder.of(name), dir_fd=folder.descriptor)
        except FileNotFoundError:  # no folder yet
            return count
        except Unusable as error:
            raise ArgumentError(f"{self.folder}: {error}") from None
        return count + len(names)


def _name(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest() + _SUFFIX


def _say(error: Exception) -> str:
    if isinstance(error, OSError):
        return (error.strerror or str(error)).lower()
    return str(error)


def _creatable(folder: pathlib.Path) -> str:
    """Why a folder that is not there could not be made; "" if it could."""
    above = next(p for p in folder.absolute().parents if p.exists())
    return "" if os.access(above, os.W_OK) else f"{above} is read-only"


def _read_entry(folder: _Folder, name: str, key: str) -> bytes | None:
    place, at = folder.of(name), folder.descriptor
    descriptor = os.open(place, os.O_RDONLY | _NO_LINKS, dir_fd=at)
    with open(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            return None
        _check_private(found, "the entry")
        code = _unpack(key, file.read())
        if code is not None:
            with contextlib.suppress(OSError):  # read-only
                os.utime(place, dir_fd=at)
        return code


def _write_entry(folder: _Folder, name: str, data: bytes) -> None:
    part, at = f"{secrets.token_hex(8)}{_UNFINISHED}", folder.descriptor
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    descriptor = os.open(folder.of(part), flags, 0o600, dir_fd=at)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
        os.replace(folder.of(part), folder.of(name), src_dir_fd=at, dst_dir_fd=at)
    except BaseException:
        _remove(folder, part)
        raise


def _remove(folder: _Folder, name: str) -> None:
    with contextlib.suppress(OSError):  # another process was faster
        os.unlink(folder.of(name), dir_fd=folder.descriptor)


def _entries(folder: _Folder, clean: bool = False) -> Iterator[_File]:
    """The entries; with ``clean``, unfinished files that nobody writes any more go."""
    at = folder.descriptor
    for name in os.listdir(folder.path if at is None else at):
        if not name.endswith((_SUFFIX, _UNFINISHED)):
            continue
        try:
            status = os.stat(folder.of(name), dir_fd=at, follow_symlinks=False)
        except OSError:
            continue  # another process removed it
        if name.endswith(_SUFFIX):
            yield _File(status.st_mtime, status.st_size, name)
        elif clean and status.st_mtime < time.time() - _STALE:
            _remove(folder, name)


# -- this user's cache


@functools.cache
def _cache(folder: pathlib.Path | None, limit: int) -> Cache:
    return Cache(folder, limit)


def default() -> Cache:
    """The cache that the environment names."""
    return _cache(user_folder(), size_limit())


def get(key: str, make: Callable[[], bytes]) -> bytes:
    """The code stored under a key in this user's cache, or what ``make`` gives."""
    return default().get(key, make)
