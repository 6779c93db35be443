"""Data sets: elements from arrays or a generator, changed on the way, for a session.

A data set is a recipe. An iterator gives its next element in every run that needs it,
and ``errors.OutOfRangeError`` at the end; each session has its own place in it.
"""

from __future__ import annotations

import collections.abc
import itertools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from weft.core.pytree import tree_flatten, tree_map, tree_unflatten
from weft.dtype import as_dtype, bool_, int64
from weft.errors import ArgumentError, ShapeError
from weft.graph.ir import CONSTANT
from weft.ops import random as draws
from weft.static.building import as_node
from weft.static.effects import effect, fed_by, running_session
from weft.static.errors import OutOfRangeError
from weft.static.graph import (
    Graph,
    Operation,
    StaticTensor,
    constant,
    get_default_graph,
    placeholder,
)

__all__ = [
    "AUTOTUNE", "Dataset", "Iterator", "make_initializable_iterator",
    "make_one_shot_iterator",
]  # fmt: skip
AUTOTUNE = -1

Element = tuple[np.ndarray, ...]  # the leaves of an element
Elements = collections.abc.Iterator[Element]
Given = dict[StaticTensor, np.ndarray]  # values of nodes that a data set depends on
_counter = itertools.count()


class Dataset:
    """Elements, one after another.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     data = weft.static.data.Dataset.from_tensor_slices([1, 2, 3, 4, 5])
    ...     data = data.map(lambda x: x * x).batch(2)
    ...     following = data.make_one_shot_iterator().get_next()
    ...     [session.run(following).tolist() for _ in range(3)]
    [[1, 4], [9, 16], [25]]
    """

    def __init__(
        self, start: Callable[[Given], Elements], structure: Any, types: Any,
        shapes: Any, inputs: Iterable[StaticTensor] = (),
    ) -> None:  # fmt: skip
        self._start, self._structure = start, structure
        self._types, self._shapes = list(types), list(shapes)
        self._inputs = list(dict.fromkeys(inputs))

    def _with(self, start: Any, shapes: Any = None, inputs: Any = ()) -> Dataset:
        """A data set with elements like these from another recipe."""
        shapes = self._shapes if shapes is None else shapes
        more = [*self._inputs, *inputs]
        return Dataset(start, self._structure, self._types, shapes, more)

    @property
    def output_types(self) -> Any:
        """The dtypes of an element's parts."""
        return tree_unflatten(self._types, self._structure)

    @property
    def output_shapes(self) -> Any:
        """The shapes of an element's parts, None for a size that is not known."""
        plain = [_Shape(n if isinstance(n, int) else None for n in shape)
                 for shape in self._shapes]  # fmt: skip
        return tree_unflatten(plain, self._structure)

    # -- beginnings

    @staticmethod
    def from_tensor_slices(tensors: Any) -> Dataset:
        """The rows of arrays; several arrays must have as many rows each."""
        leaves, structure = tree_flatten(_packed(tensors))
        found = [_leaf(one) for one in leaves]
        for leaf in found:
            if not leaf.shape:
                raise ShapeError("from_tensor_slices: a single number has no rows")
        rows = {leaf.shape[0] for leaf in found if isinstance(leaf.shape[0], int)}
        if len(rows) > 1:
            raise ShapeError(f"from_tensor_slices: different numbers of rows: {rows}")

        def start(given: Given) -> Elements:
            return zip(*[_value(leaf, given) for leaf in found], strict=True)

        return _begun(start, structure, found, [leaf.shape[1:] for leaf in found])

    @staticmethod
    def from_tensors(tensors: Any) -> Dataset:
        """One element."""
        leaves, structure = tree_flatten(_packed(tensors))
        found = [_leaf(one) for one in leaves]

        def start(given: Given) -> Elements:
            return iter([tuple(_value(leaf, given) for leaf in found)])

        return _begun(start, structure, found, [leaf.shape for leaf in found])

    @staticmethod
    def range(*args: int) -> Dataset:
        """Whole numbers, as Python's ``range``."""
        numbers = range(*args)

        def start(given: Given) -> Elements:
            return ((np.asarray(n, np.int64),) for n in numbers)

        return Dataset(start, tree_flatten(0)[1], [int64], [()])

    @staticmethod
    def from_generator(
        generator: Callable[..., Any], output_types: Any, output_shapes: Any = None,
        args: Any = (),
    ) -> Dataset:  # fmt: skip
        """What a Python generator function yields."""
        types, structure = tree_flatten(tree_map(as_dtype, output_types))
        if output_shapes is None:
            raise ArgumentError(
                "from_generator: expected output_shapes; the number of axes must be "
                "known when the graph is built"
            )
        shapes = _shapes_like(output_shapes, structure, len(types))

        def start(given: Given) -> Elements:
            for one in generator(*args):
                leaves = zip(_like(output_types, one), types, strict=True)
                yield tuple(np.asarray(v, t.np) for v, t in leaves)

        return Dataset(start, structure, types, shapes)

    @staticmethod
    def zip(datasets: Any) -> Dataset:
        """Elements of several data sets side by side, up to the end of the shortest."""
        parts: list[Dataset] = tree_flatten(datasets)[0]
        inner = [tree_unflatten(range(len(p._types)), p._structure) for p in parts]
        structure = tree_flatten(
            tree_unflatten(inner, tree_flatten(datasets)[1])
        )[1]  # fmt: skip

        def start(given: Given) -> Elements:
            for row in zip(*[p._start(given) for p in parts], strict=False):
                yield tuple(itertools.chain(*row))

        return Dataset(
            start,
            structure,
            [t for p in parts for t in p._types],
            [s for p in parts for s in p._shapes],
            [i for p in parts for i in p._inputs],
        )

    # -- changes

    def map(
        self, map_func: Callable[..., Any], num_parallel_calls: Any = None,
        deterministic: Any = None,
    ) -> Dataset:  # fmt: skip
        """A function of each element, written with nodes."""
        made = _Function(self, map_func)

        def start(given: Given) -> Elements:
            return (made(element) for element in self._start(given))

        types, shapes = made.types, made.shapes
        return Dataset(start, made.structure, types, shapes, self._inputs)

    def flat_map(self, map_func: Callable[..., Any]) -> Dataset:
        """The elements of the data sets that a function makes, one after another.

        The function gets the values of an element, not nodes, for each element anew.
        """
        return self.interleave(map_func, 1)

    def interleave(
        self, map_func: Callable[..., Any], cycle_length: int = 1,
        block_length: int = 1, num_parallel_calls: Any = None,
    ) -> Dataset:  # fmt: skip
        """The elements of the data sets that a function makes, by turns."""
        first = _Made(self, map_func)

        def start(given: Given) -> Elements:
            waiting = (first(element, given) for element in self._start(given))
            open_ones = list(itertools.islice(waiting, cycle_length))
            while open_ones:
                for one in list(open_ones):
                    found = list(itertools.islice(one, block_length))
                    yield from found
                    if len(found) < block_length:
                        place = open_ones.index(one)
                        open_ones[place : place + 1] = itertools.islice(waiting, 1)

        made = first.example
        return Dataset(start, made._structure, made._types, made._shapes, self._inputs)

    def unbatch(self) -> Dataset:
        """The rows of each element."""
        shapes = [tuple(shape)[1:] for shape in self._shapes]

        def start(given: Given) -> Elements:
            for element in self._start(given):
                yield from zip(*element, strict=True)

        return self._with(start, shapes)

    def filter(self, predicate: Callable[..., Any]) -> Dataset:
        """The elements for which a function, written with nodes, holds."""
        made = _Function(self, predicate)
        if made.types != [bool_] or made.shapes != [()]:
            raise ArgumentError("filter: expected the predicate to give one bool")
        return self._with(lambda given: filter(lambda e: bool(made(e)[0]),
                                               self._start(given)))  # fmt: skip

    def batch(self, batch_size: Any, drop_remainder: bool = False) -> Dataset:
        """So many elements at a time, along a new first axis."""
        return self.padded_batch(batch_size, None, None, drop_remainder)

    def padded_batch(
        self, batch_size: Any, padded_shapes: Any = None, padding_values: Any = None,
        drop_remainder: bool = False,
    ) -> Dataset:  # fmt: skip
        """Batches of elements of different sizes, filled up to the largest.

        A size in ``padded_shapes`` that is not None or -1 is the size to fill up to.
        """
        count = _number(batch_size)
        fills: list[Any] = [0] * len(self._types)
        wanted: list[Any] = [None] * len(self._types)
        if padded_shapes is not None:
            wanted = _shapes_like(padded_shapes, self._structure, len(fills))
        if padding_values is not None:
            fills = [_plain(v) for v in tree_flatten(padding_values)[0]]

        def start(given: Given) -> Elements:
            n = count(given)
            elements = self._start(given)
            while rows := list(itertools.islice(elements, n)):
                if drop_remainder and len(rows) < n:
                    return
                yield tuple(
                    _stacked(part, shape, fill)
                    for part, shape, fill in zip(
                        zip(*rows, strict=True), wanted, fills, strict=True
                    )
                )

        fixed = drop_remainder and isinstance(batch_size, (int, np.integer))
        first: Any = int(batch_size) if fixed else f"batch{next(_counter)}"
        own = [s if w is None else _padded_shape(w) for s, w in
               zip(self._shapes, wanted, strict=True)]  # fmt: skip
        return self._with(start, [(first, *s) for s in own], count.inputs)

    def shuffle(
        self, buffer_size: Any, seed: int | None = None,
        reshuffle_each_iteration: bool | None = None,
    ) -> Dataset:  # fmt: skip
        """The elements in random order, drawn from a buffer of the next ones."""
        size = _number(buffer_size)
        again = reshuffle_each_iteration in (None, True)
        key = [draws.initial_seed() if seed is None else seed]
        key += [next(_counter)] if seed is None else []
        rounds = itertools.count()

        def start(given: Given) -> Elements:
            stream = np.random.default_rng([*key, next(rounds) if again else 0])
            return _shuffled(self._start(given), size(given), stream)

        return self._with(start, inputs=size.inputs)

    def repeat(self, count: Any = None) -> Dataset:
        """The elements several times over, for ever unless told."""
        times = _number(-1 if count is None else count)

        def start(given: Given) -> Elements:
            n = times(given)
            for _ in itertools.count() if n < 0 else range(n):
                some = False
                for element in self._start(given):
                    some = True
                    yield element
                if not some:
                    return

        return self._with(start, inputs=times.inputs)

    def take(self, count: Any) -> Dataset:
        """The first elements (all for -1)."""
        n = _number(count)
        return self._with(
            lambda given: itertools.islice(
                self._start(given), n(given) if n(given) >= 0 else None
            ),
            inputs=n.inputs,
        )

    def skip(self, count: Any) -> Dataset:
        """All but the first elements."""
        n = _number(count)
        return self._with(
            lambda given: itertools.islice(self._start(given), n(given), None),
            inputs=n.inputs,
        )

    def shard(self, num_shards: int, index: int) -> Dataset:
        """Every so-manyth element."""
        return self._with(
            lambda given: itertools.islice(self._start(given), index, None, num_shards)
        )

    def concatenate(self, dataset: Dataset) -> Dataset:
        """These elements, then another data set's of the same kind."""
        if self._types != dataset._types or self._structure != dataset._structure:
            raise ArgumentError(
                f"concatenate: elements of {self.output_types}, then of "
                f"{dataset.output_types}"
            )
        shapes = [_common(a, b) for a, b in
                  zip(self._shapes, dataset._shapes, strict=True)]  # fmt: skip
        return self._with(
            lambda given: itertools.chain(self._start(given), dataset._start(given)),
            shapes, dataset._inputs,
        )  # fmt: skip

    def enumerate(self, start: int = 0) -> Dataset:
        """Each element with its number."""
        return Dataset.zip((Dataset.range(start, 2**62), self))

    def prefetch(self, buffer_size: Any = None) -> Dataset:
        """The data set itself: elements are made when they are needed."""
        return self

    def cache(self, filename: str = "") -> Dataset:
        """The elements, kept in memory after the first time through."""
        kept: list[Element] = []
        whole = [False]

        def start(given: Given) -> Elements:
            if whole[0]:
                yield from kept
                return
            fresh: list[Element] = []
            for element in self._start(given):
                fresh.append(element)
                yield element
            kept[:], whole[0] = fresh, True

        return self._with(start)

    def apply(self, transformation_func: Callable[[Dataset], Dataset]) -> Dataset:
        """``transformation_func`` of the data set."""
        return transformation_func(self)

    # -- iterators

    def make_one_shot_iterator(self) -> Iterator:
        """An iterator that begins with a session's first run, and ends once."""
        if self._inputs:
            raise ArgumentError(
                f"make_one_shot_iterator: the data set depends on {self._inputs[0]!r}; "
                "use make_initializable_iterator, and feed it when the initializer runs"
            )
        return Iterator(self, once=True)

    def make_initializable_iterator(self, shared_name: str | None = None) -> Any:
        """An iterator that begins when its ``initializer`` runs."""
        return Iterator(self)


