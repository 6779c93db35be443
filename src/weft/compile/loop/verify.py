"""Bounds, proven before code is emitted.

Every index of a load or a store must be inside its buffer for all values of the loop
variables; variables set from values are inside their limits, which must not be empty.
Extents are polynomials, so the largest value of an index is found by putting each
variable at its end; where that is not provably inside, the kernel is
refused (and its nodes are run as calls).
"""

from __future__ import annotations

from typing import Any

from weft.compile.loop.alias import may_share
from weft.compile.loop.index_choices import is_clamped
from weft.compile.loop.ir import (
    Choice,
    For,
    Kernel,
    Let,
    Load,
    Set,
    Store,
    When,
    subvalues,
)
from weft.compile.loop.ranges import inside
from weft.core.size import Size, same
from weft.graph.ir import GraphError


def verify_kernel(kernel: Kernel) -> None:
    """Raise a GraphError that names the first index which may be out of bounds.

    Buffers that share memory must be ones that may.
    """
    _sharing(kernel)
    scope = _Scope(kernel, dict(kernel.parallel))
    if not any(_never(extent) for extent in scope.limits.values()):
        _body(kernel.body, scope)


class _Scope:
    """A kernel, the loops around a statement, and what is proven of indices there."""

    def __init__(self, kernel: Kernel, limits: dict[str, Any]) -> None:
        self.kernel, self.limits = kernel, limits
        self.proven: set[tuple[str, str]] = set()

    def within(self, name: str, limit: Any) -> _Scope:
        return _Scope(self.kernel, {**self.limits, name: limit})

    def inside(self, index: Any, size: Any) -> bool:
        key = str(index), str(size)
        if key not in self.proven and inside(index, size, self.limits):
            self.proven.add(key)
        return key in self.proven


def _sharing(kernel: Kernel) -> None:
    before, after = zip(*kernel.shared, strict=True) if kernel.shared else ((), ())
    for given, made in kernel.shared:
        several = before.count(given) > 1 or after.count(made) > 1
        if several or not may_share(kernel, given, made):
            raise GraphError(f"{kernel.name}: {given} and {made} must lie apart")


def _never(extent: Any) -> bool:
    """Whether a loop does not run at all."""
    return not isinstance(extent, Size) and extent <= 0


def _body(body: list[Any], scope: _Scope) -> None:
    for stmt in body:
        if isinstance(stmt, For) and _never(stmt.extent):
            continue
        if isinstance(stmt, For):
            _body(stmt.body, scope.within(stmt.var, stmt.extent))
        elif isinstance(stmt, Set):
            _values(stmt.value, scope)
        elif isinstance(stmt, Store):
            _check(stmt, scope)
            _values(stmt.value, scope)
        elif isinstance(stmt, Let):
            _values(stmt.value, scope)
            _not_empty(stmt.limit, stmt.var, scope.kernel)
            scope = scope.within(stmt.var, stmt.limit)
        elif isinstance(stmt, When):
            _values(stmt.condition, scope)
            _body(stmt.body, scope)


def _not_empty(limit: Any, what: Any, kernel: Kernel) -> None:
    """Check that a size is not 0, or have each run check it."""
    if isinstance(limit, int) and limit > 0:
        return
    if not any(same(limit, n) for n in kernel.positive):
        raise GraphError(f"{kernel.name}: {what} is an index below {limit}")


def _values(value: Any, scope: _Scope) -> None:
    for one in subvalues([value]):
        if isinstance(one, Load):
            _check(one, scope)
        elif isinstance(one, Choice):
            name = scope.kernel.name
            raise GraphError(f"{name}: the choice at {one.at} is not settled")


def _check(place: Any, scope: _Scope) -> None:
    for i, n in zip(place.at, place.buffer.shape, strict=True):
        if is_clamped(i) is not None and same(is_clamped(i), n):
            _not_empty(n, i, scope.kernel)
            continue
        if not scope.inside(i, n):
            name = scope.kernel.name
            raise GraphError(
                f"{name}: index {i} of {place.buffer} may be outside 0 to {n}"
            )
