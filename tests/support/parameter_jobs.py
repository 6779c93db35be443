"""Jobs of parameter servers in threads of one process, for tests.

A coordinator, servers and workers run as threads, so that a job takes no longer than
its work. A server may crash where a test says so, and a new one goes on in its folder.
"""

import contextlib
import os
import shutil
import socket
import sys
import threading
import time

from weft.distributed.environment import Role
from weft.distributed.parameter_server.client import Store
from weft.distributed.parameter_server.coordinator import Coordinator
from weft.distributed.parameter_server.server import Server


class Crash(BaseException):
    """The end of a server, as sudden as a kill."""


class Crashing(Server):
    """A server that crashes after so many records of its log, before it answers."""

    after = None

    def _answer(self, worker, message):
        found = super()._answer(worker, message)
        if self.after is not None and message.header["do"] == "push":
            self.after -= 1
            if self.after < 0:
                raise Crash
        return found


class Job:
    """A coordinator and servers; ``work`` runs a function as each worker."""

    def __init__(
        self,
        folder,
        workers=1,
        servers=1,
        crashes=(),
        patience=0.2,
        revives=True,
        forgets=False,
    ):
        place = socket.create_server(("127.0.0.1", 0))
        self.role = Role("coordinator", 0, workers, servers, place.getsockname())
        self.folder, self.crashes = str(folder), list(crashes)
        self.coordinator = Coordinator(self.role, place, patience)
        self.errors, self.starts = [], 0
        self.revives, self.forgets = revives, forgets
        self.threads = [self._thread(self.coordinator.run)]
        self.threads += [self._thread(self._serve, k) for k in range(servers)]

    def _thread(self, run, *args):
        thread = threading.Thread(target=run, args=args, daemon=True)
        thread.start()
        return thread

    def _serve(self, rank):
        """A server, and those that come after it when it crashes."""
        role = self.role._replace(name="server", rank=rank)
        while True:
            self.starts += 1
            server = Crashing(role, os.path.join(self.folder, f"server-{rank}"))
            if rank == 0 and self.crashes:
                server.after = self.crashes.pop(0)
            try:
                return server.run()
            except Crash:
                if not self.revives:
                    return None
                if self.forgets:
                    shutil.rmtree(server.folder)
            except Exception as error:
                self.errors.append(error)
                return None

    def work(self, check, *args):
        """The results of ``check(store, *args)`` as each worker, or its errors."""
        results = [None] * self.role.workers

        def one(rank):
            role = self.role._replace(name="worker", rank=rank)
            try:
                with Store(role, 10.0) as store:
                    results[rank] = check(store, *args)
            except Exception as error:
                results[rank] = error

        threads = [self._thread(one, k) for k in range(self.role.workers)]
        for thread in threads:
            thread.join(30)
        return results

    def ok(self, check, *args):
        """The results, where no worker may fail."""
        found = self.work(check, *args)
        for one in found:
            if isinstance(one, Exception):
                raise one
        self.end()
        return found

    def end(self):
        """Wait for the coordinator and the servers to end."""
        until = time.monotonic() + 10
        for thread in self.threads:
            thread.join(max(until - time.monotonic(), 0))
        assert not self.errors, self.errors
        assert not any(thread.is_alive() for thread in self.threads)


@contextlib.contextmanager
def kept_hook():
    """Leave the hook for errors as it was."""
    hook = sys.excepthook
    try:
        yield
    finally:
        sys.excepthook = hook
