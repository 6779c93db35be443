"""The thread pool's native code, and how generated code calls it.

    weft_parallel_for(pool, body, context, count)
    weft_parallel_chunks(pool, body, context, count, grain)

call ``body(context, begin, end, worker)`` for every chunk ``[k·grain, (k+1)·grain)``
of ``[0, count)``, on the pool's workers and the calling thread, and return when all
chunks are done. Where chunks begin and end depends on ``count`` and ``grain`` alone,
never on the number of threads; without a grain there are at most ``CHUNKS`` of them.

``worker`` is below the number of threads and differs between the threads of one call,
so it can choose a scratch area. A call that finds the pool busy (nested in a body, or
from a second thread) runs its chunks in order on its own thread, as worker 0: it never
waits, so it cannot deadlock. Its context must be its own.

Nothing is thrown in native code. A body that fails calls what ``report_error`` emits:
the first 64 bits of a context are its status, zero before the call; the first code
that arrives stays there, and the caller looks at it afterwards.

How it works. A job is published in one 64-bit *ticket*: the job's number in the high
half, how many chunks are left to take in the low half. A chunk is taken by a
compare-and-swap that counts down, which fails if the job has changed meanwhile; so a
worker that wakes late can never take part in a job that is over. The caller waits for
chunks, not for workers: one that sleeps on does not hold it up. Who waits spins for
some microseconds and then sleeps in the kernel, on the ticket's high half (workers)
or the count of chunks done (the caller).

Linux may wake a worker on the CPU of the caller, though another is idle, and leave it
waiting there for a tenth of a second. So whoever wakes workers has them run on other
CPUs than its own, if there are others: as many system calls as there are workers, when
the caller is not on the CPU of the time before.

Threads are POSIX threads, which sleep by ``futex`` calls (Linux) or ``condition``
variables (macOS), or those of Windows, which sleep at an ``address``.
"""

from __future__ import annotations

import platform
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir

from weft.compile.emit.control_flow import (
    I32,
    I64,
    POINTER,
    VOID,
    function,
    i64,
    loop,
    when,
)
from weft.compile.emit.isa import Isa, new_module
from weft.compile.targets.cpu.cost_model import COST
from weft.compile.targets.cpu.object_code import (
    Library,
    add_symbol,
    compile_known,
    host_isa,
)
from weft.runtime import system

_CONDITIONS = (
    "pthread_cond_broadcast", "pthread_cond_wait", "pthread_create", "pthread_join",
    "pthread_mutex_lock", "pthread_mutex_unlock", "pthread_sigmask", "usleep",
)  # fmt: skip
# The system's functions that a pool calls, by how its threads sleep.
NAMES = {
    "condition": _CONDITIONS,
    "futex": (
        *_CONDITIONS,
        "syscall", "sched_getcpu", "sched_getaffinity", "pthread_setaffinity_np",
    ),
    "address": (
        "CloseHandle", "CreateThread", "Sleep", "WaitForSingleObject", "WaitOnAddress",
        "WakeByAddressAll",
    ),
}  # fmt: skip
POSIX = ("futex", "condition")
CHUNKS = COST.threads.chunks
MAX_THREADS = 1024  # slots of a pool's block
BODY = ir.FunctionType(VOID, [POINTER, I64, I64, I64])

# Byte offsets in a pool's block. Fields that different threads write are two cache
# lines apart, since CPUs fetch lines in pairs.
FIELDS = {
    "lock": (0, I32),  # 1: a job runs, or the pool is held
    "ticket": (128, I64),
    "number": (132, I32),  # the ticket's high half
    "done": (256, I32),  # chunks of this job
    "waiting": (320, I32),  # 1: the caller sleeps on ``done``
    "sleepers": (384, I32),  # workers that sleep on ``number``
    "wanted": (512, I32),  # threads, with the caller
    "started": (516, I32),  # workers that exist
    "spins": (520, I32),  # pauses before going to sleep
    "apart": (524, I32),  # 1 + the CPU that workers leave to the caller, or 0
    "body": (640, I64),
    "context": (648, I64),
    "count": (656, I64),
    "grain": (664, I64),
    "chunks": (672, I64),
    "signals": (768, POINTER),  # those that workers leave to other threads
    "mutex": (896, POINTER),
    "condition": (960, POINTER),
}
SLOTS, SLOT = 1088, 32  # of worker k: its pool, k, and the system's thread

