"""Texts as tokens, by the ``tokenizers`` library (``pip install "weft[language]"``)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from weft.errors import ArgumentError, FileFormatError

LIMIT = 64 << 20  # bytes of a tokenizer.json
_HALF = "\ufffd"  # stands for bytes that are no character yet


class Tokenizer:
    """A ``tokenizer.json``: the merges of pairs, and what stands around a text."""

    def __init__(self, path: str) -> None:
        try:
            from tokenizers import Tokenizer as Found
        except ImportError:
            raise ArgumentError(
                "texts need the tokenizers library: pip install 'weft[language]'; "
                "token numbers work without it"
            ) from None
        if os.path.getsize(path) > LIMIT:
            raise FileFormatError(f"language.load: {path!r} has more than {LIMIT:,} B")
        try:
            self.found: Any = Found.from_file(path)
        except Exception as error:  # the library raises Exception itself
            raise FileFormatError(
                f"language.load: {path!r} is no tokenizer: {error}"
            ) from None

    def save(self, path: str) -> None:
        self.found.save(path)

    def encode(self, text: str) -> list[int]:
        return list(self.found.encode(text).ids)

    def decode(self, tokens: Sequence[int]) -> str:
        return str(self.found.decode(list(tokens), skip_special_tokens=True))


class Text:
    """A text that grows by tokens: each new piece once, and whole characters only.

    What might be the beginning of a ``stop`` string waits for what follows.
    """

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str] = ()) -> None:
        self.tokenizer, self.stop = tokenizer, stop
        self.tokens: list[int] = []
        self.first = 0  # tokens before it are settled
        self.sent, self.kept = 0, ""  # of the text from there on; what waits
        self.stopped = False

    def add(self, token: int) -> str:
        """The new piece of text behind a token; it may be empty."""
        self.tokens.append(token)
        text = self.tokenizer.decode(self.tokens[self.first :])
        if text.endswith(_HALF):
            return ""
        piece, self.sent = text[self.sent :], len(text)
        if len(self.tokens) - self.first > 32:  # decode no more than this again
            self.first = len(self.tokens) - 1
            self.sent = len(self.tokenizer.decode(self.tokens[self.first :]))
        return self._until_stop(piece)

    def end(self) -> str:
        """What waited, at the end of the text."""
        text = self.tokenizer.decode(self.tokens[self.first :])
        piece = self._until_stop(text[self.sent :])
        kept, self.kept = self.kept, ""
        return piece if self.stopped else piece + kept

    def _until_stop(self, piece: str) -> str:
        text = self.kept + piece
        found = [at for at in (text.find(one) for one in self.stop) if at >= 0]
        if found or self.stopped:
            self.stopped, self.kept = True, ""
            return text[: min(found, default=0)]
        waits = max(
            (
                n
                for one in self.stop
                for n in range(1, len(one))
                if text.endswith(one[:n])
            ),
            default=0,
        )
        self.kept = text[len(text) - waits :]
        return text[: len(text) - waits]
