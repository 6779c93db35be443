"""The native functions of ``cond``, ``scan`` and ``while_loop``.

A body is an executable of its own, whose launches the driver's ``run`` goes through.
Between two runs, addresses of arguments and results are put into its slots:

    fixed   slot address                               the same in every iteration
    row     slot address stride                        one row of a stack after another
    carry   slots… result first last spare nbytes      what an iteration hands on
    held    slots… first last nbytes                   the same, changed where it is
    stacked slot result first stack stride             the same, row after row

A carry is read from ``first`` in the first iteration. Later ones read it from where the
iteration before has written it: ``last`` and ``spare`` in turns. ``slots`` are those of
the bodies that read it, and ``result`` is the slot of the new value; -1 stands for a
value that a body does not read.

The body of a job is seven words: its slots and gangs, the number of these, the gang at
which later iterations begin, its sizes, which of these are error flags, and their
number. The first gang fills in addresses; those from there to the beginning compute
what is the same in every iteration. An error ends the loop, and sets the job's own
flag.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from weft.compile.emit.control_flow import I1, I8, I32, I64, POINTER, i64
from weft.compile.emit.flow import if_else, loop, when
from weft.compile.emit.isa import Isa, prepare_function
from weft.compile.emit.values import Pointer, call, select

BODY = ("*slots", "*gangs", "count", "begin", "*sizes", "*flags", "flag_count")
COND = ("*flag", "*predicate", "then_fixed", "other_fixed")  # then two bodies, rows
SCAN = ("*flag", "length", "reverse", "poll", "fixed", "rows", "carries", "held",
        "stacked")  # then a body  # fmt: skip
WHILE = ("*flag", "*predicate", "*steps", "poll", "asks_fixed", "fixed", "carries",
         "held")  # fmt: skip
#       then two bodies
FIXED = ("slot", "*address")
ROW = (*FIXED, "stride")
CARRY = ("slot", "result", "*first", "*last", "*spare", "nbytes")
HELD = ("slot", "*first", "*last", "nbytes")
STACKED = ("slot", "result", "*first", "*stack", "stride")
WHILE_CARRY, WHILE_HELD = ("asks", *CARRY), ("asks", *HELD)
POLL = ir.FunctionType(I32, [])
# Addresses of functions and of a number of steps, and the number of the main thread.
GLOBALS = ("limit", "poll", "thread", "main")
THREAD = ir.FunctionType(I64, [])


def emit_control_flow(module: ir.Module, isa: Isa, kind: Any, run: Any) -> None:
    """Add the functions ``cond``, ``scan`` and ``while_loop`` to the driver."""
    known = {name: ir.GlobalVariable(module, I64, name) for name in GLOBALS}
    for one in known.values():
        one.initializer = i64(0)
    for emit in (_emit_cond, _emit_scan, _emit_while):
        name = emit.__name__.removeprefix("_emit_")
        function = ir.Function(module, kind, {"while": "while_loop"}.get(name, name))
        prepare_function(function, isa)
        b = ir.IRBuilder(function.append_basic_block("entry"))
        job = Pointer(b, function.args[0], I64)
        words = {name: Pointer(b, one, I64) for name, one in known.items()}
        emit(_Emitter(job, run, words))


class _Emitter:
    """What the three functions share."""

    def __init__(self, job: Pointer, run: Any, known: dict[str, Pointer]) -> None:
        self.b, self.job, self.run, self.known = job.b, job, run, known

    def fields(self, names: tuple[str, ...], at: int = 0) -> dict[str, Any]:
        """The words of a job from a place on, by names."""
        return {name: self.job[at + k] for k, name in enumerate(names)}

    def each(
        self, start: Any, count: Any, names: tuple[str, ...], do: Callable[..., None]
    ) -> Any:
        """Do something with the words of each row; gives the place behind them."""
        width = len(names)
        with loop(count) as k:
            row = self.job + (start + k * width)
            do(*[row[w] for w in range(width)])
        return start + count * width

    def fill(self, body: dict[str, Any], slot: Any, address: Any) -> None:
        """Put an address into a slot of a body, if that reads it."""
        with when(slot >= 0):
            body["*slots"].pointer(I64)[slot] = address

    def go(
        self, body: dict[str, Any], flag: Any, failed: Any, first: Any = None
    ) -> None:
        """Run a body; on an error set the flag, clear the body's and branch away.

        ``first`` tells whether it is the first iteration.
        """
        gangs = body["*gangs"].pointer(I64)
        if first is not None:
            call(self.run, [gangs, 0, 1])
        begin = 0 if first is None else select(first, 1, body["begin"])
        call(self.run, [gangs, begin, body["count"]])
        numbers = body["*sizes"].pointer(I64)
        flags = body["*flags"].pointer(I64)
        with loop(body["flag_count"]) as k:
            place = numbers + flags[k]
            with when(place.load().differs(0)):
                place.store(0)
                flag.pointer(I64).store(1)
        self.leave(flag, failed)

    def leave(self, flag: Any, failed: Any) -> None:
        """Branch away if the job's flag is set."""
        b = self.b
        on = b.append_basic_block("on")
        bad = flag.pointer(I64).load()
        b.cbranch(bad.differs(0), failed, on)
        b.position_at_end(on)

    def ask(self, count: Any, every: Any, flag: Any, failed: Any) -> None:
        """After each ``every`` iterations ask whether the user wants to interrupt."""
        poll, thread = (self.known[name].load() for name in ("poll", "thread"))
        turn = (count % every).equals(every - 1)
        with when(turn & poll.differs(0)):
            me = poll.like(self.b.call(thread.function(THREAD), []))
            with when(me.equals(self.known["main"].load())):
                stop = poll.like(self.b.call(poll.function(POLL), []))
                with when(stop.differs(0)):
                    flag.pointer(I64).store(1)
        self.leave(flag, failed)

    def copy(self, to: Any, start: Any, nbytes: Any) -> None:
        kinds = [POINTER, POINTER, I64]
        memcpy = self.b.module.declare_intrinsic("llvm.memcpy", kinds)
        call(memcpy, [to.pointer(I8), start.pointer(I8), nbytes, I1(0)])

    def holds(self, address: Any) -> Any:
        """Whether the truth value at an address holds."""
        return address.pointer(I8).load().differs(0)

    def even(self, number: Any) -> Any:
        return (number & 1).equals(0)


