"""``/v1/completions``, as OpenAI's interface has it."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any

from weft.errors import ArgumentError, WeftError
from weft.language import Request, Sampling
from weft.serve.absent import starlette
from weft.serve.writing import Writer

_TEXTS = 16  # of one request
_IGNORED = {  # options with the one value that is served
    "model": None, "user": None, "stream_options": None, "echo": False,
    "logprobs": None, "suffix": None, "best_of": None, "frequency_penalty": 0,
    "presence_penalty": 0, "logit_bias": None,
}  # fmt: skip
_FREE = ("model", "user", "stream_options")
_OWN = (
    "prompt", "max_tokens", "temperature", "top_p", "top_k", "n", "stream", "stop",
    "seed", "repetition_penalty", "ignore_ends",
)  # fmt: skip


def _sampling(options: Mapping[str, Any]) -> Sampling:
    given = {
        name: options[name]
        for name in ("temperature", "top_p", "top_k", "seed", "repetition_penalty",
                     "ignore_ends")
        if options.get(name) is not None
    }  # fmt: skip
    stop = options.get("stop") or ()
    if not isinstance(stop, str | list | tuple):
        raise ArgumentError("stop must be a text or a list of texts")
    return Sampling(
        **{"temperature": 1.0, **given},
        max_new_tokens=options.get("max_tokens", 16) or 16,
        stop=(stop,) if isinstance(stop, str) else tuple(stop),
    )


def _prompts(options: Mapping[str, Any]) -> list[Any]:
    """The prompts: a text, its tokens, or a list of either."""
    prompt = options.get("prompt")
    if isinstance(prompt, str):
        return [prompt]
    if not isinstance(prompt, list) or not prompt:
        raise ArgumentError("prompt must be a text, token numbers, or a list of these")
    if all(type(one) is int for one in prompt):
        return [prompt]
    if all(isinstance(one, str) for one in prompt) or all(
        isinstance(one, list) for one in prompt
    ):
        return prompt
    raise ArgumentError("prompt must not mix texts and token numbers")


def _check(options: Mapping[str, Any]) -> None:
    unknown = sorted(set(options) - {*_OWN, *_IGNORED})
    if unknown:
        raise ArgumentError(f"{unknown[0]!r} is no option of completions")
    for name, only in _IGNORED.items():
        if name not in _FREE and options.get(name, only) not in (only, None):
            raise ArgumentError(f"{name} is not served; leave it out")


async def completions(server: Any, options: Mapping[str, Any], request: Any) -> Any:
    """The answer to a request: all texts at once, or events as they are written."""
    _check(options)
    sampling, prompts = _sampling(options), _prompts(options)
    count = options.get("n", 1)
    if type(count) is not int or not 1 <= count * len(prompts) <= _TEXTS:
        raise ArgumentError(f"n times the prompts must be from 1 to {_TEXTS}")
    if not isinstance(options.get("stream", False), bool):
        raise ArgumentError("stream must be true or false")
    words = server.model.tokenizer is not None
    if not words and (sampling.stop or any(isinstance(p, str) for p in prompts)):
        raise ArgumentError("this model has no tokenizer; give token numbers, no stop")
    texts: list[Request] = []
    try:
        for prompt in prompts:
            for k in range(count):
                texts.append(server.writer.submit(prompt, _numbered(sampling, k)))
    except BaseException:
        for text in texts:
            server.writer.end(text)
        raise
    answer = _Answer(server, texts, words)
    if options.get("stream"):
        web = starlette()
        return web.StreamingResponse(answer.events(), media_type="text/event-stream")
    return await answer.whole(request)


def _numbered(sampling: Sampling, k: int) -> Sampling:
    """The sampling of a request's text number ``k``: each has a seed of its own."""
    if sampling.seed is None or k == 0:
        return sampling
    return replace(sampling, seed=sampling.seed + k)


class _Answer:
    """The texts of one request, on their way."""

    def __init__(self, server: Any, texts: list[Request], words: bool) -> None:
        self.server, self.texts, self.words = server, texts, words
        self.head = {
            "id": f"cmpl-{secrets.token_hex(12)}", "object": "text_completion",
            "created": int(time.time()), "model": server.name,
        }  # fmt: skip

    @property
    def writer(self) -> Writer:
        found: Writer = self.server.writer
        return found

    async def _pieces(self, text: Request) -> AsyncIterator[str]:
        if self.words:
            async for piece in self.writer.pieces(text):
                yield piece
        else:  # a model without a tokenizer answers with its tokens' numbers
            async for token in self.writer.tokens(text):
                yield f"{token} "

    def _choice(self, index: int, piece: str, finish: str | None) -> dict[str, Any]:
        return {
            "index": index,
            "text": piece,
            "logprobs": None,
            "finish_reason": finish,
        }

    def _finish(self, text: Request) -> str:
        return "length" if text.finish == "length" and not text.stopped else "stop"

    def _usage(self) -> dict[str, int]:
        read = sum(len(text.prompt) for text in self.texts)
        written = sum(len(text.tokens) for text in self.texts)
        self.server.tokens.add(read, kind="prompt")
        self.server.tokens.add(written, kind="new")
        return {
            "prompt_tokens": read, "completion_tokens": written,
            "total_tokens": read + written,
        }  # fmt: skip

    def _end(self) -> None:
        for text in self.texts:
            self.writer.end(text)

    async def whole(self, request: Any) -> Any:
        async def one(index: int, text: Request) -> dict[str, Any]:
            found = "".join([piece async for piece in self._pieces(text)])
            return self._choice(index, found, self._finish(text))

        async def gone() -> None:
            while not await request.is_disconnected():
                await asyncio.sleep(0.25)

        leaving = asyncio.create_task(gone())
        work = asyncio.gather(*[one(k, text) for k, text in enumerate(self.texts)])
        try:
            both: list[asyncio.Future[Any]] = [work, leaving]
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                raise starlette().ClientDisconnect
            choices = await work
            answer = {**self.head, "choices": choices, "usage": self._usage()}
            return starlette().JSONResponse(answer)
        finally:
            leaving.cancel()
            work.cancel()
            self._end()

    async def events(self) -> AsyncIterator[str]:
        """Server-sent events: a piece of one text each, and [DONE]."""
        pieces: asyncio.Queue[tuple[int, str | Exception | None]] = asyncio.Queue()

        async def forward(index: int, text: Request) -> None:
            try:
                async for piece in self._pieces(text):
                    pieces.put_nowait((index, piece))
                pieces.put_nowait((index, None))
            except Exception as error:
                pieces.put_nowait((index, error))

        tasks = [
            asyncio.create_task(forward(k, text)) for k, text in enumerate(self.texts)
        ]
        try:
            open_ = len(tasks)
            while open_:
                index, piece = await pieces.get()
                if isinstance(piece, Exception):
                    raise piece
                finish = self._finish(self.texts[index]) if piece is None else None
                open_ -= piece is None
                choice = self._choice(index, piece or "", finish)
                yield f"data: {json.dumps({**self.head, 'choices': [choice]})}\n\n"
            self._usage()
            yield "data: [DONE]\n\n"
        except WeftError as error:
            text = str(error).partition("\n  at ")[0]
            failed = {"error": {"message": text, "type": "server"}}
            yield f"data: {json.dumps(failed)}\n\n"
        finally:
            for task in tasks:
                task.cancel()
            self._end()
