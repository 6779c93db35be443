"""Long sequences in pieces: attention over a ring of processes.

    step 0    queries 0  keys 0     queries 1  keys 1     queries 2  keys 2
    step 1    queries 0  keys 2     queries 1  keys 0     queries 2  keys 1
    step 2    queries 0  keys 1     queries 1  keys 2     queries 2  keys 0

Every process keeps its queries, and passes keys and values on to the next (Liu et al.,
2023). What a step finds is combined by the logarithms of the rows' sums. Backward goes
round once more, with the gradients of keys and values on the way, so that no process
holds more than two pieces.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Any

import weft
from weft.autograd.function import Function
from weft.core.tensor import Tensor
from weft.distributed import nn as collectives
from weft.distributed.collectives import refuse_capture
from weft.distributed.device_mesh import DeviceMesh
from weft.distributed.groups import ProcessGroup, group_of
from weft.distributed.tensor.redistribution import gathered
from weft.errors import ArgumentError, ShapeError
from weft.nn.functional import attention as functional
from weft.ops.attention import attention_backward_op, attention_op


def ring_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    is_causal: bool = False,
    scale: float | None = None,
    group: Any = None,
) -> Tensor:
    """Attention of a sequence of which each process of a group has a piece.

    Operands are (..., rows, features), with as many rows on every process; the pieces
    are in the order of ranks.

    >>> dist = weft.distributed
    >>> dist.init_process_group(rank=0, world_size=1)
    >>> q = weft.rand(1, 2, 4, 8)
    >>> dist.tensor.ring_attention(q, q, q, is_causal=True).shape
    (1, 2, 4, 8)
    >>> dist.destroy_process_group()
    """
    found = group_of(group)
    if is_causal and query.shape[-2] != key.shape[-2]:
        raise ShapeError(
            "ring_attention: expected as many queries as keys where it is causal, got "
            f"{query.shape[-2]} and {key.shape[-2]}"
        )
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else float(scale)
    out: Tensor = _Ring.apply(query, key, value, found, is_causal, scale)
    return out


class _Ring(Function):
    in_graphs = False

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, group: ProcessGroup, causal: bool,
        scale: float,
    ) -> Tensor:  # fmt: skip
        ctx.group, ctx.causal, ctx.scale = group, causal, scale
        size, rank = group.size(), group.rank()
        total: Any = None
        lse: Any = None
        now = [k, v]
        for step in range(size):
            source = (rank - step) % size
            if not causal or source <= rank:
                part, sums = attention_op(
                    q, *now, causal=causal and source == rank, scale=scale, zeros=True
                )
                total, lse = _combined(total, lse, part.to(sums.dtype), sums)
            if step < size - 1:
                now = _passed_on(now, group)
        out: Tensor = total.to(q.dtype)
        ctx.save_for_backward(q, k, v, out, lse)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        q, k, v, out, lse = ctx.saved_tensors
        group, causal, scale = ctx.group, ctx.causal, ctx.scale
        size, rank = group.size(), group.rank()
        delta = (g.to(lse.dtype) * out.to(lse.dtype)).sum(-1)
        dq: Any = weft.zeros_like(q)
        now, grads = [k, v], [weft.zeros_like(k), weft.zeros_like(v)]
        for step in range(size):
            source = (rank - step) % size
            if not causal or source <= rank:
                slope, *more = attention_backward_op(
                    q, *now, lse, g, delta, causal=causal and source == rank,
                    scale=scale, zeros=True,
                )  # fmt: skip
                dq = dq + slope
                grads = [a + b for a, b in zip(grads, more, strict=True)]
            last = step == size - 1
            found = _passed_on(grads if last else [*now, *grads], group)
            now, grads = found[:2], found[-2:]
        return dq, *grads, None, None, None


def _combined(total: Any, lse: Any, part: Tensor, sums: Tensor) -> tuple[Any, Any]:
    """Attention to two sets of keys, from that to each and the rows' sums."""
    if total is None:
        return part, sums
    both = weft.logaddexp(lse, sums)
    old, new = (weft.exp(one - both).unsqueeze(-1) for one in (lse, sums))
    return total * old + part * new, both


