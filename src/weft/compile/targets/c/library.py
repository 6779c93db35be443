"""Nodes that C computes as a whole: products, windows, branches and loops."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from weft import dtype as dtypes
from weft.compile.emit.scalar import HALF
from weft.compile.fusion.groups import Operand
from weft.compile.loop.depend import flat_position
from weft.compile.loop.ranges import coefficient
from weft.compile.loop.rewrite import substitute
from weft.compile.passes.rename_sizes import both_spellings
from weft.compile.program.bodies import is_control_flow, is_moved, programs_of
from weft.compile.program.steps import LibraryCall
from weft.compile.targets.c.memory import CLayout, lay_out, rounded
from weft.compile.targets.c.products import packed, write_product
from weft.compile.targets.c.windows import write_windows
from weft.core.lowering import View
from weft.core.size import Scope, Size, evaluate, same
from weft.graph.control.branch import cond_op
from weft.graph.control.repeat import scan_op
from weft.graph.ir import CONSTANT, Node
from weft.ops.conv import im2col_op
from weft.ops.products import matmul_op, wide_matmul_op


class Work(NamedTuple):
    """Memory that a call needs while it runs: its bytes, and where its parts begin."""

    scratch: Any = 0
    places: dict[Any, Any] = {}
    bodies: Sequence[CLayout] = ()


def library_call_of(node: Node) -> type[LibraryCall] | None:
    """The library call that computes a node, if there is one."""
    return next((kind for kind in LIBRARY if kind.computes(node)), None)


# -- matrix products


class Strides(NamedTuple):
    """Where the elements of an operand are: an offset, and a step for each axis."""

    offset: Any
    steps: list[Any]


def strides_of(operand: Operand, rank: int) -> Strides | None:
    """An operand's steps in its base, in elements; None if they are not constant."""
    scope = Scope()
    names = [f"k{d}" for d in range(rank)]
    index = operand.index(tuple(map(scope.symbol, names)))
    position = flat_position(index, operand.base.shape)
    steps = [coefficient(position, name) for name in names]
    if any(step is None for step in steps):
        return None
    for name in names:
        position = substitute(position, name=name, by=0)
    return Strides(position, steps)


@dataclass(frozen=True, eq=False)
class Product(LibraryCall):
    """A matrix product, whose operands are read through their strides."""

    @staticmethod
    def computes(node: Node) -> bool:
        if node.op is not matmul_op and node.op is not wide_matmul_op:
            return False
        inputs = [i for i in node.inputs if type(i) is Node]
        if len(inputs) != 2 or {len(i.shape) for i in inputs} != {len(node.shape)}:
            return False
        kinds = [i.dtype for i in inputs]
        short = node.dtype.name in HALF  # a wide product does not round on the way
        return kinds[0] is kinds[1] and _multiplies(kinds[0]) and not short

    @staticmethod
    def copies(node: Node) -> bool:
        return strides_of(Operand(node), len(node.shape)) is None

    @staticmethod
    def row_axes(node: Node) -> int | None:
        return None

    def work(self, sizes: Mapping[str, int], target: Any) -> Work:
        return Work()

    def write(self, f: Any) -> None:
        """Write the calls of the product's function: one, or one for each matrix."""
        shape = self.node.shape
        a, b = (strides_of(o, len(shape)) for o in self.operands)
        assert a is not None
        assert b is not None
        rows, columns = shape[-2:]
        depth = self.inputs[0].shape[-1]
        outer = list(range(len(shape) - 2))
        while outer:  # matrices that are rows of one
            d = outer[-1]
            if not same(b.steps[d], 0) or not same(a.steps[d], rows * a.steps[-2]):
                break
            rows = rows * shape[d]
            outer.pop()
        made: list[Any] = []  # the steps of the result's outer axes
        for d in reversed(outer):
            made.insert(0, made[0] * shape[d + 1] if made else rows * columns)
        kind = self.inputs[0].dtype
        name = write_product(f.source, kind, self.node.dtype)
        panels = self._packed(f, b, outer)
        numbers = [rows, depth, columns, *a.steps[-2:], *b.steps[-2:],
                   int(panels is not None)]  # fmt: skip
        scope = Scope()
        loops = [scope.symbol(f"k{d}") for d in outer]
        with f.loops([(f"k{d}", shape[d]) for d in outer]):
            places = [
                f.pointer(
                    operand.base,
                    _sum(
                        [at, *[k * steps[d] for k, d in zip(loops, outer, strict=True)]]
                    ),
                )
                for operand, (at, steps) in zip(
                    self.operands[: 1 if panels else 2], (a, b), strict=False
                )
            ]
            at = _sum(k * step for k, step in zip(loops, made, strict=True))
            places += [panels] if panels else []
            work = rows * columns * depth
            f.call(name, [*places, f.pointer(self.node, at)], numbers, rows, work)

    def _packed(self, f: Any, b: Strides, outer: Sequence[int]) -> str | None:
        """The address of the right operand's panels, if it is a constant matrix."""
        base, node = self.operands[1].base, self.inputs[1]
        shape = (*node.shape[-2:], *[b.steps[d] for d in outer])
        known = all(type(n) is int for n in shape) and not any(shape[2:])
        if base.op is not CONSTANT or not known or node.dtype.name not in _PACKED:
            return None
        readers = {n for n in f.graph.nodes for i in n.inputs
                   if type(i) is Node and Operand(i).base is base}  # fmt: skip
        if not all(n.op is self.node.op or isinstance(n.op.lower, View)
                   for n in readers):  # fmt: skip
            return None  # there would be two copies
        flat = base.params["value"].reshape(-1)[int(b.offset) :]
        steps = [int(n) * flat.itemsize for n in b.steps[-2:]]
        matrix = np.lib.stride_tricks.as_strided(flat, shape[:2], steps)
        return f.array(packed(matrix), node.dtype)


