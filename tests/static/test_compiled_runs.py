"""Compiled runs: one program for each set of fetches, checked by interpretation."""

import threading
import tracemalloc

import numpy as np
import pytest

import weft
from weft import static
from weft.errors import ArgumentError, ShapeError, WeftError
from weft.runtime.cpu.buffers import pool_bytes


def both(graph):
    """A compiled and an interpreted session."""
    return static.Session(graph), static.Session(graph, compiled=False)


# -- random programs with state


class Writer:
    """Builds a random graph of variables, reads, assignments and control edges."""

    def __init__(self, rng):
        self.rng = rng
        self.x = static.placeholder(weft.float64, [None, 3], name="x")
        start = rng.normal(size=(3, 3))
        self.variables = [static.Variable(start[k], name=f"v{k}") for k in range(3)]
        self.nodes = [*self.variables, self.x.sum(0), static.constant(start[0])]
        self.effects = []

    def pick(self, some):
        return some[self.rng.integers(len(some))]

    def step(self):
        ways = [self.compute, self.compute, self.read, self.assign, self.after]
        self.pick(ways)()

    def compute(self):
        a, b = self.pick(self.nodes), self.pick(self.nodes)
        ways = [
            lambda: a * 0.5 + b, lambda: static.tanh(a - b), lambda: a.exp() + a.exp(),
            lambda: static.where(a > b, a, b * 2), lambda: static.identity(a),
            lambda: static.cond(a.sum() > b.sum(), lambda: a * 2, lambda: b.sin()),
            lambda: a.flip(0), lambda: static.random_normal([3], dtype=weft.float64),
        ]  # fmt: skip
        self.nodes.append(static.tanh(self.pick(ways)()))

    def read(self):
        self.nodes.append(self.pick(self.variables).read_value())

    def assign(self):
        v, value = self.pick(self.variables), self.pick(self.nodes)
        way = self.pick([v.assign, v.assign_add, v.assign_sub])
        self.effects.append(way(value))
        self.nodes.append(self.effects[-1])

    def after(self):
        if self.effects:
            with static.control_dependencies([self.pick(self.effects)]):
                self.pick([self.read, self.assign, self.compute])()

    def fetches(self):
        chosen = [self.pick(self.nodes) for _ in range(3)]
        return [*chosen, static.group(*self.effects[: self.rng.integers(4)])]


@pytest.mark.parametrize("seed", range(12))
def test_random_programs_with_state(seed):
    rng = np.random.default_rng(seed)
    with static.Graph().as_default() as graph:
        static.set_random_seed(seed)
        writer = Writer(rng)
        for _ in range(25):
            writer.step()
        fetches = [writer.fetches() for _ in range(3)]
        init = static.global_variables_initializer()
        compiled, interpreted = both(graph)
        for session in (compiled, interpreted):
            session.run(init)
        assumed = set(graph.builder.sizes.assumptions)
        for rows in (4, 4, 1, 0, 6):
            feed = {writer.x: rng.normal(size=(rows, 3))}
            some = fetches[rng.integers(3)]
            want, got = interpreted.run(some, feed), compiled.run(some, feed)
            for a, b in zip(got[:-1], want[:-1], strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)
            for v in writer.variables:
                a, b = compiled.run(v), interpreted.run(v)
                np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)
        assert set(graph.builder.sizes.assumptions) == assumed  # compiling asks nothing


# -- one program


def test_passes_run(graph):
    x = static.placeholder(weft.float32, [None], name="x")
    y = static.exp(x) + static.exp(x)
    unused = static.sin(y)
    session, told = static.Session(graph), static.RunMetadata()
    np.testing.assert_allclose(
        session.run(y, {x: [1.0, 2.0]}, run_metadata=told), 2 * np.exp([1, 2]), 1e-6
    )
    assert told.counts == {"exp": 2, "add": 1}  # what was asked for
    (ran,) = told.partition_graphs
    assert [node.op.name for node in ran].count("exp") == 1
    assert unused.name not in told.executed


def test_interpreted_sessions_run_what_was_written(graph):
    x = static.placeholder(weft.float32, [None], name="x")
    y = static.exp(x) + static.exp(x)
    told = static.RunMetadata()
    static.Session(graph, compiled=False).run(y, {x: [1.0]}, run_metadata=told)
    assert [node.op.name for node in told.partition_graphs[0]].count("exp") == 2


