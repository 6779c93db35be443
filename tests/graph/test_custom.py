"""A hand-written backward stays with its program: captured, static, compiled, saved."""

import numpy as np

import weft
from weft import graph as G
from weft import layers, static


class Tripled(weft.autograd.Function):
    """x² whose derivative is (wrongly, so that one sees it) 3 x g."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 3 * x * g


def program(x):
    return (Tripled.apply(x * 2) * 5).sum()


X = np.array([1.0, -2.0])
WANT = 3 * (2 * X) * 5 * 2  # by the hand-written rule


def test_gradients_of_a_captured_program():
    captured = G.capture(program, weft.tensor(X))
    G.verify(captured.graph)
    assert captured(weft.tensor(X)).item() == program(weft.tensor(X)).item()
    derived = G.gradients(captured.graph)
    G.verify(derived)
    got = G.Program(derived, derived.outputs).run([X], {})[0][-1]
    np.testing.assert_allclose(got, WANT)


def test_backward_inside_a_captured_program():
    def step(x):
        x = x.detach().requires_grad_()
        program(x).backward()
        return x.grad

    np.testing.assert_allclose(G.capture(step, weft.tensor(X))(weft.tensor(X)), WANT)


def test_text_and_back():
    graph = G.capture(program, weft.tensor(X)).graph
    again = G.parse_graph(G.print_graph(graph))
    derived = G.gradients(again)
    got = G.Program(derived, derived.outputs).run([X], {})[0][-1]
    np.testing.assert_allclose(got, WANT)


def test_compiled():
    f = weft.compile(program)
    x = weft.tensor(X, requires_grad=True)
    f(x).backward()
    np.testing.assert_allclose(x.grad.numpy(), WANT)


def test_static_gradients():
    graph = static.Graph()
    with graph.as_default(), static.Session(graph) as session:
        x = static.placeholder(weft.float64, [None])
        (dx,) = static.gradients(program(x), x)
        np.testing.assert_allclose(session.run(dx, {x: X}), WANT)


class Scale(layers.Layer):
    """A layer whose backward counts its calls."""

    calls = 0

    def forward(self, x):
        return x * 3

    def backward(self, grad):
        Scale.calls += 1
        return grad * 7


def test_a_layer_in_a_captured_program():
    layer = Scale()
    x = weft.tensor([1.0, 2.0])
    graph = G.gradients(G.capture(lambda x: layer(x).sum(), x).graph)
    got = G.Program(graph, graph.outputs).run([x.numpy()], {})[0][-1]
    assert got.tolist() == [7, 7]


def test_module_hooks_run_when_gradients_pass():
    model = weft.nn.Linear(2, 2)
    seen = []
    model.register_full_backward_hook(lambda m, gi, go: seen.append(len(go)))

    def step(x):
        model(x).sum().backward()

    G.capture(step, weft.ones(1, 2, requires_grad=True))
    assert seen == [1]
