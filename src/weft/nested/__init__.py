"""``weft.nested``: batches of sequences of different lengths, under PyTorch's names.

>>> parts = [weft.ones(2, 4), weft.ones(3, 4)]
>>> x = weft.nested.nested_tensor(parts, layout=weft.jagged)
>>> x.offsets(), weft.nn.functional.layer_norm(x, (4,)).values().shape
(tensor([0, 2, 5]), (5, 4))
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import weft
from weft import layouts
from weft.core.tensor import Tensor
from weft.errors import ArgumentError, ShapeError
from weft.nested.tensor import NestedTensor, Ragged, joined, made

__all__ = [
    "as_nested_tensor",
    "masked_select",
    "narrow",
    "nested_tensor",
    "nested_tensor_from_jagged",
    "to_padded_tensor",
]


def _is_jagged(layout: Any) -> bool:
    if layout is None or layout is layouts.strided:
        return False
    if layout is not layouts.jagged:
        raise RuntimeError(
            "nested tensors: expected layout torch.strided or torch.jagged, got "
            f"{layout}"
        )
    return True


def nested_tensor(
    tensor_list: Sequence[Any],
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> NestedTensor:
    """A nested tensor of copies of some tensors or lists.

    >>> x = weft.nested.nested_tensor([weft.arange(2), weft.arange(3)])
    >>> x
    nested_tensor([
      tensor([0, 1]),
      tensor([0, 1, 2])
    ])
    """
    parts = [
        weft.as_tensor(x, dtype=dtype, device=device).detach() for x in tensor_list
    ]
    return joined(parts, _is_jagged(layout)).requires_grad_(requires_grad)


def as_nested_tensor(
    ts: Any, dtype: Any = None, device: Any = None, layout: Any = None
) -> NestedTensor:
    """A nested tensor of some tensors, whose gradients flow back to them.

    >>> a = weft.ones(2, requires_grad=True)
    >>> x = weft.nested.as_nested_tensor([a, weft.ones(3)], layout=weft.jagged)
    >>> (x * 2).values().sum().backward()
    >>> a.grad
    tensor([2., 2.])
    """
    jagged = _is_jagged(layout)
    if isinstance(ts, NestedTensor):
        if layout is not None and jagged != ts._jagged:
            ts = joined(ts.unbind(), jagged)
        return ts.to(device=device, dtype=dtype) if device or dtype else ts
    if not isinstance(ts, (Tensor, list, tuple)):
        raise TypeError(
            "as_nested_tensor(): Expected first argument to be a tensor or a list / "
            f"tuple of tensors, got {type(ts).__name__}"
        )
    if not all(isinstance(x, Tensor) for x in ts):
        raise TypeError("as_nested_tensor(): Expected list elements to be tensors")
    parts = [
        x
        if dtype is None and device is None
        else x.to(device or x.device, dtype or x.dtype)
        for x in ts
    ]
    return joined(parts, jagged)


def nested_tensor_from_jagged(
    values: Tensor,
    offsets: Tensor | None = None,
    lengths: Tensor | None = None,
    jagged_dim: int | None = None,
    min_seqlen: int | None = None,
    max_seqlen: int | None = None,
) -> NestedTensor:
    """A nested tensor over packed values: a view of them.

    >>> x = weft.nested.nested_tensor_from_jagged(
    ...     weft.arange(5.0), offsets=weft.tensor([0, 2, 5]))
    >>> x.unbind()
    (tensor([0., 1.]), tensor([2., 3., 4.]))
    """
    if offsets is None and lengths is None:
        raise RuntimeError(
            "nested_tensor_from_jagged(): At least one of offsets or lengths is "
            "required."
        )
    dim = 1 if jagged_dim is None else jagged_dim
    if not 1 <= dim <= values.ndim:
        raise ShapeError(
            f"nested_tensor_from_jagged: expected a jagged_dim from 1 to "
            f"{values.ndim}, got {dim}"
        )
    total = values.shape[dim - 1]
    count = None if lengths is None else _whole(lengths, "lengths")
    if offsets is None:
        assert count is not None
        starts = np.cumsum(count) - count
    else:
        bounds = _whole(offsets, "offsets")
        starts = bounds[:-1]
        count = np.diff(bounds) if count is None else count
        if len(count) != len(starts):
            raise ShapeError(
                f"nested_tensor_from_jagged: {len(starts)} sequences by offsets and "
                f"{len(count)} by lengths"
            )
    if (count < 0).any() or (starts < 0).any() or (starts + count > total).any():
        raise ShapeError(
            f"nested_tensor_from_jagged: expected sequences inside of {total} values"
        )
    found = made(values, Ragged(starts, count, total), dim, [], True)
    found.__dict__["_bounds"] = min_seqlen, max_seqlen
    return found


def _whole(x: Tensor, name: str) -> np.ndarray:
    found = np.asarray(x.detach().cpu().numpy())
    if found.ndim != 1 or found.dtype.kind != "i":
        raise ArgumentError(
            f"nested_tensor_from_jagged: expected {name} as a vector of integers, got "
            f"{x.dtype.name}{list(x.shape)}"
        )
    return found.astype(np.int64)


def narrow(
    tensor: Tensor, dim: int, start: Any, length: Any, layout: Any = layouts.strided
) -> NestedTensor:
    """The part of each row of a dense tensor that begins at ``start``, as a view.

    >>> x = weft.arange(6.0).reshape(2, 3)
    >>> starts, lengths = weft.tensor([0, 1]), weft.tensor([1, 2])
    >>> weft.nested.narrow(x, 1, starts, lengths, layout=weft.jagged).unbind()
    (tensor([0.]), tensor([4., 5.]))
    """
    if isinstance(tensor, NestedTensor) or dim != 1 or tensor.ndim < 2:
        raise RuntimeError("narrow: expected a dense tensor, and dim=1")
    rows, width = tensor.shape[:2]
    begin = np.broadcast_to(np.asarray(_number(start)), (rows,)).astype(np.int64)
    count = np.broadcast_to(np.asarray(_number(length)), (rows,)).astype(np.int64)
    if (begin < 0).any() or (count < 0).any() or (begin + count > width).any():
        raise ShapeError(f"narrow: expected parts inside of rows of {width}")
    if not _is_jagged(layout):
        pairs = zip(tensor.unbind(), begin.tolist(), count.tolist(), strict=True)
        return joined([row.narrow(0, a, n) for row, a, n in pairs], False)
    held = tensor.reshape(rows * width, *tensor.shape[2:])
    starts = begin + width * np.arange(rows)
    return made(held, Ragged(starts, count, rows * width), 1, [], True)


def _number(value: Any) -> Any:
    return value.numpy() if isinstance(value, Tensor) else value


def masked_select(tensor: Tensor, mask: Tensor) -> NestedTensor:
    """The elements of each row where a mask is true.

    >>> x = weft.arange(4.0).reshape(2, 2)
    >>> weft.nested.masked_select(x, x > 0).unbind()
    (tensor([1.]), tensor([2., 3.]))
    """
    if tensor.layout is not layouts.strided or tensor.ndim != 2:
        raise RuntimeError("masked_select: expected a dense tensor of two dimensions")
    wide = mask.expand(tensor.shape)
    rows = zip(tensor.unbind(), wide.unbind(), strict=True)
    return joined([row[chosen] for row, chosen in rows], True, 1)


def to_padded_tensor(
    input: Tensor, padding: float, output_size: Any = None, out: Any = None
) -> Tensor:
    """A dense tensor, in which shorter components end in ``padding``.

    >>> x = weft.nested.nested_tensor([weft.ones(1), weft.ones(2)])
    >>> weft.nested.to_padded_tensor(x, -1.0).tolist()
    [[1.0, -1.0], [1.0, 1.0]]
    """
    if not isinstance(input, NestedTensor):
        raise RuntimeError("to_padded_tensor: expected a nested tensor")
    return input.to_padded_tensor(padding, output_size)
