"""Texts that are written side by side, with their keys and values in pages.

A page holds the keys and values of a few positions of one text. Texts take pages as
they grow and give them back at their end, so that memory is held for what is there and
not for what might come. When none is left, the text that began last gives up its own
and is computed again later. One call of ``Engine.step`` reads a part of one prompt and
writes one token of every text whose prompt has been read.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import weft
from weft.errors import ArgumentError
from weft.graph import Spec
from weft.language.decoder import Decoder
from weft.language.sampling import Sampling, choose

PAGE = 16  # positions
MIB = 1 << 20


class Request:
    """A text that is being written.

    ``tokens`` grows; ``finish`` is None until it says why the text ended: "stop" for a
    token that ends texts, "length", "cancelled", or "error", which ``error`` is then.
    """

    def __init__(self, prompt: Sequence[int], sampling: Sampling) -> None:
        self.prompt, self.sampling = list(prompt), sampling
        self.tokens: list[int] = []
        self.finish: str | None = None
        self.error: Exception | None = None
        self.stopped = False  # by a string that ends texts
        self.generator = sampling.generator()
        self.pages: list[int] = []
        self.cached = 0  # positions whose keys are in the cache

    @property
    def ids(self) -> list[int]:
        """The prompt and what follows it."""
        return self.prompt + self.tokens

    @property
    def length(self) -> int:
        return len(self.prompt) + len(self.tokens)

    def slots(self, start: int, stop: int) -> np.ndarray:
        """Where the keys of positions lie."""
        at = np.arange(start, stop)
        return np.asarray(self.pages)[at // PAGE] * PAGE + at % PAGE


class Engine:
    """A decoder, its cache, and the texts it is writing.

    >>> config = weft.language.Config(vocab=50, context=64, width=32, layers=1, heads=2)
    >>> engine = Engine(weft.language.Decoder(config))
    >>> request = engine.submit([1, 2, 3], Sampling(max_new_tokens=4))
    >>> len(list(engine.run(request))), request.finish
    (4, 'length')
    """

    def __init__(
        self,
        module: Decoder,
        *,
        memory: int | None = None,
        batch: int = 8,
        chunk: int = 256,
        compiled: bool = True,
    ) -> None:
        if batch < 1 or chunk < 1:
            raise ArgumentError(
                f"Engine: batch and chunk must be positive, got {batch} and {chunk}"
            )
        self.module, self.batch = module.eval(), batch
        self.context = module.config.context
        self.chunk = min(chunk, self.context)
        self.compiled = compiled
        self._programs: dict[tuple[int, bool], Any] = {}
        self.needs = self._needs()
        self.count = self._pages(memory)
        # Page 0 stays zero: it fills the tables of short texts.
        self.cache = module.cache((1 + self.count) * PAGE)
        self.free = list(range(self.count, 0, -1))
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.lock = threading.RLock()

    # -- memory

    def _needs(self) -> dict[str, int]:
        """Bytes of the weights, of a page, and of what the largest step works with."""
        c, work = self.module.config, 0
        for rows, steps in ((1, self.chunk), (self.batch, 1)):
            table = self._width(self.context)
            parts = weft.plan(self._step, *self._specs(rows, steps, table)).parts
            work = max(work, parts.activations + parts.workspace + parts.outputs)
        work += 4 * 8 * c.vocab  # logits in float64, sorted and summed up
        tensors = [*self.module.parameters(), *self.module.buffers()]
        weights = sum({t.data_ptr(): t.nbytes for t in tensors}.values())
        page = 2 * c.layers * c.key_heads * c.head_dim * PAGE
        return {"weights": weights, "work": work, "page": page * self._dtype.itemsize}

    @property
    def _dtype(self) -> Any:
        return self.module.norm.weight.dtype

    def _specs(self, rows: int, steps: int, table: int) -> list[Spec]:
        c = self.module.config
        cache = (c.layers, 2, PAGE, c.key_heads, c.head_dim)
        shapes = ((rows, steps), (rows,), (rows, table), (rows,))
        return [*[Spec(s, weft.int64) for s in shapes], Spec(cache, self._dtype)]

    def _pages(self, memory: int | None) -> int:
        """The pages that fit; without a limit, those of ``batch`` whole contexts."""
        whole = -(-self.context // PAGE)
        if memory is None:
            return self.batch * whole
        needs = self.needs
        count = (memory - needs["weights"] - needs["work"]) // needs["page"] - 1
        if count < 1:
            least = needs["weights"] + needs["work"] + 2 * needs["page"]
            raise ArgumentError(
                f"Engine: {memory:,} bytes are too few: the weights take "
                f"{needs['weights']:,}, a step {needs['work']:,} and {PAGE} positions "
                f"{needs['page']:,}; give at least {least:,}, a smaller chunk than "
                f"{self.chunk} or a smaller batch than {self.batch}"
            )
        return min(count, self.batch * whole)

    @property
    def memory(self) -> int:
        """The bytes that weights, cache and the largest step take together.

        >>> config = weft.language.Config(50, context=64, width=32, layers=1, heads=2)
        >>> Engine(weft.language.Decoder(config), memory=2 << 20).memory <= 2 << 20
        True
        """
        needs = self.needs
        return needs["weights"] + needs["work"] + (1 + self.count) * needs["page"]

    # -- requests

    def submit(
        self, prompt: Sequence[int], sampling: Sampling | None = None
    ) -> Request:
        """Let a text be written behind a prompt; ``run`` or ``step`` write it."""
        sampling = sampling or Sampling()
        vocab = self.module.config.vocab
        if not prompt:
            raise ArgumentError("the prompt is empty; give at least one token")
        wrong = [t for t in prompt if type(t) is not int or not 0 <= t < vocab]
        if wrong:
            raise ArgumentError(
                f"the prompt's tokens must be integers from 0 to {vocab - 1}, got "
                f"{wrong[0]!r}"
            )
        most = min(self.context, self.count * PAGE)
        if len(prompt) + sampling.max_new_tokens > most:
            why = "the context" if most == self.context else "the memory for keys"
            raise ArgumentError(
                f"{len(prompt)} tokens and {sampling.max_new_tokens} new ones do not "
                f"fit into {why}, which holds {most}"
            )
        request = Request(prompt, sampling)
        with self.lock:
            self.waiting.append(request)
        return request

    def cancel(self, request: Request) -> None:
        """End a text; its pages are free then."""
        with self.lock:
            if request.finish is None:
                self._end(request, "cancelled")

    def fail(self, error: Exception) -> None:
        """End all texts with an error, of which none is the cause."""
        with self.lock:
            for request in [*self.running, *self.waiting]:
                request.error = error
                self._end(request, "error")

    def run(self, request: Request) -> Iterator[int]:
        """The tokens of a request as they are written, and those of others meanwhile.

        Closing the iterator ends the text.
        """
        sent = 0
        try:
            while True:
                yield from request.tokens[sent:]
                sent = len(request.tokens)
                with self.lock:
                    if request.finish is not None and sent == len(request.tokens):
                        if request.error is not None:
                            raise request.error
                        return
                    if sent == len(request.tokens):
                        self.step()
        finally:
            self.cancel(request)

    @property
    def busy(self) -> bool:
        """Whether any text is being written or waits."""
        return bool(self.running or self.waiting)

    # -- steps

    def step(self) -> None:
        """Read a part of the oldest prompt, and write one token of every other text."""
        with self.lock:
            self._admit()
            reading = [r for r in self.running if r.length - r.cached > 1]
            if reading:
                self._forward(reading[:1], self.chunk)
            writing = [r for r in self.running if r.length - r.cached == 1]
            writing = [r for r in writing if r not in reading]
            writing = [r for r in writing if r in self.running and self._room(r, 1)]
            # Room for one text may have been taken from another one of them.
            writing = [r for r in writing if r in self.running]
            if writing:
                self._forward(writing, 1)

    def _admit(self) -> None:
        while self.waiting and len(self.running) < self.batch:
            first = self.waiting[0]
            if self.running and len(self.free) < -(-first.length // PAGE):
                return
            self.running.append(self.waiting.popleft())

    def _room(self, request: Request, steps: int) -> bool:
        """Get pages for the next positions, those of later texts if need be."""
        while len(request.pages) * PAGE < request.cached + steps:
            if self.free:
                request.pages.append(self.free.pop())
                continue
            last = self.running[-1]
            self._give_back(last)
            self.running.remove(last)
            self.waiting.appendleft(last)
            if last is request:
                return False
        return True

    def _give_back(self, request: Request) -> None:
        self.free += reversed(request.pages)
        request.pages, request.cached = [], 0

    def _end(self, request: Request, reason: str) -> None:
        request.finish = reason
        self._give_back(request)
        for texts in (self.running, self.waiting):
            if request in texts:
                texts.remove(request)

    def _forward(self, requests: list[Request], most: int) -> None:
        """Compute the next positions of texts; those that are read get a new token."""
        steps = [min(most, r.length - r.cached) for r in requests]
        if not self._room(requests[0], steps[0]):
            return
        rows, width = _above(len(requests)), 1 if most == 1 else _above(max(steps))
        width = min(width, self.chunk)
        pairs = list(zip(requests, steps, strict=True))
        table = self._width(max(r.cached + count for r, count in pairs))
        ids, read = np.zeros((rows, width), np.int64), np.zeros((rows, table), np.int64)
        start, last = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
        for k, (request, count) in enumerate(pairs):
            at = request.cached
            ids[k, :count] = request.ids[at : at + count]
            read[k, :at] = request.slots(0, at)
            start[k], last[k] = at, count - 1
        arrays = map(weft.from_numpy, (ids, start, read, last))
        logits, new = self._program(rows, width > 1)(*arrays, self.cache)
        cache, added = self.cache.numpy(), new.numpy()
        for k, (request, count) in enumerate(pairs):
            slots = request.slots(request.cached, request.cached + count)
            cache[:, :, slots] = added[:, :, k, :count]
            request.cached += count
            if request.cached == request.length:
                self._write(request, logits[k].numpy())

    def _write(self, request: Request, logits: np.ndarray) -> None:
        sampling = request.sampling
        try:
            token = choose(logits, sampling, request.ids, request.generator)
        except ArgumentError as error:
            request.error = error
            self._end(request, "error")
            return
        if token in self.module.config.ends and not sampling.ignore_ends:
            self._end(request, "stop")
            return
        request.tokens.append(token)
        if len(request.tokens) == sampling.max_new_tokens:
            self._end(request, "length")

    def _width(self, length: int) -> int:
        """The length of a table, of which there are few: each is laid out once."""
        small = max(4 * PAGE, _above(length))
        return small if small <= 512 else -(-length // 256) * 256

    def _step(self, *arguments: Any) -> Any:
        with weft.no_grad():
            return self.module.step(*arguments)

    def _program(self, rows: int, reading: bool) -> Any:
        """The step for so many texts, compiled for them at the first use."""
        if not self.compiled:
            return self._step
        key = rows, reading
        if key not in self._programs:
            compiler: Any = weft.compile
            self._programs[key] = compiler(self._step)
        return self._programs[key]


def _above(count: int) -> int:
    """The next power of two.

    >>> [_above(n) for n in (0, 1, 2, 3, 100)]
    [1, 1, 2, 4, 128]
    """
    return 1 << max(0, count - 1).bit_length()
