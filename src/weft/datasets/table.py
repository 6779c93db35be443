"""Tables of comma-separated values."""

from __future__ import annotations

import csv
import math
from typing import Any

import numpy as np

from weft.core.tensor import Tensor
from weft.datasets.images import broken
from weft.dtype import default_dtype
from weft.errors import ArgumentError, DTypeError
from weft.utils.data.dataset import Dataset


class CSV(Dataset):
    """A file of comma-separated values, whose first line names the columns.

    A column of whole numbers becomes ``int64``, of other numbers ``float64``, and
    anything else categories: numbers into ``categories[name]``, which is sorted.
    Missing values are an error that names the line and the column. A sample is a
    dictionary, or features and target if a ``target`` column is named.

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "flowers.csv")
    >>> with open(path, "w") as file:
    ...     _ = file.write("size,petals,name\\n1.5,5,rose\\n0.5,6,lily\\n")
    >>> data = weft.datasets.CSV(path, target="name")
    >>> data[0]
    (tensor([1.5000, 5.0000]), 1)
    >>> data.categories["name"]
    ['lily', 'rose']
    """

    def __init__(
        self, path: Any, target: str | None = None, *, delimiter: str = ","
    ) -> None:
        self.path = path
        names, lines, rows = _read(path, delimiter)
        if target is not None and target not in names:
            raise ArgumentError(
                f"CSV: expected target to be one of {names}, got {target!r}"
            )
        self.target = target
        self.categories: dict[str, list[str]] = {}
        self.columns: dict[str, np.ndarray] = {}
        for position, name in enumerate(names):
            self.columns[name] = self._column(
                name, [row[position] for row in rows], lines
            )
        self._length = len(rows)

    def _column(self, name: str, texts: list[str], lines: list[int]) -> np.ndarray:
        for text, line in zip(texts, lines, strict=True):
            if text == "" or text.lower() in ("na", "n/a", "nan", "null", "none"):
                raise broken(
                    self.path,
                    f"line {line}, column {name!r}: a value is missing (got {text!r})",
                )
        numbers = _numbers(texts)
        if numbers is not None:
            return numbers
        known = sorted(set(texts))
        self.categories[name] = known
        number = {text: i for i, text in enumerate(known)}
        return np.array([number[text] for text in texts], np.int64)

    @property
    def features(self) -> list[str]:
        """The columns that are not the target."""
        return [name for name in self.columns if name != self.target]

    def tensors(self) -> tuple[Tensor, Tensor]:
        """All features (N, columns) as floats, and the targets.

        >>> import os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "t.csv")
        >>> with open(path, "w") as file:
        ...     _ = file.write("x,y\\n1,0\\n2,1\\n")
        >>> weft.datasets.CSV(path, target="y").tensors()[0].shape
        (2, 1)
        """
        if self.target is None:
            raise DTypeError("CSV.tensors: name a target column first: CSV(path, name)")
        goal = self.columns[self.target]
        if goal.dtype == np.float64:
            goal = goal.astype(default_dtype().np)
        return Tensor(self._floats()), Tensor(goal)

    def _floats(self) -> np.ndarray:
        kind = default_dtype().np
        columns = [self.columns[name].astype(kind) for name in self.features]
        return np.stack(columns, 1) if columns else np.zeros((len(self), 0), kind)

    def __getitem__(self, index: int) -> Any:
        if self.target is None:
            return {name: column[index].item() for name, column in self.columns.items()}
        kind = default_dtype().np
        row = np.array([self.columns[name][index] for name in self.features], kind)
        return Tensor(row), self.columns[self.target][index].item()

    def __len__(self) -> int:
        return self._length


def _read(path: Any, delimiter: str) -> tuple[list[str], list[int], list[list[str]]]:
    """The header, and each row with the number of its line."""
    lines: list[int] = []
    rows: list[list[str]] = []
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, delimiter=delimiter, strict=True)
            names = [name.strip() for name in next(reader, [])]
            _check_header(path, names)
            for row in filter(None, reader):
                if len(row) != len(names):
                    raise broken(
                        path,
                        f"line {reader.line_num}: expected {len(names)} values, got "
                        f"{len(row)}",
                    )
                lines.append(reader.line_num)
                rows.append([text.strip() for text in row])
    except (csv.Error, UnicodeDecodeError) as error:
        raise broken(path, f"not a table of text: {error}") from error
    return names, lines, rows


def _check_header(path: Any, names: list[str]) -> None:
    if not names or "" in names or len(set(names)) < len(names):
        raise broken(path, f"line 1: expected different names of columns, got {names}")


def _numbers(texts: list[str]) -> np.ndarray | None:
    """A column of numbers, or ``None``."""
    try:
        return np.array([int(text) for text in texts], np.int64)
    except (ValueError, OverflowError):
        pass
    try:
        values = [float(text) for text in texts]
    except ValueError:
        return None
    return np.array(values) if all(map(math.isfinite, values)) else None
