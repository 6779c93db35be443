"""Convolutions and their gradients as launches of the generated kernels.

Operands are row-major: one that is a view of anything but a whole value is copied
first. Sizes are known when the jobs are made, so symbolic ones cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from weft.compile.emit.isa import Isa
from weft.compile.program.steps import LibraryCall
from weft.compile.program.strided_views import is_moved
from weft.compile.targets.cpu.convolution.arrays import compiled
from weft.compile.targets.cpu.convolution.job_builder import Plan
from weft.compile.targets.cpu.convolution.shape import Shape, shape_of
from weft.compile.targets.cpu.executable import Symbol
from weft.compile.targets.cpu.jobs import Job, Pointer, Work
from weft.compile.tuning.choices import Columns, chosen, threaded
from weft.config import config
from weft.core.lowering import Library
from weft.graph.interpret import resolve
from weft.graph.ir import Node
from weft.runtime.cpu import pool


def is_convolution(node: Node) -> bool:
    """Whether a node is a convolution that the generated kernels compute."""
    rule = node.op.lower
    if not isinstance(rule, Library) or rule.family != "conv":
        return False
    if node.dtype.name not in ("float32", "float64"):
        return False
    return len(node.shape) <= 5 and all(type(i) is Node for i in node.inputs)


class Convolution(LibraryCall):
    """A convolution, or one of its gradients, with its epilogue."""

    computes = staticmethod(is_convolution)
    copies = staticmethod(is_moved)

    @staticmethod
    def row_axes(node: Node) -> int | None:
        """Channels of images, or of weights; phases of a stride have no rows."""
        kind = node.op.lower.kind
        if kind == "input_grad" and any(s != 1 for s in node.params["stride"]):
            return None
        return 1 if kind == "weight_grad" else 2

    def fits(self, sizes: Mapping[str, int], isa: Isa) -> bool:
        """Whether its epilogue needs no whole rows: tasks have some pixels each."""
        return self.epilogue is None or not self.epilogue.whole

    def _shape(self, sizes: Mapping[str, int]) -> Shape:
        node = self.node
        inputs = [resolve(i.shape, sizes) for i in node.inputs]
        params = resolve(node.params, sizes)
        return _shape(node.op.lower.kind, inputs, resolve(node.shape, sizes), params)

    def key(self, sizes: Mapping[str, int]) -> str:
        """The key under which a choice for this convolution is stored."""
        kind = f"{self.node.op.lower.kind} {self.node.dtype.name} {_is_exact()}"
        return threaded(f"convolution {kind} {self._shape(sizes)}")

    def work(self, sizes: Mapping[str, int], isa: Isa) -> Work | None:
        """Jobs for a part of the result each."""
        node = self.node
        shape = self._shape(sizes)
        if 0 in resolve(node.shape, sizes):
            return None
        code = compiled(node.dtype.name, isa)
        threads = max(pool.get_num_threads(), 2)
        cuts = chosen(self.key(sizes), Columns())
        plan = code.plan(node.op.lower.kind, shape, threads, _is_exact(), cuts)
        bases = [*[o.base for o in self.operands], node]
        pointers = _pointers(plan, bases)
        assert self.epilogue is None or plan.epilogue >= 0
        jobs = [
            Job(fields, pointers, tables)
            for fields, tables in zip(plan.jobs, plan.tables, strict=True)
        ]
        function = Symbol("conv", node.dtype.name, plan.function)
        return Work(function, jobs, plan.tasks, plan.workspace, plan.epilogue + 1)


def _is_exact() -> bool:
    """Whether sums are of products of elements: tiles are for many images."""
    return config.strict_ieee or config.batch_invariant


def _pointers(plan: Plan, bases: list[Node]) -> list[Pointer]:
    return [Pointer(at, base) for at, base in zip(plan.pointers, bases, strict=True)]


def _shape(kind: str, inputs: list[Any], out: Any, params: dict[str, Any]) -> Shape:
    """The convolution that a node is, or is a gradient of."""
    ends: dict[str, Callable[[], Any]] = {
        "forward": lambda: (inputs[0], inputs[1]),
        "biased": lambda: (inputs[0], inputs[1]),
        "input_grad": lambda: (out, inputs[1]),
        "weight_grad": lambda: (inputs[0], out),
    }
    x, w = ends[kind]()
    names = "stride", "padding", "dilation", "groups"
    return shape_of(x, w, *(params[name] for name in names))
