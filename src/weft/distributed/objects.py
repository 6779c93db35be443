"""Collectives of plain data, under PyTorch's names; see ``plain`` for what that is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.distributed.collectives import in_group, member, refuse_capture
from weft.distributed.groups import ProcessGroup, line_here
from weft.distributed.links import Message
from weft.distributed.plain import decode, encode
from weft.errors import ArgumentError


def _exchange(
    name: str,
    group: ProcessGroup,
    payloads: Callable[[int], np.ndarray | None],
    **details: Any,
) -> list[Message | None]:
    refuse_capture(name)
    line = line_here()

    def work() -> Any:
        return group.call(name, None, details, line).exchange(payloads)

    return group.world.run(work)


def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
    """Give all processes the data of all."""
    name = "all_gather_object"
    found = member(name, group)
    if found is None:
        return
    _check_length(name, "object_list", object_list, found)
    data = encode(obj)
    for k, one in enumerate(_exchange(name, found, lambda rank: data)):
        object_list[k] = decode(data if one is None else one.payload)


def gather_object(
    obj: Any,
    object_gather_list: list[Any] | None = None,
    dst: int | None = None,
    group: Any = None,
    group_dst: int | None = None,
) -> None:
    """Give one process the data of all."""
    name = "gather_object"
    found = member(name, group)
    if found is None:
        return
    root = in_group(name, found, 0 if dst is group_dst is None else dst, group_dst)
    data = encode(obj)
    mine = found.rank() == root
    if mine:
        _check_length(name, "object_gather_list", object_gather_list, found)
    came = _exchange(name, found, lambda k: data if k == root else None, dst=root)
    if mine and object_gather_list is not None:
        for k, one in enumerate(came):
            object_gather_list[k] = decode(data if one is None else one.payload)


def broadcast_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: Any = None,
    device: Any = None,
    group_src: int | None = None,
) -> None:
    """Give all processes the data of one."""
    name = "broadcast_object_list"
    found = member(name, group)
    if found is None:
        return
    root = in_group(name, found, 0 if src is group_src is None else src, group_src)
    mine = found.rank() == root
    data = encode(list(object_list)) if mine else None
    details = {"src": root, "objects": len(object_list)}
    message = _exchange(name, found, lambda k: data, **details)[root]
    if message is not None:
        object_list[:] = decode(message.payload)


def scatter_object_list(
    scatter_object_output_list: list[Any],
    scatter_object_input_list: list[Any] | None = None,
    src: int | None = None,
    group: Any = None,
    group_src: int | None = None,
) -> None:
    """Give each process one item of a list that one has."""
    name = "scatter_object_list"
    found = member(name, group)
    if found is None:
        return
    root = in_group(name, found, 0 if src is group_src is None else src, group_src)
    if not scatter_object_output_list:
        raise ArgumentError(f"{name}: expected an output list with an item to replace")
    mine = found.rank() == root
    given: list[Any] = []
    if mine:
        _check_length(name, "the input list", scatter_object_input_list, found)
        given = [encode(one) for one in scatter_object_input_list or ()]
    message = _exchange(name, found, lambda k: given[k] if mine else None, src=root)
    here = message[root]
    data = given[root] if here is None else here.payload
    scatter_object_output_list[0] = decode(data)


def _check_length(name: str, what: str, found: Any, group: ProcessGroup) -> None:
    if not isinstance(found, list) or len(found) != group.size():
        raise ArgumentError(
            f"{name}: expected {what} to have {group.size()} items, one for each "
            f"process, got {found if found is None else len(found)}"
        )
