"""A served program as an ASGI application.

POST /v1/predict       JSON, or safetensors where the content type says so
POST /v1/completions   texts of a language model, as OpenAI's interface has them
GET  /v1/models        what is served, with its inputs and outputs
GET  /health           200 while requests are answered
GET  /metrics          Prometheus' text
GET  /                 a page to try it
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.resources
import logging
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.errors import ArgumentError, WeftError
from weft.language import LanguageModel
from weft.serve.absent import starlette
from weft.serve.batching import Batcher, QueueFull, Stopped
from weft.serve.cascade import Cascade, RemoteFailed
from weft.serve.completions import completions
from weft.serve.metrics import ROWS, Metrics
from weft.serve.program import Served, read_program
from weft.serve.wire import (
    RAW,
    arrays_of_json,
    arrays_of_raw,
    read_json,
    to_json,
    to_raw,
)
from weft.serve.writing import Writer

log = logging.getLogger("weft.serve")
BY = "x-weft-answered-by"


@dataclass(frozen=True)
class Limits:
    """What a server accepts."""

    batch: int = 32  # rows of one run
    wait: float = 0.002  # seconds that a request waits for others
    queue: int = 256  # requests that wait
    body: int = 64 << 20  # bytes of a request
    reading: float = 30.0  # seconds that a request may take to arrive

    def __post_init__(self) -> None:
        for name in ("batch", "queue", "body"):
            if getattr(self, name) < 1:
                raise ArgumentError(
                    f"serve: {name} must be positive, got {getattr(self, name)}"
                )
        if self.wait < 0 or self.reading <= 0:
            raise ArgumentError("serve: wait and reading must not be negative")


class TooLarge(Exception):
    """A body above the limit."""


class TooSlow(Exception):
    """A body that does not arrive in time."""


class Server:
    """One program or language model, what waits for it, and its numbers."""

    def __init__(
        self,
        model: Served | LanguageModel,
        limits: Limits | None = None,
        *,
        cascade: Cascade | None = None,
        path: str | None = None,
        name: str = "model",
    ) -> None:
        self.limits = limits or Limits()
        self.model, self.cascade, self.path, self.name = model, cascade, path, name
        self.began = int(time.time())
        self.stopping = False
        self.reading = 0  # requests that are on their way
        self.metrics = Metrics()
        counter, seconds = self.metrics.counter, self.metrics.distribution
        self.requests = counter("weft_requests_total", "Requests, by path and status.")
        self.seconds = seconds(
            "weft_request_seconds", "Time to answer a request.", quantiles=(0.5, 0.99)
        )
        self.refused = counter(
            "weft_refused_total", "Requests that found a full queue."
        )
        self.reloads = counter("weft_reloads_total", "Changes of the file, by result.")
        self.metrics.gauge("weft_up_seconds", "Since the start.", self._up)
        self.metrics.gauge("weft_resident_bytes", "Memory of the process.", _resident)
        self.batcher: Batcher | None = None
        self.writer: Writer | None = None
        if isinstance(model, LanguageModel):
            if cascade is not None:
                raise ArgumentError("serve: a cascade needs a program with logits")
            self._texts(model)
        else:
            self._programs(model)

    def _up(self) -> float:
        return round(time.time() - self.began, 3)

    def _programs(self, model: Served) -> None:
        rows = self.metrics.distribution("weft_batch_rows", "Rows of a run.", ROWS)
        if self.cascade is not None:
            if not model.rows:
                raise ArgumentError(
                    "serve: a cascade needs a program whose inputs and outputs all "
                    "begin with one open size"
                )
            self.answers = self.metrics.counter(
                "weft_cascade_rows_total", "Rows, by who answered them."
            )
            self.parts = self.metrics.distribution(
                "weft_cascade_seconds", "Time of the local and the remote model.",
                quantiles=(0.5, 0.99),
            )  # fmt: skip
        limits = self.limits
        self.batcher = Batcher(
            lambda arrays: self._served(arrays),
            together=model.rows, most=limits.batch, wait=limits.wait,
            queue=limits.queue, observe=lambda n: rows.observe(n),
            coming=lambda: self.reading > 0,
        )  # fmt: skip
        batcher = self.batcher
        self.metrics.gauge(
            "weft_waiting", "Requests that wait.", lambda: len(batcher.waiting)
        )

    def _served(self, arrays: Any) -> list[np.ndarray]:
        assert isinstance(self.model, Served)
        return self.model(arrays)

    def _texts(self, model: LanguageModel) -> None:
        self.writer, engine = Writer(model, self.limits.queue), model.engine
        self.tokens = self.metrics.counter("weft_tokens_total", "Tokens, by kind.")
        gauge = self.metrics.gauge
        gauge("weft_waiting", "Texts that wait.", lambda: len(engine.waiting))
        gauge("weft_writing", "Texts being written.", lambda: len(engine.running))
        gauge("weft_pages", "Pages of keys and values.", lambda: engine.count)
        gauge("weft_pages_free", "Pages that are free.", lambda: len(engine.free))

    def describe(self) -> dict[str, Any]:
        if isinstance(self.model, LanguageModel):
            config = self.model.config
            return {
                "name": self.name, "context": config.context, "vocab": config.vocab,
                "texts": self.model.tokenizer is not None,
            }  # fmt: skip
        return self.model.describe()

    # -- predictions

    async def predict(self, arrays: list[np.ndarray]) -> tuple[list[np.ndarray], str]:
        """The outputs, and who answered: "local", "remote", "both" or "fallback"."""
        if self.batcher is None:
            raise ArgumentError("this server writes texts; use /v1/completions")
        began = time.monotonic()
        found = await asyncio.wrap_future(self.batcher.submit(arrays))
        if self.cascade is None:
            return found, "local"
        self.parts.observe(time.monotonic() - began, by="local")
        return await self._ask(self.cascade, arrays, found)

    async def _ask(
        self, cascade: Cascade, arrays: list[np.ndarray], found: list[np.ndarray]
    ) -> tuple[list[np.ndarray], str]:
        """Replace the rows that are unsure by the remote's, if it answers."""
        assert isinstance(self.model, Served)
        rows, count = cascade.unsure(found), len(found[0])
        self.answers.add(count - len(rows), by="local")
        if not len(rows):
            return found, "local"
        began, model = time.monotonic(), self.model
        try:
            remote = await asyncio.to_thread(
                cascade.remote, [a[rows] for a in arrays], model.inputs, model.outputs
            )
            if any(len(a) != len(rows) for a in remote):
                raise RemoteFailed("the remote answered another number of rows")
        except RemoteFailed as error:
            log.warning("the remote failed, answered locally: %s", error)
            self.answers.add(len(rows), by="fallback")
            return found, "fallback"
        self.parts.observe(time.monotonic() - began, by="remote")
        self.answers.add(len(rows), by="remote")
        found = [a.copy() for a in found]
        for mine, theirs in zip(found, remote, strict=True):
            mine[rows] = theirs
        return found, "remote" if len(rows) == count else "both"

    # -- life

    def stop(self) -> None:
        """Finish what was accepted."""
        self.stopping = True
        for worker in (self.batcher, self.writer):
            if worker is not None:
                worker.stop()

    async def watch(self, every: float = 1.0) -> None:
        """Serve the file's new program when it changes; keep the old if it is bad."""
        assert self.path is not None
        seen = tried = _stamp(self.path)
        while True:
            await asyncio.sleep(every)
            now = _stamp(self.path)
            if now is None or now != seen:  # not there, or still being written
                seen = now
            elif now != tried:
                tried = now
                await asyncio.to_thread(self.reload)

    def reload(self) -> bool:
        """Take over the file's program; whether that worked."""
        assert self.path is not None
        try:
            new, old = read_program(self.path), self.model
            assert isinstance(old, Served)
            if new.describe()["inputs"] != old.describe()["inputs"] or (
                new.describe()["outputs"] != old.describe()["outputs"]
            ):
                raise ArgumentError(
                    "its inputs or outputs are others; start the server again"
                )
            if new.rows != old.rows:
                raise ArgumentError("it changes state, or no longer does")
        except (WeftError, OSError) as error:
            log.error("%s was not taken over: %s", self.path, error)
            self.reloads.add(result="refused")
            return False
        self.model = new
        log.info("%s was taken over", self.path)
        self.reloads.add(result="taken")
        return True


