"""The thread pool: every chunk once, whoever calls, forks or resizes meanwhile."""

import ctypes
import functools
import os
import pathlib
import resource
import runpy
import signal
import subprocess
import sys
import threading
import time

import llvmlite.binding as llvm
import numpy as np
import pytest

import weft
from weft.compile.emit.control_flow import I64, POINTER, VOID, function, i64, loop, when
from weft.compile.emit.isa import Isa, new_module
from weft.compile.targets.cpu.object_code import compile_module, host_isa, object_code
from weft.compile.targets.cpu.pool_code import (
    BODY,
    CHUNKS,
    FUTEX_NUMBERS,
    emit_parallel,
    report_error,
)
from weft.compile.targets.cpu.pool_code import (
    pool_module as pool_ir,
)
from weft.runtime import system
from weft.runtime.cpu import pool as pool_module
from weft.runtime.cpu.pool import Pool

# A context of these tests, in 64-bit words.
STATUS, COUNTS, BEGINS, WORKERS, EXTRA = range(5)


def word(b, context, index):
    base = b.bitcast(context, I64.as_pointer())
    return b.load(b.gep(base, [i64(index)]))


def place(b, context, index, k):
    base = b.inttoptr(word(b, context, index), I64.as_pointer())
    return b.gep(base, [k])


def emit_mark(module):
    """Note for each index that it came, in which chunk and where; then dawdle."""
    with function(module, "mark", VOID, list(BODY.args)) as (b, made):
        context, begin, end, worker = made.args
        with loop(b, begin, end) as i:
            count = place(b, context, COUNTS, i)
            b.store(b.add(b.load(count), i64(1)), count)
            b.store(begin, place(b, context, BEGINS, i))
            b.store(worker, place(b, context, WORKERS, i))
        waste = b.alloca(I64)
        with loop(b, i64(0), word(b, context, EXTRA)) as i:
            b.store(i, waste).volatile = True
            b.fence("seq_cst")
        b.ret_void()
    return made


def emit_fail(module):
    with function(module, "fail", VOID, list(BODY.args)) as (b, made):
        context, begin, _, _ = made.args
        report_error(b, context, b.add(begin, i64(100)))
        b.ret_void()


def emit_meet(module):
    """Each chunk waits until as many have begun as EXTRA says, or long enough."""
    with function(module, "meet", VOID, list(BODY.args)) as (b, made):
        context, _, _, _ = made.args
        arrived = place(b, context, COUNTS, i64(0))
        b.atomic_rmw("add", arrived, i64(1), "seq_cst")
        tries = b.alloca(I64)
        b.store(i64(0), tries)
        again, out = b.append_basic_block("again"), b.append_basic_block("out")
        b.branch(again)
        b.position_at_end(again)
        n = b.add(b.load(tries), i64(1))
        b.store(n, tries)
        here = b.load_atomic(arrived, "seq_cst", 8)
        met = b.icmp_signed(">=", here, word(b, context, EXTRA))
        late = b.icmp_signed(">", n, i64(1 << 30))
        with when(b, late):
            report_error(b, context, i64(1))
        b.cbranch(b.or_(met, late), out, again)
        b.position_at_end(out)
        b.ret_void()


def emit_nest(module, mark):
    """A loop within a loop: index i marks the ten entries from 10·i on."""
    with function(module, "shift", VOID, list(BODY.args)) as (b, made):
        outer = word(b, made.args[0], 0)
        start = b.mul(word(b, made.args[0], 1), i64(10))
        begin, end = (b.add(start, made.args[k]) for k in (1, 2))
        b.call(mark, [b.inttoptr(outer, POINTER), begin, end, made.args[3]])
        b.ret_void()
    shift = made
    with function(module, "nest", VOID, list(BODY.args)) as (b, made):
        context, begin, end, _ = made.args
        own = b.alloca(I64, size=i64(2))
        with loop(b, begin, end) as i:
            b.store(b.ptrtoint(context, I64), own)
            b.store(i, b.gep(own, [i64(1)]))
            emit_parallel(b, shift, b.bitcast(own, POINTER), i64(10), i64(3))
        b.ret_void()


@pytest.fixture(scope="module")
def bodies():
    pool_module.link()
    module = new_module("bodies", host_isa())
    mark = emit_mark(module)
    emit_fail(module)
    emit_meet(module)
    emit_nest(module, mark)
    return compile_module(module)


