"""Each test builds in a graph of its own, and runs it compiled and interpreted."""

import pytest

from weft import static
from weft.core.size import Dimension, TensorShape
from weft.graph.ir import subgraphs


def has_tensor_shape(value):
    """Whether a user's ``TensorShape`` or ``Dimension`` is where the compiler expects a
    tuple or a number."""
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, (list, tuple)):
        return isinstance(value, TensorShape) or any(map(has_tensor_shape, value))
    if isinstance(value, slice):
        return has_tensor_shape([value.start, value.stop, value.step])
    return isinstance(value, Dimension)


def check_plain(nodes):
    for node in nodes:
        assert not has_tensor_shape((node.type, node.params, node.inputs)), node
        for _, inner in subgraphs(node):
            check_plain(inner.nodes)


@pytest.fixture
def graph():
    with static.Graph("test").as_default() as made:
        yield made
    check_plain(made.builder.nodes)


@pytest.fixture(params=[True, False], ids=["compiled", "interpreted"])
def session(graph, request):
    with static.Session(graph, compiled=request.param) as made:
        yield made


@pytest.fixture
def start(session):
    """Runs the initializers of all variables made so far."""

    def run():
        session.run(static.global_variables_initializer())
        return session

    return run
