"""Variables keep their values; assignments, order, groups and names."""

import numpy as np
import pytest

import weft
from weft import static
from weft.errors import ArgumentError, DTypeError, ShapeError
from weft.graph.ir import GraphError


def test_reading_before_initialising_names_the_variable_and_the_line(session):
    w = static.Variable([1.0, 2.0], name="weights")
    with pytest.raises(
        ArgumentError, match=r"'weights' is read before it has a value; run its "
        r"initializer(.|\n)*read at .*test_variables\.py:\d+",
    ):  # fmt: skip
        session.run(w * 2)
    with pytest.raises(ArgumentError, match=r"'weights' is read before"):
        session.run(w.assign_add([1.0, 1.0]))
    assert session.run(w.assign([3.0, 4.0])).tolist() == [3, 4]
    assert session.run(w).tolist() == [3, 4]


def test_values_persist_through_runs_and_belong_to_a_session(graph, start):
    n = static.Variable(0, name="n")
    up = n.assign_add(1)
    session = start()
    for _ in range(300):
        session.run(up)
    assert session.run(n) == 300
    with static.Session(graph) as other:
        other.run(n.initializer)
        assert other.run(n) == 0
    assert session.run(n) == 300


def test_assign_happens_once_a_run_and_only_if_asked_for(graph, start):
    w = static.Variable(5.0)
    loss = w * w
    update = w.assign(w - 0.1 * static.gradients(loss, w)[0])
    session = start()
    assert session.run(loss) == 25
    assert session.run(w) == 5
    assert session.run([loss, update]) == [25, pytest.approx(4)]
    assert session.run([update, update, loss])[2] == pytest.approx(16)
    assert session.run(w) == pytest.approx(3.2)


def test_assign_forms(graph, start):
    w = static.Variable(np.zeros((2, 2)), name="w", dtype=weft.float64)
    session = start()
    assert session.run(w.assign([[1, 2], [3, 4]])).tolist() == [[1, 2], [3, 4]]
    assert session.run(w.assign_add(np.ones((2, 2)))).tolist() == [[2, 3], [4, 5]]
    assert session.run(w.assign_sub(1)).tolist() == [[1, 2], [3, 4]]
    assert session.run(static.assign(w, w * 2)).tolist() == [[2, 4], [6, 8]]
    w.load(np.ones((2, 2)), session)
    assert session.run(w).tolist() == [[1, 1], [1, 1]]


def test_assign_refuses_other_types(graph):
    n = static.Variable(1, name="n")
    with pytest.raises(DTypeError, match=r"variable 'n' is int64\[\], got float32"):
        n.assign(static.constant(1.5))
    with pytest.raises(ShapeError, match=r"variable 'n' is int64\[\], got shape"):
        n.assign([1, 2])
    w = static.Variable(1.0, name="w")
    assert w.assign(static.constant(3)).dtype is weft.float32


def test_a_variable_needs_an_initial_value(graph):
    with pytest.raises(ArgumentError, match=r"'v': expected an initial value"):
        static.Variable(name="v")


def test_initial_values(graph, start):
    a = static.Variable(lambda: static.random_normal([3]), name="a")
    b = static.Variable(a.initialized_value() * 2, name="b")
    c = static.get_variable("c", [2, 3], initializer=lambda s, d: static.ones(s, d))
    d = static.get_variable("d", [400, 400])
    session = start()
    np.testing.assert_array_equal(session.run(b), session.run(a) * 2)
    assert session.run(c).tolist() == [[1, 1, 1], [1, 1, 1]]
    limit = np.sqrt(6 / 800)
    found = session.run(d)
    assert 0.99 * limit < np.abs(found).max() <= limit
    assert abs(found.mean()) < 1e-3
    assert [v.name for v in static.global_variables()] == ["a", "b", "c", "d"]


def test_initialising_again_starts_again(graph, start):
    w = static.Variable(2.0)
    session = start()
    session.run(w.assign(7.0))
    session.run(static.variables_initializer([w]))
    assert session.run(w) == 2


def test_trainable(graph):
    w, n = static.Variable(1.0), static.Variable(1)
    fixed = static.Variable(1.0, trainable=False)
    assert w.trainable
    assert not n.trainable
    assert not fixed.trainable
    assert static.trainable_variables() == [w]


