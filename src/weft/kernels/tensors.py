"""The body of a kernel as a function of tensors, for its gradient.

Every loop variable becomes an axis, and every scalar a tensor over the axes of the
loops around it:

    for i in grid(n):                          out = zeros(n)
        total = 0.0                            total = 0.0
        for j in range(m):             →       product = x[i, j] * w[j]    # (n, m)
            total += x[i, j] * w[j]            total = total + product.sum(m)
        out[i] = total                         out = total

That is the same function where no iteration of a loop needs another one's values, but
for sums and extremes; any other kernel has no derived gradient.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from weft import dtype as dtypes
from weft.compile.loop.depend import conflict, flat_position, once, symbols_of
from weft.compile.loop.ir import (
    Call,
    Choice,
    Const,
    For,
    Let,
    Load,
    Local,
    Position,
    Set,
    Store,
    When,
    facts_of,
    statements,
    subvalues,
    values_of,
)
from weft.compile.lower.values import identity
from weft.core.lowering import Reduction
from weft.core.op import Op, TensorType, all_ops, find_op
from weft.core.size import Scope, Size, same
from weft.core.tensor import Tensor
from weft.errors import AutogradError
from weft.func.vjp import vjp
from weft.kernels.loops import build
from weft.ops.creation import arange, tensor, zeros, zeros_like
from weft.ops.indexing import index_put
from weft.ops.select import maximum, minimum, where


class Underived(Exception):
    """The reason why a body is no function of tensors."""


def gradients(
    kernel: Any, g: Any, need: Sequence[bool], inputs: Sequence[Tensor], constants: Any
) -> list[Any]:
    """The gradients of a kernel's arguments, by differentiation of its body."""
    wanted = [k for k, x in enumerate(inputs) if need[k] and x.dtype.is_inexact]
    made = kernel.signature.made
    several = len(made) > 1

    def forward(*given: Tensor) -> tuple[Tensor, ...]:
        arrays = list(inputs)
        for k, x in zip(wanted, given, strict=True):
            arrays[k] = x
        outs = as_tensors(kernel, arrays, constants)
        return tuple([out for out in outs if out.dtype.is_inexact])

    try:
        outs, pull = vjp(forward, *[inputs[k] for k in wanted])
    except Underived as why:
        raise AutogradError(
            f"kernel {kernel.source.name}: no gradient can be derived, since {why}; "
            f"give one with @{kernel.source.name}.backward"
        ) from None
    given = list(g) if several else [g]
    real = [one for one, a in zip(given, _types(kernel, inputs, constants), strict=True)
            if a.dtype.is_inexact]  # fmt: skip
    seeds = [zeros_like(o) if one is None else one
             for o, one in zip(outs, real, strict=True)]  # fmt: skip
    found = dict(zip(wanted, pull(tuple(seeds)), strict=True))
    return [found.get(k) for k in range(len(inputs))]


def _types(kernel: Any, inputs: Any, constants: Any) -> Sequence[TensorType]:
    types = [TensorType(tuple(x.shape), x.dtype) for x in inputs]
    return kernel.signature.results(kernel.signature.bound(types, constants))


def as_tensors(
    kernel: Any, inputs: Sequence[Tensor], constants: Mapping[str, int]
) -> list[Tensor]:
    """The results of a kernel, computed with operators on tensors."""
    scope, sizes = Scope(), {}
    names: dict[str, Any] = {}

    def known(n: Any) -> Any:
        """A size; one that a program decides gets a name here."""
        if type(n) is not Size:
            return n
        name = names.setdefault(str(n), f"Z{len(names)}")
        sizes[name] = n
        return scope.symbol(name)

    types = [TensorType(tuple(map(known, x.shape)), x.dtype) for x in inputs]
    made = build(kernel.source, kernel.signature, scope, types, constants).kernel
    device = inputs[0].device if inputs else None
    run = _Run(made, sizes, device)
    count = len(inputs)
    run.arrays = dict(zip([b.name for b in made.buffers[:count]], inputs, strict=True))
    for buffer in made.buffers[count:]:
        shape = [run.number(n) for n in buffer.shape]
        run.arrays[buffer.name] = zeros(shape, dtype=buffer.dtype, device=device)
    run.body(made.body, dict(made.parallel))
    return [run.arrays[b.name] for b in made.buffers[count:]]