FUTEX_NUMBERS = {"x86_64": 202, "aarch64": 98, "riscv64": 98}
# How a CPU is told that a thread spins: an intrinsic and its arguments.
PAUSES: dict[str, tuple[str, list[Any]]] = {
    "x86_64": ("llvm.x86.sse2.pause", []),
    "aarch64": ("llvm.aarch64.hint", [ir.Constant(I32, 1)]),
}
MASK_BYTES = 128  # of a set of CPUs
_FUTEX_WAIT, _FUTEX_WAKE = 128, 129  # private to the process
_FOR_EVER = -1  # milliseconds, of Windows' functions that wait


def waiting_kind() -> str:
    """How threads sleep here."""
    if system.WINDOWS:
        return "address"
    known = sys.platform == "linux" and platform.machine() in FUTEX_NUMBERS
    return "futex" if known else "condition"


# -- for generated code


def emit_parallel(b: Any, body: Any, context: Any, count: Any, grain: Any) -> None:
    """Call the process's pool from a module that is being built.

    ``pool.link()`` must have run before such a module is loaded.
    """
    found = b.module.globals
    call = found.get("weft_parallel_chunks") or declare_chunks(b.module)
    block = found.get("weft_pool")
    if block is None:
        block = ir.GlobalVariable(b.module, ir.IntType(8), "weft_pool")
    b.call(call, [block, body, context, count, grain])


def declare_chunks(module: ir.Module) -> ir.Function:
    """The function that runs a loop of whole chunks, not written yet."""
    kinds = [POINTER, BODY.as_pointer(), POINTER, I64, I64]
    return ir.Function(module, ir.FunctionType(VOID, kinds), "weft_parallel_chunks")


def report_error(b: Any, context: Any, code: Any) -> None:
    """Set a context's status to a code, unless another one came first."""
    status = b.bitcast(context, I64.as_pointer())
    b.cmpxchg(status, i64(0), code, "acq_rel", "monotonic")


# -- control flow


@contextmanager
def repeat(b: Any, name: str) -> Iterator[Any]:
    """The body of ``while True``; gives the block after it, for ``leave``."""
    body = b.append_basic_block(name)
    after = b.append_basic_block(f"{name}.after")
    b.branch(body)
    b.position_at_end(body)
    yield after
    b.branch(body)
    b.position_at_end(after)


def leave(b: Any, condition: Any, after: Any) -> None:
    """Branch to a block if a condition holds."""
    on = b.append_basic_block("on")
    b.cbranch(condition, after, on)
    b.position_at_end(on)


def return_if(b: Any, condition: Any) -> None:
    """Return from a function without a value if a condition holds."""
    with when(b, condition):
        b.ret_void()


# -- the pool's module


def i32(value: int) -> Any:
    return ir.Constant(I32, value)


def counter(b: Any) -> Any:
    """A variable that is zero here."""
    with b.goto_entry_block():  # elsewhere, each pass of a loop would take stack
        made = b.alloca(I32)
    b.store(i32(0), made)
    return made


