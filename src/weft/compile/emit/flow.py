"""Control flow in generated code that reads like control flow, over values.

    with loop(start, stop) as i, when(i < limit):
        ...

The builder is that of a value among the arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from weft.compile.emit import control_flow
from weft.compile.emit.control_flow import I64, i64
from weft.compile.emit.values import Pointer, Value, builder_of, operand


@contextmanager
def loop(
    start: Any, stop: Any = None, step: Any = 1, *, name: str = "i", beside: Any = None
) -> Iterator[Value]:
    """The body of ``for i in range(start, stop, step)``; gives ``i``.

    Where all of the range is known, ``beside`` is any value of the code around it.
    """
    if stop is None:
        start, stop = 0, start
    b = builder_of([start, stop, step, beside])
    first, end, by = operand(start), operand(stop), operand(step)
    with control_flow.loop(b, first, end, by, name=name) as i:
        yield Value(b, i)


@contextmanager
def when(condition: Value) -> Iterator[None]:
    """The body of ``if condition``."""
    with condition.b.if_then(condition.ir):
        yield


def if_else(condition: Value) -> AbstractContextManager[Any]:
    """Gives the bodies of ``if condition`` and of ``else``."""
    return condition.b.if_else(condition.ir)


def branch(condition: Any, yes: Callable[[], Any], no: Any = lambda: None) -> None:
    """``yes()`` if a condition holds, else ``no()``; of a known one, only one is."""
    if isinstance(condition, bool):
        (yes if condition else no)()
        return
    with if_else(condition) as (then, otherwise):
        with then:
            yes()
        with otherwise:
            no()


def either(
    condition: Value, yes: Callable[[], Value], no: Callable[[], Value]
) -> Value:
    """The value of ``yes()`` if a condition holds, else of ``no()``."""
    b, ways = condition.b, []
    with if_else(condition) as bodies:
        for body, make in zip(bodies, (yes, no), strict=True):
            with body:
                ways.append((make(), b.block))
    phi = b.phi(ways[0][0].type)
    for value, block in ways:
        phi.add_incoming(value.ir, block)
    return ways[0][0].made(phi)


def carry(
    start: Any,
    stop: Value,
    step: int,
    values: Sequence[Any],
    body: Callable[[Value, list[Any]], list[Any]],
) -> list[Any]:
    """``for i in range(start, stop, step): values = body(i, values)``."""
    b, values = stop.b, [operand(x) for x in values]
    before = b.block
    head, inside, done = (b.append_basic_block(f"k.{n}") for n in ("head", "in", "out"))
    b.branch(head)
    b.position_at_end(head)
    i = Value(b, b.phi(I64, name="k"))
    held = [Value(b, b.phi(value.type)) for value in values]
    b.cbranch((i < stop).ir, inside, done)
    b.position_at_end(inside)
    after = body(i, held)
    further = b.add(i.ir, i64(step), flags=["nsw"])
    for phi, first, later in zip(
        [i, *held], [operand(start), *values], [further, *after], strict=True
    ):
        phi.ir.add_incoming(first, before)
        phi.ir.add_incoming(operand(later), b.block)
    b.branch(head)
    b.position_at_end(done)
    return held


@contextmanager
def while_less(
    start: Any, stop: Value
) -> Iterator[tuple[Value, Callable[[Any], None]]]:
    """The body of ``while i < stop``; gives ``i`` and a function that adds to it."""
    b = stop.b
    before = b.block
    head, body, done = (b.append_basic_block(f"w.{n}") for n in ("head", "in", "out"))
    b.branch(head)
    b.position_at_end(head)
    i = Value(b, b.phi(I64))
    i.ir.add_incoming(operand(start), before)
    b.cbranch((i < stop).ir, body, done)
    b.position_at_end(body)

    def advance(step: Any) -> None:
        i.ir.add_incoming((i + step).ir, b.block)

    yield i, advance
    b.branch(head)
    b.position_at_end(done)


def choose(
    condition: Value, values: Sequence[Any], change: Callable[[], list[Any]]
) -> list[Any]:
    """``change()`` if the condition holds, else ``values``."""
    b = condition.b
    before = b.block
    with b.if_then(condition.ir):
        changed = change()
        inside = b.block
    merged = []
    for old, new in zip(values, changed, strict=True):
        first = operand(old)
        phi = b.phi(first.type)
        phi.add_incoming(first, before)
        phi.add_incoming(operand(new), inside)
        merged.append(old.made(phi) if isinstance(old, Pointer) else Value(b, phi))
    return merged
