"""Connections between the processes of a world, and the messages they carry.

    message = sizes (4 and 8 bytes), header (JSON), payload (bytes)
    key     = sender, and what the header's "key" says: a list of numbers and texts

Each process has one connection to each other one. Nothing runs in the background while
nobody waits: a thread that waits for a message reads all connections, and puts what
comes into ``inbox``; of several such threads, one reads for all. Only what could not be
sent at once is sent by a thread of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import socket
import struct
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from weft.runtime.cpu import buffers

_SIZES = struct.Struct("<IQ")
_SMALL = 1 << 16  # bytes of a payload that is copied behind its header
_LONGEST_HEADER = 1 << 24
_BEGINNING = 1 << 12  # bytes that are read of a message whose size is not known
_IN_FLIGHT = 1 << 22  # bytes that a connection may hold
TICK = 0.05  # seconds after which a thread that waits looks at the clock

Key = tuple[Any, ...]


class Message(NamedTuple):
    """A header, and a payload of bytes."""

    header: dict[str, Any]
    payload: np.ndarray


def _packed(header: dict[str, Any], size: int) -> bytes:
    text = json.dumps(header).encode()
    return _SIZES.pack(len(text), size) + text


class Link:
    """The connection to one other process."""

    def __init__(
        self, rank: int, channel: socket.socket, about: dict[str, Any]
    ) -> None:
        self.rank, self.channel, self.about = rank, channel, about
        self.open = True
        self.sent = 0  # bytes of payloads
        self.farewell: dict[str, Any] | None = None  # why it left, if it said so
        self.status: dict[str, Any] | None = None  # what it waits in, if it said so
        self.latest: dict[str, Any] | None = None  # the last call that it made
        self.lock = threading.Lock()
        self.outgoing: deque[memoryview] = deque()
        self._begun = bytearray()  # of a message
        self._header: dict[str, Any] | None = None
        self._payload: Any = None
        self._got = 0
        channel.setblocking(False)
        with contextlib.suppress(OSError):  # of a socket that is no TCP one
            channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            channel.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _IN_FLIGHT)

    # -- sending

    def put(self, header: dict[str, Any], *payload: np.ndarray) -> bool:
        """Send a message, or begin to; whether all of it is gone.

        The arrays, which are one payload, must stay as they are until then.
        """
        data = [np.ascontiguousarray(one).reshape(-1).view(np.uint8) for one in payload]
        size = sum(one.nbytes for one in data)
        pieces: list[Any] = [_packed(header, size)]
        if size <= _SMALL:
            pieces = [b"".join([pieces[0], *[one.tobytes() for one in data]])]
        else:
            pieces += [one for one in data if one.nbytes]
        with self.lock:
            self.outgoing.extend(map(memoryview, pieces))
        return self.flush()

    def flush(self) -> bool:
        """Send what can be sent now; whether nothing is left."""
        with self.lock:
            while self.outgoing and self.open:
                view = self.outgoing[0]
                try:
                    count = self.channel.send(view)
                except (BlockingIOError, InterruptedError):
                    return False
                except OSError:
                    self.outgoing.clear()  # reading finds that it is gone
                    break
                if count == len(view):
                    self.outgoing.popleft()
                else:
                    self.outgoing[0] = view[count:]
            return True

    # -- receiving

    def read(self, arrived: Callable[[Link, Message], None]) -> None:
        """Read all that is there; payloads go to their place at once."""
        while self.open:
            try:
                count = self._read_some()
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                count = 0
            if not count:
                self.open = False
                return
            while self._complete():
                header, payload = self._header, self._payload
                self._header = self._payload = None
                assert header is not None
                arrived(self, Message(header, payload))

    def _read_some(self) -> int:
        """Read once; the number of bytes."""
        if self._payload is not None:
            count = self.channel.recv_into(memoryview(self._payload)[self._got :])
            self._got += count
            return count
        data = self.channel.recv(_BEGINNING)
        self._begun += data
        return len(data)

    def _complete(self) -> bool:
        """Take what has been read for a message; whether it is all there."""
        begun = self._begun
        if self._header is None:
            if len(begun) < _SIZES.size:
                return False
            size, count = _SIZES.unpack_from(begun)
            if size > _LONGEST_HEADER:
                self.open = False  # this is no process of ours
                return False
            if len(begun) < _SIZES.size + size:
                return False
            self._header = json.loads(begun[_SIZES.size : _SIZES.size + size])
            del begun[: _SIZES.size + size]
            self._payload, self._got = buffers.empty((count,), np.uint8), 0
        take = min(len(begun), len(self._payload) - self._got)
        if take:
            piece = np.frombuffer(bytes(begun[:take]), np.uint8)
            self._payload[self._got : self._got + take] = piece
            self._got += take
            del begun[:take]
        return self._got == len(self._payload)

    def close(self, until: float) -> None:
        """Close it once what was sent has arrived there.

        Closing it with something to read would throw away what is on its way.
        """
        self.open = False
        with contextlib.suppress(OSError):
            self.channel.shutdown(socket.SHUT_WR)
            while _on_its_way(self.channel) and time.monotonic() < until:
                time.sleep(0.001)
        self.channel.close()

    # -- what is known of it

    @property
    def waiting(self) -> bool:
        """Whether messages to it are left to send."""
        return bool(self.outgoing)

    def state(self) -> str:
        """What its process does: "gone", "stopped", "running", or "unknown"."""
        if not self.open:
            return "gone"
        if self.about.get("host") != host():
            return "unknown"
        try:
            with open(f"/proc/{self.about['pid']}/stat", "rb") as file:
                letter = file.read().rpartition(b")")[2].split()[0]
        except OSError:
            return "gone" if os.path.isdir("/proc/self") else "unknown"
        if letter in (b"T", b"t"):
            return "stopped"
        return "gone" if letter in (b"Z", b"X") else "running"


def _on_its_way(channel: socket.socket) -> int:
    """The bytes that the other machine has not acknowledged; 0 where nobody knows."""
    try:
        import fcntl
        import termios
    except ImportError:  # there are none on Windows
        return 0
    found = fcntl.ioctl(channel.fileno(), termios.TIOCOUTQ, b"\0\0\0\0")
    return int.from_bytes(found, sys.byteorder)


def keep_alive(connection: socket.socket) -> None:
    """Notice within some ten seconds that the other machine is gone."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 2), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def host() -> str:
    """This machine, as no other one is called."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return socket.gethostname()


class Links:
    """All connections of this process, and the messages that came."""

    def __init__(self, rank: int, size: int, links: dict[int, Link]) -> None:
        self.rank, self.size, self.links = rank, size, links
        self.inbox: dict[Key, deque[Message]] = {}
        self.closed = False
        self._changed = threading.Condition()
        self._reading = False
        self._selector = selectors.DefaultSelector()
        self._wake, wakened = socket.socketpair()
        self._wakened = wakened
        wakened.setblocking(False)
        self._selector.register(wakened, selectors.EVENT_READ, None)
        for link in links.values():
            self._selector.register(link.channel, selectors.EVENT_READ, link)
        self._sender: threading.Thread | None = None

    def send(
        self, rank: int, header: dict[str, Any], payload: np.ndarray | None = None
    ) -> None:
        """Send a message, or begin to; the payload must stay as it is until then."""
        link = self.links[rank]
        if not link.open:
            return
        link.sent += 0 if payload is None else payload.nbytes
        if not link.put(header, *([] if payload is None else [payload])):
            self._wake.send(b"x")  # a thread that reads is to send as well

    def send_later(self) -> None:
        """Let a thread send what is left while this process does other things."""
        if self._unsent() and (self._sender is None or not self._sender.is_alive()):
            self._sender = threading.Thread(
                target=lambda: self.wait(lambda: not self._unsent()),
                name="weft.distributed",
                daemon=True,
            )
            self._sender.start()

    def _unsent(self) -> bool:
        return any(link.waiting and link.open for link in self.links.values())

    @property
    def sent(self) -> int:
        """Bytes of payloads, to all."""
        return sum(link.sent for link in self.links.values())

    def take(self, key: Key) -> Message | None:
        """The next message of a key, if there is one."""
        found = self.inbox.get(key)
        if not found:
            return None
        message = found.popleft()
        if not found:
            del self.inbox[key]
        return message

    def wait(
        self,
        ready: Callable[[], Any],
        look: Callable[[], None] | None = None,
    ) -> None:
        """Wait until ``ready()``; ``look`` is called now and then, and may raise."""
        while not ready():
            with self._changed:
                if self._reading:
                    self._changed.wait(TICK)
                    mine = False
                else:
                    mine = self._reading = True
            if mine:
                try:
                    if not ready():
                        self._poll()
                finally:
                    with self._changed:
                        self._reading = False
                        self._changed.notify_all()
            if look is not None and not ready():
                look()

    def look(self) -> None:
        """Read what is there, without waiting for more than a moment."""
        answers = iter([False])
        self.wait(lambda: next(answers, True))

    def lives(self, rank: int) -> bool:
        """Whether a process is connected; this one is."""
        return rank == self.rank or self.links[rank].open

    def _poll(self) -> None:
        """Read and send until something has come, or for a moment."""
        for link in self.links.values():
            if link.open:
                events = selectors.EVENT_READ
                if link.waiting:
                    events |= selectors.EVENT_WRITE
                if self._selector.get_key(link.channel).events != events:
                    self._selector.modify(link.channel, events, link)
        for key, events in self._selector.select(TICK):
            link = key.data
            if link is None:
                with contextlib.suppress(BlockingIOError):
                    self._wakened.recv(1024)
                continue
            if events & selectors.EVENT_WRITE:
                link.flush()
            if events & selectors.EVENT_READ:
                link.read(self._arrived)
                if not link.open:
                    self._selector.unregister(link.channel)

    def _arrived(self, link: Link, message: Message) -> None:
        header = message.header
        kind = header.get("kind")
        if kind == "farewell":
            link.farewell = header
        elif kind == "status":
            link.status = header.get("waits")
        else:
            if "call" in header:
                link.latest = header["call"]
            key = (link.rank, *header["key"])
            self.inbox.setdefault(key, deque()).append(message)

    def tell(self, header: dict[str, Any], ranks: Sequence[int] | None = None) -> None:
        """Send all, or some, a message without payload."""
        for rank in self.links if ranks is None else ranks:
            if rank != self.rank:
                self.send(rank, header)

    def close(self, farewell: dict[str, Any]) -> None:
        """Say goodbye, and close all connections."""
        if self.closed:
            return
        self.closed = True
        self.tell({"kind": "farewell", **farewell})
        until = time.monotonic() + 2
        while self._unsent() and time.monotonic() < until and not self._reading:
            self._poll()
        for link in self.links.values():
            link.close(until)
        self._selector.close()
        self._wake.close()
        self._wakened.close()

    def abandon(self) -> None:
        """Let go of all connections in a copy of the process, which are not its own."""
        self.closed = True
        for link in self.links.values():
            link.channel.close()
            link.open = False
