"""Rules given as before and after are found, applied and explained."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_graphs import arrays, graph, programs

import weft
from weft.core import op as records
from weft.core.op import TensorType, find_op
from weft.errors import ArgumentError
from weft.graph import (
    Builder,
    Graph,
    GraphError,
    Program,
    Spec,
    Variable,
    capture,
    verify,
)
from weft.graph.interpret import run_graph
from weft.graph.passes import dead_code
from weft.graph.rewrite import any as any_number
from weft.graph.rewrite import rewrite, rule

TIMES_ONE = rule(before=lambda x: x * 1, after=lambda x: x, name="times one")
PLUS_ZERO = rule(before=lambda x: x + 0, after=lambda x: x, name="plus zero")
TWICE_NEGATIVE = rule(
    before=lambda x: x.neg().neg(), after=lambda x: x, name="two minus"
)
TRANSPOSES = rule(
    before=lambda x: x.transpose(-1, -2).transpose(-1, -2),
    after=lambda x: x,
    name="transposes",
)
SAME_LESS_SAME = rule(
    before=lambda x: x - x,
    after=lambda x: weft.zeros_like(x),
    when=lambda m: not m["x"].dtype.is_inexact,  # inf - inf is not 0
    name="x - x",
)
LOG_SOFTMAX = rule(
    before=lambda x, dim=any_number(0): x.softmax(dim).log(),
    after=lambda x, dim: x.log_softmax(dim),
    name="log softmax",
)
SCALES = rule(
    before=lambda x, a=any_number(2.0), b=any_number(3.0): (x * a) * b,
    after=lambda x, a, b: x * (a * b),
    name="scales",
)


def names(g):
    return [node.op.name for node in g.nodes if node.op.name != "input"]


def applied(fn, rules, *examples, **options):
    """The operators left, what fired where, and the graph."""
    g = capture(fn, *examples, **options).graph
    found, fired = rewrite(g, rules, explain=True)
    verify(found)
    return names(found), [(f.rule, f.node) for f in fired], found


def test_times_one():
    left, fired, _ = applied(lambda x: (x * 1).exp() * 1.0, [TIMES_ONE], weft.ones(3))
    assert left == ["exp"]
    assert fired == [("times one", "mul"), ("times one", "mul_1")]


def test_rules_hold_for_every_type():
    for x in (
        weft.ones(2, 3, 4, 1, 2),
        weft.ones(2, dtype=weft.int64),
        weft.tensor(1.0),
    ):
        assert applied(lambda x: (x * 1).abs(), [TIMES_ONE], x)[0] == ["abs"]


def test_a_rule_does_not_apply_to_what_only_looks_alike():
    for fn in (lambda x: x * 2, lambda x: x * x, lambda x: x + 1, lambda x: x * -1):
        left, fired, _ = applied(fn, [TIMES_ONE, PLUS_ZERO], weft.ones(3))
        assert not fired
        assert left == names(capture(fn, weft.ones(3)).graph)


def test_minus_zero_is_another_number():
    less = rule(before=lambda x: x + -0.0, after=lambda x: x)
    assert applied(lambda x: x + 0.0, [less], weft.ones(3))[0] == ["add"]
    assert applied(lambda x: x + -0.0, [less], weft.ones(3))[0] == []


@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 4), (1, 2, 3, 4)])
def test_parameters_follow_from_the_types(shape):
    def fn(x):
        return x.transpose(-1, -2).transpose(-1, -2).exp()

    assert applied(fn, [TRANSPOSES], weft.ones(*shape))[0] == ["exp"]


def test_other_transposes_stay():
    def fn(x):
        return x.transpose(0, 1).transpose(-1, -2)

    assert applied(fn, [TRANSPOSES], weft.ones(2, 3, 4))[0] == ["permute", "permute"]


def test_a_tensor_that_appears_twice_must_be_the_same():
    def fn(x, y):
        return (x - x) + (x - y)

    x = weft.ones(3, dtype=weft.int64)
    left, fired, _ = applied(fn, [SAME_LESS_SAME], x, x)
    assert fired == [("x - x", "sub")]
    assert left == ["full", "sub", "add"]


def test_when_decides():
    assert applied(lambda x: x - x, [SAME_LESS_SAME], weft.ones(3))[0] == ["sub"]


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_an_open_parameter_takes_the_value_found(dim):
    def fn(x):
        return x.softmax(dim).log()

    x = weft.tensor([[1.0, 2.0, 300.0], [0.0, -1.0, 5.0]])
    _, fired, g = applied(fn, [LOG_SOFTMAX], x)
    assert fired == [("log softmax", "log")]
    (got,) = run_graph(g, [x.numpy()])
    np.testing.assert_array_equal(got, x.log_softmax(dim).numpy())
    assert np.isfinite(got).all()


def test_open_numbers():
    left, fired, g = applied(lambda x: x * 2 * 3.5 * 2, [SCALES], weft.ones(3))
    assert left == ["mul"]
    assert len(fired) == 2
    np.testing.assert_array_equal(run_graph(g, [np.ones(3, np.float32)])[0], [14.0] * 3)


def test_what_is_used_elsewhere_is_not_taken():
    def fn(x):
        inner = -x
        return -inner, inner

    left, fired, _ = applied(fn, [TWICE_NEGATIVE], weft.ones(3))
    assert not fired
    assert left == ["neg", "neg"]


def test_an_inner_value_may_be_used_if_before_returns_it():
    both = rule(
        before=lambda x: (lambda a: (a.log(), a))(x.exp()),
        after=lambda x: (x, x.exp()),
        name="log of exp",
    )

    def fn(x):
        a = x.exp()
        return a.log() + a

    left, fired, g = applied(fn, [both], weft.ones(3))
    assert left == ["exp", "add"]
    assert fired == [("log of exp", "log")]
    x = np.array([0.5, 1.0, 2.0], np.float32)
    np.testing.assert_allclose(run_graph(g, [x])[0], x + np.exp(x), rtol=1e-6)


def test_a_use_that_goes_away_lets_an_earlier_rule_fit():
    """The second use of ``-x`` is dropped first; only then is it an inner value."""
    forget = rule(before=lambda x: x * 0, after=lambda x: weft.zeros_like(x))

    def fn(x):
        inner = -x
        return -inner + (inner * 0)

    left, fired, _ = applied(fn, [TWICE_NEGATIVE, forget], weft.ones(3))
    assert left == ["full", "add"]
    assert len(fired) == 2


def test_rules_work_on_what_rules_made():
    left, fired, _ = applied(
        lambda x: (x * 1 * 1).neg().neg() + 0,
        [TIMES_ONE, PLUS_ZERO, TWICE_NEGATIVE],
        weft.ones(2),
    )
    assert left == []
    assert len(fired) == 4


@pytest.fixture
def fused():
    """An operator of the user's: x @ w + b, then relu."""

    def linear_relu(x, w, b):
        return np.maximum(x @ w + b, 0)

    def kind(x, w, b):
        return TensorType((*x.shape[:-1], w.shape[-1]), x.dtype)

    yield records.define("linear_relu", inputs="x w b", eval=linear_relu, type=kind)
    records.unregister("linear_relu")


