"""Worlds for tests: functions that several processes run together.

One process imports Weft once, and is copied for every rank of every world, so that a
world takes no longer than its work. ``Worlds.run`` gives a function's result on each
rank; a ``Failure`` where it raised an error or the process was ended.
"""

import contextlib
import importlib.util
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
import traceback
from typing import Any, NamedTuple

LIMIT = 60.0  # seconds in which a world must end


class Failure(NamedTuple):
    """An error that ended a rank, or the signal that did; and after which time."""

    kind: str
    text: str
    seconds: float = 0.0


class Worlds:
    """Runs functions of test files on several ranks."""

    def __init__(self):
        self.process = None

    def run(self, check, size, *args, init=True, timeout=20.0):
        """The results of ``check(*args)`` on each rank, or its failures."""
        answers = self.everything(check, size, *args, init=init, timeout=timeout)
        return [_shown(one) for one in answers]

    def ok(self, check, size, *args, **options):
        """The results, where no rank may fail."""
        found = self.run(check, size, *args, **options)
        failures = [one for one in found if isinstance(one, Failure)]
        assert not failures, "\n".join(one.text for one in failures)
        return found

    def everything(self, check, size, *args, init, timeout):
        code = check.__code__
        request = {"file": code.co_filename, "name": check.__qualname__, "size": size,
                   "args": args, "init": init, "timeout": timeout}  # fmt: skip
        if self.process is None:
            environment = {**os.environ, "WEFT_NUM_THREADS": "1",
                           "OPENBLAS_NUM_THREADS": "1"}  # fmt: skip
            self.process = subprocess.Popen(
                [sys.executable, __file__], text=True, env=environment,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            )  # fmt: skip
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, "the process that makes worlds has ended"
        return json.loads(line)

    def close(self):
        if self.process is not None:
            self.process.stdin.close()
            self.process.wait()
            self.process.stdout.close()


def _shown(answer):
    if "result" in answer:
        return answer["result"]
    return Failure(answer["kind"], answer["text"], answer.get("seconds", 0.0))


# -- in the process that makes worlds


def serve():
    import weft.compile.frontend.function
    import weft.distributed
    import weft.nn
    import weft.optim  # noqa: F401

    modules: dict[str, Any] = {}
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what ranks print is not an answer
    for line in sys.stdin:
        request = json.loads(line)
        module = modules.get(request["file"]) or _loaded(request["file"])
        modules[request["file"]] = module
        check = getattr(module, request["name"])
        out.write(json.dumps(_world(check, request)) + "\n")
        out.flush()


def _loaded(file):
    sys.path.insert(0, os.path.dirname(file))
    spec = importlib.util.spec_from_file_location("checks", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _world(check, request):
    server = socket.create_server(("127.0.0.1", 0), backlog=64)
    pids, pipes = [], []
    for rank in range(request["size"]):
        read, write = os.pipe()
        pid = os.fork()
        if not pid:
            os.close(read)
            _rank(check, rank, request, server, write)
        os.close(write)
        pids.append(pid)
        pipes.append(read)
    server.close()
    texts = _read(pipes)
    answers = []
    for pid, text in zip(pids, texts, strict=True):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL) if not text else None
        _, status = os.waitpid(pid, 0)
        ended = {"kind": "ended", "text": f"status {os.waitstatus_to_exitcode(status)}"}
        answers.append(json.loads(text) if text else ended)
    return answers


def _read(pipes):
    """What each rank answers; nothing of one that is stopped or was killed."""
    texts = dict.fromkeys(pipes, b"")
    selector = selectors.DefaultSelector()
    for pipe in pipes:
        selector.register(pipe, selectors.EVENT_READ)
    until, idle = time.monotonic() + LIMIT, 0.0
    while selector.get_map() and time.monotonic() < until:
        found = selector.select(0.1)
        for key, _ in found:
            data = os.read(key.fd, 1 << 16)
            texts[key.fd] += data
            if not data:
                selector.unregister(key.fd)
        # others have answered, and one does not: it is stopped
        idle = 0.0 if found else idle + 0.1
        if idle > 3.0 and any(texts.values()) and len(selector.get_map()) == 1:
            break
    for pipe in pipes:
        os.close(pipe)
    return [texts[pipe] for pipe in pipes]


def _rank(check, rank, request, server, write):
    import weft
    import weft.distributed as dist
    from weft.distributed import groups

    os.environ |= {
        "RANK": str(rank), "WORLD_SIZE": str(request["size"]), "LOCAL_RANK": str(rank),
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(server.getsockname()[1]),
    }  # fmt: skip
    if rank == 0:
        os.environ["WEFT_LISTENER"] = str(os.dup(server.fileno()))
    server.close()
    sys.excepthook = lambda *error: None
    weft.config.eager_kernels = False
    weft.manual_seed(0)
    start = time.monotonic()
    try:
        if request["init"]:
            dist.init_process_group(timeout=request["timeout"])
        start = time.monotonic()
        answer = {"result": check(*request["args"])}
    except SystemExit:
        answer = {"result": "exit"}
    except BaseException as error:
        sys.excepthook(type(error), error, None)
        text = f"{error}\n{traceback.format_exc()}"
        seconds = time.monotonic() - start
        answer = {"kind": type(error).__name__, "text": text, "seconds": seconds}
    try:
        groups._leave()
        os.write(write, json.dumps(answer).encode())
    finally:
        os._exit(0)


if __name__ == "__main__":
    serve()
