"""Products of matrices."""

from __future__ import annotations

from typing import Any

import weft
from weft import Tensor
from weft.onnx.registry import enter, operator

enter("MatMul", lambda x, y: weft.matmul(x, y))


@operator("Gemm")
def gemm(
    a: Tensor, b: Tensor, c: Any = None, *, alpha: float = 1.0, beta: float = 1.0,
    transA: int = 0, transB: int = 0, broadcast: int = 0,
) -> Tensor:  # fmt: skip
    """``alpha * a @ b + beta * c``, of matrices that may be transposed."""
    out = weft.matmul(a.T if transA else a, b.T if transB else b)
    if alpha != 1:
        out = out * alpha
    if c is not None:
        out = out + (c if beta == 1 else c * beta)
    return out.to(a.dtype)


@operator("Einsum")
def einsum(*xs: Tensor, equation: str) -> Tensor:
    """A sum of products, by the letters of axes."""
    return weft.einsum(equation.replace(" ", ""), *xs)


@operator("Det")
def det(x: Tensor) -> Tensor:
    """Determinants of matrices."""
    return weft.det(x)
