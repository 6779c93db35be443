"""Rules of products of matrices, and attention."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import weft
from weft.onnx.writing.reducing import reduced
from weft.onnx.writing.writer import Writer, rule


@rule("matmul")
def _matmul(w: Writer, node: Any, x: str, y: str) -> str:
    return w("MatMul", x, y)


@rule("wide_matmul")
def _wide_matmul(w: Writer, node: Any, x: str, y: str) -> str:
    return w("MatMul", w.cast(x, node.dtype), w.cast(y, node.dtype))


@rule("det")
def _det(w: Writer, node: Any, x: str) -> str:
    return w("Det", x)


@rule("attention")
def _attention(
    w: Writer, node: Any, q: str, k: str, v: str, mask: str = ""
) -> tuple[str, str]:
    """Softmax of scaled products, and the logarithm of what it divides by."""
    query, key = node.inputs[:2]
    rank, dtype = len(query.shape), query.dtype
    order = [*range(rank - 2), rank - 1, rank - 2]
    scale = w.constant(node.params["scale"], dtype)
    scores = w("MatMul", w("Mul", q, scale), w("Transpose", k, perm=order))
    lowest = w.constant(-math.inf, dtype)
    if mask:
        if node.inputs[3].dtype is weft.bool:
            scores = w("Where", mask, scores, lowest)
        else:
            scores = w("Add", scores, mask)
    if node.params["causal"]:
        rows, columns = (_places(w, x.shape[-2]) for x in (query, key))
        rows = w("Unsqueeze", rows, w.ints([1]))
        scores = w("Where", w("LessOrEqual", columns, rows), scores, lowest)
    weights = w("Softmax", scores, axis=-1)
    total = reduced(w, "ReduceLogSumExp", scores, [rank - 1], False, 18)
    if node.params["zeros"] and (mask or node.params["causal"]):
        best = reduced(w, "ReduceMax", scores, [rank - 1], True, 18)
        nobody = w("Equal", best, lowest)
        weights = w("Where", nobody, w.constant(0, dtype), weights)
    return w("MatMul", weights, v), total


def _places(w: Writer, size: Any) -> str:
    if type(size) is int:
        return w.constant(np.arange(size))
    return w("Range", w.size(0), w.size(size), w.size(1))
