"""Roles of nodes: who gives them, what keeps them, and how they are written."""

import gc
import pathlib
import re
import threading
import weakref

import pytest

import weft
import weft.nn
from weft.compile import passes as p
from weft.compile import pipeline
from weft.compile.passes.recompute import recompute
from weft.compile.passes.rename_sizes import rename_sizes
from weft.core.op import TensorType
from weft.graph import (
    Builder,
    Building,
    GraphError,
    apply,
    capture,
    gradients,
    parse_graph,
    print_graph,
    verify,
)
from weft.graph.control.bodies import cache_of, pullback
from weft.graph.ir import FORWARD, Role
from weft.graph.rewrite import rewrite, rule
from weft.utils.checkpoint import checkpoint


def roles(graph):
    return {n.name: n.role for n in graph.nodes if n.role != FORWARD}


def read(lines, inputs="%x: float32[3]"):
    return parse_graph(f"graph f({inputs}) {{\n{lines}\n}}")


# -- who gives them


def test_gradients_are_of_nodes():
    g = gradients(capture(lambda x: x.sin().sum(), weft.ones(3)).graph)
    found = roles(g)
    assert {name.rpartition("/")[0]: role.gradient for name, role in found.items()} == {
        "grad/sum": "sum",
        "grad/sin": "sin",
    }
    assert not any(role.is_copy or role.region for role in found.values())
    second = gradients(g, [g.outputs[1]], [g.inputs[0]])
    of = {role.gradient for role in roles(second).values()}
    assert {"sin", "grad/sin/cos"} <= of


def test_a_captured_backward_is_a_gradient():
    model = weft.nn.Linear(3, 2)

    def step(x):
        loss = model(x).square().sum()
        loss.backward()
        return loss

    g = capture(step, weft.ones(4, 3)).graph
    names = {n.name for n in g.nodes if n.role == FORWARD}
    found = roles(g)
    assert {"square", "sum", "matmul"} <= {role.gradient for role in found.values()}
    assert {role.gradient for role in found.values()} <= names
    assert all(n.role == FORWARD for n in g.nodes if n.op.name in ("read", "assign"))


def test_history_from_before_has_no_node():
    x = weft.ones(3, requires_grad=True)
    y = x.exp()  # before the capture
    g = capture(lambda w: weft.autograd.grad((y * w).sum(), x)[0], weft.ones(3)).graph
    assert roles(g)["grad/mul/absorb"] == Role("mul")
    assert roles(g)["grad/exp/absorb"] == Role("")
    assert "absorb(%grad/mul/absorb, %y) gradient\n" in print_graph(g)


def test_regions_nest_and_gradients_are_in_them():
    def loss(x):
        def outer(x):
            return checkpoint(lambda x: x.exp(), x.sin()).cos()

        return checkpoint(outer, x).sum() + checkpoint(lambda x: x.tanh(), x).sum()

    captured = capture(weft.func.grad(loss), weft.ones(3))
    assert captured.regions == [None, None, None]
    regions = {}
    for node in captured.graph.nodes:
        regions.setdefault((node.op.name, node.role.is_gradient), node.role.region)
    assert regions["sin", False] == (0,)
    assert regions["exp", False] == (0, 1)
    assert regions["tanh", False] == (2,)
    of = {n.role.gradient: n.role.region for n in captured.graph.nodes}
    exp, sin = (
        next(n.name for n in captured.graph.nodes if n.op.name == name)
        for name in ("exp", "sin")
    )
    assert of[exp] == (0, 1)
    assert of[sin] == (0,)


def test_a_builder_gives_the_role_of_its_scope():
    build = Builder()
    x = build.input(TensorType((3,), weft.float32), "x")
    with build.region(4):
        one = build.constant(weft.ones(1).numpy())
    with build.gradient_of(one):
        two = build.constant(weft.ones(1).numpy())
    with build.gradient_of(two), build.deriving(x):
        three = build.constant(weft.ones(1).numpy())
    assert one.role == Role(region=(4,))
    assert two.role == Role(one.name, region=(4,))
    assert three.role == Role(two.name, region=(4,))
    assert build.role == FORWARD
    verify(build.finish([three]))


def test_a_graph_inside_another_takes_its_place_there():
    inner = gradients(capture(lambda x: x.sin().sum(), weft.ones(3)).graph)
    build = Building(Builder("outer"))
    with build, build.taking():
        x = build.symbol(build.builder.input(TensorType((3,), weft.float32), "x"))
        with build.builder.region(7), build.builder.scope("block"):
            outs = [build.lift(out) for out in apply(inner, [x], build)]
    g = build.builder.finish(outs)
    verify(g)
    by_op = {n.op.name: n.role for n in g.nodes}
    assert by_op["sin"] == Role(region=(7,))
    assert by_op["cos"] == Role("checkpoint7/block/sin", region=(7,))
    assert by_op["cos"].gradient in g.by_name


