"""``weft.fx``: traced graphs print, change and run."""

import copy
import operator
import pickle

import numpy as np
import pytest

import weft
from weft import fx, nn
from weft.fx.proxy import TraceError
from weft.nn import functional as F


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.scale = nn.Parameter(weft.ones(2))
        self.register_buffer("shift", weft.arange(2.0))

    def forward(self, x, bias=None):
        return self.linear(x) * self.scale + self.shift


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(Scaled(), nn.ReLU())
        self.table = weft.tensor([1.0, 2.0])

    def forward(self, x, *, flag=True):
        a, b = self.body(x).split(1, dim=1)
        h = F.relu(weft.cat([a, b], dim=1)) + self.table - weft.ones(2)
        return {"out": 2 - h @ h.t(), "size": x.size(0), "first": h[0, 1:]}


def test_a_module_prints_as_its_calls_and_computes_the_same():
    net = Net()
    traced = fx.symbolic_trace(net)
    assert [n.target for n in traced.graph.nodes if n.op == "call_module"] == [
        "body.0.linear",
        "body.1",
    ]
    assert 'getattr(self.body, "0").linear(x)' in traced.code
    x = weft.randn(4, 3)
    ours, theirs = traced(x), net(x)
    assert ours["size"] == 4
    for key in ("out", "first"):
        np.testing.assert_array_equal(ours[key].detach(), theirs[key].detach())
    assert set(dict(traced.named_parameters())) == {
        "body.0.scale", "body.0.linear.weight", "body.0.linear.bias",
    }  # fmt: skip


def test_gradients_reach_the_traced_parameters_and_the_graph_is_compiled():
    net = Net()
    traced = weft.compile(fx.symbolic_trace(net))
    x = weft.randn(4, 3)
    traced(x)["out"].sum().backward()
    scale = net.body[0].scale  # shared, not copied
    found = scale.grad.clone()
    scale.grad = None
    net(x)["out"].sum().backward()
    np.testing.assert_allclose(found, scale.grad, rtol=1e-5, atol=1e-5)


def test_names_that_were_looked_up_while_tracing_are_put_back():
    before = weft.relu, F.relu, weft.Tensor.add, nn.Module.__call__
    fx.symbolic_trace(Net())
    with pytest.raises(TraceError):
        fx.symbolic_trace(lambda x: x if x.sum() > 0 else -x)
    assert (weft.relu, F.relu, weft.Tensor.add, nn.Module.__call__) == before


def test_nodes_are_replaced_inserted_and_erased():
    traced = fx.symbolic_trace(lambda x: weft.relu(x) + 1)
    relu = next(n for n in traced.graph.nodes if n.target is weft.relu)
    with traced.graph.inserting_after(relu):
        made = traced.graph.call_function(weft.tanh, (relu.args[0],))
    relu.replace_all_uses_with(made)
    with pytest.raises(RuntimeError, match="still had 1 users"):
        traced.graph.erase_node(made)
    traced.graph.erase_node(relu)
    traced.graph.lint()
    traced.recompile()
    np.testing.assert_allclose(traced(weft.ones(1)), np.tanh([1.0]) + 1, rtol=1e-6)


def test_unused_nodes_go_but_not_those_that_do_something():
    def program(x):
        x.sin()
        x.add_(1)
        return x

    traced = fx.symbolic_trace(program)
    assert traced.graph.eliminate_dead_code()
    assert [n.target for n in traced.graph.nodes] == ["x", "add_", "output"]
    assert not traced.graph.eliminate_dead_code()


def test_a_graph_that_is_out_of_order_is_found():
    graph = fx.Graph()
    x = graph.placeholder("x")
    y = graph.call_function(operator.neg, (x,))
    graph.output(y)
    y.append(x)
    with pytest.raises(RuntimeError, match="used before it has been defined"):
        graph.lint()


def test_an_interpreter_and_a_transformer_change_what_nodes_do():
    traced = fx.symbolic_trace(lambda x: weft.relu(x) * 3)

    class Swap(fx.Transformer):
        def call_function(self, target, args, kwargs):
            target = weft.neg if target is weft.relu else target
            return super().call_function(target, args, kwargs)

    class Seen(fx.Interpreter):
        def run_node(self, n):
            names.append(n.name)
            return super().run_node(n)

    names = []
    assert Swap(traced).transform()(weft.ones(1)).tolist() == [-3.0]
    assert Seen(traced).run(weft.ones(1)).tolist() == [3.0]
    assert names == ["x", "relu", "mul", "output"]
    with pytest.raises(RuntimeError, match="Expected positional argument"):
        fx.Interpreter(traced).run()


def test_patterns_are_replaced_everywhere_but_where_a_part_is_used_elsewhere():
    def program(x, y):
        a = weft.relu(x) + 1
        inner = weft.relu(y)
        return a * (inner + 1) * inner

    traced = fx.symbolic_trace(program)
    found = fx.replace_pattern(
        traced, lambda t: weft.relu(t) + 1, lambda t: weft.sigmoid(t)
    )
    assert len(found) == 1  # the other relu is used twice
    x = weft.tensor([0.0])
    assert traced(x, weft.tensor([1.0])).tolist() == [1.0]


def test_what_a_trace_cannot_know_is_refused():
    for program, text in [
        (lambda x: list(x), "cannot be iterated"),
        (lambda x: x if x > 0 else -x, "control flow"),
        (lambda x: range(x), "no index"),
        (lambda *xs: xs, "no fixed number"),
    ]:
        with pytest.raises(TraceError, match=text):
            fx.symbolic_trace(program)
    with pytest.raises(RuntimeError, match="'len' is not supported"):
        fx.symbolic_trace(lambda x: len(x))


def test_known_arguments_are_checked_when_the_program_runs():
    traced = fx.symbolic_trace(
        lambda x, k: x * 2 if k == 3 else x, concrete_args={"k": 3}
    )
    assert traced(weft.ones(1), 3).tolist() == [2.0]
    with pytest.raises(AssertionError, match="specialized to have value 3"):
        traced(weft.ones(1), 4)


def test_graph_modules_are_copied_and_pickled():
    net = fx.symbolic_trace(Net())
    x = weft.randn(2, 3)
    for twin in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert twin.code == net.code
        np.testing.assert_array_equal(
            twin(x)["first"].detach(), net(x)["first"].detach()
        )
        with weft.no_grad():
            next(twin.parameters()).add_(1)
        assert not weft.equal(next(twin.parameters()), next(net.parameters()))


def test_submodules_are_added_and_removed():
    net = fx.symbolic_trace(nn.Sequential(nn.Linear(1, 1), nn.ReLU()))
    net.add_submodule("extra.deep", nn.ReLU())
    assert isinstance(net.extra.deep, nn.ReLU)
    net.delete_all_unused_submodules()
    assert [name for name, _ in net.named_children()] == ["0", "1"]
    assert not net.delete_submodule("absent")


def test_a_wrapped_function_is_one_node():
    traced = fx.symbolic_trace(lambda x: _opaque(x) + 1)
    assert [n.target for n in traced.graph.nodes][1] is _opaque
    assert traced(weft.ones(1)).tolist() == [3.0]


@fx.wrap
def _opaque(x):
    return x * (2 if x.sum() > 0 else 3)