_PACKED = ("float32", "float64")  # dtypes that panels have, too


def _sum(terms: Iterable[Any]) -> Any:
    total: Any = 0
    for term in terms:
        total = total + term
    return total


def _multiplies(dtype: Any) -> bool:
    return not dtype.is_complex and dtype is not dtypes.bool_


# -- windows of convolutions


@dataclass(frozen=True, eq=False)
class Windows(LibraryCall):
    """Windows of images with two dimensions, as columns."""

    @staticmethod
    def computes(node: Node) -> bool:
        return node.op is im2col_op and len(node.params["kernel"]) == 2

    copies = staticmethod(is_moved)

    @staticmethod
    def row_axes(node: Node) -> int | None:
        return None

    def work(self, sizes: Mapping[str, int], target: Any) -> Work:
        return Work()

    def write(self, f: Any) -> None:
        """Write the call of the function for the images' dtype."""
        p, shape = self.node.params, self.node.shape
        height, width = self.inputs[0].shape[2:]
        numbers: list[Any] = [height, width]
        for d in range(2):
            numbers += [p["kernel"][d], p["stride"][d], p["padding"][d][0]]
            numbers += [p["dilation"][d], shape[4 + d]]
        places = [operand_pointer(f, self, 0), f.pointer(self.node)]
        name = write_windows(f.source, self.node.dtype)
        f.call(name, places, numbers, shape[0] * shape[1], math.prod(shape))


def operand_pointer(f: Any, call: LibraryCall, k: int) -> str:
    """The address of an operand that is contiguous in its base."""
    operand, rank = call.operands[k], len(call.inputs[k].shape)
    at = flat_position(operand.index((0,) * rank), operand.base.shape)
    return f.pointer(operand.base, at)


# -- control flow