def test_an_operator_of_the_users_takes_the_place_of_several(fused):
    fuse = rule(
        before=lambda x, w, b: (x @ w + b).relu(),
        after=lambda x, w, b: fused(x, w, b),
        name="fuse",
    )

    def fn(x, w, b):
        return (x @ w + b).relu().sum()

    shapes = {"x": {0: "B"}}
    examples = weft.ones(2, 3), weft.ones(3, 4), weft.ones(4)
    left, fired, g = applied(fn, [fuse], *examples, dynamic=shapes)
    assert left == ["linear_relu", "sum"]
    assert fired == [("fuse", "relu")]
    assert g["relu"].op is fused
    assert str(g["relu"].type) == "float32[B, 4]"
    draw = np.random.default_rng(0)
    given_arrays = [
        draw.normal(size=s).astype(np.float32) for s in ((5, 3), (3, 4), (4,))
    ]
    x, w, b = given_arrays
    got = Program(g, g.outputs).run(given_arrays, {})[0][0]
    np.testing.assert_allclose(got, np.maximum(x @ w + b, 0).sum(), rtol=1e-5)


def test_names_lines_and_modules_are_kept():
    class Scale(weft.nn.Module):
        def forward(self, x):
            return x.softmax(0).log()

    model = weft.nn.Sequential(Scale())
    g = capture(lambda x: model(x), weft.ones(3)).graph
    found = rewrite(g, [LOG_SOFTMAX])
    made = found["log"]
    assert made.op.name == "sub"
    assert made.module == "0"
    assert made.line == g["log"].line
    assert all(n.name == "log" or n.name.startswith("log/") for n in found.nodes[1:])
    assert all(n.line == made.line for n in found.nodes[1:])


def test_a_graph_that_no_rule_fits_is_the_same_object():
    g = capture(lambda x: x.exp(), weft.ones(3)).graph
    assert rewrite(g, [TIMES_ONE, LOG_SOFTMAX]) is g


def test_the_old_graph_is_as_it_was():
    g = capture(lambda x: (x * 1).exp(), weft.ones(3)).graph
    before = str(g)
    rewrite(g, [TIMES_ONE])
    assert str(g) == before


def test_assignments_and_control_edges_stay():
    build = Builder("update")
    x = build.input(TensorType((3,), weft.float32), "x")
    cell = Variable("w", TensorType((3,), weft.float32))
    stored = build.assign(cell, build.add(find_op("mul"), (x, 1), {}))
    with build.control([stored]):
        late = build.add(find_op("mul"), (x, 1), {}, name="late")
    g = rewrite(build.finish([late]), [TIMES_ONE])
    verify(g)
    assert names(g) == ["assign", "mul"]
    assert g["w/assign"].inputs == (g["x"],)
    assert g["late"].after == (g["w/assign"],)


