"""One module in several processes, each with its share of the batch.

    backward        g9  g8  g7 | g6  g5 | g4 … g0      gradients, the last layers' first
    all_reduce              └ bucket 0 ┘ └ bucket 1 ┘  while backward goes on

Gradients are averaged in buckets: once all of a bucket are there, and all buckets
before it are on their way, it is sent. A parameter without a gradient counts as zero
where another process has one, and keeps none where nobody has. In a captured step, the
gradients are averaged where backward ends.
"""

from __future__ import annotations

import contextlib
import weakref
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import weft
from weft import Tensor, late, tree_flatten
from weft.autograd.engine import at_end
from weft.core.mode import mode
from weft.errors import ArgumentError, DeviceError
from weft.nn.module import Module

FIRST = 1 << 20  # bytes of the first bucket, so that sending begins early
MEGABYTES = 25  # of the others


class DistributedDataParallel(Module):
    """A module whose gradients are those of all processes' batches, averaged.

    All processes begin with the parameters and buffers of rank 0. Start the program
    with ``weft run -n 4 train.py``; see ``docs/distributed.md``.
    """

    def __init__(
        self,
        module: Module,
        device_ids: Any = None,
        output_device: Any = None,
        dim: int = 0,
        broadcast_buffers: bool = True,
        init_sync: bool = True,
        process_group: Any = None,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        check_reduction: bool = False,
        gradient_as_bucket_view: bool = False,
        static_graph: bool = False,
    ) -> None:
        super().__init__()
        if device_ids:
            raise DeviceError(
                "DistributedDataParallel: expected no device_ids, as tensors are on "
                f"the CPU, got {list(device_ids)}; leave them out"
            )
        self.module = module
        self.process_group, self.dim = process_group, dim
        self.device_ids, self.output_device = None, output_device
        self.broadcast_buffers = broadcast_buffers
        self.find_unused_parameters = find_unused_parameters
        self.require_backward_grad_sync = True
        left_out = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
        named = [(n, p) for n, p in module.named_parameters() if n not in left_out]
        wanting = [(n, p) for n, p in named if p.requires_grad]
        if not wanting:
            raise RuntimeError(
                "DistributedDataParallel is not needed when a module doesn't have any "
                "parameters that require a gradient."
            )
        dist = late.find("distributed")
        dist.get_rank(process_group)  # an error if there is no group
        self._buffers_shared = [
            b for n, b in module.named_buffers() if n not in left_out
        ]
        if init_sync:
            _agree(dist, process_group, named)
            share([p for _, p in named] + self._buffers_shared, process_group)
        cap = MEGABYTES if bucket_cap_mb is None else bucket_cap_mb
        self._reducer = _Reducer(self, dist, wanting, int(cap * (1 << 20)))

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        syncs = weft.is_grad_enabled() and self._reducer.syncs
        if self.broadcast_buffers and syncs and self._buffers_shared:
            share(self._buffers_shared, self.process_group)
        out = self.module(*inputs, **kwargs)
        if mode.capture is None and weft.is_grad_enabled():
            self._reducer.active = self.require_backward_grad_sync
            if syncs:
                self._reducer.watch(out)
        return out

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Add gradients up without averaging them, until a pass outside of this."""
        before = self.require_backward_grad_sync
        self.require_backward_grad_sync = False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before


def _agree(dist: Any, group: Any, named: Sequence[tuple[str, Tensor]]) -> None:
    """Raise an error on all processes if their modules differ."""
    mine = [[name, list(p.shape), p.dtype.name] for name, p in named]
    every: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(every, mine, group)
    for rank, theirs in enumerate(every):
        for k, (first, other) in enumerate(_pairs(every[0], theirs)):
            if first != other:
                raise ArgumentError(
                    f"DistributedDataParallel: parameter {k} is {_shown(first)} on "
                    f"rank 0, but {_shown(other)} on rank {rank}; all processes need "
                    "the same module"
                )


def _pairs(one: list[Any], other: list[Any]) -> Iterator[tuple[Any, Any]]:
    for k in range(max(len(one), len(other))):
        yield one[k] if k < len(one) else None, other[k] if k < len(other) else None


def _shown(parameter: Any) -> str:
    if parameter is None:
        return "not there"
    name, shape, dtype = parameter
    return f"{name!r}, {dtype}{shape}"


def share(tensors: Sequence[Tensor], group: Any) -> None:
    """Give all processes the first one's tensors, those of a dtype in one message."""
    dist = late.find("distributed")
    kinds: dict[Any, list[Tensor]] = {}
    for one in tensors:
        kinds.setdefault(one.dtype, []).append(one)
    with weft.no_grad():
        for some in kinds.values():
            some = [one._part for one in some]
            flat = weft.cat([one.detach().reshape(-1) for one in some])
            dist.broadcast(flat, group=group, group_src=0)
            pieces = flat.split([one.numel() for one in some])
            for one, piece in zip(some, pieces, strict=True):
                one.copy_(piece.reshape(one.shape))


