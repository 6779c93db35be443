"""A graph as it is drawn: boxes in nested groups, with a kind each.

    outline = boxes, groups, edges
    box     = a node: title, kind, group
    group   = name, parent, children        of a module path or a name scope
    item    = a box's number, or the number of boxes plus a group's
    edge    = box → box, of data, of control, or from an inner graph to its node

A node's group is its module (``blocks.3.attn``), below the scope of its name
(``grad/…``, ``AdamW/…``). What only feeds others (constants, variables that are
read) stands with its first user, an assignment with what it assigns, and the
graphs in a node's parameters are groups beside the node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from weft.errors import DTypeError
from weft.graph.capture import capture
from weft.graph.captured_program import Captured
from weft.graph.ir import (
    ASSIGN,
    CONSTANT,
    INPUT,
    READ,
    Graph,
    Node,
    subgraphs,
    type_text,
)

Path = tuple[str, ...]
KINDS = ("input", "constant", "state", "forward", "backward", "update")
PASSIVE = (CONSTANT, READ)
DEEPEST = 24  # groups in groups, for each graph


class Box(NamedTuple):
    """One node of the drawing."""

    node: Node
    title: str
    kind: str
    path: Path


class Edge(NamedTuple):
    source: int
    target: int
    kind: str  # data, control or inner


class Group:
    """Boxes of one module or scope, and the groups inside it."""

    def __init__(self, name: str, parent: int) -> None:
        self.name = name
        self.parent = parent
        self.items: list[int] = []  # boxes and groups directly in it
        self.count = 0  # boxes in it at any depth
        self.kind = "forward"


class Outline:
    """The boxes, groups and edges of a graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.boxes: list[Box] = []
        self.edges: list[Edge] = []
        numbers = self._collect(graph, ())
        self.outputs = {numbers[node] for node in graph.outputs}
        self.groups = [Group(graph.name, -1)]
        self.home: list[int] = []  # each box's group
        self._arrange()

    # -- boxes and edges

    def _collect(self, graph: Graph, lead: Path) -> dict[Node, int]:
        """Add a graph's boxes; their numbers by node."""
        numbers: dict[Node, int] = {}
        kinds, paths = _kinds(graph), _paths(graph)
        for node in graph.nodes:
            path = lead + paths[node]
            inner = self._inner(node, path)
            number = numbers[node] = len(self.boxes)
            self.boxes.append(Box(node, _title(node), kinds[node], path))
            sources = dict.fromkeys(i for i in node.inputs if type(i) is Node)
            self.edges += [Edge(numbers[s], number, "data") for s in sources]
            self.edges += [Edge(numbers[s], number, "control") for s in node.after]
            self.edges += [Edge(s, number, "inner") for s in inner]
        return numbers

    def _inner(self, node: Node, path: Path) -> list[int]:
        """Add the graphs in a node's parameters; the boxes of their results."""
        results: dict[int, None] = {}
        for name, inner in subgraphs(node):
            numbers = self._collect(inner, (*path, node.name, name))
            ends = (*inner.outputs, *inner.effects)
            results.update(dict.fromkeys(numbers[end] for end in ends))
        return list(results)

    # -- groups

    def _arrange(self) -> None:
        known: dict[Path, int] = {(): 0}
        counts = Counter(box.path[:k] for box in self.boxes
                         for k in range(1, len(box.path) + 1))  # fmt: skip
        for number, box in enumerate(self.boxes):
            home = self._group(box.path, known, counts)
            self.home.append(home)
            self.groups[home].items.append(number)
        self._count()

    def _group(self, path: Path, known: dict[Path, int], counts: Any) -> int:
        found = known.get(path)
        if found is not None:
            return found
        above = self._group(path[:-1], known, counts)
        if counts[path] == 1:  # one box needs no frame
            known[path] = above
            return above
        number = known[path] = len(self.groups)
        self.groups.append(Group(path[-1], above))
        self.groups[above].items.append(self.item(number))
        return number

    def _count(self) -> None:
        kinds: list[Counter[str]] = [Counter() for _ in self.groups]
        for number, box in enumerate(self.boxes):
            kinds[self.home[number]][box.kind] += 1
        for number in range(len(self.groups) - 1, -1, -1):
            group, found = self.groups[number], kinds[number]
            group.count = found.total()
            active = {k: n for k, n in found.items() if k in KINDS[3:]} or found
            group.kind = max(active, key=lambda k: active[k], default="forward")
            if group.parent >= 0:
                kinds[group.parent].update(found)

    # -- questions

    def item(self, group: int) -> int:
        """A group's number among boxes and groups."""
        return len(self.boxes) + group

    def group_of(self, item: int) -> int:
        """The group that a box or a group stands in."""
        boxes = len(self.boxes)
        return self.home[item] if item < boxes else self.groups[item - boxes].parent

    def chain(self, item: int) -> list[int]:
        """The item and the groups around it, innermost first."""
        found = [item]
        while (above := self.group_of(found[-1])) > 0:
            found.append(self.item(above))
        return found

    def full_name(self, group: int) -> str:
        names = []
        while group > 0:
            names.append(self.groups[group].name)
            group = self.groups[group].parent
        return "/".join(reversed(names))

    def opened(self, limit: int) -> set[int]:
        """The groups to show open so that about ``limit`` items are seen.

        Outer groups come first, and small ones before large ones.
        """
        opened, seen = {0}, len(self.groups[0].items)
        todo = self._inside(0)
        while todo:
            later: list[int] = []
            for group in sorted(todo, key=lambda g: len(self.groups[g].items)):
                more = len(self.groups[group].items)
                if seen + more <= limit:
                    seen += more
                    opened.add(group)
                    later += self._inside(group)
            todo = later
        return opened

    def _inside(self, group: int) -> list[int]:
        boxes = len(self.boxes)
        return [i - boxes for i in self.groups[group].items if i >= boxes]


