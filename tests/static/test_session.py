"""Building computes nothing; a run computes what its fetches need."""

import numpy as np
import pytest

import weft
from weft import static
from weft.core.mode import observe
from weft.errors import ArgumentError, DTypeError, ShapeError
from weft.graph.ir import GraphError


def exp_program():
    """v1 → exp → + 1 → *: the small graph that every text shows."""
    v1 = static.Variable([0.0], name="v1")
    v2 = static.exp(v1)
    v3 = v2 + 1
    return v1, v2, v3, v2 * v3


# -- building and printing


def test_building_computes_nothing(graph):
    from weft.core import dispatch

    ran = []
    evaluate = dispatch.evaluate
    dispatch.evaluate = lambda *a: ran.append(a[0].name) or evaluate(*a)
    try:
        x = static.placeholder(weft.float32, [None, 3])
        w = static.Variable(np.ones((3, 2), np.float32))
        loss = static.reduce_mean(static.square(x @ w))
        static.train.AdamOptimizer(0.1).minimize(loss)
    finally:
        dispatch.evaluate = evaluate
    assert ran == []


def test_running_dispatches_no_operator(graph, start):
    x = static.placeholder(weft.float32, [None])
    y = (static.exp(x) * 2).sum()
    session, seen = start(), []
    with observe(lambda op, *rest: seen.append(op.name)):
        assert session.run(y, {x: [0.0, 0.0]}) == 4
    assert seen == []


def test_printing_shows_a_description(graph):
    v1, v2, _, _ = exp_program()
    assert repr(v2) == "<exp 'exp' float32[1]>" == str(v2) == f"{v2}"
    assert repr(v1) == "<read 'v1' float32[1]>"
    assert "exp(%v1)" in str(graph)
    assert "4 nodes" not in repr(graph)
    assert "nodes" in repr(graph)


def test_nodes_have_no_value_while_the_graph_is_built(graph):
    _, v2, _, _ = exp_program()
    for use in (bool, float, int, np.asarray, lambda v: v.item()):
        with pytest.raises(GraphError, match=r"session\.run.*\n.*test_session\.py"):
            use(v2[0])
    with pytest.raises(GraphError, match=r"static\.gradients"):
        v2.sum().backward()


def test_the_graph_lists_its_nodes_in_order(graph):
    _, v2, v3, v4 = exp_program()
    ops = graph.get_operations()
    place = {op.node: k for k, op in enumerate(ops)}
    assert all(place[p] < place[op.node] for op in ops for p in op.node.parents)
    behind = graph.snapshot().ancestors([v4.node])
    assert {n.op.name for n in behind} == {"read", "exp", "add", "mul"}
    assert [i.name for i in graph.get_operation_by_name("mul").inputs] == ["exp", "add"]
    assert graph["exp"].node is v2.node
    assert v3.op.name == "add"


# -- pruning


def test_a_run_executes_only_what_is_asked_for(graph, start):
    _, _, v3, v4 = exp_program()
    session, told = start(), static.RunMetadata()
    assert session.run(v3, run_metadata=told) == 2
    assert told.counts == {"exp": 1, "add": 1}
    assert told.executed == ["v1", "exp", "add"]
    assert session.run(v4, run_metadata=told) == 2
    assert told.counts == {"exp": 1, "add": 1, "mul": 1}


def test_unneeded_placeholders_need_no_feed(session):
    x, y = (static.placeholder(weft.float32, [], name=n) for n in "xy")
    total = x + y
    assert session.run(x * 2, {x: 3.0}) == 6
    assert session.run(total, {x: 3.0, y: 1.0}) == 4


def test_what_is_behind_a_fed_node_does_not_run(graph, start):
    _, v2, _, v4 = exp_program()
    session, told = start(), static.RunMetadata()
    assert session.run(v4, {v2: [3.0]}, run_metadata=told) == 12
    assert told.executed == ["add", "mul"]


# -- fetches


def test_fetch_forms(graph, start):
    _, v2, v3, v4 = exp_program()
    session = start()
    assert session.run(v2).dtype == np.float32
    assert session.run([v2, v3]) == [1, 2]
    assert session.run((v2, [v3])) == (1, [2])
    assert session.run({"a": v4, "b": {"c": v2}}) == {"a": 2, "b": {"c": 1}}
    assert session.run("add:0") == 2 == session.run("add")
    assert session.run([]) == []
    assert session.run({}) == {}
    assert session.run([v2, v2]) == [1, 1]
    assert session.run([graph.get_operation_by_name("mul"), v2]) == [None, 1]
    assert graph.get_tensor_by_name("add:0").eval() == 2


