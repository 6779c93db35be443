"""Nodes with an effect outside the graph, and values that a run takes from outside.

A *source* gives placeholders their values at the beginning of every run that needs them
and does not feed them: the next element of a data set, of a queue, or a default. A
*call* is a node that calls a function of Python with its inputs when its turn comes, in
the graph's order.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.core.op import Op
from weft.core.pytree import tree_map
from weft.dtype import as_dtype, bool_
from weft.errors import ArgumentError, DTypeError, ShapeError
from weft.graph.ir import CONSTANT, GraphError, Node
from weft.static.building import as_node
from weft.static.graph import (
    Operation,
    StaticTensor,
    get_default_graph,
    no_op,
    placeholder,
)

if TYPE_CHECKING:
    from weft.static.session import Session

# -- calls


def _run_call(_: Any, *values: Any, call: Callable[..., Any], out: Any) -> Any:
    found = call(*values)
    return () if found is None else found


# The first input is always 0, which says that the evaluation may refuse: passes keep
# a node that may, even where nothing needs its result.
call_op = Op(
    "call",
    inputs="*values",
    refuses={"values": 0},
    outputs="*outs",
    eval=_run_call,
    type=lambda values, *, call, out: out,
)


def call(
    fn: Callable[..., Any], inputs: Sequence[Any] = (), name: str = "call"
) -> Node:
    """A node that calls a function with its inputs' values, for its effect."""
    graph = get_default_graph()
    nodes = tuple(graph.lift(as_node(value)) for value in inputs)
    return graph.builder.add(call_op, (0, *nodes), {"call": fn, "out": ()}, (), name)


def effect(
    fn: Callable[..., Any], inputs: Sequence[Any] = (), name: str = "call"
) -> Operation:
    """An operation that calls a function with its inputs' values."""
    return Operation(get_default_graph(), call(fn, inputs, name))


class _Running(threading.local):
    session: Any = None


_running = _Running()


@contextmanager
def running(session: Session) -> Iterator[None]:
    """Let calls know which session runs them."""
    before, _running.session = _running.session, session
    try:
        yield
    finally:
        _running.session = before


def running_session() -> Session:
    """The session that runs the call of the moment."""
    if _running.session is None:
        raise ArgumentError("this function is called by a session alone")
    return _running.session


# -- sources


class Source:
    """A function of the session that gives the values of several placeholders."""

    def __init__(self, pull: Callable[[Session], Sequence[Any]]) -> None:
        self.pull = pull


def fed_by(
    pull: Callable[[Session], Sequence[Any]], types: Any, shapes: Any, name: str
) -> list[StaticTensor]:
    """Placeholders that a function fills in each run that needs them."""
    source = Source(pull)
    found = get_default_graph().sources
    nodes = []
    for k, (dtype, shape) in enumerate(zip(types, shapes, strict=True)):
        node = placeholder(as_dtype(dtype), shape, name)
        found[node.node] = source, k
        nodes.append(node)
    return nodes


def pulled(
    session: Session, nodes: Sequence[Node], drawn: dict[Source, Sequence[Any]]
) -> dict[Node, Any]:
    """The values of placeholders that have a source; ``drawn`` is what a run's sources
    gave so far, each of which is asked once."""
    table = session.graph.sources
    found = {}
    for node in nodes:
        source, k = table[node]
        if source not in drawn:
            drawn[source] = source.pull(session)
        found[node] = drawn[source][k]
    return found


def placeholder_with_default(
    input: Any, shape: Any, name: str = "PlaceholderWithDefault"
) -> StaticTensor:
    """A value that a run may feed; one that does not has the default.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     keep = weft.static.placeholder_with_default(1.0, [])
    ...     session.run(keep).item(), session.run(keep, {keep: 0.5}).item()
    (1.0, 0.5)
    """
    node = as_node(input)
    if node.node.op is CONSTANT:
        value = np.asarray(node.node.params["value"])
        return fed_by(lambda session: [value], [node.dtype], [shape], name)[0]
    if tuple(shape) != node.static_shape:
        raise GraphError(
            f"placeholder_with_default: the default {node!r} is computed, so the shape "
            f"must be its own {node.static_shape}, got {tuple(shape)}"
        )
    return node.renewed(name)


def is_variable_initialized(variable: Any) -> StaticTensor:
    """Whether a variable has a value at the beginning of the run.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     w = weft.static.Variable(1.0)
    ...     known = weft.static.is_variable_initialized(w)
    ...     before = bool(session.run(known))
    ...     session.run(w.initializer)
    ...     before, bool(session.run(known))
    (False, True)
    """

    def pull(session: Session) -> list[Any]:
        return [np.asarray(variable.variable in session.values)]

    return fed_by(pull, [bool_], [()], "IsVariableInitialized")[0]