def test_programs_by_fetches_and_sizes(graph):
    x = static.placeholder(weft.float32, [None, 2], name="x")
    y, z = (x * 2).sum(0), x.mean()
    session = static.Session(graph)
    calls = [session._call(f, {x: 0}).run for f in (y, [y], (y, z), {"y": y})]
    assert len(set(map(id, calls))) == 4
    again = [session._call(f, {x: 0}).run for f in (y, [y], (y, z), {"y": y})]
    assert calls == again
    for rows in (3, 5, 0, 1, 3, 5, 8):
        data = np.ones((rows, 2), np.float32)
        assert session.run(y, {x: data}).tolist() == [2 * rows, 2 * rows]
    assert len(calls[0]._programs) == 2  # for three rows, and for any


def test_the_second_run_allocates_results_alone(graph):
    x = static.placeholder(weft.float32, [None, 256], name="x")
    w = static.Variable(np.zeros((256, 256), np.float32))
    loss = static.reduce_mean(static.square(static.tanh(x @ w) - 1))
    step = static.train.AdamOptimizer(0.01).minimize(loss)
    session = static.Session(graph)
    session.run(static.global_variables_initializer())
    feed = {x: np.ones((128, 256), np.float32)}
    fetches = [loss, step]
    for _ in range(2):
        session.run(fetches, feed)
    arrays = {v: id(a) for v, a in session.values.items()}
    used = pool_bytes().used
    tracemalloc.start()
    try:
        session.run(fetches, feed)
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        session.run(fetches, feed)
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert peak < 8192  # a number and Python's frames; w alone has 262,144 bytes
    assert pool_bytes().used == used
    assert {v: id(a) for v, a in session.values.items()} == arrays


# -- memory


def test_results_are_the_callers_own(graph, start):
    w = static.Variable(np.ones(3, np.float32), name="w")
    c = static.constant([1.0, 2.0, 3.0])
    x = static.placeholder(weft.float32, [3])
    up = w.assign(w * 2)
    session, data = start(), np.ones(3, np.float32)
    fetches = [w, c, x, static.identity(x), up, w, c.reshape(3, 1), up]
    for _ in range(2):
        before = session.run(w)
        results = session.run(fetches, {x: data})
        now = session.run(w)
        for k, one in enumerate(results):
            rest = [*results[:k], *results[k + 1 :], data, *session.values.values()]
            assert not any(np.shares_memory(one, other) for other in rest)
            one += 100
        assert (data == 1).all()
        np.testing.assert_array_equal(now, before * 2)
        np.testing.assert_array_equal(session.run(w), now)
        np.testing.assert_array_equal(session.run(c), [1, 2, 3])


def test_variables_do_not_share_memory(graph, start):
    a = static.Variable(np.ones(3), name="a")
    b = static.Variable(np.zeros(3), name="b")
    x = static.placeholder(weft.float64, [3])
    old_a = static.identity(a)
    swap = static.group(a.assign(b), b.assign(old_a))
    same = static.group(a.assign(x), b.assign(x))
    session, fed = start(), np.full(3, 5.0)
    session.run(swap)
    assert session.run([a[0], b[0]]) == [0, 1]
    session.run(swap)
    assert session.run([a[0], b[0]]) == [1, 0]
    session.run(same, {x: fed})
    session.run(a.assign_add(np.ones(3)))
    assert session.run([a[0], b[0]]) == [6, 5]
    assert fed[0] == 5
    session.run(static.global_variables_initializer())
    session.run(a.assign_add(np.ones(3)))
    session.run(static.global_variables_initializer())
    assert session.run([a[0], b[0]]) == [1, 0]  # the constants are as they were


def test_two_sessions_have_values_of_their_own(graph):
    n = static.Variable(np.zeros(2), name="n")
    up = n.assign_add([1.0, 1.0])
    one, two = static.Session(graph), static.Session(graph)
    for session in (one, two):
        session.run(static.global_variables_initializer())
    one.run(up)
    assert (one.run(n)[0], two.run(n)[0]) == (1, 0)


def test_threads_run_one_after_the_other(graph, start):
    n = static.Variable(np.zeros(1000), name="n")
    up = n.assign_add(np.ones(1000))
    session = start()
    session.run(up)
    work = [
        threading.Thread(target=lambda: [session.run(up) for _ in range(25)])
        for _ in range(4)
    ]
    for one in work:
        one.start()
    for one in work:
        one.join()
    assert (session.run(n) == 101).all()


