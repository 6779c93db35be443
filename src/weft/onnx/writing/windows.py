"""Rules of windows: convolution, pooling and resampling."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft.graph.ir import Node
from weft.onnx.writing.writer import Refused, Writer, rule, static
from weft.ops.resample import lists_of

_FEW = 16  # taps that are written one by one


def _pads(padding: Any) -> list[int]:
    before, after = zip(*padding, strict=True) if padding else ((), ())
    pads = static([*before, *after], "padding")
    if min(pads, default=0) < 0:
        raise Refused("padding below 0 has no form in ONNX")
    return pads


def _gaps(params: Any) -> list[int] | None:
    """The dilation, where there is one: some libraries are slow with it."""
    dilation = list(params["dilation"])
    return None if all(d == 1 for d in dilation) else dilation


@rule("conv conv_bias")
def _conv(w: Writer, node: Any, *xs: str) -> str:
    p = node.params
    return w(
        "Conv", *xs, strides=list(p["stride"]), pads=_pads(p["padding"]),
        dilations=_gaps(p), group=p["groups"],
        kernel_shape=list(node.inputs[1].shape[2:]),
    )  # fmt: skip


@rule("conv_input_grad")
def _conv_input_grad(w: Writer, node: Any, y: str, weight: str) -> str:
    p, kernel = node.params, node.inputs[1].shape[2:]
    ends = [(a, max(b, 0) if type(b) is int else b) for a, b in p["padding"]]
    pads, rank = _pads(ends), len(kernel)  # below 0 at the end: output_padding
    extra = []
    for k in range(rank):
        reach = (kernel[k] - 1) * p["dilation"][k] + 1
        whole = (node.inputs[0].shape[2 + k] - 1) * p["stride"][k] + reach
        extra.append(p["size"][k] - (whole - pads[k] - pads[rank + k]))
    return w(
        "ConvTranspose", y, weight, strides=list(p["stride"]), pads=pads,
        dilations=_gaps(p), group=p["groups"],
        output_padding=static(extra, "a transposed convolution"),
        kernel_shape=list(kernel),
    )  # fmt: skip


def _pool(w: Writer, node: Any, x: str, outputs: int) -> list[str]:
    p, shape = node.params, node.inputs[0].shape
    rank = len(p["kernel"])
    if not node.inputs[0].dtype.is_floating_point:
        raise Refused("pooling of whole numbers has no form in ONNX")
    before, after = list(p["padding"]), []
    for k, count in enumerate(p["counts"]):
        size = shape[len(shape) - rank + k]
        reach = (p["kernel"][k] - 1) * p["dilation"][k] + 1
        plain = (size + 2 * before[k] - reach) // p["stride"][k] + 1
        end = before[k]
        if not _same(plain, count):  # windows that reach beyond the end
            total = (static([count], "pooling")[0] - 1) * p["stride"][k] + reach
            end = total - static([size], "pooling")[0] - before[k]
        after.append(end)
    batch = len(shape) - rank
    if batch != 2:
        raise Refused("pooling without batch and channels has no form in ONNX")
    return w.many(
        "MaxPool", outputs, x, kernel_shape=list(p["kernel"]), pads=before + after,
        strides=list(p["stride"]), dilations=_gaps(p),
    )  # fmt: skip


def _same(a: Any, b: Any) -> bool:
    return a == b if type(a) is int and type(b) is int else str(a) == str(b)


@rule("max_pool")
def _max_pool(w: Writer, node: Any, x: str) -> str:
    return _pool(w, node, x, 1)[0]


def index_of_maxima(node: Any) -> Any:
    """The node of the places that a node picks the largest elements of windows at.

    Where windows overlap, pooling is captured as places, and elements at those:

        reshape(take(reshape(x), reshape(index + reshape(arange(images) * size))))
    """
    names = ("reshape", "take", "reshape", "add", "max_pool_index")
    path = _path(node, names, (0, 1, 0, 0))
    if not path:
        return None
    take, add, index = path[1], path[3], path[4]
    start = add.inputs[1]
    start = start.inputs[0] if getattr(start.op, "name", "") == "expand" else start
    offsets = _path(start, ("reshape", "mul", "arange"), (0, 0))
    flat = take.inputs[0]
    if (
        not offsets
        or flat.op.name != "reshape"
        or flat.inputs[0] is not index.inputs[0]
    ):
        return None
    factor, count = offsets[1].inputs[1], offsets[2].params
    factor = factor.params.get("value") if isinstance(factor, Node) else factor
    size = math.prod(index.inputs[0].shape[2:])
    whole = _same(factor, size) and (count["start"], count["step"]) == (0, 1)
    return index if whole and _same(node.shape, index.shape) else None


def _path(node: Any, names: Any, inputs: Any) -> list[Any]:
    """The nodes from one on, by their inputs' positions; none if a name differs."""
    found = [node]
    for name, place in zip(names, (*inputs, None), strict=True):
        if not isinstance(node, Node) or node.op.name != name:
            return []
        if place is not None:
            node = node.inputs[place]
            found.append(node)
    return found


