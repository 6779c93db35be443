"""Data sets: samples by index, or as a stream, and combinations of them."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import GenericAlias
from typing import Any

from weft.core.tensor import Tensor
from weft.errors import ArgumentError, DTypeError, OutOfRangeError, ShapeError
from weft.ops.random import Generator, randperm


class Dataset:
    """Samples by index: subclasses give ``__getitem__`` and ``__len__``.

    >>> class Squares(weft.utils.data.Dataset):
    ...     def __getitem__(self, index):
    ...         return index * index
    ...     def __len__(self):
    ...         return 4
    >>> list(weft.utils.data.DataLoader(Squares(), batch_size=4))
    [tensor([0, 1, 4, 9])]
    """

    __class_getitem__: Any = classmethod(GenericAlias)  # ``Dataset[int]`` is a type

    def __getitem__(self, index: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no __getitem__")

    def __add__(self, other: Dataset) -> ConcatDataset:
        return ConcatDataset([self, other])


class IterableDataset(Dataset):
    """Samples as a stream: subclasses give ``__iter__``.

    With several workers, each makes the whole stream and keeps its share, so every
    sample comes once. A stream that divides itself asks ``get_worker_info`` at its
    start, and is then left to it.

    >>> class Count(weft.utils.data.IterableDataset):
    ...     def __iter__(self):
    ...         return iter(range(3))
    >>> list(weft.utils.data.DataLoader(Count(), batch_size=3))
    [tensor([0, 1, 2])]
    """

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__} has no __iter__")

    def __getitem__(self, index: Any) -> Any:
        raise DTypeError(
            f"{type(self).__name__}: samples of a stream have no index; iterate over it"
        )

    def __add__(self, other: Dataset) -> Any:
        return ChainDataset([self, other])


def sized(dataset: Any, what: str) -> int:
    """A data set's length, or an error that says who needs it."""
    try:
        return len(dataset)
    except TypeError:
        raise DTypeError(
            f"{what}: expected a data set with a length, got {type(dataset).__name__}, "
            "which has no __len__"
        ) from None


def resolve(index: int, length: int, what: str) -> int:
    """An index counted from the front, checked."""
    if not -length <= index < length:
        raise OutOfRangeError(f"{what}: expected an index below {length}, got {index}")
    return index % length if length else index


class TensorDataset(Dataset):
    """Tensors whose first axes run over the samples.

    >>> data = weft.utils.data.TensorDataset(weft.arange(3), weft.eye(3))
    >>> data[1]
    (tensor(1), tensor([0., 1., 0.]))
    """

    def __init__(self, *tensors: Tensor) -> None:
        if not tensors:
            raise ArgumentError("TensorDataset: expected at least one tensor")
        for tensor in tensors:
            if not isinstance(tensor, Tensor):
                kind = type(tensor).__name__
                raise DTypeError(f"TensorDataset: expected tensors, got {kind}")
        shapes = [tuple(t.shape) for t in tensors]
        if not all(s and s[0] == len(tensors[0]) for s in shapes):
            raise ShapeError(
                f"TensorDataset: expected equal sizes of dimension 0, got {shapes}"
            )
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        return tuple(tensor[index] for tensor in self.tensors)

    def __len__(self) -> int:
        return int(self.tensors[0].shape[0])


class Subset(Dataset):
    """The samples of a data set at some indices.

    >>> list(weft.utils.data.Subset("abcd", [3, 0]))
    ['d', 'a']
    """

    def __init__(self, dataset: Any, indices: Sequence[int]) -> None:
        self.dataset = dataset
        self.indices = indices

    def __getitem__(self, index: int) -> Any:
        return self.dataset[self.indices[index]]

    def __len__(self) -> int:
        return len(self.indices)


class ConcatDataset(Dataset):
    """One data set after the other, by index.

    >>> list(weft.utils.data.ConcatDataset(["ab", "c"]))
    ['a', 'b', 'c']
    """

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise ArgumentError("ConcatDataset: expected at least one data set")
        for dataset in self.datasets:
            if isinstance(dataset, IterableDataset):
                raise DTypeError(
                    "ConcatDataset: expected data sets with indices, got "
                    f"{type(dataset).__name__}; use ChainDataset for streams"
                )
        lengths = [sized(d, "ConcatDataset") for d in self.datasets]
        self.cumulative_sizes = list(itertools.accumulate(lengths))

    def __getitem__(self, index: int) -> Any:
        index = resolve(index, len(self), "ConcatDataset")
        which = bisect.bisect_right(self.cumulative_sizes, index)
        before = self.cumulative_sizes[which - 1] if which else 0
        return self.datasets[which][index - before]

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]


class ChainDataset(IterableDataset):
    """One stream after the other.

    >>> list(weft.utils.data.ChainDataset([range(2), range(1)]))
    [0, 1, 0]
    """

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = list(datasets)

    def __iter__(self) -> Iterator[Any]:
        return itertools.chain.from_iterable(self.datasets)

    def __len__(self) -> int:
        return sum(sized(d, "ChainDataset") for d in self.datasets)


class StackDataset(Dataset):
    """Data sets side by side: samples are tuples, or dictionaries by keyword.

    >>> weft.utils.data.StackDataset(image="xyz", label=[0, 1, 2])[1]
    {'image': 'y', 'label': 1}
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if bool(args) == bool(kwargs):
            raise ArgumentError(
                "StackDataset: expected data sets either by position or by keyword"
            )
        self.datasets: Any = kwargs or args
        parts = list(kwargs.values() or args)
        lengths = [sized(part, "StackDataset") for part in parts]
        if len(set(lengths)) > 1:
            raise ShapeError(f"StackDataset: expected equal lengths, got {lengths}")
        self._length = lengths[0]

    def __getitem__(self, index: Any) -> Any:
        if isinstance(self.datasets, Mapping):
            return {name: part[index] for name, part in self.datasets.items()}
        return tuple(part[index] for part in self.datasets)

    def __len__(self) -> int:
        return self._length


def random_split(
    dataset: Any, lengths: Sequence[float], generator: Generator | None = None
) -> list[Subset]:
    """A data set in disjoint random parts, of given lengths or fractions.

    What rounding down the fractions leaves over goes to the first parts, a sample
    each.

    >>> parts = weft.utils.data.random_split(range(10), [0.75, 0.25])
    >>> [len(part) for part in parts], sorted([*parts[0], *parts[1]])
    ([8, 2], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
    """
    total = sized(dataset, "random_split")
    sizes = _split_sizes(lengths, total)
    order = randperm(total, generator=generator).tolist()
    ends = itertools.accumulate(sizes)
    return [
        Subset(dataset, order[end - size : end])
        for size, end in zip(sizes, ends, strict=True)
    ]


def _split_sizes(lengths: Sequence[float], total: int) -> list[int]:
    if math.isclose(sum(lengths), 1) and all(0 <= part <= 1 for part in lengths):
        sizes = [math.floor(total * part) for part in lengths]
        for position in range(total - sum(sizes)):
            sizes[position % len(sizes)] += 1
        return sizes
    if sum(lengths) != total or any(p < 0 or p != int(p) for p in lengths):
        raise ArgumentError(
            f"random_split: expected lengths that add up to {total}, or fractions "
            f"that add up to 1, got {list(lengths)}"
        )
    return [int(part) for part in lengths]