class _Shape(tuple[Any, ...]):
    """A shape, which is a leaf where a tuple would be a structure."""

    __slots__ = ()


class Iterator:
    """A place in a data set, of which every session has its own.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     data = weft.static.data.Dataset.range(2)
    ...     iterator = data.make_initializable_iterator()
    ...     following = iterator.get_next()
    ...     session.run(iterator.initializer)
    ...     int(session.run(following)), int(session.run(following))
    (0, 1)
    """

    def __init__(self, dataset: Dataset, once: bool = False) -> None:
        self._dataset, self._once = dataset, once
        self._initializer: Operation | None = None

    @staticmethod
    def from_structure(
        output_types: Any, output_shapes: Any = None, shared_name: str | None = None
    ) -> Iterator:
        """An iterator for several data sets: ``make_initializer`` begins one."""
        types, structure = tree_flatten(tree_map(as_dtype, output_types))
        if output_shapes is None:
            raise ArgumentError("from_structure: expected output_shapes")
        shapes = _shapes_like(output_shapes, structure, len(types))
        return Iterator(Dataset(lambda given: iter(()), structure, types, shapes))

    @property
    def initializer(self) -> Operation:
        """An operation that begins at the first element."""
        if self._initializer is None:
            self._initializer = self.make_initializer(self._dataset)
        return self._initializer

    def make_initializer(self, dataset: Dataset, name: str | None = None) -> Operation:
        """An operation that begins at the first element of a data set."""
        if dataset._types != self._dataset._types:
            raise ArgumentError(
                f"make_initializer: expected elements of {self._dataset._types}, got "
                f"{dataset._types}"
            )

        def begin(*values: np.ndarray) -> None:
            given = dict(zip(dataset._inputs, values, strict=True))
            running_session().states[self] = dataset._start(given)

        return effect(begin, dataset._inputs, name or "MakeIterator")

    def get_next(self, name: str = "IteratorGetNext") -> Any:
        """Nodes of the next element: every run that needs one goes on by one."""
        lead = get_default_graph().builder.unique(name).replace("/", "_")
        shapes = [
            [f"{lead}_{n}" if isinstance(n, str) else n for n in shape]
            for shape in self._dataset._shapes
        ]
        nodes = fed_by(self._pull, self._dataset._types, shapes, name)
        return tree_unflatten(nodes, self._dataset._structure)

    def _pull(self, session: Any) -> Element:
        states = session.states
        if self not in states:
            if not self._once:
                raise ArgumentError(
                    "get_next: the iterator has not begun; run its initializer first"
                )
            states[self] = self._dataset._start({})
        found = next(states[self], None)
        if found is None:
            raise OutOfRangeError("get_next: the data set is at its end")
        return found

    @property
    def output_types(self) -> Any:
        """The dtypes of an element's parts."""
        return self._dataset.output_types

    @property
    def output_shapes(self) -> Any:
        """The shapes of an element's parts."""
        return self._dataset.output_shapes


