"""Broadcasting: repeating a tensor along axes without copying, and its transpose.

The primitive is ``expand``; it is linear, and its vjp sums over the repeated axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.core import fast_path
from weft.core.dispatch import bind
from weft.core.lowering import View, expanded
from weft.core.mode import mode
from weft.core.op import Op, Sample, TensorType, define
from weft.core.size import Shape, is_one, same_shape
from weft.core.tensor import Tensor
from weft.errors import ArgumentError, ShapeError
from weft.ops import dividing
from weft.ops.elementwise import broadcast_shapes, unfit
from weft.ops.operands import flat_sizes, tensor_list
from weft.ops.public import public
from weft.ops.shaping import reshape, transpose

ndarray = np.ndarray


def _expand_type(x: TensorType, *, shape: tuple[int, ...]) -> TensorType:
    lead = len(shape) - len(x.shape)
    for have, want in zip(x.shape, shape[max(lead, 0) :], strict=False):
        if lead < 0 or not (is_one(have) or have == want):
            raise unfit(f"expand: cannot expand shape {x.shape} to {shape}", [have])
    if lead < 0:
        raise ShapeError(f"expand: cannot expand shape {x.shape} to {shape}")
    return TensorType(shape, x.dtype)


def _expand_eval(x: Any, *, shape: tuple[int, ...]) -> Any:
    lead = len(shape) - x.ndim
    whole = same_shape(x.shape, shape[lead:])  # open sizes are not asked about
    if x.size > 1 and whole and all(map(is_one, shape[:lead])):
        return x.reshape(shape)  # nothing is repeated, so it can be written to
    found = _repeated(x, shape)
    return np.broadcast_to(x, shape) if found is None else found


def _repeated(x: Any, shape: tuple[Any, ...]) -> Any:
    """The result of np.broadcast_to, which takes eight times as long for small arrays;
    None for arrays and shapes that are left to it."""
    lead = len(shape) - x.ndim
    if lead < 0 or x.dtype.char not in "fdlq?" or not x.flags.c_contiguous:
        return None
    strides = [0] * lead
    at = lead
    for have, step in zip(x.shape, x.strides, strict=True):
        if have == 1:
            strides.append(0)
        elif have == shape[at]:
            strides.append(step)
        else:
            return None
        at += 1
    try:
        out = ndarray(shape, x.dtype, x, 0, strides)
    except Exception:  # no plain sizes, or below 0
        return None
    out.setflags(write=False)
    return out


def _expand_batch(
    op: Op, size: int, args: Any, batched: Any, params: dict[str, Any]
) -> Tensor:
    (x,) = args
    shape = params["shape"]
    aligned = (size, *(1,) * (len(shape) - x.ndim + 1), *x.shape[1:])
    return expand(reshape(x, aligned), (size, *shape))


def sum_to(g: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Sum over the axes along which ``shape`` was broadcast."""
    if same_shape(g.shape, shape):
        return g
    from weft.ops.reduce import sum

    lead = g.ndim - len(shape)
    pairs = enumerate(zip(shape, g.shape[lead:], strict=True), lead)
    dims = [*range(lead), *[i for i, (n, m) in pairs if is_one(n) and not is_one(m)]]
    return reshape(sum(g, tuple(dims), keepdim=True) if dims else g, shape)


expand_op: Op = define(
    "expand",
    divides=dividing.expanded,
    inputs="x",
    eval=_expand_eval,
    type=_expand_type,
    lower=View(expanded, in_order=True),
    vjp={"x": lambda g, x_shape: sum_to(g, x_shape)},
    linear=True,
    view=True,
    batch=_expand_batch,
    samples=lambda rng: [
        Sample((rng.uniform(-2, 2, a),), {"shape": b})
        for a, b in (
            ((3, 1), (3, 4)),
            ((4,), (3, 4)),
            ((), (2, 2)),
            ((1, 0), (3, 0)),
            ((2, 1, 3), (5, 2, 4, 3)),
        )
    ],
    reference=lambda x, *, shape: x + np.zeros(shape),
)
_EXPAND = expand_op.plan((True,))


