"""The words of graphs as text, with their positions.

    reference = %name | @name           name = letters, digits, . / _ or "a string"
    string    = "…" as in JSON          number = 12 | 1.5 | 1e-05
    word      = a letter, then letters, digits, _
    mark      = ... // == != <= >= + - * / % : , = ( ) [ ] { } < >

Spaces and line ends only separate; ``#`` begins a comment. A ``%`` right after a
word, a digit or ``)`` is the rest of a division: ``(B%2)``.
"""

from __future__ import annotations

import json
import re
from typing import NoReturn

from weft.graph.ir import GraphError

_STRING = r'"(?:[^"\\\n]|\\.)*"'
_TOKEN = re.compile(
    rf"""(?:\s+|\#[^\n]*)*
    (?: (?P<reference>@(?:[\w./]+|{_STRING})|(?<![\w)])%(?:[\w./]+|{_STRING}))
      | (?P<word>[^\W\d]\w*)
      | (?P<mark>\.\.\.|//|[=!<>]=|[-+*/%:,=()\[\]{{}}<>])
      | (?P<number>\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)
      | (?P<string>{_STRING})
      | (?P<end>\Z)
      | (?P<other>.)
    )""",
    re.VERBOSE,
)
_PLAIN = re.compile(r"[\w./]+")
_WORD = re.compile(r"[^\W\d]\w*")


def name_text(name: str) -> str:
    """A name as it stands after ``%`` or ``@``: quoted if it has other characters."""
    return name if _PLAIN.fullmatch(name) else json.dumps(name, ensure_ascii=False)


def word_text(name: str) -> str:
    """A word, or a string where it is none."""
    return name if _WORD.fullmatch(name) else json.dumps(name, ensure_ascii=False)


class Tokens:
    """A text split into words, with a position in it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.kinds: list[str] = []
        self.words: list[str] = []
        self._ends: list[int] = []
        for found in _TOKEN.finditer(text):
            kind = str(found.lastgroup)
            self.kinds.append(kind)
            self.words.append(found[kind])
            self._ends.append(found.end())
        self.at = 0
        self._line, self._counted = 1, 0
        if "other" in self.kinds:
            self.at = self.kinds.index("other")
            self.fail("a word, a number, a string, a %name or a mark")

    @property
    def kind(self) -> str:
        return self.kinds[self.at]

    @property
    def word(self) -> str:
        return self.words[self.at]

    @property
    def start(self) -> int:
        return self._ends[self.at] - len(self.words[self.at])

    @property
    def line(self) -> int:
        """The line that the next word stands on, counted from 1."""
        start = self.start
        if start < self._counted:
            return self.text.count("\n", 0, start) + 1
        self._line += self.text.count("\n", self._counted, start)
        self._counted = start
        return self._line

    def take(self) -> str:
        word = self.words[self.at]
        self.at += 1
        return word

    def skip(self, word: str) -> bool:
        """Take the next word if it is this one."""
        at = self.at
        if self.words[at] == word and self.kinds[at] != "string":
            self.at = at + 1
            return True
        return False

    def expect(self, word: str) -> None:
        if not self.skip(word):
            self.fail(f"{word!r}")

    def reference(self, sigil: str) -> str:
        """The name after ``%`` or ``@``."""
        if self.kind != "reference" or self.word[0] != sigil:
            self.fail(f"a name that begins with {sigil}")
        name = self.word[1:]
        if name[0] == '"':
            name = self.decode(name)
        self.at += 1
        return name

    def name(self) -> str:
        """A word, or a string instead of one."""
        if self.kind == "string":
            name = self.decode(self.word)
            self.at += 1
            return name
        if self.kind != "word":
            self.fail("a name")
        return self.take()

    def decode(self, text: str) -> str:
        try:
            return json.loads(text)
        except ValueError:
            self.fail("a string written as in JSON")

    def fail(self, expected: str, problem: str = "") -> NoReturn:
        """Refuse the text at this position: what was expected, and what is there."""
        start, line = self.start, self.line
        begin = self.text.rfind("\n", 0, start) + 1
        shown = self.text[begin:].partition("\n")[0].strip()
        got = "the end of the text" if self.kind == "end" else repr(self.word)
        what = problem or f"expected {expected}, got {got}"
        raise GraphError(
            f"line {line}, column {start - begin + 1}: {what}\n    {shown[:200]}"
        )
