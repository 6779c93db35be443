"""Reading the text of graphs (the grammar is at the top of ``text.py``)."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from types import CodeType
from typing import Any

from weft.core.op import Op, TensorType, all_ops
from weft.core.size import Assumption, Scope
from weft.errors import describe_line
from weft.graph.ir import (
    ASSIGN,
    CONSTANT,
    FORWARD,
    INPUT,
    READ,
    STRUCTURAL,
    Graph,
    Node,
    Role,
    Variable,
)
from weft.graph.tokens import Tokens
from weft.graph.values import Reader
from weft.graph.verify import verify

_CODE = (lambda: None).__code__
_RELATIONS = ("==", "!=", "<", "<=", ">", ">=")


def parse_graph(text: str, *, check: bool = True) -> Graph:
    """The graph that a text stands for: the inverse of ``print_graph``.

    The text is data: it is read, never run. ``check`` verifies the graph, so that
    a type written wrong is refused too.

    >>> graph = weft.graph.parse_graph('''
    ...     graph double(%x: float32[3]) {
    ...       %y: float32[3] = mul(%x, 2.0)
    ...       return %y
    ...     }''')
    >>> graph
    <graph double(float32[3]) -> (float32[3]), 2 nodes>
    >>> weft.graph.parse_graph("graph f(%x: float32[3]) { return %z }")
    Traceback (most recent call last):
    weft.graph.ir.GraphError: line 1, column 34: there is no %z before this line
    """
    reader = GraphReader(Tokens(text))
    graph = reader.graph()
    if reader.tokens.kind != "end":
        reader.tokens.fail("the end of the text after the graph's '}'")
    if check:
        verify(graph)
    return graph


class GraphReader(Reader):
    """Reads a graph and those in its parameters."""

    def __init__(
        self,
        tokens: Tokens,
        sizes: Scope | None = None,
        variables: Mapping[str, Variable] | None = None,
    ) -> None:
        super().__init__(tokens, sizes, variables)
        self._ops: dict[str, Op] = {**STRUCTURAL, **{op.name: op for op in all_ops()}}
        self._initial: list[tuple[Variable, int, str]] = []
        self._order: list[Node] = []
        self._name = ""
        self._inside = 0  # how many graphs are being read

    def graph(self) -> Graph:
        before = self.nodes, self.sizes, self._order, self._name
        self.nodes, self._order = {}, []
        self._inside += 1
        self.tokens.expect("graph")
        self._name = self.tokens.name()
        found = self._graph()
        self._inside -= 1
        self.nodes, self.sizes, self._order, self._name = before
        return found

    def _graph(self) -> Graph:
        tokens = self.tokens
        inputs_at = tokens.at
        self._skip_inputs()  # their types may name sizes, which are declared after
        self._declare_sizes()
        body_at, tokens.at = tokens.at, inputs_at
        inputs = self._inputs()
        tokens.at = body_at
        tokens.expect("{")
        while tokens.word == "state" and tokens.kind == "word":
            self._state()
        while not (tokens.word == "return" and tokens.kind == "word"):
            self._node()
        tokens.at += 1
        outputs = [] if tokens.word == "}" else self._references()
        tokens.expect("}")
        if self._inside == 1:
            self._resolve_initial()
        return Graph(self._name, self._order, outputs, self.sizes, inputs)

    # -- the header

    def _skip_inputs(self) -> None:
        tokens, depth = self.tokens, 0
        tokens.expect("(")
        while depth or tokens.word != ")":
            if tokens.kind == "end" or tokens.word in ("{", "="):
                tokens.fail("')' after the inputs")
            depth += (tokens.word in ("(", "[")) - (tokens.word in (")", "]"))
            tokens.at += 1
        tokens.at += 1

    def _inputs(self) -> list[Node]:
        tokens, inputs = self.tokens, []
        tokens.expect("(")
        while not tokens.skip(")"):
            line, name = tokens.line, self._new_name()
            tokens.expect(":")
            kind = self.type()
            inputs.append(self._add(INPUT, (), {"type": kind}, kind, name, (), line))
            if not tokens.skip(","):
                self._end(")")
                break
        return inputs

    def _declare_sizes(self) -> None:
        if not self.tokens.skip("sizes"):
            return
        self.sizes = Scope()
        self.tokens.expect("(")
        while not self.tokens.skip(")"):
            self._size_name()
            if not self.tokens.skip(","):
                self._end(")")
                break
        if self.tokens.skip("assuming"):
            self._assumptions()

    def _size_name(self) -> None:
        tokens = self.tokens
        if tokens.kind != "word":
            tokens.fail("the name of a size")
        name = tokens.take()
        hint = None
        if tokens.skip("like"):
            hint = self.size()
        self.sizes.symbol(name, hint)

    def _assumptions(self) -> None:
        tokens = self.tokens
        tokens.expect("(")
        while not tokens.skip(")"):
            line = describe_line(self._code(tokens.line), 0)
            left = self._number(self._sum())
            if tokens.word not in _RELATIONS:
                tokens.fail("one of " + " ".join(_RELATIONS))
            relation = tokens.take()
            right = self._number(self._sum())
            self.sizes.assume(left, relation, right)
            found = Assumption(left, relation, right, line)
            self.sizes.assumptions[str(found)] = found
            if not tokens.skip(","):
                self._end(")")
                break

    def _state(self) -> None:
        tokens = self.tokens
        if self._inside > 1:
            tokens.fail("a node; the outermost graph declares all `state`")
        tokens.at += 1
        name = tokens.reference("@")
        if name in self.variables:
            tokens.at -= 1
            tokens.fail("", f"two variables are named @{name}")
        tokens.expect(":")
        kind = self.type()
        if not isinstance(kind, TensorType):
            tokens.fail("one type for a variable")
        found = Variable(name, kind, trainable=tokens.skip("trainable"))
        if tokens.skip("initial"):
            self._initial.append((found, tokens.at, tokens.reference("%")))
        self.variables[name] = found

    def _resolve_initial(self) -> None:
        """Find the variables of first values, which are written after them."""
        for variable, at, name in self._initial:
            if name not in self.nodes:
                self.tokens.at = at
                self.tokens.fail("", f"there is no %{name} in this graph")
            variable.initial = self.nodes[name]

    # -- nodes

    def _node(self) -> None:
        tokens = self.tokens
        if tokens.kind != "reference":
            tokens.fail("a node (%name: type = …) or `return`")
        line, name = tokens.line, self._new_name()
        tokens.expect(":")
        kind = self.type()
        tokens.expect("=")
        op = self._op()
        tokens.expect("(")
        inputs, params = self._arguments(op, kind)
        after = tuple(self._references()) if tokens.skip("after") else ()
        self._add(op, inputs, params, kind, name, after, line, self._role())

    def _role(self) -> Role:
        tokens, gradient, recomputes = self.tokens, None, None
        region: list[int] = []
        if tokens.skip("gradient"):
            gradient = tokens.reference("%") if tokens.skip("of") else ""
        if tokens.skip("recomputes"):
            recomputes = tokens.reference("%")
        if tokens.skip("region"):
            region.append(self._region())
            while tokens.skip(","):
                region.append(self._region())
        return Role(gradient, recomputes, tuple(region))

    def _region(self) -> int:
        if not self.tokens.word.isdecimal():
            self.tokens.fail("the number of a region")
        return int(self.tokens.take())

    def _new_name(self) -> str:
        name = self.tokens.reference("%")
        if name in self.nodes:
            self.tokens.at -= 1
            self.tokens.fail("", f"two nodes are named %{name}")
        return name

    def _op(self) -> Op:
        word = self.tokens.word
        record = self._ops.get(word)
        if record is None:
            import weft.nn  # its records are registered when it is first used

            self._ops.update({op.name: op for op in weft.core.op.all_ops()})
            record = self._ops.get(word)
        if record is None:
            close = difflib.get_close_matches(word, self._ops, 3)
            hint = f"; there is {', '.join(close)}" if close else ""
            self.tokens.fail("", f"no operator is named {word!r}{hint}")
        self.tokens.at += 1
        return record

    def _arguments(self, op: Op, kind: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        tokens = self.tokens
        if op is CONSTANT:
            value = self.data(kind)
            tokens.expect(")")
            return (), {"value": value}
        inputs: list[Any] = []
        params: dict[str, Any] = {}
        first: dict[str, Any] = {"type": kind} if op is INPUT else {}
        if op is READ or op is ASSIGN:
            first["variable"] = self.variable()
            if tokens.word != ")":
                tokens.expect(",")
        while not tokens.skip(")"):
            self._argument(inputs, params)
            if not tokens.skip(","):
                self._end(")")
                break
        return tuple(inputs), first | params

    def _argument(self, inputs: list[Any], params: dict[str, Any]) -> None:
        tokens = self.tokens
        if tokens.kind == "word" and tokens.words[tokens.at + 1] == "=":
            key = tokens.take()
            tokens.at += 1
            if key in params:
                tokens.at -= 2
                tokens.fail("", f"the parameter {key!r} is given twice")
            params[key] = self.value()
        elif params:
            tokens.fail("parameter=value; arguments come before parameters")
        else:
            inputs.append(self.value())

    def _references(self) -> list[Node]:
        found = [self.node()]
        while self.tokens.skip(","):
            found.append(self.node())
        return found

    def _add(
        self,
        op: Op,
        inputs: tuple[Any, ...],
        params: dict[str, Any],
        kind: Any,
        name: str,
        after: tuple[Node, ...],
        line: int,
        role: Role = FORWARD,
    ) -> Node:
        code = self._code(line)
        node = Node(op, inputs, params, kind, name, after, "", code, 0, role)
        self.nodes[name] = node
        self._order.append(node)
        return node

    def _code(self, line: int) -> CodeType:
        """Lets errors name the line of the text as a node's line."""
        return _CODE.replace(
            co_filename="<text>", co_firstlineno=line, co_name=self._name
        )