# -- what keeps them

STEP = """
  %a: float32[3] = exp(%x) region 0
  %b: float32[3] = sin(%a)
  %c: float32[3] = mul(%b, 1) gradient of %b region 0
  %d: float32[3] = add(%c, 0)
  %e: float32[3] = exp(%x) after %d recomputes %a region 0
  %f: float32[3] = div(%e, %b) gradient
  return %f, %d
"""


def test_every_pass_keeps_them():
    g = read(STEP)
    before = roles(g)
    for one in (*[one for _, one in pipeline.PASSES], rename_sizes):
        found = one(g)
        verify(found)
        assert {n: before[n] for n in roles(found)} == roles(found)
    made = pipeline.run(g)
    assert roles(made) == {n: before[n] for n in ("a", "e", "f")}


def test_what_a_pass_makes_for_a_node_has_its_role():
    g = read("""
      %a: float32[3, 4] = expand(%y, shape=(3, 4)) gradient of %x region 2
      %b: float32[3] = sum(%a, dim=(1,), keepdim=False) gradient of %x region 2
      %c: float32[3] = sum(%a, dim=(1,), keepdim=False) recomputes %b region 2
      %d: float32[3] = add(%b, %c)
      return %d
    """, "%y: float32[3, 1]")  # fmt: skip
    found = pipeline.run(g)
    verify(found)
    assert len(found) > 2
    for node in found.nodes:
        if node.op.name not in ("input", "add"):
            assert node.role.region == (2,), node


def test_rules_keep_them():
    double = rule(before=lambda x: x.exp(), after=lambda x: x.sin().cos())
    g = read("""
      %a: float32[3] = exp(%x) gradient of %b region 1
      %b: float32[3] = neg(%a)
      %c: float32[3] = exp(%x) recomputes %gone
      return %b, %c
    """)
    found = rewrite(g, [double])
    verify(found)
    assert roles(found) == {
        "a": Role("b", region=(1,)),
        "a/sin": Role("b", region=(1,)),
        "c": Role(recomputes="gone"),
    }


def test_a_branch_that_is_taken_is_in_the_place_of_the_choice():
    def choice(x):
        true = weft.full((), True)
        return weft.cond(true, lambda x: x.sin().cos().neg(), lambda x: x, (x,))

    g = capture(lambda x: checkpoint(choice, x), weft.ones(3)).graph
    text = print_graph(g).replace("cos(%sin)", "cos(%sin) gradient of %sin")
    found = p.fold(parse_graph(text))
    verify(found)
    assert roles(found) == {
        "checkpoint0/cond/sin": Role(region=(0,)),
        "checkpoint0/cond/cos": Role("checkpoint0/cond/sin", region=(0,)),
        "checkpoint0/cond/neg": Role(region=(0,)),
    }


# -- text

LINES = [
    "%a: float32[3] = exp(%x) gradient",
    "%a: float32[3] = exp(%x) gradient of %b",
    '%a: float32[3] = exp(%x) gradient of %"b c"',
    "%a: float32[3] = exp(%x) recomputes %b",
    "%a: float32[3] = exp(%x) region 0",
    "%a: float32[3] = exp(%x) region 2, 0, 11",
    "%a: float32[3] = exp(%x) after %x gradient of %b recomputes %c region 1, 3",
    "%a: float32[3] = exp(%x) gradient recomputes %gradient region 1",
]


@pytest.mark.parametrize("line", LINES)
def test_text_and_back(line):
    text = (
        f"graph f(%x: float32[3]) {{\n  {line}\n  %b: float32[3] = neg(%a)\n"
        "  return %b\n}"
    )
    g = parse_graph(text, check=False)
    assert print_graph(g) == text
    assert parse_graph(print_graph(g), check=False)["a"].role == g["a"].role


@pytest.mark.parametrize(
    ("end", "message"),
    [
        ("gradient of 3", "a name that begins with %"),
        ("recomputes", "a name that begins with %"),
        ("region", "the number of a region"),
        ("region 1.5", "the number of a region"),
        ("region -1", "the number of a region"),
        ("region 1,", "the number of a region"),
        ("region 1 gradient", "a node"),
        ("recomputes %b gradient", "a node"),
    ],
)
def test_roles_that_cannot_be_read(end, message):
    with pytest.raises(GraphError, match=message):
        read(f"%a: float32[3] = exp(%x) {end}\nreturn %a")


