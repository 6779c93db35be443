"""Operators that move, view, join or convert elements without computing on them.

The primitives are ``cast expand reshape permute slice place flip cat``; they are
linear, so each jvp is the operator itself and each vjp its transpose.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import dtype as dtypes
from weft.core.dims import normalize_dim, normalize_dims
from weft.core.dispatch import bind
from weft.core.elementwise import (
    broadcast_shapes,
    elementwise_batch,
    result_type,
    samples_in,
)
from weft.core.op import Op, Sample, TensorType, define
from weft.core.tensor import Tensor
from weft.errors import ArgumentError, DTypeError, ShapeError

# -- cast


def _cast_eval(x: Any, *, dtype: dtypes.DType) -> Any:
    if x.dtype.kind == "c" and not dtype.is_complex:
        x = x.real
    return x.astype(dtype.np)


cast_op: Op = define(
    "cast",
    inputs="x",
    eval=_cast_eval,
    type=lambda x, *, dtype: TensorType(x.shape, dtype),
    vjp={"x": lambda g, x_dtype: cast(g, x_dtype) if x_dtype.is_inexact else None},
    linear=True,
    batch=elementwise_batch,
    samples=lambda rng: [
        Sample((rng.uniform(-2, 2, s),), {"dtype": d})
        for s in ((3, 4), (), (0, 2))
        for d in (dtypes.float64, dtypes.complex128)
    ],
    reference=lambda x, *, dtype: x + np.zeros((), dtype.np),
)


def cast(x: Tensor, dtype: dtypes.DType) -> Tensor:
    """The tensor with another dtype; itself if it has that dtype already."""
    if x.dtype is dtype:
        return x
    return bind(cast_op, (x,), {"dtype": dtype})


# -- expand


def _expand_type(x: TensorType, *, shape: tuple[int, ...]) -> TensorType:
    lead = len(shape) - len(x.shape)
    for have, want in zip(x.shape, shape[max(lead, 0) :], strict=False):
        if lead < 0 or have not in (1, want):
            raise ShapeError(f"expand: cannot expand shape {x.shape} to {shape}")
    if lead < 0:
        raise ShapeError(f"expand: cannot expand shape {x.shape} to {shape}")
    return TensorType(shape, x.dtype)


def _expand_eval(x: Any, *, shape: tuple[int, ...]) -> Any:
    """As np.broadcast_to, which takes eight times as long for small arrays."""
    lead = len(shape) - x.ndim
    if lead < 0 or x.dtype.char not in "fdlq?" or not x.flags.c_contiguous:
        return np.broadcast_to(x, shape)
    for have, want in zip(x.shape, shape[lead:], strict=True):
        if have != want and have != 1:
            return np.broadcast_to(x, shape)  # which raises
    steps = [0 if n == 1 else s for n, s in zip(x.shape, x.strides, strict=True)]
    out = np.ndarray(shape, x.dtype, x, 0, (*(0,) * lead, *steps))
    out.flags.writeable = False
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
    if g.shape == shape:
        return g
    from weft.ops.reduce import sum

    lead = g.ndim - len(shape)
    dims = [*range(lead)]
    dims += [i + lead for i, n in enumerate(shape) if n == 1 and g.shape[i + lead] != 1]
    return reshape(sum(g, tuple(dims), keepdim=True), shape)


expand_op: Op = define(
    "expand",
    inputs="x",
    eval=_expand_eval,
    type=_expand_type,
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


def expand(input: Tensor, *sizes: Any, size: Any = None) -> Tensor:
    """The tensor repeated along axes of size 1, without copying; -1 keeps a size.

    >>> weft.tensor([[1], [2]]).expand(2, 3)
    tensor([[1, 1, 1],
            [2, 2, 2]], shape=(2, 3), dtype=int64)
    """
    shape = _flat("expand", sizes, size)
    lead = len(shape) - input.ndim
    if -1 in shape:
        shape = tuple(
            input.shape[i - lead] if n == -1 and i >= lead else n
            for i, n in enumerate(shape)
        )
    if any(n < 0 for n in shape):
        raise ShapeError(
            f"expand: cannot keep (-1) a new dimension: shape {input.shape} to {shape}"
        )
    if shape == input.shape:
        return input
    return bind(expand_op, (input,), {"shape": shape})


def _flat(name: str, sizes: tuple[Any, ...], keyword: Any = None) -> tuple[int, ...]:
    """Sizes given one by one, as one sequence, or by keyword."""
    if keyword is not None:
        sizes = (keyword,)
    if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)):
        sizes = tuple(sizes[0])
    return tuple([n if type(n) is int else _as_int(name, n) for n in sizes])


def _as_int(name: str, n: Any) -> int:
    try:
        return n.__index__()
    except AttributeError:
        raise DTypeError(
            f"{name}: expected integers, got {type(n).__name__} ({n!r})"
        ) from None


def expand_as(input: Tensor, other: Tensor) -> Tensor:
    """The tensor expanded to another's shape.

    >>> weft.ones(1).expand_as(weft.zeros(3)).shape
    (3,)
    """
    return expand(input, other.shape)


def broadcast_to(input: Tensor, size: Sequence[int]) -> Tensor:
    """The tensor broadcast to a shape.

    >>> weft.broadcast_to(weft.ones(3), (2, 3)).shape
    (2, 3)
    """
    return expand(input, tuple(size))


def _public_broadcast_shapes(*shapes: Any) -> tuple[int, ...]:
    """The shape that several broadcast to.

    >>> weft.broadcast_shapes((3, 1), (1, 4))
    (3, 4)
    """
    full = [(s,) if isinstance(s, int) else tuple(s) for s in shapes]
    return broadcast_shapes("broadcast_shapes", *full)


_public_broadcast_shapes.__name__ = "broadcast_shapes"


def broadcast_tensors(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Tensors expanded to their common shape.

    >>> a, b = weft.broadcast_tensors(weft.ones(3, 1), weft.ones(2))
    >>> a.shape, b.shape
    ((3, 2), (3, 2))
    """
    shape = broadcast_shapes("broadcast_tensors", *(t.shape for t in tensors))
    return tuple(expand(t, shape) for t in tensors)


