"""The ledger: every array that is made while memory is counted, and its end.

An array is known by its owner (views have none of their own) through a weak
reference, which tells when it goes. Arrays that were there before are found by a scan;
one that came about unseen is entered when an operator first reads it.
"""

from __future__ import annotations

import gc
import math
import threading
import weakref
from typing import Any

import numpy as np

from weft.core.dispatch import type_of
from weft.core.mode import mode, set_measured
from weft.core.op import Op, TensorType
from weft.core.tape import caller
from weft.core.tensor import Tensor
from weft.errors import describe_line, module_path, module_stack
from weft.memory.scan import Scan
from weft.runtime import allocation


class Entry:
    """One array's memory: its size, origin and lifetime."""

    __slots__ = (
        "born", "code", "died", "dtype", "kind", "lasti", "module", "nbytes", "op",
        "ref", "shape",
    )  # fmt: skip

    def __init__(self, owner: np.ndarray, op: str, kind: str, born: int) -> None:
        self.nbytes = owner.nbytes
        self.shape, self.dtype = owner.shape, owner.dtype.name
        self.op, self.kind = op, kind
        self.module = ""
        self.code: Any = None
        self.lasti = 0
        self.born = born
        self.died: int | None = None
        self.ref: Any = None

    @property
    def name(self) -> str:
        return f"{self.op} in {self.module}" if self.module else self.op

    @property
    def line(self) -> str:
        """``file:line, in function``, without the source."""
        if self.code is None:
            return ""
        return describe_line(self.code, self.lasti).partition("\n")[0]


class Ledger:
    """The live arrays, the most bytes there were, and the limit."""

    def __init__(self) -> None:
        self.entries: dict[int, Entry] = {}
        self.live = 0
        self.peak = 0
        self.limit: int | None = None
        self.recordings: list[Any] = []
        self.moment = 0  # arrays made and gone so far
        self._lock = threading.RLock()
        self._paths: dict[tuple[int, ...], tuple[Any, str]] = {}

    # -- on and off

    def settle(self) -> None:
        """Count while a limit or a recording needs it, and only then."""
        wanted = self.limit is not None or bool(self.recordings)
        if wanted and allocation.ledger is None:
            self.entries.clear()
            self.live = 0
            allocation.ledger = self
            set_measured(True)
        elif not wanted and allocation.ledger is not None:
            allocation.ledger = None
            set_measured(False)
            self.entries.clear()
            self._paths.clear()

    def survey(self) -> None:
        """Enter all live arrays, each with its kind."""
        scan = Scan()
        names = scan.names()
        for owner, kind, _ in scan.found.values():
            entry = self.entries.get(id(owner)) or self._enter(owner, "", kind)
            entry.kind = kind
            entry.op = entry.op or names.get(id(owner), "")

    # -- calls from operators

    def expect(self, op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> None:
        """Called before an operator runs."""
        for a in args:
            if type(a) is Tensor and id(allocation.owner(a._data)) not in self.entries:
                self._enter(allocation.owner(a._data), "", "other")
        if self.limit is not None and not op.view:
            self.allow(op.name, predicted(op, args, params))

    def allow(self, name: str, nbytes: int) -> None:
        """Raise if the limit does not leave so many bytes more."""
        if self.limit is None or self.live + nbytes <= self.limit:
            return
        gc.collect()  # garbage in cycles is not in use
        if self.live + nbytes > self.limit:
            from weft.memory.report import refusal

            raise refusal(name, nbytes, limit=self.limit)

    def note(self, array: np.ndarray, name: str) -> None:
        """Called after an array was made."""
        owner = allocation.owner(array)
        if id(owner) in self.entries or not owner.nbytes:
            return
        entry = self._enter(owner, name, "forward")
        node = mode.backward_node
        if node is not None:
            entry.kind, entry.op = "backward", f"{name} for {node.name}"
            entry.code, entry.lasti = node.code, node.lasti
        else:
            entry.code, entry.lasti = caller()
            entry.module = self._path()

    def origin(self, owner: np.ndarray) -> Entry | None:
        """The entry of an array, if it is known."""
        return self.entries.get(id(owner))

    # -- entering and leaving

    def _enter(self, owner: np.ndarray, op: str, kind: str) -> Entry:
        key = id(owner)
        with self._lock:
            entry = Entry(owner, op, kind, self.moment)
            entry.ref = weakref.ref(owner, lambda ref: self._leave(key, ref))
            self.entries[key] = entry
            self._move(entry.nbytes)
            for recording in self.recordings:
                recording.entries.append(entry)
        return entry

    def _leave(self, key: int, ref: Any) -> None:
        with self._lock:
            entry = self.entries.get(key)
            if entry is not None and entry.ref is ref:
                del self.entries[key]
                entry.died = self.moment
                self._move(-entry.nbytes)

    def _move(self, nbytes: int) -> None:
        self.live += nbytes
        self.moment += 1
        self.peak = max(self.peak, self.live)
        for recording in self.recordings:
            recording.bytes.append(self.live)

    def _path(self) -> str:
        """The running module's path, found once for each module."""
        stack = module_stack()
        if not stack:
            return ""
        key = tuple(map(id, stack))
        known = self._paths.get(key)
        if known is None or known[0]() is not stack[-1]:
            known = self._paths[key] = weakref.ref(stack[-1]), module_path()
        return known[1]


def predicted(op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> int:
    """The bytes of an operator's results, by its type rule."""
    if op.type is None or op.view:
        return 0
    try:
        made = op.type(*[type_of(a) for a in args], **params)
        types = [made] if isinstance(made, TensorType) else made
        return sum(int(math.prod(t.shape)) * t.dtype.itemsize for t in types)
    except Exception:  # the evaluation says what is wrong
        return 0


ledger = Ledger()
