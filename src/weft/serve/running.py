"""A server's process: its socket, slow clients, signals and a graceful end."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from typing import Any

from weft.errors import ArgumentError
from weft.language import LanguageModel, load
from weft.serve.absent import uvicorn
from weft.serve.app import Limits, Server, application
from weft.serve.cascade import Cascade
from weft.serve.program import read_program

ENDING = 30  # seconds that accepted requests have at the end


def _patient(seconds: float) -> Any:
    """HTTP connections that end when a request's head does not come in time."""
    uvicorn()
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Connection(H11Protocol):
        timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._wait()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            cycle = self.cycle
            if cycle is not None and not cycle.response_complete:
                self._stop()
            elif self.timer is None:
                self._wait()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            cycle = self.cycle
            if cycle is None or cycle.response_complete:
                self._wait()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop()
            super().connection_lost(exc)

        def _wait(self) -> None:
            self._stop()
            self.timer = self.loop.call_later(seconds, self.transport.close)

        def _stop(self) -> None:
            if self.timer is not None:
                self.timer.cancel()
                self.timer = None

    return Connection


def read_model(
    path: str,
    *,
    memory: int | str | None = None,
    weights: str | None = None,
    batch: int = 8,
) -> Any:
    """What a path holds: a language model in a folder, or a program in a file."""
    if os.path.isdir(path):
        return load(path, memory=memory, weights=weights, batch=batch)
    if memory is not None or weights is not None:
        raise ArgumentError(
            "serve: memory and weights are for language models, which are folders"
        )
    return read_program(path)


def serve(
    path: str,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    limits: Limits | None = None,
    cascade: Cascade | None = None,
    memory: int | str | None = None,
    weights: str | None = None,
    reload: bool = True,
) -> None:
    """Serve a program's file, or a language model's folder, until a signal ends it."""
    found, limits = uvicorn(), limits or Limits()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    name = os.path.splitext(os.path.basename(os.path.abspath(path)))[0]
    with _bound(host, port) as link:
        batch = min(limits.batch, 64)
        model = read_model(path, memory=memory, weights=weights, batch=batch)
        server = Server(model, limits, cascade=cascade, path=path, name=name)
        watch = reload and not isinstance(model, LanguageModel)
        config = found.Config(
            application(server, watch=watch),
            http=_patient(limits.reading), log_level="error", access_log=False,
            timeout_graceful_shutdown=ENDING, timeout_keep_alive=75, ws="none",
            backlog=2048,
        )  # fmt: skip
        address, number = link.getsockname()[:2]
        print(f"serving {name} on http://{address}:{number}", flush=True)
        found.Server(config).run(sockets=[link])


def _bound(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        # asyncio sends at once, not 40 ms later, where it knows that this is TCP.
        link = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    except (OSError, OverflowError) as error:
        raise ArgumentError(f"serve: cannot use {host}:{port}: {error}") from None
    link.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        link.bind((host, port))
    except OSError as error:
        link.close()
        raise ArgumentError(
            f"serve: cannot listen on {host}:{port} ({error.strerror}); another port "
            "is given by --port"
        ) from None
    return link
