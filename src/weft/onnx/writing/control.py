"""Rules of branches and loops: graphs inside of nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnx import GraphProto, helper

import weft
from weft.graph.ir import Graph
from weft.onnx.types import NUMBERS
from weft.onnx.writing.writer import Refused, Writer, rule


def value_info(name: str, type: Any) -> Any:
    """The type of a value; open sizes have names."""
    shape = [n if type_of(n) is int else str(n) for n in type.shape]
    return helper.make_tensor_value_info(name, NUMBERS[type.dtype], shape)


type_of = type


class Body:
    """A graph inside of a node, on its way."""

    def __init__(self, w: Writer, node: Any, graph: Graph, label: str) -> None:
        self.w = Writer(w.opset, w)
        self.w.symbols = dict(node.params.get("sizes") or ())
        self.graph, self.label = graph, label
        self.inputs: list[Any] = []

    def bind(self, names: Sequence[str]) -> None:
        """Give the first inputs the names of values around the graph."""
        for node, name in zip(self.graph.inputs, names, strict=False):
            self.w.values[node] = name

    def take(self, nodes: Sequence[Any]) -> None:
        """Let inputs be those of the body itself."""
        for node in nodes:
            name = self.w.name(node.name.replace("/", "_"))
            self.w.values[node] = name
            self.inputs.append(value_info(name, node.type))

    def finish(self, before: Sequence[Any] = ()) -> GraphProto:
        """The body; ``before`` are results that come first."""
        self.w.write(self.graph)
        results = list(before)
        for node in self.graph.outputs:
            name = self.w("Identity", self.w.read(node))  # each result is its own
            results.append(value_info(name, node.type))
        return helper.make_graph(self.w.nodes, self.label, self.inputs, results)


@rule("cond")
def _cond(w: Writer, node: Any, condition: str, *xs: str) -> tuple[str, ...]:
    given = node.inputs[0]
    condition = w("Reshape", condition, w.ints([])) if given.shape else condition
    condition = condition if given.dtype is weft.bool else w.cast(condition, weft.bool)
    branches = {}
    for key, name in (("then", "then_branch"), ("other", "else_branch")):
        body = Body(w, node, node.params[key], key)
        body.bind(xs)
        branches[name] = body.finish()
    return tuple(w.many("If", len(node.type), condition, **branches))


@rule("while_loop")
def _while_loop(w: Writer, node: Any, *xs: str) -> tuple[str, ...]:
    """A loop; its results are the number of steps, then what it carries."""
    fixed, p = node.params["fixed"], node.params
    first = Body(w, node, p["condition"], "condition")
    first.bind(xs)
    first.w.nodes = w.nodes  # the first question is asked before the loop
    first.w.write(p["condition"])
    go = first.w.read(p["condition"].outputs[0])

    body = Body(w, node, p["body"], "body")
    body.bind(xs[:fixed])
    step, goes = body.w.name("step"), body.w.name("goes")
    body.inputs = [
        helper.make_tensor_value_info(step, NUMBERS[weft.int64], []),
        helper.make_tensor_value_info(goes, NUMBERS[weft.bool], []),
    ]
    count = body.w.name("count")
    body.inputs.append(helper.make_tensor_value_info(count, NUMBERS[weft.int64], []))
    body.take(p["body"].inputs[fixed:])
    body.w.write(p["body"])
    results = [body.w.read(x) for x in p["body"].outputs]
    again = Body(body.w, node, p["condition"], "condition")
    again.w.outer = w
    again.bind([*xs[:fixed], *results])
    again.w.nodes = body.w.nodes
    again.w.write(p["condition"])
    more = again.w.read(p["condition"].outputs[0])
    next_ = body.w("Add", count, body.w.size(1))
    ends = [helper.make_tensor_value_info(body.w("Identity", more), 9, []),
            helper.make_tensor_value_info(next_, 7, [])]  # fmt: skip
    for name, x in zip(results, p["body"].outputs, strict=True):
        ends.append(value_info(body.w("Identity", name), x.type))
    graph = helper.make_graph(body.w.nodes, "body", body.inputs, ends)
    start = w.size(0)
    return tuple(w.many("Loop", len(node.type), "", go, start, *xs[fixed:], body=graph))


@rule("scan")
def _scan(w: Writer, node: Any, *xs: str) -> tuple[str, ...]:
    p = node.params
    if p.get("stacked") or p["saved"]:
        raise Refused("a scan that keeps values for its gradient has no form in ONNX")
    fixed, carried, given = p["fixed"], p["carried"], list(xs)
    body = Body(w, node, p["body"], "body")
    body.bind(given[:fixed])
    body.take(p["body"].inputs[fixed:])
    rows = len(given) - fixed - carried
    if rows == 0:  # a scan over nothing has places to go over
        place = body.w.name("place")
        body.inputs.append(helper.make_tensor_value_info(place, 7, []))
        places = w("Range", w.size(0), w.size(p["length"]), w.size(1))
        given.append(places)
        rows = 1
    graph = body.finish()
    outputs = len(node.type)
    turned = {}
    if p["reverse"]:
        turned = {
            "scan_input_directions": [1] * rows,
            "scan_output_directions": [1] * (outputs - carried),
        }
    return tuple(
        w.many("Scan", outputs, *given[fixed:], body=graph, num_scan_inputs=rows,
               **{k: v for k, v in turned.items() if v})
    )  # fmt: skip
