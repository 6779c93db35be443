"""Statements over a symbol's truth, rewritten.

    if t: A                     if known(t):
    else: B                         if t: A
                                    else: B
                                else:
                                    def then(x, y): A; return x, y
                                    def other(x, y): B; return x, y
                                    x, y = branch(t, then, other, (x, y), …)

So a value that Python knows takes the way that is written, and only a symbol the other.
``x`` and ``y`` are the variables that A or B set. An ``if`` that returns takes the rest
of the function into both sides. Where a statement cannot be part of a graph, the second
way is a refusal with the reason. ``while``, ``for``, conditional expressions, and
``and``, ``or``, ``not`` and chained comparisons in conditions are alike.
"""

from __future__ import annotations

import ast
import copy
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

HELPERS = "\0weft.graph.python_control.run_time"  # a constant that is replaced
_LONGEST = 40_000  # nodes of a rewritten function
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_REASONS: dict[type, str] = {
    ast.Try: "has a `try`, whose handlers cannot be part of a graph",
    ast.TryStar: "has a `try`, whose handlers cannot be part of a graph",
    ast.Raise: "raises an error, which a graph cannot",
    ast.Delete: "deletes something",
    ast.Yield: "yields values",
    ast.YieldFrom: "yields values",
    ast.Await: "waits",
    ast.AsyncFor: "waits",
    ast.AsyncWith: "waits",
    ast.Match: "has a `match`",
    ast.Import: "imports a module",
    ast.ImportFrom: "imports a module",
    ast.Global: "declares a global variable",
    ast.Nonlocal: "declares a variable of another function",
}
_FRAMES = ("locals", "eval", "exec")  # functions that see a function's variables


class Impossible(Exception):
    """A function that cannot be rewritten: its branches that return would make it too
    long, or it looks at its own variables."""


def rewritten(function: ast.FunctionDef) -> ast.FunctionDef:
    """A function's definition with its branches and loops rewritten."""
    return _Function(function).definition


def _own_nodes(nodes: Sequence[ast.AST], loops: bool = True) -> Iterator[ast.AST]:
    """The nodes of statements that belong to the same function."""
    for node in nodes:
        yield node
        if isinstance(node, _SCOPES):
            continue
        if not loops and isinstance(node, (ast.For, ast.While)):
            continue
        yield from _own_nodes(list(ast.iter_child_nodes(node)), loops)