def make_one_shot_iterator(dataset: Dataset) -> Iterator:
    """``dataset.make_one_shot_iterator()``.

    >>> data = weft.static.data.Dataset.range(2)
    >>> weft.static.data.make_one_shot_iterator(data).output_types
    weft.int64
    """
    return dataset.make_one_shot_iterator()


def make_initializable_iterator(
    dataset: Dataset, shared_name: str | None = None
) -> Iterator:
    """``dataset.make_initializable_iterator()``.

    >>> data = weft.static.data.Dataset.range(2)
    >>> weft.static.data.make_initializable_iterator(data).output_types
    weft.int64
    """
    return dataset.make_initializable_iterator()


# -- parts


class _Leaf:
    """A part of what a data set is made from: a value, or a node of the graph."""

    def __init__(self, value: Any) -> None:
        self.node = None
        if isinstance(value, StaticTensor) and value.node.op is CONSTANT:
            value = value.node.params["value"]
        if isinstance(value, StaticTensor):
            self.node, self.dtype = value, value.dtype
            self.shape: tuple[Any, ...] = value.static_shape
            return
        self.value = _plain(value)
        self.dtype, self.shape = as_dtype(self.value.dtype), self.value.shape


_leaf = _Leaf


def _plain(value: Any) -> np.ndarray:
    """A value as an array of the dtype that a constant of it has."""
    if isinstance(value, np.ndarray):
        return value
    with Graph().as_default():
        return np.asarray(as_node(value).node.params["value"])


