"""The wiring of a net: names of tops and bottoms, put in order and numbered."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from weft.errors import ArgumentError
from weft.layers.layer import Layer

PHASES = ("TRAIN", "TEST")


class Place(NamedTuple):
    """A layer in a net: what it reads (bottom), makes (top), and in which phase.

    >>> add = weft.layers.Eltwise(name="add")
    >>> weft.layers.Place(add, bottom=("a", "b"), top=("sum",)).top
    ('sum',)
    """

    layer: Layer
    bottom: tuple[str, ...]
    top: tuple[str, ...]
    phase: str | None = None


class Step(NamedTuple):
    """A layer with the numbers of the values it reads and makes."""

    layer: Layer
    ins: tuple[int, ...]
    outs: tuple[int, ...]


class Wiring(NamedTuple):
    """The steps of one phase in order; ``names`` gives each name's last value."""

    steps: list[Step]
    inputs: dict[str, int]
    outputs: dict[str, int]
    names: dict[str, int]
    size: int


def wire(places: Sequence[Place], inputs: Iterable[str], phase: str) -> Wiring:
    """Order the layers of a phase, and number the values between them."""
    names = {name: i for i, name in enumerate(inputs)}
    given, count, steps = dict(names), len(names), []
    for place in _ordered([p for p in places if p.phase in (None, phase)], names):
        ins = tuple(names[b] for b in place.bottom)
        outs = tuple(range(count, count + len(place.top)))
        for top in place.top:
            if top in names and top not in place.bottom:
                raise ArgumentError(
                    f"Net: {place.layer._title} makes {top!r}, which is made already; "
                    "only a layer that reads it may replace it (in place)"
                )
        names.update(zip(place.top, outs, strict=True))
        count += len(outs)
        steps.append(Step(place.layer, ins, outs))
    read = {i for step in steps for i in step.ins}
    made = {name: i for name, i in names.items() if i not in given.values()}
    return Wiring(
        steps,
        {name: i for name, i in given.items() if i in read},
        {name: i for name, i in made.items() if i not in read},
        names,
        count,
    )


def _ordered(places: list[Place], inputs: Iterable[str]) -> list[Place]:
    """The layers' indices in topological order; in the given order where possible."""
    known, left, out = set(inputs), list(places), []
    while left:
        ready = next((p for p in left if known.issuperset(p.bottom)), None)
        if ready is None:
            raise _stuck(left, known)
        left.remove(ready)
        known.update(ready.top)
        out.append(ready)
    return out


def _stuck(left: list[Place], known: set[str]) -> Exception:
    """The reason why none of these layers can come next."""
    coming = {top for place in left for top in place.top}
    there = ", ".join(sorted(known | coming))
    for place in left:
        for name in place.bottom:
            if name not in known and name not in coming:
                return ArgumentError(
                    f"Net: {place.layer._title} reads {name!r}, which is no input and "
                    f"which no layer makes; there are {there}"
                )
    ring = " -> ".join(str(place.layer.name) for place in _cycle(left))
    return ArgumentError(f"Net: layers read each other's tops in a cycle: {ring}")


def _cycle(left: list[Place]) -> list[Place]:
    """Layers along one cycle, the first also at the end."""
    makers: dict[str, Any] = {top: p for p in reversed(left) for top in p.top}
    path = [left[0]]
    while True:
        before = next(makers[b] for b in path[-1].bottom if b in makers)
        if any(before is p for p in path):
            start = next(i for i, p in enumerate(path) if p is before)
            return [before, *reversed(path[start:])]
        path.append(before)