def test_bad_fetches_are_told(graph, session):
    exp_program()
    with pytest.raises(GraphError, match=r"no node named 'ad'; there is 'add'"):
        session.run("ad")
    with pytest.raises(DTypeError, match=r"expected nodes .* got int"):
        session.run([3])


def test_results_belong_to_the_caller(graph, start):
    w = static.Variable([1.0, 2.0])
    c = static.constant([3.0, 4.0])
    x = static.placeholder(weft.float32, [2])
    session = start()
    fed = np.array([5.0, 6.0], np.float32)
    for node in (w, c, w.assign(c), static.identity(w), w[:]):
        session.run(w.initializer)
        before = session.run(node, {x: fed}).copy()
        session.run(w.initializer)
        session.run(node, {x: fed})[...] = 99
        session.run(w.initializer)
        np.testing.assert_array_equal(session.run(node, {x: fed}), before)
    kept = w.assign(x)
    session.run(kept, {x: fed})
    fed[...] = 99
    np.testing.assert_array_equal(session.run(w), [5, 6])
    session.run(x, {x: fed})[...] = 1
    np.testing.assert_array_equal(fed, [99, 99])


# -- feeds


def test_feeding_a_variable_counts_for_one_run(graph, start):
    v1, _, v3, v4 = exp_program()
    session = start()
    assert session.run(v4, feed_dict={v1: np.array([1])}) == pytest.approx(
        np.e * (np.e + 1)
    )
    assert session.run(v3, {v1: np.array([1.0])}) == pytest.approx(np.e + 1)
    assert session.run(v1) == 0
    assert session.run(v4) == 2
    assert session.run(v3, {"v1:0": [1.0]}) == pytest.approx(np.e + 1)


def test_a_fed_variable_needs_no_value_of_its_own(session):
    v1, _, v3, _ = exp_program()
    assert session.run(v3, {v1: [0.0]}) == 2


def test_missing_feed_names_the_placeholder_and_its_line(session):
    x = static.placeholder(weft.float32, [None, 2], name="images")
    y = x * 2
    with pytest.raises(
        ArgumentError, match=r"'images' \(float32\[images_0, 2\]\) must be fed(.|\n)*"
        r"made at .*test_session\.py:\d+",
    ):  # fmt: skip
        session.run(y)


@pytest.mark.parametrize("value", [np.ones(2), np.ones((2, 3)), np.ones((1, 2, 2))])
def test_misshaped_feed_names_both_shapes(session, value):
    x = static.placeholder(weft.float32, [None, 2], name="x")
    want = rf"'x'.*float32\[x_0, 2\].*{str(value.shape).strip('()')}(.|\n)*made at"
    with pytest.raises(ShapeError, match=want):
        session.run(x + 1, {x: value})


def test_feeds_of_a_wrong_dtype(session):
    n = static.placeholder(weft.int32, [], name="n")
    with pytest.raises(DTypeError, match=r"'n'.*int32\[\].*float64 values"):
        session.run(n, {n: 1.5})
    with pytest.raises(DTypeError, match=r"'n'.*<U1"):
        session.run(n, {n: "1"})
    x = static.placeholder(weft.float32, [], name="x")
    assert session.run(x, {x: True}) == 1 == session.run(x, {x: np.int8(1)})
    assert session.run(x, {x: weft.tensor(2.0)}) == 2
    with pytest.raises(DTypeError, match=r"expected a value, got the node 'n'"):
        session.run(x, {x: n})
    with pytest.raises(DTypeError, match="no value that could be fed"):
        session.run(x, {static.no_op(): 1.0})


def test_two_sizes_that_must_agree(session):
    x, y = (static.placeholder(weft.float32, ["B", 2], name=n) for n in "xy")
    assert session.run(x + y, {x: np.ones((3, 2)), y: np.ones((3, 2))}).shape == (3, 2)
    with pytest.raises(ShapeError, match="B is 3"):
        session.run(x + y, {x: np.ones((3, 2)), y: np.ones((4, 2))})


