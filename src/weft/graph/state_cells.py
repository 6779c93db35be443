"""Cells that hold a captured program's variables, and their values at capture."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from weft.core.tensor import Tensor
from weft.errors import ArgumentError
from weft.graph.ir import Variable
from weft.runtime.cpu.buffers import owned
from weft.runtime.device_memory import Block, DeviceArray


class Cell:
    """The storage of a captured program's variable: a tensor of the user's."""

    has_memory = True  # which a program may write to
    is_noted = True  # whether each change of it is

    def __init__(self, variable: Variable, tensor: Tensor) -> None:
        self.variable = variable
        self.tensor = tensor

    def get(self) -> np.ndarray:
        return self.tensor._data

    def set(self, value: np.ndarray) -> None:
        if isinstance(value, np.ndarray):
            np.copyto(self.tensor._data, value)
        else:
            self.tensor.device.write(self.tensor._data, value)
        self.touch()

    def own(self, value: np.ndarray) -> np.ndarray:
        """A value that may be kept; whatever needs memory is done here."""
        return value

    def touch(self, where: Any = None) -> None:
        """Note that the value has been changed in place."""
        self.tensor.storage_record.touch("a captured program", where)

    def stamp(self) -> Any:
        """An object that is another one after a change; None if changes are unknown."""
        if not self.is_noted:
            return None
        storage = self.tensor.storage_record
        known = storage, storage.version, storage.changed_at
        return None if storage.exposed else known

    def reusable_memory(self) -> np.ndarray | None:
        """Memory that a new value may be written to, which nothing else refers to."""
        return None

    def show(self) -> Any:
        """The value as the user knows it."""
        return self.tensor


def commit(values: list[tuple[Cell, np.ndarray]]) -> None:
    """Write all variables or, where memory is lacking, none.

    An interrupt waits until they are written.
    """
    ready = [(cell, cell.own(value)) for cell, value in values]
    try:
        for cell, value in ready:
            cell.set(value)
    except KeyboardInterrupt:
        for cell, value in ready:
            cell.set(value)
        raise


class SlotCell(Cell):
    """A variable that is whatever tensor a dictionary holds (an optimizer's state)."""

    is_noted = False

    def __init__(self, variable: Variable, slots: dict[str, Any], key: str) -> None:
        self.variable = variable
        self.slots, self.key = slots, key

    @property
    def tensor(self) -> Tensor:  # type: ignore[override]
        return self.slots[self.key]


class GradCell(Cell):
    """A variable that is the ``.grad`` of a tensor."""

    is_noted = False

    def get(self) -> np.ndarray:
        if self.tensor.grad is None:
            raise ArgumentError(f"{self.variable.name}: there is no gradient yet")
        return self.tensor.grad._data

    def own(self, value: np.ndarray) -> np.ndarray:
        # a view is of memory that the next run uses
        plain = isinstance(value, np.ndarray) and not owned(value)
        return value.copy() if plain else value

    def set(self, value: np.ndarray) -> None:
        if self.tensor.grad is None or self.tensor.grad._data is not value:
            self.tensor.grad = Tensor.on_device(self.own(value), self.tensor.device)

    def touch(self, where: Any = None) -> None:
        """Do nothing: a replaced gradient has been seen by nobody."""

    def reusable_memory(self) -> np.ndarray | None:
        if self.tensor.grad is None or not _is_own(self.tensor.grad):
            return None
        there = type(self.tensor.grad._data) is DeviceArray
        alone = _holders(self.tensor) == _alone(there)
        return self.tensor.grad._data if alone else None

    def show(self) -> Any:
        return self.tensor.grad


def _is_own(gradient: Tensor) -> bool:
    """Whether a gradient's memory came from Weft."""
    data: Any = gradient._data
    if type(data) is DeviceArray:
        return type(data.owner) is Block
    return gradient.is_cpu and owned(data)


def _holders(tensor: Tensor) -> tuple[int, ...]:
    """The numbers of references to a gradient, its buffer and a device's memory."""
    grad: Any = tensor.grad
    counts = sys.getrefcount(grad), sys.getrefcount(grad._data)
    if type(grad._data) is DeviceArray:
        return *counts, sys.getrefcount(grad._data.owner)
    return counts


@functools.cache
def _alone(there: bool) -> tuple[int, ...]:
    """The reference counts of a gradient that only its tensor holds."""
    sample = Tensor(np.zeros(1, np.float32))
    sample.grad = Tensor(np.zeros(1, np.float32))
    if there:
        given: Any = (object(), 0, (), True, None)
        vars(sample.grad)["_data"] = DeviceArray(*given)
        del given  # it holds the memory too
    return _holders(sample)


class SumCell(Cell):
    """A variable that is a gradient to which a program adds, in place."""

    is_noted = False

    def __init__(self, variable: Variable, owner: Tensor) -> None:
        self.variable = variable
        self.owner = owner

    @property
    def tensor(self) -> Any:  # type: ignore[override]
        return self.owner.grad


class NumberCell(Cell):
    """A variable that is a Python number: a learning rate, a count of steps."""

    has_memory = is_noted = False

    def __init__(
        self,
        variable: Variable,
        get: Callable[[], Any],
        set: Callable[[Any], None],
        on: tuple[dict[str, Any], str],
    ) -> None:
        self.variable = variable
        self._get, self._set = get, set
        self.on = on  # the item of a dictionary that decides it
        self._array = np.empty((), variable.type.dtype.np)  # its last value

    def get(self) -> np.ndarray:
        self._array[()] = self._get()
        return self._array

    def set(self, value: np.ndarray) -> None:
        self._array[()] = value
        self._set(type(self._get())(value.item()))

    def show(self) -> Any:
        return self._get()


class On(NamedTuple):
    """A value of a dictionary, all items of a list, or an attribute of a tensor."""

    source: Any
    key: str = ""
    value: Any = None


class Guard(NamedTuple):
    """A Python value that a program was captured with, and how to read it again."""

    what: str
    value: Any
    read: Callable[[], Any]
    on: tuple[On, ...] = ()  # its source: while that is as it was, so is this

    def holds(self) -> bool:
        return bool(self.read() == self.value)

    def check(self, name: str) -> None:
        now = self.read()
        if now != self.value:
            raise ArgumentError(
                f"{name}: was captured with {self.what} = {self.value!r}, which is now "
                f"{now!r}; capture it again"
            )