class PoolModule:
    """Builds the functions of a pool of POSIX threads, one by one."""

    def __init__(self, isa: Isa, waiting: str, most: int = MAX_THREADS) -> None:
        self.module = new_module("pool", isa)
        self.machine = isa.family
        block = ir.ArrayType(ir.IntType(8), SLOTS + SLOT * most)
        self.block = ir.GlobalVariable(self.module, block, "weft_pool")
        self.block.initializer = ir.Constant(block, None)
        self.block.align = 128
        self.wait, self.wake = getattr(self, f"_{waiting}")()
        self.keep_apart = self._apart() if waiting == "futex" else None
        self.work = self._work()
        self.worker = self._worker()
        self.start = self._start()
        self.serial = self._serial()
        self._chunks()
        self._hold()
        self._release()
        self._spin()

    # - pieces

    def external(self, name: str, returns: Any, kinds: list[Any], **more: Any) -> Any:
        """A function of the C library."""
        return ir.Function(self.module, ir.FunctionType(returns, kinds, **more), name)

    def at(self, b: Any, pool: Any, name: str) -> Any:
        """The address of a field."""
        offset, kind = FIELDS[name]
        place = b.gep(pool, [i64(offset)])
        return place if kind is POINTER else b.bitcast(place, kind.as_pointer())

    def get(self, b: Any, pool: Any, name: str, order: str = "monotonic") -> Any:
        kind = FIELDS[name][1]
        return b.load_atomic(self.at(b, pool, name), order, kind.width // 8)

    def put(
        self, b: Any, pool: Any, name: str, value: Any, order: str = "monotonic"
    ) -> None:
        size = FIELDS[name][1].width // 8
        b.store_atomic(value, self.at(b, pool, name), order, size)

    def add(self, b: Any, pool: Any, name: str, value: Any, order: str) -> Any:
        """Add to a field; gives the sum."""
        old = b.atomic_rmw("add", self.at(b, pool, name), value, order)
        return b.add(old, value)

    # - threads of the system

    def leave_signals(self, b: Any, pool: Any) -> None:
        """Let signals go to other threads than this one."""
        sigmask = self.external("pthread_sigmask", I32, [I32, POINTER, POINTER])
        quiet = self.at(b, pool, "signals")
        b.call(sigmask, [i32(signal.SIG_SETMASK), quiet, POINTER(None)])

    def create(self, b: Any, thread: Any, slot: Any) -> Any:
        """Start a worker, and store its thread; gives whether it failed."""
        kinds = [POINTER, POINTER, self.worker.type, POINTER]
        create = self.external("pthread_create", I32, kinds)
        failed = b.call(create, [thread, POINTER(None), self.worker, slot])
        return b.icmp_signed("!=", failed, i32(0))

    def join(self, b: Any, thread: Any) -> None:
        """Wait for a thread's end."""
        b.call(
            self.external("pthread_join", I32, [I64, POINTER]), [thread, POINTER(None)]
        )

    def doze(self, b: Any) -> None:
        """Sleep for a moment."""
        b.call(self.external("usleep", I32, [I32]), [i32(20)])

    # - more pieces

    def pause(self, b: Any) -> None:
        """Tell the CPU that this thread spins."""
        name, arguments = PAUSES.get(self.machine, ("", []))
        if name:
            kinds = [a.type for a in arguments]
            found = self.module.globals.get(name)
            b.call(found or self.external(name, VOID, kinds), arguments)

    def left(self, b: Any, ticket: Any) -> Any:
        return b.trunc(ticket, I32)

    def publish(self, b: Any, pool: Any, chunks: Any) -> None:
        """A ticket with the next number; everything written before comes with it."""
        ticket = self.get(b, pool, "ticket")
        number = b.and_(b.add(ticket, i64(1 << 32)), i64(-1 << 32))
        self.put(b, pool, "ticket", b.or_(number, chunks), "seq_cst")

    def lock(self, b: Any, pool: Any) -> Any:
        """Try to take the pool; gives whether it worked."""
        place = self.at(b, pool, "lock")
        return b.extract_value(b.cmpxchg(place, i32(0), i32(1), "acquire"), 1)

    def call_chunk(self, b: Any, job: list[Any], index: Any, worker: Any) -> None:
        body, context, count, grain = job
        begin = b.mul(index, grain)
        end = b.add(begin, grain)
        end = b.select(b.icmp_signed("<", end, count), end, count)
        b.call(body, [context, begin, end, worker])

    # - sleeping

    def _sleepers(self) -> tuple[Any, Any]:
        """``wait(pool, word, seen)`` and ``wake(pool, word, threads)``, bodiless."""
        kind = ir.FunctionType(VOID, [POINTER, I32.as_pointer(), I32])
        made = [ir.Function(self.module, kind, name) for name in ("wait", "wake")]
        for one in made:
            one.linkage = "internal"
        return made[0], made[1]

    def _futex(self) -> tuple[Any, Any]:
        syscall = self.external("syscall", I64, [I64], var_arg=True)
        number = i64(FUTEX_NUMBERS[self.machine])
        wait, wake = self._sleepers()
        for made, action in ((wait, _FUTEX_WAIT), (wake, _FUTEX_WAKE)):
            b = ir.IRBuilder(made.append_basic_block("entry"))
            _, word, value = made.args
            b.call(syscall, [number, word, i32(action), value, POINTER(None)])
            b.ret_void()
        return wait, wake

    def _apart(self) -> Any:
        """``apart(pool)``: from now on workers leave this CPU to the calling thread."""
        this = self.external("sched_getcpu", I32, [])
        given = self.external("sched_getaffinity", I32, [I32, I64, POINTER])
        limit = self.external("pthread_setaffinity_np", I32, [I64, I64, POINTER])
        with function(self.module, "apart", VOID, [POINTER]) as (b, new):
            new.linkage = "internal"
            (pool,) = new.args
            cpus = b.alloca(I64, MASK_BYTES // 8)
            mask = [i64(MASK_BYTES), b.bitcast(cpus, POINTER)]
            cpu = b.call(this, [])
            now = b.add(cpu, i32(1))
            moved = b.icmp_signed("!=", now, self.get(b, pool, "apart"))
            known = b.icmp_unsigned("<", cpu, i32(8 * MASK_BYTES))
            with when(b, b.and_(moved, known)):
                self.put(b, pool, "apart", now)
                found = b.icmp_signed(">=", b.call(given, [i32(0), *mask]), i32(0))
                with when(b, found):
                    here = b.zext(cpu, I64)
                    word = b.gep(cpus, [b.lshr(here, i64(6))])
                    bit = b.shl(i64(1), b.and_(here, i64(63)))
                    b.store(b.and_(b.load(word), b.not_(bit)), word)
                    workers = b.zext(self.get(b, pool, "started"), I64)
                    with loop(b, i64(1), b.add(workers, i64(1)), name="k") as k:
                        # fails, and changes nothing, if no other CPU is left
                        b.call(limit, [self._thread(b, pool, k), *mask])
            b.ret_void()
        return new

    def _condition(self) -> tuple[Any, Any]:
        one = {
            name: self.external(f"pthread_{name}", I32, [POINTER])
            for name in ("mutex_lock", "mutex_unlock", "cond_broadcast")
        }
        cond_wait = self.external("pthread_cond_wait", I32, [POINTER, POINTER])
        wait, wake = self._sleepers()
        for made in (wait, wake):
            b = ir.IRBuilder(made.append_basic_block("entry"))
            pool, word, seen = made.args
            mutex, condition = (self.at(b, pool, n) for n in ("mutex", "condition"))
            b.call(one["mutex_lock"], [mutex])
            if made is wake:
                b.call(one["cond_broadcast"], [condition])
            else:
                same = b.icmp_signed("==", b.load_atomic(word, "seq_cst", 4), seen)
                with when(b, same):
                    b.call(cond_wait, [condition, mutex])
            b.call(one["mutex_unlock"], [mutex])
            b.ret_void()
        return wait, wake

    # - working

    def _work(self) -> Any:
        """``work(pool, worker)``: take chunks until none is left; gives how many."""
        with function(self.module, "work", I32, [POINTER, I64]) as (b, new):
            new.linkage = "internal"
            pool, worker = new.args
            taken = counter(b)
            with repeat(b, "take") as over:
                ticket = self.get(b, pool, "ticket", "acquire")
                left = self.left(b, ticket)
                leave(b, b.icmp_signed("==", left, i32(0)), over)
                job = self._job(b, pool)  # true only if the swap below succeeds
                chunks = self.get(b, pool, "chunks")
                less = b.sub(ticket, i64(1))
                place = self.at(b, pool, "ticket")
                swap = b.cmpxchg(place, ticket, less, "acq_rel", "monotonic")
                with when(b, b.extract_value(swap, 1)):
                    index = b.sub(chunks, b.zext(left, I64))
                    self.call_chunk(b, job, index, worker)
                    b.store(b.add(b.load(taken), i32(1)), taken)
            b.ret(b.load(taken))
        return new

    def _job(self, b: Any, pool: Any) -> list[Any]:
        body = b.inttoptr(self.get(b, pool, "body"), BODY.as_pointer())
        context = b.inttoptr(self.get(b, pool, "context"), POINTER)
        return [body, context, self.get(b, pool, "count"), self.get(b, pool, "grain")]

    def _worker(self) -> Any:
        """A worker's life: wait for a ticket, work, until it is not wanted."""
        with function(self.module, "worker", POINTER, [POINTER]) as (b, new):
            new.linkage = "internal"
            own = b.bitcast(new.args[0], I64.as_pointer())
            pool = b.inttoptr(b.load(own), POINTER)
            index = b.load(b.gep(own, [i64(1)]))
            self.leave_signals(b, pool)
            with repeat(b, "live") as over:
                ticket = self._look(b, pool, index)
                wanted = b.zext(self.get(b, pool, "wanted"), I64)
                leave(b, b.icmp_signed(">=", index, wanted), over)
                there = b.icmp_signed("!=", self.left(b, ticket), i32(0))
                with b.if_else(there) as (yes, no):
                    with yes:
                        self._take_part(b, pool, index)
                    with no:
                        self._sleep(b, pool, ticket)
            b.ret(POINTER(None))
        return new

    def _look(self, b: Any, pool: Any, index: Any) -> Any:
        """Spin until there is a chunk, or for a while; gives the ticket."""
        spun = counter(b)
        with repeat(b, "look") as over:
            ticket = self.get(b, pool, "ticket", "acquire")
            leave(b, b.icmp_signed("!=", self.left(b, ticket), i32(0)), over)
            wanted = b.zext(self.get(b, pool, "wanted"), I64)
            leave(b, b.icmp_signed(">=", index, wanted), over)
            self._count_spin(b, pool, spun, over)
        return ticket

    def _count_spin(self, b: Any, pool: Any, spun: Any, over: Any) -> None:
        so_far = b.load(spun)
        leave(b, b.icmp_signed(">=", so_far, self.get(b, pool, "spins")), over)
        b.store(b.add(so_far, i32(1)), spun)
        self.pause(b)

    def _sleep(self, b: Any, pool: Any, ticket: Any) -> None:
        """Until the number is another; a ticket published meanwhile is not missed."""
        self.add(b, pool, "sleepers", i32(1), "seq_cst")
        seen = b.trunc(b.lshr(ticket, i64(32)), I32)
        b.call(self.wait, [pool, self.at(b, pool, "number"), seen])
        self.add(b, pool, "sleepers", i32(-1), "seq_cst")

    def _take_part(self, b: Any, pool: Any, index: Any) -> None:
        taken = b.call(self.work, [pool, index])
        with when(b, b.icmp_signed("!=", taken, i32(0))):
            # Until these are counted, the job is open and its fields hold still.
            chunks = b.trunc(self.get(b, pool, "chunks"), I32)
            done = self.add(b, pool, "done", taken, "seq_cst")
            last = b.icmp_signed("==", done, chunks)
            asleep = self.get(b, pool, "waiting", "seq_cst")
            with when(b, b.and_(last, b.icmp_signed("!=", asleep, i32(0)))):
                b.call(self.wake, [pool, self.at(b, pool, "done"), i32(1)])

    # - calling

    def _start(self) -> Any:
        """``start(pool)``: make the workers that are wanted and do not exist yet."""
        with function(self.module, "start", VOID, [POINTER]) as (b, new):
            new.linkage = "internal"
            (pool,) = new.args
            with repeat(b, "create") as over:
                started = self.get(b, pool, "started")
                index = b.add(started, i32(1))
                enough = b.icmp_signed(">=", index, self.get(b, pool, "wanted"))
                leave(b, enough, over)
                own, thread = self._slot(b, pool, index)
                b.store(b.ptrtoint(pool, I64), own)
                b.store(b.zext(index, I64), b.gep(own, [i64(1)]))
                slot = b.bitcast(own, POINTER)
                with b.if_else(self.create(b, thread, slot)) as (yes, no):
                    with yes:  # the system has no more: these are all
                        self.put(b, pool, "wanted", index)
                    with no:
                        self.put(b, pool, "started", index)
                        self.put(b, pool, "apart", i32(0))
            b.ret_void()
        return new

    def _slot(self, b: Any, pool: Any, index: Any) -> tuple[Any, Any]:
        """A worker's slot, and where in it the system's thread is."""
        offset = b.add(i64(SLOTS), b.mul(b.zext(index, I64), i64(SLOT)))
        own = b.bitcast(b.gep(pool, [offset]), I64.as_pointer())
        return own, b.bitcast(b.gep(own, [i64(2)]), POINTER)

    def _thread(self, b: Any, pool: Any, index: Any) -> Any:
        """A worker's thread, as the system knows it."""
        _, thread = self._slot(b, pool, b.trunc(index, I32))
        return b.load(b.bitcast(thread, I64.as_pointer()))

    def _serial(self) -> Any:
        """All chunks in order on this thread."""
        kinds = [BODY.as_pointer(), POINTER, I64, I64, I64]
        with function(self.module, "serial", VOID, kinds) as (b, new):
            new.linkage = "internal"
            *job, chunks = new.args
            with loop(b, i64(0), chunks, name="chunk") as k:
                self.call_chunk(b, job, k, i64(0))
            b.ret_void()
        return new

    def _chunks(self) -> None:
        """The two functions that generated code calls."""
        call = declare_chunks(self.module)
        b = ir.IRBuilder(call.append_basic_block("entry"))
        pool, body, context, count, grain = call.args
        return_if(b, b.icmp_signed("<=", count, i64(0)))
        grain = self._grain(b, count, grain)
        chunks = b.sdiv(b.add(count, b.sub(grain, i64(1))), grain)
        job = [body, context, count, grain]
        alone = b.or_(
            b.icmp_signed("==", chunks, i64(1)),
            b.icmp_signed("<=", self.get(b, pool, "wanted"), i32(1)),
        )
        for reason in (lambda: alone, lambda: b.not_(self.lock(b, pool))):
            with when(b, reason()):
                b.call(self.serial, [*job, chunks])
                b.ret_void()
        self._parallel(b, pool, job, chunks)
        self.put(b, pool, "lock", i32(0), "release")
        b.ret_void()

        kinds = call.function_type.args[:-1]
        with function(self.module, "weft_parallel_for", VOID, kinds) as (b, new):
            b.call(call, [*new.args, i64(0)])
            b.ret_void()

    def _grain(self, b: Any, count: Any, grain: Any) -> Any:
        """Given, or so that there are CHUNKS; and chunks can be counted in 32 bits."""
        usual = b.add(b.sdiv(b.sub(count, i64(1)), i64(CHUNKS)), i64(1))
        grain = b.select(b.icmp_signed(">", grain, i64(0)), grain, usual)
        least = b.lshr(count, i64(29))
        grain = b.select(b.icmp_signed(">", grain, least), grain, least)
        return b.select(b.icmp_signed("<", grain, count), grain, count)

    def _parallel(self, b: Any, pool: Any, job: list[Any], chunks: Any) -> None:
        b.call(self.start, [pool])
        body, context, count, grain = job
        values = {"body": b.ptrtoint(body, I64), "context": b.ptrtoint(context, I64)}
        values |= {"count": count, "grain": grain, "chunks": chunks}
        values |= {"done": i32(0), "waiting": i32(0)}
        for name, value in values.items():
            self.put(b, pool, name, value)
        self.publish(b, pool, chunks)
        asleep = self.get(b, pool, "sleepers", "seq_cst")
        all = b.trunc(chunks, I32)
        with when(b, b.icmp_signed("!=", asleep, i32(0))):
            if self.keep_apart is not None:
                b.call(self.keep_apart, [pool])
            others = b.sub(all, i32(1))
            b.call(self.wake, [pool, self.at(b, pool, "number"), others])
        taken = b.call(self.work, [pool, i64(0)])
        self.add(b, pool, "done", taken, "seq_cst")
        self._await(b, pool, all)

    def _await(self, b: Any, pool: Any, all: Any) -> None:
        """Wait until all chunks are done: spin, then sleep."""
        spun = counter(b)
        with repeat(b, "await") as finished:
            done = self.get(b, pool, "done", "acquire")
            leave(b, b.icmp_signed("==", done, all), finished)
            late = b.append_basic_block("late")
            self._count_spin(b, pool, spun, late)
            again = b.block
            b.position_at_end(late)
            self.put(b, pool, "waiting", i32(1), "seq_cst")
            done = self.get(b, pool, "done", "seq_cst")
            leave(b, b.icmp_signed("==", done, all), finished)
            b.call(self.wait, [pool, self.at(b, pool, "done"), done])
            b.branch(again)
            b.position_at_end(again)

    # - for Python

    def _hold(self) -> None:
        """Take the pool, waiting for a job that runs, and end all workers."""
        with function(self.module, "weft_pool_hold", VOID, [POINTER]) as (b, new):
            (pool,) = new.args
            with repeat(b, "ask") as ours:
                leave(b, self.lock(b, pool), ours)
                self.doze(b)
            wanted = self.get(b, pool, "wanted")
            self.put(b, pool, "wanted", i32(1))
            self.publish(b, pool, i64(0))
            b.call(self.wake, [pool, self.at(b, pool, "number"), i32(MAX_THREADS)])
            workers = b.zext(self.get(b, pool, "started"), I64)
            with loop(b, i64(1), b.add(workers, i64(1)), name="k") as k:
                self.join(b, self._thread(b, pool, k))
            self.put(b, pool, "started", i32(0))
            self.put(b, pool, "wanted", wanted)
            b.ret_void()

    def _release(self) -> None:
        """Give the pool back; the next job starts workers."""
        with function(self.module, "weft_pool_release", VOID, [POINTER]) as (b, new):
            self.put(b, new.args[0], "lock", i32(0), "release")
            b.ret_void()

    def _spin(self) -> None:
        """Pause as many times as asked: Python times it."""
        with function(self.module, "weft_pool_spin", VOID, [I64]) as (b, new):
            with loop(b, i64(0), new.args[0]):
                self.pause(b)
            b.ret_void()


class WindowsPoolModule(PoolModule):
    """Builds the functions of a pool of Windows' threads."""

    def _address(self) -> tuple[Any, Any]:
        kinds = [POINTER, POINTER, I64, I32]
        sleep = self.external("WaitOnAddress", I32, kinds)
        rouse = self.external("WakeByAddressAll", VOID, [POINTER])
        wait, wake = self._sleepers()
        b = ir.IRBuilder(wait.append_basic_block("entry"))
        _, word, seen = wait.args
        held = b.alloca(I32)
        b.store(seen, held)
        places = [b.bitcast(one, POINTER) for one in (word, held)]
        b.call(sleep, [*places, i64(4), i32(_FOR_EVER)])
        b.ret_void()
        b = ir.IRBuilder(wake.append_basic_block("entry"))
        b.call(rouse, [b.bitcast(wake.args[1], POINTER)])
        b.ret_void()
        return wait, wake

    def leave_signals(self, b: Any, pool: Any) -> None:
        """Do nothing: there are no signals to threads."""

    def create(self, b: Any, thread: Any, slot: Any) -> Any:
        kinds = [POINTER, I64, self.worker.type, POINTER, I32, POINTER]
        create = self.external("CreateThread", I64, kinds)
        none = POINTER(None)
        made = b.call(create, [none, i64(0), self.worker, slot, i32(0), none])
        b.store(made, b.bitcast(thread, I64.as_pointer()))
        return b.icmp_signed("==", made, i64(0))

    def join(self, b: Any, thread: Any) -> None:
        wait = self.external("WaitForSingleObject", I32, [I64, I32])
        b.call(wait, [thread, i32(_FOR_EVER)])
        b.call(self.external("CloseHandle", I32, [I64]), [thread])

    def doze(self, b: Any) -> None:
        b.call(self.external("Sleep", VOID, [I32]), [i32(1)])


def pool_module(isa: Isa, waiting: str) -> ir.Module:
    """The LLVM module of a pool whose threads sleep in one of two ways.

    >>> from weft.compile.targets.cpu.object_code import host_isa
    >>> module = weft.compile.targets.cpu.pool_code.pool_module(host_isa(), "condition")
    >>> "weft_parallel_for" in module.globals
    True
    """
    kind = PoolModule if waiting in POSIX else WindowsPoolModule
    return kind(isa, waiting).module


def pool_library(waiting: str) -> Library:
    """The pool's machine code, from the cache if it is there."""
    for name in NAMES[waiting]:
        add_symbol(name, system.address_of(name))
    isa = host_isa()
    name = f"pool, waiting by {waiting}"
    # Loops that wait or call: passes would gain nothing.
    return compile_known(name, lambda: pool_module(isa, waiting), isa, level=0)
