"""The same elements in another shape, or with their axes in another order.

The primitives are ``reshape`` and ``permute``; they are linear, and each vjp is
the operator itself, with the inverse shape or permutation.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import dtype as dtypes
from weft.core import fast_path
from weft.core.dims import existing_dim, normalize_dim, normalize_dims
from weft.core.dispatch import bind
from weft.core.lowering import View, permuted, reshaped
from weft.core.mode import mode
from weft.core.op import Op, Sample, TensorType, define
from weft.core.size import Size, same, same_shape
from weft.core.tensor import Tensor
from weft.errors import (
    AllocationError,
    ArgumentError,
    DeviceError,
    DTypeError,
    ShapeError,
)
from weft.ops import dividing
from weft.ops.inplace import view_form
from weft.ops.operands import flat_sizes, tensor_list
from weft.ops.public import public
from weft.runtime.cpu.buffers import SMALLEST, empty

# -- reshape


def _reshape_type(x: TensorType, *, shape: tuple[int, ...]) -> TensorType:
    if math.prod(x.shape) != math.prod(shape):
        raise ShapeError(
            f"reshape: shape {x.shape} has {math.prod(x.shape)} elements, "
            f"{shape} has {math.prod(shape)}"
        )
    return TensorType(shape, x.dtype)


def _reshape_eval(x: Any, *, shape: tuple[int, ...]) -> Any:
    if x.nbytes < SMALLEST or x.flags.c_contiguous:
        return x.reshape(shape)
    try:
        return x.reshape(shape, copy=False)
    except ValueError:
        try:
            out = empty(x.shape, x.dtype)  # large copies are memory of the pool
        except AllocationError as error:
            raise MemoryError(str(error)) from None  # explained with the operator
        np.copyto(out, x)
        return out.reshape(shape)


reshape_op: Op = define(
    "reshape",
    divides=dividing.reshaped,
    inputs="x",
    eval=_reshape_eval,
    type=_reshape_type,
    lower=View(reshaped, in_order=True),
    vjp={"x": lambda g, x_shape: g.reshape(x_shape)},
    linear=True,
    view="maybe",
    put=lambda x, y, shape: y.reshape(x.shape),
    batch=lambda op, size, args, batched, params: args[0].reshape(
        (size, *params["shape"])
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
_RESHAPE = reshape_op.plan((True,))
_COPIED = 1 << 12  # elements from which a copy costs more than the question for a view


@public(method=True)
def reshape(input: Tensor, *sizes: Any, shape: Any = None) -> Tensor:
    """The same elements in another shape; one size may be -1.

    A view where the memory allows it, else a copy.

    >>> weft.arange(6).reshape(2, -1)
    tensor([[0, 1, 2],
            [3, 4, 5]])
    """
    state = mode.quick
    if state and shape is None and type(input) is Tensor:
        have = input._data
        if len(sizes) == 1 and isinstance(sizes[0], tuple):
            sizes = sizes[0]
        try:
            if have.size < _COPIED:
                array = have.reshape(sizes)
            else:
                array = have.reshape(sizes, copy=False)
            wanted = array.shape
            plain = wanted == sizes or -1 in sizes  # NumPy takes any below 0 for -1
        except Exception:  # found again and explained below
            plain = False
        if plain:
            if wanted == have.shape:
                return input
            if array.base is have or fast_path.shares(array, have):
                params = {"shape": wanted}
                return fast_path.view(_RESHAPE, input, params, array, state)
    wanted = _infer("reshape", input.shape, flat_sizes("reshape", sizes, shape))
    if same_shape(wanted, input.shape):
        return input
    return bind(reshape_op, (input,), {"shape": wanted})


def _infer(name: str, have: tuple[int, ...], want: tuple[int, ...]) -> tuple[int, ...]:
    total = math.prod(have)
    open = [n for n in want if not isinstance(n, Size) and n < 0]
    if open:
        known = -math.prod(want)
        if open != [-1]:
            raise ShapeError(f"{name}: expected at most one -1, got {want}")
        if known == 0 or total % known:
            raise ShapeError(
                f"{name}: cannot infer the -1 in {want} from shape {have} "
                f"({total} elements)"
            )
        want = tuple(total // known if same(n, -1) else n for n in want)
    if math.prod(want) != total:
        raise ShapeError(
            f"{name}: shape {have} has {total} elements; {want} would need "
            f"{math.prod(want)}"
        )
    return want


@public(exported=False, method=True)
def view(input: Tensor, *shape: Any, dtype: Any = None, size: Any = None) -> Tensor:
    """The same memory in another shape; refused if that would need a copy.

    With a dtype instead, the memory read as that type.

    >>> x = weft.zeros(4)
    >>> x.view(2, 2)[0, 0] = 1
    >>> x
    tensor([1., 0., 0., 0.])
    """
    given = dtype if dtype is not None else size
    if given is not None:
        shape = (*shape, given)
    if len(shape) == 1 and isinstance(shape[0], dtypes.DType):
        return _view_dtype(input, dtypes.as_dtype(shape[0]))
    wanted = _infer("view", input.shape, flat_sizes("view", shape))
    out = bind(reshape_op, (input,), {"shape": wanted})
    if input._interpreter is None and out._base is None and _is_copy(input, out):
        if _is_unseen(input):  # a result that PyTorch would have laid out in order
            input._data = np.ascontiguousarray(input._data)
            input._storage = None
            return view(input, wanted)
        raise ShapeError(
            f"view: shape {input.shape}{_strides(input)} cannot be seen as {wanted} "
            "without copying; use .reshape(...)"
        )
    return out


def own(x: Tensor) -> Tensor:
    """A view of a tensor that nobody else has, as a tensor of its own."""
    if x._interpreter is None and x._base is not None:
        x._base, x._storage, x._chain = None, None, ()
    return x


def _is_unseen(x: Tensor) -> bool:
    """Whether nobody can see that a tensor's memory is laid out anew.

    It is a result of its own: no view, array of NumPy's or other tensor shares its
    memory, but for what its own node on the tape has saved.
    """
    mine = 3  # references: the tensor's, this function's, and the call's
    array, storage = x._data, x._storage
    if x._base is not None or type(array) is not np.ndarray:
        return False
    if storage is None:
        base = array.base
        alone = base is None or (
            type(base) is np.ndarray and sys.getrefcount(base) <= mine
        )
        return alone and (not x.is_leaf or sys.getrefcount(array) <= mine)
    if storage.exposed or storage.version or storage.live_views():
        return False
    saved = getattr(x._node, "saved", None) or ()
    kept = sum(isinstance(s, Tensor) and s._storage is storage for s in saved)
    return sys.getrefcount(storage) <= kept + 3


def _strides(x: Tensor) -> str:
    return f" with strides {x.stride()}" if x.is_cpu else ""


def _is_copy(input: Tensor, out: Tensor) -> bool:
    """Whether a reshape could not be a view; in inference mode none has a base."""
    if out._interpreter is not None or not input.numel():
        return False
    if not input.is_cpu:
        return not input.device.shares(out._data, input._data)
    return not np.may_share_memory(input._data, out._data)


def _view_dtype(input: Tensor, dtype: dtypes.DType) -> Tensor:
    if not input.is_cpu:
        raise DeviceError(
            f"view: the bytes of a tensor on {input.device.name!r} cannot be read as "
            f"{dtype.name}; convert it with .to(weft.{dtype.name})"
        )
    array = input.array()
    if input.dtype.itemsize != dtype.itemsize:
        last = array.shape[-1] * input.dtype.itemsize if array.ndim else 0
        if not last or last % dtype.itemsize or array.strides[-1] != array.itemsize:
            raise DTypeError(
                f"view: the last dimension of a {input.dtype.name} tensor of shape "
                f"{input.shape} cannot be read as {dtype.name}"
            )
    out = Tensor(array.view(dtype.np))
    out._storage = input.storage_record
    return out


@public(method=True)
def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Several dimensions made one.

    >>> weft.zeros(2, 3, 4).flatten(1).shape
    (2, 12)
    """
    first = normalize_dim("flatten", start_dim, input.ndim)
    last = normalize_dim("flatten", end_dim, input.ndim)
    if input.ndim == 0:
        return reshape(input, (1,))
    if first > last:
        raise ArgumentError(f"flatten: start_dim {first} comes after end_dim {last}")
    shape = input.shape
    return reshape(
        input,
        (*shape[:first], math.prod(shape[first : last + 1]), *shape[last + 1 :]),
    )


