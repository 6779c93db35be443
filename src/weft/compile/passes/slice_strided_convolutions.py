"""A convolution of single pixels with a stride is one of the pixels that it reads.

    conv(x, w, stride=2)         →  conv(x[:, :, ::2, ::2], w)
    conv_weight_grad(x, y, ...)  →  conv_weight_grad(x[:, :, ::2, ::2], y)
    conv_input_grad(y, w, ...)   →  place(conv_input_grad(y, w), (:, :, ::2, ::2))

Without a stride, such a convolution is a product of matrices. A network's forward and
backward pass read the same pixels, which are copied once, and the zeros between the
pixels of the input's gradient fuse with the sum that it is a term of.
"""

from __future__ import annotations

from weft.compile.passes.walk import Call, Replacement, Walk
from weft.core.op import find_op
from weft.graph.ir import Graph, Node

_CONV, _BIASED = find_op("conv"), find_op("conv_bias")
_INPUT_GRAD, _WEIGHT_GRAD = find_op("conv_input_grad"), find_op("conv_weight_grad")
_SLICE, _PLACE = find_op("slice"), find_op("place")


def slice_strided_convolutions(graph: Graph) -> Graph:
    """Replace strided convolutions of single pixels by slices and products.

    >>> def fn(x, w):
    ...     return weft.nn.functional.conv2d(x, w, stride=2)
    >>> g = weft.graph.capture(fn, weft.ones(1, 4, 9, 9), weft.ones(2, 4, 1, 1)).graph
    >>> g = weft.compile.passes.slice_strided_convolutions(g)
    >>> [node.op.name for node in g if node.inputs]
    ['slice', 'conv']
    """
    return _Strides(graph).run()


class _Strides(Walk):
    ops = frozenset([_CONV, _BIASED, _INPUT_GRAD, _WEIGHT_GRAD])

    def visit(self, node: Node) -> Replacement:
        if node.op not in self.ops or not _is_thin(node):
            return None
        steps = node.params["stride"]
        index = (slice(None), slice(None), *[slice(None, None, s) for s in steps])
        params = {**node.params, "stride": (1,) * len(steps)}
        if node.op is _INPUT_GRAD:
            params["size"] = tuple(node.inputs[0].shape[2:])  # of the result's gradient
            product = Call(node.op, node.inputs, params)
            return Call(_PLACE, (product,), {"shape": node.shape, "index": index})
        x, *others = node.inputs
        return Call(node.op, (Call(_SLICE, (x,), {"index": index}), *others), params)


def _is_thin(node: Node) -> bool:
    """Whether windows are single pixels of images of known sizes, with a stride."""
    params = node.params
    if all(s == 1 for s in params["stride"]) or any(map(any, params["padding"])):
        return False
    ends = {_INPUT_GRAD: (node, node.inputs[1]), _WEIGHT_GRAD: (node.inputs[0], node)}
    image, kernel = ends.get(node.op, node.inputs[:2])
    sizes = kernel.shape[2:], image.shape[2:]
    if not all(type(n) is int for size in sizes for n in size):
        return False
    return all(n == 1 for n in sizes[0]) and all(n > 0 for n in sizes[1])
