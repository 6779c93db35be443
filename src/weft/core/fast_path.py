"""The fast path of eager operators, to a result and its node on the tape.

A public function may take it if ``mode.quick`` is not 0 (``mode.state`` will do where
autocast changes nothing): no transform, capture or other observer is active.

    plain tensors that fit      by arity: ``unary``, ``binary``, ``choice``, ...
      -> an array               by NumPy, or by a kernel where it is large
      -> ``result``             for all of them: the tensor, and its node

Value, views and tape are then as ``bind`` would have left them. On any error, ``bind``
runs instead and explains it.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import CodeType
from typing import Any

import numpy as np

from weft.core.eager_kernels import COSTLY, SLOW
from weft.core.eager_kernels import run as run_bulk
from weft.core.mode import RECORDING, VIEWS, mode
from weft.core.op import Op, Plan, find_op
from weft.core.tape import (
    NO_TYPES,
    Node,
    Storage,
    drop_spent,
    next_number,
    weak,
)
from weft.core.tensor import DeviceTensor, Tensor
from weft.errors import INTERNAL

ndarray = np.ndarray
asarray = np.asarray
new = object.__new__
getframe = sys._getframe
FLOAT32 = np.dtype(np.float32)
# the parameters of a reduction of so many dimensions to one value
_WHOLE = [{"dim": tuple(range(n)), "keepdim": False} for n in range(65)]
NO_PARAMS: dict[str, Any] = {}
_user: CodeType | None = None  # the user's code that made a node last: often the next's


def result(
    array: Any,
    plan: Plan | None = None,
    parents: tuple[Any, ...] = (),
    args: tuple[Any, ...] = (),
    params: dict[str, Any] = NO_PARAMS,
    depth: int = 2,
    device: Any = None,
) -> Tensor:
    """The tensor that an operator gave as an array, and its node where a plan is given.

    The user's code is ``depth`` frames up or further. Buffers are of a ``device``.
    """
    global _user
    if device is None:
        out = new(Tensor)
        out._data = array if type(array) is ndarray else asarray(array)
    else:
        out = new(DeviceTensor)
        out._data, out.device = array, device
    if plan is None:
        return out
    node = out._node = Node()
    node.plan = plan
    node.parents = parents
    if not plan.saves:
        node.saved = ()
    elif plan.saves_shape:
        node.saved = (args[0].shape,)
    else:
        node.saved = plan.pick((*args, (out,)) if plan.wants_outs else args)
    node.params = params
    node.number = next_number()
    node.hooks = None
    node.out_types = NO_TYPES
    frame = getframe(depth)
    code = frame.f_code
    while code is not _user:
        if not INTERNAL[code.co_filename]:
            _user = code
            break
        back = frame.f_back
        if back is None:
            break
        frame = back
        code = frame.f_code
    node.code = code
    node.lasti = frame.f_lasti
    return out


def unary(op: Op, codes: str, slow: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The public function of an element-wise operator of one input.

    It is fast for dtypes of these codes; ``slow`` takes all else, ``out=`` included.
    """
    plan = op.plan((True,)) if op.vjp is not None else None
    bulk = op.bulk
    usual = FLOAT32 if "f" in codes else None  # the dtype that is looked for first

    def fn(input: Tensor, *, out: Any = None) -> Tensor:
        if out is not None:
            return slow(input, out)
        state = mode.state
        if not state:
            return slow(input)
        if type(input) is not Tensor:
            found = _launched(op, codes, (input,), state)
            return slow(input) if found is None else found
        x = input._data
        dtype = x.dtype
        if not (dtype is usual or dtype.char in codes):
            return slow(input)
        try:
            r = op.kernel(x) if x.size < bulk else run_bulk(op, (x,), NO_PARAMS)
        except (RuntimeWarning, MemoryError):
            return slow(input)
        node = input._node
        if node is None or state != RECORDING:
            return result(r)
        return result(r, plan, (node,), (input,))

    return fn


