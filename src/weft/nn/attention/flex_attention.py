"""Attention whose scores are changed by a function of their positions.

``score_mod(score, b, h, q_idx, kv_idx)`` gives a new score and
``mask_mod(b, h, q_idx, kv_idx)`` says who is seen. Both are called once, with tensors
of positions that broadcast to (B, H, L, S), so a function of elements and lookups
(``bias[h, q_idx - kv_idx]``) does what it does for single positions. Compiled, it is
part of the program like any other operation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import weft
from weft import Tensor
from weft.errors import ArgumentError, ShapeError
from weft.nn.functional.attention import _softmax

__all__ = [
    "AuxOutput",
    "AuxRequest",
    "BlockMask",
    "and_masks",
    "create_block_mask",
    "create_mask",
    "flex_attention",
    "noop_mask",
    "or_masks",
]

Mod = Callable[..., Tensor]
_DEFAULT_SPARSE_BLOCK_SIZE = (
    128  # positions in a block, where nothing else is asked for
)


class AuxRequest(NamedTuple):
    """Which values ``flex_attention`` returns beside its result."""

    lse: bool = False
    max_scores: bool = False


class AuxOutput(NamedTuple):
    """The logarithms of the sums of exponentials, and the highest scores."""

    lse: Tensor | None = None
    max_scores: Tensor | None = None


def noop_mask(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
    """The mask function by which everyone is seen."""
    return weft.ones((), dtype=weft.bool)


def and_masks(*mask_mods: Mod) -> Mod:
    """The mask function that holds where all of several do."""

    def every(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Tensor:
        found = noop_mask(b, h, q_idx, kv_idx)
        for mod in mask_mods:
            found = found & mod(b, h, q_idx, kv_idx)
        return found

    return every


def or_masks(*mask_mods: Mod) -> Mod:
    """The mask function that holds where one of several does."""

    def some(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Tensor:
        found = ~noop_mask(b, h, q_idx, kv_idx)
        for mod in mask_mods:
            found = found | mod(b, h, q_idx, kv_idx)
        return found

    return some


def _positions(*sizes: int) -> list[Tensor]:
    """Positions along each dimension, which broadcast to all sizes."""
    return [
        weft.arange(n).reshape([n if d == k else 1 for d in range(len(sizes))])
        for k, n in enumerate(sizes)
    ]


def create_mask(
    mod_fn: Mod, B: int | None, H: int | None, Q_LEN: int, KV_LEN: int,
    device: Any = None,
) -> Tensor:  # fmt: skip
    """The mask of a mask function: (B, H, Q_LEN, KV_LEN).

    >>> from weft.nn.attention.flex_attention import create_mask
    >>> create_mask(lambda b, h, q, kv: q >= kv, 1, 1, 2, 2).int().tolist()
    [[[[1, 0], [1, 1]]]]
    """
    sizes = (B or 1, H or 1, Q_LEN, KV_LEN)
    return mod_fn(*_positions(*sizes)).expand(sizes)


class BlockMask:
    """Blocks of positions: those seen in part, by ``mask_mod``, and those seen whole.

    ``kv_indices`` (B, H, rows, columns) has the columns of each row's blocks, the first
    ``kv_num_blocks`` of them; ``full_…`` those of blocks that are seen whole.
    """

    def __init__(
        self, seq_lengths: tuple[int, int], kv_num_blocks: Tensor, kv_indices: Tensor,
        full_kv_num_blocks: Tensor | None, full_kv_indices: Tensor | None,
        BLOCK_SIZE: tuple[int, int], mask_mod: Mod,
    ) -> None:  # fmt: skip
        self.seq_lengths, self.BLOCK_SIZE = seq_lengths, BLOCK_SIZE
        self.kv_num_blocks, self.kv_indices = kv_num_blocks, kv_indices
        self.full_kv_num_blocks = full_kv_num_blocks
        self.full_kv_indices = full_kv_indices
        self.mask_mod = mask_mod

    @classmethod
    def from_kv_blocks(
        cls, kv_num_blocks: Tensor, kv_indices: Tensor,
        full_kv_num_blocks: Tensor | None = None,
        full_kv_indices: Tensor | None = None,
        BLOCK_SIZE: int | tuple[int, int] = _DEFAULT_SPARSE_BLOCK_SIZE,
        mask_mod: Mod | None = None,
        seq_lengths: tuple[int, int] | None = None,
    ) -> BlockMask:  # fmt: skip
        """A mask from the blocks that are seen."""
        if kv_indices.ndim < 2:
            raise ShapeError(
                "from_kv_blocks: kv_indices must have at least 2 dimensions, got shape "
                f"{kv_indices.shape}"
            )
        size = _pair(BLOCK_SIZE)
        rows, columns = kv_indices.shape[-2:]
        lengths = seq_lengths or (rows * size[0], columns * size[1])
        return cls(lengths, kv_num_blocks, kv_indices, full_kv_num_blocks,
                   full_kv_indices, size, mask_mod or noop_mask)  # fmt: skip

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the mask of positions."""
        return (*self.kv_indices.shape[:-2], *self.seq_lengths)

    def numel(self) -> int:
        """The number of positions."""
        return math.prod(self.shape)

    def to_dense(self) -> Tensor:
        """One for each block that is seen, in part or whole: (B, H, rows, columns)."""
        seen = _dense(self.kv_num_blocks, self.kv_indices)
        if self.full_kv_num_blocks is not None:
            seen = seen | _dense(self.full_kv_num_blocks, self.full_kv_indices)
        return seen.int()

    def sparsity(self) -> float:
        """The percentage of blocks that are not seen."""
        return 100 * (1 - self.to_dense().double().mean().item())

    def mask(self) -> Tensor:
        """The mask of positions: (B, H, L, S)."""
        sizes = (*self.kv_indices.shape[:2], *self.seq_lengths)
        inside = self.mask_mod(*_positions(*sizes)).expand(sizes)
        found = inside & self._spread(_dense(self.kv_num_blocks, self.kv_indices))
        if self.full_kv_num_blocks is None:
            return found
        whole = _dense(self.full_kv_num_blocks, self.full_kv_indices)
        return found | self._spread(whole)

    def _spread(self, blocks: Tensor) -> Tensor:
        """Blocks as positions."""
        for dim, size in zip((-2, -1), self.BLOCK_SIZE, strict=True):
            blocks = blocks.repeat_interleave(size, dim)
        rows, columns = self.seq_lengths
        return blocks[..., :rows, :columns]

    def __repr__(self) -> str:
        return f"BlockMask(shape={self.shape}, sparsity={self.sparsity():.2f}%)"


