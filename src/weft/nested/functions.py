"""Functions of nested tensors: on the packed values, or component by component.

A function of single elements is known by its graph: all its operators are element-wise.
A function with a ``dim`` works along that dimension alone; behind the ragged dimension
it runs on the packed values. A few others have a form here; the rest is refused.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import weft
from weft.core.tensor import Tensor
from weft.errors import ShapeError
from weft.graph import ir
from weft.graph.capture import capture
from weft.nested.tensor import NestedTensor, arguments, joined, refused

_DIMS = ("dim", "dims", "axis", "dim0", "dim1", "start_dim", "end_dim")
_FORMS: dict[str, Callable[..., Any]] = {}


def call(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of a function of which an argument is nested."""
    form = _FORMS.get(func.__name__)
    if form is not None:
        return form(*args, **kwargs)
    bound = arguments(func, args, kwargs)
    dims = {n for n in _DIMS if n in bound.signature.parameters}
    if dims:
        return _along(func, bound, dims)
    if func.__name__.endswith("_") and not func.__name__.endswith("__"):
        return _in_place(func, args, kwargs)
    if not _is_pointwise(func, args, kwargs):
        raise refused(func.__name__)
    return _pointwise(func, args, kwargs)


def _form(*names: str) -> Callable[[Any], Any]:
    def register(function: Any) -> Any:
        for name in names or (function.__name__.strip("_"),):
            _FORMS[name] = function
        return function

    return register


def _nested_in(values: Any) -> list[NestedTensor]:
    return [x for x in values if isinstance(x, NestedTensor)]


# -- functions of single elements


def _is_pointwise(func: Any, args: Any, kwargs: Any) -> bool:
    """Whether each element of the result follows from the elements there."""
    key: list[Any] = [func]
    for name, value in (*enumerate(args), *kwargs.items()):
        tensor = isinstance(value, Tensor)
        rank = value.ndim if tensor else value
        key.append((name, tensor, value.dtype if tensor else type(value), rank))
    try:
        return _known(tuple(key))
    except TypeError:  # an argument that has no hash
        return False


@functools.lru_cache(4096)
def _known(key: tuple[Any, ...]) -> bool:
    func, *rest = key
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for name, tensor, kind, value in rest:
        given = weft.ones((2,) * value, dtype=kind) if tensor else value
        if isinstance(name, int):
            args.append(given)
        else:
            kwargs[name] = given
    tensors = [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor)]
    rank = max(x.ndim for x in tensors)
    try:
        program = capture(func, *args, **kwargs)
    except (weft.errors.WeftError, TypeError, NotImplementedError):
        return False
    plain = (ir.INPUT, ir.CONSTANT, ir.DETACH)
    return (
        len(program.values) == 1
        and type(program.values[0]) is ir.Node
        and program.values[0].type.shape == (2,) * rank
        and not program.effects
        and all(
            node.op in plain
            or node.op.facts.elementwise
            or node.op.name == "expand"
            or not node.inputs
            for node in program.graph.nodes
        )
    )


def _pointwise(func: Any, args: Any, kwargs: Any) -> Any:
    given = [*args, *kwargs.values()]
    first = max(_nested_in(given), key=lambda x: x._held.numel())
    values = [_fitting(first, x) for x in given]
    if all(x is not _OTHER for x in values):
        out = func(
            *values[: len(args)], **dict(zip(kwargs, values[len(args) :], strict=True))
        )
        return first.like(out)
    rows = zip(*(_rows(first, x) for x in given), strict=True)
    parts = [
        func(*row[: len(args)], **dict(zip(kwargs, row[len(args) :], strict=True)))
        for row in rows
    ]
    return joined(parts, first._jagged, first._dim or None)


_OTHER: Any = object()


