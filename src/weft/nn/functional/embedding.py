"""Rows of a table looked up by index."""

from __future__ import annotations

from typing import Any

import weft
from weft import Tensor
from weft.autograd import Function
from weft.errors import ArgumentError, ShapeError
from weft.ops.index import take_op
from weft.ops.operands import as_index
from weft.ops.require import require, require_index, require_known


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """The rows of ``weight`` that the indices name.

    A row at ``padding_idx`` gets no gradient. With ``max_norm`` the rows used are
    first scaled down to that norm, in place.

    >>> table = weft.arange(6.0).reshape(3, 2)
    >>> weft.nn.functional.embedding(weft.tensor([2, 0]), table)
    tensor([[4., 5.],
            [0., 1.]])
    """
    ids = as_index("embedding", input)
    if weight.ndim != 2:
        raise ShapeError(f"embedding: expected a 2-d table, got shape {weight.shape}")
    rows = weight.shape[0]
    ids = require_index("embedding", ids, rows, 0, wrap=False)
    if max_norm is not None:
        _renormalise(weight, ids, max_norm, norm_type)
    if sparse:
        found = _sparse_rows(weight, ids, padding_idx)
    elif padding_idx is None:
        found = take_op(weight, ids)
    else:
        found = take_op(_without_row(weight, _wrap(padding_idx, rows)), ids)
    if not scale_grad_by_freq:
        return found
    count = weft.bincount(ids.flatten(), minlength=rows)
    share = 1 / count[ids].to(found.dtype)
    return _GradientTimes.apply(found, share.unsqueeze(-1))


def _sparse_rows(weight: Tensor, ids: Tensor, padding_idx: int | None) -> Tensor:
    """The rows, whose gradient is a sparse tensor of as many rows."""
    error = ArgumentError(
        "embedding: gradients are dense in captured programs and transforms; pass "
        "sparse=False there"
    )
    require_known(error, weight, ids)
    return _SparseRows.apply(weight, ids, padding_idx)


class _SparseRows(Function):
    """Rows of a table, with a sparse gradient."""

    @staticmethod
    def forward(ctx: Any, *args: Any) -> Tensor:
        weight, ids, padding_idx = args
        ctx.ids, ctx.padding, ctx.shape = ids, padding_idx, tuple(weight.shape)
        return take_op(weight, ids)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        rows, values = ctx.ids.flatten(), grads[0].reshape(-1, ctx.shape[1])
        if ctx.padding is not None:
            kept = (rows != ctx.padding % ctx.shape[0]).nonzero().flatten()
            rows, values = rows[kept], values[kept]
        at = rows.unsqueeze(0).long()
        return weft.sparse_coo_tensor(at, values, ctx.shape), None, None


def _wrap(padding_idx: int, rows: int) -> int:
    if not -rows <= padding_idx < rows:
        raise ArgumentError(
            f"embedding: padding_idx {padding_idx} is out of range for {rows} rows"
        )
    return padding_idx % rows


def _without_row(weight: Tensor, row: int) -> Tensor:
    """The same table, where one row is cut off from its gradient."""
    keep = weft.ones(weight.shape[0], 1, dtype=weft.bool, device=weight.device)
    keep[row] = False
    return weft.where(keep, weight, weight.detach())


class _GradientTimes(Function):
    """The same values, whose gradient is multiplied by a factor."""

    @staticmethod
    def forward(ctx: Any, *args: Any) -> Tensor:
        found, factor = args
        ctx.save_for_backward(factor)
        return found.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (factor,) = ctx.saved_tensors
        return grads[0] * factor, None


def _renormalise(
    weight: Tensor, ids: Tensor, max_norm: float, norm_type: float
) -> None:
    with weft.no_grad():
        used = weft.unique(ids.flatten())
        rows = weight[used]
        size = rows.norm(norm_type, 1, keepdim=True)
        weight[used] = weft.where(
            size > max_norm, rows * (max_norm / (size + 1e-7)), rows
        )


def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """Sums, means or maxima of bags of embedded rows.

    Bags are the rows of a 2-d input, or start at ``offsets`` of a 1-d one.

    >>> table = weft.arange(6.0).reshape(3, 2)
    >>> bags = weft.tensor([[0, 1], [2, 2]])
    >>> weft.nn.functional.embedding_bag(bags, table, mode="sum")
    tensor([[ 2.,  4.],
            [ 8., 10.]])
    """
    if mode not in ("sum", "mean", "max"):
        raise ArgumentError(
            f"embedding_bag: mode must be 'sum', 'mean' or 'max', got {mode!r}"
        )
    if per_sample_weights is not None and mode != "sum":
        raise ArgumentError("embedding_bag: per_sample_weights need mode='sum'")
    ids, bag, bags = _bags(input, offsets, include_last_offset)
    rows = embedding(
        ids, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse
    )
    counted = weft.ones(ids.shape, dtype=weight.dtype, device=weight.device)
    if padding_idx is not None:
        counted = (ids != _wrap(padding_idx, weight.shape[0])).to(weight.dtype)
    if per_sample_weights is not None:
        if per_sample_weights.numel() != ids.numel():
            raise ShapeError(
                f"embedding_bag: {per_sample_weights.numel()} weights for "
                f"{ids.numel()} indices"
            )
        rows = rows * per_sample_weights.reshape(-1, 1)
    if mode == "max":
        return _bag_max(rows, bag, bags, counted)
    zeros = weight.new_zeros(bags, weight.shape[1])
    total = zeros.index_add(0, bag, rows * counted.unsqueeze(1))
    if mode == "sum":
        return total
    count = weight.new_zeros(bags).index_add(0, bag, counted)
    return total / count.clamp(min=1).unsqueeze(1)


def _bags(
    input: Tensor, offsets: Tensor | None, last: bool
) -> tuple[Tensor, Tensor, int]:
    """Flat indices, the bag of each, and the number of bags."""
    if input.ndim == 2:
        if offsets is not None:
            raise ArgumentError("embedding_bag: offsets are for 1-d input")
        bags, size = input.shape
        numbers = weft.arange(bags, device=input.device)
        return input.flatten(), numbers.repeat_interleave(size), bags
    if input.ndim != 1 or offsets is None or offsets.ndim != 1:
        raise ShapeError(
            "embedding_bag: expected 2-d input, or 1-d input with 1-d offsets, got "
            f"input of shape {input.shape}"
        )
    bags = offsets.numel() - last
    if offsets.numel():
        text = "embedding_bag: offsets must {}, got {{value}}{{where}}"
        first = require(offsets[:1], lambda f: f == 0, text.format("start at 0"))
        rises = require(
            offsets.diff(), lambda d: d >= 0, text.format("not fall") + " from one on"
        )
        offsets = weft.cat([first, first + rises.cumsum(0)])
    numbers = weft.arange(input.numel(), device=input.device)
    starts = offsets[:bags]
    return input, weft.searchsorted(starts, numbers, right=True) - 1, bags


def _bag_max(rows: Tensor, bag: Tensor, bags: int, counted: Tensor) -> Tensor:
    out = []
    for k in range(bags):
        chosen = rows[(bag == k) & (counted > 0)]
        out.append(
            chosen.max(0).values if chosen.shape[0] else rows.new_zeros(rows.shape[1])
        )
    return weft.stack(out) if out else rows.new_zeros(0, rows.shape[1])


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """A 1 at each class index, zeros elsewhere, in a new last dimension.

    >>> weft.nn.functional.one_hot(weft.tensor([1]), 3)
    tensor([[0, 1, 0]])
    """
    return weft.one_hot(tensor, num_classes)