@dataclass(frozen=True, eq=False)
class ControlFlow(LibraryCall):
    """A branch or a loop; each output that is used is a value of its own."""

    computes = staticmethod(is_control_flow)
    copies = staticmethod(is_moved)
    solo = True
    checks = True  # a body may

    @property
    def bodies(self) -> list[Any]:
        return programs_of(self.node)

    @staticmethod
    def row_axes(node: Node) -> int | None:
        return None

    @cached_property
    def _picked(self) -> dict[int, Node]:
        return {pick.params["index"]: pick for pick in self.picks}

    @property
    def _sizes(self) -> dict[str, Any]:
        """The sizes that the bodies depend on, by their names there."""
        return dict(self.node.params["sizes"])

    # -- memory

    def work(self, sizes: Mapping[str, int], target: Any) -> Work | None:
        if len(self._picked) != len(self.picks):
            return None  # an output is asked for twice
        known = {k: evaluate(n, sizes) for k, n in self._sizes.items()
                 if not isinstance(n, Size) or n.symbols <= sizes.keys()}  # fmt: skip
        known = both_spellings(known)
        layouts = [lay_out(program.lowered, known) for program in self.bodies]
        places: dict[Any, Any] = {}
        total: Any = 0
        for key, nbytes in self._reserved(layouts):
            if isinstance(nbytes, Size) and nbytes.symbols <= sizes.keys():
                nbytes = nbytes.evaluate(sizes)
            places[key] = total
            total = total + rounded(nbytes)
        return Work(total, places, layouts)

    def _reserved(self, layouts: Sequence[CLayout]) -> list[tuple[Any, Any]]:
        """The bodies' workspaces, new values of carries, and results nobody reads."""
        kinds, p = self.node.type, self.node.params
        found: list[tuple[Any, Any]] = []
        for k, layout in enumerate(layouts):
            found.append((("body", k), self._outside(layout.nbytes)))
        for k, kind in enumerate(kinds):
            if k not in self._picked:
                found.append((("result", k), _nbytes(kind)))
        if self.node.op is not cond_op:
            body = p["body"]
            count = p.get("carried", len(body.outputs))
            carries = self.node.inputs[p["fixed"] : p["fixed"] + count]
            found += [(("new", k), _nbytes(one.type)) for k, one in enumerate(carries)]
        return found

    def _outside(self, size: Any) -> Any:
        """A size of the bodies in the sizes of the graph around them."""
        sizes = both_spellings(self._sizes)
        for name in sizes:  # first apart, lest one be another's name
            if isinstance(size, Size) and name in size.symbols:
                size = substitute(size, name=name, by=size.scope.symbol(f'{name}"'))
        for name, value in sizes.items():
            size = substitute(size, name=f'{name}"', by=value)
        return size

    # -- code

    def write(self, f: Any) -> None:
        """Write the loop or the branch, and the functions of its bodies."""
        self._lines(f, f.layout.jobs.works[self])

    def _lines(self, f: Any, work: Work) -> None:
        functions = [
            f.body(program.lowered, layout, list(self._sizes))
            for program, layout in zip(self.bodies, work.bodies, strict=True)
        ]
        write = {cond_op: self._cond, scan_op: self._scan}.get(
            self.node.op, self._while_loop
        )
        write(f, functions, work)

    def _result(self, f: Any, work: Work, k: int) -> str:
        pick = self._picked.get(k)
        return f.pointer(pick) if pick else f.scratch(self, work.places["result", k])

    def _call(
        self, f: Any, work: Work, number: int, name: str, io: list[str], step: str
    ) -> str:
        """A call of a body's function, as an expression."""
        at = f.scratch(self, work.places["body", number])
        sizes = [f.text_of(n) for n in self._sizes.values()]
        numbers = ", ".join([step, *sizes])
        pointers = ", ".join(["io[0]", *io])
        return f"{name}({at}, (void *[]){{{pointers}}}, (int64_t[]){{{numbers}}})"

    def _cond(self, f: Any, functions: list[str], work: Work) -> None:
        results = [self._result(f, work, k) for k in range(len(self.node.type))]
        operands = [operand_pointer(f, self, k) for k in range(1, len(self.inputs))]
        calls = [
            self._call(f, work, k, name, [*operands, *results], "0")
            for k, name in enumerate(functions)
        ]
        f.line(f"if (*(const uint8_t *)({operand_pointer(f, self, 0)}) != 0) {{")
        f.line(f"  if ({calls[0]}) return 1;")
        f.line(f"}} else if ({calls[1]}) return 1;")

    def _scan(self, f: Any, functions: list[str], work: Work) -> None:
        p, kinds = self.node.params, self.node.type
        fixed, carried = p["fixed"], p["carried"]
        start, stacked = fixed + carried, set(p.get("stacked", ()))
        length, reverse = f.text_of(p["length"]), p["reverse"]
        new = f"({length}) - 1 - step" if reverse else "step"
        f.line("{")
        carries = self._carries(f, work, fixed, range(carried), work.bodies[0], stacked,
                                length if reverse else "0")  # fmt: skip
        inputs = [operand_pointer(f, self, k) for k in range(fixed)]
        inputs += [c.given for c in carries]
        for k in range(start, len(self.inputs)):
            row = _nbytes(_row(self.node.inputs[k].type))
            inputs.append(f"{operand_pointer(f, self, k)} + at * ({f.text_of(row)})")
        outputs = [c.new for c in carries]
        for k in range(carried, len(kinds)):
            row = _nbytes(_row(kinds[k]))
            outputs.append(f"{self._result(f, work, k)} + at * ({f.text_of(row)})")
        f.line(f"  for (int64_t step = 0; step < {length}; step++) {{")
        f.line(f"    const int64_t at = {new};")
        f.line("    (void)at;")
        for one in carries:
            if one.given != one.old:
                f.line(f"    memcpy({one.given}, {one.old}, {one.nbytes});")
        call = self._call(f, work, 0, functions[0], [*inputs, *outputs], "step")
        f.line(f"    if ({call}) return 1;")
        for one in carries:
            if one.moves:
                f.line(f"    memcpy({one.old}, {one.new}, {one.nbytes});")
        f.line("  }")
        f.line("}")

    def _while_loop(self, f: Any, functions: list[str], work: Work) -> None:
        fixed = self.node.params["fixed"]
        count = len(self.node.type) - 1
        f.line("{")
        carries = self._carries(
            f, work, fixed, range(1, count + 1), work.bodies[1], (), ""
        )
        operands = [operand_pointer(f, self, k) for k in range(fixed)]
        old = [*operands, *[c.old for c in carries]]
        ask = self._call(f, work, 0, functions[0], [*old, "&goes_on"], "step")
        new = self._call(
            f, work, 1, functions[1], [*old, *[c.new for c in carries]], "step"
        )
        f.line("  int64_t step = 0;")
        f.line("  uint8_t goes_on = 0;")
        f.line(f"  if ({ask}) return 1;")
        f.line("  while (goes_on != 0) {")
        f.line(f"    if ({new}) return 1;")
        for one in carries:
            if one.moves:
                f.line(f"    memcpy({one.old}, {one.new}, {one.nbytes});")
        f.line("    step++;")
        f.line(f"    if ({ask}) return 1;")
        f.line("  }")
        f.line(f"  memcpy({self._result(f, work, 0)}, &step, sizeof step);")
        f.line("}")

    def _carries(
        self, f: Any, work: Work, fixed: int, outs: range, body: CLayout,
        stacked: Any, first: str,
    ) -> list[_Carry]:  # fmt: skip
        """The memory of each carry, which begins with its first value."""
        held = body.lowered.aliasing.carried
        graph, found = body.lowered.graph, []
        for k, out in enumerate(outs):
            nbytes = f.text_of(_nbytes(self.node.inputs[fixed + k].type))
            place, start = (
                self._result(f, work, out),
                operand_pointer(f, self, fixed + k),
            )
            in_place = held.get(graph.outputs[k]) is graph.inputs[fixed + k]
            if k in stacked:
                f.line(
                    f"  memcpy({place} + ({first}) * ({nbytes}), {start}, {nbytes});"
                )
                before, after = (
                    ("(at + 1)", "at") if first != "0" else ("at", "(at + 1)")
                )
                old, new = (f"{place} + {i} * ({nbytes})" for i in (before, after))
                given = new if in_place else old
                found.append(_Carry(given, old, new, nbytes, moves=False))
                continue
            f.line(f"  memcpy({place}, {start}, {nbytes});")
            new = place if in_place else f.scratch(self, work.places["new", k])
            found.append(_Carry(place, place, new, nbytes, moves=not in_place))
        return found


class _Carry(NamedTuple):
    """The memory of a carry: which the body is given, of the old and the new value."""

    given: str
    old: str
    new: str
    nbytes: str
    moves: bool  # whether the new value is copied over the old


def _row(kind: Any) -> Any:
    return kind._replace(shape=kind.shape[1:])


def _nbytes(kind: Any) -> Any:
    return math.prod(kind.shape) * kind.dtype.itemsize


LIBRARY: tuple[type[LibraryCall], ...] = (Product, Windows, ControlFlow)
