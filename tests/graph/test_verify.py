"""The verifier accepts what capture makes, and names the node that is wrong."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_graphs import graph, programs

import weft
import weft.nn
from weft.core import op as records
from weft.core.op import TensorType, find_op
from weft.core.size import Scope
from weft.graph import (
    Builder,
    Graph,
    GraphError,
    Node,
    Variable,
    capture,
    parse_graph,
    print_graph,
    verify,
)
from weft.graph.ir import ASSIGN, GROUP, PICK, READ

VECTOR = TensorType((3,), weft.float32)
MATRIX = TensorType((3, 4), weft.float32)


def start():
    build = Builder("broken")
    return build, build.input(VECTOR, "x")


def node(op, inputs, params=None, type=VECTOR, name="y", after=()):
    """A node of which nothing is checked; it is made on this line."""
    found = op if isinstance(op, records.Op) else find_op(op)
    code = node.__code__
    return Node(found, tuple(inputs), params or {}, type, name, after, "", code, 0)


def refused(build, *nodes, outputs=None, inputs=None):
    """The verifier's words about a graph with these nodes added."""
    all_nodes = [*build.nodes, *nodes]
    g = Graph("broken", all_nodes, outputs or all_nodes[-1:], build.sizes, inputs)
    with pytest.raises(GraphError) as error:
        verify(g)
    return str(error.value)


@settings(max_examples=30)
@given(programs, st.booleans())
def test_captured_graphs_are_well_formed(program, dynamic):
    g = graph(program, dynamic)
    before = dict(g.sizes.assumptions)
    verify(g)
    assert g.sizes.assumptions == before


def test_the_message_names_the_node_and_its_line():
    build, x = start()
    text = refused(build, node("exp", [x], type=MATRIX))
    assert "graph 'broken', node 'y': its type is float32[3, 4], but exp" in text
    assert "gives float32[3]" in text
    assert "made at" in text
    assert "test_verify.py" in text


def test_two_nodes_of_one_name():
    build, x = start()
    text = refused(build, node("exp", [x]), node("neg", [x]))
    assert "node 'y': another node has this name" in text


def test_an_input_that_stands_after():
    build, x = start()
    first = node("exp", [x], name="first")
    text = refused(build, node("neg", [first], name="second"), first)
    assert "node 'second': its input 'first' stands after it" in text


def test_a_control_edge_that_stands_after():
    build, x = start()
    first = node("exp", [x], name="first")
    text = refused(build, node("neg", [x], name="second", after=(first,)), first)
    assert "node 'second': its control edge 'first' stands after it" in text


def test_a_cycle_names_its_nodes():
    build, x = start()
    a = node("add", [x, x], name="a")
    b = node("neg", [a], name="b")
    c = node("exp", [b], name="c")
    object.__setattr__(a, "inputs", (x, c))
    text = refused(build, a, b, c)
    assert "these nodes wait for each other: 'a' → 'b' → 'c' → 'a'" in text


def test_a_node_of_another_graph():
    build, _ = start()
    _, other = start()
    text = refused(build, node("exp", [other]))
    assert "its input 'x' belongs to another graph" in text


@pytest.mark.parametrize(
    ("op", "count", "params", "message"),
    [
        ("exp", 2, {}, r"exp takes 1 \(x\) inputs, got 2"),
        ("add", 1, {}, r"add takes 2 \(x, y\) inputs, got 1"),
        ("exp", 1, {"dim": 0}, "exp has no parameter 'dim' .its parameters: none"),
        ("sum", 1, {"dim": (0,), "keep": 1}, "sum has no parameter 'keep'"),
        ("sum", 1, {"keepdim": False}, "sum needs the parameter 'dim'"),
        ("permute", 1, {"dims": (0, 1)}, "permute"),
        ("reshape", 1, {"shape": (7,)}, "reshape"),
    ],
)
def test_calls_that_do_not_fit(op, count, params, message):
    build, x = start()
    text = refused(build, node(op, [x] * count, params))
    assert re.search(message, text), text


def test_a_pick_of_one_tensor():
    build, x = start()
    text = refused(build, node(PICK, [x], {"index": 0}))
    assert "there is no output 0 of float32[3]" in text


