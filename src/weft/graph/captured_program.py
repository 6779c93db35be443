"""A captured program as a function: its graph, and the tensors it reads and changes."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from weft.autograd.modes import no_grad
from weft.core.device import cpu
from weft.core.pytree import Structure, tree_flatten, tree_unflatten
from weft.core.tensor import Tensor
from weft.errors import ArgumentError, DTypeError, SharedMemoryError
from weft.graph.argument_gradients import Needed
from weft.graph.effects import Run
from weft.graph.interpret import Program, bind_sizes
from weft.graph.ir import Graph, Node, Variable
from weft.graph.state_cells import Cell, Guard, commit
from weft.ops.inplace import assign
from weft.runtime.cpu.buffers import owned


class Captured:
    """A captured program: its graph, and the tensors its variables live in.

    Calling it runs the graph on new arguments.

    >>> double = weft.graph.capture(lambda x: x * 2, weft.ones(3))
    >>> double(weft.tensor([1.0, 2.0, 3.0]))
    tensor([2., 4., 6.])
    """

    def __init__(
        self,
        graph: Graph,
        cells: dict[str, Cell],
        ins: Structure,
        outs: Structure,
        values: list[Any],
        given: list[Any],
        guards: list[Guard],
    ) -> None:
        self.guards = guards
        self.graph = graph
        self.cells = cells
        self.ins = ins
        self.outs = outs
        self.values = values  # nodes of the outputs, or Python values
        self.given = given  # Python values of the inputs that are no tensors
        self.wanting: list[bool] = []  # which outputs eagerly require grad
        self.rewritten: list[Rewritten] = []  # arguments changed in place
        self.regions: list[Any] = []  # the policy of each checkpointed function
        self.emptied: list[Tensor] = []  # tensors that have no gradient after a run
        self.arrays: list[np.ndarray] = []  # of NumPy, read anew in every run
        self.buffers: list[tuple[Any, str, Tensor]] = []  # of modules, that are set
        self.nonzero: list[int] = []  # inputs that must not be zero
        self.effects: list[Any] = []  # on containers and the terminal, in order
        self.returned: Any = None  # the result's recipe, if some of it is not new
        self.wants: dict[Node, bool] = {}  # of the recipes' nodes: do they want grad?
        self.needed: list[Needed] = []  # of arguments, for their gradients
        self.layouts: list[tuple[int, Any]] = []  # of inputs whose layout decides
        self.device = cpu  # of its tensors
        self._program: Any = None

    @property
    def state(self) -> dict[str, Any]:
        """The tensors and numbers that the program reads or changes, by name."""
        return {name: cell.show() for name, cell in self.cells.items()}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves, structure = tree_flatten((args, kwargs))
        self.check(structure, leaves)
        if self._program is None:
            self._program = Program(self.graph, (*self.graph.outputs,))
        arrays = self.arrays_of(leaves)
        store = {cell.variable: cell.get() for cell in self._read()}
        check_apart(self, arrays, store)
        results, changed = self._program.run(arrays, store)
        if changed or self.rewritten:
            held = {id(array) for array in (*store.values(), *arrays)}
            results = [_apart(array, held) for array in results]
            self._write({v: _apart(a, held) for v, a in changed.items()})
        self.empty()
        tensors = [Tensor(array) for array in results]
        rewrite(self, leaves, tensors)
        if self.effects:
            run = self.run_of(leaves, (args, kwargs), arrays, tensors)
            self.happen(run)
        found = iter(tensors)
        out = [next(found) if type(v) is Node else v for v in self.values]
        return tree_unflatten(out, self.outs)

    def run_of(
        self, leaves: Any, arguments: Any, arrays: Any, found: Any, outputs: Any = None
    ) -> Run:
        """One run, for recipes: ``found`` are the values of the graph's outputs."""
        outputs = self.graph.outputs if outputs is None else outputs
        results = dict(zip(outputs, found, strict=True))
        sizes = functools.partial(bind_sizes, self.graph.inputs, arrays)
        return Run(leaves, arguments, results, sizes, {})

    def happen(self, run: Run) -> None:
        """Have the effects of a run."""
        for effect in self.effects:
            effect.happen(run)

    def empty(self) -> None:
        """Take away the gradients that the program ends without."""
        for tensor in self.emptied:
            if tensor.grad is not None:
                tensor.grad = None

    def check(self, structure: Structure, leaves: list[Any]) -> None:
        """Refuse arguments and a state that the program was not captured for."""
        if structure != self.ins:
            raise ArgumentError(
                f"{self.graph.name}: expected arguments of the structure that was "
                f"captured ({self.ins.num_leaves} leaves), got {structure.num_leaves} "
                "leaves"
            )
        for guard in self.guards:
            guard.check(self.graph.name)
        for one in self.needed:
            one.check(leaves)
            if not one.holds(leaves):
                raise ArgumentError(
                    f"{self.graph.name}: was captured for another gradient of "
                    f"{one.name!r}, which it reads; capture it again"
                )

    def _read(self) -> list[Cell]:
        return [self.cells[v.name] for v in self._program.reads]

    def _write(self, changed: dict[Variable, np.ndarray]) -> None:
        commit([(self.cells[v.name], array) for v, array in changed.items()])

    def arrays_of(self, leaves: list[Any]) -> list[np.ndarray]:
        """The memory of the arguments that are tensors; other values must be known."""
        arrays = []
        for leaf, given in zip(leaves, self.given, strict=True):
            if given is TENSOR:
                arrays.append(_array(self.graph, leaf))
            elif type(leaf) is not type(given) or leaf != given:
                raise ArgumentError(
                    f"{self.graph.name}: was captured for the Python value {given!r}, "
                    f"got {leaf!r}; capture it again, or pass a tensor"
                )
        return arrays

    def __str__(self) -> str:
        return str(self.graph)

    def __repr__(self) -> str:
        return f"<captured {self.graph!r}>"