def _fitting(first: NestedTensor, x: Any) -> Any:
    """An argument for a call on the packed values; ``_OTHER`` if it does not fit."""
    if isinstance(x, NestedTensor):
        if first._ragged is None:
            return x._held if x._shapes == first._shapes else _OTHER
        same = x._ragged is not None and x._ragged.same(first._ragged)
        return x._held if same and x._dim == first._dim else _OTHER
    if not isinstance(x, Tensor) or x.ndim == 0:
        return x
    shape = list(x.shape)
    while shape and shape[0] == 1:
        del shape[0]
    if not shape:
        return x.reshape(())
    behind = first._held.ndim - first._dim if first._ragged is not None else 0
    return x.reshape(shape) if len(shape) <= behind else _OTHER


def _rows(first: NestedTensor, x: Any) -> Sequence[Any]:
    """The argument for each component."""
    if isinstance(x, NestedTensor):
        if len(x) != len(first):
            raise ShapeError(
                f"nested tensors of {len(first)} and {len(x)} components do not fit"
            )
        return x.unbind()
    if isinstance(x, Tensor) and x.ndim == first.ndim:
        if x.shape[0] not in (1, len(first)):
            raise ShapeError(
                f"expected a tensor for {len(first)} components, got shape "
                f"{tuple(x.shape)}"
            )
        return x.expand(len(first), *x.shape[1:]).unbind()
    return [x] * len(first)


def _in_place(func: Any, args: Any, kwargs: Any) -> Any:
    target = args[0]
    plain = getattr(Tensor, func.__name__[:-1], None)
    values = [_fitting(target, x) for x in args]
    if plain is None or _OTHER in values or not _is_pointwise(plain, args, kwargs):
        raise refused(func.__name__)
    func(*values, **kwargs)
    return target


# -- functions along dimensions


def _along(func: Any, bound: Any, names: set[str]) -> Any:
    given = list(bound.arguments.values())
    nested = _nested_in(given)
    if not nested or nested[0] is not given[0] or len(nested) > 1:
        raise refused(func.__name__)
    x: NestedTensor = given[0]
    bound.apply_defaults()
    asked = {n: bound.arguments[n] for n in names if bound.arguments[n] is not None}
    asked = {n: d for n, d in asked.items() if not isinstance(d, type(...))}
    if not asked or all(d == () for d in asked.values()):
        whole = x.contiguous()._held
        return _called(func, bound, x, whole)
    extra = 1 if func.__name__ == "unsqueeze" else 0
    moved = {n: _shifted(func, x, d, extra) for n, d in asked.items()}
    every = [d for v in moved.values() for d in (v if isinstance(v, tuple) else (v,))]
    bound.arguments.update(moved)
    if x._ragged is not None and all(d > x._dim - 1 for d in every):
        return _wrapped(_called(func, bound, x, x._held), x.like)
    parts = [_called(func, bound, x, part) for part in x.unbind()]
    if isinstance(parts[0], tuple):
        kind = type(parts[0])
        columns = [_gathered(func, x, every, list(c)) for c in zip(*parts, strict=True)]
        return kind(*columns) if hasattr(kind, "_fields") else kind(columns)
    return _gathered(func, x, every, parts)


def _shifted(func: Any, x: NestedTensor, dim: Any, extra: int) -> Any:
    if isinstance(dim, (tuple, list)):
        return tuple(_shifted(func, x, d, extra) for d in dim)
    counted = x._counted(dim, extra)
    if counted == 0:
        raise refused(f"{func.__name__} along the batch (dim 0)")
    return counted - 1


def _called(func: Any, bound: Any, x: Any, value: Tensor) -> Any:
    first = next(iter(bound.arguments))
    bound.arguments[first] = value
    try:
        return func(*bound.args, **bound.kwargs)
    finally:
        bound.arguments[first] = x


def _wrapped(out: Any, wrap: Callable[[Tensor], Any]) -> Any:
    if isinstance(out, Tensor):
        return wrap(out)
    kind = type(out)
    items = [_wrapped(one, wrap) for one in out]
    return kind(*items) if hasattr(kind, "_fields") else kind(items)


