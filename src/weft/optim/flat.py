"""Running an update rule over many parameters at once.

Small parameters are gathered into one flat array, updated there, and written
back; a large one is updated in its own memory. Either way the rule runs on
pieces that fit the cache, so its temporaries cost little. Rules are
element-wise: the result is the same, bit for bit, however the work is cut.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from weft.core.tape import caller, note_changes
from weft.core.tensor import Tensor
from weft.errors import ArgumentError, DTypeError, ShapeError
from weft.runtime import allocation

BLOCK = 1 << 16  # bytes of a piece: its temporaries stay in the cache
LARGE = 1 << 16  # a parameter of this many elements is not worth gathering
ROOM = 16  # blocks that a rule's temporaries take, and more
Rule = Callable[[Any, Any, dict[str, Any], dict[str, Any]], Any]
State = dict[str, Any]


def plan(params: list[Tensor], states: list[State], together: bool) -> list[Any]:
    """The parameters that are updated together, in groups."""
    shelves: dict[Any, list[int]] = {}
    alone = set() if together else set(range(len(params)))
    alone |= _overlapping(params)
    for i, p in enumerate(params):
        single = i in alone or type(p) is not Tensor or p._data.size >= LARGE
        key = i if single else (p._data.dtype, *_numbers(states[i]).items())
        shelves.setdefault(key, []).append(i)
    return [
        _run([params[i] for i in shelf], [states[i] for i in shelf])
        for shelf in shelves.values()
    ]


def _run(params: list[Tensor], states: list[State]) -> Any:
    kind = Run if type(params[0]) is Tensor else TensorRun
    return kind(params, states)


def _overlapping(params: list[Tensor]) -> set[int]:
    """The parameters whose memory may be shared with another's."""
    ranges = sorted(
        (*np.lib.array_utils.byte_bounds(p._data), i)
        for i, p in enumerate(params)
        if type(p) is Tensor and p._data.size
    )
    overlapping, end, last = set(), 0, 0
    for start, stop, i in ranges:
        if start < end:
            overlapping |= {i, last}
        if stop > end:
            end, last = stop, i
    return overlapping


def _numbers(state: State) -> State:
    return {k: v for k, v in state.items() if not isinstance(v, Tensor)}


class Run:
    """Parameters on the CPU of one dtype whose states hold the same numbers."""

    def __init__(self, params: list[Tensor], states: list[State]) -> None:
        self.params, self.states = params, states
        self.memory = [p._data for p in params]
        self.slots = [k for k, v in states[0].items() if isinstance(v, Tensor)]
        self._check_writeable()
        self.half = self.memory[0].dtype.itemsize == 2
        self.in_place = len(params) == 1 and self.memory[0].flags.c_contiguous
        self.slices = _slices(self.memory)
        self.size = self.slices[-1].stop
        self.flat = {k: self._gather_slot(k) for k in self.slots}
        self.installed = self._held()
        if self.in_place:
            self.value = _reals(self.memory[0].reshape(-1))
        else:
            self.buffer = np.empty(self.size, self.memory[0].dtype)
            self.grads = np.empty_like(self.buffer)
            self.value = _reals(self.buffer)
            self.windows = self._windows(self.buffer)
        for array in self.working():
            allocation.noted(array, "optimizer")

    def _check_writeable(self) -> None:
        for array in self.memory:
            if not array.flags.writeable:
                raise ArgumentError(
                    f"step: a parameter of shape {array.shape} is read-only (it was "
                    "expanded, or comes from a read-only array); give the optimizer "
                    "a .clone() of it"
                )

    def _gather_slot(self, key: str) -> np.ndarray:
        """One state's arrays in a row; the states become views of it."""
        flat = np.concatenate([s[key]._data.ravel() for s in self.states])
        for state, window in zip(self.states, self._windows(flat), strict=True):
            state[key] = Tensor(window)
        return _reals(flat)

    def _windows(self, flat: np.ndarray) -> list[np.ndarray]:
        pairs = zip(self.memory, self.slices, strict=True)
        return [flat[part].reshape(array.shape) for array, part in pairs]

    def _held(self) -> list[Any]:
        return [state[key] for state in self.states for key in self.slots]

    def valid(self) -> bool:
        """Whether parameters and states still are where they were."""
        is_ = operator.is_
        return (
            all(map(is_, [p._data for p in self.params], self.memory))
            and len(held := self._held()) == len(self.installed)
            and all(map(is_, held, self.installed))
        )

    def step(self, rule: Rule, group: dict[str, Any], name: str, g: Any) -> None:
        """Apply the rule to every parameter of this run."""
        if not self.in_place:
            _concatenate(self.memory, self.buffer)
        numbers = _numbers(self.states[0])
        numbers["step"] += 1
        block = BLOCK // self.value.itemsize
        for start in range(0, max(self.value.size, 1), block):
            state = self._block(slice(start, start + block), g, rule, group, numbers)
        if not self.in_place:
            for array, window in zip(self.memory, self.windows, strict=True):
                array[...] = window
        numbers = {key: state[key] for key in numbers}
        for mine in self.states:
            mine.update(numbers)
        touch(self.params, name)

    def _block(
        self, part: slice, g: Any, rule: Rule, group: dict[str, Any], numbers: State
    ) -> State:
        """Update one piece; returns its state, whose numbers have moved on."""
        state = dict(numbers)
        for key, flat in self.flat.items():
            state[key] = self._wide(flat[part])
        new = rule(self._wide(g[part]), self._wide(self.value[part]), state, group)
        self.value[part] = new
        for key, flat in self.flat.items():
            flat[part] = state[key]
        return state

    def _wide(self, piece: np.ndarray) -> np.ndarray:
        """Half-precision numbers are computed with in float32."""
        return piece.astype(np.float32) if self.half else piece

    def working(self) -> Iterator[np.ndarray]:
        """The arrays that this run has made: gathered states and workspace."""
        yield from self.flat.values()
        if not self.in_place:
            yield from (self.buffer, self.grads)

    def gradients(self) -> np.ndarray:
        """All gradients in a row, checked."""
        grads = [p.grad._data for p in self.params]  # type: ignore[union-attr]
        for p, g, array in zip(self.params, grads, self.memory, strict=True):
            if g.shape != array.shape or g.dtype != array.dtype:
                checked_gradient(p)
        if not self.in_place:
            return _reals(_concatenate(grads, self.grads))
        dtype = self.memory[0].dtype
        return _reals(np.ascontiguousarray(grads[0], dtype).reshape(-1))


