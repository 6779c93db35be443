"""Rules of the user's own, applied with the compiler's.

    add_rule(rule(before=lambda x: x.softmax(-1).log(),
                  after=lambda x: x.log_softmax(-1)))

A rule is an example of before and after (``weft.graph.rewrite``). Rules run first, on
the program as it was captured, so that ``before`` matches the same code there.
"""

from __future__ import annotations

from weft.errors import ArgumentError
from weft.graph.ir import Graph
from weft.graph.rewrite import Rule, rewrite

_ADDED: list[Rule] = []


def add_rule(rule: Rule) -> Rule:
    """Apply a rule to every program that is compiled from now on.

    >>> log_softmax = weft.graph.rewrite.rule(
    ...     before=lambda x: x.softmax(-1).log(),
    ...     after=lambda x: x.log_softmax(-1), name="log softmax")
    >>> weft.compile.add_rule(log_softmax)
    <rule log softmax>
    >>> weft.compile.remove_rule(log_softmax)
    """
    if not isinstance(rule, Rule):
        raise ArgumentError(
            f"add_rule: expected weft.graph.rewrite.rule(...), got {rule!r}"
        )
    if rule not in _ADDED:
        _ADDED.append(rule)
    return rule


def remove_rule(rule: Rule) -> None:
    """Apply a rule no longer.

    >>> rule = weft.graph.rewrite.rule(lambda x: x * 1, lambda x: x)
    >>> weft.compile.remove_rule(weft.compile.add_rule(rule))
    """
    if rule not in _ADDED:
        raise ArgumentError(f"remove_rule: {rule!r} has not been added")
    _ADDED.remove(rule)


def user_rules(graph: Graph) -> Graph:
    """Apply the added rules until none fits."""
    return rewrite(graph, _ADDED) if _ADDED else graph


def has_rules() -> bool:
    """Whether any rule has been added."""
    return bool(_ADDED)
