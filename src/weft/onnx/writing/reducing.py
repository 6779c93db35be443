"""Rules of reductions and running sums."""

from __future__ import annotations

from typing import Any

import weft
from weft.onnx.writing.elementwise import since
from weft.onnx.writing.writer import Writer, rule


def reduced(w: Writer, op: str, x: str, axes: Any, keepdims: bool, since: int) -> str:
    """A reduction whose axes are an input since an opset, and an attribute before."""
    if not axes:
        return w("Identity", x)
    keep = int(keepdims)
    if w.opset >= since:
        return w(op, x, w.ints(list(axes)), keepdims=keep)
    return w(op, x, axes=list(axes), keepdims=keep)


@rule("sum")
def _sum(w: Writer, node: Any, x: str) -> str:
    return reduced(w, "ReduceSum", x, node.params["dim"], node.params["keepdim"], 13)


@rule("amax")
def _amax(w: Writer, node: Any, x: str) -> str:
    return reduced(w, "ReduceMax", x, node.params["dim"], node.params["keepdim"], 18)


@rule("amin")
def _amin(w: Writer, node: Any, x: str) -> str:
    return reduced(w, "ReduceMin", x, node.params["dim"], node.params["keepdim"], 18)


@rule("prod")
def _prod(w: Writer, node: Any, x: str) -> str:
    return reduced(w, "ReduceProd", x, [node.params["dim"]], False, 18)


def _truths(op: str) -> Any:
    def written(w: Writer, node: Any, x: str) -> str:
        number = w.cast(w.cast(x, weft.bool), weft.int32)
        dims, keep = node.params["dim"], node.params["keepdim"]
        return w.cast(reduced(w, op, number, dims, keep, 18), weft.bool)

    return written


rule("all")(_truths("ReduceMin"))
rule("any")(_truths("ReduceMax"))


@rule("cumsum")
def _cumsum(w: Writer, node: Any, x: str) -> str:
    return w("CumSum", x, w.size(node.params["dim"]))


@rule("cumprod")
def _cumprod(w: Writer, node: Any, x: str) -> str:
    return w(since(w, 26, "CumProd"), x, w.size(node.params["dim"]))
