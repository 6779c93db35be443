"""Graphs print as text that parses back to the same program."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_graphs import arrays, graph, programs

import weft
import weft.nn as nn
from weft.core import op as records
from weft.core.op import TensorType, all_ops, find_op
from weft.core.size import Scope, larger, smaller
from weft.dtype import ALL
from weft.graph import (
    Builder,
    Graph,
    GraphError,
    Program,
    Variable,
    capture,
    parse_graph,
    print_graph,
)
from weft.graph.interpret import run_graph
from weft.graph.ir import FORWARD
from weft.graph.values import parse_value, register_value, value_text
from weft.testing import _samples, _tensors


def full(g):
    return print_graph(g, constants="full")


def again(g):
    """The graph after printing and parsing; its text must be the same."""
    text = full(g)
    found = parse_graph(text)
    assert full(found) == text
    return found


# -- stored texts


def training_step():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    optimizer = weft.optim.SGD(model.parameters(), lr=0.1)

    def step(x, y):
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    examples = weft.ones(6, 4), weft.tensor([0, 1, 2, 0, 1, 2])
    return capture(step, *examples, dynamic={"x": {0: "B"}, "y": {0: "B"}})


def test_a_training_step_reads_as_a_program(golden):
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh())
    optimizer = weft.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        loss = model(x).square().sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    captured = capture(step, weft.ones(6, 4), dynamic={"x": {0: "B"}})
    golden("training_step", str(captured.graph))


def test_a_parsed_training_step_computes_the_same():
    captured = training_step()
    parsed = again(captured.graph)
    x = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    y = np.array([0, 1, 2, 1, 0])
    results = []
    for g in (captured.graph, parsed):
        store = {v: captured.cells[n].get() for n, v in g.variables.items()
                 if not n.endswith(".grad")}  # fmt: skip
        outs, changed = Program(g, g.outputs).run([x, y], store)
        results.append((outs, {v.name: a for v, a in changed.items()}))
    (a, changed_a), (b, changed_b) = results
    np.testing.assert_array_equal(a[0], b[0])
    assert changed_a.keys() == changed_b.keys()
    for name, value in changed_a.items():
        np.testing.assert_array_equal(value, changed_b[name])


def every_form():
    """A graph with one of each thing that the text can say."""
    build = Builder("every form")
    x = build.input(TensorType((build.sizes.symbol("B", 5), 4), weft.float32), "a b")
    size = x.type.shape[0]
    build.sizes.symbol("T")
    build.sizes.assume(size, "!=", 1)
    weight = Variable("net/0.weight", TensorType((4, 4), weft.float32), trainable=True)
    first = build.constant(np.eye(4, dtype=np.float32), "first")
    weight.initial = first
    read = build.read(weight, "0.weight")
    product = build.add(find_op("matmul"), (x, read), {})
    with build.gradient_of(product), build.control([product]):
        scaled = build.add(find_op("mul"), (read, -0.5), {})
    with build.region(0), build.region(1), build.gradient_of(x):
        scaled = build.add(find_op("neg"), (scaled,), {})
    with build.region(0), build.region(1):
        inner = build.add(find_op("exp"), (scaled,), {})
    build.role = inner.role._replace(gradient="", recomputes=inner.name)
    again = build.add(find_op("exp"), (scaled,), {}, name="again")
    build.role = FORWARD
    build.add(find_op("mul"), (inner, again), {})
    factors = build.add(find_op("qr"), (scaled,), {})
    q = build.pick(factors, 0)
    stored = build.assign(weight, q)
    table = build.constant(np.arange(40.0, dtype=np.float64), "table")
    with build.control([stored, table]):
        done = build.add(find_op("sum"), (product,), {"dim": (0, 1), "keepdim": False})
    return build.finish([done, x])


def test_every_form_of_line(golden):
    g = every_form()
    golden("every_form", str(g))
    golden("every_form_full", full(g))
    parsed = again(g)
    assert [n.name for n in parsed["sum"].after] == ["0.weight/assign", "table"]
    (variable,) = parsed.variables.values()
    assert variable.trainable
    assert variable.initial is parsed["first"]
    assert parsed.sizes.hints == {"B": 5, "T": None}
    assert list(parsed.sizes.assumptions) == ["B != 1"]


def test_sizes_assumed_equal_are_equal_after_parsing():
    g = parse_graph(
        """graph f(%x: float32[B, 2], %y: float32[T, 2])
               sizes(B like 3, T like 3) assuming(B == T, T == B) {
             %z: float32[T, 2] = add(%x, %y)
             return %z
           }"""
    )
    x = np.ones((4, 2), np.float32)
    np.testing.assert_array_equal(run_graph(g, [x, x])[0], x + x)
    with pytest.raises(
        weft.errors.ShapeError, match=r"(?s)B == T.*assumed at <text>:2"
    ):
        run_graph(g, [x, x[:1]])


def test_lines_and_modules_are_comments():
    model = nn.Sequential(nn.Linear(2, 2))
    g = capture(lambda x: model(x).exp(), weft.ones(1, 2)).graph
    text = print_graph(g, lines=True)
    assert "# 0  test_text.py:" in text
    assert full(parse_graph(text)) == full(g)


def test_a_parsed_node_knows_its_line_in_the_text():
    g = parse_graph(
        "graph f(%x: float32[2]) {\n  %y: float32[2] = neg(%x)\nreturn %y }"
    )
    assert g["y"].line == "<text>:2, in f"


@pytest.fixture
def repeat_op():
    """An operator with a graph among its parameters."""

    def run(x, *, body, times):
        for _ in range(times):
            (x,) = run_graph(body, [x])
        return x

    yield records.define(
        "repeat_body", inputs="x", eval=run, type=lambda x, *, body, times: x
    )
    records.unregister("repeat_body")


def test_graphs_in_parameters(repeat_op, golden):
    body = capture(lambda x: x * 2 + weft.ones(3), weft.ones(3), name="body").graph
    twice = capture(
        lambda x: repeat_op(repeat_op(x, body=body, times=2), body=body, times=1),
        weft.ones(3),
        name="outer",
    ).graph
    golden("graph_in_graph", str(twice))
    x = np.array([1.0, 2.0, 3.0], np.float32)
    np.testing.assert_array_equal(run_graph(again(twice), [x])[0], x * 8 + 7)


def test_inner_graphs_share_sizes_and_variables(repeat_op):
    build = Builder("outer")
    rows = build.sizes.symbol("B", 2)
    kind = TensorType((rows, 3), weft.float32)
    weight = Variable("w", TensorType((), weft.float32))
    inner = Builder("inner", build.sizes)
    made = inner.input(kind, "x")
    inner.read(weight)
    body = inner.finish([inner.add(find_op("neg"), (made,), {})])
    x = build.input(kind, "x")
    y = build.add(repeat_op, (x,), {"body": body, "times": rows})
    g = build.finish([y])
    text = full(g)
    assert text.count("state @w") == 1
    assert text.count("sizes(") == 1
    parsed = again(g)
    assert parsed["repeat_body"].params["body"].sizes is parsed.sizes
    assert parsed["repeat_body"].params["times"].scope is parsed.sizes


# -- every operator, every value


SAMPLED = [op for op in all_ops() if op.samples is not None]


@pytest.mark.parametrize("op", SAMPLED, ids=lambda op: op.name)
def test_every_record_survives(op):
    for sample in _samples(op):
        build = Builder(op.name)
        args = _tensors(sample)
        inputs, given = [], []
        for k, a in enumerate(args):
            if isinstance(a, weft.Tensor):
                kind = TensorType(tuple(a.shape), a.dtype)
                inputs.append(build.input(kind, f"x{k}"))
                given.append(a.numpy())
            else:
                inputs.append(a)
        node = build.add(op, tuple(inputs), sample.params)
        picks = range(len(node.type)) if type(node.type) is tuple else ()
        outs = [build.pick(node, k) for k in picks] or [node]
        g = build.finish(outs)
        for a, b in zip(run_graph(g, given), run_graph(again(g), given), strict=True):
            np.testing.assert_array_equal(a, b)


numbers = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.complex_numbers(),
    st.text(), st.sampled_from(ALL), st.just(...),
    st.builds(slice, *[st.none() | st.integers()] * 3),
)  # fmt: skip
values = st.recursive(
    numbers,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(), inner, max_size=3),
    ),
    max_leaves=8,
)


def same(a, b):
    if type(a) is not type(b):
        return False
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(v, b[k]) for k, v in a.items())
    if isinstance(a, complex):
        return same(a.real, b.real) and same(a.imag, b.imag)
    if isinstance(a, float):
        if math.isnan(a):
            return math.isnan(b)
        return a == b and math.copysign(1, a) == math.copysign(1, b)
    return a == b


@given(values)
def test_values_survive(value):
    assert same(parse_value(value_text(value)), value)


@given(st.text(min_size=1), st.text(min_size=1))
def test_names_survive(name, variable):
    build = Builder(variable)
    x = build.input(TensorType((), weft.float32), name)
    cell = Variable(variable, TensorType((), weft.float32))
    found = again(build.finish([build.assign(cell, x)]))
    assert found.inputs[0].name == name
    assert list(found.variables) == [variable]
    assert found.name == variable


@pytest.mark.parametrize("dtype", ALL, ids=lambda d: d.name)
@pytest.mark.parametrize("shape", [(), (3,), (0, 2), (2, 1, 2), (5, 7)], ids=str)
def test_arrays_survive(dtype, shape, rng):
    value = rng.normal(size=shape) * 3
    if dtype.is_complex:
        value = value + 1j * rng.normal(size=shape)
    value = np.asarray(value).astype(dtype.np)
    found = parse_value(value_text(value))
    assert found.dtype == value.dtype
    assert found.shape == value.shape
    assert found.tobytes() == value.tobytes()


def test_arrays_of_odd_floats_are_exact():
    bits = np.array([0x7FC00001, 0x80000000, 0x7F800000, 1, 0x3DCCCCCD], np.uint32)
    value = bits.view(np.float32)
    assert parse_value(value_text(value)).tobytes() == value.tobytes()


@pytest.mark.parametrize("scalar", [np.float32(0.1), np.int8(-3), np.bool_(True)])
def test_numpy_scalars_keep_their_dtype(scalar):
    found = parse_value(value_text(scalar))
    assert found == scalar
    assert type(found) is type(scalar)


sizes_scope = Scope()
B, T = sizes_scope.symbol("B", 6), sizes_scope.symbol("T", 4)
sizes = st.recursive(
    st.sampled_from([B, T]) | st.integers(1, 9),
    lambda s: st.one_of(
        st.builds(lambda a, b: a + b, s, s),
        st.builds(lambda a, b: a - b * 2, s, s),
        st.builds(lambda a, b: a * b, s, s),
        st.builds(lambda a: a // 3, s),
        st.builds(lambda a: (a * 2 + 1) % 5, s),
        st.builds(lambda a: a / 2, s),
        st.builds(larger, s, s),
        st.builds(smaller, s, s),
    ),
    max_leaves=5,
)


@given(sizes)
def test_sizes_survive(size):
    scope = Scope()
    scope.hints = dict(sizes_scope.hints)
    text = value_text(size)
    found = parse_value(text, sizes=scope)
    assert value_text(found) == text
    if not isinstance(size, (int, float)):
        assert found.evaluate({"B": 7, "T": 5}) == size.evaluate({"B": 7, "T": 5})
        assert found.scope is scope


def test_objects_of_registered_classes_are_values():
    class Window:
        def __init__(self, size, step):
            self.size, self.step = size, step

    with pytest.raises(GraphError, match="type Window cannot be written"):
        value_text(Window(1, 2))
    register_value(Window, "size", "step")
    found = parse_value(value_text(Window((2, 3), None)))
    assert (found.size, found.step) == ((2, 3), None)


# -- random graphs


@settings(max_examples=40)
@given(programs, st.booleans())
def test_random_graphs_compute_the_same_after_parsing(program, dynamic):
    g = graph(program, dynamic)
    parsed = again(g)
    for rows in (3, 5) if dynamic else (3,):
        given = arrays(rows)
        wanted = Program(g, g.outputs).run(given, {})[0]
        got = Program(parsed, parsed.outputs).run(given, {})[0]
        for a, b in zip(wanted, got, strict=True):
            np.testing.assert_array_equal(a, b)


def test_long_graphs_need_no_stack():
    build = Builder("long")
    node = build.input(TensorType((2,), weft.float32), "x")
    for _ in range(20_000):
        node = build.add(find_op("neg"), (node,), {})
    assert len(again(build.finish([node]))) == 20_001


# -- errors


def lines(body, header="graph f(%x: float32[2], %n: int64[])"):
    return f"{header} {{\n  {body}\n  return %x\n}}"


MISTAKES = {
    "no such operator": (
        lines("%y: float32[2] = exq(%x)"),
        r"line 2, column 20: no operator is named 'exq'; there is .*exp",
    ),
    "unknown node": (
        lines("%y: float32[2] = exp(%z)"),
        "line 2, column 24: there is no %z before this line",
    ),
    "unknown variable": (
        lines("%y: float32[2] = read(@w)"),
        r"line 2, column 25: there is no variable @w \(`state` declares one\)",
    ),
    "taken name": (
        lines("%x: float32[2] = exp(%x)"),
        "line 2, column 3: two nodes are named %x",
    ),
    "no type": (
        lines("%y = exp(%x)"),
        "line 2, column 6: expected ':', got '='",
    ),
    "wrong type word": (
        lines("%y: floaty[2] = exp(%x)"),
        "line 2, column 7: expected a type, such as float32.2, 3., got 'floaty'",
    ),
    "wrong type": (
        lines("%y: float32[3] = exp(%x)"),
        r"node 'y': its type is float32\[3\], but exp gives float32\[2\]\n"
        "  made at <text>:2",
    ),
    "undeclared size": (
        lines("%y: float32[B] = exp(%x)"),
        "line 2, column 15: 'B' is no value; the sizes declared here are: none",
    ),
    "parameter twice": (
        lines("%y: float32[] = sum(%x, dim=0, dim=1)"),
        "line 2, column 34: the parameter 'dim' is given twice",
    ),
    "argument after parameter": (
        lines("%y: float32[] = sum(dim=0, %x)"),
        "line 2, column 30: expected parameter=value",
    ),
    "a call that is none": (
        lines('%y: float32[2] = mul(%x, __import__("os"))'),
        "line 2, column 28: __import__: there is no such kind of value",
    ),
    "a python expression": (
        lines("%y: float32[2] = mul(%x, x.real)"),
        r"line 2, column 29: expected a word, a number, .* got '\.'",
    ),
    "unfinished string": (
        lines('%y: float32[2] = mul(%x, "abc)'),
        "line 2, column 28: expected a word",
    ),
    "the end is missing": (
        "graph f(%x: float32[2]) {\n",
        r"line 2, column 1: expected a node .* got the end of the text",
    ),
    "left-out elements": (
        lines("%y: float32[20] = constant(...)"),
        "line 2, column 30: this constant's elements were left out",
    ),
    "too few elements": (
        lines("%y: float32[3] = constant([1.0, 2.0])"),
        r"line 2, column 29: these are no elements of float32\[3\]",
    ),
    "elements that are none": (
        lines('%y: float32[1] = constant(["a"])'),
        "no elements of float32.*str is no number",
    ),
    "broken base64": (
        lines('%y: float32[1] = constant("AAA!")'),
        "no elements of float32",
    ),
    "endless nesting": (
        lines("%y: float32[2] = mul(%x, " + "[" * 5000),
        "values nest deeper than 64",
    ),
    "a negative size": (
        lines("%y: float32[-2] = exp(%x)"),
        "line 2, column 15: expected a size of at least 0",
    ),
    "text after the end": (
        lines("%y: float32[2] = exp(%x)") + " }",
        "line 4, column 3: expected the end of the text",
    ),
    "sum of words": (
        lines("%y: float32[2] = mul(%x, None + 1)"),
        "expected ',' or the end of the value, got '[+]'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes_are_told_with_line_and_column(case):
    text, message = MISTAKES[case]
    with pytest.raises(GraphError, match=message):
        parse_graph(text)


@settings(max_examples=200)
@given(st.data())
def test_damaged_text_is_refused_or_read_but_never_crashes(data):
    text = full(every_form())
    start = data.draw(st.integers(0, len(text) - 1))
    stop = data.draw(st.integers(start, min(len(text), start + 12)))
    other = data.draw(
        st.sampled_from(["", "(", ")", "%", "9", "x", '"', "-", ":", "["])
    )
    try:
        found = parse_graph(text[:start] + other + text[stop:])
    except weft.errors.WeftError:
        return
    assert isinstance(found, Graph)


def test_the_form_of_constants_is_checked():
    with pytest.raises(weft.errors.ArgumentError, match="'small' or 'full', got 'all'"):
        print_graph(training_step().graph, constants="all")