# -- reshape


def _reshape_type(x: TensorType, *, shape: tuple[int, ...]) -> TensorType:
    if math.prod(x.shape) != math.prod(shape):
        raise ShapeError(
            f"reshape: shape {x.shape} has {math.prod(x.shape)} elements, "
            f"{shape} has {math.prod(shape)}"
        )
    return TensorType(shape, x.dtype)


reshape_op: Op = define(
    "reshape",
    inputs="x",
    eval=lambda x, *, shape: x.reshape(shape),
    type=_reshape_type,
    vjp={"x": lambda g, x_shape: reshape(g, x_shape)},
    linear=True,
    view="maybe",
    batch=lambda op, size, args, batched, params: reshape(
        args[0], (size, *params["shape"])
    ),
    samples=lambda rng: [
        Sample((rng.uniform(-2, 2, a),), {"shape": b})
        for a, b in (((3, 4), (2, 6)), ((), (1, 1)), ((0, 2), (2, 0)), ((4,), (4,)))
    ],
    reference=lambda x, *, shape: (
        np.array(list(np.nditer(x, order="C"))).reshape(shape)
        if x.size
        else np.zeros(shape)
    ),
)


def reshape(input: Tensor, *sizes: Any, shape: Any = None) -> Tensor:
    """The same elements in another shape; one size may be -1.

    A view where the memory allows it, else a copy.

    >>> weft.arange(6).reshape(2, -1)
    tensor([[0, 1, 2],
            [3, 4, 5]], shape=(2, 3), dtype=int64)
    """
    wanted = _infer("reshape", input.shape, _flat("reshape", sizes, shape))
    if wanted == input.shape:
        return input
    return bind(reshape_op, (input,), {"shape": wanted})