# -- errors


def test_a_failed_run_leaves_state_as_it_was(graph, start):
    table = static.Variable(np.arange(6.0).reshape(3, 2), name="table")
    n = static.Variable(np.zeros(2), name="n")
    ids = static.placeholder(weft.int64, [None], name="ids")
    rows = static.gather(table, ids)
    step = static.group(n.assign_add(rows.sum(0)), table.assign(table * 2))
    session = start()
    for _ in range(2):  # a new program, and one that has run
        before = session.run([table, n])
        with pytest.raises(WeftError, match=r"(?s)index 7.*test_compiled_runs.py"):
            session.run(step, {ids: [0, 7]})
        for a, b in zip(session.run([table, n]), before, strict=True):
            np.testing.assert_array_equal(a, b)
        session.run(step, {ids: [0, 1]})
    assert session.run(n[0]) == 2 + 4


def test_an_uninitialised_variable_that_no_result_needs(graph, session):
    v = static.Variable(1.0, name="v")
    with static.control_dependencies([v * 2]):
        y = static.constant(1.0) + 1
    with pytest.raises(ArgumentError, match="'v' is read before it has a value"):
        session.run(y)


def test_sizes_that_the_graph_was_not_built_for(graph, session):
    x = static.placeholder(weft.float32, [None], name="x")
    y = x + static.constant([1.0, 2.0, 3.0])
    assert y.get_shape() == (3,)
    assert session.run(y, {x: [1.0, 1.0, 1.0]}).tolist() == [2, 3, 4]
    with pytest.raises(ShapeError, match=r"(?s)built for sizes with x_0 == 3.*line|at"):
        session.run(y, {x: [1.0, 1.0]})
    with pytest.raises(ShapeError, match="cannot broadcast"):
        x + static.constant([1.0, 2.0])


# -- explanations


def test_a_session_explains_its_programs(graph):
    x = static.placeholder(weft.float32, [None, 8], name="x")
    w = static.Variable(np.ones((8, 4), np.float32), name="w")
    loss = static.reduce_mean(static.square(static.tanh(x @ w)), name="loss")
    step = static.train.GradientDescentOptimizer(0.1).minimize(loss)
    session = static.Session(graph)
    session.run(static.global_variables_initializer())
    data = np.ones((16, 8), np.float32)
    about = session.explain([loss, step], {x: data}, measure=True)
    assert session.run(w)[0, 0] == 1  # nothing has run
    assert [one.why for one in about.compilations] == ["the first run"]
    assert {op for one in about.products for op in one.operators} >= {"matmul"}
    assert 0 < about.memory.peak <= about.memory.layout.nbytes
    assert "loss" in str(about)
    session.run([loss, step], {x: data[:3]})
    again = session.explain([loss, step], {x: data[:3]})
    assert [c.why for c in again.compilations] == ["the first run", "other sizes"]
    assert len(again.programs) == 2
    assert "<html" in again.html(code=False)


def test_interpreted_fetches_have_no_explanation(graph):
    y = static.constant(1.0) + 1
    with pytest.raises(ArgumentError, match="explain: these fetches are interpreted"):
        static.Session(graph, compiled=False).explain(y)


def test_answers_about_sizes_bind_their_own_runs(graph, session):
    """Training needs two rows, predictions of the same graph do not."""
    model = weft.nn.BatchNorm1d(3)
    x = static.placeholder(weft.float32, [None, 3], name="x")
    train = model(x)
    model.eval()
    predict = model(x) * 1
    first = x[0]
    session.run(static.global_variables_initializer())
    assert session.run(predict, {x: np.ones((1, 3))}).shape == (1, 3)
    assert session.run(predict, {x: np.ones((0, 3))}).shape == (0, 3)
    with pytest.raises(ShapeError, match=r"built for sizes with x_0 > 1"):
        session.run(train, {x: np.ones((1, 3))})
    with pytest.raises(ShapeError, match=r"built for sizes with x_0 > 0"):
        session.run(first, {x: np.ones((0, 3))})
    if x.shape[0] > 5:  # the user's own question binds all runs
        predict = None
    other = static.Session(graph, compiled=session.compiled)
    other.run(static.global_variables_initializer())
    with pytest.raises(ShapeError, match=r"built for sizes with x_0 <= 5"):
        other.run(predict, {x: np.ones((6, 3))})