# -- the verifier


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("%a: float32[3] = exp(%x) gradient of %a", "names the node itself"),
        ("%a: float32[3] = exp(%x) recomputes %a", "names the node itself"),
        (
            "%a: float32[3] = exp(%x)\n%b: float32[3] = sin(%x) recomputes %a",
            "node 'b': it is a node of sin, and recomputes 'a', a node of exp",
        ),
        (
            "%a: float32[3] = exp(%x)\n%s: float32[] = sum(%x, dim=(0,), keepdim=False)"
            "\n%b: float32[] = exp(%s) recomputes %a",
            r"node 'b': its type is float32\[\], that of 'a', which it recomputes, "
            r"float32\[3\]",
        ),
        (
            "%a: float32[3] = exp(%x)\n%b: float32[3] = exp(%x) recomputes %a\n"
            "%c: float32[3] = exp(%x) recomputes %b",
            "node 'c': it recomputes 'b', which is a copy itself",
        ),
        (
            "%a: float32[3] = exp(%x) region 0, 1\n%b: float32[3] = sin(%a) region 1",
            "node 'b': region 1 lies in region 0 elsewhere, and in no other here",
        ),
        ("%a: float32[3] = exp(%x) region 0, 0", "region 0 lies in no other elsewhere"),
        ("%a: float32[3] = input() region 0", "an input has no role"),
    ],
)
def test_roles_that_are_wrong(lines, message):
    last = lines.splitlines()[-1].partition(":")[0]
    with pytest.raises(GraphError, match=message):
        read(f"{lines}\nreturn {last}")


def test_a_role_may_name_what_is_gone():
    verify(read("%a: float32[3] = exp(%x) gradient of %g recomputes %h\nreturn %a"))


def test_a_recomputed_graph_is_sound_and_reads_back():
    def loss(x):
        return x.exp().sin().tanh().sum()

    g = pipeline.run(gradients(capture(loss, weft.ones(3)).graph))
    made = recompute(g, lambda node: False)
    verify(made)
    text = print_graph(made)
    assert any(role.is_copy for role in roles(made).values())
    assert roles(parse_graph(text)) == roles(made)
    assert print_graph(parse_graph(text)) == text


# -- names are for people

NAMING = {  # names of new nodes that are made of others', and scopes in pictures
    "graph/control/staging.py", "graph/ir.py", "graph/views/outline.py",
}  # fmt: skip
LOOKS = re.compile(
    r"\b(node|n|other|one|out|value)\.name"
    r"(\.(r?split|r?partition|(starts|ends)with|find|remove\w+)\(|\[)"
    r"|\bin (node|n|other)\.name\b"
)


def test_nobody_looks_into_names():
    root = pathlib.Path(weft.__file__).parent
    folders = ("graph", "compile", "serialization", "autograd", "optim")
    files = [file for folder in folders for file in (root / folder).rglob("*.py")]
    assert len(files) > 200
    found = {
        f.relative_to(root).as_posix()
        for f in files
        if LOOKS.search(f.read_text(encoding="utf-8"))
    }
    assert found == NAMING


# -- what is kept with a graph


def body():
    return capture(lambda x: (x * x).exp(), weft.ones(3)).graph


def test_forms_are_made_once():
    graph = body()
    assert graph.cache is None
    assert pullback(graph, (True,)) is pullback(graph, (True,))
    assert pullback(graph, (True,)) is not pullback(graph, (True,), (True,))
    assert pullback(body(), (True,)) is not pullback(graph, (True,))


def test_forms_go_with_their_graph():
    def run(x):
        return weft.scan(lambda c, x: (c * x.exp(), c), weft.ones(()), x)[0]

    captured = capture(run, weft.ones(4))
    (scan,) = [n for n in captured.graph.nodes if n.op.name == "scan"]
    inner = scan.params["body"]
    captured(weft.ones(4))
    step = pullback(inner, (True,) * len(inner.inputs))
    assert inner.cache.derived
    alive = [weakref.ref(inner.nodes[-1]), weakref.ref(step.nodes[-1])]
    del captured, scan, inner, step
    gc.collect()
    assert [one() for one in alive] == [None, None]


def test_threads_share_the_forms():
    graph, found = body(), []
    start = threading.Barrier(8)

    def look():
        start.wait()
        found.append(cache_of(graph))

    threads = [threading.Thread(target=look) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert all(one is graph.cache for one in found)