def _stamp(path: str) -> tuple[int, ...] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _resident() -> float:
    """Bytes of memory that the process has; 0 where that is not told."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):
        return 0


async def _body(request: Any, limits: Limits) -> bytes:
    """The body, if it is short enough and comes in time."""
    length = request.headers.get("content-length", "0")
    if not length.isdigit() or int(length) > limits.body:
        raise TooLarge
    body = bytearray()
    try:
        async with asyncio.timeout(limits.reading):
            async for piece in request.stream():
                body += piece
                if len(body) > limits.body:
                    raise TooLarge
    except TimeoutError:
        raise TooSlow from None
    return bytes(body)


def application(server: Server, *, watch: bool = False) -> Any:
    """The application that answers for a server."""
    web = starlette()
    limits = server.limits

    def failure(status: int, text: str, **headers: str) -> Any:
        error = {"message": text, "type": "invalid" if status < 500 else "server"}
        return web.JSONResponse({"error": error}, status, headers=headers)

    async def answered(work: Callable[[], Awaitable[Any]]) -> Any:
        """The answer, or what went wrong in words."""
        try:
            return await work()
        except TooLarge:
            return failure(413, f"the body has more than {limits.body:,} bytes")
        except TooSlow:
            return failure(408, f"the body took more than {limits.reading:g} seconds")
        except QueueFull:
            server.refused.add()
            text = f"{limits.queue} requests wait already; try again later"
            return failure(503, text, **{"Retry-After": "1"})
        except Stopped:
            return failure(503, "the server is stopping", **{"Retry-After": "5"})
        except (ArgumentError, WeftError) as error:
            return failure(400, str(error).partition("\n  at ")[0])
        except web.ClientDisconnect:
            return web.Response(status_code=499)
        except Exception:
            log.exception("a request failed")
            return failure(500, "the server failed; its log says how")

    def route(path: str, handler: Callable[[Any], Awaitable[Any]], method: str) -> Any:
        async def timed(request: Any) -> Any:
            began = time.monotonic()
            response = await answered(lambda: handler(request))
            server.seconds.observe(time.monotonic() - began, path=path)
            server.requests.add(path=path, status=str(response.status_code))
            return response

        return web.Route(path, timed, methods=[method])

    async def predict(request: Any) -> Any:
        server.reading += 1
        try:
            body = await _body(request, limits)
        finally:
            server.reading -= 1
        if not isinstance(server.model, Served):
            raise ArgumentError("this server writes texts; use /v1/completions")
        inputs, outputs = server.model.inputs, server.model.outputs
        raw = request.headers.get("content-type", "").partition(";")[0].strip() == RAW
        arrays = (
            arrays_of_raw(body, inputs) if raw
            else arrays_of_json(read_json(body), inputs)
        )  # fmt: skip
        if server.model.rows and len({len(a) for a in arrays}) != 1:
            raise ArgumentError("all inputs must have the same number of rows")
        found, by = await server.predict(arrays)
        wants = request.headers.get("accept", "*/*")
        headers = {BY: by}
        if RAW in wants or (raw and "application/json" not in wants):
            return web.Response(to_raw(found, outputs), media_type=RAW, headers=headers)
        answer = {"outputs": to_json(found, outputs)}
        return web.JSONResponse(answer, headers=headers)

    async def complete(request: Any) -> Any:
        body = await _body(request, limits)
        if server.writer is None:
            raise ArgumentError("this server has no language model; use /v1/predict")
        return await completions(server, read_json(body), request)

    async def models(request: Any) -> Any:
        one = {
            "id": server.name, "object": "model", "created": server.began,
            "owned_by": "weft", "weft": server.describe(),
        }  # fmt: skip
        return web.JSONResponse({"object": "list", "data": [one]})

    async def health(request: Any) -> Any:
        if server.stopping:
            return failure(503, "the server is stopping")
        return web.JSONResponse({"status": "ok"})

    async def metrics(request: Any) -> Any:
        kind = "text/plain; version=0.0.4; charset=utf-8"
        return web.Response(server.metrics.text(), media_type=kind)

    async def page(request: Any) -> Any:
        found = importlib.resources.files("weft.serve") / "data" / "page.html"
        return web.HTMLResponse(found.read_text(encoding="utf-8"))

    @contextlib.asynccontextmanager
    async def life(app: Any) -> AsyncIterator[None]:
        watching = asyncio.create_task(server.watch()) if watch else None
        yield
        if watching is not None:
            watching.cancel()
        await asyncio.to_thread(server.stop)

    return web.Starlette(
        routes=[
            route("/v1/predict", predict, "POST"),
            route("/v1/completions", complete, "POST"),
            route("/v1/models", models, "GET"),
            web.Route("/health", health),
            web.Route("/metrics", metrics),
            web.Route("/", page),
        ],
        lifespan=life,
    )