def _assigned(nodes: Sequence[ast.AST]) -> list[str]:
    """The variables that statements set, in order."""
    names: dict[str, None] = {}
    for node in _own_nodes(nodes):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names[node.id] = None
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names[node.name] = None
    inside = {
        target.id
        for node in _own_nodes(nodes)
        if isinstance(node, _COMPREHENSIONS)
        for generator in node.generators
        for target in ast.walk(generator.target)
        if isinstance(target, ast.Name)
    }
    plain = {
        node.id
        for node in _outside_comprehensions(nodes)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    return [name for name in names if name not in inside or name in plain]


def _outside_comprehensions(nodes: Sequence[ast.AST]) -> Iterator[ast.AST]:
    for node in nodes:
        yield node
        if not isinstance(node, (*_SCOPES, *_COMPREHENSIONS)):
            yield from _outside_comprehensions(list(ast.iter_child_nodes(node)))


def _has(node: ast.AST, *kinds: Any) -> bool:
    return any(isinstance(one, kinds) for one in ast.walk(node))


class _Function:
    """One function that is being rewritten; those inside it are in turn."""

    def __init__(self, function: ast.FunctionDef) -> None:
        self.numbers = itertools.count()
        self.size = 0
        nodes = list(_own_nodes(function.body))
        self.declared = {
            name
            for node in nodes
            if isinstance(node, (ast.Global, ast.Nonlocal))
            for name in node.names
        }
        if any(_looks_at_frames(node) for node in ast.walk(function)):
            raise Impossible
        self.loads = [
            (node.id, (node.lineno, node.col_offset))
            for node in ast.walk(function)
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Store)
        ]
        self.loads += [
            (node.target.id, (node.lineno, node.col_offset))
            for node in ast.walk(function)
            if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name)
        ]
        self.loops: list[ast.AST] = []
        self.definition = copy.copy(function)
        body = self.block(function.body, [])
        touched = self.touch_closure(function)
        start = 1 if ast.get_docstring(function, clean=False) is not None else 0
        self.definition.body = [*body[:start], *touched, *body[start:]]

    def touch_closure(self, function: ast.FunctionDef) -> list[ast.stmt]:
        """Statements that never run, by which the guards see what closures read."""
        names = {name for name, _ in self.loads} - set(_assigned(function.body))
        arguments = {a.arg for a in ast.walk(function.args) if isinstance(a, ast.arg)}
        inner = {
            name
            for node in _own_nodes(function.body)
            if isinstance(node, (*_SCOPES, *_COMPREHENSIONS))
            for child in ast.walk(node)
            for name in _bound_in(child)
        }
        used: list[ast.stmt] = [
            ast.Expr(_name(name)) for name in sorted(names - arguments - inner)
        ]
        if not used:
            return []
        never = ast.If(_helper("NEVER"), used, [])
        return [_placed(never, function)]

    # -- statements

    def block(
        self, statements: Sequence[ast.stmt], rest: Sequence[ast.stmt] | None
    ) -> list[ast.stmt]:
        """Statements rewritten; ``rest`` follows them to the function's end, or is None
        where that is not known."""
        out: list[ast.stmt] = []
        for k, node in enumerate(statements):
            tail = None if rest is None else [*statements[k + 1 :], *rest]
            out += self.statement(node, tail)
        return out

    def statement(
        self, node: ast.stmt, rest: Sequence[ast.stmt] | None
    ) -> list[ast.stmt]:
        self.size += 1
        if self.size > _LONGEST // 20:
            raise Impossible
        if isinstance(node, ast.If):
            return self.branch(node, rest)
        if isinstance(node, ast.While):
            return self.while_loop(node)
        if isinstance(node, ast.For):
            return self.for_loop(node)
        if isinstance(node, ast.FunctionDef):
            if any(
                isinstance(n, (ast.Yield, ast.YieldFrom)) for n in _own_nodes(node.body)
            ):
                return [node]
            return [rewritten(node)]
        if isinstance(node, (ast.ClassDef, ast.AsyncFunctionDef)):
            return [node]
        new = copy.copy(node)
        for name, value in ast.iter_fields(node):
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                setattr(new, name, self.block(value, None))
            elif isinstance(value, list):
                setattr(new, name, [self.item(one) for one in value])
            elif isinstance(value, ast.expr):
                setattr(new, name, self.expression(value))
        return [new]

    def item(self, node: Any) -> Any:
        if isinstance(node, ast.expr):
            return self.expression(node)
        if isinstance(node, ast.ExceptHandler):
            new = copy.copy(node)
            new.body = self.block(node.body, None)
            return new
        return node

    def branch(self, node: ast.If, rest: Sequence[ast.stmt] | None) -> list[ast.stmt]:
        truth = self.fresh("truth")
        sides = [*node.body, *node.orelse]
        plain = ast.If(
            _name(truth), self.block(node.body, rest), self.block(node.orelse, rest)
        )
        returns = any(isinstance(n, ast.Return) for n in _own_nodes(sides))
        reason = self.obstacle([*sides, *(rest or ())] if returns else sides, returns)
        if returns and rest is None and reason is None:
            reason = "returns from within a loop, a `with` or a `try`"
        if reason is not None:
            other = [self.refuse(truth, f"the `if` {reason}")]
        elif returns:
            assert rest is not None
            other = self.returning(node, truth, rest)
        else:
            other = self.choosing(node, truth)
        decide = ast.If(_call("known", _name(truth)), [plain], other)
        return self.placed(node, [_assign(truth, self.predicate(node.test)), decide])

    def choosing(self, node: ast.If, truth: str) -> list[ast.stmt]:
        names = _assigned([*node.body, *node.orelse])
        then, other = self.fresh("then"), self.fresh("other")
        call = _call(
            "branch", _name(truth), _name(then), _name(other), _values(names),
            _constants(names), _constants(self.live(names, node)),
        )  # fmt: skip
        return [
            self.function(then, node.body, names),
            self.function(other, node.orelse, names),
            *_unpack(names, call),
        ]

    def returning(
        self, node: ast.If, truth: str, rest: Sequence[ast.stmt]
    ) -> list[ast.stmt]:
        names = _assigned([*node.body, *node.orelse, *rest])
        then, other = self.fresh("then"), self.fresh("other")
        call = _call("result", _name(truth), _name(then), _name(other), _values(names))
        return [
            self.function(then, [*node.body, *rest], names, returns=True),
            self.function(other, [*node.orelse, *rest], names, returns=True),
            ast.Return(call),
        ]

    def while_loop(self, node: ast.While) -> list[ast.stmt]:
        if _jumps(node.body) and not node.orelse and not _has(node.test, ast.NamedExpr):
            made = self.without_jumps(node, node.test, node.body)
            if made is not None:
                return made
        truth = self.fresh("truth")
        reason = self.obstacle(node.body, False)
        if node.orelse:
            reason = "has an `else`"
        if _has(node.test, ast.NamedExpr):
            reason = "sets a variable in its condition"
        test = self.predicate(node.test)
        self.loops.append(node)
        body = self.block(node.body, None)
        if reason is not None:
            other = [self.refuse(truth, f"the `while` {reason}")]
        else:
            other = self.looping(node)
        self.loops.pop()
        walrus: ast.expr = ast.NamedExpr(_name(truth, ast.Store()), test)
        orelse = self.block(node.orelse, None)
        if node.orelse:  # it would run where the loop has not ended
            walrus = _call(
                "refuse_symbol", walrus, ast.Constant(f"the `while` {reason}")
            )
        loop = ast.While(_call("goes_on", walrus), body, orelse)
        if node.orelse:
            return self.placed(node, [loop])
        after = ast.If(ast.UnaryOp(ast.Not(), _call("known", _name(truth))), other, [])
        return self.placed(node, [loop, after])

    def without_jumps(
        self, node: ast.stmt, test: ast.expr, body: Sequence[ast.stmt],
        first: Sequence[ast.stmt] = (),
    ) -> list[ast.stmt] | None:  # fmt: skip
        """A loop whose ``break`` and ``continue`` set variables; None if one is in a
        ``with`` or a ``try``.

            while t:                left = False
                A                   while not left and t:
                if c: break             skip = False; A
                B                       if c: left = True
                                        if not left and not skip: B
        """
        left, skip = self.fresh("left"), self.fresh("skip")
        try:
            inner = _guarded(body, left, skip)
        except Impossible:
            return None
        end = (1 << 30, 0)  # both are read wherever they are set
        self.loads += [(left, end), (skip, end)]
        go_on = ast.BoolOp(ast.And(), [_not(left), test])
        off = [_assign(name, ast.Constant(False)) for name in (left, skip)]
        again = _assign(skip, _call("clear_flag", _name(skip)))
        loop = ast.While(go_on, [*first, again, *inner], [])
        made = self.placed(node, [*off, loop])
        return [*made[:2], *self.while_loop(made[2])]  # type: ignore[arg-type]

    def counted(self, node: ast.For) -> list[ast.stmt] | None:
        """A ``for`` over a range that has a ``break`` or ``continue``, by a counter."""
        spread = any(isinstance(a, ast.Starred) for a in node.iter.args)  # type: ignore[attr-defined]
        if spread or node.iter.keywords or not isinstance(node.target, ast.Name):  # type: ignore[attr-defined]
            return None
        used = {
            n.id for one in node.body for n in ast.walk(one) if isinstance(n, ast.Name)
        }
        if node.target.id in used:  # a number of Python's, which no run decides
            return None
        numbers, at = self.fresh("numbers"), self.fresh("at")
        self.loads += [(at, (1 << 30, 0))]
        test = ast.Compare(_name(at), [ast.Lt()], [_call("count_of", _name(numbers))])
        item = _call("number_at", _name(numbers), _name(at))
        first = [
            _assign(node.target.id, item),
            _assign(at, ast.BinOp(_name(at), ast.Add(), ast.Constant(1))),
        ]
        made = self.without_jumps(node, test, node.body, first)
        if made is None:
            return None
        begin = [_assign(numbers, node.iter), _assign(at, ast.Constant(0))]
        return [*self.placed(node, begin), *made]

    def looping(self, node: ast.While) -> list[ast.stmt]:
        names = _assigned(node.body)
        asked, body = self.fresh("condition"), self.fresh("body")
        outer = self.loops[:-1]
        call = _call(
            "loop", _name(asked), _name(body), _values(names), _constants(names),
            _constants(self.live(names, node, outer)),
        )  # fmt: skip
        condition = [ast.Return(self.predicate(node.test))]
        return [
            self.function(asked, condition, names, returns=True, done=True),
            self.function(body, node.body, names),
            *_unpack(names, call),
        ]

    def for_loop(self, node: ast.For) -> list[ast.stmt]:
        if _jumps(node.body) and not node.orelse and _calls(node.iter, "range"):
            made = self.counted(node)
            if made is not None:
                return made
        rows = self.fresh("rows")
        targets = _assigned([node.target])
        reason = self.obstacle([node.target, *node.body], False)
        if node.orelse:
            reason = "has an `else`"
        self.loops.append(node)
        body = self.block(node.body, None)
        if reason is not None:
            other = [self.refuse(rows, f"the `for` {reason}")]
        else:
            names = list(dict.fromkeys([*targets, *_assigned(node.body)]))
            step, row = self.fresh("body"), self.fresh("row")
            first = _placed(ast.Assign([node.target], _name(row)), node)
            live = self.live(names, node, self.loops[:-1])
            call = _call(
                "over_rows", _name(rows), _name(step), _values(names),
                _constants(names), _constants(live), _constants(targets),
            )  # fmt: skip
            other = [
                self.function(step, [first, *node.body], names, row=row),
                *_unpack(names, call),
            ]
        self.loops.pop()
        plain = ast.For(node.target, _name(rows), body, self.block(node.orelse, None))
        decide = ast.If(_call("countable", _name(rows)), [plain], other)
        return self.placed(node, [_assign(rows, self.expression(node.iter)), decide])

    # -- expressions

    def expression(self, node: ast.expr) -> ast.expr:
        """An expression whose conditional parts are rewritten."""
        if isinstance(node, ast.IfExp) and not _has(
            node, ast.NamedExpr, ast.Yield, ast.YieldFrom, ast.Await
        ):
            call = _call(
                "either", self.predicate(node.test), _thunk(self.expression(node.body)),
                _thunk(self.expression(node.orelse)),
            )  # fmt: skip
            return _placed(call, node)
        if isinstance(node, ast.Lambda) or not isinstance(node, ast.expr):
            return node
        new = copy.copy(node)
        for name, value in ast.iter_fields(node):
            if isinstance(value, ast.expr):
                setattr(new, name, self.expression(value))
            elif isinstance(value, list):
                setattr(new, name, [self.part(one) for one in value])
        return new

    def part(self, node: Any) -> Any:
        if isinstance(node, ast.expr):
            return self.expression(node)
        if isinstance(node, ast.keyword):
            new = copy.copy(node)
            new.value = self.expression(node.value)
            return new
        return node

    def predicate(self, node: ast.expr) -> ast.expr:
        """An expression of which only the truth counts."""
        if _has(node, ast.NamedExpr, ast.Yield, ast.YieldFrom, ast.Await):
            return node
        if isinstance(node, ast.BoolOp):
            name = "both" if isinstance(node.op, ast.And) else "one_of"
            parts = [_thunk(self.predicate(value)) for value in node.values]
            return _placed(_call(name, *parts), node)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return _placed(_call("negation", self.predicate(node.operand)), node)
        if isinstance(node, ast.Compare) and len(node.ops) > 1:
            parts = [_thunk(self.expression(v)) for v in (node.left, *node.comparators)]
            tests: list[ast.expr] = [
                ast.Lambda(
                    _parameters(["a", "b"]), ast.Compare(_name("a"), [op], [_name("b")])
                )
                for op in node.ops
            ]
            lists = [ast.Tuple(items, ast.Load()) for items in (parts, tests)]
            return _placed(_call("chained", *lists), node)
        return self.expression(node)

    # -- parts

    def fresh(self, word: str) -> str:
        return f"_weft_{word}_{next(self.numbers)}"

    def placed(self, node: ast.AST, made: list[ast.stmt]) -> list[ast.stmt]:
        return [_placed(one, node) for one in made]

    def refuse(self, name: str, reason: str) -> ast.stmt:
        return ast.Expr(_call("refuse", _name(name), ast.Constant(reason)))

    def function(
        self, name: str, body: Sequence[ast.stmt], names: list[str], row: str = "",
        returns: bool = False, done: bool = False,
    ) -> ast.stmt:  # fmt: skip
        """A function of the variables that its body sets, which gives their values."""
        written = list(body) if done else self.block(body, [] if returns else None)
        if not returns:
            written = [*written, ast.Return(_values(names))]
        parameters = _parameters([*([row] if row else []), *names])
        unbound = [_unbound(one) for one in names]
        whole = [*unbound, *written] or [ast.Pass()]
        return ast.FunctionDef(name, parameters, whole, [])

    def live(
        self, names: list[str], node: ast.AST, loops: list[ast.AST] | None = None
    ) -> list[str]:
        """The variables that may be read after a statement."""
        end = (node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]
        loops = self.loops if loops is None else loops
        start = (loops[0].lineno, loops[0].col_offset) if loops else end  # type: ignore[attr-defined]
        read = {name for name, place in self.loads if place >= min(start, end)}
        return [name for name in names if name in read]

    def obstacle(self, nodes: Sequence[ast.AST], returns: bool) -> str | None:
        """The reason why statements cannot be part of a graph, if there is one."""
        for node in _own_nodes(nodes):
            if type(node) in _REASONS:
                return _REASONS[type(node)]
            if isinstance(node, ast.Return) and not returns:
                return "returns from within a loop"
            if _calls(node, "super") and not node.args:  # type: ignore[attr-defined]
                return "calls super() without arguments"
            if _calls(node, "next"):
                return "takes the next value of an iterator"
        for node in _own_nodes(nodes, loops=False):
            if isinstance(node, (ast.Break, ast.Continue)):
                word = "break" if isinstance(node, ast.Break) else "continue"
                return f"has a `{word}` of a loop around it"
        for name in _assigned(nodes):
            if name in self.declared:
                return f"sets {name!r}, which is no variable of this function"
        return None


