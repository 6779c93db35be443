"""From the source of a kernel to statements of the Loop IR.

    for i in weft.kernel.grid(n):        parallel loops; each grid point runs the body
        for j in range(m):               a loop, one iteration after the other
        if x[i, j] > 0:                  statements for some grid points
        total += x[i, j]                 a local scalar
        out[i, j] = total                a store

An index that loop variables and sizes prove to be in range is used as it is. Any other
one is checked when the kernel runs, and one outside is an IndexError with its line.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from weft import dtype as dtypes
from weft.compile.loop.ir import (
    Buffer,
    Call,
    Choice,
    For,
    Let,
    Load,
    Local,
    Position,
    Set,
    Store,
    When,
    divides,
    subvalues,
)
from weft.compile.loop.ranges import inside
from weft.core.size import Scope, Size
from weft.errors import DTypeError
from weft.kernels import scalars
from weft.kernels.scalars import Kind, Scalar, is_index, kind_of, value_of
from weft.kernels.source import KernelError, Source
from weft.ops.select import where


def grid(*sizes: int) -> Any:
    """The loops of a kernel whose iterations are independent of one another.

    >>> list(weft.kernel.grid(2, 2))
    [(0, 0), (0, 1), (1, 0), (1, 1)]
    """
    index = np.ndindex(*sizes)
    return (at[0] for at in index) if len(sizes) == 1 else index


class Access(NamedTuple):
    """A load or a store of an array's element."""

    buffer: Buffer
    at: tuple[Any, ...]
    tree: ast.expr
    writes: bool


class Translated(NamedTuple):
    """The loops of a kernel, as its source says."""

    grid: tuple[tuple[str, Any], ...]
    body: list[Any]
    accesses: list[Access]
    places: dict[str, str]  # the source line of each checked index
    positive: list[Any]  # sizes that must be at least 1
    tree: ast.For  # the statement of the grid


_PASSES = 8  # until the dtypes of locals are settled


def translate(
    source: Source,
    arrays: dict[str, Buffer],
    numbers: dict[str, Buffer],
    constants: dict[str, Any],
    made: set[str],
    scope: Scope,
) -> Translated:
    """The statements of a kernel for arrays of some types.

    ``numbers`` are arrays of one element, which the source reads by their names;
    ``made`` names the arrays that it may write.
    """
    kinds: dict[str, Kind] = {}
    for _ in range(_PASSES):
        before = dict(kinds)
        found = _Translator(source, arrays, numbers, constants, made, scope, kinds)
        done = found.run()
        if kinds == before:
            return done
    raise source.error(source.tree, "the dtypes of its locals do not settle")


