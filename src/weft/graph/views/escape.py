"""Names in pictures and pages: they may hold any text, and must stay text."""

from __future__ import annotations

import html
import json
import re
from typing import Any

# Characters that XML cannot hold, even escaped; lone surrogates cannot be written.
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]"
)


def printable(text: str) -> str:
    """Remove characters that files of text cannot hold."""
    return _UNPRINTABLE.sub("\ufffd", text)


def markup(text: str) -> str:
    """Text for the inside of an XML or HTML element, or of an attribute."""
    return html.escape(printable(text))


def quoted(text: str) -> str:
    """Text for a quoted string of DOT."""
    clean = printable(text).replace("\\", "\\\\").replace('"', '\\"')
    return '"' + clean.replace("\n", "\\n").replace("\r", "\\r") + '"'


def embedded_json(value: Any) -> str:
    """JSON for the inside of a script element: nothing in it can end the element."""
    text = json.dumps(value, separators=(",", ":"))  # ASCII only
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
