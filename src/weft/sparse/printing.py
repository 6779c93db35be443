"""Sparse tensors as text: their indices and values, then shape and layout."""

from __future__ import annotations

from typing import Any

from weft import layouts


def _lines(label: str, x: Any) -> str:
    text = str(x.detach()).replace("\n", "\n" + " " * (len(label) + 8))
    return f"{label}={text},\n       "


def text(x: Any) -> str:
    """The text of a sparse tensor."""
    if x.layout is layouts.sparse_coo:
        parts = [("indices", x._indices()), ("values", x._values())]
    else:
        names = ("crow", "col") if x._by_row else ("ccol", "row")
        parts = [
            (f"{names[0]}_indices", x._starts),
            (f"{names[1]}_indices", x._others),
            ("values", x._held),
        ]
    head = "".join(_lines(name, part) for name, part in parts)
    tail = f"size={tuple(x.shape)}, nnz={x._nnz()}, layout={x.layout!r}"
    if x.grad_fn is not None:
        tail += f", grad_fn={x.grad_fn}"
    elif x.requires_grad:
        tail += ", requires_grad=True"
    return f"tensor({head}{tail})"