def _gathered(func: Any, x: NestedTensor, dims: list[int], parts: list[Tensor]) -> Any:
    """The results of components as one tensor; dense where nothing is ragged."""
    if x._ragged is None:
        return joined(parts, x._jagged)
    if x._dim - 1 not in dims:  # it lies behind, or before a dimension that is gone
        moved = x._dim + parts[0].ndim - x._held.ndim
        place = x._dim if all(d > x._dim - 1 for d in dims) else moved
        return joined(parts, x._jagged, place)
    shapes = {tuple(part.shape) for part in parts}
    lengths = x._ragged.lengths.tolist()
    place = x._dim - 1
    if (
        all(
            part.ndim > place and part.shape[place] == n
            for part, n in zip(parts, lengths, strict=True)
        )
        and parts[0].ndim == x._held.ndim
    ):
        return joined(parts, x._jagged, x._dim)
    if len(shapes) > 1:
        raise refused(func.__name__)
    return weft.stack(parts)


# -- functions of rows: the packed values are more rows of the same kind


def _on_values(name: str, trailing: Callable[..., int]) -> None:
    function = getattr(weft.nn.functional, name)

    def form(input: NestedTensor, *args: Any, **kwargs: Any) -> Any:
        behind = 0 if input._ragged is None else input._held.ndim - input._dim
        if input._ragged is None or trailing(*args, **kwargs) > behind:
            if _nested_in((*args, *kwargs.values())):
                raise refused(name)
            parts = [function(x, *args, **kwargs) for x in input.unbind()]
            return joined(parts, input._jagged, input._dim or None)
        return input.like(function(input._held, *args, **kwargs))

    _FORMS[name] = form


_on_values("linear", lambda *args, **kwargs: 1)
_on_values(
    "layer_norm", lambda normalized_shape, *args, **kwargs: len(normalized_shape)
)
_on_values("rms_norm", lambda normalized_shape, *args, **kwargs: len(normalized_shape))
_on_values("dropout", lambda *args, **kwargs: 0)
_on_values("embedding", lambda *args, **kwargs: 0)


def _likes() -> None:
    for name in ("zeros", "ones", "empty", "full", "rand", "randn"):
        function = getattr(weft, f"{name}_like")

        def form(
            input: NestedTensor, *args: Any, _function: Any = function, **kwargs: Any
        ) -> Any:
            kwargs.pop("layout", None)
            return input.like(_function(input._held, *args, **kwargs))

        _FORMS[f"{name}_like"] = form


_likes()


@_form()
def matmul(input: Any, other: Any) -> Any:
    """Products of the components with a matrix, or with their own."""
    if isinstance(input, NestedTensor) and isinstance(other, Tensor):
        plain = not isinstance(other, NestedTensor) and other.ndim == 2
        if plain and input._ragged is not None and input._dim < input._held.ndim:
            return input.like(weft.matmul(input._held, other))
    first = input if isinstance(input, NestedTensor) else other
    rows = zip(_rows(first, input), _rows(first, other), strict=True)
    return joined([weft.matmul(a, b) for a, b in rows], first._jagged)


_FORMS["bmm"] = _FORMS["__matmul__"] = matmul


