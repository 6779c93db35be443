"""Collectives under PyTorch's names, which change the tensors that they are given.

Each is an operator of ``records`` whose result is copied into a tensor. With
``async_op=True`` it goes on in a thread while the program does, and is over when the
handle's ``wait()`` returns; in a captured program it is done where it stands.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from weft.autograd import no_grad
from weft.core.mode import mode
from weft.core.op import Op
from weft.core.tensor import Tensor
from weft.distributed import groups, records
from weft.distributed.groups import ProcessGroup, group_of, line_here
from weft.distributed.work import Work, seconds
from weft.errors import ArgumentError, DTypeError, ShapeError
from weft.ops.creation import zeros
from weft.ops.joining import cat, stack


class ReduceOp(enum.Enum):
    """Ways to combine what processes have."""

    SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR, PREMUL_SUM = range(9)


def way(op: Any) -> str:
    """The name that records have for a way to combine."""
    if isinstance(op, str) and op.upper() in ReduceOp.__members__:
        op = ReduceOp[op.upper()]
    if not isinstance(op, ReduceOp) or op is ReduceOp.PREMUL_SUM:
        raise ArgumentError(
            f"expected a ReduceOp other than PREMUL_SUM, such as ReduceOp.SUM, got {op}"
        )
    return op.name.lower()


def member(name: str, group: Any) -> ProcessGroup | None:
    """The group that an argument means; None, with a warning, from outside of it."""
    found = group_of(group)
    if found.rank() >= 0:
        return found
    import warnings

    warnings.warn(
        f"{name}: rank {found.world.links.rank} is not in {found!r}: nothing is done",
        stacklevel=3,
    )
    return None


def in_group(name: str, group: ProcessGroup, rank: int | None, own: Any = None) -> int:
    """The number in the group of a rank of the world; ``own`` is in the group."""
    if own is not None:
        if rank is not None:
            raise ArgumentError(
                f"{name}: expected one of a rank and a group's, got both"
            )
        if not 0 <= own < group.size():
            raise ArgumentError(f"{name}: there is no rank {own} in {group!r}")
        return int(own)
    if rank not in group.ranks:
        raise ArgumentError(f"{name}: there is no rank {rank} in {group!r}")
    return group.ranks.index(rank)


def issue(
    op: Op,
    x: Tensor,
    group: ProcessGroup,
    finish: Callable[[Tensor], Any],
    async_op: bool = False,
    **params: Any,
) -> Work | None:
    """Do a collective, now or in a thread, and then ``finish`` with its result."""
    params |= {"group": group.name, "size": group.size(), "line": line_here()}

    def unrecorded(out: Any) -> Any:
        with no_grad():
            return finish(out)

    if async_op and type(x) is Tensor and mode.capture is None:
        array, one = x._data, groups.world()
        future = one.later(lambda: Tensor(op.kernel(array, **params)))
        return Work(future, unrecorded)
    with no_grad():
        out = op(x, **params)
    unrecorded(out)
    return Work() if async_op else None


def check_tensor(name: str, x: Any) -> None:
    if not isinstance(x, Tensor):
        raise DTypeError(f"{name}: expected a tensor, got {type(x).__name__}")


def _check_list(name: str, what: str, found: Any, group: ProcessGroup) -> None:
    if not isinstance(found, (list, tuple)) or len(found) != group.size():
        count = len(found) if isinstance(found, (list, tuple)) else type(found).__name__
        raise ArgumentError(
            f"{name}: expected {what} to be a list of {group.size()} tensors, one for "
            f"each process, got {count}"
        )
    for one in found:
        check_tensor(name, one)


def _into(name: str, targets: Sequence[Tensor]) -> Callable[[Tensor], Any]:
    """What copies the pieces of a result into tensors."""

    def finish(out: Tensor) -> Any:
        for target, piece in zip(targets, out, strict=True):
            if target.shape != piece.shape:
                raise ShapeError(
                    f"{name}: expected an output of shape {tuple(piece.shape)}, got "
                    f"{tuple(target.shape)}"
                )
            target.copy_(piece)
        return list(targets)

    return finish


def _reshaped(name: str, target: Tensor, size: Any) -> Callable[[Tensor], Any]:
    """What copies a result into a tensor of as many elements."""
    if target.numel() != size:
        raise ShapeError(
            f"{name}: expected an output of {size} elements, got shape "
            f"{tuple(target.shape)}"
        )
    return lambda out: [target.copy_(out.reshape(target.shape))]


# -- all get the same


def all_reduce(
    tensor: Tensor, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """Combine the tensors of all processes, for all of them."""
    check_tensor("all_reduce", tensor)
    found = member("all_reduce", group)
    if found is None:
        return None
    return issue(
        records.all_reduce_op, tensor, found, lambda out: [tensor.copy_(out)], async_op,
        reduce=way(op), of="",
    )  # fmt: skip


def broadcast(
    tensor: Tensor,
    src: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:
    """Give all processes the tensor of one."""
    check_tensor("broadcast", tensor)
    found = member("broadcast", group)
    if found is None:
        return None
    root = in_group("broadcast", found, src, group_src)
    return issue(
        records.broadcast_op, tensor, found, lambda out: [tensor.copy_(out)], async_op,
        src=root,
    )  # fmt: skip


def all_gather(
    tensor_list: list[Tensor], tensor: Tensor, group: Any = None, async_op: bool = False
) -> Work | None:
    """Give all processes the tensors of all."""
    check_tensor("all_gather", tensor)
    found = member("all_gather", group)
    if found is None:
        return None
    _check_list("all_gather", "tensor_list", tensor_list, found)
    finish = _into("all_gather", tensor_list)
    return issue(records.all_gather_op, tensor, found, finish, async_op)


def all_gather_into_tensor(
    output_tensor: Tensor,
    input_tensor: Tensor,
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """The same in one tensor: one after the other, or along a new first axis."""
    name = "all_gather_into_tensor"
    check_tensor(name, input_tensor)
    check_tensor(name, output_tensor)
    found = member(name, group)
    if found is None:
        return None
    finish = _reshaped(name, output_tensor, input_tensor.numel() * found.size())
    return issue(records.all_gather_op, input_tensor, found, finish, async_op)


# -- one gets what all have


def reduce(
    tensor: Tensor,
    dst: int | None = None,
    op: Any = ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """Combine the tensors of all processes, for one; those of the others stay."""
    check_tensor("reduce", tensor)
    found = member("reduce", group)
    if found is None:
        return None
    root = in_group("reduce", found, dst, group_dst)
    mine = found.rank() == root
    return issue(
        records.reduce_op, tensor, found,
        lambda out: [tensor.copy_(out) if mine else tensor], async_op,
        dst=root, reduce=way(op),
    )  # fmt: skip


def gather(
    tensor: Tensor,
    gather_list: list[Tensor] | None = None,
    dst: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """Give one process the tensors of all."""
    check_tensor("gather", tensor)
    found = member("gather", group)
    if found is None:
        return None
    root = in_group("gather", found, 0 if dst is group_dst is None else dst, group_dst)
    mine = found.rank() == root
    if mine:
        _check_list("gather", "gather_list", gather_list, found)
    elif gather_list:
        raise ArgumentError(
            "gather: expected a gather_list from the process that gets it only, but "
            f"this is rank {found.rank()} and not {root}"
        )
    finish = _into("gather", gather_list or []) if mine else lambda out: []
    return issue(records.gather_op, tensor, found, finish, async_op, dst=root)


# -- each gets a piece


def scatter(
    tensor: Tensor,
    scatter_list: list[Tensor] | None = None,
    src: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:
    """Give each process one of the tensors that one has."""
    check_tensor("scatter", tensor)
    found = member("scatter", group)
    if found is None:
        return None
    root = in_group("scatter", found, 0 if src is group_src is None else src, group_src)
    if found.rank() == root:
        _check_list("scatter", "scatter_list", scatter_list, found)
        pieces = stack(list(scatter_list or ()))
    elif scatter_list:
        raise ArgumentError(
            "scatter: expected a scatter_list from the process that gives it only, but "
            f"this is rank {found.rank()} and not {root}"
        )
    else:
        pieces = zeros((), dtype=tensor.dtype).expand((found.size(), *tensor.shape))
    return issue(
        records.scatter_op, pieces, found, lambda out: [tensor.copy_(out)], async_op,
        src=root,
    )  # fmt: skip


def reduce_scatter(
    output: Tensor,
    input_list: list[Tensor],
    op: Any = ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """Combine lists of tensors, and give each process one of the list."""
    check_tensor("reduce_scatter", output)
    found = member("reduce_scatter", group)
    if found is None:
        return None
    _check_list("reduce_scatter", "input_list", input_list, found)
    return issue(
        records.reduce_scatter_op, stack(list(input_list)), found,
        lambda out: [output.copy_(out)], async_op, reduce=way(op),
    )  # fmt: skip


def reduce_scatter_tensor(
    output: Tensor,
    input: Tensor,
    op: Any = ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """The same with the list as one tensor."""
    name = "reduce_scatter_tensor"
    check_tensor(name, input)
    check_tensor(name, output)
    found = member(name, group)
    if found is None:
        return None
    if input.numel() != output.numel() * found.size():
        raise ShapeError(
            f"{name}: expected an input of {output.numel() * found.size()} elements, "
            f"{found.size()} times the output's, got shape {tuple(input.shape)}"
        )
    pieces = input.reshape(found.size(), *output.shape)
    return issue(
        records.reduce_scatter_op, pieces, found, lambda out: [output.copy_(out)],
        async_op, reduce=way(op),
    )  # fmt: skip


def all_to_all(
    output_tensor_list: list[Tensor],
    input_tensor_list: list[Tensor],
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """Give each process one tensor of each."""
    found = member("all_to_all", group)
    if found is None:
        return None
    _check_list("all_to_all", "input_tensor_list", input_tensor_list, found)
    _check_list("all_to_all", "output_tensor_list", output_tensor_list, found)
    send = tuple(one.numel() for one in input_tensor_list)
    receive = tuple(one.numel() for one in output_tensor_list)

    def finish(out: Tensor) -> Any:
        for target, piece in zip(output_tensor_list, out.split(receive), strict=True):
            target.copy_(piece.reshape(target.shape))
        return output_tensor_list

    return issue(
        records.all_to_all_op, cat([one.reshape(-1) for one in input_tensor_list]),
        found, finish, async_op, send=send, receive=receive,
    )  # fmt: skip


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: list[int] | None = None,
    input_split_sizes: list[int] | None = None,
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """The same with the lists as one tensor each, cut along the first axis."""
    name = "all_to_all_single"
    check_tensor(name, input)
    check_tensor(name, output)
    found = member(name, group)
    if found is None:
        return None
    send = splits(name, input, input_split_sizes, found.size())
    receive = splits(name, output, output_split_sizes, found.size())
    return issue(
        records.all_to_all_op, input, found, lambda out: [output.copy_(out)], async_op,
        send=send, receive=receive,
    )  # fmt: skip


def splits(name: str, x: Tensor, sizes: Any, count: int) -> tuple[int, ...]:
    """How many rows go to, or come from, each process."""
    if sizes:
        return tuple(sizes)
    rows = x.shape[0] if x.ndim else 0
    if rows % count:
        raise ShapeError(
            f"{name}: {rows} rows are no multiple of {count} processes; pass the split "
            "sizes"
        )
    return (rows // count,) * count


# -- no tensors


def barrier(
    group: Any = None, async_op: bool = False, device_ids: Any = None
) -> Work | None:
    """Wait until all processes of the group are here."""
    return _meet("barrier", group, async_op, None)


def monitored_barrier(
    group: Any = None,
    timeout: timedelta | float | None = None,
    wait_all_ranks: bool = False,
) -> None:
    """The same with a timeout of its own; the error names who is missing."""
    _meet("monitored_barrier", group, False, seconds(timeout))


def _meet(name: str, group: Any, async_op: bool, timeout: float | None) -> Work | None:
    refuse_capture(name)
    found = member(name, group)
    if found is None:
        return None
    one, line = found.world, line_here()

    def meet() -> None:
        found.call(name, None, {}, line, timeout).exchange()

    if async_op:
        return Work(one.later(meet))
    one.run(meet)
    return None


def refuse_capture(name: str) -> None:
    """Refuse a call that is no operator in a program that is captured."""
    if mode.capture is not None:
        from weft import late

        raise late.find("refusal")(
            f"{name} is no part of a program; call it outside of the captured function"
        )
