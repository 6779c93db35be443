"""The start of a world: its processes find together.

Rank 0 listens at an address that all know. The others tell it who they are and where
they listen; it checks them, and sends everybody the list. Then each connects to those
of lower ranks.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from weft.distributed.errors import DistNetworkError, DistStoreError
from weft.distributed.links import Link, host
from weft.errors import ArgumentError

_MAGIC = "weft-1"
_LONGEST = 1 << 20  # bytes of a line

Address = tuple[str, int]


class _Stranger(Exception):
    """A connection that is not of this world's."""


def connect(rank: int, size: int, address: Address, timeout: float) -> dict[int, Link]:
    """The connections to all other processes, by rank."""
    if size == 1:
        return {}
    until = time.monotonic() + timeout
    with contextlib.ExitStack() as stack:
        if rank == 0:
            who = "init_process_group: rank 0"
            server = stack.enter_context(listener(address, who, "MASTER_PORT"))
            found = _welcome(server, size, until)
        else:
            server = stack.enter_context(any_port(address))
            found = _join(server, rank, size, address, until)
    return {other: Link(other, channel, about) for other, (channel, about) in found}


def listener(address: Address, who: str, variable: str) -> socket.socket:
    """A socket that listens at the address that all know."""
    given = os.environ.pop("WEFT_LISTENER", None)  # weft run has it open already
    if given is not None:
        return socket.socket(fileno=int(given))
    try:
        return socket.create_server(address, backlog=1024)
    except OSError as error:
        raise DistNetworkError(
            f"{who} cannot listen at {shown(address)} ({error.strerror}). Choose "
            f"another {variable}, or end the program that uses this one"
        ) from None


def any_port(address: Address) -> socket.socket:
    """A socket that listens where those who reach the address reach it too."""
    local = address[0] in ("localhost", "127.0.0.1")
    return socket.create_server(("127.0.0.1" if local else "", 0), backlog=1024)


def shown(address: Address) -> str:
    """An address as text."""
    return f"{address[0]}:{address[1]}"


# -- rank 0


def _welcome(server: socket.socket, size: int, until: float) -> Any:
    """Wait for all others, and send each the list of all."""
    found: dict[int, tuple[socket.socket, dict[str, Any]]] = {}
    wrong: dict[str, Any] | None = None
    while len(found) < size - 1 and wrong is None:
        try:
            channel, hello = _accepted(server, until)
        except TimeoutError:
            missing = [k for k in range(1, size) if k not in found]
            wrong = {
                "error": f"init_process_group: of {size} processes, "
                f"{_ranks(missing)} did not come in time"
            }
            break
        text = _objection(hello, size, found)
        found[hello["rank"] if text is None else -1 - len(found)] = channel, hello
        wrong = None if text is None else {"error": f"init_process_group: {text}"}
    answer = wrong or {"table": {k: about for k, (_, about) in found.items()}}
    me = {"rank": 0, **this_process()}
    for channel, _ in found.values():
        _say(channel, {**answer, "root": me})
    if wrong is not None:
        raise DistStoreError(wrong["error"])
    return sorted(found.items())


def _objection(hello: dict[str, Any], size: int, found: Any) -> str | None:
    rank, theirs = hello["rank"], hello["size"]
    if theirs != size:
        return (
            f"rank 0 expects {size} processes, but rank {rank} expects {theirs}; all "
            "need one WORLD_SIZE"
        )
    if rank in found or rank == 0:
        pids = os.getpid() if rank == 0 else found[rank][1]["pid"]
        return (
            f"two processes have rank {rank} (process {pids} and process "
            f"{hello['pid']}); each needs a RANK of its own"
        )
    return None


def _accepted(server: socket.socket, until: float) -> tuple[socket.socket, Any]:
    """The next connection of this world's, and what it says."""
    while True:
        server.settimeout(max(until - time.monotonic(), 0.01))
        channel, seen = server.accept()
        try:
            hello = _checked(_hear(channel, min(time.monotonic() + 5, until)))
            return channel, {**hello, "address": seen[0]}
        except (_Stranger, OSError):
            channel.close()  # a scanner of ports, or a process that died


def _checked(hello: Any) -> dict[str, Any]:
    kinds = {"rank": int, "size": int, "pid": int, "host": str, "port": int}
    if not isinstance(hello, dict) or hello.get("magic") != _MAGIC:
        raise _Stranger
    if hello.get("job") != os.environ.get("WEFT_JOB", ""):
        raise _Stranger
    if not all(type(hello.get(name)) is kind for name, kind in kinds.items()):
        raise _Stranger
    return hello


