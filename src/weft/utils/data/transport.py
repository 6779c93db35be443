"""Values between processes.

Small things are pickled through the pipe. Large arrays travel beside them: on Linux
in anonymous shared memory (a ``memfd``), whose descriptor is passed through the pipe
and which the kernel frees with its last user, whatever happens to either process;
elsewhere as raw bytes. Tensors are never pickled: their arrays go, and new tensors are
made on the other side.
"""

from __future__ import annotations

import io
import os
import pickle
import sys
from collections.abc import Callable, Iterator
from multiprocessing import reduction
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from weft.core.tensor import Tensor
from weft.errors import DeviceError

_SHARES = sys.platform == "linux"
SHARED_FROM = 1 << 16  # bytes from which an array travels in shared memory


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return NotImplemented
        if type(value) is not Tensor:
            raise DeviceError(
                "DataLoader: expected tensors on the CPU from a worker, got one on "
                f"{value.device}; move batches to the device in the main process"
            )
        array = value.array()
        if not array.flags.c_contiguous:
            array = array.copy(order="C")
        return _tensor, (array, value.requires_grad)


def _tensor(array: np.ndarray, requires_grad: bool) -> Tensor:
    out = Tensor(array)
    return out.requires_grad_() if requires_grad else out


def dumps(value: Any, beside: Callable[[Any], bool] | None = None) -> bytes:
    """A value with tensors in it as bytes, but for the buffers that go beside it."""
    body = io.BytesIO()
    _Pickler(body, protocol=5, buffer_callback=beside).dump(value)
    return body.getvalue()


def send(connection: Connection, value: Any) -> None:
    """Send a value with tensors in it."""
    large: list[memoryview] = []

    def in_band(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < SHARED_FROM:
            return True
        large.append(raw)
        return False

    body = dumps(value, in_band)
    connection.send(([raw.nbytes for raw in large], body))
    if large and _SHARES:
        _send_shared(connection, large)
    else:
        for raw in large:
            connection.send_bytes(raw)


def receive(connection: Connection) -> Any:
    """Receive a value from ``send``."""
    sizes, body = connection.recv()
    if sizes and _SHARES:
        return pickle.loads(body, buffers=_receive_shared(connection, sizes))
    large = [bytearray(connection.recv_bytes()) for _ in sizes]
    return pickle.loads(body, buffers=large)


def _offsets(sizes: list[int]) -> Iterator[tuple[int, int]]:
    """The offset and size of each buffer."""
    start = 0
    for size in sizes:
        yield start, size
        start += size


def _send_shared(connection: Connection, large: list[memoryview]) -> None:
    memory = os.memfd_create("weft-batch", os.MFD_CLOEXEC)
    try:
        for raw in large:
            done = 0
            while done < raw.nbytes:
                done += os.write(memory, raw[done:])
        reduction.send_handle(connection, memory, 0)
    finally:
        os.close(memory)


def _receive_shared(connection: Connection, sizes: list[int]) -> list[np.ndarray]:
    # Copied out: a mapping would hold a descriptor for as long as the batch lives.
    memory = reduction.recv_handle(connection)
    try:
        return [_read(memory, start, size) for start, size in _offsets(sizes)]
    finally:
        os.close(memory)


def _read(memory: int, start: int, size: int) -> np.ndarray:
    out = np.empty(size, np.uint8)
    view, done = out.data, 0
    while done < size:
        done += os.preadv(memory, [view[done:]], start + done)
    return out