def test_feeding_an_intermediate_tells_its_sizes(session):
    x = static.placeholder(weft.float32, [None, 2], name="x")
    h = x * 2
    assert session.run(h.sum(0) / h.shape[0], {h: np.ones((5, 2))}).tolist() == [1, 1]
    flat = h.reshape(-1)
    assert session.run(flat * 3, {flat: np.ones(8)}).shape == (8,)
    rows = weft.ones(x.shape[0]) + h.detach().sum() * 0
    with pytest.raises(ArgumentError, match="'x'"):
        session.run(rows)
    with pytest.raises(ArgumentError, match="size x_0, which nothing that was fed has"):
        session.run(weft.zeros(x.shape[0]))


# -- graphs and sessions


def test_nodes_of_another_graph(session):
    with static.Graph("other").as_default():
        far = static.placeholder(weft.float32, [], name="far")
        w = static.Variable(1.0, name="w")
    near = static.placeholder(weft.float32, [], name="near")
    lost = r"'far' belongs to (.|\n)*other(.|\n)*made at .*test_session\.py"
    for use in (
        lambda: session.run(far),
        lambda: session.run(near, {far: 1.0}),
        lambda: static.gradients(far, near),
        lambda: near + far,
        lambda: static.group(far),
        lambda: session.run([near, far]),
    ):
        with pytest.raises(GraphError, match=lost):
            use()
    with pytest.raises(GraphError, match="'w' belongs to"):
        session.load(w, 1.0)
    with pytest.raises(GraphError, match="'far' belongs to another graph"):
        static.Variable(far)


def test_a_closed_session(graph):
    x = static.constant(1.0)
    with static.Session(graph) as session:
        assert session.run(x) == 1
    with pytest.raises(ArgumentError, match="closed; make a new one"):
        session.run(x)
    assert session.values == {}
    assert "closed" in repr(session)
    with pytest.raises(ArgumentError, match="no default session"):
        x.eval()
    with pytest.raises(DTypeError, match=r"expected a static\.Graph, got int"):
        static.Session(3)


def test_a_finalized_graph_runs_and_takes_no_more_nodes(graph, start):
    v1, _, v3, _ = exp_program()
    session = start()
    graph.finalize()
    assert graph.finalized
    assert session.run(v3) == 2
    for build in (
        lambda: v3 + 1,
        lambda: static.constant(1.0),
        lambda: static.placeholder(weft.float32, []),
        lambda: static.Variable(1.0),
        lambda: v1.assign_add([1.0]),
        lambda: static.group(v1),
        lambda: static.identity(v3),
        lambda: static.gradients(v3, v1),
        lambda: static.random_normal([2]),
    ):
        with pytest.raises(GraphError, match=r"'test' is finalized .* node '"):
            build()
    assert session.run(v3) == 2


def test_default_graphs_nest(graph):
    assert static.get_default_graph() is graph
    with static.Graph("inner").as_default() as inner:
        assert static.constant(1.0).graph is inner
        with pytest.raises(GraphError, match="not inside"):
            static.reset_default_graph()
    assert static.constant(1.0).graph is graph


def test_interactive_session():
    with static.Graph().as_default() as one:
        session = static.InteractiveSession()
        two = static.Graph()
        inner = static.InteractiveSession(two)
        assert static.get_default_graph() is two
        session.close()
        assert static.get_default_graph() is two
        assert static.constant(2.0).eval() == 2
        inner.close()
        assert static.get_default_graph() is one
        with static.InteractiveSession() as session:
            w = static.Variable(3.0)
            w.initializer.run()
            assert w.eval() == 3


def test_a_plan_is_made_once(graph, start, monkeypatch):
    from weft.compile import pipeline
    from weft.static import session as module

    made, ran = [], []
    run, passes = module.Run, pipeline.run
    monkeypatch.setattr(module, "Run", lambda *a, **k: made.append(1) or run(*a, **k))
    monkeypatch.setattr(
        pipeline, "run", lambda *a, **k: ran.append(1) or passes(*a, **k)
    )
    x = static.placeholder(weft.float32, [None, 2])
    w = static.Variable(np.ones((2, 1), np.float32))
    loss = static.reduce_mean(static.square(x @ w - 1))
    step = static.train.GradientDescentOptimizer(0.1).minimize(loss)
    session = start()
    made.clear()
    before, data = len(graph.builder.nodes), np.ones((4, 2), np.float32)
    losses = [session.run([loss, step], {x: data})[0] for _ in range(300)]
    assert len(made) == 1
    assert len(ran) <= session.compiled  # none if the program was on disk
    assert len(graph.builder.nodes) == before
    assert losses[-1] < 1e-12 < losses[0]


