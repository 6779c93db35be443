"""``weft.compile``: a Python function as a native program.

The first call captures the function for its arguments' shapes and compiles it. A
call with other sizes makes the sizes that differ symbolic, so a third size costs
nothing. What the program read from Python is checked before every run.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from weft.compile.function import GraphFunction, closed
from weft.compile.guards import Reads
from weft.compile.guards.state import Tensors
from weft.compile.native import Native
from weft.compile.phases import phase, recording
from weft.compile.pipeline import run as run_passes
from weft.compile.why import advice, reason
from weft.config import config
from weft.core.mode import mode
from weft.core.pytree import tree_flatten, tree_unflatten
from weft.core.tensor import Tensor
from weft.dtype import default_dtype
from weft.errors import ArgumentError, ShapeError, WeftError
from weft.graph.capture import capture, labels_of
from weft.graph.captured import Captured, check_apart, rewrite
from weft.graph.interpret import Program, bind_sizes
from weft.graph.ir import Node

if TYPE_CHECKING:
    from weft.compile.explain import Explanation


class Compilation(NamedTuple):
    """One compilation: why it was needed, and what it took."""

    why: str
    seconds: float
    nodes: int
    kernels: int
    when: float  # in seconds, as ``time.time``
    phases: dict[str, float]  # seconds by phase
    cached: str  # where the machine code came from

    def __str__(self) -> str:
        return (
            f"{self.why}: {self.nodes} nodes, {self.kernels} kernels, "
            f"{self.seconds * 1e3:.0f} ms"
        )


class Entry:
    """One compiled form of a function."""

    number = 0  # of its compilation

    def __init__(self, fn: Any, args: Any, kwargs: Any, dynamic: Any) -> None:
        reads = Reads(fn, _objects(fn, args, kwargs))
        with phase("capture"), reads.watching():
            self.captured: Captured = capture(fn, *args, dynamic=dynamic, **kwargs)
        self.reads = reads.guards()
        self.tensors = Tensors(self.captured.cells)
        into = [one.recorded for one in self.captured.rewritten]
        self.differentiable = any((*self.captured.wanting, *into))
        self.cells = self.captured.cells
        if self.differentiable:
            self.graph, variables = closed(self.captured.graph)
            self.variables = [self.cells[v.name] for v in variables]
            self.function = GraphFunction(self.graph, self._write)
            self.native = self.function.native
        else:
            self.native = Native(run_passes(self.captured.graph))

    def fits(self, arrays: list[Any]) -> bool:
        """Whether this form is for arguments of these shapes."""
        try:
            sizes = bind_sizes(self.captured.graph.inputs, arrays)
        except ShapeError:
            return False
        found = self.captured.graph.sizes.assumptions.values()
        return all(assumption.holds(sizes) for assumption in found)

    def holds(self) -> bool:
        """Whether Python is still as the program found it."""
        if not self.reads.holds() or not self.tensors.holds():
            return False
        return all(guard.read() == guard.value for guard in self.captured.guards)

    def stale(self) -> str | None:
        """Which Python value has changed since the capture, if any."""
        found = self.reads.changed() or self.tensors.changed()
        if found is not None:
            return found
        for guard in self.captured.guards:
            now = guard.read()
            if now != guard.value:
                return f"{guard.what} changed from {guard.value!r} to {now!r}"
        return None

    def run(self, leaves: list[Any], arrays: list[Any]) -> Any:
        if self.captured.rewritten:
            known = {k: cell.get() for k, cell in self.cells.items() if _has(cell)}
            check_apart(self.captured, arrays, known)
        if self.differentiable and mode.recording:
            return self._recorded(leaves)
        if self.differentiable:
            held = [cell.get() for cell in self.variables]
            results, changed = self.native.run([*arrays, *held], {})
        else:
            store = {v: self.cells[v.name].get() for v in self.native.reads}
            results, changed = self.native.run(arrays, store)
        found = [Tensor(array) for array in results]
        self._write(changed)
        rewrite(self.captured, leaves, found)
        return self._tree(found)

    def _write(self, changed: dict[Any, Any]) -> None:
        for variable, array in changed.items():
            self.cells[variable.name].set(array)

    def _recorded(self, leaves: list[Any]) -> Any:
        tensors = [x for x in leaves if isinstance(x, (Tensor, np.ndarray))]
        given = [Tensor(x) if isinstance(x, np.ndarray) else x for x in tensors]
        for place, _ in self.captured.rewritten:
            given[place] = given[place].clone()  # a derivative may need the old value
        held = [_as_tensor(cell) for cell in self.variables]
        found = self.function([*given, *held])
        rewrite(self.captured, leaves, found)
        return self._tree(found)

    def _tree(self, found: Any) -> Any:
        some = iter(found)
        values = self.captured.values
        out = [next(some) if type(v) is Node else v for v in values]
        return tree_unflatten(out, self.captured.outs)


class CompiledFunction:
    """A function that runs as native code; see ``weft.compile``."""

    def __init__(
        self, fn: Callable[..., Any], dynamic: bool | None, verify: bool,
        max_compiles: int,
    ) -> None:  # fmt: skip
        self.fn = fn
        self.dynamic = dynamic
        self.verify = verify
        self.max_compiles = max_compiles
        self.compiles: list[Compilation] = []
        self._entries: dict[Any, list[Entry]] = {}
        self._seen: dict[Any, list[list[tuple[int, ...]]]] = {}
        if not isinstance(fn, type) and callable(fn):
            functools.update_wrapper(self, fn, updated=())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves, structure = tree_flatten((args, kwargs))
        if mode.capture is not None or any(
            isinstance(x, Tensor) and x._interpreter is not None for x in leaves
        ):
            return self.fn(*args, **kwargs)  # inside another program: be part of it
        arrays = [_array(x) for x in leaves if isinstance(x, (Tensor, np.ndarray))]
        key = (structure, tuple(map(_kind, leaves)), _settings())
        entries = self._entries.get(key, [])
        why = ""
        for k, entry in enumerate(entries):
            if entry.fits(arrays):
                if entry.holds():
                    if k:  # the next call is likely to be like this one
                        entries.insert(0, entries.pop(k))
                    return self._run(entry, leaves, arrays, args, kwargs)
                why = why or entry.stale() or ""
        entry = self._compile(key, args, kwargs, arrays, why)
        return self._run(entry, leaves, arrays, args, kwargs)

    def _run(
        self, entry: Entry, leaves: Any, arrays: Any, args: Any, kwargs: Any
    ) -> Any:
        if self.verify:
            self._verify(entry, arrays)
        return entry.run(leaves, arrays)

    def _compile(
        self, key: Any, args: Any, kwargs: Any, arrays: list[Any], why: str
    ) -> Entry:
        shapes = [a.shape for a in arrays]
        labels = labels_of(self.fn, args, kwargs)
        tensors = self._tensor_labels(args, kwargs)
        why = why or reason(self._seen, key, shapes, labels, tensors)
        if len(self.compiles) >= self.max_compiles:
            past = "\n".join(f"  {c}" for c in self.compiles[-5:])
            hint = advice([*[c.why for c in self.compiles], why])
            raise ArgumentError(
                f"compile: {self!r} would be compiled for the "
                f"{len(self.compiles) + 1}th time ({why}); the last ones were\n{past}\n"
                f"{hint}, or raise max_compiles"
            )
        start = time.perf_counter()
        with recording() as record:
            entry = self._entry(args, kwargs, self._open(key, shapes, args, kwargs))
        self._entries.setdefault(key, []).insert(0, entry)
        self._seen.setdefault(key, []).append(shapes)
        took = time.perf_counter() - start
        counts = len(entry.native.graph), len(entry.native.kernels)
        when = time.time() - took
        self.compiles.append(
            Compilation(why, took, *counts, when, record.seconds, record.cached)
        )
        entry.number = len(self.compiles) - 1
        return entry

    def _entry(self, args: Any, kwargs: Any, names: Any) -> Entry:
        """Compile with symbolic sizes; for these sizes alone if that cannot be."""
        try:
            return Entry(self.fn, args, kwargs, names)
        except Exception:
            if names is None or self.dynamic:
                raise
        return Entry(self.fn, args, kwargs, None)

    def _open(self, key: Any, shapes: list[Any], args: Any, kwargs: Any) -> Any:
        """Names for the sizes that have differed between calls."""
        if self.dynamic is False:
            return None
        before = self._seen.get(key, [])
        columns: dict[tuple[int, ...], str] = {}
        found: dict[str, dict[int, str]] = {}
        labels = iter(self._tensor_labels(args, kwargs))
        for k, shape in enumerate(shapes):
            label = next(labels)
            for d, n in enumerate(shape):
                history = (*[past[k][d] for past in before], n)
                if len(set(history)) > 1 or (self.dynamic and n > 1):
                    name = columns.setdefault(history, f"s{len(columns)}")
                    found.setdefault(label, {})[d] = name
        return found or None

    def _tensor_labels(self, args: Any, kwargs: Any) -> list[str]:
        leaves, _ = tree_flatten((args, kwargs))
        labels = labels_of(self.fn, args, kwargs)
        pairs = zip(leaves, labels, strict=True)
        return [n for x, n in pairs if isinstance(x, (Tensor, np.ndarray))]

    def _verify(self, entry: Entry, arrays: list[Any]) -> None:
        """Run the captured graph by the interpreter too, and compare."""
        graph = entry.captured.graph
        store = {c.variable: c.get() for c in entry.cells.values() if _has(c)}
        want, changed = Program(graph, graph.outputs).run(arrays, store)
        if entry.differentiable:
            held = [cell.get() for cell in entry.variables]
            got, writes = entry.native.run([*arrays, *held], {})
        else:
            got, writes = entry.native.run(arrays, store)
        names = [o.name for o in graph.outputs]
        pairs = list(zip(names, want, got, strict=True))
        pairs += [(v.name, a, writes[v]) for v, a in changed.items() if v in writes]
        for name, a, b in pairs:
            _compare(name, a, b)

    def explain(self, *, measure: bool = False) -> Explanation:
        """What was compiled, why and how; ``measure`` also times every kernel.

        Printed, it is a short report; its parts say more, and ``html`` is a page.

        >>> f = weft.compile(lambda x: (x.exp() + 1).sum())
        >>> f(weft.ones(100)).shape
        ()
        >>> f.explain().kernels[0].operators
        ['exp', 'add', 'sum']
        """
        from weft.compile.explain import Explanation

        return Explanation(self, measure=measure)

    def __repr__(self) -> str:
        name = getattr(self.fn, "__name__", type(self.fn).__name__)
        return f"<compiled {name}, {len(self.compiles)} compilations>"


def _as_tensor(cell: Any) -> Tensor:
    shown = cell.show()
    return shown if isinstance(shown, Tensor) else Tensor(cell.get())


def _has(cell: Any) -> bool:
    try:
        cell.get()
    except WeftError:
        return False
    return True


def _compare(name: str, want: Any, got: Any) -> None:
    exact = not np.issubdtype(want.dtype, np.inexact)
    close = np.array_equal(want, got) if exact else np.allclose(
        want, got, rtol=1e-3, atol=1e-5, equal_nan=True
    )  # fmt: skip
    if not close:
        gap = np.max(np.abs(np.asarray(want, float) - np.asarray(got, float)))
        raise ArgumentError(
            f"compile(verify=True): {name!r} differs from the interpreted program by "
            f"up to {gap:.3g}; please report this as a bug"
        )


def _objects(fn: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    """The arguments that are Python objects, by name."""
    leaves, _ = tree_flatten((args, kwargs))
    names = labels_of(fn, args, kwargs)
    return dict(zip(names, leaves, strict=True))


def _settings() -> tuple[Any, ...]:
    """The modes that decide what a program computes."""
    return mode.recording, mode.inference, default_dtype(), config.strict_ieee


def _array(value: Any) -> Any:
    return value.to_host() if isinstance(value, Tensor) else value


def _kind(leaf: Any) -> Any:
    """What of an argument decides which compiled form is used."""
    if isinstance(leaf, Tensor):
        return (leaf.dtype, leaf.ndim, leaf._node is not None)
    if isinstance(leaf, np.ndarray):
        return (leaf.dtype, leaf.ndim)
    try:
        hash(leaf)
    except TypeError:
        return id(leaf)
    return (type(leaf), leaf)


def compile(
    fn: Callable[..., Any] | None = None,
    *,
    dynamic: bool | None = None,
    verify: bool = False,
    max_compiles: int = 16,
) -> Any:
    """A function (or module) that runs as native code.

    It may hold a whole training step: forward, ``backward()``, clipping and
    ``optimizer.step()`` become one program. ``dynamic`` makes sizes symbolic from the
    first call on (True) or never (False); otherwise those that differ are.
    ``verify`` runs the interpreter too and compares.

    >>> @weft.compile
    ... def f(x):
    ...     return (x * 2 + 1).sum()
    >>> f(weft.ones(3))
    tensor(9., dtype=float32)
    >>> len(f.compiles)
    1
    """
    if fn is None:
        return functools.partial(
            compile, dynamic=dynamic, verify=verify, max_compiles=max_compiles
        )
    return CompiledFunction(fn, dynamic, verify, max_compiles)
