"""Each test builds in a graph of its own."""

import pytest

from weft import static


@pytest.fixture
def graph():
    with static.Graph("test").as_default() as made:
        yield made


@pytest.fixture
def session(graph):
    with static.Session(graph) as made:
        yield made


@pytest.fixture
def start(session):
    """Runs the initializers of all variables made so far."""

    def run():
        session.run(static.global_variables_initializer())
        return session

    return run
