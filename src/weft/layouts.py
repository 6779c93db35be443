"""Layouts of tensors in memory, under PyTorch's names: ``weft.strided`` and others."""

from __future__ import annotations

from typing import Any

from weft import naming
from weft.errors import ArgumentError


class layout:
    """How a tensor's elements are kept: all of them (``weft.strided``), or few.

    >>> weft.zeros(2).layout
    weft.strided
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"{naming.library()}.{self.name}"

    def __reduce__(self) -> str:
        return self.name


strided = layout("strided")
sparse_coo, sparse_csr, sparse_csc, sparse_bsr, sparse_bsc, jagged = map(
    layout,
    ["sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc", "jagged"],
)


def check_strided(name: str, given: Any) -> None:
    """Refuse a layout in which a function makes no tensors."""
    if given is not None and given is not strided:
        raise ArgumentError(
            f"{name}: expected layout=weft.strided, got {given!r}; make the tensor "
            "strided, then convert it"
        )
