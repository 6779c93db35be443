"""Going on after processes were lost: snapshots of training, in memory, at every step.

All processes have the parameters of data parallel training, so each keeps a share of
them, and nothing is sent. What only one process has, it keeps itself. Where processes
run on several machines, each piece is kept on two.

``weft run --max-restarts`` starts all processes again when one is lost. They find the
newest step of which every piece is left, and go on there.
"""

from __future__ import annotations

import os
import random
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

import weft
from weft.core.tensor import Tensor
from weft.distributed import groups, snapshots
from weft.distributed.errors import RecoveryError
from weft.distributed.groups import line_here
from weft.distributed.pieces import (
    About,
    Held,
    Piece,
    check_copies,
    checksum,
    checksums,
    fetch,
    has,
    moment,
    newest,
    share,
    write,
)
from weft.distributed.plain import decode, encode, joined, parted
from weft.errors import ArgumentError
from weft.optim import Optimizer

_RANDOM = "random generators"  # their name among a process's own states


class Recovery:
    """Keeps the state of training at every step, and goes on there after a loss.

    ``shared`` has what is equal in all processes: models and optimizers of data
    parallel training, schedulers, loaders, numbers in dictionaries. ``own`` has what
    each process has for itself. Values have ``state_dict`` and ``load_state_dict``, or
    are tensors or dictionaries, which are changed in place. The random generators of
    Weft, NumPy and Python belong to a process's own state anyway. ``every`` makes
    snapshots rarer than steps, where steps take no longer than a few milliseconds.

    ``steps`` is the loop over the steps. It begins after the last step that all
    processes had completed, with the state of that time:

    >>> dist = weft.distributed
    >>> dist.init_process_group(rank=0, world_size=1)
    >>> net = weft.nn.Linear(2, 1)
    >>> for step in dist.Recovery({"net": net}).steps(2):
    ...     print(step)
    0
    1
    >>> dist.destroy_process_group()

    Under ``weft run -n 4 --max-restarts 9 train.py``, a process that is killed costs
    no more than the step in which it was. Without a launcher that starts processes
    again, nothing is kept.
    """

    def __init__(
        self,
        shared: Mapping[str, Any],
        own: Mapping[str, Any] | None = None,
        *,
        every: int = 1,
    ) -> None:
        if every < 1:
            raise ArgumentError(f"Recovery: expected every=1 or more, got {every}")
        self.every = every
        self.shared, self.own = dict(shared), dict(own or {})
        for name, value in (*self.shared.items(), *self.own.items()):
            _check(name, value)
        self.group = groups.group_of(None)
        self.rank, self.world = self.group.rank(), self.group.size()
        self.partners = partners(os.environ.get(snapshots.NODES, ""), self.world)
        self.start = int(os.environ.get(snapshots.RESTARTS, "0"))
        self.memories = snapshots.given()
        self.step = 0  # the number of steps that are done
        self._latest = 1  # of this process's two memories, the one that was written
        self._compared = False

    def steps(self, count: int) -> Iterator[int]:
        """The numbers of the steps that are left, up to ``count``."""
        self.restore()
        while self.step < count:
            yield self.step
            self.keep()

    # -- keeping

    def keep(self) -> None:
        """Note that a step is done, and keep the state after it."""
        self.step += 1
        if self.memories and self.step % self.every == 0:
            self._write()

    def _write(self) -> None:
        text, arrays = parted(_states(self.shared))
        mine = encode({**_states(self.own), _RANDOM: _random_states()})
        self._agree(text, arrays)
        pieces: dict[Piece, list[np.ndarray]] = {}
        for rank, state in {self.rank: mine, **self._from_partners(mine)}.items():
            pieces["share", rank] = share(arrays, rank, self.world)
            pieces["own", rank] = [state]
        self._latest = 1 - self._latest
        about = {"step": self.step, "start": self.start, "world": self.world,
                 "every": self.every, "shared": text.decode()}  # fmt: skip
        write(self.memories[self._latest], about, pieces)

    def _agree(self, text: bytes, arrays: list[np.ndarray]) -> None:
        """Wait until all have kept the step before; compare what is shared."""
        check = zlib.crc32(text)
        if not self._compared:  # all of it once, since that takes time
            for one in arrays:
                check = checksum(one, check)
            self._compared = True
        found = self._gathered([self.step, check])
        if len({step for step, _ in found}) > 1:
            raise RecoveryError(
                f"Recovery.keep: processes have done {[step for step, _ in found]} "
                "steps; all have to call it once after each step"
            )
        if any(one != found[0] for one in found):
            raise self._difference()

    def _difference(self) -> RecoveryError:
        """An error that names a shared state that differs, and in which rank."""
        states = _states(self.shared)
        found = self._gathered({k: checksum(encode(v)) for k, v in states.items()})
        for name, value in found[0].items():
            for rank, one in enumerate(found):
                if one.get(name) != value:
                    return RecoveryError(
                        f"Recovery.keep: the shared state {name!r} of rank {rank} is "
                        "not that of rank 0; give what differs between processes as "
                        "own="
                    )
        return RecoveryError(
            "Recovery.keep: processes have given different names of shared states"
        )

    def _from_partners(self, mine: np.ndarray) -> dict[int, np.ndarray]:
        """The states of processes on another machine, which this one keeps as well."""
        if not any(rank != partner for rank, partner in enumerate(self.partners)):
            return {}
        nothing = np.empty(0, np.uint8)
        partner = self.partners[self.rank]
        came = self._exchange(lambda k: mine if k == partner else nothing)
        return {k: came[k] for k, p in enumerate(self.partners) if p == self.rank}

    # -- going on

    def restore(self) -> int:
        """Set the newest state of which all is left; the number of steps done."""
        if self.memories:
            found = [memory.read() for memory in self.memories]
            held = [None if one is None else Held(one) for one in found]
            known = self._gathered([one.about for one in held if one is not None])
            chosen = newest(known)
            if chosen is not None:
                self._load(chosen, known, held)
        return self.step

    def _load(
        self, chosen: About, known: list[list[About]], held: list[Held | None]
    ) -> None:
        same = [one for one in held if one is not None and one.at == moment(chosen)]
        here = same[0].pieces if same else {}
        check_copies(self._gathered(checksums(here)))
        before = chosen["world"]
        shares = [("share", k) for k in range(before)]

        def wanted(rank: int) -> list[Piece]:
            return [*shares, ("own", rank)] if rank < before else shares

        found = fetch(wanted, chosen, known, here, self.rank, self._exchange)
        whole = np.concatenate([found[piece] for piece in shares])
        _load_states(self.shared, joined(chosen["shared"].encode(), whole))
        self._load_own(found.get(("own", self.rank)), before)
        self.step = chosen["step"]
        self._latest = held.index(same[0]) if same else 1
        if before != self.world or not all(has(some, chosen) for some in known):
            self._write()  # a piece that is lost next must be on two machines again

    def _load_own(self, data: np.ndarray | None, before: int) -> None:
        if self.own and before != self.world:
            raise RecoveryError(
                f"Recovery: {before} processes kept states of their own "
                f"({', '.join(self.own)}), which {self.world} cannot share; start with "
                "as many as before"
            )
        if data is not None:
            state = decode(data)
            _set_random_states(state.pop(_RANDOM))
            _load_states(self.own, state)

    # -- other processes

    def _exchange(self, payloads: Callable[[int], np.ndarray]) -> list[np.ndarray]:
        """Send each rank its payload; what they sent."""
        group, line = self.group, line_here()

        def work() -> Any:
            return group.call("recovery", None, {}, line).exchange(payloads)

        came = group.world.run(work)
        return [
            payloads(self.rank) if one is None else one.payload.view(np.uint8)
            for one in came
        ]

    def _gathered(self, value: Any) -> list[Any]:
        """The plain data of all processes."""
        data = encode(value)
        return [decode(one) for one in self._exchange(lambda k: data)]


