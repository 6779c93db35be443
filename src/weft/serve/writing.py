"""Texts that several clients have written by one language model."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

from weft.errors import WeftError
from weft.language import LanguageModel, Request, Sampling
from weft.language.tokenizer import Text
from weft.serve.batching import QueueFull, Stopped


class Writer:
    """Runs a language model's engine in a thread while any text is being written."""

    def __init__(self, model: LanguageModel, queue: int = 256) -> None:
        self.model, self.limit = model, queue
        self.listeners: dict[Request, tuple[asyncio.AbstractEventLoop, asyncio.Event]]
        self.listeners = {}
        self.changed = threading.Condition()
        self.stopping = False
        self.failed: BaseException | None = None
        self.thread = threading.Thread(target=self._loop, name="texts", daemon=True)
        self.thread.start()

    def submit(self, prompt: str | list[int], sampling: Sampling) -> Request:
        """Begin a text; the calling event loop hears of its tokens."""
        with self.changed:
            if self.stopping:
                raise Stopped
            if len(self.model.engine.waiting) >= self.limit:
                raise QueueFull
            request = self.model.submit(prompt, sampling)
            loop = asyncio.get_running_loop()
            self.listeners[request] = loop, asyncio.Event()
            self.changed.notify()
        return request

    async def tokens(self, request: Request) -> AsyncIterator[int]:
        """A text's tokens as they come."""
        sent, (_, event) = 0, self.listeners[request]
        while True:
            event.clear()
            for token in request.tokens[sent:]:
                sent += 1
                yield token
            if sent < len(request.tokens):
                continue
            if request.finish is not None:
                if request.error is not None:
                    raise request.error
                return
            await event.wait()

    async def pieces(self, request: Request) -> AsyncIterator[str]:
        """A text, as it comes; it ends before a string that stops it."""
        assert self.model.tokenizer is not None
        text = Text(self.model.tokenizer, request.sampling.stop)
        async for token in self.tokens(request):
            if piece := text.add(token):
                yield piece
            if text.stopped:
                request.stopped = True
                return
        if piece := text.end():
            yield piece
        request.stopped = text.stopped

    def end(self, request: Request) -> None:
        """Forget a text; if it is not at its end, its pages are free now."""
        self.model.engine.cancel(request)
        self.listeners.pop(request, None)

    def stop(self) -> None:
        """Finish all texts, and begin no more."""
        with self.changed:
            self.stopping = True
            self.changed.notify()
        self.thread.join()

    def _loop(self) -> None:
        engine = self.model.engine
        while True:
            with self.changed:
                while not engine.busy:
                    if self.stopping:
                        return
                    self.changed.wait()
            try:
                engine.step()
            except (WeftError, MemoryError) as error:
                engine.fail(error)
            for loop, event in list(self.listeners.values()):
                if not loop.is_closed():
                    loop.call_soon_threadsafe(event.set)