class _Run:
    """The statements of one kernel, for all values of the loop variables at once."""

    def __init__(self, kernel: Any, sizes: Mapping[str, Any], device: Any) -> None:
        self.device = device
        loops = [s for s in statements(kernel.body) if isinstance(s, For)]
        extents = [*kernel.parallel, *[(s.var, s.extent) for s in loops]]
        self.axis = {name: k for k, (name, _) in enumerate(extents)}
        self.sizes = dict(sizes)
        self.extent: dict[str, Any] = {}
        for name, extent in extents:
            if symbols_of(extent) & self.axis.keys():
                raise Underived(f"the length of a loop, {extent}, depends on another")
            self.extent[name] = self.number(extent)
        self.arrays: dict[str, Tensor] = {}
        self.locals: dict[str, Any] = {}
        self.indices: dict[str, Any] = {}
        self.chosen: set[str] = set()  # indices that values give
        self.mask: Any = None

    def number(self, size: Any) -> Any:
        """A size that is no index."""
        return self.index(size)

    def along(self, name: str, values: Tensor) -> Tensor:
        """A vector along the axis of a loop variable."""
        shape = [1] * len(self.axis)
        shape[self.axis[name]] = self.extent[name]
        return values.reshape(shape)

    # -- statements

    def body(self, body: list[Any], loops: dict[str, Any]) -> None:
        for stmt in body:
            if isinstance(stmt, For):
                self._for(stmt, loops)
            elif isinstance(stmt, Set):
                self._set(stmt)
            elif isinstance(stmt, Let):
                found = self.value(stmt.value)
                self.indices[stmt.var] = self._masked(found.to(dtypes.int64))
                self.chosen.add(stmt.var)
            elif isinstance(stmt, When):
                self._when(stmt, loops)
            else:
                self._store(stmt, loops)

    def _masked(self, index: Any) -> Any:
        if self.mask is None or not isinstance(index, Tensor):
            return index
        return where(self.mask, index, zeros_like(index))

    def _set(self, stmt: Set) -> None:
        value, old = self.value(stmt.value), self.locals.get(stmt.local.name)
        if self.mask is not None and old is not None:
            value = where(self.mask, value, old)
        self.locals[stmt.local.name] = value

    def _when(self, stmt: When, loops: dict[str, Any]) -> None:
        before, condition = self.mask, self.value(stmt.condition)
        self.mask = condition if before is None else before.logical_and(condition)
        self.body(stmt.body, loops)
        self.mask = before

    def _for(self, stmt: For, loops: dict[str, Any]) -> None:
        if type(self.extent[stmt.var]) is int and self.extent[stmt.var] <= 0:
            return
        before = dict(self.locals)
        totals = _totals(stmt, before)
        free = _in_any_order(stmt.body, totals)
        why = conflict([stmt.var, ""], ["", stmt.var], {stmt.var: stmt.extent}, free)
        if why:
            raise Underived(f"iterations of a loop depend on one another: {why}")
        for name, combine in totals.items():
            first = identity(combine, before[name].dtype)
            self.locals[name] = self._number(first.value, first.dtype)
        self.body(stmt.body, {**loops, stmt.var: stmt.extent})
        for name, combine in totals.items():
            total = self._combined(combine, self.locals[name], stmt.var)
            before[name] = _function(combine)(before[name], total)
        self.locals = before

    def _combined(self, combine: str, value: Tensor, var: str) -> Tensor:
        """The elements along the axis of a loop, combined."""
        axis, rank = self.axis[var], len(self.axis)
        shape = [*([1] * (rank - value.ndim)), *value.shape]
        shape[axis] = self.extent[var]
        reduce = _reduction(combine)
        if reduce is None:
            raise Underived(f"a loop accumulates with {combine}")
        return reduce(value.expand(shape), dim=(axis,), keepdim=True)

    def _store(self, stmt: Store, loops: dict[str, Any]) -> None:
        buffer, value = stmt.buffer, self.value(stmt.value)
        many = {v: n for v, n in loops.items() if not same(n, 1)}
        flat = flat_position(stmt.at, buffer.shape)
        if many and not once(flat, many, self.chosen):
            raise Underived(f"an element of {buffer.name} may be written several times")
        array = self.arrays[buffer.name]
        index = self._places(stmt.at)
        if self.mask is not None:
            value = where(self.mask, value, self._loaded(array, stmt.at))
        shape = [self.extent[v] if v in many else 1 for v in self.axis]
        value = value.expand(shape)
        if self._is_whole(stmt, many):
            own = [self.axis[i.symbol_name] for i in stmt.at]
            rest = [d for d in range(len(shape)) if d not in own]
            self.arrays[buffer.name] = value.permute([*rest, *own]).reshape(array.shape)
            return
        whole = [i if isinstance(i, Tensor) else self._number(i) for i in index]
        whole = [i.expand(shape) for i in whole]
        self.arrays[buffer.name] = index_put(array, tuple(whole), value)

    def _is_whole(self, stmt: Store, loops: dict[str, Any]) -> bool:
        """Whether a statement writes all elements, in the order of loop variables."""
        names = [i.symbol_name if type(i) is Size else "" for i in stmt.at]
        return set(names) == loops.keys() and all(
            same(loops[name], n)
            for name, n in zip(names, stmt.buffer.shape, strict=True)
        )

    def _number(self, value: Any, dtype: Any = dtypes.int64) -> Tensor:
        return tensor(value, dtype=dtype, device=self.device)

    # -- values

    def value(self, value: Any) -> Any:
        if isinstance(value, Const):
            return self._number(value.value, value.dtype)
        if isinstance(value, Position):
            found = self.index(value.at)
            return found if isinstance(found, Tensor) else self._number(found)
        if isinstance(value, Load):
            return self._loaded(self.arrays[value.buffer.name], value.at)
        if isinstance(value, Local):
            return self.locals[value.name]
        assert not isinstance(value, Choice)
        args = [self.value(a) for a in value.args]
        if value.name == "cast":
            return args[0].to(value.dtype)
        if value.name == "where":
            return where(*args)
        return _function(value.name)(*args)

    def _loaded(self, array: Tensor, at: tuple[Any, ...]) -> Tensor:
        plain = [i.symbol_name if type(i) is Size else "" for i in at]
        axes = [self.axis.get(name, -1) for name in plain]
        if len(set(axes)) == len(axes) and -1 not in axes:
            return self._turned(array, plain, axes)
        index = self._places(at)
        return array[tuple(index)] if index else array

    def _turned(self, array: Tensor, names: list[str], axes: list[int]) -> Tensor:
        """An array whose axes are those of loop variables, in their order."""
        extents = [self.extent[name] for name in names]
        array = array[tuple(slice(0, n) for n in extents)]
        order = sorted(range(len(axes)), key=lambda d: axes[d])
        shape = [1] * len(self.axis)
        for name, axis in zip(names, axes, strict=True):
            shape[axis] = self.extent[name]
        return array.permute(order).reshape(shape)

    def _places(self, at: tuple[Any, ...]) -> list[Any]:
        return [self.index(i) for i in at]

    def index(self, size: Any) -> Any:
        """An index expression: a number, or a tensor over the axes of loops."""
        if type(size) is not Size:
            return size
        total: Any = 0
        for atoms, factor in size.terms:
            term: Any = factor
            for atom in atoms:
                term = self._atom(atom) * term
            total = term + total
        return total

    def _atom(self, atom: Any) -> Any:
        if atom.a is None:
            return self._symbol(atom.kind)
        a, b = self.index(atom.a), self.index(atom.b)
        if atom.kind == "//":
            return a // b
        if atom.kind == "%":
            return a % b
        if not isinstance(a, Tensor) and not isinstance(b, Tensor):
            return min(a, b) if atom.kind == "min" else max(a, b)
        a, b = (x if isinstance(x, Tensor) else self._number(x) for x in (a, b))
        return minimum(a, b) if atom.kind == "min" else maximum(a, b)

    def _symbol(self, name: str) -> Any:
        if name in self.sizes:
            return self.sizes[name]
        if name not in self.indices:
            count = arange(self.extent[name], device=self.device)
            self.indices[name] = self.along(name, count)
        return self.indices[name]


