"""Styles that a model's layers allow, found by the rules of its operators.

    up → gelu → down        a linear layer's columns in parts stay so through operators
    q ┐                     whose records say that they divide, until all of them end in
    k ┼ attention → out     linear layers, whose rows are then in parts
    v ┘

Layers that read one value begin together, or else each by itself. Where an operator
does not divide, its layers are computed by all processes.
"""

from __future__ import annotations

from typing import NamedTuple

from weft import nn
from weft.core.op import TensorType
from weft.distributed.calls import Call, Calls, Held, Ref
from weft.distributed.tensor.parallel.styles import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
)
from weft.nn import Module
from weft.ops import dividing


class Found(NamedTuple):
    """Layers by path whose columns, and whose rows, are in parts.

    ``values`` are the numbers of what is in parts between them.
    """

    columns: tuple[str, ...]
    rows: tuple[str, ...]
    values: frozenset[int]

    def styles(self) -> dict[str, ParallelStyle]:
        """A plan for ``parallelize_module``."""
        begin = {path: ColwiseParallel(use_local_output=False) for path in self.columns}
        return {**begin, **{path: RowwiseParallel() for path in self.rows}}


def linear_layers(module: Module) -> dict[str, nn.Linear]:
    """The linear layers of a model whose parameters are theirs alone."""
    uses: dict[int, int] = {}
    for one in module.modules():
        for p in one._parameters.values():
            uses[id(p)] = uses.get(id(p), 0) + 1
    return {
        path: one
        for path, one in module.named_modules()
        if type(one) is nn.Linear
        and all(uses[id(p)] == 1 for p in one._parameters.values() if p is not None)
    }


def found_styles(calls: Calls, linear: dict[str, nn.Linear], size: int) -> Found:
    """The layers of which ``size`` processes can have a part each.

    ``calls`` are those of the model with its linear layers as a whole.
    """
    columns: list[str] = []
    rows: list[str] = []
    values: set[int] = set()
    counts = [call.path for call in calls.calls]
    known = {path for path in linear if counts.count(path) == 1}
    groups: dict[int, list[Call]] = {}
    for call in calls.calls:
        if call.path in known and linear[call.path].out_features >= size:
            ins = [one for one in call.reads() if isinstance(one, Ref)]
            if len(ins) == 1:
                groups.setdefault(ins[0].number, []).append(call)
    for group in groups.values():
        for some in [group, *([call] for call in group if len(group) > 1)]:
            taken = {*columns, *rows}
            if taken & {call.path for call in some}:
                continue
            end = _followed(calls, known - taken, some, size)
            if end is not None:
                columns += [call.path for call in some]
                rows += end[0]
                values |= end[1]
    return Found(tuple(columns), tuple(rows), frozenset(values))


def _followed(
    calls: Calls, known: set[str], group: list[Call], size: int
) -> tuple[list[str], set[int]] | None:
    """Where columns in parts end, and what is in parts on the way; None if nowhere."""
    begin = {call.path for call in group}
    parts: dict[int, int] = {}  # values in parts, and along which axis
    rows: list[str] = []
    for call in calls.calls:
        if call.path in begin:
            (number,) = call.outs
            parts[number] = len(calls.types[number].shape) - 1
            continue
        read = [one for one in call.reads() if isinstance(one, Ref)]
        cut = [one.number for one in read if one.number in parts]
        if not cut:
            continue
        if call.op is None:
            (number, *more) = cut
            last = len(calls.types[number].shape) - 1
            if more or call.path not in known or parts[number] != last:
                return None
            rows.append(call.path)
        else:
            axes = _through(calls, call, parts, size)
            if axes is None:
                return None
            parts.update(zip(call.outs, axes, strict=True))
    if not rows or calls.outputs() & set(parts):
        return None
    return rows, set(parts)


def _through(
    calls: Calls, call: Call, parts: dict[int, int], size: int
) -> list[int] | None:
    """The axes along which an operator's results are in parts; None if it sends."""
    assert call.op is not None
    entries: list[int | None] = []
    types: list[object] = []
    for one in call.args:
        number = one.number if isinstance(one, Ref) else None
        if isinstance(one, Held) or hasattr(one, "shape"):
            return None  # a tensor that all have: it would have to be cut
        entries.append(None if number is None else parts.get(number))
        types.append(one if number is None else calls.types[number])
        if number is not None and number not in parts and _large(calls.types[number]):
            return None
    facts = call.op.facts
    if facts.random or facts.effect:
        return None
    outs = [calls.types[number] for number in call.outs]
    out = outs[0] if len(outs) == 1 else tuple(outs)
    for ins, results in dividing.ways(
        facts, call.op.linear, size, out, types, call.kwargs
    ):
        whole = all(isinstance(axis, int) for axis in results)
        if list(ins) == entries and whole:
            return [axis for axis in results if isinstance(axis, int)]
    return None


def _large(kind: TensorType) -> bool:
    return any(n != 1 for n in kind.shape)