def test_an_operators_failure_names_the_node_and_its_line(session):
    x = static.placeholder(weft.int64, [None], name="x")
    y = static.gather(static.constant([1.0, 2.0]), x)
    with pytest.raises(IndexError, match=r"in node .* made at .*test_session\.py:\d+"):
        session.run(y, {x: [5]})


def test_runs_do_not_depend_on_recording_or_threads(graph, start):
    import threading

    _, _, _, v4 = exp_program()
    session, found = start(), []
    with weft.no_grad():
        found.append(session.run(v4).item())
    thread = threading.Thread(target=lambda: found.append(session.run(v4).item()))
    thread.start()
    thread.join()
    assert found == [2, 2]


def test_there_are_no_options(session):
    with pytest.raises(ArgumentError, match="expected no options"):
        session.run(static.constant(1.0), None, "fast")


def test_the_graph_is_weft_s_own_ir(graph):
    """It passes the verifier, and its text is read back as the same program."""
    from weft.graph import Program, parse_graph, print_graph, verify

    x = static.placeholder(weft.float32, [None, 3], name="x")
    layer = weft.nn.Sequential(weft.nn.Linear(3, 4), weft.nn.Tanh())
    loss = static.cond(x.sum() > 0, lambda: layer(x), lambda: layer(x * 2)).square()
    loss = loss.mean() + static.random_normal([]) * 0
    step = static.train.AdamOptimizer(0.1).minimize(loss)
    session = static.Session(graph, compiled=False)
    session.run(static.global_variables_initializer())
    snapshot = graph.snapshot()
    verify(snapshot)
    again = parse_graph(print_graph(snapshot, constants="full"))
    assert print_graph(again, constants="full") == print_graph(
        snapshot, constants="full"
    )
    at = np.ones((2, 3), np.float32)
    store = {again.variables[v.name]: a for v, a in session.values.items()}
    for cell, first in graph.starts.items():
        store.setdefault(again.variables[cell.name], first)
    fetched = [again[loss.name], again[step.name]]
    found, changed = Program(again, fetched, effects=False).run([at], store)
    assert found[0] == session.run([loss, step], {x: at})[0]
    name = "Sequential/0/weight"
    new = next(a for v, a in changed.items() if v.name == name)
    np.testing.assert_array_equal(new, session.run(name))


def test_a_node_is_fed_once(graph, session):
    x = static.placeholder(weft.float32, [], name="x")
    with pytest.raises(ArgumentError, match="'x' is fed twice"):
        session.run(x * 2, {x: 1.0, "x:0": 2.0})


def test_shapes_answer_as_tensorflow_s_do():
    with weft.static.Graph().as_default():
        x = static.placeholder(weft.float32, [None, 4])
        y = x * 2
        assert x.get_shape()[1].value == x.shape[1].value == 4
        assert x.get_shape()[0].value is None is x.shape[0].value
        assert [d.value for d in x.get_shape()] == [None, 4]
        assert x.get_shape().merge_with([3, None]).as_list() == [3, 4]
        assert not x.get_shape().is_compatible_with([3, 5])
        with pytest.raises(ValueError, match="rank 3"):
            x.get_shape().assert_has_rank(3)
        with pytest.raises(ValueError, match="not compatible"):
            y.set_shape([3, 5])
        y.set_shape([3, None])
        assert (y.get_shape().as_list(), y.op.type) == ([3, 4], "reshape")
        assert static.Variable(1.0, name="w").op.name == "w"
    session = static.Session(x.graph)
    assert session.make_callable(y, [x])(np.ones((3, 4))).shape == (3, 4)
    with pytest.raises(ShapeError, match="12"):
        session.run(y, {x: np.ones((2, 4))})
    with session.as_default():
        assert y.eval({x: np.zeros((3, 4))}).sum() == 0
    assert not session.closed
    assert static.get_default_session() is None