@functools.cache
def _reduction(combine: str) -> Op | None:
    """The operator that combines the elements along axes with a function."""
    for op in all_ops():
        rule = op.lower
        if isinstance(rule, Reduction) and rule.combine == combine and rule.splits:
            return op
    return None


def _function(name: str) -> Callable[..., Any]:
    found: Callable[..., Any] = find_op(name).function
    return found


def _totals(loop: For, known: Mapping[str, Any]) -> dict[str, str]:
    """The locals that a loop accumulates, and with which function."""
    found: dict[str, str] = {}
    sets = [s for s in statements(loop.body) if isinstance(s, Set)]
    for stmt in sets:
        if stmt.local.name not in known:
            continue
        combine = _combines(stmt)
        if combine is None or found.setdefault(stmt.local.name, combine) != combine:
            raise Underived(f"{stmt.local.name} is carried from one iteration of a "
                            "loop to the next")  # fmt: skip
    for name in found:
        mine = sum(s.local.name == name for s in sets)
        if len(list(_reads(loop, name))) != mine:
            raise Underived(f"{name} is read in the loop that accumulates it")
    return found


def _in_any_order(body: list[Any], totals: Mapping[str, str]) -> list[Any]:
    """Statements that say of some locals that the order of their sums is free."""
    stmts = []
    for stmt in body:
        if isinstance(stmt, (For, When)):
            stmt = stmt._replace(body=_in_any_order(stmt.body, totals))
        if isinstance(stmt, Set) and stmt.local.name in totals:
            stmt = stmt._replace(reorder=True)
        stmts.append(stmt)
    return stmts


def _combines(stmt: Set) -> str | None:
    """The function with which a statement accumulates."""
    value = stmt.value
    if not isinstance(value, Call) or len(value.args) != 2:
        return None
    if facts_of(value.name).identity is None or not facts_of(value.name).commutes:
        return None
    mine = [isinstance(a, Local) and a == stmt.local for a in value.args]
    return value.name if any(mine) else None


def _reads(loop: For, name: str) -> Iterator[Any]:
    for stmt in statements(loop.body):
        for value in subvalues(values_of(stmt)):
            if isinstance(value, Local) and value.name == name:
                yield value