# -- printing and checking


def _shown(values: Any, summarize: int | None) -> str:
    limit = 3 if summarize is None else summarize
    parts = []
    for value in values:
        flat = np.asarray(value).ravel()
        count = flat.size if limit < 0 else limit
        text = " ".join(str(v) for v in flat[:count])
        parts.append(f"[{text}{'...' if flat.size > count else ''}]")
    return "".join(parts)


def Print(
    input_: Any, data: Any, message: str | None = None, first_n: int | None = None,
    summarize: int | None = None, name: str = "Print",
) -> Any:  # fmt: skip
    """The value itself; each run that needs it writes the data to standard error.

    >>> import contextlib, sys
    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     x = weft.static.constant(2.0)
    ...     y = weft.static.Print(x, [x, x + 1], "values: ")
    ...     with contextlib.redirect_stderr(sys.stdout):
    ...         session.run(y).item()
    values: [2.0][3.0]
    2.0
    """
    import sys

    told = [0]

    def write(*values: Any) -> None:
        told[0] += 1
        if first_n is None or first_n < 0 or told[0] <= first_n:
            print((message or "") + _shown(values, summarize), file=sys.stderr)

    return _after(effect(write, list(data), name), input_, name)


def _after(operation: Operation, value: Any, name: str) -> Any:
    graph = get_default_graph()
    with graph.builder.control([operation.node]):
        return as_node(value).renewed(name)


def print_op(
    *inputs: Any,
    output_stream: Any = None,
    summarize: int | None = None,
    name: str = "print",
    end: str = "\n",
    sep: str = " ",
) -> Operation:
    """An operation that writes texts and values to standard error.

    >>> import contextlib, sys
    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     say = weft.static.print("x is", weft.static.constant([1, 2]))
    ...     with contextlib.redirect_stderr(sys.stdout):
    ...         session.run(say)
    x is [1 2]
    """
    import sys

    is_node = [isinstance(one, StaticTensor) for one in inputs]

    def write(*values: Any) -> None:
        rest = iter(values)
        texts = [str(next(rest) if n else one)
                 for n, one in zip(is_node, inputs, strict=True)]  # fmt: skip
        print(*texts, end=end, sep=sep, file=output_stream or sys.stderr)

    return effect(write, [one for one in inputs if isinstance(one, StaticTensor)], name)


def Assert(
    condition: Any, data: Any = (), summarize: int | None = None, name: str = "Assert"
) -> Operation:
    """An operation that fails unless all of a condition holds, and shows the data.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     x = weft.static.placeholder(weft.float32, [])
    ...     check = weft.static.Assert(x > 0, [x])
    ...     session.run(check, {x: 1.0})
    """

    def check(holds: Any, *values: Any) -> None:
        if not np.all(holds):
            raise ArgumentError(
                f"{name}: assertion failed: {_shown(values, summarize)}"
            )

    return effect(check, [condition, *data], name)


def _assertion(name: str, test: Any, text: str, two: bool, passing: str) -> Any:
    def call(
        *args: Any,
        data: Any = None,
        summarize: int | None = None,
        message: str = "",
        name: str = name,
        **named: Any,
    ) -> Operation:
        given = [*args, *named.values()]
        if data is None and len(given) > (2 if two else 1):
            data = given.pop()

        def check(*values: Any) -> None:
            if not np.all(test(*values)):
                raise ArgumentError(
                    f"{name}: {message or f'expected {text}'}, got "
                    f"{_shown(values, summarize)}"
                )

        return effect(check, given, name)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"""An operation that fails unless {text}, in every element.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.{name}({passing}))
    """
    return call


assert_equal = _assertion("assert_equal", np.equal, "x == y", True, "1, 1")
assert_none_equal = _assertion(
    "assert_none_equal", np.not_equal, "x != y", True, "1, 2"
)
assert_less = _assertion("assert_less", np.less, "x < y", True, "1, 2")
assert_less_equal = _assertion(
    "assert_less_equal", np.less_equal, "x <= y", True, "1, 1"
)
assert_greater = _assertion("assert_greater", np.greater, "x > y", True, "2, 1")
assert_greater_equal = _assertion(
    "assert_greater_equal", np.greater_equal, "x >= y", True, "1, 1"
)
assert_positive = _assertion("assert_positive", lambda x: x > 0, "x > 0", False, "1")
assert_negative = _assertion("assert_negative", lambda x: x < 0, "x < 0", False, "-1")
assert_non_negative = _assertion(
    "assert_non_negative", lambda x: x >= 0, "x >= 0", False, "0"
)