def _packed(tensors: Any) -> Any:
    """Lists are arrays; tuples and dictionaries are structure."""
    if isinstance(tensors, tuple):
        return tuple(_packed(one) for one in tensors)
    if isinstance(tensors, dict):
        return {key: _packed(one) for key, one in tensors.items()}
    return tensors if isinstance(tensors, StaticTensor) else _plain(tensors)


def _value(leaf: _Leaf, given: Given) -> np.ndarray:
    return leaf.value if leaf.node is None else given[leaf.node]


def _begun(start: Any, structure: Any, found: list[_Leaf], shapes: Any) -> Dataset:
    inputs = [leaf.node for leaf in found if leaf.node is not None]
    return Dataset(start, structure, [leaf.dtype for leaf in found], shapes, inputs)


class _number:
    """A number, or a node that holds one when the iterator begins."""

    def __init__(self, value: Any) -> None:
        self.leaf = _Leaf(value)
        self.inputs = [] if self.leaf.node is None else [self.leaf.node]

    def __call__(self, given: Given) -> int:
        return int(_value(self.leaf, given))


def _shapes_like(shapes: Any, structure: Any, count: int) -> list[Any]:
    """A shape for each part, from a list of sizes or a structure of them."""
    if count == 1 and not isinstance(shapes, dict):
        one = shapes[0] if shapes and _is_shape(shapes[0]) else shapes
        return [tuple(one)]
    values = list(shapes.values()) if isinstance(shapes, dict) else list(shapes)
    flat: list[Any] = []
    for one in values:
        flat += [tuple(one)] if _is_sizes(one) else _shapes_like(one, None, 2)
    if len(flat) != count:
        raise ArgumentError(f"expected {count} shapes, got {len(flat)}")
    return flat


