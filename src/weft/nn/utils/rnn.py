"""Sequences of different lengths in one tensor.

A packed sequence holds the first elements of all sequences, then the second ones
of those that have one, and so on, the longest sequence first:

    a b c        data         a d f b e c
    d e     ->   batch_sizes  3 2 1
    f
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

import weft
from weft import Tensor
from weft.errors import ArgumentError, ShapeError


class PackedSequence(NamedTuple):
    """Sequences packed step by step; made by ``pack_padded_sequence``."""

    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None = None
    unsorted_indices: Tensor | None = None


def _lengths(lengths: Any) -> np.ndarray:
    array = lengths.array() if isinstance(lengths, Tensor) else np.asarray(lengths)
    return array.astype(np.int64)


def pack_padded_sequence(
    input: Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Pack a padded batch (T, N, ...), or (N, T, ...) with ``batch_first``.

    >>> x = weft.tensor([[1, 4], [2, 5], [3, 0]])
    >>> weft.nn.utils.rnn.pack_padded_sequence(x, [3, 2]).data
    tensor([1, 4, 2, 5, 3])
    """
    x = input.transpose(0, 1) if batch_first else input
    sizes = _lengths(lengths)
    if sizes.shape != (x.shape[1],):
        raise ShapeError(
            f"pack_padded_sequence: {x.shape[1]} sequences but {sizes.size} lengths"
        )
    if sizes.size == 0 or sizes.min() <= 0 or sizes.max() > x.shape[0]:
        raise ArgumentError(
            "pack_padded_sequence: lengths must lie between 1 and "
            f"{x.shape[0]}, got {sizes.tolist()}"
        )
    order = np.argsort(-sizes, kind="stable")
    if enforce_sorted and (np.diff(sizes) > 0).any():
        raise ArgumentError(
            "pack_padded_sequence: lengths must fall; pass enforce_sorted=False to "
            "have the batch sorted"
        )
    chosen = None
    if not enforce_sorted:
        chosen = Tensor(order).to(x.device)
        x, sizes = x.index_select(1, chosen), sizes[order]
    counts = np.array([(sizes > t).sum() for t in range(int(sizes[0]))])
    data = weft.cat([x[t, : int(n)] for t, n in enumerate(counts)])
    back = None if chosen is None else chosen.argsort()
    return PackedSequence(data, Tensor(counts), chosen, back)


def pad_packed_sequence(
    sequence: PackedSequence,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Tensor, Tensor]:
    """The padded batch of a packed sequence, and the lengths.

    >>> rnn = weft.nn.utils.rnn
    >>> packed = rnn.pack_padded_sequence(weft.tensor([[1, 4], [2, 5], [3, 0]]), [3, 2])
    >>> rnn.pad_packed_sequence(packed)[0]
    tensor([[1, 4],
            [2, 5],
            [3, 0]])
    """
    counts = sequence.batch_sizes.array()
    batch, steps = int(counts[0]), len(counts)
    length = steps if total_length is None else total_length
    if length < steps:
        raise ArgumentError(
            f"pad_packed_sequence: total_length {length} is below the longest "
            f"sequence's {steps}"
        )
    rows, start = [], 0
    rest = sequence.data.shape[1:]
    for n in counts:
        row = sequence.data[start : start + int(n)]
        rows.append(_fill(row, batch - int(n), rest, padding_value))
        start += int(n)
    for _ in range(length - steps):
        rows.append(_fill(None, batch, rest, padding_value, sequence.data))
    out = weft.stack(rows)
    sizes = Tensor((counts[:, None] > np.arange(batch)).sum(0))
    if sequence.unsorted_indices is not None:
        out = out.index_select(1, sequence.unsorted_indices)
        sizes = sizes[sequence.unsorted_indices.cpu()]
    return (out.transpose(0, 1) if batch_first else out), sizes


def _fill(
    row: Tensor | None, count: int, rest: Any, value: float, like: Any = None
) -> Tensor:
    source = row if row is not None else like
    more = source.new_full((count, *rest), value)
    return more if row is None else weft.cat([row, more])


def pad_sequence(
    sequences: Sequence[Tensor],
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Tensors of different lengths as one padded batch.

    >>> weft.nn.utils.rnn.pad_sequence([weft.ones(2), weft.ones(1)], batch_first=True)
    tensor([[1., 1.],
            [1., 0.]])
    """
    if padding_side not in ("left", "right"):
        raise ArgumentError(
            "pad_sequence: padding_side must be 'left' or 'right', got "
            f"{padding_side!r}"
        )
    if not sequences:
        raise ArgumentError("pad_sequence: expected at least one sequence")
    longest = max(s.shape[0] for s in sequences)
    rows = []
    for s in sequences:
        more = s.new_full((longest - s.shape[0], *s.shape[1:]), padding_value)
        rows.append(weft.cat([s, more] if padding_side == "right" else [more, s]))
    return weft.stack(rows, 0 if batch_first else 1)


def pack_sequence(
    sequences: Sequence[Tensor], enforce_sorted: bool = True
) -> PackedSequence:
    """Pack tensors of different lengths.

    >>> weft.nn.utils.rnn.pack_sequence([weft.ones(2), weft.ones(1)]).batch_sizes
    tensor([2, 1])
    """
    lengths = [s.shape[0] for s in sequences]
    return pack_padded_sequence(
        pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted
    )


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The sequences of a packed one.

    >>> rnn = weft.nn.utils.rnn
    >>> packed = rnn.pack_sequence([weft.tensor([1, 2]), weft.tensor([4])])
    >>> [s.tolist() for s in rnn.unpack_sequence(packed)]
    [[1, 2], [4]]
    """
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)


def unpad_sequence(
    padded_sequences: Tensor, lengths: Any, batch_first: bool = False
) -> list[Tensor]:
    """The sequences of a padded batch.

    >>> x = weft.tensor([[1, 4], [2, 0]])
    >>> [s.tolist() for s in weft.nn.utils.rnn.unpad_sequence(x, [2, 1])]
    [[1, 2], [4]]
    """
    x = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    return [row[: int(n)] for row, n in zip(x, _lengths(lengths), strict=True)]


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """The permutation that undoes another.

    >>> weft.nn.utils.rnn.invert_permutation(weft.tensor([2, 0, 1])).tolist()
    [1, 2, 0]
    """
    return None if permutation is None else permutation.argsort()