def _emit_cond(e: _Emitter) -> None:
    b, job = e.b, e.fields(COND)
    first = len(COND)
    then, other = e.fields(BODY, first), e.fields(BODY, first + len(BODY))
    rows = first + 2 * len(BODY)
    failed = b.append_basic_block("failed")
    start = rows + job["then_fixed"] * len(FIXED)
    with if_else(e.holds(job["*predicate"])) as (yes, no):
        with yes:
            e.each(rows, job["then_fixed"], FIXED, lambda s, a: e.fill(then, s, a))
            e.go(then, job["*flag"], failed)
        with no:
            e.each(start, job["other_fixed"], FIXED, lambda s, a: e.fill(other, s, a))
            e.go(other, job["*flag"], failed)
    b.branch(failed)
    b.position_at_end(failed)
    b.ret_void()


def _emit_scan(e: _Emitter) -> None:
    b, job = e.b, e.fields(SCAN)
    body = e.fields(BODY, len(SCAN))
    flag, length = job["*flag"], job["length"]
    failed = b.append_basic_block("failed")
    start = len(SCAN) + len(BODY)
    rows = e.each(start, job["fixed"], FIXED, lambda s, a: e.fill(body, s, a))
    carries = rows + job["rows"] * len(ROW)
    back = job["reverse"].differs(0)

    def keep(asks: Any, slot: Any, first: Any, last: Any, spare: Any, n: Any) -> None:
        e.copy(last, first, n)

    def hold(slot: Any, first: Any, last: Any, n: Any) -> None:
        e.copy(last, first, n)
        e.fill(body, slot, last)

    with when(length.equals(0)):
        e.each(carries, job["carries"], CARRY, keep)
    held = carries + job["carries"] * len(CARRY)
    stacks = e.each(held, job["held"], HELD, hold)
    one = select(back, 0, 1)  # from a step to the row of its new carry

    def begin(slot: Any, result: Any, first: Any, stack: Any, stride: Any) -> None:
        row = select(back, length, 0)
        e.copy(stack + row * stride, first, stride)

    e.each(stacks, job["stacked"], STACKED, begin)
    with loop(length) as k:
        left = length - 1 - k  # iterations after this one
        index = select(back, left, k)

        def row(slot: Any, address: Any, stride: Any) -> None:
            e.fill(body, slot, address + index * stride)

        def carry(
            read: Any, slot: Any, first: Any, last: Any, spare: Any, n: Any
        ) -> None:
            even = e.even(left)
            before = select(even, spare, last)
            begins = k.equals(0)
            e.fill(body, read, select(begins, first, before))
            e.fill(body, slot, select(even, last, spare))

        def stacked(
            slot: Any, result: Any, first: Any, stack: Any, stride: Any
        ) -> None:
            new = index + one
            old = index + (1 - one)
            e.fill(body, slot, stack + old * stride)
            e.fill(body, result, stack + new * stride)

        e.each(stacks, job["stacked"], STACKED, stacked)
        e.each(rows, job["rows"], ROW, row)
        e.each(carries, job["carries"], CARRY, carry)
        e.go(body, flag, failed, k.equals(0))
        e.ask(k, job["poll"], flag, failed)
    b.branch(failed)
    b.position_at_end(failed)
    b.ret_void()