@functools.cache
def windows():
    """The functions of Windows that a pool calls, made of Linux'."""
    path = pathlib.Path(__file__).parents[1] / "support/simulated/sitecustomize.py"
    return runpy.run_path(str(path))["Dll"](ctypes.CDLL(None))


@pytest.fixture(scope="module", params=["futex", "condition", "address"])
def pool(request):
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "address":
            both = windows(), *system.libraries()
            patch.setattr(system, "libraries", lambda: both)
        return Pool(2, request.param)


class Run:
    """A context with its arrays, and what a loop left in them."""

    def __init__(self, size, extra=0):
        self.arrays = [np.zeros(max(size, 1), np.int64) for _ in range(3)]
        self.words = np.array([0, *(a.ctypes.data for a in self.arrays), extra])
        self.counts, self.begins, self.workers = (a[:size] for a in self.arrays)

    def go(self, pool, body, count, grain=0):
        pool.run(body, self.words.ctypes.data, count, grain)
        return self

    @property
    def status(self):
        return self.words[STATUS]


def test_every_index_comes_once(pool, bodies):
    mark = bodies.address("mark")
    for threads in (1, 2, 3, 4):
        pool.resize(threads)
        for count in (0, 1, 2, 3, 5, 63, 64, 65, 1000):
            for grain in (0, 1, 2, 7, 64, 10**12):
                run = Run(count).go(pool, mark, count, grain)
                assert (run.counts == 1).all(), (threads, count, grain)
                assert ((run.workers >= 0) & (run.workers < threads)).all()
    pool.resize(2)


def test_negative_counts_do_nothing(pool, bodies):
    assert (Run(4).go(pool, bodies.address("mark"), -3).counts == 0).all()


def test_chunks_depend_on_count_and_grain_alone(pool, bodies):
    mark = bodies.address("mark")
    for count, grain in ((1000, 0), (1000, 7), (10, 3), (65, 0), (1, 5)):
        step = grain or -(-count // CHUNKS)
        expected = np.arange(count) // step * step
        for threads in (1, 2, 4):
            pool.resize(threads)
            run = Run(count).go(pool, mark, count, grain)
            np.testing.assert_array_equal(run.begins, expected)
    pool.resize(2)


def test_very_many_chunks_get_a_larger_grain(pool):
    kind = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)
    seen = []
    body = kind(lambda context, begin, end, worker: seen.append(end - begin))
    address = ctypes.cast(body, ctypes.c_void_p).value
    pool.run(address, 0, 2**62, 2**61)
    assert seen == [2**61, 2**61]


def test_all_threads_take_part(pool, bodies):
    for threads in (2, 3, 4):
        pool.resize(threads)
        run = Run(1, extra=threads).go(pool, bodies.address("meet"), threads, 1)
        assert run.counts[0] == threads
        assert run.status == 0  # they met
        assert pool.workers == threads - 1
    pool.resize(2)


def test_many_loops_fast_and_slow(pool, bodies):
    mark = bodies.address("mark")
    for threads in (2, 3, 4):
        pool.resize(threads)
        run = Run(50)
        for k in range(1500):
            run.words[EXTRA] = (0, 0, 0, 200, 40000)[k % 5 if k % 100 == 4 else k % 4]
            run.go(pool, mark, 1 + k % 50, 1 + k % 3)
        expected = np.zeros(50, np.int64)
        for k in range(1500):
            expected[: 1 + k % 50] += 1
        np.testing.assert_array_equal(run.counts, expected)
    pool.resize(2)


def in_threads(*targets):
    threads = [threading.Thread(target=target) for target in targets]
    for thread in threads:
        thread.start()
    return threads


def test_concurrent_callers(pool, bodies):
    mark = bodies.address("mark")
    runs = [Run(100, extra=50) for _ in range(3)]

    def call(run):
        for _ in range(400):
            run.go(pool, mark, 100, 3)

    for thread in in_threads(*(lambda run=run: call(run) for run in runs)):
        thread.join()
    assert all((run.counts == 400).all() for run in runs)


