"""A program that came from a file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from weft.core.pytree import tree_flatten, tree_unflatten
from weft.core.tensor import Tensor
from weft.errors import ArgumentError
from weft.graph.captured_program import Captured
from weft.graph.ir import Variable
from weft.graph.state_cells import Cell
from weft.runtime.cpu.buffers import owned
from weft.serialization.structure import plain


class HeldCell(Cell):
    """A variable whose tensor the program owns; it may have no value yet."""

    tensor: Any

    def __init__(self, variable: Variable, tensor: Tensor | None) -> None:
        self.variable = variable
        self.tensor = tensor

    def get(self) -> np.ndarray:
        if self.tensor is None:
            raise ArgumentError(f"{self.variable.name}: this variable has no value yet")
        return self.tensor._data

    def own(self, value: np.ndarray) -> np.ndarray:
        kept = self.tensor is None and not owned(value)
        return value.copy() if kept else value

    def set(self, value: np.ndarray) -> None:
        if self.tensor is None:
            self.tensor = Tensor(self.own(value))
        else:
            super().set(value)


class Loaded(Captured):
    """A program from a file, with state of its own. Calling it runs it.

    >>> import io
    >>> file = io.BytesIO()
    >>> weft.save(weft.graph.capture(weft.nn.Linear(3, 2), weft.ones(1, 3)), file)
    >>> program = weft.load(io.BytesIO(file.getvalue()))
    >>> list(program.state_dict()), program(weft.zeros(1, 3)).shape
    (['weight', 'bias'], (1, 2))
    """

    native = False  # whether it runs as machine code, as what was saved did
    _entry: Any = None

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.fixed: dict[str, str] = {}  # Python values it was captured with, as text

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves, structure = tree_flatten((args, kwargs))
        structure = plain(structure)
        if self.native:
            self.check(structure, leaves)
            return self._compiled().run(leaves, self.arrays_of(leaves), (args, kwargs))
        plain_args, plain_kwargs = tree_unflatten(leaves, structure)
        return super().__call__(*plain_args, **plain_kwargs)

    def _compiled(self) -> Any:
        if self._entry is None:
            from weft.compile.frontend.specialization import Specialization

            self._entry = Specialization(self)
        return self._entry

    def state_dict(self) -> dict[str, Tensor]:
        """The tensors that the program reads or changes, by name."""
        return {name: value for name, value in self.state.items() if value is not None}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take over values for all variables that have one."""
        known = self.state_dict()
        if set(state) != set(known):
            odd = sorted(set(state) ^ set(known))
            raise ArgumentError(
                f"load_state_dict: expected the names of state_dict(), got a "
                f"difference in {odd[:5]}"
            )
        for name, value in state.items():
            held = known[name]
            if value.shape != held.shape or value.dtype is not held.dtype:
                raise ArgumentError(
                    f"load_state_dict: {name!r} is {held.dtype.name}"
                    f"{list(held.shape)}, got {value.dtype.name}{list(value.shape)}"
                )
        for name, value in state.items():
            self.cells[name].set(value.to_host())

    def __repr__(self) -> str:
        return f"<loaded {self.graph!r}>"
