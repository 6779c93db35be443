"""Functions of higher packages that lower ones call when they run.

A package imports only those before it (``tests/test_layers.py`` has the order). Where
it needs a later one after all (the tape makes zeros, an eager operator asks the
compiler for a kernel), it looks that up by name. ``weft`` declares the modules of these
names; they are imported at the first use.
"""

from __future__ import annotations

import importlib
from typing import Any

_WHERE: dict[str, str] = {}
_FOUND: dict[str, Any] = {}


def provide(**where: str) -> None:
    """Say where names are found, as ``module`` or ``module:attribute``."""
    _WHERE.update(where)


def find(name: str) -> Any:
    """The module, class or function that was provided under a name.

    >>> weft.late.find("Module") is weft.nn.Module
    True
    """
    found = _FOUND.get(name)
    if found is None:
        module, _, attribute = _WHERE[name].partition(":")
        found = importlib.import_module(f"weft.{module}")
        found = _FOUND[name] = getattr(found, attribute) if attribute else found
    return found
