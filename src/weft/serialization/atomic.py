"""Files that are replaced whole or not at all."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from typing import BinaryIO


@contextlib.contextmanager
def replacing(target: str) -> Iterator[BinaryIO]:
    """A file that replaces the target once it is wholly on disk."""
    folder, name = os.path.split(target)
    temporary = os.path.join(folder, f".{name[:200]}.{os.urandom(6).hex()}.tmp")
    with about(target):
        try:
            with open(temporary, "xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
    sync_folder(folder)


def sweep(target: str) -> None:
    """Delete leftovers of processes that were killed while writing the target.

    Nobody else may be writing it.
    """
    folder, name = os.path.split(os.path.realpath(target))
    ours = re.compile(rf"\.{re.escape(name[:200])}\.[0-9a-f]{{12}}\.tmp")
    for left in filter(ours.fullmatch, os.listdir(folder)):
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(folder, left))


@contextlib.contextmanager
def about(path: str) -> Iterator[None]:
    """Let an error of the system, such as a full disk, name the file it is about."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, path) from error


def sync_folder(folder: str) -> None:
    """Make the rename itself survive a power cut, where the system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
