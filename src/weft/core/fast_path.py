"""Fast paths of eager operators to a result and its node on the tape.

A public function may take one if ``mode.quick`` is not 0: no transform, capture or
other observer is active. NumPy computes on plain tensors' arrays, and the array comes
here, with ``mode.quick`` as ``state``. Value, views and tape are then as ``bind`` would
have left them. On any error, ``bind`` runs instead and explains it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.core.eager_kernels import COSTLY, SLOW
from weft.core.mode import RECORDING, VIEWS
from weft.core.op import Op, Plan
from weft.core.tape import Storage, make_node, weak
from weft.core.tensor import Tensor

ndarray = np.ndarray
asarray = np.asarray
new = object.__new__
FLOAT32 = np.dtype(np.float32)
# the parameters of a reduction of so many dimensions to one value
_WHOLE = [{"dim": tuple(range(n)), "keepdim": False} for n in range(65)]


def view(plan: Plan, x: Tensor, params: Any, array: ndarray, state: int) -> Tensor:
    """Another look at a tensor's memory, of which NumPy has made the array.

    The plan keeps the tensor's shape, or nothing.
    """
    out = new(Tensor)
    out._data = array
    if state & VIEWS:
        link(plan.op, x, params, out)
    parent = x._node
    if parent is not None and state & RECORDING:
        saved = (x._data.shape,) if plan.saves_shape else ()
        out._node = make_node(plan, (parent,), saved, params, 3)
    else:
        out._node = None
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
            result = call(array, dim, None, None, True)
        else:
            result = call(array, dim)
    except Exception:
        return None
    out = new(Tensor)
    out._data = result if type(result) is ndarray else asarray(result)
    parent = x._node
    if parent is not None and state & RECORDING:
        saved = (array.shape,) if plan.saves_shape else plan.pick((x, (out,)))
        out._node = make_node(plan, (parent,), saved, params, 3)
    else:
        out._node = None
    return out


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
        found = op.kernel(mask, *arrays)
    except Exception:
        return None
    out = new(Tensor)
    out._data = found
    out._node = None
    if state & RECORDING and (nodes[0] is not None or nodes[1] is not None):
        plan = op.plan((False, nodes[0] is not None, nodes[1] is not None))
        saved = plan.pick((*args, (out,)))
        out._node = make_node(plan, (None, *nodes), saved, {}, 3)
    return out


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