def test_outputs_and_inputs_belong():
    build, x = start()
    stray = node("exp", [x], name="stray")
    assert "node 'stray': this output is not" in refused(build, outputs=[stray])
    assert "node 'stray': this input is not" in refused(build, inputs=[stray])
    made = node("exp", [x])
    text = refused(build, made, inputs=[made])
    assert "an input cannot be a node of exp" in text


def test_variables_agree():
    build, x = start()
    one, two = Variable("w", VECTOR), Variable("w", VECTOR)
    read = node(READ, [], {"variable": one}, name="r")
    write = node(ASSIGN, [x], {"variable": two}, name="a")
    assert "another variable is named 'w'" in refused(build, read, write)
    text = refused(build, node(READ, [], {"variable": one}, MATRIX))
    assert "its type is float32[3, 4], but read gives float32[3]" in text
    wide = Variable("wide", MATRIX)
    text = refused(build, node(ASSIGN, [x], {"variable": wide}))
    assert "assign: variable 'wide' is float32[3, 4], got float32[3]" in text


def test_sizes_are_declared():
    foreign = Scope().symbol("N", 3)
    build, x = start()
    kind = TensorType((foreign, 3), weft.float32)
    made = node("expand", [x], {"shape": (foreign, 3)}, kind)
    assert "the size 'N' is not declared (there are: none)" in refused(build, made)


def test_sizes_are_named_by_words():
    for name in ("my size", "float32", "None"):
        build = Builder("broken")
        build.input(TensorType((build.sizes.symbol(name, 2),), weft.float32), "x")
        assert f"a size cannot be named {name!r}" in refused(build)


def test_what_holds_only_for_the_example_must_be_assumed():
    build = Builder("broken")
    first, second = build.sizes.symbol("B", 3), build.sizes.symbol("T", 3)
    x = build.input(TensorType((1, first), weft.float32), "x")
    y = build.input(TensorType((second, 1), weft.float32), "y")
    made = node("matmul", [x, y], type=TensorType((1, 1), weft.float32), name="z")
    text = refused(build, made)
    assert "node 'z': this holds only if B == T, which is not assumed" in text
    assert not build.sizes.assumptions
    build.sizes.assume(first, "==", second)
    verify(Graph("sound", [*build.nodes, made], [made], build.sizes))


def test_inner_graphs_are_verified():
    op = records.define(
        "run_body", inputs="x", eval=lambda x, *, body: x, type=lambda x, *, body: x
    )
    try:
        build, x = start()
        wrong = node("exp", [x], type=MATRIX, name="inner")
        body = Graph("body", [x, wrong], [wrong])
        text = refused(build, node(op, [x], {"body": body}))
    finally:
        records.unregister("run_body")
    assert "in 'body' of node 'y': graph 'body', node 'inner': its type is" in text


def test_control_edges_and_groups_are_sound():
    build, x = start()
    stored = build.assign(Variable("w", VECTOR), x)
    with build.control([stored]):
        done = build.add(GROUP, (), {})
    verify(build.finish([done]))


def test_long_graphs_are_verified_in_one_walk():
    build, node = start()
    for _ in range(20_000):
        node = build.add(find_op("neg"), (node,), {})
    verify(build.finish([node]))


def test_a_whole_training_step_is_well_formed():
    model = weft.nn.Sequential(
        weft.nn.Conv2d(1, 2, 3), weft.nn.BatchNorm2d(2), weft.nn.ReLU(),
        weft.nn.AvgPool2d(2), weft.nn.Flatten(), weft.nn.Linear(18, 3),
    )  # fmt: skip
    optimizer = weft.optim.Adam(model.parameters())

    def step(x, y):
        optimizer.zero_grad()
        loss = weft.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    rows = {"x": {0: "B"}, "y": {0: "B"}}
    examples = weft.ones(2, 1, 8, 8), weft.tensor([0, 2])
    g = capture(step, *examples, dynamic=rows).graph
    verify(g)
    assert str(parse_graph(print_graph(g, constants="full"))) == str(g)
