"""Operators under TensorFlow 1's names, over Weft's own.

Where the names agree (``exp``, ``matmul``, ``reshape``, …) it is the same function;
here are those that TensorFlow calls otherwise.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import weft
from weft.core.dims import normalize_dim
from weft.core.size import Size
from weft.dtype import as_dtype
from weft.errors import ShapeError
from weft.graph.symbol import Symbol
from weft.static.graph import StaticTensor, constant, get_default_graph
from weft.static.shapes import sizes_of
from weft.static.unranked import record_all


def _node(value: Any) -> Any:
    """A tensor from the user's argument; lists and arrays become constants."""
    graph = get_default_graph()
    graph.builder.mark = len(graph.builder.nodes)
    if isinstance(value, weft.Tensor):
        return value
    if isinstance(value, Size):
        with graph.taking():
            return weft.full((), value, dtype=weft.int64)
    if isinstance(value, (list, tuple)) and any(map(_open, value)):
        return stack(value)
    return constant(value)


def _open(value: Any) -> bool:
    """Whether a value, or one in a list, is a node or a size that a run decides."""
    if isinstance(value, (list, tuple)):
        return any(map(_open, value))
    return isinstance(value, (Size, weft.Tensor))


def _named(out: Any, name: str | None) -> Any:
    """The result under a name of the user's."""
    if name is None or not isinstance(
        out, StaticTensor
    ):  # in a body, names are its own
        return out
    node = out.graph.builder.renamed(out.node, name)
    return out.renewed(name) if node is None else out.graph.symbol(node)


def _pair(x: Any, y: Any) -> tuple[Any, Any]:
    """Two operands; a Python number beside a tensor stays one."""
    if isinstance(y, (int, float)):
        return _node(x), y
    if isinstance(x, (int, float)):
        return x, _node(y)
    return _node(x), _node(y)


def identity(input: Any, name: str = "Identity") -> StaticTensor:
    """A node with the same value, under a name of its own.

    >>> g = weft.static.Graph()
    >>> with g.as_default():
    ...     weft.static.identity(weft.static.constant(1.0), name="one")
    <alias 'one' float32[]>
    """
    x = _node(input)
    if isinstance(x, Symbol) and not isinstance(x, StaticTensor):
        return x.alias()  # type: ignore[return-value]
    if not isinstance(x, StaticTensor):
        graph = get_default_graph()
        x = graph.symbol(graph.lift(x))
    return x.renewed(name)


OVERRIDABLE: set[str] = set()  # types of ``Graph.gradient_override_map``


