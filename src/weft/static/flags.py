"""Command-line flags: ``DEFINE_integer("steps", 100, "how many")``, ``FLAGS.steps``."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from weft.errors import ArgumentError

__all__ = [
    "FLAGS",
    "DEFINE_bool",
    "DEFINE_boolean",
    "DEFINE_enum",
    "DEFINE_float",
    "DEFINE_integer",
    "DEFINE_list",
    "DEFINE_string",
]  # fmt: skip


class Flags:
    """The values of flags: those of the command line, else the defaults.

    The command line is read when a value is first asked for.

    >>> weft.static.flags.DEFINE_integer("rows", 3, "the number of rows")
    >>> weft.static.flags.FLAGS.rows
    3
    """

    def __init__(self) -> None:
        parser = argparse.ArgumentParser(conflict_handler="resolve", allow_abbrev=False)
        vars(self).update(_parser=parser, _truths=set(), _values={}, _read=False)

    def define(self, name: str, default: Any, help: str | None, **kind: Any) -> None:
        """Let there be a flag; one of that name before is replaced."""
        if kind.get("type") is _truth:
            self._truths.add(name)
        self._parser.add_argument(
            f"--{name}", dest=name, default=default, help=help, **kind
        )
        vars(self).update(_read=False)

    def __call__(self, argv: list[str] | None = None) -> list[str]:
        """Read a command line; returns its program and what is no flag."""
        given = list(sys.argv if argv is None else argv)
        words = [self._full(word) for word in given[1:]]
        known, rest = self._parser.parse_known_args(words)
        self._values.update(vars(known))
        vars(self).update(_read=True)
        return [*given[:1], *rest]

    def _full(self, word: str) -> str:
        """``--fast`` and ``--nofast`` as ``--fast=true`` and ``--fast=false``."""
        name = word.lstrip("-")
        if word.startswith("--") and name in self._truths:
            return f"--{name}=true"
        if word.startswith("--no") and name[2:] in self._truths:
            return f"--{name[2:]}=false"
        return word

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if not self._read:
            self()
        if name not in self._values:
            raise AttributeError(f"there is no flag {name!r}")
        return self._values[name]

    def __setattr__(self, name: str, value: Any) -> None:
        getattr(self, name)
        self._values[name] = value

    def flag_values_dict(self) -> dict[str, Any]:
        """All flags with their values."""
        if not self._read:
            self()
        return dict(self._values)


FLAGS = Flags()


def _truth(text: str) -> bool:
    if text.lower() in ("1", "t", "true", "yes", "y"):
        return True
    if text.lower() in ("0", "f", "false", "no", "n"):
        return False
    raise argparse.ArgumentTypeError(f"expected true or false, got {text!r}")


def _defining(name: str, kind: dict[str, Any], example: str) -> Any:
    def define(
        flag_name: str, default_value: Any, docstring: str | None = None, **ignored: Any
    ) -> None:
        FLAGS.define(flag_name, default_value, docstring, **kind)

    define.__name__ = define.__qualname__ = name
    define.__doc__ = f"""Let there be a flag.

    >>> weft.static.flags.{name}("shown", {example}, "an example")
    >>> weft.static.flags.FLAGS.shown
    {example}
    """
    return define


DEFINE_integer = _defining("DEFINE_integer", {"type": int}, "3")
DEFINE_float = _defining("DEFINE_float", {"type": float}, "0.5")
DEFINE_string = _defining("DEFINE_string", {"type": str}, "'text'")
DEFINE_list = _defining("DEFINE_list", {"type": lambda s: s.split(",")}, "['a', 'b']")
DEFINE_bool = DEFINE_boolean = _defining("DEFINE_boolean", {"type": _truth}, "False")


def DEFINE_enum(
    name: str, default: Any, enum_values: Any, help: str | None = None, **ignored: Any
) -> None:
    """Let there be a flag with one of some values.

    >>> weft.static.flags.DEFINE_enum("mode", "train", ["train", "test"], "which")
    >>> weft.static.flags.FLAGS.mode
    'train'
    """
    if default is not None and default not in enum_values:
        raise ArgumentError(f"DEFINE_enum: {default!r} is not one of {enum_values}")
    FLAGS.define(name, default, help, choices=list(enum_values))


def __getattr__(name: str) -> Any:
    from weft.static import absent

    raise absent.error("flags", name)
