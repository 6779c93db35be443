"""Compiling runs no other program; a second run takes no memory but its results'."""

import gc
import json
import os
import subprocess
import sys
import textwrap
import tracemalloc

import numpy as np
import pytest

import weft
from weft import nn, optim
from weft.runtime.cpu import arena

STARTING = (
    "subprocess.Popen", "os.exec", "os.posix_spawn", "os.spawn", "os.system",
    "os.fork", "os.forkpty", "os.startfile", "pty.spawn",
)  # fmt: skip

CHILD = textwrap.dedent(
    """
    import json, subprocess, sys

    started = []

    def hook(event, args):
        if event in {starting!r}:
            started.append(event)

    sys.addaudithook(hook)
    if {planted!r}:
        subprocess.run([sys.executable, "-c", ""], check=True)

    import weft
    from weft import nn, optim

    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 3))
    optimizer = optim.AdamW(model.parameters())

    @weft.compile
    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    step(weft.randn(4, 8), weft.tensor([0, 1, 2, 0]))
    (how,) = step.compiles
    print(json.dumps([how.cached, how.kernels, started]))
    """
)


def in_child(cache, planted=False):
    """How a training step's code came about in a new process, and what it started."""
    source = CHILD.format(starting=STARTING, planted=planted)
    env = {**os.environ, "WEFT_CACHE_DIR": str(cache)}
    command = [sys.executable, "-c", source]
    found = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    return json.loads(found.stdout)


def test_no_program_is_started(tmp_path):
    cached, kernels, started = in_child(tmp_path / "kernels")
    assert (cached, started) == ("compiled", [])
    assert kernels > 3
    cached, again, started = in_child(tmp_path / "kernels")
    assert (cached, again, started) == ("from the cache", kernels, [])


def test_a_program_that_is_started_is_noticed(tmp_path):
    _, _, started = in_child(tmp_path / "kernels", planted=True)
    assert "subprocess.Popen" in started


# -- memory


def training_step(width=64, rows=32):
    """A compiled step without calls between its kernels."""
    weft.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(width, width), nn.LayerNorm(width), nn.GELU(), nn.Linear(width, 10)
    )
    optimizer = optim.AdamW(model.parameters(), lr=1e-3)

    @weft.compile
    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step, weft.randn(rows, width), weft.randint(0, 10, (rows,))


def array_bytes(run):
    """The bytes of all arrays that a call allocated, those freed again too."""
    domain = np.lib.tracemalloc_domain
    tracemalloc.start()
    try:
        tracemalloc.clear_traces()
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        kept = run()
        _, peak = tracemalloc.get_traced_memory()
        only = [tracemalloc.DomainFilter(True, domain)]
        live = tracemalloc.take_snapshot().filter_traces(only)
    finally:
        tracemalloc.stop()
    del kept
    return sum(t.size for t in live.traces), peak - before


def native_of(step):
    (specializations,) = step._specializations.values()
    return specializations[0].program


def feeds_of(step, *args):
    (specializations,) = step._specializations.values()
    specialization = specializations[0]
    store = {
        v: specialization.cells[v.name].get() for v in specialization.program.reads
    }
    return [a.numpy() for a in args], store


def test_a_second_run_allocates_its_outputs_only(monkeypatch):
    step, x, y = training_step()
    step(x, y), step(x, y)
    native = native_of(step)
    instance = native.latest
    feeds, store = feeds_of(step, x, y)
    outputs = native.lowered.graph.outputs
    due = sum(int(np.prod(n.shape)) * n.dtype.itemsize for n in outputs)
    table = instance.arena.nbytes
    assert table > 20 * due  # else nothing would be shown

    made = []
    right = arena.Arena.__init__
    monkeypatch.setattr(
        arena.Arena,
        "__init__",
        lambda self, *args: made.append(args) or right(self, *args),
    )
    room = {v: np.empty(v.type.shape, v.type.dtype.np) for v in native.unread}
    native.run_named(feeds, store, room)
    kept, peak = array_bytes(lambda: native.run_named(feeds, store, room))
    assert made == []  # and the instance is the same one
    assert native.latest is instance
    assert kept <= due + 256, (kept, due)
    assert peak < table / 4, (peak, table)


def test_memory_does_not_grow():
    step, x, y = training_step()
    step(x, y)
    held = []
    tracemalloc.start()
    try:
        for count in (10, 30):
            for _ in range(count):
                step(x, y)
            gc.collect()
            held.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert held[1] - held[0] < 3000, held  # a hundred bytes a step


def test_allocations_are_noticed():
    kept, peak = array_bytes(lambda: np.ones(1000) + np.zeros(1000))
    assert kept == 8000
    assert peak >= 16000


@pytest.mark.parametrize("rows", [3, 32])
def test_other_sizes_have_memory_of_their_own(rows):
    step, x, y = training_step(rows=32)
    step(x, y)
    step(x[:5], y[:5])
    native = native_of(step)
    native.run_named(*feeds_of(step, x[:rows], y[:rows]))
    instance = native.latest
    native.run_named(*feeds_of(step, x[:rows], y[:rows]))
    assert native.latest is instance