def test_a_second_caller_runs_alone_and_does_not_wait(pool, bodies):
    inside, finished = threading.Event(), threading.Event()

    def block(context, begin, end, worker):
        inside.set()
        assert finished.wait(30)

    body = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)(block)
    address = ctypes.cast(body, ctypes.c_void_p).value
    (first,) = in_threads(lambda: pool.run(address, 0, 2, 1))
    assert inside.wait(30)
    run = Run(100).go(pool, bodies.address("mark"), 100, 1)
    assert first.is_alive()
    assert (run.counts == 1).all()
    assert (run.workers == 0).all()
    finished.set()
    first.join()


def test_nested_loops_run_within_their_chunk(bodies):
    weft.runtime.cpu.pool.default().resize(2)
    for _ in range(50):
        run = Run(400).go(
            weft.runtime.cpu.pool.default(), bodies.address("nest"), 40, 1
        )
        assert (run.counts == 1).all()
        assert (run.workers == 0).all()
        expected = np.arange(400) // 10 * 10 + np.arange(400) % 10 // 3 * 3
        np.testing.assert_array_equal(run.begins, expected)


def test_the_first_error_stays(pool, bodies):
    run = Run(1).go(pool, bodies.address("fail"), 8, 1)
    assert 100 <= run.status < 108
    before = run.status
    run.go(pool, bodies.address("fail"), 8, 1)
    assert run.status == before


def test_resizing_while_loops_run(pool, bodies):
    mark = bodies.address("mark")
    run, stop, rounds = Run(40, extra=20), threading.Event(), [0]

    def call():
        while not stop.is_set():
            run.go(pool, mark, 40, 1)
            rounds[0] += 1

    (caller,) = in_threads(call)
    for k in range(60):
        pool.resize(1 + k % 4)
        assert pool.threads == 1 + k % 4
    stop.set()
    caller.join()
    assert rounds[0] > 0
    assert (run.counts == rounds[0]).all()
    pool.resize(2)


def in_child(action):
    """Whether a check holds in a forked process."""
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        status = 1
        try:
            status = 0 if action() else 1
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_forked_processes_have_workers_of_their_own(pool, bodies):
    meet = bodies.address("meet")

    def works():
        run = Run(1, extra=2).go(pool, meet, 2, 1)
        return run.status == 0 and pool.workers == 1

    assert works()
    for _ in range(5):
        assert in_child(lambda: pool.workers == 0 and works() and in_child(works))
        assert works()


def test_forking_while_another_thread_runs_loops(pool, bodies):
    mark, meet = bodies.address("mark"), bodies.address("meet")
    run, stop = Run(40, extra=2000), threading.Event()

    def call():
        while not stop.is_set():
            run.go(pool, mark, 40, 1)

    (caller,) = in_threads(call)
    try:
        for _ in range(10):
            assert in_child(lambda: Run(1, 2).go(pool, meet, 2, 1).status == 0)
    finally:
        stop.set()
        caller.join()
    assert len(set(run.counts)) == 1