def _emit_while(e: _Emitter) -> None:
    b, job = e.b, e.fields(WHILE)
    first_body = len(WHILE)
    asks, body = e.fields(BODY, first_body), e.fields(BODY, first_body + len(BODY))
    flag = job["*flag"]
    start = first_body + 2 * len(BODY)
    middle = e.each(start, job["asks_fixed"], FIXED, lambda s, a: e.fill(asks, s, a))
    carries = e.each(middle, job["fixed"], FIXED, lambda s, a: e.fill(body, s, a))

    def hold(look: Any, slot: Any, first: Any, last: Any, n: Any) -> None:
        e.copy(last, first, n)
        e.fill(asks, look, last)
        e.fill(body, slot, last)

    held = carries + job["carries"] * len(WHILE_CARRY)
    e.each(held, job["held"], WHILE_HELD, hold)
    names = ("head", "step", "over", "failed")
    head, step, over, failed = (b.append_basic_block(name) for name in names)
    count = Pointer(b, b.alloca(I64), I64)
    count.store(0)
    b.branch(head)

    b.position_at_end(head)
    done = count.load()
    even = e.even(done)
    begins = done.equals(0)

    def now(first: Any, last: Any, spare: Any) -> Any:
        return select(begins, first, select(even, spare, last))

    def look(a: Any, r: Any, w: Any, first: Any, last: Any, spare: Any, n: Any) -> None:
        e.fill(asks, a, now(first, last, spare))

    def move(a: Any, r: Any, w: Any, first: Any, last: Any, spare: Any, n: Any) -> None:
        e.fill(body, r, now(first, last, spare))
        e.fill(body, w, select(even, last, spare))

    def end(a: Any, r: Any, w: Any, first: Any, last: Any, spare: Any, n: Any) -> None:
        with when(begins | even):
            e.copy(last, now(first, last, spare), n)

    e.each(carries, job["carries"], WHILE_CARRY, look)
    e.go(asks, flag, failed, begins)
    b.cbranch(e.holds(job["*predicate"]), step, over)

    b.position_at_end(step)
    limit = e.known["limit"].load()  # 0: there is none
    with when(limit.differs(0)), when(done >= limit.pointer(I64).load()):
        flag.pointer(I64).store(1)
    e.leave(flag, failed)
    e.each(carries, job["carries"], WHILE_CARRY, move)
    e.go(body, flag, failed, begins)
    e.ask(done, job["poll"], flag, failed)
    count.store(done + 1)
    b.branch(head)

    b.position_at_end(over)
    e.each(carries, job["carries"], WHILE_CARRY, end)
    job["*steps"].pointer(I64).store(done)
    b.branch(failed)
    b.position_at_end(failed)
    b.ret_void()