class _Translator:
    """One pass over the source; ``kinds`` has the dtypes of locals so far."""

    def __init__(
        self,
        source: Source,
        arrays: dict[str, Buffer],
        numbers: dict[str, Buffer],
        constants: dict[str, Any],
        made: set[str],
        scope: Scope,
        kinds: dict[str, Kind],
    ) -> None:
        self.source, self.scope, self.kinds = source, scope, kinds
        self.arrays, self.numbers, self.made = arrays, numbers, made
        self.env: dict[str, Any] = dict(constants)
        self.given = {*arrays, *numbers, *constants}
        self.times = _assignments(source.tree)
        self.limits: dict[str, Any] = {}
        self.body: list[Any] = []
        self.accesses: list[Access] = []
        self.places: dict[str, str] = {}
        self.positive: list[Any] = []
        self.names: set[str] = set()
        self.in_grid = False

    def error(self, tree: Any, what: str) -> Exception:
        return self.source.error(tree, what)

    # -- the function

    def run(self) -> Translated:
        stmts = list(self.source.tree.body)
        if stmts and _is_text(stmts[0]):
            stmts = stmts[1:]
        *first, last = stmts or [ast.Pass()]
        if not isinstance(last, ast.For) or not self._is_grid(last.iter):
            raise self.error(
                last if stmts else self.source.tree,
                "expected 'for i in weft.kernel.grid(n):' as the last statement, "
                "around all that the kernel does",
            )
        for stmt in first:
            if not isinstance(stmt, ast.Assign):
                raise self.error(stmt, "expected sizes and numbers before the grid, "
                                       "such as 'n, m = x.shape'")  # fmt: skip
            self.statement(stmt)
        assert isinstance(last.iter, ast.Call)
        extents = [self._extent(size) for size in last.iter.args]
        if last.iter.keywords or last.orelse or not extents:
            raise self.error(last, "expected grid(n, …) with a size for each axis")
        loops = []
        for name, extent in zip(self._grid_names(last, extents), extents, strict=True):
            loops.append((self._loop_variable(name, extent), extent))
        self.in_grid = True
        self.block(last.body)
        return Translated(
            tuple(loops), self.body, self.accesses, self.places, self.positive, last
        )

    def _is_grid(self, tree: ast.expr) -> bool:
        return isinstance(tree, ast.Call) and self._meaning(tree.func) is grid

    def _meaning(self, tree: ast.expr) -> Any:
        """The object outside of the kernel that a function's name is."""
        root = tree
        while isinstance(root, ast.Attribute):
            root = root.value
        if isinstance(root, ast.Name) and (
            root.id in self.given or root.id in self.times
        ):
            return None
        return self.source.meaning(tree)

    def _grid_names(self, stmt: ast.For, extents: list[Any]) -> list[str]:
        targets = [stmt.target]
        if isinstance(stmt.target, ast.Tuple):
            targets = stmt.target.elts
        names = [t.id for t in targets if isinstance(t, ast.Name)]
        if len(names) != len(targets) or len(names) != len(extents):
            raise self.error(
                stmt, f"expected {len(extents)} names for a grid of {len(extents)} axes"
            )
        return names

    def _loop_variable(self, name: str, extent: Any) -> str:
        """A symbol for a loop variable, which the source's name means from now on."""
        letters = "".join(c for c in name.lower() if "a" <= c <= "z") or "i"
        found, count = f"{letters}_", 0
        while found in self.names:
            count += 1
            found = f"{letters}{count}_"
        self.names.add(found)
        self.scope.bounds[found] = extent
        self.limits[found] = extent
        self.env[name] = self.scope.symbol(found)
        return found

    # -- statements

    def block(self, stmts: Sequence[ast.stmt]) -> None:
        for stmt in stmts:
            self.statement(stmt)

    def inner(self, run: Callable[[], Any]) -> tuple[list[Any], Any]:
        """The statements that a step of the translation makes, and its result."""
        before, self.body = self.body, []
        try:
            result = run()
            return self.body, result
        finally:
            self.body = before

    def statement(self, stmt: ast.stmt) -> None:
        if isinstance(stmt, ast.Assign):
            if len(stmt.targets) != 1:
                raise self.error(stmt, "expected one target, as in 'a = 0.0'")
            self._assign(stmt.targets[0], stmt.value, stmt)
        elif isinstance(stmt, ast.AugAssign):
            self._update(stmt)
        elif isinstance(stmt, ast.For):
            self._for(stmt)
        elif isinstance(stmt, ast.If):
            self._if(stmt)
        elif not isinstance(stmt, ast.Pass) and not _is_text(stmt):
            raise self.error(stmt, _REFUSED.get(type(stmt), _STATEMENTS))

    def _assign(self, target: ast.expr, value: ast.expr, stmt: ast.stmt) -> None:
        if isinstance(target, ast.Tuple):
            self._unpack(target, value, stmt)
        elif isinstance(target, ast.Name):
            self._set(target.id, self.value(value), stmt)
        elif isinstance(target, ast.Subscript):
            buffer, at = self._place(target, writes=True)
            self._store(buffer, at, self.value(value), stmt)
        else:
            raise self.error(stmt, "expected a name or an array's element, such as "
                                   "out[i]")  # fmt: skip

    def _unpack(self, target: ast.Tuple, value: ast.expr, stmt: ast.stmt) -> None:
        names = [t.id for t in target.elts if isinstance(t, ast.Name)]
        shape = self._shape(value)
        values = shape
        if shape is None and isinstance(value, ast.Tuple):
            found = [self.value(one) for one in value.elts]
            values = tuple([self._kept(one) for one in found])
        if values is None or len(names) != len(target.elts):
            raise self.error(stmt, "expected names on the left, and x.shape or as many "
                                   "values on the right")  # fmt: skip
        if len(values) != len(names):
            raise self.error(stmt, f"expected {len(values)} names, as there are values")
        for name, one in zip(names, values, strict=True):
            self._set(name, one, stmt)

    def _kept(self, one: Any) -> Any:
        """A value that later statements do not change: that of a local of its own."""
        return one if not isinstance(one, Scalar) else self._temporary(one)

    def _set(self, name: str, value: Any, stmt: ast.stmt) -> None:
        if name in self.given:
            raise self.error(stmt, f"{name} is an argument; its elements are changed "
                                   f"with {name}[…] = …")  # fmt: skip
        if not isinstance(value, Scalar) and self.times[name] == 1:
            self.env[name] = value
            return
        if not self.in_grid:
            raise self.error(stmt, f"expected {name} to be set once, to a size or a "
                                   "number, before the grid")  # fmt: skip
        kind = kind_of(value)
        known = self.kinds.get(name)
        try:
            kind = kind if known is None else scalars.common([known, kind])
        except DTypeError as error:
            raise self.error(stmt, str(error)) from None
        self.kinds[name] = kind
        local = Local(name, kind.dtype)
        self.body.append(Set(local, value_of(value, kind.dtype)))
        self.env[name] = Scalar(local, kind.weak)

    def _update(self, stmt: ast.AugAssign) -> None:
        sign = scalars.SIGNS[type(stmt.op)]
        if isinstance(stmt.target, ast.Name):
            old = self.value(ast.copy_location(
                ast.Name(stmt.target.id, ast.Load()), stmt.target))  # fmt: skip
            new = self._applied(sign, [old, self.value(stmt.value)], stmt)
            self._set(stmt.target.id, new, stmt)
        elif isinstance(stmt.target, ast.Subscript):
            buffer, at = self._place(stmt.target, writes=True)
            old = self._load(buffer, at, stmt.target)
            new = self._applied(sign, [old, self.value(stmt.value)], stmt)
            self._store(buffer, at, new, stmt)
        else:
            raise self.error(stmt, "expected a name or an array's element")

    def _store(self, buffer: Buffer, at: Any, value: Any, stmt: ast.stmt) -> None:
        have = kind_of(value).dtype
        if have.is_inexact and not buffer.dtype.is_inexact:
            raise self.error(
                stmt,
                f"expected a value for {buffer.name} of {buffer.dtype.name}, got one "
                f"of {have.name}; round it first, with int() or math.floor()",
            )
        self.body.append(Store(buffer, at, value_of(value, buffer.dtype)))

    def _for(self, stmt: ast.For) -> None:
        if self._is_grid(stmt.iter):
            raise self.error(stmt, "expected one grid, around all that the kernel does")
        if stmt.orelse or not isinstance(stmt.target, ast.Name):
            raise self.error(stmt, "expected a loop 'for j in range(n):'")
        start, extent, step = self._range(stmt)
        before, limits = dict(self.env), dict(self.limits)
        var = self._loop_variable(stmt.target.id, extent)
        self.env[stmt.target.id] = start + self.scope.symbol(var) * step
        body, _ = self.inner(lambda: self.block(stmt.body))
        self.limits = limits
        self.env = before
        self.body.append(For(var, extent, body))

    def _range(self, stmt: ast.For) -> tuple[Any, Any, int]:
        """The first value, the number of iterations and the step of a loop."""
        call = stmt.iter
        if (
            not isinstance(call, ast.Call)
            or self._meaning(call.func) is not range
            or call.keywords
            or not 1 <= len(call.args) <= 3
        ):
            raise self.error(stmt, "expected a loop over range(…)")
        found = [self._extent(one) for one in call.args]
        if len(found) == 1:
            return 0, found[0], 1
        start, stop = found[:2]
        step = found[2] if len(found) == 3 else 1
        if type(step) is not int or step == 0:
            raise self.error(stmt, "expected a whole number other than 0 as the step")
        if step < 0:
            return start, (start - stop + (-step - 1)) // -step, step
        return start, (stop - start + (step - 1)) // step, step

    def _extent(self, tree: ast.expr) -> Any:
        found = self.value(tree)
        if not is_index(found):
            raise self.error(
                tree,
                f"expected {ast.unparse(tree)} to be made of sizes, loop variables and "
                "whole numbers; a loop up to a value is one over a size, with an 'if'",
            )
        return found

    def _if(self, stmt: ast.If) -> None:
        condition = scalars.truth(self.value(stmt.test))
        if type(condition) is bool:
            self.block(stmt.body if condition else stmt.orelse)
            return
        before = dict(self.env)
        if not isinstance(condition, Local):
            condition = self._temporary(Scalar(condition)).value
        then, _ = self.inner(lambda: self.block(stmt.body))
        after, self.env = self.env, dict(before)
        other, _ = self.inner(lambda: self.block(stmt.orelse))
        both = {k: v for k, v in self.env.items() if _same_local(v, after.get(k))}
        self.env = {**both, **before}
        self.body.append(When(condition, then))
        if other:
            opposite = Call("logical_not", (condition,), dtypes.bool_)
            self.body.append(When(opposite, other))

    def _temporary(self, value: Scalar) -> Scalar:
        """A value in a local of its own, which is computed now."""
        name = f"_{len(self.names)}"
        self.names.add(name)
        local = Local(name, value.value.dtype)
        self.body.append(Set(local, value.value))
        return Scalar(local, value.weak)

    # -- arrays

    def _array(self, tree: ast.expr) -> Buffer | None:
        name = tree.id if isinstance(tree, ast.Name) else ""
        return self.arrays.get(name)

    def _shape(self, tree: ast.expr) -> tuple[Any, ...] | None:
        """The shape that ``x.shape`` means; None if it is something else."""
        if isinstance(tree, ast.Attribute) and tree.attr == "shape":
            array = self._array(tree.value)
            return None if array is None else array.shape
        return None

    def _place(
        self, tree: ast.Subscript, *, writes: bool
    ) -> tuple[Buffer, tuple[Any, ...]]:
        buffer = self._array(tree.value)
        if buffer is None:
            raise self.error(tree, f"expected one of the arrays "
                                   f"{', '.join(self.arrays)}, got "
                                   f"{ast.unparse(tree.value)}")  # fmt: skip
        if writes and buffer.name not in self.made:
            raise self.error(
                tree,
                f"{buffer.name} is read only; name it after '->' in the signature to "
                "change it",
            )
        if not self.in_grid:
            raise self.error(tree, "expected arrays to be used inside the grid")
        parts = tree.slice.elts if isinstance(tree.slice, ast.Tuple) else [tree.slice]
        if len(parts) != len(buffer.shape):
            raise self.error(
                tree,
                f"expected {len(buffer.shape)} indices for {buffer}, got {len(parts)}",
            )
        pairs = zip(parts, buffer.shape, strict=True)
        at = tuple([self._index(part, n, tree) for part, n in pairs])
        self.accesses.append(Access(buffer, at, tree, writes))
        return buffer, at

    def _index(self, tree: ast.expr, size: Any, whole: ast.expr) -> Any:
        if isinstance(tree, ast.Slice):
            raise self.error(whole, "expected one element, got a slice")
        found = self.value(tree)
        dtype = kind_of(found).dtype
        if dtype.category != dtypes.INT:
            raise self.error(
                whole, f"expected a whole number as an index, got one of {dtype.name}"
            )
        if type(found) is int and found < 0:
            found = size + found
        if is_index(found) and inside(found, size, self.limits):
            return found
        value = Position(found, dtypes.int64) if is_index(found) else found.value
        return self._checked(value, size, whole)

    def _checked(self, value: Any, size: Any, tree: ast.expr) -> Any:
        """An index that is checked when the kernel runs."""
        name = f"w{len(self.places)}_"
        self.places[name] = self.source.place(tree)
        self.scope.bounds[name] = size
        if type(size) is Size or size <= 0:
            self.positive.append(size)
        self.body.append(Let(name, value, size))
        self.limits[name] = size
        return self.scope.symbol(name)

    def _load(self, buffer: Buffer, at: tuple[Any, ...], tree: ast.expr) -> Scalar:
        self.accesses.append(Access(buffer, at, tree, False))
        return Scalar(Load(buffer, at))

    # -- values

    def value(self, tree: ast.expr) -> Any:
        """The scalar that an expression is."""
        method = getattr(self, f"_value_{type(tree).__name__}", None)
        if method is None:
            raise self.error(tree, f"{ast.unparse(tree)} is not part of kernels; "
                                   "expected arithmetic, comparisons, elements of "
                                   "arrays and functions of numbers")  # fmt: skip
        return method(tree)

    def _value_Constant(self, tree: ast.Constant) -> Any:
        if type(tree.value) in (bool, int, float):
            return tree.value
        raise self.error(tree, f"expected a number, got {ast.unparse(tree)}")

    def _value_Name(self, tree: ast.Name) -> Any:
        if tree.id in self.env:
            return self.env[tree.id]
        if tree.id in self.numbers:
            return Scalar(Load(self.numbers[tree.id], ()))
        if tree.id in self.arrays:
            buffer = self.arrays[tree.id]
            raise self.error(
                tree, f"expected an element of {buffer}, such as {buffer.name}[i]"
            )
        if tree.id in self.times:
            raise self.error(
                tree, f"{tree.id} may not be set here; set it before the loop or the "
                "'if' that sets it"
            )  # fmt: skip
        return self._outside(tree)

    def _outside(self, tree: ast.expr) -> Any:
        """A number from outside of the kernel, as it was when this was defined."""
        found = self.source.meaning(tree)
        if isinstance(found, np.generic):
            dtype = dtypes.of_array(np.asarray(found))
            return Scalar(value_of(found.item(), dtype))
        if type(found) in (bool, int, float):
            return found
        raise self.error(
            tree,
            f"expected {ast.unparse(tree)} to be a number, got "
            f"{type(found).__name__}; arrays are given as arguments",
        )

    def _value_Attribute(self, tree: ast.Attribute) -> Any:
        if self._shape(tree) is not None:
            raise self.error(tree, "expected one size, such as x.shape[0]")
        if self._array(tree.value) is not None:
            raise self.error(tree, f"expected {ast.unparse(tree.value)}.shape, or its "
                                   "elements")  # fmt: skip
        return self._outside(tree)

    def _value_Subscript(self, tree: ast.Subscript) -> Any:
        shape = self._shape(tree.value)
        if shape is None:
            buffer, at = self._place(tree, writes=False)
            return Scalar(Load(buffer, at))
        number = self.value(tree.slice)
        if type(number) is not int or not -len(shape) <= number < len(shape):
            raise self.error(tree, f"expected an axis below {len(shape)}")
        return shape[number]

    def _value_BinOp(self, tree: ast.BinOp) -> Any:
        sign = scalars.SIGNS.get(type(tree.op))
        if sign is None:
            raise self.error(tree, "expected arithmetic of numbers, not of matrices")
        return self._applied(
            sign, [self.value(tree.left), self.value(tree.right)], tree
        )

    def _applied(self, sign: Any, args: list[Any], tree: Any) -> Any:
        try:
            found = scalars.applied(sign, args)
        except (ArithmeticError, TypeError, ValueError) as error:
            raise self.error(tree, str(error)) from None
        if sign.folds and type(found) is Size and type(args[-1]) is Size and (
            isinstance(tree, (ast.BinOp, ast.AugAssign))
            and isinstance(tree.op, (ast.FloorDiv, ast.Mod))
        ):  # fmt: skip
            self.positive.append(args[-1])
        return found

    def _value_UnaryOp(self, tree: ast.UnaryOp) -> Any:
        found = self.value(tree.operand)
        if isinstance(tree.op, ast.UAdd):
            return found
        if isinstance(tree.op, ast.Not):
            condition = scalars.truth(found)
            if type(condition) is bool:
                return not condition
            return Scalar(Call("logical_not", (condition,), dtypes.bool_))
        return self._applied(scalars.SIGNS[type(tree.op)], [found], tree)

    def _value_Compare(self, tree: ast.Compare) -> Any:
        values = [self.value(one) for one in (tree.left, *tree.comparators)]
        found: Any = True
        for op, left, right in zip(tree.ops, values, values[1:], strict=False):
            sign = scalars.SIGNS.get(type(op))
            if sign is None:
                raise self.error(tree, "expected ==, !=, <, <=, > or >=")
            found = self._all(found, self._applied(sign, [left, right], tree))
        return found

    def _all(self, a: Any, b: Any) -> Any:
        if type(a) is bool:
            return b if a else False
        if type(b) is bool:
            return a if b else False
        return Scalar(Call("logical_and", (a.value, b.value), dtypes.bool_))

    def _value_BoolOp(self, tree: ast.BoolOp) -> Any:
        stops = isinstance(tree.op, ast.Or)
        name = "logical_or" if stops else "logical_and"
        found = scalars.truth(self.value(tree.values[0]))
        for one in tree.values[1:]:
            if type(found) is bool:
                if found is stops:
                    return found
                found = scalars.truth(self.value(one))
                continue
            stmts, value = self.inner(functools.partial(self._truth, one))
            if type(value) is bool:
                found = value if value is stops else found
            elif not stmts and _is_pure(value):
                found = Call(name, (found, value), dtypes.bool_)
            else:  # only where the first does not decide
                local = self._temporary(Scalar(found)).value
                on = Call("logical_not", (local,), dtypes.bool_) if stops else local
                self.body.append(When(on, [*stmts, Set(local, value)]))
                found = local
        return found if type(found) is bool else Scalar(found)

    def _truth(self, tree: ast.expr) -> Any:
        return scalars.truth(self.value(tree))

    def _value_IfExp(self, tree: ast.IfExp) -> Any:
        condition = scalars.truth(self.value(tree.test))
        if type(condition) is bool:
            return self.value(tree.body if condition else tree.orelse)
        then, a = self.inner(lambda: self.value(tree.body))
        other, b = self.inner(lambda: self.value(tree.orelse))
        try:
            dtype, weak = scalars.common([kind_of(a), kind_of(b)])
        except DTypeError as error:
            raise self.error(tree, str(error)) from None
        a, b = value_of(a, dtype), value_of(b, dtype)
        if not then and not other and _is_pure(a) and _is_pure(b):
            return Scalar(Call("where", (condition, a, b), dtype), weak)
        condition = self._temporary(Scalar(condition)).value
        local = Local(f"_{len(self.names)}", dtype)
        self.names.add(local.name)
        self.body.append(When(condition, [*then, Set(local, a)]))
        opposite = Call("logical_not", (condition,), dtypes.bool_)
        self.body.append(When(opposite, [*other, Set(local, b)]))
        return Scalar(local, weak)

    def _value_Call(self, tree: ast.Call) -> Any:
        function = self._meaning(tree.func)
        if function is len and len(tree.args) == 1:
            array = self._array(tree.args[0])
            if array is not None and array.shape:
                return array.shape[0]
        if tree.keywords or any(isinstance(a, ast.Starred) for a in tree.args):
            raise self.error(tree, "expected plain arguments, by position")
        if function in (where, np.where) and len(tree.args) == 3:
            return self._value_IfExp(ast.copy_location(ast.IfExp(*tree.args), tree))
        args = [self.value(one) for one in tree.args]
        try:
            return self._called(function, args, tree)
        except KernelError:
            raise
        except (ArithmeticError, TypeError, ValueError) as error:
            raise self.error(tree, str(error)) from None

    def _called(self, function: Any, args: list[Any], tree: ast.Call) -> Any:
        kind = scalars.cast_of(function)
        if kind is not None and len(args) == 1:
            if kind is scalars.INDEX and is_index(args[0]):
                return args[0]
            if kind.weak and scalars.is_number(args[0]):
                return function(args[0])
            return Scalar(value_of(args[0], kind.dtype), kind.weak)
        sign = scalars.EXTREMES.get(function) if callable(function) else None
        if sign is not None and len(args) > 1:
            found = args[0]
            for one in args[1:]:
                found = scalars.applied(sign, [found, one])
            return found
        if args and all(map(scalars.is_number, args)) and _is_python(function):
            return function(*args)
        whole = scalars.WHOLE.get(function) if callable(function) else None
        if whole is not None and len(args) == 1:
            if is_index(args[0]):
                return args[0]
            made = scalars.called(whole, args)
            return Scalar(value_of(made, dtypes.int64), True)
        name = scalars.opcode(function)
        if not name or not self._takes(name, args):
            raise self.error(
                tree,
                f"{ast.unparse(tree.func)} of {len(args)} arguments is not a function "
                "of kernels; expected one of the element-wise functions of math, numpy "
                "or weft, or min, max, abs, int, float, bool or round",
            )
        return scalars.called(name, args)

    def _takes(self, name: str, args: list[Any]) -> bool:
        from weft.core.op import find_op

        return len(find_op(name).inputs) == len(args)