def test_graphs_in_parameters_are_rewritten():
    op = records.define(
        "run_body",
        inputs="x",
        eval=lambda x, *, body: run_graph(body, [x])[0],
        type=lambda x, *, body: x,
    )
    try:
        body = capture(lambda x: (x * 1).exp(), weft.ones(3)).graph
        _, fired, g = applied(lambda x: op(x, body=body), [TIMES_ONE], weft.ones(3))
        assert fired == [("times one", "mul")]
        assert names(g["run_body"].params["body"]) == ["exp"]
    finally:
        records.unregister("run_body")


# -- rules that are none


def test_rules_without_an_end_are_stopped():
    swap = rule(before=lambda x, y: x + y, after=lambda x, y: y + x, name="swap")
    grow = rule(before=lambda x: x.exp(), after=lambda x: (x * 1).exp(), name="grow")
    for one in (swap, grow):
        with pytest.raises(ArgumentError, match=f"does not come to an end.*{one.name}"):
            applied(lambda x: (x + x).exp(), [one], weft.ones(3))


def test_a_replacement_of_another_type_is_refused():
    wrong = rule(before=lambda x: x.exp(), after=lambda x: x.sum(), name="wrong")
    with pytest.raises(GraphError) as error:
        applied(lambda x: x.exp(), [wrong], weft.ones(3))
    text = str(error.value)
    assert "rule 'wrong' at node 'exp': expected `after` to give float32[3]" in text
    assert "got float32[]" in text
    assert "test_rewrite.py" in text


@pytest.mark.parametrize(
    ("before", "message"),
    [
        (lambda x: x, "`before` applies no operator"),
        (lambda x, y: x * 2, "`before` does not use 'y'"),
        (lambda x: (x.exp(), x.log()), "one output that leads to the others"),
        (lambda x, a=2: x * a, "the argument 'a' must have no default"),
        (lambda x: x.reshape(7, 11), "cannot be traced on small examples"),
    ],
)
def test_what_cannot_be_a_rule(before, message):
    with pytest.raises(ArgumentError, match=message):
        rule(before=before, after=lambda *args: args[0])


def test_outputs_must_be_as_many():
    wrong = rule(before=lambda x: x.exp(), after=lambda x: (x, x))
    with pytest.raises(ArgumentError, match="`before` has 1 outputs, `after` 2"):
        applied(lambda x: x.exp(), [wrong], weft.ones(3))


def test_examples_help_where_small_ones_do_not():
    odd = rule(
        before=lambda x: x.reshape(x.shape[0], 3, -1).reshape(x.shape[0], -1),
        after=lambda x: x,
        examples=(Spec(("B", 6)),),
    )

    def fn(x):
        return x.reshape(4, 3, -1).reshape(4, -1).exp()

    assert applied(fn, [odd], weft.ones(4, 9))[0] == ["exp"]
    with pytest.raises(ArgumentError, match="expected 1 examples"):
        rule(before=lambda x: x.exp(), after=lambda x: x, examples=(1, 2))


# -- the whole


@settings(max_examples=40)
@given(programs, st.booleans())
def test_random_graphs_compute_the_same_after_rewriting(program, dynamic):
    g = graph(program, dynamic)
    found = rewrite(g, [TIMES_ONE, PLUS_ZERO, TRANSPOSES, TWICE_NEGATIVE])
    verify(found)
    assert not any(
        n.op.name == "mul" and n.inputs[1] == 1 and type(n.inputs[1]) is int
        for n in found.nodes
    )
    given_arrays = arrays(5 if dynamic else 3)
    wanted = Program(g, g.outputs).run(given_arrays, {})[0]
    got = Program(found, found.outputs).run(given_arrays, {})[0]
    for a, b in zip(wanted, got, strict=True):
        np.testing.assert_array_equal(a, b)


def test_long_chains_need_no_stack():
    build = Builder("long")
    node = build.input(TensorType((2,), weft.float32), "x")
    for _ in range(3000):
        node = build.add(find_op("mul"), (node, 1), {})
    found, fired = rewrite(build.finish([node]), [TIMES_ONE], explain=True)
    assert len(found) == 1
    assert len(fired) == 3000


def test_dead_code_keeps_effects_and_what_they_wait_for():
    build = Builder("update")
    x = build.input(TensorType((), weft.float32), "x")
    unused = build.input(TensorType((), weft.float32), "unused")
    build.add(find_op("exp"), (x,), {}, name="dead")
    first = build.add(find_op("neg"), (x,), {}, name="first")
    with build.control([first]):
        build.assign(Variable("w", x.type), x)
    g = dead_code(build.finish([x]))
    assert [n.name for n in g.nodes] == ["x", "unused", "first", "w/assign"]
    assert isinstance(g, Graph)
    assert g.inputs == (x, unused)