def _pair(size: Any) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else tuple(size)


def _dense(counts: Tensor, indices: Any) -> Tensor:
    """Where blocks are, from the lists of their columns."""
    columns = indices.shape[-1]
    listed = weft.arange(columns) < counts.unsqueeze(-1)
    spread = indices.unsqueeze(-1) == weft.arange(columns)
    return (spread & listed.unsqueeze(-1)).any(-2)


def _listed(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """The numbers and columns of blocks, row by row."""
    order = blocks.int().argsort(dim=-1, descending=True, stable=True)
    return blocks.sum(-1).int(), order.int()


def create_block_mask(
    mask_mod: Mod, B: int | None, H: int | None, Q_LEN: int, KV_LEN: int,
    device: Any = None, BLOCK_SIZE: int | tuple[int, int] = _DEFAULT_SPARSE_BLOCK_SIZE,
    _compile: bool = False,
) -> BlockMask:  # fmt: skip
    """The blocks of positions that a mask function sees.

    >>> from weft.nn.attention.flex_attention import create_block_mask
    >>> create_block_mask(lambda b, h, q, kv: q >= kv, None, None, 256, 256)
    BlockMask(shape=(1, 1, 256, 256), sparsity=25.00%)
    """
    size = _pair(BLOCK_SIZE)
    mask = create_mask(mask_mod, B, H, Q_LEN, KV_LEN)
    pads = [-n % s for n, s in zip((Q_LEN, KV_LEN), size, strict=True)]

    def blocks(padded: Tensor) -> Tensor:
        cut = padded.unflatten(-1, (-1, size[1])).unflatten(-3, (-1, size[0]))
        return cut.movedim(-3, -2)  # (B, H, rows, columns, inside, inside)

    shape = (0, pads[1], 0, pads[0])
    seen = blocks(weft.pad(mask.int(), shape)).flatten(-2).sum(-1)
    whole = blocks(weft.pad(weft.ones_like(mask).int(), shape)).flatten(-2).sum(-1)
    full = seen == whole
    partial = (seen > 0) & ~full
    return BlockMask((Q_LEN, KV_LEN), *_listed(partial), *_listed(full), size, mask_mod)


def flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Mod | None = None,
    block_mask: BlockMask | None = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: Any = None,
    *,
    return_aux: AuxRequest | None = None,
) -> Any:
    """Attention over (B, H, L, E) with scores that a function changes.

    With ``return_lse`` the logarithm of each query's sum of exponentials comes second.
    ``kernel_options`` choose between PyTorch's kernels and have no effect.

    >>> from weft.nn.attention.flex_attention import flex_attention
    >>> def relative(score, b, h, q_idx, kv_idx):
    ...     return score + (q_idx - kv_idx)
    >>> q = weft.rand(1, 2, 4, 8)
    >>> flex_attention(q, q, q, score_mod=relative).shape
    (1, 2, 4, 8)
    """
    key, value = _checked(query, key, value, enable_gqa)
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    wide = weft.float64 if query.dtype is weft.float64 else weft.float32
    scores = query.to(wide) @ key.to(wide).transpose(-2, -1) * factor
    if score_mod is not None:
        scores = score_mod(scores, *_positions(*scores.shape)).to(wide)
    if block_mask is not None:
        scores = weft.where(_fitting(block_mask, scores), scores, -math.inf)
    out = (_softmax(scores) @ value.to(wide)).to(query.dtype)
    if return_aux is not None:
        return out, AuxOutput(
            weft.logsumexp(scores, -1) if return_aux.lse else None,
            scores.amax(-1) if return_aux.max_scores else None,
        )
    return (out, weft.logsumexp(scores, -1)) if return_lse else out


def _checked(q: Tensor, k: Tensor, v: Tensor, grouped: bool) -> tuple[Tensor, Tensor]:
    """Keys and values with as many heads as the queries."""
    if not q.ndim == k.ndim == v.ndim == 4:
        raise ShapeError(
            "flex_attention: expected query, key and value of 4 dimensions, got "
            f"{q.shape}, {k.shape} and {v.shape}"
        )
    if q.shape[1] == k.shape[1]:
        return k, v
    if not grouped or q.shape[1] % k.shape[1]:
        raise ArgumentError(
            f"flex_attention: {q.shape[1]} query heads and {k.shape[1]} key heads; "
            "with enable_gqa=True the first must be a multiple of the second"
        )
    times = q.shape[1] // k.shape[1]
    return k.repeat_interleave(times, 1), v.repeat_interleave(times, 1)


def _fitting(block_mask: BlockMask, scores: Tensor) -> Tensor:
    rows, columns = scores.shape[-2:]
    have = block_mask.seq_lengths
    if rows > have[0] or columns > have[1]:
        raise ShapeError(
            f"flex_attention: block_mask was created for {have} positions, got scores "
            f"for {(rows, columns)}; create one that fits"
        )
    return block_mask.mask()[..., :rows, :columns]
