"""Servers in a thread of the test's process, and clients for them."""

import contextlib
import http.client
import json
import socket
import threading
import time

import pytest

uvicorn = pytest.importorskip("uvicorn")
pytest.importorskip("starlette")

from weft.serve import application  # noqa: E402
from weft.serve.running import _patient  # noqa: E402


class Client:
    def __init__(self, port):
        self.port = port

    def ask(self, method, path, body=None, headers=None):
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            text = json.dumps(body).encode() if isinstance(body, dict | list) else body
            link.request(method, path, text, headers or {})
            answer = link.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            link.close()

    def post(self, path, body, **headers):
        status, head, found = self.ask("POST", path, body, headers)
        return status, json.loads(found), head

    def metrics(self):
        lines = self.ask("GET", "/metrics")[2].decode().splitlines()
        pairs = [line.rsplit(" ", 1) for line in lines if not line.startswith("#")]
        return {name: float(value) for name, value in pairs}

    def socket(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=20)


@contextlib.contextmanager
def running(server, watch=False):
    """A server with its application on a free port."""
    link = socket.socket()
    link.bind(("127.0.0.1", 0))
    config = uvicorn.Config(
        application(server, watch=watch), log_level="critical",
        http=_patient(server.limits.reading), timeout_graceful_shutdown=5,
    )  # fmt: skip
    process = uvicorn.Server(config)
    thread = threading.Thread(target=process.run, kwargs={"sockets": [link]})
    thread.start()
    until(lambda: process.started)
    try:
        yield Client(link.getsockname()[1])
    finally:
        process.should_exit = True
        thread.join(20)
        link.close()
        assert not thread.is_alive()


def until(holds, seconds=20):
    """Wait for something that another thread does."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "this never came to be"
        time.sleep(0.005)
