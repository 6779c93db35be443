"""Convolutions and their gradients as calls of cuDNN.

Operands are contiguous: one that is a view of anything but a whole value is copied
first. Memory for an algorithm's intermediate values is in the program's arena.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from weft.compile.program.steps import LibraryCall
from weft.compile.program.strided_views import is_moved
from weft.compile.targets.cuda.cost_model import COST
from weft.config import config
from weft.core.lowering import Library
from weft.core.size import Size
from weft.graph.interpret import resolve
from weft.graph.ir import Node
from weft.ops.conv import is_pointwise
from weft.runtime.cuda.cudnn import KINDS, PASSES, Algorithm, Shape
from weft.runtime.cuda.cudnn import Convolution as Descriptors

MOST_AXES = 5  # of an array
MOST_ELEMENTS = (1 << 31) - 1  # of an array: cuDNN counts them in 32 bits
INPUTS = {"forward": "xw", "input_grad": "yw", "weight_grad": "xy"}
RESULT = {"forward": "y", "input_grad": "x", "weight_grad": "w"}


class Convolution(LibraryCall):
    """A convolution, or one of its gradients."""

    copies = staticmethod(is_moved)

    @staticmethod
    def computes(node: Node) -> bool:
        """Whether cuDNN computes a node; single pixels are products of matrices."""
        rule = node.op.lower
        if not isinstance(rule, Library) or rule.family not in ("conv", "conv_last"):
            return False
        if rule.kind not in PASSES or not all(type(i) is Node for i in node.inputs):
            return False
        if rule.family == "conv" and is_pointwise(node):
            return False
        arrays = [*node.inputs, node]
        if node.dtype.name not in KINDS or len(node.shape) > MOST_AXES:
            return False
        if any(low != high or low < 0 for low, high in node.params["padding"]):
            return False
        return all(map(_is_countable, arrays))

    @staticmethod
    def row_axes(node: Node) -> int | None:
        return None

    def work(self, sizes: Mapping[str, int], target: Any) -> ConvolutionWork | None:
        shapes = [resolve(n.shape, sizes) for n in (*self.node.inputs, self.node)]
        counts = [math.prod(shape) for shape in shapes]
        if 0 in counts or max(counts) > MOST_ELEMENTS:
            return None
        made = ConvolutionWork(self, shapes, resolve(self.node.params, sizes), target)
        return made if all(made.algorithms.values()) else None


class ConvolutionWork:
    """The calls of cuDNN for a convolution of some sizes."""

    def __init__(
        self, call: Convolution, shapes: Sequence[Any], params: Any, shared: Any
    ) -> None:
        kind, last = call.node.op.lower.kind, call.node.op.lower.family == "conv_last"
        names = INPUTS[kind] + RESULT[kind]
        if last:
            shapes = [(s[0], s[-1], *s[1:-1]) for s in shapes]
        sizes = dict(zip(names, map(tuple, shapes), strict=True))
        shape = Shape(
            kind, call.node.dtype.name, sizes["x"], sizes["w"], sizes["y"],
            params["stride"], tuple(low for low, _ in params["padding"]),
            params["dilation"], params["groups"], channels_last=last,
        )  # fmt: skip
        self.call, self.shared = call, shared
        self.nodes = [*[operand.base for operand in call.operands], call.node]
        self.names = names
        rounds = (False, True) if shape.dtype == "float32" else (False,)
        self.descriptors: dict[bool, Descriptors] = {
            tf32: shared.cudnn.convolution(shape._replace(tf32=tf32)) for tf32 in rounds
        }
        costs = COST.convolutions
        self.algorithms: dict[bool, list[Algorithm]] = {
            tf32: one.algorithms(costs.workspace)[: costs.candidates]
            for tf32, one in self.descriptors.items()
        }
        all_ = [one for found in self.algorithms.values() for one in found]
        self.scratch = max((one.workspace for one in all_), default=0)

    def run(self, runtime: Any, places: Any, addresses: Sequence[int]) -> None:
        """Put the call into the queue."""
        where = {
            name: addresses[places[node]]
            for name, node in zip(self.names, self.nodes, strict=True)
        }
        workspace = addresses[places[self.call]] if self.scratch else 0
        rounds = len(self.descriptors) > 1 and config.matmul_precision != "highest"
        one = self.descriptors[rounds]
        candidates = {
            f"cuDNN {a.number}, arithmetic {a.math}": functools.partial(
                one.run, a, where, workspace
            )
            for a in self.algorithms[rounds]
        }
        key = f"cuDNN {self.shared.cudnn.version} {one.shape}"
        candidates[self.shared.product_choices.of(key, candidates)]()


def _is_countable(node: Node) -> bool:
    """Whether an array is not known to have too many elements."""
    known = [n for n in node.shape if not isinstance(n, Size)]
    return math.prod(known) <= MOST_ELEMENTS
