"""Text for language models: characters as numbers, and windows of them."""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Iterator
from typing import Any

import numpy as np

from weft.core.tensor import Tensor
from weft.errors import ArgumentError
from weft.ops.random import Generator, randint
from weft.utils.data.dataset import Dataset, resolve


class TextCorpus:
    """A text, its characters as numbers, and its windows.

    Without a text it is the source of Python's standard library as it is on this
    machine: its ``.py`` files in alphabetical order, up to ``max_chars`` characters.
    The last ``val_fraction`` is kept for validation.

    >>> corpus = weft.datasets.TextCorpus("hello there", val_fraction=0.0)
    >>> "".join(corpus.vocabulary), corpus.encode("hot").tolist()
    (' ehlort', [2, 4, 6])
    >>> corpus.decode([2, 1, 3])
    'hel'
    """

    def __init__(
        self,
        text: str | None = None,
        *,
        max_chars: int = 1_000_000,
        val_fraction: float = 0.1,
    ) -> None:
        if not 0 <= val_fraction < 1:
            raise ArgumentError(
                f"TextCorpus: expected val_fraction in [0, 1), got {val_fraction}"
            )
        self.text = (standard_library(max_chars) if text is None else text)[:max_chars]
        if not self.text:
            raise ArgumentError("TextCorpus: expected some text, got none")
        self.vocabulary = sorted(set(self.text))
        self._number = {char: i for i, char in enumerate(self.vocabulary)}
        codes = self.encode(self.text).array()
        cut = len(codes) - int(len(codes) * val_fraction)
        self._parts = {"train": codes[:cut], "val": codes[cut:]}

    @classmethod
    def from_file(cls, path: Any, **options: Any) -> TextCorpus:
        """The corpus of one text file.

        >>> import os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "text.txt")
        >>> with open(path, "w") as file:
        ...     _ = file.write("abc")
        >>> weft.datasets.TextCorpus.from_file(path).vocabulary
        ['a', 'b', 'c']
        """
        with open(path, "rb") as file:
            return cls(_decoded(file.read()), **options)

    def __len__(self) -> int:
        return len(self.text)

    def encode(self, text: str) -> Tensor:
        """Characters as numbers.

        >>> weft.datasets.TextCorpus("ab").encode("ba")
        tensor([1, 0])
        """
        try:
            return Tensor(np.array([self._number[char] for char in text], np.int64))
        except KeyError as error:
            raise ArgumentError(
                f"TextCorpus.encode: the character {error.args[0]!r} is not in the "
                f"vocabulary of {len(self.vocabulary)}"
            ) from None

    def decode(self, codes: Any) -> str:
        """Numbers as characters.

        >>> weft.datasets.TextCorpus("ab").decode(weft.tensor([1, 0]))
        'ba'
        """
        numbers = codes.tolist() if isinstance(codes, Tensor) else list(codes)
        for number in numbers:
            resolve(number, len(self.vocabulary), "TextCorpus.decode")
        return "".join(self.vocabulary[number] for number in numbers)

    def part(self, split: str) -> Tensor:
        """All numbers of a part, "train" or "val".

        >>> weft.datasets.TextCorpus("abcdefghij").part("val").tolist()
        [9]
        """
        return Tensor(self._codes(split))

    def _codes(self, split: str) -> np.ndarray:
        if split not in self._parts:
            raise ArgumentError(
                f"TextCorpus: expected split 'train' or 'val', got {split!r}"
            )
        return self._parts[split]

    def windows(self, split: str, length: int, stride: int | None = None) -> Windows:
        """A data set of windows ``(x, y)``, where y is x one character later.

        >>> corpus = weft.datasets.TextCorpus("abcdef", val_fraction=0.0)
        >>> x, y = corpus.windows("train", 3)[0]
        >>> corpus.decode(x), corpus.decode(y)
        ('abc', 'bcd')
        """
        return Windows(self._codes(split), length, length if stride is None else stride)

    def batches(
        self, split: str, batch_size: int, length: int,
        *, generator: Generator | None = None,
    ) -> Iterator[tuple[Tensor, Tensor]]:  # fmt: skip
        """Random windows for ever: batches ``(x, y)`` of shape (batch_size, length).

        >>> x, y = next(weft.datasets.TextCorpus("abc" * 9).batches("train", 2, 4))
        >>> x.shape, bool((x[:, 1:] == y[:, :-1]).all())
        ((2, 4), True)
        """
        data = self.windows(split, length, 1)
        return data.random_batches(batch_size, generator)


class Windows(Dataset):
    """Windows of a row of numbers, each with the same shifted by one."""

    def __init__(self, codes: np.ndarray, length: int, stride: int) -> None:
        if length < 1 or stride < 1:
            raise ArgumentError(
                f"TextCorpus: expected length and stride of at least 1, got {length} "
                f"and {stride}"
            )
        if len(codes) <= length:
            raise ArgumentError(
                f"TextCorpus: windows of {length} need {length + 1} characters, but "
                f"this part has {len(codes)}"
            )
        self.codes, self.length, self.stride = codes, length, stride

    def __len__(self) -> int:
        return (len(self.codes) - self.length - 1) // self.stride + 1

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        start = resolve(index, len(self), "TextCorpus") * self.stride
        window = self.codes[start : start + self.length + 1]
        return Tensor(window[:-1].copy()), Tensor(window[1:].copy())

    def random_batches(
        self, batch_size: int, generator: Generator | None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Endless batches of windows at random positions."""
        offsets = np.arange(self.length + 1)
        while True:
            starts = randint(len(self), (batch_size, 1), generator=generator).array()
            window = self.codes[starts * self.stride + offsets]  # (B, T + 1)
            yield Tensor(window[:, :-1].copy()), Tensor(window[:, 1:].copy())


def standard_library(max_chars: int) -> str:
    """The standard library's source, file after file, up to some characters."""
    pieces: list[str] = []
    left = max_chars
    for path in _sources(sysconfig.get_paths()["stdlib"]):
        if left <= 0:
            break
        with open(path, "rb") as file:
            pieces.append(_decoded(file.read())[:left])
        left -= len(pieces[-1])
    return "".join(pieces)


def _sources(root: str) -> Iterator[str]:
    """Python's own files in alphabetical order; packages of others are left out."""
    for folder, inner, files in os.walk(root):
        inner[:] = sorted(
            set(inner) - {"site-packages", "dist-packages", "__pycache__"}
        )
        for name in sorted(files):
            if name.endswith(".py"):
                yield os.path.join(folder, name)


def _decoded(content: bytes) -> str:
    """UTF-8, or Latin-1 where it is not; line ends as ``\\n``."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("latin-1")
    return text.replace("\r\n", "\n").replace("\r", "\n")