def _jumps(nodes: Sequence[ast.AST]) -> bool:
    """Whether statements leave the loop around them, or begin its next step."""
    own = _own_nodes(nodes, loops=False)
    return any(isinstance(node, (ast.Break, ast.Continue)) for node in own)


def _guarded(statements: Sequence[ast.stmt], left: str, skip: str) -> list[ast.stmt]:
    """Statements that set variables where they left a loop, and then do nothing."""
    out: list[ast.stmt] = []
    for k, node in enumerate(statements):
        if isinstance(node, (ast.Break, ast.Continue)):
            name = left if isinstance(node, ast.Break) else skip
            return [*out, _placed(_assign(name, _call("set_flag", _name(name))), node)]
        if not _jumps([node]):
            out.append(node)
            continue
        if not isinstance(node, ast.If):
            raise Impossible
        new = copy.copy(node)
        new.body = _guarded(node.body, left, skip)
        new.orelse = _guarded(node.orelse, left, skip)
        out.append(new)
        rest = _guarded(statements[k + 1 :], left, skip)
        if rest:
            both = ast.BoolOp(ast.And(), [_not(left), _not(skip)])
            out.append(_placed(ast.If(both, rest, []), node))
        return out
    return out


def _not(name: str) -> ast.expr:
    return ast.UnaryOp(ast.Not(), _name(name))


