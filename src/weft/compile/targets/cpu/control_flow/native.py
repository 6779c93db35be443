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

from weft.compile.emit.control_flow import I8, I32, I64, POINTER, i64, loop, when
from weft.compile.emit.isa import Isa, prepare_function

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
        job = b.bitcast(function.args[0], I64.as_pointer())
        emit(_Emitter(b, job, run, known))


class _Emitter:
    """What the three functions share."""

    def __init__(self, b: Any, job: Any, run: Any, known: dict[str, Any]) -> None:
        self.b, self.job, self.run, self.known = b, job, run, known

    def word(self, at: Any) -> Any:
        return self.b.load(self.place(at))

    def place(self, at: Any) -> Any:
        return self.b.gep(self.job, [i64(at) if isinstance(at, int) else at])

    def words(self, start: Any, count: int) -> list[Any]:
        """Words from a pointer on."""
        return [self.b.load(self.b.gep(start, [i64(k)])) for k in range(count)]

    def fields(self, names: tuple[str, ...]) -> dict[str, Any]:
        return {name: self.word(k) for k, name in enumerate(names)}

    def body(self, at: int) -> dict[str, Any]:
        return {name: self.word(at + k) for k, name in enumerate(BODY)}

    def each(
        self, start: Any, count: Any, names: tuple[str, ...], do: Callable[..., None]
    ) -> Any:
        """Do something with the words of each row; gives the place behind them."""
        b, width = self.b, len(names)
        with loop(b, i64(0), count) as k:
            row = self.place(b.add(start, b.mul(k, i64(width))))
            do(*self.words(row, width))
        return b.add(start, b.mul(count, i64(width)))

    def fill(self, body: dict[str, Any], slot: Any, address: Any) -> None:
        """Put an address into a slot of a body, if that reads it."""
        b = self.b
        with when(b, b.icmp_signed(">=", slot, i64(0))):
            slots = b.inttoptr(body["*slots"], I64.as_pointer())
            b.store(address, b.gep(slots, [slot]))

    def go(
        self, body: dict[str, Any], flag: Any, failed: Any, first: Any = None
    ) -> None:
        """Run a body; on an error set the flag, clear the body's and branch away.

        ``first`` tells whether it is the first iteration.
        """
        b = self.b
        gangs = b.inttoptr(body["*gangs"], I64.as_pointer())
        if first is not None:
            b.call(self.run, [gangs, i64(0), i64(1)])
            first = b.select(first, i64(1), body["begin"])
        b.call(self.run, [gangs, first or i64(0), body["count"]])
        numbers = b.inttoptr(body["*sizes"], I64.as_pointer())
        flags = b.inttoptr(body["*flags"], I64.as_pointer())
        with loop(b, i64(0), body["flag_count"]) as k:
            place = b.gep(numbers, [b.load(b.gep(flags, [k]))])
            value = b.load(place)
            with when(b, b.icmp_signed("!=", value, i64(0))):
                b.store(i64(0), place)
                b.store(i64(1), b.inttoptr(flag, I64.as_pointer()))
        self.leave(flag, failed)

    def leave(self, flag: Any, failed: Any) -> None:
        """Branch away if the job's flag is set."""
        b = self.b
        on = b.append_basic_block("on")
        bad = b.load(b.inttoptr(flag, I64.as_pointer()))
        b.cbranch(b.icmp_signed("!=", bad, i64(0)), failed, on)
        b.position_at_end(on)

    def ask(self, count: Any, every: Any, flag: Any, failed: Any) -> None:
        """After each ``every`` iterations ask whether the user wants to interrupt."""
        b = self.b
        poll, thread = (b.load(self.known[name]) for name in ("poll", "thread"))
        turn = b.icmp_signed("==", b.srem(count, every), b.sub(every, i64(1)))
        with when(b, b.and_(turn, b.icmp_signed("!=", poll, i64(0)))):
            me = b.call(b.inttoptr(thread, THREAD.as_pointer()), [])
            with when(b, b.icmp_signed("==", me, b.load(self.known["main"]))):
                stop = b.call(b.inttoptr(poll, POLL.as_pointer()), [])
                with when(b, b.icmp_signed("!=", stop, ir.Constant(I32, 0))):
                    b.store(i64(1), b.inttoptr(flag, I64.as_pointer()))
        self.leave(flag, failed)

    def copy(self, to: Any, start: Any, nbytes: Any) -> None:
        b = self.b
        kinds = [POINTER, POINTER, I64]
        memcpy = b.module.declare_intrinsic("llvm.memcpy", kinds)
        to, start = b.inttoptr(to, POINTER), b.inttoptr(start, POINTER)
        b.call(memcpy, [to, start, nbytes, ir.Constant(ir.IntType(1), 0)])

    def holds(self, address: Any) -> Any:
        """Whether the truth value at an address holds."""
        value = self.b.load(self.b.inttoptr(address, I8.as_pointer()))
        return self.b.icmp_signed("!=", value, ir.Constant(I8, 0))

    def even(self, number: Any) -> Any:
        return self.b.icmp_signed("==", self.b.and_(number, i64(1)), i64(0))


