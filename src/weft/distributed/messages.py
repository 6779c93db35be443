"""Tensors from one process to one other, under PyTorch's names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from weft.autograd import no_grad
from weft.core.tensor import Tensor
from weft.distributed.collectives import check_tensor, in_group, member, refuse_capture
from weft.distributed.errors import DistBackendError
from weft.distributed.exchange import Exchange, describe
from weft.distributed.groups import ProcessGroup, line_here
from weft.distributed.links import Links, Message
from weft.distributed.work import Work
from weft.dtype import as_dtype
from weft.ops.creation import zeros


class _Receive(Exchange):
    """What waits for a message of one process, or of any of several."""

    def __init__(
        self, group: ProcessGroup, ranks: Sequence[int], call: Any, tag: int
    ) -> None:
        super().__init__(group.world.links, ranks, call, group.timeout)
        self.world = group.world
        self.key = ("message", group.name, tag)

    def receive(self) -> tuple[int, Message]:
        try:
            with self.world.noted(self.call["operator"], 0):
                self.links.wait(self._complete, self._look)
        finally:
            if self.told:
                self.links.tell({"kind": "status", "waits": None})
        ((rank, message),) = self.found.items()
        return rank, message

    def _complete(self) -> bool:
        for rank in self.others if not self.found else ():
            message = self.links.take((rank, *self.key))
            if message is not None:
                self.found[rank] = message
                break
        return bool(self.found)

    @property
    def there(self) -> bool:
        """Whether it has come."""
        return any((rank, *self.key) in self.links.inbox for rank in self.others)

    @property
    def missing(self) -> list[int]:
        return [] if self.found else self.others

    def _gone(self) -> list[int]:
        gone = super()._gone()
        return gone if len(gone) == len(self.others) else []


def _call(name: str, group: ProcessGroup, x: Tensor, **details: Any) -> dict[str, Any]:
    group.world.calls += 1
    return {"number": group.world.calls, "operator": name, "group": group.name,
            "shape": list(x.shape), "dtype": x.dtype.name, "with": details,
            "line": line_here()}  # fmt: skip


# -- sending


class _Sending(Work):
    """A message on its way."""

    def __init__(self, links: Links, rank: int) -> None:
        super().__init__()
        self._links, self._rank = links, rank

    def is_completed(self) -> bool:
        link = self._links.links[self._rank]
        return not link.waiting or not link.open

    def wait(self, timeout: Any = None) -> bool:
        self._links.wait(self.is_completed)
        return True


def isend(
    tensor: Tensor,
    dst: int | None = None,
    group: Any = None,
    tag: int = 0,
    group_dst: int | None = None,
) -> Work | None:
    """Begin to send a tensor, which must stay as it is until ``wait`` returns."""
    return _send("isend", tensor, dst, group, tag, group_dst)


def send(
    tensor: Tensor,
    dst: int | None = None,
    group: Any = None,
    tag: int = 0,
    group_dst: int | None = None,
) -> None:
    """Send a tensor."""
    work = _send("send", tensor, dst, group, tag, group_dst)
    if work is not None:
        work.wait()


def _send(
    name: str, tensor: Tensor, dst: Any, group: Any, tag: int, group_dst: Any,
    **about: Any,
) -> Work | None:  # fmt: skip
    check_tensor(name, tensor)
    refuse_capture(name)
    found = member(name, group)
    if found is None:
        return None
    rank = found.ranks[in_group(name, found, dst, group_dst)]
    links = found.world.links
    call = _call(name, found, tensor, dst=rank, tag=tag, **about)
    if rank == links.rank:
        raise DistBackendError(f"{name}: rank {rank} cannot send to itself")
    link = links.links[rank]
    if not link.open:
        one = _Receive(found, [rank], call, tag)
        raise DistBackendError(one._text(f"rank {rank} is gone"))
    header = {"key": ["message", found.name, tag], "call": call}
    links.send(rank, header, np.ascontiguousarray(tensor.detach().numpy()))
    links.send_later()
    return _Sending(links, rank)


# -- receiving


class _Receiving(Work):
    """A message that is to come."""

    def __init__(self, one: _Receive, finish: Callable[[Message], Any]) -> None:
        super().__init__(None, finish)
        self._one, self._came = one, False

    def is_completed(self) -> bool:
        self._one.links.look()
        return self._came or self._one.there

    def wait(self, timeout: Any = None) -> bool:
        if not self._came:
            self._source, message = self._one.receive()
            self._came = True
            self._result = self._finish(message)
        return True


def irecv(
    tensor: Tensor,
    src: int | None = None,
    group: Any = None,
    tag: int = 0,
    group_src: int | None = None,
) -> Work | None:
    """Begin to receive a tensor, which is there when ``wait`` returns."""
    return _recv("irecv", tensor, src, group, tag, group_src)


def recv(
    tensor: Tensor,
    src: int | None = None,
    group: Any = None,
    tag: int = 0,
    group_src: int | None = None,
) -> int:
    """Receive a tensor; returns the rank that sent it. Without ``src``, from any."""
    work = _recv("recv", tensor, src, group, tag, group_src)
    return -1 if work is None else work.source_rank()


def _recv(
    name: str, tensor: Tensor, src: Any, group: Any, tag: int, group_src: Any
) -> _Receiving | None:
    check_tensor(name, tensor)
    refuse_capture(name)
    found = member(name, group)
    if found is None:
        return None
    ranks: Sequence[int] = found.ranks
    if src is not None or group_src is not None:
        ranks = [found.ranks[in_group(name, found, src, group_src)]]
    mine = found.world.links.rank
    if list(ranks) == [mine]:
        raise DistBackendError(f"{name}: rank {mine} cannot receive from itself")
    where = {} if len(ranks) > 1 else {"src": ranks[0]}
    call = _call(name, found, tensor, **where, tag=tag)
    one = _Receive(found, ranks, call, tag)

    def finish(message: Message) -> Any:
        theirs = message.header["call"]
        if (theirs["dtype"], theirs["shape"]) != (call["dtype"], call["shape"]):
            raise DistBackendError(
                f"{name}: the message is another tensor than expected\n"
                f"  it was sent by {describe(theirs)}\n  here is {describe(call)}"
            )
        array = message.payload.view(tensor.dtype.np).reshape(tuple(tensor.shape))
        with no_grad():
            tensor.copy_(Tensor(array))
        return [tensor]

    return _Receiving(one, finish)


def sent(
    tensor: Tensor, group: ProcessGroup, group_dst: int, tag: int, **about: Any
) -> Work:
    """Begin to send a tensor, and what it says about it."""
    work = _send("isend", tensor, None, group, tag, group_dst, **about)
    assert work is not None
    return work


def received(
    group: ProcessGroup, group_src: int, tag: int, what: str
) -> tuple[Tensor, dict[str, Any]]:
    """The tensor that ``sent`` sends here, whatever its shape, and what is said of it.

    ``what`` is what is waited for, in errors.
    """
    call = _call(f"recv of {what}", group, zeros(0), src=group_src, tag=tag)
    _, message = _Receive(group, [group.ranks[group_src]], call, tag).receive()
    theirs = message.header["call"]
    array = message.payload.view(as_dtype(theirs["dtype"]).np)
    return Tensor(array.reshape(theirs["shape"]).copy()), theirs["with"]


class P2POp(NamedTuple):
    """One of several messages of ``batch_isend_irecv``."""

    op: Callable[..., Any]
    tensor: Tensor
    peer: int | None = None
    group: Any = None
    tag: int = 0
    group_peer: int | None = None


def batch_isend_irecv(p2p_op_list: Sequence[P2POp]) -> list[Work]:
    """Begin several messages."""
    begun = [
        one.op(one.tensor, one.peer, one.group, one.tag, one.group_peer)
        for one in p2p_op_list
    ]
    return [work for work in begun if work is not None]