_STATEMENTS = (
    "expected an assignment, a loop over range(…) or an 'if': nothing else is part of "
    "kernels"
)
_REFUSED: dict[type, str] = {
    ast.While: "while loops are not part of kernels: expected 'for j in range(n):', "
    "with an 'if' for what should not run",
    ast.Break: "break is not part of kernels: expected an 'if' around the rest",
    ast.Continue: "continue is not part of kernels: expected an 'if' around the rest",
    ast.Return: "a kernel returns nothing: its results are the arrays after '->'",
}


def _is_text(stmt: ast.stmt) -> bool:
    return (
        isinstance(stmt, ast.Expr)
        and isinstance(stmt.value, ast.Constant)
        and isinstance(stmt.value.value, str)
    )


def _is_python(function: Any) -> bool:
    """Whether a function is Python's, on Python's numbers."""
    return getattr(function, "__module__", None) in ("math", "builtins")


def _same_local(a: Any, b: Any) -> bool:
    """Whether two values of a name are the same local, or the same thing at all."""
    if a is b:
        return True
    locals_ = isinstance(a, Scalar) and isinstance(b, Scalar)
    return locals_ and isinstance(a.value, Local) and a == b


def _is_pure(value: Any) -> bool:
    """Whether a value can be computed where it is not needed: no check can fail."""
    return not any(divides(v) or isinstance(v, Choice) for v in subvalues([value]))


def _assignments(tree: ast.FunctionDef) -> dict[str, int]:
    """How often the source sets each name."""
    found: dict[str, int] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found[node.id] = found.get(node.id, 0) + 1
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            found[node.target.id] = found.get(node.target.id, 0) + 1
    return found
