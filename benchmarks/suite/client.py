"""The other end of a worker: a process with a framework, its limits and its answers."""

from __future__ import annotations

import json
import os
import pathlib
import selectors
import subprocess
import tempfile
from typing import Any

ROOT = pathlib.Path(__file__).parents[2]


class WorkerError(Exception):
    """A worker that could not do what it was asked, and why."""


def environment(threads: int, python: str) -> dict[str, str]:
    """Every library's own way of saying how many threads it may use.

    Programs beside the interpreter (a compiler, say) are found, as if it were active.
    """
    tools = os.path.dirname(os.path.abspath(python))
    count = str(threads)
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS",
             "WEFT_NUM_THREADS", "NPROC", "CPU_COUNT")  # fmt: skip
    paths = [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        **dict.fromkeys(names, count),
        "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=true",
        "JAX_PLATFORMS": "cpu",
        "DEV": "CPU",  # tinygrad's, and that its optimizers may be used
        "TRAINING": "1",
        "PATH": os.pathsep.join([tools, os.environ.get("PATH", "")]),
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
    }


def pin(threads: int) -> None:
    """Keep this process and its children on so many cores.

    JAX takes as many threads as it may use cores.
    """
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < threads:
        raise SystemExit(f"{threads} threads: this process may use {len(cores)} cores")
    os.sched_setaffinity(0, cores[:threads])


class Client:
    """A worker process; ``ask`` it, and ``close`` it."""

    def __init__(self, python: str, framework: str, threads: int) -> None:
        self.framework = framework
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed in close
        self._process = subprocess.Popen(
            [python, "-m", "benchmarks.suite.worker"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said,
            env=environment(threads, python), cwd=ROOT,
        )  # fmt: skip
        self._output = b""

    def ask(self, timeout: float, **question: Any) -> dict[str, Any]:
        """The answer; an error where there is none, or it is one."""
        pipe = self._process.stdin
        assert pipe is not None
        try:
            pipe.write(json.dumps(question).encode() + b"\n")
            pipe.flush()
        except BrokenPipeError:
            raise WorkerError(self._ended()) from None
        answer = json.loads(self._line(timeout))
        if "error" in answer:
            raise WorkerError(answer["error"])
        return answer

    def _line(self, timeout: float) -> bytes:
        pipe = self._process.stdout
        assert pipe is not None
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while b"\n" not in self._output:
                if not selector.select(timeout):
                    self.close()
                    raise WorkerError(f"no answer within {timeout:.0f} s")
                chunk = os.read(pipe.fileno(), 1 << 16)
                if not chunk:
                    raise WorkerError(self._ended())
                self._output += chunk
        line, _, self._output = self._output.partition(b"\n")
        return line

    def _ended(self) -> str:
        code = self._process.wait()
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").strip().splitlines()
        return f"the process ended with code {code}" + (f": {lines[-1]}" * bool(lines))

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        if self.alive:
            self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._said):
            assert pipe is not None
            try:
                pipe.close()
            except BrokenPipeError:
                pass
