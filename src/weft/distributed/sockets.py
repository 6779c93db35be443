"""The backend that needs nothing: collectives over the connections of the world.

Each collective is one exchange; an ``all_reduce`` of much data is two, of pieces:

    rank 0   a0 a1 a2      each rank sums      a0+b0+c0
    rank 1   b0 b1 b2   →  its own piece       a1+b1+c1   →  all pieces to all
    rank 2   c0 c1 c2                          a2+b2+c2

Numbers are added in the order of ranks, so all ranks get the same bits, in every run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.distributed.errors import DistBackendError
from weft.distributed.groups import Call, World
from weft.distributed.links import Message
from weft.runtime.cpu import buffers

WHOLE = 1 << 15  # bytes up to which an all_reduce sends everything to all

_COMBINE = {
    "sum": np.add, "avg": np.add, "product": np.multiply, "min": np.minimum,
    "max": np.maximum, "band": np.bitwise_and, "bor": np.bitwise_or,
    "bxor": np.bitwise_xor,
}  # fmt: skip


class Sockets:
    """Collectives of arrays; a method each, which gets the call and an array."""

    def __init__(self, world: World) -> None:
        self.world = world

    def all_reduce(
        self, call: Call, x: np.ndarray, *, reduce: str, of: str
    ) -> np.ndarray:
        size, rank = call.group.size(), call.group.rank()
        if x.nbytes <= WHOLE:
            return combined(_values(call.exchange(lambda k: x), x), reduce)
        pieces = np.array_split(x.reshape(-1), size)
        found = call.exchange(pieces.__getitem__)
        mine = combined(_values(found, pieces[rank]), reduce)
        out = buffers.empty((x.size,), x.dtype)
        parts = np.array_split(out, size)
        for k, message in enumerate(call.exchange(lambda k: mine)):
            parts[k][...] = mine if message is None else _value(message, parts[k])
        return out.reshape(x.shape)

    def broadcast(self, call: Call, x: np.ndarray, *, src: int) -> np.ndarray:
        mine = call.group.rank() == src
        message = call.exchange(lambda k: x if mine else None)[src]
        return x.copy() if message is None else _value(message, x)

    def reduce(self, call: Call, x: np.ndarray, *, dst: int, reduce: str) -> np.ndarray:
        found = call.exchange(lambda k: x if k == dst else None)
        if call.group.rank() != dst:
            return np.zeros_like(x)
        return combined(_values(found, x), reduce)

    def all_gather(self, call: Call, x: np.ndarray) -> np.ndarray:
        return np.stack(_values(call.exchange(lambda k: x), x))

    def gather(self, call: Call, x: np.ndarray, *, dst: int) -> np.ndarray:
        found = call.exchange(lambda k: x if k == dst else None)
        if call.group.rank() != dst:
            return np.zeros((len(found), *x.shape), x.dtype)
        return np.stack(_values(found, x))

    def scatter(self, call: Call, x: np.ndarray, *, src: int) -> np.ndarray:
        mine = call.group.rank() == src
        message = call.exchange(lambda k: x[k, ...] if mine else None)[src]
        return x[src, ...].copy() if message is None else _value(message, x[0, ...])

    def reduce_scatter(self, call: Call, x: np.ndarray, *, reduce: str) -> np.ndarray:
        found = call.exchange(lambda k: x[k, ...])
        return combined(_values(found, x[call.group.rank(), ...]), reduce)

    def all_to_all(
        self, call: Call, x: np.ndarray, *, send: Sequence[int], receive: Sequence[int]
    ) -> np.ndarray:
        pieces = np.split(x, np.cumsum(send)[:-1])
        own = pieces[call.group.rank()]
        parts = []
        for k, message in enumerate(call.exchange(pieces.__getitem__)):
            shape = (receive[k], *x.shape[1:])
            parts.append(
                own if message is None else _shaped(call, message, x, k, shape)
            )
        return np.concatenate(parts)

    def close(self, orderly: bool) -> None:
        """The connections are the world's, and closed already."""


def _value(message: Message, like: np.ndarray) -> np.ndarray:
    return message.payload.view(like.dtype).reshape(like.shape)


def _values(found: Sequence[Message | None], own: np.ndarray) -> list[np.ndarray]:
    """What each rank has, in order; ``own`` stands for what it did not send itself."""
    return [own if one is None else _value(one, own) for one in found]


def _shaped(
    call: Call, message: Message, like: np.ndarray, rank: int, shape: tuple[int, ...]
) -> np.ndarray:
    if message.payload.nbytes != math.prod(shape) * like.itemsize:
        row = math.prod(shape[1:]) * like.itemsize
        sent = message.payload.nbytes // row if row else 0
        raise DistBackendError(
            f"all_to_all: rank {call.group.rank()} expects {shape[0]} rows from rank "
            f"{rank}, which sends {sent}"
        )
    return message.payload.view(like.dtype).reshape(shape)


def combined(parts: Sequence[Any], reduce: str) -> np.ndarray:
    """What ranks have, combined in their order; half types are added in float32.

    >>> combined([np.array([1, 5]), np.array([2, 3])], "max")
    array([2, 5])
    """
    kind = parts[0].dtype
    half = kind.itemsize <= 2 and kind.kind not in "biu"
    out = buffers.empty(parts[0].shape, np.float32 if half else kind)
    before = parts[0].astype(out.dtype) if half or len(parts) == 1 else parts[0]
    for one in parts[1:]:
        way = _COMBINE[reduce]
        before = way(before, one.astype(out.dtype) if half else one, out=out)
    out = before
    if reduce == "avg":
        out /= len(parts)
    return out.astype(kind, copy=False)