def _infer(name: str, have: tuple[int, ...], want: tuple[int, ...]) -> tuple[int, ...]:
    total = math.prod(have)
    if -1 in want:
        known = -math.prod(want)
        if want.count(-1) > 1 or any(n < -1 for n in want):
            raise ShapeError(f"{name}: expected at most one -1, got {want}")
        if known == 0 or total % known:
            raise ShapeError(
                f"{name}: cannot infer the -1 in {want} from shape {have} "
                f"({total} elements)"
            )
        want = tuple(total // known if n == -1 else n for n in want)
    if math.prod(want) != total or any(n < 0 for n in want):
        raise ShapeError(
            f"{name}: shape {have} has {total} elements; {want} would need "
            f"{math.prod(want)}"
        )
    return want


def view(input: Tensor, *shape: Any) -> Tensor:
    """The same memory in another shape; refused if that would need a copy.

    With a dtype instead, the memory read as that type.

    >>> x = weft.zeros(4)
    >>> x.view(2, 2)[0, 0] = 1
    >>> x
    tensor([1., 0., 0., 0.], shape=(4,), dtype=float32)
    """
    if len(shape) == 1 and isinstance(shape[0], dtypes.DType):
        return _view_dtype(input, shape[0])
    wanted = _infer("view", input.shape, _flat("view", shape))
    out = bind(reshape_op, (input,), {"shape": wanted})
    if type(input) is Tensor and out._base is None and input.numel():
        raise ShapeError(
            f"view: shape {input.shape} with strides {input.stride()} cannot be seen "
            f"as {wanted} without copying; use .reshape(...)"
        )
    return out


def _view_dtype(input: Tensor, dtype: dtypes.DType) -> Tensor:
    array = input.array()
    if input.dtype.itemsize != dtype.itemsize:
        last = array.shape[-1] * input.dtype.itemsize if array.ndim else 0
        if not last or last % dtype.itemsize or array.strides[-1] != array.itemsize:
            raise DTypeError(
                f"view: the last dimension of a {input.dtype.name} tensor of shape "
                f"{input.shape} cannot be read as {dtype.name}"
            )
    out = Tensor(array.view(dtype.np))
    out._storage = input.storage
    return out


def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Several dimensions made one.

    >>> weft.zeros(2, 3, 4).flatten(1).shape
    (2, 12)
    """
    if input.ndim == 0:
        return reshape(input, (1,))
    first = normalize_dim("flatten", start_dim, input.ndim)
    last = normalize_dim("flatten", end_dim, input.ndim)
    if first > last:
        raise ArgumentError(f"flatten: start_dim {first} comes after end_dim {last}")
    shape = input.shape
    return reshape(
        input,
        (*shape[:first], math.prod(shape[first : last + 1]), *shape[last + 1 :]),
    )


def ravel(input: Tensor) -> Tensor:
    """All elements in one dimension.

    >>> weft.zeros(2, 3).ravel().shape
    (6,)
    """
    return reshape(input, (-1,)) if input.numel() else reshape(input, (0,))


def unflatten(input: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
    """One dimension split into several.

    >>> weft.zeros(2, 12).unflatten(1, (3, -1)).shape
    (2, 3, 4)
    """
    d = normalize_dim("unflatten", dim, input.ndim)
    inner = _infer("unflatten", (input.shape[d],), tuple(sizes))
    return reshape(input, (*input.shape[:d], *inner, *input.shape[d + 1 :]))


def squeeze(input: Tensor, dim: Any = None) -> Tensor:
    """Dimensions of size 1 left out: all, or the named ones.

    >>> weft.zeros(1, 3, 1).squeeze().shape
    (3,)
    """
    dims = normalize_dims("squeeze", dim, input.ndim)
    kept = tuple(n for i, n in enumerate(input.shape) if i not in dims or n != 1)
    return reshape(input, kept)


def unsqueeze(input: Tensor, dim: int) -> Tensor:
    """A dimension of size 1 put in.

    >>> weft.zeros(3).unsqueeze(0).shape
    (1, 3)
    """
    d = normalize_dim("unsqueeze", dim, input.ndim + 1)
    return reshape(input, (*input.shape[:d], 1, *input.shape[d:]))


# -- permute


def _permute_type(x: TensorType, *, dims: tuple[int, ...]) -> TensorType:
    return TensorType(tuple(x.shape[d] for d in dims), x.dtype)


def _inverse(dims: tuple[int, ...]) -> tuple[int, ...]:
    out = [0] * len(dims)
    for place, d in enumerate(dims):
        out[d] = place
    return tuple(out)


permute_op: Op = define(
    "permute",
    inputs="x",
    eval=lambda x, *, dims: x.transpose(dims),
    type=_permute_type,
    vjp={"x": lambda g, dims: permute(g, _inverse(dims))},
    linear=True,
    view=True,
    batch=lambda op, size, args, batched, params: permute(
        args[0], (0, *(d + 1 for d in params["dims"]))
    ),
    samples=lambda rng: [
        Sample((rng.uniform(-2, 2, a),), {"dims": d})
        for a, d in (((2, 3, 4), (2, 0, 1)), ((), ()), ((0, 2), (1, 0)))
    ],
    reference=lambda x, *, dims: np.einsum(x, list(range(x.ndim)), list(dims)),
)


def permute(input: Tensor, *order: Any, dims: Any = None) -> Tensor:
    """The dimensions in another order, without copying.

    >>> weft.zeros(2, 3, 4).permute(2, 0, 1).shape
    (4, 2, 3)
    """
    given = _flat("permute", order, dims)
    if len(given) != input.ndim:
        raise ShapeError(
            f"permute: expected {input.ndim} dims for shape {input.shape}, got {given}"
        )
    wanted = normalize_dims("permute", given, input.ndim)
    return bind(permute_op, (input,), {"dims": wanted})


def transpose(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """Two dimensions exchanged, without copying.

    >>> weft.zeros(2, 3).transpose(0, 1).shape
    (3, 2)
    """
    a = normalize_dim("transpose", dim0, input.ndim)
    b = normalize_dim("transpose", dim1, input.ndim)
    order = list(range(input.ndim))
    if input.ndim:
        order[a], order[b] = order[b], order[a]
    return bind(permute_op, (input,), {"dims": tuple(order)})


swapaxes = swapdims = transpose


def t(input: Tensor) -> Tensor:
    """A matrix transposed; vectors and scalars stay as they are.

    >>> weft.zeros(2, 3).t().shape
    (3, 2)
    """
    if input.ndim > 2:
        raise ShapeError(f"t: expected at most 2 dimensions, got shape {input.shape}")
    return input if input.ndim < 2 else transpose(input, 0, 1)


def adjoint(input: Tensor) -> Tensor:
    """The last two dimensions exchanged, and complex numbers conjugated.

    >>> weft.tensor([[1j, 2]]).adjoint().shape
    (2, 1)
    """
    return transpose(input, -2, -1).conj()


def movedim(input: Tensor, source: Any, destination: Any) -> Tensor:
    """Dimensions moved to other places, the rest in order.

    >>> weft.zeros(2, 3, 4).movedim(0, -1).shape
    (3, 4, 2)
    """
    src = normalize_dims("movedim", source, input.ndim)
    dst = normalize_dims("movedim", destination, input.ndim)
    if len(src) != len(dst):
        raise ArgumentError(
            f"movedim: {len(src)} source dims but {len(dst)} destination dims"
        )
    order = [d for d in range(input.ndim) if d not in src]
    for place, d in sorted(zip(dst, src, strict=True)):
        order.insert(place, d)
    return permute(input, tuple(order))


moveaxis = movedim

# -- slice and place


def _slice_type(x: TensorType, *, index: tuple[Any, ...]) -> TensorType:
    shape: list[int] = []
    axis = 0
    for item in index:
        if item is None:
            shape.append(1)
            continue
        if isinstance(item, slice):
            shape.append(len(range(*item.indices(x.shape[axis]))))
        axis += 1
    return TensorType((*shape, *x.shape[axis:]), x.dtype)


def _place_eval(x: Any, *, shape: tuple[int, ...], index: tuple[Any, ...]) -> Any:
    out = np.zeros(shape, x.dtype)
    out[index] = x
    return out


def _shift_index(
    op: Op, size: int, args: Any, batched: Any, params: dict[str, Any]
) -> Any:
    shifted = dict(params, index=(slice(None), *params["index"]))
    if "shape" in params:
        shifted["shape"] = (size, *params["shape"])
    return bind(op, tuple(args), shifted)


_SLICES: tuple[tuple[tuple[int, ...], tuple[Any, ...]], ...] = (
    ((3, 4), (slice(1, 3), slice(None, None, 2))),
    ((3, 4), (1,)),
    ((4, 5), (slice(None, None, -1), None, 2)),
    ((0, 2), (slice(None), 1)),
    ((), (None,)),
)


def _strided_reference(x: Any, *, index: Any) -> Any:
    out = x
    axis = 0
    for item in index:
        if item is None:
            out = np.expand_dims(out, axis)
        elif isinstance(item, slice):
            out = np.take(out, list(range(*item.indices(out.shape[axis]))), axis)
        else:
            out = np.take(out, item, axis)
            continue
        axis += 1
    return out


slice_op: Op = define(
    "slice",
    inputs="x",
    eval=lambda x, *, index: x[(*index, ...)],  # ...: a 0-d view, not a scalar
    type=_slice_type,
    vjp={"x": lambda g, x_shape, index: place_op(g, shape=x_shape, index=index)},
    linear=True,
    view=True,
    batch=_shift_index,
    samples=lambda rng: [
        Sample((rng.uniform(-2, 2, shape),), {"index": index})
        for shape, index in _SLICES
    ],
    reference=_strided_reference,
)


def _place_reference(x: Any, *, shape: Any, index: Any) -> Any:
    positions = np.arange(math.prod(shape)).reshape(shape)
    out = np.zeros(math.prod(shape))
    for where, value in zip(
        _strided_reference(positions, index=index).ravel(), x.ravel(), strict=True
    ):
        out[where] = value
    return out.reshape(shape)


place_op: Op = define(
    "place",
    inputs="x",
    eval=_place_eval,
    type=lambda x, *, shape, index: TensorType(shape, x.dtype),
    vjp={"x": lambda g, index: slice_op(g, index=index)},
    linear=True,
    batch=_shift_index,
    samples=lambda rng: [
        Sample(
            (rng.uniform(-2, 2, np.zeros(shape)[index].shape),),
            {"shape": shape, "index": index},
        )
        for shape, index in _SLICES
    ],
    reference=_place_reference,
)


def narrow(input: Tensor, dim: int, start: int, length: int) -> Tensor:
    """``length`` elements from ``start`` along a dimension, without copying.

    >>> weft.arange(6).narrow(0, 2, 3)
    tensor([2, 3, 4], shape=(3,), dtype=int64)
    """
    d = normalize_dim("narrow", dim, input.ndim)
    size = input.shape[d] if input.ndim else 1
    first = start + size if start < 0 else start
    if not 0 <= first <= size or length < 0 or first + length > size:
        raise ShapeError(
            f"narrow: elements {start} to {start + length} are not inside dim {d} "
            f"of size {size}"
        )
    return along(input, d, slice(first, first + length))


def along(x: Tensor, dim: int, item: Any) -> Tensor:
    """Index one dimension with an int or a slice."""
    return bind(slice_op, (x,), {"index": (*(slice(None),) * dim, item)})


def select(input: Tensor, dim: int, index: int) -> Tensor:
    """One element along a dimension, which is left out.

    >>> weft.arange(6).reshape(2, 3).select(1, 2)
    tensor([2, 5], shape=(2,), dtype=int64)
    """
    from weft.errors import OutOfRangeError

    d = normalize_dim("select", dim, input.ndim)
    size = input.shape[d] if input.ndim else 0
    if not -size <= index < size:
        raise OutOfRangeError(
            f"select: index {index} is out of range for dim {d} of size {size}"
        )
    return along(input, d, index % size)


def unbind(input: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """The slices along a dimension.

    >>> weft.tensor([[1, 2], [3, 4]]).unbind()[1]
    tensor([3, 4], shape=(2,), dtype=int64)
    """
    if input.ndim == 0:
        raise ShapeError("unbind: expected at least one dimension, got a 0-d tensor")
    d = normalize_dim("unbind", dim, input.ndim)
    return tuple([along(input, d, i) for i in range(input.shape[d])])


def split(
    tensor: Tensor,
    split_size_or_sections: Any = None,
    dim: int = 0,
    *,
    split_size: Any = None,
) -> tuple[Tensor, ...]:
    """Pieces of a given size (the last may be smaller), or of listed sizes.

    >>> [piece.shape for piece in weft.arange(5).split(2)]
    [(2,), (2,), (1,)]
    """
    input = _with_axis("split", tensor)
    if split_size is None:
        split_size = split_size_or_sections
    d = normalize_dim("split", dim, input.ndim)
    size = input.shape[d]
    if isinstance(split_size, int):
        if split_size < 0 or (split_size == 0 and size):
            raise ArgumentError(f"split: expected a positive size, got {split_size}")
        sizes = [min(split_size, size - k) for k in range(0, size, max(split_size, 1))]
        sizes = sizes or [0]
    else:
        if not isinstance(split_size, (list, tuple)):
            raise DTypeError(
                "split: expected a size or a list of sizes, got "
                f"{type(split_size).__name__}"
            )
        sizes = list(split_size)
        if builtin_sum(sizes) != size or any(n < 0 for n in sizes):
            raise ShapeError(
                f"split: sizes {sizes} add up to {builtin_sum(sizes)}, "
                f"but dim {d} has size {size}"
            )
    starts = [builtin_sum(sizes[:k]) for k in range(len(sizes))]
    return tuple(
        along(input, d, slice(a, a + n)) for a, n in zip(starts, sizes, strict=True)
    )


builtin_sum = sum


def _with_axis(name: str, x: Tensor) -> Tensor:
    if x.ndim == 0:
        raise ShapeError(f"{name}: expected at least one dimension, got a 0-d tensor")
    return x


def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """At most ``chunks`` pieces of equal size (the last may be smaller).

    >>> [piece.shape for piece in weft.arange(5).chunk(2)]
    [(3,), (2,)]
    """
    if chunks <= 0:
        raise ArgumentError(f"chunk: expected a positive number, got {chunks}")
    d = normalize_dim("chunk", dim, _with_axis("chunk", input).ndim)
    if input.shape[d] == 0:
        return (along(input, d, slice(0, 0)),) * chunks
    return split(input, max(-(-input.shape[d] // chunks), 1), d)


def tensor_split(input: Tensor, indices_or_sections: Any, dim: int = 0) -> Any:
    """Pieces cut at indices, or a number of nearly equal ones.

    >>> [piece.shape for piece in weft.arange(5).tensor_split(2)]
    [(3,), (2,)]
    """
    d = normalize_dim("tensor_split", dim, _with_axis("tensor_split", input).ndim)
    size = input.shape[d]
    if isinstance(indices_or_sections, Tensor):
        indices_or_sections = indices_or_sections.tolist()
    if isinstance(indices_or_sections, int):
        n = indices_or_sections
        if n <= 0:
            raise ArgumentError(f"tensor_split: expected a positive number, got {n}")
        cuts = [k * (size // n) + min(k, size % n) for k in range(n + 1)]
    else:
        wanted = [i + size if i < 0 else i for i in indices_or_sections]
        cuts = [0, *(min(max(i, 0), size) for i in wanted), size]
    pairs = itertools.pairwise(cuts)
    return tuple(along(input, d, slice(a, max(a, b))) for a, b in pairs)


# -- flip

flip_op: Op = define(
    "flip",
    inputs="x",
    eval=lambda x, *, dims: np.flip(x, dims),
    type=lambda x, *, dims: x,
    vjp={"x": lambda g, dims: flip_op(g, dims=dims)},
    linear=True,
    batch=lambda op, size, args, batched, params: flip_op(
        args[0], dims=tuple(d + 1 for d in params["dims"])
    ),
    samples=lambda rng: [
        Sample((rng.uniform(-2, 2, s),), {"dims": d})
        for s, d in (((3, 4), (0,)), ((3, 4), (0, 1)), ((0, 2), (1,)), ((), ()))
    ],
    reference=lambda x, *, dims: x[
        tuple(
            slice(None, None, -1) if i in dims else slice(None) for i in range(x.ndim)
        )
    ],
)


def _split_along(name: str, x: Tensor, cuts: Any, dim: int) -> tuple[Tensor, ...]:
    if x.ndim <= dim and not (name == "hsplit" and x.ndim == 1):
        raise ShapeError(
            f"{name}: expected at least {dim + 1} dimensions, got shape {x.shape}"
        )
    d = min(dim, x.ndim - 1)
    if isinstance(cuts, int) and (cuts <= 0 or x.shape[d] % cuts):
        raise ShapeError(
            f"{name}: cannot cut dim {d} of size {x.shape[d]} into {cuts} equal pieces"
        )
    return tensor_split(x, cuts, d)


def hsplit(input: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """Pieces along the second dimension (the first of a vector).

    >>> [piece.shape for piece in weft.hsplit(weft.zeros(3, 4), 2)]
    [(3, 2), (3, 2)]
    """
    return _split_along("hsplit", input, indices_or_sections, 1)


def vsplit(input: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """Pieces along the first dimension.

    >>> [piece.shape for piece in weft.vsplit(weft.zeros(3, 4), [1])]
    [(1, 4), (2, 4)]
    """
    if input.ndim < 2:
        raise ShapeError(f"vsplit: expected at least 2 dimensions, got {input.shape}")
    return _split_along("vsplit", input, indices_or_sections, 0)


def dsplit(input: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """Pieces along the third dimension.

    >>> [piece.shape for piece in weft.dsplit(weft.zeros(1, 1, 4), 2)]
    [(1, 1, 2), (1, 1, 2)]
    """
    return _split_along("dsplit", input, indices_or_sections, 2)


def unfold(input: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """Windows of a dimension, their elements in a new last dimension (a copy).

    >>> weft.arange(4).unfold(0, 2, 1)
    tensor([[0, 1],
            [1, 2],
            [2, 3]], shape=(3, 2), dtype=int64)
    """
    from weft.ops.index import index_select

    d = normalize_dim("unfold", dimension, _with_axis("unfold", input).ndim)
    if not 0 <= size <= input.shape[d] or step <= 0:
        raise ArgumentError(
            f"unfold: expected a size from 0 to {input.shape[d]} and a positive step, "
            f"got {size} and {step}"
        )
    count = (input.shape[d] - size) // step + 1
    places = np.arange(count)[:, None] * step + np.arange(size)
    picked = index_select(input, d, Tensor(places.reshape(-1)))
    return movedim(unflatten(picked, d, (count, size)), d + 1, -1)


def flip(input: Tensor, *axes: Any, dims: Any = None) -> Tensor:
    """The elements in reverse order along dimensions (a copy).

    >>> weft.arange(3).flip(0)
    tensor([2, 1, 0], shape=(3,), dtype=int64)
    """
    chosen = normalize_dims("flip", _flat("flip", axes, dims), input.ndim)
    return contiguous(flip_op(input, dims=chosen))


def fliplr(input: Tensor) -> Tensor:
    """Columns in reverse order.

    >>> weft.tensor([[1, 2]]).fliplr()
    tensor([[2, 1]], shape=(1, 2), dtype=int64)
    """
    if input.ndim < 2:
        raise ShapeError(f"fliplr: expected at least 2 dimensions, got {input.shape}")
    return flip(input, 1)


def flipud(input: Tensor) -> Tensor:
    """Rows in reverse order.

    >>> weft.tensor([1, 2]).flipud()
    tensor([2, 1], shape=(2,), dtype=int64)
    """
    return flip(input, 0)


# -- cat


def _cat_type(*types: TensorType, dim: int) -> TensorType:
    first = types[0]
    for k, other in enumerate(types[1:], 1):
        if len(other.shape) != len(first.shape):
            raise ShapeError(
                f"cat: expected tensors of equal rank, got shape {first.shape} "
                f"and, at position {k}, {other.shape}"
            )
        for axis, (a, b) in enumerate(zip(first.shape, other.shape, strict=True)):
            if axis != dim and a != b:
                raise ShapeError(
                    f"cat: sizes must match except in dim {dim}; tensor 0 has shape "
                    f"{first.shape}, tensor {k} has {other.shape} (axis {axis} differs)"
                )
    total = builtin_sum(t.shape[dim] for t in types)
    return TensorType((*first.shape[:dim], total, *first.shape[dim + 1 :]), first.dtype)


def _cat_vjp(g: Tensor, need: Any, xs_shape: Any, dim: int) -> list[Any]:
    pieces = split(g, [shape[dim] for shape in xs_shape], dim)
    return [piece if n else None for piece, n in zip(pieces, need, strict=True)]


def _cat_jvp(ts: list[Any], xs: list[Any], dim: int) -> Tensor:
    from weft.ops.creation import zeros_like

    filled = [zeros_like(x) if t is None else t for t, x in zip(ts, xs, strict=True)]
    return cat_op(*filled, dim=dim)


def _cat_batch(
    op: Op, size: int, args: Any, batched: Any, params: dict[str, Any]
) -> Tensor:
    full = [
        a if b else expand(a, (size, *a.shape))
        for a, b in zip(args, batched, strict=True)
    ]
    return cat_op(*full, dim=params["dim"] + 1)


cat_op: Op = define(
    "cat",
    inputs="*xs",
    eval=lambda *xs, dim: np.concatenate(xs, dim),
    type=_cat_type,
    vjp=_cat_vjp,
    jvp=_cat_jvp,
    batch=_cat_batch,
    samples=lambda rng: [
        Sample(tuple(rng.uniform(-2, 2, s) for s in shapes), {"dim": dim})
        for shapes, dim in (
            (((3, 4), (2, 4)), 0),
            (((3, 1), (3, 0), (3, 2)), 1),
            (((2,),), 0),
            (((0, 2), (0, 3)), 1),
        )
    ],
    reference=lambda *xs, dim: _cat_reference(xs, dim),
)


def _cat_reference(xs: Any, dim: int) -> Any:
    """Each tensor written into its place of a zero array."""
    total = _cat_type(*(TensorType(x.shape, dtypes.float64) for x in xs), dim=dim)
    out = np.zeros(total.shape)
    start = 0
    for x in xs:
        np.moveaxis(out, dim, 0)[start : start + x.shape[dim]] = np.moveaxis(x, dim, 0)
        start += x.shape[dim]
    return out


def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Tensors joined along a dimension.

    >>> weft.cat([weft.tensor([1]), weft.tensor([2, 3])])
    tensor([1, 2, 3], shape=(3,), dtype=int64)
    """
    xs = _tensor_list("cat", tensors)
    for k, x in enumerate(xs):
        if x.ndim == 0:
            raise ShapeError(
                f"cat: expected tensors of at least one dimension, but tensor {k} "
                "is 0-d; use stack"
            )
    # PyTorch lets an empty 1-d tensor join anything.
    kept = [x for x in xs if x.shape != (0,)] or xs[:1]
    d = normalize_dim("cat", dim, kept[0].ndim)
    dtype = result_type(*xs)
    return bind(cat_op, tuple(cast(x, dtype) for x in kept), {"dim": d})


def _tensor_list(name: str, tensors: Any) -> list[Tensor]:
    xs = list(tensors) if isinstance(tensors, (list, tuple)) else None
    if not xs:
        what = "an empty sequence" if xs == [] else type(tensors).__name__
        raise ArgumentError(f"{name}: expected a list of tensors, got {what}")
    for k, x in enumerate(xs):
        if not isinstance(x, Tensor):
            raise DTypeError(
                f"{name}: expected tensors, got {type(x).__name__} at position {k}"
            )
    return xs


concat = concatenate = cat


def stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Tensors of one shape joined along a new dimension.

    >>> weft.stack([weft.tensor([1, 2]), weft.tensor([3, 4])])
    tensor([[1, 2],
            [3, 4]], shape=(2, 2), dtype=int64)
    """
    xs = _tensor_list("stack", tensors)
    for k, x in enumerate(xs):
        if x.shape != xs[0].shape:
            raise ShapeError(
                f"stack: expected equal shapes, got {xs[0].shape} at position 0 and "
                f"{x.shape} at position {k}"
            )
    d = normalize_dim("stack", dim, xs[0].ndim + 1)
    dtype = result_type(*xs)
    raised = tuple(unsqueeze(cast(x, dtype), d) for x in xs)
    return bind(cat_op, raised, {"dim": d})


def _at_least(ndim: int, tensors: tuple[Any, ...]) -> Any:
    if len(tensors) == 1 and isinstance(tensors[0], Tensor):
        x = tensors[0]
        while x.ndim < ndim:
            x = unsqueeze(x, -1 if x.ndim == 2 else 0)
        return x
    xs = _tensor_list(f"atleast_{ndim}d", tensors[0] if len(tensors) == 1 else tensors)
    return tuple(_at_least(ndim, (x,)) for x in xs)


def atleast_1d(*tensors: Any) -> Any:
    """The tensor (or each of several) with at least one dimension.

    >>> weft.tensor(1).atleast_1d().shape
    (1,)
    """
    return _at_least(1, tensors)


def atleast_2d(*tensors: Any) -> Any:
    """The tensor (or each of several) with at least two dimensions.

    >>> weft.ones(3).atleast_2d().shape
    (1, 3)
    """
    return _at_least(2, tensors)


def atleast_3d(*tensors: Any) -> Any:
    """The tensor (or each of several) with at least three dimensions.

    >>> weft.ones(3).atleast_3d().shape
    (1, 3, 1)
    """
    return _at_least(3, tensors)


def hstack(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors joined along the second dimension (the first for vectors).

    >>> weft.hstack([weft.tensor([1]), weft.tensor([2])])
    tensor([1, 2], shape=(2,), dtype=int64)
    """
    xs = [atleast_1d(x) for x in _tensor_list("hstack", tensors)]
    return cat(xs, 0 if xs[0].ndim == 1 else 1)


def vstack(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors joined along the first dimension, vectors as rows.

    >>> weft.vstack([weft.tensor([1, 2]), weft.tensor([3, 4])]).shape
    (2, 2)
    """
    return cat([atleast_2d(x) for x in _tensor_list("vstack", tensors)], 0)


def dstack(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors joined along the third dimension.

    >>> weft.dstack([weft.tensor([1, 2]), weft.tensor([3, 4])]).shape
    (1, 2, 2)
    """
    return cat([atleast_3d(x) for x in _tensor_list("dstack", tensors)], 2)


row_stack = vstack


def column_stack(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors joined along the second dimension, vectors as columns.

    >>> weft.column_stack([weft.tensor([1, 2]), weft.tensor([3, 4])])
    tensor([[1, 3],
            [2, 4]], shape=(2, 2), dtype=int64)
    """
    xs = _tensor_list("column_stack", tensors)
    return cat([x if x.ndim > 1 else reshape(x, (x.numel(), 1)) for x in xs], 1)


def block_diag(*tensors: Tensor) -> Tensor:
    """Matrices along the diagonal of a larger one, zeros elsewhere.

    >>> weft.block_diag(weft.tensor([[1, 2]]), weft.tensor([3]))
    tensor([[1, 2, 0],
            [0, 0, 3]], shape=(2, 3), dtype=int64)
    """
    blocks = [atleast_2d(x) for x in _tensor_list("block_diag", tensors)]
    for k, x in enumerate(blocks):
        if x.ndim > 2:
            raise ShapeError(
                f"block_diag: expected at most 2 dimensions, got shape {x.shape} at "
                f"position {k}"
            )
    total = builtin_sum(x.shape[1] for x in blocks)
    rows, done = [], 0
    for x in blocks:
        rows.append(pad(x, (done, total - done - x.shape[1])))
        done += x.shape[1]
    return cat(rows, 0)


# -- repeating, rolling, padding


def repeat(input: Tensor, *sizes: Any) -> Tensor:
    """The whole tensor repeated along each dimension (a copy).

    >>> weft.tensor([1, 2]).repeat(2)
    tensor([1, 2, 1, 2], shape=(4,), dtype=int64)
    """
    counts = _flat("repeat", sizes)
    if len(counts) < input.ndim or any(n < 0 for n in counts):
        raise ShapeError(
            f"repeat: expected at least {input.ndim} counts of at least 0 for shape "
            f"{input.shape}, got {counts}"
        )
    have = (1,) * (len(counts) - input.ndim) + input.shape
    inner = [m for n in have for m in (1, n)]
    wide = [m for c, n in zip(counts, have, strict=True) for m in (c, n)]
    total = tuple(c * n for c, n in zip(counts, have, strict=True))
    return reshape(expand(reshape(input, inner), wide), total).clone()


def tile(input: Tensor, *counts: Any, dims: Any = None) -> Tensor:
    """The whole tensor repeated, missing counts taken as 1.

    >>> weft.tensor([[1, 2]]).tile(2)
    tensor([[1, 2, 1, 2]], shape=(1, 4), dtype=int64)
    """
    times = _flat("tile", counts, dims)
    return repeat(input, (1,) * (input.ndim - len(times)) + times)


def roll(input: Tensor, shifts: Any, dims: Any = None) -> Tensor:
    """The elements moved along dimensions, those pushed out coming in again.

    >>> weft.arange(4).roll(1)
    tensor([3, 0, 1, 2], shape=(4,), dtype=int64)
    """
    if dims is None:
        return reshape(roll(ravel(input), shifts, 0), input.shape)
    steps = shifts if isinstance(shifts, (tuple, list)) else (shifts,)
    axes = dims if isinstance(dims, (tuple, list)) else (dims,)
    if len(steps) != len(axes):
        raise ArgumentError(f"roll: {len(steps)} shifts but {len(axes)} dims")
    out = input
    for step, dim in zip(steps, axes, strict=True):
        d = normalize_dim("roll", dim, input.ndim)
        size = max(out.shape[d], 1)
        cut = -step % size
        out = cat([along(out, d, slice(cut, None)), along(out, d, slice(0, cut))], d)
    return out


def rot90(input: Tensor, k: int = 1, dims: Sequence[int] = (0, 1)) -> Tensor:
    """The tensor turned by k quarter turns in the plane of two dimensions.

    >>> weft.tensor([[1, 2], [3, 4]]).rot90()
    tensor([[2, 4],
            [1, 3]], shape=(2, 2), dtype=int64)
    """
    a, b = normalize_dims("rot90", tuple(dims), input.ndim)
    turns = k % 4
    if turns == 0:
        return input.clone()
    if turns == 2:
        return flip(input, a, b)
    turned = transpose(input, a, b)
    return flip(turned, a if turns == 1 else b)


def pad(
    input: Tensor, pad: Sequence[int], mode: str = "constant", value: float = 0
) -> Tensor:
    """Elements added at the ends of dimensions, the last dimension first.

    ``mode`` is ``constant``, ``reflect``, ``replicate`` or ``circular``; negative
    amounts cut off.

    >>> weft.pad(weft.tensor([1, 2]), (1, 2))
    tensor([0, 1, 2, 0, 0], shape=(5,), dtype=int64)
    """
    amounts = list(pad)
    if len(amounts) % 2 or len(amounts) > 2 * input.ndim:
        raise ArgumentError(
            f"pad: expected an even number of at most {2 * input.ndim} amounts for "
            f"shape {input.shape}, got {len(amounts)}"
        )
    if mode == "constant":
        return _pad_constant(input, amounts, value)
    out = input
    for k in range(len(amounts) // 2):
        out = _pad_axis(out, input.ndim - 1 - k, amounts[2 * k : 2 * k + 2], mode)
    return out


def _pad_constant(x: Tensor, amounts: list[int], value: float) -> Tensor:
    shape, inside, cut = list(x.shape), [slice(None)] * x.ndim, [slice(None)] * x.ndim
    for k in range(len(amounts) // 2):
        axis, (low, high) = x.ndim - 1 - k, amounts[2 * k : 2 * k + 2]
        size = shape[axis]
        if size + low + high < 0:
            raise ShapeError(f"pad: {(low, high)} would cut more than axis {axis} has")
        cut[axis] = slice(max(-low, 0), size - max(-high, 0))
        kept = size - max(-low, 0) - max(-high, 0)
        inside[axis] = slice(max(low, 0), max(low, 0) + kept)
        shape[axis] = size + low + high
    core = bind(slice_op, (x,), {"index": tuple(cut)})
    params = {"shape": tuple(shape), "index": tuple(inside)}
    out = bind(place_op, (core,), params)
    if value == 0:
        return out
    from weft.ops.creation import ones
    from weft.ops.elementwise import where

    mask = bind(place_op, (ones(core.shape, dtype=dtypes.bool_),), params)
    return where(mask, out, value).to(x.dtype)


def _pad_axis(x: Tensor, axis: int, amounts: list[int], mode: str) -> Tensor:
    from weft.ops.index import index_select

    low, high = amounts
    size = x.shape[axis]
    places = np.arange(-low, size + high)
    if mode == "replicate":
        places = places.clip(0, size - 1)
    elif mode == "circular":
        places %= size
    elif mode == "reflect":
        if max(low, high) >= size:
            raise ShapeError(
                f"pad: reflect needs amounts below the size {size} of axis {axis}, "
                f"got {(low, high)}"
            )
        period = max(2 * (size - 1), 1)
        places = np.abs((places + size - 1) % period - (size - 1))
    else:
        raise ArgumentError(
            "pad: mode must be 'constant', 'reflect', 'replicate' or 'circular', "
            f"got {mode!r}"
        )
    return index_select(x, axis, Tensor(places))


def tril(input: Tensor, diagonal: int = 0) -> Tensor:
    """The lower triangle, zeros elsewhere.

    >>> weft.ones(2, 2).tril()
    tensor([[1., 0.],
            [1., 1.]], shape=(2, 2), dtype=float32)
    """
    return _triangle("tril", input, np.tril, diagonal)


def triu(input: Tensor, diagonal: int = 0) -> Tensor:
    """The upper triangle, zeros elsewhere.

    >>> weft.ones(2, 2).triu()
    tensor([[1., 1.],
            [0., 1.]], shape=(2, 2), dtype=float32)
    """
    return _triangle("triu", input, np.triu, diagonal)


def _triangle(name: str, x: Tensor, keep: Any, diagonal: int) -> Tensor:
    from weft.ops.elementwise import where

    if x.ndim < 2:
        raise ShapeError(f"{name}: expected at least 2 dimensions, got shape {x.shape}")
    mask = Tensor(keep(np.ones(x.shape[-2:], np.bool_), diagonal))
    return where(mask, x, False)


def meshgrid(*tensors: Any, indexing: str = "ij") -> tuple[Tensor, ...]:
    """Coordinate grids from vectors.

    >>> a, b = weft.meshgrid(weft.arange(2), weft.arange(3))
    >>> a.shape, b[0]
    ((2, 3), tensor([0, 1, 2], shape=(3,), dtype=int64))
    """
    listed = len(tensors) == 1 and isinstance(tensors[0], (list, tuple))
    xs = _tensor_list("meshgrid", tensors[0] if listed else tensors)
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


# -- copies

clone_op: Op = define(
    "clone",
    inputs="x",
    eval=lambda x: x.copy(order="C") if type(x) is np.ndarray else x,
    type=lambda x: x,
    vjp={"x": lambda g: g},
    linear=True,
    batch=elementwise_batch,
    samples=samples_in((-2.0, 2.0)),
    reference=lambda x: x + 0.0,
)


def clone(input: Tensor) -> Tensor:
    """A copy that gradients flow through.

    >>> x = weft.ones(2)
    >>> x.clone().add_(1)
    tensor([2., 2.], shape=(2,), dtype=float32)
    >>> x
    tensor([1., 1.], shape=(2,), dtype=float32)
    """
    return bind(clone_op, (input,), {})


alias_op: Op = define(
    "alias",
    inputs="x",
    eval=lambda x: x,
    type=lambda x: x,
    vjp={"x": lambda g: g},
    linear=True,
    view=True,
    batch=elementwise_batch,
    samples=samples_in((-2.0, 2.0)),
    reference=lambda x: x + 0.0,
)


def contiguous(input: Tensor) -> Tensor:
    """The tensor itself if its memory is in order, else a copy.

    >>> weft.zeros(2, 3).t().contiguous().is_contiguous()
    True
    """
    if type(input) is Tensor and not input._data.flags.c_contiguous:
        return clone(input)
    return input


def view_as(input: Tensor, other: Tensor) -> Tensor:
    """The same memory in another tensor's shape.

    >>> weft.zeros(6).view_as(weft.ones(2, 3)).shape
    (2, 3)
    """
    return view(input, other.shape)


def reshape_as(input: Tensor, other: Tensor) -> Tensor:
    """The same elements in another tensor's shape.

    >>> weft.zeros(6).reshape_as(weft.ones(2, 3)).shape
    (2, 3)
    """
    return reshape(input, other.shape)


def sum_to_size(input: Tensor, *size: Any) -> Tensor:
    """The sum over the axes along which a smaller shape would be broadcast.

    >>> weft.ones(2, 3).sum_to_size(1, 3)
    tensor([[2., 2., 2.]], shape=(1, 3), dtype=float32)
    """
    shape = _flat("sum_to_size", size)
    if broadcast_shapes("sum_to_size", input.shape, shape) != input.shape:
        raise ShapeError(f"sum_to_size: {shape} does not expand to {input.shape}")
    return sum_to(input, shape)