def _emit_cond(e: _Emitter) -> None:
    b, job = e.b, e.fields(COND)
    first = len(COND)
    then, other = e.body(first), e.body(first + len(BODY))
    rows = i64(first + 2 * len(BODY))
    failed = b.append_basic_block("failed")
    start = b.add(rows, b.mul(job["then_fixed"], i64(len(FIXED))))
    with b.if_else(e.holds(job["*predicate"])) as (yes, no):
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
    body = e.body(len(SCAN))
    flag, length = job["*flag"], job["length"]
    failed = b.append_basic_block("failed")
    start = i64(len(SCAN) + len(BODY))
    rows = e.each(start, job["fixed"], FIXED, lambda s, a: e.fill(body, s, a))
    carries = b.add(rows, b.mul(job["rows"], i64(len(ROW))))
    back = b.icmp_signed("!=", job["reverse"], i64(0))

    def keep(asks: Any, slot: Any, first: Any, last: Any, spare: Any, n: Any) -> None:
        e.copy(last, first, n)

    def hold(slot: Any, first: Any, last: Any, n: Any) -> None:
        e.copy(last, first, n)
        e.fill(body, slot, last)

    with when(b, b.icmp_signed("==", length, i64(0))):
        e.each(carries, job["carries"], CARRY, keep)
    held = b.add(carries, b.mul(job["carries"], i64(len(CARRY))))
    stacks = e.each(held, job["held"], HELD, hold)
    one = b.select(back, i64(0), i64(1))  # from a step to the row of its new carry

    def begin(slot: Any, result: Any, first: Any, stack: Any, stride: Any) -> None:
        row = b.select(back, length, i64(0))
        e.copy(b.add(stack, b.mul(row, stride)), first, stride)

    e.each(stacks, job["stacked"], STACKED, begin)
    with loop(b, i64(0), length) as k:
        left = b.sub(b.sub(length, i64(1)), k)  # iterations after this one
        index = b.select(back, left, k)

        def row(slot: Any, address: Any, stride: Any) -> None:
            e.fill(body, slot, b.add(address, b.mul(index, stride)))

        def carry(
            read: Any, slot: Any, first: Any, last: Any, spare: Any, n: Any
        ) -> None:
            even = e.even(left)
            before = b.select(even, spare, last)
            begins = b.icmp_signed("==", k, i64(0))
            e.fill(body, read, b.select(begins, first, before))
            e.fill(body, slot, b.select(even, last, spare))

        def stacked(
            slot: Any, result: Any, first: Any, stack: Any, stride: Any
        ) -> None:
            new = b.add(index, one)
            old = b.add(index, b.sub(i64(1), one))
            e.fill(body, slot, b.add(stack, b.mul(old, stride)))
            e.fill(body, result, b.add(stack, b.mul(new, stride)))

        e.each(stacks, job["stacked"], STACKED, stacked)
        e.each(rows, job["rows"], ROW, row)
        e.each(carries, job["carries"], CARRY, carry)
        e.go(body, flag, failed, b.icmp_signed("==", k, i64(0)))
        e.ask(k, job["poll"], flag, failed)
    b.branch(failed)
    b.position_at_end(failed)
    b.ret_void()


def _emit_while(e: _Emitter) -> None:
    b, job = e.b, e.fields(WHILE)
    first_body = len(WHILE)
    asks, body = e.body(first_body), e.body(first_body + len(BODY))
    flag = job["*flag"]
    start = i64(first_body + 2 * len(BODY))
    middle = e.each(start, job["asks_fixed"], FIXED, lambda s, a: e.fill(asks, s, a))
    carries = e.each(middle, job["fixed"], FIXED, lambda s, a: e.fill(body, s, a))

    def hold(look: Any, slot: Any, first: Any, last: Any, n: Any) -> None:
        e.copy(last, first, n)
        e.fill(asks, look, last)
        e.fill(body, slot, last)

    held = b.add(carries, b.mul(job["carries"], i64(len(WHILE_CARRY))))
    e.each(held, job["held"], WHILE_HELD, hold)
    names = ("head", "step", "over", "failed")
    head, step, over, failed = (b.append_basic_block(name) for name in names)
    count = b.alloca(I64)
    b.store(i64(0), count)
    b.branch(head)

    b.position_at_end(head)
    done = b.load(count)
    even = e.even(done)
    begins = b.icmp_signed("==", done, i64(0))

    def now(first: Any, last: Any, spare: Any) -> Any:
        return b.select(begins, first, b.select(even, spare, last))

    def look(a: Any, r: Any, w: Any, first: Any, last: Any, spare: Any, n: Any) -> None:
        e.fill(asks, a, now(first, last, spare))

    def move(a: Any, r: Any, w: Any, first: Any, last: Any, spare: Any, n: Any) -> None:
        e.fill(body, r, now(first, last, spare))
        e.fill(body, w, b.select(even, last, spare))

    def end(a: Any, r: Any, w: Any, first: Any, last: Any, spare: Any, n: Any) -> None:
        with when(b, b.or_(begins, even)):
            e.copy(last, now(first, last, spare), n)

    e.each(carries, job["carries"], WHILE_CARRY, look)
    e.go(asks, flag, failed, begins)
    b.cbranch(e.holds(job["*predicate"]), step, over)

    b.position_at_end(step)
    limit = b.load(b.inttoptr(b.load(e.known["limit"]), I64.as_pointer()))
    with when(b, b.icmp_signed(">=", done, limit)):
        b.store(i64(1), b.inttoptr(flag, I64.as_pointer()))
    e.leave(flag, failed)
    e.each(carries, job["carries"], WHILE_CARRY, move)
    e.go(body, flag, failed, begins)
    e.ask(done, job["poll"], flag, failed)
    b.store(b.add(done, i64(1)), count)
    b.branch(head)

    b.position_at_end(over)
    e.each(carries, job["carries"], WHILE_CARRY, end)
    b.store(done, b.inttoptr(job["*steps"], I64.as_pointer()))
    b.branch(failed)
    b.position_at_end(failed)
    b.ret_void()
