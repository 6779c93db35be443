"""Texts of tensors' values, which are known only when a captured program runs.

A text that a captured function makes of a tensor holds a mark instead. What it prints,
logs or returns becomes a recipe that puts each run's values there. Code that looks into
such a text would see the mark, so it is refused.
"""

from __future__ import annotations

import re
from typing import Any

from weft.graph.effects import Text
from weft.graph.symbol import MARK, refusal

_MARKED = re.compile(f"({MARK}+[^{MARK}]*{MARK})")
_ADVICE = (
    "Print or return it as it is, give the tensor itself to print or the logger "
    '(`logger.debug("%s", loss)`), or make the text outside'
)


def is_marked(text: str) -> bool:
    """Whether a text shows values of tensors."""
    return str.__contains__(text, MARK)


def text_recipe(run: Any, text: str) -> Any:
    """The recipe of a text in which marks stand for tensors."""
    if not is_marked(text):
        return text
    parts = _MARKED.split(text)
    for part in parts:
        if is_marked(part) and part not in run.texts:
            raise refusal(
                "capture: the function cuts or changes the text of a tensor's value, "
                f"which is known only when the program runs. {_ADVICE}"
            )
    run.shown.update(part for part in parts if is_marked(part))
    return Text(tuple(run.texts.get(part, part) for part in parts))


def check_shown(run: Any) -> None:
    """Refuse texts that nobody sees: the function may have looked into them."""
    for text, (node, _) in run.texts.items():
        if text not in run.shown:
            raise refusal(
                f"capture: the function makes a text of the value of {node.name!r} and "
                "does not show it. What it does with the text instead would be done "
                f"with one that is not the value's. {_ADVICE}.\n  made at {node.line}"
            )


class ValueText(str):
    """The text of a tensor's value: it can be put into others, and shown."""

    def __format__(self, spec: str) -> str:
        return self.ljust(0) if spec else self


def _refusing(name: str) -> Any:
    def method(self: str, *args: Any, **kwargs: Any) -> Any:
        raise refusal(
            f"capture: str.{name} looks into the text of a tensor's value, which is "
            f"known only when the program runs. {_ADVICE}"
        )

    method.__name__ = name
    return method


_LOOKS = (
    "__contains__", "__eq__", "__ge__", "__getitem__", "__gt__", "__hash__", "__iter__",
    "__le__", "__len__", "__lt__", "__ne__", "capitalize", "casefold", "center",
    "count", "encode", "endswith", "expandtabs", "find", "index", "isalnum", "isalpha",
    "isdecimal", "isdigit", "isnumeric", "isspace", "ljust", "lower", "lstrip",
    "partition", "removeprefix", "removesuffix", "replace", "rfind", "rindex", "rjust",
    "rpartition", "rsplit", "rstrip", "split", "splitlines", "startswith", "strip",
    "swapcase", "title", "translate", "upper", "zfill",
)  # fmt: skip
for _name in _LOOKS:
    setattr(ValueText, _name, _refusing(_name))