class TensorRun:
    """One parameter of another device: the rule runs on tensors."""

    def __init__(self, params: list[Tensor], states: list[State]) -> None:
        (self.param,), (self.state,) = params, states

    def valid(self) -> bool:
        return True

    def working(self) -> Iterator[np.ndarray]:
        return iter(())  # on another device

    def gradients(self) -> Tensor:
        return checked_gradient(self.param).detach()

    def step(self, rule: Rule, group: dict[str, Any], name: str, g: Any) -> None:
        state = {**self.state, "step": self.state["step"] + 1}
        new = rule(g, self.param.detach(), state, group)
        self.param.copy_(new)
        self.state.update(state)


def check_memory() -> None:
    """Raise MemoryError now rather than half-way, if rules lack memory for blocks."""
    np.empty(ROOM * BLOCK, np.uint8)


def _slices(arrays: Sequence[np.ndarray]) -> list[slice]:
    """The slice of each array in the flat one."""
    ends = np.cumsum([a.size for a in arrays]).tolist()
    return [slice(e - a.size, e) for a, e in zip(arrays, ends, strict=True)]


def _concatenate(arrays: list[np.ndarray], out: np.ndarray) -> np.ndarray:
    flat = [a.reshape(-1) for a in arrays]
    return np.concatenate(flat, out=out, casting="same_kind")


def _reals(flat: np.ndarray) -> np.ndarray:
    """Complex numbers as twice as many reals, which rules treat independently."""
    if flat.dtype.kind != "c":
        return flat
    return flat.view(np.float32 if flat.dtype.itemsize == 8 else np.float64)


def checked_gradient(p: Tensor) -> Any:
    """A parameter's gradient, which must fit it."""
    g: Any = p.grad
    if g.shape != p.shape:
        raise ShapeError(
            f"step: expected a gradient of its parameter's shape {p.shape}, got "
            f"{g.shape}; .grad was assigned"
        )
    if g.dtype is not p.dtype and g.dtype.is_complex and not p.dtype.is_complex:
        raise DTypeError(
            f"step: expected a real gradient of a {p.dtype.name} parameter, got "
            f"{g.dtype.name}"
        )
    return g


def touch(params: list[Tensor], name: str) -> None:
    """Note that the optimizer has written here, so that stale values are caught."""
    note_changes([p.storage_record for p in params], name, caller())
