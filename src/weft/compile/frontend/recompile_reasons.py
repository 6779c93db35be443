"""Reasons for a recompilation: the argument or setting that differs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from weft.core.device import cpu
from weft.dtype import DType

Shapes = Sequence[tuple[int, ...]]
SETTINGS = (
    "recording gradients", "inference mode", "the default dtype", "strict_ieee",
    "batch_invariant", "being part of a capture", "detect_anomaly", "autocast",
)  # fmt: skip


def reason(
    seen: Mapping[Any, Sequence[Shapes]],
    key: Any,
    shapes: Shapes,
    labels: Sequence[str],
    tensors: Sequence[str],
) -> str:
    """The difference between a call and the earlier one that is most like it.

    A key is (structure of the arguments, kind of each leaf, settings); ``labels``
    name the leaves and ``tensors`` those that have shapes.
    """
    if not seen:
        return "first call"
    if key in seen:
        return "other sizes: " + _sizes(seen[key][-1], shapes, tensors)
    alike = [other for other in seen if other[0] == key[0]]
    if not alike:
        return "other arguments: their number or structure"
    nearest = min(reversed(alike), key=lambda other: len(_differences(other, key)))
    names = [*labels, *SETTINGS]
    return "other arguments: " + _some(
        f"{names[k]} is {_kind(now)}, was {_kind(was)}"
        for k, was, now in _differences(nearest, key)
    )


def advice(whys: Sequence[str]) -> str:
    """Advice on the value that keeps changing, by the reasons of past compilations."""
    last = whys[-1]
    if last.startswith("other sizes"):
        return "Sizes keep changing; dynamic=True makes all of them symbolic at once"
    if last.startswith("other arguments: "):
        name = last.removeprefix("other arguments: ").partition(" is ")[0]
        return (
            f"The argument {name} keeps changing; pass it as a tensor, whose values "
            "need no compilation"
        )
    name = last.split(" ")[0]
    return (
        f"{name} keeps changing; make it an argument of the function, as a tensor "
        "(weft.tensor(...)), whose values need no compilation"
    )


def _sizes(before: Shapes, shapes: Shapes, names: Sequence[str]) -> str:
    rows = zip(names, shapes, before, strict=True)
    changed = [f"{name} is {now}, was {was}" for name, now, was in rows if now != was]
    return _some(changed) if changed else "an assumption about them does not hold"


def _differences(was: Any, now: Any) -> list[tuple[int, Any, Any]]:
    pairs = zip((*was[1], *was[2]), (*now[1], *now[2]), strict=True)
    return [(k, a, b) for k, (a, b) in enumerate(pairs) if a != b]


def _kind(kind: Any) -> str:
    """A leaf's kind, or a setting, as text."""
    if kind == (float,):
        return "any float"
    if not isinstance(kind, tuple):
        return "another object" if type(kind) is int else str(kind)
    first, *rest = kind
    if isinstance(first, DType):
        dimensions, *more = rest
        text = f"{first.name} of {dimensions} dimensions"
        recorded, device, hooked = more or (False, cpu, False)
        text += f" on {device}" * (device is not cpu)
        return text + ", with a gradient" * recorded + ", with a hook" * hooked
    return f"{rest[0]!r:.60}"


def _some(texts: Iterable[str], most: int = 3) -> str:
    every = list(texts)
    more = f"; and {len(every) - most} more" if len(every) > most else ""
    return "; ".join(every[:most]) + more