@_form()
def scaled_dot_product_attention(
    query: NestedTensor,
    key: NestedTensor,
    value: NestedTensor,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> NestedTensor:
    """Attention within each sequence: nobody looks at padding, since there is none."""
    if attn_mask is not None:
        raise refused("scaled_dot_product_attention with attn_mask")
    if len(_nested_in((query, key, value))) < 3 or query.ndim != 4:
        raise refused(
            "scaled_dot_product_attention of other than three nested (B, H, L, E)"
        )
    function = weft.nn.functional.scaled_dot_product_attention
    rows = zip(query.unbind(), key.unbind(), value.unbind(), strict=True)
    parts = [
        function(
            q[None], k[None], v[None], None, dropout_p, is_causal, scale=scale,
            enable_gqa=enable_gqa,
        )[0]
        for q, k, v in rows
    ]  # fmt: skip
    if query._ragged is None or query._dim != 2:
        return joined(parts, query._jagged)
    out = query.contiguous() if not query._ragged.contiguous else query
    return out.like(weft.cat(parts, 1))


# -- shapes


@_form()
def transpose(input: NestedTensor, dim0: int, dim1: int) -> Any:
    """The components with two dimensions exchanged."""
    a, b = input._counted(dim0), input._counted(dim1)
    if 0 in (a, b):
        raise refused("transpose of the batch (dim 0)")
    if input._ragged is None:
        parts = [x.transpose(a - 1, b - 1) for x in input.unbind()]
        return joined(parts, input._jagged)
    dim = {a: b, b: a}.get(input._dim, input._dim)
    return input.like(input._held.transpose(a - 1, b - 1), _dim=dim)


_FORMS["swapaxes"] = _FORMS["swapdims"] = transpose


@_form()
def permute(input: NestedTensor, *dims: Any) -> Any:
    """The components with their dimensions in another order."""
    order = [input._counted(d) for d in (dims[0] if len(dims) == 1 else dims)]
    if sorted(order) != list(range(input.ndim)) or order[0] != 0:
        raise refused(f"permute({order})")
    inner = [d - 1 for d in order[1:]]
    if input._ragged is None:
        return joined([x.permute(inner) for x in input.unbind()], input._jagged)
    return input.like(input._held.permute(inner), _dim=order.index(input._dim))


@_form("view", "reshape")
def reshape(input: NestedTensor, *shape: Any) -> Any:
    """The values in another shape behind the ragged dimension, which comes second."""
    sizes = (
        list(shape[0])
        if len(shape) == 1 and not isinstance(shape[0], int)
        else list(shape)
    )
    ragged = input._ragged
    if ragged is None or input._dim != 1 or len(sizes) < 2:
        raise refused("view")
    if sizes[0] not in (-1, len(input)) or sizes[1] not in (-1, ragged.size):
        raise ShapeError(
            f"view: expected sizes that begin with ({len(input)}, {ragged.size} or -1)"
            f", got {tuple(sizes)}"
        )
    return input.like(input._held.reshape(ragged.total, *sizes[2:]))


@_form()
def unbind(input: NestedTensor, dim: int = 0) -> Any:
    """The components."""
    return input.unbind(dim)


@_form()
def __getitem__(input: NestedTensor, index: Any) -> Any:
    """A component, some of them, or a part of each."""
    rows = input.unbind()
    if isinstance(index, int):
        return rows[index]
    if isinstance(index, slice):
        return joined(rows[index], input._jagged, input._dim or None)
    if not isinstance(index, tuple) or not index:
        raise refused("this index")
    first, *rest = index
    if isinstance(first, int):
        return rows[first][tuple(rest)]
    behind = 0 if input._ragged is None else input._held.ndim - input._dim
    if first is ... and len(rest) <= behind:
        return input.like(input._held[(..., *rest)])
    if not isinstance(first, slice):
        raise refused("this index")
    parts = [row[tuple(rest)] for row in rows[first]]
    if (
        len({part.ndim for part in parts}) == 1
        and all(part.shape == parts[0].shape for part in parts)
        and isinstance(rest[0], int)
        and input._dim == 1
    ):
        return weft.stack(parts)
    return joined(parts, input._jagged)


_FORMS["__getitem__"] = __getitem__


@_form("cat", "concat")
def cat(tensors: Sequence[Any], dim: int = 0) -> Any:
    """Nested tensors joined: more components, or longer rows."""
    first = tensors[0]
    if len(_nested_in(tensors)) < len(tensors):
        raise refused("cat of nested and dense tensors")
    place = first._counted(dim)
    if place == 0:
        rows = [row for x in tensors for row in x.unbind()]
        return joined(rows, first._jagged, first._dim or None)
    columns = zip(*(x.unbind() for x in tensors), strict=True)
    parts = [weft.cat(list(column), place - 1) for column in columns]
    return joined(parts, first._jagged, first._dim or None)
