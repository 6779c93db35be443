"""Policies of recomputation: which results are kept for backward."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from weft.autograd.segment import Named
from weft.core.lowering import Library
from weft.core.op import all_ops
from weft.errors import ArgumentError


def selective() -> Named:
    """The policy that keeps results which cost much to compute for their size."""
    return Named(op.name for op in all_ops() if isinstance(op.lower, Library))


def named(who: str, given: Iterable[str]) -> Named:
    """The policy that keeps the results of operators with these names.

    >>> from weft.autograd.policies import named
    >>> sorted(named("checkpoint", {"conv", "exp"}).names)
    ['conv', 'conv_bias', 'exp']
    """
    names = frozenset(given)
    known = [op.name for op in all_ops()]
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, 3)
            hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
            raise ArgumentError(f"{who}: no operator is named {name!r}{hint}")
    return Named(names | {"conv_bias"} if "conv" in names else names)
