"""A small network, and a server for it that tests share."""

import pytest

import weft

pytest.importorskip("uvicorn")
pytest.importorskip("starlette")

from http_server import running

from weft.serve import Limits, Server, served


@pytest.fixture(scope="module")
def net():
    weft.manual_seed(0)
    layers = (
        weft.nn.Flatten(),
        weft.nn.Linear(6, 8),
        weft.nn.ReLU(),
        weft.nn.Linear(8, 3),
    )
    return weft.nn.Sequential(*layers).eval()


@pytest.fixture(scope="module")
def program(net):
    return served(net, weft.ones(1, 2, 3))


@pytest.fixture(scope="module")
def client(program):
    limits = Limits(body=20_000, reading=0.5, wait=0.001)
    with running(Server(program, limits)) as found:
        yield found
