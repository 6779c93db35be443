"""Variables: tensors that a session keeps from run to run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from weft.core.mode import mode, set_capture
from weft.core.tensor import Tensor
from weft.dtype import as_dtype
from weft.errors import ArgumentError, DTypeError
from weft.graph import ir
from weft.graph.ir import GraphError, Node
from weft.ops.copies import cast
from weft.ops.indexing import index_put as put
from weft.static.collections import GraphKeys, collection, get_collection
from weft.static.graph import (
    Graph,
    Operation,
    StaticTensor,
    constant,
    get_default_graph,
    group,
)
from weft.static.unranked import recorded


class Variable(StaticTensor):
    """A tensor of the graph whose value a session keeps and operations assign.

    ``initial_value`` is a value, a node, or a function that builds one. As a tensor
    the variable is its value at the start of the run; ``read_value`` makes a node
    that reads it at that point.

    >>> g = weft.static.Graph()
    >>> with g.as_default():
    ...     w = weft.static.Variable([1.0, 2.0], name="w")
    ...     double = w.assign(w * 2)
    >>> with weft.static.Session(g) as session:
    ...     session.run(w.initializer)
    ...     session.run([double, w])[0]
    array([2., 4.], dtype=float32)
    """

    def __init__(
        self,
        initial_value: Any = None,
        trainable: bool | None = None,
        name: str | None = None,
        dtype: Any = None,
        *,
        collections: Any = None,
        constraint: Callable[[Any], Any] | None = None,
        **ignored: Any,
    ) -> None:
        _check_ignored(ignored)
        graph = get_default_graph()
        name = name or "Variable"
        if initial_value is None:
            raise ArgumentError(f"Variable {name!r}: expected an initial value")
        self.constraint = constraint
        if graph.ranks is not None:
            raise GraphError(
                f"Variable {name!r} cannot be made in a run, from a value whose number "
                "of dimensions is not known before; give the placeholder a shape"
            )
        with graph.uncontrolled(), _unquestioned():
            self._build(graph, initial_value, trainable, name, dtype)
        if collections is None:
            collections = [GraphKeys.GLOBAL_VARIABLES]
            collections += [GraphKeys.TRAINABLE_VARIABLES] if self.trainable else []
        for key in collections:
            collection(graph, key).append(self)

    def _build(
        self, graph: Graph, initial_value: Any, trainable: Any, name: str, dtype: Any
    ) -> None:
        unique = graph.builder.unique(name)
        short = unique.removeprefix(graph.builder.prefix)
        with graph.builder.scope(short):
            initial = _initial(graph, initial_value, dtype)
        if trainable is None:
            trainable = initial.dtype.is_inexact
        self.variable = graph.builder.variable(
            ir.Variable(unique, initial.type, trainable=trainable, initial=initial)
        )
        read = graph.builder.read(self.variable, short)
        super().__init__(read, interpreter=graph)
        with graph.builder.scope(short):
            node = graph.builder.add(
                ir.ASSIGN, (initial,), {"variable": self.variable}, name="Assign"
            )
        self.initializer = Operation(graph, node)

    def __getitem__(self, index: Any) -> Any:
        """A part of the variable, of which ``assign`` changes the variable there.

        >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
        ...     w = weft.static.Variable([1.0, 2.0])
        ...     session.run(w.initializer)
        ...     session.run(w[0].assign(5.0))
        array([5., 2.], dtype=float32)
        """
        out = super().__getitem__(index)

        def assign(value: Any, name: str | None = None) -> StaticTensor:
            part = index if isinstance(index, tuple) else (index,)
            return self._changed(lambda now: put(now, part, self._operand(value)))

        if type(out) is StaticTensor:
            out.assign = assign
        return out

    @property
    def initial_value(self) -> StaticTensor:
        """The node of the first value."""
        return self.graph.symbol(self.variable.initial)  # type: ignore[return-value]

    def __repr__(self) -> str:
        return repr(self.alias())

    @property
    def trainable(self) -> bool:
        """Whether optimizers change it unless told otherwise."""
        return self.variable.trainable

    def alias(self, node: Any = None) -> Tensor:
        twin = StaticTensor(self.node, interpreter=self._interpreter)
        twin._node = node
        twin._storage = self.storage_record
        return twin

    @recorded
    def read_value(self) -> StaticTensor:
        """A node that reads the value when it runs (after its control inputs)."""
        graph = self.graph
        name = self.name.rpartition("/")[2]
        node = graph.builder.read(self.variable, f"{name}/read")
        return graph.symbol(node)  # type: ignore[return-value]

    value = read_value

    @recorded
    def assign(self, value: Any, name: str | None = None) -> StaticTensor:
        """A node that gives the variable a new value, which it returns."""
        return self._assign(self._fitting(value))

    @recorded
    def assign_add(self, delta: Any, name: str | None = None) -> StaticTensor:
        """A node that adds to the variable's value at that time."""
        return self._changed(lambda now: now + self._operand(delta))

    @recorded
    def assign_sub(self, delta: Any, name: str | None = None) -> StaticTensor:
        """A node that subtracts from the variable's value at that time."""
        return self._changed(lambda now: now - self._operand(delta))

    def _changed(self, change: Callable[[StaticTensor], Any]) -> StaticTensor:
        self._check_outside_control_flow()
        return self._assign(self._fitting(change(self.read_value())))

    def _operand(self, value: Any) -> Any:
        return value if isinstance(value, (Tensor, int, float)) else constant(value)

    def become(self, other: Any) -> None:
        raise GraphError(
            f"variable {self.name!r} cannot be changed in place; its assign, "
            "assign_add and assign_sub make nodes that change it in a run"
        )

    def _check_outside_control_flow(self) -> None:
        if mode.capture is not None and mode.capture is not self.graph:
            raise GraphError(
                f"variable {self.name!r} cannot be assigned inside a branch or body of "
                "control flow; return the new value from it, and assign it outside"
            )

    def _assign(self, value: Any) -> StaticTensor:
        self._check_outside_control_flow()
        node = self.graph.builder.assign(self.variable, self.graph.lift(value))
        return self.graph.symbol(node)  # type: ignore[return-value]

    def _fitting(self, value: Any) -> Any:
        """The value as a node of the variable's own type."""
        want = self.variable.type
        with self.graph.as_default():
            if not isinstance(value, Tensor):
                value = constant(value, want.dtype)
            if value.dtype is not want.dtype:
                if value.dtype.category > want.dtype.category:
                    raise DTypeError(
                        f"assign: variable {self.name!r} is {want}, got "
                        f"{value.dtype.name}"
                    )
                value = cast(value, want.dtype)
            if tuple(value.shape) != want.shape:
                from weft.errors import ShapeError

                raise ShapeError(
                    f"assign: variable {self.name!r} is {want}, got shape {value.shape}"
                )
        return value

    def initialized_value(self) -> StaticTensor:
        """The initial value's node, for other variables' initial values."""
        return self.graph.symbol(self.variable.initial)  # type: ignore[return-value]

    def load(self, value: Any, session: Any = None) -> None:
        """Set the value in a session directly."""
        from weft.static.session import default_session

        (session or default_session()).load(self, value)


