"""``weft.distributed.nn``: collectives that give new tensors, and have gradients.

The gradients are those of the sum of all processes' losses.
"""

from __future__ import annotations

from typing import Any

from weft.core.op import Op
from weft.core.tensor import Tensor
from weft.distributed import records
from weft.distributed.collectives import (
    ReduceOp,
    check_tensor,
    in_group,
    splits,
    way,
)
from weft.distributed.groups import ProcessGroup, group_of, line_here
from weft.errors import ArgumentError
from weft.ops.joining import cat, stack

__all__ = [
    "all_gather", "all_reduce", "all_to_all", "all_to_all_single", "broadcast",
    "gather", "reduce", "reduce_scatter", "scatter",
]  # fmt: skip


def _apply(op: Op, x: Tensor, group: ProcessGroup, **params: Any) -> Tensor:
    check_tensor(op.name, x)
    if group.rank() < 0:
        raise ArgumentError(f"{op.name}: this process is not in {group!r}")
    own = {"group": group.name, "size": group.size(), "line": line_here()}
    return op(x, **params, **own)


def all_reduce(
    tensor: Tensor, op: Any = ReduceOp.SUM, group: Any = None, *, of: str = ""
) -> Tensor:
    """The tensors of all processes, combined.

    ``of`` says what they are; an error on all processes if it differs.
    """
    found = group_of(group)
    return _apply(records.all_reduce_op, tensor, found, reduce=way(op), of=of)


def broadcast(tensor: Tensor, src: int, group: Any = None) -> Tensor:
    """The tensor of process ``src``."""
    found = group_of(group)
    return _apply(
        records.broadcast_op, tensor, found, src=in_group("broadcast", found, src)
    )


def reduce(
    tensor: Tensor, dst: int, op: Any = ReduceOp.SUM, group: Any = None
) -> Tensor:
    """The tensors of all processes, combined, on process ``dst``; zeros on others."""
    found = group_of(group)
    root = in_group("reduce", found, dst)
    return _apply(records.reduce_op, tensor, found, dst=root, reduce=way(op))


def all_gather(tensor: Tensor, group: Any = None) -> tuple[Tensor, ...]:
    """The tensors of all processes."""
    return tuple(_apply(records.all_gather_op, tensor, group_of(group)))


def gathered_rows(tensor: Tensor, group: Any = None) -> Tensor:
    """The tensors of all processes, along a new first axis."""
    return _apply(records.all_gather_op, tensor, group_of(group))


def reduced_row(rows: Tensor, op: Any = ReduceOp.SUM, group: Any = None) -> Tensor:
    """A tensor's row for each process, combined."""
    return _apply(records.reduce_scatter_op, rows, group_of(group), reduce=way(op))


def gather(tensor: Tensor, dst: int = 0, group: Any = None) -> tuple[Tensor, ...]:
    """The tensors of all processes on process ``dst``; zeros on others."""
    found = group_of(group)
    root = in_group("gather", found, dst)
    return tuple(_apply(records.gather_op, tensor, found, dst=root))


def scatter(tensors: list[Tensor], src: int = 0, group: Any = None) -> Tensor:
    """One of the tensors of process ``src`` for each; the others' give shapes only."""
    found = group_of(group)
    root = in_group("scatter", found, src)
    return _apply(records.scatter_op, stack(list(tensors)), found, src=root)


def reduce_scatter(
    output: Tensor | None,
    input_list: list[Tensor],
    op: Any = ReduceOp.SUM,
    group: Any = None,
) -> Tensor:
    """One of the lists' tensors for each process, combined; ``output`` is not used."""
    pieces = stack(list(input_list))
    return _apply(records.reduce_scatter_op, pieces, group_of(group), reduce=way(op))


def all_to_all(
    output_tensor_list: list[Tensor], input_tensor_list: list[Tensor], group: Any = None
) -> tuple[Tensor, ...]:
    """One tensor of each process; the list of outputs says their shapes."""
    send = tuple(one.numel() for one in input_tensor_list)
    receive = tuple(one.numel() for one in output_tensor_list)
    flat = cat([one.reshape(-1) for one in input_tensor_list])
    out = _apply(
        records.all_to_all_op, flat, group_of(group), send=send, receive=receive
    )
    pieces = out.split(receive)
    shapes = [one.shape for one in output_tensor_list]
    return tuple(p.reshape(s) for p, s in zip(pieces, shapes, strict=True))


def all_to_all_single(
    output: Tensor | None,
    input: Tensor,
    output_split_sizes: list[int] | None = None,
    input_split_sizes: list[int] | None = None,
    group: Any = None,
) -> Tensor:
    """The same in one tensor; without ``output``, as many rows come as go."""
    found = group_of(group)
    send = splits("all_to_all_single", input, input_split_sizes, found.size())
    like = input if output is None else output
    receive = splits("all_to_all_single", like, output_split_sizes, found.size())
    return _apply(records.all_to_all_op, input, found, send=send, receive=receive)