class _Bucket:
    """Tensors whose gradients are sent together."""

    def __init__(self, parameters: list[Tensor]) -> None:
        self.parameters = parameters
        self.counts = [p._part.numel() for p in parameters]
        self.left = len(parameters)
        self.flat: Any = None
        self.work: Any = None


class _Reducer:
    """Averages gradients over all processes, bucket by bucket."""

    def __init__(
        self,
        owner: DistributedDataParallel,
        dist: Any,
        named: Sequence[tuple[str, Tensor]],
        cap: int,
    ) -> None:
        self.owner = weakref.proxy(owner)
        self.dist, self.group = dist, owner.process_group
        self.size = dist.get_world_size(self.group)
        self.active = True  # whether the gradients of the last forward are averaged
        self.names = {p: name for name, p in named}
        self.buckets = [
            _Bucket(some) for some in _cut([p for _, p in named][::-1], cap)
        ]
        self.place = {p: b for b in self.buckets for p in b.parameters}
        self.queued = False  # whether the end of a backward is awaited
        self.ready: set[Tensor] = set()
        self.next = 0  # the first bucket that is not sent
        for _, p in named:
            p.register_post_accumulate_grad_hook(self._arrived)

    def watch(self, out: Any) -> None:
        """Take part in the backward from an output, whatever it depends on."""
        for one in tree_flatten(out)[0]:
            if isinstance(one, Tensor) and one.requires_grad and not one.is_leaf:
                one.register_hook(lambda g: self._begin())

    def _begin(self) -> None:
        if self.active and self.syncs and not self.queued:
            self.queued, self.next = True, 0
            self.ready.clear()
            for bucket in self.buckets:
                bucket.left, bucket.work = len(bucket.parameters), None
            at_end(self._finish)

    @property
    def syncs(self) -> bool:
        """Whether gradients are averaged now; alone there is nothing to average."""
        return self.owner.require_backward_grad_sync and self.size > 1

    def average(self) -> None:
        """Average the gradients that there are now."""
        if self.size > 1:
            self.next = 0
            self._finish()

    def _arrived(self, p: Tensor) -> None:
        if not (self.active and self.syncs):
            return
        if mode.capture is not None:
            at_end(self._captured)
            return
        self._begin()
        if p not in self.ready:
            self.ready.add(p)
            self.place[p].left -= 1
            while self.next < len(self.buckets) and not self.buckets[self.next].left:
                self._send()

    def _send(self) -> None:
        """Send the next bucket: gradients, and which of them there are."""
        bucket = self.buckets[self.next]
        self.next += 1
        with weft.no_grad():
            like = bucket.parameters[0]
            grads = [_grad(p).reshape(-1) for p in bucket.parameters]
            there = [float(p.grad is not None) for p in bucket.parameters]
            flags = weft.tensor(there, dtype=like.dtype)
            bucket.flat = weft.cat([*grads, flags])
        bucket.work = self.dist.all_reduce(
            bucket.flat, self.dist.ReduceOp.AVG, self.group, async_op=True
        )

    def _finish(self) -> None:
        self.queued = False
        while self.next < len(self.buckets):
            self._send()
        for bucket in self.buckets:
            bucket.work.wait()
            *pieces, flags = bucket.flat.split([*bucket.counts, len(bucket.counts)])
            for p, piece, there in zip(
                bucket.parameters, pieces, flags.tolist(), strict=True
            ):
                if there:
                    _set(p, piece)
            bucket.flat = bucket.work = None

    def _captured(self) -> None:
        """Average the gradients that a captured backward has made.

        Which parameters have one is the same in every run of the program, and has to be
        the same in all processes: the call says which, so that others are an error.
        """
        for bucket in self.buckets:
            some = [p for p in bucket.parameters if p.grad is not None]
            if not some:
                continue
            names = ",".join(self.names[p] for p in some)
            with weft.no_grad():
                flat = weft.cat([_grad(p).reshape(-1) for p in some])
                flat = late.find("collective_functions").all_reduce(
                    flat, self.dist.ReduceOp.AVG, self.group,
                    of=f"{len(some)} parameters, {zlib.crc32(names.encode()):08x}",
                )  # fmt: skip
                for p, piece in zip(
                    some, flat.split([p._part.numel() for p in some]), strict=True
                ):
                    _set(p, piece)


def _grad(p: Tensor) -> Tensor:
    """A parameter's gradient; zeros if it has none."""
    return weft.zeros_like(p._part) if p.grad is None else p.grad._part


def _set(p: Tensor, piece: Tensor) -> None:
    with weft.no_grad():
        if p.grad is None:
            p._part.grad = piece.reshape(p._part.shape).clone()
        else:
            p.grad._part.copy_(piece.reshape(p._part.shape))


def _cut(parameters: Sequence[Tensor], cap: int) -> Iterator[list[Tensor]]:
    """Cut a list of parameters into buckets, each of one dtype."""
    some: list[Tensor] = []
    size, most = 0, min(FIRST, cap)
    for p in parameters:
        if some and (p.dtype != some[0].dtype or size + p.nbytes > most):
            yield some
            some, size, most = [], 0, cap
        some.append(p)
        size += p.nbytes
    yield some
