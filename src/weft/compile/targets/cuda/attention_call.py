"""Attention and its gradients as launches on a GPU.

Operands are read through the views they are, as strides, if their features are
contiguous; others are copied first.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.compile.program.steps import LibraryCall
from weft.compile.program.strided_views import batches, outline, view_of
from weft.compile.targets.cpu.attention.call import is_apart
from weft.compile.targets.cuda.attention import ARRAYS, DEPTHS, OUTPUTS, Form
from weft.compile.targets.cuda.tensor_cores import CHUNK, NAMES
from weft.core.lowering import Library
from weft.core.size import Size
from weft.graph.interpret import resolve
from weft.graph.ir import Node
from weft.runtime import argument_words


class Attention(LibraryCall):
    """Attention or its gradients; each output that is used is a value of its own."""

    copies = staticmethod(is_apart)

    @staticmethod
    def computes(node: Node) -> bool:
        """Whether tensor cores compute it: half-precision numbers without a mask."""
        rule = node.op.lower
        if not isinstance(rule, Library) or rule.family != "attention":
            return False
        if len(node.inputs) != len(rule.operands) - 1:
            return False
        if not all(type(i) is Node for i in node.inputs):
            return False
        q, _, v = node.inputs[:3]
        depth = q.shape[-1]
        if isinstance(depth, Size) or v.shape[-1] != depth or q.dtype.name not in NAMES:
            return False
        return (
            0 < depth <= max(DEPTHS) and not depth % CHUNK and node.params["scale"] > 0
        )

    @staticmethod
    def row_axes(node: Node) -> int | None:
        return None

    def work(self, sizes: Mapping[str, int], target: Any) -> AttentionWork | None:
        views = [view_of(operand, sizes) for operand in self.operands]
        if any(view is None for view in views):
            return None
        names = self.node.op.lower.operands
        arrays: dict[str, Any] = {}
        for name, view, operand in zip(names, views, self.operands, strict=False):
            array, start = view
            offset = array.ctypes.data - start.ctypes.data
            arrays[name] = Placed(array, offset, operand.base)
        for pick in self.picks:
            name = self.node.op.outputs[pick.params["index"]]
            array = outline(resolve(pick.shape, sizes), pick.dtype.np)
            arrays[name] = Placed(array, 0, pick)
        if not all(a.fits() for a in arrays.values()):
            return None
        if not arrays["q"].array.size or not arrays["k"].array.size:
            return None
        params = resolve(self.node.params, sizes)
        return AttentionWork(arrays, params["causal"], params["scale"], target)


class Placed:
    """An array of a call: its strides, and where it is in a value."""

    def __init__(self, array: np.ndarray, offset: int, node: Node) -> None:
        self.array, self.offset, self.node = array, offset, node
        self.strides = [s // array.itemsize for s in array.strides]

    def fits(self) -> bool:
        """Whether all rows begin where chunks may."""
        if self.array.itemsize != 2:  # numbers of rows are read one by one
            return True
        steps = [s for s, n in zip(self.strides[:-1], self.array.shape, strict=False)
                 if n > 1]  # fmt: skip
        return not any(n % CHUNK for n in (*steps, self.offset // 2))


class AttentionWork:
    """The launches of an attention for some sizes."""

    scratch = 0

    def __init__(
        self, arrays: Mapping[str, Placed], causal: bool, scale: float, shared: Any
    ) -> None:
        self.arrays, self.shared = arrays, shared
        self.nodes = [placed.node for placed in arrays.values()]
        q, k = arrays["q"].array, arrays["k"].array
        depth = next(n for n in DEPTHS if n >= q.shape[-1])
        lead = len(q.shape) - 2
        forward = "g" not in arrays
        kinds = [
            kind for kind, names in OUTPUTS.items()
            if (kind == "forward") == forward and not arrays.keys().isdisjoint(names)
        ]  # fmt: skip
        self.forms = [Form(kind, _name(q), depth, causal) for kind in kinds]
        self.sizes = [
            struct.unpack("<q", struct.pack("<d", scale))[0],
            q.shape[-2], k.shape[-2], q.shape[-1],
        ]  # fmt: skip
        strides = [placed.strides[:lead] for placed in arrays.values()]
        self.batches = batches(q.shape[:-2], strides, most=2)

    def run(self, runtime: Any, places: Any, addresses: Sequence[int]) -> None:
        """Put the launches into the queue."""
        for form in self.forms:
            own = self.sizes[2 if form.kind == "keys" else 1]
            blocks = -(-own // form.rows) * math.prod(self.batches.sizes)
            function = self.shared.attention(form)
            for words in self._arguments(form, places, addresses):
                runtime.launch(
                    function, blocks, 32 * form.shape.warps, argument_words(words),
                    form.block_memory,
                )  # fmt: skip

    def _arguments(self, form: Form, places: Any, addresses: Sequence[int]) -> Any:
        """The arguments of the launches for each stack of matrices."""
        order = list(self.arrays)
        for offsets in self.batches.offsets:
            starts, strides = [], []
            for name in ARRAYS[form.kind]:
                if name not in self.arrays:  # a result that nobody reads
                    starts.append(0)
                    strides += [0, 0, 0]
                    continue
                placed, k = self.arrays[name], order.index(name)
                start = addresses[places[placed.node]] + placed.offset
                starts.append(start + offsets[k] * placed.array.itemsize)
                row = placed.strides[-1 if name in ("lse", "delta") else -2]
                strides += [*[steps[k] for steps in self.batches.steps], row]
            yield [*starts, *self.sizes, self.batches.sizes[1], *strides]


def _name(array: np.ndarray) -> str:
    return "float16" if array.dtype == np.float16 else "bfloat16"