def test_a_variable_is_its_value_at_the_start_of_the_run(graph, start):
    n = static.Variable(1, name="n")
    doubled = n * 2
    up = n.assign_add(10)
    with static.control_dependencies([up]):
        later = n.read_value() * 2
    session = start()
    assert session.run([doubled, up, later]) == [2, 11, 22]


def test_variables_and_placeholders_do_not_change_in_place(graph, start):
    w, x = static.Variable(1.0, name="w"), static.placeholder(weft.float32, [])
    for node in (w, x):
        with pytest.raises(GraphError, match="cannot be changed in place"):
            node.add_(1)
    before, feed = x * 1, {x: 2.0}
    total = before
    total += w  # another node under the name
    x += 1
    assert start().run([before, total, x], feed) == [2, 3, 3]


def test_assigning_inside_a_branch_is_told(graph):
    w = static.Variable(1.0, name="w")
    with pytest.raises(GraphError, match=r"'w' cannot be assigned inside a branch"):
        static.cond(w > 0, lambda: w.assign_add(1.0), lambda: w * 1)


# -- control dependencies


def counter(name):
    n = static.Variable(0, name=name)
    return n, n.assign_add(1)


def test_control_dependencies_order_and_pruning(graph, start):
    n, a = counter("n")
    with static.control_dependencies([a]):
        b = static.constant(3.0) * 2
    unrelated = static.constant(1.0)
    session, told = start(), static.RunMetadata()
    session.run(unrelated, run_metadata=told)
    assert "n/assign" not in told.executed
    assert session.run(n) == 0
    assert session.run(b, run_metadata=told) == 6
    order = told.executed
    assert order.index("n/assign") < order.index(b.name)
    assert session.run(n) == 1


def test_control_dependencies_nest_and_can_be_lifted(graph, start):
    n, a = counter("n")
    m, b = counter("m")
    with static.control_dependencies([a]):
        with static.control_dependencies([b]):
            both = static.constant(1.0) + 0
        with static.control_dependencies(None):
            free = static.constant(1.0) + 0
    session = start()
    session.run(both)
    session.run(free)
    assert session.run([n, m]) == [1, 1]


def test_a_value_made_before_does_not_wait(graph, start):
    n, a = counter("n")
    early = static.constant(1.0) + 0
    with static.control_dependencies([a]):
        late = static.identity(early)
    session = start()
    session.run(early)
    assert session.run(n) == 0
    session.run(late)
    assert session.run(n) == 1


def test_group(graph, start):
    (n, a), (m, b) = counter("n"), counter("m")
    both = static.group(a, b, name="both")
    session = start()
    assert session.run(both) is None
    assert both.name == "both"
    assert session.run([n, m, both]) == [1, 1, None]
    both.run()
    assert session.run([n, m]) == [3, 3]
    assert session.run(static.group()) is None


def test_a_chain_of_assignments_runs_in_the_order_asked_for(graph, start):
    w = static.Variable(3.0)
    double = w.assign(w.read_value() * 2)
    with static.control_dependencies([double]):
        inc = w.assign_add(1.0)
        with static.control_dependencies([inc]):
            double_again = w.assign(w.read_value() * 2)
    assert start().run([double, inc, double_again]) == [6, 7, 14]


# -- names


def test_names_are_unique(graph):
    names = [static.constant(1.0, name="c").name for _ in range(3)]
    assert names == ["c", "c_1", "c_2"]
    assert static.identity(1.0, name="c").name == "c_3"
    assert [static.Variable(0.0, name="v").name for _ in range(2)] == ["v", "v_1"]


def test_name_scopes(graph):
    with static.name_scope("net") as lead:
        x = static.constant(1.0, name="x")
        with static.name_scope("layer"):
            w = static.Variable(1.0, name="w")
            y = static.multiply(x, w, name="y")
    with static.name_scope("net"):
        again = static.constant(1.0, name="x")
    with static.name_scope(lead):
        back = static.constant(1.0, name="x")
    assert lead == "net/"
    assert [n.name for n in (x, w, y, again, back)] == [
        "net/x", "net/layer/w", "net/layer/y", "net_1/x", "net/x_1",
    ]  # fmt: skip
    assert graph["net/layer/y:0"].node is y.node


