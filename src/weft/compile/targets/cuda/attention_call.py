"""Attention and its gradients as launches on a GPU.

Operands are read through the views they are, as strides, if their features are
contiguous; others are copied first.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from weft.compile.program.steps import LibraryCall
from weft.compile.program.strided_views import batches, outline, view_of
from weft.compile.targets.cpu.attention.call import is_apart
from weft.compile.targets.cuda import attention, warpgroup_attention
from weft.compile.targets.cuda.attention import ARRAYS, DEPTHS, OUTPUTS
from weft.compile.targets.cuda.tensor_cores import CHUNK, NAMES
from weft.compile.targets.cuda.warpgroups import SIDE
from weft.core.lowering import Library
from weft.core.size import Size
from weft.graph.interpret import resolve
from weft.graph.ir import Node
from weft.runtime import argument_words

KEPT = 64  # sets of addresses whose launches are kept, for a call


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
        self.warpgroups = shared.warpgroups is not None
        make: Any = warpgroup_attention.Form if self.warpgroups else attention.Form
        self.forms = [make(kind, _name(q), depth, causal) for kind in kinds]
        self.sizes = [
            struct.unpack("<q", struct.pack("<d", scale))[0],
            q.shape[-2], k.shape[-2], q.shape[-1],
        ]  # fmt: skip
        strides = [placed.strides[:lead] for placed in arrays.values()]
        self.batches = batches(q.shape[:-2], strides, most=2)
        self._launches: dict[tuple[int, ...], list[Any]] = {}

    def run(self, runtime: Any, places: Any, addresses: Sequence[int]) -> None:
        """Put the launches into the queue."""
        where = tuple(addresses[places[node]] for node in self.nodes)
        launches = self._launches.get(where)
        if launches is None:
            if len(self._launches) >= KEPT:
                self._launches.clear()
            launches = self._launches[where] = list(self._described(runtime, where))
        for launch in launches:
            runtime.launch(*launch)

    def _described(
        self, runtime: Any, where: Sequence[int]
    ) -> Iterator[tuple[Any, int, int, np.ndarray, int]]:
        """The arguments of the runtime's launches, for the addresses of all values."""
        matrices = math.prod(self.batches.sizes)
        for form in self.forms:
            function = self.shared.attention(form)
            own = self.sizes[2 if form.kind == "keys" else 1]
            for offsets in self.batches.offsets:
                starts = self._starts(where, offsets)
                if self.warpgroups:
                    pairs = form.blocks(own, matrices)
                    blocks, threads = min(pairs, runtime.multiprocessors), form.threads
                    words = self._mapped(runtime, form, starts)
                else:
                    blocks = -(-own // form.rows) * matrices
                    threads = 32 * form.shape.warps
                    words = self._plain(form.kind, starts)
                memory = form.block_memory
                yield function, blocks, threads, argument_words(words), memory

    def _starts(self, where: Sequence[int], offsets: Sequence[int]) -> dict[str, int]:
        """The addresses of the arrays, for one of the stacks of matrices."""
        return {
            name: start + placed.offset + offset * placed.array.itemsize
            for (name, placed), start, offset in zip(
                self.arrays.items(), where, offsets, strict=True
            )
        }

    def _strides(self, name: str) -> list[int]:
        """From one matrix to the next, outer and inner, and from row to row."""
        if name not in self.arrays:  # a result that nobody reads
            return [0, 0, 0]
        placed, k = self.arrays[name], list(self.arrays).index(name)
        row = placed.strides[-1 if name in ("lse", "delta") else -2]
        return [*[steps[k] for steps in self.batches.steps], row]

    def _plain(self, kind: str, starts: Mapping[str, int]) -> list[Any]:
        """The arguments of ``targets.cuda.attention``."""
        names = ARRAYS[kind]
        strides = [n for name in names for n in self._strides(name)]
        addresses = [starts.get(name, 0) for name in names]
        return [*addresses, *self.sizes, self.batches.sizes[1], *strides]

    def _mapped(self, runtime: Any, form: Any, starts: Mapping[str, int]) -> list[Any]:
        """The arguments of ``targets.cuda.warpgroup_attention``."""
        maps = [self._map(runtime, form, name, starts[name]) for name in form.maps]
        strides = [n for name in form.plain for n in self._strides(name)]
        steps = [int(n != 0) for name in form.maps for n in self._strides(name)[:2]]
        addresses = [starts.get(name, 0) for name in form.plain]
        inner, matrices = self.batches.sizes[1], math.prod(self.batches.sizes)
        return [*maps, *addresses, *self.sizes, inner, matrices, *strides, *steps]

    def _map(self, runtime: Any, form: Any, name: str, start: int) -> np.ndarray:
        """An array as the copy engine is told of it: features, rows, inner, outer."""
        own = name in warpgroup_attention.OWN[form.kind]
        box = SIDE, form.rows if own else form.shape.step, 1, 1
        placed = self.arrays[name]
        outer, inner, row = self._strides(name)
        counts = [
            n if step else 1
            for n, step in zip(self.batches.sizes, (outer, inner), strict=True)
        ]
        rows, depth = placed.array.shape[-2:]
        row = row if rows > 1 else depth
        strides = [2 * row, 2 * (inner or row), 2 * (outer or row)]
        shape = depth, rows, *reversed(counts)
        return runtime.tensor_map(start, form.dtype, shape, strides, box)


def _name(array: np.ndarray) -> str:
    return "float16" if array.dtype == np.float16 else "bfloat16"
