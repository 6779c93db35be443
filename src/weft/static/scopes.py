"""Variable scopes: variables by name, shared where a scope is entered for reuse."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from weft.core.tensor import Tensor
from weft.dtype import as_dtype, float32
from weft.errors import ArgumentError
from weft.static.collections import GraphKeys, add_to_collection
from weft.static.graph import get_default_graph, name_scope
from weft.static.initializers import started
from weft.static.shapes import sizes_of
from weft.static.variable import Variable, _unquestioned


class Reuse:
    """Sharing of variables that are there, and making of those that are not."""

    def __repr__(self) -> str:
        return "AUTO_REUSE"


AUTO_REUSE = Reuse()


class VariableScope:
    """The scope that ``get_variable`` works in: a name, and what holds inside it.

    >>> with weft.static.Graph().as_default():
    ...     with weft.static.variable_scope("layer") as scope:
    ...         w = weft.static.get_variable("w", [2])
    ...     scope.name, w.name
    ('layer', 'layer/w')
    """

    def __init__(
        self, name: str = "", reuse: Any = None, initializer: Any = None,
        regularizer: Any = None, dtype: Any = float32, original_name_scope: str = "",
        custom_getter: Callable[..., Any] | None = None, constraint: Any = None,
    ) -> None:  # fmt: skip
        self.name, self.reuse = name, reuse
        self.initializer, self.regularizer = initializer, regularizer
        self.dtype, self.original_name_scope = dtype, original_name_scope
        self.custom_getter, self.constraint = custom_getter, constraint

    def reuse_variables(self) -> None:
        """Let ``get_variable`` share variables from here on."""
        self.reuse = True

    def set_initializer(self, initializer: Any) -> None:
        """Let variables start so unless told otherwise."""
        self.initializer = initializer

    def set_regularizer(self, regularizer: Any) -> None:
        """Let variables have this regularizer unless told otherwise."""
        self.regularizer = regularizer

    def _variables(self, key: str) -> list[Variable]:
        from weft.static.collections import get_collection

        return get_collection(key, f"{self.name}/" if self.name else None)

    def global_variables(self) -> list[Variable]:
        """The variables inside."""
        return self._variables(GraphKeys.GLOBAL_VARIABLES)

    def trainable_variables(self) -> list[Variable]:
        """The trainable variables inside."""
        return self._variables(GraphKeys.TRAINABLE_VARIABLES)

    def inside(self, name: str, **changes: Any) -> VariableScope:
        """A scope within this one: what is not told is as here."""
        fields = {**vars(self), "name": name}
        fields.update((k, v) for k, v in changes.items() if v is not None)
        return VariableScope(**fields)

    def __repr__(self) -> str:
        return f"<VariableScope {self.name!r}, reuse={self.reuse}>"


class Store:
    """A graph's variables by name, the scope of the moment, and how often scopes of a
    name were entered."""

    def __init__(self) -> None:
        self.variables: dict[str, Variable] = {}
        self.scope = VariableScope()
        self.entered: dict[str, int] = {}

    def unique(self, default_name: str) -> str:
        """A name for a scope here that was not entered yet."""
        lead = f"{self.scope.name}/" if self.scope.name else ""
        name, k = default_name, 0
        while self.entered.get(lead + name, 0):
            k += 1
            name = f"{default_name}_{k}"
        return name

    def forget_inside(self, name: str) -> None:
        """Count the scopes inside a scope anew: entered again, it names them alike."""
        for key in self.entered:
            if not name or key.startswith(f"{name}/"):
                self.entered[key] = 0


def store() -> Store:
    """The store of the default graph."""
    graph = get_default_graph()
    if graph.store is None:
        graph.store = Store()
    return graph.store


def get_variable_scope() -> VariableScope:
    """The scope that ``get_variable`` works in at this moment.

    >>> with weft.static.Graph().as_default(), weft.static.variable_scope("a"):
    ...     weft.static.get_variable_scope().name
    'a'
    """
    return store().scope


# Arguments of TensorFlow's that say how, not what.
_IGNORED = {"caching_device", "partitioner", "use_resource", "validate_shape"}


@contextmanager
def variable_scope(
    name_or_scope: Any,
    default_name: str | None = None,
    values: Any = None,
    initializer: Any = None,
    regularizer: Any = None,
    reuse: Any = None,
    dtype: Any = None,
    auxiliary_name_scope: bool = True,
    custom_getter: Callable[..., Any] | None = None,
    constraint: Any = None,
    **ignored: Any,
) -> Iterator[VariableScope]:
    """Let the names of variables made inside begin with the scope's.

    ``reuse=True`` shares variables that are there, ``AUTO_REUSE`` makes those that are
    not; a scope that was yielded before is entered again as it is.

    >>> with weft.static.Graph().as_default():
    ...     def weight():
    ...         return weft.static.get_variable("w", [2])
    ...     with weft.static.variable_scope("layer"):
    ...         first = weight()
    ...     with weft.static.variable_scope("layer", reuse=True):
    ...         weight() is first
    True
    """
    if ignored.keys() - _IGNORED:
        unknown = min(ignored.keys() - _IGNORED)
        raise ArgumentError(f"variable_scope: there is no argument {unknown!r}")
    kept = store()
    outer = kept.scope
    changes = {
        "reuse": outer.reuse or reuse, "initializer": initializer,
        "regularizer": regularizer, "dtype": dtype, "custom_getter": custom_getter,
        "constraint": constraint,
    }  # fmt: skip
    if isinstance(name_or_scope, VariableScope):
        with _entered_again(kept, name_or_scope, changes, auxiliary_name_scope) as it:
            yield it
        return
    name = name_or_scope
    if name is None and default_name is not None:
        name = kept.unique(default_name)
    if not name:
        raise ArgumentError("variable_scope: expected a name or a default_name")
    full = f"{outer.name}/{name}" if outer.name else name
    kept.entered[full] = kept.entered.get(full, 0) + 1
    with _names(name, auxiliary_name_scope) as lead:
        scope = outer.inside(full, original_name_scope=lead, **changes)
        try:
            kept.scope = scope
            yield scope
        finally:
            kept.scope = outer
            kept.forget_inside(full)


@contextmanager
def _names(name: str, wanted: bool) -> Iterator[str]:
    if not wanted:
        yield get_default_graph().builder.prefix
        return
    with name_scope(name) as lead:
        yield lead


@contextmanager
def _entered_again(
    kept: Store, scope: VariableScope, changes: dict[str, Any], names: bool
) -> Iterator[VariableScope]:
    """Enter a scope that was made before, as if it stood at the top."""
    outer, before = kept.scope, dict(kept.entered)
    kept.entered[scope.name] = kept.entered.get(scope.name, 0) + 1
    kept.forget_inside(scope.name)
    with _names(scope.name.rpartition("/")[2], names and bool(scope.name)):
        changes["reuse"] = changes["reuse"] or scope.reuse
        try:
            kept.scope = scope.inside(scope.name, **changes)
            yield kept.scope
        finally:
            kept.scope, kept.entered = outer, before


def get_variable(
    name: str,
    shape: Any = None,
    dtype: Any = None,
    initializer: Any = None,
    regularizer: Any = None,
    trainable: bool | None = None,
    collections: Any = None,
    constraint: Any = None,
    custom_getter: Callable[..., Any] | None = None,
    **ignored: Any,
) -> Variable:
    """The variable of this name in the scope of the moment: made, or shared.

    Unless told otherwise by an argument or the scope it starts with Glorot's uniform
    numbers over a filter's whole window (zeros for whole numbers).

    >>> g = weft.static.Graph()
    >>> with g.as_default():
    ...     weft.static.get_variable("w", [2, 3]).get_shape()
    (2, 3)
    """
    scope = store().scope
    fields = {
        "shape": shape, "dtype": dtype, "initializer": initializer,
        "regularizer": regularizer, "trainable": trainable, "collections": collections,
        "constraint": constraint, **ignored,
    }  # fmt: skip
    getter = custom_getter or scope.custom_getter
    full = f"{scope.name}/{name}" if scope.name else name
    if getter is not None:
        return getter(_got, full, **fields)
    return _got(full, **fields)


def _got(name: str, *args: Any, **fields: Any) -> Variable:
    """The variable of a full name, from the store or new."""
    kept = store()
    found = kept.variables.get(name)
    if found is not None:
        _check_shared(kept.scope, found, name, *args, **fields)
        return found
    if kept.scope.reuse is True:
        raise ArgumentError(
            f"get_variable: there is no variable {name!r} to share; make it before the "
            "scope is entered with reuse=True, or use reuse=AUTO_REUSE"
        )
    made = kept.variables[name] = _made(kept.scope, name, *args, **fields)
    return made


def _check_shared(
    scope: VariableScope, found: Variable, name: str, shape: Any = None,
    dtype: Any = None, **fields: Any,
) -> None:  # fmt: skip
    if not scope.reuse:
        raise ArgumentError(
            f"get_variable: there is a variable {name!r} already, and its scope is not "
            "for reuse; use reuse=True or reuse=AUTO_REUSE in variable_scope to share "
            f"it\n  made at {found.node.line}"
        )
    if shape is not None and tuple(sizes_of(shape)) != found.static_shape:
        raise ArgumentError(
            f"get_variable: the shared variable {name!r} has shape "
            f"{found.static_shape}, got {tuple(sizes_of(shape))}"
        )
    if dtype is not None and as_dtype(dtype) is not found.dtype:
        raise ArgumentError(
            f"get_variable: the shared variable {name!r} is {found.dtype.name}, got "
            f"{as_dtype(dtype).name}"
        )


def _made(
    scope: VariableScope, name: str, shape: Any = None, dtype: Any = None,
    initializer: Any = None, regularizer: Any = None, trainable: bool | None = None,
    constraint: Any = None, **fields: Any,
) -> Variable:  # fmt: skip
    chosen = initializer if initializer is not None else scope.initializer
    by_shape = chosen is None or (callable(chosen) and not isinstance(chosen, Tensor))
    wanted = None if dtype is None else as_dtype(dtype)
    if wanted is None and by_shape:
        wanted = as_dtype(scope.dtype)
    if shape is None and by_shape:
        raise ArgumentError(f"get_variable {name!r}: expected a shape")
    sizes = None if shape is None else tuple(sizes_of(shape))
    graph = get_default_graph()
    with graph.builder.at_top():
        made = Variable(
            lambda: started(chosen, sizes, wanted), trainable, name, wanted,
            constraint=scope.constraint if constraint is None else constraint, **fields,
        )  # fmt: skip
    regular = scope.regularizer if regularizer is None else regularizer
    if regular is not None:
        _penalize(made, regular)
    return made


def _penalize(variable: Variable, regularizer: Any) -> None:
    """Put a variable's penalty into the collection of regularization losses."""
    build = get_default_graph().builder
    lead = f"{variable.name}/Regularizer"
    with build.at_top(), build.scope(lead), build.uncontrolled(), _unquestioned():
        loss = regularizer(variable)
    if loss is not None:
        add_to_collection(GraphKeys.REGULARIZATION_LOSSES, loss)
