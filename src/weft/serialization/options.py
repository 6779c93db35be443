"""Settings for reading and writing PyTorch's files, under PyTorch's names."""

from __future__ import annotations

import mmap
import sys
import threading
from enum import Enum
from typing import Any

from weft.errors import ArgumentError, DTypeError

_PRIVATE: int = getattr(mmap, "MAP_PRIVATE", mmap.ACCESS_COPY)  # on Windows


class LoadEndianness(Enum):
    """The byte order that is taken for files which do not name theirs."""

    NATIVE = 1
    LITTLE = 2
    BIG = 3


class _State(threading.local):
    endianness: LoadEndianness | None = None
    crc32 = True
    skip_data = False


state = _State()


def default_byte_order() -> str:
    """The byte order of a file that does not name it.

    >>> weft.serialization.options.default_byte_order()
    'little'
    """
    if state.endianness is LoadEndianness.NATIVE:
        return sys.byteorder
    return "big" if state.endianness is LoadEndianness.BIG else "little"


def get_default_load_endianness() -> LoadEndianness | None:
    """The byte order set by ``set_default_load_endianness``; None means little."""
    return state.endianness


def set_default_load_endianness(endianness: LoadEndianness | None) -> None:
    """Set the byte order of files that do not name theirs.

    >>> from weft.serialization import LoadEndianness
    >>> weft.serialization.set_default_load_endianness(LoadEndianness.BIG)
    >>> weft.serialization.get_default_load_endianness()
    <LoadEndianness.BIG: 3>
    >>> weft.serialization.set_default_load_endianness(None)
    """
    if not isinstance(endianness, (LoadEndianness, type(None))):
        raise DTypeError(
            "set_default_load_endianness: expected a LoadEndianness or None, got "
            f"{type(endianness).__name__}"
        )
    state.endianness = endianness


def get_crc32_options() -> bool:
    """Whether ``save`` writes a checksum for each record of PyTorch's files."""
    return state.crc32


def set_crc32_options(compute_crc32: bool) -> None:
    """Say whether ``save`` writes a checksum for each record of PyTorch's files.

    Without, saving is faster; ``load`` reads such files, other zip programs may not.

    >>> weft.serialization.set_crc32_options(False)
    >>> weft.serialization.get_crc32_options()
    False
    >>> weft.serialization.set_crc32_options(True)
    """
    state.crc32 = bool(compute_crc32)


def get_default_mmap_options() -> int:
    """The flags with which ``load(mmap=True)`` maps files: always MAP_PRIVATE."""
    return _PRIVATE


class set_default_mmap_options:
    """Map files with these flags; only MAP_PRIVATE, which never changes a file.

    >>> import mmap
    >>> with weft.serialization.set_default_mmap_options(mmap.MAP_PRIVATE):
    ...     weft.serialization.get_default_mmap_options() == mmap.MAP_PRIVATE
    True
    """

    def __init__(self, flags: int) -> None:
        if flags != _PRIVATE:
            raise ArgumentError(
                "set_default_mmap_options: expected mmap.MAP_PRIVATE, got "
                f"{flags!r}; tensors of Weft never write to the file they came from"
            )

    def __enter__(self) -> None:
        """Leave things as they are."""

    def __exit__(self, *error: object) -> None:
        """Leave things as they are."""


class skip_data:
    """Save and load PyTorch's files without the storages' contents.

    ``save`` writes zeros in their place. ``load`` makes tensors whose values are
    whatever the memory held.

    >>> import io
    >>> file = io.BytesIO()
    >>> with weft.serialization.skip_data():
    ...     weft.save(weft.ones(2), file)
    >>> weft.load(io.BytesIO(file.getvalue()))
    tensor([0., 0.])
    """

    def __init__(self, materialize_fake_tensors: bool = False) -> None:
        if materialize_fake_tensors:
            raise ArgumentError("skip_data: there are no fake tensors in Weft")

    def __enter__(self) -> None:
        self.before, state.skip_data = state.skip_data, True

    def __exit__(self, *error: Any) -> None:
        state.skip_data = self.before
