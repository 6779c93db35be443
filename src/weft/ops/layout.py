"""Layouts of tensors: dense ones are strided, sparse ones hold some elements only."""

from __future__ import annotations


class layout:
    """The way in which a tensor holds its elements.

    >>> weft.zeros(2).layout
    weft.strided
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"weft.{self.name}"

    def __reduce__(self) -> tuple[object, ...]:
        return layout_named, (self.name,)


strided = layout("strided")
sparse_coo = layout("sparse_coo")
sparse_csr = layout("sparse_csr")
sparse_csc = layout("sparse_csc")
sparse_bsr = layout("sparse_bsr")
sparse_bsc = layout("sparse_bsc")
LAYOUTS = (strided, sparse_coo, sparse_csr, sparse_csc, sparse_bsr, sparse_bsc)


def layout_named(name: str) -> layout:
    """The layout with a name."""
    return next(one for one in LAYOUTS if one.name == name)