@public(method=True)
def expand(input: Tensor, *sizes: Any, size: Any = None) -> Tensor:
    """The tensor repeated along axes of size 1, without copying; -1 keeps a size.

    >>> weft.tensor([[1], [2]]).expand(2, 3)
    tensor([[1, 1, 1],
            [2, 2, 2]])
    """
    state = mode.quick
    if state and size is None and type(input) is Tensor:
        have = input._data
        wanted = sizes[0] if len(sizes) == 1 and isinstance(sizes[0], tuple) else sizes
        array = _repeated(have, wanted)
        if array is not None:
            if same_shape(wanted, have.shape):
                return input
            params = {"shape": wanted}
            return fast_path.view(_EXPAND, input, params, array, state)
    shape = flat_sizes("expand", sizes, size)
    lead = len(shape) - input.ndim
    if any(n == -1 for n in shape):
        shape = tuple(
            input.shape[i - lead] if n == -1 and i >= lead else n
            for i, n in enumerate(shape)
        )
    if any(n < 0 for n in shape):
        raise ShapeError(
            f"expand: cannot keep (-1) a new dimension: shape {input.shape} to {shape}"
        )
    if same_shape(shape, input.shape):
        return input
    return bind(expand_op, (input,), {"shape": shape})


@public(exported=False, method=True)
def expand_as(input: Tensor, other: Tensor) -> Tensor:
    """The tensor expanded to another's shape.

    >>> weft.ones(1).expand_as(weft.zeros(3)).shape
    (3,)
    """
    return expand(input, other.shape)


@public(method=True)
def broadcast_to(input: Tensor, size: Sequence[int]) -> Tensor:
    """The tensor broadcast to a shape.

    >>> weft.broadcast_to(weft.ones(3), (2, 3)).shape
    (2, 3)
    """
    return expand(input, tuple(size))


@public("broadcast_shapes")
def _public_broadcast_shapes(*shapes: Any) -> Shape:
    """The shape that several broadcast to.

    >>> weft.broadcast_shapes((3, 1), (1, 4))
    (3, 4)
    """
    full = [(s,) if isinstance(s, int) else tuple(s) for s in shapes]
    return Shape(broadcast_shapes("broadcast_shapes", *full))


_public_broadcast_shapes.__name__ = "broadcast_shapes"


@public()
def broadcast_tensors(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Tensors expanded to their common shape.

    >>> a, b = weft.broadcast_tensors(weft.ones(3, 1), weft.ones(2))
    >>> a.shape, b.shape
    ((3, 2), (3, 2))
    """
    shape = broadcast_shapes("broadcast_tensors", *(t.shape for t in tensors))
    return tuple(expand(t, shape) for t in tensors)


@public()
def meshgrid(*tensors: Any, indexing: str = "ij") -> tuple[Tensor, ...]:
    """Coordinate grids from vectors.

    >>> a, b = weft.meshgrid(weft.arange(2), weft.arange(3))
    >>> a.shape, b[0]
    ((2, 3), tensor([0, 1, 2]))
    """
    listed = len(tensors) == 1 and isinstance(tensors[0], (list, tuple))
    xs = tensor_list("meshgrid", tensors[0] if listed else tensors)
    for k, x in enumerate(xs):
        if x.ndim > 1:
            raise ShapeError(
                f"meshgrid: expected vectors, got shape {x.shape} at position {k}"
            )
    if indexing not in ("ij", "xy"):
        raise ArgumentError(
            f"meshgrid: indexing must be 'ij' or 'xy', got {indexing!r}"
        )
    swap = indexing == "xy" and len(xs) >= 2
    shape = tuple(x.numel() for x in xs)
    grids = [
        expand(reshape(x, (1,) * k + (shape[k],) + (1,) * (len(xs) - k - 1)), shape)
        for k, x in enumerate(xs)
    ]
    return tuple(transpose(g, 0, 1) if swap else g for g in grids)


@public(exported=False, method=True)
def sum_to_size(input: Tensor, *size: Any) -> Tensor:
    """The sum over the axes along which a smaller shape would be broadcast.

    >>> weft.ones(2, 3).sum_to_size(1, 3)
    tensor([[2., 2., 2.]])
    """
    shape = flat_sizes("sum_to_size", size)
    if broadcast_shapes("sum_to_size", input.shape, shape) != input.shape:
        raise ShapeError(f"sum_to_size: {shape} does not expand to {input.shape}")
    return sum_to(input, shape)
