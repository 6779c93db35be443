"""Each test builds in a graph of its own, and runs it compiled and interpreted."""

import pytest

from weft import static


@pytest.fixture
def graph():
    with static.Graph("test").as_default() as made:
        yield made


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