def _is_shape(value: Any) -> bool:
    return isinstance(value, (list, tuple))


def _is_sizes(value: Any) -> bool:
    return all(n is None or isinstance(n, (int, np.integer)) for n in value)


def _padded_shape(shape: Any) -> tuple[Any, ...]:
    return tuple(None if n is None or n == -1 else int(n) for n in shape)


def _common(a: Any, b: Any) -> tuple[Any, ...]:
    if len(a) != len(b):
        raise ShapeError(f"concatenate: elements of shape {a}, then of {b}")
    return tuple(m if m == n else None for m, n in zip(a, b, strict=True))


def _stacked(rows: Any, shape: Any, fill: Any) -> np.ndarray:
    """Rows as one array, filled up to one size where they may differ."""
    if shape is None:
        sizes = {row.shape for row in map(np.asarray, rows)}
        if len(sizes) > 1:
            raise ShapeError(
                f"batch: elements of different shapes {sorted(sizes)}; use padded_batch"
            )
        return np.stack(rows)
    arrays = [np.asarray(row) for row in rows]
    largest = [max(sizes) for sizes in zip(*[a.shape for a in arrays], strict=True)]
    full = [n if want is None or want == -1 else int(want)
            for n, want in zip(largest, shape, strict=True)]  # fmt: skip
    if any(n > m for n, m in zip(largest, full, strict=True)):
        raise ShapeError(f"padded_batch: an element of {largest} is larger than {full}")
    out = np.full((len(arrays), *full), fill, arrays[0].dtype)
    for k, array in enumerate(arrays):
        place: tuple[Any, ...] = (k, *[slice(n) for n in array.shape])
        out[place] = array
    return out