def test_a_name_is_given_to_the_operator_itself(graph, start):
    x = static.constant([1.0, 4.0], name="x")
    root = static.sqrt(x, name="root")
    more = static.add(root, 1.0, name="more")
    assert repr(root) == "<sqrt 'root' float32[2]>"
    assert [n.name for n in more.node.inputs if n != 1.0] == ["root"]
    same = static.cast(more, weft.float32, name="same")  # nothing to do: an alias
    assert (more.name, same.name, same.op.type) == ("more", "same", "alias")
    assert start().run(["more", same, "root:0"])[0].tolist() == [2, 3]
    assert static.sqrt(x).name == "sqrt"
    again = static.sqrt(x, name="root")
    assert again.name == "root_1"


def test_operations_know_their_type(graph):
    w = static.Variable(1.0, name="w")
    assert w.initializer.name == "w/Assign"
    assert w.initializer.type == "assign"
    assert [o.get_shape() for o in w.initializer.outputs] == [()]
    assert static.no_op().outputs == []


# -- files


def test_saver_round_trip(graph, start, tmp_path):
    w = static.Variable(np.arange(6.0).reshape(2, 3), name="net/w")
    n = static.Variable(3, name="n")
    session, saver = start(), static.train.Saver()
    path = saver.save(session, str(tmp_path / "model"), global_step=7)
    assert path.endswith("model-7")
    session.run([w.assign(w * 0), n.assign(0)])
    saver.restore(session, path)
    assert session.run(n) == 3
    np.testing.assert_array_equal(session.run(w), np.arange(6).reshape(2, 3))
    with static.Session(graph) as other:  # without having initialised anything
        static.train.Saver([w]).restore(other, path)
        assert other.run(w).sum() == 15
        with pytest.raises(ArgumentError, match="'n' is read before"):
            other.run(n)
    extra = static.Variable(1.0, name="extra")
    with pytest.raises(ArgumentError, match=r"no values for \['extra'\]"):
        static.train.Saver([extra]).restore(session, path)


def test_a_file_for_other_shapes_is_refused(graph, start, tmp_path):
    static.Variable([1.0, 2.0], name="w")
    path = static.train.Saver().save(start(), str(tmp_path / "model"))
    with static.Graph().as_default() as other, static.Session(other) as session:
        static.Variable([1.0, 2.0, 3.0], name="w")
        with pytest.raises(ShapeError, match=r"'w'.*float32\[3\].*\(2,\)"):
            static.train.Saver().restore(session, path)


def test_summaries_are_events(graph, start, tmp_path):
    from weft.training import read_events

    x = static.placeholder(weft.float32, [])
    w = static.Variable([1.0, 2.0, 3.0])
    static.summary.scalar("loss", x * 2)
    static.summary.histogram("w", w)
    every = static.summary.merge_all()
    session = start()
    writer = static.summary.FileWriter(str(tmp_path), graph)
    for step in range(3):
        writer.add_summary(session.run(every, {x: float(step)}), step)
    writer.close()
    (path,) = tmp_path.iterdir()
    events = list(read_events(path))
    assert [e["loss"] for e in events if "loss" in e] == [0, 2, 4]
    assert len([e for e in events if "w" in e]) == 3
    assert list(static.summary.scalar("loss", x)) == ["scalar:loss_1"]
    assert list(static.summary.merge([{"a": x}, {"b": w}])) == ["a", "b"]


def test_images_are_events(graph, start, tmp_path):
    import zlib

    from weft.training import read_events

    pixels = np.random.default_rng(0).integers(0, 256, (4, 5, 6, 3)).astype("u1")
    every = static.summary.image("seen", static.constant(pixels), max_outputs=2)
    signed = static.summary.image("signed", static.constant([[[[-1.0], [0.0], [1.0]]]]))
    session = start()
    writer = static.summary.FileWriter(str(tmp_path))
    writer.add_summary(session.run(static.summary.merge([every, signed])), 3)
    writer.close()
    (path,) = tmp_path.iterdir()
    found = {k: v for e in read_events(path) for k, v in e.items()}
    assert {k for k in found if "image" in k} == {
        "seen/image/0", "seen/image/1", "signed/image/0",
    }  # fmt: skip
    for name, want in (
        ("seen/image/1", pixels[1]),
        ("signed/image/0", np.array([[[0], [127], [254]]])),
    ):
        data = found[name][found[name].index(b"IDAT") + 4 :]
        rows = np.frombuffer(zlib.decompressobj().decompress(data), "u1")
        rows = rows.reshape(len(want), -1)[:, 1:]  # each row begins with its filter
        np.testing.assert_array_equal(rows, want.reshape(len(want), -1))
    with pytest.raises(ArgumentError, match="batch, height"):
        static.summary.image("flat", static.constant([1.0]))
