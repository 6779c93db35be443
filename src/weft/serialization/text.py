"""JSON from untrusted files, read piece by piece.

Python's objects are larger than their JSON: ``[[],[],[]]`` takes twenty times its
text. So nothing here parses a whole header. Pieces are cut out first, each of a
shape that is known to be shallow, and a ``Budget`` is asked before anything is
built from them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any

ALLOWANCE = 128 << 20
DENSITY = 16  # bytes of objects that a byte of JSON may become, at most

_STRING = r'"(?:[^"\\]++|\\.)*+"'
_PLAIN = r'[^\[\]{}"]++'
_LIST = rf"\[(?:{_PLAIN}|{_STRING})*+\]"
_LISTS = rf"\[(?:{_PLAIN}|{_STRING}|{_LIST})*+\]"
_ITEM = re.compile(
    rf'\[(?:{_PLAIN}|{_STRING}|{_LISTS})*+\]|{_STRING}|[^\[\]{{}}",\s]++', re.DOTALL
)
_ENTRY = re.compile(rf"\{{(?:{_PLAIN}|{_STRING}|{_LIST})*+\}}", re.DOTALL)
_SPACE = re.compile(r"[ \t\n\r]*+")

Complain = Callable[[str], Exception]


class Budget:
    """The memory that reading a file may take: twice its size and an allowance."""

    def __init__(self, size: int, bad: Complain) -> None:
        self.left = 2 * size + ALLOWANCE
        self.bad = bad

    def reserve(self, count: int) -> None:
        """Refuse if so many bytes would exceed the budget."""
        if count > self.left:
            raise self.bad(
                "reading it would take more memory than twice its size and "
                f"{ALLOWANCE >> 20} MB"
            )

    def spend(self, count: int) -> None:
        """Take so many bytes for values that stay."""
        self.reserve(count)
        self.left -= count


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name occurs twice in an object")
    return found


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is not a JSON number")


_DECODER = json.JSONDecoder(object_pairs_hook=_without_repeats, parse_constant=_refuse)


class JsonText:
    """A text of JSON and a position in it."""

    def __init__(self, text: str, what: str, budget: Budget) -> None:
        self.text = text
        self.what = what
        self.budget = budget
        self.at = 0

    def bad(self, problem: str) -> Exception:
        return self.budget.bad(
            f"the {self.what} is no valid JSON for this format: {problem} at "
            f"character {self.at}"
        )

    def next(self) -> str:
        """The next character that is no space; "" at the end."""
        self.at = _SPACE.match(self.text, self.at).end()  # type: ignore[union-attr]
        return self.text[self.at : self.at + 1]

    def skip(self, mark: str) -> bool:
        if self.next() != mark:
            return False
        self.at += 1
        return True

    def expect(self, mark: str) -> None:
        if not self.skip(mark):
            raise self.bad(f"expected {mark!r}")

    def string(self) -> str:
        self.expect('"')
        try:
            found, self.at = scanstring(self.text, self.at, True)
        except ValueError as error:
            raise self.bad(str(error)) from None
        return found

    def piece(self, pattern: re.Pattern[str], expected: str) -> Any:
        """The value of the pattern's match, here."""
        self.next()
        match = pattern.match(self.text, self.at)
        if match is None:
            raise self.bad(f"expected {expected}")
        self.budget.reserve(DENSITY * len(match[0]))
        try:
            value = _DECODER.decode(match[0])
        except ValueError as error:
            raise self.bad(str(error)) from None
        self.at = match.end()
        return value

    def between(self, start: str, end: str) -> Iterator[None]:
        """Once for each piece between two marks, which commas divide."""
        self.expect(start)
        if not self.skip(end):
            while True:
                yield
                if not self.skip(","):
                    break
            self.expect(end)

    def finish(self) -> None:
        if self.next():
            raise self.bad("expected the end")

    # -- values in files

    def items(self) -> Iterator[Any]:
        """The items of a list: numbers, strings, and lists of lists of these."""
        for _ in self.between("[", "]"):
            yield self.piece(_ITEM, "a number, a string or a shallow list")
        self.finish()

    def members(self) -> Iterator[str]:
        """The names in an object; the value of each must be read before the next."""
        for _ in self.between("{", "}"):
            name = self.string()
            self.expect(":")
            yield name

    def entry(self) -> dict[str, Any]:
        """An object of numbers, strings and lists of these."""
        return self.piece(_ENTRY, "an object that describes a tensor")