def _passed_on(tensors: list[Tensor], group: ProcessGroup) -> list[Tensor]:
    """What the process before has, in one message; the next one gets these."""
    size, rank = group.size(), group.rank()
    if size == 1:
        return tensors
    flat = weft.cat([one.reshape(-1) for one in tensors])
    send, receive = [0] * size, [0] * size
    send[(rank + 1) % size] = receive[(rank - 1) % size] = flat.numel()
    found = collectives.all_to_all_single(None, flat, receive, send, group)
    pieces = found.split([one.numel() for one in tensors])
    return [p.reshape(one.shape) for p, one in zip(pieces, tensors, strict=True)]


# -- a whole model


class _Attending:
    """``scaled_dot_product_attention`` over the pieces of a group's processes."""

    def __init__(self, group: ProcessGroup) -> None:
        self.group = group

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float
    ) -> Tensor:
        lead = weft.broadcast_shapes(q.shape[:-2], k.shape[:-2], v.shape[:-2])
        q, k, v = (x.expand((*lead, *x.shape[-2:])) for x in (q, k, v))
        return ring_attention(q, k, v, causal, scale, self.group)


@contextlib.contextmanager
def context_parallel(
    mesh: DeviceMesh,
    *,
    buffers: Sequence[Tensor] | None = None,
    buffer_seq_dims: Sequence[int] | None = None,
    no_restore_buffers: Any = None,
) -> Iterator[None]:
    """A block in which tensors are this process's pieces of a sequence.

    ``buffers`` (inputs, targets, positions) are pieces of themselves, along their
    ``buffer_seq_dims``, until the block ends. ``scaled_dot_product_attention`` attends
    to the pieces of all processes of the mesh; what else is computed is computed of
    pieces.
    """
    refuse_capture("context_parallel")
    some, dims = list(buffers or ()), list(buffer_seq_dims or ())
    if mesh.ndim != 1:
        raise ArgumentError(
            f"context_parallel: expected a mesh of one dimension, got {mesh}"
        )
    if len(some) != len(dims):
        raise ArgumentError(
            "context_parallel: `seq_dims` must have the same number of elements as "
            f"`buffers`, got {len(dims)} and {len(some)}"
        )
    if functional.SEQUENCE["ring"] is not None:
        raise ArgumentError("context_parallel: there is such a block around this one")
    size, rank = mesh.size(), mesh.get_local_rank()
    for one, d in zip(some, dims, strict=True):
        if one.shape[d] % size:
            raise ShapeError(
                f"context_parallel: a sequence of {one.shape[d]} does not divide into "
                f"{size} equal pieces; pad it"
            )
    kept = {id(one) for one in no_restore_buffers or ()}
    wholes = [one.data for one in some]
    group = mesh.get_group()

    for one, d, whole in zip(some, dims, wholes, strict=True):
        one.data = whole.chunk(size, d)[rank].clone()
    # One object for a group, so that compiled functions know it again.
    functional.SEQUENCE["ring"] = vars(group).setdefault("ring", _Attending(group))
    try:
        yield
    finally:
        functional.SEQUENCE["ring"] = None
        for one, whole in zip(some, wholes, strict=True):
            if id(one) not in kept:
                one.data = whole


def context_parallel_unshard(
    mesh: DeviceMesh, buffers: Sequence[Tensor], seq_dims: Sequence[int]
) -> list[Tensor]:
    """Whole tensors from the pieces of all processes, along their sequences."""
    size = mesh.size()
    return [
        gathered(
            one.detach(), mesh.get_group(), size, d % one.ndim, one.shape[d] * size
        )
        for one, d in zip(buffers, seq_dims, strict=True)
    ]