def partners(nodes: str, world: int) -> list[int]:
    """For each rank the one that keeps a copy of its pieces: on the next machine.

    ``nodes`` has the number of processes on each machine; on a single one, a process
    that ends takes no memory with it, and each is its own partner.

    >>> from weft.distributed.recovery import partners
    >>> partners("2,2,1", 5), partners("", 2)
    ([2, 3, 4, 4, 0], [0, 1])
    """
    sizes = [int(one) for one in nodes.split(",") if one]
    if len(sizes) < 2 or sum(sizes) != world:
        return list(range(world))
    starts = [sum(sizes[:k]) for k in range(len(sizes) + 1)]
    found = []
    for node, size in enumerate(sizes):
        other = (node + 1) % len(sizes)
        found += [starts[other] + k % sizes[other] for k in range(size)]
    return found


# -- states


def _check(name: str, value: Any) -> None:
    if not _is_plain(value) and not hasattr(value, "load_state_dict"):
        raise ArgumentError(
            f"Recovery: expected objects with state_dict() and load_state_dict(), "
            f"tensors or dictionaries, got {type(value).__name__} as {name!r}"
        )


def _is_plain(value: Any) -> bool:
    return isinstance(value, (Tensor, dict))


def _states(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _state(value) for name, value in values.items()}


def _state(value: Any) -> Any:
    if isinstance(value, Optimizer):
        return value.state_dict(copy=False)
    state = value if _is_plain(value) else value.state_dict()
    return dict(state) if isinstance(state, dict) else state


def _load_states(values: Mapping[str, Any], states: Mapping[str, Any]) -> None:
    if set(values) != set(states):
        raise RecoveryError(
            f"Recovery: {sorted(states)} were kept, and {sorted(values)} are to go on"
        )
    for name, value in values.items():
        if isinstance(value, Tensor):
            with weft.no_grad():
                value.copy_(states[name])
        elif isinstance(value, dict):
            value.clear()
            value.update(states[name])
        else:
            value.load_state_dict(states[name])


def _random_states() -> dict[str, Any]:
    return {
        "weft": weft.get_rng_state(),
        "numpy": np.random.get_state(),
        "python": random.getstate(),
    }


def _set_random_states(states: dict[str, Any]) -> None:
    weft.set_rng_state(states["weft"])
    np.random.set_state(states["numpy"])
    random.setstate(states["python"])