# -- kinds of nodes


def _title(node: Node) -> str:
    if node.op is READ or node.op is ASSIGN:
        arrow = "" if node.op is READ else " ←"
        return f"@{node.params['variable'].name}{arrow}"
    if node.op is CONSTANT and node.params["value"].size == 1:
        return str(node.params["value"].item())
    return node.name if node.op is INPUT else node.op.name


def _kinds(graph: Graph) -> dict[Node, str]:
    """Forward, backward, update, …: by the role and by what needs it."""
    wanted = set(graph.outputs)  # outputs, gradients and what they need
    kinds: dict[Node, str] = {}
    for node in reversed(graph.nodes):
        backward = node.role.is_gradient
        if node.op in (READ, ASSIGN):
            kinds[node] = "state"
        elif node.op in (INPUT, CONSTANT):
            kinds[node] = node.op.name
        else:
            kinds[node] = "backward" if backward else "forward"
            if not backward and node not in wanted:
                kinds[node] = "update"
        if backward or node in wanted:
            wanted.update(node.parents)
    assigns = any(n.op is ASSIGN for n in graph.nodes)
    return (
        kinds
        if assigns
        else {n: "forward" if kind == "update" else kind for n, kind in kinds.items()}
    )


def _paths(graph: Graph) -> dict[Node, Path]:
    paths = {node: _path(node, graph.by_name) for node in graph.nodes}
    users = graph.users()
    for node in reversed(graph.nodes):
        if node.op in PASSIVE and users[node]:
            paths[node] = paths[users[node][0]]
    for node in graph.nodes:
        if node.op is ASSIGN and type(node.inputs[0]) is Node:
            paths[node] = paths[node.inputs[0]]
        elif node.op is INPUT:
            paths[node] = ()
    return paths


def _path(node: Node, names: dict[str, Node]) -> Path:
    """The scopes of the name that are no nodes (but for a variable, whose update has
    its name), then the module."""
    steps = node.name.split("/")[:-1]
    own = [s for s in steps if s not in names or names[s].op in PASSIVE]
    scopes = tuple(s for s in own if s)
    # The outermost module goes by its class; its own nodes stand between its children.
    inside = node.module and not node.module[0].isupper()
    return (scopes + (tuple(node.module.split(".")) if inside else ()))[:DEEPEST]


# -- objects that can be drawn


def graph_of(source: Any, examples: Iterable[Any] = ()) -> Graph:
    """The graph of a graph, a captured program, or a module with its examples."""
    if isinstance(source, Graph):
        return source
    if isinstance(source, Captured):
        return source.graph
    if isinstance(source, Callable):  # type: ignore[arg-type]
        return capture(source, *examples).graph
    raise DTypeError(
        "expected a graph, a captured program, or a module or function with its "
        f"examples, got {type(source).__name__}"
    )


def edge_label(box: Box) -> str:
    """The label of the value that leaves a box."""
    return type_text(box.node.type) if box.node.type is not None else ""