def _calls(node: ast.AST, *names: str) -> bool:
    """Whether a node is a call of a function by one of these names."""
    named = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    return named and node.func.id in names  # type: ignore[attr-defined]


def _looks_at_frames(node: ast.AST) -> bool:
    """Whether a node sees a function's variables by their names."""
    if isinstance(node, ast.Name) and node.id in _FRAMES:
        return True
    return _calls(node, "vars", "dir") and not node.args  # type: ignore[attr-defined]


def _bound_in(node: ast.AST) -> Iterator[str]:
    """The variables that a node of an inner function binds."""
    if isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        yield node.name


def _helper(name: str) -> ast.expr:
    return ast.Attribute(ast.Constant(HELPERS), name, ast.Load())


def _call(name: str, *args: ast.expr) -> ast.expr:
    return ast.Call(_helper(name), list(args), [])


def _name(name: str, context: Any = None) -> ast.Name:
    return ast.Name(name, context or ast.Load())


def _assign(name: str, value: ast.expr) -> ast.stmt:
    return ast.Assign([_name(name, ast.Store())], value)


def _parameters(names: Sequence[str]) -> ast.arguments:
    return ast.arguments([], [ast.arg(n) for n in names], None, [], [], None, [])


def _thunk(value: ast.expr) -> ast.expr:
    return ast.Lambda(_parameters([]), value)


def _constants(names: Sequence[str]) -> ast.expr:
    return ast.Tuple([ast.Constant(name) for name in names], ast.Load())


def _values(names: Sequence[str]) -> ast.expr:
    """The values of variables, some of which may have none."""
    values = [_call("value_of", _thunk(_name(name))) for name in names]
    return ast.Tuple(values, ast.Load())


def _unpack(names: Sequence[str], call: ast.expr) -> list[ast.stmt]:
    targets = ast.Tuple([_name(name, ast.Store()) for name in names], ast.Store())
    first = ast.Assign([targets], call) if names else ast.Expr(call)
    return [first, *[_unbound(name) for name in names]]


def _unbound(name: str) -> ast.stmt:
    """``if name is UNDEFINED: del name``."""
    test = ast.Compare(_name(name), [ast.Is()], [_helper("UNDEFINED")])
    return ast.If(test, [ast.Delete([_name(name, ast.Del())])], [])


def _placed(made: Any, node: ast.AST) -> Any:
    """New nodes at the place of the one that they stand for."""
    for one in ast.walk(made):
        if not hasattr(one, "lineno") and "lineno" in one._attributes:
            ast.copy_location(one, node)
    return made
