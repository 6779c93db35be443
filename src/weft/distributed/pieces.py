"""Pieces of snapshots: which process has which, and how they come to where they go.

    piece = ("share", k)    bytes of the shared state, the k-th part of as many as ranks
          | ("own", rank)   what one process has for itself

A snapshot is the pieces of one step that one process has kept. A step can be restored
if each of its pieces is left somewhere.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from weft.distributed.errors import RecoveryError
from weft.distributed.snapshots import Memory, Snapshot

Piece = tuple[str, int]
About = dict[str, Any]  # a snapshot's step, start, world, every, shared, pieces
Exchange = Callable[[Callable[[int], np.ndarray]], list[np.ndarray]]


def write(memory: Memory, about: About, pieces: dict[Piece, list[np.ndarray]]) -> None:
    """Keep a snapshot of pieces, each of which is several arrays of bytes."""
    sizes = [
        [*key, sum(one.nbytes for one in arrays)] for key, arrays in pieces.items()
    ]
    text = json.dumps({**about, "pieces": sizes}).encode()
    memory.write(about["step"], text, [one for some in pieces.values() for one in some])


class Held:
    """A snapshot that this process has."""

    def __init__(self, found: Snapshot) -> None:
        self.about: About = json.loads(found.text)
        self.at = moment(self.about)
        self.pieces: dict[Piece, np.ndarray] = {}
        at = 0
        for kind, k, size in self.about["pieces"]:
            self.pieces[kind, k] = found.data[at : at + size]
            at += size


def moment(about: About) -> tuple[int, int]:
    """The step of a snapshot, and in which start of the processes it was kept."""
    return about["step"], about["start"]


def has(some: Sequence[About], chosen: About) -> bool:
    """Whether a rank has pieces of this snapshot."""
    return any(moment(about) == moment(chosen) for about in some)


def newest(known: Sequence[Sequence[About]]) -> About | None:
    """The newest snapshot of which all pieces are left, of those that ranks have.

    It is None before the first one was whole.
    """
    found = [about for some in known for about in some]
    for time in sorted({moment(one) for one in found}, reverse=True):
        same = [one for one in found if moment(one) == time]
        if not _missing(same):
            return same[0]
    last = max((one["step"] for one in found), default=0)
    if found and last > found[0]["every"]:
        gone = _missing([one for one in found if one["step"] == last])
        raise RecoveryError(
            f"Recovery: of step {last}, {_text(gone)} are left nowhere, and no other "
            "step is whole; more machines were lost at once than there are copies for"
        )
    return None


def _missing(same: Sequence[About]) -> list[Piece]:
    """The pieces of a step that nobody has."""
    here = {(kind, k) for about in same for kind, k, _ in about["pieces"]}
    wanted = [(kind, k) for kind in ("share", "own") for k in range(same[0]["world"])]
    return [piece for piece in wanted if piece not in here]


def _text(pieces: Iterable[Piece]) -> str:
    words = {"share": "a share of rank {}", "own": "the own state of rank {}"}
    return " and ".join(words[kind].format(k) for kind, k in pieces)


def fetch(
    wanted: Callable[[int], list[Piece]],
    chosen: About,
    known: Sequence[Sequence[About]],
    here: dict[Piece, np.ndarray],
    rank: int,
    exchange: Exchange,
) -> dict[Piece, np.ndarray]:
    """The pieces that a rank wants; each is sent by the first rank that has it."""
    sizes = [_sizes(some, chosen) for some in known]
    holders = {
        piece: owner for owner in reversed(range(len(known))) for piece in sizes[owner]
    }

    def sent(to: int, by: int) -> list[Piece]:
        return [piece for piece in wanted(to) if holders[piece] == by]

    def payload(to: int) -> np.ndarray:
        return np.concatenate([_NOTHING, *(here[piece] for piece in sent(to, rank))])

    found: dict[Piece, np.ndarray] = {}
    for by, data in enumerate(exchange(payload)):
        at = 0
        for piece in sent(rank, by):
            found[piece] = data[at : at + sizes[by][piece]]
            at += sizes[by][piece]
    return found


_NOTHING = np.empty(0, np.uint8)


def _sizes(some: Sequence[About], chosen: About) -> dict[Piece, int]:
    return {
        (kind, k): size
        for about in some
        if moment(about) == moment(chosen)
        for kind, k, size in about["pieces"]
    }


def checksums(here: dict[Piece, np.ndarray]) -> dict[Piece, int]:
    """Checksums of the shares that a rank has."""
    return {key: checksum(one) for key, one in here.items() if key[0] == "share"}


def check_copies(sums: Sequence[dict[Piece, int]]) -> None:
    """Refuse a state of which two ranks kept different copies."""
    first: dict[Piece, tuple[int, int]] = {}
    for rank, some in enumerate(sums):
        for piece, check in some.items():
            other, value = first.setdefault(piece, (rank, check))
            if value != check:
                raise RecoveryError(
                    f"Recovery: the shared state that rank {rank} kept is not that of "
                    f"rank {other}; give what differs between processes as own="
                )


# -- shares


def share(arrays: Sequence[np.ndarray], number: int, count: int) -> list[np.ndarray]:
    """The bytes of one of so many equal shares of all arrays' bytes.

    >>> from weft.distributed.pieces import share
    >>> share([np.arange(4, dtype=np.uint8), np.arange(2, dtype=np.uint8)], 1, 2)
    [array([3], dtype=uint8), array([0, 1], dtype=uint8)]
    """
    size = sum(one.nbytes for one in arrays)
    start, stop = size * number // count, size * (number + 1) // count
    found, at = [], 0
    for one in arrays:
        first, last = max(start - at, 0), min(stop - at, one.nbytes)
        if first < last:
            found.append(as_bytes(one)[first:last])
        at += one.nbytes
    return found


def checksum(array: np.ndarray, before: int = 0) -> int:
    """The checksum of an array's bytes, behind others with a checksum of their own."""
    return zlib.crc32(as_bytes(array).data, before)


def as_bytes(array: np.ndarray) -> np.ndarray:
    """The bytes of a contiguous array, in its memory."""
    return array.reshape(-1).view(np.uint8)