def overridable(fn: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A function of one tensor that may get another gradient, by TensorFlow's type."""
    kind = "".join(part.capitalize() for part in name.split("_"))
    OVERRIDABLE.add(kind)

    @functools.wraps(fn)
    def call(x: Any) -> Any:
        other = get_default_graph().overrides.get(kind)
        return fn(x) if other is None else other(fn, x)

    return call


def _unary(fn: Callable[..., Any], name: str, at: str = "[0.5]") -> Callable[..., Any]:
    fn = overridable(fn, name)

    def call(x: Any, name: str | None = None) -> Any:
        with get_default_graph().taking():
            return _named(fn(_node(x)), name)

    return _described(call, fn, name, at)


def _binary(
    fn: Callable[..., Any], name: str, at: str = "[3.0], 2.0"
) -> Callable[..., Any]:
    def call(x: Any, y: Any, name: str | None = None) -> Any:
        return _named(fn(*_pair(x, y)), name)

    return _described(call, fn, name, at)


def _reduction(
    fn: Callable[..., Any], name: str, at: str = "[[1.0, 2.0]]"
) -> Callable[..., Any]:
    def call(
        input_tensor: Any, axis: Any = None, keepdims: bool = False,
        name: str | None = None, reduction_indices: Any = None,
        keep_dims: bool | None = None,
    ) -> Any:  # fmt: skip
        x = _node(input_tensor)
        axis = reduction_indices if axis is None else axis
        keepdims = keepdims if keep_dims is None else keep_dims
        dims = tuple(range(x.ndim)) if axis is None else axis
        if isinstance(dims, (list, tuple)) and not dims:  # over no axis at all
            return identity(x, name or "Identity")
        return _named(fn(x, dims, keepdims), name)

    return _described(call, fn, name, at)


def _described(call: Any, fn: Any, name: str, at: str) -> Any:
    """The function with its name and an example, in which it agrees with Weft's."""
    call.__name__ = call.__qualname__ = name.rpartition(".")[2]
    call.__doc__ = f"""TensorFlow's name for ``weft.{fn.__name__}``.

    >>> g = weft.static.Graph()
    >>> with g.as_default(), weft.static.Session(g) as session:
    ...     node = weft.static.{name}({at}, name="mine")
    ...     node.name, session.run(node).shape == node.get_shape()
    ('mine', True)
    """
    return call


def _product(x: Any, dims: Any, keepdims: bool) -> Any:
    given = dims if isinstance(dims, (tuple, list)) else [dims]
    for d in sorted(normalize_dim("reduce_prod", d, x.ndim) for d in given)[::-1]:
        x = weft.prod(x, d, keepdims)
    return x


_product.__name__ = "prod"

_MASKS = "[True], [False]"

add = _binary(weft.add, "add")
subtract = _binary(weft.sub, "subtract")
multiply = _binary(weft.mul, "multiply")
divide = _binary(weft.div, "divide")
truediv = _binary(weft.div, "truediv")
floordiv = _binary(weft.floor_divide, "floordiv")
mod = _binary(weft.remainder, "mod")
pow = _binary(weft.pow, "pow")
maximum = _binary(weft.maximum, "maximum", "[3.0], [2.0]")
minimum = _binary(weft.minimum, "minimum", "[3.0], [2.0]")
equal = _binary(weft.eq, "equal")
not_equal = _binary(weft.ne, "not_equal")
greater = _binary(weft.gt, "greater")
greater_equal = _binary(weft.ge, "greater_equal")
less = _binary(weft.lt, "less")
less_equal = _binary(weft.le, "less_equal")
logical_and = _binary(weft.logical_and, "logical_and", _MASKS)
logical_or = _binary(weft.logical_or, "logical_or", _MASKS)
logical_not = _unary(weft.logical_not, "logical_not", "[True]")
negative = _unary(weft.neg, "negative")
abs = _unary(weft.abs, "abs")
sign = _unary(weft.sign, "sign")
exp = _unary(weft.exp, "exp")
log = _unary(weft.log, "log")
sqrt = _unary(weft.sqrt, "sqrt")
rsqrt = _unary(weft.rsqrt, "rsqrt")
square = _unary(weft.square, "square")
reciprocal = _unary(weft.reciprocal, "reciprocal")
sin = _unary(weft.sin, "sin")
cos = _unary(weft.cos, "cos")
tan = _unary(weft.tan, "tan")
tanh = _unary(weft.tanh, "tanh")
sigmoid = _unary(weft.sigmoid, "sigmoid")
floor = _unary(weft.floor, "floor")
ceil = _unary(weft.ceil, "ceil")
zeros_like = _unary(weft.zeros_like, "zeros_like")
ones_like = _unary(weft.ones_like, "ones_like")
reduce_sum = _reduction(weft.sum, "reduce_sum")
reduce_mean = _reduction(weft.mean, "reduce_mean")
reduce_max = _reduction(weft.amax, "reduce_max")
reduce_min = _reduction(weft.amin, "reduce_min")
reduce_prod = _reduction(_product, "reduce_prod")
reduce_any = _reduction(weft.any, "reduce_any", "[True, False]")
reduce_all = _reduction(weft.all, "reduce_all", "[True, False]")


def matmul(
    a: Any, b: Any, transpose_a: bool = False, transpose_b: bool = False,
    name: str | None = None,
) -> Any:  # fmt: skip
    """The matrix product, with operands transposed by flags.

    >>> g = weft.static.Graph()
    >>> with g.as_default():
    ...     x = weft.static.placeholder(weft.float32, [2, 3])
    ...     weft.static.matmul(x, x, transpose_b=True).get_shape()
    (2, 2)
    """
    x, y = _node(a), _node(b)
    x = x.transpose(-2, -1) if transpose_a else x
    y = y.transpose(-2, -1) if transpose_b else y
    return _named(weft.matmul(x, y), name)


def cast(x: Any, dtype: Any, name: str | None = None) -> Any:
    """The tensor in another dtype.

    >>> g = weft.static.Graph()
    >>> with g.as_default():
    ...     weft.static.cast(weft.static.constant([1, 2]), weft.float32).dtype
    weft.float32
    """
    return _named(_node(x).to(as_dtype(dtype)), name)


def shape(input: Any, name: str | None = None, out_type: Any = weft.int32) -> Any:
    """The sizes of a tensor, as a node; of a run's own where they are open.

    >>> g = weft.static.Graph()
    >>> with g.as_default(), weft.static.Session(g) as session:
    ...     x = weft.static.placeholder(weft.float32, [None, 3])
    ...     session.run(weft.static.shape(x), {x: np.ones((5, 3))})
    array([5, 3], dtype=int32)
    """
    sizes = _node(input).shape
    if all(isinstance(n, int) for n in sizes):
        return constant(list(sizes), out_type, name or "shape")
    return cast(stack(sizes), out_type, name)


def size(input: Any, name: str | None = None, out_type: Any = weft.int32) -> Any:
    """The number of elements of a tensor, as a node.

    >>> g = weft.static.Graph()
    >>> with g.as_default(), weft.static.Session(g) as session:
    ...     x = weft.static.placeholder(weft.float32, [None, 3])
    ...     int(session.run(weft.static.size(x), {x: np.ones((5, 3))}))
    15
    """
    return cast(math.prod(_node(input).shape), out_type, name)


def rank(input: Any, name: str = "Rank") -> Any:
    """The number of dimensions of a tensor, as a node.

    >>> g = weft.static.Graph()
    >>> with g.as_default(), weft.static.Session(g) as session:
    ...     int(session.run(weft.static.rank([[1.0]])))
    2
    """
    return constant(_node(input).ndim, weft.int32, name)


def reshape(tensor: Any, shape: Any, name: str | None = None) -> Any:
    """The same elements in another shape.

    >>> g = weft.static.Graph()
    >>> with g.as_default():
    ...     weft.static.reshape(weft.static.constant([1, 2]), [2, 1]).get_shape()
    (2, 1)
    """
    return _named(_node(tensor).reshape(sizes_of(shape)), name)


def transpose(a: Any, perm: Any = None, name: str | None = None) -> Any:
    """The axes in another order, reversed unless told.

    >>> g = weft.static.Graph()
    >>> with g.as_default():
    ...     weft.static.transpose(weft.static.constant([[1, 2]])).get_shape()
    (2, 1)
    """
    x = _node(a)
    order = range(x.ndim)[::-1] if perm is None else perm
    return _named(x.permute(tuple(order)), name)


def concat(values: Any, axis: int, name: str | None = None) -> Any:
    """Tensors joined along an axis.

    >>> g = weft.static.Graph()
    >>> with g.as_default():
    ...     x = weft.static.constant([1, 2])
    ...     weft.static.concat([x, x], 0).get_shape()
    (4,)
    """
    return _named(weft.cat([_node(v) for v in values], axis), name)


def stack(values: Any, axis: int = 0, name: str | None = None) -> Any:
    """Tensors joined along a new axis.

    >>> g = weft.static.Graph()
    >>> with g.as_default():
    ...     x = weft.static.constant([1, 2])
    ...     weft.static.stack([x, x]).get_shape()
    (2, 2)
    """
    return _named(weft.stack([_node(v) for v in values], axis), name)


def gather(params: Any, indices: Any, name: str | None = None, axis: int = 0) -> Any:
    """Rows (or other slices, along ``axis``) by indices of any shape.

    The shape of the indices replaces the axis: one index drops it.

    >>> g = weft.static.Graph()
    >>> with g.as_default(), weft.static.Session(g) as session:
    ...     rows = weft.static.gather(weft.static.constant([5, 6, 7]), [2, 0])
    ...     session.run(rows)
    array([7, 5])
    """
    x, ids = _node(params), _node(indices)
    d = axis + x.ndim if axis < 0 else axis
    rows = weft.index_select(x, d, ids.reshape(-1))
    shape = (*x.shape[:d], *ids.shape, *x.shape[d + 1 :])
    return _named(rows.reshape(shape), name)


def clip_by_value(
    t: Any, clip_value_min: Any, clip_value_max: Any, name: str | None = None
) -> Any:
    """Elements limited to an interval.

    >>> g = weft.static.Graph()
    >>> with g.as_default(), weft.static.Session(g) as session:
    ...     session.run(weft.static.clip_by_value([-3.0, 0.5], -1, 1))
    array([-1. ,  0.5], dtype=float32)
    """
    return _named(weft.clamp(_node(t), clip_value_min, clip_value_max), name)


def zeros(shape: Any, dtype: Any = weft.float32, name: str | None = None) -> Any:
    """A node of zeros.

    >>> g = weft.static.Graph()
    >>> with g.as_default():
    ...     weft.static.zeros([2])
    <full 'full' float32[2]>
    """
    with get_default_graph().taking():
        return _named(weft.zeros(sizes_of(shape), dtype=as_dtype(dtype)), name)


def ones(shape: Any, dtype: Any = weft.float32, name: str | None = None) -> Any:
    """A node of ones.

    >>> g = weft.static.Graph()
    >>> with g.as_default():
    ...     weft.static.ones([2])
    <full 'full' float32[2]>
    """
    with get_default_graph().taking():
        return _named(weft.ones(sizes_of(shape), dtype=as_dtype(dtype)), name)


def add_n(inputs: Any, name: str | None = None) -> Any:
    """The sum of several tensors.

    >>> g = weft.static.Graph()
    >>> with g.as_default(), weft.static.Session(g) as session:
    ...     float(session.run(weft.static.add_n([1.0, 2.0, 3.0])))
    6.0
    """
    total, *rest = [_node(i) for i in inputs]
    for one in rest:
        if tuple(one.shape) != tuple(total.shape):
            raise ShapeError(
                f"add_n: expected tensors of one shape, got {tuple(total.shape)} and "
                f"{tuple(one.shape)}"
            )
        total = total + one
    return _named(total, name)


record_all(globals())
