"""Rewriting: rules given as examples of before and after, applied to a graph.

    rule(before=lambda x: x * 1, after=lambda x: x)

Nodes are taken in order of execution. A node that ends a match of a rule's ``before``
is replaced by the nodes of ``after`` over the same tensors; rules are applied to these
as well, and to the whole graph until no rule fits.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NamedTuple, overload

from weft.core.op import Op
from weft.errors import WeftError
from weft.graph.ir import (
    INPUT,
    STATEFUL,
    Builder,
    Graph,
    GraphError,
    Node,
    Role,
    subgraphs,
    type_text,
)
from weft.graph.passes import dead_code
from weft.graph.pattern import (
    Function,
    Open,
    Pairs,
    Pattern,
    RuleError,
    candidates,
    match,
)
from weft.graph.symbol import Building
from weft.graph.verify import Unassuming, same_type

DEEPEST = 64  # how often the nodes of a rule may be rewritten in turn
PASSES = 64  # how often the whole graph is looked at


def any(example: Any = 1) -> Any:
    """The default of an argument of ``before`` that may be any number or parameter.

    ``example`` is a value to trace the function with.

    >>> twice = weft.graph.rewrite.rule(
    ...     before=lambda x, a=weft.graph.rewrite.any(2.0): (x * a) * a,
    ...     after=lambda x, a: x * (a * a))
    """
    return Open(example)


class Match:
    """A match of a rule: ``match["x"]`` is the node that ``x`` stands for."""

    def __init__(
        self,
        rule: Rule,
        root: Node,
        found: dict[str, Any],
        pattern: Pattern,
        pairs: Pairs,
    ) -> None:
        self.rule = rule
        self.root = root
        self.found = found  # nodes of the tensors, values of the open numbers
        self.pattern = pattern
        self.pairs = pairs  # which node each of the pattern's is

    def __getitem__(self, name: str) -> Any:
        return self.found[name]


class Rule:
    """A pattern and its replacement."""

    def __init__(
        self,
        before: Callable[..., Any],
        after: Callable[..., Any],
        when: Callable[[Match], bool] | None,
        name: str,
        examples: Sequence[Any] | None,
    ) -> None:
        self.name = name
        self.before = Function(before, name)
        self.after = after
        self.when = when
        self.patterns = self.before.examples(examples)

    def __repr__(self) -> str:
        return f"<rule {self.name}>"


def rule(
    before: Callable[..., Any],
    after: Callable[..., Any],
    *,
    when: Callable[[Match], bool] | None = None,
    name: str | None = None,
    examples: Sequence[Any] | None = None,
) -> Rule:
    """A rule that replaces ``before`` by ``after``, two functions of tensors.

    The arguments of ``before`` stand for any tensors; one whose default is
    ``any(example)`` for any number or parameter. A value that ``before`` computes
    on the way may have no other use, unless ``before`` returns it too. ``when``
    decides about each match, from ``match["x"]``, the nodes by name. ``before`` is
    traced on small examples of rank 0 to 4; give ``examples`` (a tensor or a
    ``Spec`` for each tensor) where it needs others.

    >>> drop = weft.graph.rewrite.rule(before=lambda x: x * 1, after=lambda x: x)
    >>> g = weft.graph.capture(lambda x: (x * 1).exp(), weft.ones(3)).graph
    >>> print(weft.graph.rewrite.rewrite(g, [drop]))
    graph program(%x: float32[3]) {
      %exp: float32[3] = exp(%x)
      return %exp
    }
    """
    return Rule(before, after, when, name or _name_of(before), examples)


def _name_of(fn: Callable[..., Any]) -> str:
    code = fn.__code__
    if fn.__name__ != "<lambda>":
        return fn.__name__
    return f"rule_{code.co_firstlineno}"


class Fired(NamedTuple):
    """One replacement: which rule, at which node, made by which line."""

    rule: str
    node: str
    line: str

    def __str__(self) -> str:
        return f"{self.rule} at %{self.node}, made at {self.line}"


@overload
def rewrite(graph: Graph, rules: Iterable[Rule]) -> Graph: ...


@overload
def rewrite(
    graph: Graph, rules: Iterable[Rule], *, explain: Literal[True]
) -> tuple[Graph, list[Fired]]: ...


def rewrite(graph: Graph, rules: Iterable[Rule], *, explain: bool = False) -> Any:
    """The graph with the rules applied until none fits.

    With ``explain`` also the list of what was replaced where. A replaced value
    keeps its name, role, source line and module; a node with control edges stays.

    >>> rules = [weft.graph.rewrite.rule(
    ...     before=lambda x: x.exp().log(), after=lambda x: x, name="log of exp")]
    >>> g = weft.graph.capture(lambda x: x.exp().log() + 1, weft.ones(3)).graph
    >>> g, fired = weft.graph.rewrite.rewrite(g, rules, explain=True)
    >>> [(f.rule, f.node) for f in fired]
    [('log of exp', 'log')]
    """
    rules = list(rules)
    fired: list[Fired] = []
    for _ in range(PASSES):
        one = _Pass(graph, rules, fired)
        graph = one.run()
        if not one.changed:
            return (graph, fired) if explain else graph
    raise RuleError(_endless([f.rule for f in fired], graph.name))


def _endless(names: list[str], where: str) -> str:
    last = ", ".join(dict.fromkeys(names[-8:]))
    return (
        f"rewriting {where!r} does not come to an end; the rules that fired last: "
        f"{last}. A rule's `after` must not contain what a rule looks for"
    )


class _Pass:
    """One walk over a graph, from its first node to its last."""

    def __init__(self, graph: Graph, rules: list[Rule], fired: list[Fired]) -> None:
        self.graph = graph
        self.rules = rules
        self.fired = fired
        self.changed = False
        self.nodes: list[Node] = []
        self.new: dict[Node, Node] = {}  # the replacement of each node of the old graph
        self.instead: dict[Node, Node] = {}  # … and for one that gave way later
        self.names = {node.name for node in graph.nodes}
        self.uses: Counter[Node] = Counter()  # edges to the new nodes
        self.waiting = _uses(graph.nodes, graph.outputs)  # edges to the old ones
        self.exact: dict[Any, Pattern | None] = {}
        self.index: dict[Op, list[tuple[Rule, Pattern]]] = {}
        for one in rules:
            for pattern in one.patterns:
                self.index.setdefault(pattern.root.op, []).append((one, pattern))

    def run(self) -> Graph:
        for node in self.graph.nodes:
            self.emit(node)
        graph = self.graph
        outputs = [self.current(out) for out in graph.outputs]
        if not self.changed:
            return graph
        return dead_code(
            Graph(graph.name, self.nodes, outputs, graph.sizes, graph.inputs)
        )

    def emit(
        self, node: Node, depth: int = 0, name: str = "", role: Role | None = None
    ) -> None:
        """Add a node to the new graph, or a rule's replacement for it."""
        fresh = self.renewed(
            node, name or node.name, node.role if role is None else role
        )
        found = None if node.op is INPUT else self.find(fresh)
        if found is not None and self.replace(node, found, depth):
            return
        self.nodes.append(fresh)
        self.new[node] = fresh
        self.uses[fresh] += self.waiting[node]

    def current(self, node: Node) -> Node:
        node = self.new.get(node, node)
        while node in self.instead:
            node = self.instead[node]
        return node

    def renewed(self, node: Node, name: str, role: Role) -> Node:
        """The node over the new graph's nodes; itself if nothing changed."""
        inputs = tuple([self.current(i) if type(i) is Node else i for i in node.inputs])
        after = tuple([self.current(i) for i in node.after])
        params = self.params(node)
        pairs = zip((*inputs, *after), (*node.inputs, *node.after), strict=True)
        if (
            name == node.name
            and role is node.role
            and params is node.params
            and all(a is b for a, b in pairs)
        ):
            return node
        return Node(
            node.op, inputs, params, node.type, name, after,
            node.module, node.code, node.lasti, role,
        )  # fmt: skip

    def params(self, node: Node) -> dict[str, Any]:
        """The parameters, graphs among them rewritten."""
        if not dict(subgraphs(node)):
            return node.params
        found = {k: self.inner(v) for k, v in node.params.items()}
        same = all(found[k] is v for k, v in node.params.items())
        return node.params if same else found

    def inner(self, value: Any) -> Any:
        if isinstance(value, Graph):
            graph, fired = rewrite(value, self.rules, explain=True)
            self.fired += fired
            self.changed = self.changed or bool(fired)
            return graph
        if type(value) is tuple:
            found = tuple([self.inner(one) for one in value])
            same = all(a is b for a, b in zip(found, value, strict=True))
            return value if same else found
        return value

    # -- finding

    def find(self, root: Node) -> Match | None:
        for one, outline in self.index.get(root.op, ()):
            loose = match(outline, root, exact=False)
            if loose is None:
                continue
            nodes = [loose[i] for i in outline.inputs]
            for values in candidates(one.before, loose):
                found = self.fits(one, root, nodes, values)
                if found is not None:
                    return found
        return None

    def fits(
        self, one: Rule, root: Node, nodes: list[Node], values: dict[str, Any]
    ) -> Match | None:
        pattern = self.traced(one, nodes, values)
        pairs = None if pattern is None else match(pattern, root, exact=True)
        if pattern is None or pairs is None or not self.alone(pattern, pairs):
            return None
        tensors = zip(one.before.tensors, pattern.inputs, strict=True)
        found = {name: pairs[i] for name, i in tensors} | values
        whole = Match(one, root, found, pattern, pairs)
        return whole if one.when is None or one.when(whole) else None

    def traced(
        self, one: Rule, nodes: list[Node], values: dict[str, Any]
    ) -> Pattern | None:
        """The rule's ``before`` on these types; each is traced once."""
        types = [node.type for node in nodes]
        key = (one, tuple(map(type_text, types)), repr(values))
        if key not in self.exact:
            try:
                with Unassuming(self.graph.sizes):
                    self.exact[key] = one.before.trace(types, values, self.graph.sizes)
            except (WeftError, TypeError, ValueError, IndexError):
                self.exact[key] = None  # not a program on such types
        return self.exact[key]

    def alone(self, pattern: Pattern, pairs: Pairs) -> bool:
        """Whether nothing outside the match uses its inner nodes."""
        inside = pattern.inner
        if not inside:
            return True
        taken = {pairs[p] for p in pairs if p.op is not INPUT}
        edges = Counter(i for node in taken for i in node.parents)
        return all(self.uses[pairs[p]] <= edges[pairs[p]] for p in inside)

    # -- replacing

    def replace(self, node: Node, match: Match, depth: int) -> bool:
        if depth >= DEEPEST:
            names = [f.rule for f in self.fired]
            raise RuleError(_endless(names, self.graph.name))
        nodes, outs = self.made(match)
        if outs is None:
            return False
        self.changed = True
        root = match.root
        self.fired.append(Fired(match.rule.name, root.name, root.line))
        targets = [match.pairs[out] for out in match.pattern.outputs]
        self.count(node, nodes, dict(zip(targets, outs, strict=True)), root)
        main = outs[targets.index(root)]
        for one in nodes:
            if one is main:
                self.emit(one, depth + 1, root.name, root.role)
            else:
                name = self.free(f"{root.name}/{one.name}")
                self.emit(one, depth + 1, name, root.role.part)
        for target, out in zip(targets, outs, strict=True):
            if target is root:
                self.new[node] = self.current(out)
            elif self.current(out) is not target:
                self.instead[target] = self.current(out)
        return True

    def made(self, match: Match) -> tuple[list[Node], Any]:
        """The nodes that ``after`` makes for the match, and those of its outputs."""
        one, root = match.rule, match.root
        build = Building(Builder(one.name, self.graph.sizes))
        args = {
            name: build.symbol(value) if type(value) is Node else value
            for name, value in match.found.items()
        }
        sizes = Unassuming(self.graph.sizes)
        with sizes, build, build.taking(), build.builder.deriving(root):
            result = one.after(*args.values())
            outs = result if isinstance(result, tuple) else (result,)
            nodes = [build.lift(out) for out in outs]
        if sizes.assumed:
            return [], None  # its effect depends on sizes that are not known
        self.check(match, nodes)
        return build.builder.nodes, nodes

    def check(self, match: Match, outs: list[Node]) -> None:
        one, wanted = match.rule, match.pattern.outputs
        if len(outs) != len(wanted):
            raise RuleError(
                f"rule {one.name!r}: `before` has {len(wanted)} outputs, `after` "
                f"{len(outs)}"
            )
        for want, out in zip(wanted, outs, strict=True):
            have = match.pairs[want]
            if not same_type(out.type, have.type):
                raise GraphError(
                    f"rule {one.name!r} at node {have.name!r}: expected `after` to "
                    f"give {type_text(have.type)}, got {type_text(out.type)}; exclude "
                    f"this case with `when`\n  made at {have.line}"
                )

    def count(
        self, node: Node, made: list[Node], outs: dict[Node, Node], root: Node
    ) -> None:
        """Keep the numbers of edges: those to new nodes, and the old root's."""
        fresh = set(made)
        for one in made:
            for other in one.parents:
                (self.waiting if other in fresh else self.uses)[other] += 1
        for target, out in outs.items():
            edges = self.waiting[node] if target is root else self.uses[target]
            (self.waiting if out in fresh else self.uses)[out] += edges
        self.release(root)

    def release(self, root: Node) -> None:
        """Remove the edges of a deleted node, and of nodes that it alone used."""
        stack = [root]
        while stack:
            for other in stack.pop().parents:
                self.uses[other] -= 1
                if self.uses[other] == 0 and other.op not in STATEFUL:
                    stack.append(other)

    def free(self, name: str) -> str:
        """The name itself, or with a number behind it if it is taken."""
        free = name
        for k in itertools.count(1):
            if free not in self.names:
                break
            free = f"{name}_{k}"
        self.names.add(free)
        return free


def _uses(nodes: Sequence[Node], outputs: Sequence[Node]) -> Counter[Node]:
    found: Counter[Node] = Counter(outputs)
    for node in nodes:
        found.update(node.parents)
    return found
