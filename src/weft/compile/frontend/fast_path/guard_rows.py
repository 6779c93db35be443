"""Rows for the Python values a specialization read, and its variables' memory."""

from __future__ import annotations

from collections.abc import Callable
from operator import is_
from types import FunctionType
from typing import Any

from weft.compile.frontend.fast_path.guard_table import Table, Unfit
from weft.compile.frontend.guards.checks import (
    MISSING,
    CellWatch,
    FieldsWatch,
    Guards,
    ItemsWatch,
    KindWatch,
    Watch,
    WholeWatch,
)
from weft.core.tensor import DeviceTensor, Tensor
from weft.graph.state_cells import Cell, GradCell, Guard, NumberCell, SlotCell, SumCell


def tell_reads(reads: Guards, table: Table) -> list[Callable[[], bool]]:
    """Add rows for all that was read; return checks for what rows cannot express."""
    table.item(vars(reads.handles), "_next", reads._changes)
    left: list[Any] = [*reads.arrays]
    for one, count in zip(reads.sized, reads._lengths, strict=True):
        try:
            table.length(one.source, count)
        except Unfit:
            left.append(one)
    for one in reads.watches:
        try:
            _tell(one, table)
        except Unfit:
            left.append(one)
    watches = [one for one in left if isinstance(one, Watch)]
    sized = [one for one in left if not isinstance(one, Watch)]
    return [Guards(watches, sized, [], {}).holds] if left else []


def _tell(watch: Watch, table: Table) -> None:
    source, values = watch.source, watch.values
    if type(watch) is CellWatch:
        table.contents(source, values[0])
    elif type(watch) is KindWatch:
        table.kind(source, values[0])
    elif type(watch) is FieldsWatch:
        kind = type if isinstance(source, type) else FunctionType
        table.fields(source, kind, dict(zip(watch.fields, values, strict=True)))
    elif type(watch) is ItemsWatch:
        known = dict(zip(watch.keys, values, strict=False))
        if type(source) is list:
            table.items(source, known, len(source))
        else:
            for key, value in known.items():
                table.item(source, key, value)
    elif isinstance(watch, WholeWatch) and type(source) is list:
        table.items(source, dict(enumerate(values)), len(values))
    elif isinstance(watch, WholeWatch):
        table.same(source, lambda: _identical(list(watch.get(source)), values))
    else:
        raise Unfit


def _identical(now: list[Any], then: list[Any]) -> bool:
    return len(now) == len(then) and all(map(is_, now, then))


def tell_guards(guards: list[Guard], table: Table) -> list[Callable[[], bool]]:
    """Add rows for what operators and optimizers have read, as ``tell_reads`` does."""
    left: list[Callable[[], bool]] = []
    for guard in guards:
        if not guard.on:
            left.append(guard.holds)
        for source, key, value in guard.on:
            if type(source) is list:
                table.items(source, dict(enumerate(value)), len(value))
            elif isinstance(source, Tensor):
                tell_attribute(source, key, value, table)
            else:
                table.item(source, key, value)
    return left


def tell_attribute(tensor: Any, name: str, value: Any, table: Table) -> None:
    """Add a row for an attribute of a tensor of values, its own or its class's."""
    if type(tensor) not in (Tensor, DeviceTensor):
        raise Unfit
    own = vars(tensor)
    of_class = name not in own and value is getattr(Tensor, name, MISSING)
    table.item(own, name, MISSING if of_class else value)


def tell_cell(cell: Cell, array: Any, table: Table) -> None:
    """Add rows for the memory of a variable, or for the value of a number."""
    if isinstance(cell, NumberCell):
        source, key = cell.on
        table.item(source, key, source[key])
    elif isinstance(cell, SlotCell):
        table.item(cell.slots, cell.key, cell.tensor)
        tell_attribute(cell.tensor, "_data", array, table)
    elif isinstance(cell, (GradCell, SumCell)):
        owner = cell.tensor if isinstance(cell, GradCell) else cell.owner
        tell_attribute(owner, "grad", owner.grad, table)
        tell_attribute(owner.grad, "_data", array, table)
    elif type(cell) is Cell:
        tell_attribute(cell.tensor, "_data", array, table)
    else:
        raise Unfit