def _shuffled(elements: Elements, size: int, stream: Any) -> Elements:
    """Elements drawn from a buffer, in which the next ones take their places."""
    buffer = list(itertools.islice(elements, size))
    for element in elements:
        k = int(stream.integers(len(buffer)))
        yield buffer[k]
        buffer[k] = element
    stream.shuffle(buffer)
    yield from buffer


def _like(structure: Any, value: Any) -> list[Any]:
    """The parts of a value where a structure has a leaf, in the structure's order."""
    if isinstance(structure, dict):
        parts = [(structure[key], value[key]) for key in structure]
    elif isinstance(structure, (list, tuple)):
        parts = list(zip(structure, value, strict=True))
    else:
        return [value]
    return [leaf for inner, one in parts for leaf in _like(inner, one)]


class _Made:
    """The data sets that a function makes of elements, in a graph of their own."""

    def __init__(self, dataset: Dataset, fn: Callable[..., Any]) -> None:
        self.dataset, self.fn = dataset, fn
        kinds = zip(dataset._types, dataset._shapes, strict=True)
        zeros = [
            np.zeros([n if isinstance(n, int) else 1 for n in shape], kind.np)
            for kind, shape in kinds
        ]
        self.example = self._made(tuple(zeros))

    def _made(self, element: Element) -> Dataset:
        self.graph = Graph("flat_map")
        with self.graph.as_default():
            leaves = [constant(value) for value in element]
            given = tree_unflatten(leaves, self.dataset._structure)
            made = self.fn(*given) if isinstance(given, tuple) else self.fn(given)
        if not isinstance(made, Dataset):
            raise ArgumentError(
                f"flat_map: expected the function to give a Dataset, got {made!r}"
            )
        return made

    def __call__(self, element: Element, given: Given) -> Elements:
        from weft.static.session import Session

        made = self._made(element)
        own = [node for node in made._inputs if node.graph is self.graph]
        values = Session(self.graph, compiled=False).run(own) if own else []
        return iter(made._start({**given, **dict(zip(own, values, strict=True))}))


class _Function:
    """A function written with nodes, for one element at a time."""

    def __init__(self, dataset: Dataset, fn: Callable[..., Any]) -> None:
        from weft.static.session import Session

        graph = Graph("map")
        with graph.as_default():
            self.inputs = [
                placeholder(t, [None if isinstance(n, str) else n for n in s])
                for t, s in zip(dataset._types, dataset._shapes, strict=True)
            ]
            element = tree_unflatten(self.inputs, dataset._structure)
            out = fn(*element) if isinstance(element, tuple) else fn(element)
            out = tuple(out) if isinstance(out, list) else out
            leaves, self.structure = tree_flatten(out)
            self.outputs = [as_node(leaf) for leaf in leaves]
        self.types = [node.dtype for node in self.outputs]
        self.shapes = [node.static_shape for node in self.outputs]
        self.session = Session(graph)
        self._check(graph)

    def _check(self, graph: Graph) -> None:
        for node in self.outputs:
            if node.graph is not graph:
                raise ArgumentError(
                    f"map: the function gives {node!r}, a node of another graph; a "
                    "function of elements can use its arguments and constants alone"
                )

    def __call__(self, element: Element) -> Element:
        feeds = dict(zip(self.inputs, element, strict=True))
        return tuple(self.session.run(self.outputs, feeds))


def __getattr__(name: str) -> Any:
    from weft.static import absent

    raise absent.error("data", name)