def binary(op: Op, codes: str, slow: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The public function of an element-wise operator of two inputs; see ``unary``.

    One of them may be a Python number. NumPy broadcasts; the tape has a node for it.
    """
    first, second, both = [
        None if op.vjp is None else op.plan(need)
        for need in ((True, False), (False, True), (True, True))
    ]
    bulk = op.bulk
    usual = FLOAT32 if "f" in codes else None

    def fn(input: Any, other: Any, *, out: Any = None) -> Tensor:
        if out is not None:
            return slow(input, other, out)
        state = mode.state
        if not state:
            return slow(input, other)
        if type(input) is Tensor:
            x, nx = input._data, input._node
            dtype, size = x.dtype, x.size
            if type(other) is Tensor:
                y, ny = other._data, other._node
                fits = dtype is y.dtype
                if y.size > size:
                    size = y.size
            else:
                y, ny = other, None
                fits = type(other) is float or type(other) is int
        elif type(other) is Tensor:
            x, nx = input, None
            y, ny = other._data, other._node
            dtype, size = y.dtype, y.size
            fits = type(input) is float or type(input) is int
        else:
            found = _launched(op, codes, (input, other), state)
            return slow(input, other) if found is None else found
        if not fits or not (dtype is usual or dtype.char in codes):
            return slow(input, other)
        try:
            if size < bulk:
                r = op.kernel(x, y)
            else:
                r = run_bulk(op, (x, y), NO_PARAMS)
        except (ValueError, MemoryError, RuntimeWarning):
            return slow(input, other)
        if state != RECORDING:
            return result(r)
        if nx is None:
            plan = None if ny is None else second
        else:
            plan = first if ny is None else both
        if plan is None:
            return result(r)
        if x is not input and y is not other and x.shape != y.shape:
            return _broadcast(r, plan, nx, ny, (input, other))
        if not r.ndim:  # running totals of losses: forget spent nodes
            drop_spent(nx)
            drop_spent(ny)
        return result(r, plan, (nx, ny), (input, other))

    return fn


def _launched(op: Op, codes: str, args: Any, state: int) -> Tensor | None:
    """The result on a device that knows the launch for such tensors and numbers."""
    device = None
    buffers: list[Any] = []
    need: list[bool] = []
    for a in args:
        if type(a) is DeviceTensor:
            if device is not None and device is not a.device:
                return None
            buffer, device = a._data, a.device
            if buffer.dtype.char not in codes:
                return None
            buffers.append(buffer)
            need.append(a._node is not None)
        elif type(a) is float or type(a) is int:
            buffers.append(a)
            need.append(False)
        else:
            return None
    if device is None:
        return None
    r = device.launched(op, buffers)
    if r is None:
        return None
    if state != RECORDING or op.vjp is None or True not in need:
        return result(r, device=device)
    parents = tuple([a._node if n else None for a, n in zip(args, need, strict=True)])
    return result(r, op.plan(tuple(need)), parents, args, NO_PARAMS, 3, device)


def _broadcast(r: ndarray, plan: Plan, nx: Any, ny: Any, args: Any) -> Tensor:
    """``result`` of two tensors, of which NumPy has broadcast one or both."""
    x, y, shape = args[0]._data, args[1]._data, r.shape
    expand, params = _expand_plan(), {"shape": shape}
    px = py = None
    if nx is not None and x.shape != shape:
        nx = px = Node.of(expand, (nx,), (x,), params)
    if ny is not None and y.shape != shape:
        ny = py = Node.of(expand, (ny,), (y,), params)
    out = result(r, plan, (nx, ny), args, NO_PARAMS, 3)
    node = out._node
    if px is not None:
        px.code, px.lasti = node.code, node.lasti
    if py is not None:
        py.code, py.lasti = node.code, node.lasti
    return out


@functools.cache
def _expand_plan() -> Plan:
    return find_op("expand").plan((True,))


def view(plan: Plan, x: Tensor, params: Any, array: ndarray, state: int) -> Tensor:
    """Another look at a tensor's memory, of which NumPy has made the array.

    The plan keeps the tensor's shape, or nothing.
    """
    parent = x._node
    if parent is not None and state & RECORDING:
        out = result(array, plan, (parent,), (x._data,), params, 3)
    else:
        out = new(Tensor)
        out._data = array
    if state & VIEWS:
        link(plan.op, x, params, out)
    return out


def link(op: Any, base: Tensor, params: dict[str, Any], view: Any) -> None:
    """Let a view share its base's storage record, and know how it was made."""
    storage = base._storage
    if storage is None:
        storage = base._storage = Storage()
    view._storage = storage
    root = base._base
    if root is None:
        view._base = base
        view._chain = ((op, params),)
    else:
        view._base = root
        view._chain = (*base._chain, (op, params))
    views = storage.views
    if views is None or len(views) > 63:
        storage.add_view(view)
    else:
        views.append(weak(view))


def shares(array: ndarray, base: ndarray) -> bool:
    """Whether a reshaped array looks at the memory of the one it was made of."""
    owner = array.base
    if owner is base or (owner is not None and owner is base.base):
        return True
    return np.may_share_memory(array, base)


def reduction(
    way: tuple[Plan, Callable[..., Any]],
    x: Tensor,
    dim: Any,
    keepdim: Any,
    state: int,
) -> Tensor | None:
    """A ufunc's ``reduce`` of a small tensor of NumPy's floating types.

    ``way`` is the plan and that ``reduce``. None for other tensors, and for dimensions
    that are not there or not plain ints.
    """
    plan, call = way
    array = x._data
    dtype = array.dtype
    if array.size >= COSTLY or not (dtype is FLOAT32 or dtype.char == "d"):
        return None
    if dim is None and not keepdim:
        params = _WHOLE[array.ndim]
    else:
        dims = _plain_dims(dim, array.ndim)
        if dims is None:
            return None
        params = {"dim": dims, "keepdim": bool(keepdim)}
    try:
        if keepdim:
            r = call(array, dim, None, None, True)
        else:
            r = call(array, dim)
    except Exception:
        return None
    parent = x._node
    if parent is None or not state & RECORDING:
        return result(r)
    values = (array if plan.saves_shape else x,)  # an array's shape is a plain tuple
    return result(r, plan, (parent,), values, params, 3)


def choice(op: Op, args: tuple[Any, Any, Any], state: int) -> Tensor | None:
    """``np.where`` of a small condition and two values that fit as they are.

    These are tensors of the condition's shape and one floating type, or numbers beside
    one. None for others.
    """
    condition, input, other = args
    mask = condition._data if type(condition) is Tensor else None
    if mask is None or mask.size >= SLOW or mask.dtype.char != "?":
        return None
    first = input if type(input) is Tensor else other
    if type(first) is not Tensor or first._data.dtype.char not in "fd":
        return None
    dtype, shape = first._data.dtype, mask.shape
    arrays, nodes = [], []
    try:
        for value in (input, other):
            if type(value) is Tensor:
                array = value._data
                if array.dtype is not dtype or array.shape != shape:
                    return None
                nodes.append(value._node)
            elif type(value) is float or type(value) is int:
                array = asarray(value, dtype)
                nodes.append(None)
            else:
                return None
            arrays.append(array)
        r = op.kernel(mask, *arrays)
    except Exception:
        return None
    nx, ny = nodes
    if not state & RECORDING or (nx is None and ny is None):
        return result(r)
    plan = op.plan((False, nx is not None, ny is not None))
    return result(r, plan, (None, nx, ny), args, {}, 3)


def _plain_dims(dim: Any, ndim: int) -> tuple[int, ...] | None:
    """Dimensions in 0..ndim-1; None unless they are an int or several that fit."""
    if type(dim) is int:
        if -ndim <= dim < ndim:
            return (dim % ndim,)
    elif type(dim) is tuple and dim:
        for d in dim:
            if type(d) is not int or not 0 <= d < ndim:
                return None
        return dim
    elif dim is None:
        return tuple(range(ndim))
    return None