@public(method=True)
def ravel(input: Tensor) -> Tensor:
    """All elements in one dimension.

    >>> weft.zeros(2, 3).ravel().shape
    (6,)
    """
    return reshape(input, (-1,)) if input.numel() else reshape(input, (0,))


@public(method=True)
def unflatten(input: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
    """One dimension split into several.

    >>> weft.zeros(2, 12).unflatten(1, (3, -1)).shape
    (2, 3, 4)
    """
    d = existing_dim("unflatten", dim, input.ndim)
    inner = _infer("unflatten", (input.shape[d],), tuple(sizes))
    return reshape(input, (*input.shape[:d], *inner, *input.shape[d + 1 :]))


@public(method=True, inplace=view_form())
def squeeze(input: Tensor, dim: Any = None, *, axis: Any = None) -> Tensor:
    """Dimensions of size 1 left out: all, or the named ones.

    >>> weft.zeros(1, 3, 1).squeeze().shape
    (3,)
    """
    if axis is not None:
        dim = axis
    dims = normalize_dims("squeeze", dim, input.ndim)
    kept = tuple(n for i, n in enumerate(input.shape) if i not in dims or n != 1)
    out = reshape(input, kept)
    if out is not input or mode.capture is not None:
        return out
    if mode.quick and type(input) is Tensor:  # an object of its own, as in PyTorch
        array = input._data.view()
        return fast_path.view(_RESHAPE, input, {"shape": kept}, array, mode.quick)
    return view_as(input, input)


@public(method=True, inplace=view_form("0"))
def unsqueeze(input: Tensor, dim: Any = None, *, axis: Any = None) -> Tensor:
    """A dimension of size 1 put in.

    >>> weft.zeros(3).unsqueeze(0).shape
    (1, 3)
    """
    if axis is not None:
        dim = axis
    d = normalize_dim("unsqueeze", dim, input.ndim + 1)
    return reshape(input, (*input.shape[:d], 1, *input.shape[d:]))


@public(exported=False, method=True)
def view_as(input: Tensor, other: Tensor) -> Tensor:
    """The same memory in another tensor's shape.

    >>> weft.zeros(6).view_as(weft.ones(2, 3)).shape
    (2, 3)
    """
    return view(input, other.shape)


@public(exported=False, method=True)
def reshape_as(input: Tensor, other: Tensor) -> Tensor:
    """The same elements in another tensor's shape.

    >>> weft.zeros(6).reshape_as(weft.ones(2, 3)).shape
    (2, 3)
    """
    return reshape(input, other.shape)


def _at_least(ndim: int, tensors: tuple[Any, ...]) -> Any:
    if len(tensors) == 1 and isinstance(tensors[0], Tensor):
        x = tensors[0]
        while x.ndim < ndim:
            x = unsqueeze(x, -1 if x.ndim == 2 else 0)
        return x
    if not tensors:
        return ()
    xs = tensor_list(f"atleast_{ndim}d", tensors[0] if len(tensors) == 1 else tensors)
    return tuple(_at_least(ndim, (x,)) for x in xs)


@public(method=True)
def atleast_1d(*tensors: Any) -> Any:
    """The tensor (or each of several) with at least one dimension.

    >>> weft.tensor(1).atleast_1d().shape
    (1,)
    """
    return _at_least(1, tensors)


@public(method=True)
def atleast_2d(*tensors: Any) -> Any:
    """The tensor (or each of several) with at least two dimensions.

    >>> weft.ones(3).atleast_2d().shape
    (1, 3)
    """
    return _at_least(2, tensors)


@public(method=True)
def atleast_3d(*tensors: Any) -> Any:
    """The tensor (or each of several) with at least three dimensions.

    >>> weft.ones(3).atleast_3d().shape
    (1, 3, 1)
    """
    return _at_least(3, tensors)


# -- permute


def _permute_type(x: TensorType, *, dims: tuple[int, ...]) -> TensorType:
    return TensorType(tuple(x.shape[d] for d in dims), x.dtype)


def _inverse(dims: tuple[int, ...]) -> tuple[int, ...]:
    out = [0] * len(dims)
    for position, d in enumerate(dims):
        out[d] = position
    return tuple(out)


permute_op: Op = define(
    "permute",
    divides=dividing.permuted,
    inputs="x",
    eval=lambda x, *, dims: x.transpose(dims),
    type=_permute_type,
    vjp={"x": lambda g, dims: g.permute(_inverse(dims))},
    lower=View(permuted),
    linear=True,
    view=True,
    put=lambda x, y, dims: y.permute(_inverse(dims)),
    batch=lambda op, size, args, batched, params: args[0].permute(
        (0, *(d + 1 for d in params["dims"]))
    ),
    samples=lambda rng: [
        Sample((rng.uniform(-2, 2, a),), {"dims": d})
        for a, d in (((2, 3, 4), (2, 0, 1)), ((), ()), ((0, 2), (1, 0)))
    ],
    reference=lambda x, *, dims: np.einsum(x, list(range(x.ndim)), list(dims)),
)
_PERMUTE = permute_op.plan((True,))


@public(method=True)
def permute(input: Tensor, *order: Any, dims: Any = None) -> Tensor:
    """The dimensions in another order, without copying.

    >>> weft.zeros(2, 3, 4).permute(2, 0, 1).shape
    (4, 2, 3)
    """
    state = mode.quick
    if state and dims is None and type(input) is Tensor:
        wanted = order[0] if len(order) == 1 and isinstance(order[0], tuple) else order
        array = _permuted_plainly(input._data, wanted)
        if array is not None:
            return fast_path.view(_PERMUTE, input, {"dims": wanted}, array, state)
    given = flat_sizes("permute", order, dims)
    if len(given) != input.ndim:
        raise ShapeError(
            f"permute: expected {input.ndim} dims for shape {input.shape}, got {given}"
        )
    wanted = normalize_dims("permute", given, input.ndim)
    return bind(permute_op, (input,), {"dims": wanted})


def _permuted_plainly(array: np.ndarray, order: tuple[Any, ...]) -> Any:
    """The array with its axes in an order of plain ints; None at any other."""
    try:
        found = array.transpose(order)
        return found if order and min(order) >= 0 else None
    except Exception:  # to be found again, and explained
        return None


@public(method=True, inplace=view_form("0, 1"), also=("swapaxes", "swapdims"))
def transpose(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """Two dimensions exchanged, without copying.

    >>> weft.zeros(2, 3).transpose(0, 1).shape
    (3, 2)
    """
    ndim = input.ndim
    a = normalize_dim("transpose", dim0, ndim)
    b = normalize_dim("transpose", dim1, ndim)
    dims = _exchanged(ndim, a, b)
    state = mode.quick
    if state and type(input) is Tensor:
        array = input._data.transpose(dims)
        return fast_path.view(_PERMUTE, input, {"dims": dims}, array, state)
    return bind(permute_op, (input,), {"dims": dims})


@functools.cache
def _exchanged(ndim: int, a: int, b: int) -> tuple[int, ...]:
    """The axes in order, two of them exchanged."""
    order = list(range(ndim))
    if ndim:
        order[a], order[b] = order[b], order[a]
    return tuple(order)


@public(method=True, inplace=view_form())
def t(input: Tensor) -> Tensor:
    """A matrix transposed; vectors and scalars stay as they are.

    >>> weft.zeros(2, 3).t().shape
    (3, 2)
    """
    if input.ndim > 2:
        raise ShapeError(f"t: expected at most 2 dimensions, got shape {input.shape}")
    return view_as(input, input) if input.ndim < 2 else transpose(input, 0, 1)


@public(method=True)
def adjoint(input: Tensor) -> Tensor:
    """The last two dimensions exchanged, and complex numbers conjugated.

    >>> weft.tensor([[1j, 2]]).adjoint().shape
    (2, 1)
    """
    return transpose(input, -2, -1).conj()


@public(method=True, also=("moveaxis",))
def movedim(input: Tensor, source: Any, destination: Any) -> Tensor:
    """Dimensions moved to other positions, the rest in order.

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
    for position, d in sorted(zip(dst, src, strict=True)):
        order.insert(position, d)
    return permute(input, tuple(order))
