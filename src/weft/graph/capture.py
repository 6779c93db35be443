"""Capture: run a Python function once with symbols, and keep what it did.

While the function runs, every operator of this thread becomes a node, and tensors from
outside are borrowed (``outside_tensors``). So a whole training step can be captured.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.core.mode import mode, set_capture
from weft.core.number import Number
from weft.core.op import TensorType
from weft.core.pytree import tree_flatten
from weft.core.size import Scope
from weft.core.tape import Leaf
from weft.core.tensor import Tensor
from weft.core.tracer import Tracer
from weft.dtype import as_dtype, default_dtype, float64
from weft.errors import ArgumentError, shorten
from weft.graph.captured_program import TENSOR, Captured, Rewritten
from weft.graph.console import Console
from weft.graph.effects import Copies, nodes_of
from weft.graph.ir import Builder, Node
from weft.graph.labels import known_names, labels_of, name_of
from weft.graph.outside_tensors import LOCK, Capture
from weft.graph.settings import kept_settings
from weft.graph.sharing import Sharing, check_hooks, wants_grad
from weft.graph.symbol import Restart, Symbol, refusing
from weft.graph.value_texts import check_shown


@dataclass(frozen=True)
class Spec:
    """A tensor without a value: sizes by number or by name, and a dtype.

    >>> weft.graph.Spec(("B", 784))
    Spec(shape=('B', 784), dtype=None)
    """

    shape: tuple[int | str, ...]
    dtype: Any = None


def capture(
    fn: Callable[..., Any],
    *examples: Any,
    dynamic: Mapping[str, Mapping[int, str]] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> Captured:
    """Run ``fn`` once with symbols in place of the examples' tensors.

    ``dynamic`` names the sizes that may differ from run to run, by argument and
    dimension; an example may also be a ``Spec``, whose named sizes are dynamic.

    >>> step = weft.graph.capture(
    ...     lambda x: x.mean(0), weft.ones(4, 3), dynamic={"x": {0: "B"}})
    >>> step.graph.inputs[0]
    <input 'x' float32[B, 3]>
    >>> step(weft.ones(9, 3)).shape
    (3,)
    """
    try:
        return complete(lambda: capture_call(fn, examples, kwargs, dynamic, name))
    except BaseException as error:
        apply_undone()
        shorten(error)
        raise


def complete(attempt: Callable[[], Any]) -> Any:
    """The result of a capture that begins again while it makes something outside, or
    meets branches and loops of Python over values that are not known."""
    from weft.graph.python_control.source import Rewrite, in_place_of

    codes: list[Any] = []
    while True:
        try:
            with in_place_of(codes):
                return attempt()
        except Restart:
            mode.undone = ()
        except Rewrite as error:
            if any(error.code is code for code in codes):
                raise
            codes.append(error.code)
            mode.undone = ()


def apply_undone() -> None:
    """Apply the effects of a failed capture, which an eager call would have had before
    its error."""
    effects, mode.undone = mode.undone, ()
    for effect in effects:
        effect()


def capture_call(
    fn: Callable[..., Any],
    examples: tuple[Any, ...],
    kwargs: dict[str, Any],
    dynamic: Mapping[str, Mapping[int, str]] | None = None,
    name: str | None = None,
    existed: Callable[[Any], bool] = lambda value: True,
    numbers: Collection[int] = (),
    *,
    anywhere: bool = False,
) -> Captured:
    """Capture a call.

    ``existed`` tells which Python values were there before; ``numbers`` are the
    indices, among all leaves, of floats that are inputs. With ``anywhere``, tensors may
    be on any device that has a target.
    """
    label = name or name_of(fn)
    builder = Builder(label)
    builder.sizes.unseen = True
    leaves, ins = tree_flatten((examples, kwargs))
    labels = labels_of(fn, examples, kwargs)
    wanted = _dynamic(dynamic or {}, labels)
    known = known_names(fn)
    with LOCK, refusing(), Capture(builder, known) as run:
        run.existed, run.anywhere = existed, anywhere
        symbols: list[Any] = []
        given: list[Any] = []
        run.gradients.leaves = leaves
        for position, (leaf, where) in enumerate(zip(leaves, labels, strict=True)):
            if len(symbols) in numbers:
                given.append(TENSOR)
                kind = TensorType((), float64)
                symbols.append(Number(_input(run, kind, where, leaf), run, leaf))
                continue
            if isinstance(leaf, Tensor):
                run.enter(leaf, where)
            found = _type_of(leaf, wanted.get(where, {}), builder.sizes, where)
            given.append(leaf if found is None else TENSOR)
            symbols.append(leaf if found is None else _input(run, found, where, leaf))
            if isinstance(leaf, Tensor):
                run.gradients.enter(symbols[-1], position, where)
        copies = Copies((examples, kwargs), symbols)
        tensors = [x.tensor if type(x) is Number else x for x in symbols]
        begun = [(x, x.node, x._node) for x in tensors if isinstance(x, Symbol)]
        console = Console(run)
        mode.undone = console.show, copies.change_given
        with console.listening(), kept_settings():
            result = _run(fn, copies)
        mode.undone = ()
        out_leaves, outs = tree_flatten(result)
        sharing = Sharing(run, leaves, symbols, copies)
        returned = sharing.returned(result, out_leaves)
        effects = [
            *run.effects, *sharing.changes(), *sharing.kept_values(),
            *sharing.argument_gradients(),
        ]  # fmt: skip
        wants = sharing.wants
        check_shown(run)
        run.check_hooks()
        run.check_conjugates(out_leaves)
        del result, copies, sharing, console
        values, cells = run.close(out_leaves)
        held = {id(getattr(cell, "tensor", None)) for cell in cells.values()}
        needed = run.gradients.needed(held)
        run.gradients.clear()
        changed = [
            (x.node, Rewritten(position, x._node is not tape))
            for position, (x, node, tape) in enumerate(begun)
            if x.node is not node
        ]
        begun.clear()
        wanting = [wants_grad(x) for x in out_leaves]
        check_hooks(out_leaves, tensors)
        for leaf in (*out_leaves, *tensors):
            if isinstance(leaf, Symbol):
                leaf._node = None
    leaf = None
    out_leaves.clear()
    symbols.clear()
    tensors.clear()
    run.origins.clear()
    run.numbers.clear()
    run.check_escapes(set())
    nodes = [v for v in values if type(v) is Node]
    more = [node for effect in effects for node in nodes_of(effect)]
    graph = builder.finish([*nodes, *more, *[node for node, _ in changed]])
    program = Captured(graph, cells, ins, outs, values, given, run.guards)
    program.effects, program.returned, program.wants = effects, returned, wants
    program.device = run.device
    program.wanting = wanting
    program.needed = needed
    program.rewritten = [one for _, one in changed]
    program.regions = run.regions
    program.arrays = run.arrays
    program.buffers = run.kept
    program.emptied = run.emptied
    positions = {node: k for k, node in enumerate(graph.inputs)}
    program.nonzero = [positions[node] for node in run.nonzero]
    if run.writes or returned is not None:  # else a view is as good as a copy
        program.layouts = [(positions[n], how) for n, how in run.layouts.items()]
    return program


def _run(fn: Callable[..., Any], copies: Copies) -> Any:
    args, options = copies.tree
    return fn(*args, **options)


captured_call = _run.__code__  # frames below it belong to the capture


def _input(run: Capture, kind: TensorType, name: str, example: Any) -> Symbol:
    symbol = run.symbol(run.builder.input(kind, name))
    symbol.given = symbol.node
    array = example._data if type(example) is Tensor else example
    if isinstance(array, np.ndarray) and not array.flags.c_contiguous:
        symbol.strides = tuple(n // array.itemsize for n in array.strides)
        symbol.layout = layout_of(array)
        run.orders.transposed.add(symbol.node)
    if isinstance(example, Tensor) and example._node is not None:
        symbol._node = Leaf(symbol)
    return symbol


def layout_of(array: Any) -> Any:
    """An array's layout: None if contiguous, the order of its axes if a transpose of it
    is contiguous, else its strides.

    >>> from weft.graph.capture import layout_of
    >>> x = np.zeros((2, 3))
    >>> layout_of(x), layout_of(x.T), layout_of(x[:, ::2])
    (None, (1, 0), ('strides', 24, 16))
    """
    if not isinstance(array, np.ndarray) or array.flags.c_contiguous:
        return None  # buffers of other devices are contiguous
    order = sorted(range(array.ndim), key=lambda d: -array.strides[d])
    if array.transpose(order).flags.c_contiguous:
        return tuple(order)
    return ("strides", *array.strides)


def _dynamic(given: Mapping[str, Any], labels: list[str]) -> dict[str, Any]:
    unknown = set(given) - set(labels)
    if unknown:
        raise ArgumentError(
            f"capture: dynamic names {sorted(unknown)}, but the arguments are {labels}"
        )
    return dict(given)


def _type_of(leaf: Any, names: Mapping[int, str], scope: Scope, where: str) -> Any:
    """The type of an example, with its named sizes; None for a Python value."""
    if isinstance(leaf, Spec):
        shape = tuple(scope.symbol(n) if isinstance(n, str) else n for n in leaf.shape)
        dtype = default_dtype() if leaf.dtype is None else as_dtype(leaf.dtype)
        return TensorType(shape, dtype)
    if isinstance(leaf, np.ndarray):
        leaf = Tensor(leaf)
    if not isinstance(leaf, Tensor):
        return None
    sizes: list[Any] = list(leaf.shape)
    for dim, name in names.items():
        if not -len(sizes) <= dim < len(sizes):
            raise ArgumentError(
                f"capture: dynamic dimension {dim} of {where!r}, whose shape is "
                f"{tuple(leaf.shape)}"
            )
        hint = scope.hints.get(name)
        if hint is not None and hint != sizes[dim]:
            raise ArgumentError(
                f"capture: the size {name!r} is {hint} in one example and "
                f"{sizes[dim]} in dimension {dim} of {where!r}"
            )
        sizes[dim] = scope.symbol(name, sizes[dim])
    return TensorType(tuple(sizes), leaf.dtype)


@contextmanager
def paused() -> Iterator[None]:
    """Compute for real inside a capture (an optimizer's first state, …)."""
    before = set_capture(None)
    try:
        yield
    finally:
        set_capture(before)


def capturing(*values: Any) -> Any:
    """The capture that runs in this thread, or None.

    With values, also the graph under construction that one of them is part of, such as
    a static graph.

    >>> weft.graph.capturing() is None
    True
    """
    if mode.capture is not None:
        return mode.capture
    for leaf in tree_flatten(values)[0]:
        while isinstance(leaf, Tracer):
            if isinstance(leaf, Symbol):
                return leaf._interpreter
            leaf = leaf.below
    return None
