"""The rectifier as an operator; other activations are compositions."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.core.eager_kernels import COSTLY
from weft.core.tensor import Tensor
from weft.ops.creation import zeros_like
from weft.ops.elementwise import unary
from weft.ops.select import where_op


def _where_positive(g: Any, out: Tensor) -> Any:
    return where_op(out > 0, g, zeros_like(g))


def _positive_part(x: Any) -> Any:
    # of two zeros, NumPy takes the first in float16 and the second elsewhere
    return np.maximum(0, x) if x.dtype.char == "e" else np.maximum(x, 0)


relu = unary(
    "relu",
    _positive_part,
    accepts="real number",
    vjp={"x": _where_positive},
    jvp={"x": lambda t, out: _where_positive(t, out)},
    bulk=COSTLY,
    reference=lambda x: (x + np.abs(x)) / 2,
    exact=True,
    doc="""The positive part: 0 below zero, where its derivative is 0 too.

    >>> weft.relu(weft.tensor([-1.0, 2.0]))
    tensor([0., 2.])
    """,
)