def _apart(array: np.ndarray, held: set[int]) -> np.ndarray:
    """An array that shares no memory with the variables, which are about to change."""
    shared = not owned(array) or id(array) in held
    return array.copy() if shared else array


TENSOR = object()  # stands for a leaf that is a tensor


class Rewritten(NamedTuple):
    """A tensor argument that the program changes in place.

    Its new value is one of the graph's last outputs.
    """

    position: int  # among the arguments that are tensors
    recorded: bool  # whether the change is part of the argument's history


def check_apart(program: Captured, arrays: list[Any], store: Mapping[Any, Any]) -> None:
    """Refuse an argument that is changed in place while another shares its memory."""
    for position, _ in program.rewritten:
        others = [*arrays[:position], *arrays[position + 1 :], *store.values()]
        if any(_may_share(program, arrays[position], other) for other in others):
            raise SharedMemoryError(
                f"{program.graph.name}: argument "
                f"{program.graph.inputs[position].name!r} is changed in place, and "
                "shares its memory with another one; pass a .clone() of one of them"
            )


def _may_share(program: Captured, array: Any, other: Any) -> bool:
    if isinstance(array, np.ndarray):
        return np.may_share_memory(array, other)
    if isinstance(other, np.ndarray):  # a number, which is the host's
        return False
    return program.device.shares(array, other)


def rewrite(program: Captured, leaves: list[Any], results: Any) -> None:
    """Give the arguments that the program changed their new values."""
    if not program.rewritten:
        return
    given = [x for x in leaves if isinstance(x, (Tensor, np.ndarray))]
    values = results[len(results) - len(program.rewritten) :]
    for (position, recorded), value in zip(program.rewritten, values, strict=True):
        target = given[position]
        if isinstance(target, np.ndarray):
            np.copyto(target, value.to_host())
            continue
        with contextlib.nullcontext() if recorded else no_grad():
            assign(target, value, program.graph.name)


def _array(graph: Graph, leaf: Any) -> np.ndarray:
    if type(leaf) is float:
        return np.asarray(leaf)
    if isinstance(leaf, np.ndarray):
        return leaf
    if not isinstance(leaf, Tensor):
        raise DTypeError(f"{graph.name}: expected a tensor, got {type(leaf).__name__}")
    return leaf.to_host()
