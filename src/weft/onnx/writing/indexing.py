"""Rules of indices: picking, placing and ordering."""

from __future__ import annotations

from typing import Any

from weft.onnx.writing.elementwise import since
from weft.onnx.writing.writer import Refused, Writer, rule


@rule("gather")
def _gather(w: Writer, node: Any, x: str, index: str) -> str:
    return w("GatherElements", x, index, axis=node.params["dim"])


@rule("take")
def _take(w: Writer, node: Any, x: str, index: str) -> str:
    return w("Gather", x, index, axis=0)


@rule("put")
def _put(w: Writer, node: Any, x: str, index: str, value: str) -> str:
    axis, rank = node.params["axis"], len(node.shape)
    at = w("Unsqueeze", index, w.ints([-1]))
    if not axis:
        return w("ScatterND", x, at, value)
    lead = len(node.inputs[1].shape)
    front = [axis, *[d for d in range(rank) if d != axis]]
    block = range(axis, axis + lead)
    rest = [d for d in range(rank - 1 + lead) if d not in block]
    x = w("Transpose", x, perm=front)
    value = w("Transpose", value, perm=[*block, *rest])
    back = sorted(range(rank), key=front.__getitem__)
    return w("Transpose", w("ScatterND", x, at, value), perm=back)


@rule("add_at")
def _add_at(w: Writer, node: Any, x: str, index: str) -> str:
    zero = w.constant(0, node.dtype)
    zeros = w("Expand", zero, w.ints(node.shape))
    at = w("Unsqueeze", index, w.ints([-1]))
    return w("ScatterND", zeros, at, x, reduction="add")


@rule("scatter")
def _scatter(w: Writer, node: Any, x: str, index: str, src: str) -> str:
    return w("ScatterElements", x, index, src, axis=node.params["dim"])


@rule("scatter_add")
def _scatter_add(w: Writer, node: Any, x: str, index: str, src: str) -> str:
    axis = node.params["dim"]
    return w("ScatterElements", x, index, src, axis=axis, reduction="add")


@rule("scatter_combine")
def _scatter_combine(w: Writer, node: Any, x: str, index: str, src: str) -> str:
    how = {"amax": "max", "amin": "min", "prod": "mul"}.get(node.params["reduce"])
    if how is None:
        raise Refused(f"the reduction {node.params['reduce']!r} has no form in ONNX")
    op = since(w, 18, "ScatterElements") if how != "mul" else "ScatterElements"
    return w(op, x, index, src, axis=node.params["dim"], reduction=how)


@rule("topk_index")
def _topk_index(w: Writer, node: Any, x: str) -> str:
    count = w.ints([node.params["k"]])
    largest = int(node.params["largest"])
    return w.many(
        "TopK", 2, x, count, axis=node.params["dim"], largest=largest, sorted=1
    )[1]


@rule("argsort")
def _argsort(w: Writer, node: Any, x: str) -> str:
    dim = node.params["dim"]
    count = w.ints([node.shape[dim]])
    largest = int(node.params["descending"])
    return w.many("TopK", 2, x, count, axis=dim, largest=largest, sorted=1)[1]


def _arg(op: str) -> Any:
    return lambda w, node, x: w(
        op, x, axis=node.params["dim"], keepdims=int(node.params["keepdim"])
    )


rule("argmax")(_arg("ArgMax"))
rule("argmin")(_arg("ArgMin"))