# Arguments of TensorFlow's that say how, not what: where a value lies, who checks it.
_IGNORED = {
    "aggregation", "caching_device", "expected_shape", "import_scope", "shape",
    "synchronization", "use_resource", "validate_shape", "variable_def",
}  # fmt: skip


def _check_ignored(given: dict[str, Any]) -> None:
    unknown = sorted(given.keys() - _IGNORED)
    if unknown:
        raise ArgumentError(f"Variable: there is no argument {unknown[0]!r}")


@contextmanager
def _unquestioned() -> Iterator[None]:
    """Let nodes go to the static graph, also inside a body of control flow."""
    before = set_capture(None)
    try:
        yield
    finally:
        set_capture(before)


def _initial(graph: Graph, value: Any, dtype: Any) -> Node:
    if callable(value) and not isinstance(value, Tensor):
        value = value()
    if isinstance(value, StaticTensor):
        if value.graph is not graph:
            raise GraphError(
                f"Variable: the initial value {value.name!r} belongs to another graph"
            )
        out: Any = value if dtype is None else cast(value, as_dtype(dtype))
        return graph.lift(out)
    return constant(value, dtype, "initial_value").node


def global_variables(scope: str | None = None) -> list[Variable]:
    """All variables of the default graph but local ones.

    >>> with weft.static.Graph().as_default():
    ...     w = weft.static.Variable(1.0, name="w")
    ...     weft.static.global_variables()
    [<read 'w' float32[]>]
    """
    return get_collection(GraphKeys.GLOBAL_VARIABLES, scope)