def pooled(w: Writer, index: Any) -> str:
    """The largest elements of the windows that a node finds the places of."""
    return _pool(w, index, w.read(index.inputs[0]), 1)[0]


@rule("max_pool_index")
def _max_pool_index(w: Writer, node: Any, x: str) -> str:
    at = _pool(w, node, x, 2)[1]
    sizes = node.inputs[0].shape[2:]
    return w("Mod", at, w.constant(np.prod(static(sizes, "places of maxima"))))


@rule("adaptive_max_index")
def _adaptive_max_index(w: Writer, node: Any, x: str) -> str:
    counts = node.params["counts"]
    sizes = static(node.inputs[0].shape[-len(counts) :], "adaptive pooling")
    if any(n % c for n, c in zip(sizes, counts, strict=True)):
        raise Refused("adaptive pooling to sizes that do not divide the image's")
    kernel = [n // c for n, c in zip(sizes, counts, strict=True)]
    at = w.many("MaxPool", 2, x, kernel_shape=kernel, strides=kernel)[1]
    return w("Mod", at, w.constant(np.prod(sizes)))


@rule("im2col")
def _im2col(w: Writer, node: Any, x: str) -> str:
    """(N, C, kernel…, places…): one axis of windows after the other."""
    p, shape = node.params, node.inputs[0].shape
    rank = len(p["kernel"])
    before, after = zip(*p["padding"], strict=True)
    x = w("Pad", x, w.ints([0, 0, *before, 0, 0, *after]))
    for k in range(rank):
        (size,) = static([shape[2 + k]], "unfold")
        size += sum(p["padding"][k])
        taps = np.arange(p["kernel"][k]) * p["dilation"][k]
        starts = np.arange(0, size - taps[-1], p["stride"][k])
        x = w("Gather", x, w.constant(taps[:, None] + starts), axis=2 + 2 * k)
    order = [0, 1, *range(2, 2 + 2 * rank, 2), *range(3, 2 + 2 * rank, 2)]
    return w("Transpose", x, perm=order)


@rule("resample")
def _resample(w: Writer, node: Any, x: str) -> str:
    """Means of windows, or sums of slices with weights."""
    given = node.inputs[0]
    taps, dim, rank = node.params["taps"], node.params["dim"], len(given.shape)
    lists = lists_of(taps)
    plain = lists.windows is not None and lists.fewest == lists.most and dim >= 2
    if plain and taps.scale is not None and abs(taps.scale * lists.most - 1) < 1e-9:
        stride, width, padding = lists.windows or (1, 1, 0)
        if padding == 0 and _reaches(taps.size, stride, width):
            kernel = [width if k == dim else 1 for k in range(2, rank)]
            strides = [stride if k == dim else 1 for k in range(2, rank)]
            return w("AveragePool", x, kernel_shape=kernel, strides=strides)
    if lists.most <= _FEW:
        return _summed(w, node, x, taps, dim)
    matrix = np.zeros(taps.size)
    np.add.at(matrix, (taps.rows, taps.cols), taps.weights)
    order = [k for k in range(rank) if k != dim] + [dim]
    x = w("MatMul", w("Transpose", x, perm=order), w.constant(matrix.T, given.dtype))
    back = [order.index(k) for k in range(rank)]
    return w("Transpose", x, perm=back)


def _reaches(size: tuple[int, int], stride: int, width: int) -> bool:
    """Whether windows without padding are as many as there are rows."""
    rows, columns = size
    return columns >= width and (columns - width) // stride + 1 == rows


def _summed(w: Writer, node: Any, x: str, taps: Any, dim: int) -> str:
    rows, dtype = taps.size[0], node.inputs[0].dtype
    rank = len(node.shape)
    order = np.argsort(taps.rows, kind="stable")
    lists: list[list[tuple[int, float]]] = [[] for _ in range(rows)]
    for k in order:
        lists[int(taps.rows[k])].append((int(taps.cols[k]), float(taps.weights[k])))
    total = ""
    for number in range(max(map(len, lists), default=0)):
        some = [row[number] if number < len(row) else (0, 0.0) for row in lists]
        columns = w.constant(np.array([c for c, _ in some], np.int64))
        part = w("Gather", x, columns, axis=dim)
        shape = [rows, *[1] * (rank - 1 - dim)]
        weights = np.array([v for _, v in some]).reshape(shape)
        if not (weights == 1).all():
            there = np.array([number < len(row) for row in lists]).reshape(shape)
            part = w("Mul", part, w.constant(weights, dtype))
            if not there.all():
                part = w("Where", w.constant(there), part, w.constant(0, dtype))
        total = w("Add", total, part) if total else part
    if not total:
        zero = w.constant(0, dtype)
        return w("Expand", zero, w.ints(node.shape))
    return total