# -- the others


def _join(
    server: socket.socket, rank: int, size: int, address: Address, until: float
) -> Any:
    waited = f"rank {rank} waited for rank 0 there"
    channel = reached(address, until, partial(_unreachable, address, waited))
    mine = _hello(rank, size, server)
    _say(channel, mine)
    try:
        answer = _hear(channel, until + 5)
    except (_Stranger, OSError):
        raise DistStoreError(
            f"init_process_group: rank 0 at {shown(address)} left before all "
            f"{size} processes were there; its error says why"
        ) from None
    if "error" in answer:
        raise DistStoreError(answer["error"])
    found = {0: (channel, answer["root"])}
    for other, about in ((int(k), v) for k, v in answer["table"].items()):
        if other < rank:
            name = about["address"]
            there = address[0] if name.startswith("127.") else name, about["port"]
            peer = reached(
                there, until, partial(_unreachable, there, "another rank listens there")
            )
            _say(peer, mine)
            found[other] = peer, about
    while len(found) < size - 1:
        try:
            peer, about = _accepted(server, until)
        except TimeoutError:
            missing = [k for k in range(size) if k not in found and k != rank]
            raise DistStoreError(
                f"init_process_group: rank {rank} got no connection from "
                f"{_ranks(missing)} in time"
            ) from None
        found[about["rank"]] = peer, about
    return sorted(found.items())


def _hello(rank: int, size: int, server: socket.socket) -> dict[str, Any]:
    return {
        **this_process(),
        "magic": _MAGIC,
        "job": os.environ.get("WEFT_JOB", ""),
        "rank": rank,
        "size": size,
        "port": server.getsockname()[1],
    }


def this_process() -> dict[str, Any]:
    """This process, as others are told of it."""
    return {"pid": os.getpid(), "host": host()}


def reached(
    address: Address, until: float, error: Callable[[str], str]
) -> socket.socket:
    """A connection to an address where somebody may begin to listen later.

    ``error`` gives the text of an error from the reason.
    """
    pause = 0.01
    while True:
        try:
            return socket.create_connection(address, timeout=5)
        except OSError as found:
            if isinstance(found, socket.gaierror) or time.monotonic() + pause > until:
                why = found.strerror or str(found)
                raise DistNetworkError(error(why)) from None
        time.sleep(pause)
        pause = min(2 * pause, 0.5)


def _unreachable(address: Address, waited: str, why: str) -> str:
    return (
        f"init_process_group: cannot reach {shown(address)} ({why}); {waited}. Check "
        "MASTER_ADDR and MASTER_PORT, and that the process there runs"
    )


# -- lines of JSON


def _say(channel: socket.socket, words: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):  # who is gone is found out when it is missed
        channel.sendall(json.dumps(words).encode() + b"\n")


def _hear(channel: socket.socket, until: float) -> Any:
    """One line, read byte by byte: what follows it is left for others."""
    line = bytearray()
    while not line.endswith(b"\n"):
        channel.settimeout(max(until - time.monotonic(), 0.01))
        piece = channel.recv(1)
        if not piece or len(line) > _LONGEST:
            raise _Stranger
        line += piece
    try:
        return json.loads(line)
    except ValueError:
        raise _Stranger from None


def _ranks(ranks: list[int]) -> str:
    """Ranks as text.

    >>> from weft.distributed.rendezvous import _ranks
    >>> _ranks([1]), _ranks([0, 2, 3])
    ('rank 1', 'ranks 0, 2, 3')
    """
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"


def parsed(method: str) -> tuple[Address, dict[str, int]]:
    """The address that ``init_method`` names, and a rank and a size if it names them.

    >>> from weft.distributed.rendezvous import parsed
    >>> parsed("tcp://10.0.0.1:23456?rank=0&world_size=2")
    (('10.0.0.1', 23456), {'rank': 0, 'world_size': 2})
    """
    scheme, _, rest = method.partition("://")
    place, _, query = rest.partition("?")
    name, colon, port = place.rpartition(":")
    pairs = [one.partition("=") for one in query.split("&") if one]
    numbers = all(value.isdecimal() for _, _, value in pairs)
    if scheme != "tcp" or not colon or not port.isdecimal() or not numbers:
        raise ArgumentError(
            "init_process_group: expected init_method 'env://' or 'tcp://host:port', "
            f"got {method!r}"
        )
    return (name, int(port)), {key: int(value) for key, _, value in pairs}