def local_variables(scope: str | None = None) -> list[Variable]:
    """The variables that count something and are no part of a model.

    >>> with weft.static.Graph().as_default():
    ...     weft.static.local_variables()
    []
    """
    return get_collection(GraphKeys.LOCAL_VARIABLES, scope)


def trainable_variables(scope: str | None = None) -> list[Variable]:
    """The variables that optimizers change unless told otherwise.

    >>> with weft.static.Graph().as_default():
    ...     step = weft.static.Variable(0, name="step", trainable=False)
    ...     weft.static.trainable_variables()
    []
    """
    return get_collection(GraphKeys.TRAINABLE_VARIABLES, scope)


def global_variables_initializer() -> Operation:
    """An operation that gives every variable of the default graph its first value.

    >>> g = weft.static.Graph()
    >>> with g.as_default():
    ...     w = weft.static.Variable(3.0)
    ...     init = weft.static.global_variables_initializer()
    >>> with weft.static.Session(g) as session:
    ...     session.run(init)
    ...     float(session.run(w))
    3.0
    """
    return variables_initializer(global_variables())


# TensorFlow's names from before version 0.12
all_variables = global_variables
initialize_all_variables = global_variables_initializer


def local_variables_initializer() -> Operation:
    """An operation that gives every local variable its first value.

    >>> with weft.static.Graph().as_default():
    ...     weft.static.local_variables_initializer()
    <group 'init'>
    """
    return variables_initializer(local_variables())


def model_variables(scope: str | None = None) -> list[Variable]:
    """The variables of the collection ``GraphKeys.MODEL_VARIABLES``.

    >>> with weft.static.Graph().as_default():
    ...     weft.static.model_variables()
    []
    """
    return get_collection(GraphKeys.MODEL_VARIABLES, scope)


def moving_average_variables(scope: str | None = None) -> list[Variable]:
    """The variables that have a moving average.

    >>> with weft.static.Graph().as_default():
    ...     weft.static.moving_average_variables()
    []
    """
    return get_collection(GraphKeys.MOVING_AVERAGE_VARIABLES, scope)


def tables_initializer(name: str = "init_all_tables") -> Operation:
    """An operation that does nothing: there are no tables.

    >>> with weft.static.Graph().as_default():
    ...     weft.static.tables_initializer()
    <group 'init_all_tables'>
    """
    return group(name=name)


def variables_initializer(var_list: Any, name: str = "init") -> Operation:
    """An operation that gives these variables their first values.

    >>> with weft.static.Graph().as_default():
    ...     weft.static.variables_initializer([weft.static.Variable(1.0)])
    <group 'init'>
    """
    return group(*[v.initializer for v in var_list], name=name)


def assign(ref: Variable, value: Any, name: str | None = None) -> StaticTensor:
    """``ref.assign(value)``.

    >>> g = weft.static.Graph()
    >>> with g.as_default():
    ...     w = weft.static.Variable(1.0, name="w")
    ...     weft.static.assign(w, 2.0)
    <assign 'w/assign' float32[]>
    """
    return ref.assign(value, name)


def assign_add(ref: Variable, value: Any, name: str | None = None) -> StaticTensor:
    """``ref.assign_add(value)``.

    >>> g = weft.static.Graph()
    >>> with g.as_default():
    ...     weft.static.assign_add(weft.static.Variable(1, name="n"), 2).name
    'n/assign'
    """
    return ref.assign_add(value, name)


def assign_sub(ref: Variable, value: Any, name: str | None = None) -> StaticTensor:
    """``ref.assign_sub(value)``.

    >>> g = weft.static.Graph()
    >>> with g.as_default():
    ...     weft.static.assign_sub(weft.static.Variable(1, name="n"), 2).name
    'n/assign'
    """
    return ref.assign_sub(value, name)
