"""Served programs: functions of arrays, with named inputs and outputs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

import weft
from weft.core.pytree import tree_flatten, tree_unflatten
from weft.core.size import Size
from weft.core.tensor import Tensor
from weft.dtype import DType
from weft.errors import ArgumentError, ShapeError, WeftError
from weft.export.files import load_program
from weft.export.programs import output_names_of
from weft.graph.captured_program import TENSOR, Captured
from weft.nn import Module


class Field(NamedTuple):
    """An input or an output; sizes that are open are names."""

    name: str
    dtype: DType
    shape: tuple[Any, ...]

    def describe(self) -> dict[str, Any]:
        shape = [n if isinstance(n, int) else str(n) for n in self.shape]
        return {"name": self.name, "dtype": self.dtype.name, "shape": shape}

    def check(self, array: np.ndarray) -> None:
        """Refuse an array whose dtype or known sizes are others."""
        dtype = self.dtype.np
        fits = len(array.shape) == len(self.shape) and all(
            not isinstance(want, int) or want == got
            for want, got in zip(self.shape, array.shape, strict=True)
        )
        if not fits or array.dtype != dtype:
            shape = ", ".join(str(n) for n in self.shape)
            raise ShapeError(
                f"{self.name}: expected {self.dtype.name}[{shape}], got "
                f"{array.dtype}{list(array.shape)}"
            )


class Served:
    """A compiled program as a function of arrays.

    ``rows`` says whether all inputs and outputs begin with one open size, so that
    several requests can be one run.
    """

    def __init__(self, program: Captured, name: str = "model") -> None:
        if program.effects or program.rewritten:
            raise ArgumentError(
                f"serve: {name!r} changes objects or arguments of Python; a served "
                "program returns values"
            )
        self.name = name
        self.given = program.given
        self.structure = program.ins
        self.inputs = [Field(n.name, n.dtype, n.shape) for n in program.graph.inputs]
        names = output_names_of(program)
        outputs = [v for v in program.values if hasattr(v, "type")]
        self.outputs = [
            Field(name, v.dtype, v.shape)
            for name, v in zip(names, outputs, strict=True)
        ]
        if not self.inputs or not self.outputs:
            raise ArgumentError(f"serve: {name!r} has no inputs or no outputs")
        # A run that changes state is never shared: requests come one by one.
        self.steady = not any(n.op.name == "assign" for n in program.graph.nodes)
        self.rows = self.steady and _same_rows([*self.inputs, *self.outputs])
        compiler: Any = weft.compile
        self._run = compiler(program)

    def describe(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "inputs": [field.describe() for field in self.inputs],
            "outputs": [field.describe() for field in self.outputs],
        }

    def __call__(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The outputs for inputs in their order."""
        tensors = iter([Tensor(np.ascontiguousarray(array)) for array in arrays])
        leaves = [next(tensors) if g is TENSOR else g for g in self.given]
        args, kwargs = tree_unflatten(leaves, self.structure)
        with weft.no_grad():
            found = self._run(*args, **kwargs)
        results, _ = tree_flatten(found)
        return [t.detach().numpy() for t in results if isinstance(t, Tensor)]

    def signature(self) -> Any:
        return self.inputs, self.outputs


def _same_rows(fields: Sequence[Field]) -> bool:
    firsts = {str(f.shape[0]) if f.shape else "" for f in fields}
    (first, *others) = firsts
    return (
        not others
        and all(isinstance(f.shape[0], Size) for f in fields)
        and (first.isidentifier())
    )


def served(program: Any, example: Any = None, name: str = "model") -> Served:
    """What a server runs, from a module with an example, or from a program.

    The first size of a module's inputs is open.

    >>> net = weft.nn.Linear(3, 2)
    >>> served(net, weft.ones(1, 3)).describe()["outputs"]
    [{'name': 'out', 'dtype': 'float32', 'shape': ['rows', 2]}]
    """
    if isinstance(program, Served):
        return program
    if isinstance(program, weft.export.ExportedProgram):
        args, _ = program._examples()
        return Served(weft.graph.capture(program.module(), *args), name)
    if isinstance(program, Captured):
        return Served(program, name)
    if not callable(program):
        raise ArgumentError(
            f"serve: expected a module or a program, got a {type(program).__name__}"
        )
    if example is None:
        raise ArgumentError("serve: a module or a function needs example arguments")
    if isinstance(program, Module):
        program.eval()
    args = example if isinstance(example, tuple) else (example,)
    return Served(_captured(program, args), name)


def _captured(program: Any, args: tuple[Any, ...]) -> Captured:
    """The program with an open first size, or with known sizes where that fails."""
    from weft.graph.labels import labels_of

    labels = labels_of(program, args, {})
    tensors = {label for label, a in zip(labels, args, strict=True) if a.ndim}
    with weft.no_grad():
        doubled = tuple(weft.cat([a, a]) if a.ndim else a for a in args)
        try:
            return weft.graph.capture(
                program, *doubled, dynamic={label: {0: "rows"} for label in tensors}
            )
        except WeftError:
            return weft.graph.capture(program, *args)


def read_program(path: str) -> Served:
    """The program of a file that ``weft.save`` or ``weft.export.save`` wrote."""
    name = os.path.splitext(os.path.basename(path))[0]
    return served(load_program(path), name=name)