def until(condition, seconds=20.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_idle_workers_sleep_and_wake(pool, bodies):
    pool.resize(3)
    for _ in range(5):
        assert Run(1, extra=3).go(pool, bodies.address("meet"), 3, 1).status == 0
        until(lambda: pool.sleepers == pool.workers == 2)
    until(lambda: all(state(task) == "S" for task in workers_of_this_process()))
    pool.resize(2)


def workers_of_this_process():
    """The system's threads that Python did not make."""
    own = {str(thread.native_id) for thread in threading.enumerate()}
    tasks = pathlib.Path("/proc/self/task").iterdir()
    return [task for task in tasks if task.name not in own]


def status_of(task):
    lines = (task / "status").read_text().splitlines()
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


def state(task):
    return status_of(task)["State"][0]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_signals_go_to_other_threads(pool, bodies, request):
    if request.node.callspec.params["pool"] == "address":
        pytest.skip("Windows sends no signals to threads")
    before = {task.name for task in workers_of_this_process()}
    pool.resize(3)
    Run(1, extra=3).go(pool, bodies.address("meet"), 3, 1)
    new = [t for t in workers_of_this_process() if t.name not in before]
    assert len(new) == 2
    for task in new:
        blocked = int(status_of(task)["SigBlk"], 16)
        assert blocked & 1 << signal.SIGINT - 1
        assert blocked & 1 << signal.SIGTERM - 1
        assert not blocked & 1 << signal.SIGSEGV - 1
    pool.resize(2)


def limited():
    """Whether a limit of memory is kept to; QEMU takes it and forgets it."""
    limit = 1 << 44
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    return resource.getrlimit(resource.RLIMIT_AS)[0] == limit


def test_fewer_threads_than_wanted(pool, bodies):
    """A system that refuses threads: the loop runs on those there are."""
    if not in_child(limited):
        pytest.skip("this system (an emulator) does not limit memory")

    def check():
        used = int(pathlib.Path("/proc/self/statm").read_text().split()[0])
        limit = used * resource.getpagesize() + (40 << 20)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        pool.resize(200)
        run = Run(100).go(pool, bodies.address("mark"), 100, 1)
        return (run.counts == 1).all() and pool.threads == pool.workers + 1 < 200

    assert in_child(check)


EXITS = """
import ctypes, sys
from weft.runtime.cpu.pool import default
kind = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)
body = kind(lambda *arguments: None)
pool = default()
pool.resize(4)
for _ in range(20):
    pool.run(ctypes.cast(body, ctypes.c_void_p).value, 0, 4, 1)
print(pool.workers)
"""


def test_a_process_ends_while_workers_wait():
    done = subprocess.run(
        [sys.executable, "-c", EXITS], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "3\n", "")


def test_the_number_of_threads():
    before = weft.get_num_threads()
    try:
        for n in (1, 3):
            weft.set_num_threads(n)
            assert weft.get_num_threads() == n
            assert weft.runtime.cpu.pool.default().threads == n
    finally:
        weft.set_num_threads(before)


@pytest.mark.parametrize("wrong", [0, -1, 1025, 2.0, True, "2"])
def test_wrong_numbers_of_threads(wrong):
    with pytest.raises(weft.errors.ArgumentError, match="a number from 1 to 1024"):
        weft.set_num_threads(wrong)


NUMBER = (
    "import weft; from weft.runtime.cpu import pool; "
    "print(weft.get_num_threads(), pool.default().threads)"
)


def test_the_environment_limits_threads():
    run = subprocess.run(
        [sys.executable, "-c", NUMBER],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "WEFT_NUM_THREADS": "1"},
    )
    assert run.stdout.split() == ["1", "1"]


@pytest.mark.parametrize("waiting", ["futex", "condition"])
@pytest.mark.parametrize("machine", sorted(FUTEX_NUMBERS))
def test_code_for_other_machines(machine, waiting):
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    cpu = {"x86_64": "x86-64", "aarch64": "generic", "riscv64": "generic-rv64"}[machine]
    target = host_isa()._replace(
        triple=f"{machine}-unknown-linux-gnu", cpu=cpu, features="", bits=128
    )
    if machine == "riscv64":
        target = target._replace(features="+m,+a,+c,+d")
    code = object_code(pool_ir(target, waiting), target)
    assert code[:4] == b"\x7fELF"
    assert b"weft_parallel_for" in code


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_code_for_windows(machine):
    """Threads of the system, and the convention of its functions, in ELF."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    cpu = {"x86_64": "x86-64", "aarch64": "generic"}[machine]
    target = Isa(f"{machine}-pc-windows-msvc-elf", cpu, "", 128)
    code = object_code(pool_ir(target, "address"), target)
    assert code[:4] == b"\x7fELF"
    assert b"WaitOnAddress" in code
    assert b"pthread" not in code


def test_the_counts_of_a_job_do_not_move_the_stack(bodies):
    """A worker that waits for hours must not take more and more stack."""
    text = str(pool_ir(host_isa(), "futex"))
    for body in text.split("define ")[1:]:
        _, *blocks = body.split("\n\n")[0].split(":\n")
        assert not any("alloca" in block for block in blocks[1:])


@pytest.mark.skipif(
    sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs"
)
def test_workers_wake_elsewhere(bodies):
    before = {task.name for task in workers_of_this_process()}
    pool, meet = Pool(2, "futex"), bodies.address("meet")
    allowed = os.sched_getaffinity(0)
    for _ in range(3):
        Run(1, extra=2).go(pool, meet, 2, 1)
        until(lambda: pool.sleepers == pool.workers == 1)
    (task,) = [t for t in workers_of_this_process() if t.name not in before]
    cpus = os.sched_getaffinity(int(task.name))
    assert cpus < allowed
    assert len(cpus) == len(allowed) - 1
    try:  # without another CPU they share this one
        os.sched_setaffinity(0, allowed - cpus)
        Run(1, extra=2).go(pool, meet, 2, 1)
    finally:
        os.sched_setaffinity(0, allowed)