assert_non_positive = _assertion(
    "assert_non_positive", lambda x: x <= 0, "x <= 0", False, "0"
)


def assert_rank(x: Any, rank: Any, *args: Any, **options: Any) -> Operation:
    """An operation that does nothing; a tensor of another rank is an error at once.

    >>> with weft.static.Graph().as_default():
    ...     weft.static.assert_rank([1.0], 2)
    Traceback (most recent call last):
    ...
    weft.errors.ShapeError: assert_rank: expected a tensor of rank 2, got shape (1,)
    """
    return assert_rank_in(x, [rank])


def assert_rank_in(x: Any, ranks: Any, *args: Any, **options: Any) -> Operation:
    """An operation that does nothing; a tensor of another rank is an error at once.

    >>> with weft.static.Graph().as_default():
    ...     weft.static.assert_rank_in([1.0], [1, 2])
    <group 'NoOp'>
    """
    shape = as_node(x).shape
    if len(shape) not in ranks:
        wanted = " or ".join(map(str, ranks))
        raise ShapeError(
            f"assert_rank: expected a tensor of rank {wanted}, got shape {shape}"
        )
    return no_op()


def assert_rank_at_least(x: Any, rank: int, *args: Any, **options: Any) -> Operation:
    """An operation that does nothing; a tensor of fewer axes is an error at once.

    >>> with weft.static.Graph().as_default():
    ...     weft.static.assert_rank_at_least([1.0], 1)
    <group 'NoOp'>
    """
    shape = as_node(x).shape
    if len(shape) < rank:
        raise ShapeError(
            f"assert_rank_at_least: expected rank {rank} or more, got shape {shape}"
        )
    return no_op()


def assert_scalar(tensor: Any, name: str | None = None, message: str = "") -> Any:
    """The tensor, which must be a single number.

    >>> with weft.static.Graph().as_default():
    ...     weft.static.assert_scalar(1.0)
    <constant 'Const' float32[]>
    """
    node = as_node(tensor)
    assert_rank(node, 0)
    return node


def assert_type(
    tensor: Any, tf_type: Any, message: str = "", name: str = ""
) -> Operation:
    """An operation that does nothing; a tensor of another dtype is an error at once.

    >>> with weft.static.Graph().as_default():
    ...     weft.static.assert_type([1.0], weft.float32)
    <group 'NoOp'>
    """
    found, wanted = as_node(tensor).dtype, as_dtype(tf_type)
    if found is not wanted:
        raise DTypeError(f"assert_type: expected {wanted.name}, got {found.name}")
    return no_op()


def verify_tensor_all_finite(
    t: Any = None, msg: str = "", name: str = "VerifyFinite", x: Any = None,
    message: str = "",
) -> Any:  # fmt: skip
    """The value itself; a run in which it is not finite fails.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.verify_tensor_all_finite([1.0], "weights"))
    array([1.], dtype=float32)
    """
    return check_numerics(x if t is None else t, msg or message, name)


def check_numerics(tensor: Any, message: str = "", name: str = "CheckNumerics") -> Any:
    """The value itself; a run in which it is not finite fails.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     session.run(weft.static.check_numerics([1.0], "weights"))
    array([1.], dtype=float32)
    """

    def check(value: Any) -> None:
        if not np.isfinite(value).all():
            raise ArgumentError(f"{name}: {message}: the value has NaN or infinity")

    value = as_node(tensor)
    return _after(effect(check, [value], name), value, name)


def py_func(func: Any, inp: Any, Tout: Any, stateful: bool = True,
            name: str | None = None) -> Any:  # fmt: skip
    """Refused: the shapes of what a Python function returns are not known.

    >>> weft.static.py_func(abs, [1.0], weft.float32)
    Traceback (most recent call last):
    ...
    weft.errors.ArgumentError: py_func: ...
    """
    raise ArgumentError(
        "py_func: the shapes of what a Python function returns are not known when the "
        "graph is built; run it on fetched values and feed what it returns, or define "
        "an operator (weft.core.op.define) with a rule for its type"
    )


def tuple_op(
    tensors: Any, name: str = "tuple", control_inputs: Any = None
) -> list[Any]:
    """The tensors, each of which runs only when all have.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     pair = weft.static.tuple([weft.static.constant(1), weft.static.constant(2)])
    ...     [int(v) for v in session.run(pair)]
    [1, 2]
    """
    from weft.static.graph import control_dependencies

    nodes = [None if t is None else as_node(t) for t in tensors]
    first = [*[n for n in nodes if n is not None], *(control_inputs or ())]
    with control_dependencies(first):
        return tree_map(lambda t: t if t is None else t.renewed(name), nodes)
